"""Counts of the impossible households of a draw, by which the truncated model is augmented.

Impossible households up to the last possible one are simulated. Households with a number of heads
other than one are drawn as counts, without simulation.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.nested.judges import Judge
from bnp_models.kernels.nested.parameters import (
    Tables,
    Variables,
    log_class_weight,
    log_class_weights,
)
from bnp_models.kernels.nested.simulation import DrawnVariables, simulate_households
from bnp_models.kernels.variates.discrete import poisson, split_counts
from bnp_models.kernels.variates.gamma import loggamma_from_one
from bnp_models.kernels.variates.rng import Keys

MAX_SIMULATED = 2**28
"""Number of impossible households at which a simulation stops and reports that it is incomplete."""

MAX_COUNTED = 2**30
"""Largest number of members of impossible households; a draw that exceeds it is marked."""

# Share of the wanted households that are simulated at once, and least number of them.
_SHARE_AT_ONCE = 0.5

_LEAST_AT_ONCE = 128

# Places for members, divided by the expected number of members of households simulated at once.
_ROOM = 1.15

# The numbers of households and of places are multiples of this: loops over other numbers are
# several times slower on a CPU.
_LANES = 128


class Augmented(NamedTuple):
    """Counts of households and members by class, either of the sample or of impossible ones."""

    households: Int[Array, " F"]
    """Households by class."""
    household_levels: Int[Array, "Q F"]
    """Households by level of the variables that rules use, and by class."""
    members: Int[Array, "F S"]
    """Members by class."""
    member_levels: Int[Array, "R F S"]
    """Members by level of the variables that rules use, and by class."""
    unread: Int[Array, "2 F S"]
    """Members of whom only their kind is known: other member, or head."""

    @classmethod
    def none(cls, shape: tuple[int, int], household: Variables, member: Variables) -> "Augmented":
        """Counts of no household, given the numbers of classes (F, S)."""
        num_classes = shape[0]

        def zeros(*shape):
            return jnp.zeros(shape, jnp.int32)

        return cls(
            zeros(num_classes), zeros(sum(household.num_levels), num_classes), zeros(*shape),
            zeros(sum(member.num_levels), *shape), zeros(2, *shape),
        )  # fmt: skip


class SampleSizes(NamedTuple):
    """Sizes of the households of a sample."""

    members: tuple[int, ...]
    """Members of a household of each size."""
    households: tuple[int, ...]
    """Households of that size in the sample."""


@jax.named_scope("add_simulated")
def add_simulated(
    key: Key[Array, ""],
    augmented: Augmented,
    tables: Tables,
    log_size: Float[Array, "H F"],
    sizes: SampleSizes,
    judge: Judge,
    drawn: DrawnVariables,
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
        Parameters, as cumulative weights; log probability of each size, by class.
    sizes
        Sizes of the sample's households.
    judge
        Function that returns which households of a batch are possible.
    drawn
        Variables that are simulated; with a head, only households with exactly one head.
    until
        Number of possible households. Impossible ones are counted up to the last of these. By
        default the number of the sample's households.

    Returns
    -------
    augmented
        Counts with these households added.
    num_possible, num_impossible
        Numbers of possible and impossible households. There are fewer possible ones than `until`
        only if `MAX_SIMULATED` impossible ones, or half of `MAX_COUNTED` members, were reached.
    """
    household, member, has_head = drawn
    total = sum(sizes.households) if until is None else until
    others = tuple(size - has_head for size in sizes.members)
    lanes, slots = _batch_size(total, sizes.households, others)
    log_weight = log_class_weights(tables, log_size, sizes.members, has_head)

    # Their members are counted in int32, together with the sample's and those of `add_other_heads`.
    most = min(MAX_SIMULATED, MAX_COUNTED // (2 * max(sizes.members)))

    def unfinished(carry):
        return (carry[1] < total) & (carry[2] < most)

    def simulate(carry):
        step, num_possible, num_impossible, counts = carry
        key_draw, key_judge = Keys(jax.random.fold_in(key, step))
        new = simulate_households(key_draw, tables, log_weight, others, lanes, slots, drawn)
        good = judge(new, key_judge) & new.used
        before = num_possible + jnp.cumsum(good) - good
        kept = (new.used & ~good & (before < total)).astype(jnp.int32)
        counts = _add_batch(counts, kept, new, household, member)
        num_possible = jnp.minimum(num_possible + jnp.sum(good), total)
        return step + 1, num_possible, num_impossible + jnp.sum(kept), counts

    zero = jnp.int32(0)
    start = (zero, zero, zero, augmented)
    _, num_possible, num_impossible, counts = lax.while_loop(unfinished, simulate, start)
    return _add_totals(counts, augmented, household, member), num_possible, num_impossible


def _batch_size(total, wanted, others):
    """Numbers of households, and of places for other members, that are simulated at once."""
    lanes = _whole(max(_LEAST_AT_ONCE, total * _SHARE_AT_ONCE))
    # Larger households are more often impossible, and therefore simulated more often.
    likely = np.array(wanted) * np.maximum(others, 1)
    return lanes, _whole(_ROOM * lanes * np.average(others, weights=likely) + max(others))


def _whole(number):
    """Next multiple of `_LANES`."""
    return math.ceil(number / _LANES) * _LANES


def _add_batch(counts, kept, new, household, member):
    """Add the households of a batch that are kept, and their members, to the counts by level."""
    counts = _add_households(counts, kept, new, household)
    if new.head is not None:
        counts = _add_members(counts, kept, new.g, *new.head, member)
    of_slot = jnp.where(new.present, kept[new.household], 0)
    return _add_members(counts, of_slot, new.g[new.household], new.m, new.members, member)


def _add_totals(counts, before, household, member):
    """Add up counts by class from counts by size and by level."""
    added = counts.household_levels - before.household_levels
    counts = counts._replace(
        households=before.households + jnp.sum(added[household.size_rows], axis=0)
    )
    if member.read:
        added = member.block(counts.member_levels - before.member_levels, member.read[0])
        counts = counts._replace(members=before.members + jnp.sum(added, axis=0))
    return counts


def _add_households(counts, kept, new, household):
    """Add households to the counts by level."""
    rows = jnp.asarray(household.size_rows, jnp.int32)[new.size]
    levels = counts.household_levels.at[rows, new.g].add(kept, mode="promise_in_bounds")
    for k, first in zip(household.read, household.first, strict=True):
        row = first + new.codes[k]
        levels = levels.at[row, new.g].add(kept, mode="promise_in_bounds")
    return counts._replace(household_levels=levels)


def _add_members(counts, kept, g, m, codes, member):
    """Add members to the counts by level, or by class if no rule uses their variables."""
    if not member.read:
        return counts._replace(members=counts.members.at[g, m].add(kept))
    levels = counts.member_levels
    for j, first in zip(member.read, member.first, strict=True):
        levels = levels.at[first + codes[j], g, m].add(kept, mode="promise_in_bounds")
    return counts._replace(member_levels=levels)


@jax.named_scope("add_other_heads")
def add_other_heads(
    key: Key[Array, ""],
    augmented: Augmented,
    tables: Tables,
    log_size: Float[Array, "H F"],
    sizes: tuple[int, ...],
    with_one: Int[Array, ""],
    household: Variables,
) -> tuple[Augmented, Int[Array, ""]]:
    """Draw households without a head or with several, given the number with one, and add them.

    Parameters
    ----------
    key
        Used once.
    augmented, tables, log_size
        As for `add_simulated`.
    sizes
        Number of members of a household of each size.
    with_one
        Number of households with exactly one head up to the last possible one.
    household
        Household variables.

    Returns
    -------
    augmented
        Counts with these households added.
    number
        Number of added households; -1 if there are too many to be counted, and none is added.
    """
    key_g, key_count, key_nested = Keys(key, 3)
    slices = [(i, t) for i, size in enumerate(sizes) for t in range(size + 1) if t != 1]
    of_size, heads = np.array(slices, int).reshape(-1, 2).T
    log_slice = jnp.stack([log_class_weight(tables, log_size[i], sizes[i], t) for i, t in slices])
    log_one = jax.nn.logsumexp(log_class_weights(tables, log_size, sizes, True))
    log_g = loggamma_from_one(key_g, with_one.astype(log_one.dtype)) - log_one
    counts = poisson(key_count, jnp.exp(log_g + log_slice))
    # Either all households are added or none: counts that exceed int32 are not used, and the result
    # says so.
    members = np.array(sizes)[of_size]
    total = jnp.sum(counts.astype(log_one.dtype) * members[:, None])
    failed = jnp.any(counts < 0) | (total > MAX_COUNTED)
    counts = jnp.where(failed, 0, counts)
    by_kind = np.stack([members - heads, heads])
    of_kind = jnp.sum(counts * jnp.asarray(by_kind, jnp.int32)[:, :, None], axis=1)
    nested = split_counts(key_nested, of_kind, tables.nested_weight)
    number = jnp.zeros((len(sizes), counts.shape[1]), jnp.int32).at[of_size].add(counts)
    levels = augmented.household_levels.at[household.size_rows].add(number)
    augmented = augmented._replace(
        households=augmented.households + jnp.sum(counts, axis=0),
        household_levels=levels,
        members=augmented.members + jnp.sum(nested, axis=0),
        unread=augmented.unread + nested,
    )
    return augmented, jnp.where(failed, -1, jnp.sum(number))
