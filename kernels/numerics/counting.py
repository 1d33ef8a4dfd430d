"""Counts of labelled items by scatter-add, in int32."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from bnp_models.kernels.numerics.platforms import by_platform, on_accelerator

# Largest number of copies of the counters on accelerators, and of counters in all copies.
_COPIES, _COUNTERS = 32, 2**20

# Largest number of terms that an accelerator sums by group without scattering.
_TERMS = 2**23


def first_rows(num_levels: tuple[int, ...]) -> np.ndarray:
    """Row of the first level of each variable in an array of the levels of all variables."""
    return np.cumsum((0, *num_levels[:-1]))


def variable_of_rows(num_levels: tuple[int, ...]) -> np.ndarray:
    """Variable of each row in an array of the levels of all variables."""
    return np.repeat(np.arange(len(num_levels)), num_levels)


def variables_by_size(num_levels: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Variables grouped by their number of levels: indices (V,) and rows (V, levels) by group.

    A program with a loop over groups grows with the number of groups, not of variables.
    """
    sizes, first = np.array(num_levels), first_rows(num_levels)
    return [
        (variables, first[variables][:, None] + np.arange(size))
        for size in np.unique(sizes)
        for variables in [np.flatnonzero(sizes == size)]
    ]


def label_type(number: int) -> np.dtype:
    """Smallest integer type for the labels 0 to `number` - 1, for states and not for sums.

    Use int32 for arithmetic with labels, so that nothing overflows.
    """
    if number > 2**16:
        return np.dtype(np.int32)
    return np.dtype(np.uint8 if number <= 2**8 else np.uint16)


@jax.named_scope("count_rows_by_component")
def count_rows_by_component(
    rows: Int[Array, "J n"], z: Int[Array, "J n"], weight: Int[Array, " n"], shape: tuple[int, int]
) -> Int[Array, "R K"]:
    """Count items by row of theta and component.

    Parameters
    ----------
    rows, z
        Row and label of each item.
    weight
        Number of times each record counts; 0 for padding.
    shape
        (R, K), the rows of theta and the components.

    Raises
    ------
    ValueError
        If the result could reach 2**31 with weights of one.
    """
    num_rows, num_slots = shape
    if z.size >= 2**31 or num_rows * num_slots >= 2**31:
        raise ValueError(f"{z.size} items in {shape} counters overflow int32")
    flat = _add_up(rows * num_slots + z, jnp.broadcast_to(weight, z.shape), num_rows * num_slots)
    return flat.reshape(shape)


@jax.named_scope("count_split_cells")
def count_split_cells(
    rows: Int[Array, "J C"], split: Int[Array, "K C"], num_rows: int
) -> Int[Array, "R K"]:
    """Count the records of cells by row of theta and component.

    Parameters
    ----------
    rows
        Row of each value of a cell.
    split
        Records of each cell by component; fewer than 2**31 in all.
    num_rows
        Rows R of theta.
    """
    of_cell = split.T

    def add(counts, row):
        return counts.at[row].add(of_cell, mode="promise_in_bounds"), None

    return lax.scan(add, jnp.zeros((num_rows, len(split)), jnp.int32), rows)[0]


@jax.named_scope("count_components")
def count_components(
    z: Int[Array, "J n"], weight: Int[Array, "J n"], num_slots: int
) -> Int[Array, " K"]:
    """Count items of each component, weighted by counts or 0/1 indicators."""
    return _add_up(z, weight.astype(jnp.int32), num_slots)


def _add_up(index, weight, number):
    """Add up weights by index, below `number`; both arrays have the records along the last axis.

    Accelerators add into several copies of the counters, because additions to one counter wait for
    each other. Arrays keep their shape, so that each of several devices counts its own records.
    """
    copies = by_platform(1, max(1, min(_COPIES, _COUNTERS // number)))
    index = index.astype(jnp.int32)
    if copies > 1:
        index = index + number * (jnp.arange(index.shape[-1]) % copies)
    flat = jnp.zeros(copies * number, jnp.int32)
    flat = flat.at[index].add(weight, mode="promise_in_bounds")
    return jnp.sum(flat.reshape(copies, number), axis=0) if copies > 1 else flat


def length_in_use(used: Bool[Array, " K"]) -> Int[Array, ""]:
    """Index of the last used entry plus one; 0 if none is used."""
    return jnp.max(jnp.where(used, jnp.arange(1, used.size + 1), 0))


def sum_by_group(x: Shaped[Array, "R ..."], group: Int[Array, " R"], number: int) -> Array:
    """Add up rows by their group, 0 to `number` - 1.

    If there are not too many rows, an accelerator adds them up in one launch and in a fixed order.
    """
    if not on_accelerator() or number * x.size > _TERMS:
        return jax.ops.segment_sum(x, group, num_segments=number)
    member = jnp.arange(number)[:, None] == group
    member = member.reshape(*member.shape, *[1] * (x.ndim - 1))
    return jnp.sum(jnp.where(member, x, 0), axis=1, dtype=x.dtype)


def group_totals(x: Shaped[Array, "R ..."], group: Int[Array, " R"]) -> Array:
    """Sum over the group of each row, returned for every row; groups are numbered below R."""
    return sum_by_group(x, group, group.size)[group]


@jax.named_scope("order_free_sum")
def order_free_sum(
    x: Float[Array, "..."], axis: int | None = None, dtype: Any = None
) -> Float[Array, "..."]:
    """Add up finite non-negative floats, all or along `axis`, independently of their order.

    A sum over several devices, or over several chains at once, adds in another order than a sum on
    one device. This sum uses integers and has the same bits on one device and on eight. Terms are
    rounded to 2**-30 of the largest, in double precision to 2**-62. With `dtype`, many terms in
    single precision can be summed in double precision, without further error.

    Raises
    ------
    ValueError
        If there are more than 2**27 terms, whose sum would need many rounds.
    """
    num_terms = x.size if axis is None else x.shape[axis]
    if num_terms > 2**27:
        raise ValueError(f"order_free_sum: {num_terms} terms; at most {2**27}")
    # A power of two, so that scaling is exact and only the rounding to integers has an error.
    exponent = jnp.frexp(jnp.max(x, axis=axis, keepdims=True))[1]
    scale = jnp.ldexp(jnp.ones(exponent.shape, x.dtype), exponent)
    integer = jnp.iinfo(jnp.int64 if x.dtype == jnp.float64 else jnp.int32)
    bits = integer.bits - 2
    fixed = jnp.round(x / scale * 2.0**bits).astype(integer.dtype)
    # Digits of as many bits as the integers can add up.
    width = integer.bits - 1 - (num_terms - 1).bit_length()
    dtype = x.dtype if dtype is None else dtype
    total = jnp.zeros((), dtype)
    for shift in range(0, bits + 1, width):
        digit = jnp.sum((fixed >> shift) & (2**width - 1), axis=axis, dtype=integer.dtype)
        total += digit.astype(dtype) * 2.0**shift
    return total * (scale.reshape(total.shape).astype(dtype) * 2.0**-bits)


def opens_table(table: Int[Array, "J n"]) -> Bool[Array, "J n"]:
    """Whether each item opened its table; `table` has the index of the item that did so."""
    return table == jnp.arange(table.shape[0])[:, None]
