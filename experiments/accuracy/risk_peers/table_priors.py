"""Models of cells that are not exchangeable: a model of the table is the prior mean of each cell.

    pi_k ~ Ga(s_k, s_k / m_k),  s_k = s (n m_k)^e,  F_k ~ Poisson(N pi_k),  f_k ~ Bin(F_k, phat_k)

Model II of Polettini & Stander with m_k in place of 1 / K, and without the spread of sampling
fractions about phat_k. m_k is the probability of cell k by a log-linear model of the sample.
e = 0 is their gamma distribution; with e = 1 pi is a Dirichlet process with concentration n s.
"""

import sys
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from methods import TWO_WAY, Estimate, Method
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

import bnp_models as bnp
from bnp_models.risk.interactions import (
    Bounds,
    Fitted,
    Fitter,
    forest,
    gains,
    search,
    spread_evenly,
)
from bnp_models.risk.loglinear import OF_SEARCH, corrected, fit_structure
from bnp_models.risk.overdispersion import OF_FORESTS
from bnp_models.risk.reciprocals import expected_reciprocal

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "layer_prior"))

from rest import prior_of_others  # noqa: E402

NUM_SIMULATED = 2**14
FOREST_LAWS = HERE / "forest_laws.csv"
CANDIDATES = 45
LARGEST_COUNT = 2**11
"""Larger F are left out of E(1 / F); this is 5e-4 at most."""

LOG_SHAPE = np.log([1e-4, 1e6])
"""Limits of log s; at the upper one the log-linear model holds."""

# The prior of the correction that `leave_out` sets.
_prior = {"others": OF_FORESTS}


class TablePrior(NamedTuple):
    """Law of the cells about a model of the table."""

    shape: float
    exponent: float

    def size_of(self, expected: np.ndarray) -> np.ndarray:
        """Shape s_k of cells with n m_k expected records, if persons are sampled alike."""
        return self.shape * np.maximum(expected, 1e-300) ** self.exponent


@lru_cache(maxsize=4)
def fitted_table(cells: bnp.data.WeightedCells, structure: str) -> Fitted:
    """The log-linear model that `bnp.loglinear_risk` fits, its work bounded."""
    bounds = {"two-way": TWO_WAY, "search": OF_SEARCH}.get(structure, Bounds())
    total, num_variables = float(cells.weight.sum()), cells.codes.shape[1]
    fitter = Fitter(cells.codes, cells.weight / total, bounds)
    if structure in ("independence", "two-way"):
        pairs = combinations(range(num_variables), 2)
        return fitter.fit(pairs if structure == "two-way" else ())
    of_pairs = gains(cells.codes, fitter.weight, int(cells.f.sum()))
    if structure == "search":
        return search(fitter, list(of_pairs)[:CANDIDATES], cells.f, cells.phat, total)
    return fitter.fit(forest(of_pairs, num_variables))


def simulated_shares(fitted: Fitted) -> tuple[np.ndarray, np.ndarray]:
    """Cells (S, J) that are drawn from the model of the table, and their probabilities (S,)."""
    return fitted.simulate(spread_evenly(NUM_SIMULATED, fitted.fitter.codes.shape[1]))


class Means(NamedTuple):
    """Expectations of some cells under the model of the table."""

    share: np.ndarray
    """m_k, times n: records if persons are sampled alike."""
    records: np.ndarray
    """Records of the sample, phat_k N m_k."""

    @classmethod
    def of(cls, cells: bnp.data.WeightedCells, share: np.ndarray, phat: np.ndarray | float):
        return cls(cells.f.sum() * share, phat * cells.population_size * share)


def log_likelihood(prior: TablePrior, f: np.ndarray, seen: Means, drawn: Means, n: float) -> float:
    """Log-likelihood of all counts, empty cells included, without a constant.

    Parameters
    ----------
    prior
        Shape and exponent.
    f, seen
        (D,) records of the sample's cells, and their expectations.
    drawn
        (S,) expectations of cells that are drawn from the model of the table. Cell k is drawn with
        probability m_k, so that a sum over all cells is n times a mean over these.
    n
        Size of the sample.
    """
    size, of_drawn = prior.size_of(seen.share), prior.size_of(drawn.share)
    empty = n * np.mean(of_drawn / drawn.share * np.log1p(drawn.records / of_drawn))
    log_p = gammaln(size + f) - gammaln(size) + f * np.log(seen.records / (size + seen.records))
    return float(log_p.sum() - empty)


def estimate_prior(
    f: np.ndarray, seen: Means, drawn: Means, n: float, exponent: float | None = None
) -> TablePrior:
    """Shape, and the exponent if it is not given, by maximum likelihood."""

    def loss(log_shape, e):
        return -log_likelihood(TablePrior(np.exp(log_shape), e), f, seen, drawn, n)

    def best(e):
        return minimize_scalar(loss, bounds=tuple(LOG_SHAPE), args=(e,), method="bounded")

    if exponent is None:
        exponent = minimize_scalar(lambda e: best(e).fun, bounds=(0, 1), method="bounded").x
    return TablePrior(float(np.exp(best(exponent).x)), float(exponent))


def risks(
    cells: bnp.data.WeightedCells, share: np.ndarray, prior: TablePrior
) -> tuple[np.ndarray, np.ndarray]:
    """E(1 / F | f) and P(F = 1 | f) of all cells of the sample.

    F - f is negative binomial: size s_k + f, odds (1 - phat_k) N m_k / (s_k + phat_k N m_k).
    """
    expected = Means.of(cells, share, cells.phat)
    size = prior.size_of(expected.share)
    odds = (1 - cells.phat) * cells.population_size * share / (size + expected.records)
    p_unique = np.exp(-(size + 1) * np.log1p(odds))
    return expected_reciprocal(cells.f, size + cells.f, odds), np.where(cells.f == 1, p_unique, 0)


def about(structure: str, exponent: float | None) -> Method:
    """Empirical Bayes with the mean of each cell by a log-linear model of this structure."""

    def method(cells, seed):
        fitted, n = fitted_table(cells, structure), float(cells.f.sum())
        seen = Means.of(cells, fitted.share, cells.phat)
        drawn = Means.of(cells, simulated_shares(fitted)[1], cells.pooled_phat)
        prior = estimate_prior(cells.f, seen, drawn, n, exponent)
        risk, p_unique = risks(cells, fitted.share, prior)
        alone = cells.f == 1
        return Estimate(p_unique.sum(), risk[alone].sum(), p_unique[alone])

    return method


def leave_out(population: str) -> None:
    """Set the prior of the correction to one that is fitted to the other populations."""
    _prior["others"] = prior_of_others(pd.read_csv(FOREST_LAWS), population)


def about_corrected(structure: str) -> Method:
    """`bnp.loglinear_risk` of a structure with `ties="on"`, by the prior of `leave_out`.

    The prior was fitted about forests, also for other structures.
    """

    def method(cells, seed):
        bounds = OF_SEARCH if structure == "search" else Bounds()
        fitted = fit_structure(cells, structure, bounds)
        found = corrected(fitted, cells, jax.random.key(seed), _prior["others"])
        alone = cells.f == 1
        return Estimate(found.tau1, found.tau2, found.p_unique[alone], found.tau1_interval)

    return method


def exchangeable(variant: int, *, estimated: bool) -> Method:
    """Model I or II, with the paper's hyperparameters or estimated ones; for equal weights."""
    known: dict = {}

    def method(cells, seed):
        model = bnp.PolettiniStander(variant)
        if estimated:
            model = bnp.fit_empirical_bayes(model, cells).model
        key = cells.table.n, cells.population_size, cells.num_cells, model
        if key not in known:
            F = np.arange(1.0, LARGEST_COUNT + 1)
            p = np.exp(model.log_posterior(F, 1.0, cells.pooled_phat, cells))
            known[key] = p[0], p @ (1 / F)
        uniques, (r1, r2) = int((cells.f == 1).sum()), known[key]
        return Estimate(uniques * r1, uniques * r2, np.full(uniques, r1))

    return method


TABLE_PRIORS: dict[str, Method] = {
    "gamma about independence": about("independence", 0.0),
    "gamma about forest": about("forest", 0.0),
    "Dirichlet process about forest": about("forest", 1.0),
    "power about independence": about("independence", None),
    "power about forest": about("forest", None),
    "correction about forest": about_corrected("forest"),
}

SEARCHED_OR_LISTED: dict[str, Method] = {
    "power about search": about("search", None),
    "correction about search": about_corrected("search"),
    "gamma about two-way": about("two-way", 0.0),
    "power about two-way": about("two-way", None),
}
"""Seconds a sample."""

EXCHANGEABLE: dict[str, Method] = {
    "Model I, paper's values": exchangeable(1, estimated=False),
    "Model II, paper's values": exchangeable(2, estimated=False),
}

ESTIMATED: dict[str, Method] = {
    "Model I, empirical Bayes": exchangeable(1, estimated=True),
    "Model II, empirical Bayes": exchangeable(2, estimated=True),
}
"""Twenty seconds a sample."""
