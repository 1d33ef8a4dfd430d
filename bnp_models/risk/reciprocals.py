"""Expected reciprocals E 1 / (f + X) of counts, of which tau_2 is a sum; by one quadrature.

f records of the sample are in a cell, and X is the number of its persons who are not in the sample.
With G the probability generating function of X,

    E 1 / (f + X) = integral_0^1 t^(f - 1) G(t) dt,

since 1 / k is the integral of t^(k - 1). Negative binomial counts have G(t) = (1 + odds (1 -
t))^-size. A binomial count of M trials with probability q has the same form with odds -q and size
-M. A Poisson count has the limit of these, exp(-mean (1 - t)).
"""

import numpy as np

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)

# The integrand is left out where it has decayed to exp(-24).
_DECAY = 24.0

_NEGLIGIBLE = 1e-200


def expected_reciprocal(f: np.ndarray, size: np.ndarray | int, odds: np.ndarray) -> np.ndarray:
    """Evaluate E 1 / (f + X) to 1e-9 of its value, X with the generating function above.

    Parameters
    ----------
    f
        Records of the sample, at least 1.
    size, odds
        Both at least 0, or both at most 0 with odds above -1; all three are broadcast.
    """
    return _integral(*np.broadcast_arrays(f, (size - 1) * odds, odds))


def poisson_reciprocal(f: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Evaluate E 1 / (f + X), X ~ Poisson(mean), to 1e-9 of its value.

    Parameters
    ----------
    f
        (D,) at least 1.
    mean
        (D,) at least 0; it may be 1e8.
    """
    return _integral(*np.broadcast_arrays(f, mean, 0.0))


def _integral(f, rate, odds):
    """Integral of t^(f - 1) exp(-rate y), 1 - t = (exp(odds y) - 1) / odds, over y.

    As a function of y the generating function is exponential. The logarithm of the integrand is
    concave and its slope at 0 is -(f - 1 + rate), so that the integral beyond a known point is
    negligible.
    """
    odds = np.where(np.abs(odds) < _NEGLIGIBLE, _NEGLIGIBLE, odds)
    # The y at which t is 0, or at which the integrand has decayed, if this is smaller.
    end = np.minimum(np.log1p(odds) / odds, _DECAY / np.maximum(f - 1 + rate, _NEGLIGIBLE))
    total = np.zeros(f.shape)
    for node, weight in zip((1 + _NODES) / 2, _WEIGHTS / 2, strict=True):
        y = node * end
        # 1 - t. At the end of the interval rounding could make it 1, and log t minus infinity.
        away = np.minimum(np.expm1(odds * y) / odds, 1 - 1e-16)
        total += weight * np.exp((f - 1) * np.log1p(-away) - rate * y)
    return end * total
