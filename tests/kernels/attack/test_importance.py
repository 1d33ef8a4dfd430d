"""Importance weights against brute force, ArviZ, SciPy, and quadrature."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT
from scipy import stats

from bnp_models.inference.arviz import load_arviz
from bnp_models.kernels.attack import importance

NUM_LEVELS = (2, 4, 3)

# Operation by operation they would compile for longer.
pareto_k = jax.jit(importance.pareto_k, static_argnums=1)
top_rank_p_values = jax.jit(importance.top_rank_p_values, static_argnums=2)


def random_classes(seed, num_classes=5):
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.ones(num_classes))
    levels = [rng.dirichlet(np.ones(size), num_classes).T for size in NUM_LEVELS]
    return np.log(weight).astype(np.float32), np.log(np.concatenate(levels)).astype(np.float32)


def test_neighbours_by_brute_force():
    log_weight, log_levels = random_classes(0)
    codes = np.array([[0, 3, 1], [1, 0, 2]])
    first = np.cumsum((0, *NUM_LEVELS[:-1]))
    found = importance.log_neighbours(
        jnp.asarray(log_weight)[None], jnp.asarray(log_levels), jnp.asarray(codes + first),
        NUM_LEVELS,
    )  # fmt: skip
    row = 0
    for j, size in enumerate(NUM_LEVELS):
        for level in range(size):
            changed = codes.copy()
            changed[:, j] = level
            exact = np.exp(log_levels[changed + first].sum(axis=1) + log_weight).sum(axis=1)
            np.testing.assert_allclose(found[:, row], np.log(exact), rtol=2e-5)
            row += 1


def test_neighbours_far_below_the_smallest_float():
    log_weight = jnp.array([[-200.0, -300.0]])
    log_levels = jnp.log(jnp.array([[0.25, 1e-9], [0.75, 1 - 1e-9], [0.5, 0.1], [0.5, 0.9]]))
    found = importance.log_neighbours(log_weight, log_levels, jnp.array([[0, 3]]), (2, 2))
    np.testing.assert_allclose(found[0], np.log([0.125, 0.375, 0.125, 0.125]) - 200, rtol=1e-6)


def arviz_k(log_weight):
    """ArviZ's Pareto k of each set, on 0.2x and 1.x."""
    az = load_arviz()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(az, "psislw"):
            return [float(az.psislw(own.copy())[1]) for own in log_weight]
        from arviz_stats.base import array_stats

        return [float(array_stats.psislw(own.copy())[1]) for own in log_weight]


@pytest.mark.parametrize("num_draws", [30, 100, 1000])
def test_pareto_k_is_that_of_arviz(num_draws):
    rng = np.random.default_rng(1)
    log_weight = np.concatenate([
        rng.normal(size=(4, num_draws)) * np.array([[0.1], [0.5], [1], [3]]),
        np.log(rng.pareto([[0.8], [2], [5]], (3, num_draws))),
        np.log(rng.random((1, num_draws))),
    ])  # fmt: skip
    found = pareto_k(jnp.asarray(log_weight, jnp.float32), num_draws)
    np.testing.assert_allclose(found, arviz_k(log_weight), atol=3e-3)


def test_pareto_k_ignores_what_is_no_draw_and_the_order():
    rng = np.random.default_rng(2)
    log_weight = rng.normal(size=(3, 200)).astype(np.float32)
    with_gaps = np.full((3, 260), -np.inf, np.float32)
    with_gaps[:, rng.permutation(260)[:200]] = log_weight
    one, other = (
        pareto_k(jnp.asarray(x), 200) for x in (log_weight, with_gaps)
    )  # fmt: skip
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_pareto_k_of_equal_weights_and_of_few_draws():
    assert pareto_k(jnp.zeros((1, 100)), 100)[0] == 0
    few = pareto_k(jnp.asarray(np.random.default_rng(3).normal(size=(2, 10))), 10)
    np.testing.assert_array_equal(few, [np.inf, np.inf])


def in_blocks(x, size):
    return jnp.asarray(x.reshape(*x.shape[:-1], -1, size), jnp.float32)


def test_moments_and_gamma_means():
    """Against the formula as printed, in float64."""
    rng = np.random.default_rng(4)
    log_weight, log_l = rng.normal(size=(3, 40)), -500 + 20 * rng.normal(size=(2, 40))
    centre = log_l.mean(axis=1)
    sums = importance.moment_sums(in_blocks(log_weight, 8), in_blocks(log_l - centre[:, None], 8))
    found = importance.log_gamma_means(jnp.sum(sums, axis=0), jnp.asarray(centre, jnp.float32))
    weight = np.exp(log_weight) / np.exp(log_weight).sum(axis=1, keepdims=True)
    mean, square = weight @ log_l.T, weight @ log_l.T**2
    variance = square - mean**2
    a, b = mean**2 / variance, np.abs(mean) / variance
    exact = (-a * np.log(1 + 1 / b) - centre).sum(axis=1)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape, rate", [(3.0, 0.5), (400.0, 2.0), (1e5, 30.0)])
def test_gamma_mean_is_that_of_a_gamma(shape, rate):
    """log E exp(-G), which for a gamma variate is known."""
    mean, variance = shape / rate, shape / rate**2
    sums = jnp.array([1.0, 0.0, variance])
    found = importance.log_gamma_means(sums, jnp.array([-mean])) - mean
    np.testing.assert_allclose(found, -shape * np.log1p(1 / rate), rtol=1e-5)


def test_gamma_mean_without_variance():
    """No variance, or a negative one by rounding: the mean itself."""
    sums = jnp.array([[2.0, 1.0, 0.5], [2.0, 1.0, 0.4]])
    np.testing.assert_allclose(importance.log_gamma_means(sums, jnp.array([-10.0])), 0.5)


def test_weighted_sums():
    rng = np.random.default_rng(5)
    log_weight, values = rng.normal(size=(3, 40)), rng.random((2, 40))
    sums = importance.weighted_sums(in_blocks(log_weight, 8), in_blocks(values, 8)).sum(axis=0)
    weight = np.exp(log_weight)
    np.testing.assert_allclose(
        sums[:, 1:] / sums[:, :1], weight @ values.T / weight.sum(axis=1)[:, None], rtol=1e-5
    )


def test_ranks_favour_the_first_entry():
    score = jnp.array([[1.0, 1.0, 3.0, 0.0], [1.0, 2.0, 9.0, 1.5]])
    valid = jnp.array([True, True, False, True])
    assert importance.ranks_of_first(score, valid).tolist() == [1, 3]


def replicated(key, truth, num_replicates=200, spread=1.0):
    """Noisy estimates of log odds, and bootstrap replicates around them."""
    key_estimate, key_replicates = jax.random.split(key)
    noise = spread * jax.random.normal(key_estimate, (len(truth),))
    estimate = (jnp.asarray(truth) + noise).at[0].set(0)
    error = spread * jax.random.normal(key_replicates, (num_replicates, len(truth)))
    return jnp.concatenate([estimate[None], (estimate + error).at[:, 0].set(0)])


@jax.jit
def p_values_of(keys, truth):
    valid = jnp.ones(len(truth), bool)
    return jax.vmap(
        lambda key: importance.top_rank_p_values(replicated(key, truth), valid, (1, 3))[1]
    )(keys)


def test_rank_p_values_hold_their_level():
    """At the edge of the hypotheses they are uniform; where they are false, small."""
    keys = jax.random.split(jax.random.key(7), 2000)
    equal = np.asarray(p_values_of(keys, jnp.zeros(20)))
    assert stats.kstest(equal[:, 0], "uniform").pvalue > P_LIMIT
    third = jnp.zeros(20).at[1:3].set(50)
    edge = np.asarray(p_values_of(keys, third))
    assert (edge[:, 0] == 1 / 201).all()
    assert stats.kstest(edge[:, 1], "uniform").pvalue > P_LIMIT
    assert (np.asarray(p_values_of(keys[:50], jnp.full(20, -20.0))) > 0.99).all()


def test_rank_p_values_of_few_candidates():
    log_odds = replicated(jax.random.key(8), np.array([0.0, 9.0, 9.0, 9.0]))
    valid = jnp.array([True, True, False, True])
    error, p_values = top_rank_p_values(log_odds, valid, (1, 2, 3, 9))
    assert error[0] == 0 and np.allclose(error[1:], 1, atol=0.2)
    np.testing.assert_allclose(p_values, [1 / 201, 1 / 201, 1, 1])
