"""Categorical variates by inversion of cumulative sums, for many draws at once."""

from itertools import accumulate

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.numerics.platforms import by_platform, short_loop
from bnp_models.kernels.variates.rng import uniform, words

# Number of rows that `draw_rows_by_weight` adds up in one pass: on a CPU, on accelerators.
_ROWS_AT_ONCE = (16, 64)


@jax.named_scope("cumulative_sum")
def cumulative_sum(x: Float[Array, "... K"]) -> Float[Array, "... K"]:
    """Cumulative sums of weights along the last axis, in blocks, always added in the same order.

    They are not computed by matrix products, which can be twice as fast on a CPU, because the order
    of additions in a product depends on its size, and so on the numbers of chains and records on a
    device.
    """
    # The maximum prevents that a product just before an addition is fused with it and not rounded.
    return _sums_of_blocks(jnp.maximum(x, 0))


def _sums_of_blocks(x):
    """Cumulative sums within blocks, each with the sum of the earlier blocks added."""
    size, width = x.shape[-1], 16
    if size <= width:
        return jnp.stack(list(accumulate(x[..., k] for k in range(size))), axis=-1)
    blocks = -(-size // width)
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, blocks * width - size)])
    within = _sums_of_blocks(padded.reshape(*x.shape[:-1], blocks, width))
    last = within[..., -1]
    total = within + (_sums_of_blocks(last) - last)[..., None]
    return total.reshape(*x.shape[:-1], blocks * width)[..., :size]


@jax.named_scope("search_cumulative")
def search_cumulative(
    cumulative: Float[Array, "R K"], rows: Int[Array, "..."], u: Float[Array, "..."]
) -> tuple[Int[Array, "..."], Float[Array, "..."]]:
    """Draw columns by inverse CDF, given cumulative weights of rows, normalised or not.

    Parameters
    ----------
    cumulative
        Cumulative weights along the last axis.
    rows
        Row from which each draw is made.
    u
        Uniforms on (0, 1).

    Returns
    -------
    index, total
        Drawn column, int32, and total weight of the row. A draw takes O(log K) gathers.

    Raises
    ------
    ValueError
        If there are 2**31 weights or more, whose indices would overflow int32.
    """
    if cumulative.size >= 2**31:
        raise ValueError(f"weights of shape {cumulative.shape} overflow int32; draw them in parts")
    num_columns = cumulative.shape[-1]
    flat = cumulative.reshape(-1)
    offset = rows.astype(jnp.int32) * num_columns
    total = flat.at[offset + (num_columns - 1)].get(mode="promise_in_bounds")
    target = u * total
    num_steps = (num_columns - 1).bit_length()

    def halve(step, low):
        width = 1 << (num_steps - 1 - step)
        probe = jnp.minimum(low + width - 1, num_columns - 1)
        value = flat.at[offset + probe].get(mode="promise_in_bounds")
        return jnp.where(value <= target, low + width, low)

    low = short_loop(num_steps, halve, jnp.zeros(rows.shape, jnp.int32))
    return jnp.minimum(low, num_columns - 1), total


@jax.named_scope("draw_rows")
def draw_rows(
    key: Key[Array, ""], log_weight: Float[Array, "K n"]
) -> tuple[Int[Array, " n"], Float[Array, " n"]]:
    """Draw one row for every column of log weights, normalised or not, by inverse CDF.

    Parameters
    ----------
    key
        Used once.
    log_weight
        Rows are the categories; -inf marks an impossible one, which is never drawn.

    Returns
    -------
    row, log_total
        Drawn row, int32, and the logarithm of each column's total weight.
    """
    largest = jnp.max(log_weight, axis=0)
    weight = jnp.exp(log_weight - jnp.where(largest > -jnp.inf, largest, 0))
    row, total = draw_rows_by_weight(key, weight)
    return row, largest + jnp.log(total)


@jax.named_scope("draw_rows_by_weight")
def draw_rows_by_weight(
    key: Key[Array, ""], weight: Float[Array, "K n"]
) -> tuple[Int[Array, " n"], Float[Array, " n"]]:
    """Draw one row for every column of weights, normalised or not, by inverse CDF.

    Parameters
    ----------
    key
        Used once.
    weight
        Rows are the categories; zero marks an impossible one, which is never drawn.

    Returns
    -------
    row, total
        Drawn row, int32, and each column's total weight.

    Notes
    -----
    The cumulative sum is one chain of additions in both of its uses, so that it is monotone. It is
    unrolled by blocks of rows, with the columns as lanes. The loop over blocks makes XLA store the
    result, which it would otherwise compute again for every use on a CPU.
    """
    num_rows, num_columns = weight.shape
    size = by_platform(*_ROWS_AT_ONCE)
    num_blocks = -(-num_rows // size)
    weight = jnp.pad(weight, ((0, num_blocks * size - num_rows), (0, 0)))
    weight = weight.reshape(num_blocks, size, num_columns)
    nothing = jnp.zeros(num_columns, weight.dtype)

    def add(block, cumulative):
        for row in weight[block]:
            cumulative = cumulative + row
        return cumulative

    total = lax.fori_loop(0, num_blocks, add, nothing)
    target = uniform(words(key, (num_columns,)), weight.dtype.type) * total

    def passed(block, carry):
        cumulative, index = carry
        for row in weight[block]:
            cumulative = cumulative + row
            index = index + (cumulative <= target)
        return cumulative, index

    start = (nothing, jnp.zeros(num_columns, jnp.int32))
    index = lax.fori_loop(0, num_blocks, passed, start)[1]
    return jnp.minimum(index, num_rows - 1), total
