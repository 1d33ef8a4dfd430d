"""Records of a split or a merge dealt into chunks, whose tables are allocated in turn.

On a CPU only the records concerned are gathered, so that few of them are few. An accelerator deals
all of them where they lie, each device its own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from bnp_models.kernels.numerics.counting import opens_table
from bnp_models.kernels.numerics.lanes import most_of_lanes
from bnp_models.kernels.numerics.platforms import map_in_use, on_accelerator, record_at
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
    if on_accelerator():
        return _deal_where_they_lie(anchors, Items(rows, table, z), real)
    return _deal_those_concerned(anchors, Items(rows, table, z), real)


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


def _deal_where_they_lie(anchors: Anchors, items: Items, real) -> Dealt:
    """One record of every so many to each chunk, whether it is concerned or not."""
    rows, table, z = items
    num_records = real.size
    bits = jnp.where(real, _bits(anchors, jnp.arange(num_records), z, table), 0)
    items = Items(rows, table, bits)

    def folded(x, number):
        """One record of every so many in each of the last axis."""
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -num_records % number)])
        return x.reshape(*x.shape[:-1], -1, number)

    number = min(SHAPING_RECORDS, num_records)
    if num_records >= 2 * _DEVICES * number:
        # Each device has whole lines of them.
        number = next(
            (k for k in range(number, 0, -1) if num_records % (_DEVICES * k) == 0), number
        )
    concerned = folded(jnp.any(bits & INSIDE, axis=0), number)
    chosen = jnp.arange(len(concerned))[:, None] == jnp.argmax(concerned, axis=0)
    shaping = [
        jnp.concatenate([
            jnp.sum(jnp.where(chosen, folded(x, number), 0), axis=1),
            *(record_at(x, record)[:, None] for record in anchors.records),
        ], axis=1)
        for x in items
    ]  # fmt: skip
    number = CHUNKS_ON_ACCELERATORS
    chunks = [jnp.moveaxis(folded(x, number), -1, 0) for x in items]
    return Dealt(Items(*chunks), number, Items(*shaping), None)


def _deal_those_concerned(anchors: Anchors, items: Items, real) -> Dealt:
    """Those that are concerned, either anchor at the front of a chunk."""
    rows, table, z = items
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


def of_chunks(function: Callable[[Any], Any], number: int, in_use: Array | int) -> Any:
    """Apply a function to the chunks in use, on accelerators to all of them at once."""
    if on_accelerator():
        return jax.vmap(function)(jnp.arange(number))
    return map_in_use(function, number, in_use)
