"""Labels of items, with the weights of each record integrated out (Polya urn)."""

from itertools import accumulate

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.numerics.platforms import by_platform, short_loop
from bnp_models.kernels.variates.categorical import cumulative_sum, search_cumulative
from bnp_models.kernels.variates.rng import uniform_pair


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
        # Stored, because otherwise each sum would gather it again.
        copy = stored(jnp.where(at == j, 0, copy))
        # One chain of additions, so that rounding does not depend on the number of records.
        cumulative = list(accumulate(copy))
        # The base part, usually the rarer one, is next to zero, where u has the finest resolution.
        target = u[j] * (base_mass[j] + cumulative[-1]) - base_mass[j]
        passed = sum((reached <= target).astype(jnp.int32) for reached in cumulative)
        source = jnp.minimum(passed, num_items - 1)
        copied = jnp.take_along_axis(z, source[None], axis=0, mode="promise_in_bounds")[0]
        return z.at[j].set(jnp.where(target < 0, base[j], copied))

    return short_loop(num_items, assign, z)
