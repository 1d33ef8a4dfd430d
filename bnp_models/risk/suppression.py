"""Local suppression: as few values of single records as possible are removed.

`suppress` does this for limits on the risk, and `suppress_rare` for k-anonymity. Every suppressed
value costs the importance of its variable, which is 1 by default, as in mu-Argus and sdcMicro. If
bits of information were the cost, the search would suppress many values that nearly all records
have, instead of the one value that makes a record rare.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.data.microdata import Microdata
from bnp_models.data.recoding import Recoding
from bnp_models.risk.anonymity import Anonymity, rows_of
from bnp_models.risk.protected_risks import ProtectedRisks, patterns
from bnp_models.risk.rare_combinations import minimal_rare
from bnp_models.risk.verdict import Limits

# Records with a smaller risk than this get no suppression.
_NO_RISK = 1e-4

# Least number of records that get a suppression before the next best values are searched again.
_BATCH = 8


class Suppressed(NamedTuple):
    """Values that are suppressed."""

    mask: np.ndarray
    """(n, J') bool: True for suppressed values."""
    met: bool
    """Whether the limits are met."""


def suppress(
    risks: ProtectedRisks,
    coarsening: Recoding,
    limits: Limits,
    importance: np.ndarray,
    most: int,
    start: np.ndarray,
) -> Suppressed:
    """Suppress values of sample uniques until limits are met.

    The values with the largest reduction of r_1 for their cost are suppressed first.

    Parameters
    ----------
    risks
        Object that computes the risks.
    coarsening
        Key on which the records have values before suppression.
    limits
        Limits that the file must meet.
    importance
        (n, J') or (J',) cost of suppressing the value of each variable, of each record.
    most
        Largest number of records in which values may be suppressed. If the limits cannot be met
        with this number, the search ends early, and `met` is false.
    start
        (n, J') bool: values that are suppressed in any case.
    """
    rows = np.flatnonzero(risks.sharing(coarsening) == 1)
    mask = start.copy()
    # Records that are not unique but lose values in any case (`start`) count towards `most` too.
    most -= int(np.delete(mask, rows, axis=0).any(axis=1).sum())
    r1 = _risks_of(risks, coarsening, rows, mask[rows])
    costs = np.broadcast_to(importance, mask.shape)
    search = _Search(risks, coarsening, rows, r1, costs[rows], mask[rows])
    met = search.meets(r1, limits)
    if not met and fewest_records(r1.mean(axis=0), limits) <= most:
        met = search.run(limits, most)
    mask[rows] = search.mask
    return Suppressed(mask, met)


def _risks_of(
    risks: ProtectedRisks, coarsening: Recoding, rows: np.ndarray, mask: np.ndarray
) -> np.ndarray:
    """Risks r_1 (draws, m) of records, given which of their values (m, J') are suppressed."""
    r1 = np.zeros((risks.num_draws, len(rows)))
    for pattern, where in patterns(mask):
        if (key := risks.without(coarsening, pattern)) is not None:
            alone = where[risks.uniques(key, rows[where])]
            if alone.size:
                r1[:, alone] = risks.of_rows(key, rows[alone])[0]
    return r1


def fewest_records(r1: np.ndarray, limits: Limits) -> int:
    """Least number of records whose risk must fall; above the number m of records if none helps."""
    descending = np.sort(r1)[::-1]
    fewest = 0
    if limits.max_tau1 is not None:
        left = descending.sum() - np.concatenate([[0], np.cumsum(descending)])
        fewest = int((left > limits.max_tau1 + 1e-9).sum())
    if limits.max_risk is not None:
        fewest = max(fewest, int((descending > limits.max_risk).sum()))
    return fewest


class _Search:
    """State of the search: suppressed values, and the best next value of each record."""

    def __init__(self, risks, coarsening, rows, r1, importance, mask):
        self.risks, self.coarsening, self.rows = risks, coarsening, rows
        self.importance = importance
        self.r1, self.mask = r1, mask
        self.best = np.zeros(len(rows), int)
        self.best_r1 = r1.copy()
        self.worth = np.full(len(rows), -np.inf)
        self.stale = np.ones(len(rows), bool)

    def run(self, limits: Limits, most: int) -> bool:
        """Suppress values until the limits are met, and return whether they are met."""
        while True:
            mean = self.r1.mean(axis=0)
            open_ = (mean > _NO_RISK) & ~self.mask.all(axis=1)
            self._refresh(np.flatnonzero(open_ & self.stale))
            candidates = np.flatnonzero(open_ & np.isfinite(self.worth))
            if not candidates.size:
                return False
            most_risk = np.inf if limits.max_risk is None else limits.max_risk
            forced = self.risks.upper_means(self.r1) > most_risk
            # Records above the limit come first, and separately: each may need several
            # suppressions.
            if forced[candidates].any():
                candidates = candidates[forced[candidates]]
            order = candidates[np.argsort(-self.worth[candidates], kind="stable")]
            order = order[: max(_BATCH, len(order) // 4)]
            number = self._enough(order, limits)
            self._take(order[:number])
            if self.meets(self.r1, limits):
                return int(self.mask.any(axis=1).sum()) <= most
            if self.mask.any(axis=1).sum() > most:
                return False

    def meets(self, r1: np.ndarray, limits: Limits) -> bool:
        """Whether these risks (draws, m) meet the limits."""
        return self.risks.judge(r1, self.rows, limits).release is True

    def _enough(self, order: np.ndarray, limits: Limits) -> int:
        """Number of the best next values, in this order, that meet the limits; all if none does."""
        few, many = 0, len(order)
        while many - few > 1:
            middle = (few + many) // 2
            r1 = self.r1.copy()
            r1[:, order[:middle]] = self.best_r1[:, order[:middle]]
            few, many = (few, middle) if self.meets(r1, limits) else (middle, many)
        return many

    def _take(self, records: np.ndarray) -> None:
        """Suppress the best next value of each of the given records."""
        self.mask[records, self.best[records]] = True
        self.r1[:, records] = self.best_r1[:, records]
        self.stale[records] = True

    def _refresh(self, records: np.ndarray) -> None:
        """Find the best next value of each of the given records."""
        self.worth[records] = -np.inf
        self.stale[records] = False
        for j in range(self.mask.shape[1]):
            left = records[~self.mask[records, j]]
            after = self.mask[left]
            after[:, j] = True
            for pattern, where in patterns(after):
                self._compare(left[where], j, pattern)

    def _compare(self, records: np.ndarray, j: int, pattern: np.ndarray) -> None:
        """Compare suppressing variable j, which gives this pattern (J',), with the best so far."""
        r1 = np.zeros((self.risks.num_draws, len(records)))
        if (key := self.risks.without(self.coarsening, pattern)) is not None:
            alone = self.risks.uniques(key, self.rows[records])
            if not self.risks.listable(key, self.rows[records[alone]]):
                return
            if alone.any():
                r1[:, alone] = self.risks.of_rows(key, self.rows[records[alone]])[0]
        fall = self.r1[:, records].mean(axis=0) - r1.mean(axis=0)
        worth = fall / self.importance[records, j]
        better = worth > self.worth[records]
        chosen = records[better]
        self.worth[chosen], self.best[chosen] = worth[better], j
        self.best_r1[:, chosen] = r1[:, better]


def suppress_rare(
    table: Microdata,
    targets: Sequence[Anonymity],
    importance: np.ndarray,
    stratum: np.ndarray | None = None,
    of_household: np.ndarray | None = None,
) -> np.ndarray:
    """Choose values to suppress (n, J), so that no combination of the others is rare.

    Every minimal rare combination of a record loses a value. The value that is in most of them for
    its cost is suppressed first, until all have lost one. Then values whose suppression was not
    needed are restored.

    Parameters
    ----------
    table, targets, stratum, of_household
        As for `bnp_models.risk.anonymity.missed`.
    importance
        (J,) cost of a suppressed value of each variable.
    """
    rows = rows_of(table, stratum, of_household)
    rare: list[list[tuple[int, ...]]] = [[] for _ in range(rows.number)]
    for target in targets:
        columns = target.columns(table.schema)
        largest = len(columns) if target.size is None else min(target.size, len(columns))
        for chosen, where in minimal_rare(rows, target.k, largest, columns):
            for row in where:
                rare[row].append(chosen)
    suppressed = np.zeros((rows.number, table.num_variables), bool)
    found: dict[tuple, list[int]] = {}
    for row, sets in enumerate(map(tuple, rare)):
        if sets:
            if sets not in found:
                found[sets] = _hitting(sets, importance)
            suppressed[row, found[sets]] = True
    return suppressed


def _hitting(sets: Sequence[tuple[int, ...]], importance: np.ndarray) -> list[int]:
    """Choose few and cheap variables so that each set contains one of them."""
    chosen: list[int] = []
    left = [set(one) for one in sets]
    while left:
        number = np.bincount([j for one in left for j in one], minlength=len(importance))
        best = int(np.argmax(number / importance))
        chosen.append(best)
        left = [one for one in left if best not in one]
    for j in sorted(chosen, key=lambda j: -importance[j]):
        others = set(chosen) - {j}
        if all(others & set(one) for one in sets):
            chosen.remove(j)
    return chosen
