"""Bayesian non-parametric models for categorical microdata, on JAX.

Names are imported when they are first used, so that ``import bnp_models`` is quick.
"""

import importlib
from functools import cache

from bnp_models.version import __version__ as __version__

_EXPORTS = {
    "AttackRisk": "attack",
    "CellRisk": "polettini_stander",
    "Cells": "microdata",
    "Checkpoint": "checkpoint",
    "CheckpointError": "checkpoint",
    "Coding": "equivalences",
    "Combined": "synthesis",
    "Converged": "diagnostics",
    "CountsRun": "dirichlet_multinomial",
    "EmpiricalBayes": "polettini_stander",
    "Equivalence": "equivalences",
    "Evaluation": "evaluation",
    "FormatError": "formats",
    "HDPMixedMembership": "hdp",
    "HouseholdSchema": "households",
    "Households": "households",
    "HyperparameterDraws": "polettini_stander",
    "Labelling": "formats",
    "LogLinearRisk": "loglinear",
    "Margins": "synthesis",
    "Microdata": "microdata",
    "MicrodataError": "microdata",
    "MixedMembership": "mixed_membership",
    "Modes": "diagnostics",
    "NDPMPM": "ndpmpm",
    "NPLCM": "nplcm",
    "NoMaximumError": "polettini_stander",
    "PolettiniStander": "polettini_stander",
    "PopulationRisk": "risk",
    "Posterior": "posterior",
    "PropensityScore": "utility",
    "Proportions": "utility",
    "Rule": "rules",
    "Rules": "rules",
    "Run": "sampling",
    "Schema": "microdata",
    "Settings": "sampling",
    "StructuralZeros": "zeros",
    "TNPLCM": "nplcm",
    "WeightedCells": "weights",
    "attack_risk": "attack",
    "benedetti_franconi_risk": "polettini_stander",
    "cell_inference_data": "cell_report",
    "cell_risk": "polettini_stander",
    "cell_risk_summary": "cell_report",
    "cells_frame": "cell_report",
    "census_relationships": "rule_sets",
    "check_input": "sampling",
    "check_names": "cell_report",
    "check_population_size": "risk",
    "check_source": "posterior",
    "check_support": "loglinear",
    "combine_fully_synthetic": "synthesis",
    "combine_imputed": "synthesis",
    "combine_partially_synthetic": "synthesis",
    "complete_households": "completions",
    "convergence": "diagnostics",
    "counts_of_counts": "polettini_stander",
    "evaluate": "evaluation",
    "extend": "sampling",
    "find_head": "rule_sets",
    "find_modes": "diagnostics",
    "fit_empirical_bayes": "polettini_stander",
    "household_shares": "utility",
    "impute": "synthesis",
    "interval_overlap": "utility",
    "k_anonymity": "utility",
    "level_margins": "synthesis",
    "loglinear_risk": "loglinear",
    "model_of": "posterior",
    "monitored": "diagnostics",
    "persons_of": "export",
    "population_risk": "risk",
    "propensity_score": "utility",
    "proportions": "utility",
    "read_conditions": "zeros",
    "read_frame": "reading",
    "read_households": "households",
    "read_labelling": "formats",
    "read_levels": "reading",
    "read_like": "evaluation",
    "read_microdata": "reading",
    "read_posterior": "posterior",
    "read_rules": "rule_sets",
    "read_weights": "weights",
    "refit": "attack",
    "replicated_uniques": "utility",
    "risk_summary": "export",
    "run_summary": "export",
    "sample": "sampling",
    "sample_hyperparameters": "polettini_stander",
    "sample_population_counts": "dirichlet_multinomial",
    "sample_until": "sampling",
    "simulate_tau1": "risk",
    "synthesize": "synthesis",
    "target_reached": "diagnostics",
    "tau1_monitor": "risk",
    "to_inference_data": "export",
    "warnings_of": "diagnostics",
    "weighted_cells": "weights",
    "write_cell_report": "cell_report",
    "write_cells": "cell_report",
    "write_evaluation_report": "evaluation_report",
    "write_frame": "export",
    "write_json": "export",
    "write_netcdf": "export",
    "write_records": "export",
    "write_report": "report",
    "write_synthesis_report": "report",
}

__all__ = sorted([*_EXPORTS, "__version__", "datasets", "kernels"])


@cache
def _submodules():
    import pkgutil

    return frozenset(m.name for m in pkgutil.iter_modules(__path__) if m.name[0] != "_")


def __getattr__(name):
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    if name in _submodules():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__, *_submodules()})
