"""Records of the impossible region, drawn and forgotten in every sweep.

Records are drawn until as many as the sample's are feasible. Given those of the impossible region,
weights and level probabilities have the conditionals that they have without structural zeros.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from bnp_models.kernels.boxes.level_parts import share_over_parts, split_over_parts
from bnp_models.kernels.mixed_membership.tables import opens_table
from bnp_models.kernels.mixed_membership.urn_boxes import (
    block_products,
    count_sets,
    draw_block_labels,
    draw_blocks,
    expected_blocks,
)
from bnp_models.kernels.numerics.counting import (
    count_components,
    count_rows_by_component,
    first_rows,
)
from bnp_models.kernels.numerics.lanes import in_turn, most_of_lanes
from bnp_models.models.mixed_membership.feasible import feasible_probability, of_urn, urn_weights
from bnp_models.models.mixed_membership.new_records import (
    SIMULATION_BATCH,
    in_boxes,
    pad_levels,
    simulate_batch,
)

# Samples of fewer records have their augmented records drawn one by one.
ONE_BY_ONE_BELOW = 4096


class Augmented(NamedTuple):
    """What records of the impossible region add to the sample's statistics."""

    records: Int[Array, ""]
    """Their number n_0; -1 where it was too large to count, and nothing is added."""
    tables: Int[Array, " K"] | Float[Array, " K"]
    """Tables by component."""
    levels: Int[Array, "A K"] | Float[Array, "A K"]
    """Items by atom and component."""
    sum_alpha: Float[Array, ""]
    """Sum of their concentrations, where they have one each and have been simulated; else 0."""


def draw_augmented(model, key, state, data) -> Augmented:
    """Records of the impossible region before the n-th feasible one, given the parameters."""
    if data.zeros.impossible is None:
        return augment_by_simulation(model, key, state, data)
    if model.augmentation == "expected":
        return in_turn(lambda: augment_by_expectation(model, state, data))()
    return in_turn(lambda: augment_by_boxes(model, key, state, data))()


def augment_by_boxes(model, key, state, data) -> Augmented:
    """Augmented records aggregated by box, their free variables integrated out; exact."""
    key_block, key_label, key_level = jax.random.split(key, 3)
    boxes, concentration = data.zeros.impossible, of_urn(model, state)
    products = block_products(state.theta, state.g0, boxes)
    feasible = feasible_probability(model, concentration, state.totals, data.zeros.feasible)
    of_type, records = draw_blocks(
        key_block, jnp.sum(products, axis=1), urn_weights(model, concentration, boxes),
        feasible, data.num_records.astype(feasible.dtype), boxes,
        data.weight.size < ONE_BY_ONE_BELOW,
    )  # fmt: skip
    labelled = draw_block_labels(key_label, of_type, products)
    levels = split_over_parts(
        key_level, count_sets(labelled, boxes), jnp.log(state.theta), data.zeros.atoms
    )
    nothing = jnp.zeros_like(feasible)
    return Augmented(records, jnp.sum(labelled, axis=0), levels, nothing)


def augment_by_expectation(model, state, data) -> Augmented:
    """Expected statistics of the augmented records in place of drawn ones: an approximation.

    Battiston & Rimella (2024), appendix C, with expectations that are exact given the parameters
    in place of its Monte Carlo averages and of its formulas in print, which are wrong in places.
    """
    boxes, concentration = data.zeros.impossible, of_urn(model, state)
    products = block_products(state.theta, state.g0, boxes)
    sums = jnp.sum(products, axis=1)
    feasible = feasible_probability(model, concentration, state.totals, data.zeros.feasible)
    per_record = data.num_records / feasible
    weights = urn_weights(model, concentration, boxes) * per_record
    of_type, records = expected_blocks(sums, weights, boxes)
    labelled = products * (of_type / jnp.maximum(sums, jnp.finfo(sums.dtype).tiny))[:, None]
    levels = share_over_parts(count_sets(labelled, boxes), state.theta, data.zeros.atoms)
    nothing = jnp.zeros_like(feasible)
    return Augmented(
        jnp.minimum(records, 2.0**30).astype(jnp.int32), jnp.sum(labelled, axis=0), levels, nothing
    )


def augment_by_simulation(model, key, state, data) -> Augmented:
    """Augmented records by simulating until as many as the sample's are feasible; exact.

    It needs no probability of any box, and is the check of `augment_by_boxes`.
    """

    def count(sums, z, table, rows, alpha, kept, _):
        levels, tables, sum_alpha = sums
        return *count_more(levels, tables, z, table, rows, kept), sum_alpha + jnp.sum(alpha * kept)

    nothing = (
        jnp.zeros(state.theta.shape, jnp.int32), jnp.zeros(state.g0.size, jnp.int32),
        jnp.zeros_like(state.alpha0),
    )  # fmt: skip
    records, (levels, tables, sum_alpha) = simulate_infeasible(
        model, key, state, data, nothing, count, 2**31 - 1
    )
    return Augmented(records, tables, levels, sum_alpha)


def count_more(levels, tables, z, table, rows, kept):
    """Items by row of theta and component, and tables of components, with some records more."""
    kept = kept.astype(jnp.int32)
    return (
        levels + count_rows_by_component(rows, z, kept, levels.shape),
        tables + count_components(z, opens_table(table) * kept, tables.size),
    )


def simulate_infeasible(model, key, state, data, start, add, at_most):
    """Simulate records, and add up the infeasible ones before the n-th feasible one.

    Parameters
    ----------
    start, add
        What is added up, and (it, z, table, rows, alpha, kept, place) -> it, for a batch of
        records: which of them are kept, and the place of each kept one among all. A batch of
        which none is kept must change nothing.
    at_most
        Stop once there are more infeasible records than this.

    Returns
    -------
    records, result
        How many were kept, and their sum.
    """
    zeros = data.zeros
    theta = pad_levels(state.theta, zeros.num_levels)
    first = first_rows(zeros.num_levels)[:, None]
    wanted = data.num_records

    def unfinished(carry):
        return most_of_lanes((carry[1] < wanted) & (carry[2] <= at_most))

    def simulate(carry):
        step, found, records, result = carry
        alpha, z, table, codes = simulate_batch(
            model, jax.random.fold_in(key, step), state.alpha, state.rate, state.g0, theta,
            SIMULATION_BATCH,
        )  # fmt: skip
        rows = first + codes
        inside = in_boxes(rows, zeros.boxes)
        before = found + jnp.cumsum(inside) - inside
        kept = ~inside & (before < wanted)
        place = records + jnp.cumsum(kept) - 1
        result = add(result, z, table, rows, alpha, kept, place)
        return step + 1, found + jnp.sum(inside), records + jnp.sum(kept), result

    none = jnp.int32(0)
    return lax.while_loop(unfinished, simulate, (none, none, none, start))[2:]
