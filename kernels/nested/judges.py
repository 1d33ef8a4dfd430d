"""Judges: functions that decide, by tables or a predicate, whether households keep the rules.

For rules that are tables, the probability that a household is possible is exact.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.nested.parameters import Variables, joint_codes, times_levels
from bnp_models.kernels.nested.simulation import Simulated
from bnp_models.kernels.variates.rng import uniform, uniform_index, words

Judge = Callable[[Simulated, Key[Array, ""]], Bool[Array, " B"]]
"""Function of a batch of households and a key that returns which of them are possible."""


def judge_by_predicate(
    possible: Callable[[Int[Array, "B q"], Int[Array, "B h p"]], Bool[Array, " B"]],
    sizes: tuple[int, ...],
    wanted: tuple[int, ...],
) -> Judge:
    """Make a judge that calls a predicate, size by size.

    A head that was drawn separately gets a random place among the members.

    Parameters
    ----------
    possible
        Predicate of household codes (B, q) and member codes (B, h, p).
    sizes, wanted
        Number of members of a household of each size, and number of such households that are
        needed, which determines for how many households the predicate is called at once.
    """

    def judge(new: Simulated, key: Key[Array, ""]) -> Bool[Array, " B"]:
        lanes = new.used.size
        place = uniform(words(key, (lanes,)))
        result = jnp.zeros(lanes, bool)
        for i, size in enumerate(sizes):
            at_once = max(32, -(-lanes * wanted[i] // sum(wanted)))
            of_size = jnp.nonzero((new.size == i) & new.used, size=lanes, fill_value=lanes)[0]
            number = jnp.sum((new.size == i) & new.used)
            of_size = jnp.pad(of_size, (0, at_once), constant_values=lanes)

            def ask_some(carry, size=size, of_size=of_size, at_once=at_once):
                start, result = carry
                lane = lax.dynamic_slice_in_dim(of_size, start, at_once)
                result = result.at[lane].set(
                    possible(*_codes_of(new, lane, size, place)), mode="drop"
                )
                return start + at_once, result

            def unfinished(carry, number=number):
                return carry[0] < number

            _, result = lax.while_loop(unfinished, ask_some, (jnp.int32(0), result))
        return result

    return judge


def _codes_of(new, lane, size, place):
    """Codes of households of one size in some lanes: (B, q) and (B, size, p)."""
    at = jnp.arange(size)
    if new.head is None:
        members = new.members[:, jnp.minimum(new.first[lane][:, None] + at, new.m.size - 1)]
        return new.codes[:, lane].T, jnp.moveaxis(members, 0, 2)
    head_at = uniform_index(place[lane], size)[:, None]
    # The values at the head's place, read from another member, are replaced.
    slot = jnp.clip(new.first[lane][:, None] + at - (at > head_at), 0, new.m.size - 1)
    head = new.head[1][:, lane][:, :, None]
    members = jnp.where(at == head_at, head, new.members[:, slot])
    return new.codes[:, lane].T, jnp.moveaxis(members, 0, 2)


class HeadTables(eqx.Module):
    """Rules as tables over the joint levels of a head and of one other member.

    A household is possible if the head is allowed, every other member is allowed with that head,
    and the numbers of other members are within the limits. In joint levels the last variable varies
    fastest.
    """

    head_ok: Bool[Array, "B A"]
    """Whether a head is allowed, by joint level of the household."""
    pair_ok: Bool[Array, "B A R"]
    """Whether another member is allowed with that head, by the member's joint level."""
    head_index: Int[Array, " R"]
    """Head of each joint level; 0 if there is none, or if no member is the head."""
    kind: Int[Array, "B_k R"]
    """Kind of each joint level of another member; B_k is B, or 1 if it is the same for all b."""
    limited: Bool[Array, "C kinds"]
    """Kinds whose numbers are limited together, one row for each limit."""
    at_most: Int[Array, " C"]
    """Largest number of other members of those kinds."""
    apart: Bool[Array, "2 D kinds"]
    """Pairs of sets of kinds that cannot be in one household."""
    compositions: "Compositions | None"
    """Compositions that the limits and the forbidden pairs allow; None if there are too many."""


class Compositions(eqx.Module):
    """Compositions of a household: allowed numbers of other members of each kind.

    They include the levels of each kind that fit each head.
    """

    size: Int[Array, " C"]
    """Index of the size of each composition."""
    counts: Int[Array, "C kinds"]
    """Other members of each kind."""
    ways: Float[Array, " C"]
    """Number of orders of the members, m! / prod n_k!."""
    places: Int[Array, " H"]
    """Number of places of the head among the members, by size."""
    most: int = eqx.field(static=True)
    """The largest number of other members."""
    levels: tuple[Int[Array, " R_k"], ...]
    """Joint levels of each kind: those that have the kind for some level of the household."""
    fits: tuple[Float[Array, "D_k R_k"], ...]
    """1 if such a level has the kind and fits; one row for each distinct set."""
    row: Int[Array, "kinds B A"]
    """Row of `fits` of each joint level of a household and head, by kind."""


def judge_by_tables(rules: HeadTables, household: Variables, member: Variables) -> Judge:
    """Make a judge that looks up households of all sizes in tables.

    Parameters
    ----------
    rules
        Tables of the rules.
    household, member
        Numbers of levels of household and member variables, and which of them rules use."""

    def judge(new: Simulated, key: Key[Array, ""]) -> Bool[Array, " B"]:
        del key
        lanes = new.used.size
        b, a = (
            joint_codes(new.codes, household.num_levels, household.read),
            jnp.zeros(lanes, jnp.int32),
        )
        if new.head is not None:
            a = rules.head_index[joint_codes(new.head[1], member.num_levels, member.read)]
        r = joint_codes(new.members, member.num_levels, member.read)

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


@jax.named_scope("log_possible")
def log_possible(
    log_pi: Float[Array, " F"],
    log_omega: Float[Array, "F S"],
    log_lambda: Float[Array, "Q F"],
    log_phi: Float[Array, "R G S"],
    rules: HeadTables,
    household: Variables,
    member: Variables,
    is_head: Bool[Array, " levels"] | None,
) -> Float[Array, ""]:
    """Exact log P(possible) of a household, summed over sizes and classes.

    Parameters
    ----------
    log_pi, log_omega, log_lambda, log_phi
        Log weights of the classes, and level probabilities.
    rules
        Rules as tables, with their compositions.
    household, member
        Numbers of levels of household and member variables, and which of them rules read.
    is_head
        Whether each joint level of a member means head; None if no member is the head.

    Raises
    ------
    ValueError
        If the tables have no compositions.
    """
    joint = joint_probability(log_omega, log_phi, member)
    of_household = household_probability(log_lambda, household)
    log_size = log_pi + log_lambda[household.size_rows]
    return log_possible_of(log_size, joint, of_household, rules, is_head)


def log_possible_of(
    log_size: Float[Array, "H F"],
    joint: Float[Array, "R F"],
    of_household: Float[Array, "B F"],
    rules: HeadTables,
    is_head: Bool[Array, " levels"] | None,
) -> Float[Array, ""]:
    """Log P(possible) of a household, given the probabilities that rules read.

    Its derivatives by `joint` and `of_household` give expected numbers of members and of households
    with these levels.

    Parameters
    ----------
    log_size
        Log weights of classes and sizes.
    joint, of_household
        As of `joint_probability` and `household_probability`.
    rules, is_head
        As for `log_possible`.

    Notes
    -----
    Given the class, the household's level b and the head a, other members are independent. With w_k
    the probability that a member has kind k and fits the head, m members are allowed with
    probability sum m! prod w_k^{n_k} / n_k!, where the sum is over the allowed compositions.
    """
    allowed = rules.compositions
    if allowed is None:
        raise ValueError("log_possible: these rules have too many compositions for a closed form")
    of_head = _head_probability(joint, rules, is_head)
    good = rules.head_ok[:, :, None] * of_head * of_household[:, None]
    of_size = jnp.exp(log_size)
    if is_head is not None:
        of_size = of_size * allowed.places[:, None]
    total = _sum_of_compositions(allowed, joint, of_size, good.shape)
    return jnp.log(jnp.sum(good * total))


def household_probability(
    log_lambda: Float[Array, "Q F"], household: Variables
) -> Float[Array, "B F"]:
    """Probability of each joint level of the household variables that rules use, by class."""
    one = jnp.ones_like(log_lambda[:1])
    return times_levels(one, jnp.exp(log_lambda), household.num_levels, household.read)


def _head_probability(joint, rules, is_head):
    """(A, F) probability of each head, by class; 1 if no member is the head."""
    if is_head is None:
        return jnp.ones((1, joint.shape[1]), joint.dtype)
    empty = jnp.zeros((rules.head_ok.shape[1], joint.shape[1]), joint.dtype)
    return empty.at[rules.head_index].add(jnp.where(is_head[:, None], joint, 0))


def _sum_of_compositions(allowed: Compositions, joint, of_size, shape):
    """Probability of a size and of allowed other members, given household, head and class."""
    fits = jnp.stack([
        jnp.matmul(matrix, joint[levels], precision=lax.Precision.HIGHEST)[row]
        for levels, matrix, row in zip(allowed.levels, allowed.fits, allowed.row, strict=True)
    ])  # fmt: skip
    powers = [jnp.ones_like(fits)]
    for _ in range(allowed.most):
        powers.append(powers[-1] * fits)
    power = jnp.stack(powers)

    def add(c, total):
        product = jnp.broadcast_to(allowed.ways[c] * of_size[allowed.size[c]], total.shape)
        for k in range(len(fits)):
            product = product * power[allowed.counts[c, k], k]
        return total + product

    return lax.fori_loop(0, allowed.size.size, add, jnp.zeros(shape, joint.dtype))


def joint_probability(
    log_omega: Float[Array, "F S"], log_phi: Float[Array, "R G S"], member: Variables
) -> Float[Array, "R F"]:
    """Probability of each joint level of the member variables that rules use, by household class.

    The sum over member classes is a matrix product of two tables, whose sizes are as equal as the
    order of variables allows.
    """
    sizes = [member.num_levels[j] for j in member.read]
    cut = min(range(len(sizes) + 1), key=lambda i: math.prod(sizes[:i]) + math.prod(sizes[i:]))
    omega, phi = jnp.exp(log_omega)[None], jnp.exp(log_phi)
    first = times_levels(omega, phi, member.num_levels, member.read[:cut])
    second = times_levels(jnp.ones_like(omega), phi, member.num_levels, member.read[cut:])
    joint = jnp.einsum("afs,bfs->fab", first, second, precision=lax.Precision.HIGHEST)
    return joint.reshape(log_omega.shape[0], -1).T
