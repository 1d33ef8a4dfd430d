"""Impossible households by simulation, and in closed form where a household needs exactly one head.

Given the parameters, households are simulated, their sizes too, until as many possible ones have
been seen as the sample has; the impossible ones before the last of them are an exact draw of the
augmented sample under the prior 1 / (n + n_0) (Manrique-Vallier & Reiter 2014,
doi:10.1080/10618600.2013.844700). Hu, Reiter & Wang (2018, appendix B) simulate each size by
itself, until the sample's number of that size, and count the impossible households' sizes among
those of the joint model: the two steps are conditionals of no joint distribution, unless there is
one size only. Only variables that rules read are drawn: the others integrate out of the likelihood.

Where the rules say that exactly one member is of a kind (the head), households with none or several
are never simulated. They are other slices of the same negative multinomial: given the T households
with one head, a gamma variate g ~ Ga(T, 1) and Poisson counts of g times their odds, their members
shared out among the classes in one go.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.assignment import cumulative_sum, search_cumulative
from bnp_models.kernels.counting import first_rows
from bnp_models.kernels.discrete import poisson, split_counts
from bnp_models.kernels.logspace import loggamma_from_one
from bnp_models.kernels.rng import uniform, words

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


class Levels(eqx.Module):
    """Variables and their levels, as rows of one array."""

    num_levels: tuple[int, ...] = eqx.field(static=True)
    """Levels of each variable."""
    read: tuple[int, ...] = eqx.field(static=True)
    """The variables that rules read."""

    @property
    def first(self) -> tuple[int, ...]:
        """Row of the first level of each variable that rules read."""
        rows = first_rows(self.num_levels)
        return tuple(int(rows[j]) for j in self.read)

    @property
    def size_rows(self) -> np.ndarray:
        """Rows of the last variable, which of household variables is the size."""
        return first_rows(self.num_levels)[-1] + np.arange(self.num_levels[-1])

    def block(self, levels: Float[Array, "R ..."], variable: int) -> Float[Array, "L ..."]:
        """The rows of one variable."""
        first = first_rows(self.num_levels)[variable]
        return levels[first : first + self.num_levels[variable]]


class Head(NamedTuple):
    """The members of whom every household has exactly one."""

    variable: int
    """The member variable that tells."""
    levels: tuple[bool, ...]
    """Of its levels, those of a head."""


class Augmented(NamedTuple):
    """Counts over the impossible households of a draw."""

    households: Int[Array, " F"]
    """By class."""
    household_levels: Int[Array, "Q F"]
    """By level of the household variables that rules read, and class."""
    members: Int[Array, "F S"]
    """Members by class."""
    member_levels: Int[Array, "R F S"]
    """Members by level of the variables that rules read, and class."""
    unread: Int[Array, "2 F S"]
    """Members of whom no more is known than that they are no head, or a head."""

    @classmethod
    def none(cls, shape: tuple[int, int], household: Levels, member: Levels) -> "Augmented":
        """No household: shape is (F, S)."""
        num_classes = shape[0]

        def zeros(*shape):
            return jnp.zeros(shape, jnp.int32)

        return cls(
            zeros(num_classes), zeros(sum(household.num_levels), num_classes), zeros(*shape),
            zeros(sum(member.num_levels), *shape), zeros(2, *shape),
        )  # fmt: skip


class Tables(NamedTuple):
    """Cumulative weights from which households of any size are drawn."""

    log_household: Float[Array, " F"]
    """Log weights of the household classes."""
    log_kind: Float[Array, "T F"]
    """Log probability that a member is no head, and that it is one; without a head, that it is."""
    nested_weight: Float[Array, "T F S"]
    """Weights of the member classes of those who are no head, and of heads."""
    nested: Float[Array, "TF S"]
    """The same, cumulative."""
    household: tuple[Float[Array, "F L"], ...]
    """Levels of each household variable that rules read."""
    member: tuple[Float[Array, "C L"], ...]
    """Levels of each member variable that rules read, by (kind, household class, member class)."""


def tables_of(
    log_pi: Float[Array, " F"],
    log_omega: Float[Array, "F S"],
    log_lambda: Float[Array, "Q F"],
    log_phi: Float[Array, "R F S"],
    household: Levels,
    member: Levels,
    head: "Head | None",
) -> Tables:
    """Tables of the parameters.

    Parameters
    ----------
    log_pi, log_omega, log_lambda, log_phi
        Log weights of the classes, and level probabilities.
    household, member
        The variables.
    head
        Those of whom every household has exactly one, if there are such.
    """
    num_classes, num_nested = log_omega.shape

    def weights(log_weight):
        largest = jnp.max(log_weight, axis=-1, keepdims=True)
        return jnp.exp(log_weight - jnp.where(largest > -jnp.inf, largest, 0))

    def cumulative(log_weight):
        return cumulative_sum(weights(log_weight))

    kinds = 1 if head is None else 2
    if head is None:
        log_kind = jnp.zeros((1, num_classes, num_nested), log_pi.dtype)
    else:
        own = member.block(log_phi, head.variable)
        is_head = np.array(head.levels)
        # Not 1 - P(head), which cancels.
        log_kind = jnp.stack([jax.nn.logsumexp(own[x], axis=0) for x in (~is_head, is_head)])
    log_nested = log_omega + log_kind

    def levels_of(variable):
        table = jnp.moveaxis(member.block(log_phi, variable), 0, -1)
        if head is not None and variable == head.variable:
            table = jnp.stack([jnp.where(x, table, -jnp.inf) for x in (~is_head, is_head)])
        else:
            table = jnp.broadcast_to(table, (kinds, *table.shape))
        return cumulative(table.reshape(-1, table.shape[-1]))

    return Tables(
        log_household=log_pi,
        log_kind=jax.nn.logsumexp(log_nested, axis=2),
        nested_weight=weights(log_nested),
        nested=cumulative(log_nested.reshape(-1, num_nested)),
        household=tuple(cumulative(household.block(log_lambda, k).T) for k in household.read),
        member=tuple(levels_of(j) for j in member.read),
    )


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


def log_class_weight(
    tables: Tables, log_size: Float[Array, " F"], size: int, heads: int | None
) -> Float[Array, " F"]:
    """Log weight of the household classes for a size, and for so many heads among the members.

    Parameters
    ----------
    log_size
        Log probability of the size, by class.
    size
        Members.
    heads
        None where heads do not matter.
    """
    weight = tables.log_household + log_size
    if heads is None:
        return weight
    if heads > size:
        return jnp.full_like(weight, -jnp.inf)
    ways = math.log(math.comb(size, heads))
    others, own = tables.log_kind
    # 0 times minus infinity is nothing.
    more = others * (size - heads) if size > heads else 0.0
    return weight + ways + more + (own * heads if heads else 0.0)


def log_class_weights(
    tables: Tables, log_size: Float[Array, "H F"], sizes: tuple[int, ...], has_head: bool
) -> Float[Array, "H F"]:
    """`log_class_weight` of every size, with exactly one head or whatever heads there are."""
    return jnp.stack([
        log_class_weight(tables, log_size[i], size, 1 if has_head else None)
        for i, size in enumerate(sizes)
    ])  # fmt: skip


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


Judge = Callable[[Simulated, Key[Array, ""]], Bool[Array, " B"]]


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


def add_other_heads(
    key: Key[Array, ""],
    augmented: Augmented,
    tables: Tables,
    log_size: Float[Array, "H F"],
    sizes: tuple[int, ...],
    with_one: Int[Array, ""],
    household: Levels,
) -> tuple[Augmented, Int[Array, ""]]:
    """Add households without a head, or with several, given how many there are with one.

    Parameters
    ----------
    key
        Used once.
    augmented, tables, log_size, sizes
        As for `add_simulated`.
    with_one
        Households with exactly one head up to the last possible one, T.

    Returns
    -------
    augmented
        Counts, these households added.
    number
        How many; -1 where there are too many to be counted, and none is added.
    """
    key_g, key_count, key_nested = jax.random.split(key, 3)
    slices = [(i, t) for i, size in enumerate(sizes) for t in range(size + 1) if t != 1]
    of_size, heads = np.array(slices, int).reshape(-1, 2).T
    log_slice = jnp.stack([
        log_class_weight(tables, log_size[i], sizes[i], t) for i, t in slices
    ])  # fmt: skip
    log_one = jax.nn.logsumexp(log_class_weights(tables, log_size, sizes, True))
    log_g = loggamma_from_one(key_g, with_one.astype(log_one.dtype)) - log_one
    counts = poisson(key_count, jnp.exp(log_g + log_slice))
    # All or nothing: counts that int32 cannot hold are left out, and said to be.
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


def log_possible(
    log_pi: Float[Array, " F"],
    log_omega: Float[Array, "F S"],
    log_lambda: Float[Array, "Q F"],
    log_phi: Float[Array, "R F S"],
    rules: HeadTables,
    household: Levels,
    member: Levels,
    head_apart: Bool[Array, " J"] | None,
) -> Float[Array, ""]:
    """Exact log P(possible) of a household, sizes and classes summed out.

    Parameters
    ----------
    log_pi, log_omega, log_lambda, log_phi
        Log weights of the classes, and level probabilities.
    rules
        Tables with compositions.
    head_apart
        Which joint levels of a member are a head's; None where no member is the head.

    Notes
    -----
    Given the class, the household's level b and the head a, other members are independent: with
    w_k their probability of being of kind k and fitting the head, m of them are allowed with
    probability sum m! prod w_k^{n_k} / n_k! over the allowed compositions.
    """
    num_classes = log_pi.size
    allowed = rules.compositions
    joint = _joint_probability(log_omega, log_phi, member)
    of_household = jnp.ones((1, num_classes), joint.dtype)
    for k in household.read:
        own = jnp.exp(household.block(log_lambda, k))
        of_household = (of_household[:, None] * own).reshape(-1, num_classes)
    fits = jnp.stack([
        jnp.matmul(matrix, joint[levels], precision=lax.Precision.HIGHEST)[row]
        for levels, matrix, row in zip(allowed.levels, allowed.fits, allowed.row, strict=True)
    ])  # fmt: skip
    if head_apart is None:
        of_head = jnp.ones((1, num_classes), joint.dtype)
    else:
        heads = rules.head_ok.shape[1]
        of_head = (
            jnp.zeros((heads, num_classes), joint.dtype)
            .at[rules.head_index]
            .add(jnp.where(head_apart[:, None], joint, 0))
        )
    good = rules.head_ok[:, :, None] * of_head * of_household[:, None]
    of_size = jnp.exp(log_pi + log_lambda[household.size_rows])
    if head_apart is not None:
        of_size = of_size * allowed.places[:, None]
    powers = [jnp.ones_like(fits)]
    for _ in range(allowed.most):
        powers.append(powers[-1] * fits)
    powers = jnp.stack(powers)

    def add(c, total):
        product = jnp.broadcast_to(allowed.ways[c] * of_size[allowed.size[c]], total.shape)
        for k in range(len(fits)):
            product = product * powers[allowed.counts[c, k], k]
        return total + product

    total = lax.fori_loop(0, allowed.size.size, add, jnp.zeros_like(good))
    return jnp.log(jnp.sum(good * total))


def _joint_probability(log_omega, log_phi, member):
    """Probability of each joint level of the variables that are read, by household class: (R, F).

    The sum over member classes is of products of two tables, as even as the order allows.
    """
    sizes = [member.num_levels[j] for j in member.read]
    cut = min(range(len(sizes) + 1), key=lambda i: math.prod(sizes[:i]) + math.prod(sizes[i:]))
    parts = []
    for read, start in ((member.read[:cut], log_omega), (member.read[cut:], None)):
        part = jnp.exp(start)[None] if start is not None else jnp.ones((1, *log_omega.shape))
        part = part.astype(log_omega.dtype)
        for j in read:
            own = jnp.exp(member.block(log_phi, j))
            part = (part[:, None] * own).reshape(-1, *part.shape[1:])
        parts.append(part)
    joint = jnp.einsum("afs,bfs->fab", *parts, precision=lax.Precision.HIGHEST)
    return joint.reshape(log_omega.shape[0], -1).T
