"""Columns of persons that are about their households: its size, its number of a person, its own."""

from typing import NamedTuple

import numpy as np

from bnp_models.data.households import Households
from bnp_models.data.label_numbers import plain_number
from bnp_models.data.schema import Label

# Households, and disagreements of their members that values at random would have, from which on
# what is true of all households is no chance.
_HOUSEHOLDS, _EXPECTED = 20, 20.0

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
        numbers = np.array([float(plain_number(label) or -1) for label in labels])[codes]
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
