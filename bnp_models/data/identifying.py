"""Columns that identify records or small groups, or have exact values of single records."""

import re
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pandas as pd

from bnp_models.data.bins import level_counts
from bnp_models.data.microdata import Microdata, Records, once_for_each_table
from bnp_models.data.notation import looks_like_number
from bnp_models.data.schema import plain_label, text_of

SMALLEST_SHOWN = 5
"""Least number of records that a page without single records shows something of."""

LARGEST_SHARE, OF_NUMBERS = 0.5, 0.9
"""Share of the records with a value that nobody else has, from which on a column identifies; and
one of numbers, which may be ages of a small sample."""

LEAST_VALUES, MOST_NUMBERS = 20, 200
"""Values below which no column identifies, and numbers above which one does."""


LARGEST_GROUP, IN_A_ROW = 6.0, 100.0
"""Mean records per value up to which text is taken for identifiers of small groups, such as
households; and up to which any values are that records in a row share."""

# Records of a group, of which nearly all are in such a group: the members of a household.
_MEMBERS, _NEARLY_ALL = 20, 0.9

_NAMES_OF_GROUPS = re.compile(
    r"(household|hh|family|dwelling|cluster|psu|ssu|ea|interviewer|enumerator|segment|serial)"
    r"([ _.-]*(id|no|nr|num|number|code))?|int[ _.-]*(id|no|nr|num|number|code)|h?h?id",
    re.I,
)


class Identifying(NamedTuple):
    """A column that identifies records or small groups of them, or nearly so.

    Examples
    --------
    >>> names = bnp.Microdata.from_frame(pd.DataFrame({"name": [f"N{i}" for i in range(40)]}))
    >>> bnp.identifying_variables(names)[0].why
    'has 40 values, and 100% of the records have one that no other record has'
    """

    variable: str
    """Name of the column."""
    values: int
    """Distinct values."""
    alone: float
    """Share of the records whose value no other record has."""
    group: float | None = None
    """Records per value, where it is groups that the values identify; None otherwise."""
    numbers: bool = False
    """Whether most values are numbers."""
    decimals: bool = False
    """Whether most values are numbers that are not whole, as no identifier is."""

    @property
    def why(self) -> str:
        """Reason why the column may identify records, in words."""
        if self.group is not None:
            return (
                f"has {self.values:,} values, each of which {self.group:.1f} records have on "
                "average, as if it told households, clusters or interviewers apart"
            )
        return (
            f"has {self.values:,} values, and {100 * self.alone:.0f}% of the records have one that "
            "no other record has"
        )


def identifying_variables(table: Records, but: Collection[str] = ()) -> list[Identifying]:
    """Find variables that identify records or groups of them, or are numbers with very many values.

    Parameters
    ----------
    table
        Records.
    but
        Variables that are left out.

    Returns
    -------
    found
        Variables with at least `LEAST_VALUES` values, of which

        - a share of at least `LARGEST_SHARE` of the records (`OF_NUMBERS` if most values are
          numbers) has a value that no other record has;
        - or more than `MOST_NUMBERS` values are numbers;
        - or the values are text, `LARGEST_GROUP` records or fewer have each on average, and nearly
          all records share theirs with fewer than 20 others;
        - or `IN_A_ROW` records or fewer have each value on average, and the records of each value
          are in a row;
        - or the column is called hid, cluster, interviewer or the like.

    Examples
    --------
    >>> bnp.identifying_variables(table)
    []
    """
    return [one for one in _identifying(table) if one.variable not in but]


@once_for_each_table
def _identifying(table: Records) -> tuple[Identifying, ...]:
    """Find such variables among all."""
    found = []
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        if len(labels) < LEAST_VALUES:
            continue
        counts = level_counts(table, name)
        values, known = int((counts > 0).sum()), counts.sum()
        if values < LEAST_VALUES:
            continue
        alone = float((counts == 1).sum() / known)
        seen = [label for label, count in zip(labels, counts, strict=True) if count]
        numbers = sum(looks_like_number(label) for label in seen)
        are_numbers = 2 * numbers > values
        if alone >= (OF_NUMBERS if are_numbers else LARGEST_SHARE):
            whole = sum(re.fullmatch(r"\s*[0-9]+\s*", text_of(label)) is not None for label in seen)
            decimals = are_numbers and 2 * whole <= values
            found.append(Identifying(name, values, alone, None, are_numbers, decimals))
        elif _are_groups(table, name, counts, are_numbers):
            found.append(Identifying(name, values, alone, float(known / values), are_numbers))
        elif numbers > MOST_NUMBERS:
            found.append(Identifying(name, values, alone, None, are_numbers))
    return tuple(found)


def _are_groups(table: Records, name: str, counts: np.ndarray, are_numbers: bool) -> bool:
    """Whether values tell small groups of records apart."""
    known, mean = counts.sum(), counts.sum() / (counts > 0).sum()
    if _NAMES_OF_GROUPS.fullmatch(name.strip()):
        return True
    in_small = counts[counts <= _MEMBERS].sum() / known
    if not are_numbers and mean <= LARGEST_GROUP and in_small >= _NEARLY_ALL:
        return True
    return bool(mean <= IN_A_ROW) and _are_in_rows(table, name, counts)


def _are_in_rows(table: Records, name: str, counts: np.ndarray) -> bool:
    """Whether the records of each value follow each other."""
    if not isinstance(table, Microdata):
        return False
    codes = table.codes[:, table.schema.variables.index(name)]
    codes = codes[codes >= 0]
    return int((np.diff(codes) != 0).sum()) + 1 == int((counts > 0).sum())


def values_of_one(table: Records) -> dict[str, frozenset[str]]:
    """Texts of the labels that one record has, by variable."""
    found = {}
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        once = np.flatnonzero(level_counts(table, name) == 1)
        found[name] = frozenset(text_of(labels[k]) for k in once)
    return found


def share_of_values(made: pd.DataFrame | Records, variable: str, texts: Collection[str]) -> float:
    """Share of records that have one of some labels, given by their texts.

    Parameters
    ----------
    made
        Records, as labels or coded.
    variable
        Name of the column.
    texts
        Texts of the labels.
    """
    if not texts:
        return 0.0
    if isinstance(made, pd.DataFrame):
        raw, labels = pd.factorize(made[variable])
        counts = np.bincount(raw[raw >= 0], minlength=len(labels))
    else:
        labels = made.schema.levels[made.schema.variables.index(variable)]
        counts = level_counts(made, variable)
    among = np.array([text_of(plain_label(label)) in texts for label in labels], bool)
    return float(counts[among].sum() / max(1, counts.sum()))
