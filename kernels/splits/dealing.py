"""Records of a split or a merge dealt into chunks, whose tables are allocated in turn.

On a CPU only the records concerned are gathered, so that few of them are few. An accelerator deals
all of them where they lie, each device its own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from bnp_models.kernels.numerics.counting import opens_table
from bnp_models.kernels.numerics.lanes import most_of_lanes
from bnp_models.kernels.numerics.platforms import by_platform, map_in_use, record_at
from bnp_models.kernels.splits.anchors import Anchors

# Records that shape a proposal, or not many more.
SHAPING_RECORDS = 512

# Records are taken in this many chunks at the most; never in chunks of fewer than the second, of
# which two hold the anchors. Small chunks make good proposals: tables of one are allocated
# independently. On accelerators, where each takes some launches, there are as many as the third
# says.
MAX_CHUNKS = 512
MIN_CHUNK = 32
CHUNKS_ON_ACCELERATORS = 8

# Devices that records may lie on in parts without moving to others here.
_DEVICES = 8

INSIDE, OPENS, ANCHOR_0, ANCHOR_1, SECOND = 1, 2, 4, 8, 16
"""Bits: an item is of the component or pair; then also, it opens its table; its table is that of
the first anchor, or of the second; it is of the second component of a merge."""


class Items(NamedTuple):
    """Items of some records."""

    rows: Int[Array, "... J size"]
    """Row of theta of each."""
    table: Int[Array, "... J size"]
    """Table of each in its record."""
    bits: Int[Array, "... J size"]
    """Bits of `INSIDE` and the names beside it; none for padding."""


class Dealt(NamedTuple):
    """Records in chunks."""

    items: Items
    """(chunks, J, size): of the records, chunk after chunk."""
    in_use: Int[Array, ""] | int
    """Chunks that hold a record concerned; one beyond these changes nothing."""
    shaping: Items
    """(J, records): of those that shape the proposal, among them both anchors."""
    place: Int[Array, " n"] | None
    """Place of each record, beyond all places where it is not concerned; None: as they lie."""


def is_inside(anchors: Anchors, z: Int[Array, "J n"]) -> Bool[Array, "J n"]:
    """Whether items are of the component that is split, or of the pair that is merged."""
    return (z == anchors.k_a) | (z == anchors.k_b)


@jax.named_scope("deal_records")
def deal_records(
    anchors: Anchors,
    z: Int[Array, "J n"],
    table: Int[Array, "J n"],
    rows: Int[Array, "J n"],
    real: Bool[Array, " n"],
) -> Dealt:
    """Deal records into chunks: by their number, or in turn those that are concerned."""
    deal = by_platform(_deal_those_concerned, _deal_where_they_lie)
    return deal(anchors, z, table, rows, real)


def in_order(dealt: Dealt, x: Bool[Array, "chunks J size"], num_records: int) -> Bool[Array, "J n"]:
    """Items in the order of the records; of no use for those that are not concerned."""
    num_chunks, num_items, size = x.shape
    if dealt.place is None:
        return jnp.moveaxis(x, 0, -1).reshape(num_items, -1)[:, :num_records]
    place = jnp.minimum(dealt.place, num_chunks * size - 1)
    return x[lax.div(place, size), :, lax.rem(place, size)].T


def _bits(anchors: Anchors, who, z, table):
    """Bits of the items of records `who`."""
    inside = is_inside(anchors, z)
    return (
        inside + OPENS * (inside & opens_table(table)) + SECOND * (z == anchors.k_b)
        + ANCHOR_0 * ((who == anchors.records[0]) & (table == anchors.tables[0]))
        + ANCHOR_1 * ((who == anchors.records[1]) & (table == anchors.tables[1]))
    )  # fmt: skip


def _deal_where_they_lie(anchors: Anchors, z, table, rows, real) -> Dealt:
    """Give one record of every so many to each chunk, whether it is concerned or not."""
    bits = jnp.where(real, _bits(anchors, jnp.arange(real.size), z, table), 0)
    items = Items(rows, table, bits)
    chunks = jax.tree.map(lambda x: jnp.moveaxis(_folded(x, CHUNKS_ON_ACCELERATORS), -1, 0), items)
    return Dealt(chunks, CHUNKS_ON_ACCELERATORS, _some_concerned(anchors, items), None)


def _folded(x, number):
    """Fold the last axis so that the new last one has one record of every so many each."""
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % number)])
    return x.reshape(*x.shape[:-1], -1, number)


def _some_concerned(anchors: Anchors, items: Items) -> Items:
    """Choose the first record concerned of every line of records, and both anchors."""
    num_records = items.bits.shape[-1]
    number = min(SHAPING_RECORDS, num_records)
    if num_records >= 2 * _DEVICES * number:
        # Each device has whole lines of them.
        number = next(
            (k for k in range(number, 0, -1) if num_records % (_DEVICES * k) == 0), number
        )
    concerned = _folded(jnp.any(items.bits & INSIDE, axis=0), number)
    first = jnp.arange(len(concerned))[:, None] == jnp.argmax(concerned, axis=0)

    def choose(x):
        chosen = jnp.sum(jnp.where(first, _folded(x, number), 0), axis=1)
        of_anchors = [record_at(x, record)[:, None] for record in anchors.records]
        return jnp.concatenate([chosen, *of_anchors], axis=1)

    return jax.tree.map(choose, items)


def _deal_those_concerned(anchors: Anchors, z, table, rows, real) -> Dealt:
    """Deal the records that are concerned, either anchor to the front of a chunk."""
    num_padded = real.size
    everyone = jnp.arange(num_padded)
    size = max(-(-num_padded // MAX_CHUNKS), min(MIN_CHUNK, num_padded))
    num_chunks = -(-num_padded // size)
    concerned = real & jnp.any(is_inside(anchors, z), axis=0)
    number = jnp.sum(concerned)
    in_use = lax.div(number + (size - 1), size)
    rank = jnp.cumsum(concerned) - 1
    # Dealt out, so that every chunk is like the whole even where records are sorted.
    # None is negative: without the signs that % and // see to.
    turns = jnp.maximum(in_use, 1)
    place = lax.rem(rank, turns) * size + lax.div(rank, turns)
    place = jnp.where(concerned, place, num_chunks * size)
    order = jnp.full(num_chunks * size, num_padded).at[place].set(everyone, mode="drop")
    # Either anchor is among those that shape the proposal.
    for front, anchor in enumerate(anchors.records):
        back, other = place[anchor], order[front]
        order = order.at[jnp.stack([front, back])].set(jnp.stack([anchor, other]))
        place = place.at[jnp.stack([anchor, other])].set(jnp.stack([front, back]), mode="drop")
    order, in_use = order.reshape(num_chunks, size), most_of_lanes(in_use)

    def gather(c):
        who = jnp.minimum(order[c], num_padded - 1)
        bits = _bits(anchors, who, z[:, who], table[:, who])
        return Items(rows[:, who], table[:, who], jnp.where(order[c] < num_padded, bits, 0))

    chunks = map_in_use(gather, num_chunks, in_use)
    shaping = jax.tree.map(
        lambda x: jnp.moveaxis(x[: -(-SHAPING_RECORDS // size)], 1, 0).reshape(len(rows), -1),
        chunks,
    )
    return Dealt(chunks, in_use, shaping, place)
