"""Boxes: sets of cells that are products of sets of levels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEASIBLE, IMPOSSIBLE = 0, 1  # the terminals of a diagram


@dataclass(frozen=True, eq=False)
class Boxes:
    """Disjoint boxes of a contingency table, each a product of sets of levels.

    Parameters
    ----------
    sets : (B, R) bool array
        Which levels each box admits, R the sum of the numbers of levels; those of variable j
        start at the sum of the numbers of levels before it.
    num_levels : tuple of int, length J
    """

    sets: np.ndarray
    num_levels: tuple[int, ...]

    def __len__(self):
        return len(self.sets)

    @classmethod
    def from_codes(cls, codes: np.ndarray, num_levels: Sequence[int]) -> "Boxes":
        """Return slices as boxes.

        Parameters
        ----------
        codes : (C, J) integer array
            The fixed level of each coordinate, -1 where it is free.
        num_levels : sequence of int, length J
        """
        codes = np.asarray(codes)
        columns = [
            (codes[:, j, None] < 0) | (codes[:, j, None] == np.arange(levels))
            for j, levels in enumerate(num_levels)
        ]
        return cls(np.concatenate(columns, axis=1), tuple(num_levels))

    @property
    def by_variable(self) -> tuple[np.ndarray, ...]:
        """The (B, L_j) sets of each variable."""
        return tuple(np.split(self.sets, np.cumsum(self.num_levels)[:-1], axis=1))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of cells of each box, exact."""
        counts = np.stack([sets.sum(axis=1) for sets in self.by_variable], axis=1)
        return tuple(math.prod(row) for row in counts.tolist())

    @property
    def num_cells(self) -> int:
        """Number of cells of all boxes together, exact; cells in two boxes count twice."""
        return sum(self.sizes)

    def first_meeting(self, other: "Boxes | None" = None) -> tuple[int, int] | None:
        """Return the first pair of boxes that share a cell, or None.

        Parameters
        ----------
        other : Boxes, optional
            Compare with these; by default, the boxes with one another.
        """
        others = self if other is None else other
        for start in range(0, len(self), 256):
            meet = np.ones((len(self.sets[start : start + 256]), len(others)), dtype=bool)
            for mine, theirs in zip(self.by_variable, others.by_variable, strict=True):
                # Products of 0 and 1 in float32 are BLAS; a positive sum cannot round to zero.
                block = mine[start : start + 256].astype(np.float32)
                meet &= block @ theirs.T.astype(np.float32) > 0
            if other is None:
                meet &= np.arange(len(self)) > start + np.arange(len(meet))[:, None]
            if meet.any():
                first, second = np.argwhere(meet)[0]
                return start + int(first), int(second)
        return None


def level_offsets(num_levels: Sequence[int]) -> list[int]:
    """Where each variable's levels start among the levels of all, and their number at the end."""
    return [0, *np.cumsum(num_levels).tolist()]
