"""Runs as folders in the format of checkpoints; the sample and the model are not in them."""

from dataclasses import asdict
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.inference.arviz import versions
from bnp_models.inference.checkpoint import Checkpoint

SAVED = "saved run"
"""Fingerprint of the folders of whole runs, whose model and data are compared one by one."""

EARLY = "warm-up: "
"""Beginning of the names of draws of the warm-up."""


def made_of(model: Any, table: Any, conditions: Any) -> dict[str, str]:
    """What a run belongs to: the model with its options, and digests of sample and conditions."""
    return {
        "model": repr(model),
        "sample": table.digest,
        "conditions": "" if conditions is None else conditions.digest,
    }


def write_run(run: Any, path: str | PathLike) -> None:
    """Write all but the model, the sample and the conditions of a run into a folder."""
    progress = {
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
    store = Checkpoint(path, SAVED)
    store.clear()
    store.save(progress, [np.asarray(x) for x in jax.tree.leaves(run.state)], run.draws | early)


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
