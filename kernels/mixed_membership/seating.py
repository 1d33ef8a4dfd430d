"""Whole records seated anew at one table or two, among some of the components.

Given the weights and level probabilities, the labels of a record that sits at two tables at the
most can be summed out, over all ways of dealing its items to two tables, and drawn from that sum in
one piece. The concentration can then be drawn with those labels summed out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.numerics.set_partitions import (
    equal_chunks,
    scale_columns,
    sizes_and_orders,
    subset_sums,
)
from bnp_models.kernels.variates.categorical import draw_rows_by_weight
from bnp_models.kernels.variates.rng import Keys

MAX_TABLES = 2
"""Tables of a record that is seated anew. A third would multiply the cost by about ten."""

# Records whose sums over subsets are in memory at once: 2^J numbers each.
_RECORDS_AT_ONCE = 256


class Seats(NamedTuple):
    """Components among which whole records are seated anew."""

    slots: Int[Array, " S"]
    """Components (`kernels.mixed_membership.dishes.choose_slots`)."""
    theta: Float[Array, "R S"]
    """Their level probabilities, each row times a factor of its own."""
    g0: Float[Array, " S"]
    """Their weights."""


@jax.named_scope("take_seats")
def take_seats(
    slots: Int[Array, " S"], g0: Float[Array, " K"], theta: Float[Array, "R K"], num_items: int
) -> Seats:
    """Gather components, scaled so that no product over `num_items` items overflows."""
    scaled, _ = scale_columns(theta[:, slots], g0[slots], num_items)
    return Seats(slots, scaled, g0[slots])


@jax.named_scope("can_be_seated")
def can_be_seated(
    z: Int[Array, "J n"], opens: Bool[Array, "J n"], slots: Int[Array, " S"], num_slots: int
) -> Bool[Array, " n"]:
    """Whether each record sits at `MAX_TABLES` or fewer, all with dishes among these slots.

    Seating anew leaves this as it is, so that the step is exact given which records it takes.
    """
    taken = jnp.zeros(num_slots, bool).at[slots].set(True)
    return (jnp.sum(opens, axis=0) <= MAX_TABLES) & jnp.all(taken[z], axis=0)


@jax.named_scope("log_totals_by_tables")
def log_totals_by_tables(
    rows: Int[Array, "J C"], num_cells: Int[Array, ""], seats: Seats
) -> Float[Array, "B C"]:
    """Log of the sum over seatings of a record at B = 1 or 2 tables, for every distinct cell.

    Parameters
    ----------
    rows
        Row of `theta` that holds each item's level.
    num_cells
        Cells, padding excluded; the result is of no use for padding.
    seats
        From `take_seats`.

    Notes
    -----
    exp(result[B - 1]) alpha^B / (alpha)_J, summed over B, is the probability of a record that is so
    seated, up to a factor that depends on neither alpha nor B. A single item sits at one table.
    """
    chunks = _chunks(rows)
    size = chunks.shape[2]

    def some(i, totals):
        alone, pairs = _seatings(_columns(seats.theta, chunks[i]), seats.g0)
        log_sums = jnp.log(jnp.stack([alone, jnp.sum(pairs, axis=0)]))
        return lax.dynamic_update_index_in_dim(totals, log_sums, i, 0)

    totals = jnp.zeros((len(chunks), MAX_TABLES, size), seats.theta.dtype)
    totals = lax.fori_loop(0, (num_cells + size - 1) // size, some, totals)
    return jnp.moveaxis(totals, 1, 0).reshape(MAX_TABLES, -1)[:, : rows.shape[1]]


@jax.named_scope("draw_seating")
def draw_seating(
    key: Key[Array, ""], rows: Int[Array, "J n"], alpha: Float[Array, ""], seats: Seats
) -> Int[Array, "J n"]:
    """Draw labels of records that sit at one table or two, each record's in one piece.

    Parameters
    ----------
    key
        Used once.
    rows
        Row of `theta` that holds each item's level.
    alpha
        Concentration of all records.
    seats
        From `take_seats`.

    Notes
    -----
    The tables of the last item b and of the other items are drawn with probability proportional to
    alpha (|b| - 1)! S_b, times the same of the complement of b unless it is empty, where
    S_b = sum_k g_0k prod_{j in b} theta_kj(x_ij); a table's component k has weight
    g_0k prod_{j in b} theta_kj(x_ij). O(2^J S) time a record.
    """
    num_items, num_records = rows.shape
    chunks = _chunks(rows)
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(chunks.shape[0]))

    def some(args):
        key, part = args
        return _seat(key, _columns(seats.theta, part), seats.g0, alpha)

    z = seats.slots[lax.map(some, (keys, chunks))]
    return jnp.moveaxis(z, 1, 0).reshape(num_items, -1)[:, :num_records]


def _seatings(columns, g0):
    """Weights of seatings at one table, and at two by the bit mask of the last item's companions.

    Without alpha: prod (|b| - 1)! S_b. The mask of all companions leaves no second table.
    """
    num_items = columns.shape[1]
    half = 2 ** (num_items - 1)
    _, orders = sizes_and_orders(num_items)
    sums = subset_sums(columns, g0) * jnp.asarray(orders, columns.dtype)[:, None]
    return sums[-1], (sums[half:] * sums[:half][::-1])[:-1]


def _seat(key, columns, g0, alpha):
    """Draw which of the slots the items of a chunk's records are given: items by records."""
    num_items = columns.shape[1]
    key_tables, key_labels = Keys(key)
    alone, pairs = _seatings(columns, g0)
    weight = jnp.concatenate([alpha * pairs, alone[None]])
    companions, _ = draw_rows_by_weight(key_tables, weight)
    bits = 1 << np.arange(num_items)
    first = ((companions[:, None] & bits) > 0) | (np.arange(num_items) == num_items - 1)

    def weights(members):
        return g0 * jnp.prod(jnp.where(members[:, :, None], columns, 1), axis=1)

    both = jnp.concatenate([weights(first), weights(~first)])
    labels, _ = draw_rows_by_weight(key_labels, both.T)
    one, other = labels.reshape(2, -1)
    return jnp.where(first, one[:, None], other[:, None]).T


def _columns(theta, rows):
    """Level probabilities (records, J, S) of the items of records."""
    return jnp.moveaxis(theta[rows], 0, 1)


def _chunks(rows):
    """Rows of equally many records, of a multiple of `MATMUL_CELLS`: (chunks, J, size)."""
    num_items, num_records = rows.shape
    num_chunks, size = equal_chunks(num_records, _RECORDS_AT_ONCE)
    padded = jnp.pad(rows, ((0, 0), (0, num_chunks * size - num_records)))
    return jnp.moveaxis(padded.reshape(num_items, num_chunks, size), 1, 0)
