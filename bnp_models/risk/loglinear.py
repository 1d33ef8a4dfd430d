"""The risk of cells under the Poisson log-linear model of Skinner & Shlomo.

    F_k ~ Poisson(lambda_k),  f_k | F_k ~ Binomial(F_k, phat_k),  log lambda_k additive in main
    effects, and in the two-way interactions that the structure of the model names

so that F_k - f_k | f_k ~ Poisson((1 - phat_k) lambda_k) (Skinner & Shlomo 2008,
doi:10.1198/016214507000001328, sections 2 and 3). lambda_k is the mean of a population count.
Therefore the margins of the *weighted* sample are fitted, which add up to N, and only the unsampled
share is random.

With the correction for overdispersion (`bnp_models.risk.overdispersion`), the mean of the sample's
count in cell k is n b_k times a gamma variable, where b_k is the probability of the cell by the
same model fitted to the sample without its weights. The mean of F_k - f_k is (1 - phat_k) lambda_k
times the same variable, so that F_k - f_k | f_k is negative binomial.
"""

import dataclasses
from dataclasses import dataclass
from itertools import combinations

import jax
import numpy as np

from bnp_models.data.arguments import check_kind
from bnp_models.data.cells import group_cells
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.weights import WeightedCells
from bnp_models.inference.convergence import ENDS
from bnp_models.kernels.variates.rng import numpy_generator
from bnp_models.models.options import check_choice, key_or_default
from bnp_models.risk.interactions import (
    Bounds,
    Fitter,
    forest,
    gains,
    list_cells,
    search,
    spread_evenly,
)
from bnp_models.risk.overdispersion import (
    GRID,
    OF_FORESTS,
    Overdispersion,
    OverdispersionPosterior,
    Prior,
)
from bnp_models.risk.reciprocals import poisson_reciprocal

STRUCTURES = ("independence", "two-way", "forest", "search")

TIES = ("on", "off")
"""Values of the option `ties`."""

MAX_SUPPORT = Bounds().max_support

OF_SEARCH = Bounds(max_support=2**14, max_sweeps=200, max_work=2e7)
"""Bounds of each model in a search, which fits hundreds of models."""

# Number of candidate interactions of a search: those with the largest gains (see `gains`).
_CANDIDATES = 45

NUM_SIMULATED = 2**14
"""Cells that are simulated from a forest, to represent the cells without records."""

NUM_DRAWS = 1000
"""Draws of tau_1 and tau_2 for their intervals."""

# Pairs of a shape and an exponent with less posterior probability than this are left out.
_NEGLIGIBLE = 1e-10


@dataclass(frozen=True, eq=False)
@displayed
class LogLinearRisk:
    """A fitted log-linear model, and the risk of each non-empty cell under it.

    Examples
    --------
    >>> fitted = bnp.loglinear_risk(cells, structure="forest")
    >>> fitted.interactions
    (('age', 'education'),)
    """

    structure: str
    """Rule by which interactions were chosen: "independence", "two-way", "forest" or "search"."""
    interactions: tuple[tuple[str, str], ...]
    """Pairs of variables with a two-way interaction."""
    tau1: float
    """Expected number of sample uniques that are unique in the population."""
    tau2: float
    """Expected sum of 1 / F over sample uniques."""
    population_mean: np.ndarray
    """(D,) lambda_k of each non-empty cell."""
    risk: np.ndarray
    """(D,) E(1 / F | f)."""
    p_unique: np.ndarray
    """(D,) P(F = 1 | f)."""
    support: int
    """Number of cells, empty ones included, that were listed for the fit; 0 if none were needed."""
    sweeps: int
    """Number of sweeps of iterative proportional fitting; 0 if it was not needed."""
    discrepancy: float
    """Largest difference between a fitted and an observed margin, in units of the total."""
    ties: str = "off"
    """Whether the correction for overdispersion is "on" or "off"."""
    tau1_interval: tuple[float, float] | None = None
    """95% interval of the number of sample uniques that are unique in the population; None without
    the correction, because the fit alone gives no interval."""
    tau2_interval: tuple[float, float] | None = None
    """95% interval of the sum of 1 / F over sample uniques; None without the correction."""

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "tau_1": _with_interval(self.tau1, self.tau1_interval),
            "tau_2": _with_interval(self.tau2, self.tau2_interval),
            "ties": self.ties,
            "interactions": ", ".join(" x ".join(pair) for pair in self.interactions) or None,
            "cells listed": self.support or None,
        }
        return Shown(f"LogLinearRisk: {counted(len(self.risk), 'cell')}, {self.structure}", lines)


def loglinear_risk(
    cells: WeightedCells,
    *,
    structure: str = "two-way",
    ties: str = "off",
    max_support: int | None = None,
    key: jax.Array | None = None,
) -> LogLinearRisk:
    """Fit a log-linear model to a weighted sample, and evaluate the risk of its cells.

    Parameters
    ----------
    cells
        Non-empty cells of the sample, from `weighted_cells`. Without weights each record stands for
        N / n persons.
    structure
        "independence": main effects only. "two-way" (the default): all two-way interactions.
        "forest": the interactions along a forest, which is the tree of largest mutual information
        (Chow & Liu 1968, doi:10.1109/TIT.1968.1054142) without the edges that do not reduce
        Akaike's criterion. Its fit is in closed form and is the quickest. "search": the
        interactions that a forward selection by criterion B_1 of Skinner & Shlomo (2008) adds to
        the main effects; this takes seconds.
    ties
        "on": the counts of the population's cells may vary more than the model allows, by an amount
        that the cells of the sample determine (`bnp_models.risk.overdispersion`), and tau_1 and
        tau_2 have intervals. Only for a forest, for which the prior of this correction was
        estimated. On real populations this is the most accurate of these estimates; its intervals
        leave out that the forest may be wrong, and are too narrow for some samples of thousands of
        records (experiments/accuracy/risk_peers). "off" (the default): the risk is that of the
        model alone.
    max_support
        Largest number of cells that are listed for iterative proportional fitting. A search does
        not consider models that need more. Default: 2^22, in a search 2^14.
    key
        Key for the draws from which the intervals are computed. Default: ``jax.random.key(0)``.

    Raises
    ------
    ValueError
        If `structure` or `ties` is unknown, or `ties` is "on" and `structure` is not "forest".
    MicrodataError
        If all two-way interactions have more cells than `max_support`.

    Examples
    --------
    >>> fitted = bnp.loglinear_risk(cells, structure="independence")
    >>> fitted.risk.shape == cells.f.shape
    True
    >>> corrected = bnp.loglinear_risk(cells, structure="forest", ties="on")
    >>> low, high = corrected.tau2_interval
    >>> low <= corrected.tau2 <= high
    True
    """
    check_kind(WeightedCells, "loglinear_risk(cells)", cells=cells)
    check_choice(STRUCTURES, structure=structure)
    check_choice(TIES, ties=ties)
    if ties == "on" and structure != "forest":
        raise ValueError(
            'the correction for overdispersion (ties="on") was estimated for forests; choose '
            f'structure="forest" instead of {structure!r}, or ties="off"'
        )
    bounds = OF_SEARCH if structure == "search" else Bounds()
    if max_support is not None:
        bounds = bounds._replace(max_support=max_support)
    fitted = fit_structure(cells, structure, bounds)
    return fitted if ties == "off" else corrected(fitted, cells, key_or_default(key))


def fit_structure(cells: WeightedCells, structure: str, bounds: Bounds) -> LogLinearRisk:
    """Do the work of `loglinear_risk` within bounds.

    The discrepancy measures how closely iterative proportional fitting reached the margins.
    """
    codes, total = cells.codes, float(cells.weight.sum())
    weight = cells.weight / total
    fitter = Fitter(codes, weight, bounds)
    if structure in ("forest", "search"):
        of_pairs = gains(codes, weight, int(cells.f.sum()))
    if structure == "search":
        fitted = search(fitter, list(of_pairs)[:_CANDIDATES], cells.f, cells.phat, total)
    elif structure == "forest":
        fitted = fitter.fit(forest(of_pairs, codes.shape[1]))
    else:
        all_pairs = combinations(range(codes.shape[1]), 2)
        fitted = fitter.fit(all_pairs if structure == "two-way" else ())
    mean = total * fitted.share
    unseen = (1 - cells.phat) * mean
    risk, unique = poisson_reciprocal(cells.f, unseen), cells.f == 1
    p_unique = np.where(unique, np.exp(-unseen), 0.0)
    names = cells.table.schema.variables
    return LogLinearRisk(
        structure=structure,
        interactions=tuple((names[i], names[j]) for i, j in fitted.edges),
        tau1=float(p_unique.sum()),
        tau2=float(risk[unique].sum()),
        population_mean=mean,
        risk=risk,
        p_unique=p_unique,
        support=sum(len(block.share) for block, _ in fitted.parts if block.sweeps),
        sweeps=max(block.sweeps for block, _ in fitted.parts),
        discrepancy=max(block.discrepancy for block, _ in fitted.parts),
    )


def corrected(
    fitted: LogLinearRisk, cells: WeightedCells, key: jax.Array, prior: Prior = OF_FORESTS
) -> LogLinearRisk:
    """Correct a fitted model for overdispersion.

    The figures are means over the posterior of shape and exponent on its grid, without Monte Carlo
    error. Only the intervals, which also have the variation of the counts F, are drawn.
    """
    b, simulated = _probabilities(fitted, cells)
    posterior = OverdispersionPosterior(cells.f.astype(int), simulated, prior=prior)
    unseen, unique = (1 - cells.phat) * fitted.population_mean, cells.f == 1
    log_b, log_unseen = np.log(b[unique]), np.log(np.maximum(unseen[unique], 1e-300))
    risk, p_unique = np.zeros((2, len(b)))
    probabilities = posterior.probabilities(b[None])[0]
    for probability, shape, exponent in zip(probabilities, *GRID, strict=True):
        if probability < _NEGLIGIBLE:
            continue
        pair = Overdispersion(shape[None], exponent[None], posterior.num_records)
        # Expected numbers of unsampled persons take the place of probabilities of one person.
        r1, r2 = pair.record_risks(log_b[None], 1, log_unseen[None])
        p_unique[unique] += probability * r1[0]
        risk[unique] += probability * r2[0]
        shared = cells.f[~unique], b[None, ~unique], unseen[None, ~unique]
        risk[~unique] += probability * pair.expected_reciprocals(*shared)[0]
    rng = numpy_generator(key)
    taus = []
    for pair in posterior.draw(rng, b[None], NUM_DRAWS):
        joined = rng.poisson(pair.draw_probabilities(rng, b[None, unique], unseen[unique]))
        taus.append((np.sum(joined == 0), np.sum(1 / (1 + joined))))
    ends = np.quantile(taus, ENDS, axis=0, method="inverted_cdf")
    (low1, low2), (high1, high2) = ends.tolist()
    return dataclasses.replace(
        fitted, tau1=float(p_unique.sum()), tau2=float(risk[unique].sum()), risk=risk,
        p_unique=p_unique, ties="on", tau1_interval=(low1, high1), tau2_interval=(low2, high2),
    )  # fmt: skip


def _probabilities(fitted: LogLinearRisk, cells: WeightedCells) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that a record of the sample is in each of its cells, and in simulated others.

    The records that are simulated in cells of the sample are left out.
    """
    place = {name: j for j, name in enumerate(cells.table.schema.variables)}
    edges = [(place[i], place[j]) for i, j in fitted.interactions]
    fitter = Fitter(cells.codes, cells.f / cells.f.sum(), Bounds())
    of_sample = fitter.fit(edges)
    codes, b = of_sample.simulate(spread_evenly(NUM_SIMULATED, len(place)))
    cell = group_cells(np.concatenate([cells.codes, codes]), fitter.num_levels).record_cell
    seen, simulated = np.split(cell, [len(cells.codes)])
    return of_sample.share, b[~np.isin(simulated, seen)]


def _with_interval(estimate: float, interval: tuple[float, float] | None) -> str:
    """An estimate, and its 95% interval if it has one."""
    if interval is None:
        return f"{estimate:.4g}"
    return f"{estimate:.4g} (95% interval {interval[0]:,.4g} to {interval[1]:,.4g})"


def check_support(cells: WeightedCells, max_support: int = MAX_SUPPORT) -> None:
    """Check that `loglinear_risk` with two-way interactions would not list too many cells.

    Parameters
    ----------
    cells
        Cells with weights, from `weighted_cells`.
    max_support
        Largest number of cells that may be listed.

    Raises
    ------
    MicrodataError
        If there are more than `max_support`.

    Examples
    --------
    >>> bnp.risk.check_support(cells)
    """
    list_cells(cells.codes, combinations(range(cells.codes.shape[1]), 2), max_support)
