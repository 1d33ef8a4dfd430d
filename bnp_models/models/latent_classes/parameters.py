"""Level probabilities, weights and concentration of latent classes, given the labels."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.boxes.level_parts import draw_levels_by_part, split_over_parts
from bnp_models.kernels.boxes.region import box_masses, outside_mass, region_mass
from bnp_models.kernels.latent_classes.observed_weights import draw_observed_weights, stick_tilt
from bnp_models.kernels.latent_classes.truncated_levels import Tilt, update_levels_truncated
from bnp_models.kernels.variates.discrete import MAX_COUNT, poisson
from bnp_models.kernels.variates.gamma import draw_levels, loggamma_from_one
from bnp_models.kernels.variates.sticks import stick_concentration, truncated_sticks
from bnp_models.models.latent_classes.options import LatentClassOptions
from bnp_models.models.latent_classes.state import LatentClassData, LatentClassState


def update_parameters_marginal(
    model: LatentClassOptions,
    key: Key[Array, ""],
    state: LatentClassState,
    data: LatentClassData,
    counts: Int[Array, "R K"],
    class_counts: Int[Array, " K"],
) -> tuple[LatentClassState, Float[Array, " K"], Int[Array, ""], Float[Array, ""]]:
    """Level probabilities, weights and alpha, no augmented record behind the level probabilities.

    Records of the impossible region are drawn by class only, to break the sticks anew: they do not
    touch the level probabilities.

    Parameters
    ----------
    counts, class_counts
        Records of each class with each level, and in all, from `count_levels`.

    Returns
    -------
    state
        Parameters, drawn.
    log_mass
        log F_k of the new level probabilities.
    augmented
        Records drawn for the impossible region, -1 where there were too many to count.
    accepted
        Share of Metropolis-Hastings proposals accepted; 1 where none is made.
    """
    keys = jax.random.split(key, 6)
    log_pi, alpha = state.log_pi, state.alpha
    zero = jnp.zeros((), jnp.int32)
    evidence = (counts, class_counts, data.variable)
    if not data.constrained:
        log_lambda = draw_levels(keys[0], 1 + counts.astype(alpha.dtype), data.variable)
        log_pi, sum_log_1mv = truncated_sticks(keys[1], class_counts, alpha)
        log_mass, accepted, augmented = jnp.zeros_like(log_pi), jnp.ones_like(alpha), zero
    elif model.truncation == "classes":
        nothing = jnp.zeros_like(log_pi)
        log_lambda, log_mass, accepted = update_levels_truncated(
            keys[0], state.log_lambda, *evidence, data.feasible, Tilt(nothing, nothing)
        )
        log_rho, sum_log_1mv = truncated_sticks(keys[1], class_counts, alpha)
        log_pi, augmented = log_rho - log_mass, zero
        log_pi = log_pi - jax.nn.logsumexp(log_pi)
    else:
        num_records = jnp.asarray(data.num_records, log_pi.dtype)
        log_mass = jnp.log(region_mass(state.log_lambda, data.feasible))
        tilt, log_s = stick_tilt(keys[0], log_pi, log_mass, alpha, num_records)
        log_lambda, log_mass, accepted = update_levels_truncated(
            keys[1], state.log_lambda, *evidence, data.feasible, tilt
        )
        log_pi = draw_observed_weights(keys[2], class_counts, log_mass, log_s, alpha)
        log_outside = log_pi + jnp.log(outside_mass(log_lambda, data.feasible, data.impossible))
        of_class = draw_augmented(keys[3], log_outside, log_pi + log_mass, num_records)
        too_many = _too_many(of_class)
        of_class = jnp.where(too_many, 0, of_class)
        augmented = jnp.where(too_many, -1, jnp.sum(of_class))
        log_sticks, sum_log_1mv = truncated_sticks(keys[4], class_counts + of_class, alpha)
        # The weights have been drawn already: without a count they stay.
        log_pi = jnp.where(too_many, log_pi, log_sticks)
        sum_log_1mv = jnp.where(too_many, log_pi[-1], sum_log_1mv)
    alpha = stick_concentration(keys[5], sum_log_1mv, model.components, model.a, model.b)
    state = LatentClassState(log_pi=log_pi, log_lambda=log_lambda, alpha=alpha)
    return state, log_mass, augmented, accepted


def draw_augmented(
    key: Key[Array, ""],
    log_outside: Float[Array, "..."],
    log_inside: Float[Array, " K"],
    num_records: Float[Array, ""],
) -> Int[Array, "..."]:
    """Records of the impossible region by any partition of it, given the parameters.

    Negative multinomial as gamma-mixed Poissons: g ~ Ga(n, 1), then Poisson(g w / P).

    Parameters
    ----------
    log_outside
        Log probabilities of the parts of the impossible region.
    log_inside
        Log feasible probability, by class.
    """
    key_g, key_count = jax.random.split(key)
    log_g = loggamma_from_one(key_g, num_records)
    return poisson(key_count, jnp.exp(log_g + log_outside - jax.nn.logsumexp(log_inside)))


def _too_many(counts):
    """Whether one of them, or their sum, is beyond what int32 holds with room for the sample."""
    return jnp.any(counts < 0) | (jnp.sum(counts.astype(float)) > MAX_COUNT)


def update_parameters_boxes(
    model: LatentClassOptions,
    key: Key[Array, ""],
    state: LatentClassState,
    data: LatentClassData,
    counts: Int[Array, "R K"],
    class_counts: Int[Array, " K"],
) -> tuple[LatentClassState, Float[Array, " K"], Int[Array, ""], Float[Array, ""]]:
    """Steps (b) to (f) on counts by box and class (Manrique-Vallier & Hu 2018, section 2.3).

    A variable that a box leaves free integrates out of the box's records: it has no counts.
    Arguments and results as in `update_parameters_marginal`.
    """
    key_count, key_split, key_parameters = jax.random.split(key, 3)
    log_mass_before = jnp.log(region_mass(state.log_lambda, data.feasible))
    log_inside = state.log_pi + log_mass_before
    log_box = jnp.sum(jnp.log(box_masses(state.log_lambda, data.everything_impossible)), axis=0)
    num_records = jnp.asarray(data.num_records, state.alpha.dtype)
    of_box = draw_augmented(key_count, state.log_pi + log_box, log_inside, num_records)
    too_many = _too_many(of_box)
    of_box = jnp.where(too_many, 0, of_box)
    of_set = jnp.matmul(data.parts.box_has_set, of_box)
    added = split_over_parts(key_split, of_set, state.log_lambda, data.parts)
    new, log_mass, augmented, accepted = update_given_augmented(
        model, key_parameters, state, data, counts, class_counts, added, jnp.sum(of_box, axis=0)
    )
    new, log_mass = jax.tree.map(
        lambda drawn, old: jnp.where(too_many, old, drawn),
        (new, log_mass),
        (state, log_mass_before),
    )
    return new, log_mass, jnp.where(too_many, -1, augmented), accepted


def update_given_augmented(
    model, key, state, data, counts, class_counts, added, added_class_counts
):
    """Steps (b) and (c), and alpha: augmented records by part of the levels, and by class."""
    key_levels, key_pi, key_alpha = jax.random.split(key, 3)
    shape = 1 + counts.astype(state.alpha.dtype)
    log_lambda = draw_levels_by_part(key_levels, shape, added, data.parts)
    log_pi, sum_log_1mv = truncated_sticks(key_pi, class_counts + added_class_counts, state.alpha)
    alpha = stick_concentration(key_alpha, sum_log_1mv, model.components, model.a, model.b)
    log_mass = jnp.log(region_mass(log_lambda, data.feasible))
    state = LatentClassState(log_pi=log_pi, log_lambda=log_lambda, alpha=alpha)
    return state, log_mass, jnp.sum(added_class_counts), jnp.ones_like(alpha)
