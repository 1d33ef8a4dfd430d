"""Items of records that sit at tables, which a split or a merge divides between two sides.

They are the members of mixed membership: `SeatedItems` provides the affected ones as `Items`,
arrays over records.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.numerics.counting import opens_table
from bnp_models.kernels.numerics.platforms import record_at
from bnp_models.kernels.splits.anchors import Anchors, Counts, passed, pick_member
from bnp_models.kernels.splits.members import MAX_UNIT, Unit, add_up_by_row
from bnp_models.kernels.variates.rng import uniform, words

INSIDE, OPENS, ANCHOR_0, ANCHOR_1, SECOND = 1, 2, 4, 8, 16
"""Bits of an item: it is of the component or pair; it opens its table; its table is that of the
first anchor; of the second anchor; it is of the second component of a merge."""


class Items(NamedTuple):
    """Items of some records, which sit at tables."""

    rows: Int[Array, "... J size"]
    """Row of theta of each item."""
    table: Int[Array, "... J size"]
    """Table of each item in its record."""
    bits: Int[Array, "... J size"]
    """Bits as defined by `INSIDE` and the other names; none for padding."""

    @property
    def concerned(self) -> Bool[Array, " size"]:
        """Records with an affected item."""
        return jnp.any(self.bits & INSIDE, axis=0)

    @property
    def anchored(self) -> list[Bool[Array, " size"]]:
        """Records with the table of the first anchor, and of the second."""
        return [jnp.any((self.bits & bit) > 0, axis=0) for bit in (ANCHOR_0, ANCHOR_1)]

    @property
    def weights(self) -> tuple[Bool[Array, "J size"], None, Int[Array, " size"]]:
        """Affected items, how often each counts (None: once), and tables of each record."""
        opens = (self.bits & OPENS) > 0
        return (self.bits & INSIDE) > 0, None, jnp.sum(opens, axis=0, dtype=jnp.int32)

    def masked(self, mask: Bool[Array, " size"]) -> "Items":
        """The items; items of records outside the mask become padding."""
        return self._replace(bits=jnp.where(mask, self.bits, 0))

    def scores(self, of_row: Float[Array, " R"]) -> Float[Array, "J size"]:
        """Score of each item's table: the sum over its items of the scores of their rows."""
        of_item = jnp.where(self.bits & INSIDE, of_row[self.rows], 0)
        table = self.table
        total = jnp.zeros((), of_row.dtype)
        for j in range(len(table)):
            total = total + jnp.where(table == table[j], of_item[j], 0)
        return total

    def expected(self, odds: Float[Array, "J size"], unit: Unit) -> Int[Array, "J size"]:
        """Expected shares on side 1 of the tables to be allocated, in units of 1 / unit."""
        share = jnp.round(unit * jax.nn.sigmoid(odds)).astype(jnp.int32)
        return jnp.where(self._free, share, 0)

    def settled(self, share: Int[Array, "J size"], unit: Unit) -> Int[Array, "J size"]:
        """Shares on side 1, with the anchors' tables on their own sides."""
        return share + jnp.where(self.bits & ANCHOR_1, unit, 0)

    def add_up(self, share: Int[Array, "J size"], variable: Int[Array, " R"]) -> Counts:
        """Weighted items of each row, and weighted tables."""
        tables = jnp.sum(jnp.where(self.bits & OPENS, share, 0))
        return Counts(add_up_by_row(self.rows, share, variable), tables)

    def draw(
        self, key: Key[Array, ""], odds: Float[Array, "J size"], is_split: Bool[Array, ""]
    ) -> Int[Array, "J size"]:
        """Draw whether each table to be allocated is on side 1; in a merge, return where it is."""
        v = uniform(words(key, self.rows.shape), odds.dtype.type)
        logit = jnp.log(v) - jnp.log1p(-v)
        drawn = jnp.take_along_axis(logit, self.table, axis=0) < odds
        side = jnp.where(is_split, drawn, (self.bits & SECOND) > 0)
        return (side & self._free).astype(jnp.int32)

    def cost(
        self, side: Int[Array, "J size"], odds: Float[Array, "J size"]
    ) -> Float[Array, " size"]:
        """Minus the log probability of these sides of the tables to be allocated, by record."""
        spent = jax.nn.softplus(jnp.where(side > 0, -odds, odds))
        opens = self._free & ((self.bits & OPENS) > 0)
        return jnp.sum(jnp.where(opens, spent, 0), axis=0)

    @property
    def _free(self):
        """Items of tables that are to be allocated."""
        return (self.bits & (INSIDE | ANCHOR_0 | ANCHOR_1)) == INSIDE


class SeatedItems(NamedTuple):
    """Items of all records, each at a table of its record; a table has one component."""

    z: Int[Array, "J n"]
    """Component of each item."""
    table: Int[Array, "J n"]
    """Item of its record that opened its table."""
    rows: Int[Array, "J n"]
    """Row of theta of each item."""
    num_records: Int[Array, ""]
    """Number of records; padding comes after them."""

    @property
    def unit(self) -> int:
        """Weight of a whole item or table in integer counts."""
        return max(1, min(MAX_UNIT, 2**30 // self.z.size))

    def pick(self, key: Key[Array, ""], k: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Draw an item of a component uniformly: its record, and its table there."""
        mask = self._real & (self.z == k)
        record, left = pick_member(key, jnp.sum(mask, axis=0))
        item, _ = passed(record_at(mask, record), left)
        return record, record_at(self.table, record)[item]

    def at_table(
        self, record: Int[Array, ""], table: Int[Array, ""], num_rows: int
    ) -> Int[Array, " R"]:
        """Items by row at a table of a record."""
        there = record_at(self.table, record) == table
        return jnp.zeros(num_rows, jnp.int32).at[record_at(self.rows, record)].add(there)

    def concerned(self, anchors: Anchors) -> Bool[Array, " n"]:
        """Whether each record has an item of the component or pair."""
        return self._real & jnp.any(anchors.concern(self.z), axis=0)

    def entries_of(self, anchors: Anchors) -> Callable[[Int[Array, " size"] | None], Items]:
        """Make a function that returns the items of some records, or of all for None."""

        def take(who):
            z, table, rows = self.z, self.table, self.rows
            if who is not None:
                z, table, rows = z[:, who], table[:, who], rows[:, who]
            where = jnp.arange(z.shape[1]) if who is None else who
            inside = anchors.concern(z)
            bits = (
                inside + OPENS * (inside & opens_table(table)) + SECOND * (z == anchors.k_b)
                + ANCHOR_0 * ((where == anchors.records[0]) & (table == anchors.tables[0]))
                + ANCHOR_1 * ((where == anchors.records[1]) & (table == anchors.tables[1]))
            )  # fmt: skip
            return Items(rows, table, bits if who is not None else jnp.where(self._real, bits, 0))

        return take

    def after(self, anchors: Anchors, on_side_1: Int[Array, "J n"]) -> Int[Array, "J n"]:
        """Labels after the move."""
        to_new = anchors.is_split & (on_side_1 > 0)
        proposal = jnp.where(to_new, anchors.k_new, anchors.k_a)
        moves = self._real & anchors.concern(self.z)
        return jnp.where(moves, proposal, self.z).astype(self.z.dtype)

    @property
    def _real(self):
        """Whether each record is not padding."""
        return jnp.arange(self.z.shape[1]) < self.num_records
