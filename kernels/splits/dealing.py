"""Division of the records of a split or a merge into chunks, which are allocated one by one.

On a CPU only the affected records are gathered, so that a move of few records has little work. An
accelerator divides all records without moving them, each device its own.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from bnp_models.kernels.numerics.platforms import by_platform, map_in_use, most_of_lanes, record_at
from bnp_models.kernels.splits.anchors import Anchors
from bnp_models.kernels.splits.members import LabelledRecords, Records
from bnp_models.kernels.splits.seated_items import Items, SeatedItems

# Approximate number of records that shape a proposal.
SHAPING_RECORDS = 512

# Largest number of chunks; smallest number of records of a chunk (two chunks contain the anchors);
# number of chunks on accelerators, on which each needs several launches. Small chunks make good
# proposals, because the tables of one chunk are allocated independently.
MAX_CHUNKS = 512
MIN_CHUNK = 32
CHUNKS_ON_ACCELERATORS = 8

# Largest number of devices among which records may be divided without being moved here.
_DEVICES = 8


class Dealt(NamedTuple):
    """Records in chunks."""

    entries: Items | Records
    """Members by record and chunk; the first axis is for chunks, the last for records."""
    in_use: Int[Array, ""] | int
    """Number of chunks with an affected record; later chunks change nothing."""
    shaping: Items | Records
    """Members of the records that shape the proposal; both anchors are among them."""
    place: Int[Array, " n"] | None
    """Position of each record, beyond the end if it is not affected; None: order unchanged."""


@jax.named_scope("deal_records")
def deal_records(anchors: Anchors, members: SeatedItems | LabelledRecords) -> Dealt:
    """Divide records into chunks: all records in turn, or only the affected ones."""
    return by_platform(_deal_those_concerned, _deal_where_they_lie)(anchors, members)


def in_order(dealt: Dealt, x: Int[Array, "chunks ... size"], num_records: int) -> Array:
    """Values in the order of the records; values of records that are not affected are arbitrary."""
    num_chunks, size = len(x), x.shape[-1]
    if dealt.place is None:
        return jnp.moveaxis(x, 0, -1).reshape(*x.shape[1:-1], -1)[..., :num_records]
    place = jnp.minimum(dealt.place, num_chunks * size - 1)
    return jnp.moveaxis(x[lax.div(place, size), ..., lax.rem(place, size)], 0, -1)


def _deal_where_they_lie(anchors: Anchors, members) -> Dealt:
    """Give every n-th record to each of n chunks, whether it is affected or not."""
    entries = members.entries_of(anchors)(None)
    chunks = jax.tree.map(
        lambda x: jnp.moveaxis(_folded(x, CHUNKS_ON_ACCELERATORS), -1, 0), entries
    )
    return Dealt(chunks, CHUNKS_ON_ACCELERATORS, _some_concerned(anchors, entries), None)


def _folded(x, number):
    """Fold the last axis so that each row of the new last axis has every n-th record."""
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % number)])
    return x.reshape(*x.shape[:-1], -1, number)


def _some_concerned(anchors: Anchors, entries: Any) -> Any:
    """Choose the first affected record of every line of records, and both anchors."""
    num_records = entries.rows.shape[-1]
    number = min(SHAPING_RECORDS, num_records)
    if num_records >= 2 * _DEVICES * number:
        # Each device has whole lines of records.
        number = next(
            (k for k in range(number, 0, -1) if num_records % (_DEVICES * k) == 0), number
        )
    concerned = _folded(entries.concerned, number)
    first = jnp.arange(len(concerned))[:, None] == jnp.argmax(concerned, axis=0)

    def choose(x):
        chosen = jnp.sum(jnp.where(first, _folded(x, number), 0), axis=-2, dtype=x.dtype)
        of_anchors = [record_at(x, record)[..., None] for record in anchors.records]
        return jnp.concatenate([chosen, *of_anchors], axis=-1)

    return jax.tree.map(choose, entries)


def _deal_those_concerned(anchors: Anchors, members) -> Dealt:
    """Divide the affected records among chunks; both anchors are at the front of a chunk."""
    concerned = members.concerned(anchors)
    num_padded = concerned.size
    everyone = jnp.arange(num_padded)
    size = max(-(-num_padded // MAX_CHUNKS), min(MIN_CHUNK, num_padded))
    num_chunks = -(-num_padded // size)
    number = jnp.sum(concerned)
    in_use = lax.div(number + (size - 1), size)
    rank = jnp.cumsum(concerned) - 1
    # Records go to the chunks in turn, so that chunks are similar even if records are sorted. `rem`
    # and `div` are used, because no number is negative and % and // would also check signs.
    turns = jnp.maximum(in_use, 1)
    place = lax.rem(rank, turns) * size + lax.div(rank, turns)
    place = jnp.where(concerned, place, num_chunks * size)
    order = jnp.full(num_chunks * size, num_padded).at[place].set(everyone, mode="drop")
    # Both anchors are among the records that shape the proposal.
    for front, anchor in enumerate(anchors.records):
        back, other = place[anchor], order[front]
        order = order.at[jnp.stack([front, back])].set(jnp.stack([anchor, other]))
        place = place.at[jnp.stack([anchor, other])].set(jnp.stack([front, back]), mode="drop")
    order, in_use = order.reshape(num_chunks, size), most_of_lanes(in_use)
    take = members.entries_of(anchors)

    def gather(c):
        entries = take(jnp.minimum(order[c], num_padded - 1))
        return entries.masked(order[c] < num_padded)

    chunks = map_in_use(gather, num_chunks, in_use)
    shaping = jax.tree.map(lambda x: _joined(x[: -(-SHAPING_RECORDS // size)]), chunks)
    return Dealt(chunks, in_use, shaping, place)


def _joined(x):
    """Join the records of all chunks (the first axis) along the last axis."""
    return jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)
