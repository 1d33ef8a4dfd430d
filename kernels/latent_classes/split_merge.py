"""Split-merge move for latent classes with explicit parameters, truncated or not.

A split gives a part of the records of a class to an empty class. A merge joins two classes and
empties the second. The parts are proposed from the records alone (`kernels.splits.proposal`, where
classes are called components); then parameters are proposed given the parts (Jain & Neal 2007,
doi:10.1214/07-BA219, for models that are not conjugate). Every class has parameters, with or
without members, so that the dimension never changes. Level probabilities of the parts are proposed
from those of the class that is split; a merge does the reverse. Under truncation the data give no
information on some directions of the level probabilities, and proposals that ignore the current
values would nearly always be rejected.

The steps are: propose the parts; draw levels; draw weights; draw a place and parameters for the
class that becomes empty, and a place for the class that is filled; accept or reject. A split is
accepted with probability min(1, A), the merge that undoes it with min(1, 1 / A), where

    A = T c / q,    T = [p(split) / Q(split)] / [p(merged) / Q(merged)]

c and q belong to the proposal of the parts (`kernels.splits.proposal`). p is the target in the
notes of `split_or_merge_classes`. Q(split) is the probability 1 / E of taking this one of the E
empty classes, times the density of the levels and weights that are proposed for the two parts,
times the probability of the place of the filled class. Q(merged) is the density of the levels and
weight that are proposed for the joined class and of those for the emptied class, times the
probability 1 / (K - 1) of the place of the emptied class.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.boxes.region import Region, region_mass
from bnp_models.kernels.numerics.gamma_ratios import log_binomial
from bnp_models.kernels.splits.anchors import Counts
from bnp_models.kernels.splits.levels import SideLevels, propose_side_levels
from bnp_models.kernels.splits.members import LabelledRecords
from bnp_models.kernels.splits.proposal import propose_sides
from bnp_models.kernels.variates.gamma import loggamma_from_one
from bnp_models.kernels.variates.levels import Levels
from bnp_models.kernels.variates.rng import Keys, uniform, uniform_index, words
from bnp_models.kernels.variates.sticks import log_stick_prior


class ClassParameters(NamedTuple):
    """Weights and level probabilities of latent classes, truncated or not."""

    log_x: Float[Array, " K"]
    """Log weights with stick-breaking prior, of classes before truncation or of truncated classes.

    Their scale is random: sum_k x_k M_k ~ Ga(n, 1), with n the number of records and M_k as in the
    notes of `split_or_merge_classes`.
    """
    log_lambda: Float[Array, "R K"]
    """Log level probabilities before truncation."""


@jax.named_scope("split_or_merge_classes")
def split_or_merge_classes(
    key: Key[Array, ""],
    records: LabelledRecords,
    counts: Counts,
    classes: ClassParameters,
    levels: Levels,
    region: Region,
    alpha: Float[Array, ""],
    by_class: bool,
) -> tuple[LabelledRecords, ClassParameters, Bool[Array, ""]]:
    """Split or merge latent classes, once.

    Parameters
    ----------
    key
        Used once.
    records
        Records with their classes, and cells with their counts by class.
    counts
        Number of records of each class with each level, and of each class.
    classes
        Weights and level probabilities of the classes.
    levels
        The levels under their prior.
    region
        The feasible boxes.
    alpha
        Concentration of the sticks.
    by_class
        Whether each class is truncated separately, and not the mixture as a whole.

    Returns
    -------
    records, classes
        The state after the move. Classes between the old and the new place of the emptied or filled
        class have moved by one.
    accepted
        Whether the state changed.

    Notes
    -----
    Class k has n_k records, n_rk of them with level r, and the feasible mass F_k: the probability
    that a record drawn from its level probabilities is feasible. The target is

        prod_k [x_k^{n_k} exp(-x_k M_k) D_k^{-n_k} p(lambda_k) prod_r lambda_rk^{n_rk}]

    times the density of x under the sticks (`log_stick_prior`). If the mixture is truncated as a
    whole, M_k = F_k and D_k = 1; if each class is truncated separately, M_k = 1 and D_k = F_k.

    The proposals are: for a weight, a gamma variate of shape n_k + 1 and rate M_k; for levels,
    those of `kernels.splits.levels.propose_levels`; for the place of a filled class, a place among
    the first K - 1 with probability proportional to the sticks' density of the result; for an
    emptied class, a uniform place among the first K - 1, levels from their prior, and a weight x_b
    from its stick: x_b / (x_b + the weights behind it) ~ Beta(1, alpha).
    """
    keys = Keys(key, 6)
    log_x, log_lambda = classes
    sizes = counts.tables
    num_classes = log_x.size
    u = uniform(words(keys.pop(), (3,)), log_x.dtype.type)
    # The last class has the remaining weight; this move neither fills nor empties it.
    empty = (sizes == 0) & (jnp.arange(num_classes) < num_classes - 1)
    slot = _pick(u[0], empty.astype(log_x.dtype))
    move = propose_sides(keys.pop(), records, *counts, levels, slot)
    places = jnp.stack([move.stays, move.other])
    sides = propose_side_levels(keys.pop(), move, log_lambda[:, places], levels, region)
    weights = _propose_weights(keys.pop(), move, sides, log_x, by_class)
    drawn = levels.draw(keys.pop(), jnp.zeros_like(log_lambda[:, :1]))[:, 0]
    emptied = _propose_empty(u[1:], move, drawn, weights, classes, alpha, region, by_class)
    filled = _propose_place(keys.pop(), move, weights, log_x, alpha)

    # E, the number of empty classes in the merged state, and K - 1 places for an emptied class.
    num_empty = jnp.sum(empty) + ~move.is_split
    log_places = jnp.log(num_empty.astype(log_x.dtype)) - jnp.log(num_classes - 1.0)
    log_ratio = _log_ratio(move, weights, emptied, filled, alpha) + log_places
    small = jnp.sum(move.tables) <= _most_records(log_x.dtype)
    accepted = small & (move.other < num_classes - 1) & move.accepted(log_ratio)

    new = _assemble(move, sides, emptied, filled, log_lambda)
    old = (records.z, records.split), classes
    (z, split), classes = jax.tree.map(lambda x, y: jnp.where(accepted, x, y), new, old)
    return dataclasses.replace(records, z=z, split=split), classes, accepted


def _most_records(dtype: Any) -> int:
    """Largest number of records of two classes for which float32 is precise enough for a move.

    The log target has terms of as many nats as there are values, and a tenth of a nat matters. A
    split and the merge that undoes it have the same records.
    """
    return 2**17 if dtype == jnp.float32 else 2**30


class _Weights(NamedTuple):
    """Weights of the parts and of the merged class: proposed, or the state's own."""

    log_x: Float[Array, " 3"]
    """Log weights."""
    log_weight: Float[Array, " 3"]
    """Log target less log density of the proposals, levels and weights together."""


class _Emptied(NamedTuple):
    """The state with class b without members: proposed, or the state's own."""

    order: Int[Array, " K"]
    """Class that comes to each position."""
    levels: Float[Array, " R"]
    """Log level probabilities of class b."""
    mass: Float[Array, ""] | float
    """M_b of the notes of `split_or_merge_classes`."""
    log_empty: Float[Array, ""]
    """Log weight of class b."""
    log_x: Float[Array, " K"]
    """Log weights of all classes, before `order`."""
    log_q_weight: Float[Array, ""]
    """Log density of the proposal of the weight; the levels are proposed from their prior."""


class _Filled(NamedTuple):
    """The state with members in class b: proposed, or the state's own."""

    order: Int[Array, " K"]
    """Class that comes to each position."""
    log_x: Float[Array, " K"]
    """Log weights of all classes, before `order`."""
    log_places: Float[Array, " K-1"]
    """Log density of the sticks with class b at each place."""


def _propose_weights(key, move, levels: SideLevels, log_x, by_class) -> _Weights:
    """Draw weights Ga(n + 1, M) of the proposed classes."""
    is_split, a, b = move.is_split, move.stays, move.other
    members = jnp.append(move.tables, jnp.sum(move.tables)).astype(log_x.dtype)
    log_q = loggamma_from_one(key, members + 1) - (0 if by_class else levels.log_mass)
    present = jnp.stack([log_x[a], log_x[b], log_x[a]])
    proposed = jnp.stack([is_split, is_split, ~is_split])
    power = members if by_class else members + 1
    return _Weights(
        log_x=jnp.where(proposed, log_q, present),
        log_weight=levels.log_weight - power * levels.log_mass,
    )


def _propose_empty(u, move, drawn, weights, classes, alpha, region, by_class) -> _Emptied:
    """Draw a place for class b, and its weight x_b, with x_b / (x_b + later weights) a new stick.

    The stick is Beta(1, alpha); the later weights are those of the classes behind class b.
    """
    log_x, log_lambda = classes
    is_split, a, b = move.is_split, move.stays, move.other
    num_classes = log_x.size
    place = uniform_index(u[0], num_classes - 1)
    order = jnp.where(is_split, jnp.arange(num_classes), _moved(b, place, num_classes))
    levels = jnp.where(is_split, log_lambda[:, b], drawn)
    mass = 1.0 if by_class else region_mass(levels[:, None], region)[0]
    kept = log_x.at[a].set(weights.log_x[2])
    behind = (_positions(order) > _positions(order)[b]) & (jnp.arange(num_classes) != b)
    log_behind = jax.nn.logsumexp(jnp.where(behind, kept, -jnp.inf))
    log_1mv = jnp.log(u[1]) / alpha
    log_drawn = log_behind + jnp.log(-jnp.expm1(log_1mv)) - log_1mv
    log_empty = jnp.where(is_split, log_x[b], log_drawn)
    log_q_weight = (
        jnp.log(alpha) + alpha * log_behind - (alpha + 1) * jnp.logaddexp(log_empty, log_behind)
    )
    merged_x = kept.at[b].set(log_empty)
    return _Emptied(order, levels, mass, log_empty, merged_x, log_q_weight)


def _propose_place(key, move, weights, log_x, alpha) -> _Filled:
    """Draw a place for the filled class b, with probability proportional to the sticks' density."""
    num_classes = log_x.size
    split_x = log_x.at[move.stays].set(weights.log_x[0]).at[move.other].set(weights.log_x[1])
    orders = jax.vmap(lambda place: _moved(move.other, place, num_classes))(
        jnp.arange(num_classes - 1)
    )
    log_places = log_stick_prior(split_x[orders], alpha)
    place = _pick_log(uniform(words(key, ()), log_x.dtype.type), log_places)
    return _Filled(orders[place], split_x, log_places)


def _log_ratio(move, weights, emptied, filled, alpha):
    """log T of the module's formula, without the factors E and K - 1 of the places."""
    log_weight = weights.log_weight
    log_split = log_weight[0] + log_weight[1] + jax.nn.logsumexp(filled.log_places)
    log_merged = (
        log_weight[2] - jnp.exp(emptied.log_empty) * emptied.mass
        - emptied.log_q_weight + log_stick_prior(emptied.log_x[emptied.order], alpha)
    )  # fmt: skip
    # The densities of the weights leave log n_a! + log n_b! - log (n_a + n_b)!.
    sizes = move.tables.astype(alpha.dtype)
    return log_split - log_merged - log_binomial(sizes[0], sizes[1])


def _assemble(move, levels: SideLevels, emptied, filled, log_lambda):
    """Proposed labels, log weights and log level probabilities, in the new order of the classes."""
    is_split, a, b = move.is_split, move.stays, move.other
    order = jnp.where(is_split, filled.order, emptied.order)
    log_x = jnp.where(is_split, filled.log_x, emptied.log_x)[order]
    of_a = jnp.where(is_split, levels.log_level[:, 0], levels.log_level[:, 2])
    of_b = jnp.where(is_split, levels.log_level[:, 1], emptied.levels)
    log_lambda = log_lambda.at[:, a].set(of_a).at[:, b].set(of_b)[:, order]
    z, cell_split = move.labels
    labels = _positions(order)[z], None if cell_split is None else cell_split[order]
    return labels, ClassParameters(log_x, log_lambda)


def _pick(u, weight):
    """Draw an index with probability proportional to its weight; any if all weights are zero."""
    cumulative = jnp.cumsum(weight)
    # Weights of zero are excluded, because rounding could otherwise choose one of them.
    reached = (cumulative > u * cumulative[-1]) & (weight > 0)
    return jnp.argmax(reached)


def _pick_log(u, log_weight):
    """Draw an index with probability proportional to a weight, given log weights."""
    largest = jnp.max(log_weight)
    return _pick(u, jnp.exp(log_weight - jnp.where(largest > -jnp.inf, largest, 0)))


def _moved(source, place, size):
    """Order of `size` classes after class `source` has moved to position `place`."""
    position = jnp.arange(size)
    rest = position - (position > place)
    rest = rest + (rest >= source)
    return jnp.where(position == place, source, rest)


def _positions(order):
    """Position at which each class is in an order: the inverse permutation."""
    return jnp.zeros_like(order).at[order].set(jnp.arange(order.size, dtype=order.dtype))
