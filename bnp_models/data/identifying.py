"""Columns that tell who a record is, or hold exact values of single records."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pandas as pd

from bnp_models.data.bins import level_counts
from bnp_models.data.microdata import Records
from bnp_models.data.notation import looks_like_number
from bnp_models.data.schema import plain_label, text_of

SMALLEST_SHOWN = 5
"""Least number of records that a page without single records shows something of."""

LARGEST_SHARE, OF_NUMBERS = 0.5, 0.9
"""Share of the records with a value that nobody else has, from which on a column identifies; and
one of numbers, which may be ages of a small sample."""

LEAST_VALUES, MOST_NUMBERS = 20, 200
"""Values below which no column identifies, and numbers above which one does."""


class Identifying(NamedTuple):
    """A column that identifies records, or nearly so.

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

    @property
    def why(self) -> str:
        """What is wrong with the column."""
        return (
            f"has {self.values:,} values, and {100 * self.alone:.0f}% of the records have one that "
            "no other record has"
        )


def identifying_variables(table: Records, but: Collection[str] = ()) -> list[Identifying]:
    """Find the variables that identify records, or are numbers with very many values.

    Parameters
    ----------
    table
        Records.
    but
        Variables that are left out.

    Returns
    -------
    found
        Variables with at least `LEAST_VALUES` values, of which either a share of at least
        `LARGEST_SHARE` of the records (`OF_NUMBERS` if most values are numbers) has a value that
        no other record has, or more than `MOST_NUMBERS` values are numbers.

    Examples
    --------
    >>> bnp.identifying_variables(table)
    []
    """
    found = []
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        if name in but or len(labels) < LEAST_VALUES:
            continue
        counts = level_counts(table, name)
        values, known = int((counts > 0).sum()), counts.sum()
        alone = float((counts == 1).sum() / known) if known else 0.0
        seen = (label for label, count in zip(labels, counts, strict=True) if count)
        numbers = sum(looks_like_number(label) for label in seen)
        most = OF_NUMBERS if 2 * numbers > values else LARGEST_SHARE
        if values >= LEAST_VALUES and (alone >= most or numbers > MOST_NUMBERS):
            found.append(Identifying(name, values, alone))
    return found


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
