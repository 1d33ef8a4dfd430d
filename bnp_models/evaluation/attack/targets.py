"""Targets of an attack: records, households or persons, and the candidates for each."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from tqdm import tqdm

from bnp_models.data.cells import group_cells
from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.kernels.attack.importance import log_neighbours
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.models.latent_classes.predictions import log_cell_probability
from bnp_models.zeros.structural_zeros import StructuralZeros

_DRAWS_AT_ONCE = 16

Draws = dict[str, Any]
"""Arrays of the model's parameters by name, each with the draw as its first axis."""


SampleT = TypeVar("SampleT", Microdata, Households)
"""The sample, and each synthetic file."""


class Group(NamedTuple):
    """Targets that are evaluated by one compiled function."""

    which: np.ndarray
    """Positions of the targets among all targets."""
    columns: np.ndarray
    """(W,) columns of the candidates other than the truth."""
    prepare: Callable[[np.ndarray], tuple[tuple, np.ndarray]]
    """Function of the positions of A targets. It returns their arrays, and (A, W) whether each
    column is a candidate."""
    log_ratio: Callable[..., jax.Array]
    """Function of draws and of these arrays. It returns (A, W, draws) log weights."""


class Targets(ABC, Generic[SampleT]):
    """Targets of an attack, with all candidates for each."""

    target: str
    """"record", "household" or "person"."""
    rows: np.ndarray
    """(A,) 0-based rows of the attacked records or persons, or numbers of the households."""
    columns: tuple[tuple[str, object], ...]
    """Variable and label in which each of the C - 1 other candidates differs from the truth."""

    @abstractmethod
    def groups(self) -> Iterator[Group]:
        """All targets, in groups."""

    @abstractmethod
    def log_likelihood(
        self, draws: Draws, files: Sequence[SampleT], key: jax.Array, progress: bool
    ) -> np.ndarray:
        """(files, draws) log likelihood of each synthetic file."""


def checked_rows(rows: Any, complete: np.ndarray, kind: str) -> np.ndarray:
    """Rows to attack, as integers.

    Raises
    ------
    ValueError
        If one is outside the table, incomplete or listed twice.
    """
    rows = np.asarray(rows, dtype=np.int64).reshape(-1)
    outside = (rows < 0) | (rows >= len(complete))
    if outside.any():
        raise ValueError(f"{kind} {rows[outside][0]} is not between 0 and {len(complete) - 1}")
    if not complete[rows].all():
        raise ValueError(f"{kind} {rows[~complete[rows]][0]} has missing values")
    if len(np.unique(rows)) < len(rows):
        raise ValueError(f"a {kind} is listed twice")
    return rows


def labels_of(
    variables: Sequence[str], levels: Sequence[Sequence[object]], place: str = ""
) -> list[tuple[str, object]]:
    """Name and label of every level of every variable; the name includes the person's place."""
    return [
        (name + place, label)
        for name, labels in zip(variables, levels, strict=True)
        for label in labels
    ]


def change_one(codes: np.ndarray, num_levels: Sequence[int]) -> np.ndarray:
    """Give each record each level of each variable in turn: (A, R, J) from (A, J) codes."""
    variable = np.repeat(np.arange(len(num_levels)), num_levels)
    level = np.concatenate([np.arange(size) for size in num_levels])
    changed = np.repeat(codes[:, None], len(variable), axis=1)
    changed[:, np.arange(len(variable)), variable] = level
    return changed


def possible_changes(
    codes: np.ndarray, num_levels: Sequence[int], conditions: StructuralZeros | None
) -> np.ndarray:
    """Whether a record (A, J) is possible with each level of each variable in turn: (A, R)."""
    possible = np.ones((len(codes), sum(num_levels)), bool)
    if conditions is not None:
        flat = change_one(codes, num_levels).reshape(-1, codes.shape[1])
        possible = ~conditions.contains(flat).reshape(possible.shape)
    return possible


def over_draws(
    draws: Draws,
    evaluate: Callable[[Draws], jax.Array],
    finish: Callable[[np.ndarray], np.ndarray],
    progress: bool,
    description: str,
) -> np.ndarray:
    """Evaluate a function of 16 draws for all draws.

    Parameters
    ----------
    draws
        Arrays of D draws.
    evaluate
        Compiled function of 16 draws; the draws are the first axis of its result.
    finish
        Function of this result in float64; the draws are the last axis of what it returns.
    progress, description
        Whether to show a progress bar on stderr, and its label.

    Returns
    -------
    values
        (..., D), float64.
    """
    total, parts = len(draws["log_pi"]), []
    for start in tqdm(range(0, total, _DRAWS_AT_ONCE), desc=description, disable=not progress):
        padded = np.minimum(np.arange(start, start + _DRAWS_AT_ONCE), total - 1)
        values = evaluate({name: value[padded] for name, value in draws.items()})
        parts.append(finish(np.asarray(values, np.float64))[..., : total - start])
    return np.concatenate(parts, axis=-1)


class RecordTargets(Targets[Microdata]):
    """Candidates for records under a latent class model.

    Parameters
    ----------
    table
        The sample.
    conditions
        Structural zeros; records that they exclude are not candidates.
    rows
        Records to attack; None: the complete ones whose combination of values is unique.
    """

    target = "record"

    def __init__(
        self, table: Microdata, conditions: StructuralZeros | None, rows: Sequence[int] | None
    ):
        self.table, self.conditions = table, conditions
        schema, complete = table.schema, table.complete
        if rows is None:
            candidates = np.flatnonzero(complete)
            cells = group_cells(table.codes[candidates], schema.num_levels)
            rows = candidates[cells.sample_uniques]
        self.rows = checked_rows(rows, complete, "record")
        self.columns = tuple(labels_of(schema.variables, schema.levels))

    def groups(self) -> Iterator[Group]:
        """Make one group of all records."""
        ratio = partial(_log_ratios, num_levels=self.table.schema.num_levels)
        which = np.arange(len(self.rows))
        if len(which):
            yield Group(which, np.arange(len(self.columns)), self._prepare, ratio)

    def _prepare(self, which):
        """Rows of level probabilities of some records, and whether each change is a candidate."""
        codes = self.table.codes[self.rows[which]]
        num_levels = self.table.schema.num_levels
        valid = possible_changes(codes, num_levels, self.conditions)
        np.put_along_axis(valid, codes + first_rows(num_levels), False, axis=1)
        return (jnp.asarray(codes + first_rows(num_levels), jnp.int32),), valid

    def log_likelihood(
        self, draws: Draws, files: Sequence[Microdata], key: jax.Array, progress: bool
    ) -> np.ndarray:
        """(files, draws) log likelihood of each file."""
        del key
        num_levels = self.table.schema.num_levels
        codes = np.concatenate([file.codes for file in files])
        cells = group_cells(codes, num_levels)
        of_file = np.repeat(np.arange(len(files)), [file.n for file in files])
        # The matrix is sparse, because there are more cells with each file, and few files have one.
        one = np.ones(len(of_file))
        shape = len(files), len(cells.counts)
        counts = sparse.csr_array((one, (of_file, cells.record_cell)), shape)
        evaluate = partial(_log_cells, cells=jnp.asarray(cells.codes), num_levels=num_levels)
        return over_draws(draws, evaluate, lambda log_p: counts @ log_p.T, progress, "likelihood")


@partial(jax.jit, static_argnames="num_levels")
def _log_cells(draws, cells, num_levels):
    """(draws, C) log probability of each cell."""
    with jax.named_scope("likelihood_of_files"):
        return jax.lax.map(lambda draw: log_cell_probability(draw, cells, num_levels), draws)


@partial(jax.jit, static_argnames="num_levels")
def _log_ratios(draws, rows, num_levels):
    """(A, R, draws) log ratio of the probability of each changed record to that of the record."""

    def one(draw):
        log_p = log_neighbours(draw["log_pi"][None], draw["log_lambda"], rows, num_levels)
        return log_p - jnp.take_along_axis(log_p, rows[:, :1], axis=1)

    with jax.named_scope("weights_of_candidates"):
        return jnp.moveaxis(jax.lax.map(one, draws), 0, -1)
