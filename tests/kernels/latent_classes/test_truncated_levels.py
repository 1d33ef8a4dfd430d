"""Levels of truncated classes: masses against enumeration, the conditional against quadrature."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, compiles_once
from harness import levels_of
from scipy import stats
from truncated_classes import (
    NUM_LEVELS,
    VARIABLE,
    from_grid,
    make_levels,
    make_regions,
)

from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.latent_classes import truncation
from bnp_models.kernels.latent_classes.truncation import Tilt
from bnp_models.kernels.variates.levels import Levels

N = 20_000


# Two binary variables that are not both 1: records at (0, 0), (0, 1) and (1, 0).
LEVEL_SHAPE = ((0.9, 0.8), (1.5, 2.2))
SPARSE = ((0.2, 0.15), (0.1, 0.25))
PAIR = Region.of_boxes([np.array([[1, 0, 1, 1], [0, 1, 1, 0]], bool)], (2, 2))


@jax.jit
@partial(jax.vmap, in_axes=(0, 0, 0, 0, 0, None))
def update_pair(key, level, counts, size, tilt, shape):
    log_lambda = jnp.log(jnp.stack([1 - level, level], axis=1)).reshape(4, 1)
    levels = levels_of((2, 2), shape)
    new, log_mass, accepted = truncation.update_levels_truncated(
        key, log_lambda, counts[:, None], size[None], levels, PAIR, tilt
    )
    return jnp.exp(new[1::2, 0]), log_mass[0], accepted


def pair_p_values(seed, key, cells, pull, power, exact_power, prior=LEVEL_SHAPE, exact_prior=None):
    """An exact draw moved once, against another: both probabilities of 1, and the mass."""
    rng = np.random.default_rng(seed)
    both, second, first = cells
    size = sum(cells)
    grid = []
    for ones in (first, second):
        middle, width = (ones + 1) / (size + 2), 9 / np.sqrt(size + 1)
        grid.append(np.linspace(max(middle - width, 0), min(middle + width, 1), 1201))
    grid = [(x[1:] + x[:-1]) / 2 for x in grid]
    p, q = np.meshgrid(*grid, indexing="ij")
    mass = 1 - p * q
    (p_0, p_1), (q_0, q_1) = prior if exact_prior is None else exact_prior
    log_density = (
        (first + p_1 - 1) * np.log(p) + (second + q_1 - 1) * np.log(q)
        + (size - first + p_0 - 1) * np.log1p(-p) + (size - second + q_0 - 1) * np.log1p(-q)
        - (size + exact_power) * np.log(mass) - pull / mass
    )  # fmt: skip
    start, other = from_grid(rng, log_density, grid, N), from_grid(rng, log_density, grid, N)
    counts = jnp.array([size - first, first, size - second, second])
    tilt = Tilt(jnp.full((N, 1), pull, jnp.float32), jnp.full((N, 1), power, jnp.float32))
    moved, log_mass, accepted = update_pair(
        jax.random.split(key, N), jnp.asarray(start.T, jnp.float32),
        jnp.broadcast_to(counts, (N, 4)), jnp.full(N, size), tilt,
        jnp.ravel(jnp.asarray(prior, jnp.float32)),
    )  # fmt: skip
    moved = np.asarray(moved, float).T
    np.testing.assert_allclose(np.exp(log_mass), 1 - moved[0] * moved[1], rtol=1e-4)
    assert np.mean(accepted) > 0.5
    return [
        stats.ks_2samp(x, y, method="asymp").pvalue
        for x, y in zip((*moved, moved[0] * moved[1]), (*other, other[0] * other[1]), strict=True)
    ]


@pytest.mark.parametrize(
    "cells, pull, power, prior",
    [((0, 0, 0), 0.7, 1.0, LEVEL_SHAPE), ((1, 2, 1), 0.3, 0.4, LEVEL_SHAPE),
     ((0, 5, 0), 0.0, 0.0, LEVEL_SHAPE), ((2000, 900, 400), 5.0, 1.0, LEVEL_SHAPE),
     ((1, 1, 1), 0.3, 0.4, SPARSE)],
    ids=["empty", "few records", "no tilt", "many records", "sparse levels"],
)  # fmt: skip
def test_levels_leave_their_target_invariant(key, seed, cells, pull, power, prior):
    assert min(pair_p_values(seed, key, cells, pull, power, power, prior)) > P_LIMIT


def test_levels_with_a_wrong_power_are_seen(key, seed):
    assert min(pair_p_values(seed, key, (1, 2, 1), 0.3, 0.4, 1.4)) < P_LIMIT


def test_levels_with_a_prior_of_ones_are_seen(key, seed):
    ones = ((1, 1), (1, 1))
    assert min(pair_p_values(seed, key, (1, 2, 1), 0.3, 0.4, 0.4, exact_prior=ones)) < P_LIMIT


def test_second_calls_compile_nothing(key, seed):
    one, two = jax.random.split(key)
    region = make_regions()[0]
    some = jnp.asarray(make_levels(seed)), jnp.ones(3)
    other = jnp.asarray(make_levels(seed + 1)), jnp.zeros(3)
    counts = jnp.ones((VARIABLE.size, 3), jnp.int32)

    def update(key, log_lambda, tilt, counts):
        return truncation.update_levels_truncated(
            key, log_lambda, counts, counts[0], Levels.of_variables(NUM_LEVELS), region,
            Tilt(tilt, tilt),
        )  # fmt: skip

    assert compiles_once(update, (one, *some, counts), (two, *other, 3 * counts))
