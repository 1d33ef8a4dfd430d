"""Runs as folders in the format of checkpoints, with the model, the sample and the conditions."""

from dataclasses import asdict
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.inference.arviz import versions
from bnp_models.inference.checkpoint import Checkpoint, CheckpointError
from bnp_models.inference.saved_input import Arrays, NotWritableError, as_json, from_json

SAVED = "saved run"
"""Fingerprint of the folders of whole runs, whose model and data are compared one by one."""

EARLY = "warm-up: "
"""Beginning of the names of draws of the warm-up."""

INPUT = "input: "
"""Beginning of the names of arrays of the model, the sample and the conditions."""


def made_of(model: Any, table: Any, conditions: Any) -> dict[str, str]:
    """What a run belongs to: the model with its options, and digests of sample and conditions."""
    return {
        "model": repr(model),
        "sample": table.digest,
        "conditions": "" if conditions is None else conditions.digest,
    }


def write_run(run: Any, path: str | PathLike) -> None:
    """Write a run into a folder; what cannot be written of its input is left out, with a reason."""
    of_input = {"model": run.model, "sample": run.table, "conditions": run.conditions}
    entries, arrays = _written_input(of_input)
    progress = {
        "input": entries,
        "made_of": made_of(run.model, run.table, run.conditions),
        "versions": versions(),
        "settings": asdict(run.settings),
        "keys": [None if key is None else _plain(key) for key in (run.key, run.origin)],
        "capacity": run.capacity,
        "growth": run.growth,
        "seconds": run.seconds,
        "device": run.device,
    }
    early = {f"{EARLY}{name}": values for name, values in run.warmup_draws.items()}
    leaves = [np.asarray(x) for x in jax.tree.leaves(run.state)]
    Checkpoint(path, SAVED).save(progress, leaves, run.draws | early | arrays)


def _written_input(of_input: dict[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """Parts of the input as JSON by name, and the arrays of all of them."""
    entries: dict[str, Any] = {}
    arrays: Arrays = {}
    for name, value in of_input.items():
        own: Arrays = {}
        try:
            entries[name] = {"value": as_json(value, own, f"{INPUT}{name} ")}
        except NotWritableError as error:
            entries[name] = {"left out": str(error)}
        else:
            arrays |= own
    return entries, arrays


def saved_part(path: str | PathLike, name: str, entries: dict[str, Any], arrays: Arrays) -> Any:
    """Return the model, the sample or the conditions of a saved run.

    Raises
    ------
    ValueError
        If it was left out.
    CheckpointError
        If it cannot be made with this version of the package.
    """
    argument = "table" if name == "sample" else name
    give = f"give load_run(path, {argument}=...), as it was given to sample"
    if "left out" in entries[name]:
        raise ValueError(f"{path}: has no {name} ({entries[name]['left out']}); {give}")
    try:
        return from_json(entries[name]["value"], arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: the {name} cannot be read with this version of bnp-models ({error!r}); {give}"
        ) from error


def _plain(key: jax.Array) -> dict[str, Any]:
    """A key as JSON."""
    return {
        "impl": str(jax.random.key_impl(key)),
        "data": np.asarray(jax.random.key_data(key)).tolist(),
    }


def as_key(plain: dict[str, Any] | None) -> jax.Array | None:
    """Key that was written as JSON."""
    if plain is None:
        return None
    return jax.random.wrap_key_data(jnp.asarray(plain["data"], jnp.uint32), impl=plain["impl"])
