"""Split-merge move for latent classes with explicit parameters, truncated or not.

A split takes a class and two of its records, and gives the second record's part to an empty class;
a merge takes two classes that resemble each other and empties the second. Allocation and parameters
are proposed from restricted scans (Jain & Neal 2007, doi:10.1214/07-BA219, for models that are not
conjugate). Every class keeps parameters whether it has members or not, so that the dimension never
changes. Level probabilities are proposed from those of the class that is split, and back: under
truncation they have directions that the data say nothing about, and that a fresh start would miss.

The steps: choose classes and records; launch from restricted scans, allocate, and draw levels; draw
weights, a place and parameters for the class to be empty, and a place for the one to be filled;
accept.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.boxes.level_proposals import propose_levels
from bnp_models.kernels.boxes.region import Region, region_mass
from bnp_models.kernels.latent_classes.observed_weights import log_stick_prior
from bnp_models.kernels.numerics.counting import count_rows_by_component
from bnp_models.kernels.numerics.gamma_ratios import log_binomial
from bnp_models.kernels.variates.gamma import (
    draw_levels,
    loggamma_from_one,
    normalise_levels,
)
from bnp_models.kernels.variates.level_prior import concentration_of_rows
from bnp_models.kernels.variates.rng import Keys, uniform, uniform_index, words

NUM_SCANS = 3
"""Restricted scans before a proposal, by default."""

AFFINITY_POWER = 2.0
"""Classes are merged in proportion to this power of their affinity, the product over variables of
the Bhattacharyya coefficients of their level frequencies."""


@jax.named_scope("split_or_merge_classes")
def split_or_merge_classes(
    key: Key[Array, ""],
    z: Int[Array, " n"],
    weight: Int[Array, " n"],
    log_x: Float[Array, " K"],
    log_lambda: Float[Array, "R K"],
    rows: Int[Array, "J n"],
    one_hot: Float[Array, "R n"],
    variable: Int[Array, " R"],
    region: Region,
    alpha: Float[Array, ""],
    by_class: bool,
    level_shape: Float[Array, " R"],
    num_scans: int = NUM_SCANS,
) -> tuple[Int[Array, " n"], Float[Array, " K"], Float[Array, "R K"], Bool[Array, ""]]:
    """Split or merge latent classes, once.

    Parameters
    ----------
    key
        Used once.
    z
        Class of each record.
    weight
        1 for a record, 0 for padding.
    log_x
        Log weights that the sticks break, on the scale on which their observed part sums to a
        Ga(n, 1) variate: those of classes before truncation, or, `by_class`, of truncated ones.
    log_lambda
        Log level probabilities before truncation.
    rows, one_hot
        Row of each record's levels; 1 where the record has the level.
    variable
        Variable of each row.
    region
        The feasible boxes.
    alpha
        Concentration of the sticks.
    by_class
        Whether each class is truncated, rather than the mixture.
    level_shape
        Dirichlet shapes of the level probabilities' prior, by row.
    num_scans
        Restricted scans that find the parts of a split.

    Returns
    -------
    z, log_x, log_lambda
        The state after the move; classes between the old and the new place of the emptied or
        filled class have moved by one.
    accepted
        Whether it differs.

    Notes
    -----
    The target is prod x_k^{n_k} e^{-x_k M_k} D_k^{-n_k} prod lambda^n times the sticks' density of
    x, with (M, D) = (F, 1), or (1, F) by class. Weights are proposed as Ga(n_k + 1, M_k), levels as
    scaled Dirichlets variable by variable, the place of the filled class by the sticks' density,
    and an emptied class from the prior, at any place.
    """
    dtype = log_x.dtype
    keys = Keys(key, 12)
    u = uniform(words(keys.pop(), (5,)), dtype.type)
    counts, sizes = _tally(z, weight, rows, log_lambda)
    prior = _Prior(level_shape, concentration_of_rows(level_shape, variable))
    choice = _choose(u[:3], keys.pop(), z, weight, counts, sizes, variable, prior)
    member = (weight > 0) & ((z == choice.a) | (~choice.split & (z == choice.b)))
    scans = _Scans(one_hot, variable, region, prior, member, choice.first, choice.second)
    parts = _propose_parts(keys, scans, choice, z, log_lambda, num_scans)
    weights = _propose_weights(keys.pop(), choice, parts, log_x, by_class)
    emptied = _propose_empty(
        u[3:], keys.pop(), scans, choice, weights, log_x, log_lambda, alpha, by_class
    )
    filled = _propose_place(keys.pop(), choice, weights, log_x, alpha)

    log_choice = _log_choice_ratio(choice, parts, counts, sizes, variable, prior)
    log_ratio = _log_ratio(parts, weights, emptied, filled, log_choice, alpha)
    log_u = jnp.log(uniform(words(keys.pop(), ()), dtype.type))
    accepted = choice.possible & (log_u < jnp.where(choice.split, log_ratio, -log_ratio))

    new = _assemble(choice, scans, parts, emptied, filled, z, log_lambda)
    z, log_x, log_lambda = (
        jnp.where(accepted, proposed, old)
        for proposed, old in zip(new, (z, log_x, log_lambda), strict=True)
    )
    return z, log_x, log_lambda, accepted


class _Prior(NamedTuple):
    """Dirichlet prior of the level probabilities."""

    shape: Float[Array, " R"]
    """Shape of each row."""
    total: Float[Array, " R"]
    """Sum of the shapes of each row's variable."""


class _Choice(NamedTuple):
    """Direction of the move, its classes, and the record that each part begins with."""

    split: Bool[Array, ""]
    """Whether to split; or else to merge."""
    a: Int[Array, ""]
    """Class that is split, or that the members of the other join."""
    b: Int[Array, ""]
    """Class that is filled, or emptied."""
    first: Int[Array, ""]
    """Record that stays in class a."""
    second: Int[Array, ""]
    """Record of class b."""
    possible: Bool[Array, ""]
    """Whether there are such classes and records."""
    num_occupied: Int[Array, ""]
    """Classes with members, before the move."""
    num_empty: Int[Array, ""]
    """Classes without members that may be filled, before the move."""


class _Parts(NamedTuple):
    """The two parts and the class that they merge into: proposed, or the state's own."""

    side: Bool[Array, " n"]
    """Whether the record is in the second part."""
    counts: Float[Array, "R 2"]
    """Records of the parts with each level."""
    sizes: Float[Array, " 2"]
    """Records of the parts."""
    total: Float[Array, ""]
    """Records of both."""
    levels: Float[Array, "R 2"]
    """Log level probabilities of the parts."""
    merged: Float[Array, "R 1"]
    """Log level probabilities of the merged class."""
    log_mass: Float[Array, " 3"]
    """Log feasible masses of the parts, and of the merged class."""
    log_weight: Float[Array, " 3"]
    """Log likelihoods less log densities of the proposed levels; see `propose_levels`."""
    log_q_side: Float[Array, ""]
    """Log probability of the allocation."""


class _Weights(NamedTuple):
    """Weights of the parts and of the merged class: proposed, or the state's own."""

    log_x: Float[Array, " 3"]
    """Log weights."""
    log_weight: Float[Array, " 3"]
    """Log target less log density of the proposals, levels and weights together."""


class _Emptied(NamedTuple):
    """The state with class b without members: proposed, or the state's own."""

    order: Int[Array, " K"]
    """Class that comes to each position."""
    levels: Float[Array, " R"]
    """Log level probabilities of class b."""
    mass: Float[Array, ""] | float
    """Mass M of class b."""
    log_empty: Float[Array, ""]
    """Log weight of class b."""
    log_x: Float[Array, " K"]
    """Log weights of all classes, before `order`."""
    log_q_weight: Float[Array, ""]
    """Log density of the proposal of the weight; the levels are proposed from their prior."""


class _Filled(NamedTuple):
    """The state with members in class b: proposed, or the state's own."""

    order: Int[Array, " K"]
    """Class that comes to each position."""
    log_x: Float[Array, " K"]
    """Log weights of all classes, before `order`."""
    log_places: Float[Array, " K-1"]
    """Log density of the sticks with class b at each place."""


def _tally(z, weight, rows, log_lambda):
    """Records of each class with each level, (R, K), and in all, (K,)."""
    labels, num_classes = jnp.broadcast_to(z, rows.shape), log_lambda.shape[1]
    counts = count_rows_by_component(rows, labels, weight, log_lambda.shape)
    return counts.astype(log_lambda.dtype), jnp.zeros(num_classes, jnp.int32).at[z].add(weight)


def _choose(u, key, z, weight, counts, sizes, variable, prior) -> _Choice:
    """Toss for split or merge, and draw the classes, and a record of each part."""
    num_classes, dtype = sizes.size, counts.dtype
    occupied = sizes > 0
    # The last class takes what the sticks leave: it is neither filled nor emptied by this move.
    usable = jnp.arange(num_classes) < num_classes - 1
    empty = ~occupied & usable
    num_occupied, num_empty = jnp.sum(occupied), jnp.sum(empty)

    split = u[0] < 0.5
    a = _pick(u[1], occupied.astype(dtype))
    partner = _pick_log(u[2], _log_affinity(counts, sizes, a, variable, prior))
    b = jnp.where(split, _pick(u[2], empty.astype(dtype)), partner)
    possible = jnp.where(split, (num_empty > 0) & (sizes[a] > 1), (num_occupied > 1) & usable[b])
    score = jnp.where(weight > 0, uniform(words(key, (2, z.size)), dtype.type), 0)
    first = jnp.argmax(jnp.where(z == a, score[0], 0))
    score_second = jnp.where(jnp.arange(z.size) == first, 0, score[1])
    second = jnp.argmax(jnp.where(z == jnp.where(split, a, b), score_second, 0))
    return _Choice(split, a, b, first, second, possible, num_occupied, num_empty)


def _propose_parts(keys, scans, choice, z, log_lambda, num_scans) -> _Parts:
    """Launch from restricted scans; allocate the records, and draw levels of what is proposed."""
    split, a, b = choice.split, choice.a, choice.b
    # Merged levels: the state's own, or drawn from those of the class that stays.
    state_side = z == b
    counts = scans.level_counts(jnp.zeros_like(state_side))[:, :1]
    stays = log_lambda[:, a][:, None]
    drawn, _, _ = scans.levels(keys.pop(), counts, stays, stays, False)
    merged = jnp.where(split, stays, drawn)

    # The launch: an allocation by resemblance, and levels of its parts from the merged ones.
    side = scans.allocate(keys.pop(), num_scans)
    start = jnp.concatenate([merged, merged], axis=1)
    launch, odds = scans.launch(keys.pop(), side, start, num_scans)

    # The proposal, or the state's own parts where they are to be merged.
    side, log_q_side = scans.draw_side(keys.pop(), odds, split, state_side)
    part_counts, sizes = scans.level_counts(side), scans.members(side)
    state_levels = jnp.stack([log_lambda[:, a], log_lambda[:, b]], axis=1)
    levels, mass, weight = scans.levels(keys.pop(), part_counts, launch, state_levels, ~split)
    merged, merged_mass, merged_weight = scans.levels(
        keys.pop(), counts, levels[:, :1], merged, True
    )
    return _Parts(
        side=side, counts=part_counts, sizes=sizes, total=scans.size, levels=levels, merged=merged,
        log_mass=jnp.log(jnp.append(mass, merged_mass)),
        log_weight=jnp.append(weight, merged_weight), log_q_side=log_q_side,
    )  # fmt: skip


def _propose_weights(key, choice, parts, log_x, by_class) -> _Weights:
    """Draw weights for what is proposed, Ga(n + 1, M)."""
    split, a, b = choice.split, choice.a, choice.b
    members = jnp.append(parts.sizes, parts.total)
    log_q = loggamma_from_one(key, members + 1) - (0 if by_class else parts.log_mass)
    present = jnp.stack([log_x[a], log_x[b], log_x[a]])
    proposed = jnp.stack([split, split, ~split])
    power = members if by_class else members + 1
    return _Weights(
        log_x=jnp.where(proposed, log_q, present),
        log_weight=parts.log_weight - power * parts.log_mass,
    )


def _propose_empty(u, key, scans, choice, weights, log_x, log_lambda, alpha, by_class) -> _Emptied:
    """Draw a place for class b, levels from the prior, weight from a stick of the mass behind."""
    split, a, b = choice.split, choice.a, choice.b
    num_classes = log_x.size
    place = uniform_index(u[0], num_classes - 1)
    order = jnp.where(split, jnp.arange(num_classes), _moved(b, place, num_classes))
    drawn = draw_levels(key, scans.prior.shape[:, None], scans.variable)[:, 0]
    levels = jnp.where(split, log_lambda[:, b], drawn)
    mass = 1.0 if by_class else region_mass(levels[:, None], scans.region)[0]
    kept = log_x.at[a].set(weights.log_x[2])
    behind = (_positions(order) > _positions(order)[b]) & (jnp.arange(num_classes) != b)
    log_behind = jax.nn.logsumexp(jnp.where(behind, kept, -jnp.inf))
    log_1mv = jnp.log(u[1]) / alpha
    log_drawn = log_behind + jnp.log(-jnp.expm1(log_1mv)) - log_1mv
    log_empty = jnp.where(split, log_x[b], log_drawn)
    log_q_weight = (
        jnp.log(alpha) + alpha * log_behind - (alpha + 1) * jnp.logaddexp(log_empty, log_behind)
    )
    merged_x = kept.at[b].set(log_empty)
    return _Emptied(order, levels, mass, log_empty, merged_x, log_q_weight)


def _propose_place(key, choice, weights, log_x, alpha) -> _Filled:
    """Draw a place for the filled class b, in proportion to the sticks' density there."""
    num_classes = log_x.size
    split_x = log_x.at[choice.a].set(weights.log_x[0]).at[choice.b].set(weights.log_x[1])
    orders = jax.vmap(lambda place: _moved(choice.b, place, num_classes))(
        jnp.arange(num_classes - 1)
    )
    log_places = log_stick_prior(split_x[orders], alpha)
    place = _pick_log(uniform(words(key, ()), log_x.dtype.type), log_places)
    return _Filled(orders[place], split_x, log_places)


def _log_ratio(parts, weights, emptied, filled, log_choice, alpha):
    """Log Metropolis-Hastings ratio of the split; that of the merge is its negative."""
    log_weight = weights.log_weight
    log_split = (
        log_weight[0] + log_weight[1] - parts.log_q_side + jax.nn.logsumexp(filled.log_places)
    )
    log_merged = (
        log_weight[2] - jnp.exp(emptied.log_empty) * emptied.mass
        - emptied.log_q_weight + log_stick_prior(emptied.log_x[emptied.order], alpha)
    )  # fmt: skip
    # The densities of the weights leave log n_a! + log n_b! - log (n_a + n_b)!.
    log_sizes = -log_binomial(parts.sizes[0], parts.sizes[1])
    return log_split - log_merged + log_choice + log_sizes


def _log_choice_ratio(choice, parts, counts, sizes, variable, prior):
    """Log probability of choosing the merge over that of choosing the split that it undoes."""
    a, b, dtype = choice.a, choice.b, counts.dtype
    counts = counts.at[:, a].set(parts.counts[:, 0]).at[:, b].set(parts.counts[:, 1])
    split_sizes = sizes.astype(dtype).at[a].set(parts.sizes[0]).at[b].set(parts.sizes[1])
    log_affinity = _log_affinity(counts, split_sizes, a, variable, prior)
    num_occupied, num_empty = choice.num_occupied, choice.num_empty
    occupied = jnp.where(choice.split, num_occupied, num_occupied - 1).astype(dtype)
    empty = jnp.where(choice.split, num_empty, num_empty + 1).astype(dtype)
    total = parts.total
    return (
        log_affinity[b] - jax.nn.logsumexp(log_affinity)
        - jnp.log(occupied + 1) - jnp.log(parts.sizes[0]) - jnp.log(parts.sizes[1])
        + jnp.log(occupied) + jnp.log(total) + jnp.log(total - 1) + jnp.log(empty)
        - jnp.log(sizes.size - 1.0)
    )  # fmt: skip


def _assemble(choice, scans, parts, emptied, filled, z, log_lambda):
    """The proposed labels, log weights and log level probabilities, the classes in their order."""
    split, a, b = choice.split, choice.a, choice.b
    order = jnp.where(split, filled.order, emptied.order)
    z = jnp.where(scans.member, jnp.where(split & parts.side, b, a), z)
    log_x = jnp.where(split, filled.log_x, emptied.log_x)[order]
    of_a = jnp.where(split, parts.levels[:, 0], parts.merged[:, 0])
    of_b = jnp.where(split, parts.levels[:, 1], emptied.levels)
    log_lambda = log_lambda.at[:, a].set(of_a).at[:, b].set(of_b)[:, order]
    return _positions(order)[z], log_x, log_lambda


def _pick(u, weight):
    """Draw an index in proportion to its weight; any index where there is no weight."""
    cumulative = jnp.cumsum(weight)
    # Only an index with weight: rounding may leave the target at the end of a flat stretch.
    reached = (cumulative > u * cumulative[-1]) & (weight > 0)
    return jnp.argmax(reached)


def _pick_log(u, log_weight):
    """Draw an index in proportion to a weight given as a logarithm."""
    largest = jnp.max(log_weight)
    return _pick(u, jnp.exp(log_weight - jnp.where(largest > -jnp.inf, largest, 0)))


def _moved(source, place, size):
    """Order of `size` things when `source` is taken out and put at `place`."""
    position = jnp.arange(size)
    rest = position - (position > place)
    rest = rest + (rest >= source)
    return jnp.where(position == place, source, rest)


def _positions(order):
    """Position at which each class is in an order: the inverse permutation."""
    return jnp.zeros_like(order).at[order].set(jnp.arange(order.size, dtype=order.dtype))


def _log_affinity(counts, sizes, a, variable, prior):
    """Log power of the affinity of class `a` with each other occupied class; -inf elsewhere."""
    members = sizes.astype(counts.dtype)
    root = jnp.sqrt((prior.shape[:, None] + counts) / (members + prior.total[:, None]))
    coefficient = jax.ops.segment_sum(
        root * root[:, a][:, None], variable, num_segments=variable.size
    )
    # Segments beyond the variables are empty.
    log_coefficient = jnp.where(coefficient > 0, jnp.log(coefficient), 0)
    log_affinity = AFFINITY_POWER * jnp.sum(log_coefficient, axis=0)
    other = (sizes > 0) & (jnp.arange(sizes.size) != a)
    return jnp.where(other, log_affinity, -jnp.inf)


class _Scans:
    """Restricted scans over the members of one class, or of two, each part with a fixed record."""

    def __init__(self, one_hot, variable, region, prior, member, first, second):
        record = jnp.arange(member.size)
        self.one_hot, self.variable, self.region, self.prior = one_hot, variable, region, prior
        self.member, self.first, self.second = member, first, second
        self.moves = member & (record != first) & (record != second)
        self.is_second = record == second
        self.weight = member.astype(one_hot.dtype)
        self.size = jnp.sum(self.weight)

    def members(self, side):
        """Numbers of records of the two parts."""
        second = jnp.sum(self.weight * side)
        return jnp.stack([self.size - second, second])

    def level_counts(self, side):
        """Numbers of records of the two parts with each level, (R, 2)."""
        parts = jnp.stack([self.weight * ~side, self.weight * side])
        return jnp.matmul(self.one_hot, parts.T, precision=lax.Precision.HIGHEST)

    def allocate(self, key, num_scans):
        """Allocate the members: by resemblance to the two records, then by scans.

        A scan takes the frequencies of the parts for their level probabilities.
        """
        key_start, key_scans = Keys(key)
        dtype = self.one_hot.dtype
        coin = uniform(words(key_start, self.moves.shape), dtype.type)
        contrast = self.one_hot[:, self.second] - self.one_hot[:, self.first]
        likeness = jnp.matmul(contrast, self.one_hot, precision=lax.Precision.HIGHEST)
        side = jnp.where(self.moves, likeness + coin > 0.5, self.is_second)

        def scan(t, side):
            members = self.members(side)
            weight = self.prior.shape[:, None] + self.level_counts(side)
            levels = normalise_levels(jnp.log(weight), self.variable)
            odds = self.log_odds(levels, members, jnp.ones(2, dtype))
            return self.draw_side(jax.random.fold_in(key_scans, t), odds, True, side)[0]

        return lax.fori_loop(0, num_scans, scan, side)

    def launch(self, key, side, levels, num_scans):
        """Scan from an allocation: levels of the parts at the end, and the log odds under them."""

        def scan(t, carry):
            levels, odds, side = carry
            key_side, key_levels = Keys(jax.random.fold_in(key, t))
            drawn, _ = self.draw_side(key_side, odds, t > 0, side)
            levels, mass, _ = self.levels(
                key_levels, self.level_counts(drawn), levels, levels, False
            )
            return levels, self.log_odds(levels, self.members(drawn), mass), drawn

        start = (levels, jnp.zeros(side.shape, levels.dtype), side)
        return lax.fori_loop(0, num_scans, scan, start)[:2]

    def log_odds(self, levels, members, mass):
        """Log odds of the second part, for every record."""
        log_size = jnp.log(members + 1) - jnp.log(mass)
        contrast = levels[:, 1] - levels[:, 0]
        odds = jnp.matmul(contrast, self.one_hot, precision=lax.Precision.HIGHEST)
        return odds + log_size[1] - log_size[0]

    def draw_side(self, key, odds, draw, state_side):
        """Draw an allocation by these odds, or take the state's, and its log probability."""
        u = uniform(words(key, odds.shape), odds.dtype.type)
        drawn = jnp.log(u) - jnp.log1p(-u) < odds
        side = jnp.where(self.moves, jnp.where(draw, drawn, state_side), self.is_second)
        log_p = -jnp.logaddexp(0, jnp.where(side, -odds, odds))
        return side, jnp.sum(jnp.where(self.moves, log_p, 0))

    def levels(self, key, counts, launch, point, given):
        """Draw levels, or take those given: `propose_levels`."""
        return propose_levels(
            key, counts, launch, point, given, self.variable, self.region, self.prior.shape
        )
