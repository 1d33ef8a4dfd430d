"""Data, state and info of the chains of mixed membership models."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer

from bnp_models.kernels.boxes.level_parts import LevelParts
from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.mixed_membership.urn_boxes import UrnBoxes
from bnp_models.kernels.numerics.counting import order_free_sum
from bnp_models.kernels.variates.levels import Levels


class Zeros(eqx.Module):
    """Structural zeros as the arrays that a sweep uses."""

    feasible: UrnBoxes | None
    """The feasible boxes; None if there are too many partitions to list."""
    impossible: UrnBoxes | None
    """The impossible boxes, if augmented records are drawn in them; otherwise None."""
    parts: LevelParts
    """Level parts by which augmented records are counted."""
    boxes: Bool[Array, "B R"]
    """The feasible boxes as sets of levels, for simulated records."""
    region: Region
    """The feasible boxes by group of variables, for split-merge moves and estimated P(feasible)."""
    tilts: Float[Array, "E R"]
    """Directions of the tilt move of a component, one for each equivalence."""
    num_levels: tuple[int, ...] = eqx.field(static=True)
    """Levels of each variable."""


class HDPData(eqx.Module):
    """The coded sample, records contiguous and padded.

    In shapes, J is the number of items of a record, n that of records with padding, and R that of
    levels of all variables.
    """

    rows: Int[Array, "J n"] = eqx.field(metadata={"record_axis": 1})
    """Row of theta for each item's observed level."""
    weight: Int[Array, " n"] = eqx.field(metadata={"record_axis": 0})
    """1 for a record, 0 for padding."""
    num_records: Int[Array, ""]
    """Number of records, without padding."""
    levels: Levels
    """Levels of the variables, the rows of theta."""
    cell: Int[Array, " n"] = eqx.field(metadata={"record_axis": 0})
    """Index of the distinct cell of each record."""
    cell_rows: Int[Array, "J n"]
    """Rows of theta of the distinct cells, padded to as many columns as `rows` has."""
    num_cells: Int[Array, ""]
    """Number of distinct cells."""
    zeros: Zeros | None = None
    """Structural zeros, if there are any."""
    num_levels: tuple[int, ...] = eqx.field(static=True, default=())
    """Levels of each variable."""


class HDPState(eqx.Module):
    """State of one chain, from which it can be continued.

    In shapes, K is the number of slots for components, G that of groups of levels, and Q that of
    partition totals.
    """

    z: Integer[Array, "J n"] = eqx.field(metadata={"record_axis": 1})
    """Component of each item, in the smallest sufficient type of integers."""
    g0: Float[Array, " K"]
    """Component weights; the first free slots have the sticks of the remainder, the others 0."""
    theta: Float[Array, "R K"]
    """Level probabilities by row and component; draws from the prior in free slots with weight."""
    level_shape: Float[Array, " R+G"]
    """Dirichlet shapes c_j beta_jl of the level probabilities: ones under the uniform prior."""
    alpha: Float[Array, "*n"] = eqx.field(metadata={"record_axis": 0})
    """Concentration of the records: one for each record, or a scalar if it is shared."""
    rate: Float[Array, ""]
    """b of alpha_i ~ Ga(a, b); constant unless hierarchical."""
    alpha0: Float[Array, ""]
    """Concentration of G_0."""
    totals: Float[Array, " Q"] | None = None
    """Partition totals of the feasible boxes under g0 and theta, if boxes are listed."""


class HDPInfo(eqx.Module):
    """Figures of one sweep."""

    components: Int[Array, ""]
    """Components with at least one item."""
    tables: Int[Array, ""]
    """Tables over all records."""
    num_records: Int[Array, ""]
    """Records of the sample, over which alpha is averaged."""
    log_likelihood_items: Float[Array, ""]
    """sum_ij log theta_{z_ij, j}(x_ij), given the labels."""
    left_over: Float[Array, ""]
    """Mass of G_0 beyond the last stick, which is left out; the driver keeps it small."""
    log_feasible: Float[Array, ""]
    """log P(feasible) of a record before truncation; 0 without structural zeros."""
    augmented: Int[Array, ""]
    """Number of records drawn in the impossible region; -1 if too many and left out."""
    accepted_tilts: Int[Array, ""]
    """Number of accepted tilt moves, 0 or 1."""
    accepted_trajectories: Int[Array, ""]
    """Number of accepted Hamiltonian moves, 0 or 1."""


class TruncatedFigures(NamedTuple):
    """Figures of one sweep under structural zeros; the names are those of `HDPInfo`."""

    log_feasible: Float[Array, ""]
    augmented: Int[Array, ""]
    accepted_tilts: Bool[Array, ""]
    accepted_trajectories: Bool[Array, ""]


@jax.named_scope("sweep_info")
def sweep_info(
    state: HDPState,
    data: HDPData,
    tables: Int[Array, " K"],
    counts: Int[Array, "R K"],
    left_over: Float[Array, ""],
    truncated: TruncatedFigures | None = None,
) -> HDPInfo:
    """Figures of a sweep, given the sample's tables by component and items by row and component.

    Figures about structural zeros are 0 if there are none.
    """
    if truncated is None:
        none = jnp.zeros((), jnp.int32)
        truncated = TruncatedFigures(jnp.zeros_like(state.alpha0), none, none, none)
    return HDPInfo(
        components=jnp.sum(tables > 0, dtype=jnp.int32),
        tables=jnp.sum(tables),
        num_records=data.num_records,
        log_likelihood_items=log_likelihood_items(counts, state.theta),
        left_over=left_over,
        log_feasible=truncated.log_feasible,
        augmented=truncated.augmented.astype(jnp.int32),
        accepted_tilts=truncated.accepted_tilts.astype(jnp.int32),
        accepted_trajectories=truncated.accepted_trajectories.astype(jnp.int32),
    )


def mean_alpha(alpha: Float[Array, "*n"], num_records: Int[Array, ""]) -> Float[Array, ""]:
    """Shared alpha, or the mean over records, which come before padding."""
    if alpha.ndim == 0:
        return alpha
    # Multiplied by the reciprocal, because that is how the division is compiled for some shardings.
    weight = (jnp.arange(alpha.size) < num_records).astype(jnp.int32)
    return order_free_sum(alpha * weight) * (1 / num_records)


def log_likelihood_items(counts: Int[Array, "R K"], theta: Float[Array, "R K"]) -> Float[Array, ""]:
    """sum_ij log theta_{z_ij, j}(x_ij), given items by row and component."""
    # No item is at a level of probability zero; such a level must not turn the sum into nan.
    log_theta = jnp.log(jnp.where(counts > 0, theta, 1))
    return -order_free_sum(-(counts * log_theta).reshape(-1))
