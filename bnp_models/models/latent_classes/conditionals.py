"""Conditionals of a sweep: classes and missing values of records, parameters, moves of classes.

The conditionals of the parameters under structural zeros are in `truncated`.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.boxes.region import masses_of_sets, region_mass
from bnp_models.kernels.latent_classes.order import reorder_classes, swap_classes
from bnp_models.kernels.latent_classes.split_merge import ClassParameters, split_or_merge_classes
from bnp_models.kernels.numerics.counting import order_free_sum, variables_by_size
from bnp_models.kernels.numerics.platforms import map_draws
from bnp_models.kernels.splits.anchors import Counts
from bnp_models.kernels.splits.members import LabelledRecords
from bnp_models.kernels.variates.categorical import draw_rows
from bnp_models.kernels.variates.discrete import split_counts
from bnp_models.kernels.variates.gamma import loggamma_from_one
from bnp_models.kernels.variates.rng import Keys, key_array
from bnp_models.models.latent_classes.state import (
    LatentClassData,
    LatentClassOptions,
    LatentClassState,
    count_levels,
    label_records,
)
from bnp_models.models.level_prior import update_shape


@jax.named_scope("update_classes")
def update_classes(
    key: Key[Array, ""], state: LatentClassState, data: LatentClassData
) -> tuple[LabelledRecords, Float[Array, ""]]:
    """Draw the class and the missing values of every record.

    This is step (a) of Manrique-Vallier & Hu (2018), doi:10.1111/rssa.12352, section 2.3.
    For a cell with a count, the numbers of its records in each class are drawn; they are
    multinomial.

    Returns
    -------
    records
        Records with their classes and drawn missing values.
    log_likelihood
        Log likelihood of the observed values at the parameters of `state`, classes summed out.
    """
    key_z, key_values, key_split = Keys(key, 3)
    log_weight = _log_weight(state, data.one_hot)
    rows = data.rows
    if data.incomplete.size:
        log_box = log_completions(state.log_lambda, data)
        completions = jax.nn.logsumexp(log_box, axis=0).T
        log_weight = log_weight.at[:, data.incomplete].add(completions)
    z, log_total = draw_rows(key_z, log_weight)
    if data.incomplete.size:
        completed = draw_missing(key_values, state.log_lambda, data, z[data.incomplete], log_box)
        rows = rows.at[:, data.incomplete].set(completed)
    log_feasible = jax.nn.logsumexp(
        state.log_pi + jnp.log(region_mass(state.log_lambda, data.feasible))
    )

    def log_probability(log_total, number):
        """Log probability of `number` records in each cell."""
        log_p = number * jnp.minimum(log_total - log_feasible, 0)
        return -order_free_sum(jnp.where(number > 0, -log_p, 0))

    log_likelihood, split = log_probability(log_total, data.weight), None
    if data.cell_counts.size:
        log_weight = _log_weight(state, data.cell_one_hot)
        log_total = jax.nn.logsumexp(log_weight, axis=0)
        probability = jnp.exp(log_weight - log_total)
        split = split_counts(key_split, data.cell_counts, probability, axis=0)
        log_likelihood += log_probability(log_total, data.cell_counts)
    return label_records(data, z, split, rows), log_likelihood


def _log_weight(state: LatentClassState, one_hot):
    """Log weight of every class for every record, or cell."""
    log_weight = jnp.matmul(state.log_lambda.T, one_hot, precision=lax.Precision.HIGHEST)
    return log_weight + state.log_pi[:, None]


def log_completions(
    log_lambda: Float[Array, "R K"], data: LatentClassData
) -> Float[Array, "B m K"]:
    """Log probability, by feasible box and class, that a completed record is in the box."""
    log_admitted = jnp.log(data.admitted)[:, :, None]
    if not data.constrained:
        return jnp.broadcast_to(log_admitted, (*data.admitted.shape, log_lambda.shape[1]))
    variables = np.array(data.constrained)
    masses = masses_of_sets(log_lambda, data.boxes, data.num_levels)[variables]
    missing = data.missing[:, variables].astype(log_lambda.dtype)
    # The logarithm of a set without mass must stay finite, because 0 times infinity is nan.
    log_mass = jnp.log(jnp.maximum(masses, jnp.finfo(masses.dtype).tiny))
    return log_admitted + jnp.einsum(
        "mv,vbk->bmk", missing, log_mass, precision=lax.Precision.HIGHEST
    )


def draw_missing(
    key: Key[Array, ""],
    log_lambda: Float[Array, "R K"],
    data: LatentClassData,
    z: Int[Array, " m"],
    log_box: Float[Array, "B m K"],
) -> Int[Array, "J m"]:
    """Draw the missing values of the incomplete records, given their classes.

    The box is drawn first, and then the levels within its sets, so that every completion is
    feasible.

    Parameters
    ----------
    z
        Classes of the incomplete records.
    log_box
        Result of `log_completions`.

    Returns
    -------
    rows
        Row of lambda for each level of the incomplete records; observed levels are unchanged.
    """
    key_box, key_levels = Keys(key, 2)
    log_box_given_class = jnp.take_along_axis(log_box, z[None, :, None], axis=2)[:, :, 0]
    box, _ = draw_rows(key_box, log_box_given_class)
    drawn = draw_levels_in_box(key_levels, log_lambda, data.boxes, z, box, data.num_levels)
    return jnp.where(data.missing.T, drawn, data.rows[:, data.incomplete])


def draw_levels_in_box(
    key: Key[Array, ""],
    log_lambda: Float[Array, "R K"],
    sets: Bool[Array, "B R"],
    z: Int[Array, " m"],
    box: Int[Array, " m"],
    num_levels: tuple[int, ...],
) -> Int[Array, "J m"]:
    """Draw a level of every variable for records of given classes, each within its box.

    Parameters
    ----------
    sets
        Levels that each box admits.
    z, box
        Class and box of each record.

    Returns
    -------
    rows
        Row of lambda for each drawn level.
    """
    keys = key_array(key, len(num_levels))
    drawn = jnp.zeros((len(num_levels), z.size), jnp.int32)

    def of_variable(arguments):
        key, rows = arguments
        log_weight = jnp.where(sets[:, rows][box].T, log_lambda[rows][:, z], -jnp.inf)
        level, _ = draw_rows(key, log_weight)
        return rows[0] + level

    for variables, rows in variables_by_size(num_levels):
        some = map_draws(of_variable, (keys[variables], jnp.asarray(rows, jnp.int32)))
        drawn = drawn.at[variables].set(some)
    return drawn


@jax.named_scope("update_partition")
def update_partition(
    model: LatentClassOptions,
    key: Key[Array, ""],
    state: LatentClassState,
    records: LabelledRecords,
    data: LatentClassData,
    iteration: Int[Array, ""],
) -> tuple[LatentClassState, LabelledRecords, Bool[Array, ""]]:
    """Split or merge classes in some sweeps; the parameters of these two classes change too.

    Returns
    -------
    state, records, accepted
        State and classes of the records after the move, and whether it was accepted.
    """
    no_move = jnp.zeros((), bool)
    if not model.split_merge_every:
        return state, records, no_move
    return lax.cond(
        iteration % model.split_merge_every == 0,
        lambda: _split_or_merge(model, key, state, records, data),
        lambda: (state, records, no_move),
    )


def _split_or_merge(
    model: LatentClassOptions,
    key: Key[Array, ""],
    state: LatentClassState,
    records: LabelledRecords,
    data: LatentClassData,
) -> tuple[LatentClassState, LabelledRecords, Bool[Array, ""]]:
    """Propose one split or merge, and accept or reject it.

    The posterior depends on the weights only through their proportions. For the move their total is
    drawn, sum_k x_k M_k ~ Ga(n, 1) in the letters of `split_or_merge_classes`, because the
    truncation then has one factor for each class in place of (sum_k pi_k F_k)^-n. The acceptance
    ratio therefore has only the factors of the classes that change.
    """
    key_scale, key_move = Keys(key, 2)
    log_mass = jnp.log(region_mass(state.log_lambda, data.feasible))
    log_seen = state.log_pi + log_mass
    log_scale = loggamma_from_one(key_scale, jnp.asarray(data.num_records, log_mass.dtype))
    log_stick = log_seen if model.by_class else state.log_pi
    log_x = log_scale - jax.nn.logsumexp(log_seen) + log_stick
    counts = count_levels(records, data.num_levels, model.components)
    records, (log_x, log_lambda), accepted = split_or_merge_classes(
        key_move, records, Counts(*counts), ClassParameters(log_x, state.log_lambda),
        data.levels.with_shape(state.level_shape), data.feasible, state.alpha, model.by_class,
    )  # fmt: skip
    if model.by_class:
        log_x = log_x - jnp.log(region_mass(log_lambda, data.feasible))
    log_pi = log_x - jax.nn.logsumexp(log_x)
    return dataclasses.replace(state, log_pi=log_pi, log_lambda=log_lambda), records, accepted


class Drawn(NamedTuple):
    """Drawn parameters of the classes, except the concentration."""

    log_pi: Float[Array, " K"]
    """Log weights before truncation."""
    log_lambda: Float[Array, "R K"]
    """Log level probabilities before truncation."""
    level_shape: Float[Array, " R+G"]
    """Dirichlet shapes of the prior of the level probabilities, by node: levels, then groups."""
    log_mass: Float[Array, " K"]
    """log F_k, the feasible mass of each class."""
    sum_log_1mv: Float[Array, ""]
    """Sum of log(1 - V_k) over the sticks V_k, k < K: the statistic for alpha."""
    augmented: Int[Array, ""] | int = 0
    """Number of records drawn in the impossible region; -1 if there were too many to count."""
    accepted: Float[Array, ""] | float = 1.0
    """Share of accepted Metropolis-Hastings proposals; 1 if there was none."""


def draw_level_shape(
    model: LatentClassOptions,
    key: Key[Array, ""],
    state: LatentClassState,
    data: LatentClassData,
    counts: Int[Array, "R K"],
) -> Float[Array, " R+G"]:
    """Draw the shapes of the prior of level probabilities, which are integrated out.

    The level probabilities must be drawn again before they are used. `counts` are of complete
    records.
    """
    levels = data.levels.with_shape(state.level_shape)
    return update_shape(model, key, counts, levels)


def draw_without_zeros(model, keys, state, data, counts, class_counts) -> Drawn:
    """Draw level probabilities, their prior and sticks, given the counts of the sample."""
    alpha = state.alpha
    key_shape, key_levels, key_pi, *_ = keys
    level_shape = draw_level_shape(model, key_shape, state, data, counts)
    log_lambda = data.levels.with_shape(level_shape).draw(key_levels, counts)
    log_pi, sum_log_1mv = model.draw_weights(key_pi, class_counts, alpha)
    return Drawn(log_pi, log_lambda, level_shape, jnp.zeros_like(log_pi), sum_log_1mv)


@jax.named_scope("update_order")
def update_order(
    model: LatentClassOptions,
    key: Key[Array, ""],
    state: LatentClassState,
    log_mass: Float[Array, " K"],
    class_counts: Int[Array, " K"],
) -> tuple[LatentClassState, Float[Array, " K"], Int[Array, " K"]]:
    """Exchange classes and leave the weights in place, then exchange classes with their weights.

    Returns
    -------
    state, log_mass, class_counts
        The arguments in the new order.

    Notes
    -----
    If each class is truncated separately, the moves use the weights after truncation, pi_k F_k up
    to a constant, because those have the stick-breaking prior.
    """
    key_swap, key_reorder = Keys(key, 2)
    log_weight = state.log_pi + log_mass if model.by_class else state.log_pi
    log_lambda = state.log_lambda
    if model.swap:
        seen = jnp.zeros_like(log_mass) if model.by_class else log_mass
        order = swap_classes(key_swap, log_weight, seen, class_counts)
        log_lambda, log_mass = log_lambda[:, order], log_mass[order]
        class_counts = class_counts[order]
    if model.reorder:
        order = reorder_classes(key_reorder, log_weight, state.alpha)
        log_lambda, log_mass = log_lambda[:, order], log_mass[order]
        class_counts, log_weight = class_counts[order], log_weight[order]
    log_pi = log_weight - log_mass if model.by_class else log_weight
    log_pi = log_pi - jax.nn.logsumexp(log_pi)
    state = dataclasses.replace(state, log_pi=log_pi, log_lambda=log_lambda)
    return state, log_mass, class_counts
