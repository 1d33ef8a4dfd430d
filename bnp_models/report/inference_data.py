"""Draws of a run and its risk for ArviZ, and the records at risk as a file."""

from os import PathLike

import numpy as np
import pandas as pd

from bnp_models.data.writing import write_table
from bnp_models.inference.arviz import arrange_draws
from bnp_models.inference.run import Run
from bnp_models.inference.weighting import sample_law
from bnp_models.risk.population import (
    PopulationRisk,
    cell_probabilities,
    checked_method,
    checked_model,
)
from bnp_models.synthesis.predictive_checks import PredictiveChecks

_OF_RISK = ("tau1", "tau1_conditional", "tau2", "tau2_conditional", "log_likelihood")


def to_inference_data(
    run: Run,
    risk: PopulationRisk | None = None,
    *,
    parameters: bool = False,
    seed: int | None = None,
    num_datasets: int | None = None,
    method: str | None = None,
    checks: PredictiveChecks | None = None,
    pointwise: bool = False,
):
    """Arrange the draws for ArviZ.

    Parameters
    ----------
    run
        Chains.
    risk
        Adds tau1, tau2, their conditional expectations, log_likelihood and the parameters of the
        layer for ties; everything is then thinned to the draws at which the risk was evaluated.
    parameters
        Include arrays such as g0 and theta: 20 kB a draw and more.
    seed
        Recorded in the attributes, with digests of the sample and of the conditions.
    num_datasets
        Number of data sets made from these draws, recorded too.
    method
        How `synthesize` made them, recorded too.
    checks
        Result of `predictive_checks`: adds the numbers of cells with 1, 2 and 3 records, of the
        replicates in a group "posterior_predictive" and of the sample in "observed_data".
    pointwise
        Add a group "log_likelihood", which ArviZ's ``loo`` and ``compare`` read: of each record the
        log probability of its cell, labels integrated out, under structural zeros among the
        feasible cells. One number a record and draw.

    Returns
    -------
    data
        `arviz.InferenceData` on ArviZ 0.2x, an xarray `DataTree` on 1.x; groups "posterior" and
        "sample_stats", dimensions chain and draw. Where a model's arrays are kept of fewer draws,
        they are a group "parameters", whose coordinate draw has the indices of those draws.
    """
    quantities: dict[str, np.ndarray] = {}
    attributes: dict[str, int | str] = {}
    if risk is not None:
        quantities = {name: vars(risk)[name] for name in _OF_RISK}
        if risk.layer is not None:
            quantities |= {"tie_shape": risk.layer.shape, "tie_exponent": risk.layer.exponent}
        attributes["population_size"] = risk.population_size
    if seed is not None:
        attributes["seed"] = seed
    if num_datasets is not None:
        attributes["num_datasets"] = num_datasets
    if method is not None:
        attributes["method"] = method
    thin = 1 if risk is None else risk.thin
    groups = {}
    if checks is not None:
        replicated = np.stack([x.replicated for x in checks.cells.values()], axis=-1)
        groups["posterior_predictive"] = {"cells_with": replicated}
        groups["observed_data"] = {
            "cells_with": np.array([x.observed for x in checks.cells.values()])
        }
    if pointwise:
        groups["log_likelihood"] = {"record": _pointwise(run, thin)}
    return arrange_draws(
        run, quantities, attributes, thin=thin, parameters=parameters, groups=groups
    )


def _pointwise(run: Run, thin: int) -> np.ndarray:
    """(chains, draws, n) log probabilities of the records' cells, at every `thin`-th draw."""
    run = sample_law(run)
    method = checked_method("auto", checked_model(run.model), run.table)
    draws, cells = run.parameters(thin), run.table.cells()
    blocks = cell_probabilities(run, draws, cells.codes, method, run.key)
    log_p = np.concatenate([log_p.astype(np.float32) for log_p, _, _ in blocks])
    return log_p.reshape(*draws["alpha"].shape, -1)[..., cells.record_cell]


def write_records(
    risk: PopulationRisk,
    path: str | PathLike,
    ids: pd.Series | None = None,
    *,
    bom: bool = False,
) -> None:
    """Write one row per sample unique, riskiest first, as `write_table` writes.

    Parameters
    ----------
    risk
        Result of `population_risk`.
    path
        The file.
    ids
        (n,) identifiers of the sample's records, named as their column is to be.
    bom
        Begin with a byte order mark.
    """
    frame = risk.records()
    if ids is not None:
        frame.insert(1, ids.name, ids.to_numpy(object)[frame["row"]])
    write_table(frame, path, ("r1", "r2"), bom=bom)
