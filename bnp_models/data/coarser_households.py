"""Households whose variables are dropped and whose levels are merged, and their compositions.

The coarser composition of a household consists of the coarser values of its persons, in no order.
The number of persons stays known. Variables of the household are values that all persons share. A
head is compared with heads as long as the relationship says who it is.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from bnp_models.data.cells import group_cells
from bnp_models.data.compositions import log_num_orders
from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.data.recoding import Recoding
from bnp_models.data.schema import Label

Labels: TypeAlias = Sequence[np.ndarray]
"""For each variable of persons, the coarser level of every level; all zero if it is dropped."""


def labels_of(coarsening: Recoding) -> Labels:
    """Coarser level of every level of each variable."""
    labels = [np.zeros(size, np.int32) for size in coarsening.original.num_levels]
    for j, codes in zip(coarsening.variables, coarsening.codes, strict=True):
        labels[j] = np.asarray(codes, np.int32)
    return labels


def is_coarser(labels: np.ndarray) -> bool:
    """Whether several levels have one label."""
    return len(np.unique(labels)) < len(labels)


def recoded_households(table: Households, coarsening: Recoding) -> Households:
    """Recode households, whose heads stay apart if the relationship still says who they are.

    Parameters
    ----------
    table
        The households.
    coarsening
        Recoding of the variables of their persons.

    Raises
    ------
    MicrodataError
        If no variable of persons is left.
    """
    persons = coarsening.coarser(table.persons)
    assert isinstance(persons, Microdata)
    return table.with_persons(persons, recoded_head(table.schema, coarsening))


def recoded_head(schema: HouseholdSchema, coarsening: Recoding) -> tuple[str, Label] | None:
    """The relationship and its label of the head after a recoding; None if it tells no head."""
    if schema.head is None:
        return None
    j = schema.table.variables.index(schema.head[0])
    of = labels_of(coarsening)[j]
    head = of[schema.head_code]
    if (of == head).sum() > 1:
        return None
    return schema.head[0], coarsening.schema.levels[coarsening.variables.index(j)][head]


class Grouped(NamedTuple):
    """Households by their compositions."""

    of_household: np.ndarray
    """(n,) number of each household's composition."""
    counts: np.ndarray
    """Households of each composition."""
    log_orders: np.ndarray
    """(n,) log number of distinct orders of the household's persons, heads included."""

    @property
    def sharing(self) -> np.ndarray:
        """(n,) households of the sample with each household's composition, itself included."""
        return self.counts[self.of_household]


def group_households(
    kind: np.ndarray, home: np.ndarray, stratum: np.ndarray | None = None
) -> Grouped:
    """Group households whose persons are of the same kinds.

    Parameters
    ----------
    kind, home
        (N,) kind of each person, and its household, counted from 0.
    stratum
        (n,) numbers of strata: households of different ones are never together.
    """
    sizes = np.bincount(home)
    order = np.lexsort((kind, home))
    kind, home = kind[order], home[order]
    rows = np.full((len(sizes), int(sizes.max()) + 1), -1)
    rows[home, np.arange(len(home)) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = kind
    rows[:, -1] = 0 if stratum is None else stratum
    _, of_household, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    log_orders = log_num_orders(home, kind, len(sizes))
    return Grouped(of_household.reshape(-1), counts, log_orders)


class Members(NamedTuple):
    """Persons of households, household by household, the head first."""

    codes: np.ndarray
    """(N, J) level codes of the variables of persons."""
    sizes: np.ndarray
    """(n,) persons of each household."""

    @classmethod
    def of(cls, table: Households) -> "Members":
        """The persons of a sample."""
        place = np.argsort(np.argsort(table.rows, kind="stable"), kind="stable")
        return cls(table.persons.codes[place], np.asarray(table.sizes, np.int64))

    @property
    def start(self) -> np.ndarray:
        """(n,) first person of each household."""
        return np.cumsum(self.sizes) - self.sizes

    def persons(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Persons of some households (m,): the place of each one's household, and the person."""
        return ranges(self.start[rows], self.sizes[rows])

    def grouped(self, labels: Labels, rows: np.ndarray | None = None) -> Grouped:
        """Group the households, or some of them (m,), by their coarser compositions."""
        home, person = self.persons(np.arange(len(self.sizes)) if rows is None else rows)
        coarse = np.stack([of[self.codes[person, j]] for j, of in enumerate(labels)], axis=1)
        kind = group_cells(coarse, [int(of.max()) + 1 for of in labels]).record_cell
        return group_households(kind, home)


def ranges(start: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`size` numbers from each start on; the results are the start's index, and the number."""
    of = np.repeat(np.arange(len(size)), size)
    return of, start[of] + np.arange(len(of)) - (np.cumsum(size) - size)[of]
