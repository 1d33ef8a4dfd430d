"""Draws of a run and its risk for ArviZ, and the records at risk as a file."""

from os import PathLike

import numpy as np

from bnp_models.data.writing import write_frame
from bnp_models.inference.arviz import groups_for_arviz, has_data_trees, origin
from bnp_models.inference.run import Run
from bnp_models.risk.population import PopulationRisk

# Quantities of the sweep rather than of the posterior.
SAMPLE_STATS = (
    "tables", "log_likelihood_items", "left_over", "last_class", "augmented", "accepted_levels",
    "accepted_splits", "accepted_tilts", "accepted_trajectories", "last_member_class",
)  # fmt: skip

_OF_RISK = ("tau1", "tau1_conditional", "tau2", "log_likelihood")


def to_inference_data(
    run: Run,
    risk: PopulationRisk | None = None,
    *,
    parameters: bool = False,
    seed: int | None = None,
    num_datasets: int | None = None,
):
    """Arrange the draws for ArviZ.

    Parameters
    ----------
    run
        Chains.
    risk
        Adds tau1, tau1_conditional, tau2 and log_likelihood; everything is then thinned to the
        draws at which the risk was evaluated.
    parameters
        Include arrays such as g0 and theta: 20 kB a draw and more.
    seed
        Recorded in the attributes, with digests of the sample and of the conditions.
    num_datasets
        Number of data sets made from these draws, recorded too.

    Returns
    -------
    data
        `arviz.InferenceData` on ArviZ 0.2x, an xarray `DataTree` on 1.x; groups "posterior" and
        "sample_stats", dimensions chain and draw. Where a model's arrays are kept of fewer draws,
        they are a group "parameters", whose coordinate draw says of which.
    """
    thin = 1 if risk is None else risk.thin
    every = run.settings.parameters_every
    chosen = {
        name: values[:, ::thin]
        for name, values in run.draws.items()
        if values.ndim == 2 or (parameters and every == 1)
    }
    groups = {
        "posterior": {k: v for k, v in chosen.items() if k not in SAMPLE_STATS},
        "sample_stats": {k: v for k, v in chosen.items() if k in SAMPLE_STATS},
    }
    if risk is not None:
        groups["posterior"] |= {name: vars(risk)[name] for name in _OF_RISK}
    attributes = {
        "model": run.model.name,
        "num_warmup": run.settings.num_warmup,
        "thin": run.settings.thin * thin,
        **origin(run),
    }
    if risk is not None:
        attributes["population_size"] = risk.population_size
    if seed is not None:
        attributes["seed"] = seed
    if num_datasets is not None:
        attributes["num_datasets"] = num_datasets
    data = groups_for_arviz(groups, attributes)
    if parameters and every > 1:
        arrays = {name: values for name, values in run.draws.items() if values.ndim > 2}
        group = groups_for_arviz({"posterior": arrays}, attributes)["posterior"]
        draws = every * np.arange(1, group.sizes["draw"] + 1) - 1
        if has_data_trees():
            data["parameters"] = group.assign_coords(draw=draws)
        else:
            data.add_groups({"parameters": group.assign_coords(draw=draws)})
    return data


def write_records(risk: PopulationRisk, path: str | PathLike) -> None:
    """Write one row per sample unique, riskiest first; numbers read back as they were."""
    write_frame(risk.records(), path)
