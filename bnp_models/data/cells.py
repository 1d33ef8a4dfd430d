"""The distinct cells that records fall in, and counts of their margins."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.data.display import Shown, counted, displayed

_WORD_SIZE = 2**63 - 1


@displayed
class Cells(NamedTuple):
    """The distinct cells that records fall in.

    Attributes
    ----------
    codes : (D, J) int32 array
        Level codes of the non-empty cells, in lexicographic order.
    counts : (D,) int64 array
        Number of records in each.
    record_cell : (n,) int64 array
        Index into ``codes`` of each record's cell.
    first_rows : (D,) int64 array
        0-based row of the first record of each.

    Examples
    --------
    >>> grouped = table.cells()
    >>> int(grouped.counts.sum())
    62
    """

    codes: np.ndarray
    counts: np.ndarray
    record_cell: np.ndarray
    first_rows: np.ndarray

    @property
    def unique_cells(self) -> np.ndarray:
        """Indices of the cells with one record, ascending."""
        return np.flatnonzero(self.counts == 1)

    @property
    def sample_uniques(self) -> np.ndarray:
        """0-based rows of the records that are alone in their cell, ascending."""
        return np.flatnonzero(self.counts[self.record_cell] == 1)

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        number = (
            f"{counted(len(self.record_cell), 'record')} in {counted(len(self.counts), 'cell')}"
        )
        return Shown(f"Cells: {number}, {counted(len(self.unique_cells), 'of one', 'of one')}")


def group_cells(codes: np.ndarray, num_levels: Sequence[int]) -> Cells:
    """Find the distinct rows of an array of level codes.

    Parameters
    ----------
    codes : (n, J) integer array
        Complete records: ``0 <= codes[:, j] < num_levels[j]``.
    num_levels : sequence of int, length J
        Number of levels; their product may exceed 64 bits.
    """
    words = _pack(codes, num_levels)
    order = np.lexsort(words[::-1])
    first = np.ones(len(order), dtype=bool)
    first[1:] = np.any([word[order[1:]] != word[order[:-1]] for word in words], axis=0)
    starts = np.flatnonzero(first)
    record_cell = np.empty(len(order), dtype=np.int64)
    record_cell[order] = np.cumsum(first) - 1
    # The sort is stable: the first record of a cell comes first.
    return Cells(
        codes=np.asarray(codes, dtype=np.int32)[order[starts]],
        counts=np.diff(starts, append=len(order)),
        record_cell=record_cell,
        first_rows=order[starts],
    )


def _pack(codes: np.ndarray, num_levels: Sequence[int]) -> list[np.ndarray]:
    """Pack each row into as few int64 words as hold it, in an order that sorts as the rows do."""
    words: list[np.ndarray] = []
    size = 1
    for j, levels in enumerate(num_levels):
        if not words or size * levels > _WORD_SIZE:
            words.append(codes[:, j].astype(np.int64))
            size = levels
        else:
            words[-1] = words[-1] * levels + codes[:, j]
            size *= levels
    return words


def joint_codes(columns: Sequence[np.ndarray], num_levels: Sequence[int]) -> np.ndarray:
    """Code rows by their cell of the table of some variables.

    Parameters
    ----------
    columns : sequence of (n,) integer arrays
        Level codes of each variable of the table.
    num_levels : sequence of int
        Numbers of their levels, whose product is below 2**63.
    """
    joint = np.asarray(columns[0], np.int64)
    for column, size in zip(columns[1:], num_levels[1:], strict=True):
        joint = joint * size + column
    return joint


def rake_once(
    weight: np.ndarray, margins: Iterable[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Change the weights of cells by one round of iterative proportional fitting.

    Parameters
    ----------
    weight : (C,) array
        Weights.
    margins : iterable of ((C,) integer array, array)
        For each table, where each cell is in it, and the margin that is wanted.

    Returns
    -------
    weight : (C,) float64 array
        New weights, which have the last of the margins exactly.
    away : list of arrays
        Absolute differences from each margin before the weights were adjusted to it.
    """
    away = []
    for where, goal in margins:
        now = np.bincount(where, weight, len(goal))
        away.append(np.abs(now - goal))
        weight = weight * np.divide(goal, now, out=np.zeros_like(goal), where=now > 0)[where]
    return weight, away
