"""Minimal rare combinations: values of a few variables that few records have together.

A combination of values is rare if fewer than k records have it. It is minimal if it is no longer
rare when any one of its values is left out. Those with k = 2 are the minimal sample uniques of
Elliot, Manning, Mayes, Gurd & Bane (2005) and of Manning, Haglin & Keane (2008,
doi:10.1007/s10618-007-0078-6).
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.data.cells import group_cells
from bnp_models.data.coarser_households import group_households

MOST_COMBINATIONS = 2**16
"""Largest number of sets of variables that are examined."""


def num_combinations(number: int, largest: int) -> int:
    """Count the sets of 1 to `largest` variables among `number` variables."""
    return sum(math.comb(number, size) for size in range(1, largest + 1))


def check_combinations(number: int, largest: int, remedy: str) -> None:
    """Raise ValueError if there are too many sets of 1 to `largest` variables."""
    if (found := num_combinations(number, largest)) > MOST_COMBINATIONS:
        raise ValueError(
            f"{number} variables have {found:,} combinations of up to {largest}, more than "
            f"{MOST_COMBINATIONS:,}; {remedy}"
        )


class Rows(NamedTuple):
    """Records, or cells with the number of their records."""

    codes: np.ndarray
    """(D, J) level codes, -1 where missing."""
    counts: np.ndarray
    """(D,) number of records of each cell."""
    num_levels: Sequence[int]
    """Levels of each variable."""
    stratum: np.ndarray | None = None
    """(D,) number of the stratum of each, within which records are counted; None: one for all."""
    of_household: np.ndarray | None = None
    """(D,) household of each record, if households are counted, of which strata then are too."""

    @property
    def number(self) -> int:
        """Number of rows, or of households."""
        return len(self.codes) if self.of_household is None else int(self.of_household.max()) + 1

    def alike(self, columns: Sequence[int]) -> np.ndarray:
        """Count, for each row (D,), the records that have its values of some variables.

        A missing value is like another missing value, and like no other. Where households are
        counted, the result is for each of them: those whose persons have the same values.
        """
        codes = self.codes[:, list(columns)] + 1
        sizes = [self.num_levels[j] + 1 for j in columns]
        if self.of_household is not None:
            kind = group_cells(codes, sizes).record_cell if sizes else np.zeros(len(codes), int)
            return group_households(kind, self.of_household, self.stratum).sharing
        if self.stratum is not None:
            codes = np.column_stack([codes, self.stratum])
            sizes.append(int(self.stratum.max()) + 1)
        if not sizes:
            return np.full(len(self.codes), self.counts.sum())
        of_row = group_cells(codes, sizes).record_cell
        return np.bincount(of_row, self.counts)[of_row].astype(np.int64)


def minimal_rare(
    rows: Rows, below: int, largest: int, among: Sequence[int] | None = None
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Find the minimal combinations that fewer than `below` records have.

    Parameters
    ----------
    rows
        The records. A missing value is in no combination.
    below
        Number of records from which on a combination is common.
    largest
        Largest number of variables of a combination.
    among
        Indices of the variables of the combinations. Default: all.

    Yields
    ------
    columns
        Numbers of some variables, ascending; smaller sets come first.
    where
        Rows, or households, whose values of these variables are a minimal rare combination.
    """
    among = range(rows.codes.shape[1]) if among is None else among
    missing = rows.codes < 0
    if rows.of_household is not None:
        missing = np.zeros((rows.number, rows.codes.shape[1]), bool)
    # For each set of one variable less: whether a row's combination is rare or contains a rare one.
    smaller: dict[tuple[int, ...], np.ndarray] = {(): np.zeros(rows.number, bool)}
    for size in range(1, largest + 1):
        covered_by = {}
        for columns in itertools.combinations(among, size):
            parts = itertools.combinations(columns, size - 1)
            covered = np.any([smaller[part] for part in parts], axis=0)
            if not covered.all():
                rare = ~covered & (rows.alike(columns) < below)
                rare &= ~missing[:, list(columns)].any(axis=1)
                if rare.any():
                    yield columns, np.flatnonzero(rare)
                covered |= rare
            covered_by[columns] = covered
        smaller = covered_by
