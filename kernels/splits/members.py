"""Whole records, single or counted by cell, which a split or a merge divides between two sides.

`LabelledRecords` are the records of latent classes; `seated_items` has the members of mixed
membership. Either kind provides the affected members as arrays over records, here `Records`, which
are divided into chunks. The unit that is allocated to a side is a table, or each of the records
that one entry counts.
"""

from collections.abc import Callable
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.numerics.platforms import on_accelerator, record_at
from bnp_models.kernels.splits.anchors import Anchors, Counts, pick_member
from bnp_models.kernels.variates.discrete import binomial
from bnp_models.kernels.variates.rng import uniform, words

# Shares of tables on a side are counted in units of the inverse of this number; the units are
# larger if the counts would overflow.
MAX_UNIT = 256

# Largest number of records of an entry that shapes a proposal, so that float32 adds them up without
# rounding.
_MAX_SHAPING_COUNT = 32


Unit: TypeAlias = int | Int[Array, ""]
"""Weight of a whole table, or record, in integer counts."""


def add_up_by_row(rows, share, variable):
    """Sums of shares by row."""
    if on_accelerator():
        # Additions of many items to few rows would wait for each other.
        has_row = rows[variable] == jnp.arange(variable.size)[:, None]
        return jnp.sum(jnp.where(has_row, share[variable], 0), axis=1)
    return jnp.zeros(variable.size, jnp.int32).at[rows.reshape(-1)].add(share.reshape(-1))


class Records(eqx.Module):
    """Whole records; each entry is one record, or several of the same cell."""

    rows: Int[Array, "... J size"]
    """Row of lambda of each value."""
    free: Int[Array, "... size"]
    """Number of affected records that are to be allocated: all except the anchors."""
    second: Int[Array, "... size"]
    """Number of the records to be allocated that are in the second class of a merge."""
    first_anchor: Bool[Array, "... size"]
    """Whether one more record of the entry is the first anchor."""
    second_anchor: Bool[Array, "... size"]
    """Whether one more record of the entry is the second anchor."""
    counted: bool = eqx.field(static=True)
    """Whether an entry may be several records."""

    @property
    def concerned(self) -> Bool[Array, " size"]:
        """Whether each entry has an affected record."""
        return self._number > 0

    @property
    def anchored(self) -> list[Bool[Array, " size"]]:
        """Entries with the first anchor, and with the second."""
        return [self.first_anchor, self.second_anchor]

    @property
    def weights(
        self,
    ) -> tuple[Bool[Array, "J size"], Int[Array, " size"] | None, Int[Array, " size"]]:
        """Affected values, how often each counts (None: once), and records of each entry."""
        number = jnp.minimum(self._number, _MAX_SHAPING_COUNT)
        inside = jnp.broadcast_to(self.concerned, self.rows.shape)
        return inside, number if self.counted else None, number

    def masked(self, mask: Bool[Array, " size"]) -> "Records":
        """The entries, with those outside the mask as padding."""
        return Records(
            self.rows, jnp.where(mask, self.free, 0), jnp.where(mask, self.second, 0),
            self.first_anchor & mask, self.second_anchor & mask, self.counted,
        )  # fmt: skip

    def scores(self, of_row: Float[Array, " R"]) -> Float[Array, " size"]:
        """Score of a record of each entry: the sum of the scores of its rows."""
        return jnp.sum(of_row[self.rows], axis=0)

    def expected(self, odds: Float[Array, " size"], unit: Unit) -> Int[Array, " size"]:
        """Expected shares on side 1 of the records to be allocated, in units of 1 / unit."""
        whole = unit * self.free
        share = jnp.round(whole * jax.nn.sigmoid(odds)).astype(jnp.int32)
        # The product may be rounded up.
        return jnp.minimum(share, whole)

    def settled(self, share: Int[Array, " size"], unit: Unit) -> Int[Array, " size"]:
        """Shares on side 1, with the anchors on their own sides."""
        return share + jnp.where(self.second_anchor, unit, 0)

    def add_up(self, share: Int[Array, " size"], variable: Int[Array, " R"]) -> Counts:
        """Weighted records with each row, and their total."""
        shares = jnp.broadcast_to(share, self.rows.shape)
        return Counts(add_up_by_row(self.rows, shares, variable), jnp.sum(share))

    def draw(
        self, key: Key[Array, ""], odds: Float[Array, " size"], is_split: Bool[Array, ""]
    ) -> Int[Array, " size"]:
        """Draw the number of records to be allocated on side 1; in a merge, return their number."""
        if self.counted:
            drawn = binomial(key, self.free, jax.nn.sigmoid(odds), jax.nn.sigmoid(-odds))
        else:
            v = uniform(words(key, odds.shape), odds.dtype.type)
            drawn = jnp.where(jnp.log(v) - jnp.log1p(-v) < odds, self.free, 0)
        return jnp.where(is_split, drawn, self.second)

    def cost(self, side: Int[Array, " size"], odds: Float[Array, " size"]) -> Float[Array, " size"]:
        """Minus the log probability of allocating `side` records to side 1, each record by name."""
        of_0, of_1 = jax.nn.softplus(odds), jax.nn.softplus(-odds)
        return jnp.where(side > 0, side * of_1, 0) + jnp.where(
            self.free > side, (self.free - side) * of_0, 0
        )

    @property
    def _number(self):
        """Number of affected records, with anchors."""
        return self.free + self.first_anchor + self.second_anchor


class LabelledRecords(eqx.Module):
    """Records of latent classes: single ones with their classes, then cells with class counts."""

    z: Int[Array, " n"]
    """Class of each record."""
    split: Int[Array, "K C"] | None
    """Number of records of each cell by class; None if there are no cells."""
    rows: Int[Array, "J n+C"]
    """Row of lambda of each value, of the records and then of the cells."""
    real: Bool[Array, " n"]
    """Whether each record is not padding; a cell that is padding has no records."""
    num_records: Int[Array, ""]
    """Number of records, including the records of cells."""

    @property
    def unit(self) -> Int[Array, ""]:
        """Weight of a whole record in integer counts."""
        return jnp.clip(lax.div(2**30, jnp.maximum(self.num_records, 1)), 1, MAX_UNIT)

    def pick(self, key: Key[Array, ""], k: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Draw a record of a class uniformly: its entry, and its index within the entry."""
        return pick_member(key, self._members(k))

    def at_table(
        self, record: Int[Array, ""], table: Int[Array, ""], num_rows: int
    ) -> Int[Array, " R"]:
        """Values by row of a record."""
        return jnp.zeros(num_rows, jnp.int32).at[record_at(self.rows, record)].add(1)

    def concerned(self, anchors: Anchors) -> Bool[Array, " n+C"]:
        """Whether each entry has a record of the class or pair."""
        return self._concerned(anchors) > 0

    def entries_of(self, anchors: Anchors) -> Callable[[Int[Array, " size"] | None], Records]:
        """Make a function that returns some entries, or all for None."""
        number, second = self._concerned(anchors), self._members(anchors.k_b)

        def take(who):
            everyone = who is None
            where = jnp.arange(number.size) if everyone else who
            first_anchor, second_anchor = (where == record for record in anchors.records)
            rows, of_pair, of_b = (
                x if everyone else x[..., who] for x in (self.rows, number, second)
            )
            return Records(
                rows, of_pair - first_anchor - second_anchor, of_b - second_anchor,
                first_anchor, second_anchor, self.split is not None,
            )  # fmt: skip

        return take

    def after(
        self, anchors: Anchors, on_side_1: Int[Array, " n+C"]
    ) -> tuple[Int[Array, " n"], Int[Array, "K C"] | None]:
        """Classes, and counts of classes, after the move."""
        number, size = self._concerned(anchors), self.z.size
        to_new = jnp.where(anchors.is_split, on_side_1, 0)
        to_a = number - to_new
        label = jnp.where(to_new[:size] > 0, anchors.k_new, anchors.k_a)
        z = jnp.where(number[:size] > 0, label, self.z).astype(self.z.dtype)
        if self.split is None:
            return z, None
        split = self.split.at[anchors.k_a].set(to_a[size:])
        return z, split.at[anchors.k_new].set(to_new[size:])

    def _members(self, k):
        """Number of records of a class, by entry."""
        number = (self.real & (self.z == k)).astype(jnp.int32)
        return number if self.split is None else jnp.concatenate([number, self.split[k]])

    def _concerned(self, anchors):
        """Number of records of the class or pair, by entry."""
        of_b = jnp.where(anchors.is_split, 0, self._members(anchors.k_b))
        return self._members(anchors.k_a) + of_b
