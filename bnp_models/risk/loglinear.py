"""Baseline: the risk of cells under the Poisson log-linear model of Skinner & Shlomo.

    F_k ~ Poisson(lambda_k),  f_k | F_k ~ Binomial(F_k, phat_k),  log lambda_k additive in main
    effects, and in the two-way interactions that the structure of the model names

so that F_k - f_k | f_k ~ Poisson((1 - phat_k) lambda_k) (Skinner & Shlomo 2008,
doi:10.1198/016214507000001328, sections 2 and 3). lambda_k is the mean of a population count.
Therefore the margins of the *weighted* sample are fitted, which add up to N, and only the unsampled
share is random.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.weights import WeightedCells
from bnp_models.models.options import check_choice
from bnp_models.risk.interactions import Bounds, Fitter, forest, gains, list_cells, search
from bnp_models.risk.reciprocals import poisson_reciprocal

STRUCTURES = ("independence", "two-way", "forest", "search")

MAX_SUPPORT = Bounds().max_support

OF_SEARCH = Bounds(max_support=2**14, max_sweeps=200, max_work=2e7)
"""Bounds of each model in a search, which fits hundreds of models."""

# Number of candidate interactions of a search: those with the largest gains (see `gains`).
_CANDIDATES = 45


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

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "tau_1": f"{self.tau1:.4g}",
            "tau_2": f"{self.tau2:.4g}",
            "interactions": ", ".join(" x ".join(pair) for pair in self.interactions) or None,
            "cells listed": self.support or None,
        }
        return Shown(f"LogLinearRisk: {counted(len(self.risk), 'cell')}, {self.structure}", lines)


def loglinear_risk(
    cells: WeightedCells,
    *,
    structure: str = "two-way",
    max_support: int | None = None,
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
    max_support
        Largest number of cells that are listed for iterative proportional fitting. A search does
        not consider models that need more. Default: 2^22, in a search 2^14.

    Raises
    ------
    MicrodataError
        If all two-way interactions have more cells than `max_support`.

    Examples
    --------
    >>> fitted = bnp.loglinear_risk(cells, structure="independence")
    >>> fitted.risk.shape == cells.f.shape
    True
    """
    check_kind(WeightedCells, "loglinear_risk(cells)", cells=cells)
    check_choice(STRUCTURES, structure=structure)
    bounds = OF_SEARCH if structure == "search" else Bounds()
    if max_support is not None:
        bounds = bounds._replace(max_support=max_support)
    return fit_structure(cells, structure, bounds)


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
