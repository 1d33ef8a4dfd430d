"""Runs read from the folders that `Run.save` writes, and from netCDF files of their draws."""

import warnings
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bnp_models.data.frames import Tabular
from bnp_models.inference.arviz import origin, read_draws, versions
from bnp_models.inference.checkpoint import Checkpoint, CheckpointError, Saved
from bnp_models.inference.run import Run, names_of_draw
from bnp_models.inference.sampling import check_input, coded_input
from bnp_models.inference.saving import EARLY, INPUT, SAVED, as_key, made_of, saved_part
from bnp_models.inference.trace import Settings
from bnp_models.models.model import ConditionsT, DataT, InfoT, Model, StateT, TableT
from bnp_models.models.options import typed_key
from bnp_models.rules.rules import Rules
from bnp_models.zeros.structural_zeros import StructuralZeros


@overload
def load_run(
    path: str | PathLike,
    model: None = None,
    table: Tabular | None = None,
    conditions: StructuralZeros | Rules | pd.DataFrame | None = None,
    *,
    key: None = None,
) -> Run: ...


@overload
def load_run(
    path: str | PathLike,
    model: Model[TableT, ConditionsT, DataT, StateT, InfoT],
    table: Tabular | None = None,
    conditions: StructuralZeros | Rules | pd.DataFrame | None = None,
    *,
    key: jax.Array | None = None,
) -> Run[TableT, ConditionsT]: ...


def load_run(
    path: str | PathLike,
    model: Model | None = None,
    table: Tabular | None = None,
    conditions: StructuralZeros | Rules | pd.DataFrame | None = None,
    *,
    key: jax.Array | None = None,
) -> Run:
    """Read a run that `Run.save` wrote; it can be continued, evaluated and diagnosed like the run.

    Parameters
    ----------
    path
        The folder; or a netCDF file of ``bnp.io.write_netcdf(run.to_inference_data(parameters=
        True), path)`` or of `bnp-models synthesize`. A run from such a file cannot be continued,
        because the file has no states of chains.
    model, table, conditions
        As they were given to `sample`. A folder has them, except for what `Run.save` cannot write:
        models of a user's own class, rules that are Python functions, and samples with unusual
        labels. A file does not have them.
    key
        Only for a file: a key for functions that compute something from the draws.

    Returns
    -------
    run
        The run, without its target (`Run.until`).

    Raises
    ------
    CheckpointError
        If there is no saved run, a file is damaged, or the run has another model, sample or
        conditions than are given.
    ValueError
        If the model, the sample or the conditions must be given, a netCDF file lacks arrays of the
        model, or a key is missing or not needed.

    Warns
    -----
    UserWarning
        If the run was saved with other versions, with which further draws may be rounded
        differently.

    Examples
    --------
    >>> run.save("chains")
    >>> again = bnp.load_run("chains")
    >>> bnp.extend(again, 10).draws["alpha"].shape
    (2, 30)
    """
    key = None if key is None else typed_key(key)
    if (key is None) == Path(path).is_file():
        raise ValueError(
            f"{path}: the draws of a netCDF file need a key, such as key=jax.random.key(0)"
            if key is None else f"{path}: a saved run has its own key; leave out key"
        )  # fmt: skip
    if key is not None:
        if model is None or table is None:
            raise ValueError(
                f"{path}: a netCDF file has neither the model nor the sample; give load_run(path, "
                "model, table, key=...)"
            )
        return _of_netcdf(path, *_checked(model, table, conditions), key)
    saved = Checkpoint(path, SAVED).load()
    if saved is None:
        raise CheckpointError(f"{path}: has no saved run; write one with run.save({str(path)!r})")
    _warn_of_versions(path, saved.progress["versions"])
    return _of_folder(path, saved, {"model": model, "sample": table, "conditions": conditions})


def _checked(model: Model, table: Tabular, conditions: Any) -> tuple[Model, Any, Any]:
    """Model, coded sample and coded conditions, after checking that they fit."""
    coded, limits = coded_input("load_run(path, model, table)", model, table, conditions)
    check_input(model, coded, limits)
    return model, coded, limits


def _warn_of_versions(path: str | PathLike, saved: dict[str, str]) -> None:
    """Warn if a run was saved with other versions of packages than the present ones."""
    now = versions()
    if others := [f"{name} {x}" for name, x in saved.items() if now.get(name) != x]:
        warnings.warn(
            f"{path}: saved with {', '.join(others)}; further draws may be rounded differently",
            stacklevel=3,
        )


def _of_folder(path: str | PathLike, saved: Saved, given: dict[str, Any]) -> Run:
    """Run of a folder; parts of the input that are not given are those that the folder has."""
    entries, (draws,) = saved.progress, saved.segments
    model, table, conditions = _checked(*(
        saved_part(path, name, entries["input"], draws) if value is None else value
        for name, value in given.items()
    ))  # fmt: skip
    for name, value in made_of(model, table, conditions).items():
        if entries["made_of"][name] != value:
            raise CheckpointError(
                f"{path}: the {name} of the saved run is another than the one that is given"
                + (f": {entries['made_of'][name]}" if name == "model" else "")
            )
    own_key, of_sampling = map(as_key, entries["keys"])
    assert own_key is not None
    other = (EARLY, INPUT)
    return Run(
        model=model,
        table=table,
        settings=_settings(entries["settings"]),
        draws={name: x for name, x in draws.items() if not name.startswith(other)},
        key=own_key,
        state=_state(model, table, conditions, entries["capacity"], saved.state),
        capacity=entries["capacity"],
        growth=tuple((sweep, capacity) for sweep, capacity in entries["growth"]),
        conditions=conditions,
        seconds=entries["seconds"],
        device=entries["device"],
        origin=of_sampling,
        warmup_draws={
            name.removeprefix(EARLY): x for name, x in draws.items() if name.startswith(EARLY)
        },
    )


def _settings(entries: dict[str, Any]) -> Settings:
    """Settings, in which JSON has lists for tuples."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in entries.items()
    }
    return Settings(**values)


def _state(model, table, conditions, capacity, leaves):
    """State of the chains from its leaves; the model gives the structure."""
    if not leaves:
        # A run that was made of a netCDF file has no states.
        return None
    data = model.prepare(table, conditions)
    init = partial(model.init, capacity=capacity, num_components=jnp.int32(1))
    shapes = jax.eval_shape(lambda key: init(key, data), jax.random.key(0))
    return jax.tree.unflatten(jax.tree.structure(shapes), [jnp.asarray(leaf) for leaf in leaves])


def _of_netcdf(path, model, table, conditions, key) -> Run:
    """Run of the draws in a file, after checking that they are of this model and sample."""
    draws, every, attributes = read_draws(path)
    run = run_of_draws(model, table, conditions, draws, every, attributes, key)
    for name, value in origin(run).items():
        if attributes.get(name) != value:
            what = name.removesuffix("_sha256")
            raise CheckpointError(
                f"{path}: the {what} of the run are others than those that are given"
                if what.endswith("s")
                else f"{path}: the {what} of the run is another than the one that is given"
            )
    return run


def run_of_draws(
    model: Model,
    table: Any,
    conditions: Any,
    draws: dict[str, np.ndarray],
    every: int,
    attributes: dict[str, Any],
    key: jax.Array,
) -> Run:
    """Run without states, of draws that `read_draws` has read.

    Raises
    ------
    ValueError
        If the draws lack an array that the model uses.
    """
    known = model.scalars + model.parameters + model.hyperparameters
    if missing := [name for name in names_of_draw(model) if name not in draws]:
        raise ValueError(
            f"it has no {missing[0]!r}, which only to_inference_data(run, parameters=True) includes"
        )
    draws = {name: x for name, x in draws.items() if name in known}
    num_chains, num_samples = next(x.shape for x in draws.values() if x.ndim == 2)
    return Run(
        model=model,
        table=table,
        settings=Settings(
            num_chains, int(attributes["num_warmup"]), num_samples, int(attributes["thin"]),
            tuple(draws), (1,), every,
        ),
        draws=draws,
        key=key,
        state=None,
        capacity=draws["g0"].shape[-1] if "g0" in draws else model.capacity,
        growth=(),
        conditions=conditions,
        seconds={"compile": 0.0, "warmup": 0.0, "draws": 0.0},
    )  # fmt: skip
