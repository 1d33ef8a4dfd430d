"""Columns of persons that are about their households: its size, its number of a person, its own."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from bnp_models.data.households import Households
from bnp_models.data.label_numbers import plain_number
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import Label

# Households, and disagreements of their members that values at random would have, from which on
# what is true of all households is no chance.
_HOUSEHOLDS, _EXPECTED = 20, 20.0

# Usual names of columns that tell households apart, those of well-known surveys among them.
_NAMES = re.compile(
    r"(household|hh|hhold|haushalt|menage|hogar|dwelling)s?"
    r"([ _.-]*(id|no|nr|num|number|code|serial))?|"
    r"hh?id(nr|num)?|idhh|hh?nr|serial([ _.-]*(no|nr|num|number))?|db030|rb040|rx030|hv001",
    re.I,
)  # fmt: skip

# Persons of a household: mean with and without such a name, largest mean, and most.
_LEAST_NAMED, _LEAST, _LARGEST_MEAN, _MOST = 1.02, 1.2, 12.0, 60

# Share of the households of which a variable is the size, from which on it is meant to be.
_MOSTLY = 0.8

# Levels up to which a variable may be a relationship.
_ROLES = 30


class HouseholdColumns(NamedTuple):
    """Variables of persons that look like something of their households."""

    sizes: list[str]
    """Those that are the number of persons of the household."""
    numbers: list[str]
    """Those that number the persons of a household from 1 on."""
    same: list[str]
    """Those with one value in each household."""
    heads: list[tuple[str, Label]]
    """Those with a value that one person of each household has, and this value."""


def household_columns(table: Households) -> HouseholdColumns:
    """Find variables of persons that look like something of their households.

    Parameters
    ----------
    table
        Households with the variables that are known to be theirs, and with or without heads.

    Examples
    --------
    >>> rows = [(h, k + 1, "own" if h % 3 else "rent") for h in range(60) for k in range(1 + h % 4)]
    >>> homes = pd.DataFrame(rows, columns=["hid", "person", "tenure"])
    >>> found = household_columns(bnp.Households.from_frame(homes, "hid"))
    >>> found.numbers, found.same
    (['person'], ['tenure'])
    """
    found = HouseholdColumns([], [], [], [])
    if table.n < _HOUSEHOLDS or (table.sizes == 1).all():
        return found
    schema = table.persons.schema
    home = np.repeat(np.arange(table.n), table.sizes)
    first = np.cumsum(table.sizes) - table.sizes
    for j, (name, labels) in enumerate(zip(schema.variables, schema.levels, strict=True)):
        codes = table.persons.codes[table.rows, j]
        if name not in table.schema.personal or (codes < 0).any():
            continue
        numbers = _numbers(labels, codes)
        if (numbers == table.sizes[home]).all():
            found.sizes.append(name)
        elif (numbers[np.lexsort((numbers, home))] == np.arange(len(home)) - first[home] + 1).all():
            found.numbers.append(name)
        elif (codes == codes[first][home]).all():
            shares = np.bincount(codes) / len(codes)
            if (len(home) - table.n) * (1 - (shares**2).sum()) >= _EXPECTED:
                found.same.append(name)
        elif len(labels) <= _ROLES:
            counts = np.bincount(home * len(labels) + codes, minlength=table.n * len(labels))
            once = np.flatnonzero((counts.reshape(table.n, -1) == 1).all(axis=0))
            if len(once) == 1:
                found.heads.append((name, labels[once[0]]))
    return found


def contradicted_sizes(table: Households) -> list[tuple[str, int, int]]:
    """Household variables that are the number of persons of most households, but not of all.

    Returns
    -------
    contradicted
        The name of each, the number of households with another number of persons, and the index of
        the first of these. Labels that are no numbers, such as 5+, contradict nothing.

    Examples
    --------
    >>> from bnp_models.data.household_columns import contradicted_sizes
    >>> rows = [(h, 1 + h % 4, k) for h in range(60) for k in range(1 + h % 4)]
    >>> homes = pd.DataFrame(rows[:-1], columns=["hid", "size", "child"])
    >>> contradicted_sizes(bnp.Households.from_frame(homes, "hid", ["size"]))
    [('size', 1, 59)]
    """
    schema = table.persons.schema
    first = np.cumsum(table.sizes) - table.sizes
    found = []
    for name, labels, codes in zip(
        schema.variables, schema.levels, table.persons.codes[table.rows[first]].T, strict=True
    ):
        if name in table.schema.personal:
            continue
        said = _numbers(labels, codes)
        other = ~np.isnan(said) & (said != table.sizes)
        if other.any() and (said == table.sizes).sum() >= _MOSTLY * table.n:
            found.append((name, int(other.sum()), int(other.argmax())))
    return found


def _numbers(labels: Sequence[Label], codes: np.ndarray) -> np.ndarray:
    """Numbers (n,) from 1 on that level codes stand for; nan for other labels, and if missing."""
    numbers = [float(plain_number(label) or np.nan) for label in labels]
    return np.array([*numbers, np.nan])[codes]


class Grouping(NamedTuple):
    """Groups of persons who look like households."""

    households: int
    """Number of groups."""
    size: float
    """Persons of a group, on average."""
    same: list[str]
    """Variables with one value in each group, more often than by chance."""


def is_household_name(name: str) -> bool:
    """Whether a name is a usual one of a column that tells households apart.

    Examples
    --------
    >>> from bnp_models.data.household_columns import is_household_name
    >>> [is_household_name(name) for name in ("hid", "Household_ID", "SERIALNO", "child")]
    [True, True, True, False]
    """
    return _NAMES.fullmatch(name.strip()) is not None


def households_of_column(
    name: str, values: pd.Series | np.ndarray, table: Microdata
) -> Grouping | None:
    """Groups of persons that a column makes, if they look like households.

    Parameters
    ----------
    name
        Name of the column.
    values
        (n,) its values, for each person of the table.
    table
        Persons, by their key variables.

    Returns
    -------
    grouping
        None unless the groups have the size of households; and the column has a usual name, or the
        persons of each group follow each other and have the same value of a variable that others
        have too.
    """
    codes, labels = pd.factorize(np.asarray(values))
    if len(labels) < _HOUSEHOLDS or (codes < 0).any():
        return None
    counts = np.bincount(codes)
    size = len(codes) / len(labels)
    if not _LEAST_NAMED <= size <= _LARGEST_MEAN or counts.max() > _MOST:
        return None
    together = np.count_nonzero(np.diff(codes)) + 1 == len(labels)
    same = _same_in_groups(codes, table)
    if not is_household_name(name) and not (together and same and size >= _LEAST):
        return None
    return Grouping(len(labels), size, same)


def households_by_size(table: Microdata) -> tuple[str, Grouping] | None:
    """Variable that is the size of households whose persons follow each other, if there is one.

    The persons are in runs, and each run is as long as the variable says of its persons.
    """
    for name, labels, codes in zip(
        table.schema.variables, table.schema.levels, table.codes.T, strict=True
    ):
        first = _starts_of_runs(_numbers(labels, codes))
        if first is None or not len(first) >= _HOUSEHOLDS or table.n < _LEAST * len(first):
            continue
        group = np.zeros(table.n, np.int64)
        group[first[1:]] = 1
        same = [other for other in _same_in_groups(group.cumsum(), table) if other != name]
        return name, Grouping(len(first), table.n / len(first), [name, *same])
    return None


def _starts_of_runs(sizes: np.ndarray) -> np.ndarray | None:
    """Starts of runs that are as long as the sizes (n,) say; None if some run is not."""
    if not len(sizes) or not (sizes >= 1).all() or sizes.max() > _MOST or (sizes % 1).any():
        return None
    change = np.flatnonzero(np.diff(sizes)) + 1
    start = np.append(0, change)
    length = np.diff(start, append=len(sizes))
    of_run = sizes[start].astype(int)
    if (length % of_run).any():
        return None
    return np.concatenate(
        [np.arange(s, s + n, k) for s, n, k in zip(start, length, of_run, strict=True)]
    )


def _same_in_groups(group: np.ndarray, table: Microdata) -> list[str]:
    """Variables with one value in each group (n,), which values at random would not have.

    Variables by which the persons are sorted are left out: they say nothing of groups.
    """
    _, first, place = np.unique(group, return_index=True, return_inverse=True)
    found = []
    for name, codes in zip(table.schema.variables, table.codes.T, strict=True):
        if (codes < 0).any() or (codes != codes[first][place.reshape(-1)]).any():
            continue
        shares = np.bincount(codes) / len(codes)
        by_chance = (len(codes) - len(first)) * (1 - (shares**2).sum())
        is_sorted = np.count_nonzero(np.diff(codes)) < 2 * len(np.unique(codes))
        if by_chance >= _EXPECTED and not is_sorted:
            found.append(name)
    return found
