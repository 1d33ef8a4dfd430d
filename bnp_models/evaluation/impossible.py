"""Impossible records and households in synthetic files."""

from dataclasses import dataclass

import numpy as np

from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.households import Households
from bnp_models.data.microdata import Records
from bnp_models.rules.rules import Rules
from bnp_models.zeros.structural_zeros import StructuralZeros

_FIRST_ROWS = 20

_NO_VALUE = "no values are possible for the missing ones"


@dataclass(frozen=True)
class Impossible:
    """Impossible records of one synthetic file, or households that break a rule."""

    number: int
    """Number of impossible records, or of households that break a rule."""
    rows: tuple[int, ...]
    """0-based rows of the first impossible records, or of the first persons of households."""
    broken: tuple[str, ...]
    """Structural zero, or rules, that each of these records or households breaks, in words."""
    by_rule: dict[str, int]
    """Number of households that break each rule, for rules that are broken; empty for records."""


def find_impossible(table: Records | Households, conditions: StructuralZeros | Rules) -> Impossible:
    """Count the impossible records of a file, or the households that break a rule.

    Parameters
    ----------
    table
        The file. A record with missing values is impossible if no completion is possible.
    conditions
        Structural zeros of records, or rules of households.
    """
    if isinstance(table, Households):
        if not isinstance(conditions, Rules):
            raise TypeError("households have rules, not structural zeros")
        return _impossible_households(table, conditions)
    if not isinstance(conditions, StructuralZeros):
        raise TypeError("records have structural zeros, not rules")
    return _impossible_records(table, conditions)


def _impossible_households(table: Households, rules: Rules) -> Impossible:
    """Households that break a rule."""
    bad = np.flatnonzero(~rules.check(table))
    first = tuple(map(int, bad[:_FIRST_ROWS]))
    return Impossible(
        number=bad.size,
        rows=tuple(table.first_row(i) for i in first),
        broken=tuple(_rules_broken(rules, table, i) for i in first),
        by_rule={name: number for name, number in rules.tally(table).items() if number},
    )


def _impossible_records(table: Records, zeros: StructuralZeros) -> Impossible:
    """Impossible records; the rows of a contingency table are the first of each impossible cell."""
    bad = np.flatnonzero(~zeros.admits(table.codes))
    number, rows = bad.size, bad
    if isinstance(table, ContingencyTable):
        number, rows = int(table.counts[bad].sum()), np.sort(table.first_rows[bad])
    rows = rows[:_FIRST_ROWS]
    broken = tuple(_zero_broken(zeros, table.schema, codes) for codes in table.codes_at(rows))
    return Impossible(number=number, rows=tuple(map(int, rows)), broken=broken, by_rule={})


def _rules_broken(rules, households, i):
    """Rules that a household breaks, in words."""
    names = [rule.name for rule in rules.broken_by(households, i)]
    return "; ".join(names) or _NO_VALUE


def _zero_broken(zeros, schema, record):
    """First structural zero that contains a record, in words."""
    broken = zeros.broken_by(record)
    if not broken.size:
        return _NO_VALUE
    fixed = zeros.conditions[broken[0]]
    return " and ".join(
        f"{schema.variables[j]} = {schema.levels[j][fixed[j]]}" for j in np.flatnonzero(fixed >= 0)
    )
