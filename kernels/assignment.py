"""Direct assignment of items to components, with the record's weights integrated out.

The conditional p(z_ij = k) proportional to (n_ik^{-ij} + alpha_i g_0k) theta_kj(x_ij) is split in
two: a *base* part alpha_i sum_k g_0k theta_kj(x_ij), whose table is shared by all records, and a
*copy* part, the labels of the record's other items. No array of records by components exists, and
the cost does not grow with the number of components beyond a binary search.
"""

from itertools import accumulate

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.rng import uniform, uniform_pair, words

# Rows that `draw_rows_by_weight` adds up in one pass over its columns.
_ROWS_AT_ONCE = 16


def cumulative_sum(x: Float[Array, "... K"]) -> Float[Array, "... K"]:
    """Cumulative sums of weights along the last axis, in blocks, always added up in one order.

    Not by matrix products, though they can be twice as fast on a CPU: the order in which those add
    up depends on their size, and so on how many chains and records a device has.
    """
    # Of a maximum: a product just before an addition may be fused with it, and not be rounded.
    return _running_sums(jnp.maximum(x, 0))


def _running_sums(x):
    size, width = x.shape[-1], 16
    if size <= width:
        return jnp.stack(list(accumulate(x[..., k] for k in range(size))), axis=-1)
    blocks = -(-size // width)
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, blocks * width - size)])
    within = _running_sums(padded.reshape(*x.shape[:-1], blocks, width))
    last = within[..., -1]
    total = within + (_running_sums(last) - last)[..., None]
    return total.reshape(*x.shape[:-1], blocks * width)[..., :size]


def search_cumulative(
    cumulative: Float[Array, "R K"], rows: Int[Array, "..."], u: Float[Array, "..."]
) -> tuple[Int[Array, "..."], Float[Array, "..."]]:
    """Inverse-CDF categorical draws from rows of a table of unnormalised cumulative weights.

    Parameters
    ----------
    cumulative
        Cumulative weights along the last axis.
    rows
        The row that each draw is from.
    u
        Uniforms on (0, 1).

    Returns
    -------
    index, total
        The drawn column, int32, and the row's total weight. O(log K) gathers a draw.
    """
    num_columns = cumulative.shape[-1]
    flat = cumulative.reshape(-1)
    offset = rows.astype(jnp.int32) * num_columns
    total = flat.at[offset + (num_columns - 1)].get(mode="promise_in_bounds")
    target = u * total
    num_steps = (num_columns - 1).bit_length()

    # A loop, not unrolled: fused search chains are recomputed by their consumers on the CPU.
    def halve(step, low):
        width = 1 << (num_steps - 1 - step)
        probe = jnp.minimum(low + width - 1, num_columns - 1)
        value = flat.at[offset + probe].get(mode="promise_in_bounds")
        return jnp.where(value <= target, low + width, low)

    low = lax.fori_loop(0, num_steps, halve, jnp.zeros(rows.shape, jnp.int32))
    return jnp.minimum(low, num_columns - 1), total


def assign_items(
    key: Key[Array, ""],
    z: Int[Array, "J n"],
    rows: Int[Array, "J n"],
    alpha: Float[Array, "*n"],
    g0: Float[Array, " K"],
    theta: Float[Array, "R K"],
) -> Int[Array, "J n"]:
    """Redraw every item's label, items in turn and records in parallel.

    Parameters
    ----------
    key
        Used once.
    z
        Current labels, items by records (records contiguous).
    rows
        Row of `theta` that holds each item's observed level.
    alpha
        Concentration of the records, one for all or one each.
    g0
        Component weights over all slots, free ones included.
    theta
        Level probabilities: one row per (variable, level), one column per component.

    Notes
    -----
    Battiston & Rimella (2024), step 1, collapsed: the record weights are integrated out, and
    components without an item are ordinary slots of `g0` with `theta` from its prior. Cost
    O(n J (J + log K)).
    """
    num_items, num_slots = z.shape[0], g0.size
    u, u_base = uniform_pair(key, z.shape, theta.dtype.type)
    base, total = search_cumulative(cumulative_sum(theta * g0), rows, u_base)
    base_mass = alpha * total
    flat = theta.reshape(-1)
    at = jnp.arange(num_items)[:, None]

    def assign(j, z):
        copy = flat.at[rows[j] * num_slots + z].get(mode="promise_in_bounds")
        # Stored: the sums would otherwise gather it once more each.
        copy = lax.optimization_barrier(jnp.where(at == j, 0, copy))
        # One chain of additions: the same however many records there are.
        cumulative = list(accumulate(copy))
        # The base part, usually the rarer one, lies next to zero, where u is finest.
        target = u[j] * (base_mass[j] + cumulative[-1]) - base_mass[j]
        passed = sum((reached <= target).astype(jnp.int32) for reached in cumulative)
        source = jnp.minimum(passed, num_items - 1)
        copied = jnp.take_along_axis(z, source[None], axis=0, mode="promise_in_bounds")[0]
        return z.at[j].set(jnp.where(target < 0, base[j], copied))

    return lax.fori_loop(0, num_items, assign, z)


def draw_rows(
    key: Key[Array, ""], log_weight: Float[Array, "K n"]
) -> tuple[Int[Array, " n"], Float[Array, " n"]]:
    """One row for every column of a table of unnormalised log weights, by inverse CDF.

    Parameters
    ----------
    key
        Used once.
    log_weight
        Rows are the categories; -inf where one is impossible, and such a one is never drawn.

    Returns
    -------
    row, log_total
        The drawn row, int32, and the logarithm of each column's total weight.
    """
    largest = jnp.max(log_weight, axis=0)
    weight = jnp.exp(log_weight - jnp.where(largest > -jnp.inf, largest, 0))
    row, total = draw_rows_by_weight(key, weight)
    return row, largest + jnp.log(total)


def draw_rows_by_weight(
    key: Key[Array, ""], weight: Float[Array, "K n"]
) -> tuple[Int[Array, " n"], Float[Array, " n"]]:
    """One row for every column of a table of unnormalised weights, by inverse CDF.

    Parameters
    ----------
    key
        Used once.
    weight
        Rows are the categories; zero where one is impossible, and such a one is never drawn.

    Returns
    -------
    row, total
        The drawn row, int32, and each column's total weight.

    Notes
    -----
    The running sum is one chain of additions in either use, so that it is monotone. It is unrolled
    by blocks of rows, the columns being the lanes; the loop over blocks is there to store the
    result, which XLA would otherwise compute again for every use on a CPU.
    """
    num_rows, num_columns = weight.shape
    num_blocks = -(-num_rows // _ROWS_AT_ONCE)
    weight = jnp.pad(weight, ((0, num_blocks * _ROWS_AT_ONCE - num_rows), (0, 0)))
    weight = weight.reshape(num_blocks, _ROWS_AT_ONCE, num_columns)
    nothing = jnp.zeros(num_columns, weight.dtype)

    def add(block, reached):
        for row in weight[block]:
            reached = reached + row
        return reached

    total = lax.fori_loop(0, num_blocks, add, nothing)
    target = uniform(words(key, (num_columns,)), weight.dtype.type) * total

    def passed(block, carry):
        reached, index = carry
        for row in weight[block]:
            reached = reached + row
            index = index + (reached <= target)
        return reached, index

    start = (nothing, jnp.zeros(num_columns, jnp.int32))
    index = lax.fori_loop(0, num_blocks, passed, start)[1]
    return jnp.minimum(index, num_rows - 1), total
