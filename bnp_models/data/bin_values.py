"""Values that are drawn within a bin: heaped as those of the records are, and of no single one."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, cycle, takewhile
from typing import NamedTuple

import numpy as np

FEW = 5
"""A value of fewer records is drawn only as one of at least so many that are equally likely."""


class Rounded(NamedTuple):
    """Values of a bin that are equally round, such as the multiples of 50 that are none of 100."""

    every: int
    """The values are multiples of this number of units .."""
    but: int | None
    """.. and no multiples of this one."""
    records: int
    """Records that have such a value which fewer than `FEW` records share."""


@dataclass(frozen=True, eq=False)
class BinValues:
    """Distribution of the values that are drawn in one bin.

    A value that `FEW` records or more share is drawn as often as they have it. For the other
    records it is only counted how many have values of the same roundness: multiples of 1, 5, 10,
    50, 100 and so on of the bin's unit, each value counted with the largest. For them any value of
    this roundness is drawn that is not one of the shared values, all with the same probability,
    whether a record has it or not. If a roundness leaves fewer than `FEW` such values, a rounder
    one that no record has or the next finer one is joined to it, and records for whom there is no
    finer one are not imitated. So no value of fewer than `FEW` records is more probable than at
    least four others.

    A bootstrap of the values in a bin, as synthpop has it (``numtocat``, ``syn.nested``), would
    copy values of single records, and a uniform distribution would lose the heaping.
    """

    first: int
    """Lowest value, in units."""
    steps: int
    """Highest value less the lowest, in units."""
    shared: np.ndarray
    """(S,) steps from the lowest value to those that enough records share, ascending."""
    records: np.ndarray
    """(S,) number of records that have each."""
    rounded: tuple[Rounded, ...]
    """Other records by roundness, the roundest first."""

    @classmethod
    def of(
        cls,
        ends: tuple[Fraction, Fraction, Fraction],
        values: Sequence[Fraction],
        counts: np.ndarray,
        holders: np.ndarray,
    ) -> "BinValues":
        """Distribution for the records of a bin.

        Parameters
        ----------
        ends
            Lowest and highest value that are drawn, and the unit.
        values : (V,)
            Distinct values of the records.
        counts : (V,) integer array
            Records with each value.
        holders : (V,) integer array
            Persons or households, at most as many, whose value this is.
        """
        low, high, unit = ends
        first, steps = int(low // unit), round((high - low) / unit)
        place = [round((x - low) / unit) for x in values]
        enough = [0 <= k <= steps and held >= FEW for k, held in zip(place, holders, strict=True)]
        by_place = zip(place, counts, enough, strict=True)
        found = sorted((k, int(count)) for k, count, some in by_place if some)
        shared, records = np.array(found, np.int64).reshape(-1, 2).T
        grid = list(takewhile(lambda every: every <= max(steps, 1), _multiples()))
        others = [0] * len(grid)
        for k, count, some in zip(place, counts, enough, strict=True):
            if not some:
                round_to = [i for i, every in enumerate(grid) if (first + k) % every == 0]
                others[round_to[-1]] += int(count)
        made = cls(first, steps, shared, records, ())
        return cls(first, steps, shared, records, tuple(made._joined(grid, others)))

    def _joined(self, grid: Sequence[int], others: Sequence[int]):
        """Yield the roundnesses that records have, joined to others where their values are few."""
        held, first, free = 0, 0, len(grid)
        for i in reversed(range(len(grid))):
            first = first if held else i
            held += others[i]
            # Those beyond, up to `free`, are of roundnesses that no record has.
            ends = [*grid, None][first + 1 : free + 1] if held else []
            for but in ends:
                if self._num_values(grid[i], but) >= FEW:
                    yield Rounded(grid[i], but, held)
                    held, free = 0, i
                    break

    def _num_values(self, every: int, but: int | None) -> int:
        """Number of values of a roundness that are not shared."""

        def multiples(of):
            return (self.first + self.steps) // of - (self.first - 1) // of

        here = multiples(every) - (multiples(but) if but else 0)
        return here - int(self._is_round(self.shared, every, but).sum())

    def _is_round(self, steps: np.ndarray, every: int, but: int | None) -> np.ndarray:
        """Whether values, in steps from the lowest, are of a roundness."""
        found = (steps + self.first % every) % every == 0
        return found & ((steps + self.first % but) % but != 0) if but else found

    def draw(self, rng: np.random.Generator, number: int) -> np.ndarray:
        """Draw values: (number,) int64 array of steps from the lowest one."""
        records = np.array([*self.records, *(one.records for one in self.rounded)], float)
        if not len(records):
            return rng.integers(self.steps + 1, size=number)
        chosen = rng.choice(len(records), number, p=records / records.sum())
        steps = np.append(self.shared, np.zeros(len(self.rounded), np.int64))[chosen]
        for i, one in enumerate(self.rounded):
            of_this = np.flatnonzero(chosen == len(self.shared) + i)
            steps[of_this] = self._draw_rounded(rng, one, len(of_this))
        return steps

    def _draw_rounded(self, rng: np.random.Generator, one: Rounded, number: int) -> np.ndarray:
        """Draw values of a roundness that are not shared: (number,) steps from the lowest one."""
        lowest = -self.first % one.every
        most = (self.steps - lowest) // one.every + 1
        steps = np.empty(number, np.int64)
        left = np.arange(number)
        while len(left):
            steps[left] = lowest + one.every * rng.integers(most, size=len(left))
            refused = ~self._is_round(steps[left], one.every, one.but)
            left = left[refused | np.isin(steps[left], self.shared)]
        return steps


def _multiples():
    """1, 5, 10, 50, 100 and so on, to which people round numbers."""
    return accumulate(cycle([5, 2]), lambda one, by: one * by, initial=1)
