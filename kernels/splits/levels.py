"""Proposals of level probabilities from current ones, for the sides of a split or a merge.

Under truncation the data give no information on some directions of the level probabilities. A
proposal that splits or merges components takes these directions from the current level
probabilities and the others from the counts.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Key

from bnp_models.kernels.boxes.grouped_blocks import GroupedBlock, concentrations, draw_scaled
from bnp_models.kernels.boxes.region import Region, through_variables
from bnp_models.kernels.numerics.counting import sum_by_group
from bnp_models.kernels.numerics.gamma_ratios import log_gamma_ratio, stirling_error
from bnp_models.kernels.splits.proposal import Proposal
from bnp_models.kernels.variates.gamma import loggamma
from bnp_models.kernels.variates.levels import Levels
from bnp_models.kernels.variates.rng import Keys


@jax.named_scope("propose_levels")
def propose_levels(
    key: Key[Array, ""] | None,
    counts: Float[Array, "R K"],
    launch: Float[Array, "R K"],
    point: Float[Array, "R K"],
    given: Bool[Array, ""] | bool,
    levels: Levels,
    region: Region,
) -> tuple[Float[Array, "R K"], Float[Array, " K"], Float[Array, " K"]]:
    """Draw log levels from a launch state, variable by variable, or use given ones; give weights.

    Parameters
    ----------
    key
        Used once; None if the levels are given.
    counts
        Items by row and component.
    launch
        Log levels from which the masses of the region are computed.
    point, given
        Log levels, and whether these are used instead of drawn ones.
    levels
        The levels under their prior, of shapes b.
    region
        The feasible boxes.

    Returns
    -------
    log_level, mass, log_weight
        Log levels, their feasible masses, and a log weight: log likelihood of the counts without
        the masses, plus log prior, minus log density of the proposal.

    Notes
    -----
    The levels of a variable are proposed as gamma variates divided by their sum. The variate of
    level l has the shape b_l + n_l and the rate m_l + y / A, with b_l its prior shape, n_l its
    count, m_l the feasible mass given the level, and A = sum_l (b_l + n_l). These are the proposals
    of `kernels.latent_classes.truncation.update_levels_truncated`, where y is drawn; here y is its
    expectation.
    """
    variable, shape, nodes = levels.variable, levels.shape[:, None], levels.count(counts)
    members = levels.at_nodes(sum_by_group(counts, variable, variable.size)[variable])
    log_g = jnp.zeros_like(nodes) if key is None else loggamma(key, shape + nodes)
    drawn, free = levels.of_weights(log_g), region.free[:, None]
    log_level = jnp.where(free > 0, jnp.where(given, point, drawn), launch)
    of_total = _log_rising(levels.total[:, None], levels.totals(nodes), members)
    of_node = _log_rising(shape, nodes, members) - of_total / levels.sizes[:, None]
    log_weight = jnp.sum(levels.at_nodes(free) * of_node, axis=0)

    def update(inputs, old, mass_of_level):
        log_g, counts, point, exists, shape, prior_total, grouped = inputs
        members = jnp.sum(counts, axis=0)
        total = members + prior_total
        present = jnp.sum(jnp.exp(old) * mass_of_level, axis=0)
        more = prior_total - jnp.minimum(1, prior_total / 2)
        rate = mass_of_level / present + more / total
        drawn, scale = draw_scaled(grouped, log_g, shape + counts, rate)
        new = jnp.where(given, point, jnp.where(exists, drawn, -jnp.inf))
        log_scale = total * jnp.log(jnp.sum(rate * jnp.exp(new), axis=0))
        log_scale = log_scale - _log_rising(prior_total, members, members)
        if grouped is not None:
            log_scale = log_scale + grouped.log_weight(new, shape + counts, rate)
            log_scale = log_scale - _log_rising_of_groups(grouped, shape, counts, members)
        safe = jnp.where(exists, shape, 1)
        of_level = _log_rising(safe, counts, members) - (shape + counts) * jnp.log(scale)
        return new, log_scale + jnp.sum(jnp.where(exists, of_level, 0), axis=0)

    num_levels = variable.size
    inputs = (
        region.take(log_g[:num_levels], -jnp.inf), region.take(counts, 0),
        region.take(point, -jnp.inf), (region.rows < num_levels)[:, :, None],
        region.take(shape[:num_levels], 0), concentrations(region, levels),
        GroupedBlock.of_region(region, levels, log_g, nodes),
    )  # fmt: skip
    log_level, mass, collected = through_variables(log_level, region, update, inputs)
    return log_level, mass, log_weight + jnp.sum(collected, axis=0)


def _log_rising_of_groups(grouped, shape, counts, members):
    """Sum over layers of `_log_rising` of the members' shapes minus that of the groups' own shapes.

    The prior has the terms of the groups' own shapes; the proposal has those of the members.
    """
    total = 0
    for layer in grouped.layers:
        within, counts = layer.totals(shape), layer.totals(counts)
        within = jnp.where(within > 0, within, 1)
        own = jnp.where(layer.prior > 0, layer.prior, within)
        terms = _log_rising(within, counts, members) - _log_rising(own, counts, members)
        total, shape = total + jnp.sum(terms, axis=0), layer.prior
    return total


def _log_rising(shape, counts, members):
    """Log Gamma(b + n) / Gamma(b) - n log N + n, with b the `shape`, n `counts` and N `members`.

    The large terms n log N - n of Stirling's formula are left out of levels and, with n = N, of
    totals; they cancel, because the counts of levels add up to their total.
    """
    n, total = jnp.maximum(counts, 1), jnp.maximum(members, 1)
    log_gamma_n = n * jnp.log(n / total) - jnp.log(n / (2 * jnp.pi)) / 2 + stirling_error(n)
    value = log_gamma_n + log_gamma_ratio(n, shape) - gammaln(shape)
    return jnp.where(counts > 0, value, 0)


class SideLevels(NamedTuple):
    """Log levels of side 0, of side 1 and of both together, from the state or proposed."""

    log_level: Float[Array, "R 3"]
    log_mass: Float[Array, " 3"]
    """Log feasible masses."""
    log_weight: Float[Array, " 3"]
    """Log weights as of `propose_levels`."""


def propose_side_levels(
    key: Key[Array, ""],
    proposal: Proposal,
    log_theta: Float[Array, "R 2"],
    levels: Levels,
    region: Region,
) -> SideLevels:
    """Draw the missing levels: of the sides from the merged one, or of the merged one from side 0.

    Parameters
    ----------
    key
        Used once.
    proposal
        Result of `kernels.splits.proposal.propose_sides`.
    log_theta
        Current log level probabilities of the component that stays and of the other one.
    levels
        The levels under their prior.
    region
        The feasible boxes.
    """
    key_both, key_sides = Keys(key)
    of_levels = levels, region
    all_items = jnp.sum(proposal.items, axis=1, keepdims=True).astype(log_theta.dtype)
    stays = log_theta[:, :1]
    merged, _, _ = propose_levels(key_both, all_items, stays, stays, False, *of_levels)
    merged = jnp.where(proposal.is_split, stays, merged)
    return _propose_and_weigh(
        key_sides, log_theta, ~proposal.is_split, merged, proposal, *of_levels
    )


def weigh_side_levels(
    log_level: Float[Array, "R 3"],
    proposal: Proposal,
    levels: Levels,
    region: Region,
) -> SideLevels:
    """Masses and weights of levels that are proposed or from the state, in their precision.

    Parameters
    ----------
    log_level
        Log levels of side 0, of side 1 and of both together.
    proposal, levels, region
        As in `propose_side_levels`.
    """
    of_sides, of_both = log_level[:, :2], log_level[:, 2:]
    return _propose_and_weigh(None, of_sides, True, of_both, proposal, levels, region)


def _propose_and_weigh(key, of_sides, given, of_both, proposal, *of_levels) -> SideLevels:
    """Draw levels of the sides from the merged ones, unless they are given; weigh all three."""
    items = proposal.items.astype(of_sides.dtype)
    all_items = jnp.sum(items, axis=1, keepdims=True)
    launch = jnp.broadcast_to(of_both, of_sides.shape)
    apart, masses, weights = propose_levels(key, items, launch, of_sides, given, *of_levels)
    both, mass, weight = propose_levels(None, all_items, apart[:, :1], of_both, True, *of_levels)
    return SideLevels(
        jnp.concatenate([apart, both], axis=1), jnp.log(jnp.append(masses, mass)),
        jnp.append(weights, weight),
    )  # fmt: skip
