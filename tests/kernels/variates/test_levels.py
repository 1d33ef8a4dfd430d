"""Level probabilities against their distribution functions, and those of ordered variables."""

import jax
import jax.numpy as jnp
import numpy as np
from goodness import P_LIMIT, ks_p_value
from scipy import stats
from scipy.special import log_softmax

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


def test_groups_are_normalised(seed):
    random = np.random.default_rng(seed)
    log_weight, group = random.normal(0, 30, (6, 4)), np.array([2, 0, 2, 5, 0, 2])
    log_share = levels.normalise_groups(jnp.float32(log_weight), jnp.asarray(group))
    for g in np.unique(group):
        exact = log_softmax(log_weight[group == g], axis=0)
        np.testing.assert_allclose(log_share[group == g], exact, rtol=1e-5, atol=1e-5)


NUM_LEVELS = (5, 3, 4)
BANDS = levels.Levels.of_variables(
    NUM_LEVELS, {j: levels.bands_of_levels(NUM_LEVELS[j]) for j in range(3)}
)


def test_bands_are_of_adjacent_levels():
    """Of about as many levels as there are bands; three levels are too few."""
    (bands,) = BANDS.layers
    np.testing.assert_array_equal(bands.of, [0, 0, 0, 1, 1, 4, 4, 4, 2, 2, 3, 3])
    np.testing.assert_array_equal(bands.first, [0, 3, 8, 10])
    np.testing.assert_array_equal(BANDS.variable[bands.first], [0, 0, 2, 2])
    assert not levels.Levels.of_variables((3, 40), {0: levels.bands_of_levels(3)}).layers
    group = np.asarray(BANDS.group)
    assert group.max() < BANDS.num_groups <= group.size
    expected = ["a", "a", "a", "b", "b", "y", "y", "y", "c", "c", "d", "d", "x", "x", "z", "z"]
    assert len(set(zip(group, expected, strict=True))) == len(set(expected)) == len(set(group))
    np.testing.assert_array_equal(BANDS.count(jnp.arange(12))[12:], [3, 7, 17, 21])


def test_ordered_levels_are_dirichlet_twice(key):
    """Shares of bands, and of levels within them, are beta variates and independent."""
    shape = np.array([1.0, 2.5, 4.0, 1.0, 7.0, 1, 1, 1, 2, 2, 3, 3, 1.5, 0.5, 4.0, 2.0])
    given = BANDS.with_shape(jnp.float32(shape))
    log_level = jax.jit(lambda counts: given.draw(key, counts))(jnp.zeros((12, N), jnp.int32))
    share = np.exp(np.asarray(BANDS.log_shares(log_level), np.float64))
    group = np.asarray(BANDS.group)
    for node, own in enumerate(shape):
        rest = shape[group == group[node]].sum() - own
        assert ks_p_value(share[node], stats.beta(own, rest).cdf) > P_LIMIT, node
    for node, other in ((0, 12), (0, 3), (8, 14)):
        assert stats.spearmanr(share[node], share[other]).pvalue > P_LIMIT
    # Shown to fail: as if levels were Dirichlet in all, with bands' shapes the sums of levels'.
    assert ks_p_value(share[12], stats.beta(7.5, 8.0).cdf) < P_LIMIT


def test_least_shares_are_told_from_others():
    """Tiny shapes: what is raised to the least share is recognised, and keeps its neighbours."""
    given = BANDS.with_shape(jnp.full(16, 0.05))
    drawn = given.draw(jax.random.key(3), jnp.zeros((12, 4000), jnp.int32))
    least = np.asarray(BANDS.is_least(BANDS.log_shares(drawn)))
    expected = stats.beta(0.05, 0.05).cdf(1e-9)
    np.testing.assert_allclose(least[12:].mean(axis=1), expected, atol=0.05)
    assert np.isfinite(np.asarray(drawn)).all() and np.exp(np.asarray(drawn)).min() > 0


# Six levels in four groups, not adjacent, in two larger ones; another variable has no groups.
DEEP = levels.Levels.of_variables((6, 3), {0: ((0, 1, 0, 2, 3, 2), (0, 0, 1, 1))})


def test_groups_of_any_depth():
    """Each distribution has its own members, and counts add up layer after layer."""
    lower, upper = DEEP.layers
    np.testing.assert_array_equal(lower.of, [0, 1, 0, 2, 3, 2, 4, 4, 4])
    np.testing.assert_array_equal(upper.of, [0, 0, 1, 1])
    np.testing.assert_array_equal(lower.first, [0, 1, 3, 4])
    np.testing.assert_array_equal(upper.first, [0, 3])
    group = np.asarray(DEEP.group)
    assert group.max() < DEEP.num_groups <= group.size
    expected = "abacdcyyyeeffxx"
    assert len(set(zip(group, expected, strict=True))) == len(set(expected)) == len(set(group))
    assert group[-1] == 0 and group[6] == 1
    counts = DEEP.count(jnp.array([1, 2, 4, 8, 16, 32, 64, 128, 256]))
    np.testing.assert_array_equal(counts[9:], [5, 2, 40, 16, 7, 56])
    np.testing.assert_array_equal(DEEP.at_nodes(DEEP.variable), [0] * 6 + [1] * 3 + [0] * 6)


def test_levels_are_products_of_shares_along_the_path(key):
    """Shares in each distribution are beta variates, and the levels' are their products."""
    shape = np.array([1, 2.5, 2, 1, 3, 0.7, 1, 2, 3, 1.5, 2, 0.5, 4, 2, 3])
    given = DEEP.with_shape(jnp.float32(shape))
    log_level = jax.jit(lambda counts: given.draw(key, counts))(jnp.zeros((9, N), jnp.int32))
    level = np.exp(np.asarray(log_level, np.float64))
    np.testing.assert_allclose(level[:6].sum(axis=0), 1, rtol=1e-4)
    share = np.exp(np.asarray(DEEP.log_shares(log_level), np.float64))
    np.testing.assert_allclose(share[5] * share[11] * share[14], level[5], rtol=1e-4)
    group = np.asarray(DEEP.group)
    for node in (0, 3, 7, 9, 11, 13):
        rest = shape[group == group[node]].sum() - shape[node]
        assert ks_p_value(share[node], stats.beta(shape[node], rest).cdf) > P_LIMIT, node
    for node, other in ((0, 9), (0, 13), (9, 13), (3, 0), (9, 11)):
        assert stats.spearmanr(share[node], share[other]).pvalue > P_LIMIT
    # Shown to fail: as if the larger groups' shapes were those of the groups in them.
    assert ks_p_value(share[13], stats.beta(3.5, 4.5).cdf) < P_LIMIT
    np.testing.assert_allclose(share[[1, 4]], 1, rtol=1e-5)


def test_products_of_many_least_shares_stay_numbers():
    """Trees of more layers have larger least shares, so that float32 holds the products."""
    tree = [tuple(range(2**k)) for k in range(5, 0, -1)]
    tree = tuple(tuple(i // 2 for i in layer) for layer in tree)
    deep = levels.Levels.of_variables((32,), {0: tree})
    drawn = deep.with_shape(jnp.full_like(deep.shape, 1e-3)).draw(
        jax.random.key(1), jnp.zeros((32, 200), jnp.int32)
    )
    assert np.exp(np.asarray(drawn)).min() > np.finfo(np.float32).tiny
    np.testing.assert_allclose(np.exp(np.asarray(drawn, float)).sum(axis=0), 1, rtol=1e-3)
