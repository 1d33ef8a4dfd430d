"""Draws and figures as files: ArviZ and netCDF, JSON, CSV. Every file is written in one rename."""

import contextlib
import importlib.metadata
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import fields
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from bnp_models.diagnostics import (
    Converged,
    convergence,
    find_modes,
    load_arviz,
    monitored,
    target_reached,
    warnings_of,
)
from bnp_models.formats import Labelling, write_labelled
from bnp_models.households import Households
from bnp_models.microdata import Microdata
from bnp_models.risk import PopulationRisk
from bnp_models.rules import Rules
from bnp_models.sampling import Run
from bnp_models.synthesis import Margins
from bnp_models.version import __version__

# Of the sweep rather than of the posterior.
SAMPLE_STATS = (
    "tables", "log_likelihood_items", "left_over", "last_class", "augmented", "accepted_levels",
    "accepted_splits", "accepted_tilts", "accepted_trajectories", "last_member_class",
)  # fmt: skip

_OF_RISK = ("tau1", "tau1_conditional", "tau2", "log_likelihood")
_QUANTILES = {"q025": 0.025, "q05": 0.05, "q50": 0.5, "q95": 0.95, "q975": 0.975}


def to_inference_data(
    run: Run,
    risk: PopulationRisk | None = None,
    *,
    parameters: bool = False,
    seed: int | None = None,
    num_datasets: int | None = None,
):
    """The draws for ArviZ.

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
        The same, of the data sets made from these draws.

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
        groups["posterior"] |= {name: getattr(risk, name) for name in _OF_RISK}
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
        made = groups_for_arviz({"posterior": arrays}, attributes)["posterior"]
        draws = every * np.arange(1, made.sizes["draw"] + 1) - 1
        if hasattr(data, "add_groups"):
            data.add_groups({"parameters": made.assign_coords(draw=draws)})
        else:
            data["parameters"] = made.assign_coords(draw=draws)
    return data


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


def figures_of(draws: np.ndarray) -> dict[str, float]:
    """Posterior mean, standard deviation and quantiles of a scalar, chains together."""
    flat = np.asarray(draws, np.float64).ravel()
    summary = {"mean": flat.mean(), "sd": flat.std(ddof=1) if flat.size > 1 else 0.0}
    summary |= {name: np.quantile(flat, level) for name, level in _QUANTILES.items()}
    return {name: float(value) for name, value in summary.items()}


def risk_summary(risk: PopulationRisk, *, seed: int | None = None) -> dict:
    """The content of ``risk.json``; only its last two entries depend on the clock."""
    run = risk.run
    schema = run.table.schema
    of_region = {} if run.conditions is None else {
        "p_zero": p_zero(run, risk.thin), "equivalences": equivalences(run),
    }  # fmt: skip
    return {
        "model": run.model.name,
        "n": run.table.n,
        "population_size": risk.population_size,
        "variables": list(schema.variables),
        "levels": list(schema.num_levels),
        "cells": schema.num_cells,
        "sample_uniques": len(risk.rows),
        "seed": seed,
        "version": __version__,
        "device": run.device,
        "tau1": figures_of(risk.tau1),
        "tau1_conditional": figures_of(risk.tau1_conditional),
        "tau2": figures_of(risk.tau2),
        "diagnostics": convergence(run, risk),
        **stopping(run, risk),
        "modes": find_modes(monitored(run, risk)).document(),
        "components": float(np.mean(run.draws["components"])),
        **of_region,
        "warnings": warnings_of(run, risk),
        **_timing(run),
    }


def p_zero(run: Run, thin: int = 1) -> dict[str, float]:
    """Figures of the probability that a record is impossible before truncation.

    The prior drives it: it says nothing of the data, and convergence is not judged by it.
    """
    log_feasible = np.minimum(run.draws["log_feasible"][:, ::thin].astype(np.float64), 0)
    # Taken from zero: its negative is -0.0 where everything is feasible.
    return figures_of(0.0 - np.expm1(log_feasible))


def run_summary(run: Run, margins: Margins | None = None, *, seed: int | None = None) -> dict:
    """What is told of a run that makes data; only its last two entries depend on the clock.

    Parameters
    ----------
    run
        Chains.
    margins
        What `level_margins` returned: convergence is judged by them too.
    seed
        The seed, where there was one.
    """
    persons, conditions = persons_of(run.table), run.conditions
    schema = persons.schema
    summary = {
        "model": run.model.name,
        "n": persons.n,
        **_of_households(run),
        "variables": list(schema.variables),
        "levels": list(schema.num_levels),
        "cells": schema.num_cells,
        "missing": int((persons.codes < 0).sum()),
        "seed": seed,
        "version": __version__,
        "device": run.device,
        "diagnostics": convergence(run, margins=margins),
        **stopping(run, margins=margins),
        "modes": find_modes(monitored(run)).document(),
        "active_components": float(np.mean(run.draws["components"])),
    }
    if "augmented" in run.draws:
        # -1 marks a sweep that counted none; a warning says so.
        counted = run.draws["augmented"][run.draws["augmented"] >= 0]
        summary["augmented"] = float(np.mean(counted)) if counted.size else None
    if isinstance(conditions, Rules):
        summary["rules_in_words"] = [str(rule) for rule in conditions]
        summary["p_zero"] = p_zero(run)
    elif conditions is not None:
        summary["num_conditions"] = conditions.num_conditions
        summary["impossible_cells"] = conditions.num_impossible_cells
        summary["p_zero"] = p_zero(run)
        summary["equivalences"] = equivalences(run)
    return summary | {"warnings": warnings_of(run, margins=margins)} | _timing(run)


def persons_of(table: Microdata | Households) -> Microdata:
    """The table of persons: of households, that of their members."""
    return table.persons if isinstance(table, Households) else table


def _of_households(run):
    """What is told of households."""
    if not isinstance(run.table, Households):
        return {}
    schema = run.table.schema
    sizes, counts = np.unique(run.table.sizes, return_counts=True)
    return {
        "households": run.table.n,
        "household_sizes": {str(size): int(n) for size, n in zip(sizes, counts, strict=True)},
        "household_level": list(schema.household_level),
        "household_head": None if schema.head is None else [str(x) for x in schema.head],
        "active_member_components": float(np.mean(run.draws["member_components"])),
    }


def equivalences(run: Run) -> list[str]:
    """What the conditions say of several variables in every feasible cell alike, in words."""
    return [equivalence.sentence for equivalence in run.conditions.equivalences]


def stopping(
    run: Run, risk: PopulationRisk | None = None, margins: Margins | None = None
) -> dict[str, dict]:
    """The entry "stopping" of a run of `sample_until`; nothing of another.

    "draws" is how many each chain made, "kept" how many of them it kept, one every "thin" sweeps.
    """
    if run.until is None:
        return {}
    target, settings = run.until.target, run.settings
    asked = {}
    if isinstance(target, Converged):
        least = target.least_ess(settings.num_chains)
        asked = {"max_rhat": float(target.max_rhat), "min_ess": float(least)}
    entry = {
        "reached": target_reached(run, risk, margins),
        **asked,
        "max_minutes": run.until.max_minutes,
        "draws": settings.num_samples * settings.thin // run.until.first.thin,
        "kept": settings.num_samples,
        "thin": settings.thin,
    }
    return {"stopping": entry}


def _timing(run):
    return {
        "seconds": {name: round(value, 3) for name, value in run.seconds.items()},
        "sweeps_per_second": round(run.sweeps_per_second, 2),
    }


def write_json(document: dict, path: str | PathLike) -> None:
    """Write a document as JSON; NaN and infinity are refused."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(text + "\n", path)


def write_records(risk: PopulationRisk, path: str | PathLike) -> None:
    """Write one row per sample unique, riskiest first; numbers read back as they were."""
    write_frame(risk.records(), path)


def write_frame(
    frame: pd.DataFrame, path: str | PathLike, labelling: Labelling | None = None
) -> None:
    """Write records as CSV, or as Parquet, Stata (.dta) or SPSS (.sav) by the name of the file.

    Parameters
    ----------
    frame
        Records as labels.
    path
        The file. CSV has a header, and missing values are empty cells.
    labelling
        Value and variable labels for Stata and SPSS, those of `read_labelling`.

    Raises
    ------
    FormatError
        If the format cannot hold the names or values, or pyreadstat is not installed.
    """
    kind = Path(path).suffix.lower().lstrip(".")
    with replacing(path) as partial:
        if kind in ("dta", "sav"):
            write_labelled(frame, partial, kind, labelling)
        elif kind == "parquet":
            frame.to_parquet(partial, index=False)
        else:
            frame.to_csv(partial, index=False, lineterminator="\n", encoding="utf-8")


def write_text(text: str, path: str | PathLike) -> None:
    """Write a text as UTF-8."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing(path: str | PathLike) -> Iterator[Path]:
    """Give a name to write to; then sync it and rename it to `path`, so that no crash halves it."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        with open(partial, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
