"""Bayesian non-parametric models for categorical microdata, on JAX.

Names are imported when they are first used, so that ``import bnp_models`` is quick.

Examples
--------
Examples of all functions and classes begin with these lines:

>>> import jax, numpy as np, pandas as pd
>>> import bnp_models as bnp
>>> population = bnp.datasets.census_income()
>>> frame = population.sample(62, seed=0)[["age", "sex", "education"]]
>>> table = bnp.Microdata.from_frame(frame)
>>> impossible = pd.DataFrame({"age": ["0-14"], "education": ["Bachelor or higher"]})
>>> zeros = bnp.StructuralZeros.from_frame(impossible, table.schema)
>>> households = bnp.datasets.bay_area_households().sample(20, seed=0).households()
>>> cells = bnp.weighted_cells(table, population_size=5_000)

Chains as short as these are for examples only:

>>> short = {"num_chains": 2, "num_warmup": 20, "num_samples": 20}
>>> model = bnp.NPLCM(components=4)
>>> run = bnp.sample(model, table, key=jax.random.key(0), **short)
>>> risk = bnp.population_risk(run, population_size=5_000)
>>> files = bnp.synthesize(run, 2)
"""

import importlib
from functools import cache
from typing import TYPE_CHECKING

from bnp_models.version import __version__ as __version__

# The same names as in `_EXPORTS`, for editors and type checkers; a test keeps them in step.
if TYPE_CHECKING:
    from bnp_models import datasets as datasets
    from bnp_models import kernels as kernels
    from bnp_models.comparison.comparison import Compared as Compared
    from bnp_models.comparison.comparison import Comparison as Comparison
    from bnp_models.comparison.comparison import compare as compare
    from bnp_models.comparison.held_out import held_out_log_probability as held_out_log_probability
    from bnp_models.data.bins import Bins as Bins
    from bnp_models.data.bins import bin_columns as bin_columns
    from bnp_models.data.bins import draw_in_bins as draw_in_bins
    from bnp_models.data.bins import in_bins as in_bins
    from bnp_models.data.cells import Cells as Cells
    from bnp_models.data.contingency import ContingencyTable as ContingencyTable
    from bnp_models.data.folders import read_contingency_table as read_contingency_table
    from bnp_models.data.household_schema import HouseholdSchema as HouseholdSchema
    from bnp_models.data.households import Households as Households
    from bnp_models.data.households import persons_of as persons_of
    from bnp_models.data.households import read_households as read_households
    from bnp_models.data.identifying import Identifying as Identifying
    from bnp_models.data.identifying import identifying_variables as identifying_variables
    from bnp_models.data.merging import merge_levels as merge_levels
    from bnp_models.data.microdata import Microdata as Microdata
    from bnp_models.data.microdata import k_anonymity as k_anonymity
    from bnp_models.data.reading import read_frame as read_frame
    from bnp_models.data.reading import read_levels as read_levels
    from bnp_models.data.reading import read_microdata as read_microdata
    from bnp_models.data.recoding import Merged as Merged
    from bnp_models.data.recoding import Recoding as Recoding
    from bnp_models.data.schema import MicrodataError as MicrodataError
    from bnp_models.data.schema import Schema as Schema
    from bnp_models.data.source import Source as Source
    from bnp_models.data.stata_spss import FormatError as FormatError
    from bnp_models.data.stata_spss import Labelling as Labelling
    from bnp_models.data.stata_spss import read_labelling as read_labelling
    from bnp_models.data.text_files import Reading as Reading
    from bnp_models.data.weight_classes import WeightedMicrodata as WeightedMicrodata
    from bnp_models.data.weight_classes import weighted_microdata as weighted_microdata
    from bnp_models.data.weights import WeightedCells as WeightedCells
    from bnp_models.data.weights import check_population_size as check_population_size
    from bnp_models.data.weights import read_weights as read_weights
    from bnp_models.data.weights import weighted_cells as weighted_cells
    from bnp_models.data.writing import write_frame as write_frame
    from bnp_models.data.writing import write_json as write_json
    from bnp_models.data.writing import write_table as write_table
    from bnp_models.evaluation.attack.attack import attack_risk as attack_risk
    from bnp_models.evaluation.attack.attack import refit as refit
    from bnp_models.evaluation.attack.posterior import Posterior as Posterior
    from bnp_models.evaluation.attack.posterior import check_source as check_source
    from bnp_models.evaluation.attack.posterior import model_of as model_of
    from bnp_models.evaluation.attack.posterior import read_posterior as read_posterior
    from bnp_models.evaluation.attack.result import AttackRisk as AttackRisk
    from bnp_models.evaluation.closest import ClosestRecords as ClosestRecords
    from bnp_models.evaluation.closest import closest_records as closest_records
    from bnp_models.evaluation.combining import Combined as Combined
    from bnp_models.evaluation.combining import combine_fully_synthetic as combine_fully_synthetic
    from bnp_models.evaluation.combining import combine_imputed as combine_imputed
    from bnp_models.evaluation.combining import (
        combine_partially_synthetic as combine_partially_synthetic,
    )
    from bnp_models.evaluation.combining import interval_overlap as interval_overlap
    from bnp_models.evaluation.disclosure import Disclosure as Disclosure
    from bnp_models.evaluation.disclosure import disclosure as disclosure
    from bnp_models.evaluation.evaluation import Evaluation as Evaluation
    from bnp_models.evaluation.evaluation import evaluate as evaluate
    from bnp_models.evaluation.files import read_like as read_like
    from bnp_models.evaluation.propensity import PropensityScore as PropensityScore
    from bnp_models.evaluation.propensity import propensity_score as propensity_score
    from bnp_models.evaluation.proportions import Proportions as Proportions
    from bnp_models.evaluation.proportions import proportions as proportions
    from bnp_models.evaluation.shares import household_shares as household_shares
    from bnp_models.evaluation.tree_propensity import TreePropensity as TreePropensity
    from bnp_models.evaluation.tree_propensity import tree_propensity as tree_propensity
    from bnp_models.evaluation.uniques import replicated_uniques as replicated_uniques
    from bnp_models.inference.arviz import write_netcdf as write_netcdf
    from bnp_models.inference.checkpoint import Checkpoint as Checkpoint
    from bnp_models.inference.checkpoint import CheckpointError as CheckpointError
    from bnp_models.inference.convergence import Converged as Converged
    from bnp_models.inference.convergence import convergence as convergence
    from bnp_models.inference.convergence import monitored as monitored
    from bnp_models.inference.diagnosis import Diagnosis as Diagnosis
    from bnp_models.inference.diagnosis import target_reached as target_reached
    from bnp_models.inference.diagnosis import warnings_of as warnings_of
    from bnp_models.inference.interruption import Interrupted as Interrupted
    from bnp_models.inference.memory import NotEnoughMemory as NotEnoughMemory
    from bnp_models.inference.modes import Modes as Modes
    from bnp_models.inference.modes import find_modes as find_modes
    from bnp_models.inference.run import Run as Run
    from bnp_models.inference.sampling import check_input as check_input
    from bnp_models.inference.sampling import extend as extend
    from bnp_models.inference.sampling import sample as sample
    from bnp_models.inference.settings import Settings as Settings
    from bnp_models.inference.steps import Kernel as Kernel
    from bnp_models.inference.steps import kernel_of as kernel_of
    from bnp_models.inference.steps import model_of_steps as model_of_steps
    from bnp_models.inference.weighting import population_law as population_law
    from bnp_models.inference.weighting import sample_law as sample_law
    from bnp_models.inference.weighting import unsampled_law as unsampled_law
    from bnp_models.models.cells.dirichlet_multinomial import CountsRun as CountsRun
    from bnp_models.models.cells.dirichlet_multinomial import (
        sample_population_counts as sample_population_counts,
    )
    from bnp_models.models.cells.empirical_bayes import EmpiricalBayes as EmpiricalBayes
    from bnp_models.models.cells.empirical_bayes import fit_empirical_bayes as fit_empirical_bayes
    from bnp_models.models.cells.full_bayes import HyperparameterDraws as HyperparameterDraws
    from bnp_models.models.cells.full_bayes import sample_hyperparameters as sample_hyperparameters
    from bnp_models.models.cells.polettini_stander import NoMaximumError as NoMaximumError
    from bnp_models.models.cells.polettini_stander import PolettiniStander as PolettiniStander
    from bnp_models.models.latent_classes.nplcm import NPLCM as NPLCM
    from bnp_models.models.latent_classes.nplcm import TNPLCM as TNPLCM
    from bnp_models.models.mixed_membership.fixed_profiles import MixedMembership as MixedMembership
    from bnp_models.models.mixed_membership.hdp import HDPMixedMembership as HDPMixedMembership
    from bnp_models.models.nested.ndpmpm import NDPMPM as NDPMPM
    from bnp_models.models.nested.starts import complete_households as complete_households
    from bnp_models.report.cells import cell_inference_data as cell_inference_data
    from bnp_models.report.cells import cell_risk_summary as cell_risk_summary
    from bnp_models.report.cells import cells_frame as cells_frame
    from bnp_models.report.cells import check_names as check_names
    from bnp_models.report.cells import write_cell_report as write_cell_report
    from bnp_models.report.cells import write_cells as write_cells
    from bnp_models.report.evaluation import write_evaluation_report as write_evaluation_report
    from bnp_models.report.inference_data import to_inference_data as to_inference_data
    from bnp_models.report.inference_data import write_records as write_records
    from bnp_models.report.json_schemas import json_schema as json_schema
    from bnp_models.report.risk import write_report as write_report
    from bnp_models.report.summaries import risk_summary as risk_summary
    from bnp_models.report.summaries import run_summary as run_summary
    from bnp_models.report.synthesis import write_synthesis_report as write_synthesis_report
    from bnp_models.risk.cells import CellRisk as CellRisk
    from bnp_models.risk.cells import benedetti_franconi_risk as benedetti_franconi_risk
    from bnp_models.risk.cells import cell_risk as cell_risk
    from bnp_models.risk.cells import counts_of_counts as counts_of_counts
    from bnp_models.risk.coarser_risk import CoarserRisk as CoarserRisk
    from bnp_models.risk.coarser_risk import coarsen as coarsen
    from bnp_models.risk.loglinear import LogLinearRisk as LogLinearRisk
    from bnp_models.risk.loglinear import check_support as check_support
    from bnp_models.risk.loglinear import loglinear_risk as loglinear_risk
    from bnp_models.risk.population import PopulationRisk as PopulationRisk
    from bnp_models.risk.population import population_risk as population_risk
    from bnp_models.risk.population import tau1_monitor as tau1_monitor
    from bnp_models.risk.protection import FileRisk as FileRisk
    from bnp_models.risk.protection import Protection as Protection
    from bnp_models.risk.protection import protect as protect
    from bnp_models.risk.validation import Validation as Validation
    from bnp_models.risk.validation import validate_within as validate_within
    from bnp_models.risk.verdict import Limits as Limits
    from bnp_models.risk.verdict import Verdict as Verdict
    from bnp_models.risk.verdict import judge as judge
    from bnp_models.rules.census import census_relationships as census_relationships
    from bnp_models.rules.census import find_head as find_head
    from bnp_models.rules.reading import read_rules as read_rules
    from bnp_models.rules.roles import Roles as Roles
    from bnp_models.rules.roles import read_roles as read_roles
    from bnp_models.rules.rules import Rules as Rules
    from bnp_models.rules.statements import Rule as Rule
    from bnp_models.rules.yaml_writing import rules_to_yaml as rules_to_yaml
    from bnp_models.synthesis.margins import Margins as Margins
    from bnp_models.synthesis.margins import level_margins as level_margins
    from bnp_models.synthesis.predictive_checks import PredictiveChecks as PredictiveChecks
    from bnp_models.synthesis.predictive_checks import predictive_checks as predictive_checks
    from bnp_models.synthesis.synthesize import impute as impute
    from bnp_models.synthesis.synthesize import synthesize as synthesize
    from bnp_models.zeros.coding import Coding as Coding
    from bnp_models.zeros.equivalences import Equivalence as Equivalence
    from bnp_models.zeros.structural_zeros import StructuralZeros as StructuralZeros
    from bnp_models.zeros.structural_zeros import read_conditions as read_conditions
    from bnp_models.zeros.suggestions import suggest_conditions as suggest_conditions

_EXPORTS = {
    "AttackRisk": "evaluation.attack.result",
    "Bins": "data.bins",
    "CellRisk": "risk.cells",
    "Cells": "data.cells",
    "Checkpoint": "inference.checkpoint",
    "CheckpointError": "inference.checkpoint",
    "ClosestRecords": "evaluation.closest",
    "CoarserRisk": "risk.coarser_risk",
    "Coding": "zeros.coding",
    "Combined": "evaluation.combining",
    "Compared": "comparison.comparison",
    "Comparison": "comparison.comparison",
    "ContingencyTable": "data.contingency",
    "Converged": "inference.convergence",
    "CountsRun": "models.cells.dirichlet_multinomial",
    "Diagnosis": "inference.diagnosis",
    "Disclosure": "evaluation.disclosure",
    "EmpiricalBayes": "models.cells.empirical_bayes",
    "Equivalence": "zeros.equivalences",
    "Evaluation": "evaluation.evaluation",
    "FileRisk": "risk.protection",
    "FormatError": "data.stata_spss",
    "HDPMixedMembership": "models.mixed_membership.hdp",
    "HouseholdSchema": "data.household_schema",
    "Households": "data.households",
    "HyperparameterDraws": "models.cells.full_bayes",
    "Identifying": "data.identifying",
    "Interrupted": "inference.interruption",
    "Kernel": "inference.steps",
    "Labelling": "data.stata_spss",
    "Limits": "risk.verdict",
    "LogLinearRisk": "risk.loglinear",
    "Margins": "synthesis.margins",
    "Merged": "data.recoding",
    "Microdata": "data.microdata",
    "MicrodataError": "data.schema",
    "MixedMembership": "models.mixed_membership.fixed_profiles",
    "Modes": "inference.modes",
    "NDPMPM": "models.nested.ndpmpm",
    "NPLCM": "models.latent_classes.nplcm",
    "NoMaximumError": "models.cells.polettini_stander",
    "NotEnoughMemory": "inference.memory",
    "PolettiniStander": "models.cells.polettini_stander",
    "PopulationRisk": "risk.population",
    "Posterior": "evaluation.attack.posterior",
    "PredictiveChecks": "synthesis.predictive_checks",
    "PropensityScore": "evaluation.propensity",
    "Proportions": "evaluation.proportions",
    "Protection": "risk.protection",
    "Reading": "data.text_files",
    "Recoding": "data.recoding",
    "Roles": "rules.roles",
    "Rule": "rules.statements",
    "Rules": "rules.rules",
    "Run": "inference.run",
    "Schema": "data.schema",
    "Settings": "inference.settings",
    "Source": "data.source",
    "StructuralZeros": "zeros.structural_zeros",
    "TNPLCM": "models.latent_classes.nplcm",
    "TreePropensity": "evaluation.tree_propensity",
    "Validation": "risk.validation",
    "Verdict": "risk.verdict",
    "WeightedCells": "data.weights",
    "WeightedMicrodata": "data.weight_classes",
    "attack_risk": "evaluation.attack.attack",
    "benedetti_franconi_risk": "risk.cells",
    "bin_columns": "data.bins",
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
    "closest_records": "evaluation.closest",
    "coarsen": "risk.coarser_risk",
    "combine_fully_synthetic": "evaluation.combining",
    "combine_imputed": "evaluation.combining",
    "combine_partially_synthetic": "evaluation.combining",
    "compare": "comparison.comparison",
    "complete_households": "models.nested.starts",
    "convergence": "inference.convergence",
    "counts_of_counts": "risk.cells",
    "disclosure": "evaluation.disclosure",
    "draw_in_bins": "data.bins",
    "evaluate": "evaluation.evaluation",
    "extend": "inference.sampling",
    "find_head": "rules.census",
    "find_modes": "inference.modes",
    "fit_empirical_bayes": "models.cells.empirical_bayes",
    "held_out_log_probability": "comparison.held_out",
    "household_shares": "evaluation.shares",
    "identifying_variables": "data.identifying",
    "impute": "synthesis.synthesize",
    "in_bins": "data.bins",
    "interval_overlap": "evaluation.combining",
    "json_schema": "report.json_schemas",
    "judge": "risk.verdict",
    "k_anonymity": "data.microdata",
    "kernel_of": "inference.steps",
    "level_margins": "synthesis.margins",
    "loglinear_risk": "risk.loglinear",
    "merge_levels": "data.merging",
    "model_of": "evaluation.attack.posterior",
    "model_of_steps": "inference.steps",
    "monitored": "inference.convergence",
    "persons_of": "data.households",
    "population_law": "inference.weighting",
    "population_risk": "risk.population",
    "predictive_checks": "synthesis.predictive_checks",
    "propensity_score": "evaluation.propensity",
    "proportions": "evaluation.proportions",
    "protect": "risk.protection",
    "read_conditions": "zeros.structural_zeros",
    "read_contingency_table": "data.folders",
    "read_frame": "data.reading",
    "read_households": "data.households",
    "read_labelling": "data.stata_spss",
    "read_levels": "data.reading",
    "read_like": "evaluation.files",
    "read_microdata": "data.reading",
    "read_posterior": "evaluation.attack.posterior",
    "read_roles": "rules.roles",
    "read_rules": "rules.reading",
    "read_weights": "data.weights",
    "refit": "evaluation.attack.attack",
    "replicated_uniques": "evaluation.uniques",
    "risk_summary": "report.summaries",
    "rules_to_yaml": "rules.yaml_writing",
    "run_summary": "report.summaries",
    "sample": "inference.sampling",
    "sample_hyperparameters": "models.cells.full_bayes",
    "sample_law": "inference.weighting",
    "sample_population_counts": "models.cells.dirichlet_multinomial",
    "suggest_conditions": "zeros.suggestions",
    "synthesize": "synthesis.synthesize",
    "target_reached": "inference.diagnosis",
    "tau1_monitor": "risk.population",
    "to_inference_data": "report.inference_data",
    "tree_propensity": "evaluation.tree_propensity",
    "unsampled_law": "inference.weighting",
    "validate_within": "risk.validation",
    "warnings_of": "inference.diagnosis",
    "weighted_cells": "data.weights",
    "weighted_microdata": "data.weight_classes",
    "write_cell_report": "report.cells",
    "write_cells": "report.cells",
    "write_evaluation_report": "report.evaluation",
    "write_frame": "data.writing",
    "write_json": "data.writing",
    "write_netcdf": "inference.arviz",
    "write_records": "report.inference_data",
    "write_report": "report.risk",
    "write_synthesis_report": "report.synthesis",
    "write_table": "data.writing",
}

__all__ = sorted([*_EXPORTS, "__version__", "datasets", "kernels"])


@cache
def _submodules() -> frozenset[str]:
    """Names of the folders and modules of this package."""
    import pkgutil

    return frozenset(m.name for m in pkgutil.iter_modules(__path__) if m.name[0] != "_")


def __getattr__(name: str) -> object:
    """Import a public name, or a folder, when it is first used."""
    if name in _EXPORTS:
        return vars(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"))[name]
    if name in _submodules():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, for completion."""
    return sorted({*globals(), *__all__, *_submodules()})
