"""Hamiltonian moves of all parameters under structural zeros, no augmented record in sight.

Given the records of the impossible region the parameters hardly move: they are many, and what they
say of a component that lies mostly there was drawn from its present parameters. Here the truncation
is the exact factor P(F)^-n, and g_0, the level probabilities and the concentration move together
along its gradient, given the labels and tables of the sample alone.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from bnp_models.kernels.mixed_membership.urn_boxes import (
    UrnBoxes,
    block_sums,
    differentiable_probability,
)
from bnp_models.kernels.variates.rng import normal, uniform, words

# Range of the length of leapfrog steps, in units of standard deviations.
STEPS = (0.15, 0.4)


def hamiltonian_step(
    key: Key[Array, ""],
    log_density: Callable[[PyTree], Float[Array, ""]],
    position: PyTree,
    precision: PyTree,
    num_steps: int,
    steps: tuple[float, float],
) -> tuple[PyTree, Bool[Array, ""]]:
    """One Hamiltonian Monte Carlo step.

    Parameters
    ----------
    key
        Used once.
    log_density
        Of a position, a tree of arrays; differentiable.
    position, precision
        Where the chain is, and the variances of the momenta: must not depend on the position.
    num_steps, steps
        Leapfrog steps, and the bounds of their length, which is drawn uniformly on a log scale.

    Returns
    -------
    position, accepted

    Notes
    -----
    Duane et al. (1987), doi:10.1016/0370-2693(87)91197-X; Neal (2011), arXiv:1206.1901.
    """
    leaves, tree = jax.tree.flatten(position)
    dtype = leaves[0].dtype
    *keys, key_step, key_accept = jax.random.split(key, len(leaves) + 2)
    momentum = jax.tree.unflatten(
        tree,
        [
            jnp.sqrt(m) * normal(words(k, x.shape), dtype.type)
            for k, x, m in zip(keys, leaves, jax.tree.leaves(precision), strict=True)
        ],
    )
    u = uniform(words(key_step, ()), dtype.type)
    step = jnp.exp(jnp.log(steps[0]) + u * jnp.log(steps[1] / steps[0])).astype(dtype)
    gradient = jax.value_and_grad(log_density)

    def kick(momentum, force, size):
        return jax.tree.map(lambda p, f: p + size * f, momentum, force)

    def kinetic(momentum):
        terms = jax.tree.map(lambda p, m: jnp.sum(p * (p / m)), momentum, precision)
        return 0.5 * sum(jax.tree.leaves(terms))

    def leapfrog(i, carry):
        x, p, force, _, before = carry
        size = jnp.where(i > 0, step, 0)
        p = kick(p, force, size / 2)
        x = jax.tree.map(lambda x, p, m: x + size * (p / m), x, p, precision)
        value, force = gradient(x)
        return x, kick(p, force, size / 2), force, value, jnp.where(i > 0, before, value)

    # The first round goes nowhere: the gradient at the start, by the same compiled code.
    nowhere = jax.tree.map(jnp.zeros_like, position), jnp.zeros((), dtype)
    start = (position, momentum, *nowhere, nowhere[1])
    moved, p, _, after, before = lax.fori_loop(0, num_steps + 1, leapfrog, start)
    log_accept = after - before - kinetic(p) + kinetic(momentum)
    # A diverged trajectory is not a number, and is refused.
    accepted = jnp.log(uniform(words(key_accept, ()), dtype.type)) < log_accept
    return jax.tree.map(lambda x, new: jnp.where(accepted, new, x), position, moved), accepted


class Parameters(NamedTuple):
    """What a trajectory moves."""

    theta: Float[Array, "R K"]
    g0: Float[Array, " K"]
    concentration: Float[Array, ""]
    """The shared alpha, or the rate of the alphas' prior."""


class Concentration(NamedTuple):
    """How the concentration moves: its logarithm, given the tables."""

    log_density: Callable[[Float[Array, ""]], Float[Array, ""]]
    """Of the concentration: the log density of its logarithm, but for the truncation."""
    precision: Float[Array, ""]
    """About the curvature of that."""


def move_parameters(
    key: Key[Array, ""],
    parameters: Parameters,
    counts: Int[Array, "R K"],
    tables: Float[Array, " K"],
    others: Float[Array, ""],
    concentration: Concentration | None,
    num_records: Int[Array, ""],
    variable: Int[Array, " R"],
    weights: Callable[[Float[Array, ""]], Float[Array, " Q"]],
    feasible: UrnBoxes,
    num_steps: int,
) -> tuple[Parameters, Bool[Array, ""]]:
    """One Hamiltonian step of level probabilities, component weights and the concentration.

    Parameters
    ----------
    key
        Used once.
    parameters
        The present ones.
    counts, tables
        Items of the sample by row and component; tables by component, and what the prior of the
        weights adds to each.
    others
        What the prior adds to the tables of no component (alpha_0, under a Dirichlet process). The
        slots without a table share what is left, in proportions that stay.
    concentration
        None: it stays.
    num_records
        n.
    variable
        Variable of each row.
    weights
        `kernels.mixed_membership.urn_boxes.weights_by_size`, of the concentration.
    feasible
        The feasible boxes.
    num_steps
        Leapfrog steps.

    Returns
    -------
    parameters, accepted

    Notes
    -----
    Coordinates: y_jkl with theta_jkl proportional to exp y_jkl, and e_k with g_k proportional to
    exp(e_k + sum_j [log sum_l exp y_jkl - the mean of y_jkl over the component's items]). A level
    that no item has may then grow, and g_k with it, while what the component gives to the feasible
    region stays: the direction in which a truncated sample says nothing. The map from theta, g and
    the sums of the exponentials, auxiliary and log-normal, has Jacobian prod theta prod g.
    """
    theta, g0, _ = parameters
    dtype = theta.dtype
    num_variables = int(variable.size)
    tiny = jnp.finfo(dtype).tiny
    c = counts.astype(dtype)
    active = tables > 0
    shape = jnp.append(tables, others).astype(dtype)

    def by_variable(x):
        return jax.ops.segment_sum(x, variable, num_segments=num_variables)

    exists = by_variable(jnp.ones(num_variables, dtype)) > 0
    items = by_variable(c)
    share = c / jnp.maximum(items, 1)[variable]
    free = jnp.where(active, 0, g0)
    rest = jnp.sum(free)
    free = free / jnp.maximum(rest, tiny)

    def compensation(log_sum, y):
        return jnp.sum(jnp.where(items > 0, log_sum - by_variable(share * y), 0), axis=0)

    def unpack(x):
        log_sum = jnp.log(jnp.maximum(by_variable(jnp.exp(x["levels"])), tiny))
        log_theta = x["levels"] - log_sum[variable]
        log_h = x["weights"].at[:-1].add(compensation(log_sum, x["levels"]))
        log_h = jnp.where(shape > 0, log_h, -jnp.inf)
        log_total = jax.nn.logsumexp(log_h)
        log_g = jnp.where(shape > 0, log_h - log_total, 0)
        g = jnp.where(shape > 0, jnp.exp(log_g), 0)
        return log_theta, log_g, g[:-1] + free * g[-1], log_sum, log_total

    def log_density(x):
        log_theta, log_g, g, log_sum, log_total = unpack(x)
        auxiliary = jnp.sum(jnp.where(exists[:, None], log_sum, 0) ** 2) + log_total**2
        value, prior = parameters.concentration, 0
        if concentration is not None:
            value = jnp.exp(x["concentration"])
            prior = concentration.log_density(value)
        p = differentiable_probability(
            block_sums(jnp.exp(log_theta), g, feasible), weights(value), feasible
        )
        evidence = jnp.sum((1 + c) * log_theta) + jnp.sum(shape * log_g)
        return evidence + prior - 0.5 * auxiliary - num_records * jnp.log(p)

    key_sum, key_total, key_move = jax.random.split(key, 3)
    log_sum = normal(words(key_sum, (num_variables, g0.size)), dtype.type)
    log_total = normal(words(key_total, ()), dtype.type)
    y = jnp.log(jnp.maximum(theta, tiny)) + log_sum[variable]
    log_h = jnp.log(jnp.maximum(jnp.append(g0, rest), tiny)) + log_total
    position = {"levels": y, "weights": log_h.at[:-1].add(-compensation(log_sum, y))}
    precision = {"levels": 1 + c, "weights": 1 + shape}
    if concentration is not None:
        position["concentration"] = jnp.log(parameters.concentration)
        precision["concentration"] = concentration.precision
    x, accepted = hamiltonian_step(key_move, log_density, position, precision, num_steps, STEPS)
    log_theta, _, g, *_ = unpack(x)
    moved = parameters._replace(theta=jnp.exp(log_theta), g0=g)
    if concentration is not None:
        moved = moved._replace(concentration=jnp.exp(x["concentration"]))
    # What has not moved keeps its bits.
    kept = (jnp.where(accepted, new, old) for new, old in zip(moved, parameters, strict=True))
    return Parameters(*kept), accepted
