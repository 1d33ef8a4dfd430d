"""Disclosure risk of a sample: how many of its uniques are unique in the population.

Given the parameters of one kept draw, a new population record is in cell c with probability q_c, so
that Binomial(N - n, q_c) of the N - n unsampled records are in the cell of a sample unique. If the
sample has design weights, q comes from `unsampled_law`, because unsampled persons have another
distribution than the sample.
All results of this module are computed from the q_c of every kept draw (Skinner & Shlomo 2008,
doi:10.1198/016214507000001328; Battiston & Rimella 2024, section 3.2.2 and appendix B).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.cells import group_cells
from bnp_models.data.contingency import labels_of
from bnp_models.data.display import Shown, displayed, spread, title_of
from bnp_models.data.microdata import Microdata, Records, SmallCells
from bnp_models.data.schema import Label, MicrodataError
from bnp_models.data.weight_classes import WeightedMicrodata
from bnp_models.data.weights import check_population_size
from bnp_models.inference.convergence import sampled_rate
from bnp_models.inference.run import RecordsRun, Run, names_of_draw, shape_of_draws
from bnp_models.inference.sampling import coded_input
from bnp_models.inference.trace import Settings
from bnp_models.inference.weighting import sample_law
from bnp_models.kernels.variates.rng import Keys, numpy_generator
from bnp_models.models.model import PredictsCells
from bnp_models.models.options import check_choice, typed_key
from bnp_models.risk.evaluator import (
    NUM_DRAWS,
    Evaluator,
    checked_method,
    evaluate_draws,
    record_risks,
)
from bnp_models.risk.misclassification import Misclassification, MisclassifiedTaus
from bnp_models.risk.missing_keys import MISSING_KEYS, Completions, anonymity_of, matching_records
from bnp_models.risk.overdispersion import TIES, OverdispersionPosterior
from bnp_models.risk.taus import OverdispersionDraws, RiskSums
from bnp_models.zeros.structural_zeros import StructuralZeros

# Number of draws that are evaluated if the caller gives no `thin`: of all chains together (more
# than their effective sample size requires), and at least of each chain.
EVALUATED_DRAWS, LEAST_DRAWS = 2000, 100

# Folded into the key that a function was given.
_THINNING = 0x5448494E

# A warning is given if the relative Monte Carlo error of cell probabilities exceeds this.
MAX_RELATIVE_ERROR = 0.1


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

    run: RecordsRun
    """Chains from whose draws the risk was computed."""
    population_size: int
    """Size N of the population."""
    method: str
    """Method for cell probabilities: "exact" or "draws"."""
    tau1: np.ndarray
    """(chains, draws) draws of the number of sample uniques that are unique in the population."""
    tau1_conditional: np.ndarray
    """(chains, draws) expectation of that number given each draw's parameters, averaged over
    `overdispersion.AVERAGED_DRAWS` draws of the correction for overdispersion; its distribution is
    narrower than that of `tau1`."""
    tau2: np.ndarray
    """(chains, draws) draws of the sum over sample uniques of 1/F, F their cell's population count:
    the expected number of correct matches if each sample unique is matched at random within its
    cell."""
    tau2_conditional: np.ndarray
    """(chains, draws) expectation of that sum given each draw's parameters; its distribution is
    narrower than that of `tau2`."""
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
    """Median relative standard error of the cell probabilities; 0 if they are exact."""
    ties: str
    """Whether the correction for overdispersion is "on", a "sensitivity" analysis or "off"."""
    overdispersion: OverdispersionDraws | None = None
    """Draws of the correction for overdispersion, and the risk that is reported for comparison;
    None if there is no correction."""
    r1_error: np.ndarray | None = None
    """Per sample unique, the Monte Carlo standard error of `r1`; nan if chains have one draw."""
    r2_of_cells: np.ndarray | None = None
    """(C,) posterior mean of E(1/F) of the records of each cell of the sample, in the order of its
    contingency table; None unless the risk is of all records."""
    missing_keys: str | None = None
    """How missing values were read, "random" or "wildcard"; None where none is missing."""
    matching: np.ndarray | None = None
    """(C,) records of the sample that match those of each cell, themselves included; None unless
    missing values are wildcards."""
    num_uniques: np.ndarray | None = None
    """(chains, draws) number of sample uniques as each draw completes the sample; None unless
    values are missing at random. `rows` are then the records that are unique in some draw, and r1
    and r2 count only the draws in which they are."""
    misclassification: MisclassifiedTaus | None = None
    """tau_1 and tau_2 as if no value had been changed before the release; None unless
    misclassification probabilities were given. All other figures count a record only if its values
    are its own."""

    @cached_property
    def law(self) -> RecordsRun:
        """Run on the records without weight classes; the run itself if there are no weights."""
        return sample_law(self.run)

    @property
    def share(self) -> float:
        """Part of tau_1 that is taken from the chains: all of it."""
        return 1.0

    @property
    def is_known(self) -> bool:
        """Whether tau_1 is known without a model, because no record is unique in the sample, or
        the sample is the whole population."""
        if self.population_size == self.law.table.n:
            return True
        uniques = len(self.rows) if self.num_uniques is None else self.num_uniques.max()
        return bool(uniques == 0)

    @property
    def weighted(self) -> WeightedMicrodata | None:
        """The sample with its design weights; None if it has none."""
        return self.run.table if isinstance(self.run.table, WeightedMicrodata) else None

    @property
    def sample_uniques(self) -> int:
        """Number of sample uniques; where values are missing at random, its posterior mean."""
        return len(self.rows) if self.num_uniques is None else round(self.num_uniques.mean())

    @property
    def anonymity(self) -> list[SmallCells]:
        """Records that match fewer than 2, 3 and 5, themselves included."""
        return anonymity_of(self.law.table, self.matching)

    def records(self) -> pd.DataFrame:
        """One row per sample unique, riskiest first: row, the key variables, r1, r2.

        If all records were asked for, there is one row for each record, with a column f before r1:
        the number of records of the sample that match it. r1 is 0 where f is not 1.
        """
        table = self.law.table
        if self.r2_of_cells is not None:
            assert isinstance(table, Microdata)
            frame = pd.concat([labels_of(table.schema, table.codes), self.by_record], axis=1)
            frame.insert(0, "row", np.arange(table.n))
            return frame.sort_values(
                ["r1", "r2", "row"], ascending=[False, False, True], ignore_index=True
            )
        frame = labels_of(table.schema, table.codes_at(self.rows))
        frame.insert(0, "row", self.rows)
        frame["r1"], frame["r2"] = self.r1, self.r2
        return frame.sort_values(["r1", "row"], ascending=[False, True], ignore_index=True)

    @cached_property
    def by_record(self) -> pd.DataFrame:
        """Columns f, r1 and r2 of `records` for all records, in the order of the sample.

        Only if the risk was computed for all records.
        """
        table = self.law.table
        assert isinstance(table, Microdata) and self.r2_of_cells is not None
        cells = group_cells(table.codes + 1, [size + 1 for size in table.schema.num_levels])
        matching = cells.counts if self.matching is None else self.matching
        r1 = np.zeros(table.n)
        r1[self.rows] = self.r1
        return pd.DataFrame({
            "f": matching[cells.record_cell], "r1": r1, "r2": self.r2_of_cells[cells.record_cell]
        })  # fmt: skip

    def by_level(self) -> pd.DataFrame:
        """One row per level: the part of the risk that comes from its records.

        The columns are variable, level, records and sample_uniques (their numbers in the sample),
        and tau1 and tau2 (sums of r1 and r2 over the sample uniques of the level; over all levels
        of a variable they add up to the posterior means of tau_1 and tau_2). Where values of a
        variable are missing, the level of its last row is the empty text. If the risk was computed
        for all records, there is also r2, the sum of r2 over all records of the level: the expected
        number of correct matches among them.
        """
        table = self.law.table.tabulated
        rows = []
        codes_of_uniques = self.law.table.codes_at(self.rows)
        for j, name in enumerate(table.schema.variables):
            labels: tuple[Label, ...] = table.schema.levels[j]
            codes, of_unique = table.codes[:, j], codes_of_uniques[:, j]
            if (codes < 0).any():
                codes, of_unique = (np.where(x < 0, len(labels), x) for x in (codes, of_unique))
                labels = (*labels, "")
            size = len(labels)
            columns = [
                np.bincount(codes, table.counts, size).astype(np.int64),
                np.bincount(of_unique, minlength=size),
                np.bincount(of_unique, self.r1, size),
                np.bincount(of_unique, self.r2, size),
            ]
            if self.r2_of_cells is not None:
                columns.append(np.bincount(codes, table.counts * self.r2_of_cells, size))
            rows += [(name, *row) for row in zip(labels, *columns, strict=True)]
        names = ["variable", "level", "records", "sample_uniques", "tau1", "tau2"]
        names += [] if self.r2_of_cells is None else ["r2"]
        return pd.DataFrame(rows, columns=names)

    def monitored(self, run: Run) -> dict[str, np.ndarray]:
        """Quantities by which convergence of the run is judged, thinned like the risk."""
        of_chains = {
            name: run.draws[name] for name in ("components", "alpha") if name in run.draws
        } | sampled_rate(run)
        return {
            "tau1": self.tau1,
            "tau1_conditional": self.tau1_conditional,
            **{name: run.at_kept_arrays(values, self.thin) for name, values in of_chains.items()},
            "log_likelihood": self.log_likelihood,
        }

    def warnings(self) -> list[str]:
        """Sentences on imprecise cell probabilities, and on design weights that may be wrong."""
        of_weights = [] if self.weighted is None else self.weighted.warnings(self.population_size)
        return self.imprecise() + of_weights

    def imprecise(self) -> list[str]:
        """Sentence on cell probabilities that are not precise enough; none if all are."""
        if self.relative_error <= MAX_RELATIVE_ERROR:
            return []
        return [
            f"imprecise cell probabilities: their Monte Carlo error is {self.relative_error:.0%} "
            f"(at most {MAX_RELATIVE_ERROR:.0%} is wanted); choose fewer key variables or the "
            "exact method"
        ]

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        run = self.run
        lines = {
            "sample": title_of(self.law.table),
            "population": self.population_size,
            "sample uniques": self.sample_uniques,
            "tau_1": spread(self.tau1),
            "tau_2": spread(self.tau2),
            "missing values": self.missing_keys,
            "ties": self.ties,
            "method": self.method,
        }
        return Shown(f"PopulationRisk: by {run.model.name}", lines, self.records())


def population_risk(
    run: RecordsRun,
    population_size: int,
    *,
    ties: str = "on",
    all_records: bool = False,
    missing_keys: str = "random",
    misclassification: Misclassification | pd.DataFrame | None = None,
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
        Whether the correction for overdispersion (`bnp_models.risk.overdispersion`) is used. It
        lets the counts of the population's cells vary more than the model alone allows, by an
        amount that the cells of the sample determine. "on": the risk is computed with the
        correction, and tau_1 and tau_2 without it are reported too. "off": the risk is that of the
        model alone. "sensitivity": the risk is that of the model alone, and corrected tau_1 and
        tau_2 are reported too.
    all_records
        Whether to compute E(1/F) also for records that are not unique in the sample, from the same
        draws.
    missing_keys
        How missing values are read (`bnp_models.risk.missing_keys`). "random": every record has a
        value, which is not known; it is integrated out, and the risk is that of the completed
        sample: r1 is the probability that a record is unique both in it and in the population.
        "wildcard": the values were suppressed, and a missing value matches every value. Two records
        match if they agree on every variable of which both have a value. A record is a sample
        unique if it matches no other record. F is the number of sample records that it matches,
        itself included, plus the number of persons not in the sample who have its known values. The
        model gives the probability of the known values, summed over all values of the missing ones.
        The correction for overdispersion is estimated from the complete records. Without missing
        values, "random" and "wildcard" give the same risk.
    misclassification
        Probabilities with which values were changed at random before the sample was released, as by
        PRAM or swapping: rows with the columns variable, true, released and probability, where
        probability is that of the true level to be released as the other level. Those of a true
        level sum to 1; a level without rows is never changed. tau_1, tau_2, r1 and r2 then count a
        record only if its values are its own, with the probability that all of them are released
        unchanged: r2 is the probability of a correct match of Shlomo & Skinner (2010,
        doi:10.1214/09-AOAS317). The sampling fraction is assumed to be small, and variables to be
        changed independently; `bnp_models.risk.misclassification` says when the risk is too high or
        too low. Not with missing values.
    method
        "exact" evaluates cell probabilities without Monte Carlo error: latent class models in
        closed form, the HDP by the recursion over subsets of variables. For the HDP, "draws"
        averages over draws of record weights that all cells share, and corrects the bias of tau by
        a jackknife over two halves of the draws. "auto" is "exact" for up to
        ``max_exact_variables`` variables of the model, and "draws" for more.
    thin
        Evaluate every `thin`-th draw of `run`. Default: about 2,000 draws of all chains, and about
        100 of each chain at least.
    key
        Key for the random numbers of this function; by default a key that `run` keeps for this
        purpose.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    ValueError
        If the model gives no probabilities of cells (`PredictsCells`), the population is smaller
        than the sample, a variable is named row, r1 or r2 (or f, with all records), `ties`,
        `missing_keys`, `method` or `thin` is unknown or out of range, all records are asked for of
        a contingency table or where values are missing at random, misclassification probabilities
        are wrong or values are missing beside them, or `run` kept no parameters.

    Examples
    --------
    >>> risk = bnp.population_risk(run, population_size=5_000)
    >>> risk.tau1.shape
    (2, 20)
    """
    check_kind(Run, "population_risk(run, population_size)", run=run)
    check_choice(TIES, ties=ties)
    check_choice(MISSING_KEYS, missing_keys=missing_keys)
    thin = checked_thin(thin, run.settings)
    key_cells, key_counts = Keys(run.key if key is None else typed_key(key))
    evaluator = Evaluator.of(
        run, population_size, lambda law: law.parameters(thin), all_records, complete=False
    )
    law = evaluator.run
    reading = missing_keys if law.table.has_missing else None
    check_all_records(reading, all_records)
    method = checked_method(method, law.model, law.table)
    changed = _checked_misclassification(misclassification, law.table)
    posterior = None
    if ties != "off":
        posterior = OverdispersionPosterior.of(law, key_cells, method, NUM_DRAWS[method])
    completions = Completions(run, evaluator, key_cells) if reading == "random" else None
    cells = law.table.tabulated
    matching = matching_records(cells) if reading == "wildcard" else None
    sums = RiskSums(
        cells, evaluator.num_new, numpy_generator(key_counts), posterior, ties == "on", all_records,
        matching, None if completions is None else completions.rows,
        kept=None if changed is None else changed.kept(cells.codes),
        thinning=numpy_generator(jax.random.fold_in(key_counts, _THINNING)),
        shape=shape_of_draws(evaluator.draws), superchain=law.settings.superchain,
    )  # fmt: skip
    done = 0
    for block in evaluator.cells(sums.asked, method, key_cells, progress):
        indices = np.arange(done, done + len(block.log_p))
        done += len(indices)
        completed = None
        if completions is not None:
            completed = completions.evaluated(indices, method, key_cells)
        sums.add(block, completed)
    return PopulationRisk(
        run=run,
        population_size=int(population_size),
        method=method,
        thin=thin,
        ties=ties,
        missing_keys=reading,
        matching=matching,
        misclassification=None
        if changed is None
        else MisclassifiedTaus(changed.source, **sums.taus_of_all()),
        **sums.figures(),
    )


def check_all_records(missing_keys: str | None, all_records: bool) -> None:
    """Raise MicrodataError if all records are asked for, and values are missing at random."""
    if all_records and missing_keys == "random":
        raise MicrodataError(
            "the risk of all records can be computed only if missing values are taken as "
            'wildcards; set missing_keys to "wildcard" (--missing-keys wildcard), or leave out '
            "all_records (--all-records)"
        )


def _checked_misclassification(
    given: Misclassification | pd.DataFrame | None, table: Records
) -> Misclassification | None:
    """Probabilities of unchanged values, after checking them against the sample; None if none."""
    if given is None:
        return None
    if table.has_missing:
        raise MicrodataError(
            "the risk after misclassification (misclassification, --misclassification) cannot be "
            "computed if values of key variables are missing; complete the records, or leave it out"
        )
    if isinstance(given, pd.DataFrame):
        return Misclassification.of_frame(given, table.schema)
    return given


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
    >>> monitor = bnp.risk.tau1_monitor(model, table, 5_000)
    >>> latest = {name: draws[:, -1] for name, draws in run.draws.items()}
    >>> list(monitor(latest))
    ['tau_1']
    """
    call = "tau1_monitor(model, table, population_size)"
    table, conditions = coded_input(call, model, table, conditions)
    check_population_size(table, population_size)
    table.require_complete("the bar")
    cells = table.tabulated
    unique = cells.codes[cells.unique_cells]
    part = unique[:: max(1, -(-len(unique) // max_cells))]
    coding = model.coding(conditions)
    num_levels = table.schema.num_levels if coding is None else coding.schema.num_levels
    part = part if coding is None else coding.reduce(part)
    num_new = population_size - table.n
    method = checked_method("auto", model, table)

    def monitor(latest: dict[str, np.ndarray]) -> dict[str, float]:
        names = names_of_draw(model)
        if not len(part) or any(name not in latest for name in names):
            return {}
        log_q = evaluate_draws(
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


def checked_thin(thin: int | None, settings: Settings, evaluated: int = EVALUATED_DRAWS) -> int:
    """Interval between the draws that are evaluated, about `evaluated` of all chains if None."""
    num_samples = settings.num_arrays
    if thin is None:
        many = max(LEAST_DRAWS, evaluated // settings.num_chains)
        thin = -(-num_samples // many)
    if not 1 <= thin <= num_samples:
        raise ValueError(f"thin must be from 1 to {num_samples}, not {thin}")
    return thin
