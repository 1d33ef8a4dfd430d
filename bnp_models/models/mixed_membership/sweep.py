"""One sweep of mixed membership models: labels, tables, dishes, then the parameters.

The numbers of steps are those of the sampler of Battiston & Rimella (2024).
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.mixed_membership.concentration import (
    GammaPrior,
    SummedOut,
    seatless_shared_concentration,
)
from bnp_models.kernels.mixed_membership.seating import (
    Cells,
    can_be_seated,
    draw_seating,
    log_totals_by_tables,
    take_seats,
)
from bnp_models.kernels.mixed_membership.split_merge import split_or_merge
from bnp_models.kernels.mixed_membership.tables import (
    SomeCells,
    assign_items,
    choose_slots,
    redraw_dishes,
    redraw_whole_records,
    seat_items,
    table_indicators,
)
from bnp_models.kernels.numerics.counting import count_components
from bnp_models.kernels.numerics.platforms import on_accelerator
from bnp_models.kernels.splits.anchors import Counts
from bnp_models.kernels.splits.seated_items import SeatedItems
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.mixed_membership.conditionals import moves_alpha
from bnp_models.models.mixed_membership.feasible import log_growth_given
from bnp_models.models.mixed_membership.options import MembershipOptions
from bnp_models.models.mixed_membership.state import HDPData, HDPInfo, HDPState
from bnp_models.models.mixed_membership.truncated_sweep import update_parameters_truncated

# Number of slots among which dish moves and seating choose, in samples of up to `SMALL_SAMPLE`
# records and in larger ones. Most samples have fewer components; with more slots, a choice would
# hardly ever change anything.
DISH_SLOTS = (32, 64)
SMALL_SAMPLE = 1024

# Least number of distinct cells for a whole-record move: fewer would not be cheaper.
CELLS_AT_LEAST = 1024

# If alpha is larger than the first number, labels of all records are drawn in every sweep: then
# about 15% or more of the records with 10 items have several tables. Otherwise labels are drawn for
# one of this many records.
SMALL_ALPHA = 0.05
LABEL_STRIDE = 8

# Largest number of items for `update_seating`, whose cost grows as 2^J.
MAX_SEATED_ITEMS = 12


def sweep_with(
    update: Callable[..., tuple[HDPState, HDPInfo]],
    model: MembershipOptions,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    iteration: Int[Array, ""],
) -> tuple[HDPState, HDPInfo]:
    """Draw labels, tables and dishes, and then the parameters.

    While `iteration` is negative, there are no splits and merges, and surplus components disappear
    without them. A split or merge this early may lead to a worse mode. The prior of the levels is
    uniform until then: with a learned prior, chains that start from many components would need more
    slots.

    `update` draws the parameters if there are no structural zeros. The order of the steps leaves
    the posterior invariant.
    """
    key_z, key_seating, key_tables, key_dish, key_parameters = Keys(key, 5)
    type_of_z = state.z.dtype
    state = dataclasses.replace(state, z=state.z.astype(jnp.int32))
    state = update_labels(key_z, state, data, iteration)
    every = model.seating_every
    if every and model.shared and state.z.shape[0] <= MAX_SEATED_ITEMS:
        state = lax.cond(
            (iteration >= 0) & (iteration % every == every - 1), partial(update_seating, model),
            lambda _key, state, _data: state, key_seating, state, data,
        )  # fmt: skip
    opens = draw_tables(key_tables, state)
    state = update_dishes(model, key_dish, state, data, opens, iteration)
    update = update if data.zeros is None else update_parameters_truncated
    state, info = update(model, key_parameters, state, data, opens, iteration)
    return dataclasses.replace(state, z=state.z.astype(type_of_z)), info


@jax.named_scope("update_labels")
def update_labels(
    key: Key[Array, ""], state: HDPState, data: HDPData, iteration: Int[Array, ""]
) -> HDPState:
    """Step 1: draw the labels of items, with the record weights integrated out.

    Usually the labels of all records are drawn. On a CPU, if the shared alpha is so small that
    hardly any record has two tables, only one of every `LABEL_STRIDE` records is updated, in
    rotation. This choice may depend on alpha, because the step does not change alpha.
    """
    if state.alpha.ndim or on_accelerator():
        z = assign_items(key, state.z, data.rows, state.alpha, state.g0, state.theta)
        return dataclasses.replace(state, z=z)
    every, stride = state.alpha > SMALL_ALPHA, math.gcd(state.z.shape[1], LABEL_STRIDE)
    first = jnp.where(every, 0, iteration % stride)

    def some(turn, z):
        drawn = assign_items(
            jax.random.fold_in(key, turn), take_turn(z, turn, stride),
            take_turn(data.rows, turn, stride), state.alpha, state.g0, state.theta,
        )  # fmt: skip
        return put_turn(z, drawn, turn, stride)

    z = lax.fori_loop(first, jnp.where(every, stride, first + 1), some, state.z)
    return dataclasses.replace(state, z=z)


def take_turn(x: Int[Array, "J n"], turn: Int[Array, ""], stride: int) -> Int[Array, "J m"]:
    """Take one of every `stride` records in a way that keeps the records on their devices."""
    folded = x.reshape(len(x), -1, stride)
    return lax.dynamic_index_in_dim(folded, turn, axis=-1, keepdims=False)


def put_turn(
    x: Int[Array, "J n"], moved: Int[Array, "J m"], turn: Int[Array, ""], stride: int
) -> Int[Array, "J n"]:
    """Put the records of `take_turn` back."""
    folded = x.reshape(len(x), -1, stride)
    return lax.dynamic_update_index_in_dim(folded, moved, turn, axis=-1).reshape(x.shape)


def dish_slots(num_records: int) -> int:
    """Number of slots among which dish moves and seating choose in a sample of this size."""
    return DISH_SLOTS[num_records > SMALL_SAMPLE]


@jax.named_scope("update_seating")
def update_seating(
    model: MembershipOptions, key: Key[Array, ""], state: HDPState, data: HDPData
) -> HDPState:
    """Draw the shared alpha with labels of records with few tables summed out; then these labels.

    Alpha does not change if log P(feasible) is not available, or if only `draw_alpha` may change
    it.
    """
    key_tables, key_slots, key_alpha, key_z = Keys(key, 4)
    num_items, num_padded = state.z.shape
    alpha, real = state.alpha, data.weight > 0
    opens = draw_tables(key_tables, state)
    slots = choose_slots(key_slots, state.g0, dish_slots(num_padded))
    seats = take_seats(slots, state.g0, state.theta, num_items)
    seated = can_be_seated(state.z, opens, slots, state.g0.size)
    cells = Cells(data.cell, data.cell_rows, data.num_cells)
    log_totals = log_totals_by_tables(cells, seats)
    boxes = None if data.zeros is None else data.zeros.feasible
    if moves_alpha(model) and (data.zeros is None or boxes is not None):
        growth = None if boxes is None else log_growth_given(model, state, boxes)
        # In integers, because floats that count one by one stop at 2**24.
        records = count_components(data.cell, seated & real, num_padded).astype(alpha.dtype)
        others = real & ~seated
        alpha = seatless_shared_concentration(
            key_alpha, alpha, SummedOut(log_totals, records), jnp.sum(opens * others),
            jnp.sum(others), num_items, GammaPrior(model.a, model.b), growth,
        )  # fmt: skip
    z = draw_seating(key_z, data.rows, alpha, seats, seated & real, cells, log_totals)
    z = z.astype(state.z.dtype)
    return dataclasses.replace(state, alpha=alpha, z=jnp.where(seated, z, state.z))


@jax.named_scope("draw_tables")
def draw_tables(key: Key[Array, ""], state: HDPState) -> Bool[Array, "J n"]:
    """Step 2: draw which items open a new table, with concentration alpha_i g_0k."""
    return table_indicators(key, state.z, state.alpha * state.g0[state.z])


@jax.named_scope("update_dishes")
def update_dishes(
    model: MembershipOptions,
    key: Key[Array, ""],
    state: HDPState,
    data: HDPData,
    opens: Bool[Array, "J n"],
    iteration: Int[Array, ""],
) -> HDPState:
    """Draw new components for whole tables, given the seating.

    Each iteration updates a part of the sample. For records at one table, it draws new components
    for the distinct cells in this part. For each other record in this part, it draws a new
    component for one table.
    """
    key_slots, key_whole, key_part = Keys(key, 3)
    num_padded = state.z.shape[1]
    slots = choose_slots(key_slots, state.g0, dish_slots(num_padded))
    z = state.z
    if model.cell_stride:
        size = min(num_padded, max(num_padded // model.cell_stride, CELLS_AT_LEAST))
        turns = (data.num_cells + size - 1) // size
        # The last turn has as many cells as the others: it repeats some cells, or has padding.
        first_cell = jnp.minimum((iteration % turns) * size, num_padded - size)
        cell_rows = lax.dynamic_slice_in_dim(data.cell_rows, first_cell, size, axis=1)
        cells = SomeCells(data.cell, cell_rows, first_cell)
        z = redraw_whole_records(key_whole, z, opens, cells, slots, state.g0, state.theta)
    if model.dish_stride:
        turn = iteration % model.dish_stride
        take = partial(take_turn, turn=turn, stride=model.dish_stride)
        moved = redraw_dishes(
            key_part, take(z), take(opens), take(data.rows), slots, state.g0, state.theta
        )
        z = put_turn(z, moved, turn, model.dish_stride)
    return dataclasses.replace(state, z=z)


def components_first(
    z: Int[Array, "J n"], tables: Int[Array, " K"]
) -> tuple[Int[Array, "J n"], Int[Array, " K"]]:
    """Labels, and tables by component, after moving slots with tables to the front, in order."""
    active = tables > 0
    before = jnp.where(active, jnp.cumsum(active), jnp.sum(active) + jnp.cumsum(~active))
    place = (before - 1).astype(z.dtype)
    return place[z], jnp.zeros_like(tables).at[place].set(tables)


Labelled: TypeAlias = tuple[Int[Array, "J n"], Int[Array, "R K"], Int[Array, " K"]]
"""Labels, and for each component its items by row of theta and its number of tables."""


@jax.named_scope("split_merge")
def draw_split_merge(
    key: Key[Array, ""],
    labelled: Labelled,
    opens: Bool[Array, "J n"],
    data: HDPData,
    alpha0: Float[Array, ""],
    level_shape: Float[Array, " R"],
    double: bool,
) -> Labelled:
    """Split or merge components, with g_0 and theta integrated out."""
    key_seat, key_split = Keys(key)
    z, counts, tables = labelled
    items = SeatedItems(z, seat_items(key_seat, z, opens), data.rows, data.num_records)
    levels = data.levels.with_shape(level_shape)
    moved = split_or_merge(key_split, items, Counts(counts, tables), levels, alpha0, double)
    return moved.z, moved.counts, moved.tables
