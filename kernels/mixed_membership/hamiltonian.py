"""Hamiltonian moves of all parameters under structural zeros, without augmented records.

Given augmented records of the impossible region, the parameters hardly change: these records are
many, and those of a component that lies mostly in that region were drawn from its current
parameters. Here the truncation is the exact factor P(F)^-n instead. g_0, the level probabilities
and the concentration change together along the gradient of the log density, given only the labels
and tables of the sample.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from bnp_models.kernels.mixed_membership.tilts import DirichletDensity, Truncation
from bnp_models.kernels.mixed_membership.urn_boxes import block_sums, differentiable_probability
from bnp_models.kernels.numerics.counting import sum_by_group
from bnp_models.kernels.numerics.platforms import in_double
from bnp_models.kernels.variates.rng import Keys, normal, uniform, words

# Range of the length of leapfrog steps, in units of standard deviations.
STEPS = (0.15, 0.4)


@jax.named_scope("hamiltonian_step")
def hamiltonian_step(
    key: Key[Array, ""],
    log_density: Callable[[PyTree], Float[Array, ""]],
    position: PyTree,
    precision: PyTree,
    num_steps: int,
    steps: tuple[float, float],
    double: bool = False,
) -> tuple[PyTree, Bool[Array, ""]]:
    """Make one Hamiltonian Monte Carlo step.

    Parameters
    ----------
    key
        Used once.
    log_density
        Log density of a position, a tree of arrays; differentiable.
    position, precision
        Current position, and the variances of the momenta, which must not depend on the position.
    num_steps, steps
        Number of leapfrog steps, and the bounds of their length, which is drawn uniformly on a log
        scale.
    double
        Whether log densities for the acceptance are in double precision.

    Returns
    -------
    position, accepted

    Notes
    -----
    Duane et al. (1987), doi:10.1016/0370-2693(87)91197-X; Neal (2011), arXiv:1206.1901.
    """
    leaves, tree = jax.tree.flatten(position)
    dtype = leaves[0].dtype
    *keys, key_step, key_accept = Keys(key, len(leaves) + 2)
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

    # The first round does not change the position: it computes the gradient at the start by the
    # same compiled code.
    nowhere = jax.tree.map(jnp.zeros_like, position), jnp.zeros((), dtype)
    start = (position, momentum, *nowhere, nowhere[1])
    moved, p, _, after, before = lax.fori_loop(0, num_steps + 1, leapfrog, start)
    growth = after - before
    if double:
        growth = in_double(lambda new, old: log_density(new) - log_density(old), moved, position)
    log_accept = growth - kinetic(p) + kinetic(momentum)
    # The density of a diverged trajectory is nan, and it is rejected.
    accepted = jnp.log(uniform(words(key_accept, ()), dtype.type)) < log_accept
    return jax.tree.map(lambda x, new: jnp.where(accepted, new, x), position, moved), accepted


class Parameters(NamedTuple):
    """Parameters that a trajectory moves."""

    theta: Float[Array, "R K"]
    """Level probabilities."""
    g0: Float[Array, " K"]
    """Weights of the components."""
    concentration: Float[Array, ""]
    """Shared alpha, or the rate of the prior of the alphas."""


class Concentration(NamedTuple):
    """Conditional density of the concentration given the tables; the step moves its logarithm."""

    log_density: Callable[[Float[Array, ""]], Float[Array, ""]]
    """Function of a concentration: log density of its logarithm, without the truncation."""
    precision: Float[Array, ""]
    """Rough curvature of that log density."""


@jax.named_scope("move_parameters")
def move_parameters(
    key: Key[Array, ""],
    parameters: Parameters,
    density: DirichletDensity,
    concentration: Concentration | None,
    truncation: Callable[[Float[Array, ""]], Truncation],
    num_steps: int,
    double: bool = False,
) -> tuple[Parameters, Bool[Array, ""]]:
    """Move level probabilities, component weights and the concentration by one Hamiltonian step.

    Parameters
    ----------
    key, parameters
        A key, used once, and the current parameters.
    density
        Density of theta and g_0 without the truncation. The proportions of the weights of slots
        without a table do not change.
    concentration
        Density of the concentration; None: it does not change.
    truncation
        The factor of the truncation as a function of the concentration.
    num_steps
        Number of leapfrog steps.
    double
        Whether log densities for the acceptance are in double precision.

    Returns
    -------
    parameters, accepted
        Parameters after the step, and whether the proposal was accepted.

    Notes
    -----
    Coordinates: y_jkl with theta_jkl proportional to exp y_jkl, and e_k with g_k proportional to
    exp(e_k + sum_j [log sum_l exp y_jkl - the mean of y_jkl over the component's items]). In these
    coordinates the probability of a level that no item has can grow together with g_k, while the
    mass of the component in the feasible region does not change. This is the direction on which a
    truncated sample gives no information. The sums of the exponentials are auxiliary variables with
    log-normal distributions. The map from theta, g and these sums has the Jacobian prod theta prod
    g.
    """
    key_sum, key_total, key_move = Keys(key, 3)
    levels = density.levels
    frame = _frame(parameters, density)
    of_node = levels.given(frame.items)
    position = _draw_position(key_sum, key_total, frame, parameters)
    start = _point(frame, position)
    start_shares = levels.log_shares(start.log_theta)

    def log_density(x):
        point = _point(frame, x)
        auxiliary = _auxiliary(frame, point)
        value, prior = parameters.concentration, 0
        if concentration is not None:
            value = jnp.exp(x["concentration"])
            prior = concentration.log_density(value)
        num_records, weights, feasible = truncation(value)
        sums = block_sums(jnp.exp(point.log_theta), point.g0, feasible)
        p = differentiable_probability(sums, weights, feasible)
        # Sums of changes since the start, because single precision would round differences of sums.
        shares = levels.log_shares(point.log_theta)
        evidence = jnp.sum(of_node * (shares - start_shares))
        evidence = evidence + jnp.sum(frame.shape * (point.log_g - start.log_g))
        return evidence + prior - 0.5 * auxiliary - num_records * jnp.log(p)

    precision = {"levels": 1 + frame.items, "weights": 1 + frame.shape}
    if concentration is not None:
        position["concentration"] = jnp.log(parameters.concentration)
        precision["concentration"] = concentration.precision
    x, accepted = hamiltonian_step(
        key_move, log_density, position, precision, num_steps, STEPS, double
    )
    point = _point(frame, x)
    moved = parameters._replace(theta=jnp.exp(point.log_theta), g0=point.g0)
    if concentration is not None:
        moved = moved._replace(concentration=jnp.exp(x["concentration"]))
    # If the step is rejected, the parameters keep their bits.
    kept = (jnp.where(accepted, new, old) for new, old in zip(moved, parameters, strict=True))
    return Parameters(*kept), accepted


class _Frame(NamedTuple):
    """Constants of the map between coordinates and parameters."""

    variable: Int[Array, " R"]
    """Variable of each row."""
    exists: Bool[Array, " R"]
    """Whether a variable with this number exists."""
    items: Float[Array, "R K"]
    """Items by row and component."""
    totals: Float[Array, "R K"]
    """Items by variable and component."""
    share: Float[Array, "R K"]
    """Share of each row among the items of its variable and component."""
    shape: Float[Array, " K+1"]
    """Dirichlet parameters of the weights of the components and of all slots without a table."""
    rest: Float[Array, ""]
    """Weight of all slots without a table."""
    free: Float[Array, " K"]
    """Proportions in which the slots without a table share that weight."""


class _Point(NamedTuple):
    """Parameters at a position, and the auxiliary variables."""

    log_theta: Float[Array, "R K"]
    log_g: Float[Array, " K+1"]
    g0: Float[Array, " K"]
    log_sum: Float[Array, "R K"]
    """Log of the sum of exponentials, by variable and component."""
    log_total: Float[Array, ""]
    """Log of the sum of exponentials of the weights."""


def _by_variable(x, variable):
    """Sums over the rows of each variable."""
    return sum_by_group(x, variable, int(variable.size))


def _frame(parameters, density):
    """Constants of the map, from the sample and the prior."""
    theta, g0, _ = parameters
    counts, levels, tables, others = density
    variable = levels.variable
    dtype = theta.dtype
    items = counts.astype(dtype)
    shape = jnp.append(tables, others).astype(dtype)
    exists = _by_variable(jnp.ones(variable.size, dtype), variable) > 0
    totals = _by_variable(items, variable)
    share = items / jnp.maximum(totals, 1)[variable]
    free = jnp.where(tables > 0, 0, g0)
    rest = jnp.sum(free)
    free = free / jnp.maximum(rest, jnp.finfo(dtype).tiny)
    return _Frame(variable, exists, items, totals, share, shape, rest, free)


def _compensation(frame, log_sum, y):
    """Part of a component's log weight that depends on its level probabilities."""
    gain = log_sum - _by_variable(frame.share * y, frame.variable)
    return jnp.sum(jnp.where(frame.totals > 0, gain, 0), axis=0)


def _point(frame, x):
    """Parameters at a position."""
    tiny = jnp.finfo(frame.items.dtype).tiny
    log_sum = jnp.log(jnp.maximum(_by_variable(jnp.exp(x["levels"]), frame.variable), tiny))
    log_theta = x["levels"] - log_sum[frame.variable]
    log_h = x["weights"].at[:-1].add(_compensation(frame, log_sum, x["levels"]))
    log_h = jnp.where(frame.shape > 0, log_h, -jnp.inf)
    log_total = jax.nn.logsumexp(log_h)
    log_g = jnp.where(frame.shape > 0, log_h - log_total, 0)
    g = jnp.where(frame.shape > 0, jnp.exp(log_g), 0)
    return _Point(log_theta, log_g, g[:-1] + frame.free * g[-1], log_sum, log_total)


def _auxiliary(frame, point):
    """Minus twice the log density of the auxiliary variables."""
    log_sum = jnp.where(frame.exists[:, None], point.log_sum, 0)
    return jnp.sum(log_sum**2) + point.log_total**2


def _draw_position(key_sum, key_total, frame, parameters):
    """Coordinates of the current parameters, with drawn auxiliary variables."""
    theta, g0, _ = parameters
    dtype = theta.dtype
    tiny = jnp.finfo(dtype).tiny
    log_sum = normal(words(key_sum, (frame.variable.size, g0.size)), dtype.type)
    log_total = normal(words(key_total, ()), dtype.type)
    y = jnp.log(jnp.maximum(theta, tiny)) + log_sum[frame.variable]
    log_h = jnp.log(jnp.maximum(jnp.append(g0, frame.rest), tiny)) + log_total
    return {"levels": y, "weights": log_h.at[:-1].add(-_compensation(frame, log_sum, y))}
