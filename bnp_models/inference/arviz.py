"""ArviZ, loaded late: groups of draws as InferenceData or DataTree, and netCDF files."""

import functools
import importlib
import importlib.metadata
import json
import os
import tempfile
import warnings
from dataclasses import fields
from os import PathLike
from typing import Any
from unittest import mock

import jax
import numpy as np

from bnp_models.data.weight_classes import WeightedMicrodata
from bnp_models.data.writing import replacing
from bnp_models.version import __version__

# Quantities of the sweep rather than of the posterior.
SAMPLE_STATS = (
    "tables", "log_likelihood_items", "left_over", "last_class", "augmented", "accepted_levels",
    "accepted_splits", "accepted_tilts", "accepted_trajectories", "last_member_class",
)  # fmt: skip


@functools.cache
def load_arviz():
    """Import ArviZ without its once-a-day announcement of version 1."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        try:
            return importlib.import_module("arviz")
        except OSError:
            # ArviZ 0.23 notes the day in the user's cache folder and fails where there is none.
            with (
                tempfile.TemporaryDirectory() as folder,
                mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder}),
            ):
                return importlib.import_module("arviz")


def has_data_trees() -> bool:
    """Whether this ArviZ, of version 1 or later, keeps draws in an xarray DataTree."""
    return int(load_arviz().__version__.split(".")[0]) >= 1


def origin(run: Any) -> dict[str, str]:
    """Digests of the sample and of the conditions of a run, and its model's options.

    And "weighted" where the sample has design weights.
    """
    options = {field.name: vars(run.model)[field.name] for field in fields(run.model)}

    def plain(value):
        arrays = np.ndarray | np.generic | jax.Array
        return np.asarray(value).tolist() if isinstance(value, arrays) else str(value)

    weighted = isinstance(run.table, WeightedMicrodata)
    return ({"weighted": "yes"} if weighted else {}) | {
        "sample_sha256": run.table.digest,
        "conditions_sha256": "" if run.conditions is None else run.conditions.digest,
        "options": json.dumps(options, default=plain),
    }


def groups_for_arviz(groups: dict[str, dict[str, np.ndarray]], attributes: dict):
    """Arrays (chains, draws, ..) by group and name, as this ArviZ has them.

    Empty groups are left out; versions are added to the attributes.
    """
    az = load_arviz()
    groups = {name: group for name, group in groups.items() if group}
    with warnings.catch_warnings():
        # ArviZ warns of fewer draws than chains, which `warnings_of` says better.
        warnings.simplefilter("ignore", UserWarning)
        if has_data_trees():
            data = az.from_dict(groups)
        else:
            data = az.from_dict(**groups)
    attributes = {"inference_library": "bnp-models"} | attributes
    attributes |= {f"{name}_version": version for name, version in versions().items()}
    # Replaced, not updated: ArviZ's own attributes hold the time.
    for name in groups:
        data[name].attrs = dict(attributes)
    return data


def arrange_draws(
    run: Any,
    quantities: dict[str, np.ndarray] | None = None,
    attributes: dict[str, Any] | None = None,
    *,
    thin: int = 1,
    parameters: bool = False,
    groups: dict[str, dict[str, np.ndarray]] | None = None,
):
    """Draws of a `Run`, and more quantities of the posterior, as this ArviZ has them.

    Parameters
    ----------
    quantities
        Arrays (chains, draws) by name, evaluated at every `thin`-th of the draws of which arrays
        were kept; all else is then kept of these draws.
    attributes
        Recorded besides the model, the settings, and the digests of sample and conditions.
    thin
        See `quantities`; 1 without these.
    parameters
        Include arrays such as g0 and theta: in a group "parameters" of their own, whose coordinate
        draw has the indices of their draws, where they are kept of fewer.
    groups
        More groups of arrays by name.
    """
    every = run.settings.parameters_every
    chosen = {
        name: values
        for name, values in run.draws.items()
        if values.ndim == 2 or (parameters and every == 1)
    }
    if quantities:
        chosen = {name: run.at_kept_arrays(values, thin) for name, values in chosen.items()}
    posterior = {name: values for name, values in chosen.items() if name not in SAMPLE_STATS}
    all_groups = {
        "posterior": posterior | (quantities or {}),
        "sample_stats": {name: values for name, values in chosen.items() if name in SAMPLE_STATS},
        **(groups or {}),
    }
    attributes = {
        "model": run.model.name,
        "num_warmup": run.settings.num_warmup + run.settings.num_discarded,
        "thin": run.settings.thin * thin,
        **origin(run),
        **(attributes or {}),
    }
    data = groups_for_arviz(all_groups, attributes)
    if parameters and every > 1:
        arrays = {name: values for name, values in run.draws.items() if values.ndim > 2}
        group = groups_for_arviz({"posterior": arrays}, attributes)["posterior"]
        draws = every * np.arange(1, group.sizes["draw"] + 1) - 1
        if has_data_trees():
            data["parameters"] = group.assign_coords(draw=draws)
        else:
            data.add_groups({"parameters": group.assign_coords(draw=draws)})
    return data


def versions() -> dict[str, str]:
    """Versions of the packages that the draws depend on, by name."""
    others = {name: importlib.metadata.version(name) for name in ("jax", "numpy", "arviz")}
    return {"bnp_models": __version__} | others


def write_netcdf(data, path: str | PathLike) -> None:
    """Write the result of `to_inference_data`; the same draws give the same bytes."""
    with replacing(path) as partial:
        data.to_netcdf(str(partial), engine="h5netcdf")
