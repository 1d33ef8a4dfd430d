"""Bayesian non-parametric models for categorical microdata, on JAX.

Names are imported when they are first used, so that ``import bnp_models`` is quick.
"""

import importlib
from functools import cache

from bnp_models.version import __version__ as __version__

_EXPORTS = {
    "AttackRisk": "evaluation.attack.result",
    "CellRisk": "risk.cells",
    "Cells": "data.microdata",
    "Checkpoint": "inference.checkpoint",
    "CheckpointError": "inference.checkpoint",
    "Coding": "zeros.coding",
    "Combined": "evaluation.combining",
    "Converged": "inference.diagnostics",
    "CountsRun": "models.cells.dirichlet_multinomial",
    "Diagnosis": "inference.diagnosis",
    "EmpiricalBayes": "models.cells.empirical_bayes",
    "Equivalence": "zeros.equivalences",
    "Evaluation": "evaluation.evaluation",
    "FormatError": "data.formats",
    "HDPMixedMembership": "models.mixed_membership.hdp",
    "HouseholdSchema": "data.household_schema",
    "Households": "data.households",
    "HyperparameterDraws": "models.cells.full_bayes",
    "Labelling": "data.formats",
    "LogLinearRisk": "risk.loglinear",
    "Margins": "synthesis.margins",
    "Microdata": "data.microdata",
    "MicrodataError": "data.schema",
    "MixedMembership": "models.mixed_membership.fixed_profiles",
    "Modes": "inference.modes",
    "NDPMPM": "models.nested.ndpmpm",
    "NPLCM": "models.latent_classes.nplcm",
    "NoMaximumError": "models.cells.polettini_stander",
    "PolettiniStander": "models.cells.polettini_stander",
    "PopulationRisk": "risk.population",
    "Posterior": "evaluation.attack.posterior",
    "PropensityScore": "evaluation.propensity",
    "Proportions": "evaluation.proportions",
    "Rule": "rules.statements",
    "Rules": "rules.rules",
    "Run": "inference.run",
    "Schema": "data.schema",
    "Settings": "inference.settings",
    "StructuralZeros": "zeros.structural_zeros",
    "TNPLCM": "models.latent_classes.nplcm",
    "WeightedCells": "data.weights",
    "attack_risk": "evaluation.attack.attack",
    "benedetti_franconi_risk": "risk.cells",
    "cell_inference_data": "report.cells",
    "cell_risk": "risk.cells",
    "cell_risk_summary": "report.cells",
    "cells_frame": "report.cells",
    "census_relationships": "rules.census",
    "check_input": "inference.sampling",
    "check_names": "report.cells",
    "check_population_size": "data.weights",
    "check_source": "evaluation.attack.posterior",
    "check_support": "risk.loglinear",
    "combine_fully_synthetic": "evaluation.combining",
    "combine_imputed": "evaluation.combining",
    "combine_partially_synthetic": "evaluation.combining",
    "complete_households": "models.nested.starts",
    "convergence": "inference.diagnostics",
    "counts_of_counts": "risk.cells",
    "evaluate": "evaluation.evaluation",
    "extend": "inference.sampling",
    "find_head": "rules.census",
    "find_modes": "inference.modes",
    "fit_empirical_bayes": "models.cells.empirical_bayes",
    "household_shares": "evaluation.shares",
    "impute": "synthesis.synthesize",
    "interval_overlap": "evaluation.combining",
    "k_anonymity": "evaluation.uniques",
    "level_margins": "synthesis.margins",
    "loglinear_risk": "risk.loglinear",
    "model_of": "evaluation.attack.posterior",
    "monitored": "inference.diagnostics",
    "persons_of": "data.households",
    "population_risk": "risk.population",
    "propensity_score": "evaluation.propensity",
    "proportions": "evaluation.proportions",
    "read_conditions": "zeros.structural_zeros",
    "read_frame": "data.reading",
    "read_households": "data.households",
    "read_labelling": "data.formats",
    "read_levels": "data.reading",
    "read_like": "evaluation.files",
    "read_microdata": "data.reading",
    "read_posterior": "evaluation.attack.posterior",
    "read_rules": "rules.reading",
    "read_weights": "data.weights",
    "refit": "evaluation.attack.attack",
    "replicated_uniques": "evaluation.uniques",
    "risk_summary": "report.summaries",
    "run_summary": "report.summaries",
    "sample": "inference.sampling",
    "sample_hyperparameters": "models.cells.full_bayes",
    "sample_population_counts": "models.cells.dirichlet_multinomial",
    "sample_until": "inference.sampling",
    "synthesize": "synthesis.synthesize",
    "target_reached": "inference.diagnosis",
    "tau1_monitor": "risk.population",
    "to_inference_data": "report.inference_data",
    "warnings_of": "inference.diagnosis",
    "weighted_cells": "data.weights",
    "write_cell_report": "report.cells",
    "write_cells": "report.cells",
    "write_evaluation_report": "report.evaluation",
    "write_frame": "data.writing",
    "write_json": "data.writing",
    "write_netcdf": "inference.arviz",
    "write_records": "report.inference_data",
    "write_report": "report.risk",
    "write_synthesis_report": "report.synthesis",
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
