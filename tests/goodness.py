"""Goodness of fit of draws against exact distributions."""

import jax
import numpy as np
from scipy import stats

# A fit is rejected below this; the suite has about 300 of them, each with a fixed key.
P_LIMIT = 1e-5


def ks_p_value(draws, cdf) -> float:
    """p-value of Kolmogorov and Smirnov's test of continuous draws against a distribution."""
    draws = np.asarray(draws, np.float64).ravel()
    return stats.kstest(draws, cdf, method="asymp").pvalue


def chi_square_p_value(counts, probability) -> float:
    """p-value of counts against cell probabilities; zero if an impossible cell was hit.

    Cells with fewer than five expected hits are put together.
    """
    counts = np.asarray(counts, np.float64).ravel()
    expected = np.asarray(probability, np.float64).ravel()
    expected = expected / expected.sum() * counts.sum()
    if np.any(counts[expected == 0]):
        return 0.0
    rare = expected < 5
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    counts, expected = counts[expected > 0], expected[expected > 0]
    if len(expected) == 1:
        return 1.0
    statistic = np.sum((counts - expected) ** 2 / expected)
    return stats.chi2.sf(statistic, len(expected) - 1)


def frequency_z_score(hits, draws, probability) -> float:
    """Standardised error of a binomial count."""
    return (hits - draws * probability) / np.sqrt(draws * probability * (1 - probability))


def density_cdf(log_density, lowest=1e-30, highest=1e3, nodes=200_001):
    """Distribution function and its inverse of an unnormalised density on the positive line."""
    log_x = np.linspace(np.log(lowest), np.log(highest), nodes)
    log_p = log_density(np.exp(log_x)) + log_x
    p = np.exp(log_p - log_p.max())
    cumulative = np.concatenate([[0], np.cumsum((p[1:] + p[:-1]) / 2)])
    cumulative /= cumulative[-1]
    return (
        lambda x: np.interp(np.log(x), log_x, cumulative),
        lambda u: np.exp(np.interp(u, cumulative, log_x)),
    )


def compiles_once(function, first, second, **static) -> bool:
    """Whether a second call with new data of the same shape compiles nothing."""
    compiled = jax.jit(lambda *args: function(*args, **static))
    compiled(*first)
    compiled(*second)
    return compiled._cache_size() == 1
