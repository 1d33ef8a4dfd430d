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
