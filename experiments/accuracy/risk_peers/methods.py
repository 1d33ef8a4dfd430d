"""Estimates of tau_1 and tau_2 by others' methods, each a short function of a sample's cells."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import digamma, expit, gammaln, logsumexp, ndtri, wrightomega
from scipy.stats import binom

import bnp_models as bnp
from bnp_models.data.cells import group_cells
from bnp_models.risk.interactions import Bounds
from bnp_models.risk.loglinear import OF_SEARCH, fit_structure

TWO_WAY = Bounds(max_support=2**17, max_work=1e8)
"""All two-way interactions are not fitted where they list more cells; a second of fitting."""


class Estimate(NamedTuple):
    """What a method says of a sample."""

    tau1: float
    tau2: float
    p_unique: np.ndarray
    """Probability that a record is unique in the population, of each record that may be; given
    these, records are taken to be independent for an interval of tau_1."""
    limits: tuple[float, float] | None = None
    """95% interval of tau_1, if the method gives one."""


Method = Callable[[bnp.data.WeightedCells, int], Estimate]
"""Function of a sample's cells and a seed."""


def loglinear(structure: str) -> Method:
    """Poisson log-linear model of a structure: `bnp.loglinear_risk`, its work bounded."""

    def method(cells, seed):
        bounds = {"two-way": TWO_WAY, "search": OF_SEARCH}.get(structure, Bounds())
        fitted = fit_structure(cells, structure, bounds)
        return Estimate(fitted.tau1, fitted.tau2, fitted.p_unique[cells.f == 1])

    return method


def pitman_yor(cells: bnp.data.WeightedCells, seed: int, sigma: float | None = None) -> Estimate:
    """Ewens-Pitman sampling formula, sigma and theta by maximum likelihood.

    A cell with one record is met by none of the M = N - n others with probability
    prod_i (theta + n + i - 1 + sigma) / (theta + n + i), i < M; their number is beta-binomial
    (Hoshino 2001; Favaro, Panero & Rigon 2021, doi:10.1214/21-EJS1933).
    """
    f, n = cells.f, float(cells.table.n)
    num_new = cells.population_size - n
    above = np.arange(1, len(f))
    sizes, number = np.unique(f, return_counts=True)

    def minus_log_likelihood(x):
        s = expit(x[1]) if sigma is None else sigma
        theta = np.exp(x[0]) - s
        of_blocks = number @ (gammaln(sizes - s) - gammaln(1 - s))
        rising = gammaln(theta + n) - gammaln(theta + 1)
        return rising - of_blocks - np.log(theta + above * s).sum()

    starts = [(np.log(n), x) for x in (-3.0, 0.0, 2.0)] if sigma is None else [(np.log(n),)]
    fits = [
        minimize(minus_log_likelihood, start, method="Nelder-Mead", bounds=[(-5, 25), (-14, 14)])
        if sigma is None else
        minimize(minus_log_likelihood, start, method="Nelder-Mead", bounds=[(-5, 25)])
        for start in starts
    ]  # fmt: skip
    best = min(fits, key=lambda fit: fit.fun).x
    s = expit(best[1]) if sigma is None else sigma
    # p of a cell with one record has a beta law of shapes 1 - s and b.
    b = np.exp(best[0]) - s + n - 1 + s
    p_unique = np.exp(-_log_growth(b, num_new, 1 - s))
    if s == 0:
        r2 = b / (num_new + 1) * (digamma(b + num_new + 1) - digamma(b))
    else:
        r2 = (b - s) / (s * (num_new + 1)) * np.expm1(_log_growth(b - s, num_new + 1, s))
    uniques = int((f == 1).sum())
    return Estimate(uniques * p_unique, uniques * r2, np.full(uniques, p_unique))


def _log_growth(x: float, more: float, a: float) -> float:
    """Logarithm of Gamma(x + more + a) Gamma(x) / (Gamma(x + more) Gamma(x + a)), 0 < a < 1."""
    if x > 1e4:
        # Differences of log gamma lose their digits; Gamma(x + a) / Gamma(x) is nearly this power.
        return a * np.log1p(more / (x + (a - 1) / 2))
    return gammaln(x + more + a) - gammaln(x + more) - gammaln(x + a) + gammaln(x)


def ewens(cells: bnp.data.WeightedCells, seed: int) -> Estimate:
    """Pitman-Yor with sigma zero."""
    return pitman_yor(cells, seed, sigma=0.0)


def negative_binomial(cells: bnp.data.WeightedCells, seed: int) -> Estimate:
    """Cells' means are gamma, alike in all cells (Bethlehem, Keller & Pannekoek 1990).

    doi:10.1080/01621459.1990.10475304. The shape is by moments over all K cells, empty ones too.
    """
    n, per_cell = float(cells.table.n), cells.table.n / cells.num_cells
    variance = (cells.f**2).sum() / cells.num_cells - per_cell**2
    shape = per_cell**2 / max(variance - per_cell, 1e-12 * per_cell)
    odds = (cells.population_size - n) / n / (shape / per_cell + 1)
    r1 = (1 + odds) ** -(shape + 1)
    r2 = -np.expm1(-shape * np.log1p(odds)) / (shape * odds)
    uniques = int((cells.f == 1).sum())
    return Estimate(uniques * r1, uniques * r2, np.full(uniques, r1))


def poisson_inverse_gaussian(cells: bnp.data.WeightedCells, seed: int) -> Estimate:
    """Cells' means are inverse Gaussian, alike in all cells (Carlson 2002).

    Statistics in Transition 5, 901-925. Their mean is n / K, and their coefficient of variation is
    by maximum likelihood over all K cells. E(exp(-t m)) of a mean m is in closed form.
    """
    mean, growth = cells.table.n / cells.num_cells, cells.population_size / cells.table.n
    records, number = np.unique(cells.f.astype(int), return_counts=True)
    empty = cells.num_cells - len(cells.f)

    def minus_log_likelihood(log_variation):
        log_p = inverse_gaussian_counts(records[-1], mean, np.exp(log_variation))
        return -empty * log_p[0] - number @ log_p[records]

    found = minimize_scalar(minus_log_likelihood, bounds=(-12, 50), method="bounded")
    root, larger = (np.sqrt(1 + 2 * mean * np.exp(found.x) * t) for t in (1, growth))
    log_ratio = 2 * mean / (1 + root) - 2 * mean * growth / (1 + larger)
    r1 = np.exp(log_ratio) * root / larger
    r2 = -np.expm1(log_ratio) * root / (mean * (growth - 1))
    uniques = int((cells.f == 1).sum())
    return Estimate(uniques * r1, uniques * r2, np.full(uniques, r1))


def inverse_gaussian_counts(largest: int, mean: float, variation: float) -> np.ndarray:
    """Log P(0), .., log P(largest) of Poisson counts whose mean is inverse Gaussian.

    `variation` is the squared coefficient of variation of the mean. P(f) / P(f - 1) is a constant
    times K_(f - 1/2) / (f K_(f - 3/2)), and the ratios of Bessel functions have a recurrence.
    """
    root = np.sqrt(1 + 2 * mean * variation)
    ratio = np.ones(largest)
    for f in range(2, largest + 1):
        ratio[f - 1] = 1 / ratio[f - 2] + (2 * f - 3) * variation / root
    log_ratio = np.log(mean / root * ratio / np.arange(1, largest + 1))
    return np.append(0.0, np.cumsum(log_ratio)) - 2 * mean / (1 + root)


def poisson_lognormal(cells: bnp.data.WeightedCells, seed: int) -> Estimate:
    """Cells' means are log-normal about those of independent variables (Skinner & Holmes 1998).

    Journal of Official Statistics 14, 361-372. The expected mean of a cell is that of the main
    effects; the standard deviation of its logarithm is the same in all cells, by maximum likelihood
    over all K cells.
    """
    n, growth = cells.table.n, cells.population_size / cells.table.n
    columns = [np.log(np.bincount(x, minlength=2) / n + 1e-300) for x in cells.table.codes.T]
    log_mean = np.log(n) + sum(x[code] for x, code in zip(columns, cells.codes.T, strict=True))
    of_all, number = _log_means_of_all(columns, n)

    def minus_log_likelihood(sd):
        seen = lognormal_moment(log_mean, cells.f, sd) - lognormal_moment(log_mean, 0, sd)
        return -seen.sum() - number @ lognormal_moment(of_all, 0, sd)

    sd = minimize_scalar(minus_log_likelihood, bounds=(1e-3, 5), method="bounded").x
    log_mean = log_mean[cells.f == 1]
    at_sample = lognormal_moment(log_mean, 1, sd)
    p_unique = np.exp(lognormal_moment(log_mean, 1, sd, growth) - at_sample)
    # E(1 / F) is the integral of E(s^(F - 1)) over s, which is taken on a log scale.
    node, weight = np.polynomial.legendre.leggauss(40)
    t = growth ** ((1 + node) / 2)
    inner = np.exp([lognormal_moment(log_mean, 1, sd, x) - at_sample for x in t])
    risk = (weight * t) @ inner * np.log(growth) / 2 / (growth - 1)
    return Estimate(p_unique.sum(), risk.sum(), p_unique)


def lognormal_moment(log_mean, f, sd: float, t: float = 1.0) -> np.ndarray:
    """Log of E(m^f exp(-t m)) for log-normal m, by Gauss-Hermite quadrature about the peak."""
    centre = log_mean - sd**2 / 2
    peak = centre + f * sd**2
    peak = peak - wrightomega(peak + np.log(t * sd**2)).real
    scale = 1 / np.sqrt(t * np.exp(peak) + 1 / sd**2)
    z, weight = np.polynomial.hermite_e.hermegauss(40)
    log_m = peak[:, None] + scale[:, None] * z
    terms = np.asarray(f)[..., None] * log_m - t * np.exp(log_m)
    terms += z**2 / 2 - ((log_m - centre[:, None]) / sd) ** 2 / 2
    return logsumexp(terms, axis=1, b=weight) + np.log(scale / sd) - np.log(2 * np.pi) / 2


def _log_means_of_all(columns: list[np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Log means of all cells under independence, rounded, and the number of cells with each.

    Each logarithm is rounded to a multiple of 0.02. Cells with a level that no record has are left
    out: their mean is zero.
    """
    width, number = 0.02, np.ones(1)
    place = np.array([round(np.log(n) / width)])
    for column in columns:
        steps = np.round(column[column > -600] / width).astype(int)
        moved = (place[:, None] + steps).ravel()
        place, group = np.unique(moved, return_inverse=True)
        number = np.bincount(group, np.repeat(number, len(steps)))
    return width * place, number


def gaussian_copula(cells: bnp.data.WeightedCells, seed: int) -> Estimate:
    """The sample's margins and a Gaussian copula of the levels' order; n times the uniqueness.

    Rocher, Hendrickx & de Montjoye (2019), doi:10.1038/s41467-019-10933-3. A population of N is
    simulated: each of its persons is in the sample with probability n / N.
    """
    table, size = cells.table, cells.population_size
    correlation = copula_correlation(table.codes)
    eigenvalues, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(eigenvalues, 1e-10))
    root /= np.sqrt((root**2).sum(axis=1, keepdims=True))
    rng = np.random.default_rng((seed, table.n, 1))
    z = rng.standard_normal((size, table.num_variables)) @ root.T
    levels = table.schema.num_levels
    cuts = [ndtri(_cumulative(column)[1:-1]) for column in table.codes.T]
    codes = np.stack([np.searchsorted(cut, z[:, j]) for j, cut in enumerate(cuts)], axis=1)
    counts = group_cells(codes, levels).counts
    fraction = table.n / size
    tau2 = fraction * np.sum((1 - fraction) ** (counts - 1.0))
    share = np.mean(counts == 1) * len(counts) / size
    return Estimate(table.n * share, tau2, np.full(table.n, share))


def copula_correlation(codes: np.ndarray, terms: int = 60) -> np.ndarray:
    """Correlations (J, J) of the normal variables that levels are intervals of.

    Those at which normal scores of the levels correlate as they do in the sample: E s_i s_j is
    sum_k rho^k a_ik a_jk, with a_ik the coefficients of the scores in normalised Hermite
    polynomials.
    """
    scores, coefficients = [], []
    for column in codes.T:
        cumulative = _cumulative(column)
        share = np.diff(cumulative)
        level = ndtri(np.clip(cumulative[:-1] + share / 2, 1e-12, 1 - 1e-12))
        level -= share @ level
        # An integral of He_k phi over an interval is -He_(k - 1) phi at its ends.
        ends = np.concatenate([[-40.0], ndtri(cumulative[1:-1]), [40.0]])
        ends = np.clip(ends, -40, 40)
        before, now = np.zeros_like(ends), np.exp(-(ends**2) / 2) / np.sqrt(2 * np.pi)
        row = []
        for k in range(1, terms + 1):
            row.append(level @ -np.diff(now) / np.sqrt(k))
            before, now = now, (ends * now - np.sqrt(k - 1) * before) / np.sqrt(k)
        scores.append(level[column])
        coefficients.append(row)
    observed = np.cov(np.array(scores), bias=True)
    a = np.array(coefficients)
    grid = np.linspace(-0.999, 0.999, 1999)
    powers = grid[:, None] ** np.arange(1, terms + 1)
    correlation = np.eye(len(a))
    for i in range(len(a)):
        for j in range(i):
            expected = np.maximum.accumulate(powers @ (a[i] * a[j]))
            correlation[i, j] = correlation[j, i] = np.interp(observed[i, j], expected, grid)
    return correlation


def _cumulative(column):
    """Cumulative shares of the levels, from 0 to 1."""
    return np.append(0.0, np.cumsum(np.bincount(column)) / len(column))


METHODS: dict[str, Method] = {
    "log-linear independence": loglinear("independence"),
    "log-linear two-way": loglinear("two-way"),
    "log-linear forest": loglinear("forest"),
    "log-linear search": loglinear("search"),
    "Pitman-Yor": pitman_yor,
    "Ewens": ewens,
    "Gaussian copula": gaussian_copula,
    "negative binomial": negative_binomial,
    "Poisson-inverse Gaussian": poisson_inverse_gaussian,
    "Poisson-lognormal": poisson_lognormal,
}


def interval(p_unique: np.ndarray) -> tuple[float, float]:
    """95% interval of the number of successes of independent trials (Poisson-binomial)."""
    if len(p_unique) and np.ptp(p_unique) < 1e-12:
        low, high = binom.ppf([0.025, 0.975], len(p_unique), p_unique[0])
        return float(low), float(high)
    # Coefficients of the generating function, by the discrete Fourier transform.
    size = len(p_unique) + 1
    roots = np.exp(-2j * np.pi * np.arange(size) / size)
    log_values = np.zeros(size, complex)
    for part in np.array_split(p_unique, max(1, len(p_unique) // 500)):
        log_values += np.log(1 + part[:, None] * (roots - 1) + 1e-300).sum(axis=0)
    cumulative = np.cumsum(np.fft.ifft(np.exp(log_values)).real.clip(0))
    low, high = np.searchsorted(cumulative / cumulative[-1], [0.025, 0.975])
    return float(low), float(high)
