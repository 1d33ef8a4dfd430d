"""Compiled chunks of sweeps: many sweeps run before control returns to Python.

For a model whose number of components is fixed (it is not `Growing`), the mass left over is 0.
`overflow` is then always False, and the tolerances, `grow_chains`, `slots_needed` and
`shrink_chains` have no effect or are not called.
"""

from functools import cache, partial
from typing import Generic, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from bnp_models.inference.trace import Kept, Schedule, Settings, empty_buffers, write
from bnp_models.models.model import Growing, StateT

# Limits of the probability mass that a sweep may leave without a component. If it leaves more, the
# capacity grows. The first limit holds from half of the warm-up on, the second (early) limit
# before. Before `Schedule.growth_start`, while chains lose their many initial components, there is
# none.
LEFT_OVER_TOLERANCE, EARLY_LEFT_OVER_TOLERANCE = 1e-4, 1e-3


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
    """States with the types of arrays in place of the weak types of Python's numbers.

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
    """The first sweep."""
    stop: Int[Array, ""] | int
    """The sweep after the last one."""


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

    Block and schedule are traced, so that chunks of any length share one compiled program.
    """
    start, stop = stretch
    warmup, growth_start, *_ = schedule
    shapes = jax.eval_shape(one_draw, model, data, chain_keys, states)
    buffers = empty_buffers({name: shapes[name] for name in kept.names}, kept.slots)

    def unfinished(carry):
        iteration, _, overflow, _, _ = carry
        return (iteration < stop) & ~overflow

    def body(carry):
        iteration, states, _, buffers, _ = carry
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
        buffers, last = write(buffers, drawn, start, iteration, schedule)
        return iteration + 1, states, overflow, buffers, last

    spare = {name: jnp.int32(len(buffer) - 1) for name, buffer in buffers.items()}
    carry = (jnp.int32(start), states, jnp.bool_(False), buffers, spare)
    return Advanced(*jax.lax.while_loop(unfinished, body, carry))
