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
from unittest import mock

import numpy as np

from bnp_models.data.writing import replacing
from bnp_models.inference.run import Run
from bnp_models.version import __version__


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


def origin(run: Run) -> dict[str, str]:
    """What tells the sample of a run, its conditions and its model's options from others."""
    options = {field.name: getattr(run.model, field.name) for field in fields(run.model)}

    def plain(value):
        return value.tolist() if hasattr(value, "tolist") else str(value)

    return {
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
        if int(az.__version__.split(".")[0]) >= 1:
            data = az.from_dict(groups)
        else:
            data = az.from_dict(**groups)
    attributes = {"inference_library": "bnp-models"} | attributes
    attributes |= {f"{name}_version": version for name, version in versions().items()}
    # Replaced, not updated: ArviZ's own attributes hold the time.
    for name in groups:
        data[name].attrs = dict(attributes)
    return data


def versions() -> dict[str, str]:
    """Versions of what the draws depend on, by name."""
    found = {name: importlib.metadata.version(name) for name in ("jax", "numpy", "arviz")}
    return {"bnp_models": __version__} | found


def write_netcdf(data, path: str | PathLike) -> None:
    """Write what `to_inference_data` returned; the same draws give the same bytes."""
    with replacing(path) as partial:
        data.to_netcdf(str(partial), engine="h5netcdf")
