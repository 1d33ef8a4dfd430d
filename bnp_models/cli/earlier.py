"""Draws of a finished run, from which more data sets are made."""

import json
from pathlib import Path
from typing import Any

import jax

from bnp_models.cli.inputs import Inputs
from bnp_models.cli.options import UsageError, flag
from bnp_models.data.messages import listed
from bnp_models.inference.arviz import read_draws
from bnp_models.inference.driver import keys_of
from bnp_models.inference.run import Run
from bnp_models.inference.settings import Settings

# Settings of data sets, and of what made them, which may differ from those of the earlier run.
_OWN = (
    "datasets", "rows", "for_", "method", "keep", "carry", "given", "from_", "format", "no_records",
    "version", "jax_version",
)  # fmt: skip


def read_run(folder: Path, inputs: Inputs, settings: dict[str, Any]) -> Run:
    """Read a finished run; data sets that are made from it with the same key are the same.

    Parameters
    ----------
    folder
        Where synthesize wrote its results.
    inputs, settings
        Input and settings of this command, which must be those of the run.

    Raises
    ------
    UsageError
        If the folder holds no finished run, or one with other data or settings.
    """
    where = f"--from {folder}"
    try:
        recorded = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        draws, every, attributes = read_draws(folder / "posterior.nc")
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{where}: holds no finished run of synthesize ({error})") from None
    if "sample_sha256" in recorded and recorded["sample_sha256"] != inputs.table.digest:
        raise UsageError(
            f"{where}: the sample of this run has other records, variables or levels; give the "
            "same SAMPLE"
        )
    different = [
        name for name, value in settings.items()
        if name not in _OWN and not _same(recorded.get(name), value)
    ]  # fmt: skip
    if different:
        raise UsageError(
            f"{where}: this run was made with other values of {listed(map(flag, different))}; its "
            "draws are used again, so leave these options out"
        )
    model = inputs.model
    if missing := [name for name in (*model.parameters, "alpha") if name not in draws]:
        raise UsageError(f"{where}: posterior.nc has no {missing[0]!r}; run synthesize again")
    num_chains, num_samples = draws["alpha"].shape
    *_, key = keys_of(jax.random.key(inputs.chains.seed))
    return Run(
        model=model,
        table=inputs.table,
        settings=Settings(
            num_chains, int(attributes["num_warmup"]), num_samples, int(attributes["thin"]),
            tuple(draws), (1,), every,
        ),
        draws=draws,
        key=key,
        state=None,
        capacity=draws["g0"].shape[-1] if "g0" in draws else model.capacity,
        growth=(),
        conditions=inputs.conditions,
        seconds=recorded["seconds"],
        device=recorded["device"],
    )  # fmt: skip


def _same(recorded: Any, value: Any) -> bool:
    """Whether a setting is that of the run, whose file may say more of it."""
    if isinstance(recorded, dict) and isinstance(value, dict):
        return value.items() <= recorded.items()
    return bool(recorded == value)
