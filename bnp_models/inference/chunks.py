"""Compiled chunks of sweeps: many sweeps between two returns to Python."""

import math
from functools import cache, partial
from typing import Generic, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from bnp_models.inference.settings import Settings, number_kept, scalars_kept
from bnp_models.kernels.numerics.platforms import by_platform
from bnp_models.models.model import Growing, StateT

# The capacity grows when a sweep leaves more mass than this unrepresented; in the first half of
# warm-up, which starts from many components on purpose, when it leaves more than the second.
LEFT_OVER_TOLERANCE = 1e-4

EARLY_LEFT_OVER_TOLERANCE = 1e-3

# Aimed at: the bytes of one chunk's kept draws on the device, and its seconds.
_BUFFER_BYTES = 32 * 2**20

# Scalars that a chunk keeps at the most, on a CPU and on an accelerator, which sweeps faster; and
# arrays.
_MAX_SCALARS, _MAX_ARRAYS = (64, 512), 64

_CHUNK_SECONDS = 0.5


def chain_keys_of(key: jax.Array, num_chains: int) -> jax.Array:
    """Keys of the chains, each of the key and of the number of the chain alone."""
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(num_chains))


def each_chain(function, *trees):
    """Apply a function to every chain, the leading axis of arrays: by vmap, but not to one alone.

    Conditions of one chain then stay branches, where vmap would compute both.
    """
    if jax.tree.leaves(trees)[0].shape[0] > 1:
        return jax.vmap(function)(*trees)
    alone = jax.tree.map(lambda leaf: leaf[0], trees)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(*alone))


@partial(jax.jit, static_argnames="capacity")
def init_chains(model, data, keys, capacity, starts):
    """Initial states of all chains, of the types that a sweep gives back (none are weak)."""
    states = each_chain(lambda key, start: model.init(key, data, capacity, start), keys, starts)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), states)


@partial(jax.jit, static_argnames="capacity")
def grow_chains(model, keys, states, data, capacity):
    """States of all chains with more slots."""
    return each_chain(lambda key, state: model.grow(key, state, data, capacity), keys, states)


def capacity_of_starts(model, settings: Settings, num_records: int) -> int:
    """Slots that hold the starts, and are given back early in the warm-up."""
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


@jax.jit  # so that it is traced once, for its shapes and as the body of chunks
def _sweep_chains(model, data, chain_keys, states, iteration, patience):
    """One sweep of every chain: the states, the largest mass left over, and what can be kept."""

    def one(key, state):
        of_sweep = jax.random.fold_in(key, iteration)
        state, info = model.sweep(of_sweep, state, data, iteration - patience)
        return state, info.left_over, model.keep(state, info)

    states, left_over, kept = each_chain(one, chain_keys, states)
    return states, jnp.max(left_over), kept


def one_draw(model, data, chain_keys, states):
    """All quantities that a model offers to keep of one sweep, by name."""
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
    patience: Int[Array, ""] | int
    """Sweep from which on the model counts."""
    thin: Int[Array, ""] | int = 1
    """Sweeps to a draw."""
    every: Int[Array, ""] | int = 1
    """Draws to one of which arrays are kept."""
    scalars_from: Int[Array, ""] | int | None = None
    """Sweep from which on scalars are kept; None: from the end of the warm-up."""


class Kept(NamedTuple):
    """Trace of a chunk: the quantities that are kept, and the room for them."""

    names: tuple[str, ...]
    """Names of the kept quantities."""
    slots: int
    """Arrays of one quantity that a chunk has room for."""


class Advanced(NamedTuple, Generic[StateT]):
    """Chains after some sweeps."""

    reached: Int[Array, ""]
    """The next sweep."""
    states: StateT
    """The states before it."""
    overflow: Bool[Array, ""]
    """Whether a chain outgrew its capacity."""
    buffers: dict[str, Array]
    """Kept quantities (entries + 1, chains, ...)."""
    last: dict[str, Int[Array, ""]]
    """The entry of each that was written last."""


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
    """Run a stretch of sweeps, or fewer where a chain outgrows its capacity.

    Stretch and schedule are traced: chunks of any length share one compiled program. Buffers hold
    `_MAX_SCALARS` scalars, and as many arrays as there are slots. A sweep that is not kept writes
    to a spare slot behind the buffer.
    """
    start, stop = stretch
    warmup, patience, thin, every, scalars_from = schedule
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
        # Patience has the type that `one_draw` gives it, or the sweep is traced once more.
        states, left_over, drawn = _sweep_chains(
            model, data, chain_keys, states, iteration, jnp.int32(patience)
        )
        states = jax.lax.cond(
            iteration < warmup,
            partial(each_chain, lambda state: model.settle(state, data)),
            lambda states: states,
            states,
        )
        early = iteration < warmup // 2
        tolerance = jnp.where(early, early_tolerance, LEFT_OVER_TOLERANCE)
        # Chains that still shed the components of their starts are not given more slots.
        tolerance = jnp.where(iteration < patience, jnp.inf, tolerance)
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
    """Arrays that one chunk can keep of all chains; what is available has any number of them."""
    size = num_chains * sum(
        math.prod(leaf.shape[1:]) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(available)
        if leaf.ndim > 1
    )
    return int(np.clip(_BUFFER_BYTES // max(size, 1), 1, _MAX_ARRAYS))


def chunk_end(iteration, settings, slots, chunk_sweeps, rate) -> int:
    """Sweep at which the next chunk ends: at the latest with warm-up, or with a buffer full."""
    length = chunk_sweeps or (8 if rate is None else max(1, int(rate * _CHUNK_SECONDS)))
    scalars = scalars_kept(iteration, settings) + by_platform(*_MAX_SCALARS)
    full = settings.scalars_from + scalars * settings.thin
    if iteration < settings.num_warmup:
        return min(iteration + length, full, settings.num_warmup)
    arrays = number_kept(iteration, settings) + slots * settings.parameters_every
    full = min(full, settings.num_warmup + arrays * settings.thin)
    return min(iteration + length, full, settings.num_sweeps)
