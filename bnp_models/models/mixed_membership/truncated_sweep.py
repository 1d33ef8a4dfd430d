"""Parameter updates of mixed membership models under structural zeros.

If P(feasible) is exact, the truncation is integrated in the updates of concentrations, in splits
and merges, tilts and Hamiltonian trajectories. Weights and level probabilities are drawn given
augmented records of the impossible region.

If sums of floats decide about a move, chains are computed one after the other (`in_turn` of
`kernels.numerics.platforms`). Several chains together are rounded differently from one alone, and
their draws would then depend on the devices.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.boxes.level_parts import draw_levels_by_part, split_over_levels
from bnp_models.kernels.mixed_membership.hamiltonian import (
    Concentration,
    Parameters,
    move_parameters,
)
from bnp_models.kernels.mixed_membership.tables import seat_items
from bnp_models.kernels.mixed_membership.tilts import (
    Atoms,
    DirichletDensity,
    Truncation,
    tilt_component,
)
from bnp_models.kernels.mixed_membership.truncated_split_merge import (
    slot_of_split,
    split_or_merge_truncated,
)
from bnp_models.kernels.numerics.counting import (
    count_components,
    count_rows_by_component,
    order_free_sum,
)
from bnp_models.kernels.numerics.platforms import in_turn
from bnp_models.kernels.splits.proposal import propose_sides
from bnp_models.kernels.splits.seated_items import SeatedItems
from bnp_models.kernels.variates.rng import Keys, uniform, uniform_index, words
from bnp_models.models.level_prior import learns_levels
from bnp_models.models.mixed_membership.augmentation import Augmented, draw_augmented
from bnp_models.models.mixed_membership.conditionals import draw_level_shape, moves_alpha
from bnp_models.models.mixed_membership.feasible import (
    feasible_totals,
    log_feasible,
    log_growth_given,
    many_records,
    of_urn,
    urn_weights,
)
from bnp_models.models.mixed_membership.options import MembershipOptions
from bnp_models.models.mixed_membership.state import (
    HDPData,
    HDPInfo,
    HDPState,
    TruncatedFigures,
    sweep_info,
)


def update_parameters_truncated(
    model: MembershipOptions,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    opens: Bool[Array, "J n"],
    iteration: Int[Array, ""],
) -> tuple[HDPState, HDPInfo]:
    """Steps 3 to 6 under structural zeros.

    Splits and merges, concentrations of records, trajectories and tilts come first, with the
    truncation integrated exactly. Then the records of the impossible region are drawn. They are
    counted like those of the sample in the updates of alpha_0, g_0 and theta, and then discarded.
    """
    (
        key_alpha, key_tilt, key_augment, key_weights, key_theta, key_feasible, key_components,
        key_trajectory, key_levels,
    ) = Keys(key, 9)  # fmt: skip
    num_rows, capacity = state.theta.shape
    zeros = data.zeros
    assert zeros is not None
    state = update_components_truncated(model, key_components, state, data, opens, iteration)
    # None: the truncation is not integrated.
    boxes = None if model.augmentation == "simulation" else zeros.feasible
    tables = count_components(state.z, opens * data.weight, capacity)
    counts = count_rows_by_component(data.rows, state.z, data.weight, (num_rows, capacity))
    num_tables = jnp.sum(tables)
    accepted_trajectory = jnp.zeros((), bool)
    if boxes is not None:
        growth = log_growth_given(model, state, boxes)
        alpha, rate = model.draw_alpha(key_alpha, state, data, opens, num_tables, None, growth)
        state = dataclasses.replace(state, alpha=alpha, rate=rate)
        state, accepted_trajectory = update_trajectory(
            model, key_trajectory, state, data, counts, tables, num_tables
        )
    state, accepted_tilt = update_tilts(model, key_tilt, state, data, counts, tables)
    augmented = draw_augmented(model, key_augment, state, data)
    if boxes is None:
        alpha, rate = model.draw_alpha(key_alpha, state, data, opens, num_tables, augmented)
        state = dataclasses.replace(state, alpha=alpha, rate=rate)
    state, left_over = draw_components(
        model, (key_weights, key_theta, key_levels), state, data, counts, tables, augmented,
        iteration,
    )  # fmt: skip
    figures = TruncatedFigures(
        log_feasible(model, key_feasible, state, data), augmented.records, accepted_tilt,
        accepted_trajectory,
    )  # fmt: skip
    return state, sweep_info(state, data, tables, counts, left_over, figures)


def draw_components(
    model: MembershipOptions,
    keys: tuple[Key[Array, ""], Key[Array, ""], Key[Array, ""]],
    state: HDPState,
    data: HDPData,
    counts: Int[Array, "R K"],
    tables: Int[Array, " K"],
    augmented: Augmented,
    iteration: Int[Array, ""],
) -> tuple[HDPState, Float[Array, ""]]:
    """Draw alpha_0, g_0, the levels' prior and theta given the sample and augmented records.

    The second result is the mass beyond the last component. If there were too many augmented
    records to count, nothing changes.
    """
    assert data.zeros is not None
    key_weights, key_theta, key_levels = keys
    with jax.named_scope("draw_weights"):
        alpha0, g0, left_over = model.draw_weights(key_weights, state, tables, augmented.tables)
    level_shape, known = _draw_level_shape(
        model, key_levels, state, data, counts, augmented, iteration
    )
    levels = data.levels.with_shape(level_shape)
    if levels.layers:
        log_theta = levels.draw(key_theta, known)
    else:
        log_theta = draw_levels_by_part(
            key_theta, levels.given(counts), augmented.levels, data.zeros.parts
        )
    theta = jnp.exp(log_theta)
    drawn = {"alpha0": alpha0, "g0": g0, "theta": theta, "level_shape": level_shape}
    too_many = augmented.records < 0
    drawn = {name: jnp.where(too_many, vars(state)[name], new) for name, new in drawn.items()}
    totals = feasible_totals(drawn["g0"], drawn["theta"], data)
    return dataclasses.replace(state, **drawn, totals=totals), left_over


def _draw_level_shape(model, key, state, data, counts, augmented, iteration):
    """Draw the shapes of the levels' prior, given augmented records by level and not by level part.

    The second result is the counts with these records by level, if they had to be drawn.
    """
    if not learns_levels(model) and not data.levels.layers:
        return state.level_shape, counts
    key_split, key_shape = Keys(key)
    added = split_over_levels(key_split, augmented.levels, jnp.log(state.theta), data.zeros.parts)
    known = counts + added
    return draw_level_shape(model, key_shape, state, data, known, iteration), known


@jax.named_scope("update_trajectory")
def update_trajectory(
    model: MembershipOptions,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    counts: Int[Array, "R K"],
    tables: Int[Array, " K"],
    num_tables: Int[Array, ""],
) -> tuple[HDPState, Bool[Array, ""]]:
    """Move theta, g_0 and the shared alpha (or b) together, with the truncation integrated."""
    if not model.trajectory_steps:
        return state, jnp.zeros((), bool)
    assert data.zeros is not None and data.zeros.feasible is not None
    boxes, n = data.zeros.feasible, data.num_records
    sum_alpha = None
    if model.concentration == "hierarchical":
        sum_alpha = order_free_sum(state.alpha * data.weight)

    density = _dirichlet_density(model, state, data, counts, tables)

    @in_turn
    def move():
        return move_parameters(
            key, Parameters(state.theta, state.g0, of_urn(model, state)), density,
            _concentration_density(model, state, n, num_tables, sum_alpha),
            lambda x: Truncation(n, urn_weights(model, x, boxes), boxes), model.trajectory_steps,
            many_records(state),
        )  # fmt: skip

    moved, accepted = move()
    state = dataclasses.replace(
        state, theta=moved.theta, g0=moved.g0, totals=feasible_totals(moved.g0, moved.theta, data)
    )
    name = "alpha" if model.shared else "rate"
    return dataclasses.replace(state, **{name: moved.concentration}), accepted


def _dirichlet_density(model, state, data, counts, tables) -> DirichletDensity:
    """Density of theta and g_0 given the sample's labels and tables, without the truncation."""
    of_component, of_no_one = model.prior_tables(state)
    levels = data.levels.with_shape(state.level_shape)
    return DirichletDensity(counts, levels, tables + of_component, of_no_one)


def _concentration_density(model, state, n, num_tables, sum_alpha) -> Concentration | None:
    """Density of the shared alpha given the tables, or of b given all alphas; None: both are fixed.

    It does not include the truncation.
    """
    if not moves_alpha(model):
        return None
    dtype = state.g0.dtype
    if model.shared:
        extra_tables = (num_tables - n).astype(dtype)
        t = jnp.arange(1, state.z.shape[0], dtype=dtype)

        def log_density(alpha):
            rising = jnp.sum(jnp.log1p(alpha / t))
            return (model.a + extra_tables) * jnp.log(alpha) - model.b * alpha - n * rising

        return Concentration(log_density, model.a + extra_tables)
    if sum_alpha is not None:
        a1, b1 = model.rate_prior
        shape = a1 + n * model.a
        return Concentration(lambda b: shape * jnp.log(b) - (b1 + sum_alpha) * b, shape)
    return None


@jax.named_scope("update_tilts")
def update_tilts(
    model: MembershipOptions,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    counts: Int[Array, "R K"],
    tables: Int[Array, " K"],
) -> tuple[HDPState, Bool[Array, ""]]:
    """Tilt one component along one of the equivalences of the structural zeros."""
    zeros = data.zeros
    assert zeros is not None
    boxes = zeros.feasible
    if not model.tilt or not len(zeros.tilts) or boxes is None:
        return state, jnp.zeros((), bool)
    key_direction, key_tilt = Keys(key)
    u = uniform(words(key_direction, ()), state.g0.dtype.type)
    index = uniform_index(u, len(zeros.tilts))
    density = _dirichlet_density(model, state, data, counts, tables)

    @in_turn
    def tilt():
        weights = urn_weights(model, of_urn(model, state), boxes)
        return tilt_component(
            key_tilt, zeros.tilts[index], Atoms(state.theta, state.g0, state.totals), density,
            Truncation(data.num_records, weights, boxes), many_records(state),
        )  # fmt: skip

    tilted = tilt()
    state = dataclasses.replace(state, theta=tilted.theta, g0=tilted.g0, totals=tilted.totals)
    return state, tilted.accepted


@jax.named_scope("split_merge")
def update_components_truncated(
    model: MembershipOptions,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    opens: Bool[Array, "J n"],
    iteration: Int[Array, ""],
) -> HDPState:
    """Split or merge components in some sweeps; only if P(feasible) is exact."""
    assert data.zeros is not None
    if not model.split_merge_every or data.zeros.feasible is None:
        return state

    def move(state, opens):
        return _split_or_merge(model, key, state, data, opens)

    due = (iteration >= 0) & (iteration % model.split_merge_every == 0)
    return lax.cond(due, move, lambda state, _: state, state, opens)


def _split_or_merge(model, key, state, data, opens) -> HDPState:
    """Split or merge components, with the truncation integrated exactly."""
    key_seat, key_sides, key_move = Keys(key, 3)
    num_rows, capacity = state.theta.shape
    boxes, region = data.zeros.feasible, data.zeros.region
    tables = count_components(state.z, opens * data.weight, capacity)
    counts = count_rows_by_component(data.rows, state.z, data.weight, (num_rows, capacity))
    table = seat_items(key_seat, state.z, opens)
    levels = data.levels.with_shape(state.level_shape)
    density = DirichletDensity(counts, levels, tables, state.alpha0)
    proposal = propose_sides(
        key_sides, SeatedItems(state.z, table, data.rows, data.num_records), counts, tables,
        levels, slot_of_split(state.g0, tables),
    )  # fmt: skip

    @in_turn
    def move():
        weights = urn_weights(model, of_urn(model, state), boxes)
        return split_or_merge_truncated(
            key_move, proposal, state.z, density, Atoms(state.theta, state.g0, state.totals),
            Truncation(data.num_records, weights, boxes), region, many_records(state),
        )  # fmt: skip

    moved = move()
    return dataclasses.replace(
        state, z=moved.z, theta=moved.theta, g0=moved.g0, totals=moved.totals
    )
