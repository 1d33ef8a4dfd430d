"""Chinese-restaurant tables of the items of a record: counts, seating and the dish move."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.rng import uniform, uniform_pair, word_pair


def rank_among_equals(z: Int[Array, "J n"]) -> Int[Array, "J n"]:
    """The 0-based rank of each item among the items of its record that share its label.

    O(n J^2) comparisons, no n x K array.
    """
    num_items = z.shape[0]
    earlier = jnp.tril(jnp.ones((num_items, num_items), bool), -1)
    equal = (z[:, None, :] == z[None, :, :]) & earlier[:, :, None]
    return jnp.sum(equal, axis=1, dtype=jnp.int32)


def table_indicators(
    key: Key[Array, ""], z: Int[Array, "J n"], concentration: Float[Array, "J n"]
) -> Bool[Array, "J n"]:
    """Which items open a table: m_ik is their number among the items of record i with label k.

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
    m_ik | n_ik is a sum of independent Bernoulli(c / (c + t - 1)), t = 1..n_ik: one Bernoulli per
    item, t its rank among its equals (Antoniak 1974, doi:10.1214/aos/1176342871). The concentration
    is alpha_i g_0k; Battiston & Rimella (2024), step 2, prints alpha_0 g_0k, which is wrong.
    """
    words, _ = word_pair(key, z.shape)
    u = uniform(words, concentration.dtype.type)
    rank = rank_among_equals(z)
    return (rank == 0) | (u * (concentration + rank.astype(concentration.dtype)) < concentration)


def seat_items(
    key: Key[Array, ""], z: Int[Array, "J n"], opens: Bool[Array, "J n"]
) -> Int[Array, "J n"]:
    """Seat the items of each record at explicit tables, given which of them open one.

    Parameters
    ----------
    key
        Used once.
    z
        Labels, items by records.
    opens
        From `table_indicators`.

    Returns
    -------
    table
        For each item the index j of the item that opened its table: another item takes the table
        of one of the earlier items of its record and label, picked uniformly, which is the Chinese
        restaurant process. Items of different labels never share a table.
    """
    rank = rank_among_equals(z)
    pick = uniform(word_pair(key, z.shape)[0])
    chosen = jnp.minimum((pick * rank).astype(jnp.int32), rank - 1)

    def seat(j, table):
        # The chosen earlier item is the one of equal label whose rank is `chosen`.
        target = (z == z[j]) & (rank == chosen[j])
        copied = jnp.sum(jnp.where(target, table, 0), axis=0)
        return table.at[j].set(jnp.where(opens[j], j, copied))

    return lax.fori_loop(0, z.shape[0], seat, jnp.zeros_like(z))


def redraw_dishes(
    key: Key[Array, ""],
    z: Int[Array, "J n"],
    rows: Int[Array, "J n"],
    alpha: Float[Array, "*n"],
    g0: Float[Array, " K"],
    theta: Float[Array, "R K"],
) -> Int[Array, "J n"]:
    """The block move: seat each record's items, then redraw the dish of one of its tables.

    All items of the table move together, which a one-item update cannot do when alpha is small.

    Parameters
    ----------
    key
        Used once.
    z
        Labels, items by records.
    rows
        Row of `theta` that holds each item's observed level.
    alpha
        Concentration of the records, one for all or one each.
    g0
        Component weights.
    theta
        Level probabilities: one row per (variable, level), one column per component.

    Returns
    -------
    z
        Labels after the move. The table is that of an item picked uniformly at random, and its new
        dish has probability proportional to g_0k times the product over its items of theta: an
        exact Gibbs step given the seating. O(n K J) time.
    """
    dtype = g0.dtype
    key_opens, key_seat, key_dish = jax.random.split(key, 3)
    num_items, num_records = z.shape
    table = seat_items(key_seat, z, table_indicators(key_opens, z, alpha * g0[z]))
    u_item, u_dish = uniform_pair(key_dish, (num_records,), dtype.type)
    item = jnp.minimum((u_item * num_items).astype(jnp.int32), num_items - 1)
    picked = jnp.take_along_axis(table, item[None], axis=0)
    moving = table == picked

    hits = jnp.zeros((num_records, theta.shape[0]), dtype)
    hits = hits.at[jnp.arange(num_records)[None, :], rows].add(moving.astype(dtype))
    logits = jnp.log(g0) + jnp.matmul(hits, jnp.log(theta), precision=lax.Precision.HIGHEST)
    weight = jnp.exp(logits - jnp.max(logits, axis=1, keepdims=True))
    cumulative = jnp.matmul(
        weight, jnp.triu(jnp.ones((g0.size, g0.size), dtype)), precision=lax.Precision.HIGHEST
    )
    below = cumulative <= u_dish[:, None] * cumulative[:, -1:]
    dish = jnp.minimum(jnp.sum(below, axis=1, dtype=z.dtype), g0.size - 1)
    return jnp.where(moving, dish[None], z)
