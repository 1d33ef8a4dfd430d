"""Dishes of the Chinese restaurant franchise: new components for whole tables."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.mixed_membership.tables import seat_items
from bnp_models.kernels.variates.categorical import cumulative_sum, search_cumulative
from bnp_models.kernels.variates.rng import Keys, uniform, uniform_index, uniform_pair, words


class SomeCells(NamedTuple):
    """Some consecutive ones of the distinct cells of records."""

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
        From `choose_slots`; a table whose dish is not among them does not move.
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
    """Cumulative weights of the dishes of one table of each record: that of the items `moving`."""
    # One chain of additions; the order in a matrix product would depend on the number of records.
    log_theta, logits = jnp.log(theta), jnp.log(g0)
    for row, moves in zip(rows, moving, strict=True):
        logits = logits + jnp.where(moves[:, None], log_theta[row], 0)
    weight = jnp.exp(logits - jnp.max(logits, axis=1, keepdims=True))
    return cumulative_sum(weight)
