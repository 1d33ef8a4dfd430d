"""Poisson, binomial and multinomial counts against their probabilities."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value, frequency_z_score
from harness import Z_LIMIT
from scipy import special, stats

from bnp_models.kernels.variates import discrete

RATES = np.array([0, 1e-5, 1e-3, 0.3, 0.99, 1, 3, 9.9, 10.1, 50, 1e4, 1e6], np.float32)
TRIALS = np.array([0, 1, 2, 7, 50, 10_000, 1_000_000])
CHANCES = np.array([0, 1e-7, 1e-3, 0.3, 0.5, 0.9, 1 - 1e-3, 1], np.float32)
# A million lanes, and a few: the two ways to work.
LARGE, SMALL = (len(RATES), 84_000), (15_000,)
poisson = jax.jit(discrete.poisson)
binomial = jax.jit(discrete.binomial)
split_counts = jax.jit(discrete.split_counts, static_argnames="axis")


def p_value(draws, law) -> float:
    """Chi-square of counts in at most 200 bins of about equal probability."""
    draws = np.asarray(draws).ravel()
    edges = np.unique(law.ppf(np.linspace(0, 1, 200)[1:-1]))
    edges = np.concatenate([[-1], edges[edges >= 0], [np.inf]])
    # The upper bins from the survival function: a rare one is not a difference of ones.
    low, high = edges[:-1], edges[1:]
    upper = law.sf(low) - law.sf(high)
    share = np.where(low < law.mean(), law.cdf(high) - np.where(low < 0, 0, law.cdf(low)), upper)
    hits = np.histogram(np.ceil(draws), np.append(edges[:-1] + 0.5, np.inf))[0]
    assert draws.min() >= 0
    return chi_square_p_value(hits, share)


def z_scores(draws, rate):
    """Standardised errors of the mean and of the mean squared deviation of Poisson counts."""
    d = np.asarray(draws, float) - rate
    spread = (np.mean(d**2) - rate) / np.sqrt((rate + 2 * rate**2) / d.size)
    return np.array([d.mean() / np.sqrt(rate / d.size), spread])


@pytest.mark.parametrize(
    ("dtype", "gathered"), [(np.float32, False), (np.float32, True), (np.float64, True)]
)
def test_poisson(request, key, dtype, gathered):
    """Arrays that gather their hard lanes and arrays that do not."""
    if dtype is np.float64:
        request.getfixturevalue("x64")
    rates = jnp.asarray(RATES, dtype)
    if gathered:
        draws = np.asarray(poisson(key, jnp.broadcast_to(rates[:, None], LARGE)))
    else:
        keys = jax.random.split(key, (len(RATES), 4))
        lanes = jnp.broadcast_to(rates[:, None, None], (len(RATES), 4, 15_000))
        draws = np.asarray(jax.jit(jax.vmap(jax.vmap(discrete.poisson)))(keys, lanes))
    assert draws.dtype == np.int32
    assert not draws[0].any()
    for rate, x in zip(RATES[1:].astype(float), draws[1:], strict=True):
        assert p_value(x, stats.poisson(rate)) > P_LIMIT, rate
        assert rate < 1e-4 or (abs(z_scores(x, rate)) < Z_LIMIT).all(), rate
        if rate > 1e-3:
            # Shown to fail: rates that are 5% and a twentieth of a standard deviation off.
            assert p_value(x, stats.poisson(rate * 1.05 + 0.05 * rate**0.5)) < P_LIMIT, rate


@pytest.mark.parametrize("rate", [1e5, 1e7, 1e8, 2**30])
def test_poisson_of_large_rate_in_float32(key, rate):
    draws = np.asarray(poisson(key, jnp.full(LARGE, rate, jnp.float32)), float)
    assert p_value(draws, stats.poisson(rate)) > P_LIMIT
    assert (abs(z_scores(draws, rate)) < Z_LIMIT).all()


def stop_early(right):
    return lambda *args: jnp.minimum(right(*args), 3)


def start_late(right):
    return lambda *args: jnp.maximum(right(*args), 2 * (right(*args) > 0))


def as_a_difference_of_products(right):
    return lambda k, mean, _: k * (jnp.log(k) - jnp.log(mean)) - (k - mean)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "mutation", "rate"),
    [
        ("_invert", stop_early, 0.99),
        ("_invert", start_late, 3.0),
        ("_deviance", as_a_difference_of_products, 1e7),
    ],
)
def test_mistakes_are_rejected(key, monkeypatch, name, mutation, rate):
    rates = jnp.full(SMALL, rate, jnp.float32)
    assert p_value(poisson(key, rates), stats.poisson(rate)) > P_LIMIT
    monkeypatch.setattr(discrete, name, mutation(getattr(discrete, name)))
    draws = jax.jit(lambda *args: discrete.poisson(*args))(key, rates)
    assert p_value(draws, stats.poisson(rate)) < P_LIMIT


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 5e-6), (np.float64, 1e-7)])
def test_probabilities_of_the_rejection(x64, dtype, tolerance):
    """Stirling's error and the deviance, too small for a million draws to see if left out."""

    @jax.jit
    def log_probability(k, mean, difference):
        return -discrete.stirling_error(k) - discrete._deviance(k, mean, difference)

    for mean in (10.1, 50.0, 1e3, 1e5, 1e8):
        mean = float(np.float32(mean))
        k = np.maximum(np.round(mean + np.sqrt(mean) * np.linspace(-6, 8, 500)), 1)
        log_p = log_probability(*(np.asarray(x, dtype) for x in (k, mean, k - mean)))
        # At 10^8 scipy's own log-probability cancels to 1e-7.
        expected = stats.poisson(mean).logpmf(k) + np.log(2 * np.pi * k) / 2
        np.testing.assert_allclose(log_p, expected, rtol=tolerance, atol=10 * tolerance)


def test_rates_below_the_granularity_of_one_word(key, monkeypatch):
    """Given that a uniform's highest bits are zero, rare events are common."""
    right, size = discrete.words, 200_000
    monkeypatch.setattr(discrete, "words", lambda *args: right(*args) >> 24)
    rates = [1e-8, 1e-9, 2e-10]
    draw = jax.jit(lambda k, rate: discrete.poisson(k, jnp.full(size, rate, jnp.float32)))
    for k, rate in zip(jax.random.split(key, 3), rates, strict=True):
        hits = int(draw(k, rate).sum())
        assert abs(frequency_z_score(hits, size, rate * 2**24)) < Z_LIMIT, rate


@partial(jax.jit, static_argnums=0)
def invert(start, u, *parameters):
    few, some, one, ratio = start(*parameters)
    return discrete._invert(u, few & (u < some), one, ratio)


def upper_tail_counts(u, tail):
    """#{k >= 1: u < tail(k)}, and whether some tail is within rounding of u."""
    tails = tail(np.arange(1, 80)[:, None])
    close = (np.abs(tails - u) < 2e-5 * u).any(axis=0)
    return (u < tails).sum(axis=0), close


@pytest.mark.parametrize("rate", [1e-30, 1e-8, 1e-3, 0.5, 0.99, 3, 9.99])
def test_inversion_of_poisson_in_the_far_tail(rate):
    """Against the incomplete gamma function, down to 2**-65."""
    u = np.exp(-np.linspace(1e-6, 45, 5000)).astype(np.float32)
    count = invert(discrete._start_poisson, u, jnp.full(u.shape, rate, jnp.float32))
    expected, close = upper_tail_counts(u, lambda k: special.gammainc(k, np.float32(rate)))
    assert close.mean() < 0.01
    np.testing.assert_array_equal(np.asarray(count)[~close], expected[~close])


@pytest.mark.parametrize(
    ("n", "p"),
    [(1, 0.4), (3, 0.5), (19, 0.5), (2, 1e-9), (50, 0.19), (10**6, 9.9e-6), (2**30, 8e-9)],
)
def test_inversion_of_binomial_in_the_far_tail(n, p):
    u = np.exp(-np.linspace(1e-6, 45, 5000)).astype(np.float32)
    lanes = jnp.full(u.shape, p, jnp.float32), jnp.full(u.shape, n, jnp.int32)
    count = invert(discrete._start_binomial, u, *lanes)
    law = stats.binom(n, float(np.float32(p)))
    expected, close = upper_tail_counts(u, lambda k: law.sf(k - 1))
    assert close.mean() < 0.01
    np.testing.assert_array_equal(np.asarray(count)[~close], expected[~close])


def hat_is_broken(attempt, *parameters):
    """Whether some proposal is accepted against a uniform of one."""
    first = jnp.asarray(np.linspace(0, 2**32 - 1, 2**16).astype(np.uint32))
    shape = (len(parameters[0]), len(first))
    lanes = [jnp.broadcast_to(jnp.asarray(x)[:, None], shape) for x in parameters]
    one = jnp.full(shape, 2**32 - 1, jnp.uint32)
    return bool(jax.jit(attempt)(jnp.broadcast_to(first, shape), one, *lanes)[1].any())


def test_hats_cover(monkeypatch):
    rates = np.concatenate([np.linspace(10, 60, 101), 10 ** np.linspace(2, 9, 50)])
    assert not hat_is_broken(discrete._try_poisson, rates.astype(np.float32))
    means, p = np.meshgrid(np.linspace(10, 60, 21) ** 2 / 10, [1e-6, 0.01, 0.1, 0.2, 0.35, 0.5])
    n = np.ceil(means / p).astype(np.int32)
    assert not hat_is_broken(discrete._try_binomial, p.ravel().astype(np.float32), n.ravel())
    # Shown to fail: one percent less.
    right = discrete._propose

    def lower(*args):
        distance, slope, u = right(*args)
        return distance, 1.01 * slope, u

    monkeypatch.setattr(discrete, "_propose", lower)
    assert hat_is_broken(lambda *a: discrete._try_poisson(*a), rates.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_binomial(request, key, dtype):
    if dtype is np.float64:
        request.getfixturevalue("x64")
    n, p = np.broadcast_arrays(TRIALS[:, None, None], CHANCES[:, None])
    lanes = (len(TRIALS), len(CHANCES), 10_000)
    draws = binomial(key, jnp.asarray(np.broadcast_to(n, lanes), jnp.int32), jnp.asarray(p, dtype))
    assert draws.dtype == np.int32
    for i, trials in enumerate(TRIALS):
        for j, chance in enumerate(CHANCES.astype(float)):
            x, name = np.asarray(draws[i, j]), (trials, chance)
            if trials == 0 or chance in (0, 1):
                assert (x == trials * chance).all(), name
                continue
            law = stats.binom(trials, chance)
            assert p_value(x, law) > P_LIMIT, name
            if law.var() > 1e-4:
                error = x.mean() - law.mean()
                assert abs(error) / np.sqrt(law.var() / x.size) < Z_LIMIT, name
            if 0.01 < chance < 0.99 and trials > 1:
                assert p_value(x, stats.binom(trials, chance * 0.9)) < P_LIMIT, name


@pytest.mark.parametrize("p", [0.013, 0.3, 0.5, 0.9])
def test_binomial_of_many_trials(key, p):
    n, p = 999_999_937, float(np.float32(p))
    draws = np.asarray(binomial(key, jnp.full(1_000_000, n, jnp.int32), jnp.float32(p)), float)
    assert p_value(draws, stats.binom(n, p)) > P_LIMIT
    assert abs(draws.mean() - n * p) / np.sqrt(n * p * (1 - p) / draws.size) < Z_LIMIT


def test_binomial_by_its_complement(key):
    """A failure in 10^9 trials, of which 1 - p knows nothing in float32."""
    n, q = 10**9, 1e-9
    draws = binomial(key, jnp.full(20_000, n, jnp.int32), jnp.float32(1), jnp.float32(q))
    assert p_value(n - np.asarray(draws), stats.binom(n, q)) > P_LIMIT


def test_what_is_not_a_distribution_gives_minus_one(key):
    bad = jnp.array([jnp.nan, -1.0, jnp.inf, 2.0**31, -jnp.inf, 40.0, 0.0, 0.5])
    for shape in (LARGE, SMALL):
        rates = jnp.tile(bad, np.prod(shape) // 8).reshape(shape)
        draws = np.asarray(poisson(key, rates)).reshape(-1, 8)
        assert (draws[:, :5] == -1).all() and (draws[:, 5:] >= 0).all()
        assert p_value(draws[:, 5], stats.poisson(40)) > P_LIMIT
    n = jnp.array([5, 5, 5, -1, 2**30 + 1, 5])
    p = jnp.array([jnp.nan, -0.1, 1.1, 0.5, 0.5, 1.0])
    np.testing.assert_array_equal(binomial(key, n, p), [-1, -1, -1, -1, -1, 5])
    weights = jnp.array([[1.0, jnp.nan], [0, 0], [0, 0], [1, -1], [1, jnp.inf], [1, 0]])
    split = split_counts(key, jnp.array([3, 3, 0, 3, 3, -3]), weights)
    np.testing.assert_array_equal(split, [[-1, -1], [-1, -1], [0, 0], *[[-1, -1]] * 3])


@pytest.mark.parametrize("count", [1, 6, 3000, 10**8])
def test_split_counts(key, count):
    weights = np.array([0, 2, 1e-3, 0, 0.3, 5, 1e-9, 1, 0], np.float32)
    split = np.asarray(split_counts(key, jnp.full(20_000, count), jnp.asarray(weights)))
    np.testing.assert_array_equal(split.sum(axis=1), count)
    assert split.min() == 0 and not split[:, weights == 0].any()
    share = weights.astype(float) / weights.sum(dtype=float)
    for level in np.flatnonzero(weights):
        assert p_value(split[:, level], stats.binom(count, share[level])) > P_LIMIT, level
    # Sums of two levels are binomial too: the levels have the right covariance.
    assert p_value(split[:, 1] + split[:, 7], stats.binom(count, share[1] + share[7])) > P_LIMIT
    # Shown to fail: shares 10% off.
    assert p_value(split[:, 1], stats.binom(count, 0.9 * share[1])) < P_LIMIT


@pytest.mark.usefixtures("either_form")
def test_split_counts_along_another_axis(key):
    counts = jnp.arange(12).reshape(4, 3)
    weights = jnp.ones((4, 5, 3)).at[:, 2].set(0)
    split = split_counts(key, counts, weights, axis=1)
    assert split.shape == (4, 5, 3) and not split[:, 2].any()
    np.testing.assert_array_equal(split.sum(axis=1), counts)
    # Weights common to all counts, tiny and huge ones, and a single level.
    split = split_counts(key, counts, jnp.array([1e-30, 1e30, 3e38, 3e38]))
    np.testing.assert_array_equal(split.sum(axis=-1), counts)
    assert not split[..., :2].any()
    np.testing.assert_array_equal(split_counts(key, counts, jnp.ones(1))[..., 0], counts)


def test_lanes_of_vmap_are_the_lanes_alone(key):
    keys = jax.random.split(key, 3)
    rates = jnp.tile(jnp.asarray(RATES), (3, 1400))
    batched = jax.jit(jax.vmap(discrete.poisson))(keys, rates)
    for i in range(3):
        np.testing.assert_array_equal(batched[i], poisson(keys[i], rates[i]))


def test_compiles_once(key):
    def second_call_compiles(function, first, second):
        function(*first)
        compiled = function._cache_size()
        function(*second)
        return function._cache_size() > compiled

    a, b = jax.random.split(key)
    rates = jnp.zeros(SMALL)
    assert not second_call_compiles(poisson, (a, rates), (b, rates + 1e4))
    weights = jnp.array([0, 2, 1e-3, 0, 0.3, 5, 1e-9, 1, 0])
    n = jnp.ones(20_000, jnp.int32)
    assert not second_call_compiles(split_counts, (a, n, weights), (b, 1000 * n, weights[::-1]))
    # Shown to fail: new data of another shape.
    assert second_call_compiles(poisson, (a, rates), (b, rates[:7]))
