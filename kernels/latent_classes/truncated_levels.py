"""Level probabilities of latent classes whose product distributions are truncated to a region."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.boxes.region import Region, through_variables
from bnp_models.kernels.variates.gamma import loggamma_from_one, normalise_levels
from bnp_models.kernels.variates.rng import uniform, words


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
