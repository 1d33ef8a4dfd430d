"""How programs are traced: for which platform, lanes of `jax.vmap`, sizes and precision.

The form of a kernel for CPUs and that for accelerators draw from the same distribution, but not the
same bits.

A CPU is fast if its data fit into its caches and results of loops are stored. An accelerator is
fast if there are few launches, each of which works on all data at once. The form is chosen when a
program is traced.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap, sequential_vmap
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array, Bool, Int, Shaped

T = TypeVar("T")

# Number of columns in a block; a CPU computes only the blocks in use.
_COLUMNS_AT_ONCE = 16

_forced: bool | None = None


def on_accelerator() -> bool:
    """Whether programs are traced for an accelerator (JAX's default backend is not a CPU)."""
    return jax.default_backend() != "cpu" if _forced is None else _forced


@contextmanager
def forms_of(accelerator: bool) -> Iterator[None]:
    """Context in which programs are traced for an accelerator, or a CPU, on any machine.

    It is for tests and for compiling a form. Programs that were traced before or inside it are
    removed from memory.
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
    """Return that one of two sizes or functions that is for the platform."""
    return accelerator if on_accelerator() else cpu


def short_loop(number: int, body: Callable[[int, T], T], start: T) -> T:
    """Repeat `body(i, carry)` a few times: in a loop on CPUs, unrolled on accelerators.

    A CPU would compute unrolled steps again for every use of their result. On an accelerator each
    step of a loop needs one or several launches.
    """
    if not on_accelerator():
        return lax.fori_loop(0, number, body, start)
    for i in range(number):
        start = body(i, start)
    return start


def put(x: Array, i: Int[Array, ""] | int, new: Array) -> Array:
    """Replace an entry along the first axis, within a loop.

    On an accelerator, the host would have to order a copy of an entry at the position of the loop's
    counter. The whole array is written instead.
    """
    if not on_accelerator():
        return lax.dynamic_update_index_in_dim(x, new, i, 0)
    here = jnp.arange(len(x)) == i
    return jnp.where(here.reshape(-1, *[1] * (x.ndim - 1)), new, x)


def record_at(x: Shaped[Array, "... n"], i: Int[Array, ""]) -> Shaped[Array, "..."]:
    """Entries of a record that is chosen at run time; records are along the last axis.

    On accelerators it is a sum in which all other records are zero; otherwise several devices would
    send each other all records.
    """
    if not on_accelerator():
        return x[..., i]
    return jnp.sum(jnp.where(jnp.arange(x.shape[-1]) == i, x, 0), axis=-1, dtype=x.dtype)


def map_in_use(function: Callable[[Any], Any], number: int, in_use: Array | int) -> Any:
    """Apply a function to 0, 1, .. in a loop over those in use; the other results are zeros."""
    shapes = jax.eval_shape(function, jnp.int32(0))
    nothing = jax.tree.map(lambda shape: jnp.zeros((number, *shape.shape), shape.dtype), shapes)

    def some(i, results):
        return jax.tree.map(lambda x, new: put(x, i, new), results, function(i))

    return lax.fori_loop(0, in_use, some, nothing)


def blocks_of_columns(x: Shaped[Array, "R K"]) -> Shaped[Array, "B R width"]:
    """Blocks of columns for a CPU, padded with zeros; one block on other platforms."""
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
    """Add to `start` the results of a function of each block's number and columns.

    `in_use` is the number of columns in use. The result of the function is zero for other columns.
    """
    number, _, width = blocks.shape

    def add(i, total):
        return total + function(i, blocks[i])

    if number == 1:
        return add(0, start)
    return lax.fori_loop(0, lax.div(in_use + (width - 1), width), add, start)


def map_draws(function: Callable[[Any], Any], draws: Any) -> Any:
    """Apply a function to each draw (the leading axis), together on accelerators, else in turn."""
    return jax.vmap(function)(draws) if on_accelerator() else lax.map(function, draws)


@custom_vmap
def most_of_lanes(x: Int[Array, ""] | Bool[Array, ""]) -> Int[Array, ""] | Bool[Array, ""]:
    """Largest value of `x` over all lanes of `jax.vmap`, returned to each; outside vmap, `x`.

    A loop whose condition differs between lanes (batch elements) continues until the last lane is
    done. In each iteration JAX selects, for every array of the loop, between lanes that continue
    and lanes that have stopped, which costs as much as copying all arrays. If further iterations
    change nothing for a lane that is done, a condition that is the same for all lanes avoids this
    cost.
    """
    return x


@most_of_lanes.def_vmap
def _(size, batched, x):
    return jnp.max(x, axis=0), False


def in_turn(function):
    """Wrap a function of arrays so that the lanes of `jax.vmap` call it one after the other.

    Several lanes together are rounded differently from one alone. With this wrapper, a decision by
    sums of floats does not depend on the number of lanes on a device. On accelerators the lanes run
    together, because one after the other would need 25 times as many launches.
    """

    @wraps(function)
    def call(*args):
        if on_accelerator():
            return function(*args)
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)

        # The function is traced already: values from its closure have become arguments.
        @sequential_vmap
        def run(consts, leaves):
            return jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(*leaves)

        leaves = run(closed.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), leaves)

    return call


def coarse_size(number: int, multiple: int = 1) -> int:
    """Smallest of a few sizes that is at least `number`; there are eight sizes in each doubling.

    Data of similar sizes are padded to the same size and then share compiled programs. The padding
    is at most an eighth of the data, or less than `multiple`, which divides the size if it is a
    power of two.
    """
    step = max(multiple, 2 ** max(0, max(number - 1, 1).bit_length() - 4))
    return -(-max(number, 1) // step) * step


try:
    from jax import enable_x64
except ImportError:
    from jax.experimental import enable_x64  # type: ignore[attr-defined,no-redef]

RECORDS = 2**15
"""Number of records from which on their log density is computed in double precision."""


def double_precision() -> AbstractContextManager:
    """Context in which JAX computes in float64, also in programs that are traced in it.

    It is for small sums within a program in single precision. A log density of n records has about
    n nats, and a difference of a tenth of a nat can decide whether a proposal is accepted. Sums
    over levels and components cost little compared with the work for each record.
    """
    return enable_x64(True)


def in_double(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of trees of arrays in double precision; the result has their precision.

    Values from the closure of the function do not change.
    """
    floats = [x.dtype for x in jax.tree.leaves(args) if jnp.issubdtype(x.dtype, jnp.floating)]
    with double_precision():
        result = function(*_with_floats(args, jnp.float64))
        return _with_floats(result, jnp.result_type(*floats))


def _with_floats(tree, dtype):
    """Tree with its floats converted to this type."""
    return jax.tree.map(
        lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
    )
