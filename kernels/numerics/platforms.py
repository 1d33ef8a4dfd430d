"""Forms of a kernel for CPUs and for accelerators: the same distribution, but not the same bits.

A CPU is fast if its data fit into its caches and results of loops are stored. An accelerator is
fast if there are few launches, each of which works on everything at once. Which form is taken is
decided when a program is traced.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, Shaped

T = TypeVar("T")

# Columns of a block, of which a CPU takes no more than are in use.
_COLUMNS_AT_ONCE = 16

_forced: bool | None = None


def on_accelerator() -> bool:
    """Whether programs are traced for an accelerator: JAX's default backend is no CPU."""
    return jax.default_backend() != "cpu" if _forced is None else _forced


@contextmanager
def forms_of(accelerator: bool) -> Iterator[None]:
    """Trace for an accelerator, or for a CPU, wherever this is: to test or to compile forms.

    Programs that were traced before are forgotten, and so are those traced within.
    """
    global _forced
    before, _forced = _forced, accelerator
    jax.clear_caches()
    try:
        yield
    finally:
        _forced = before
        jax.clear_caches()


def by_platform(cpu: T, accelerator: T) -> T:
    """Return the one of two sizes or functions that suits the platform."""
    return accelerator if on_accelerator() else cpu


def short_loop(number: int, body: Callable[[int, T], T], start: T) -> T:
    """Repeat `body(i, carry)` a few times: in a loop on CPUs, unrolled on accelerators.

    A CPU would compute unrolled steps again for every use of their result; on an accelerator each
    step of a loop is a launch or several.
    """
    if not on_accelerator():
        return lax.fori_loop(0, number, body, start)
    for i in range(number):
        start = body(i, start)
    return start


def put(x: Array, i: Int[Array, ""] | int, new: Array) -> Array:
    """Replace an entry along the first axis, within a loop.

    An accelerator would copy an entry that the loop's counter chooses by order of the host: all of
    the array is written there instead.
    """
    if not on_accelerator():
        return lax.dynamic_update_index_in_dim(x, new, i, 0)
    here = jnp.arange(len(x)) == i
    return jnp.where(here.reshape(-1, *[1] * (x.ndim - 1)), new, x)


def record_at(x: Shaped[Array, "... n"], i: Int[Array, ""]) -> Shaped[Array, "..."]:
    """Entries of a record that is chosen at run time, records along the last axis.

    On accelerators added up among zeros: several devices would send each other all records for it.
    """
    if not on_accelerator():
        return x[..., i]
    return jnp.sum(jnp.where(jnp.arange(x.shape[-1]) == i, x, 0), axis=-1, dtype=x.dtype)


def map_in_use(function: Callable[[Any], Any], number: int, in_use: Array | int) -> Any:
    """Apply a function to 0, 1, .. in a loop over those in use; of the others results are zeros."""
    shapes = jax.eval_shape(function, jnp.int32(0))
    nothing = jax.tree.map(lambda shape: jnp.zeros((number, *shape.shape), shape.dtype), shapes)

    def some(i, results):
        return jax.tree.map(lambda x, new: put(x, i, new), results, function(i))

    return lax.fori_loop(0, in_use, some, nothing)


def blocks_of_columns(x: Shaped[Array, "R K"]) -> Shaped[Array, "B R width"]:
    """Blocks of columns that a CPU works on one after the other, padded with zeros; else one."""
    num_rows, number = x.shape
    width = by_platform(_COLUMNS_AT_ONCE, number)
    padded = jnp.pad(x, ((0, 0), (0, -number % width)))
    return jnp.moveaxis(padded.reshape(num_rows, -1, width), 1, 0)


def sum_of_blocks(
    function: Callable[[Any, Array], Array],
    blocks: Shaped[Array, "B R width"],
    in_use: Int[Array, ""],
    start: Array,
) -> Array:
    """Add to `start` what a function makes of a block's number and columns, `in_use` of them all.

    It is zero for columns that are not in use.
    """
    number, _, width = blocks.shape

    def add(i, total):
        return total + function(i, blocks[i])

    if number == 1:
        return add(0, start)
    return lax.fori_loop(0, lax.div(in_use + (width - 1), width), add, start)


def map_draws(function: Callable[[Any], Any], draws: Any) -> Any:
    """Apply a function to each draw, the leading axis: together on accelerators, else in turn."""
    return jax.vmap(function)(draws) if on_accelerator() else lax.map(function, draws)
