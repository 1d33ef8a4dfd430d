"""Masses of boxes against enumeration."""

import jax.numpy as jnp
import numpy as np
from truncated_classes import (
    CONSTRAINED,
    NUM_LEVELS,
    VARIABLE,
    cell_probabilities,
    make_levels,
    make_regions,
)

from bnp_models.kernels.boxes import region as boxes_region


def check_masses(seed, rtol):
    log_lambda = make_levels(seed)
    feasible, impossible = make_regions()
    _, probability = cell_probabilities(log_lambda)
    mass = boxes_region.region_mass(jnp.asarray(log_lambda), feasible)
    np.testing.assert_allclose(mass, probability.sum(axis=0), rtol=rtol)
    outside = boxes_region.outside_mass(jnp.asarray(log_lambda), feasible, impossible)
    np.testing.assert_allclose(outside, 1 - probability.sum(axis=0), rtol=rtol, atol=rtol)
    assert feasible.group == (0, 0, 0, 1, 1)


def test_masses_are_those_of_the_cells(seed):
    check_masses(seed, 3e-6)


def test_masses_in_double_precision(seed, x64):
    check_masses(seed, 1e-12)


def test_the_padding_of_levels_is_empty(seed):
    region = make_regions()[0]
    widths = [NUM_LEVELS[j] for j in CONSTRAINED]
    np.testing.assert_array_equal(region.num_levels, widths)
    log_lambda = jnp.asarray(make_levels(seed))
    blocks = region.take(log_lambda, -jnp.inf)
    for v, width in enumerate(widths):
        assert (region.rows[v, width:] == sum(NUM_LEVELS)).all()
        assert not region.sets[v, :, width:].any() and np.isneginf(blocks[v, width:]).all()
    np.testing.assert_array_equal(region.free, VARIABLE == 3)
    np.testing.assert_array_equal(
        region.put(jnp.zeros_like(log_lambda), blocks),
        jnp.where(VARIABLE[:, None] == 3, 0, log_lambda),
    )
