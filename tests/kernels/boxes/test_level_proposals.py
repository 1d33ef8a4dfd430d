"""Proposals of levels: their weights average to the evidence of the counts, whatever the launch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import Z_LIMIT
from scipy.special import gammaln
from truncated_classes import CONSTRAINED, NUM_LEVELS, VARIABLE, make_levels, make_regions

from bnp_models.kernels.boxes.level_proposals import propose_levels
from bnp_models.kernels.boxes.region import region_mass

NUM_DRAWS = 20_000


def make_counts(seed):
    """Items and shapes; fewer items of one variable, and none of another."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, (len(VARIABLE), 2))
    counts[VARIABLE == CONSTRAINED[0]] //= 3
    counts[VARIABLE == CONSTRAINED[1]] = 0
    return counts, rng.uniform(0.3, 2, len(VARIABLE))


def log_evidence(counts, shape):
    """Log Dirichlet-multinomial likelihood, by column."""
    total = 0
    for j in range(len(NUM_LEVELS)):
        n, b = counts[VARIABLE == j], shape[VARIABLE == j][:, None]
        total = total + (gammaln(b + n) - gammaln(b)).sum(axis=0)
        total = total + gammaln(b.sum()) - gammaln(b.sum() + n.sum(axis=0))
    return total


@pytest.mark.parametrize("wrong", [0, 1], ids=["right", "with an item more"])
def test_weights_average_to_the_evidence(key, seed, wrong):
    counts, shape = make_counts(seed)
    region, launch = make_regions()[0], jnp.asarray(make_levels(seed))[:, :2]
    arguments = jnp.asarray(VARIABLE), region, jnp.asarray(shape, jnp.float32)
    given = jnp.asarray(counts + wrong * (np.arange(len(VARIABLE)) == 0)[:, None], jnp.float32)

    @jax.jit
    @jax.vmap
    def draw(key):
        return propose_levels(key, given, launch, launch, False, *arguments)

    levels, mass, log_weight = draw(jax.random.split(key, NUM_DRAWS))
    ratio = np.exp(np.asarray(log_weight, float) - log_evidence(counts, shape))
    z = (ratio.mean(axis=0) - 1) / (ratio.std(axis=0) / np.sqrt(NUM_DRAWS))
    assert (np.abs(z).max() > Z_LIMIT) == bool(wrong), z
    # Those that are given have the weight that they have when they are drawn.
    for draw_, of_mass, weight in zip(levels[:3], mass, log_weight, strict=False):
        again = propose_levels(key, given, launch, draw_, True, *arguments)
        np.testing.assert_allclose(again[0], draw_, rtol=1e-6)
        np.testing.assert_allclose(again[1], of_mass, rtol=1e-5)
        np.testing.assert_allclose(again[2], weight, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(region_mass(draw_, region), of_mass, rtol=1e-5)
