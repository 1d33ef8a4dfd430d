"""Boxes: sets of cells that are products of sets of levels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# The terminal nodes of a diagram, and the two regions that boxes can make up.
FEASIBLE, IMPOSSIBLE = 0, 1


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of a contingency table, each a product of sets of levels.

    Parameters
    ----------
    sets : (B, R) bool array
        The levels that each box admits, R the sum of the numbers of levels; the columns of
        variable j start at the sum of the numbers of levels of the variables before it.
    num_levels : tuple of int, length J
        Number of levels of each variable.
    """

    sets: np.ndarray
    num_levels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.sets)

    @classmethod
    def from_codes(cls, codes: np.ndarray, num_levels: Sequence[int]) -> "Boxes":
        """Return slices as boxes.

        Parameters
        ----------
        codes : (C, J) integer array
            The fixed level of each coordinate, -1 where it is free.
        num_levels : sequence of int, length J
            Number of levels of each variable.
        """
        codes = np.asarray(codes)
        columns = [
            (codes[:, j, None] < 0) | (codes[:, j, None] == np.arange(levels))
            for j, levels in enumerate(num_levels)
        ]
        return cls(np.concatenate(columns, axis=1), tuple(num_levels))

    @property
    def by_variable(self) -> tuple[np.ndarray, ...]:
        """The (B, L_j) sets of levels of each variable j."""
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


def level_offsets(num_levels: Sequence[int]) -> list[int]:
    """Return where each variable's levels start among the levels of all, and their number last."""
    return [0, *np.cumsum(num_levels).tolist()]
