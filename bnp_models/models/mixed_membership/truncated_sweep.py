"""Parameter updates of mixed membership models under structural zeros.

Where P(feasible) is exact, concentrations, tilts and trajectories integrate the truncation; weights
and level probabilities are drawn given augmented records of the impossible region.

Where sums of floats decide, chains are taken one after the other (`in_turn` of
`kernels.numerics.lanes`): several together are rounded otherwise than one alone, and their
draws would depend on the devices.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, Key

from bnp_models.kernels.boxes.level_parts import draw_levels_by_part
from bnp_models.kernels.mixed_membership.hamiltonian import (
    Concentration,
    Parameters,
    move_parameters,
)
from bnp_models.kernels.mixed_membership.split_merge import split_or_merge
from bnp_models.kernels.mixed_membership.tables import seat_items
from bnp_models.kernels.mixed_membership.tilts import tilt_component
from bnp_models.kernels.numerics.counting import (
    count_components,
    count_rows_by_component,
    order_free_sum,
)
from bnp_models.kernels.numerics.lanes import in_turn
from bnp_models.kernels.variates.rng import uniform, words
from bnp_models.models.mixed_membership.augmentation import (
    count_more,
    draw_augmented,
    simulate_infeasible,
)
from bnp_models.models.mixed_membership.conditionals import draw_alpha, draw_g0, draw_theta
from bnp_models.models.mixed_membership.feasible import (
    feasible_totals,
    log_feasible,
    log_feasible_given,
    of_urn,
    urn_weights,
)
from bnp_models.models.mixed_membership.state import HDPData, HDPInfo, HDPState, sweep_info

# Split-merge moves, which take simulated records here, are so many times rarer.
SIMULATED_SPACING = 16


def update_parameters_truncated(
    model,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    opens: Bool[Array, "J n"],
    iteration: Int[Array, ""],
) -> tuple[HDPState, HDPInfo]:
    """Steps 3 to 6 under structural zeros.

    Concentrations of records and tilts come first, with the truncation integrated exactly. Then the
    records of the impossible region are drawn, and count like the sample's in alpha_0, g_0 and
    theta, and are forgotten.
    """
    keys = jax.random.split(key, 8)
    num_rows, capacity = state.theta.shape
    zeros = data.zeros
    state = update_components_truncated(model, keys[6], state, data, opens, iteration)
    exact = zeros.feasible is not None and model.augmentation != "simulation"
    tables = count_components(state.z, opens * data.weight, capacity)
    counts = count_rows_by_component(data.rows, state.z, data.weight, (num_rows, capacity))
    num_tables = jnp.sum(tables)
    accepted_trajectory = jnp.zeros((), bool)
    if exact:
        log_p = log_feasible_given(model, state, zeros.feasible)
        alpha, rate = draw_alpha(model, keys[0], state, data, opens, num_tables, None, log_p)
        state = dataclasses.replace(state, alpha=alpha, rate=rate)
        state, accepted_trajectory = update_trajectory(
            model, keys[7], state, data, counts, tables, num_tables
        )
    state, accepted_tilt = update_tilts(model, keys[1], state, data, counts, tables)
    augmented = draw_augmented(model, keys[2], state, data)
    if not exact:
        alpha, rate = draw_alpha(model, keys[0], state, data, opens, num_tables, augmented)
        state = dataclasses.replace(state, alpha=alpha, rate=rate)
    alpha0, g0, left_over = model.draw_weights(keys[3], state, tables, augmented.tables)
    shape = 1 + counts.astype(alpha0.dtype)
    theta = jnp.exp(draw_levels_by_part(keys[4], shape, augmented.levels, zeros.atoms))
    too_many = augmented.records < 0
    alpha0, g0, theta = (
        jnp.where(too_many, old, new)
        for old, new in ((state.alpha0, alpha0), (state.g0, g0), (state.theta, theta))
    )
    state = dataclasses.replace(
        state, alpha0=alpha0, g0=g0, theta=theta, totals=feasible_totals(g0, theta, data)
    )
    info = sweep_info(
        model, state, data, tables, counts, left_over,
        log_feasible=log_feasible(model, keys[5], state, data), augmented=augmented.records,
        accepted_tilts=accepted_tilt, accepted_trajectories=accepted_trajectory,
    )  # fmt: skip
    return state, info


def update_trajectory(model, key, state, data, counts, tables, num_tables):
    """Move theta, g_0 and the shared alpha, or b, together; the truncation integrated exactly."""
    # It is exact, and would repair some of what the approximation by expected counts does.
    if not model.trajectory_steps or model.augmentation == "expected":
        return state, jnp.zeros((), bool)
    boxes, n = data.zeros.feasible, data.num_records
    own, of_no_one = model.prior_tables(state)
    dtype = state.g0.dtype
    sum_alpha = None
    if model.concentration == "hierarchical":
        sum_alpha = order_free_sum(state.alpha * data.weight)

    @in_turn
    def move():
        concentration = None
        if model.shared:
            extra_tables = (num_tables - n).astype(dtype)
            t = jnp.arange(1, state.z.shape[0], dtype=dtype)

            def log_density(alpha):
                rising = jnp.sum(jnp.log1p(alpha / t))
                return (model.a + extra_tables) * jnp.log(alpha) - model.b * alpha - n * rising

            concentration = Concentration(log_density, model.a + extra_tables)
        elif sum_alpha is not None:
            shape = model.a1 + n * model.a
            concentration = Concentration(
                lambda b: shape * jnp.log(b) - (model.b1 + sum_alpha) * b, shape
            )
        return move_parameters(
            key, Parameters(state.theta, state.g0, of_urn(model, state)), counts, tables + own,
            of_no_one, concentration, n, data.variable, lambda x: urn_weights(model, x, boxes),
            boxes, model.trajectory_steps,
        )  # fmt: skip

    moved, accepted = move()
    state = dataclasses.replace(
        state, theta=moved.theta, g0=moved.g0, totals=feasible_totals(moved.g0, moved.theta, data)
    )
    name = "alpha" if model.shared else "rate"
    return dataclasses.replace(state, **{name: moved.concentration}), accepted


def update_tilts(model, key, state, data, counts, tables):
    """Slide one component along one of the equivalences among the conditions."""
    zeros = data.zeros
    if not model.tilt or not len(zeros.tilts) or zeros.feasible is None:
        return state, jnp.zeros((), bool)
    key_direction, key_tilt = jax.random.split(key)
    u = uniform(words(key_direction, ()), state.g0.dtype.type)
    index = jnp.minimum((u * len(zeros.tilts)).astype(jnp.int32), len(zeros.tilts) - 1)
    own, of_no_one = model.prior_tables(state)

    @in_turn
    def tilt():
        weights = urn_weights(model, of_urn(model, state), zeros.feasible)
        return tilt_component(
            key_tilt, zeros.tilts[index], state.theta, state.g0, state.totals, counts,
            tables + own, of_no_one, data.num_records, data.variable, weights, zeros.feasible,
        )  # fmt: skip

    tilted = tilt()
    state = dataclasses.replace(state, theta=tilted.theta, g0=tilted.g0, totals=tilted.totals)
    return state, tilted.accepted


def update_components_truncated(model, key, state, data, opens, iteration):
    """Split or merge components under structural zeros, every so many sweeps.

    The records of the impossible region are simulated one by one, so that the sample and they are
    complete data, for which the move is the same as without zeros; g_0 and theta, integrated out,
    are redrawn given all of them. Where there are too many, nothing is done.
    """
    num_padded = state.z.shape[1]
    most = model.most_simulated(num_padded)
    if most is None:
        return state

    def add(carry, z, table, rows, _, kept, place):
        arrays, counts, tables = carry
        place = jnp.where(kept, data.num_records + place, num_padded + most)
        arrays = tuple(
            array.at[:, place].set(new, mode="drop")
            for array, new in zip(arrays, (z, table, rows), strict=True)
        )
        return arrays, *count_more(counts, tables, z, table, rows, kept)

    def move(state, opens):
        key_seat, key_simulate, key_split, key_g0, key_theta = jax.random.split(key, 5)
        own = state.z, seat_items(key_seat, state.z, opens), data.rows
        nothing = jnp.zeros_like(state.theta, jnp.int32), jnp.zeros_like(state.g0, jnp.int32)
        start = (
            tuple(jnp.pad(array, ((0, 0), (0, most))) for array in own),
            *count_more(*nothing, *own, data.weight),
        )
        records, ((z, table, rows), counts, tables) = simulate_infeasible(
            model, key_simulate, state, data, start, add, most
        )
        moved = split_or_merge(
            key_split, z, table, rows, counts, tables, data.variable,
            data.num_records + jnp.minimum(records, most), state.alpha0, num_padded,
        )  # fmt: skip
        g0, _ = draw_g0(key_g0, moved.tables, state.alpha0)
        theta = draw_theta(key_theta, moved.counts, data.variable)
        state_moved = dataclasses.replace(
            state, z=moved.z, g0=g0, theta=theta, totals=feasible_totals(g0, theta, data)
        )
        fits = records <= most
        return jax.tree.map(lambda new, old: jnp.where(fits, new, old), state_moved, state)

    due = iteration % (SIMULATED_SPACING * model.split_merge_every) == 0
    return lax.cond(due, move, lambda state, _: state, state, opens)
