"""Weights of latent classes among the feasible records, and their stick-breaking prior."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.latent_classes.truncated_levels import Tilt
from bnp_models.kernels.variates.gamma import loggamma, loggamma_from_one


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
        log S_k, S_k the cumulative sum of s, for `draw_observed_weights`.
    """
    dtype = log_pi.dtype
    num_classes = log_pi.size
    log_rho = log_pi + log_mass
    shape = jnp.ones(num_classes, dtype).at[0].add(alpha)
    log_e = loggamma_from_one(key, jnp.append(shape, num_records.astype(dtype)))
    log_q = log_e[-1] + log_rho - jax.nn.logsumexp(log_rho)
    log_s = log_e[:-1] - log_tail_sums(log_q - log_mass)
    # X_K has no factor, because the last stick is not broken.
    log_s = jnp.where(jnp.arange(num_classes) == num_classes - 1, -jnp.inf, log_s)
    log_cumulative = lax.cumlogsumexp(log_s)
    power = jnp.ones(num_classes, dtype).at[-1].set(alpha)
    return Tilt(jnp.exp(log_cumulative + log_q), power), log_cumulative


def log_tail_sums(log_x: Float[Array, " K"]) -> Float[Array, " K"]:
    """Log sums from each class on: log X_k = log sum_{h>=k} x_h."""
    return lax.cumlogsumexp(log_x, reverse=True)


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
    The weights among the feasible records are in proportion to q_k ~ Ga(1 + n_k, 1 + S_k / F_k),
    the last of shape n_K + alpha.
    """
    members = class_counts.astype(log_mass.dtype)
    # Not computed as 1 + n + (alpha - 1), which rounds to 0 for small alpha.
    shape = (1 + members).at[-1].set(members[-1] + alpha)
    log_q = loggamma(key, shape) - jnp.logaddexp(0, log_s - log_mass)
    log_x = log_q - log_mass
    return log_x - jax.nn.logsumexp(log_x)


def log_stick_prior(log_x: Float[Array, "... K"], alpha: Float[Array, ""]) -> Float[Array, "..."]:
    """Log density of stick-breaking weights, up to a constant; x may have any scale.

    It is the logarithm of x_K^{alpha - 1} X_1^{-(1 + alpha)} prod_{k=2}^{K-1} X_k^{-1}, with X_k
    the sum of x from class k on.

    Parameters
    ----------
    log_x
        Log weights along the last axis.
    alpha
        Concentration of the sticks.
    """
    log_tail = lax.cumlogsumexp(log_x, axis=log_x.ndim - 1, reverse=True)
    inner = jnp.sum(log_tail[..., 1:-1], axis=-1)
    return (alpha - 1) * log_x[..., -1] - (1 + alpha) * log_tail[..., 0] - inner
