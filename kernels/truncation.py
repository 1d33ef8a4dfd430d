"""Latent classes truncated to a feasible region, without the augmented sample.

Class k has weight pi_k and level probabilities lambda_jk; records are drawn from the mixture and
kept where they are feasible. The region is a union of disjoint boxes, each a set of levels for
every variable, so that class k has the feasible mass

    F_k = sum_b prod_j sum_{l in A_bj} lambda_jlk.

With the observed weights rho_k, proportional to pi_k F_k, the likelihood is a product over classes,

    prod_k rho_k^{n_k} prod_{jl} lambda_jlk^{n_jlk} / F_k^{n_k},

and only the prior of the sticks ties the classes together. With x_k = q_k / F_k and q the observed
weights on a gamma scale, that prior is

    x_K^{alpha - 1} X_1^{-(1 + alpha)} prod_{k=2}^{K-1} X_k^{-1} prod_k F_k^{-1},

where X_k = sum_{h>=k} x_h: the generalised Dirichlet density of truncated sticks and the Jacobian
of q -> pi. Gamma variates s_k for the powers of X_k make it a product over classes too: everything
below is parallel over classes, and no record of the impossible region is ever drawn.

Arrays (R, K) hold the levels of all variables by class, one variable after the other.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.counting import first_rows
from bnp_models.kernels.logspace import loggamma, loggamma_from_one, totals_by_group
from bnp_models.kernels.rng import uniform, words


class Region(eqx.Module):
    """A region of cells as disjoint boxes, of each group of variables apart.

    Variables of two groups share no condition, so that the feasible region is the product of the
    groups' regions, and its mass in a class the product of theirs: boxes would multiply.
    """

    sets: Float[Array, "V B L"]
    """1 where a box of the variable's group admits the level; 0 beyond its levels or boxes."""
    rows: Int[Array, "V L"]
    """Row of each level in an array of all levels; their number R beyond the variable's levels."""
    num_levels: Float[Array, " V"]
    """Levels of each constrained variable."""
    free: Float[Array, " R"]
    """1 for the levels of variables that no condition constrains."""
    group: tuple[int, ...] = eqx.field(static=True)
    """Group of each constrained variable, 0 0 .. 1 1 .. in order."""

    @classmethod
    def of_boxes(cls, groups: Sequence[np.ndarray], num_levels: tuple[int, ...]) -> "Region":
        """Arrays of boxes given as sets of levels.

        Parameters
        ----------
        groups
            Of each group, (B, R) booleans: the levels that each box admits, variable after
            variable. A variable that no box of any group constrains is free.
        num_levels
            Levels of every variable.
        """
        num_rows = sum(num_levels)
        first = first_rows(num_levels)
        own = [np.arange(a, a + size) for a, size in zip(first, num_levels, strict=True)]
        variables = [(g, j) for g, sets in enumerate(groups) for j in range(len(own))
                     if not sets[:, own[j]].all()]  # fmt: skip
        widest = max((num_levels[j] for _, j in variables), default=1)
        most = max((len(sets) for sets in groups), default=1)
        rows = np.full((len(variables), widest), num_rows)
        padded = np.zeros((len(variables), most, widest))
        free = np.ones(num_rows)
        for v, (g, j) in enumerate(variables):
            rows[v, : num_levels[j]] = own[j]
            padded[v, : len(groups[g]), : num_levels[j]] = groups[g][:, own[j]]
            free[own[j]] = 0
        dtype = jnp.result_type(float)
        return cls(
            sets=jnp.asarray(padded, dtype),
            rows=jnp.asarray(rows, jnp.int32),
            num_levels=jnp.asarray([num_levels[j] for _, j in variables], dtype),
            free=jnp.asarray(free, dtype),
            group=tuple(g for g, _ in variables),
        )

    def take(self, levels: Float[Array, "R K"], fill: float) -> Float[Array, "V L K"]:
        """The rows of the constrained variables, `fill` beyond their levels."""
        return levels.at[self.rows].get(mode="fill", fill_value=fill)

    def put(
        self, levels: Float[Array, "R K"], blocks: Float[Array, "V L K"]
    ) -> Float[Array, "R K"]:
        """`levels` with the rows of the constrained variables replaced."""
        return levels.at[self.rows].set(blocks, mode="drop")


def _matmul(a, b):
    # Highest precision: on accelerators the default would round to bfloat16.
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def box_masses(log_lambda: Float[Array, "R K"], region: Region) -> Float[Array, "V B K"]:
    """Probability of each box's set of levels, by constrained variable and class."""
    return _matmul(region.sets, jnp.exp(region.take(log_lambda, -jnp.inf)))


def group_masses(log_lambda: Float[Array, "R K"], region: Region) -> list[Float[Array, " K"]]:
    """Each class's mass in the region of each group, without cancellation."""
    masses = box_masses(log_lambda, region)
    found = []
    for g in dict.fromkeys(region.group):
        product = 1.0
        for v in (v for v, own in enumerate(region.group) if own == g):
            product = product * masses[v]
        found.append(jnp.sum(product, axis=0))
    return found


def region_mass(log_lambda: Float[Array, "R K"], region: Region) -> Float[Array, " K"]:
    """Each class's mass in the region, without cancellation; 1 where nothing is constrained."""
    total = jnp.ones(log_lambda.shape[1], log_lambda.dtype)
    for mass in group_masses(log_lambda, region):
        total = total * mass
    return total


def outside_mass(
    log_lambda: Float[Array, "R K"], feasible: Region, impossible: Region
) -> Float[Array, " K"]:
    """Each class's mass in the impossible region, by the first group that is not feasible.

    Parameters
    ----------
    feasible, impossible
        Boxes of the same groups.
    """
    inside = jnp.ones(log_lambda.shape[1], log_lambda.dtype)
    total = jnp.zeros_like(inside)
    pairs = zip(
        group_masses(log_lambda, feasible), group_masses(log_lambda, impossible), strict=True
    )
    for mass, outside in pairs:
        total = total + inside * outside
        inside = inside * mass
    return total


def through_variables(log_lambda, region, update, inputs):
    """Update the constrained variables in turn, given the feasible mass that each level leaves.

    Parameters
    ----------
    log_lambda
        (R, K) log level probabilities.
    update
        (inputs of the variable, its log levels (L, K), mass of each level (L, K)) -> (new log
        levels, anything to collect). The mass of a level is the feasible mass of the class given
        that level, under the new levels of earlier variables and the old ones of later variables.
    inputs
        Arrays with a leading axis over constrained variables.

    Returns
    -------
    log_lambda, mass, collected
        The new levels; F_k under them; what `update` collected, by variable.
    """
    blocks = region.take(log_lambda, -jnp.inf)
    masses = _matmul(region.sets, jnp.exp(blocks))
    group = np.array(region.group, int)
    is_first = jnp.asarray(np.append(True, group[1:] != group[:-1])[: group.size])
    is_last = jnp.asarray(np.append(group[1:] != group[:-1], True)[: group.size])
    nothing = jnp.ones(masses.shape[1:], masses.dtype)
    one = jnp.ones(masses.shape[2], masses.dtype)

    # behind: the masses of later variables of the group; later: those of later groups.
    def backward(carry, x):
        behind, later = carry
        mass, last = x
        later = jnp.where(last, later * jnp.sum(behind, axis=0), later)
        behind = jnp.where(last, nothing, behind)
        return (behind * mass, later), (behind, later)

    # The boxes behind the last group: one, of mass one.
    start = jnp.zeros_like(nothing).at[:1].set(1)
    _, (behind, later) = lax.scan(backward, (start, one), (masses, is_last), reverse=True)

    def forward(carry, x):
        before, earlier = carry
        block, sets, behind, later, first, own = x
        earlier = jnp.where(first, earlier * jnp.sum(before, axis=0), earlier)
        before = jnp.where(first, nothing, before)
        mass_of_level = _matmul(sets.T, before * behind) * (earlier * later)
        new, collected = update(own, block, mass_of_level)
        return (before * _matmul(sets, jnp.exp(new)), earlier), (new, collected)

    (before, earlier), (blocks, collected) = lax.scan(
        forward, (start, one), (blocks, region.sets, behind, later, is_first, inputs)
    )
    return region.put(log_lambda, blocks), earlier * jnp.sum(before, axis=0), collected


class Tilt(NamedTuple):
    """What the prior of the weights says of the feasible masses, given the gamma variates s.

    The density of the feasible masses is prod_k F_k^{-power_k} exp(-pull_k / F_k).
    """

    pull: Float[Array, " K"]
    power: Float[Array, " K"]


def update_levels_truncated(
    key: Key[Array, ""],
    log_lambda: Float[Array, "R K"],
    counts: Int[Array, "R K"],
    class_counts: Int[Array, " K"],
    variable: Int[Array, " R"],
    region: Region,
    tilt: Tilt,
) -> tuple[Float[Array, "R K"], Float[Array, " K"], Float[Array, ""]]:
    """Level probabilities of all classes, the augmented sample integrated out.

    Parameters
    ----------
    key
        Used once.
    log_lambda
        Current log level probabilities.
    counts, class_counts
        Records of each class with each level, and in all.
    variable
        Variable of each row.
    region
        The feasible boxes.
    tilt
        Ties to the weights; zeros where the weights do not depend on F.

    Returns
    -------
    log_lambda
        Variables in turn; all levels of a variable and all classes at once.
    log_mass
        log F_k of the result.
    acceptance
        Share of the proposals accepted, over classes and constrained variables.

    Notes
    -----
    In class k and variable j, with c_l the feasible mass given level l, F = sum_l c_l lambda_l and
    A = n_k + L, the target is prod lambda_l^{n_l} F^{-n_k - power} exp(-pull / F). A variate
    tau ~ Ga(L - 1, 1 / F) turns it into prod lambda_l^{n_l} F^{-A} exp(-y / F) F^{1 - power} with
    y = tau + pull, for which Ga(1 + n_l, c_l + y / A) variates, normalised, are a Metropolis-
    Hastings proposal of weight exp(-y / F) (1 + y / (A F))^A F^{1 - power}: bounded, and nearly
    constant where n_k is large.
    """
    dtype = log_lambda.dtype
    key_gamma, key_accept = jax.random.split(key)
    num_rows, num_classes = log_lambda.shape
    num_variables = region.num_levels.size
    # One call for both kinds of variate: they are compiled once.
    shape_tau = jnp.broadcast_to(
        jnp.maximum(region.num_levels - 1, 1)[:, None], (num_variables, num_classes)
    )
    log_g = loggamma_from_one(key_gamma, jnp.concatenate([1 + counts.astype(dtype), shape_tau]))
    log_g, log_tau = log_g[:num_rows], log_g[num_rows:]
    log_u = jnp.log(uniform(words(key_accept, (num_variables, num_classes)), dtype.type))
    new = jnp.where(region.free[:, None] > 0, normalise_levels(log_g, variable), log_lambda)
    members = class_counts.astype(dtype)

    def update(inputs, old, mass_of_level):
        log_g, log_tau, log_u, num_levels = inputs

        def mass(log_level):
            return jnp.sum(jnp.exp(log_level) * mass_of_level, axis=0)

        present = mass(old)
        total = members + num_levels
        y = jnp.exp(log_tau) * present + tilt.pull
        log_w = log_g - jnp.log(mass_of_level + y / total)
        proposal = log_w - jax.nn.logsumexp(log_w, axis=0)
        left = num_levels - jnp.maximum(num_levels - 1, 1) - tilt.power

        def log_weight(mass):
            return -y / mass + total * jnp.log1p(y / (total * mass)) + left * jnp.log(mass)

        accept = log_u < log_weight(mass(proposal)) - log_weight(present)
        return jnp.where(accept, proposal, old), jnp.mean(accept.astype(dtype))

    inputs = (region.take(log_g, -jnp.inf), log_tau, log_u, region.num_levels)
    new, mass, accepted = through_variables(new, region, update, inputs)
    return new, jnp.log(mass), jnp.sum(accepted) / max(num_variables, 1)


def draw_levels(
    key: Key[Array, ""], shape: Float[Array, "R K"], variable: Int[Array, " R"]
) -> Float[Array, "R K"]:
    """Log level probabilities of every variable and class, Dirichlet with these shapes, >= 1."""
    return normalise_levels(loggamma_from_one(key, shape), variable)


def normalise_levels(
    log_weight: Float[Array, "R K"], variable: Int[Array, " R"]
) -> Float[Array, "R K"]:
    """Log weights less the log of their sum over the levels of each variable."""
    log_weight, total = totals_by_group(log_weight, variable)
    return log_weight - jnp.log(total)


def stick_tilt(
    key: Key[Array, ""],
    log_pi: Float[Array, " K"],
    log_mass: Float[Array, " K"],
    alpha: Float[Array, ""],
    num_records: Float[Array, ""],
) -> tuple[Tilt, Float[Array, " K"]]:
    """Draw the gamma variates that free the classes from each other.

    Parameters
    ----------
    key
        Used once.
    log_pi, log_mass
        Log weights and log feasible masses.
    alpha
        Concentration of the sticks.
    num_records
        Observed records n.

    Returns
    -------
    tilt
        For `update_levels_truncated`.
    log_s
        log S_k, S_k the cumulative sum of s, for `draw_observed_weights`.
    """
    dtype = log_pi.dtype
    num_classes = log_pi.size
    log_rho = log_pi + log_mass
    shape = jnp.ones(num_classes, dtype).at[0].add(alpha)
    log_e = loggamma_from_one(key, jnp.append(shape, num_records.astype(dtype)))
    log_q = log_e[-1] + log_rho - jax.nn.logsumexp(log_rho)
    log_s = log_e[:-1] - log_tail_sums(log_q - log_mass)
    # X_K is no factor of its own: the last stick is not broken.
    log_s = jnp.where(jnp.arange(num_classes) == num_classes - 1, -jnp.inf, log_s)
    log_cumulative = lax.cumlogsumexp(log_s)
    power = jnp.ones(num_classes, dtype).at[-1].set(alpha)
    return Tilt(jnp.exp(log_cumulative + log_q), power), log_cumulative


def log_tail_sums(log_x: Float[Array, " K"]) -> Float[Array, " K"]:
    """log X_k = log sum_{h>=k} x_h."""
    return lax.cumlogsumexp(log_x, reverse=True)


def draw_observed_weights(
    key: Key[Array, ""],
    class_counts: Int[Array, " K"],
    log_mass: Float[Array, " K"],
    log_s: Float[Array, " K"],
    alpha: Float[Array, ""],
) -> Float[Array, " K"]:
    """log pi given the class counts and feasible masses: q_k ~ Ga(1 + n_k, 1 + S_k / F_k)."""
    members = class_counts.astype(log_mass.dtype)
    # Not 1 + n + (alpha - 1), which rounds to 0 at small alpha.
    shape = (1 + members).at[-1].set(members[-1] + alpha)
    log_q = loggamma(key, shape) - jnp.logaddexp(0, log_s - log_mass)
    log_x = log_q - log_mass
    return log_x - jax.nn.logsumexp(log_x)


def log_stick_prior(log_x: Float[Array, "... K"], alpha: Float[Array, ""]) -> Float[Array, "..."]:
    """log of x_K^{alpha - 1} X_1^{-(1 + alpha)} prod_{k=2}^{K-1} X_k^{-1}, of any scale of x."""
    log_tail = lax.cumlogsumexp(log_x, axis=log_x.ndim - 1, reverse=True)
    inner = jnp.sum(log_tail[..., 1:-1], axis=-1)
    return (alpha - 1) * log_x[..., -1] - (1 + alpha) * log_tail[..., 0] - inner


def reorder_classes(
    key: Key[Array, ""], log_pi: Float[Array, " K"], alpha: Float[Array, ""], num_passes: int = 2
) -> Int[Array, " K"]:
    """A permutation of the classes, weights and all, that leaves the posterior invariant.

    Parameters
    ----------
    key
        Used once.
    log_pi
        Log weights in the present order.
    alpha
        Concentration of the sticks.
    num_passes
        Each pass tries every adjacent pair once, the even ones together and then the odd ones.

    Returns
    -------
    order
        Class that comes to each position.

    Notes
    -----
    Only the prior of the sticks knows the order. Exchanging positions k and k + 1 < K changes its
    factor X_{k+1}: the ratio is (pi_{k+1} + T) / (pi_k + T), T the mass behind both; the last pair
    has (pi_{K-1} / pi_K)^(alpha - 1). Papaspiliopoulos & Roberts (2008), doi:10.1093/biomet/asm086.
    """
    num_classes = log_pi.size
    log_u = jnp.log(uniform(words(key, (2 * num_passes, num_classes)), log_pi.dtype.type))
    position = jnp.arange(num_classes)

    def half(step, carry):
        order, log_pi = carry
        first = step % 2
        log_tail = log_tail_sums(log_pi)
        behind = jnp.append(log_tail[2:], jnp.full(2, -jnp.inf, log_pi.dtype))
        following = jnp.append(log_pi[1:], -jnp.inf)
        log_ratio = jnp.logaddexp(following, behind) - jnp.logaddexp(log_pi, behind)
        last = (alpha - 1) * (log_pi - following)
        log_ratio = jnp.where(position == num_classes - 2, last, log_ratio)
        leads = (position % 2 == first) & (position < num_classes - 1)
        swap = leads & (log_u[step] < log_ratio)
        source = jnp.where(swap, position + 1, position)
        source = jnp.where(jnp.roll(swap, 1), position - 1, source)
        return order[source], log_pi[source]

    return lax.fori_loop(0, 2 * num_passes, half, (position, log_pi))[0]


def swap_classes(
    key: Key[Array, ""],
    log_pi: Float[Array, " K"],
    log_mass: Float[Array, " K"],
    class_counts: Int[Array, " K"],
    num_pairs: int = 8,
) -> Int[Array, " K"]:
    """Exchange the levels and members of random pairs of classes, the weights staying in place.

    Parameters
    ----------
    key
        Used once.
    log_pi, log_mass, class_counts
        Log weights, log feasible masses, observed members.
    num_pairs
        Pairs tried, one after the other.

    Returns
    -------
    order
        Class whose levels and members come to each position.

    Notes
    -----
    The ratio is (pi_b / pi_a)^(n_a - n_b) (P / P')^n, P = sum_k pi_k F_k.
    """
    dtype = log_pi.dtype
    key_pair, key_accept = jax.random.split(key)
    num_classes = log_pi.size
    pair = uniform(words(key_pair, (2, num_pairs)), dtype.type)
    first = jnp.minimum((pair[0] * num_classes).astype(jnp.int32), num_classes - 1)
    offset = jnp.minimum((pair[1] * (num_classes - 1)).astype(jnp.int32), num_classes - 2)
    second = (first + 1 + offset) % num_classes
    log_u = jnp.log(uniform(words(key_accept, (num_pairs,)), dtype.type))
    num_records = jnp.sum(class_counts).astype(dtype)

    def attempt(i, order):
        a, b = first[i], second[i]
        swapped = order.at[a].set(order[b]).at[b].set(order[a])
        difference = (class_counts[order[a]] - class_counts[order[b]]).astype(dtype)
        log_total = jax.nn.logsumexp(log_pi + log_mass[order])
        log_total_new = jax.nn.logsumexp(log_pi + log_mass[swapped])
        log_ratio = difference * (log_pi[b] - log_pi[a]) + num_records * (log_total - log_total_new)
        return jnp.where(log_u[i] < log_ratio, swapped, order)

    return lax.fori_loop(0, num_pairs, attempt, jnp.arange(num_classes))
