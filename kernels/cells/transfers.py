"""Updates of counts with a known total, by moving units between pairs of cells.

The sum of the two counts does not change. The number of units that move is drawn from a symmetric
distribution with a random scale, so that both single units and large parts of the total can move. A
Metropolis-Hastings step accepts or rejects the move.
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
    """Move units between pairs of cells; every cell is in one pair (if their number is even).

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
        At most 2^(num_scales - 1) units move in one step.

    Returns
    -------
    counts, accepted
        New counts with the same total, and the share of pairs whose move was accepted.
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
