"""Logarithms of Gauss' hypergeometric function and of beta expectations, where series fail.

All functions use one Euler integral over p ~ Beta(a, b) of a product of powers of p and 1 + x p. It
is computed by the trapezoidal rule on nodes u = centre + width sinh(v) of the logit of p. Centre
and width are those of the peak of the integrand, and the ends of v are where the integrand has
fallen by `_DROP` nats. So both a narrow peak and tails of any length are resolved. The integrand
has one peak for all parameters. The nodes are fixed in differentiation, which loses no accuracy:
the derivative of an analytic integrand is also analytic, and the rule converges geometrically for
both (Trefethen & Weideman 2014, doi:10.1137/130932132).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from bnp_models.kernels.numerics.bisection import bisect
from bnp_models.kernels.numerics.gamma_ratios import log_beta

# Nodes that reach the rounding error of each type.
NODES = {"float32": 192, "float64": 512}

_DROP = {"float32": 20.0, "float64": 40.0}
# Logits of the peak lie within this: p from 1e-43 to 1 - 1e-43.
_FARTHEST = 100.0
# Window ends lie below width sinh(this).
_LONGEST = 40.0


class BetaNodes(NamedTuple):
    """Quadrature rule for expectations over p: sum of weight times the values at the nodes."""

    log_p: Float[Array, "nodes ..."]
    """Logarithms of p."""
    log_q: Float[Array, "nodes ..."]
    """Logarithms of 1 - p."""
    log_integrand: Float[Array, "nodes ..."]
    """Logarithm of the integrand, relative to `log_scale`."""
    weight: Float[Array, "nodes ..."]
    """Weight of the node in the integral over p of the integrand, without its exponential."""
    log_scale: Float[Array, "..."]
    """Logarithm of the integrand at its peak; no gradient goes through it."""


@jax.named_scope("log_hyp2f1")
def log_hyp2f1(
    a: Float[Array, "*#shape"],
    b: Float[Array, "*#shape"],
    c: Float[Array, "*#shape"],
    z: Float[Array, "*#shape"],
    *,
    nodes: int | None = None,
) -> Float[Array, "*#shape"]:
    """log 2F1(a, b; c; z) for c > b > 0 and z < 1.

    Parameters
    ----------
    a, b, c, z
        float32 or float64, broadcast against each other. z may be far below -1e6, and a and b may
        be 1e6. Outside c > b > 0 and z < 1 the result is nan.
    nodes
        Number of nodes of the quadrature; by default enough to reach the rounding error.

    Returns
    -------
    log_value
        Its absolute error, which is the relative error of 2F1, is that of rounding: a few units in
        the last place of the largest of 1, the result, and min(a, b) log(-z). If that is too large
        (|result| above 1e6 in float64, above 100 in float32), use `log_beta_expectation`, which
        separates the large factor.

    Notes
    -----
    2F1 = E (1 - z p)^-a over p ~ Beta(b, c - b), Euler's integral (NIST DLMF 15.6.1); for z > 0
    after Pfaff's transformation (15.8.1). Differentiable in every argument.
    """
    a, b, c, z = jnp.broadcast_arrays(a, b, c, z)
    valid = (b > 0) & (c > b) & (z < 1)
    zero = z == 0
    positive = (z > 0) & valid
    safe = jnp.where(zero | ~valid, -1, z)
    b, c = jnp.where(valid, b, 1), jnp.where(valid, c, 2)
    first = jnp.where(positive, c - b, b)
    second = jnp.where(positive, b, c - b)
    log_1mz = jnp.log1p(-jnp.where(positive, safe, 0))
    log_x = jnp.log(jnp.abs(safe)) - log_1mz
    # Common powers of 1 + x p and p are joined into one factor, which is never very large.
    common = jnp.where(log_x > 0, jnp.maximum(jnp.minimum(a, first) - 1, 0), 0)
    common = lax.stop_gradient(common)
    log_integral = _log_integral(common, a - common, first - common, second, log_x, nodes)
    value = log_integral - common * log_x - log_beta(first, second) - a * log_1mz
    value = jnp.where(zero, z * a * b / c, value)
    return jnp.where(valid, value, jnp.nan)


@jax.named_scope("log_beta_expectation")
def log_beta_expectation(
    f: Float[Array, "*#shape"],
    alpha: Float[Array, "*#shape"],
    a: Float[Array, "*#shape"],
    b: Float[Array, "*#shape"],
    log_x: Float[Array, "*#shape"],
    *,
    nodes: int | None = None,
) -> Float[Array, "*#shape"]:
    """log E (x p)^f (1 + x p)^-(alpha + f) over p ~ Beta(a, b).

    Parameters
    ----------
    f
        At least 0; it need not be an integer.
    alpha
        At least -f.
    a, b
        Positive.
    log_x
        Logarithm of x.
    nodes
        As in `log_hyp2f1`.

    Returns
    -------
    log_value
        f log x + log B(a + f, b) / B(a, b) + log 2F1(alpha + f, a + f; a + b + f; -x), without the
        cancellation of these terms. For alpha >= 0 it is never positive, and it is not very large
        if f is probable under the model.
    """
    f, alpha, a, b, log_x = jnp.broadcast_arrays(f, alpha, a, b, log_x)
    return _log_integral(f, alpha, a, b, log_x, nodes) - log_beta(a, b)


@jax.named_scope("beta_nodes")
def beta_nodes(
    f: Float[Array, "*#shape"],
    alpha: Float[Array, "*#shape"],
    a: Float[Array, "*#shape"],
    b: Float[Array, "*#shape"],
    log_x: Float[Array, "*#shape"],
    *,
    nodes: int | None = None,
) -> BetaNodes:
    """Nodes and weights for p^(a - 1) (1 - p)^(b - 1) (x p)^f (1 + x p)^-(alpha + f), 0 < p < 1.

    Parameters
    ----------
    f, alpha, a, b, log_x, nodes
        As in `log_beta_expectation`.
    """
    f, alpha, a, b, log_x = jnp.broadcast_arrays(f, alpha, a, b, log_x)
    dtype = jnp.result_type(f)
    nodes = NODES[dtype.name] if nodes is None else nodes
    fixed = lax.stop_gradient((f, alpha, a, b, log_x))
    centre, width, left, right = _window(*fixed)
    along = jnp.linspace(0, 1, nodes, dtype=dtype).reshape(-1, *[1] * f.ndim)
    v = (left + right) * along - left
    u = centre + width * jnp.sinh(v)
    log_p, log_q = _log_sigmoids(u)
    log_p_centre, log_q_centre = _log_sigmoids(centre)
    log_scale = _log_integrand(log_p_centre, log_q_centre, *fixed)
    return BetaNodes(
        log_p=log_p,
        log_q=log_q,
        log_integrand=_log_integrand(log_p, log_q, f, alpha, a, b, log_x) - log_scale,
        weight=jnp.cosh(v) * (width * (left + right) / (nodes - 1)),
        log_scale=log_scale,
    )


def _log_integral(f, alpha, a, b, log_x, nodes):
    """Logarithm of the integral over p of the integrand of `beta_nodes`."""
    rule = beta_nodes(f, alpha, a, b, log_x, nodes=nodes)
    return jnp.log(jnp.sum(jnp.exp(rule.log_integrand) * rule.weight, axis=0)) + rule.log_scale


def _log_sigmoids(u):
    """log p and log(1 - p) of a logit."""
    tail = jnp.log1p(jnp.exp(-jnp.abs(u)))
    return jnp.minimum(u, 0) - tail, -jnp.maximum(u, 0) - tail


def _log_integrand(log_p, log_q, f, alpha, a, b, log_x):
    """Log integrand in the logit of p; by the Jacobian, the powers a - 1, b - 1 become a, b."""
    y = log_x + log_p
    tail = jnp.log1p(jnp.exp(-jnp.abs(y)))
    log_1p_xp = jnp.maximum(y, 0) + tail
    log_1p_inverse = jnp.maximum(-y, 0) + tail
    return a * log_p + b * log_q - alpha * log_1p_xp - f * log_1p_inverse


def _window(f, alpha, a, b, log_x):
    """Centre and width of the peak, and the distances of the ends from it, in asinh of widths."""
    dtype = f.dtype

    def rises(u):
        p, q = jax.nn.sigmoid(u), jax.nn.sigmoid(-u)
        share = jax.nn.sigmoid(log_x + _log_sigmoids(u)[0])
        return q * (a + f * (1 - share) - alpha * share) > b * p

    low, high = bisect(rises, jnp.full_like(f, -_FARTHEST), jnp.full_like(f, _FARTHEST), 26)
    centre = (low + high) / 2
    log_p, log_q = _log_sigmoids(centre)
    share = jax.nn.sigmoid(log_x + log_p)
    curvature = jnp.exp(log_p) * b + jnp.exp(2 * log_q) * (f + alpha) * share * (1 - share)
    width = lax.rsqrt(jnp.maximum(curvature, 1))
    least = _log_integrand(log_p, log_q, f, alpha, a, b, log_x) - _DROP[dtype.name]

    def end(sign):
        def inside(v):
            log_p, log_q = _log_sigmoids(centre + sign * width * jnp.sinh(v))
            return _log_integrand(log_p, log_q, f, alpha, a, b, log_x) > least

        return bisect(inside, jnp.zeros_like(f), jnp.full_like(f, _LONGEST), 12)[1]

    return centre, width, end(-1), end(1)
