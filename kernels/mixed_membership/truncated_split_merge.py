"""Splits and merges of components under structural zeros, with the truncation integrated exactly.

The sides of a split are proposed as without structural zeros, from the sample alone. The factor
P(F)^-n makes weights and level probabilities dependent. They are therefore proposed together with
the sides, so that every component has a mass in the feasible region that fits the sample.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.mixed_membership.tilts import Atoms, DirichletDensity, Truncation
from bnp_models.kernels.mixed_membership.urn_boxes import (
    block_sums,
    log_growth,
    partition_totals,
    probability,
)
from bnp_models.kernels.numerics.gamma_ratios import log_beta
from bnp_models.kernels.numerics.platforms import in_double
from bnp_models.kernels.splits.levels import propose_side_levels, weigh_side_levels
from bnp_models.kernels.splits.proposal import Proposal
from bnp_models.kernels.variates.gamma import gamma_variate, logbeta
from bnp_models.kernels.variates.levels import LOG_LEAST_LEVEL
from bnp_models.kernels.variates.rng import Keys

# Least number of other slots without tables, before and after a move.
SPARE_SLOTS = 3


class TruncatedSplitMerge(NamedTuple):
    """State after a move."""

    z: Int[Array, "J n"]
    """Component of each item."""
    theta: Float[Array, "R K"]
    """Level probabilities."""
    g0: Float[Array, " K"]
    """Weights of the components."""
    totals: Float[Array, " Q"]
    """`partition_totals` of the feasible boxes under them."""
    accepted: Bool[Array, ""]
    """Whether the move was accepted."""


@jax.named_scope("slot_of_split")
def slot_of_split(g0: Float[Array, " K"], tables: Int[Array, " K"]) -> Int[Array, ""]:
    """Slot with the smallest weight among those without tables, for `propose_sides`."""
    return jnp.argmin(jnp.where(tables > 0, 2, g0))


@jax.named_scope("split_or_merge_truncated")
def split_or_merge_truncated(
    key: Key[Array, ""],
    proposal: Proposal,
    z: Int[Array, "J n"],
    density: DirichletDensity,
    atoms: Atoms,
    truncation: Truncation,
    region: Region,
    double: bool = False,
) -> TruncatedSplitMerge:
    """Split or merge components by one Metropolis-Hastings step, given the seating.

    Parameters
    ----------
    key
        Used once.
    proposal
        Result of `kernels.splits.proposal.propose_sides`, with `slot_of_split`.
    z
        Component of each item.
    density
        Density under a Dirichlet process: tables as integers, and alpha_0 for the other slots.
    atoms, truncation
        Level probabilities and weights, and the factor of the truncation.
    region
        The feasible boxes, for records of one component.
    double
        Whether to decide in double precision: log weights of levels are as large as the number of
        items.

    Notes
    -----
    Atoms of G_0 with tables are (x, theta), where the weight x has the density x^(m - 1) e^-x; it
    is g_0 times their total, a gamma variate. With M the mass of a component in the region, x M of
    a component that is split is divided between the sides in proportions v ~ Beta(m_0, m_1), and
    levels are proposed by `propose_levels`, as in Jain & Neal (2007), doi:10.1214/07-BA219. A new
    component takes the slot of the smallest atom without tables, which is lost, and an emptied one
    has no weight. This is negligible if `SPARE_SLOTS` other slots have no tables; otherwise the
    move is rejected.

    T of `kernels.splits.proposal` is the product of three ratios, split state to merged state: that
    of the levels' likelihood and prior divided by their proposal density (`evidence` in the code),
    that of the weights' density divided by their proposal density (`of_weights`), and that of
    P(F)^-n (`truncation`).
    """
    _, levels, tables, alpha0 = density
    theta, g0, totals = atoms
    num_records, weights, feasible = truncation
    key_levels, key_share, key_total = Keys(key, 3)
    is_split = proposal.is_split
    places = jnp.stack([proposal.stays, proposal.other])
    log_theta = jnp.maximum(jnp.log(theta[:, places]), LOG_LEAST_LEVEL)
    proposed = propose_side_levels(key_levels, proposal, log_theta, levels, region)

    level, present = jnp.exp(proposed.log_level), theta[:, places]
    # Side 0, side 1 and both together.
    three = jnp.where(
        is_split, level.at[:, 2].set(present[:, 0]), jnp.append(present, level[:, 2:], axis=1)
    )
    moved_sides = jnp.where(is_split, level[:, :2], present.at[:, 0].set(level[:, 2]))
    moved_theta = theta.at[:, places].set(moved_sides)
    log_share = jnp.stack(logbeta(key_share, *proposal.tables.astype(g0.dtype)))
    total = gamma_variate(key_total, jnp.sum(tables).astype(g0.dtype) + alpha0, 1.0)

    def totals_of(theta, g0):
        return partition_totals(block_sums(theta, g0, feasible), feasible)

    def decide(three, theta, moved_theta, g0, log_share, total, alpha0, level_shape):
        """Weights after the move, and whether it is accepted."""
        of_sides = proposed
        if double:
            log_three = jnp.maximum(jnp.log(three), LOG_LEAST_LEVEL)
            prior = levels.with_shape(level_shape)
            of_sides = weigh_side_levels(log_three, proposal, prior, region)
        m, x = proposal.tables.astype(g0.dtype), g0[places]
        log_v = log_share - jax.nn.logsumexp(log_share)
        scale = of_sides.log_mass[2] - of_sides.log_mass[:2]
        apart = jnp.where(is_split, x[0] * jnp.exp(log_v + scale), x)
        together = jnp.sum(x * jnp.exp(-scale))
        new = jnp.where(is_split, apart, jnp.stack([together, jnp.zeros_like(together)]))
        moved = g0.at[places].set(new) / (1 + jnp.sum(new) - jnp.sum(x))

        evidence = of_sides.log_weight[0] + of_sides.log_weight[1] - of_sides.log_weight[2]
        # The merged component has the weight sum(apart exp(-scale)).
        of_weights = total * jnp.sum(apart * jnp.expm1(-scale)) + jnp.sum(m * scale)
        of_weights = of_weights + jnp.log(alpha0) + log_beta(m[0], m[1])
        if double:
            growth = log_growth((theta, g0), (moved_theta, moved), weights, feasible)
        else:
            after = totals_of(moved_theta, moved)
            growth = jnp.log(probability(after, weights) / probability(totals, weights))
        truncation = num_records * jnp.where(is_split, -growth, growth)
        return moved, proposal.accepted(evidence + of_weights + truncation)

    given = three, theta, moved_theta, g0, log_share, total, alpha0, levels.shape
    moved, accepted = in_double(decide, *given) if double else decide(*given)
    spare = jnp.sum(tables == 0) - is_split >= SPARE_SLOTS
    accepted = spare & accepted
    return TruncatedSplitMerge(
        z=jnp.where(accepted, proposal.labels, z),
        theta=jnp.where(accepted, moved_theta, theta),
        g0=jnp.where(accepted, moved, g0),
        totals=jnp.where(accepted, totals_of(moved_theta, moved), totals),
        accepted=accepted,
    )
