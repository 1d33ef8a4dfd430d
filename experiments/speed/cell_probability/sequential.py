"""Cell probabilities by sequential imputation, the road that the package does not offer.

Draws are independent across cells and vary less each than draws that all cells share, but cost
some fifty times as much on a CPU (README.md).
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.mixed_membership.cell_probability import (
    CellEstimate,
    _check_draws,
    _map_chunks,
    _summarise,
)
from bnp_models.kernels.variates.categorical import search_cumulative
from bnp_models.kernels.variates.rng import uniform_pair

_PARTICLE_LANES = 2**14


@jax.named_scope("log_cell_probability_sequential")
def log_cell_probability_sequential(
    key: Key[Array, ""],
    theta: Float[Array, "J L K"],
    g0: Float[Array, " K"],
    alpha: Float[Array, "*P"] | float,
    cells: Int[Array, "C J"],
    num_particles: int,
) -> CellEstimate:
    """Cell probabilities by sequential imputation of the labels, cell by cell: unbiased.

    Parameters
    ----------
    key
        Used once; the draws of a cell depend on the key and its position, not on other cells.
    theta, g0, cells
        As in `log_cell_probability_exact`.
    alpha
        Concentration, one for all particles or one for each (drawn by the caller from its prior).
    num_particles
        P, even.

    Raises
    ------
    ValueError
        If `num_particles` is not even.

    Notes
    -----
    For j in turn, a particle's weight is multiplied by the urn's predictive probability of c_j
    given its earlier labels, and z_j drawn given c_j (Kong, Liu & Wong 1994,
    doi:10.1080/01621459.1994.10476469; MacEachern, Clyde & Liu 1999, doi:10.2307/3315637).
    Cost O(C P J (J + log K)).
    """
    _check_draws(num_particles)
    dtype = theta.dtype
    num_variables, num_levels, num_slots = theta.shape
    alpha = jnp.broadcast_to(jnp.asarray(alpha, dtype), (num_particles,))
    flat = theta.reshape(-1)
    cumulative = jnp.cumsum(theta * g0, axis=2).reshape(-1, num_slots)
    first_row = jnp.arange(num_variables, dtype=jnp.int32) * num_levels
    shape = (num_variables, num_particles)

    def chunk(part):
        index, codes = part[:, 0], part[:, 1:]
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(index)
        u, u_base = jax.vmap(lambda k: uniform_pair(k, shape, dtype.type), out_axes=1)(keys)
        rows = (codes + first_row).T[:, :, None]
        fresh, total = search_cumulative(cumulative, jnp.broadcast_to(rows, u.shape), u_base)
        base = alpha * total

        def impute(j, carry):
            z, reach, log_weight = carry

            def gather(i, reach_sum):
                reach, so_far = reach_sum
                copy = flat.at[rows[j] * num_slots + z[i]].get(mode="promise_in_bounds")
                return reach.at[i].set(so_far + copy), so_far + copy

            reach, mass = lax.fori_loop(0, j, gather, (reach, base[j]))
            log_weight += jnp.log(mass / (alpha + j))
            # The base part, usually the rarer one, lies next to zero, where u is finest.
            target = u[j] * mass

            def count(i, source):
                return source + (reach[i] <= target).astype(jnp.int32)

            source = lax.fori_loop(0, j, count, jnp.zeros(target.shape, jnp.int32))
            source = jnp.minimum(source, jnp.maximum(j - 1, 0))
            copied = jnp.take_along_axis(z, source[None], axis=0, mode="promise_in_bounds")[0]
            label = jnp.where(target < base[j], fresh[j], copied)
            return z.at[j].set(label), reach, log_weight

        start = (jnp.zeros_like(fresh), jnp.zeros_like(u), jnp.zeros_like(u[0]))
        log_weight = lax.fori_loop(0, num_variables, impute, start)[2]
        return _summarise(log_weight)

    index = jnp.arange(cells.shape[0], dtype=jnp.int32)
    numbered = jnp.concatenate([index[:, None], cells.astype(jnp.int32)], axis=1)
    return _map_chunks(chunk, numbered, max(1, min(_PARTICLE_LANES // num_particles, len(cells))))
