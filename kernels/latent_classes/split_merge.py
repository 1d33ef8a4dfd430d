"""Split-merge move for latent classes with explicit parameters, truncated or not.

A split takes a class and two of its records, and gives the second record's part to an empty class;
a merge takes two classes that resemble each other and empties the second. Allocation and parameters
are proposed from restricted scans (Jain & Neal 2007, doi:10.1214/07-BA219, for models that are not
conjugate). Every class keeps parameters whether it has members or not, so that the dimension never
changes. Level probabilities are proposed from those of the class that is split, and back: under
truncation they have directions that the data say nothing about, and that a fresh start would miss.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.boxes.region import Region, region_mass
from bnp_models.kernels.latent_classes.observed_weights import log_stick_prior
from bnp_models.kernels.latent_classes.truncated_levels import through_variables
from bnp_models.kernels.numerics.counting import count_rows_by_component
from bnp_models.kernels.numerics.gamma_ratios import log_binomial, log_gamma_ratio
from bnp_models.kernels.variates.discrete import stirling_error
from bnp_models.kernels.variates.gamma import draw_levels, loggamma_from_one, normalise_levels
from bnp_models.kernels.variates.rng import uniform, words

NUM_SCANS = 3

# Classes are merged in proportion to the power of their affinity, the product over variables of
# the Bhattacharyya coefficients of their level frequencies.
AFFINITY_POWER = 2.0


def split_or_merge_classes(
    key: Key[Array, ""],
    z: Int[Array, " n"],
    log_x: Float[Array, " K"],
    log_lambda: Float[Array, "R K"],
    rows: Int[Array, "J n"],
    one_hot: Float[Array, "R n"],
    variable: Int[Array, " R"],
    region: Region,
    alpha: Float[Array, ""],
    by_class: bool,
    num_scans: int = NUM_SCANS,
) -> tuple[Int[Array, " n"], Float[Array, " K"], Float[Array, "R K"], Bool[Array, ""]]:
    """One split or merge of latent classes.

    Parameters
    ----------
    key
        Used once.
    z
        Class of each record.
    log_x
        Log weights that the sticks break, on the scale on which their observed part sums to a
        Ga(n, 1) variate: of classes before truncation, or, `by_class`, of truncated ones.
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
    num_classes = log_x.size
    keys = jax.random.split(key, 12)
    u = uniform(words(keys[0], (5,)), dtype.type)
    labels = jnp.broadcast_to(z, rows.shape)
    counts = count_rows_by_component(rows, labels, jnp.ones(z.size, jnp.int32), log_lambda.shape)
    counts = counts.astype(dtype)
    sizes = jnp.zeros(num_classes, jnp.int32).at[z].add(1)
    occupied = sizes > 0
    num_occupied = jnp.sum(occupied)
    # The last class takes what the sticks leave: it is neither filled nor emptied by this move.
    usable = jnp.arange(num_classes) < num_classes - 1
    empty = ~occupied & usable
    num_empty = jnp.sum(empty)

    split = u[0] < 0.5
    a = _pick(u[1], occupied.astype(dtype))
    partner = _pick_log(u[2], _log_affinity(counts, sizes, a, variable))
    b = jnp.where(split, _pick(u[2], empty.astype(dtype)), partner)
    possible = jnp.where(split, (num_empty > 0) & (sizes[a] > 1), (num_occupied > 1) & usable[b])
    score = uniform(words(keys[1], (2, z.size)), dtype.type)
    first = jnp.argmax(jnp.where(z == a, score[0], 0))
    score_second = jnp.where(jnp.arange(z.size) == first, 0, score[1])
    second = jnp.argmax(jnp.where(z == jnp.where(split, a, b), score_second, 0))

    scans = _Scans(one_hot, variable, region, (z == a) | (~split & (z == b)), first, second)
    own_side = z == b
    # Merged levels: the state's own, or drawn from those of the class that stays.
    total = scans.level_counts(jnp.zeros_like(own_side))[:, :1]
    stays = log_lambda[:, a][:, None]
    drawn, _, _ = scans.levels(keys[2], total, stays, stays, False)
    merged = jnp.where(split, stays, drawn)

    # The launch: an allocation by resemblance, and levels of its parts from the merged ones.
    side = scans.allocate(keys[3], num_scans)
    launch, odds = scans.launch(keys[4], side, jnp.concatenate([merged, merged], axis=1), num_scans)
    # The proposal, or the state's own parts where they are to be merged.
    side, log_q_side = scans.draw_side(keys[5], odds, split, own_side)
    part_counts, part_sizes = scans.level_counts(side), scans.members(side)
    own = jnp.stack([log_lambda[:, a], log_lambda[:, b]], axis=1)
    parts, part_mass, part_weight = scans.levels(keys[6], part_counts, launch, own, ~split)
    merged, merged_mass, merged_weight = scans.levels(keys[7], total, parts[:, :1], merged, True)

    # Weights: drawn for what is proposed.
    members = jnp.append(part_sizes, scans.size)
    log_mass = jnp.log(jnp.append(part_mass, merged_mass))
    log_q = loggamma_from_one(keys[8], members + 1) - (0 if by_class else log_mass)
    present = jnp.stack([log_x[a], log_x[b], log_x[a]])
    log_parts = jnp.where(jnp.stack([split, split, ~split]), log_q, present)
    log_weight = jnp.append(part_weight, merged_weight)
    log_weight = log_weight - (members if by_class else members + 1) * log_mass
    # Of the weights: the densities leave log n_a! + log n_b! - log (n_a + n_b)!.
    log_sizes = -log_binomial(part_sizes[0], part_sizes[1])

    # The emptied class: a place, levels from the prior, weight from a stick of the mass behind it.
    place_empty = jnp.minimum((u[3] * (num_classes - 1)).astype(jnp.int32), num_classes - 2)
    order_empty = jnp.where(split, jnp.arange(num_classes), _moved(b, place_empty, num_classes))
    prior = draw_levels(keys[9], jnp.ones((variable.size, 1), dtype), variable)[:, 0]
    empty_levels = jnp.where(split, log_lambda[:, b], prior)
    empty_mass = 1.0 if by_class else region_mass(empty_levels[:, None], region)[0]
    kept = log_x.at[a].set(log_parts[2])
    behind = (_positions(order_empty) > _positions(order_empty)[b]) & (jnp.arange(num_classes) != b)
    log_behind = jax.nn.logsumexp(jnp.where(behind, kept, -jnp.inf))
    log_1mv = jnp.log(u[4]) / alpha
    log_drawn = log_behind + jnp.log(-jnp.expm1(log_1mv)) - log_1mv
    log_empty = jnp.where(split, log_x[b], log_drawn)
    log_q_empty = (
        jnp.log(alpha) + alpha * log_behind - (alpha + 1) * jnp.logaddexp(log_empty, log_behind)
    )
    per_row = scans.per_row
    log_q_prior = jnp.sum(jax.scipy.special.gammaln(per_row) / per_row)
    merged_x = kept.at[b].set(log_empty)

    # The filled class: a place in proportion to the sticks' density there.
    split_x = log_x.at[a].set(log_parts[0]).at[b].set(log_parts[1])
    orders = jax.vmap(lambda place: _moved(b, place, num_classes))(jnp.arange(num_classes - 1))
    log_places = log_stick_prior(split_x[orders], alpha)
    place = _pick_log(uniform(words(keys[10], ()), dtype.type), log_places)
    order_filled = orders[place]

    counts_split = counts.at[:, a].set(part_counts[:, 0]).at[:, b].set(part_counts[:, 1])
    sizes_split = sizes.astype(dtype).at[a].set(part_sizes[0]).at[b].set(part_sizes[1])
    log_affinity = _log_affinity(counts_split, sizes_split, a, variable)
    occupied_merged = jnp.where(split, num_occupied, num_occupied - 1).astype(dtype)
    empty_merged = jnp.where(split, num_empty, num_empty + 1).astype(dtype)
    size = scans.size
    log_choice = (
        log_affinity[b] - jax.nn.logsumexp(log_affinity)
        - jnp.log(occupied_merged + 1) - jnp.log(part_sizes[0]) - jnp.log(part_sizes[1])
        + jnp.log(occupied_merged) + jnp.log(size) + jnp.log(size - 1) + jnp.log(empty_merged)
        - jnp.log(num_classes - 1.0)
    )  # fmt: skip
    log_split = log_weight[0] + log_weight[1] - log_q_side + jax.nn.logsumexp(log_places)
    log_merged = (
        log_weight[2] - jnp.exp(log_empty) * empty_mass - log_q_empty - log_q_prior
        + log_stick_prior(merged_x[order_empty], alpha)
    )  # fmt: skip
    log_ratio = log_split - log_merged + log_choice + log_sizes
    log_u = jnp.log(uniform(words(keys[11], ()), dtype.type))
    accepted = possible & (log_u < jnp.where(split, log_ratio, -log_ratio))

    order = jnp.where(split, order_filled, order_empty)
    new_z = jnp.where(scans.member, jnp.where(split & side, b, a), z)
    new_x = jnp.where(split, split_x, merged_x)[order]
    new_a = jnp.where(split, parts[:, 0], merged[:, 0])
    new_b = jnp.where(split, parts[:, 1], empty_levels)
    new_lambda = log_lambda.at[:, a].set(new_a).at[:, b].set(new_b)[:, order]
    return (
        jnp.where(accepted, _positions(order)[new_z], z),
        jnp.where(accepted, new_x, log_x),
        jnp.where(accepted, new_lambda, log_lambda),
        accepted,
    )


def _pick(u, weight):
    """An index in proportion to its weight; any index where there is no weight."""
    total = jnp.cumsum(weight)
    # Only an index with weight: rounding may leave the target at the end of a flat stretch.
    reached = (total > u * total[-1]) & (weight > 0)
    return jnp.argmax(reached)


def _pick_log(u, log_weight):
    largest = jnp.max(log_weight)
    return _pick(u, jnp.exp(log_weight - jnp.where(largest > -jnp.inf, largest, 0)))


def _moved(source, place, size):
    """The order of `size` things when `source` is taken out and put at `place`."""
    position = jnp.arange(size)
    rest = position - (position > place)
    rest = rest + (rest >= source)
    return jnp.where(position == place, source, rest)


def _positions(order):
    return jnp.zeros_like(order).at[order].set(jnp.arange(order.size, dtype=order.dtype))


def _log_affinity(counts, sizes, a, variable):
    """Log of the power of the affinity of class `a` with every other occupied class."""
    dtype = counts.dtype
    per_row = _levels_per_row(variable, dtype)[:, None]
    root = jnp.sqrt((1 + counts) / (sizes.astype(dtype) + per_row))
    coefficient = jax.ops.segment_sum(
        root * root[:, a][:, None], variable, num_segments=variable.size
    )
    # Segments beyond the variables are empty.
    log_coefficient = jnp.where(coefficient > 0, jnp.log(coefficient), 0)
    log_affinity = AFFINITY_POWER * jnp.sum(log_coefficient, axis=0)
    other = (sizes > 0) & (jnp.arange(sizes.size) != a)
    return jnp.where(other, log_affinity, -jnp.inf)


def _levels_per_row(variable, dtype):
    ones = jnp.ones(variable.size, dtype)
    return jax.ops.segment_sum(ones, variable, num_segments=variable.size)[variable]


def _log_factorial(counts, members):
    """log n! - n log N + n, by Stirling's formula with the large terms taken apart."""
    n, total = jnp.maximum(counts, 1), jnp.maximum(members, 1)
    value = n * jnp.log(n / total) + jnp.log(2 * jnp.pi * n) / 2 + stirling_error(n)
    return jnp.where(counts > 0, value, 0)


def _log_total(members, num_levels):
    """log Gamma(N + L) - N log N + N: what `_log_factorial` took apart adds up to the same."""
    total = jnp.maximum(members, 1)
    value = (
        log_gamma_ratio(total + 1, num_levels - 1)
        + jnp.log(2 * jnp.pi * total) / 2
        + stirling_error(total)
    )
    return jnp.where(members > 0, value, jax.scipy.special.gammaln(num_levels))


class _Scans:
    """Restricted scans over the members of one class, or of two."""

    def __init__(self, one_hot, variable, region, member, first, second):
        record = jnp.arange(member.size)
        self.one_hot, self.variable, self.region = one_hot, variable, region
        self.member, self.first, self.second = member, first, second
        self.moves = member & (record != first) & (record != second)
        self.is_second = record == second
        self.weight = member.astype(one_hot.dtype)
        self.size = jnp.sum(self.weight)
        self.per_row = _levels_per_row(variable, one_hot.dtype)

    def members(self, side):
        """Records of the two parts."""
        second = jnp.sum(self.weight * side)
        return jnp.stack([self.size - second, second])

    def level_counts(self, side):
        """Records of the two parts with each level, (R, 2)."""
        parts = jnp.stack([self.weight * ~side, self.weight * side])
        return jnp.matmul(self.one_hot, parts.T, precision=lax.Precision.HIGHEST)

    def allocate(self, key, num_scans):
        """An allocation of the members: by resemblance to the two records, then by scans.

        The scans take the frequencies of the parts for their level probabilities.
        """
        key_start, key_scans = jax.random.split(key)
        dtype = self.one_hot.dtype
        coin = uniform(words(key_start, self.moves.shape), dtype.type)
        contrast = self.one_hot[:, self.second] - self.one_hot[:, self.first]
        likeness = jnp.matmul(contrast, self.one_hot, precision=lax.Precision.HIGHEST)
        side = jnp.where(self.moves, likeness + coin > 0.5, self.is_second)

        def scan(t, side):
            members = self.members(side)
            levels = normalise_levels(jnp.log(1 + self.level_counts(side)), self.variable)
            odds = self.log_odds(levels, members, jnp.ones(2, dtype))
            return self.draw_side(jax.random.fold_in(key_scans, t), odds, True, side)[0]

        return lax.fori_loop(0, num_scans, scan, side)

    def launch(self, key, side, levels, num_scans):
        """Levels of the parts after scans from an allocation, and the log odds under them."""

        def scan(t, carry):
            levels, odds, side = carry
            key_side, key_levels = jax.random.split(jax.random.fold_in(key, t))
            drawn, _ = self.draw_side(key_side, odds, t > 0, side)
            levels, mass, _ = self.levels(
                key_levels, self.level_counts(drawn), levels, levels, False
            )
            return levels, self.log_odds(levels, self.members(drawn), mass), drawn

        start = (levels, jnp.zeros(side.shape, levels.dtype), side)
        return lax.fori_loop(0, num_scans, scan, start)[:2]

    def log_odds(self, levels, members, mass):
        """Log odds of the second part for every record."""
        log_size = jnp.log(members + 1) - jnp.log(mass)
        contrast = levels[:, 1] - levels[:, 0]
        odds = jnp.matmul(contrast, self.one_hot, precision=lax.Precision.HIGHEST)
        return odds + log_size[1] - log_size[0]

    def draw_side(self, key, odds, draw, own_side):
        """An allocation by these odds, or the state's own, and its log probability."""
        u = uniform(words(key, odds.shape), odds.dtype.type)
        drawn = jnp.log(u) - jnp.log1p(-u) < odds
        side = jnp.where(self.moves, jnp.where(draw, drawn, own_side), self.is_second)
        log_p = -jnp.logaddexp(0, jnp.where(side, -odds, odds))
        return side, jnp.sum(jnp.where(self.moves, log_p, 0))

    def levels(self, key, counts, launch, point, given):
        """Draw levels from a launch, variable by variable, or weigh those given.

        The scaled Dirichlet of variable j has shapes 1 + n_l and rates c_l + y / A, as in
        `update_levels_truncated` of `latent_classes.truncated_levels`, y at its expectation.

        Returns
        -------
        levels, mass, log_weight
            Levels (R, columns), their feasible masses, and the log likelihood of the counts, these
            masses apart, less the log density of the proposal.
        """
        region = self.region
        members = jnp.sum(jnp.where(self.variable[:, None] == 0, counts, 0), axis=0)
        log_g = loggamma_from_one(key, 1 + counts)
        drawn = normalise_levels(log_g, self.variable)
        free = region.free[:, None]
        levels = jnp.where(free > 0, jnp.where(given, point, drawn), launch)
        per_row = self.per_row[:, None]
        log_weight = jnp.sum(
            free * (_log_factorial(counts, members) - _log_total(members, per_row) / per_row),
            axis=0,
        )

        def update(inputs, old, mass_of_level):
            log_g, counts, point, exists, num_levels = inputs
            total = members + num_levels
            present = jnp.sum(jnp.exp(old) * mass_of_level, axis=0)
            rate = mass_of_level / present + jnp.maximum(num_levels - 1, 1) / total
            log_w = log_g - jnp.log(rate)
            new = jnp.where(given, point, log_w - jax.nn.logsumexp(log_w, axis=0))
            log_scale = total * jnp.log(jnp.sum(rate * jnp.exp(new), axis=0))
            log_scale = log_scale - _log_total(members, num_levels)
            of_level = _log_factorial(counts, members) - (1 + counts) * jnp.log(rate)
            return new, log_scale + jnp.sum(jnp.where(exists, of_level, 0), axis=0)

        inputs = (
            region.take(log_g, -jnp.inf), region.take(counts, 0), region.take(point, -jnp.inf),
            (region.rows < self.variable.size)[:, :, None], region.num_levels,
        )  # fmt: skip
        levels, mass, collected = through_variables(levels, region, update, inputs)
        return levels, mass, log_weight + jnp.sum(collected, axis=0)
