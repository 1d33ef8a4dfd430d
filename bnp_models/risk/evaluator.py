"""Probabilities of cells at the draws of a run, and tau_1, tau_2, r_1 and r_2 given them.

All modules that measure risk (`population`, `coarser_risk`, `protected_risks`) use an `Evaluator`.
It has the distribution of the records of the sample, and that of the persons who are not in the
sample.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.recoding import Recoding
from bnp_models.data.schema import MicrodataError
from bnp_models.data.weights import check_population_size
from bnp_models.inference.placement import in_threads
from bnp_models.inference.run import RecordsRun, blocks_of_draws, shape_of_draws
from bnp_models.inference.weighting import sample_law, unsampled_law
from bnp_models.kernels.numerics.platforms import coarse_size, map_draws
from bnp_models.kernels.variates.rng import Keys, numpy_generator
from bnp_models.models.model import Model, PredictsCells
from bnp_models.models.options import check_choice
from bnp_models.risk.coarsening import MAX_CELLS
from bnp_models.risk.overdispersion import Overdispersion, OverdispersionPosterior

METHODS = ("auto", "exact", "draws")

NUM_DRAWS = {"exact": 0, "draws": 4096}
"""Number of draws of record weights that all cells share, by method."""

Draws: TypeAlias = dict[str, np.ndarray]
"""Parameters of D draws in all, each (chains, draws, ...), as `Run.parameters` returns them."""


class LogProbabilities(NamedTuple):
    """Log probabilities of cells for one person, at a block of draws."""

    log_p: np.ndarray
    """(block, C) log probability of each cell."""
    halves: np.ndarray | None
    """(block, 2, C) log probability from each half of the Monte Carlo draws; None if exact."""

    def at(self, where) -> "LogProbabilities":
        """Return the log probabilities of some of the cells."""
        halves = self.halves
        return LogProbabilities(
            self.log_p[..., where], None if halves is None else halves[..., where]
        )

    def beside(self, others: "LogProbabilities") -> "LogProbabilities":
        """Return the log probabilities of these cells, followed by those of other cells."""
        halves = None
        if self.halves is not None and others.halves is not None:
            halves = np.concatenate([self.halves, others.halves], axis=-1)
        return LogProbabilities(np.concatenate([self.log_p, others.log_p], axis=-1), halves)


class Block(NamedTuple):
    """Probabilities of the cells of a sample under each draw of a block."""

    log_p: np.ndarray
    """(block, C) log probability of each cell of the sample for one of its records."""
    relative_se: np.ndarray
    """(block, C) relative standard error of these probabilities; (block, 1) zeros if exact."""
    of_sample: LogProbabilities
    """Log probabilities of the requested cells for one of the sample's records."""
    of_rest: LogProbabilities
    """The same for a person who is not in the sample."""


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Draws of a run, for the records of its sample and for the persons who are not in it.

    If the sample has no design weights, both have the same distribution.
    """

    run: RecordsRun
    """Distribution of the records of the sample."""
    rest: RecordsRun
    """Distribution of the persons who are not in the sample."""
    num_new: int
    """Number N - n of persons who are not in the sample."""
    parameters: Callable[[RecordsRun], Draws]
    """Function that selects the draws of a run that are evaluated."""

    @classmethod
    def of(
        cls,
        run: RecordsRun,
        population_size: int,
        parameters: Callable[[RecordsRun], Draws],
        all_records: bool = False,
        complete: bool = True,
    ) -> "Evaluator":
        """Make the evaluator of a run, after checking that its risk can be computed."""
        checked_model(run.model)
        sample, rest = sample_law(run), unsampled_law(run)
        check_table(sample.table, population_size, all_records, complete)
        return cls(sample, rest, population_size - sample.table.n, parameters)

    @cached_property
    def draws(self) -> Draws:
        """Draws of the distribution of the records of the sample."""
        return self.parameters(self.run)

    @cached_property
    def rest_draws(self) -> Draws:
        """Draws of the distribution of the persons who are not in the sample, in the same order."""
        return self.draws if self.rest is self.run else self.parameters(self.rest)

    def cells(
        self, asked: np.ndarray, method: str, key: jax.Array, progress: bool = False
    ) -> Iterator[Block]:
        """Evaluate the cells of the sample, one block of draws after the other.

        Parameters
        ----------
        asked
            Indices of the cells whose probability is also needed for persons not in the sample.
        method, key, progress
            As for `cell_probabilities`.
        """
        codes = self.run.table.tabulated.codes
        blocks = cell_probabilities(self.run, self.draws, codes, method, key, progress)
        if self.rest is self.run:
            for log_p, relative_se, halves in blocks:
                both = LogProbabilities(log_p, halves).at(asked)
                yield Block(log_p, relative_se, both, both)
            return
        # Both laws use the same draws of record weights.
        of_rest = cell_probabilities(self.rest, self.rest_draws, codes[asked], method, key)
        for (log_p, relative_se, halves), (log_q, _, rest_halves) in zip(
            blocks, of_rest, strict=True
        ):
            of_sample = LogProbabilities(log_p, halves).at(asked)
            yield Block(log_p, relative_se, of_sample, LogProbabilities(log_q, rest_halves))

    def coarser(
        self, coarsening: Recoding, codes: np.ndarray, key: jax.Array, size: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate the coarser cells to which some records belong.

        Parameters
        ----------
        coarsening, codes, key, size
            As for `coarser_probabilities`.

        Returns
        -------
        log_b, log_q
            (draws, m) log probabilities for a record of the sample, and for another person.
        """

        def of(law, draws):
            return np.concatenate(
                [*coarser_probabilities(law, draws, coarsening, codes, key, size)]
            )

        log_b = of(self.run, self.draws)
        return log_b, log_b if self.rest is self.run else of(self.rest, self.rest_draws)

    def draw_overdispersion(self, key: jax.Array) -> Overdispersion:
        """Draw the parameters of the correction for overdispersion given each draw of the model."""
        key_cells, key_overdispersion = Keys(key)
        run, generator = self.run, numpy_generator(key_overdispersion)
        method = checked_method("auto", run.model, run.table)
        posterior = OverdispersionPosterior.of(run, key_cells, method, NUM_DRAWS[method])
        cells = run.table.tabulated
        codes = cells.codes[cells.complete]
        evaluated = cell_probabilities(run, self.draws, codes, method, key_cells)
        blocks = [posterior.draw(generator, np.exp(log_p))[0] for log_p, _, _ in evaluated]
        shapes, exponents, _ = zip(*blocks, strict=True)
        return Overdispersion(np.concatenate(shapes), np.concatenate(exponents), run.table.n)


def cell_probabilities(
    run: RecordsRun,
    draws: dict[str, np.ndarray],
    codes: np.ndarray,
    method: str,
    key: jax.Array,
    progress: bool = False,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Evaluate the probabilities of cells for a new record, one block of draws after the other.

    Parameters
    ----------
    run
        The chains that made the draws.
    draws
        Parameters of D draws in all, each (chains, draws, ...), as `Run.parameters` returns them.
    codes
        (C, J) level codes of the cells, in the sample's coding; -1 for any value.
    method
        "exact" or "draws".
    key
        For the draws of record weights.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    MicrodataError
        If, under structural zeros, too many cells are meant by those with any value.

    Yields
    ------
    log_p
        (block, C) log probability of each cell.
    relative_se
        (block, C) its relative standard error; (block, 1) zeros for "exact".
    halves
        (block, 2, C) log probability from each half of the Monte Carlo draws; None for "exact".
    """
    if run.conditions is not None and (codes < 0).any():
        listed, first = _possible_completions(run, codes)
        for log_p, error, halves in cell_probabilities(run, draws, listed, method, key, progress):
            yield np.logaddexp.reduceat(log_p, first, axis=1), error, halves
        return
    total = math.prod(shape_of_draws(draws))
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    codes = codes if run.coding is None else run.coding.reduce(codes)
    # Padded, so that samples with similar numbers of cells use the same compiled programs.
    number = len(codes)
    codes = codes[np.minimum(np.arange(coarse_size(number)), number - 1)]
    evaluate = partial(
        evaluate_draws,
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


def _possible_completions(run: RecordsRun, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Possible cells that are meant by cells with -1 for any value, and the first of each.

    Only latent class models take missing values under structural zeros, and they are exact.
    """
    same = Recoding.of(run.table.schema, {})
    numbers = [same.num_finer(cell) for cell in codes]
    if sum(numbers) - len(numbers) > MAX_CELLS:
        raise MicrodataError(
            f"with structural zeros, {sum(numbers):,} cells would have to be listed for the "
            f"missing values, more than {MAX_CELLS:,}; choose fewer variables, or complete the "
            "records (bnp-models impute)"
        )
    assert run.conditions is not None
    finer = [cells[~run.conditions.contains(cells)] for cells in map(same.finer, codes)]
    return np.concatenate(finer), np.cumsum([0, *map(len, finer)])[:-1]


def probabilities_by_draw(
    run: RecordsRun,
    draws: Draws,
    codes: np.ndarray,
    indices: np.ndarray,
    method: str,
    key: jax.Array,
) -> LogProbabilities:
    """Evaluate the probabilities of cells that each of some draws has for itself.

    Parameters
    ----------
    run, draws, method, key
        As for `cell_probabilities`; the draws of record weights are the same.
    codes
        (block, m, J) level codes.
    indices
        (block,) numbers of the draws.
    """
    flat = {name: value.reshape(-1, *value.shape[2:])[indices] for name, value in draws.items()}
    keys = jax.vmap(partial(jax.random.fold_in, key))(indices)
    log_p, _, halves = _evaluate_each(
        run.model, jnp.asarray(codes, jnp.int32), keys, flat, num_levels=run.num_levels,
        method=method,
    )  # fmt: skip
    exact = method == "exact"
    return LogProbabilities(
        np.asarray(log_p, np.float64), None if exact else np.asarray(halves, np.float64)
    )


def coarser_probabilities(
    run: RecordsRun,
    draws: dict[str, np.ndarray],
    coarsening: Recoding,
    codes: np.ndarray,
    key: jax.Array,
    size: int | None = None,
) -> Iterator[np.ndarray]:
    """Evaluate the coarser cells to which some records belong, one block of draws at a time.

    Parameters
    ----------
    run, draws
        As for `cell_probabilities`.
    coarsening
        Recoding of the run's records.
    codes
        (m, J) codes of the finer records, one for each cell.
    key
        For the draws of record weights.
    size
        Number of cells to which arrays are padded, at least m. Default: a power of two.

    Yields
    ------
    log_p
        (block, m) log probabilities for a new record.
    """
    merged = None
    if run.conditions is None:
        merged = checked_model(run.model).merge_levels(draws, coarsening.groups())
    if merged is not None:
        # Any finer level of a merged level represents it.
        draws, finer = draws | merged, [row[None] for row in codes]
    else:
        finer = [coarsening.finer(cell) for cell in coarsening.coarser_codes(codes)]
        if run.conditions is not None:
            finer = [cells[~run.conditions.contains(cells)] for cells in finer]
    lengths = [len(cells) for cells in finer]
    if merged is None or size is None:
        size = 1 << (max(1, sum(lengths)) - 1).bit_length()
    padding = np.repeat(np.maximum(run.table.codes[:1], 0), size - sum(lengths), axis=0)
    first = np.cumsum([0, *lengths])[:-1]
    method = checked_method("auto", run.model, run.table)
    of_cells = np.concatenate([*finer, padding])
    for log_p, _, _ in cell_probabilities(run, draws, of_cells, method, key):
        used = log_p[:, : sum(lengths)]
        yield np.logaddexp.reduceat(used, first, axis=1) if lengths else used


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
    """Draw the number of unsampled records in the cell of each sample unique, (draws, cells).

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
    Given q, the counts of the unsampled records are multinomial. They are drawn exactly by
    sequential binomials, whose cost does not grow with N. tau_1 is the number of zeros and tau_2
    the sum of 1 / (1 + count): `draw_taus`.
    """
    elsewhere = np.maximum(1 - q.sum(axis=1, keepdims=True), 0)
    p = np.concatenate([q, elsewhere], axis=1)
    return rng.multinomial(num_new, p / p.sum(axis=1, keepdims=True))[:, :-1]


def draw_taus(
    rng: np.random.Generator,
    q: np.ndarray,
    num_new: int | np.ndarray,
    alone: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw tau_1 and tau_2, each (draws,).

    Arguments are as for `draw_joining`; `alone` (draws, cells) says which of the cells have one
    record of the sample, by default all.
    """
    alone = np.ones(q.shape, bool) if alone is None else alone
    joined = draw_joining(rng, q * alone, num_new)
    return np.sum(alone & (joined == 0), axis=1, dtype=float), np.sum(alone / (1 + joined), axis=1)


def checked_model(model: Model) -> PredictsCells:
    """Return the model if it gives probabilities of cells; otherwise raise an error."""
    if not isinstance(model, PredictsCells):
        raise ValueError(
            f"the {model.name} model gives no probabilities of cells, so that the risk cannot be "
            "computed; fit a mixed membership or latent class model"
        )
    return model


def check_table(
    table: Records, population_size: int, all_records: bool = False, complete: bool = True
) -> None:
    """Raise MicrodataError unless the risk of this table can be evaluated.

    `all_records` asks for the risk of every record, and `complete` for records without missing
    values.
    """
    if all_records and not isinstance(table, Microdata):
        raise MicrodataError(
            "the risk of all records needs single records, but the table has only cell counts; "
            "give the records, or leave out all_records (--all-records)"
        )
    for name in ("row", "r1", "r2", *(["f"] if all_records else [])):
        if name in table.schema.variables:
            raise MicrodataError(
                "the table of records (records.csv) has a column of this name; rename the variable "
                "or leave it out (--variables)",
                column=name,
            )
    if complete:
        table.require_complete("the disclosure risk")
    check_population_size(table, population_size)


def checked_method(method, model, table) -> str:
    """Return the checked name of the method; "auto" is replaced by the method for the model."""
    check_choice(METHODS, method=method)
    return _default_method(model, table) if method == "auto" else method


def _default_method(model, table) -> str:
    """ "exact" if the model computes exact probabilities quickly, otherwise "draws"."""
    return "exact" if table.num_variables <= model.max_exact_variables else "draws"


@partial(jax.jit, static_argnames=("num_levels", "method"))
def evaluate_draws(model, cells, keys, draws, num_levels, method):
    """log p of every cell for every draw, its relative standard error, and log p of its halves."""

    def one(arguments):
        return _evaluate(model, cells, *arguments, num_levels, method)

    with jax.named_scope("cell_probabilities"):
        log_p, relative_se, halves = map_draws(one, (keys, draws))
    return log_p, relative_se.reshape(keys.size, -1), halves


@partial(jax.jit, static_argnames=("num_levels", "method"))
def _evaluate_each(model, cells, keys, draws, num_levels, method):
    """Results of `evaluate_draws` for cells (D, C, J) that differ between draws."""

    def one(arguments):
        return _evaluate(model, *arguments, num_levels, method)

    with jax.named_scope("cell_probabilities"):
        return map_draws(one, (cells, keys, draws))


def _evaluate(model, cells, key, draw, num_levels, method):
    """log p of every cell for one draw, its relative standard error, and log p of its halves."""
    result = model.log_cell_probability(
        key, draw, cells, num_levels, method=method, num_draws=NUM_DRAWS[method]
    )
    if method == "exact":
        return result, jnp.zeros(1), jnp.zeros((2, 1))
    return result.log_p, result.relative_se, result.log_p_halves
