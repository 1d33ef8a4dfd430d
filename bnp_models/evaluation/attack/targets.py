"""Targets of an attack: records, households or persons, and the candidates for each."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import numpy as np
from tqdm import tqdm

from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata

_DRAWS_AT_ONCE = 16

Draws = dict[str, Any]
"""Arrays of the model's parameters by name, each with the draw as its first axis."""


SampleT = TypeVar("SampleT", Microdata, Households)
"""The sample, and each synthetic file."""


class Group(NamedTuple):
    """Targets that one compiled function serves."""

    which: np.ndarray
    """Positions of the targets among all attacked."""
    columns: np.ndarray
    """(W,) columns of the candidates but the truth."""
    prepare: Callable[[np.ndarray], tuple[tuple, np.ndarray]]
    """Function from positions of A targets to arrays of these, and (A, W) whether each is a
    candidate."""
    log_ratio: Callable[..., jax.Array]
    """Function from draws and those arrays to (A, W, draws) log weights."""


class Targets(ABC, Generic[SampleT]):
    """The attacked, with all candidates for them."""

    target: str
    """"record", "household" or "person"."""
    rows: np.ndarray
    """(A,) 0-based rows of the records or persons attacked; of households, their numbers."""
    columns: tuple[tuple[str, object], ...]
    """Variable and label that each of the C - 1 candidates besides the truth has instead of it."""

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
    """Name and label of every level of every variable, the place of the person in the name."""
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


def over_draws(
    draws: Draws,
    evaluate: Callable[[Draws], jax.Array],
    finish: Callable[[np.ndarray], np.ndarray],
    progress: bool,
    description: str,
) -> np.ndarray:
    """Evaluate a function of some draws at all of them.

    Parameters
    ----------
    draws
        Arrays of D draws.
    evaluate
        Compiled function of 16 draws, which are its value's first axis.
    finish
        Function of that value in float64, which brings the draws to the last axis.
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
