"""New labels for whole records that sit at one or two tables, among some of the components.

Given the weights and level probabilities, the labels of a record that sits at no more than two
tables can be summed out, over all divisions of its items between two tables. They can then be drawn
jointly from the terms of that sum. The concentration can be drawn with these labels summed out.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.numerics.platforms import by_platform, map_in_use
from bnp_models.kernels.numerics.set_partitions import (
    BLOCKS,
    equal_chunks,
    scale_columns,
    sizes_and_orders,
    subset_sums,
)
from bnp_models.kernels.variates.categorical import (
    cumulative_sum,
    draw_rows_by_weight,
    search_cumulative,
)
from bnp_models.kernels.variates.rng import Keys, uniform_pair

MAX_TABLES = 2
"""Largest number of tables of a record that gets new labels; three would cost ten times as much."""

# Limits of memory for sums over subsets, of 2^J numbers for each record: number of records on a
# CPU, and number of these numbers on an accelerator.
_RECORDS_AT_ONCE, _SUMS_AT_ONCE = 256, 2**22


class Seats(NamedTuple):
    """Components from which new labels of whole records are drawn."""

    slots: Int[Array, " S"]
    """Components (`kernels.mixed_membership.tables.choose_slots`)."""
    theta: Float[Array, "R S"]
    """Level probabilities of these components, with each row multiplied by its own factor."""
    g0: Float[Array, " S"]
    """Weights of these components."""


class Cells(NamedTuple):
    """Distinct cells of records."""

    of_record: Int[Array, " n"]
    """Cell of each record."""
    rows: Int[Array, "J C"]
    """Row of `theta` for each item's level; the last columns may be padding."""
    number: Int[Array, ""]
    """Number of cells, without padding."""


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
    """Whether each record sits at no more than `MAX_TABLES` tables, with dishes among these slots.

    New labels do not change this, so that the step is exact given the records that it updates.
    """
    taken = jnp.zeros(num_slots, bool).at[slots].set(True)
    return (jnp.sum(opens, axis=0) <= MAX_TABLES) & jnp.all(taken[z], axis=0)


@jax.named_scope("log_totals_by_tables")
def log_totals_by_tables(cells: Cells, seats: Seats) -> Float[Array, "B C"]:
    """Log of the sum over seatings of a record at B = 1 or 2 tables, for every distinct cell.

    Parameters
    ----------
    cells
        Distinct cells; results for padding have no meaning.
    seats
        Result of `take_seats`.

    Notes
    -----
    The sum over B of exp(result[B - 1]) alpha^B / (alpha)_J is the probability of a record with
    such a seating, up to a factor that depends neither on alpha nor on B. A single item sits at one
    table.
    """

    def some(rows):
        alone, pairs = _seatings(_columns(seats.theta, rows), seats.g0)
        return jnp.log(jnp.stack([alone, jnp.sum(pairs, axis=0)]))

    totals = _of_cells(cells, some)
    return jnp.moveaxis(totals, 1, 0).reshape(MAX_TABLES, -1)[:, : cells.rows.shape[1]]


@jax.named_scope("draw_seating")
def draw_seating(
    key: Key[Array, ""],
    rows: Int[Array, "J n"],
    alpha: Float[Array, ""],
    seats: Seats,
    moving: Bool[Array, " n"],
    cells: Cells,
    log_totals: Float[Array, "B C"],
) -> Int[Array, "J n"]:
    """Draw the labels of records that sit at one or two tables, jointly for each record.

    Parameters
    ----------
    key
        Used once.
    rows
        Row of `theta` for each item's level.
    alpha
        Concentration of all records.
    seats
        Result of `take_seats`.
    moving
        Records whose labels are needed; results for other records have no meaning.
    cells
        The records' distinct cells.
    log_totals
        Of these cells (`log_totals_by_tables`).

    Notes
    -----
    The table b of the last item is drawn with probability proportional to alpha (|b| - 1)! S_b,
    times the same factor of the complement of b unless it is empty, where S_b = sum_k g_0k
    prod_{j in b} theta_kj(x_ij). A table b gets component k with probability proportional to g_0k
    prod_{j in b} theta_kj(x_ij). The time is O(2^J S) for each record that gets two tables (few do
    if alpha is small), and O(J S) for each distinct cell of the other records.
    """
    key_records, key_pairs = Keys(key)
    num_items, num_records = rows.shape
    u_tables, u_dish = uniform_pair(key_records, (num_records,), seats.theta.dtype.type)
    log_odds = jnp.log(alpha) + log_totals[1] - log_totals[0]
    pairs = moving & (u_tables < jax.nn.sigmoid(log_odds)[cells.of_record])
    dish, _ = search_cumulative(_cumulative_dishes(cells, seats), cells.of_record, u_dish)
    z = jnp.broadcast_to(dish, rows.shape)
    if num_items == 1:
        return seats.slots[z]
    # If alpha is small, few records have two tables; an accelerator draws them for a quarter of the
    # records at once. It does so by blocks, so that each of several devices draws its own records.
    num_blocks = by_platform(1, math.gcd(num_records, BLOCKS))
    _, size = equal_chunks(num_records // num_blocks, _at_once(num_items, share=4) // num_blocks)
    # Blocks come first, records last.
    rows, z = (jnp.moveaxis(x.reshape(num_items, num_blocks, -1), 1, 0) for x in (rows, z))

    def some(carry):
        turn, left, z = carry
        at = jax.vmap(partial(jnp.nonzero, size=size, fill_value=left.shape[1]))(left)[0]
        taken = jax.vmap(lambda rows, at: rows.at[:, at].get(mode="clip"))(rows, at)
        columns = _columns(seats.theta, jnp.moveaxis(taken, 1, 0).reshape(num_items, -1))
        drawn = _seat_pair(jax.random.fold_in(key_pairs, turn), columns, seats.g0)
        drawn = jnp.moveaxis(drawn.reshape(num_items, num_blocks, -1), 1, 0)
        z = jax.vmap(lambda z, at, drawn: z.at[:, at].set(drawn, mode="drop"))(z, at, drawn)
        left = jax.vmap(lambda left, at: left.at[at].set(False, mode="drop"))(left, at)
        return turn + 1, left, z

    start = 0, pairs.reshape(num_blocks, -1), z
    z = lax.while_loop(lambda carry: jnp.any(carry[1]), some, start)[2]
    return seats.slots[jnp.moveaxis(z, 0, 1).reshape(num_items, num_records)]


def _cumulative_dishes(cells, seats):
    """Cumulative weights (C, S) of the dishes of a record at one table, for each distinct cell."""

    def some(rows):
        return cumulative_sum(seats.g0 * jnp.prod(_columns(seats.theta, rows), axis=1))

    return _of_cells(cells, some).reshape(-1, seats.g0.size)


def _of_cells(cells, some):
    """Apply a function to the rows of each chunk that has cells; other chunks are padding."""
    chunks = _chunks(cells.rows)
    number, _, size = chunks.shape
    return map_in_use(lambda i: some(chunks[i]), number, (cells.number + size - 1) // size)


def _seatings(columns, g0):
    """Weights of seatings at one table, and at two by the bit mask of the last item's table.

    They are prod (|b| - 1)! S_b, without alpha. The mask of all items leaves no second table.
    """
    num_items = columns.shape[1]
    half = 2 ** (num_items - 1)
    _, orders = sizes_and_orders(num_items)
    sums = subset_sums(columns, g0) * jnp.asarray(orders, columns.dtype)[:, None]
    return sums[-1], (sums[half:] * sums[:half][::-1])[:-1]


def _seat_pair(key, columns, g0):
    """Draw the slots of the items of records at two tables: items by records."""
    num_items = columns.shape[1]
    key_tables, key_labels = Keys(key)
    companions, _ = draw_rows_by_weight(key_tables, _seatings(columns, g0)[1])
    bits = 1 << np.arange(num_items)
    first = ((companions[:, None] & bits) > 0) | (np.arange(num_items) == num_items - 1)

    def weights(members):
        return g0 * jnp.prod(jnp.where(members[:, :, None], columns, 1), axis=1)

    both = jnp.concatenate([weights(first), weights(~first)])
    labels, _ = draw_rows_by_weight(key_labels, both.T)
    one, other = labels.reshape(2, -1)
    return jnp.where(first, one[:, None], other[:, None]).T


def _at_once(num_items, share=1):
    """Largest number of records of a chunk; on accelerators divided by `share`."""
    many = (_SUMS_AT_ONCE // share) >> num_items
    return by_platform(_RECORDS_AT_ONCE, max(_RECORDS_AT_ONCE, many))


def _columns(theta, rows):
    """Level probabilities (records, J, S) of the items of records."""
    return jnp.moveaxis(theta[rows], 0, 1)


def _chunks(rows):
    """Rows of equally many records, of a multiple of `MATMUL_CELLS`: (chunks, J, size)."""
    num_items, num_records = rows.shape
    num_chunks, size = equal_chunks(num_records, _at_once(num_items))
    padded = jnp.pad(rows, ((0, 0), (0, num_chunks * size - num_records)))
    return jnp.moveaxis(padded.reshape(num_items, num_chunks, size), 1, 0)
