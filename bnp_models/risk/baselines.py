"""Classical estimates of the risk of a sample, for comparison with those of a model."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from bnp_models.data.microdata import Records
from bnp_models.data.schema import MicrodataError
from bnp_models.data.weight_classes import WeightedMicrodata
from bnp_models.data.weights import WeightedCells, weighted_cells
from bnp_models.risk.cells import benedetti_franconi_risk
from bnp_models.risk.interactions import Bounds
from bnp_models.risk.loglinear import OF_SEARCH, fit_structure

BENEDETTI_FRANCONI = "benedetti_franconi"

LOGLINEAR = {
    "loglinear_main": "independence", "loglinear_two_way": "two-way",
    "loglinear_forest": "forest", "loglinear_search": "search",
}  # fmt: skip
"""Structures of log-linear models by the names of the estimates."""

NAMES = (BENEDETTI_FRANCONI, *LOGLINEAR)

# Listing and fitting this many cells takes about a second.
_BOUNDS = Bounds(max_support=2**17, max_work=1e8)

# A search takes too long if cells times pairs of variables exceed this.
_MAX_SEARCHED = 2**18

# Largest error of a fitted margin, in records.
_TOLERATED = 0.1


class Baseline(NamedTuple):
    """A classical estimate."""

    name: str
    """One of `NAMES`."""
    tau1: float
    """Expected number of sample uniques that are unique in the population."""
    tau2: float
    """Expected sum of 1 / F over sample uniques."""
    risk: np.ndarray
    """(D,) E(1 / F | f) of each cell."""


class Baselines(NamedTuple):
    """Classical estimates of one sample."""

    found: tuple[Baseline, ...]
    left_out: dict[str, str]
    """Estimates that were left out, by name, with the reason."""

    def document(self) -> dict[str, Any]:
        """Entry "baselines" of risk.json and, if any was left out, "baselines_left_out"."""
        found = [{"name": x.name, "tau1": x.tau1, "tau2": x.tau2} for x in self.found]
        left_out = [{"name": name, "why": why} for name, why in self.left_out.items()]
        return {"baselines": found, **({"baselines_left_out": left_out} if left_out else {})}


def baseline_cells(table: Records, population_size: int) -> WeightedCells:
    """Cells of a sample, with its design weights if it has any."""
    if isinstance(table, WeightedMicrodata):
        return weighted_cells(table.records, population_size, table.weights)
    return weighted_cells(table, population_size)


@lru_cache(maxsize=1)
def baselines(cells: WeightedCells) -> Baselines:
    """Estimate the risk by Benedetti & Franconi, and by log-linear models of all structures.

    Estimates that would take longer than a few seconds are left out.
    """
    alone = cells.f == 1
    risk = benedetti_franconi_risk(cells)
    found = [
        Baseline(BENEDETTI_FRANCONI, float(cells.phat[alone].sum()), float(risk[alone].sum()), risk)
    ]
    left_out, num_variables = {}, cells.codes.shape[1]
    for name, structure in LOGLINEAR.items():
        pairs = num_variables * (num_variables - 1) // 2
        if structure == "search" and len(cells.f) * pairs > _MAX_SEARCHED:
            left_out[name] = "a search among so many cells and variables would take long"
            continue
        try:
            fitted = fit_structure(
                cells, structure, OF_SEARCH if structure == "search" else _BOUNDS
            )
        except MicrodataError as error:
            left_out[name] = str(error)
            continue
        if fitted.discrepancy * cells.f.sum() > _TOLERATED:
            left_out[name] = "iterative proportional fitting did not converge in the time it had"
            continue
        found.append(Baseline(name, fitted.tau1, fitted.tau2, fitted.risk))
    return Baselines(tuple(found), left_out)
