"""Counting labelled items by scatter-add, in int32."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from bnp_models.kernels.numerics.platforms import by_platform, on_accelerator

# Copies of counters on accelerators at the most, and counters in all of them.
_COPIES, _COUNTERS = 32, 2**20

# Terms that an accelerator sums by group without scattering, at the most.
_TERMS = 2**23


def first_rows(num_levels: tuple[int, ...]) -> np.ndarray:
    """Row of the first level of each variable in an array of all levels, variable by variable."""
    return np.cumsum((0, *num_levels[:-1]))


def variable_of_rows(num_levels: tuple[int, ...]) -> np.ndarray:
    """Variable of each row of an array of all levels, variable by variable."""
    return np.repeat(np.arange(len(num_levels)), num_levels)


def variables_by_size(num_levels: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Variables of one number of levels together: their numbers (V,), and their rows (V, levels).

    A program that loops over these grows with the numbers of levels, not with the variables.
    """
    sizes, first = np.array(num_levels), first_rows(num_levels)
    return [
        (variables, first[variables][:, None] + np.arange(size))
        for size in np.unique(sizes)
        for variables in [np.flatnonzero(sizes == size)]
    ]


def label_type(number: int) -> np.dtype:
    """Smallest type of integers that holds the labels 0 to `number` - 1: for states, not for sums.

    Arithmetic with labels is for int32, in which nothing overflows.
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
    """Add up weights by index, below `number`, both with the records along the last axis.

    On accelerators into several copies: additions to one counter wait for each other. Arrays keep
    their shape, so that each of several devices counts the records that it has.
    """
    copies = by_platform(1, max(1, min(_COPIES, _COUNTERS // number)))
    index = index.astype(jnp.int32)
    if copies > 1:
        index = index + number * (jnp.arange(index.shape[-1]) % copies)
    flat = jnp.zeros(copies * number, jnp.int32)
    flat = flat.at[index].add(weight, mode="promise_in_bounds")
    return jnp.sum(flat.reshape(copies, number), axis=0) if copies > 1 else flat


def length_in_use(used: Bool[Array, " K"]) -> Int[Array, ""]:
    """One more than the place of the last that is used; 0 where none is."""
    return jnp.max(jnp.where(used, jnp.arange(1, used.size + 1), 0))


def sum_by_group(x: Shaped[Array, "R ..."], group: Int[Array, " R"], number: int) -> Array:
    """Add up rows by their group, 0 to `number` - 1.

    An accelerator adds them up in one launch, and in one order, where that is not too much.
    """
    if not on_accelerator() or number * x.size > _TERMS:
        return jax.ops.segment_sum(x, group, num_segments=number)
    member = jnp.arange(number)[:, None] == group
    member = member.reshape(*member.shape, *[1] * (x.ndim - 1))
    return jnp.sum(jnp.where(member, x, 0), axis=1, dtype=x.dtype)


def group_totals(x: Shaped[Array, "R ..."], group: Int[Array, " R"]) -> Array:
    """Add up rows by their group, below R: the sum of its group at every row."""
    return sum_by_group(x, group, group.size)[group]


@jax.named_scope("order_free_sum")
def order_free_sum(
    x: Float[Array, "..."], axis: int | None = None, dtype: Any = None
) -> Float[Array, "..."]:
    """Add up finite non-negative floats, all or along `axis`, the same whatever their order.

    A sharded sum adds in an order of its own, and so does one over several chains where another
    device has one chain; this one, in integers, gives the same bits on one device and on eight.
    Terms are rounded to 2**-30 of the largest, in double precision to 2**-62. The sum of many in
    single precision may be asked for in double, by `dtype`, and then has no other error.

    Raises
    ------
    ValueError
        Above 2**27 terms, of which the sum would take many rounds.
    """
    num_terms = x.size if axis is None else x.shape[axis]
    if num_terms > 2**27:
        raise ValueError(f"order_free_sum: {num_terms} terms; at most {2**27}")
    # A power of two, so that scaling is exact and only the rounding to integers loses anything.
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
    """Whether each item opened its table, which has the item that did so of its record."""
    return table == jnp.arange(table.shape[0])[:, None]
