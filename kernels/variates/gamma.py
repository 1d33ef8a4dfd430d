"""Gamma, beta and Dirichlet variates on the log scale.

Variates with shapes far below one, as in sparse Dirichlet weights, underflow on the plain scale.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key

from bnp_models.kernels.numerics.counting import order_free_sum
from bnp_models.kernels.numerics.platforms import by_platform
from bnp_models.kernels.variates.rng import normal, uniform, word_pair

# Number of the random stream for the boost of small shapes; trials use streams from zero on.
_BOOST = 2**32 - 1

# In arrays with at least this many lanes, only the rejected lanes are gathered and repeated. This
# is twice as fast for them, slower for small arrays, and compiles half a second longer.
_COMPACT_FROM = 16384

# Number of trials before the first check whether all lanes have accepted: CPU, accelerators.
_TRIALS_AT_ONCE = (1, 4)


@jax.named_scope("loggamma")
def loggamma(key: Key[Array, ""], shape: Float[Array, "..."]) -> Float[Array, "..."]:
    """Draw logarithms of independent gamma variates of unit rate.

    Parameters
    ----------
    key
        Used once.
    shape
        Shape parameters, positive, float32 or float64; the result has the same dtype and shape.

    Notes
    -----
    The method is that of Marsaglia & Tsang (2000, doi:10.1145/358407.358414), repeated until all
    lanes have accepted. Shapes below one use G(a) = G(a + 1) U^(1/a) in logarithms. A shape of
    exactly one, which most cells of a Dirichlet posterior have, is an exponential variate without
    rejection.
    """
    dtype = shape.dtype.type
    small = shape < 1
    log_g = loggamma_from_one(key, jnp.where(small, shape + 1, shape))
    u = uniform(word_pair(key, shape.shape, stream=_BOOST)[0], dtype)
    return jnp.where(small, log_g + jnp.log(u) / jnp.where(small, shape, 1), log_g)


@jax.named_scope("loggamma_from_one")
def loggamma_from_one(key: Key[Array, ""], shape: Float[Array, "..."]) -> Float[Array, "..."]:
    """Draw like `loggamma`, with less work, for shapes of at least one, such as 1 + counts.

    Parameters
    ----------
    key
        Used once.
    shape
        Shape parameters, float32 or float64; the result has the same dtype and shape.
    """
    flat = shape.reshape(-1)
    if flat.size < _COMPACT_FROM:
        return _until_accepted(key, jnp.uint32(0), flat, False)[1].reshape(shape.shape)
    value, done = _attempt(key, jnp.uint32(0), flat)
    size = flat.size // 8

    def redraw(carry):
        trial, value, done = carry
        rejected = jnp.nonzero(~done, size=size, fill_value=flat.size)[0]
        shapes = flat.at[rejected].get(mode="fill", fill_value=1)
        trial, drawn = _until_accepted(key, trial, shapes, rejected == flat.size)
        value = value.at[rejected].set(drawn, mode="drop")
        return trial, value, done.at[rejected].set(True, mode="drop")

    carry = (jnp.uint32(1), value, done)
    value = lax.while_loop(lambda carry: ~jnp.all(carry[2]), redraw, carry)[1]
    return value.reshape(shape.shape)


def _until_accepted(key, trial, shape, done):
    """Repeat trials on all lanes until all lanes that are not done have accepted."""

    def some_trials(carry):
        trial, value, done = carry
        for _ in range(by_platform(*_TRIALS_AT_ONCE)):
            proposal, accept = _attempt(key, trial, shape)
            trial, value, done = trial + 1, jnp.where(done, value, proposal), done | accept
        return trial, value, done

    start = (trial, jnp.zeros_like(shape), jnp.broadcast_to(done, shape.shape))
    return lax.while_loop(lambda carry: ~jnp.all(carry[2]), some_trials, start)[:2]


def _attempt(key, trial, shape):
    """Make one trial of Marsaglia and Tsang on every lane: proposals, and whether accepted."""
    dtype = shape.dtype.type
    # The maximum prevents that XLA folds this constant into the one of 1 + counts.
    d = jnp.maximum(shape, dtype(1 / 3)) - dtype(1 / 3)
    first, second = word_pair(key, shape.shape, stream=trial)
    x, log_u = normal(first, dtype), jnp.log(uniform(second, dtype))
    t = lax.rsqrt(9 * d) * x
    # d (1 - v + log v) with v = (1 + t)^3, rearranged so that large d does not cancel.
    log1p_t = jnp.log1p(jnp.maximum(t, dtype(-0.999999)))
    bound = x * x / 2 + d * (3 * (log1p_t - t) - t * t * (3 + t))
    exponential = shape == 1
    # A shape that is nan, or too small for this proposal, is accepted; otherwise it would never
    # end.
    accept = exponential | ((t > -1) & (log_u < bound)) | ~(d > 0)
    return jnp.where(exponential, jnp.log(-log_u), jnp.log(d) + 3 * log1p_t), accept


def gamma_variate(
    key: Key[Array, ""],
    shape: Float[Array, "..."] | float,
    rate: Float[Array, "..."] | float,
) -> Float[Array, "..."]:
    """Draw gamma variates (not logarithms), with shapes and rates broadcast against each other.

    They underflow to zero only if the variate itself is below the smallest float.
    """
    shape, rate = jnp.broadcast_arrays(shape, rate)
    return jnp.exp(loggamma(key, shape) - jnp.log(rate))


def logbeta(
    key: Key[Array, ""], a: Float[Array, "..."], b: Float[Array, "..."]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Draw V from Beta(a, b) as the pair (log V, log(1 - V)), both accurate at both ends."""
    a, b = jnp.broadcast_arrays(a, b)
    log_x, log_y = loggamma(key, jnp.stack([a, b]))
    difference = log_x - log_y
    return -jnp.logaddexp(0, -difference), -jnp.logaddexp(0, difference)


@jax.named_scope("log_dirichlet")
def log_dirichlet(
    key: Key[Array, ""], shape: Float[Array, "..."], axis: int = -1
) -> Float[Array, "..."]:
    """Draw logarithms of Dirichlet variates along an axis.

    Parameters
    ----------
    key
        Used once.
    shape
        Shape parameters. An entry of zero gives -inf. If all along the axis are zero, the result is
        nan, because there is no such distribution.
    axis
        Axis along which the variates sum to one.
    """
    positive = shape > 0
    log_g = jnp.where(positive, loggamma(key, jnp.where(positive, shape, 1)), -jnp.inf)
    log_g = log_g - jnp.max(log_g, axis=axis, keepdims=True)
    return log_g - jnp.log(jnp.expand_dims(order_free_sum(jnp.exp(log_g), axis), axis))
