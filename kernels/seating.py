"""Whole records seated anew: partitions of their items into tables, and the tables' components.

Given the weights and level probabilities, a record's labels can be summed out, over all partitions
of its items (`partitions`), and drawn from that sum in one piece. The concentration can then be
drawn with the labels of all records summed out.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.assignment import draw_rows
from bnp_models.kernels.partitions import (
    equal_chunks,
    log_partition_sums_by_blocks,
    partition_tables,
    scale_columns,
)

# Records whose tables of subsets are in memory at once: about 1.5 * 2^J numbers each.
_RECORDS_AT_ONCE = 256

# Records that are given a further table at once.
_LANES = 64


def log_totals_by_blocks(
    rows: Int[Array, "J C"],
    num_cells: Int[Array, ""],
    g0: Float[Array, " K"],
    theta: Float[Array, "R K"],
) -> Float[Array, "J C"]:
    """Log of the sum over partitions of a record into B = 1..J tables, for every distinct cell.

    Parameters
    ----------
    rows
        Row of `theta` that holds each item's level.
    num_cells
        Cells, padding excluded: of that the result is of no use.
    g0, theta
        Component weights, and level probabilities by row and component.

    Notes
    -----
    exp(result[B - 1]) alpha^B / (alpha)_J, summed over B, is the probability of the record up to a
    factor that depends on neither alpha nor B.
    """
    num_items = rows.shape[0]
    scaled, _ = scale_columns(theta, g0, num_items)
    chunks = _chunks(rows)
    size = chunks.shape[2]

    def some(i, totals):
        found = log_partition_sums_by_blocks(_columns(scaled, chunks[i]), g0)
        return lax.dynamic_update_index_in_dim(totals, found, i, 0)

    totals = jnp.zeros(chunks.shape, theta.dtype)
    totals = lax.fori_loop(0, (num_cells + size - 1) // size, some, totals)
    return jnp.moveaxis(totals, 1, 0).reshape(num_items, -1)[:, : rows.shape[1]]


def draw_seating(
    key: Key[Array, ""],
    rows: Int[Array, "J n"],
    alpha: Float[Array, ""],
    g0: Float[Array, " K"],
    theta: Float[Array, "R K"],
) -> Int[Array, "J n"]:
    """Labels of all records, each record's drawn in one piece from its full conditional.

    Parameters
    ----------
    key
        Used once.
    rows
        Row of `theta` that holds each item's level.
    alpha
        Concentration of all records.
    g0, theta
        Component weights, and level probabilities by row and component.

    Notes
    -----
    P(z_i | x_i) is the sum over partitions of prod over blocks b of alpha (|b| - 1)! S_b, as in
    `kernels.partitions`. The block of the record's last item is drawn by what its complement sums
    to, then that of the last item which is left, and so on; a block's component k has weight
    g_0k prod_{j in b} theta_kj(x_ij). O(3^J + 2^J K) time a record.
    """
    num_items, num_records = rows.shape
    scaled, _ = scale_columns(theta, g0, num_items)
    chunks = _chunks(rows)
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(chunks.shape[0]))

    def some(args):
        key, part = args
        columns = _columns(scaled, part)
        blocks, f = partition_tables(columns, g0, alpha)
        return _seat(key, columns, g0, blocks, f)

    z = lax.map(some, (keys, chunks))
    return jnp.moveaxis(z, 1, 0).reshape(num_items, -1)[:, :num_records]


def _seat(key, columns, g0, blocks, f):
    """Labels of the records of a chunk: items by records."""
    size, num_items, _ = columns.shape
    half = 2 ** (num_items - 1)
    bits = 1 << np.arange(num_items)
    log_columns, log_g0 = jnp.log(columns), jnp.log(g0)

    def labels(key, members, chosen):
        own = jnp.where(members[:, :, None], log_columns[chosen], 0)
        log_weight = log_g0 + jnp.sum(own, axis=1)
        return draw_rows(key, log_weight.T)[0]

    # The block of the last item: its other items are any subset of the items before it.
    everyone = jnp.arange(size)
    key_block, key_label, key_rest = jax.random.split(key, 3)
    weight = blocks[half:] * f[:half][::-1]
    others, _ = draw_rows(key_block, jnp.log(weight))
    member = ((others[:, None] & bits) > 0) | (np.arange(num_items) == num_items - 1)
    z = jnp.broadcast_to(labels(key_label, member, everyone)[:, None], (size, num_items))
    left = (half - 1) ^ others
    subset = jnp.arange(half // 2 if num_items > 1 else 1)[:, None]

    def unfinished(carry):
        return jnp.any(carry[1] > 0)

    def next_block(carry):
        step, left, z = carry
        key_block, key_label = jax.random.split(jax.random.fold_in(key_rest, step))
        # The lanes beyond those that are left write nowhere.
        (chosen,) = jnp.nonzero(left > 0, size=min(_LANES, size), fill_value=size)
        here = jnp.minimum(chosen, size - 1)
        mask = left[here]
        top = jnp.sum(mask[:, None] >= bits, axis=1) - 1
        top_bit = jnp.where(mask > 0, 1 << top, 0)
        below = mask ^ top_bit
        inside = (subset & ~below) == 0
        block = jnp.where(inside, subset | top_bit, 0)
        weight = jnp.where(inside, blocks[block, here] * f[mask ^ block, here], 0)
        others, _ = draw_rows(key_block, jnp.log(weight))
        drawn = others | top_bit
        member = (drawn[:, None] & bits) > 0
        label = labels(key_label, member, here)
        z = z.at[chosen].set(jnp.where(member, label[:, None], z[here]), mode="drop")
        return step + 1, left.at[chosen].set(mask ^ drawn, mode="drop"), z

    return lax.while_loop(unfinished, next_block, (jnp.int32(0), left, z))[2].T


def _columns(theta, rows):
    return jnp.moveaxis(theta[rows], 0, 1)


def _chunks(rows):
    """Rows of equally many records, of a multiple of `MATMUL_CELLS`: (chunks, J, size)."""
    num_items, num_records = rows.shape
    num_chunks, size = equal_chunks(num_records, _RECORDS_AT_ONCE)
    padded = jnp.pad(rows, ((0, 0), (0, num_chunks * size - num_records)))
    return jnp.moveaxis(padded.reshape(num_items, num_chunks, size), 1, 0)
