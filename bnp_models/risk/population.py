"""Disclosure risk of a sample: how many of its uniques are unique in the population.

Given the parameters of one kept draw, a new population record falls in cell c with probability
q_c, so that the N - n unsampled records add Binomial(N - n, q_c) to a sample unique. Where the
sample has design weights, q is of `unsampled_law` and the sample's own law another. Everything here
follows from the q_c of every kept draw (Skinner & Shlomo 2008, doi:10.1198/016214507000001328;
Battiston & Rimella 2024, section 3.2.2 and appendix B).
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from tqdm import tqdm

from bnp_models.data.arguments import check_kind
from bnp_models.data.contingency import labels_of
from bnp_models.data.display import Shown, displayed, spread, title_of
from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.schema import MicrodataError
from bnp_models.data.weight_classes import WeightedMicrodata
from bnp_models.data.weights import check_population_size
from bnp_models.inference.convergence import sampled_rate
from bnp_models.inference.placement import in_threads
from bnp_models.inference.run import Run, blocks_of_draws
from bnp_models.inference.sampling import coded_input
from bnp_models.inference.settings import Settings
from bnp_models.inference.weighting import sample_law, unsampled_law
from bnp_models.kernels.numerics.platforms import map_draws
from bnp_models.kernels.numerics.shapes import coarse_size
from bnp_models.kernels.variates.rng import Keys, numpy_generator
from bnp_models.models.model import Model, PredictsCells
from bnp_models.models.options import check_choice, typed_key
from bnp_models.risk.shared_cells import shared_risks
from bnp_models.risk.ties import LAYER_DRAWS, MODEL_HOLDS, Tied, Ties
from bnp_models.zeros.structural_zeros import StructuralZeros

METHODS = ("auto", "exact", "draws", "sequential")

TIES = ("on", "sensitivity", "off")

TAUS = ("tau1", "tau2")

# Shared draws, and particles of sequential imputation. On a CPU draws have the smaller error at
# equal cost; with fewer than 1,024 particles the plug-in tau_1 is biased by more than 1%.
NUM_DRAWS = {"exact": 0, "draws": 4096, "sequential": 1024}

# Sequential imputation is slow; without a `thin` of the caller's it evaluates this many draws.
SEQUENTIAL_DRAWS = 100

# Of other methods: more than their effective sample size calls for.
EVALUATED_DRAWS = 2000

# Relative Monte Carlo error of cell probabilities above which a warning says so.
MAX_RELATIVE_ERROR = 0.1


@dataclass(frozen=True, eq=False)
class LayerDraws:
    """Layer for ties: its parameters, and the risk without it where it is on, or the reverse."""

    shape: np.ndarray
    """(chains, draws) draws of the layer's shape; `ties.MODEL_HOLDS` where there are no ties."""
    exponent: np.ndarray
    """(chains, draws) draws of its exponent."""
    tau1: np.ndarray
    """(chains, draws) draws of tau_1 without the layer where it is on, and with it where it is a
    sensitivity analysis."""
    tau2: np.ndarray
    """(chains, draws) draws of tau_2, likewise."""

    @property
    def tied(self) -> np.ndarray:
        """(chains, draws) whether a draw has ties."""
        return self.shape < MODEL_HOLDS


@dataclass(frozen=True, eq=False)
@displayed
class PopulationRisk:
    """Posterior of the disclosure risk of a sample.

    Examples
    --------
    >>> risk = bnp.population_risk(run, 5_000)
    >>> risk.records().columns.tolist()
    ['row', 'age', 'sex', 'education', 'r1', 'r2']
    """

    run: Run
    """Chains that the risk was evaluated from."""
    population_size: int
    """N."""
    method: str
    """How cell probabilities were evaluated: "exact", "draws" or "sequential"."""
    tau1: np.ndarray
    """(chains, draws) draws of the number of sample uniques that are unique in the population."""
    tau1_conditional: np.ndarray
    """(chains, draws) expectation of that number given each draw's parameters, averaged over
    `ties.LAYER_DRAWS` draws of the layer for ties; its distribution is narrower than that of the
    number."""
    tau2: np.ndarray
    """(chains, draws) draws of the sum over sample uniques of 1/F, F their cell's population count:
    the expected number of correct matches if each sample unique is matched at random within its
    cell."""
    tau2_conditional: np.ndarray
    """(chains, draws) expectation of that sum given each draw's parameters; its distribution is
    narrower too."""
    log_likelihood: np.ndarray
    """(chains, draws) sum over records of log p_c, the labels integrated out."""
    rows: np.ndarray
    """0-based rows of the sample uniques."""
    r1: np.ndarray
    """Per sample unique, the posterior mean of P(F = 1)."""
    r2: np.ndarray
    """Per sample unique, the posterior mean of E(1/F)."""
    thin: int
    """Interval between the draws of the run that were used: 1 is every draw."""
    relative_error: float
    """Median relative standard error of the cell probabilities; 0 where they are exact."""
    ties: str
    """Whether the layer for ties is "on", a "sensitivity" analysis or "off"."""
    layer: LayerDraws | None = None
    """Draws of the layer for ties, and the risk that is reported for comparison; None if the layer
    is off."""
    r2_of_cells: np.ndarray | None = None
    """(C,) posterior mean of E(1/F) of the records of each cell of the sample, in the order of its
    contingency table; None unless the risk is of all records."""

    @cached_property
    def law(self) -> Run:
        """The chains as those of the records alone, where these have design weights."""
        return sample_law(self.run)

    @property
    def weighted(self) -> WeightedMicrodata | None:
        """The sample with its design weights; None where it has none."""
        return self.run.table if isinstance(self.run.table, WeightedMicrodata) else None

    def records(self) -> pd.DataFrame:
        """One row per sample unique, riskiest first: row, the key variables, r1, r2.

        If all records were asked for, there is one row for each record, with a column f before r1:
        the number of records of the sample with the same values. r1 is 0 where f is not 1.
        """
        table = self.law.table
        if self.r2_of_cells is not None:
            return self._all_records(table, self.r2_of_cells)
        frame = labels_of(table.schema, table.codes_at(self.rows))
        frame.insert(0, "row", self.rows)
        frame["r1"], frame["r2"] = self.r1, self.r2
        return frame.sort_values(["r1", "row"], ascending=[False, True], ignore_index=True)

    def _all_records(self, table: Microdata, r2_of_cells: np.ndarray) -> pd.DataFrame:
        """`records` of all records."""
        cells, frame = table.cells(), labels_of(table.schema, table.codes)
        frame.insert(0, "row", np.arange(table.n))
        frame["f"] = cells.counts[cells.record_cell]
        frame["r1"] = 0.0
        frame.loc[self.rows, "r1"] = self.r1
        frame["r2"] = r2_of_cells[cells.record_cell]
        return frame.sort_values(
            ["r1", "r2", "row"], ascending=[False, False, True], ignore_index=True
        )

    def by_level(self) -> pd.DataFrame:
        """One row per level: the part of the risk that comes from its records.

        The columns are variable, level, records and sample_uniques (their numbers in the sample),
        and tau1 and tau2 (sums of r1 and r2 over the sample uniques of the level; over all levels
        of a variable they add up to the posterior means of tau_1 and tau_2). If the risk was
        computed for all records, there is also r2, the sum of r2 over all records of the level: the
        expected number of correct matches among them.
        """
        table = self.law.table.tabulated
        rows = []
        codes_of_uniques = table.codes_at(self.rows)
        for j, name in enumerate(table.schema.variables):
            labels, of_unique = table.schema.levels[j], codes_of_uniques[:, j]
            size = len(labels)
            columns = [
                np.bincount(table.codes[:, j], table.counts, size).astype(np.int64),
                np.bincount(of_unique, minlength=size),
                np.bincount(of_unique, self.r1, size),
                np.bincount(of_unique, self.r2, size),
            ]
            if self.r2_of_cells is not None:
                columns.append(
                    np.bincount(table.codes[:, j], table.counts * self.r2_of_cells, size)
                )
            rows += [(name, *row) for row in zip(labels, *columns, strict=True)]
        names = ["variable", "level", "records", "sample_uniques", "tau1", "tau2"]
        names += [] if self.r2_of_cells is None else ["r2"]
        return pd.DataFrame(rows, columns=names)

    def monitored(self, run: Run) -> dict[str, np.ndarray]:
        """Quantities that convergence of the run is judged by, thinned as the risk is."""
        of_chains = {name: run.draws[name] for name in ("components", "alpha")} | sampled_rate(run)
        return {
            "tau1": self.tau1,
            "tau1_conditional": self.tau1_conditional,
            **{name: run.at_kept_arrays(values, self.thin) for name, values in of_chains.items()},
            "log_likelihood": self.log_likelihood,
        }

    def warnings(self) -> list[str]:
        """Sentences on imprecise cell probabilities, and on design weights that look wrong."""
        of_weights = [] if self.weighted is None else self.weighted.warnings(self.population_size)
        return self.imprecise() + of_weights

    def imprecise(self) -> list[str]:
        """Sentence on cell probabilities that are not precise enough; none where they are."""
        if self.relative_error <= MAX_RELATIVE_ERROR:
            return []
        return [
            f"imprecise cell probabilities: their Monte Carlo error is {self.relative_error:.0%} "
            f"(at most {MAX_RELATIVE_ERROR:.0%} is wanted); choose fewer key variables or the "
            "exact method"
        ]

    def _shown(self) -> Shown:
        """What is shown of it."""
        run = self.run
        lines = {
            "sample": title_of(self.law.table),
            "population": self.population_size,
            "sample uniques": len(self.rows),
            "tau_1": spread(self.tau1),
            "tau_2": spread(self.tau2),
            "ties": self.ties,
            "method": self.method,
        }
        return Shown(f"PopulationRisk: by {run.model.name}", lines, self.records())


def population_risk(
    run: Run,
    population_size: int,
    *,
    ties: str = "on",
    all_records: bool = False,
    method: str = "auto",
    thin: int | None = None,
    key: jax.Array | None = None,
    progress: bool = False,
) -> PopulationRisk:
    """Evaluate the posterior of tau_1, tau_2 and the risk of each sample unique.

    Parameters
    ----------
    run
        Chains that kept the model's ``parameters``. If the sample has design weights
        (`weighted_microdata`), these determine the distribution of the persons who are not in the
        sample.
    population_size
        N, at least the sample's size.
    ties
        Whether the layer for ties (`bnp_models.risk.ties`) is used. It lets the counts of the
        population's cells vary more than the model alone allows (overdispersion), by an amount that
        the cells of the sample determine. "on": the risk is computed with it, and tau_1 and tau_2
        without it are reported too. "off": the risk is that of the model alone. "sensitivity": the
        risk is that of the model alone, and tau_1 and tau_2 with the layer are reported too.
    all_records
        Whether to compute E(1/F) also for records that are not unique in the sample, from the same
        draws.
    method
        "exact" evaluates cell probabilities without Monte Carlo error: latent class models in
        closed form, the HDP by the recursion over subsets of variables. For the HDP, "draws"
        averages over draws of record weights that all cells share, and "sequential" estimates each
        cell by sequential imputation; both correct the bias of tau by a jackknife over two halves
        of the draws. "auto" is "exact" for up to ``max_exact_variables`` variables of the model,
        and "draws" for more.
    thin
        Evaluate every `thin`-th draw of `run`. Default: about 2,000 draws of all chains, and about
        100 of each chain under "sequential".
    key
        Key for the random numbers of this function; by default a key that `run` keeps for this
        purpose.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    ValueError
        If the model gives no probabilities of cells (`PredictsCells`), the population is smaller
        than the sample, a record is incomplete, a variable is named row, r1 or r2 (or f, with all
        records), `ties`, `method` or `thin` is unknown or out of range, all records are asked for
        of a contingency table, or `run` kept no parameters.

    Examples
    --------
    >>> risk = bnp.population_risk(run, population_size=5_000)
    >>> risk.tau1.shape
    (2, 20)
    """
    check_kind(Run, "population_risk(run, population_size)", run=run)
    if key is not None:
        key = typed_key(key)
    model, chains = checked_model(run.model), run
    run, unsampled = sample_law(chains), unsampled_law(chains)
    table = run.table
    check_table(table, population_size, all_records)
    check_choice(TIES, ties=ties)
    method = checked_method(method, model, table)
    thin = _checked_thin(thin, run.settings, method)
    key_particles, key_counts = Keys(run.key if key is None else key)
    generator = numpy_generator(key_counts)
    draws = run.parameters(thin)
    layer = None if ties == "off" else Ties.of(run, key_particles, method, NUM_DRAWS[method])

    cells = table.tabulated
    unique_cells = cells.unique_cells
    shared_cells = np.flatnonzero(cells.counts > 1) if all_records else unique_cells[:0]
    asked = np.append(unique_cells, shared_cells)
    num_new = population_size - table.n
    by_draw: dict[str, list[np.ndarray]] = defaultdict(list)
    of_layer: dict[str, list[np.ndarray]] = defaultdict(list)
    sum_r1, sum_r2 = np.zeros(len(unique_cells)), np.zeros(len(unique_cells))
    sum_r2_shared = np.zeros(len(shared_cells))
    evaluated = cell_probabilities(run, draws, cells.codes, method, key_particles, progress)
    of_unsampled: Iterable = itertools.repeat(None)
    if run is not chains:
        # The same particles serve both laws.
        of_unsampled = cell_probabilities(
            unsampled, unsampled.parameters(thin), cells.codes[asked], method, key_particles
        )
    for (log_p, relative_se, halves), of_rest in zip(evaluated, of_unsampled, strict=False):
        # For one of the sample's records, and for a person who is not in it.
        of_asked = _at(asked, log_p, halves)
        of_rest = of_asked if of_rest is None else (of_rest[0], of_rest[2])
        uniques, shared = slice(len(unique_cells)), slice(len(unique_cells), None)
        of_shared = _at(shared, *of_asked), _at(shared, *of_rest)
        of_sample, of_rest = _at(uniques, *of_asked), _at(uniques, *of_rest)
        q = np.exp(of_rest[0])
        evaluate: Callable = _model_risks
        on_layer = None
        if layer is not None:
            several = layer.draw(generator, np.exp(log_p), LAYER_DRAWS)
            tied = several[0]
            of_layer["shape"].append(tied.shape)
            of_layer["exponent"].append(tied.exponent)
            beside = tied.draw_probabilities(generator, np.exp(of_sample[0]), q)
            if ties == "on":
                evaluate, q, beside = partial(_mean_risks, several), beside, q
                on_layer = tied
            for name, tau in zip(TAUS, draw_taus(generator, beside, num_new), strict=True):
                of_layer[name].append(tau)
        r1, r2 = _unbiased_risks(evaluate, of_sample, of_rest, num_new)
        sum_r1 += r1.sum(axis=0)
        sum_r2 += r2.sum(axis=0)
        if all_records:
            evaluate = partial(shared_risks, on_layer, cells.counts[shared_cells])
            sum_r2_shared += _unbiased_risks(evaluate, *of_shared, num_new)[1].sum(axis=0)
        for name, tau in zip(TAUS, draw_taus(generator, q, num_new), strict=True):
            by_draw[name].append(tau)
        by_draw["tau1_conditional"].append(r1.sum(axis=1))
        by_draw["tau2_conditional"].append(r2.sum(axis=1))
        by_draw["log_likelihood"].append(log_p @ cells.counts)
        by_draw["error"].append(np.median(relative_se, axis=1))

    shape = draws["alpha"].shape
    figures, layer_draws = (
        {name: np.concatenate(parts).reshape(shape) for name, parts in draws_of.items()}
        for draws_of in (by_draw, of_layer)
    )
    relative_error = float(np.median(figures.pop("error")))
    rows = cells.first_rows[unique_cells]
    in_order = np.argsort(rows)
    r2_of_cells = None
    if all_records:
        r2_of_cells = np.empty(len(cells.counts))
        r2_of_cells[asked] = np.append(sum_r2, sum_r2_shared) / math.prod(shape)
    return PopulationRisk(
        run=chains,
        population_size=int(population_size),
        method=method,
        rows=rows[in_order],
        r1=(sum_r1 / math.prod(shape))[in_order],
        r2=(sum_r2 / math.prod(shape))[in_order],
        thin=thin,
        relative_error=relative_error,
        ties=ties,
        layer=LayerDraws(**layer_draws) if layer_draws else None,
        r2_of_cells=r2_of_cells,
        **figures,
    )


def cell_probabilities(
    run: Run,
    draws: dict[str, np.ndarray],
    codes: np.ndarray,
    method: str,
    key: jax.Array,
    progress: bool = False,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Evaluate the probabilities of cells for a new record, a block of draws after the other.

    Parameters
    ----------
    run
        The chains that the draws are of.
    draws
        Parameters of D draws in all, each (chains, draws, ...), as `Run.parameters` returns them.
    codes
        (C, J) level codes of the cells, in the sample's coding.
    method
        "exact", "draws" or "sequential".
    key
        For the particles.
    progress
        Show a progress bar on stderr.

    Yields
    ------
    log_p
        (block, C) log probability of each cell.
    relative_se
        (block, C) its relative standard error; (block, 1) zeros for "exact".
    halves
        (block, 2, C) log probability from either half of the Monte Carlo draws; None for "exact".
    """
    total = draws["alpha"].size
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    codes = codes if run.coding is None else run.coding.reduce(codes)
    # Padded, so that samples of nearly as many cells share compiled programs.
    number = len(codes)
    codes = codes[np.minimum(np.arange(coarse_size(number)), number - 1)]
    evaluate = partial(
        _evaluate,
        run.model,
        jnp.asarray(codes, jnp.int32),
        num_levels=run.num_levels,
        method=method,
    )

    def of_block(indices):
        block, padded = indices
        keys = jax.vmap(partial(jax.random.fold_in, key))(padded)
        estimate = evaluate(keys, {name: value[padded] for name, value in flat.items()})
        log_p, relative_se, halves = (
            np.asarray(part, np.float64)[: block.size, ..., :number] for part in estimate
        )
        return log_p, relative_se, None if method == "exact" else halves

    blocks = blocks_of_draws(total, len(codes))
    evaluated = in_threads(of_block, blocks)
    yield from tqdm(evaluated, desc="risk", total=len(blocks), disable=not progress)


def draw_ties(run: Run, draws: dict[str, np.ndarray], key: jax.Array) -> Tied:
    """Draw the parameters of the layer for ties given each of D draws of a run.

    Parameters
    ----------
    run
        The chains that the draws are of.
    draws
        Parameters, each (chains, draws, ...), as `Run.parameters` returns them.
    key
        Used once.
    """
    key_particles, key_layer = Keys(key)
    generator, cells = numpy_generator(key_layer), run.table.tabulated
    method = checked_method("auto", run.model, run.table)
    layer = Ties.of(run, key_particles, method, NUM_DRAWS[method])
    evaluated = cell_probabilities(run, draws, cells.codes, method, key_particles)
    blocks = [layer.draw(generator, np.exp(log_p))[0] for log_p, _, _ in evaluated]
    shapes, exponents, _ = zip(*blocks, strict=True)
    return Tied(np.concatenate(shapes), np.concatenate(exponents), run.table.n)


def record_risks(log_q: np.ndarray, num_new: int | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate r_1 = (1 - q)^M and r_2 = E 1 / (1 + Binomial(M, q)) for M unsampled records.

    Parameters
    ----------
    log_q
        Logarithms of cell probabilities, any shape, float64; q may be 1e-12 or less.
    num_new
        M = N - n, broadcast against `log_q`.

    Notes
    -----
    r_2 = (1 - (1 - q)^(M + 1)) / ((M + 1) q): Skinner & Shlomo (2008), with log1p and expm1 so
    that neither loses its digits at small q.
    """
    q = np.exp(np.minimum(log_q, -1e-12))
    log_1mq = np.log1p(-q)
    r2 = -np.expm1((num_new + 1) * log_1mq) / np.maximum((num_new + 1) * q, 1e-300)
    return np.exp(num_new * log_1mq), np.minimum(r2, 1.0)


def draw_joining(rng: np.random.Generator, q: np.ndarray, num_new: int | np.ndarray) -> np.ndarray:
    """Draw how many unsampled records join each sample unique in its cell, (draws, cells).

    Parameters
    ----------
    rng
        A NumPy generator.
    q
        (draws, cells) cell probabilities of each draw's parameters.
    num_new
        N - n unsampled records, for all draws or for each.

    Notes
    -----
    The unsampled records' counts are multinomial given q: exact, by sequential binomials, and so
    cheap at any N. tau_1 is the number of zeros, tau_2 the sum of 1 / (1 + count): `draw_taus`.
    """
    elsewhere = np.maximum(1 - q.sum(axis=1, keepdims=True), 0)
    p = np.concatenate([q, elsewhere], axis=1)
    return rng.multinomial(num_new, p / p.sum(axis=1, keepdims=True))[:, :-1]


def draw_taus(
    rng: np.random.Generator, q: np.ndarray, num_new: int | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw tau_1 and tau_2, each (draws,); arguments as for `draw_joining`."""
    joined = draw_joining(rng, q, num_new)
    return np.sum(joined == 0, axis=1, dtype=float), np.sum(1 / (1 + joined), axis=1)


def tau1_monitor(
    model: PredictsCells,
    table: Records | pd.DataFrame,
    population_size: int,
    max_cells: int = 256,
    conditions: StructuralZeros | pd.DataFrame | None = None,
) -> Callable[[dict[str, np.ndarray]], dict[str, float]]:
    """Make the `monitor` of `sample` that puts tau_1 of the first chain on the progress bar.

    Parameters
    ----------
    model, table, conditions
        Those given to `sample`.
    population_size
        N, at least the sample's size.
    max_cells
        With more sample uniques than this, tau_1 is computed for about this many of them and scaled
        up.

    Examples
    --------
    >>> monitor = bnp.tau1_monitor(model, table, 5_000)
    >>> latest = {name: draws[:, -1] for name, draws in run.draws.items()}
    >>> list(monitor(latest))
    ['tau_1']
    """
    call = "tau1_monitor(model, table, population_size)"
    table, conditions = coded_input(call, model, table, conditions)
    check_population_size(table, population_size)
    cells = table.tabulated
    unique = cells.codes[cells.unique_cells]
    part = unique[:: max(1, -(-len(unique) // max_cells))]
    coding = model.coding(conditions)
    num_levels = table.schema.num_levels if coding is None else coding.schema.num_levels
    part = part if coding is None else coding.reduce(part)
    num_new = population_size - table.n
    method = _default_method(model, table)

    def monitor(latest: dict[str, np.ndarray]) -> dict[str, float]:
        names = (*model.parameters, "alpha")
        if not len(part) or any(name not in latest for name in names):
            return {}
        log_q = _evaluate(
            model,
            jnp.asarray(part, jnp.int32),
            jax.random.key(0)[None],
            {name: latest[name][:1] for name in names},
            num_levels=num_levels,
            method=method,
        )[0]
        r1, _ = record_risks(np.asarray(log_q, np.float64), num_new)
        return {"tau_1": float(r1.sum()) * len(unique) / len(part)}

    return monitor


def checked_model(model: Model) -> PredictsCells:
    """The model, if it gives probabilities of cells."""
    if not isinstance(model, PredictsCells):
        raise ValueError(
            f"the {model.name} model gives no probabilities of cells, so that no risk follows from "
            "it; fit a mixed membership or latent class model"
        )
    return model


def check_table(table: Records, population_size: int, all_records: bool = False) -> None:
    """Raise MicrodataError unless the risk can be evaluated, and told record by record."""
    if all_records and not isinstance(table, Microdata):
        raise MicrodataError(
            "the risk of all records needs the records, and the table has counted cells; give the "
            "records, or leave out all_records (--all-records)"
        )
    for name in ("row", "r1", "r2", *(["f"] if all_records else [])):
        if name in table.schema.variables:
            raise MicrodataError(
                "the table of records (records.csv) has a column of this name; rename the variable "
                "or leave it out (--variables)",
                column=name,
            )
    table.require_complete("the disclosure risk")
    check_population_size(table, population_size)


def checked_method(method, model, table) -> str:
    """The method of this name; for "auto" that of the model."""
    check_choice(METHODS, method=method)
    return _default_method(model, table) if method == "auto" else method


def _default_method(model, table) -> str:
    """ "exact" where the model finds that quick, else "draws"."""
    return "exact" if table.num_variables <= model.max_exact_variables else "draws"


def _checked_thin(thin: int | None, settings: Settings, method: str) -> int:
    """Every how many of the draws to evaluate."""
    num_samples = settings.num_samples
    if thin is None:
        many = max(SEQUENTIAL_DRAWS, EVALUATED_DRAWS // settings.num_chains)
        thin = -(-num_samples // (SEQUENTIAL_DRAWS if method == "sequential" else many))
    if not 1 <= thin <= num_samples:
        raise ValueError(f"thin must be from 1 to {num_samples}, not {thin}")
    return thin


def _mean_risks(several, log_b, num_new, log_q):
    """Means of `Tied.record_risks` over several draws of the layer to each kept draw."""
    return np.mean([tied.record_risks(log_b, num_new, log_q) for tied in several], axis=0)


def _at(where, log_p, halves):
    """Columns of log probabilities, and of those of the halves, which may be None."""
    return log_p[..., where], None if halves is None else halves[..., where]


def _model_risks(log_b, num_new, log_q):
    """`record_risks` with the arguments of `Tied.record_risks`."""
    return record_risks(log_q, num_new)


def _unbiased_risks(evaluate, of_sample, of_rest, num_new):
    """r_1 and r_2 (draws, uniques), Monte Carlo bias taken off by a two-half jackknife.

    `of_sample` and `of_rest` are log probabilities and those of the halves, which may be None.
    """
    (log_b, halves_b), (log_q, halves_q) = of_sample, of_rest
    r1, r2 = evaluate(log_b, num_new, log_q)
    if halves_b is None:
        return r1, r2
    r1_halves, r2_halves = evaluate(halves_b, num_new, halves_q)
    return 2 * r1 - r1_halves.mean(axis=1), 2 * r2 - r2_halves.mean(axis=1)


@partial(jax.jit, static_argnames=("num_levels", "method"))
def _evaluate(model, cells, keys, draws, num_levels, method):
    """log p of every cell for every draw, its relative standard error, and log p of its halves."""

    def one(arguments):
        key, draw = arguments
        result = model.log_cell_probability(
            key, draw, cells, num_levels, method=method, num_draws=NUM_DRAWS[method]
        )
        if method == "exact":
            return result, jnp.zeros(1), jnp.zeros((2, 1))
        return result.log_p, result.relative_se, result.log_p_halves

    with jax.named_scope("cell_probabilities"):
        log_p, relative_se, halves = map_draws(one, (keys, draws))
    return log_p, relative_se.reshape(keys.size, -1), halves
