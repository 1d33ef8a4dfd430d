"""Stick breaking: truncated sticks, and retrospective sticks for the free slots of an array."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.variates.gamma import gamma_variate, logbeta
from bnp_models.kernels.variates.rng import uniform, words


def log_weights_from_sticks(
    log_v: Float[Array, "... k"], log_1mv: Float[Array, "... k"]
) -> Float[Array, "... k"]:
    """Log weights of sticks along the last axis: log pi_k = log V_k + sum_{h<k} log(1 - V_h)."""
    return log_v + _sum_before(log_1mv)


def _sum_before(x: Float[Array, "... k"]) -> Float[Array, "... k"]:
    """Sums of the earlier entries, without loss of precision by later, much larger ones."""
    first = jnp.zeros_like(x[..., :1])
    return jnp.concatenate([first, jnp.cumsum(x[..., :-1], axis=-1)], axis=-1)


@jax.named_scope("truncated_sticks")
def truncated_sticks(
    key: Key[Array, ""], counts: Int[Array, "*g k"], alpha: Float[Array, "*g"]
) -> tuple[Float[Array, "*g k"], Float[Array, "*g"]]:
    """Draw stick-breaking weights given class counts, truncated at K (Ishwaran & James 2001).

    Parameters
    ----------
    key
        Used once.
    counts
        Number nu_k of members of each class, for one process or several.
    alpha
        Concentration of each process.

    Returns
    -------
    log_pi
        log pi_k, with V_k ~ Beta(1 + nu_k, alpha + sum_{h>k} nu_h) and V_K = 1.
    sum_log_1mv
        sum_{k<K} log(1 - V_k), on which alpha's conditional depends.

    Notes
    -----
    doi:10.1198/016214501750332758.
    """
    dtype = alpha.dtype
    nu = counts.astype(dtype)
    later = jnp.cumsum(counts[..., ::-1], axis=-1)[..., ::-1] - counts
    log_v, log_1mv = logbeta(key, 1 + nu, alpha[..., None] + later.astype(dtype))
    last = jnp.arange(counts.shape[-1]) == counts.shape[-1] - 1
    log_v = jnp.where(last, 0, log_v)
    log_1mv = jnp.where(last, 0, log_1mv)
    return log_weights_from_sticks(log_v, log_1mv), jnp.sum(log_1mv, axis=-1)


@jax.named_scope("stick_concentration")
def stick_concentration(
    key: Key[Array, ""],
    sum_log_1mv: Float[Array, ""],
    num_sticks: int,
    shape: Float[Array, ""] | float,
    rate: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Draw the concentration alpha given its truncated sticks.

    Parameters
    ----------
    key
        Used once.
    sum_log_1mv
        sum_{k<K} log(1 - V_k).
    num_sticks
        Number K of sticks, the last of which is 1.
    shape, rate
        alpha is Ga(shape, rate) a priori, Ga(shape + K - 1, rate - sum_log_1mv) given the sticks.
    """
    return gamma_variate(key, shape + (num_sticks - 1), rate - sum_log_1mv)


@jax.named_scope("retrospective_sticks")
def retrospective_sticks(
    key: Key[Array, ""],
    active: Bool[Array, " k"],
    log_remainder: Float[Array, ""],
    alpha0: Float[Array, ""],
    negligible: float = 0.0,
) -> tuple[Float[Array, " k"], Float[Array, ""]]:
    """Divide the remaining mass of a Dirichlet process among the free slots by stick breaking.

    Parameters
    ----------
    key
        Used once.
    active
        Whether each slot is in use; the others receive the remainder in the order of slots.
    log_remainder
        Logarithm of the mass beyond the active components.
    alpha0
        Concentration of the process: sticks are Beta(1, alpha0).
    negligible
        If the mass beyond a stick is no more than this, no further sticks are broken.

    Returns
    -------
    log_weight
        Logarithm of each free slot's mass; -inf for active slots and free slots without a stick.
        The last stick has all the remaining mass, so that the masses sum to the remainder.
    log_left_over
        Logarithm of the mass that further sticks would have in an array without limit. This is the
        only approximation. It is the whole remainder if no slot is free.

    Notes
    -----
    Papaspiliopoulos & Roberts (2008), doi:10.1093/biomet/asm086. log(1 - V) = log(U) / alpha0.
    """
    log_1mv = jnp.where(
        active, 0, jnp.log(uniform(words(key, active.shape), alpha0.dtype.type)) / alpha0
    )
    log_v = jnp.log(-jnp.expm1(log_1mv))
    passed = jnp.cumsum(log_1mv)
    number = jnp.cumsum(~active)
    enough = log_remainder + passed <= jnp.log(jnp.asarray(negligible, alpha0.dtype))
    last = jnp.argmax(~active & (enough | (number == number[-1])))
    slot = jnp.arange(active.size)
    log_share = jnp.where(slot == last, 0, log_v)
    log_weight = log_remainder + _sum_before(log_1mv) + log_share
    has_stick = ~active & (slot <= last)
    return jnp.where(has_stick, log_weight, -jnp.inf), log_remainder + passed[last]


def log_tail_sums(log_x: Float[Array, " K"]) -> Float[Array, " K"]:
    """Log sums from each class on: log X_k = log sum_{h>=k} x_h."""
    return lax.cumlogsumexp(log_x, reverse=True)


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
