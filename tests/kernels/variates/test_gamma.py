"""Log-gamma, log-beta and log-Dirichlet variates against their distribution functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, compiles_once, ks_p_value
from harness import Z_LIMIT
from scipy import special, stats

from bnp_models.kernels.variates import gamma

N = 20_000
SHAPES = np.array([1e-6, 0.01, 0.5, 1, 1.5, 2, 30, 1e4, 1e6])
loggamma = jax.jit(gamma.loggamma)
log_dirichlet = jax.jit(gamma.log_dirichlet, static_argnames="axis")


def log_gamma_cdf(a):
    """P(log G <= y), also where exp(y) underflows."""

    def cdf(y):
        tail = np.exp(np.minimum(a * y - special.gammaln(a + 1), 0))
        return np.where(y < -50, tail, special.gammainc(a, np.exp(np.maximum(y, -50))))

    return cdf


def log_beta_cdf(a, b):
    """P(log V <= y), also where exp(y) underflows."""

    def cdf(y):
        tail = np.exp(np.minimum(a * y - np.log(a) - special.betaln(a, b), 0))
        return np.where(y < -50, tail, special.betainc(a, b, np.exp(np.clip(y, -50, 0))))

    return cdf


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loggamma(x64, key, dtype):
    draws = loggamma(key, jnp.asarray(np.broadcast_to(SHAPES[:, None], (9, N)), dtype))
    assert draws.dtype == dtype and bool(jnp.isfinite(draws).all())
    for a, y in zip(SHAPES, draws, strict=True):
        assert ks_p_value(y, log_gamma_cdf(a)) > P_LIMIT, a
        # Shown to fail: a shape that is 10% off.
        assert ks_p_value(y, log_gamma_cdf(1.1 * a)) < P_LIMIT, a
        # The exact moments of log G see the tails.
        mean, variance = special.digamma(a), special.polygamma(1, a)
        assert abs(np.mean(y, dtype=float) - mean) / np.sqrt(variance / N) < Z_LIMIT, a


@pytest.mark.parametrize(
    ("name", "mutation"),
    [
        ("normal", lambda right: lambda words, dtype: 1.1 * right(words, dtype)),
        ("uniform", lambda right: lambda words, dtype: right(words, dtype) ** 1.1),
    ],
)
def test_loggamma_rejects_wrong_variates(key, monkeypatch, name, mutation):
    monkeypatch.setattr(gamma, name, mutation(getattr(gamma, name)))
    a = {"normal": 30.0, "uniform": 0.5}[name]
    draws = jax.jit(lambda k: gamma.loggamma(k, jnp.full(N, a)))(key)
    assert ks_p_value(draws, log_gamma_cdf(a)) < P_LIMIT


def test_loggamma_lanes_of_vmap_are_the_lanes_alone(key):
    keys = jax.random.split(key, len(SHAPES))
    shapes = jnp.asarray(np.broadcast_to(SHAPES[:, None], (9, 500)), jnp.float32)
    batched = jax.jit(jax.vmap(gamma.loggamma))(keys, shapes)
    for i in range(len(SHAPES)):
        # The second tolerance is for logarithms of variates near one.
        np.testing.assert_allclose(batched[i], loggamma(keys[i], shapes[i]), rtol=1e-6, atol=3e-7)
    assert compiles_once(gamma.loggamma, (keys[0], shapes[0]), (keys[1], shapes[8]))


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("size", [2**10, 2**15])
def test_loggamma_of_counts_has_the_bits_of_that_of_shapes(key, size):
    """XLA adds up constants that it sees together: those of 1 + counts and of the proposal."""
    counts = jnp.arange(size) % 50
    of_shapes = jax.jit(gamma.loggamma_from_one)
    of_counts = jax.jit(lambda key, x: gamma.loggamma_from_one(key, 1 + x.astype(jnp.float32)))
    shape = 1 + counts.astype(jnp.float32)
    np.testing.assert_array_equal(of_counts(key, counts), of_shapes(key, shape))


def test_gamma_variate_broadcasts_and_scales(key):
    shape, rate = jnp.array([[0.3], [1.0], [8.0]]), jnp.full(N, 4.0)
    draws = gamma.gamma_variate(key, shape, rate)
    for a, x in zip((0.3, 1, 8), draws, strict=True):
        assert ks_p_value(x, stats.gamma(a, scale=0.25).cdf) > P_LIMIT
        assert ks_p_value(x, stats.gamma(a, scale=0.28).cdf) < P_LIMIT


def test_logbeta_at_both_ends(key):
    shapes = np.array([(1, 1), (0.5, 2), (50, 3), (1e-3, 1e-3), (1e-4, 20), (3e4, 1)])
    a, b = jnp.asarray(np.broadcast_to(shapes.T[:, :, None], (2, 6, N)), jnp.float32)
    log_v, log_1mv = jax.jit(gamma.logbeta)(key, a, b)
    # Two small shapes have log-gammas of about 1/a, rounded as such, before they are normalised.
    rounding = 1e-6 + np.finfo(np.float32).eps / shapes.max(axis=1)[:, None]
    assert (np.abs(np.exp(log_v) + np.exp(log_1mv) - 1) < 4 * rounding).all()
    for i, (a, b) in enumerate(shapes):
        # An end where the variate is within rounding of one holds atoms at log 1 = 0.
        if b >= 0.5:
            assert ks_p_value(log_v[i], log_beta_cdf(a, b)) > P_LIMIT, (a, b)
            assert ks_p_value(log_v[i], log_beta_cdf(1.1 * a, b)) < P_LIMIT, (a, b)
        if a >= 0.5:
            assert ks_p_value(log_1mv[i], log_beta_cdf(b, a)) > P_LIMIT, (a, b)
        # Below one half, both ends have the right mass.
        low = np.mean(np.asarray(log_v[i]) < -1)
        p = float(log_beta_cdf(a, b)(np.array(-1.0)))
        assert abs(low - p) < Z_LIMIT * np.sqrt(p * (1 - p) / N) + 1e-9, (a, b)


def test_log_dirichlet(key):
    shape = np.array([1, 0.2, 0, 5, 1.5])
    draws = log_dirichlet(key, jnp.asarray(np.broadcast_to(shape, (N, 5)), jnp.float32))
    assert np.all(np.isneginf(draws[:, 2]))
    np.testing.assert_allclose(np.exp(draws).sum(axis=1), 1, atol=1e-6)
    for k in (0, 1, 3, 4):
        assert ks_p_value(draws[:, k], log_beta_cdf(shape[k], shape.sum() - shape[k])) > P_LIMIT
    # Shown to fail: the empty entry counted as a one.
    assert ks_p_value(draws[:, 3], log_beta_cdf(5, shape.sum() + 1 - 5)) < P_LIMIT


def test_log_dirichlet_along_another_axis_and_at_tiny_shapes(key):
    shape = jnp.full((8, 2000), 1e-6)
    draws = np.asarray(log_dirichlet(key, shape, axis=0))
    assert not np.isnan(draws).any()
    np.testing.assert_allclose(np.exp(draws).sum(axis=0), 1, atol=1e-6)
    # In the limit all mass is in one entry, each as often.
    winners = np.bincount(draws.argmax(axis=0), minlength=8)
    assert stats.chisquare(winners).pvalue > P_LIMIT
    assert (np.exp(np.sort(draws, axis=0)[-2]) == 0).mean() > 0.99
    assert np.isnan(log_dirichlet(key, jnp.zeros((8, 2000)), axis=0)).all()


@pytest.mark.parametrize("size", [8, 20_000])
def test_a_shape_that_is_none_ends(size):
    """nan and negative shapes give nan, and the other lanes their variates."""
    shape = np.full(size, 2.0, np.float32)
    good = np.asarray(loggamma(jax.random.key(5), jnp.asarray(shape)))
    shape[[1, 5]] = np.nan, -3.0
    bad = np.asarray(loggamma(jax.random.key(5), jnp.asarray(shape)))
    assert np.isnan(bad[[1, 5]]).all()
    np.testing.assert_array_equal(np.delete(bad, [1, 5]), np.delete(good, [1, 5]))
