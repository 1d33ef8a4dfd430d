"""Level probabilities against their distribution functions, and those of ordered variables."""

import jax
import jax.numpy as jnp
import numpy as np
from goodness import P_LIMIT, ks_p_value
from scipy import stats

from bnp_models.kernels.variates import levels

N = 20_000


def test_levels_are_dirichlet_by_variable(key):
    """Each level's share of its variable is a beta variate; variables are independent."""
    shape = np.array([1.0, 2.5, 4.0, 1.0, 7.0])
    variable = jnp.array([0, 0, 0, 1, 1])
    log_level = jax.jit(levels.draw_levels)(
        key, jnp.broadcast_to(jnp.float32(shape)[:, None], (5, N)), variable
    )
    level = np.exp(np.asarray(log_level, np.float64))
    total = np.add.reduceat(level, [0, 3], axis=0)
    np.testing.assert_allclose(total, 1, rtol=1e-5)
    for row, others in enumerate(np.repeat([7.5, 8.0], [3, 2]) - shape):
        assert ks_p_value(level[row], stats.beta(shape[row], others).cdf) > P_LIMIT
        assert ks_p_value(level[row], stats.beta(1.2 * shape[row], others).cdf) < P_LIMIT
    assert stats.spearmanr(level[0], level[3]).pvalue > P_LIMIT


def test_totals_by_group(seed):
    random = np.random.default_rng(seed)
    log_weight, group = random.normal(0, 30, (6, 4)), np.array([2, 0, 2, 5, 0, 2])
    scaled, total = levels.totals_by_group(jnp.float32(log_weight), jnp.asarray(group))
    for g in np.unique(group):
        rows = group == g
        largest = log_weight[rows].max(axis=0)
        np.testing.assert_allclose(scaled[rows], log_weight[rows] - largest, rtol=1e-5, atol=1e-5)
        exact = np.exp(log_weight[rows] - largest).sum(axis=0)
        np.testing.assert_allclose(total[rows], np.tile(exact, (rows.sum(), 1)), rtol=1e-5)
    np.testing.assert_allclose(
        levels.normalise_levels(jnp.float32(log_weight), jnp.asarray(group)),
        scaled - np.log(total), rtol=1e-6,
    )  # fmt: skip


BANDS = levels.Bands.of_variables((5, 3, 4), (0, 1, 2))
VARIABLE = jnp.repeat(jnp.arange(3), np.array([5, 3, 4]))


def test_bands_are_of_adjacent_levels():
    """Of about as many levels as there are bands; three levels are too few."""
    np.testing.assert_array_equal(BANDS.of_row, [0, 0, 0, 1, 1, 4, 4, 4, 2, 2, 3, 3])
    np.testing.assert_array_equal(BANDS.first, [0, 3, 8, 10])
    np.testing.assert_array_equal(VARIABLE[BANDS.first], [0, 0, 2, 2])
    assert levels.Bands.of_variables((3, 40), (0,)) is None
    group = np.asarray(levels.groups_of_nodes(VARIABLE, BANDS))
    assert group.max() < group.size
    expected = ["a", "a", "a", "b", "b", "y", "y", "y", "c", "c", "d", "d", "x", "x", "z", "z"]
    assert len(set(zip(group, expected, strict=True))) == len(set(expected)) == len(set(group))
    counts = np.arange(12)
    np.testing.assert_array_equal(
        levels.count_nodes(jnp.asarray(counts), BANDS)[12:], [3, 7, 17, 21]
    )


def test_ordered_levels_are_dirichlet_twice(key):
    """Shares of bands, and of levels within them, are beta variates and independent."""
    shape = np.array([1.0, 2.5, 4.0, 1.0, 7.0, 1, 1, 1, 2, 2, 3, 3, 1.5, 0.5, 4.0, 2.0])
    of_each = jnp.broadcast_to(jnp.float32(shape)[:, None], (16, N))
    log_level = jax.jit(lambda x: levels.draw_levels(key, x, VARIABLE, BANDS))(of_each)
    share = np.exp(np.asarray(levels.log_node_shares(log_level, BANDS), np.float64))
    group = np.asarray(levels.groups_of_nodes(VARIABLE, BANDS))
    for node, own in enumerate(shape):
        rest = shape[group == group[node]].sum() - own
        assert ks_p_value(share[node], stats.beta(own, rest).cdf) > P_LIMIT, node
    for node, other in ((0, 12), (0, 3), (8, 14)):
        assert stats.spearmanr(share[node], share[other]).pvalue > P_LIMIT
    # Shown to fail: as if levels were Dirichlet in all, with bands' shapes the sums of levels'.
    assert ks_p_value(share[12], stats.beta(7.5, 8.0).cdf) < P_LIMIT


def test_least_shares_are_told_from_others():
    """Tiny shapes: what is raised to the least share is recognised, and keeps its neighbours."""
    shape = jnp.full((16, 4000), 0.05)
    drawn = levels.draw_levels(jax.random.key(3), shape, VARIABLE, BANDS)
    share = levels.log_node_shares(drawn, BANDS)
    least = np.asarray(levels.is_least(share, BANDS))
    expected = stats.beta(0.05, 0.05).cdf(1e-9)
    np.testing.assert_allclose(least[12:].mean(axis=1), expected, atol=0.05)
    assert np.isfinite(np.asarray(drawn)).all() and np.exp(np.asarray(drawn)).min() > 0
