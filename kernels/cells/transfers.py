"""Counts with a known total, updated by moving units between pairs of them.

Of any two cells the sum is kept; how many units move is drawn from a symmetric law of random scale,
so that both single units and large parts of the total move, and accepted by Metropolis & Hastings.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.variates.rng import Keys


@jax.named_scope("transfer_units")
def transfer_units(
    key: Key[Array, ""],
    counts: Int[Array, " cells"],
    log_ratio: Callable[[Array, Array, Array], Array],
    num_scales: int = 24,
) -> tuple[Int[Array, " cells"], Float[Array, ""]]:
    """Move units between pairs of cells, once for every cell, but one where their number is odd.

    Parameters
    ----------
    key
        Used once.
    counts
        Current counts.
    log_ratio
        Function of (indices of cells, their counts, the changes) that returns log w(count + change)
        - log w(count) of each cell, -inf where count + change is impossible. The target is the
        product of w over cells, given the total.
    num_scales
        At most 2^(num_scales - 1) units move at once.

    Returns
    -------
    counts, accepted
        New counts, of the same total, and the share of the pairs that accepted a change.
    """
    key_pairs, key_scale, key_size, key_accept = Keys(key, 4)
    half = counts.size // 2
    order = jax.random.permutation(key_pairs, counts.size)
    giver, taker = order[:half], order[half : 2 * half]
    scale = 2 ** jax.random.randint(key_scale, (half,), 0, num_scales)
    size = jax.random.randint(key_size, (half,), -scale, scale + 1)
    log_accept = log_ratio(giver, counts[giver], -size) + log_ratio(taker, counts[taker], size)
    u = jax.random.uniform(key_accept, (half,), minval=jnp.finfo(log_accept.dtype).tiny)
    moved = jnp.where(jnp.log(u) < log_accept, size, 0)
    counts = counts.at[giver].add(-moved).at[taker].add(moved)
    return counts, jnp.mean((moved != 0).astype(log_accept.dtype))
