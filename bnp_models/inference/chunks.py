"""Compiled chunks of sweeps: many sweeps run before control returns to Python."""

import math
from functools import cache, partial
from typing import Generic, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from bnp_models.inference.run import Settings, number_kept, scalars_kept
from bnp_models.kernels.numerics.platforms import by_platform
from bnp_models.models.model import Growing, StateT

# A sweep that leaves more probability mass without a component than a limit makes the capacity
# grow. There is no limit before `Schedule.growth_start`, while chains lose their many initial
# components; up to half of the warm-up it is the early one, and from then on the other.
LEFT_OVER_TOLERANCE, EARLY_LEFT_OVER_TOLERANCE = 1e-4, 1e-3

# Targets: bytes of the kept draws of a chunk on the device, and seconds of a chunk.
_BUFFER_BYTES = 32 * 2**20

# Largest number of scalars that a chunk keeps, on a CPU and on an accelerator, which makes more
# sweeps in the same time; and largest number of arrays.
_MAX_SCALARS, _MAX_ARRAYS = (64, 512), 64

_CHUNK_SECONDS = 0.5


def chain_keys_of(key: jax.Array, num_chains: int) -> jax.Array:
    """Keys of the chains; each depends only on the key and on the number of its chain."""
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(num_chains))


def each_chain(function, *trees):
    """Apply a function to every chain (the leading axis of arrays), by vmap if there are several.

    A single chain is not put through vmap, because vmap would compute both branches of conditions.
    """
    if jax.tree.leaves(trees)[0].shape[0] > 1:
        return jax.vmap(function)(*trees)
    alone = jax.tree.map(lambda leaf: leaf[0], trees)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(*alone))


@partial(jax.jit, static_argnames="capacity")
def init_chains(model, data, keys, capacity, starts):
    """Initial states of all chains."""
    return of_strong_types(
        each_chain(lambda key, start: model.init(key, data, capacity, start), keys, starts)
    )


def of_strong_types(states):
    """The same states with the types of arrays, and not the weak types of Python's numbers.

    States of other types would make a sweep compile once more.
    """
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), states)


@partial(jax.jit, static_argnames="capacity")
def grow_chains(model, keys, states, data, capacity):
    """States of all chains with more slots."""
    return each_chain(lambda key, state: model.grow(key, state, data, capacity), keys, states)


def capacity_of_starts(model, settings: Settings, num_records: int) -> int:
    """Number of slots for the initial components; they are removed early in the warm-up."""
    capacity = model.capacity
    most = min(max(settings.start_components[: settings.num_chains]), num_records)
    while isinstance(model, Growing) and most > capacity * model.start_share:
        capacity *= 2
    return capacity


@jax.jit
def slots_needed(model, states, data):
    """Slots that the chains need."""
    return jnp.max(each_chain(lambda state: model.slots_needed(state, data), states))


@partial(jax.jit, static_argnames="capacity")
def shrink_chains(model, states, data, capacity):
    """States of all chains with fewer slots."""
    return each_chain(lambda state: model.shrink(state, data, capacity), states)


@jax.jit  # traced only once, both to learn its shapes and as the body of chunks
def _sweep_chains(model, data, chain_keys, states, iteration, growth_start):
    """Sweep every chain once; return states, largest mass left over, and quantities to keep."""

    def one(key, state):
        of_sweep = jax.random.fold_in(key, iteration)
        state, info = model.sweep(of_sweep, state, data, iteration - growth_start)
        return state, info.left_over, model.keep(state, info)

    states, left_over, kept = each_chain(one, chain_keys, states)
    return of_strong_types(states), jnp.max(left_over), kept


def one_draw(model, data, chain_keys, states):
    """All quantities of one sweep that a model can keep, by name."""
    return _sweep_chains(model, data, chain_keys, states, jnp.int32(0), jnp.int32(0))[2]


class Stretch(NamedTuple):
    """Sweeps of a chunk."""

    start: Int[Array, ""] | int
    """The first."""
    stop: Int[Array, ""] | int
    """The one after the last."""


class Schedule(NamedTuple):
    """Sweeps whose draws are kept."""

    warmup: Int[Array, ""] | int
    """Sweeps of the warm-up."""
    growth_start: Int[Array, ""] | int
    """Sweep from which on the capacity may grow."""
    thin: Int[Array, ""] | int = 1
    """Sweeps for each draw."""
    every: Int[Array, ""] | int = 1
    """Draws for each draw whose arrays are kept."""
    scalars_from: Int[Array, ""] | int | None = None
    """Sweep from which on scalars are kept; None: from the end of the warm-up."""


class Kept(NamedTuple):
    """Trace of a chunk: the quantities that are kept, and the room for them."""

    names: tuple[str, ...]
    """Names of the kept quantities."""
    slots: int
    """Number of arrays of one quantity for which a chunk has room."""


class Advanced(NamedTuple, Generic[StateT]):
    """Chains after some sweeps."""

    reached: Int[Array, ""]
    """The next sweep."""
    states: StateT
    """The states before that sweep."""
    overflow: Bool[Array, ""]
    """Whether a chain outgrew its capacity."""
    buffers: dict[str, Array]
    """Kept quantities (entries + 1, chains, ...)."""
    last: dict[str, Int[Array, ""]]
    """Index of the last written entry of each quantity."""


@cache
def advancing(options: tuple[tuple[str, str], ...] = ()):
    """`advance_chains`, compiled with these options of XLA."""
    return jax.jit(advance_chains, static_argnames="kept", compiler_options=dict(options) or None)


def advance_chains(
    model,
    data,
    chain_keys,
    states,
    stretch: Stretch,
    schedule: Schedule,
    kept: Kept,
    early_tolerance=EARLY_LEFT_OVER_TOLERANCE,
) -> Advanced:
    """Run a block of sweeps, or fewer if a chain needs more components than its capacity.

    Block and schedule are traced, so that chunks of any length share one compiled program. The
    buffers have room for `_MAX_SCALARS` scalars, and for as many arrays as there are slots. A sweep
    that is not kept writes to a spare slot behind the buffer.
    """
    start, stop = stretch
    warmup, growth_start, thin, every, scalars_from = schedule
    keep, slots = kept
    shapes = jax.eval_shape(one_draw, model, data, chain_keys, states)
    shapes = {name: shapes[name] for name in keep}
    strides = {name: 1 if s.ndim == 1 else every for name, s in shapes.items()}
    scalars = by_platform(*_MAX_SCALARS)
    sizes = {name: scalars if s.ndim == 1 else slots for name, s in shapes.items()}
    buffers = {name: jnp.zeros((sizes[name] + 1, *s.shape), s.dtype) for name, s in shapes.items()}
    scalars_from = warmup if scalars_from is None else scalars_from
    first = {name: scalars_from if s.ndim == 1 else warmup for name, s in shapes.items()}

    def unfinished(carry):
        iteration, _, overflow, _, _ = carry
        return (iteration < stop) & ~overflow

    def body(carry):
        iteration, states, _, buffers, _ = carry
        buffers, last = dict(buffers), {}
        # As an int32, as in `one_draw`; otherwise the sweep would be traced again.
        states, left_over, drawn = _sweep_chains(
            model, data, chain_keys, states, iteration, jnp.int32(growth_start)
        )
        states = jax.lax.cond(
            iteration < warmup,
            partial(each_chain, lambda state: model.settle(state, data)),
            lambda states: states,
            states,
        )
        early = iteration < warmup // 2
        tolerance = jnp.where(early, early_tolerance, LEFT_OVER_TOLERANCE)
        tolerance = jnp.where(iteration < growth_start, jnp.inf, tolerance)
        overflow = left_over > tolerance
        for name in keep:
            step, done = thin * strides[name], iteration + 1 - first[name]
            number = done // step - 1 - jnp.maximum(start - first[name], 0) // step
            last[name] = jnp.where((done > 0) & (done % step == 0), number, sizes[name])
            buffers[name] = jax.lax.dynamic_update_index_in_dim(
                buffers[name], drawn[name], last[name], axis=0
            )
        return iteration + 1, states, overflow, buffers, last

    spare = {name: jnp.int32(size) for name, size in sizes.items()}
    carry = (jnp.int32(start), states, jnp.bool_(False), buffers, spare)
    return Advanced(*jax.lax.while_loop(unfinished, body, carry))


def slots_of_buffer(available, num_chains: int) -> int:
    """Number of arrays that one chunk can keep of all chains, given the available quantities."""
    size = num_chains * sum(
        math.prod(leaf.shape[1:]) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(available)
        if leaf.ndim > 1
    )
    return int(np.clip(_BUFFER_BYTES // max(size, 1), 1, _MAX_ARRAYS))


def chunk_end(iteration, settings, slots, chunk_sweeps, rate) -> int:
    """Sweep at which the next chunk ends; no later than the warm-up, or than a full buffer."""
    length = chunk_sweeps or (8 if rate is None else max(1, int(rate * _CHUNK_SECONDS)))
    scalars = scalars_kept(iteration, settings) + by_platform(*_MAX_SCALARS)
    full = settings.scalars_from + scalars * settings.thin
    if iteration < settings.num_warmup:
        return min(iteration + length, full, settings.num_warmup)
    arrays = number_kept(iteration, settings) + slots * settings.parameters_every
    full = min(full, settings.num_warmup + arrays * settings.thin)
    return min(iteration + length, full, settings.num_sweeps)
