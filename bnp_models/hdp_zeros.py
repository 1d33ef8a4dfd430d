"""Mixed membership under structural zeros: P(feasible), augmented records, truncated updates.

Records are drawn until as many as the sample's are feasible. Given those of the impossible region,
which are drawn and forgotten in every sweep, weights and level probabilities have the conditionals
that they have without zeros; where P(feasible) is exact, concentrations, tilts and trajectories
integrate the truncation instead.

Where sums of floats decide, chains are taken one after the other (`kernels.lanes.in_turn`): several
together are rounded otherwise than one alone, and their draws would depend on the devices.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.hdp_new_records import (
    SIMULATION_BATCH,
    in_boxes,
    new_concentrations,
    pad_levels,
    simulate_batch,
)
from bnp_models.hdp_parameters import draw_alpha, draw_g0, draw_theta
from bnp_models.hdp_state import HDPData, HDPInfo, HDPState, Zeros, sweep_info
from bnp_models.kernels.atoms import Atoms, draw_levels_by_atom, share_over_atoms, split_over_atoms
from bnp_models.kernels.counting import (
    count_components,
    count_rows_by_component,
    first_rows,
    order_free_sum,
)
from bnp_models.kernels.lanes import in_turn, most_of_lanes
from bnp_models.kernels.logspace import log_dirichlet
from bnp_models.kernels.partitions import log_block_weights, log_block_weights_gamma
from bnp_models.kernels.rng import uniform, words
from bnp_models.kernels.splitmerge import split_or_merge
from bnp_models.kernels.tables import opens_table, seat_items
from bnp_models.kernels.tilts import tilt_component
from bnp_models.kernels.trajectories import Concentration, Parameters, move_parameters
from bnp_models.kernels.truncation import Region, region_mass
from bnp_models.kernels.urn_boxes import (
    TooManyPartitions,
    UrnBoxes,
    block_products,
    block_sums,
    count_sets,
    draw_block_labels,
    draw_blocks,
    expected_blocks,
    partition_totals,
    probability,
    weights_by_size,
)
from bnp_models.microdata import MicrodataError

# Samples of fewer records have their augmented records drawn one by one.
ONE_BY_ONE_BELOW = 4096

# Split-merge moves, which take simulated records here, are so many times rarer.
SIMULATED_SPACING = 16

# Draws of record weights for log P(feasible) where the feasible boxes are too many to be exact.
FEASIBLE_DRAWS = 1024


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


def compile_zeros(model, conditions, num_levels: tuple[int, ...]) -> Zeros:
    """Arrays of a `bnp_models.StructuralZeros`.

    Raises
    ------
    MicrodataError
        If boxes are asked for whose partitions are too many to list.
    """
    # Levels beyond those of the conditions, that of absent items, are in every box.
    beyond = sum(num_levels) - conditions.feasible.sets.shape[1]

    def padded(table, fill):
        return np.pad(table, ((0, 0), (0, beyond)), constant_values=fill)

    sets = padded(conditions.feasible.sets, True)
    try:
        feasible = UrnBoxes.of_boxes(sets, num_levels)
    except TooManyPartitions:
        feasible = None
    impossible = None
    if model.augmentation != "simulation":
        try:
            if feasible is None:
                raise TooManyPartitions("the feasible boxes have too many partitions to list")
            impossible = UrnBoxes.of_boxes(padded(conditions.impossible.sets, True), num_levels)
        except TooManyPartitions as error:
            if model.augmentation != "auto":
                raise MicrodataError(
                    f'augmentation "{model.augmentation}": {error}; use "simulation"'
                ) from None
    return Zeros(
        feasible=feasible,
        impossible=impossible,
        atoms=Atoms.of_boxes(None, num_levels) if impossible is None else impossible.atoms,
        boxes=jnp.asarray(sets),
        region=Region.of_boxes(
            [padded(group.feasible.sets, True) for group in conditions.groups], num_levels
        ),
        tilts=jnp.asarray(padded(conditions.tilts, 0), jnp.result_type(float)),
        num_levels=conditions.schema.num_levels,
    )


def feasible_totals(g0, theta, data: HDPData) -> Float[Array, " Q"] | None:
    """Partition totals of the feasible boxes, or None where there are none."""
    if data.zeros is None or data.zeros.feasible is None:
        return None
    boxes = data.zeros.feasible
    return in_turn(lambda: partition_totals(block_sums(theta, g0, boxes), boxes))()


def of_urn(model, state: HDPState) -> Float[Array, ""]:
    """The concentration that new records have in common: the shared alpha, or b of their prior."""
    return state.alpha if model.shared else state.rate


def urn_weights(model, concentration, boxes: UrnBoxes) -> Float[Array, " Q"]:
    """E[alpha^B / (alpha)_d] of a new record, for the sizes d and numbers of blocks B of boxes."""
    most = boxes.most_variables
    if model.shared:
        return weights_by_size(log_block_weights(concentration, most), boxes)
    return weights_by_size(log_block_weights_gamma(model.a, concentration, most), boxes)


def feasible_probability(model, concentration, totals, boxes: UrnBoxes) -> Float[Array, ""]:
    """P(feasible), from `feasible_totals`, at a concentration as `of_urn`."""
    return in_turn(lambda: probability(totals, urn_weights(model, concentration, boxes)))()


def log_feasible(model, key: Key[Array, ""], state: HDPState, data: HDPData) -> Float[Array, ""]:
    """log P(feasible) of a record before truncation.

    Exact where the feasible boxes could be listed; else the mean over draws of record weights,
    given which variables are independent and their groups' masses multiply.
    """
    zeros = data.zeros
    if zeros.feasible is not None:
        return jnp.log(
            feasible_probability(model, of_urn(model, state), state.totals, zeros.feasible)
        )
    key_alpha, key_g = jax.random.split(key)
    dtype = state.g0.dtype
    alpha = new_concentrations(model, key_alpha, state.alpha, state.rate, FEASIBLE_DRAWS)
    shape = alpha[:, None] * state.g0
    g = jnp.exp(log_dirichlet(key_g, jnp.maximum(shape, jnp.finfo(dtype).tiny)))
    levels = jnp.matmul(state.theta, g.T, precision=lax.Precision.HIGHEST)
    mass = region_mass(jnp.log(levels), zeros.region)
    return jnp.log(jnp.mean(mass))


def log_feasible_given(model, state: HDPState, boxes: UrnBoxes):
    """log P(feasible) as a function of a concentration as `of_urn`."""

    def log_p(x):
        return jnp.log(feasible_probability(model, x, state.totals, boxes))

    return log_p


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
    theta = jnp.exp(draw_levels_by_atom(keys[4], shape, augmented.levels, zeros.atoms))
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
    levels = split_over_atoms(
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
    levels = share_over_atoms(count_sets(labelled, boxes), state.theta, data.zeros.atoms)
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
