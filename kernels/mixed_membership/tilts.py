"""Tilt moves, which change a component in a direction on which the data give no information.

If h_1(x_1) + .. + h_J(x_J) is the same for every feasible x (an equivalence of the structural
zeros), the change theta_j(l) -> theta_j(l) exp(t h_j(l)), normalised, does not change a component's
distribution on the feasible region. The weight of the component is rescaled by its feasible mass,
so that the acceptance depends mostly on the prior. A chain can make in one step a change that would
otherwise take thousands of sweeps.

`Atoms`, `DirichletDensity` and `Truncation` are the quantities that all moves under structural
zeros use. Given the labels and tables of the sample, the posterior density of the level
probabilities and of the weights is a product of Dirichlet densities times P(F)^-n.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.mixed_membership.urn_boxes import (
    UrnBoxes,
    block_products,
    block_sums,
    partition_totals,
    probability,
)
from bnp_models.kernels.numerics.counting import sum_by_group
from bnp_models.kernels.numerics.platforms import in_double
from bnp_models.kernels.variates.levels import Levels
from bnp_models.kernels.variates.rng import normal, uniform, uniform_index, word_pair


class Atoms(NamedTuple):
    """Atoms of G_0, and their contribution to the feasible region."""

    theta: Float[Array, "R K"]
    """Level probabilities."""
    g0: Float[Array, " K"]
    """Weights of the components."""
    totals: Float[Array, " Q"]
    """`partition_totals` of the feasible boxes under them."""


class DirichletDensity(NamedTuple):
    """Density of the atoms given the sample's labels and tables, without the truncation."""

    counts: Int[Array, "R K"]
    """Items of the sample by row and component."""
    levels: Levels
    """The levels under their prior."""
    tables: Float[Array, " K"] | Int[Array, " K"]
    """Dirichlet parameters of the weights: tables of each component plus those of the prior."""
    others: Float[Array, ""]
    """Parameter of the weight of all slots without a table: alpha_0 for a Dirichlet process."""


class Truncation(NamedTuple):
    """The factor P(F)^-n of the likelihood of a sample without infeasible records."""

    num_records: Int[Array, ""]
    """Number n of records of the sample."""
    weights: Float[Array, " Q"]
    """Result of `kernels.mixed_membership.urn_boxes.weights_by_size`."""
    feasible: UrnBoxes
    """The feasible boxes."""


# Standard deviations of the proposed tilts of the log odds; one of them is chosen at random.
_SCALES = (0.25, 1.0, 4.0)


class Tilted(NamedTuple):
    """Parameters after a tilt move."""

    theta: Float[Array, "R K"]
    """Level probabilities."""
    g0: Float[Array, " K"]
    """Weights of the components."""
    totals: Float[Array, " Q"]
    """`partition_totals` of the feasible boxes."""
    accepted: Bool[Array, ""]
    """Whether the move was accepted."""


@jax.named_scope("tilt_component")
def tilt_component(
    key: Key[Array, ""],
    direction: Float[Array, " R"],
    atoms: Atoms,
    density: DirichletDensity,
    truncation: Truncation,
    double: bool = False,
) -> Tilted:
    """Tilt a random component with a table, by one Metropolis-Hastings step.

    Parameters
    ----------
    key
        Used once.
    direction
        h, by row of theta; zero for variables that are not in the equivalence.
    atoms, density, truncation
        Level probabilities and weights, and the two parts of their density.
    double
        Whether the acceptance ratio is in double precision.

    Notes
    -----
    Given the tables, g_k ~ Beta(m_k, others + the other tables), independent of the proportions of
    the other weights, which do not change. In logarithms of theta's odds and the logit of g_k the
    map is a translation for every t, so that its Jacobian is one.
    """
    k, t, u = _choose_tilt(key, density.tables, atoms.theta.dtype)

    def tilt(t, u, atoms, tables):
        if double:
            sums = block_sums(atoms.theta, atoms.g0, truncation.feasible)
            atoms = atoms._replace(totals=partition_totals(sums, truncation.feasible))
        given = density._replace(tables=tables)
        return _tilt(k, t, u, direction, atoms, given, truncation)

    given = (t, u, atoms, density.tables)
    return in_double(tilt, *given) if double else tilt(*given)


def _tilt(k, t, u, direction, atoms, density, truncation) -> Tilted:
    """Tilt component k by t, or reject this according to the uniform number u."""
    theta, g0, totals = atoms
    counts, levels, tables, others = density
    num_records, weights, feasible = truncation
    dtype = theta.dtype
    old, g, m = theta[:, k], g0[k], tables[k]
    others = others + jnp.sum(tables) - m
    new, log_change = _tilt_levels(old, t * direction, levels.variable)

    pair = jnp.stack([old, new], axis=1)
    before, after = block_products(pair, jnp.ones(2, dtype), feasible).T
    # The sum over blocks of whole boxes is the probability that a record at one table is feasible.
    log_ratio = jnp.log(jnp.sum(before[feasible.whole]) / jnp.sum(after[feasible.whole]))
    log_scale = jnp.log1p(g * jnp.expm1(log_ratio))
    g_new = g * jnp.exp(log_ratio - log_scale)
    rest = block_sums(theta, g0.at[k].set(0), feasible)
    new_totals = partition_totals(rest * jnp.exp(-log_scale) + g_new * after, feasible)

    # If a level's probability underflows, it must not be multiplied by a change that is not finite.
    change, present = _change_of_nodes(log_change, old, new, levels)
    of_node = levels.shape + levels.count(counts[:, k])
    evidence = jnp.sum(jnp.where(present, of_node * change, 0))
    of_weight = m * (log_ratio - log_scale) - others * log_scale
    growth = jnp.log(probability(new_totals, weights) / probability(totals, weights))
    log_accept = evidence + of_weight - num_records * growth
    accepted = jnp.log(u) < log_accept
    return Tilted(
        theta=jnp.where(accepted, theta.at[:, k].set(new), theta),
        g0=jnp.where(accepted, (g0 * jnp.exp(-log_scale)).at[k].set(g_new), g0),
        totals=jnp.where(accepted, new_totals, totals),
        accepted=accepted,
    )


def _choose_tilt(key, tables, dtype):
    """Draw a component among those with a table, the tilt, and a uniform for its acceptance."""
    first, second = word_pair(key, (3,))
    u = uniform(first, dtype.type)
    active = tables > 0
    rank = uniform_index(u[0], jnp.sum(active))
    k = jnp.argmax(jnp.cumsum(active) > rank)
    scale = jnp.asarray(_SCALES, dtype)[uniform_index(u[1], len(_SCALES))]
    return k, scale * normal(second, dtype.type)[0], u[2]


def _change_of_nodes(log_change, old, new, levels):
    """Changes of log shares of nodes, given those of levels; and nodes that have a share."""
    changes, shares = [], [old > 0]
    for layer in levels.layers:
        old, new = layer.totals(old), layer.totals(new)
        shares.append(old > 0)
        of_group = jnp.log(jnp.where(old > 0, new, 1) / jnp.where(old > 0, old, 1))
        changes.append(log_change - layer.at_members(of_group, 0))
        log_change = of_group
    return jnp.concatenate([*changes, log_change]), jnp.concatenate(shares)


def _tilt_levels(old, shift, variable):
    """Level probabilities with shifted logarithms, and the shifts after normalisation."""
    top = jax.ops.segment_max(shift, variable, num_segments=variable.size)
    grown = old * jnp.exp(shift - top[variable])
    norm = jnp.log(sum_by_group(grown, variable, variable.size)) + top
    log_change = shift - norm[variable]
    return old * jnp.exp(log_change), log_change
