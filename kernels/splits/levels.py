"""Level probabilities of the sides of a split or a merge."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from bnp_models.kernels.boxes.level_proposals import propose_levels
from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.splits.proposal import Proposal
from bnp_models.kernels.variates.levels import Levels
from bnp_models.kernels.variates.rng import Keys


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
        From `kernels.splits.proposal.propose_sides`.
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
    """Draw levels of the sides from those of both, unless they are given, and weigh all three."""
    items = proposal.items.astype(of_sides.dtype)
    all_items = jnp.sum(items, axis=1, keepdims=True)
    launch = jnp.broadcast_to(of_both, of_sides.shape)
    apart, masses, weights = propose_levels(key, items, launch, of_sides, given, *of_levels)
    both, mass, weight = propose_levels(None, all_items, apart[:, :1], of_both, True, *of_levels)
    return SideLevels(
        jnp.concatenate([apart, both], axis=1), jnp.log(jnp.append(masses, mass)),
        jnp.append(weights, weight),
    )  # fmt: skip
