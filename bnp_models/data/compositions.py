"""Compositions of households: their values and those of their members, in no order."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from bnp_models.data.cells import group_cells
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import Schema


@displayed
class Compositions(NamedTuple):
    """The distinct compositions of some households.

    Two households have the same composition if they have the same values of household variables,
    and their members can be put in an order in which they agree too. A head at household level is
    described by household variables, so that heads are compared with heads.

    Attributes
    ----------
    rows : (D, w) int32 array
        The compositions, as of `composition_rows`.
    counts : (D,) int64 array
        Number of households of each.
    of_household : (n,) int64 array
        Index into ``rows`` of each household's composition.
    first : (D,) int64 array
        Index of the first household of each.
    log_orders : (D,) float64 array
        Log number of distinct orders of the members: log m! / prod_k m_k!, where m_k is the number
        of members of kind k.

    Examples
    --------
    >>> persons = pd.DataFrame({"hid": [1, 1, 2, 2], "sex": ["f", "m", "m", "f"]})
    >>> grouped = bnp.data.compositions_of(bnp.Households.from_frame(persons))
    >>> grouped.counts.tolist(), np.exp(grouped.log_orders).round().tolist()
    ([2], [2.0])
    """

    rows: np.ndarray
    counts: np.ndarray
    of_household: np.ndarray
    first: np.ndarray
    log_orders: np.ndarray

    @property
    def records(self) -> Microdata:
        """The households as records of one variable, the composition."""
        schema = Schema(("composition",), (tuple(range(len(self.counts))),))
        return Microdata(schema, self.of_household[:, None])

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        alone = int((self.counts == 1).sum())
        return Shown(
            f"Compositions: {counted(int(self.counts.sum()), 'household')} in "
            f"{counted(len(self.counts), 'composition')}, {counted(alone, 'of one', 'of one')}"
        )


def compositions_of(table: Households) -> Compositions:
    """Find the distinct compositions of households; a missing value is a value of its own.

    Parameters
    ----------
    table
        Coded households.

    Examples
    --------
    >>> found = bnp.data.compositions_of(households)
    >>> int(found.counts.sum())
    20
    """
    rows = composition_rows(table)
    distinct, first, of_household, counts = np.unique(
        rows, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    sizes = [levels + 1 for levels in table.schema.num_member_levels]
    kind = group_cells(table.member_codes + 1, sizes)
    orders = log_num_orders(table.member_household, kind.record_cell, table.n)
    return Compositions(distinct, counts, of_household.reshape(-1), first, orders[first])


def composition_rows(table: Households) -> np.ndarray:
    """Code households so that those of the same composition, and only these, have the same row.

    Parameters
    ----------
    table : Households
        The households. Rows of several tables can be compared if the tables have one schema and
        their largest households the same size.

    Returns
    -------
    rows : (n, w) int32 array
        Household codes, size, and the codes of the members in ascending order, with -2 after the
        last one.
    """
    order = np.lexsort((*table.member_codes.T[::-1], table.member_household))
    members = table.sizes - table.schema.num_heads
    width = int(members.max())
    p = table.member_codes.shape[1]
    place = np.arange(len(order)) - np.repeat(np.cumsum(members) - members, members)
    of_members = np.full((table.n, width, p), -2, np.int32)
    of_members[table.member_household, place] = table.member_codes[order]
    return np.column_stack(
        [table.household_codes, table.sizes, of_members.reshape(table.n, width * p)]
    )


def num_compositions(schema: HouseholdSchema, sizes: np.ndarray) -> int:
    """Number of compositions of households of these numbers of persons."""
    kinds = math.prod(schema.num_member_levels)
    members = [int(size) - schema.num_heads for size in sizes]
    in_no_order = sum(math.comb(kinds + m - 1, m) for m in members)
    return math.prod(schema.num_household_levels) * in_no_order


def log_num_orders(home: np.ndarray, kind: np.ndarray, number: int) -> np.ndarray:
    """Log numbers of distinct orders of the persons of households, log m! / prod_k m_k!.

    Parameters
    ----------
    home, kind
        (M,) household of each person, counted from 0, and its kind.
    number
        Number n of households, some of which may have no person.

    Returns
    -------
    log_orders
        (n,) of each household, with m persons and m_k of kind k.
    """
    kinds = int(kind.max(initial=0)) + 1
    pairs, alike = np.unique(home * kinds + kind, return_counts=True)
    same = np.bincount(pairs // kinds, gammaln(alike + 1), number)
    return gammaln(np.bincount(home, minlength=number) + 1) - same
