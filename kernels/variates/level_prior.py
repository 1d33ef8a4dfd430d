"""Learned prior of level probabilities, with a concentration and a mean for each variable.

    c_j ~ Ga(1, 1 / L_j),    beta_j ~ Dir(1_{L_j}),    theta_jk ~ Dir(c_j beta_j)

for every component or class k. It is stored as the Dirichlet shapes c_j beta_jl, one for each row
of theta; the prior Dir(1) of the papers is a vector of ones. If levels are in groups, each
Dirichlet distribution (over groups, and within each group) has its own concentration and mean. Then
"row of theta" means node, and "variable" means distribution of nodes (`kernels.variates.levels`).

Auxiliary variables replace gamma functions of c_j. Given these, the shapes of one variable are
independent. Each is then drawn by a Metropolis-Hastings step whose proposal is close to its
conditional: a gamma variate around the mode, which one step of Newton's method finds.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.numerics.counting import length_in_use
from bnp_models.kernels.numerics.gamma_ratios import elementary_log_gamma, large_log_gamma_ratio
from bnp_models.kernels.numerics.platforms import (
    blocks_of_columns,
    in_turn,
    most_of_lanes,
    short_loop,
    sum_of_blocks,
)
from bnp_models.kernels.variates.gamma import gamma_variate, logbeta, loggamma
from bnp_models.kernels.variates.levels import Levels
from bnp_models.kernels.variates.rng import Keys, normal, uniform, word_pair, words

# Shape of the prior of c_j, whose mean is the number of levels.
CONCENTRATION_SHAPE = 1.0

# Range of the shapes c_j beta_jl; proposals beyond it are rejected.
LEAST_SHAPE, LARGEST_SHAPE = 1e-10, 1e6

# From this count on, ratios of gamma functions are computed as differences of two series.
_SERIES_FROM = 16

# Share of the proposals that are random-walk steps. Proposals from the mode hardly ever go back to
# a far tail, and are therefore rejected too often if a chain is there.
WALKS = 0.25

# Slopes and curvatures of the evidence, from which proposals are made, are differences over this
# step on a log scale, because second derivatives would take seconds to compile.
_DIFFERENCE = 0.1
_STENCIL = np.array([-1, 0, 1], np.float32)

# Longest step of a proposal, on a log scale.
_LONGEST_STEP = 3.0


@jax.named_scope("draw_level_prior")
def draw_level_prior(key: Key[Array, ""], levels: Levels) -> Float[Array, " R+G"]:
    """Draw the shapes c_j beta_jl of the nodes from their prior.

    Parameters
    ----------
    key
        Used once.
    levels
        The levels; their current prior is not used.
    """
    key_c, key_beta = Keys(key)
    # Normalised Ga(L, 1) variates, one for each level of a variable.
    log_g = loggamma(key_beta, jnp.ones_like(levels.shape))
    share = jnp.exp(log_g) / levels.totals(jnp.exp(log_g))
    c = gamma_variate(key_c, jnp.full_like(levels.shape, CONCENTRATION_SHAPE), 1.0)[levels.group]
    shape = share * c * levels.sizes / CONCENTRATION_SHAPE
    return jnp.clip(shape, LEAST_SHAPE, LARGEST_SHAPE)


@jax.named_scope("update_level_prior")
def update_level_prior(
    key: Key[Array, ""], counts: Int[Array, "R K"], levels: Levels
) -> Float[Array, " R+G"]:
    """Move the shapes given items by level and component, with theta integrated out.

    Parameters
    ----------
    key
        Used once.
    counts
        Items by row of theta and component.
    levels
        The levels with the current shapes c_j beta_jl of their prior.

    Notes
    -----
    With q_jk ~ Beta(c_j, N_jk) and v_j ~ Ga(L_j - 1, c_j) the conditional of the shapes is the
    product over rows of exp(-r_j b) prod_k Gamma(b + n_jkl) / Gamma(b), with rate r_j = 1 / L_j +
    v_j - sum_k log q_jk. (Teh et al. 2006, doi:10.1198/016214506000000302, appendix A, use q and
    draw tables; here there is a step for each row.)
    """
    shape, counts = levels.shape, levels.count(counts)
    dtype = shape.dtype
    key_q, key_rows = Keys(key)
    c = levels.by_group(shape)

    def log_q(i, counts):
        totals = levels.by_group(counts)
        present = (totals > 0) & (c > 0)[:, None]
        log_q, _ = logbeta(
            jax.random.fold_in(key_q, i),
            jnp.where(present, c[:, None], 1), jnp.where(present, totals, 1).astype(dtype),
        )  # fmt: skip
        return jnp.sum(jnp.where(present, log_q, 0), axis=1)

    blocks, in_use = _blocks_in_use(counts)
    rate = -sum_of_blocks(log_q, blocks, in_use, jnp.zeros_like(c))[levels.group]
    log_evidence = _evidence_of_counts(counts, dtype)
    return in_turn(lambda: _move_rows(key_rows, levels, log_evidence, rate))()


def _blocks_in_use(counts):
    """Blocks of components, and the number of blocks in use, which come first."""
    in_use = length_in_use(jnp.any(counts > 0, axis=0))
    return blocks_of_columns(counts), most_of_lanes(in_use)


def _evidence_of_counts(counts: Int[Array, "R K"], dtype) -> Callable[[Array], Array]:
    """Log of prod_k Gamma(b + n_k) / (Gamma(b) Gamma(n_k)) by row, as a function of the shapes b.

    The last factor is constant and preserves the precision for large counts.
    """
    occupied = jnp.sum(counts > 0, axis=1).astype(dtype)
    blocks, in_use = _blocks_in_use(counts)

    def log_evidence(b):
        def of_block(_, counts):
            some, small = counts > 0, counts < _SERIES_FROM
            n = counts.astype(dtype)
            many, few = jnp.where(small, _SERIES_FROM, n), jnp.where(some & small, n, 1)
            column = jnp.broadcast_to(b[:, None], n.shape)
            series = large_log_gamma_ratio(many, column)
            terms = jnp.where(small, elementary_log_gamma(few + column), series)
            return jnp.sum(jnp.where(some, terms, 0), axis=1)

        return sum_of_blocks(of_block, blocks, in_use, -occupied * elementary_log_gamma(b))

    return log_evidence


@jax.named_scope("update_level_prior")
def update_level_prior_given_levels(
    key: Key[Array, ""], log_level: Float[Array, "R K"], levels: Levels
) -> Float[Array, " R+G"]:
    """Move the shapes given the log level probabilities, which may be truncated.

    For shares at the minimum (`Levels.is_least`) it is only known that they are at most that small.

    Notes
    -----
    With G_jk ~ Ga(c_j, 1) the variates G_jk theta_jkl are independent gamma variates.
    """
    key_total, key_rows, key_scale = Keys(key, 3)
    num_components = log_level.shape[1]
    shape, group = levels.shape, levels.group
    log_share = levels.log_shares(log_level)
    c = levels.by_group(shape)
    exists = c > 0
    c = jnp.where(exists, c, 1)
    log_total = loggamma(key_total, jnp.broadcast_to(c[:, None], (c.size, num_components)))
    sums = jnp.sum(log_share, axis=1)
    least = jnp.sum(levels.is_least(log_share), axis=1).astype(shape.dtype)

    def log_evidence(b):
        above = num_components - least
        return -above * elementary_log_gamma(b) - least * elementary_log_gamma(1 + b)

    rate = -sums - jnp.sum(log_total, axis=1)[group]
    shape = in_turn(lambda: _move_rows(key_rows, levels, log_evidence, rate))()

    # All shapes of a variable are scaled together, with the totals integrated out: given the
    # totals, c could hardly change.
    c = jnp.where(exists, levels.by_group(shape), 1)
    mean = shape / c[group]

    def log_evidence_of_total(c):
        return num_components * elementary_log_gamma(c) + levels.by_group(
            log_evidence(mean * c[group])
        )

    rate = CONCENTRATION_SHAPE / jnp.maximum(levels.by_group(jnp.ones_like(shape)), 1)
    rate = rate - levels.by_group(mean * sums)
    moved = in_turn(lambda: _move(key_scale, c, log_evidence_of_total, CONCENTRATION_SHAPE, rate))()
    return mean * moved[group]


def _move_rows(
    key: Key[Array, ""],
    levels: Levels,
    log_evidence: Callable[[Float[Array, " N"]], Float[Array, " N"]],
    rate: Float[Array, " N"],
) -> Float[Array, " N"]:
    """Move each node's shape given its evidence (a function of the shape) and an added rate."""
    key_tie, key_move = Keys(key)
    sizes, group = levels.sizes, levels.group
    # c^(1 - L) of the prior is an integral over v: one variate for all rows of a variable.
    more = sizes - CONCENTRATION_SHAPE
    log_v = loggamma(key_tie, jnp.where(more > 0, more, 1))
    first = jax.ops.segment_min(jnp.arange(group.size), group, num_segments=group.size)[group]
    v = jnp.where(more > 0, jnp.exp(log_v[first]) / levels.total, 0)
    rate = rate + CONCENTRATION_SHAPE / sizes + v
    return _move(key_move, levels.shape, log_evidence, 1.0, rate)


def _move(
    key: Key[Array, ""],
    value: Float[Array, " R"],
    log_evidence: Callable[[Float[Array, " R"]], Float[Array, " R"]],
    power: float,
    rate: Float[Array, " R"],
) -> Float[Array, " R"]:
    """Move positive numbers, each by its own Metropolis-Hastings step.

    The log density of the logarithm x of each number is h(x) = power x + f(x) - rate exp x, where f
    is its evidence.
    """
    dtype = value.dtype
    key_step, key_walk, key_accept = Keys(key, 3)
    first, second = word_pair(key_walk, (2, value.size))
    walks = uniform(first[0], dtype.type) < WALKS
    scale = jnp.exp(-3 + 4 * uniform(first[1], dtype.type))
    walk = scale * normal(second[0], dtype.type)

    def approximate(x):
        """h, and the proposal from x: a centred log of a gamma variate divided by its shape."""
        below, value, above = jax.vmap(log_evidence)(jnp.exp(x + _DIFFERENCE * _STENCIL[:, None]))
        slope = (above - below) / (2 * _DIFFERENCE)
        curvature = (above - 2 * value + below) / _DIFFERENCE**2
        linear = rate * jnp.exp(x)
        up = power + jnp.maximum(slope, 0) + jnp.maximum(-linear, 0)
        down = jnp.maximum(linear, 0) + jnp.maximum(-slope, 0)
        precision = jnp.maximum(power + slope - curvature, power)
        step = jnp.log(up / down) * up / precision
        centre = x + jnp.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
        return jnp.stack([power * x + value - linear, centre, precision])

    def log_proposal(x, centre, precision):
        y = x - centre
        return precision * (jnp.log(precision) + y - jnp.exp(y)) - elementary_log_gamma(precision)

    def go(i, carry):
        """Propose, and then evaluate the reverse proposal by the same compiled code."""
        x, _, there = carry
        here = approximate(x)
        _, centre, precision = here
        noise = loggamma(key_step, precision) - jnp.log(precision)
        there_from_here = jnp.where(walks, x + walk, centre + noise)
        return jnp.where(i == 0, there_from_here, x), there, here

    x = jnp.log(value)
    nothing = jnp.zeros((3, x.size), dtype)
    proposed, (before, centre, precision), (after, centre_back, precision_back) = short_loop(
        2, go, (x, nothing, nothing)
    )
    log_back = log_proposal(x, centre_back, precision_back)
    log_forth = log_proposal(proposed, centre, precision)
    log_ratio = after - before + jnp.where(walks, 0, log_back - log_forth)
    inside = (proposed > jnp.log(LEAST_SHAPE)) & (proposed < jnp.log(LARGEST_SHAPE))
    accepted = jnp.log(uniform(words(key_accept, x.shape), dtype.type)) < log_ratio
    return jnp.where(inside & accepted, jnp.exp(proposed), value)
