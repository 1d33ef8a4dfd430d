"""k-anonymity as a target: the least number of records with each combination of key values.

A suppressed value gives no information. The record counts as equal to all records that had its
other values before any value was suppressed. If it is equal to k of these, at least k records of
the file match it by the rule of sdcMicro and mu-Argus, in which a suppressed value stands for any.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import Schema, choose_variables
from bnp_models.risk.protected_risks import patterns
from bnp_models.risk.rare_combinations import Rows, check_combinations, minimal_rare


class Reached(NamedTuple):
    """Target of k-anonymity, and the records that miss it."""

    k: int
    """Number of records that each combination of values must have."""
    size: int | None
    """Number of key variables of a combination; null: all of them."""
    variables: tuple[str, ...] | None
    """Key variables of the combinations; null: all."""
    before: int
    """Number of records of the sample with a combination that fewer than k records have."""
    after: int
    """Number of such records in the protected file."""


class Anonymity(NamedTuple):
    """Target of k-anonymity.

    Examples
    --------
    >>> str(bnp.risk.Anonymity(3)), str(bnp.risk.Anonymity(5, size=2))
    ('each combination of all key variables', 'each combination of 2 key variables')
    """

    k: int
    """Least number of records that each combination of values must have."""
    size: int | None = None
    """Number of variables of a combination; every such set counts; None: all variables."""
    variables: tuple[str, ...] | None = None
    """Variables of the combinations; None: all key variables."""

    def __str__(self) -> str:
        """The combinations, in words."""
        of = "key variables" if self.variables is None else ", ".join(self.variables)
        if self.size is not None:
            return f"each combination of {self.size} {of}"
        return f"each combination of {'all ' if self.variables is None else ''}{of}"

    def check(self, schema: Schema) -> None:
        """Raise ValueError unless the target fits these variables."""
        if self.k < 2:
            raise ValueError(f"k must be at least 2, not {self.k}")
        names = choose_variables(self.variables, schema.variables)
        if self.size is not None and not 1 <= self.size <= len(names):
            raise ValueError(
                f"there are {len(names)} variables, and none are in sets of {self.size}"
            )
        remedy = (
            "ask for k-anonymity of smaller sets of variables (--k 3=K), or choose fewer variables"
        )
        check_combinations(len(names), self.size or len(names), remedy)

    def columns(self, schema: Schema) -> list[int]:
        """Indices of its variables among those that are left."""
        wanted = schema.variables if self.variables is None else self.variables
        return [j for j, name in enumerate(schema.variables) if name in wanted]

    def sets(self, columns: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The largest sets of some variables that must be common."""
        size = len(columns) if self.size is None else min(self.size, len(columns))
        return itertools.combinations(columns, size)


def rows_of(table: Microdata, stratum: np.ndarray | None) -> Rows:
    """The records of a table, in their strata."""
    return Rows(table.codes, np.ones(table.n, int), table.schema.num_levels, stratum)


def missed(
    table: Microdata, target: Anonymity, suppressed: np.ndarray, stratum: np.ndarray | None = None
) -> np.ndarray:
    """Which records (n,) have a combination that fewer than k records have, bool.

    Parameters
    ----------
    table
        Complete records.
    target
        The target.
    suppressed
        (n, J) bool: values that are suppressed.
    stratum
        (n,) numbers of strata, within which records are counted.
    """
    rows, found = rows_of(table, stratum), np.zeros(table.n, bool)
    if not (columns := target.columns(table.schema)):
        return found
    for pattern, where in patterns(suppressed[:, columns]):
        left = [j for j, gone in zip(columns, pattern, strict=True) if not gone]
        for chosen in target.sets(left) if left else ():
            found[where] |= rows.alike(chosen)[where] < target.k
    return found


def suppress_rare(
    table: Microdata,
    targets: Sequence[Anonymity],
    importance: np.ndarray,
    stratum: np.ndarray | None = None,
) -> np.ndarray:
    """Choose values to suppress (n, J), so that no combination of the others is rare.

    Every minimal rare combination of a record loses a value. The value that is in most of them for
    its cost is suppressed first, until all have lost one. Then values whose suppression was not
    needed are restored.

    Parameters
    ----------
    table, targets, stratum
        As for `missed`.
    importance
        (J,) cost of a suppressed value of each variable.
    """
    rows = rows_of(table, stratum)
    rare: list[list[tuple[int, ...]]] = [[] for _ in range(table.n)]
    for target in targets:
        columns = target.columns(table.schema)
        largest = len(columns) if target.size is None else min(target.size, len(columns))
        for chosen, where in minimal_rare(rows, target.k, largest, columns):
            for row in where:
                rare[row].append(chosen)
    suppressed = np.zeros(table.codes.shape, bool)
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
