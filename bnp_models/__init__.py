"""Bayesian non-parametric models for categorical microdata, on JAX.

Names are imported when they are first used, so that ``import bnp_models`` is quick.
"""

import importlib

from bnp_models.version import __version__ as __version__

_SUBMODULES = (
    "checkpoint", "cli", "datasets", "diagnostics", "export", "hdp", "kernels", "microdata",
    "nplcm", "report", "risk", "sampling",
)  # fmt: skip

_EXPORTS = {
    "Cells": "microdata",
    "Checkpoint": "checkpoint",
    "CheckpointError": "checkpoint",
    "HDPMixedMembership": "hdp",
    "Microdata": "microdata",
    "MicrodataError": "microdata",
    "NPLCM": "nplcm",
    "PopulationRisk": "risk",
    "Run": "sampling",
    "Schema": "microdata",
    "Settings": "sampling",
    "TNPLCM": "nplcm",
    "check_input": "sampling",
    "check_population_size": "risk",
    "convergence": "diagnostics",
    "population_risk": "risk",
    "read_levels": "microdata",
    "read_microdata": "microdata",
    "risk_summary": "export",
    "sample": "sampling",
    "simulate_tau1": "risk",
    "tau1_monitor": "risk",
    "to_inference_data": "export",
    "warnings_of": "diagnostics",
    "write_json": "export",
    "write_netcdf": "export",
    "write_records": "export",
    "write_report": "report",
}

__all__ = sorted([*_EXPORTS, "__version__", "datasets", "kernels"])


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__, *_SUBMODULES})
