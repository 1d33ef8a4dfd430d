"""Latent classes truncated to a feasible region, without the augmented sample.

Class k has weight pi_k and level probabilities lambda_jk; records are drawn from the mixture and
kept where they are feasible. The region is a union of disjoint boxes, each a set of levels for
every variable, so that class k has the feasible mass

    F_k = sum_b prod_j sum_{l in A_bj} lambda_jlk.

With the observed weights rho_k, proportional to pi_k F_k, the likelihood is a product over classes,

    prod_k rho_k^{n_k} prod_{jl} lambda_jlk^{n_jlk} / F_k^{n_k},

and only the prior of the sticks ties the classes together. With x_k = q_k / F_k and q the observed
weights on a gamma scale, that prior is

    x_K^{alpha - 1} X_1^{-(1 + alpha)} prod_{k=2}^{K-1} X_k^{-1} prod_k F_k^{-1},  X_k = sum_{h>=k} x_h

(the generalised Dirichlet density of truncated sticks and the Jacobian of q -> pi). Gamma variates
s_k for the powers of X_k make it a product over classes too: everything below is parallel over
classes, and no record of the impossible region is ever drawn.

Arrays: (R, K) hold the levels of all variables by class, variable j in `slice_j` of the rows.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.logspace import loggamma
from bnp_models.kernels.rng import uniform, words


def level_slices(num_levels: Sequence[int]) -> tuple[slice, ...]:
    """Rows of each variable in an array of all levels."""
    ends = list(itertools.accumulate(num_levels))
    return tuple(slice(end - size, end) for end, size in zip(ends, num_levels, strict=True))


def box_masses(
    log_lambda: Float[Array, "R K"],
    sets: Float[Array, "B R"],
    num_levels: tuple[int, ...],
    variables: tuple[int, ...],
) -> Float[Array, "V B K"]:
    """Probability of each box's set of levels, by variable and class.

    Parameters
    ----------
    log_lambda
        Log level probabilities.
    sets
        1 where the level is in the box, else 0.
    num_levels, variables
        Levels of every variable; the variables that the boxes constrain. Static.
    """
    rows = level_slices(num_levels)
    return jnp.stack([_mass(log_lambda[rows[j]], sets[:, rows[j]]) for j in variables])


def _mass(log_level, sets):
    # Highest precision: on accelerators the default would round to bfloat16.
    return jnp.matmul(sets, jnp.exp(log_level), precision=lax.Precision.HIGHEST)


def region_mass(
    log_lambda: Float[Array, "R K"],
    sets: Float[Array, "B R"],
    num_levels: tuple[int, ...],
    variables: tuple[int, ...],
) -> Float[Array, " K"]:
    """Each class's mass in a union of disjoint boxes, without cancellation.

    Parameters
    ----------
    log_lambda, sets, num_levels, variables
        As in `box_masses`.
    """
    if not variables:
        return jnp.full(log_lambda.shape[1], sets.shape[0] > 0, log_lambda.dtype)
    product = 1.0
    rows = level_slices(num_levels)
    for j in variables:
        product = product * _mass(log_lambda[rows[j]], sets[:, rows[j]])
    return jnp.sum(product, axis=0)


def draw_levels_free(
    key: Key[Array, ""],
    counts: Int[Array, "R K"],
    num_levels: tuple[int, ...],
    augmented: Int[Array, "R K"] | int = 0,
) -> Float[Array, "R K"]:
    """Log level probabilities given counts by level and class, lambda_jk ~ Dir(1 + counts)."""
    dtype = jnp.result_type(float)
    log_g = loggamma(key, 1 + counts.astype(dtype) + jnp.asarray(augmented, dtype))
    return normalise_levels(log_g, num_levels)


def normalise_levels(
    log_weight: Float[Array, "R K"], num_levels: tuple[int, ...]
) -> Float[Array, "R K"]:
    """Log weights less the log of their sum over each variable's levels."""
    return jnp.concatenate([
        log_weight[rows] - jax.nn.logsumexp(log_weight[rows], axis=0)
        for rows in level_slices(num_levels)
    ])  # fmt: skip


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
    sets: Float[Array, "B R"],
    num_levels: tuple[int, ...],
    variables: tuple[int, ...],
    tilt: Tilt,
) -> tuple[Float[Array, "R K"], Float[Array, " K"], Float[Array, ""]]:
    """Level probabilities of all classes, the augmented sample integrated out.

    Parameters
    ----------
    key
        Used once.
    log_lambda
        Current log level probabilities.
    counts
        Records of each class with each level.
    sets, num_levels, variables
        The feasible boxes, as in `box_masses`.
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
    key_levels, key_tau, key_accept = jax.random.split(key, 3)
    num_classes = log_lambda.shape[1]
    rows = level_slices(num_levels)
    log_g = loggamma(key_levels, 1 + counts.astype(dtype))
    new = normalise_levels(log_g, num_levels)
    if not variables:
        return new, jnp.zeros(num_classes, dtype), jnp.ones((), dtype)
    shape = jnp.array([max(num_levels[j] - 1, 1) for j in variables], dtype)
    log_tau = loggamma(key_tau, jnp.broadcast_to(shape[:, None], (len(variables), num_classes)))
    log_u = jnp.log(uniform(words(key_accept, log_tau.shape), dtype.type))
    num_records = jnp.sum(counts[rows[0]], axis=0).astype(dtype)

    masses = [_mass(log_lambda[rows[j]], sets[:, rows[j]]) for j in variables]
    # after[v]: product of the masses of the variables behind v, which are updated later.
    after = [None] * len(variables)
    product = jnp.ones_like(masses[0])
    for v in reversed(range(len(variables))):
        after[v] = product
        product = product * masses[v]
    before = jnp.ones_like(product)
    accepted = jnp.zeros((), dtype)
    blocks = [new[r] for r in rows]
    for v, j in enumerate(variables):
        here = sets[:, rows[j]]
        mass_of_level = jnp.matmul(here.T, before * after[v], precision=lax.Precision.HIGHEST)
        old = log_lambda[rows[j]]
        proposal, log_weight, log_weight_old = _propose(
            log_g[rows[j]], old, mass_of_level, num_records, jnp.exp(log_tau[v]),
            shape[v], tilt, num_levels[j],
        )  # fmt: skip
        accept = log_u[v] < log_weight - log_weight_old
        blocks[j] = jnp.where(accept, proposal, old)
        before = before * _mass(blocks[j], here)
        accepted = accepted + jnp.mean(accept.astype(dtype))
    log_mass = jnp.log(jnp.sum(before, axis=0))
    return jnp.concatenate(blocks), log_mass, accepted / len(variables)


def _propose(log_g, old, mass_of_level, num_records, tau, shape, tilt, num_levels):
    """A proposal for one variable of all classes, its log weight and that of the present levels."""
    total = num_records + num_levels

    def mass(log_level):
        return jnp.sum(jnp.exp(log_level) * mass_of_level, axis=0)

    present = mass(old)
    y = tau * present + tilt.pull
    log_w = log_g - jnp.log(mass_of_level + y / total)
    proposal = log_w - jax.nn.logsumexp(log_w, axis=0)

    def log_weight(feasible):
        ratio = y / feasible
        left = num_levels - shape - tilt.power
        return -ratio + total * jnp.log1p(ratio / total) + left * jnp.log(feasible)

    return proposal, log_weight(mass(proposal)), log_weight(present)


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
    log_e = loggamma(key, jnp.append(shape, num_records.astype(dtype)))
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
    shape = 1 + class_counts.astype(log_mass.dtype)
    shape = shape.at[-1].add(alpha - 1)
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
