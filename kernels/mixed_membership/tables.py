"""The Chinese restaurant franchise: labels of items, the tables that they share, and their dishes.

The weights of each record are integrated out (Polya urn), in updates of labels, in moves of whole
tables to new dishes, and in the simulation of new records.
"""

from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.numerics.platforms import by_platform, short_loop
from bnp_models.kernels.variates.categorical import cumulative_sum, search_cumulative
from bnp_models.kernels.variates.rng import Keys, uniform, uniform_index, uniform_pair, words

# Largest number of items of a record that are compared all at once; results for pairs take memory.
COMPARED_AT_ONCE = 32


@jax.named_scope("assign_items")
def assign_items(
    key: Key[Array, ""],
    z: Int[Array, "J n"],
    rows: Int[Array, "J n"],
    alpha: Float[Array, "*n"],
    g0: Float[Array, " K"],
    theta: Float[Array, "R K"],
) -> Int[Array, "J n"]:
    """Redraw the label of every item, items in turn and records in parallel.

    Parameters
    ----------
    key
        Used once.
    z
        Current labels, items by records (records contiguous).
    rows
        Row of `theta` for each item's observed level.
    alpha
        Concentration of the records: one for all, or one for each.
    g0
        Component weights over all slots, free ones included.
    theta
        Level probabilities: one row per (variable, level), one column per component.

    Notes
    -----
    This is step 1 of Battiston & Rimella (2024) in collapsed form: the record weights are
    integrated out, and components without an item are ordinary slots of `g0` with `theta` from its
    prior. Cost O(n J (J + log K)).
    """
    num_items, num_slots = z.shape[0], g0.size
    u, u_base = uniform_pair(key, z.shape, theta.dtype.type)
    base, total = search_cumulative(cumulative_sum(theta * g0), rows, u_base)
    base_mass = alpha * total
    flat = theta.reshape(-1)
    at = jnp.arange(num_items)[:, None]
    stored = by_platform(lax.optimization_barrier, lambda x: x)

    def assign(j, z):
        copy = flat.at[rows[j] * num_slots + z].get(mode="promise_in_bounds")
        # The array is stored, because otherwise each sum would gather it again.
        copy = stored(jnp.where(at == j, 0, copy))
        # Sums are one chain of additions, so that rounding is the same for any number of records.
        cumulative = list(accumulate(copy))
        # The base part is usually rarer; it is next to zero, where u has the finest resolution.
        target = u[j] * (base_mass[j] + cumulative[-1]) - base_mass[j]
        passed = sum((reached <= target).astype(jnp.int32) for reached in cumulative)
        source = jnp.minimum(passed, num_items - 1)
        copied = jnp.take_along_axis(z, source[None], axis=0, mode="promise_in_bounds")[0]
        return z.at[j].set(jnp.where(target < 0, base[j], copied))

    return short_loop(num_items, assign, z)


@jax.named_scope("rank_among_equals")
def rank_among_equals(z: Int[Array, "J n"]) -> Int[Array, "J n"]:
    """0-based rank of each item among the items of its record that share its label.

    It needs O(n J^2) comparisons, and no array of size n x K. If a record has many items, they are
    compared one after the other.
    """
    num_items = z.shape[0]
    if num_items > COMPARED_AT_ONCE:
        place = jnp.arange(num_items)[:, None]
        return lax.map(
            lambda j: jnp.sum((z == z[j]) & (place < j), axis=0, dtype=jnp.int32),
            jnp.arange(num_items),
        )
    earlier = jnp.tril(jnp.ones((num_items, num_items), bool), -1)
    equal = (z[:, None, :] == z[None, :, :]) & earlier[:, :, None]
    return jnp.sum(equal, axis=1, dtype=jnp.int32)


@jax.named_scope("table_indicators")
def table_indicators(
    key: Key[Array, ""], z: Int[Array, "J n"], concentration: Float[Array, "J n"]
) -> Bool[Array, "J n"]:
    """Draw which items open a table; m_ik of the items of record i with label k open one.

    Parameters
    ----------
    key
        Used once.
    z
        Labels, items by records.
    concentration
        c = alpha_i g_0k of each item's own label k = z_ij, positive.

    Notes
    -----
    m_ik | n_ik is a sum of independent Bernoulli(c / (c + t - 1)), t = 1..n_ik: there is one
    Bernoulli variable for each item, with t its rank among equals (Antoniak 1974,
    doi:10.1214/aos/1176342871). The concentration is alpha_i g_0k; Battiston & Rimella (2024), step
    2, prints alpha_0 g_0k, which is wrong.
    """
    u = uniform(words(key, z.shape), concentration.dtype.type)
    rank = rank_among_equals(z)
    return (rank == 0) | (u * (concentration + rank.astype(concentration.dtype)) < concentration)


@jax.named_scope("seat_items")
def seat_items(
    key: Key[Array, ""], z: Int[Array, "J n"], opens: Bool[Array, "J n"]
) -> Int[Array, "J n"]:
    """Seat the items of each record at tables, given the items that open a table.

    Parameters
    ----------
    key
        Used once.
    z
        Labels, items by records.
    opens
        Result of `table_indicators`.

    Returns
    -------
    table
        Index j of the item that opened each item's table. An item that opens no table takes the
        table of a uniformly chosen earlier item of its record and label, which is the Chinese
        restaurant process. Items of different labels never share a table.
    """
    rank = rank_among_equals(z)
    pick = uniform(words(key, z.shape))
    chosen = uniform_index(pick, rank)

    def seat(j, table):
        # The chosen earlier item is the one of equal label whose rank is `chosen`.
        target = (z == z[j]) & (rank == chosen[j])
        copied = jnp.sum(jnp.where(target, table, 0), axis=0)
        return table.at[j].set(jnp.where(opens[j], j, copied))

    return short_loop(z.shape[0], seat, jnp.zeros_like(z))


class SomeCells(NamedTuple):
    """Some consecutive distinct cells of records."""

    of_record: Int[Array, " n"]
    """Index of each record's cell among all distinct cells."""
    rows: Int[Array, "J D"]
    """Rows of `theta` of these cells."""
    first: Int[Array, ""]
    """Index of the first of these cells."""


@jax.named_scope("choose_slots")
def choose_slots(key: Key[Array, ""], g0: Float[Array, " K"], size: int) -> Int[Array, " S"]:
    """Draw `size` slots among which dishes are drawn, without replacement, by weight.

    The choice depends only on `g0`, which moves of labels do not change. Therefore drawing among
    the chosen slots is exact, and the cost of such a move does not grow with the capacity.

    Notes
    -----
    The slots with the largest log g_0k plus Gumbel noise are chosen (Efraimidis & Spirakis 2006,
    doi:10.1016/j.ipl.2005.11.003).
    """
    if size >= g0.size:
        return jnp.arange(g0.size)
    u = uniform(words(key, g0.shape), g0.dtype.type)
    return lax.top_k(jnp.log(g0) - jnp.log(-jnp.log(u)), size)[1]


@jax.named_scope("redraw_dishes")
def redraw_dishes(
    key: Key[Array, ""],
    z: Int[Array, "J n"],
    opens: Bool[Array, "J n"],
    rows: Int[Array, "J n"],
    slots: Int[Array, " S"],
    g0: Float[Array, " K"],
    theta: Float[Array, "R K"],
) -> Int[Array, "J n"]:
    """Draw a new dish for one table of each record; all items of the table move together.

    Updates of single items mix badly if alpha is small, because an item then rarely leaves its
    table.

    Parameters
    ----------
    key
        Used once.
    z, opens
        Labels, items by records, and whether each item opens a table (`table_indicators`).
    rows
        Row of `theta` for each item's observed level.
    slots
        Result of `choose_slots`; a table whose dish is not among them does not move.
    g0
        Component weights.
    theta
        Level probabilities: one row per (variable, level), one column per component.

    Returns
    -------
    z
        Labels after the move; `opens` still describes them. The table is that of an item picked
        uniformly at random, and its new dish has probability proportional to g_0k times the
        product over its items of theta: an exact Gibbs step given the seating. O(n R S) time.
    """
    key_seat, key_dish = Keys(key)
    num_items, num_records = z.shape
    table = seat_items(key_seat, z, opens)
    u_item, u_dish = uniform_pair(key_dish, (num_records,), g0.dtype.type)
    item = uniform_index(u_item, num_items)
    moving = table == jnp.take_along_axis(table, item[None], axis=0)
    cumulative = cumulative_dishes(rows, moving, g0[slots], theta[:, slots])
    dish, _ = search_cumulative(cumulative, jnp.arange(num_records), u_dish)
    moving &= jnp.zeros(g0.size, bool).at[slots].set(True)[z]
    return jnp.where(moving, slots[dish][None], z)


@jax.named_scope("redraw_whole_records")
def redraw_whole_records(
    key: Key[Array, ""],
    z: Int[Array, "J n"],
    opens: Bool[Array, "J n"],
    cells: SomeCells,
    slots: Int[Array, " S"],
    g0: Float[Array, " K"],
    theta: Float[Array, "R K"],
) -> Int[Array, "J n"]:
    """Draw a new dish for records that sit at one table; equal cells share the computation.

    Parameters
    ----------
    key, z, opens, slots, g0, theta
        As for `redraw_dishes`.
    cells
        D cells; records of other cells, and records at several tables, do not move.

    Notes
    -----
    One array of D cumulative distributions serves all records: O(D R S + n log S) time.
    """
    num_cells = cells.rows.shape[1]
    index = cells.of_record - cells.first
    may_move = jnp.zeros(g0.size, bool).at[slots].set(True)[z[0]]
    moving = (jnp.sum(opens, axis=0) == 1) & may_move & (index >= 0) & (index < num_cells)
    everything = jnp.ones(cells.rows.shape, bool)
    cumulative = cumulative_dishes(cells.rows, everything, g0[slots], theta[:, slots])
    u = uniform(words(key, index.shape), g0.dtype.type)
    dish, _ = search_cumulative(cumulative, jnp.clip(index, 0, num_cells - 1), u)
    return jnp.where(moving, slots[dish].astype(z.dtype)[None], z)


def cumulative_dishes(
    rows: Int[Array, "J n"],
    moving: Bool[Array, "J n"],
    g0: Float[Array, " S"],
    theta: Float[Array, "R S"],
) -> Float[Array, "n S"]:
    """Cumulative weights of the dishes of one table of each record, whose items are `moving`."""
    # Sums are one chain of additions, unlike in a matrix product, whose order depends on its size.
    log_theta, logits = jnp.log(theta), jnp.log(g0)
    for row, moves in zip(rows, moving, strict=True):
        logits = logits + jnp.where(moves[:, None], log_theta[row], 0)
    weight = jnp.exp(logits - jnp.max(logits, axis=1, keepdims=True))
    return cumulative_sum(weight)


@jax.named_scope("simulate_labels")
def simulate_labels(
    key: Key[Array, ""], alpha: Float[Array, " n"], g0: Float[Array, " K"], num_items: int
) -> tuple[Int[Array, "J n"], Int[Array, "J n"]]:
    """Draw labels of new records: item j copies one of its j predecessors or draws from `g0`.

    Parameters
    ----------
    key
        Used once.
    alpha
        Concentration of each record.
    g0
        Component weights.
    num_items
        Items of a record, J.

    Returns
    -------
    z, table
        Labels, and the index of the item that opened each item's table, which is the item itself if
        it draws from `g0` (as in `kernels.mixed_membership.tables.seat_items`).

    Notes
    -----
    With j items seated, a copy has probability j / (j + alpha) (Blackwell & MacQueen 1973,
    doi:10.1214/aos/1176342372). No vector of length K is needed for a record.
    """
    shape = (num_items, alpha.shape[0])
    u, u_base = uniform_pair(key, shape, alpha.dtype.type)
    fresh, _ = search_cumulative(jnp.cumsum(g0)[None], jnp.zeros(shape, jnp.int32), u_base)

    def seat(j, table):
        # Negative if item j draws from g_0; otherwise the index of the item that it copies.
        position = u[j] * (j + alpha) - alpha
        source = jnp.clip(position.astype(jnp.int32), 0, jnp.maximum(j - 1, 0))
        copied = jnp.take_along_axis(table, source[None], axis=0, mode="promise_in_bounds")[0]
        return table.at[j].set(jnp.where((position < 0) | (j == 0), j, copied))

    table = lax.fori_loop(0, num_items, seat, jnp.zeros(shape, jnp.int32))
    return jnp.take_along_axis(fresh, table, axis=0, mode="promise_in_bounds"), table


@jax.named_scope("simulate_levels")
def simulate_levels(
    key: Key[Array, ""], z: Int[Array, "J n"], theta: Float[Array, "J L K"]
) -> Int[Array, "J n"]:
    """Draw levels x_ij ~ theta_j^{(z_ij)} of labelled items.

    `theta` holds one block of levels per variable, padded with zeros to the longest.
    """
    num_items, num_levels, num_slots = theta.shape
    cumulative = jnp.cumsum(theta, axis=1).swapaxes(1, 2).reshape(num_items * num_slots, num_levels)
    rows = jnp.arange(num_items)[:, None] * num_slots + z
    u = uniform(words(key, z.shape), theta.dtype.type)
    levels, _ = search_cumulative(cumulative, rows, u)
    return levels
