"""HDP mixed membership (Battiston & Rimella 2024): prior, state, conditionals, sweep, summaries.

    G_0 ~ DP(alpha_0, H),  H = prod_j Dir(1_{L_j}),  alpha_0 ~ Ga(a_0, b_0)
    alpha_i ~ Ga(a, b),    G_i ~ DP(alpha_i, G_0)
    z_ij ~ G_i,            x_ij ~ theta_j^{(z_ij)}

with alpha_i one per record, or one shared by all records, or one per record with b ~ Ga(a_1, b_1),
and x_i restricted to the cells that structural zeros leave. A larger alpha_i means records that
differ *less* from G_0. The functions are pure: they jit, and vmap over chains.
"""

import dataclasses
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.assignment import assign_items
from bnp_models.kernels.atoms import Atoms, draw_levels_by_atom, share_over_atoms, split_over_atoms
from bnp_models.kernels.cellprob import (
    CellEstimate,
    log_cell_probability_draws,
    log_cell_probability_exact,
    log_cell_probability_sequential,
)
from bnp_models.kernels.concentration import (
    dp_concentration,
    gamma_rate,
    record_concentrations,
    rescale_concentrations,
    seatless_shared_concentration,
    shared_concentration,
    truncated_gamma_rate,
    truncated_shared_concentration,
)
from bnp_models.kernels.counting import (
    count_components,
    count_rows_by_component,
    first_rows,
    order_free_sum,
)
from bnp_models.kernels.lanes import most_of_lanes
from bnp_models.kernels.logspace import (
    gamma_variate,
    log_dirichlet,
    loggamma_from_one,
    totals_by_group,
)
from bnp_models.kernels.partitions import log_block_weights, log_block_weights_gamma
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
    opens_table,
    redraw_dishes,
    redraw_whole_records,
    seat_items,
    table_indicators,
)
from bnp_models.kernels.tilts import tilt_component
from bnp_models.kernels.trajectories import Concentration, Parameters, move_parameters
from bnp_models.kernels.truncation import Region, region_mass
from bnp_models.kernels.urn import simulate_labels, simulate_levels
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

# Samples of fewer records have their augmented records drawn one by one.
ONE_BY_ONE_BELOW = 4096

# Records that are simulated at once.
SIMULATION_BATCH = 8192

# Under structural zeros, split-merge moves take simulated records: how many times rarer they are,
# and the most such records that they take, all and for each record of the sample.
SIMULATED_SPACING = 16
SIMULATED_AT_MOST = 2**19
SIMULATED_PER_RECORD = 32

# Draws of record weights for log P(feasible) where the feasible boxes are too many to be exact.
FEASIBLE_DRAWS = 1024


class Zeros(eqx.Module):
    """Structural zeros, as the sampler needs them."""

    feasible: UrnBoxes | None
    """The feasible boxes; None where their partitions cannot be listed."""
    impossible: UrnBoxes | None
    """The impossible boxes, where augmented records are drawn in them; else None."""
    atoms: Atoms
    """What augmented records are counted by."""
    boxes: Bool[Array, "B R"]
    """The feasible boxes as sets of levels, for simulated records."""
    region: Region
    """The feasible boxes by group of variables, for log P(feasible) where it is not exact."""
    tilts: Float[Array, "E R"]
    """Directions along which a component may tilt, one for each equivalence."""
    num_levels: tuple[int, ...] = eqx.field(static=True)
    """Levels of each variable."""


class HDPData(eqx.Module):
    """The coded sample, records contiguous and padded."""

    rows: Int[Array, "J n"]
    """Row of theta that holds each item's observed level."""
    weight: Int[Array, " n"]
    """1 for a record, 0 for padding."""
    num_records: Int[Array, ""]
    """Records, padding excluded."""
    variable: Int[Array, " R"]
    """Variable of each row of theta."""
    cell: Int[Array, " n"]
    """Distinct cell of each record."""
    cell_rows: Int[Array, "J n"]
    """Rows of theta of the distinct cells, padded to the number of records."""
    num_cells: Int[Array, ""]
    """Distinct cells."""
    zeros: Zeros | None = None
    """Structural zeros, if there are any."""


class HDPState(eqx.Module):
    """All that a chain needs to go on."""

    z: Int[Array, "J n"]
    """Component of each item."""
    g0: Float[Array, " K"]
    """Component weights; free slots hold the broken remainder."""
    theta: Float[Array, "R K"]
    """Level probabilities by row and component; from the prior in free slots."""
    alpha: Float[Array, "*n"]
    """Concentration of the records: one each, or a scalar where it is shared."""
    rate: Float[Array, ""]
    """b of alpha_i ~ Ga(a, b); constant unless hierarchical."""
    alpha0: Float[Array, ""]
    """Concentration of G_0."""
    totals: Float[Array, " Q"] | None = None
    """Partition totals of the feasible boxes under g0 and theta, where there are any."""


class HDPInfo(eqx.Module):
    """What one sweep says of itself."""

    components: Int[Array, ""]
    """Components with at least one item."""
    tables: Int[Array, ""]
    """Tables over all records."""
    alpha: Float[Array, ""]
    """The shared alpha, or the mean over records."""
    log_likelihood_items: Float[Array, ""]
    """sum_ij log theta_{z_ij, j}(x_ij), given the labels."""
    left_over: Float[Array, ""]
    """Mass of G_0 beyond the last stick, the only approximation: the driver bounds it."""
    log_feasible: Float[Array, ""]
    """log P(feasible) of a record before truncation; 0 without structural zeros."""
    augmented: Int[Array, ""]
    """Records drawn for the impossible region; -1 where they were too many and left out."""
    accepted_tilts: Int[Array, ""]
    """Tilt moves accepted, 0 or 1."""
    accepted_trajectories: Int[Array, ""]
    """Hamiltonian moves accepted, 0 or 1."""


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
        "expected", the approximation by expected counts; "auto", boxes unless they constrain too
        many variables.
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
        log_remainder = jnp.log1p(-jnp.sum(jnp.where(active, g0, 0)))
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
        in_use = jnp.sum(jnp.cumsum(largest_last) > NEGLIGIBLE)
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
        g0 = g0.at[-1].add(jnp.sum(state.g0[order[capacity:]]))
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


def keep_everything(state: HDPState, info: HDPInfo) -> dict[str, Array]:
    """What a user may choose to keep of one sweep."""
    return {
        "components": info.components,
        "alpha": info.alpha,
        "alpha0": state.alpha0,
        "tables": info.tables,
        "log_likelihood_items": info.log_likelihood_items,
        "left_over": info.left_over,
        "g0": state.g0,
        "theta": state.theta,
        "alpha_rate": state.rate,
        "log_feasible": info.log_feasible,
        "augmented": info.augmented,
        "accepted_tilts": info.accepted_tilts,
        "accepted_trajectories": info.accepted_trajectories,
        "z": state.z,
    }


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
    ValueError
        If the conditions constrain too many variables for the augmentation that was asked for.
    """
    cells = group_cells(codes, num_levels)
    distinct = cells.codes
    if conditions is not None and model.not_applicable:
        coding = conditions.not_applicable
        codes, distinct = coding.reduce(codes), coding.reduce(distinct)
        num_levels, conditions = coding.schema.num_levels, coding.conditions
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
        zeros=None if conditions is None else compile_zeros(model, conditions, levels),
    )


def record_axes(tree: HDPData | HDPState, of_alpha: int | None) -> list[int | None]:
    """The axis of each leaf that runs over records, `of_alpha` that of alpha; None: none."""
    axes = {"rows": 1, "weight": 0, "cell": 0, "z": 1, "alpha": of_alpha}
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [axes.get(path[0].name) for path, _ in leaves]


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


def log_cell_probability(
    model: HDPMixedMembership,
    key: Key[Array, ""],
    draw: dict[str, Array],
    cells: Int[Array, "C J"],
    num_levels: tuple[int, ...],
    method: str = "exact",
    num_draws: int = 4096,
) -> Float[Array, " C"] | CellEstimate:
    """log p_c of cells for a new record, given one kept draw.

    Parameters
    ----------
    model
        Gives the prior of a new record's alpha.
    key
        Used once, and only where the method is not exact.
    draw
        "g0" (K,), "theta" (R, K), "alpha", "alpha_rate" and "log_feasible" of one sweep.
    cells
        0-based level codes; of the not-applicable form, -1 where an item is absent.
    num_levels
        Levels of each variable, static.
    method
        "exact", the subset recursion (up to `kernels.cellprob.MAX_VARIABLES` variables), which
        returns logarithms; "draws" of record weights shared by all cells, or "sequential"
        imputation per cell, which return a `kernels.cellprob.CellEstimate`.
    num_draws
        Draws, or particles a cell; even.

    Notes
    -----
    A new record's alpha is the shared one or a fresh one from its prior Ga(a, b), not one fitted
    to the sample's. Battiston & Rimella (2024), eq. (10), without its Monte Carlo error. Cells are
    taken for feasible ones: their probabilities are over P(feasible).
    """
    theta = pad_levels(draw["theta"], num_levels)
    log_feasible = draw["log_feasible"]
    if model.not_applicable:
        cells = jnp.where(cells < 0, theta.shape[1], cells)
        theta = jnp.concatenate([theta, jnp.ones_like(theta[:, :1])], axis=1)
    if method == "exact":
        urn = {"alpha": draw["alpha"]}
        if not model.shared:
            rate = draw["alpha_rate"]
            urn = {"log_weights": log_block_weights_gamma(model.a, rate, len(num_levels))}
        return log_cell_probability_exact(theta, draw["g0"], cells, **urn) - log_feasible
    key_alpha, key = jax.random.split(key)
    alpha = new_concentrations(model, key_alpha, draw["alpha"], draw["alpha_rate"], num_draws)
    estimate = {"draws": log_cell_probability_draws, "sequential": log_cell_probability_sequential}
    found = estimate[method](key, theta, draw["g0"], alpha, cells, num_draws)
    return found._replace(
        log_p=found.log_p - log_feasible, log_p_halves=found.log_p_halves - log_feasible
    )


def simulate_records(
    model: HDPMixedMembership,
    key: Key[Array, ""],
    draw: dict[str, Array],
    num_records: int,
    num_levels: tuple[int, ...],
    feasible: Bool[Array, "B R"] | None = None,
) -> Int[Array, "J n"]:
    """Level codes of new records given one kept draw, through the urn.

    Parameters
    ----------
    feasible
        Sets of levels of the feasible boxes; infeasible records are drawn again. None: all cells.
    """
    theta = pad_levels(draw["theta"], num_levels)
    parameters = draw["alpha"], draw["alpha_rate"], draw["g0"], theta
    if feasible is None:
        return simulate_batch(model, key, *parameters, num_records)[-1]
    first = first_rows(num_levels)[:, None]

    def again(carry):
        step, found, codes = carry
        key_batch = jax.random.fold_in(key, step)
        *_, drawn = simulate_batch(model, key_batch, *parameters, SIMULATION_BATCH)
        inside = in_boxes(first + drawn, feasible)
        place = jnp.where(inside, found + jnp.cumsum(inside) - 1, num_records)
        return step + 1, found + jnp.sum(inside), codes.at[:, place].set(drawn, mode="drop")

    start = jnp.int32(0), jnp.int32(0), jnp.zeros((len(num_levels), num_records), jnp.int32)
    return lax.while_loop(lambda carry: carry[1] < num_records, again, start)[2]


def simulate_batch(model, key, alpha, rate, g0, theta, size):
    """Concentrations, labels, seating and level codes of new records; theta as blocks."""
    key_alpha, key_z, key_x = jax.random.split(key, 3)
    alpha = new_concentrations(model, key_alpha, alpha, rate, size)
    z, table = simulate_labels(key_z, alpha, g0, theta.shape[0])
    return alpha, z, table, simulate_levels(key_x, z, theta)


def new_concentrations(model, key, alpha, rate, size: int) -> Float[Array, " size"]:
    """Concentrations of new records: the shared one, or fresh ones from their prior."""
    if model.shared:
        return jnp.full(size, alpha)
    return gamma_variate(key, jnp.full(size, model.a, rate.dtype), rate)


def in_boxes(rows: Int[Array, "J n"], boxes: Bool[Array, "B R"]) -> Bool[Array, " n"]:
    """Whether records, given by the rows of their levels, lie in one of the boxes."""
    return jnp.any(jnp.all(boxes[:, rows], axis=1), axis=0)


def pad_levels(theta: Float[Array, "R K"], num_levels: tuple[int, ...]) -> Float[Array, "J L K"]:
    """Rows of theta as one block per variable, padded with zeros to the most levels."""
    first = first_rows(num_levels)
    level = np.arange(max(num_levels))
    exists = level < np.asarray(num_levels)[:, None]
    rows = np.where(exists, first[:, None] + level, 0)
    return jnp.where(exists[:, :, None], theta[rows], 0)


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


def sweep_info(model, state: HDPState, data: HDPData, tables, counts, left_over, **truncated):
    """What a sweep says of itself; `truncated` is what structural zeros add."""
    none = jnp.zeros((), jnp.int32)
    truncated = {
        "log_feasible": jnp.zeros_like(state.alpha0), "augmented": none, "accepted_tilts": none,
        "accepted_trajectories": none,
    } | truncated  # fmt: skip
    for name in ("accepted_tilts", "accepted_trajectories"):
        truncated[name] = truncated[name].astype(jnp.int32)
    return HDPInfo(
        components=jnp.sum(tables > 0, dtype=jnp.int32),
        tables=jnp.sum(tables),
        alpha=summary_of_alpha(model, state.alpha, data),
        log_likelihood_items=log_likelihood_items(counts, state.theta),
        left_over=left_over,
        **truncated,
    )


def log_likelihood_items(counts: Int[Array, "R K"], theta: Float[Array, "R K"]):
    """sum_ij log theta_{z_ij, j}(x_ij)."""
    # No item is at a level of probability zero, nor may it turn the others' sum into nan.
    log_theta = jnp.log(jnp.where(counts > 0, theta, 1))
    return -order_free_sum(-(counts * log_theta).reshape(-1))


def draw_split_merge(key, labelled, opens, data, alpha0):
    """Split or merge components, g_0 and theta integrated out: labels, counts and tables."""
    key_seat, key_split = jax.random.split(key)
    z, counts, tables = labelled
    table = seat_items(key_seat, z, opens)
    moved = split_or_merge(
        key_split, z, table, data.rows, counts, tables, data.variable, data.num_records, alpha0
    )
    return moved.z, moved.counts, moved.tables


def draw_alpha(model, key, state, data, opens, num_tables, augmented=None, log_feasible=None):
    """Step 3: alpha, and the rate of its prior.

    Under structural zeros either `augmented` records count as the sample's do, or `log_feasible`,
    of the shared alpha or the rate, integrates the truncation.
    """
    num_items = state.z.shape[0]
    num_records, more_alpha = data.num_records, 0
    if augmented is not None:
        num_records = num_records + augmented.records
        num_tables = num_tables + jnp.sum(augmented.tables)
        more_alpha = augmented.sum_alpha
    truncation = () if log_feasible is None else (log_feasible,)
    if model.shared:
        draw = truncated_shared_concentration if truncation else shared_concentration
        alpha = draw(
            key, state.alpha, num_tables, num_records, num_items, model.a, model.b, *truncation
        )
        return alpha, state.rate
    key_alpha, key_rate, key_scale = jax.random.split(key, 3)
    of_record = jnp.sum(opens, axis=0, dtype=jnp.int32)
    alpha = record_concentrations(key_alpha, state.alpha, of_record, num_items, model.a, state.rate)
    rate = state.rate
    if model.concentration == "hierarchical":
        prior = model.a1, model.b1
        evidence = order_free_sum(alpha * data.weight) + more_alpha, num_records, model.a
        if truncation:
            rate = truncated_gamma_rate(key_rate, rate, *evidence, *prior, *truncation)
        else:
            rate = gamma_rate(key_rate, *evidence, *prior)
        # The alphas of augmented records are not kept, and could not be rescaled with the others.
        if augmented is None:
            alpha, rate = rescale_concentrations(
                key_scale, alpha, rate, of_record, data.weight, num_items, *prior, *truncation
            )
    return alpha, rate


def summary_of_alpha(model, alpha, data: HDPData) -> Float[Array, ""]:
    """The shared alpha, or the mean over records."""
    if model.shared:
        return alpha
    # Times the reciprocal, which is what some shardings would be compiled to.
    return order_free_sum(alpha * data.weight) * (1 / data.num_records)


def draw_g0(
    key: Key[Array, ""],
    tables_of_component: Int[Array, " K"] | Float[Array, " K"],
    alpha0: Float[Array, ""],
    extra: Float[Array, ""] | float = 0.0,
) -> tuple[Float[Array, " K"], Float[Array, ""]]:
    """Steps 4 and 6: (g_01..g_0K, remainder) ~ Dir(m_.1..m_.K, alpha_0), the remainder broken.

    `extra` tables of no component add to the remainder's alpha_0.
    """
    key_dirichlet, key_sticks = jax.random.split(key)
    active = tables_of_component > 0
    shape = jnp.append(tables_of_component.astype(alpha0.dtype), alpha0 + extra)
    log_g = log_dirichlet(key_dirichlet, shape)
    log_free, log_left_over = retrospective_sticks(key_sticks, active, log_g[-1], alpha0)
    return jnp.exp(jnp.where(active, log_g[:-1], log_free)), jnp.exp(log_left_over)


def draw_theta(
    key: Key[Array, ""], counts: Int[Array, "R K"], variable: Int[Array, " R"]
) -> Float[Array, "R K"]:
    """Step 5: theta_jk ~ Dir(1 + counts), from the prior where a component has none."""
    dtype = jnp.result_type(float)
    log_g = loggamma_from_one(key, 1 + counts.astype(dtype))
    log_weight, total = totals_by_group(log_g, variable)
    return jnp.exp(log_weight) / total


# Structural zeros -------------------------------------------------------------------------------


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
    ValueError
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
                raise ValueError(
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
    return partition_totals(block_sums(theta, g0, boxes), boxes)


def urn_weights(model, alpha, rate, boxes: UrnBoxes) -> Float[Array, " Q"]:
    """E[alpha^B / (alpha)_d] of a new record, for the sizes d and numbers of blocks B of boxes."""
    if model.shared:
        return weights_by_size(log_block_weights(alpha, boxes.most_variables), boxes)
    return weights_by_size(log_block_weights_gamma(model.a, rate, boxes.most_variables), boxes)


def feasible_probability(model, alpha, rate, totals, boxes: UrnBoxes) -> Float[Array, ""]:
    """P(feasible), from `feasible_totals`, at a shared alpha or a rate of the alphas' prior."""
    return probability(totals, urn_weights(model, alpha, rate, boxes))


def log_feasible(model, key: Key[Array, ""], state: HDPState, data: HDPData) -> Float[Array, ""]:
    """log P(feasible) of a record before truncation.

    Exact where the feasible boxes could be listed; else the mean over draws of record weights,
    given which variables are independent and their groups' masses multiply.
    """
    zeros = data.zeros
    if zeros.feasible is not None:
        return jnp.log(
            feasible_probability(model, state.alpha, state.rate, state.totals, zeros.feasible)
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
    """log P(feasible) as a function of the shared alpha, or of the rate of the alphas' prior."""

    def log_p(x):
        return jnp.log(feasible_probability(model, x, x, state.totals, boxes))

    return log_p


def update_parameters_truncated(
    model: HDPMixedMembership,
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
    value, concentration = state.rate, None
    if model.shared:
        extra_tables = (num_tables - n).astype(dtype)
        t = jnp.arange(1, state.z.shape[0], dtype=dtype)

        def log_density(alpha):
            rising = jnp.sum(jnp.log1p(alpha / t))
            return (model.a + extra_tables) * jnp.log(alpha) - model.b * alpha - n * rising

        value, concentration = state.alpha, Concentration(log_density, model.a + extra_tables)
    elif model.concentration == "hierarchical":
        shape = model.a1 + n * model.a
        sum_alpha = order_free_sum(state.alpha * data.weight)
        concentration = Concentration(
            lambda b: shape * jnp.log(b) - (model.b1 + sum_alpha) * b, shape
        )
    moved, accepted = move_parameters(
        key, Parameters(state.theta, state.g0, value), counts, tables + own, of_no_one,
        concentration, n, data.variable, lambda x: urn_weights(model, x, x, boxes), boxes,
        model.trajectory_steps,
    )  # fmt: skip
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
    weights = urn_weights(model, state.alpha, state.rate, zeros.feasible)
    own, of_no_one = model.prior_tables(state)
    tilted = tilt_component(
        key_tilt, zeros.tilts[index], state.theta, state.g0, state.totals, counts, tables + own,
        of_no_one, data.num_records, data.variable, weights, zeros.feasible,
    )  # fmt: skip
    state = dataclasses.replace(state, theta=tilted.theta, g0=tilted.g0, totals=tilted.totals)
    return state, tilted.accepted


def draw_augmented(model, key, state, data) -> Augmented:
    """Records of the impossible region before the n-th feasible one, given the parameters."""
    if data.zeros.impossible is None:
        return augment_by_simulation(model, key, state, data)
    if model.augmentation == "expected":
        return augment_by_expectation(model, state, data)
    return augment_by_boxes(model, key, state, data)


def augment_by_boxes(model, key, state, data) -> Augmented:
    """Augmented records aggregated by box, their free variables integrated out; exact."""
    key_block, key_label, key_level = jax.random.split(key, 3)
    boxes, urn = data.zeros.impossible, (model, state.alpha, state.rate)
    products = block_products(state.theta, state.g0, boxes)
    feasible = feasible_probability(*urn, state.totals, data.zeros.feasible)
    of_type, records = draw_blocks(
        key_block, jnp.sum(products, axis=1), urn_weights(*urn, boxes),
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
    boxes, urn = data.zeros.impossible, (model, state.alpha, state.rate)
    products = block_products(state.theta, state.g0, boxes)
    sums = jnp.sum(products, axis=1)
    feasible = feasible_probability(*urn, state.totals, data.zeros.feasible)
    per_record = data.num_records / feasible
    of_type, records = expected_blocks(sums, urn_weights(*urn, boxes) * per_record, boxes)
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
    most = model.most_simulated(num_padded) if hasattr(model, "most_simulated") else None
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
