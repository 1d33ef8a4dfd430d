"""Judges: whether simulated households keep the rules, by tables or by a predicate."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.nested.parameters import Levels
from bnp_models.kernels.variates.rng import uniform, words


class Simulated(NamedTuple):
    """Households of several sizes, those of a batch one after the other."""

    used: Bool[Array, " B"]
    """Whether the household is one; the last of a batch may have no room for its members."""
    size: Int[Array, " B"]
    """Which of the sizes it has."""
    g: Int[Array, " B"]
    """Household class."""
    codes: Int[Array, "q B"]
    """Level codes of the household; 0 for variables that are not drawn."""
    head: tuple[Int[Array, " B"], Int[Array, "p B"]] | None
    """Member class and level codes of the head, where a head is drawn apart."""
    first: Int[Array, " B"]
    """Where its other members begin."""
    household: Int[Array, " N"]
    """Household of each other member."""
    present: Bool[Array, " N"]
    """Whether that is one."""
    m: Int[Array, " N"]
    """Member classes."""
    members: Int[Array, "p N"]
    """Level codes of the other members."""


Judge = Callable[[Simulated, Key[Array, ""]], Bool[Array, " B"]]


def judge_by_predicate(
    possible: Callable[[Int[Array, "B q"], Int[Array, "B h p"]], Bool[Array, " B"]],
    sizes: tuple[int, ...],
    wanted: tuple[int, ...],
) -> Judge:
    """Ask a predicate of household codes (B, q) and member codes (B, h, p), size by size.

    A head drawn apart takes a place among the members at random.
    """

    def judge(new: Simulated, key: Key[Array, ""]) -> Bool[Array, " B"]:
        lanes = new.used.size
        place = uniform(words(key, (lanes,)))
        result = jnp.zeros(lanes, bool)
        for i, size in enumerate(sizes):
            at_once = max(32, -(-lanes * wanted[i] // sum(wanted)))
            mine = jnp.nonzero((new.size == i) & new.used, size=lanes, fill_value=lanes)[0]
            number = jnp.sum((new.size == i) & new.used)
            mine = jnp.pad(mine, (0, at_once), constant_values=lanes)

            def some(carry, size=size, mine=mine, at_once=at_once):
                start, result = carry
                lane = lax.dynamic_slice_in_dim(mine, start, at_once)
                result = result.at[lane].set(
                    possible(*_codes_of(new, lane, size, place)), mode="drop"
                )
                return start + at_once, result

            start = (jnp.int32(0), result)
            _, result = lax.while_loop(lambda c, n=number: c[0] < n, some, start)
        return result

    return judge


def _codes_of(new, lane, size, place):
    """Codes of some households of one size: (B, q) and (B, size, p)."""
    at = jnp.arange(size)
    if new.head is None:
        members = new.members[:, jnp.minimum(new.first[lane][:, None] + at, new.m.size - 1)]
        return new.codes[:, lane].T, jnp.moveaxis(members, 0, 2)
    head_at = jnp.minimum((place[lane] * size).astype(jnp.int32), size - 1)[:, None]
    # The head's own slot is read of another member, and replaced.
    slot = jnp.clip(new.first[lane][:, None] + at - (at > head_at), 0, new.m.size - 1)
    head = new.head[1][:, lane][:, :, None]
    members = jnp.where(at == head_at, head, new.members[:, slot])
    return new.codes[:, lane].T, jnp.moveaxis(members, 0, 2)


class HeadTables(eqx.Module):
    """Rules as tables over the joint levels of a head and of one other member.

    A household is possible if the head is, every other member is beside that head, and the limits
    on numbers of other members hold. Joint levels count the last variable fastest.
    """

    head_ok: Bool[Array, "B A"]
    """By joint level of the household, and head."""
    pair_ok: Bool[Array, "B A R"]
    """By joint level of another member too."""
    head_index: Int[Array, " R"]
    """Head of each joint level; 0 where there is none, or where no member is the head."""
    kind: Int[Array, "B_k R"]
    """Kind of each joint level of another member, B_k = B; or 1 where it is the same for all b."""
    limited: Bool[Array, "C kinds"]
    """Kinds of other members of whom there are at most so many."""
    at_most: Int[Array, " C"]
    """How many."""
    apart: Bool[Array, "2 D kinds"]
    """Kinds who cannot live together: one of the first, another of the second."""
    compositions: "Compositions | None"
    """Other members that a household may have, by kind: what the limits and the pairs apart tell of
    them; None where they are too many to be gone through."""


class Compositions(eqx.Module):
    """Numbers of other members of each kind that are allowed, and who of a kind fits which head."""

    size: Int[Array, " C"]
    """Which of the sizes each one is of."""
    counts: Int[Array, "C kinds"]
    """Other members of each kind."""
    ways: Float[Array, " C"]
    """Orders of the kinds among them."""
    places: Int[Array, " H"]
    """Places that a head may have among the members of each size, if it is one of them."""
    most: int = eqx.field(static=True)
    """The largest number of other members."""
    levels: tuple[Int[Array, " R_k"], ...]
    """Of each kind, its joint levels; those that are of it for some b, where b matters."""
    fits: tuple[Float[Array, "D_k R_k"], ...]
    """Which of them are of the kind and beside a head, once for all heads that have the same."""
    row: Int[Array, "kinds B A"]
    """Which of these rows each joint level of a household and head has."""


def _joint_level(codes, levels):
    joint = jnp.zeros(codes.shape[1:], jnp.int32)
    for j in levels.read:
        joint = joint * levels.num_levels[j] + codes[j]
    return joint


def judge_by_tables(rules: HeadTables, household: Levels, member: Levels) -> Judge:
    """Look households of all sizes up in tables."""

    def judge(new: Simulated, key: Key[Array, ""]) -> Bool[Array, " B"]:
        del key
        lanes = new.used.size
        b, a = _joint_level(new.codes, household), jnp.zeros(lanes, jnp.int32)
        if new.head is not None:
            a = rules.head_index[_joint_level(new.head[1], member)]
        r = _joint_level(new.members, member)

        def per_household(mask):
            mask = (mask & new.present).astype(jnp.int32)
            return jnp.zeros(lanes, jnp.int32).at[new.household].add(mask)

        of_household = b[new.household]
        beside = rules.pair_ok[of_household, a[new.household], r]
        kind = rules.kind[of_household if len(rules.kind) > 1 else 0, r]
        good = rules.head_ok[b, a] & (per_household(~beside) == 0)
        for mask, most in zip(rules.limited, rules.at_most, strict=True):
            good = good & (per_household(mask[kind]) <= most)
        for one, another in jnp.swapaxes(rules.apart, 0, 1):
            good = good & ((per_household(one[kind]) == 0) | (per_household(another[kind]) == 0))
        return good

    return judge
