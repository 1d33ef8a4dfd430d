"""HDP mixed membership (Battiston & Rimella 2024): the model, its starts and its sweep.

    G_0 ~ DP(alpha_0, H),  H = prod_j Dir(1_{L_j}),  alpha_0 ~ Ga(a_0, b_0)
    alpha_i ~ Ga(a, b),    G_i ~ DP(alpha_i, G_0)
    z_ij ~ G_i,            x_ij ~ theta_j^{(z_ij)}

with alpha_i one per record, or one shared by all records, or one per record with b ~ Ga(a_1, b_1),
and x_i restricted to the cells that structural zeros leave. A larger alpha_i means records that
differ *less* from G_0. The functions are pure: they jit, and vmap over chains.
"""

import dataclasses
from functools import partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.hdp_new_records import log_cell_probability, pad_levels, simulate_records
from bnp_models.hdp_parameters import draw_alpha, draw_g0, draw_theta
from bnp_models.hdp_state import (
    HDPData,
    HDPInfo,
    HDPState,
    keep_everything,
    record_axes,
    sweep_info,
)
from bnp_models.hdp_zeros import (
    compile_zeros,
    feasible_totals,
    log_feasible_given,
    update_parameters_truncated,
)
from bnp_models.kernels.assignment import assign_items, cumulative_sum
from bnp_models.kernels.concentration import dp_concentration, seatless_shared_concentration
from bnp_models.kernels.counting import (
    count_components,
    count_rows_by_component,
    first_rows,
    order_free_sum,
)
from bnp_models.kernels.logspace import gamma_variate
from bnp_models.kernels.rng import uniform, words
from bnp_models.kernels.seating import (
    can_be_seated,
    draw_seating,
    log_totals_by_tables,
    take_seats,
)
from bnp_models.kernels.splitmerge import split_or_merge
from bnp_models.kernels.sticks import retrospective_sticks
from bnp_models.kernels.tables import (
    choose_slots,
    redraw_dishes,
    redraw_whole_records,
    seat_items,
    table_indicators,
)
from bnp_models.kernels.urn import simulate_labels, simulate_levels
from bnp_models.microdata import group_cells

CONCENTRATIONS = ("shared", "record", "hierarchical")
AUGMENTATIONS = ("auto", "boxes", "simulation", "expected")

# Slots that dish moves and seating choose among: more than the components of most samples.
DISH_SLOTS = 32

# Distinct cells that a whole-record move takes at the least: fewer would not be cheaper.
CELLS_AT_LEAST = 1024

# Components of the initial states, cycled over chains: scattered on both sides of what posteriors
# have, so that R-hat sees a second mode.
START_COMPONENTS = (10, 50, 200)

# Share of the slots that a start may fill.
START_SHARE = 7 / 8

# Items that `update_seating` takes at the most: its cost grows as 2^J.
MAX_SEATED_ITEMS = 12

# Mass of G_0 that `slots_needed` lets go.
NEGLIGIBLE = 1e-7

# Records are padded to a multiple of this, whatever the devices: it holds any sharding into 1, 2,
# 4, .. 128 parts and the stride of the dish move.
RECORD_MULTIPLE = 128

# Simulated records that split-merge moves take under structural zeros, at the most: all, and for
# each record of the sample.
SIMULATED_AT_MOST = 2**19
SIMULATED_PER_RECORD = 32


class HDPMixedMembership(eqx.Module):
    """The model and its hyperparameters.

    Parameters
    ----------
    concentration
        "shared": one alpha for all records; "record": alpha_i ~ Ga(a, b) (the paper);
        "hierarchical": the same with b ~ Ga(a1, b1).
    a, b
        Shape and rate of alpha's prior.
    a0, b0
        Shape and rate of alpha_0's prior.
    a1, b1
        Shape and rate of b's prior, where it has one.
    capacity
        Slots for components, at the least: more at the start where that has more components, and
        more later where they prove too few.
    dish_stride
        The dish move takes one table of every `dish_stride`-th record of a sweep, in rotation; 0
        turns it off.
    cell_stride
        The dish move of records that sit at one table takes records / `cell_stride` distinct
        cells of a sweep (at least 1,024), in rotation, with all their records; 0 turns it off.
    split_merge_every
        Sweeps between split-merge moves; 0 turns them off.
    seating_every
        Sweeps between moves that draw the shared alpha with the labels of all records at one table
        or two summed out, and these labels given it, for up to 12 variables; 0 turns them off.
    augmentation
        How records of the impossible region are drawn under structural zeros: "boxes", aggregated
        by box; "simulation", one by one until as many as the sample's are feasible, exact too;
        "expected", the approximation by expected counts (split-merge moves stay exact, trajectories
        are left out); "auto", boxes unless they constrain too many variables.
    tilt
        Tilt components along equivalences among the conditions.
    trajectory_steps
        Leapfrog steps of the Hamiltonian move that a sweep makes under structural zeros; 0 turns
        it off.
    not_applicable
        Leave out of a record the items that its other items settle, by an equivalence among the
        conditions: most structural zeros vanish with them (`StructuralZeros.not_applicable`).

    References
    ----------
    Battiston, M. & Rimella, L. (2024). Disclosure risk assessment with Bayesian non-parametric
    hierarchical modelling. Teh, Y. W. et al. (2006), doi:10.1198/016214506000000302.
    """

    a: float = 2.0
    b: float = 1.0
    a0: float = 2.0
    b0: float = 1.0
    a1: float = 1.0
    b1: float = 1.0
    concentration: str = eqx.field(static=True, default="shared")
    capacity: int = eqx.field(static=True, default=64)
    dish_stride: int = eqx.field(static=True, default=64)
    cell_stride: int = eqx.field(static=True, default=8)
    split_merge_every: int = eqx.field(static=True, default=2)
    seating_every: int = eqx.field(static=True, default=8)
    augmentation: str = eqx.field(static=True, default="auto")
    tilt: bool = eqx.field(static=True, default=True)
    trajectory_steps: int = eqx.field(static=True, default=8)
    not_applicable: bool = eqx.field(static=True, default=False)

    name: ClassVar[str] = "hdp"
    scalars: ClassVar[tuple[str, ...]] = (
        "components", "alpha", "alpha0", "tables", "log_likelihood_items", "left_over",
        "augmented", "accepted_tilts", "accepted_trajectories",
    )  # fmt: skip
    parameters: ClassVar[tuple[str, ...]] = ("g0", "theta", "alpha_rate", "log_feasible")
    start_components: ClassVar[tuple[int, ...]] = START_COMPONENTS
    start_share: ClassVar[float] = START_SHARE
    truncates: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = False
    max_exact_variables: ClassVar[int] = 12
    """For cell probabilities: 2,000 cells take about 20 ms at 10 variables, a second at 13."""

    def __check_init__(self):
        if self.concentration not in CONCENTRATIONS:
            raise ValueError(
                f"concentration is one of {', '.join(CONCENTRATIONS)}, not {self.concentration!r}"
            )
        if self.capacity < 2:
            raise ValueError(f"capacity must be at least 2, not {self.capacity}")
        check_options(self, ("a", "b", "a0", "b0", "a1", "b1"))

    @property
    def shared(self) -> bool:
        """Whether all records have one concentration."""
        return self.concentration == "shared"

    def prepare(self, codes, num_levels, conditions=None, multiple=RECORD_MULTIPLE) -> HDPData:
        """See the function `prepare_records`."""
        return prepare_records(self, codes, num_levels, conditions, multiple)

    def record_axes(self, tree: HDPData | HDPState) -> list[int | None]:
        """The axis of each leaf of `tree` that runs over records (None: none), for sharding."""
        return record_axes(tree, None if self.shared else 0)

    def init(self, key, data, capacity, num_components) -> HDPState:
        """See the function `init_state`."""
        return init_state(self, key, data, capacity, num_components)

    def sweep(
        self, key: Key[Array, ""], state: HDPState, data: HDPData, iteration: Int[Array, ""]
    ) -> tuple[HDPState, HDPInfo]:
        """One sweep, in the order that leaves the posterior invariant."""
        return sweep_with(update_parameters, self, key, state, data, iteration)

    def draw_weights(self, key, state, tables, added):
        """Step 4: alpha_0, and at once after it g_0 and the mass beyond the last stick.

        `tables` are those of the sample, `added` those of augmented records.
        """
        key_alpha0, key_g0 = jax.random.split(key)
        active = tables + added > 0
        extra = jnp.zeros_like(state.alpha0)
        if self.augmentation == "expected":
            # Expected tables of components without a record of the sample are the remainder's.
            active = tables > 0
            extra = jnp.sum(jnp.where(active, 0, added))
        tables = jnp.where(active, tables + added, 0)
        alpha0 = dp_concentration(
            key_alpha0, state.alpha0, jnp.sum(active), jnp.sum(tables) + extra, self.a0, self.b0
        )
        return alpha0, *draw_g0(key_g0, tables, alpha0, extra)

    def most_simulated(self, num_records: int) -> int | None:
        """Records of the impossible region with which components still split and merge.

        None where they never do.
        """
        if not self.split_merge_every:
            return None
        return min(SIMULATED_AT_MOST, SIMULATED_PER_RECORD * num_records)

    def prior_tables(self, state: HDPState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """What the prior of the weights adds to a component's tables, and to those of no one."""
        return jnp.zeros_like(state.alpha0), state.alpha0

    def grow(self, key: Key[Array, ""], state: HDPState, data: HDPData, capacity: int) -> HDPState:
        """The state with more slots, the remainder broken anew over all the free ones."""
        added = capacity - state.g0.size
        active = jnp.pad(_active_slots(state, data), (0, added))
        g0 = jnp.pad(state.g0, (0, added))
        log_remainder = jnp.log1p(-order_free_sum(jnp.where(active, g0, 0)))
        key_sticks, key_theta = jax.random.split(key)
        log_free, _ = retrospective_sticks(key_sticks, active, log_remainder, state.alpha0)
        prior = draw_theta(
            key_theta, jnp.zeros((data.variable.size, capacity), jnp.int32), data.variable
        )
        theta = jnp.where(active, jnp.pad(state.theta, ((0, 0), (0, added))), prior)
        g0 = jnp.where(active, g0, jnp.exp(log_free))
        return dataclasses.replace(
            state, g0=g0, theta=theta, totals=feasible_totals(g0, theta, data)
        )

    def early(self) -> "HDPMixedMembership":
        """The model of the first part of the warm-up: labels, tables and parameters alone.

        Components die by themselves; a split or merge this early may settle in a worse mode.
        """
        return dataclasses.replace(
            self, split_merge_every=0, seating_every=0, trajectory_steps=0, tilt=False
        )

    def slots_needed(self, state: HDPState, data: HDPData) -> Float[Array, ""]:
        """Slots that hold all but a negligible mass, and some to spare."""
        largest_last = jnp.sort(jnp.where(_active_slots(state, data), 1, state.g0))
        in_use = jnp.sum(cumulative_sum(largest_last) > NEGLIGIBLE)
        return 1.25 * in_use + 4

    def shrink(self, state: HDPState, data: HDPData, capacity: int) -> HDPState:
        """The state with fewer slots, components first; the last slot takes what is left.

        For the warm-up only: the mass of the slots that go is small, but not zero.
        """
        active = _active_slots(state, data)
        order = jnp.argsort(-(active + state.g0))
        place = jnp.zeros_like(order).at[order].set(jnp.arange(order.size))
        kept = order[:capacity]
        g0 = state.g0[kept]
        g0 = g0.at[-1].add(order_free_sum(state.g0[order[capacity:]]))
        theta = state.theta[:, kept]
        return dataclasses.replace(
            state, z=place[state.z].astype(state.z.dtype), g0=g0, theta=theta,
            totals=feasible_totals(g0, theta, data),
        )  # fmt: skip

    def log_cell_probability(self, key, draw, cells, num_levels, **how):
        """See the function `log_cell_probability`."""
        return log_cell_probability(self, key, draw, cells, num_levels, **how)

    def simulate_records(self, key, draw, num_records, num_levels, feasible=None):
        """See the function `simulate_records`."""
        return simulate_records(self, key, draw, num_records, num_levels, feasible)

    def keep(self, state: HDPState, info: HDPInfo) -> dict[str, Array]:
        """Everything of one sweep that a user may choose to keep."""
        return keep_everything(state, info)


def check_options(model, positive: tuple[str, ...]):
    """Raise ValueError on options out of range; `positive` names the hyperparameters."""
    if model.augmentation not in AUGMENTATIONS:
        raise ValueError(
            f"augmentation is one of {', '.join(AUGMENTATIONS)}, not {model.augmentation!r}"
        )
    for name in positive:
        value = getattr(model, name)
        if isinstance(value, (int, float)) and not value > 0:
            raise ValueError(f"{name} must be positive, not {value}")
    for name in ("dish_stride", "cell_stride"):
        stride = getattr(model, name)
        if stride and RECORD_MULTIPLE % stride:
            raise ValueError(f"{name} is 0 or a divisor of {RECORD_MULTIPLE}, not {stride}")


def prepare_records(
    model,
    codes: np.ndarray,
    num_levels: tuple[int, ...],
    conditions=None,
    multiple: int = RECORD_MULTIPLE,
) -> HDPData:
    """Arrays of a complete coded sample.

    Parameters
    ----------
    codes
        (n, J) 0-based level codes, none missing.
    num_levels
        Levels of each variable.
    conditions
        A `bnp_models.StructuralZeros`, or None.
    multiple
        Records are padded to a multiple of this; the strides must divide it.

    Raises
    ------
    MicrodataError
        If the conditions constrain too many variables for the augmentation that was asked for.
    """
    cells = group_cells(codes, num_levels)
    distinct = cells.codes
    if conditions is not None and model.not_applicable:
        coding = conditions.not_applicable
        codes, distinct = coding.reduce(codes), coding.reduce(distinct)
        num_levels, conditions = coding.schema.num_levels, coding.conditions
    truncated = conditions is not None and conditions.num_impossible_cells > 0
    num_records, num_items = codes.shape
    padding = -num_records % multiple
    first_row = first_rows(num_levels)
    # An absent item has the only level of a variable of its own, of probability one.
    levels = (*num_levels, 1) if model.not_applicable else num_levels
    absent = sum(num_levels)
    rows = np.pad(np.where(codes < 0, absent, codes + first_row), ((0, padding), (0, 0)))
    cell_rows = np.zeros_like(rows)
    cell_rows[: len(distinct)] = np.where(distinct < 0, absent, distinct + first_row)
    return HDPData(
        rows=jnp.asarray(rows.T, jnp.int32),
        weight=jnp.asarray(np.arange(num_records + padding) < num_records, jnp.int32),
        num_records=jnp.asarray(num_records, jnp.int32),
        variable=jnp.asarray(np.repeat(np.arange(len(levels)), levels), jnp.int32),
        cell=jnp.asarray(np.pad(cells.record_cell, (0, padding)), jnp.int32),
        cell_rows=jnp.asarray(cell_rows.T, jnp.int32),
        num_cells=jnp.asarray(len(cells.codes), jnp.int32),
        zeros=compile_zeros(model, conditions, levels) if truncated else None,
    )


def init_state(
    model, key: Key[Array, ""], data: HDPData, capacity: int, num_components: Int[Array, ""]
) -> HDPState:
    """A start with every record in one of `num_components` components, at random.

    Start from many: chains that begin with one component stay in worse modes for thousands
    of sweeps.
    """
    key_z, key_alpha = jax.random.split(key)
    num_padded = data.weight.size
    u = uniform(words(key_z, (num_padded,)), jnp.result_type(float).type)
    limit = jnp.minimum(num_components, int(capacity * START_SHARE))
    label = jnp.minimum((u * limit).astype(jnp.int32), limit - 1)
    z = jnp.broadcast_to(label, data.rows.shape)
    counts = count_rows_by_component(
        data.rows, z, data.weight, (data.variable.size, capacity)
    ).astype(u.dtype)
    total = jax.ops.segment_sum(1 + counts, data.variable, num_segments=data.variable.size)
    weight = jnp.sum(counts, axis=0)
    shape = () if model.shared else (num_padded,)
    g0, theta = weight / jnp.sum(weight), (1 + counts) / total[data.variable]
    return HDPState(
        z=z,
        g0=g0,
        theta=theta,
        alpha=gamma_variate(key_alpha, jnp.full(shape, model.a, u.dtype), model.b),
        rate=jnp.asarray(model.b, u.dtype),
        alpha0=jnp.ones((), u.dtype),
        totals=feasible_totals(g0, theta, data),
    )


def _active_slots(state: HDPState, data: HDPData) -> Bool[Array, " K"]:
    """Components with an item of the sample."""
    weight = jnp.broadcast_to(data.weight, state.z.shape)
    return count_components(state.z, weight, state.g0.size) > 0


def draw_prior(
    model: HDPMixedMembership,
    key: Key[Array, ""],
    num_records: int,
    num_levels: tuple[int, ...],
    capacity: int,
) -> tuple[HDPState, Int[Array, "J n"]]:
    """Parameters, labels and a sample from the joint prior.

    Parameters
    ----------
    num_records
        Records n, without padding.
    num_levels
        Levels of each variable, static.
    capacity
        Slots for components, K; the mass beyond the last one is lumped into it.

    Returns
    -------
    state, codes
        The state behind the sample, and the sample's 0-based level codes (J, n).
    """
    dtype = jnp.result_type(float)
    keys = jax.random.split(key, 6)
    alpha0 = gamma_variate(keys[0], jnp.asarray(model.a0, dtype), model.b0)
    rate = jnp.asarray(model.b, dtype)
    if model.concentration == "hierarchical":
        rate = gamma_variate(keys[1], jnp.asarray(model.a1, dtype), model.b1)
    shape = () if model.shared else (num_records,)
    alpha = gamma_variate(keys[2], jnp.full(shape, model.a, dtype), rate)
    no_slot = jnp.zeros(capacity, bool)
    log_g0, _ = retrospective_sticks(keys[3], no_slot, jnp.zeros((), dtype), alpha0)
    variable = jnp.asarray(np.repeat(np.arange(len(num_levels)), num_levels), jnp.int32)
    no_item = jnp.zeros((variable.size, capacity), jnp.int32)
    theta = draw_theta(keys[4], no_item, variable)
    g0 = jnp.exp(log_g0)
    z, _ = simulate_labels(keys[5], jnp.broadcast_to(alpha, (num_records,)), g0, len(num_levels))
    codes = simulate_levels(keys[6], z, pad_levels(theta, num_levels))
    return HDPState(z=z, g0=g0, theta=theta, alpha=alpha, rate=rate, alpha0=alpha0), codes


def sweep_with(update, model, key, state, data, iteration) -> tuple[HDPState, HDPInfo]:
    """Labels, tables, dishes, and then the parameters: by `update`, without structural zeros."""
    key_z, key_seating, key_tables, key_dish, key_parameters = jax.random.split(key, 5)
    state = update_labels(key_z, state, data)
    every = model.seating_every
    if every and model.shared and state.z.shape[0] <= MAX_SEATED_ITEMS:
        state = lax.cond(
            iteration % every == every - 1, partial(update_seating, model),
            lambda _key, state, _data: state, key_seating, state, data,
        )  # fmt: skip
    opens = draw_tables(key_tables, state)
    state = update_dishes(model, key_dish, state, data, opens, iteration)
    update = update if data.zeros is None else update_parameters_truncated
    return update(model, key_parameters, state, data, opens, iteration)


def update_labels(key: Key[Array, ""], state: HDPState, data: HDPData) -> HDPState:
    """Step 1: every item's label, the record weights integrated out."""
    z = assign_items(key, state.z, data.rows, state.alpha, state.g0, state.theta)
    return eqx.tree_at(lambda s: s.z, state, z)


def update_seating(model, key: Key[Array, ""], state: HDPState, data: HDPData) -> HDPState:
    """Records of few tables: the shared alpha with their labels summed out, and these anew.

    Where log P(feasible) is not at hand, alpha stays as it is.
    """
    key_tables, key_slots, key_alpha, key_z = jax.random.split(key, 4)
    num_items, num_padded = state.z.shape
    alpha, real = state.alpha, data.weight > 0
    opens = draw_tables(key_tables, state)
    slots = choose_slots(key_slots, state.g0, DISH_SLOTS)
    seats = take_seats(slots, state.g0, state.theta, num_items)
    seated = can_be_seated(state.z, opens, slots, state.g0.size)
    if data.zeros is None or data.zeros.feasible is not None:
        log_p = None
        if data.zeros is not None:
            log_p = log_feasible_given(model, state, data.zeros.feasible)
        records = jnp.zeros(num_padded, alpha.dtype).at[data.cell].add(seated & real)
        others = real & ~seated
        alpha = seatless_shared_concentration(
            key_alpha, alpha, log_totals_by_tables(data.cell_rows, data.num_cells, seats), records,
            jnp.sum(opens * others), jnp.sum(others), num_items, model.a, model.b, log_p,
        )  # fmt: skip
    z = draw_seating(key_z, data.rows, alpha, seats).astype(state.z.dtype)
    return dataclasses.replace(state, alpha=alpha, z=jnp.where(seated, z, state.z))


def draw_tables(key: Key[Array, ""], state: HDPState) -> Bool[Array, "J n"]:
    """Step 2: which items open a table, with concentration alpha_i g_0k."""
    return table_indicators(key, state.z, state.alpha * state.g0[state.z])


def update_dishes(
    model: HDPMixedMembership,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    opens: Bool[Array, "J n"],
    iteration: Int[Array, ""],
) -> HDPState:
    """The block moves: whole tables take a new component, the seating given."""
    key_slots, key_whole, key_part = jax.random.split(key, 3)
    slots = choose_slots(key_slots, state.g0, DISH_SLOTS)
    num_items, num_padded = state.z.shape
    z = state.z
    if model.cell_stride:
        size = min(num_padded, max(num_padded // model.cell_stride, CELLS_AT_LEAST))
        turns = (data.num_cells + size - 1) // size
        first_cell = (iteration % turns) * size
        cell_rows = lax.dynamic_slice_in_dim(data.cell_rows, first_cell, size, axis=1)
        z = redraw_whole_records(
            key_whole, z, opens, data.cell, cell_rows, first_cell, slots, state.g0, state.theta
        )
    if model.dish_stride:
        turn = iteration % model.dish_stride
        fold = (num_items, num_padded // model.dish_stride, model.dish_stride)

        def take(x):
            return lax.dynamic_index_in_dim(x.reshape(fold), turn, axis=-1, keepdims=False)

        moved = redraw_dishes(
            key_part, take(z), take(opens), take(data.rows), slots, state.g0, state.theta
        )
        folded = lax.dynamic_update_index_in_dim(z.reshape(fold), moved, turn, axis=-1)
        z = folded.reshape(z.shape)
    return eqx.tree_at(lambda s: s.z, state, z)


def update_parameters(
    model: HDPMixedMembership,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    opens: Bool[Array, "J n"],
    iteration: Int[Array, ""],
) -> tuple[HDPState, HDPInfo]:
    """Steps 3 to 6: concentrations, split-merge, then g_0, theta and the free sticks.

    alpha_0 and the split-merge move have g_0 integrated out, so that g_0 is redrawn at once after
    them; any other order has a wrong stationary distribution.
    """
    key_alpha, key_alpha0, key_split, key_g0, key_theta = jax.random.split(key, 5)
    num_rows, capacity = state.theta.shape
    tables_of_component = count_components(state.z, opens * data.weight, capacity)
    num_tables = jnp.sum(tables_of_component)
    alpha, rate = draw_alpha(model, key_alpha, state, data, opens, num_tables)
    alpha0 = dp_concentration(
        key_alpha0, state.alpha0, jnp.sum(tables_of_component > 0), num_tables, model.a0, model.b0
    )
    counts = count_rows_by_component(data.rows, state.z, data.weight, (num_rows, capacity))
    labelled = state.z, counts, tables_of_component
    if model.split_merge_every:
        due = iteration % model.split_merge_every == 0
        labelled = lax.cond(
            due, draw_split_merge, lambda _k, labelled, *_: labelled,
            key_split, labelled, opens, data, alpha0,
        )  # fmt: skip
    z, counts, tables_of_component = labelled
    g0, left_over = draw_g0(key_g0, tables_of_component, alpha0)
    theta = draw_theta(key_theta, counts, data.variable)
    state = HDPState(z=z, g0=g0, theta=theta, alpha=alpha, rate=rate, alpha0=alpha0)
    return state, sweep_info(model, state, data, tables_of_component, counts, left_over)


def draw_split_merge(key, labelled, opens, data, alpha0):
    """Split or merge components, g_0 and theta integrated out: labels, counts and tables."""
    key_seat, key_split = jax.random.split(key)
    z, counts, tables = labelled
    table = seat_items(key_seat, z, opens)
    moved = split_or_merge(
        key_split, z, table, data.rows, counts, tables, data.variable, data.num_records, alpha0
    )
    return moved.z, moved.counts, moved.tables
