"""Masses of boxes against enumeration."""

import jax.numpy as jnp
import numpy as np
import pytest
from harness import ACCELERATOR_IS_LONG
from truncated_classes import (
    CONSTRAINED,
    FIRST,
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


@ACCELERATOR_IS_LONG
@pytest.mark.usefixtures("either_form")
def test_mass_given_each_level(seed):
    """New levels of earlier variables, old ones of later variables."""
    old, new = make_levels(seed), make_levels(seed + 1)
    region = make_regions()[0]

    def update(new_levels, block, mass):
        return new_levels, (block, mass)

    result, mass, (blocks, of_level) = boxes_region.through_variables(
        jnp.asarray(old), region, update, region.take(jnp.asarray(new), -jnp.inf)
    )
    np.testing.assert_array_equal(blocks, region.take(jnp.asarray(old), -jnp.inf))
    mixed = old.copy()
    for v, j in enumerate(CONSTRAINED):
        cells, probability = cell_probabilities(mixed)
        free = np.exp(mixed[VARIABLE == 3]).sum(axis=0)
        for level in range(NUM_LEVELS[j]):
            given = probability[cells[:, j] == level] / np.exp(mixed[FIRST[j] + level]) / free
            np.testing.assert_allclose(of_level[v, level], given.sum(axis=0), rtol=3e-6)
        mixed[VARIABLE == j] = new[VARIABLE == j]
    np.testing.assert_allclose(result, mixed, rtol=1e-6)
    cells, probability = cell_probabilities(mixed)
    np.testing.assert_allclose(mass, probability.sum(axis=0), rtol=3e-6)
