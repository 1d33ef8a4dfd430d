"""Simulation of new records of an HDP mixed membership model by its urn."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.variates.categorical import search_cumulative
from bnp_models.kernels.variates.rng import uniform, uniform_pair, words


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
    doi:10.1214/aos/1176342372). No K-vector per record.
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
