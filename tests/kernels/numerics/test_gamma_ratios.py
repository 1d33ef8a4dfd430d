"""Ratios of gamma functions against SciPy, in double and in single precision."""

import jax.numpy as jnp
import numpy as np
from scipy.special import betaln, gammaln

from bnp_models.kernels.numerics.gamma_ratios import log_beta, log_binomial, log_gamma_ratio


def test_gamma_and_beta_functions(x64):
    x = jnp.asarray([1e-3, 0.5, 3.0, 15.9, 16.0, 200.0, 1e6])
    for d in (0.0, 0.3, 7.0, 1e3):
        np.testing.assert_allclose(
            log_gamma_ratio(x, jnp.asarray(d)), gammaln(x + d) - gammaln(x), rtol=1e-8, atol=1e-12
        )
    # Gamma(x + 1) / Gamma(x) = x, to the last digits where the difference has lost nine.
    far = jnp.asarray([1e6, 1e9, 1e12])
    np.testing.assert_allclose(log_gamma_ratio(far, jnp.ones(())), np.log(far), rtol=1e-14)
    a, b = jnp.meshgrid(jnp.asarray([1e-3, 0.9, 15.0, 16.0, 80.0, 3e3]), x)
    np.testing.assert_allclose(log_beta(a, b), betaln(a, b), rtol=1e-8, atol=1e-12)


def test_log_binomial_and_ratio_keep_their_digits():
    rng = np.random.default_rng(0)
    a = np.concatenate([np.arange(40), rng.integers(0, 10**6, 400), [10**6, 0, 3]])
    b = np.concatenate([np.arange(40)[::-1], rng.integers(0, 10**6, 400), [0, 10**6, 10**6]])
    exact = gammaln(a + b + 1.0) - gammaln(a + 1.0) - gammaln(b + 1.0)
    close = log_binomial(jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32))
    np.testing.assert_allclose(close, exact, rtol=3e-6, atol=2e-4)
    d = rng.integers(0, 50, a.size)
    exact = gammaln(a + 1.0 + d) - gammaln(a + 1.0)
    close = log_gamma_ratio(jnp.asarray(a + 1, jnp.float32), jnp.asarray(d, jnp.float32))
    np.testing.assert_allclose(close, exact, rtol=3e-6, atol=2e-3)
