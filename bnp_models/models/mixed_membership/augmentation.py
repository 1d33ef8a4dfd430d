"""Draws of records of the impossible region; each sweep draws them and then discards them.

Records are drawn until the number of feasible ones equals that of the sample. Given the records of
the impossible region, weights and level probabilities have the same conditionals as without
structural zeros.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.boxes.level_parts import split_over_parts
from bnp_models.kernels.mixed_membership.urn_boxes import block_products, count_sets, draw_blocks
from bnp_models.kernels.numerics.counting import (
    count_components,
    count_rows_by_component,
    first_rows,
    opens_table,
)
from bnp_models.kernels.numerics.platforms import in_turn, most_of_lanes
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.mixed_membership.feasible import feasible_probability, of_urn, urn_weights
from bnp_models.models.mixed_membership.new_records import (
    SIMULATION_BATCH,
    in_boxes,
    pad_levels,
    simulate_batch,
)
from bnp_models.models.mixed_membership.options import MembershipOptions
from bnp_models.models.mixed_membership.state import HDPData, HDPState


class Augmented(NamedTuple):
    """Statistics of augmented records, which are added to those of the sample."""

    records: Int[Array, ""]
    """Number of records n_0; -1 if it was too large to count, and then nothing is added."""
    tables: Int[Array, " K"]
    """Tables by component."""
    levels: Int[Array, "A K"]
    """Items by level part and component."""
    sum_alpha: Float[Array, ""]
    """Sum of the records' concentrations if each has its own and is simulated; otherwise 0."""


@jax.named_scope("draw_augmented")
def draw_augmented(
    model: MembershipOptions, key: Key[Array, ""], state: HDPState, data: HDPData
) -> Augmented:
    """Draw the records of the impossible region that come before the n-th feasible record."""
    assert data.zeros is not None
    if data.zeros.impossible is None:
        return augment_by_simulation(model, key, state, data)
    return in_turn(lambda: augment_by_boxes(model, key, state, data))()


def augment_by_boxes(
    model: MembershipOptions, key: Key[Array, ""], state: HDPState, data: HDPData
) -> Augmented:
    """Draw augmented records as counts by box, with their unrestricted variables integrated out."""
    key_block, key_level = Keys(key)
    zeros, concentration = data.zeros, of_urn(model, state)
    assert zeros is not None and zeros.impossible is not None and zeros.feasible is not None
    boxes = zeros.impossible
    products = block_products(state.theta, state.g0, boxes)
    feasible = feasible_probability(model, concentration, state.totals, zeros.feasible)
    blocks, records = draw_blocks(
        key_block, products, urn_weights(model, concentration, boxes), feasible,
        data.num_records.astype(feasible.dtype), boxes,
    )  # fmt: skip
    levels = split_over_parts(
        key_level, count_sets(blocks, boxes), jnp.log(state.theta), zeros.parts
    )
    nothing = jnp.zeros_like(feasible)
    return Augmented(records, jnp.sum(blocks, axis=0), levels, nothing)


def augment_by_simulation(
    model: MembershipOptions, key: Key[Array, ""], state: HDPState, data: HDPData
) -> Augmented:
    """Simulate records until the number of feasible ones equals that of the sample.

    No probability of a box is needed, so that this function is also a check of `augment_by_boxes`.
    """
    zeros = data.zeros
    assert zeros is not None
    theta = pad_levels(state.theta, zeros.num_levels)
    first = first_rows(zeros.num_levels)[:, None]
    wanted = data.num_records

    def unfinished(carry):
        return most_of_lanes(carry[1] < wanted)

    def simulate(carry):
        step, num_feasible, added = carry
        alpha, z, table, codes = simulate_batch(
            model, jax.random.fold_in(key, step), state.alpha, state.rate, state.g0, theta,
            SIMULATION_BATCH,
        )  # fmt: skip
        rows = first + codes
        inside = in_boxes(rows, zeros.boxes)
        before = num_feasible + jnp.cumsum(inside) - inside
        # Records after the last wanted feasible one are not kept.
        kept = (~inside & (before < wanted)).astype(jnp.int32)
        added = Augmented(
            added.records + jnp.sum(kept),
            added.tables + count_components(z, opens_table(table) * kept, added.tables.size),
            added.levels + count_rows_by_component(rows, z, kept, state.theta.shape),
            added.sum_alpha + jnp.sum(alpha * kept),
        )
        return step + 1, num_feasible + jnp.sum(inside), added

    none = jnp.int32(0)
    nothing = Augmented(
        none, jnp.zeros(state.g0.size, jnp.int32), jnp.zeros(state.theta.shape, jnp.int32),
        jnp.zeros_like(state.alpha0),
    )  # fmt: skip
    return lax.while_loop(unfinished, simulate, (none, none, nothing))[2]
