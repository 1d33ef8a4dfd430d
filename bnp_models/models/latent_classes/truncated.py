"""Level probabilities and weights of latent classes under structural zeros, given the labels."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.boxes.level_parts import (
    draw_levels_by_part,
    split_over_levels,
    split_over_parts,
)
from bnp_models.kernels.boxes.region import box_masses, outside_mass, region_mass
from bnp_models.kernels.latent_classes.truncation import (
    Tilt,
    draw_observed_weights,
    stick_tilt,
    update_levels_truncated,
)
from bnp_models.kernels.variates.discrete import MAX_COUNT, poisson
from bnp_models.kernels.variates.gamma import loggamma_from_one
from bnp_models.kernels.variates.level_prior import update_level_prior_given_levels
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.latent_classes.conditionals import Drawn, draw_level_shape
from bnp_models.models.latent_classes.state import (
    LatentClassData,
    LatentClassOptions,
    LatentClassState,
)
from bnp_models.models.level_prior import learns_levels


def _draw_level_shape_truncated(model, key, state, data, counts):
    """Draw the shapes of the prior of level probabilities, with impossible records integrated out.

    The level probabilities of constrained variables are given. Those of the other variables are
    integrated out and must be drawn again before they are used.
    """
    if not learns_levels(model):
        return state.level_shape
    key_free, key_constrained = Keys(key)
    free = draw_level_shape(model, key_free, state, data, counts)
    levels = data.levels.with_shape(state.level_shape)
    constrained = update_level_prior_given_levels(key_constrained, state.log_lambda, levels)
    return jnp.where(levels.at_nodes(data.feasible.free) > 0, free, constrained)


def draw_truncated_classes(model, keys, state, data, counts, class_counts) -> Drawn:
    """Draw level probabilities and weights of classes that are truncated separately."""
    key_shape, key_levels, key_rho, *_ = keys
    level_shape = _draw_level_shape_truncated(model, key_shape, state, data, counts)
    nothing = jnp.zeros_like(state.log_pi)
    log_lambda, log_mass, accepted = update_levels_truncated(
        key_levels, state.log_lambda, counts, class_counts, data.levels.with_shape(level_shape),
        data.feasible, Tilt(nothing, nothing),
    )  # fmt: skip
    log_rho, sum_log_1mv = model.draw_weights(key_rho, class_counts, state.alpha)
    log_pi = log_rho - log_mass
    log_pi = log_pi - jax.nn.logsumexp(log_pi)
    return Drawn(log_pi, log_lambda, level_shape, log_mass, sum_log_1mv, accepted=accepted)


def draw_truncated_mixture(model, keys, state, data, counts, class_counts) -> Drawn:
    """Draw level probabilities and weights of a mixture that is truncated as a whole.

    Impossible records are drawn only as counts by class, for the update of the sticks. They are not
    used for the level probabilities.
    """
    key_shape, key_tilt, key_levels, key_observed, key_augmented, key_sticks = keys
    log_pi, alpha = state.log_pi, state.alpha
    num_records = jnp.asarray(data.num_records, log_pi.dtype)
    log_mass = jnp.log(region_mass(state.log_lambda, data.feasible))
    level_shape = _draw_level_shape_truncated(model, key_shape, state, data, counts)
    tilt, log_s = stick_tilt(key_tilt, log_pi, log_mass, alpha, num_records)
    log_lambda, log_mass, accepted = update_levels_truncated(
        key_levels, state.log_lambda, counts, class_counts, data.levels.with_shape(level_shape),
        data.feasible, tilt,
    )  # fmt: skip
    log_pi = draw_observed_weights(key_observed, class_counts, log_mass, log_s, alpha)
    log_outside = log_pi + jnp.log(outside_mass(log_lambda, data.feasible, data.impossible))
    augmented = draw_augmented(key_augmented, log_outside, log_pi + log_mass, num_records)
    too_many = _too_many(augmented)
    augmented = jnp.where(too_many, 0, augmented)
    log_sticks, sum_log_1mv = model.draw_weights(key_sticks, class_counts + augmented, alpha)
    # If there are too many impossible records to count, the weights drawn before are kept.
    sum_log_1mv = jnp.where(too_many, log_pi[-1], sum_log_1mv)
    log_pi = jnp.where(too_many, log_pi, log_sticks)
    augmented = jnp.where(too_many, -1, jnp.sum(augmented))
    return Drawn(log_pi, log_lambda, level_shape, log_mass, sum_log_1mv, augmented, accepted)


def draw_augmented(
    key: Key[Array, ""],
    log_outside: Float[Array, "..."],
    log_inside: Float[Array, " K"],
    num_records: Float[Array, ""],
) -> Int[Array, "..."]:
    """Draw the number of records in each part of the impossible region.

    Given the parameters they are negative multinomial: g ~ Ga(n, 1), then Poisson(g w / P).

    Parameters
    ----------
    log_outside
        Log probabilities w of the parts of the impossible region; the parts may be classes, or
        boxes and classes.
    log_inside
        Log feasible probability by class; P is their sum.
    num_records
        Records n of the sample.
    """
    key_g, key_count = Keys(key, 2)
    log_g = loggamma_from_one(key_g, num_records)
    return poisson(key_count, jnp.exp(log_g + log_outside - jax.nn.logsumexp(log_inside)))


def _too_many(counts: Int[Array, "..."]) -> Bool[Array, ""]:
    """Whether a count, or the sum of counts, is too large for int32 with the sample added."""
    return jnp.any(counts < 0) | (jnp.sum(counts.astype(float)) > MAX_COUNT)


@jax.named_scope("update_parameters")
def update_parameters_boxes(
    model: LatentClassOptions,
    key: Key[Array, ""],
    state: LatentClassState,
    data: LatentClassData,
    counts: Int[Array, "R K"],
    class_counts: Int[Array, " K"],
) -> tuple[LatentClassState, Float[Array, " K"], Int[Array, ""], Float[Array, ""]]:
    """Draw impossible records as counts by box and class, then the parameters given them.

    A variable that a box does not restrict is integrated out for the records of the box, so that it
    has no counts. Arguments and results are those of `update_parameters_marginal`.

    References
    ----------
    Manrique-Vallier, D. & Hu, J. (2018), doi:10.1111/rssa.12352, section 2.3: steps (b) to (f).
    """
    key_count, key_split, key_parameters = Keys(key, 3)
    log_mass_before = jnp.log(region_mass(state.log_lambda, data.feasible))
    log_inside = state.log_pi + log_mass_before
    log_box = jnp.sum(jnp.log(box_masses(state.log_lambda, data.everything_impossible)), axis=0)
    num_records = jnp.asarray(data.num_records, state.alpha.dtype)
    box_counts = draw_augmented(key_count, state.log_pi + log_box, log_inside, num_records)
    too_many = _too_many(box_counts)
    box_counts = jnp.where(too_many, 0, box_counts)
    set_counts = jnp.matmul(data.parts.box_has_set, box_counts)
    part_counts = split_over_parts(key_split, set_counts, state.log_lambda, data.parts)
    new, log_mass, augmented, accepted = update_given_augmented(
        model,
        key_parameters,
        state,
        data,
        counts,
        class_counts,
        part_counts,
        jnp.sum(box_counts, axis=0),
    )
    new, log_mass = jax.tree.map(
        lambda drawn, old: jnp.where(too_many, old, drawn),
        (new, log_mass),
        (state, log_mass_before),
    )
    return new, log_mass, jnp.where(too_many, -1, augmented), accepted


def update_given_augmented(
    model: LatentClassOptions,
    key: Key[Array, ""],
    state: LatentClassState,
    data: LatentClassData,
    counts: Int[Array, "R K"],
    class_counts: Int[Array, " K"],
    part_counts: Int[Array, "A K"],
    added_class_counts: Int[Array, " K"],
) -> tuple[LatentClassState, Float[Array, " K"], Int[Array, ""], Float[Array, ""]]:
    """Draw level probabilities, sticks and alpha given the sample and the impossible records.

    Parameters
    ----------
    counts, class_counts
        Counts of the sample, as in `update_parameters_marginal`.
    part_counts, added_class_counts
        Number of impossible records by level part and class, and by class.
    """
    key_levels, key_pi, key_alpha, key_split, key_shape = Keys(key, 5)
    level_shape = state.level_shape
    if learns_levels(model) or data.levels.layers:
        added = split_over_levels(key_split, part_counts, state.log_lambda, data.parts)
        level_shape = draw_level_shape(model, key_shape, state, data, counts + added)
    levels = data.levels.with_shape(level_shape)
    if levels.layers:
        log_lambda = levels.draw(key_levels, counts + added)
    else:
        shape = levels.given(counts)
        log_lambda = draw_levels_by_part(key_levels, shape, part_counts, data.parts)
    log_pi, sum_log_1mv = model.draw_weights(key_pi, class_counts + added_class_counts, state.alpha)
    alpha = model.draw_alpha(key_alpha, sum_log_1mv)
    log_mass = jnp.log(region_mass(log_lambda, data.feasible))
    state = LatentClassState(log_pi, log_lambda, level_shape, alpha)
    return state, log_mass, jnp.sum(added_class_counts), jnp.ones_like(alpha)
