"""Level probabilities of the sides of a split or a merge."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.boxes.level_proposals import propose_levels
from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.splits.proposal import Proposal
from bnp_models.kernels.variates.levels import Bands
from bnp_models.kernels.variates.rng import Keys


class SideLevels(NamedTuple):
    """Log levels of side 0, of side 1 and of both together: the state's own, or proposed."""

    log_level: Float[Array, "R 3"]
    log_mass: Float[Array, " 3"]
    """Log feasible masses."""
    log_weight: Float[Array, " 3"]
    """Of `propose_levels`."""


def propose_side_levels(
    key: Key[Array, ""],
    proposal: Proposal,
    log_theta: Float[Array, "R 2"],
    variable: Int[Array, " R"],
    region: Region,
    level_shape: Float[Array, " R+G"],
    bands: Bands | None = None,
) -> SideLevels:
    """Draw the levels that are missing: those of the sides from both's, or both's from side 0's.

    Parameters
    ----------
    key
        Used once.
    proposal
        From `kernels.splits.proposal.propose_sides`.
    log_theta
        Log level probabilities of the component that stays and of the other, as they are.
    variable
        Variable of each row of theta.
    region
        The feasible boxes.
    level_shape
        Dirichlet shapes of the level probabilities' prior, by node.
    bands
        Bands of ordered variables.
    """
    key_both, key_sides, key_back = Keys(key, 3)
    items = proposal.items.astype(log_theta.dtype)
    all_items = jnp.sum(items, axis=1, keepdims=True)
    stays = log_theta[:, :1]

    def propose(key, items, launch, point, given):
        return propose_levels(
            key, items, launch, point, given, variable, region, level_shape, bands
        )

    merged, _, _ = propose(key_both, all_items, stays, stays, False)
    merged = jnp.where(proposal.is_split, stays, merged)
    launch = jnp.broadcast_to(merged, log_theta.shape)
    apart, masses, weights = propose(key_sides, items, launch, log_theta, ~proposal.is_split)
    merged, mass, weight = propose(key_back, all_items, apart[:, :1], merged, True)
    return SideLevels(
        jnp.concatenate([apart, merged], axis=1), jnp.log(jnp.append(masses, mass)),
        jnp.append(weights, weight),
    )  # fmt: skip
