"""Stick breaking against direct simulation and exact moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, compiles_once, ks_p_value
from harness import Z_LIMIT, z_scores
from scipy import stats

from bnp_models.kernels.variates import sticks

N = 20_000
COUNTS = np.array([5, 0, 3, 0, 1])
ACTIVE = np.array([True, False, True, False, False, True])

truncated = jax.jit(jax.vmap(sticks.truncated_sticks, (0, None, None)))
retrospective = jax.jit(jax.vmap(sticks.retrospective_sticks, (0, None, None, None)))


def break_sticks(rng, a, b):
    """N draws of weights from sticks Beta(a_k, b_k), the last one taking the rest."""
    v = rng.beta(a, b, (N, len(a)))
    before = np.cumprod(np.concatenate([np.ones((N, 1)), 1 - v], axis=1), axis=1)
    weights = v * before[:, :-1]
    weights[:, -1] = before[:, -2]
    return weights, before


def two_sample_p_values(draws, others):
    return np.array([
        stats.ks_2samp(np.asarray(x, float), y, method="asymp").pvalue
        for x, y in zip(draws.T, others.T, strict=True)
    ])  # fmt: skip


@pytest.mark.parametrize("alpha", [0.3, 2.0])
def test_truncated_sticks(key, seed, alpha):
    later = COUNTS[::-1].cumsum()[::-1] - COUNTS
    log_pi, sum_log_1mv = truncated(jax.random.split(key, N), COUNTS, jnp.float32(alpha))
    np.testing.assert_allclose(np.exp(log_pi).sum(axis=1), 1, atol=2e-6)
    rng = np.random.default_rng(seed)
    others, before = break_sticks(rng, 1 + COUNTS, alpha + later)
    assert two_sample_p_values(np.exp(log_pi), others).min() > P_LIMIT
    log_left = np.log(before[:, -2])
    assert stats.ks_2samp(np.asarray(sum_log_1mv, float), log_left).pvalue > P_LIMIT
    # Shown to fail: the members of the class itself counted among the later ones.
    wrong, _ = break_sticks(rng, 1 + COUNTS, alpha + later + COUNTS)
    assert two_sample_p_values(np.exp(log_pi), wrong).min() < P_LIMIT


def test_log_weights_from_sticks(seed):
    v = np.random.default_rng(seed).beta(1, 2, (7, 4))
    exact = np.log(v) + np.log(np.concatenate([np.ones((7, 1)), 1 - v[:, :-1]], 1)).cumsum(axis=1)
    log_pi = sticks.log_weights_from_sticks(jnp.log(v), jnp.log1p(-v))
    np.testing.assert_allclose(log_pi, exact, rtol=1e-5)


def test_a_full_stick_takes_all_that_is_left():
    log_pi = sticks.log_weights_from_sticks(jnp.array([0.0, -1.0]), jnp.array([-jnp.inf, -2.0]))
    np.testing.assert_array_equal(log_pi, [0, -np.inf])


def draw_with_tiny_concentration(key):
    counts = np.array([5, 0, 3, 0, 0])
    log_pi, sum_log_1mv = truncated(jax.random.split(key, 2000), counts, jnp.float32(1e-4))
    return np.asarray(log_pi), np.asarray(sum_log_1mv)


def test_tiny_concentrations_stay_in_logs(key):
    log_pi, sum_log_1mv = draw_with_tiny_concentration(key)
    assert np.isfinite(log_pi).all() and np.isfinite(sum_log_1mv).all()
    assert (log_pi[:, 4] < -100).mean() > 0.9


def test_tiny_concentrations_leave_the_other_weights_exact(key):
    log_pi, _ = draw_with_tiny_concentration(key)
    np.testing.assert_allclose(np.exp(log_pi).sum(axis=1), 1, atol=1e-5)


def test_stick_concentration_under_its_joint_distribution(key):
    """alpha from its prior, sticks given alpha, alpha given the sticks: the prior again."""
    shape, rate, num_sticks = jnp.float32(1.5), jnp.float32(0.8), 6
    prior = stats.gamma(1.5, scale=1 / 0.8)
    quantiles = (np.arange(N) + 0.5) / N
    start = jnp.asarray(prior.ppf(quantiles), jnp.float32)

    def one(key, alpha, num_sticks):
        key_v, key_alpha = jax.random.split(key)
        _, s = sticks.truncated_sticks(key_v, jnp.zeros(6, jnp.int32), alpha)
        return sticks.stick_concentration(key_alpha, s, num_sticks, shape, rate)

    step = jax.jit(jax.vmap(one, (0, 0, None)))
    keys = jax.random.split(key, N)
    assert ks_p_value(step(keys, start, num_sticks), prior.cdf) > P_LIMIT
    # Shown to fail: the full last stick counted.
    assert ks_p_value(step(keys, start, num_sticks + 1), prior.cdf) < P_LIMIT


@pytest.mark.parametrize("alpha0", [0.4, 3.0])
def test_retrospective_sticks(key, seed, alpha0):
    remainder = 0.2
    keys = jax.random.split(key, N)
    log_weight, log_left = retrospective(keys, ACTIVE, jnp.log(remainder), jnp.float32(alpha0))
    assert np.isneginf(log_weight[:, ACTIVE]).all()
    mass = np.exp(log_weight[:, ~ACTIVE])
    np.testing.assert_allclose(mass.sum(axis=1), remainder, rtol=5e-6)
    rng = np.random.default_rng(seed)
    others, before = break_sticks(rng, np.ones(3), np.full(3, alpha0))
    assert two_sample_p_values(mass, remainder * others).min() > P_LIMIT
    # What is left over: remainder x (alpha0 / (1 + alpha0))^free in expectation.
    left = np.exp(np.asarray(log_left, float))
    expected = remainder * (alpha0 / (1 + alpha0)) ** 3
    assert np.abs(z_scores(left[:, None], [expected])).max() < Z_LIMIT
    assert stats.ks_2samp(left, remainder * before[:, -1]).pvalue > P_LIMIT
    assert (left <= mass[:, -1] * (1 + 1e-5)).all()
    # Shown to fail: Beta(1, alpha0 + 1).
    wrong, _ = break_sticks(rng, np.ones(3), np.full(3, alpha0 + 1))
    assert two_sample_p_values(mass, remainder * wrong).min() < P_LIMIT


def test_retrospective_sticks_with_no_free_slot_and_all_free(key):
    keys, remainder, alpha0 = jax.random.split(key, N), jnp.log(0.2), jnp.float32(3.0)
    log_weight, log_left = retrospective(keys, np.ones(6, bool), remainder, alpha0)
    assert np.isneginf(log_weight).all()
    np.testing.assert_array_equal(log_left, np.full(N, remainder))
    log_weight, log_left = retrospective(keys, np.zeros(6, bool), remainder, alpha0)
    np.testing.assert_allclose(np.exp(log_weight).sum(axis=1), 0.2, rtol=5e-6)
    first = np.exp(log_weight[:, 0]) / 0.2
    assert ks_p_value(first, stats.beta(1, 3).cdf) > P_LIMIT
    assert ks_p_value(np.exp(log_left) / 0.2, lambda x: stats.gamma(6).sf(-3 * np.log(x))) > P_LIMIT


def test_no_more_sticks_than_leave_a_negligible_mass(key):
    keys, remainder, alpha0 = jax.random.split(key, N), jnp.log(0.2), jnp.float32(1.0)
    active = np.arange(12) % 4 == 1
    full, left = map(np.exp, jax.vmap(
        lambda key: sticks.retrospective_sticks(key, active, remainder, alpha0)
    )(keys))  # fmt: skip
    some, left_of_some = map(np.exp, jax.vmap(
        lambda key: sticks.retrospective_sticks(key, active, remainder, alpha0, 0.01)
    )(keys))  # fmt: skip
    np.testing.assert_allclose(some.sum(axis=1), 0.2, rtol=5e-6)
    assert (some[:, active] == 0).all()
    last = np.where(some > 0, np.arange(12), -1).max(axis=1)[:, None]
    before = np.arange(12) < last
    np.testing.assert_array_equal(some[before], full[before])
    # The mass beyond each stick, the last of which takes it.
    beyond = 0.2 - np.cumsum(full, axis=1)
    assert (beyond[before & ~active] > 0.01 - 1e-6).all()
    short = left_of_some > 0.01
    assert 0 < short.mean() < 0.1 and (last[short] == 11).all()
    np.testing.assert_array_equal(left_of_some[short], left[short])


def test_second_calls_compile_nothing(key):
    one, two = jax.random.split(key)
    counts = jnp.asarray(COUNTS, jnp.int32)
    assert compiles_once(
        sticks.truncated_sticks, (one, counts, jnp.float32(1)), (two, 2 * counts, jnp.float32(3))
    )
    some, none = jnp.asarray(ACTIVE), jnp.zeros(6, bool)
    assert compiles_once(
        sticks.retrospective_sticks, (one, some, jnp.float32(-1), jnp.float32(1)),
        (two, none, jnp.float32(-9), jnp.float32(2)),
    )  # fmt: skip
