"""Latent classes that are each truncated to a region: their level probabilities and weights."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.boxes.grouped_blocks import GroupedBlock, concentrations, draw_scaled
from bnp_models.kernels.boxes.region import Region, through_variables
from bnp_models.kernels.variates.gamma import loggamma, loggamma_from_one
from bnp_models.kernels.variates.levels import Levels
from bnp_models.kernels.variates.rng import Keys, uniform, words
from bnp_models.kernels.variates.sticks import log_tail_sums


class Tilt(NamedTuple):
    """Dependence of the weights on the feasible masses F, given the variates of `stick_tilt`.

    The prior of the weights has the factor prod_k F_k^{-power_k} exp(-pull_k / F_k).
    """

    pull: Float[Array, " K"]
    """Coefficient of 1 / F of each class, which favours large masses."""
    power: Float[Array, " K"]
    """Power of each class's mass."""


@jax.named_scope("update_levels_truncated")
def update_levels_truncated(
    key: Key[Array, ""],
    log_lambda: Float[Array, "R K"],
    counts: Int[Array, "R K"],
    class_counts: Int[Array, " K"],
    levels: Levels,
    region: Region,
    tilt: Tilt,
) -> tuple[Float[Array, "R K"], Float[Array, " K"], Float[Array, ""]]:
    """Update the level probabilities of all classes, with the augmented sample integrated out.

    Parameters
    ----------
    key
        Used once.
    log_lambda
        Current log level probabilities.
    counts, class_counts
        Number of records of each class with each level, and of each class.
    levels
        The levels under their prior, of shapes b.
    region
        The feasible boxes.
    tilt
        Dependence of the weights on F; zeros if there is none.

    Returns
    -------
    log_lambda
        New levels. Variables are updated in turn; all levels of a variable and all classes are
        updated at once.
    log_mass
        log F_k of the result.
    acceptance
        Share of accepted proposals, over classes and constrained variables.

    Notes
    -----
    In class k and variable j, with m_l the feasible mass given level l, F = sum_l m_l lambda_l, c =
    sum_l b_l and A = n_k + c, the target is prod lambda_l^{b_l + n_l - 1} F^{-n_k - power}
    exp(-pull / F). A variate tau ~ Ga(c - s, 1 / F) turns it into prod lambda_l^{b_l + n_l - 1}
    F^{-A} exp(-y / F) F^{s - power} with y = tau + pull, for which Ga(b_l + n_l, m_l + y / A)
    variates, normalised, are a Metropolis-Hastings proposal of weight exp(-y / F) (1 + y / (A
    F))^A F^{s - power}: nearly constant if n_k is large. s is the smaller of 1 and c / 2. If the
    variable has groups, c is the sum of the shapes of the highest groups, and proposal and weight
    are those of `GroupedBlock`.
    """
    dtype = log_lambda.dtype
    key_gamma, key_accept = Keys(key)
    num_rows, num_classes = log_lambda.shape
    num_variables = region.num_levels.size
    # Both kinds of variates are drawn by one call, so that the function is compiled once.
    prior_total = concentrations(region, levels)
    shape_tau = prior_total - jnp.minimum(1, prior_total / 2)
    nodes = levels.count(counts)
    shape = levels.shape[:, None] + nodes
    shape_tau = jnp.broadcast_to(shape_tau, (num_variables, num_classes))
    log_g = loggamma(key_gamma, jnp.concatenate([shape, shape_tau]))
    log_g, log_tau = log_g[: len(shape)], log_g[len(shape) :]
    log_u = jnp.log(uniform(words(key_accept, (num_variables, num_classes)), dtype.type))
    new = jnp.where(region.free[:, None] > 0, levels.of_weights(log_g), log_lambda)
    members = class_counts.astype(dtype)

    def update(inputs, old, mass_of_level):
        log_g, log_tau, log_u, exists, prior_total, shape, grouped = inputs

        def mass(log_level):
            return jnp.sum(jnp.exp(log_level) * mass_of_level, axis=0)

        present = mass(old)
        total = members + prior_total
        y = jnp.exp(log_tau) * present + tilt.pull
        rate = mass_of_level + y / total
        proposal, _ = draw_scaled(grouped, log_g, shape, rate)
        proposal = jnp.where(exists, proposal, -jnp.inf)
        left = jnp.minimum(1, prior_total / 2) - tilt.power

        log_ratio = log_mass_weight(mass(proposal), y, total, left)
        log_ratio -= log_mass_weight(present, y, total, left)
        if grouped is not None:
            log_ratio += grouped.log_weight(proposal, shape, rate)
            log_ratio -= grouped.log_weight(old, shape, rate)
        accept = log_u < log_ratio
        return jnp.where(accept, proposal, old), jnp.mean(accept.astype(dtype))

    exists = (region.rows < num_rows)[:, :, None]
    grouped = GroupedBlock.of_region(region, levels, log_g, nodes)
    log_g, shape = region.take(log_g[:num_rows], -jnp.inf), region.take(shape[:num_rows], 0)
    inputs = (log_g, log_tau, log_u, exists, prior_total, shape, grouped)
    new, mass, accepted = through_variables(new, region, update, inputs)
    return new, jnp.log(mass), jnp.sum(accepted) / max(num_variables, 1)


def log_mass_weight(mass, y, total, left):
    """Log of exp(-y / F) (1 + y / (A F))^A F^left at a feasible mass F, A the `total`."""
    return -y / mass + total * jnp.log1p(y / (total * mass)) + left * jnp.log(mass)


@jax.named_scope("stick_tilt")
def stick_tilt(
    key: Key[Array, ""],
    log_pi: Float[Array, " K"],
    log_mass: Float[Array, " K"],
    alpha: Float[Array, ""],
    num_records: Float[Array, ""],
) -> tuple[Tilt, Float[Array, " K"]]:
    """Draw auxiliary gamma variates that make classes independent in the prior of the sticks.

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
        log S_k for `draw_observed_weights`.

    Notes
    -----
    Let q_k be the weights pi_k F_k, scaled so that they add up to a Ga(n, 1) variate, x_k = q_k /
    F_k, and X_k = x_k + .. + x_K. The prior density of x is proportional to x_K^(alpha - 1)
    X_1^-alpha prod_{k<K} 1 / X_k. Variates s_k ~ Ga(1, X_k) for k < K, of shape 1 + alpha for k =
    1, turn this into x_K^(alpha - 1) prod_k exp(-S_k x_k) with S_k = s_1 + .. + s_k, so that
    classes are independent. In terms of q and F, class k has pull S_k q_k and power 1, the last
    class alpha.
    """
    dtype = log_pi.dtype
    num_classes = log_pi.size
    log_rho = log_pi + log_mass
    shape = jnp.ones(num_classes, dtype).at[0].add(alpha)
    log_e = loggamma_from_one(key, jnp.append(shape, num_records.astype(dtype)))
    log_q = log_e[-1] + log_rho - jax.nn.logsumexp(log_rho)
    log_s = log_e[:-1] - log_tail_sums(log_q - log_mass)
    # s_K = 0: the density has no factor 1 / X_K, because the last stick is not broken.
    log_s = jnp.where(jnp.arange(num_classes) == num_classes - 1, -jnp.inf, log_s)
    log_cumulative = lax.cumlogsumexp(log_s)
    power = jnp.ones(num_classes, dtype).at[-1].set(alpha)
    return Tilt(jnp.exp(log_cumulative + log_q), power), log_cumulative


@jax.named_scope("draw_observed_weights")
def draw_observed_weights(
    key: Key[Array, ""],
    class_counts: Int[Array, " K"],
    log_mass: Float[Array, " K"],
    log_s: Float[Array, " K"],
    alpha: Float[Array, ""],
) -> Float[Array, " K"]:
    """Draw log weights log pi given the class counts and feasible masses.

    Parameters
    ----------
    key
        Used once.
    class_counts
        Observed members n_k of each class.
    log_mass
        Log feasible masses log F_k.
    log_s
        log S_k of `stick_tilt`.
    alpha
        Concentration of the sticks.

    Notes
    -----
    The weights pi_k F_k are proportional to q_k ~ Ga(1 + n_k, 1 + S_k / F_k); q_K of the last class
    has the shape n_K + alpha.
    """
    members = class_counts.astype(log_mass.dtype)
    # Not computed as 1 + n + (alpha - 1), which rounds to 0 for small alpha.
    shape = (1 + members).at[-1].set(members[-1] + alpha)
    log_q = loggamma(key, shape) - jnp.logaddexp(0, log_s - log_mass)
    log_x = log_q - log_mass
    return log_x - jax.nn.logsumexp(log_x)
