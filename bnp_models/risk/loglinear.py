"""Baseline: the risk of cells under a Poisson log-linear model, of Skinner & Shlomo.

    F_k ~ Poisson(lambda_k),  f_k | F_k ~ Binomial(F_k, phat_k),  log lambda_k additive in main
    effects (order 1) or also in two-way interactions (order 2)

so that F_k - f_k | f_k ~ Poisson((1 - phat_k) lambda_k) (Skinner & Shlomo 2008,
doi:10.1198/016214507000001328, sections 2 and 3). lambda_k is a mean of population counts: margins
of the *weighted* sample are fitted, which add up to N, and only the unsampled share is random.

A fitted table is zero in every cell of which some two-way margin is zero. The others are listed
variable by variable, so that the full grid is never formed.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bnp_models.data.arguments import check_kind
from bnp_models.data.cells import group_cells
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.margins import joint_codes, rake_once
from bnp_models.data.schema import MicrodataError
from bnp_models.data.weights import WeightedCells

MAX_SUPPORT = 2**22
_TOLERANCE = 1e-6
_MAX_SWEEPS = 2000


@dataclass(frozen=True, eq=False)
@displayed
class LogLinearRisk:
    """A fitted log-linear model, and the risk of each non-empty cell under it.

    Examples
    --------
    >>> fitted = bnp.loglinear_risk(cells, order=1)
    >>> bool(((0 < fitted.risk) & (fitted.risk <= 1)).all())
    True
    """

    order: int
    """1 for main effects, 2 for two-way interactions too."""
    population_mean: np.ndarray
    """(D,) lambda_k of each non-empty cell."""
    risk: np.ndarray
    """(D,) E(1 / F | f)."""
    p_unique: np.ndarray
    """(D,) P(F = 1 | f)."""
    support: int
    """Cells with a positive fitted mean, empty ones included; 0 where they were not listed."""
    sweeps: int
    """Sweeps of iterative proportional fitting; 0 where there was no need of it."""
    discrepancy: float
    """Largest difference between a fitted and an observed margin, in units of the total."""

    def _shown(self) -> Shown:
        """What is shown of it."""
        lines = {
            "largest E(1 / F)": f"{self.risk.max():.4g}",
            "largest P(F = 1)": f"{self.p_unique.max():.4g}",
            "cells that can occur": self.support or None,
        }
        what = "two-way interactions" if self.order == 2 else "main effects"
        return Shown(f"LogLinearRisk: {counted(len(self.risk), 'cell')} by {what}", lines)


def loglinear_risk(
    cells: WeightedCells, *, order: int = 2, max_support: int = MAX_SUPPORT
) -> LogLinearRisk:
    """Fit a log-linear model to a weighted sample, and evaluate the risk of its cells.

    Parameters
    ----------
    cells
        Non-empty cells of the sample, from `weighted_cells`. Without weights each record stands for
        N / n persons.
    order
        1: main effects, in closed form. 2: main effects and all two-way interactions, by iterative
        proportional fitting over the cells all of whose two-way margins are positive.
    max_support
        Refuse to list more cells than this.

    Raises
    ------
    MicrodataError
        If there are more cells than `max_support`.

    Examples
    --------
    >>> fitted = bnp.loglinear_risk(cells, order=1)
    >>> fitted.risk.shape == cells.f.shape
    True
    """
    check_kind(WeightedCells, "loglinear_risk(cells)", cells=cells)
    if order not in (1, 2):
        raise ValueError(f"order is 1 or 2, not {order}")
    codes, weight = cells.codes, cells.weight / cells.weight.sum()
    support = sweeps = 0
    discrepancy = 0.0
    if order == 1 or codes.shape[1] == 1:
        share = _independent_shares(codes, weight)
    else:
        listed = _support(codes, max_support)
        fitted, sweeps, discrepancy = _fit_two_way(listed, codes, weight)
        support = len(listed)
        share = fitted[_positions(codes, listed)]
    mean = cells.weight.sum() * share
    unseen = (1 - cells.phat) * mean
    return LogLinearRisk(
        order=order,
        population_mean=mean,
        risk=poisson_reciprocal(cells.f, unseen),
        p_unique=np.where(cells.f == 1, np.exp(-unseen), 0.0),
        support=support,
        sweeps=sweeps,
        discrepancy=discrepancy,
    )


def check_support(cells: WeightedCells, max_support: int = MAX_SUPPORT) -> None:
    """Check that `loglinear_risk` with two-way interactions would not list too many cells.

    Raises
    ------
    MicrodataError
        If there are more than `max_support`.

    Examples
    --------
    >>> bnp.check_support(cells)
    """
    _support(cells.codes, max_support)


def poisson_reciprocal(f: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Evaluate E 1 / (f + X), X ~ Poisson(mean), to 1e-12 of its value.

    Parameters
    ----------
    f
        (D,) at least 1.
    mean
        (D,) at least 0; it may be 1e8.

    Notes
    -----
    The integral over s > 0 of exp(-f s - mean (1 - exp(-s))), in log s by the trapezoidal rule.
    """
    f, mean = np.asarray(f, float), np.asarray(mean, float)
    rate = f + mean
    # s times the rate of decay at 0, so that the same nodes do for all.
    low, high = -36.0, np.log(40.0 * rate / f)
    fraction = np.linspace(0, 1, 480)[:, None]
    log_s = low + (high - low) * fraction
    s = np.exp(log_s) / rate
    value = np.exp(-f * s + mean * np.expm1(-s)) * s
    spacing = (high - low) / (len(fraction) - 1)
    # Left of the first node the integrand is exp(log s), which adds up to half of the first term
    # and to exp(-36) of the whole: nothing.
    return spacing * value.sum(axis=0)


def _independent_shares(codes, weight):
    """Product of the shares of each cell's levels."""
    share = np.ones(len(codes))
    for column in codes.T:
        share *= np.bincount(column, weight)[column]
    return share


def _positions(codes, listed):
    """Position of each cell among those listed."""
    both = group_cells(np.concatenate([listed, codes]), codes.max(axis=0) + 1).record_cell
    position = np.empty(both.max() + 1, int)
    position[both[: len(listed)]] = np.arange(len(listed))
    return position[both[len(listed) :]]


def _support(codes, max_support):
    """Cells whose two-way margins are all positive, in lexicographic order."""
    num_levels = codes.max(axis=0) + 1
    listed = np.unique(codes[:, 0])[:, None].astype(np.int32)
    for j in range(1, codes.shape[1]):
        keep = np.ones((len(listed), num_levels[j]), bool)
        for i in range(j):
            seen = np.zeros((num_levels[i], num_levels[j]), bool)
            seen[codes[:, i], codes[:, j]] = True
            keep &= seen[listed[:, i]]
        rows, levels = np.nonzero(keep)
        if len(rows) > max_support:
            raise MicrodataError(
                f"a log-linear model with two-way interactions has more than {max_support} cells "
                "of positive mean; choose fewer variables or levels, or main effects only"
            )
        listed = np.concatenate([listed[rows], levels[:, None].astype(np.int32)], axis=1)
    return listed


def _fit_two_way(listed, codes, weight):
    """Fit all two-way margins by iterative proportional fitting.

    Returns
    -------
    fitted
        Share of each cell listed.
    sweeps, discrepancy
        As `LogLinearRisk` has them.
    """
    num_levels = codes.max(axis=0) + 1
    margins = []
    for i, j in combinations(range(codes.shape[1]), 2):
        sizes = num_levels[[i, j]]
        seen, where = (joint_codes([x[:, i], x[:, j]], sizes) for x in (codes, listed))
        margins.append((where, np.bincount(seen, weight, minlength=sizes.prod())))
    fitted = np.full(len(listed), 1 / len(listed))
    sweep, discrepancy = 0, np.inf
    while sweep < _MAX_SWEEPS and discrepancy >= _TOLERANCE:
        sweep += 1
        fitted, away = rake_once(fitted, margins)
        discrepancy = float(max(x.max() for x in away))
    return fitted, sweep, discrepancy
