"""Simulation of households given the parameters, and counts of the impossible ones."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.nested.judges import Judge, Simulated
from bnp_models.kernels.nested.parameters import Augmented, Levels, Tables, log_class_weights
from bnp_models.kernels.variates.categorical import cumulative_sum, search_cumulative
from bnp_models.kernels.variates.rng import uniform, words

MAX_SIMULATED = 2**28
"""Households of one size after which a simulation gives up, and says so."""

MAX_COUNTED = 2**30
"""Members of impossible households that are counted; beyond, some are left out, which is said."""

# Households simulated at once: this share of those that are wanted, and at least so many.
_SHARE_AT_ONCE = 0.5

_LEAST_AT_ONCE = 128

# Room for members, for each member that the households simulated at once are expected to have.
_ROOM = 1.15

# Both are multiples of this: loops over other numbers of lanes are several times slower on a CPU.
_LANES = 128


def simulate_households(
    key: Key[Array, ""],
    tables: Tables,
    log_weight: Float[Array, "H F"],
    others: tuple[int, ...],
    lanes: int,
    slots: int,
    household: Levels,
    member: Levels,
    has_head: bool,
) -> Simulated:
    """Households from the untruncated model; with one head among their members, on request.

    Parameters
    ----------
    log_weight
        Log weights of sizes and household classes.
    others
        Members of each size, a head drawn apart not counted.
    lanes, slots
        Most households, and members, at once.
    """
    num_sizes, num_classes = log_weight.shape
    num_nested = tables.nested.shape[1]
    dtype = log_weight.dtype.type
    key_lane, key_slot = jax.random.split(key)

    def draw_members(u, g, kind):
        m, _ = search_cumulative(tables.nested, kind * num_classes + g, u[0])
        rows = (kind * num_classes + g) * num_nested + m
        codes = jnp.zeros((len(member.num_levels), g.size), jnp.int32)
        for j, table, u_j in zip(member.read, tables.member, u[1:], strict=True):
            codes = codes.at[j].set(search_cumulative(table, rows, u_j)[0])
        return m, codes

    num_uniforms = 1 + len(household.read) + (1 + len(member.read)) * has_head
    u = uniform(words(key_lane, (num_uniforms, lanes)), dtype)
    joint = cumulative_sum(jnp.exp(log_weight - jnp.max(log_weight)).reshape(1, -1))
    at, _ = search_cumulative(joint, jnp.zeros(lanes, jnp.int32), u[0])
    size, g = at // num_classes, at % num_classes
    codes = jnp.zeros((len(household.num_levels), lanes), jnp.int32)
    for k, table, u_k in zip(household.read, tables.household, u[1:], strict=False):
        codes = codes.at[k].set(search_cumulative(table, g, u_k)[0])
    head = None
    if has_head:
        head = draw_members(u[1 + len(household.read) :], g, jnp.ones(lanes, jnp.int32))

    mine = jnp.asarray(others, jnp.int32)[size]
    end = jnp.cumsum(mine)
    first = end - mine
    # The batch ends where the largest household might not fit: that says nothing of the one there.
    used = first <= slots - max(others)
    of_slot = jnp.zeros(slots, jnp.int32).at[first].add(1, mode="drop")
    of_slot = jnp.cumsum(of_slot) - 1
    present = jnp.arange(slots) < jnp.max(jnp.where(used, end, 0))
    u = uniform(words(key_slot, (1 + len(member.read), slots)), dtype)
    m, members = draw_members(u, g[of_slot], jnp.zeros(slots, jnp.int32))
    return Simulated(used, size, g, codes, head, first, of_slot, present, m, members)


def add_simulated(
    key: Key[Array, ""],
    augmented: Augmented,
    tables: Tables,
    log_size: Float[Array, "H F"],
    sizes: tuple[int, ...],
    wanted: tuple[int, ...],
    judge: Judge,
    household: Levels,
    member: Levels,
    has_head: bool,
    until: int | None = None,
) -> tuple[Augmented, Int[Array, ""], Int[Array, ""]]:
    """Add simulated impossible households to the counts.

    Parameters
    ----------
    key
        Used once.
    augmented
        Counts so far.
    tables, log_size
        The model; log probability of each size, by class.
    sizes, wanted
        Members of a household of each size, and the sample's households of that size.
    judge
        Whether each of a batch of households is possible.
    has_head
        Whether exactly one member has to be a head: then only such households are simulated.
    until
        Possible households up to the last of which the impossible ones count; as many as the
        sample has by default.

    Returns
    -------
    augmented
        Counts, these households added.
    found, number
        Possible and impossible households simulated; fewer are found than wanted in all only where
        more than `MAX_SIMULATED` were simulated.
    """
    total = sum(wanted) if until is None else until
    others = tuple(size - has_head for size in sizes)
    lanes = _whole(max(_LEAST_AT_ONCE, total * _SHARE_AT_ONCE))
    # The larger a household, the more often it is impossible: room as if by its members.
    likely = np.array(wanted) * np.maximum(others, 1)
    slots = _whole(_ROOM * lanes * np.average(others, weights=likely) + max(others))
    log_weight = log_class_weights(tables, log_size, sizes, has_head)

    def unfinished(carry):
        return (carry[1] < total) & (carry[2] < MAX_SIMULATED)

    def simulate(carry):
        step, found, impossible, counts = carry
        key_draw, key_judge = jax.random.split(jax.random.fold_in(key, step))
        new = simulate_households(
            key_draw, tables, log_weight, others, lanes, slots, household, member, has_head
        )
        good = judge(new, key_judge) & new.used
        before = found + jnp.cumsum(good) - good
        kept = (new.used & ~good & (before < total)).astype(jnp.int32)
        counts = _add_households(counts, kept, new, household)
        if has_head:
            counts = _add_members(counts, kept, new.g, *new.head, member)
        of_slot = jnp.where(new.present, kept[new.household], 0)
        counts = _add_members(counts, of_slot, new.g[new.household], new.m, new.members, member)
        found = jnp.minimum(found + jnp.sum(good), total)
        return step + 1, found, impossible + jnp.sum(kept), counts

    zero = jnp.int32(0)
    start = (zero, zero, zero, augmented)
    _, found, impossible, counts = lax.while_loop(unfinished, simulate, start)
    # All of them have a size, and a level of every variable that is read.
    new = counts.household_levels - augmented.household_levels
    counts = counts._replace(
        households=augmented.households + jnp.sum(new[household.size_rows], axis=0)
    )
    if member.read:
        new = member.block(counts.member_levels - augmented.member_levels, member.read[0])
        counts = counts._replace(members=augmented.members + jnp.sum(new, axis=0))
    return counts, found, impossible


def _whole(number):
    return math.ceil(number / _LANES) * _LANES


def _add_households(counts, kept, new, household):
    rows = jnp.asarray(household.size_rows, jnp.int32)[new.size]
    levels = counts.household_levels.at[rows, new.g].add(kept, mode="promise_in_bounds")
    for k, first in zip(household.read, household.first, strict=True):
        own = first + new.codes[k]
        levels = levels.at[own, new.g].add(kept, mode="promise_in_bounds")
    return counts._replace(household_levels=levels)


def _add_members(counts, kept, g, m, codes, member):
    if not member.read:
        return counts._replace(members=counts.members.at[g, m].add(kept))
    levels = counts.member_levels
    for j, first in zip(member.read, member.first, strict=True):
        levels = levels.at[first + codes[j], g, m].add(kept, mode="promise_in_bounds")
    return counts._replace(member_levels=levels)
