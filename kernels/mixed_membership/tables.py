"""Tables of the Chinese restaurant franchise: items that open a table, and seats of the others."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.numerics.platforms import short_loop
from bnp_models.kernels.variates.rng import uniform, uniform_index, words

# Items of a record that are all compared at once, at the most: results for pairs take memory.
COMPARED_AT_ONCE = 32


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
    """Draw which items open a table; m_ik of the items of record i with label k do.

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
        From `table_indicators`.

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
