"""Level probabilities of latent classes whose product distributions are truncated to a region."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.variates.gamma import LOG_LEAST_LEVEL, loggamma, normalise_levels
from bnp_models.kernels.variates.rng import Keys, uniform, words

# On accelerators the default precision would round to bfloat16.
_matmul = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


class Tilt(NamedTuple):
    """Tie of the feasible masses F to the weights, given the gamma variates s.

    The prior of the weights has the factor prod_k F_k^{-power_k} exp(-pull_k / F_k).
    """

    pull: Float[Array, " K"]
    """Pull of each class towards large masses."""
    power: Float[Array, " K"]
    """Power of each class's mass."""


def through_variables(
    log_lambda: Float[Array, "R K"],
    region: Region,
    update: Callable[[Any, Array, Array], tuple[Array, Any]],
    inputs: Any,
) -> tuple[Float[Array, "R K"], Float[Array, " K"], Any]:
    """Update the constrained variables in turn, given the feasible mass that each level leaves.

    Parameters
    ----------
    log_lambda
        Log level probabilities by row and class.
    region
        The feasible boxes.
    update
        (inputs of the variable, its log levels (L, K), mass of each level (L, K)) -> (new log
        levels, anything to collect). The mass of a level is the feasible mass of the class given
        that level, under the new levels of earlier variables and the old ones of later variables.
    inputs
        Arrays with a leading axis over constrained variables.

    Returns
    -------
    log_lambda, mass, collected
        The new levels; feasible masses F_k under them; what `update` collected, by variable.
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
        block, sets, behind, later, first, of_variable = x
        earlier = jnp.where(first, earlier * jnp.sum(before, axis=0), earlier)
        before = jnp.where(first, nothing, before)
        mass_of_level = _matmul(sets.T, before * behind) * (earlier * later)
        new, collected = update(of_variable, block, mass_of_level)
        return (before * _matmul(sets, jnp.exp(new)), earlier), (new, collected)

    (before, earlier), (blocks, collected) = lax.scan(
        forward, (start, one), (blocks, region.sets, behind, later, is_first, inputs)
    )
    return region.put(log_lambda, blocks), earlier * jnp.sum(before, axis=0), collected


@jax.named_scope("update_levels_truncated")
def update_levels_truncated(
    key: Key[Array, ""],
    log_lambda: Float[Array, "R K"],
    counts: Int[Array, "R K"],
    class_counts: Int[Array, " K"],
    variable: Int[Array, " R"],
    region: Region,
    tilt: Tilt,
    level_shape: Float[Array, " R"],
) -> tuple[Float[Array, "R K"], Float[Array, " K"], Float[Array, ""]]:
    """Update the level probabilities of all classes, the augmented sample integrated out.

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
        Tie to the weights; zeros where the weights do not depend on F.
    level_shape
        Dirichlet shapes b of the level probabilities' prior, by row.

    Returns
    -------
    log_lambda
        New levels: variables in turn, all levels of a variable and all classes at once.
    log_mass
        log F_k of the result.
    acceptance
        Share of the proposals accepted, over classes and constrained variables.

    Notes
    -----
    In class k and variable j, with m_l the feasible mass given level l, F = sum_l m_l lambda_l,
    c = sum_l b_l and A = n_k + c, the target is
    prod lambda_l^{b_l + n_l - 1} F^{-n_k - power} exp(-pull / F). A variate tau ~ Ga(c - s, 1 / F)
    turns it into prod lambda_l^{b_l + n_l - 1} F^{-A} exp(-y / F) F^{s - power} with
    y = tau + pull, for which Ga(b_l + n_l, m_l + y / A) variates, normalised, are a Metropolis-
    Hastings proposal of weight exp(-y / F) (1 + y / (A F))^A F^{s - power}: nearly constant where
    n_k is large. s is 1, or c / 2 where that is less.
    """
    dtype = log_lambda.dtype
    key_gamma, key_accept = Keys(key)
    num_rows, num_classes = log_lambda.shape
    num_variables = region.num_levels.size
    # One call for both kinds of variate: they are compiled once.
    shapes = region.take(level_shape[:, None], 0)
    prior_total = jnp.sum(shapes, axis=1)
    shape_tau = prior_total - jnp.minimum(1, prior_total / 2)
    all_shapes = jnp.concatenate(
        [level_shape[:, None] + counts, jnp.broadcast_to(shape_tau, (num_variables, num_classes))]
    )
    log_g = loggamma(key_gamma, all_shapes)
    log_g, log_tau = log_g[:num_rows], log_g[num_rows:]
    log_u = jnp.log(uniform(words(key_accept, (num_variables, num_classes)), dtype.type))
    drawn = jnp.maximum(normalise_levels(log_g, variable), LOG_LEAST_LEVEL)
    new = jnp.where(region.free[:, None] > 0, drawn, log_lambda)
    members = class_counts.astype(dtype)

    def update(inputs, old, mass_of_level):
        log_g, log_tau, log_u, exists, prior_total = inputs

        def mass(log_level):
            return jnp.sum(jnp.exp(log_level) * mass_of_level, axis=0)

        present = mass(old)
        total = members + prior_total
        y = jnp.exp(log_tau) * present + tilt.pull
        log_w = log_g - jnp.log(mass_of_level + y / total)
        proposal = log_w - jax.nn.logsumexp(log_w, axis=0)
        proposal = jnp.where(exists, jnp.maximum(proposal, LOG_LEAST_LEVEL), -jnp.inf)
        left = jnp.minimum(1, prior_total / 2) - tilt.power

        def log_weight(mass):
            return -y / mass + total * jnp.log1p(y / (total * mass)) + left * jnp.log(mass)

        accept = log_u < log_weight(mass(proposal)) - log_weight(present)
        return jnp.where(accept, proposal, old), jnp.mean(accept.astype(dtype))

    exists = (region.rows < num_rows)[:, :, None]
    inputs = (region.take(log_g, -jnp.inf), log_tau, log_u, exists, prior_total)
    new, mass, accepted = through_variables(new, region, update, inputs)
    return new, jnp.log(mass), jnp.sum(accepted) / max(num_variables, 1)
