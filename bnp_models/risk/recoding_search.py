"""Search for the recoding that loses the least information for what it takes off the risk.

A recoding changes the risk only of units that have one of the levels that it merges. What it takes
off the risk is therefore computed from these units, and is known still in the next step if no
recoding has changed one of them since.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.risk.protected_risks import ProtectedRisks
from bnp_models.risk.recoding import Groups, Recoded, Step, cheapest
from bnp_models.risk.units import Units
from bnp_models.risk.verdict import Limits

# A recoding that takes off less than this share of the risk is not made.
_LEAST_GAIN = 1e-3


class _Gain(NamedTuple):
    """What a recoding takes off the risk; 0 if it cannot be evaluated."""

    value: float
    units: np.ndarray
    """(n,) bool: the units that it changes."""


class RecodingSearch:
    """Recodings of a sample, one after the other.

    Parameters
    ----------
    scan
        Object that computes the risks.
    units
        Units of the sample.
    limits
        Limits of the risk.
    weight
        (J,) importance of each variable.
    ordered
        (J,) bool: variables with ordered levels.
    """

    def __init__(
        self,
        scan: ProtectedRisks,
        units: Units,
        limits: Limits,
        weight: np.ndarray,
        ordered: np.ndarray,
    ):
        self._scan, self._units, self._limits = scan, units, limits
        self._weight, self._ordered = weight, ordered
        self._last: Recoded | None = None
        self._gains: dict[tuple[int, Groups | None], _Gain] = {}

    def next(self, recoded: Recoded) -> tuple[Recoded, list[Step]] | None:
        """Step with the least loss of information for its reduction of risk; None if none is left.

        The result is the recoding after the step, and what the step merged or dropped.
        """
        self._forget_changed(recoded)
        now = self._risk_now(recoded)
        least = _LEAST_GAIN * now.sum()
        found = ((self._gain(now, *step), *step) for step in recoded.steps(self._ordered))
        return cheapest(recoded, self._weight, (one for one in found if one[0] > least))

    def _forget_changed(self, recoded: Recoded) -> None:
        """Forget the gains of recodings that change a unit which has been changed since."""
        if self._last is not None:
            changed = np.zeros(self._units.number, bool)
            for j, (old, new) in enumerate(zip(self._last.groups, recoded.groups, strict=True)):
                if old != new:
                    changed |= self._changed_units(j, new and set(new) - set(old or ()))
            self._gains = {
                key: one for key, one in self._gains.items() if not (one.units & changed).any()
            }
        self._last = recoded

    def _changed_units(self, j: int, groups: Iterable[Sequence[int]] | None) -> np.ndarray:
        """(n,) bool: units whose levels of variable j are merged to some groups, or dropped."""
        if groups is None:
            return np.ones(self._units.number, bool)
        return self._units.with_levels(j, [code for group in groups for code in group])

    def _risk_now(self, recoded: Recoded) -> np.ndarray:
        """(n,) what recodings must reduce: the risk of each unit, 0 where it is not alone."""
        rows = np.flatnonzero(self._scan.sharing(recoded.numbered) == 1)
        found = np.zeros(self._units.number)
        found[rows] = self._above(self._scan.of_rows(recoded.numbered, rows)[0])
        return found

    def _above(self, r1: np.ndarray) -> np.ndarray:
        """Risk (m,) that recodings must reduce, of r_1 (draws, m): its mean for a limit of tau_1;
        otherwise its excess over the limit of a unit."""
        if self._limits.max_tau1 is not None:
            return r1.mean(axis=0)
        return np.maximum(self._scan.upper_means(r1) - self._limits.max_risk, 0)

    def _gain(
        self, now: np.ndarray, j: int, merges: list[Groups] | None, candidate: Recoded
    ) -> float:
        """What a step takes off the risk (n,) of the units."""
        groups: Groups | None = None
        if merges is not None:
            groups = tuple(tuple(sorted(c for part in one for c in part)) for one in merges)
        if (j, groups) not in self._gains:
            changed = self._changed_units(j, groups)
            self._gains[j, groups] = _Gain(self._gain_of(now, changed, candidate), changed)
        return self._gains[j, groups].value

    def _gain_of(self, now: np.ndarray, changed: np.ndarray, candidate: Recoded) -> float:
        """What a recoding that changes some units (n,) takes off the risk (n,)."""
        among, key = np.flatnonzero(changed), candidate.numbered
        alone = among[(self._scan.sharing(key, among) == 1) & (now[among] > 0)]
        if not self._scan.listable(key, alone):
            return 0.0
        left = self._above(self._scan.of_rows(key, alone)[0]) if len(alone) else 0
        return float(now[among].sum() - np.sum(left))
