"""Logarithms of ratios of gamma functions, without the cancellation of log-gamma differences."""

import math

import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

_STIRLING_FROM = 16.0

# Log-gamma of smaller arguments is computed from that of an argument this much larger.
_SHIFT = 8

# Coefficients of the continued fraction of Stirling's error, and the error at one.
_STIRLING = (1 / 12, 1 / 30, 53 / 210, 195 / 371, 22999 / 22737)

_STIRLING_ONE = 0.08106146679532726


def log_gamma_ratio(
    x: Float[Array, "*#shape"], d: Float[Array, "*#shape"]
) -> Float[Array, "*#shape"]:
    """Log of Gamma(x + d) / Gamma(x) for positive x and x + d.

    If both are large, it is the difference of two Stirling series. Its error is d log x times the
    rounding error; that of a difference of two log-gamma values is x log x times the rounding
    error.
    """
    x, d = jnp.broadcast_arrays(x, d)
    large = jnp.minimum(x, x + d) >= _STIRLING_FROM
    some = jnp.where(large, x, _STIRLING_FROM)
    by = jnp.where(large, d, 0)
    series = large_log_gamma_ratio(some, by)
    x, d = jnp.where(large, 1, x), jnp.where(large, 0, d)
    return jnp.where(large, series, _log_gamma(x + d) - _log_gamma(x))


def large_log_gamma_ratio(
    x: Float[Array, "*#shape"], d: Float[Array, "*#shape"]
) -> Float[Array, "*#shape"]:
    """Log of Gamma(x + d) / Gamma(x) for x and x + d of at least 16, without a gamma function."""
    return (
        (x - 0.5) * jnp.log1p(d / x) + d * (jnp.log(x + d) - 1)
        + _stirling_rest(x + d) - _stirling_rest(x)
    )  # fmt: skip


def log_beta(a: Float[Array, "*#shape"], b: Float[Array, "*#shape"]) -> Float[Array, "*#shape"]:
    """Log of B(a, b); precise also if one argument is small and the other large, or both large."""
    a, b = jnp.broadcast_arrays(a, b)
    small, large = jnp.minimum(a, b), jnp.maximum(a, b)
    both = small >= _STIRLING_FROM
    m, n = jnp.where(both, small, _STIRLING_FROM), jnp.where(both, large, _STIRLING_FROM)
    log_shares = (m - 0.5) * jnp.log(m / (m + n)) - n * jnp.log1p(m / n)
    rest = _stirling_rest(m) + _stirling_rest(n) - _stirling_rest(m + n)
    series = log_shares - jnp.log(n) / 2 + 0.5 * math.log(2 * math.pi) + rest
    small, large = jnp.where(both, 1, small), jnp.where(both, 1, large)
    return jnp.where(both, series, _log_gamma(small) - log_gamma_ratio(large, small))


def log_binomial(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """Log of (a + b)! / (a! b!), without the cancellation of three large log-gammas.

    It uses Stirling's formula, whose leading terms combine to a log(1 + b/a) + b log(1 + a/b). For
    small a and b it uses log-gamma itself.
    """
    small = jnp.maximum(a, b) < 16
    x, y = jnp.maximum(a, b), jnp.minimum(a, b)
    low = lax.lgamma(x + y + 1) - lax.lgamma(x + 1) - lax.lgamma(y + 1)
    # If y is small and x is large, y! is computed by log-gamma and the rest as a ratio.
    high = log_gamma_ratio(jnp.maximum(x, 16) + 1, y) - lax.lgamma(y + 1)
    safe = jnp.maximum(y, 1)
    large = jnp.maximum(x, 16)
    leading = large * jnp.log1p(safe / large) + safe * jnp.log1p(large / safe)
    stirling = (
        leading
        + (jnp.log1p(large / safe) - jnp.log(2 * jnp.pi * large)) / 2
        + (1 / (large + safe) - 1 / large - 1 / safe) / 12
    )
    return jnp.where(small, low, jnp.where(y < 16, high, stirling))


def _stirling_rest(x):
    """Log Gamma(x) minus [(x - 1/2) log x - x + log(2 pi) / 2], for x of at least 16."""
    y = 1 / (x * x)
    return (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y / 1188)))) / x


def _log_gamma(x):
    """Log-gamma; in single precision by the series, which needs a tenth of the operations."""
    return gammaln(x) if x.dtype == jnp.float64 else elementary_log_gamma(x)


def elementary_log_gamma(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Log-gamma of positive numbers by elementary functions: cheap, also its derivatives.

    It uses Stirling's series, at x + 8 if x is small.
    """
    small = x < _SHIFT
    below = jnp.where(small, x, 1)
    product = below
    for i in range(1, _SHIFT):
        product = product * (below + i)
    y = jnp.where(small, x + _SHIFT, x)
    series = (y - 0.5) * jnp.log(y) - y + 0.5 * math.log(2 * math.pi) + _stirling_rest(y)
    return series - jnp.where(small, jnp.log(product), 0)


def stirling_error(k):
    """log k! - (k + 1/2) log k + k - log(2 pi) / 2 for k >= 1, to 1e-7 and for k >= 5 to 1e-11."""
    dtype = k.dtype.type
    error = jnp.zeros_like(k)
    for coefficient in reversed(_STIRLING):
        error = dtype(coefficient) / (k + error)
    return jnp.where(k == 1, dtype(_STIRLING_ONE), error)
