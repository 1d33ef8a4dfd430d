"""Impossible records and households in synthetic files."""

from dataclasses import dataclass

import numpy as np

from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.rules.rules import Rules
from bnp_models.zeros.structural_zeros import StructuralZeros

_FIRST_ROWS = 20

NO_VALUE = "no value is possible for those missing"


@dataclass(frozen=True)
class Impossible:
    """What of one synthetic file breaks a condition or a rule."""

    number: int
    """Records that break a condition, or households that break a rule."""
    rows: tuple[int, ...]
    """0-based rows of the first of them; of households, of their first persons."""
    broken: tuple[str, ...]
    """What each of these breaks, in words."""
    by_rule: dict[str, int]
    """How many households break each rule that some break; of conditions, empty."""


def find_impossible(
    table: Microdata | Households, conditions: StructuralZeros | Rules
) -> Impossible:
    """Count the records that break a condition, or the households that break a rule.

    One with missing values breaks them if no completion is possible.
    """
    if isinstance(table, Households):
        bad = np.flatnonzero(~conditions.check(table))
        tally = {name: number for name, number in conditions.tally(table).items() if number}
        first = tuple(map(int, bad[:_FIRST_ROWS]))
        rows = tuple(table.first_row(i) for i in first)
        broken = tuple(_rules_broken(conditions, table, i) for i in first)
        return Impossible(bad.size, rows, broken, tally)
    bad = np.flatnonzero(~conditions.admits(table.codes))
    first = tuple(map(int, bad[:_FIRST_ROWS]))
    return Impossible(
        bad.size, first, tuple(_condition_broken(conditions, table, row) for row in first), {}
    )


def first_few(items, separator):
    """The first of a list, and how many more there are."""
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return separator.join(items[:5]) + more


def _rules_broken(rules, households, i):
    names = [rule.name for rule in rules.broken_by(households, i)]
    return "; ".join(names) or NO_VALUE


def _condition_broken(conditions, table, row):
    broken = conditions.broken_by(table.codes[row])
    if not broken.size:
        return NO_VALUE
    condition, schema = conditions.conditions[broken[0]], table.schema
    return " and ".join(
        f"{schema.variables[j]} = {schema.levels[j][condition[j]]}"
        for j in np.flatnonzero(condition >= 0)
    )
