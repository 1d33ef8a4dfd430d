"""Proposals of levels: their weights average to the evidence of the counts, whatever the launch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import Z_LIMIT, levels_of
from scipy.special import gammaln
from truncated_classes import CONSTRAINED, NUM_LEVELS, VARIABLE, make_levels, make_regions

from bnp_models.kernels.boxes.grouped_blocks import GroupedBlock
from bnp_models.kernels.boxes.region import region_mass
from bnp_models.kernels.splits.levels import propose_levels
from bnp_models.kernels.variates.levels import Levels, bands_of_levels

NUM_DRAWS = 20_000
# The third variable, which is constrained, has two bands.
BANDS = Levels.of_variables(NUM_LEVELS, {2: bands_of_levels(NUM_LEVELS[2])})
# Its levels lie in groups that lie in larger ones; so do those of another, in groups.
DEEP = Levels.of_variables(NUM_LEVELS, {2: ((0, 1, 0, 2), (0, 1, 1)), 4: ((0, 1, 1),)})


def make_counts(seed):
    """Items and shapes; fewer items of one variable, and none of another."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, (len(VARIABLE), 2))
    counts[VARIABLE == CONSTRAINED[0]] //= 3
    counts[VARIABLE == CONSTRAINED[1]] = 0
    return counts, rng.uniform(0.3, 2, len(VARIABLE))


def log_evidence(counts, shape, group=VARIABLE):
    """Log Dirichlet-multinomial likelihood of every distribution, by column."""
    total = 0
    for j in np.unique(group):
        n, b = counts[group == j], shape[group == j][:, None]
        total = total + (gammaln(b + n) - gammaln(b)).sum(axis=0)
        total = total + gammaln(b.sum()) - gammaln(b.sum() + n.sum(axis=0))
    return total


@pytest.mark.parametrize("wrong", [0, 1], ids=["right", "with an item more"])
def test_weights_average_to_the_evidence(key, seed, wrong):
    counts, shape = make_counts(seed)
    region, launch = make_regions()[0], jnp.asarray(make_levels(seed))[:, :2]
    arguments = levels_of(NUM_LEVELS, shape.astype(np.float32)), region
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


def first_layer_only(self, *args):
    """As if groups lay in no larger groups."""
    return LOG_WEIGHT(GroupedBlock(self.layers[:1]), *args)


LOG_WEIGHT = GroupedBlock.log_weight


FAULTS = ("no factor of the groups", "shapes of groups twice", "first layer only")


@pytest.mark.parametrize(
    ("levels", "fault"),
    [
        (DEEP, "none"),
        *(pytest.param(DEEP, fault, marks=pytest.mark.long) for fault in FAULTS),
        *(pytest.param(BANDS, fault, marks=pytest.mark.long) for fault in ("none", *FAULTS[:2])),
    ],
)  # fmt: skip
def test_weights_with_groups_average_to_the_evidence(key, seed, levels, fault, monkeypatch):
    rng = np.random.default_rng(seed)
    size = levels.shape.size
    counts, shape = rng.integers(1, 5, (len(VARIABLE), 2)), rng.uniform(1, 3, size)
    launch = np.concatenate([rng.dirichlet(np.full(size, 5.0), 2).T for size in NUM_LEVELS])
    given, region = jnp.asarray(counts, jnp.float32), make_regions()[0]
    if fault == "no factor of the groups":
        monkeypatch.setattr(GroupedBlock, "log_weight", lambda *args: 0.0)
    if fault == "first layer only":
        monkeypatch.setattr(GroupedBlock, "log_weight", first_layer_only)
    twice = (fault == "shapes of groups twice") & (np.arange(size) >= len(VARIABLE))
    used = jnp.asarray(shape * np.where(twice, 2, 1), jnp.float32)
    arguments = levels.with_shape(used), region

    @jax.jit
    @jax.vmap
    def draw(key):
        return propose_levels(key, given, jnp.log(launch), jnp.log(launch), False, *arguments)

    drawn, _, log_weight = draw(jax.random.split(key, NUM_DRAWS))
    nodes, group = np.asarray(levels.count(jnp.asarray(counts))), np.asarray(levels.group)
    ratio = np.exp(np.asarray(log_weight, float) - log_evidence(nodes, shape, group))
    z = (ratio.mean(axis=0) - 1) / (ratio.std(axis=0) / np.sqrt(NUM_DRAWS))
    assert (np.abs(z).max() > Z_LIMIT) == (fault != "none"), z
    again = propose_levels(key, given, jnp.log(launch), drawn[0], True, *arguments)
    np.testing.assert_allclose(again[2], log_weight[0], rtol=1e-4, atol=1e-4)
