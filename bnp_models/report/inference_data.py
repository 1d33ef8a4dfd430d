"""Draws of a run and its risk for ArviZ, and the records at risk as a file."""

from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.microdata import Microdata
from bnp_models.data.writing import write_table
from bnp_models.inference.arviz import arrange_draws, numbered
from bnp_models.inference.run import RecordsRun, Run, is_of_records, shape_of_draws
from bnp_models.inference.weighting import sample_law
from bnp_models.risk.evaluator import cell_probabilities, checked_method, checked_model
from bnp_models.risk.population import PopulationRisk
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
    """Arrange the draws for ArviZ, in the groups that its functions look for.

    ``az.summary`` and ``az.plot_trace`` read "posterior"; ``az.loo`` and ``az.compare`` need
    `pointwise`, and ``az.plot_ppc`` (``plot_ppc_dist`` of ArviZ 1.x) needs `checks`.

    Parameters
    ----------
    run
        Chains.
    risk
        A risk whose tau1, tau2, conditional expectations, log_likelihood and parameters of the
        correction for overdispersion are added. Everything is then thinned to the draws for which
        the risk was computed.
    parameters
        Include arrays such as g0 and theta, which take 20 kB or more for each draw. Their axes are
        named: "variable_level" has labels such as "age=0-14", and "component" or "latent_class" has
        numbers.
    seed
        Recorded in the attributes, with digests of the sample and of the conditions.
    num_datasets
        Number of data sets made from these draws, recorded too.
    method
        How `synthesize` made them, recorded too.
    checks
        Result of `predictive_checks`: adds the figures of the replicates as a group
        "posterior_predictive", and those of the sample as "observed_data": the numbers of cells
        with 1, 2 and 3 records ("cells_with_1", ..), the distance of each two-way table, and the
        records in each feasible box. ArviZ takes the values along an axis as draws of one quantity:
        add ``flatten=[]`` to plot the tables or the boxes one by one.
    pointwise
        Add a group "log_likelihood", which ArviZ's ``loo`` and ``compare`` read: for each record,
        the log probability of its cell, with labels integrated out; under structural zeros, this is
        the probability among the feasible cells. One number a record and draw; the variable
        "record" has the axis row, as in ``records.csv``.

    Returns
    -------
    data
        `arviz.InferenceData` on ArviZ 0.2x, an xarray `DataTree` on 1.x; groups "posterior" and
        "sample_stats", dimensions chain and draw, and "constant_data": the numbers of records and
        of the population, and the variable and the level of each label "age=0-14". Where a model's
        arrays are kept of fewer draws, and no `risk` is given, they are a group "parameters", whose
        coordinate draw has the indices of those draws. Of a run with `keep_warmup` there are
        "warmup_posterior" and "warmup_sample_stats" too. The variable total_log_likelihood of
        "posterior" is the run's log_likelihood: the sum over records, which chains are monitored
        by. No group holds the values of a record.

        Attributes of each group record how it was made: model, settings, versions,
        "inference_library", and "created_at", the time of this call. `write_netcdf` leaves the time
        out, so that a run that is repeated or resumed gives the same file.

    Examples
    --------
    >>> data = bnp.to_inference_data(run, risk)
    >>> data["posterior"]["tau1"].shape
    (2, 20)
    """
    check_kind(Run, "to_inference_data(run)", run=run)
    quantities: dict[str, np.ndarray] = {}
    attributes: dict[str, int | str] = {}
    if risk is not None:
        quantities = {name: vars(risk)[name] for name in _OF_RISK}
        if risk.overdispersion is not None:
            quantities |= {
                "tie_shape": risk.overdispersion.shape,
                "tie_exponent": risk.overdispersion.exponent,
            }
        attributes["population_size"] = risk.population_size
    if seed is not None:
        attributes["seed"] = seed
    if num_datasets is not None:
        attributes["num_datasets"] = num_datasets
    if method is not None:
        attributes["method"] = method
    thin = 1 if risk is None else risk.thin
    groups = {} if checks is None else _figures_of_checks(checks)
    if pointwise:
        checked_model(run.model)
        assert is_of_records(run)
        groups["log_likelihood"] = _pointwise(run, thin)
    return arrange_draws(
        run, quantities, attributes, thin=thin, parameters=parameters, groups=groups,
        constants={} if risk is None else {"population_size": risk.population_size},
    )  # fmt: skip


def _figures_of_checks(checks: PredictiveChecks) -> dict[str, Any]:
    """Figures of the replicates and of the sample, under one name, as ArviZ compares them."""
    import xarray as xr

    pairs = {f"{first}, {second}": check for (first, second), check in checks.pairs.items()}
    figures: dict[str, tuple[str, dict]] = {
        "table_distance": ("pair", pairs),
        "records_in_box": ("box", checks.boxes),
    }
    replicated, observed = xr.Dataset(), xr.Dataset()
    for number, check in checks.cells.items():
        replicated[f"cells_with_{number}"] = ("chain", "draw"), check.replicated
        observed[f"cells_with_{number}"] = check.observed
    for name, (axis, of) in figures.items():
        if of:
            values = np.stack([check.replicated for check in of.values()], axis=-1)
            replicated[name] = (("chain", "draw", axis), values)
            observed[name] = (axis, [check.observed for check in of.values()])
            observed = observed.assign_coords({axis: list(of)})
    replicated = numbered(replicated.assign_coords(observed.coords))
    return {"posterior_predictive": replicated, "observed_data": observed}


def _pointwise(run: RecordsRun, thin: int):
    """Log probabilities of the records' cells, at every `thin`-th draw: (chains, draws, n)."""
    import xarray as xr

    run = sample_law(run)
    method = checked_method("auto", run.model, run.table)
    assert isinstance(run.table, Microdata)
    draws, cells = run.parameters(thin), run.table.cells()
    blocks = cell_probabilities(run, draws, cells.codes, method, run.key)
    log_p = np.concatenate([log_p.astype(np.float32) for log_p, _, _ in blocks])
    log_p = log_p.reshape(*shape_of_draws(draws), -1)[..., cells.record_cell]
    return numbered(xr.Dataset({"record": (("chain", "draw", "row"), log_p)}))


def write_records(
    risk: PopulationRisk,
    path: str | PathLike,
    ids: pd.Series | None = None,
    *,
    beside: pd.DataFrame | None = None,
    bom: bool = False,
    first_row: int = 0,
) -> None:
    """Write `PopulationRisk.records`, riskiest first, as `write_table` writes.

    Parameters
    ----------
    risk
        Result of `population_risk`.
    path
        The file.
    ids
        (n,) identifiers of the sample's records, named as their column is to be.
    beside
        (n, any) more columns of the sample's records, which are put last.
    bom
        Begin with a byte order mark.
    first_row
        Number of the first record of the sample in the column "row".

    Examples
    --------
    >>> bnp.io.write_records(risk, "records.csv")
    >>> len(pd.read_csv("records.csv")) == len(risk.rows)
    True
    """
    check_kind(PopulationRisk, "write_records(risk, path)", risk=risk)
    frame = risk.records()
    if ids is not None:
        frame.insert(1, ids.name, ids.to_numpy(object)[frame["row"]])
    if beside is not None:
        frame[list(beside)] = beside.to_numpy()[frame["row"]]
    frame["row"] += first_row
    write_table(frame, path, ("r1", "r2"), bom=bom)
