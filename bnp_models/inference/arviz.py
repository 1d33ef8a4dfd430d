"""Draws as ArviZ InferenceData or DataTree, and netCDF files; ArviZ is imported when needed."""

import functools
import importlib
import importlib.metadata
import io
import json
import os
import tempfile
import warnings
from dataclasses import fields
from datetime import UTC, datetime
from os import PathLike
from typing import Any
from unittest import mock

import jax
import numpy as np

from bnp_models.data.households import Households, persons_of
from bnp_models.data.microdata import Records
from bnp_models.data.schema import text_of
from bnp_models.data.weight_classes import DesignWeights
from bnp_models.data.writing import replacing
from bnp_models.version import __version__

# Quantities that describe a sweep and not the posterior.
SAMPLE_STATS = (
    "tables", "log_likelihood_items", "left_over", "last_class", "augmented", "accepted_levels",
    "accepted_splits", "accepted_tilts", "accepted_trajectories", "last_member_class",
)  # fmt: skip

# In InferenceData "log_likelihood" is the name of a group with a number for each record.
_IN_FILES = {"log_likelihood": "total_log_likelihood"}


@functools.cache
def load_arviz():
    """Import ArviZ without its once-a-day announcement of version 1."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        try:
            return importlib.import_module("arviz")
        except OSError:
            # ArviZ 0.23 writes the day into the user's cache folder and fails if there is no such
            # folder.
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

    If the sample has design weights, there is also an entry "weighted".
    """
    options = {field.name: vars(run.model)[field.name] for field in fields(run.model)}

    def plain(value):
        arrays = np.ndarray | np.generic | jax.Array
        return np.asarray(value).tolist() if isinstance(value, arrays) else str(value)

    weighted = isinstance(run.table, DesignWeights)
    return ({"weighted": "yes"} if weighted else {}) | {
        "sample_sha256": run.table.digest,
        "conditions_sha256": "" if run.conditions is None else run.conditions.digest,
        "options": json.dumps(options, default=plain),
    }


def draws_dataset(arrays: dict[str, np.ndarray], model: Any = None, levels: Any = None):
    """Arrays (chains, draws, ..) by name as an xarray Dataset, with the axis names of the model.

    Axes of levels have coordinates such as "age=0-14".

    Parameters
    ----------
    arrays
        By name.
    model
        Model whose `axes` names the axes after chain and draw. Without it, or for an array that it
        does not name, they are "theta_dim_0" and so on.
    levels
        Result of `Model.levels_of_axes` for the sample.
    """
    import xarray as xr

    named = {} if model is None else model.axes
    labels = {axis: _labels(variables) for axis, variables in (levels or {}).items()}
    dims: dict[str, tuple[str, ...]] = {}
    sizes: dict[str, int] = {}

    def axis_of(name: str, axis: str, size: int) -> str:
        """Name of an axis. Its name in the model is used if the axis has as many entries as labels.
        It may have more: the shapes of bands or groups of levels, and a level of absent items."""
        known = len(labels.get(axis, ()))
        if known in (0, size) and sizes.setdefault(axis, size) == size:
            return axis
        if not known:
            return f"{axis}_of_{name}"
        shared = f"{axis}_or_band"
        return shared if sizes.setdefault(shared, size) == size else f"{shared}_of_{name}"

    for name, values in arrays.items():
        axes = named.get(name, ())
        if len(axes) != values.ndim - 2:
            axes = tuple(f"{name}_dim_{i}" for i in range(values.ndim - 2))
        # If levels are in bands or groups, the shapes of bands or groups follow those of levels.
        of_values = (axis_of(name, *x) for x in zip(axes, values.shape[2:], strict=True))
        dims[name] = ("chain", "draw", *of_values)
    data = xr.Dataset({name: (dims[name], values) for name, values in arrays.items()})
    of_axes = {axis: of for axis, of in labels.items() if axis in data.sizes}
    return numbered(data.assign_coords(of_axes))


def _labels(variables: dict[str, tuple]) -> list[str]:
    """Labels of the levels of variables, one after the other."""
    return [f"{name}={text_of(level)}" for name, levels in variables.items() for level in levels]


def numbered(data: Any):
    """Dataset with the numbers from 0 along the axes that have no coordinate."""
    axes = {name: np.arange(size) for name, size in data.sizes.items() if name not in data.coords}
    return data.assign_coords(axes)


def groups_for_arviz(groups: dict[str, Any], attributes: dict[str, Any]):
    """Datasets by group in the type of the installed ArviZ: `InferenceData` or xarray `DataTree`.

    Empty groups are left out; versions and the time are added to the attributes of each.
    """
    attributes = {"inference_library": "bnp-models"} | attributes
    attributes |= {"inference_library_version": __version__}
    attributes |= {f"{name}_version": version for name, version in versions().items()}
    attributes |= {"created_at": datetime.now(UTC).isoformat()}
    return _assemble(
        {name: group.assign_attrs(attributes) for name, group in groups.items() if group.data_vars}
    )


def _assemble(groups: dict[str, Any]):
    """Datasets by group in the type of the installed ArviZ."""
    if not has_data_trees():
        return load_arviz().InferenceData(**groups)
    import xarray as xr

    return xr.DataTree.from_dict(groups)


def arrange_draws(
    run: Any,
    quantities: dict[str, np.ndarray] | None = None,
    attributes: dict[str, Any] | None = None,
    *,
    thin: int = 1,
    parameters: bool = False,
    groups: dict[str, Any] | None = None,
    constants: dict[str, int] | None = None,
):
    """Draws of a `Run` and other posterior quantities, in the type of the installed ArviZ.

    Parameters
    ----------
    quantities
        Arrays (chains, draws) by name, evaluated at every `thin`-th of the draws whose arrays were
        kept. All other quantities are then reduced to these draws.
    attributes
        Attributes to record in addition to the model, the settings, and the digests of the sample
        and of the conditions.
    thin
        See `quantities`; 1 without these.
    parameters
        Include arrays such as g0 and theta. If they were kept for fewer draws than scalars, and
        there are no `quantities`, they are in a group "parameters", whose coordinate draw has the
        indices of these draws.
    groups
        More groups, as Datasets, by name.
    constants
        Numbers for "constant_data", in addition to those of the sample.
    """
    every = run.settings.parameters_every
    levels = run.model.levels_of_axes(run.table, run.conditions)
    chosen = {
        name: values
        for name, values in run.draws.items()
        if values.ndim == 2 or (parameters and (every == 1 or quantities))
    }
    if quantities:
        chosen = {
            name: run.at_kept_arrays(values, thin) if values.ndim == 2 else values[:, ::thin]
            for name, values in chosen.items()
        }
    posterior, statistics = _by_kind(chosen | (quantities or {}))
    early_posterior, early_statistics = _by_kind(run.warmup_draws)
    all_groups = {
        "posterior": draws_dataset(posterior, run.model, levels),
        "sample_stats": draws_dataset(statistics),
        "warmup_posterior": draws_dataset(early_posterior),
        "warmup_sample_stats": draws_dataset(early_statistics),
        "constant_data": _constant_data(run.table, levels).assign(constants or {}),
    }
    if parameters and every > 1 and not quantities:
        arrays = {name: values for name, values in run.draws.items() if values.ndim > 2}
        group = draws_dataset(arrays, run.model, levels)
        draws = every * np.arange(1, group.sizes["draw"] + 1) - 1
        all_groups["parameters"] = group.assign_coords(draw=draws)
    attributes = {
        "model": run.model.name,
        "num_warmup": run.settings.num_warmup + run.settings.num_discarded,
        "thin": run.settings.thin * (every * thin if quantities else 1),
        **origin(run),
        **(attributes or {}),
    }
    return groups_for_arviz(all_groups | (groups or {}), attributes)


def _by_kind(draws: dict[str, np.ndarray]) -> tuple[dict, dict]:
    """Divide quantities into quantities of the posterior and quantities of sweeps."""
    return (
        {_IN_FILES.get(name, name): x for name, x in draws.items() if name not in SAMPLE_STATS},
        {name: values for name, values in draws.items() if name in SAMPLE_STATS},
    )


def _constant_data(table: Records | Households, levels: dict[str, dict[str, tuple]]):
    """Numbers of records and of households, and the variable and level of each label of axes.

    These are not coordinates of the arrays, because ArviZ 1.x cannot summarise a group in which
    only some arrays have coordinates.
    """
    import xarray as xr

    persons = persons_of(table)
    counts = {"num_records": persons.n} | ({} if persons is table else {"num_households": table.n})
    data = xr.Dataset(counts, {axis: _labels(of) for axis, of in levels.items()})
    for axis, of in levels.items():
        names = [name for name, labels in of.items() for _ in labels]
        texts = [text_of(label) for labels in of.values() for label in labels]
        data[axis.removesuffix("_level")] = axis, names
        data[axis.replace("variable_level", "level")] = axis, texts
    return data


def versions() -> dict[str, str]:
    """Versions of the packages that the draws depend on, by name."""
    others = {name: importlib.metadata.version(name) for name in ("jax", "numpy", "arviz")}
    return {"bnp_models": __version__} | others


def write_netcdf(data, path: str | PathLike) -> None:
    """Write the result of `to_inference_data`.

    The attribute `created_at` is left out, so that the same draws give a file with the same bytes.

    Parameters
    ----------
    data
        Result of `to_inference_data`.
    path
        Where the file is written.

    Examples
    --------
    >>> bnp.io.write_netcdf(bnp.to_inference_data(run, risk), "posterior.nc")
    """
    names = data.children if has_data_trees() else data.groups()
    groups = {}
    for name in names:
        group = data[name].to_dataset() if has_data_trees() else data[name]
        groups[name] = group.copy(deep=False)
        groups[name].attrs.pop("created_at", None)
    with replacing(path) as partial:
        partial.write_bytes(_netcdf(groups, data.attrs).getbuffer())


def _netcdf(groups: dict[str, Any], attributes: dict[str, Any]) -> io.BytesIO:
    """Make a file in memory, because HDF5 ends a process that cannot write (h5py issue 914)."""
    import h5netcdf
    import xarray as xr
    from xarray.backends import H5NetCDFStore

    file = io.BytesIO()
    with h5netcdf.File(file, "w") as root:
        xr.Dataset(attrs=attributes).dump_to_store(H5NetCDFStore(root, mode="a"))
        for name, group in groups.items():
            for variable in group.variables.values():
                if variable.dtype.kind in "fiu":
                    variable.encoding["zlib"] = True
            group.dump_to_store(H5NetCDFStore(root, group=name, mode="a"))
    return file


def read_draws(path: str | PathLike) -> tuple[dict[str, np.ndarray], int, dict[str, Any]]:
    """Read the draws from a file of `arrange_draws` that includes the parameters.

    Returns
    -------
    draws
        As `Run.draws`.
    every
        Interval at which arrays were kept.
    attributes
        Of the group "posterior".
    """
    import xarray as xr

    draws: dict[str, np.ndarray] = {}
    attributes: dict[str, Any] = {}
    every, of_runs = 1, {name: own for own, name in _IN_FILES.items()}
    for group in ("posterior", "sample_stats", "parameters"):
        try:
            with xr.open_dataset(path, group=group, engine="h5netcdf") as data:
                attributes = attributes or {str(name): x for name, x in data.attrs.items()}
                draws |= {
                    of_runs.get(str(name), str(name)): np.asarray(x) for name, x in data.items()
                }
                if group == "parameters":
                    every = int(data["draw"][0]) + 1
        except (OSError, ValueError, KeyError):
            # Only some runs have the last two attributes.
            if group == "posterior":
                raise
    return draws, every, attributes
