"""Poisson, binomial and multinomial counts, exact for tiny and for huge means, and fast on a CPU.

Most rates of an augmented contingency table are far below one, and most of the draws are zero,
which needs one comparison each. For means below ten, the distribution is inverted from the far
tail, so that the rarest count is where the uniform number has its finest resolution. For other
means, counts are drawn by transformed rejection. Its acceptance test uses deviances, which float32
can represent precisely, unlike the logarithm of the factorial of 10^8.

Counts are int32. A draw whose parameters are invalid or too large for int32 (nan, negative, beyond
`MAX_COUNT`) gets -1 and does not affect other draws.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Int32, Key

from bnp_models.kernels.numerics.gamma_ratios import stirling_error
from bnp_models.kernels.numerics.platforms import most_of_lanes, on_accelerator
from bnp_models.kernels.variates.rng import uniform, word_pair, words

MAX_COUNT = 2**30
"""Largest Poisson rate, and largest number of trials of a binomial."""

# From this mean on counts are drawn by rejection; below it the hat would not be an upper bound.
_REJECT_FROM = 10

# In arrays with at least this many lanes, the few remaining lanes are gathered.
_COMPACT_FROM = 2048

# Number of steps of the inversion between two checks whether it is done.
_UNROLL = 4


_LOG_2PI = 1.8378770664093453


@jax.named_scope("poisson")
def poisson(key: Key[Array, ""], rate: Float[Array, "..."]) -> Int32[Array, "..."]:
    """Draw independent Poisson variates.

    Parameters
    ----------
    key
        Used once.
    rate
        Means, from 0 to `MAX_COUNT`, float32 or float64.

    Returns
    -------
    counts
        -1 if the rate is nan, negative or above `MAX_COUNT`.

    Notes
    -----
    Rates below ten use inversion, others Hormann's transformed rejection PTRS (1993,
    doi:10.1016/0167-6687(93)90997-4). Rates below 1e-19 always give zero.
    """
    valid = (rate >= 0) & (rate <= MAX_COUNT)
    draws = _draw(key, _POISSON, (jnp.where(valid, rate, 0),))
    return jnp.where(valid, draws, -1)


@jax.named_scope("binomial")
def binomial(
    key: Key[Array, ""],
    n: Int[Array, "..."],
    p: Float[Array, "..."],
    complement: Float[Array, "..."] | None = None,
) -> Int32[Array, "..."]:
    """Draw independent binomial variates.

    Parameters
    ----------
    key
        Used once.
    n
        Numbers of trials, from 0 to `MAX_COUNT`.
    p
        Probabilities of success, float32 or float64; broadcast against `n`.
    complement
        1 - p, if the caller has it more precisely: float32 has no p between 1 - 6e-8 and 1.

    Returns
    -------
    counts
        -1 if `n` is negative or above `MAX_COUNT`, or a probability is nan or outside [0, 1].

    Notes
    -----
    The rarer outcome is counted: by inversion if its mean is below ten, and otherwise by Hormann's
    transformed rejection BTRS (1993, doi:10.1080/00949659308811496).
    """
    n, p, complement = jnp.broadcast_arrays(n, p, 1 - p if complement is None else complement)
    valid = (n >= 0) & (n <= MAX_COUNT) & (p >= 0) & (p <= 1) & (complement >= 0)
    flip = complement < p
    rarer = jnp.where(valid, jnp.where(flip, complement, p), 0)
    n = jnp.where(valid, n, 0).astype(jnp.int32)
    draws = _draw(key, _BINOMIAL, (rarer, n))
    return jnp.where(valid, jnp.where(flip, n - draws, draws), -1)


@jax.named_scope("split_counts")
def split_counts(
    key: Key[Array, ""],
    counts: Int[Array, "..."],
    weights: Float[Array, "..."],
    axis: int = -1,
) -> Int32[Array, "..."]:
    """Draw multinomial variates: divide each count among the levels along an axis of `weights`.

    Parameters
    ----------
    key
        Used once.
    counts
        Numbers to divide, from 0 to `MAX_COUNT`.
    weights
        Non-negative and finite, not all zero unless the count is; they need not sum to one. Their
        other axes are broadcast against `counts`.
    axis
        The axis of the levels in `weights` and in the result; negative if the two ranks differ.

    Returns
    -------
    split
        Non-negative, with the sum `counts` along the axis; zero for a weight of zero. -1 if the
        count is invalid, or if it is positive and the weights are negative, nan, inf or all zero.

    Notes
    -----
    Each level except the last gets a binomial variate of the number that earlier levels have left,
    until nothing is left of any count. Levels with large weights should come first.
    """
    weights = jnp.moveaxis(weights, axis, 0)
    num_levels, *others = weights.shape
    shape = jnp.broadcast_shapes(counts.shape, tuple(others))
    weights = weights.reshape(num_levels, *[1] * (len(shape) - len(others)), *others)
    top = jnp.max(weights, axis=0)
    weights = jnp.broadcast_to(weights / jnp.where(top > 0, top, 1), (num_levels, *shape))
    counts = jnp.broadcast_to(counts, shape)
    usable = jnp.all((weights >= 0) & (weights <= 1), axis=0) & (top > 0)
    valid = (counts >= 0) & (counts <= MAX_COUNT) & (usable | (counts == 0))
    weights = jnp.where(usable, weights, 1)
    # Sums from the end, so that no conditional probability is computed as a difference.
    from_here = lax.cumsum(weights, reverse=True)

    def unfinished(carry):
        level, left, _ = carry
        return (level < num_levels - 1) & most_of_lanes(jnp.any(left > 0))

    def take(carry):
        level, left, split = carry
        weight, rest = weights[level], from_here[level + 1]
        total = weight + rest
        total = jnp.where(total > 0, total, 1)
        of_level = jax.random.fold_in(key, level)
        taken = binomial(of_level, left, weight / total, rest / total)
        return level + 1, left - taken, split.at[level].set(taken)

    start = jnp.where(valid, counts, 0).astype(jnp.int32)
    carry = jnp.int32(0), start, jnp.zeros((num_levels, *shape), jnp.int32)
    _, last, split = lax.while_loop(unfinished, take, carry)
    return jnp.moveaxis(jnp.where(valid, split.at[-1].set(last), -1), 0, axis)


def _draw(key, law, parameters):
    """Poisson or binomial variates, for arrays of valid parameters of one shape.

    `law` is a pair of functions: one gives the start of the inversion, one makes a trial.
    """
    shape = parameters[0].shape
    parameters = tuple(parameter.reshape(-1) for parameter in parameters)
    lanes = parameters[0].shape[0]
    start, attempt = law
    dtype = parameters[0].dtype.type

    def finish(trial, idle, coarse, *parameters):
        few, some, one, ratio = start(*parameters)
        u = _refine(coarse, word_pair(key, coarse.shape, stream=trial)[0], dtype)
        value = _invert(u, few & (u < some), one, ratio)
        return _reject(key, trial + 1, attempt, few | idle, value, parameters)

    coarse = words(key, (2, (lanes + 1) // 2)).reshape(-1)[:lanes]
    if not _compacts(lanes):
        return finish(jnp.uint32(1), False, coarse, *parameters)[1].reshape(shape)
    few, some, _, _ = start(*parameters)
    todo = ~few | (coarse.astype(dtype) * dtype(2.0**-32) < some)
    value = jnp.zeros(lanes, jnp.int32)
    return _in_parts(finish, jnp.uint32(1), todo, value, (coarse, *parameters))[1].reshape(shape)


def _compacts(lanes):
    """Whether remaining lanes are gathered; accelerators compute all lanes again instead."""
    return lanes >= _COMPACT_FROM and not on_accelerator()


def _in_parts(work, trial, todo, value, arrays):
    """Apply `work(trial, idle, *arrays)` to the lanes to do, an eighth of all at a time."""
    lanes = todo.shape[0]

    def part(carry):
        trial, todo, value = carry
        chosen = jnp.nonzero(todo, size=lanes // 8, fill_value=lanes)[0]
        gathered = (array.at[chosen].get(mode="fill", fill_value=0) for array in arrays)
        trial, drawn = work(trial, chosen == lanes, *gathered)
        value = value.at[chosen].set(drawn, mode="drop")
        return trial, todo.at[chosen].set(False, mode="drop"), value

    trial, _, value = lax.while_loop(lambda carry: jnp.any(carry[1]), part, (trial, todo, value))
    return trial, value


def _refine(coarse, fine, dtype):
    """Uniforms on (0, 1) from two words, with granularity 2**-64 near zero."""
    u = (fine.astype(dtype) + dtype(0.5)) * dtype(2.0**-64) + coarse.astype(dtype) * dtype(2.0**-32)
    return jnp.minimum(u, dtype(1.0 - jnp.finfo(dtype).epsneg))


def _invert(u, todo, one, ratio):
    """Invert the distribution on the lanes to do, for which u is in the tail of counts >= 1.

    The probabilities are computed upwards until the rest of the tail is negligible compared with u,
    and then summed downwards. As one minus a sum, a tail below 1e-7 would be only rounding error.

    Parameters
    ----------
    u
        Uniforms.
    todo
        True for lanes with u < P(X >= 1).
    one
        P(X = 1).
    ratio
        Function of k that gives P(X = k + 1) / P(X = k).
    """
    dtype = u.dtype.type
    lost = u * dtype(jnp.finfo(dtype).eps / 8)

    def climb(carry):
        k, going, highest, p = carry
        for _ in range(_UNROLL):
            above = p * ratio(k)
            going = going & (above > lost)
            p = jnp.where(going, above, p)
            k = k + 1
            highest = jnp.where(going, k, highest)
        return k, going, highest, p

    def descend(carry):
        k, tail, p, count = carry
        for _ in range(_UNROLL):
            active = (k <= highest) & (k > 1)
            tail = jnp.where(active, tail + p, tail)
            count = count + (active & (u < tail))
            k = k - 1
            p = jnp.where(active, p / ratio(k), p)
        return k, tail, p, count

    carry = dtype(1), todo, jnp.ones_like(u), one
    k, _, highest, p = lax.while_loop(lambda carry: jnp.any(carry[1]), climb, carry)
    carry = k, jnp.zeros_like(u), p, todo.astype(jnp.int32)
    return lax.while_loop(lambda carry: carry[0] > 1, descend, carry)[3]


def _reject(key, trial, attempt, done, value, parameters):
    """Repeat trials until all lanes have accepted; return the next trial's number and values."""
    lanes = value.shape[0]

    def until_accepted(trial, done, value, *parameters):
        def one_trial(carry):
            trial, done, value = carry
            drawn, accept = attempt(*word_pair(key, value.shape, stream=trial), *parameters)
            return trial + 1, done | accept, jnp.where(done, value, drawn)

        carry = lax.while_loop(lambda carry: ~jnp.all(carry[1]), one_trial, (trial, done, value))
        return carry[0], carry[2]

    if not _compacts(lanes):
        return until_accepted(trial, done, value, *parameters)
    return _in_parts(until_accepted, trial, ~done, value, (value, *parameters))


def _propose(first, second, a, b):
    """Make Hormann's proposal: distance from the centre, slope of the map, and a uniform number.

    U = 1/2 - us is mirrored; us has the resolution 2**-32 where the map is steepest.
    """
    dtype = b.dtype.type
    us = ((first >> 1).astype(dtype) + dtype(0.5)) * dtype(2.0**-32)
    distance = (2 * a / us + b) * (dtype(0.5) - us)
    distance = jnp.minimum(distance, dtype(1e9))
    distance = jnp.where(first & 1, distance, -distance)
    return distance, a / (us * us) + b, uniform(second, dtype)


def _deviance(k, mean, difference):
    """k log(k / mean) - (k - mean) for k >= 1, with k - mean as an argument (Loader 2000)."""
    dtype = k.dtype.type
    v = difference / (k + mean)
    v2 = v * v
    series = jnp.zeros_like(v)
    for odd in (13, 11, 9, 7, 5, 3):
        series = series * v2 + dtype(1 / odd)
    near = difference * v + 2 * k * v * v2 * series
    return jnp.where(v2 < dtype(0.01), near, k * jnp.log(k / mean) - difference)


def _start_poisson(rate):
    """Start of the inversion: whether the rate is small, P(X > 0), P(X = 1), ratios of terms."""
    p_zero = jnp.exp(-rate)
    return rate < _REJECT_FROM, -jnp.expm1(-rate), rate * p_zero, lambda k: rate / (k + 1)


def _try_poisson(first, second, rate):
    """Make a trial of PTRS: a proposal, and whether it is accepted.

    The printed hat is too low by up to 0.6%; here it is raised by 1%.
    """
    dtype = rate.dtype.type
    rate = jnp.maximum(rate, _REJECT_FROM)
    b = dtype(0.931) + dtype(2.53) * jnp.sqrt(rate)
    a = dtype(-0.059) + dtype(0.02483) * b
    hat = dtype(1.01) * (dtype(1.1239) + dtype(1.1328) / (b - dtype(3.4)))
    distance, slope, u = _propose(first, second, a, b)
    whole, part = _whole_and_part(rate)
    step = jnp.floor(distance + part + dtype(0.43))
    k = whole + step.astype(jnp.int32)
    x = jnp.maximum(k, 1).astype(dtype)
    log_p = -stirling_error(x) - _deviance(x, rate, step - part)
    log_p = jnp.where(k == 0, -rate, log_p - (jnp.log(x) + dtype(_LOG_2PI)) / 2)
    return k, (k >= 0) & (jnp.log(u * hat / slope) < log_p)


def _whole_and_part(x):
    """Integer and fractional part of a positive number."""
    whole = x.astype(jnp.int32)
    return whole, x - whole.astype(x.dtype)


def _start_binomial(p, n):
    """Start of the inversion: whether the mean is small, P(X > 0), P(X = 1), ratios of terms."""
    trials = n.astype(p.dtype)
    odds, log_q = p / (1 - p), jnp.log1p(-p)
    some = -jnp.expm1(trials * log_q)
    one = trials * p * jnp.exp((trials - 1) * log_q)
    return trials * p < _REJECT_FROM, some, one, lambda k: odds * (trials - k) / (k + 1)


def _try_binomial(first, second, p, n):
    """Make a trial of BTRS: a proposal, and whether it is accepted."""
    dtype = p.dtype.type
    trials, q = n.astype(dtype), 1 - p
    mean, spread = trials * p, jnp.sqrt(trials * p * q)
    b = dtype(1.15) + dtype(2.53) * spread
    a = dtype(-0.0873) + dtype(0.0248) * b + dtype(0.01) * p
    # The probability of the mode is replaced by its upper bound 1 / (sqrt(2 pi) spread).
    hat = (dtype(2.83) + dtype(5.1) / b) * dtype((2 * jnp.pi) ** -0.5)
    distance, slope, u = _propose(first, second, a, b)
    whole, part = _exact_product(n, p)
    step = jnp.floor(distance + part + dtype(0.5))
    k = whole + step.astype(jnp.int32)
    difference = step - part
    inside = (k >= 0) & (k <= n)
    x = jnp.clip(k, 1, jnp.maximum(n - 1, 1)).astype(dtype)
    y = jnp.clip(n - k, 1, jnp.maximum(n - 1, 1)).astype(dtype)
    log_p = stirling_error(trials) - stirling_error(x) - stirling_error(y)
    log_p = log_p - _deviance(x, mean, difference) - _deviance(y, trials * q, -difference)
    log_p = log_p + (jnp.log(trials / (x * y)) - dtype(_LOG_2PI)) / 2
    log_p = jnp.where(k == 0, trials * jnp.log1p(-p), log_p)
    log_p = jnp.where(k == n, trials * jnp.log(p), log_p)
    return k, inside & (jnp.log(u * hat / slope) < log_p)


def _exact_product(n, p):
    """n p as an integer and a small rest, with an error far below a standard deviation.

    A product of 10^9 in float32 has an error of 32, which is visible in a mean of 10^6 draws.
    """
    dtype = p.dtype.type
    if dtype != jnp.float32:
        return _whole_and_part(n.astype(dtype) * p)
    high = lax.bitcast_convert_type(
        lax.bitcast_convert_type(p, jnp.uint32) & jnp.uint32(0xFFFF8000), jnp.float32
    )
    thousands = (n >> 15 << 15).astype(dtype)
    parts = (
        _whole_and_part(high * thousands),
        _whole_and_part(high * (n & 0x7FFF).astype(dtype)),
        _whole_and_part((p - high) * n.astype(dtype)),
    )
    return sum(whole for whole, _ in parts), sum(part for _, part in parts)


_POISSON = _start_poisson, _try_poisson
_BINOMIAL = _start_binomial, _try_binomial
