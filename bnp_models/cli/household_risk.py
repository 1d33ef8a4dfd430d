"""``bnp-models risk --household``: disclosure risk of the households of a sample."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import pandas as pd

from bnp_models.cli.commands import Risk
from bnp_models.cli.folder import located, shows_progress
from bnp_models.cli.inputs import Inputs, checked_input
from bnp_models.cli.models import HOUSEHOLD_MODELS, MODELS_OF
from bnp_models.cli.options import refuse
from bnp_models.cli.outputs import table_names, verdict_lines, warning_lines, written_line
from bnp_models.cli.population import weights_of, with_population
from bnp_models.cli.release import limits_of, release_settings
from bnp_models.cli.risk_files import write_risk
from bnp_models.cli.runs import Finished, recorded_settings, sample_into_folder
from bnp_models.cli.samples import check_weights_for
from bnp_models.data.households import Households
from bnp_models.data.writing import write_table
from bnp_models.inference.run import is_of_households
from bnp_models.report.households import household_risk_summary, write_household_report
from bnp_models.risk.households import HouseholdRisk, check_households, household_risk
from bnp_models.synthesis.predictive_checks import predictive_checks

# Columns of households.csv and of records.csv that are estimates.
_PROBABILITIES = ("r1", "r2", "r_household", "hierarchical")


def with_unit(command: Risk) -> Risk:
    """The command with its model: the usual one of persons, or of households, if none is given.

    For persons, it is without the options of households that are defaults.
    """
    fit = command.fit
    of_persons = fit.households.household is None
    usual = MODELS_OF["risk"][0] if of_persons else HOUSEHOLD_MODELS[0]
    fit = dataclasses.replace(fit, model=fit.model or usual)
    if of_persons and fit.model not in HOUSEHOLD_MODELS and fit.households.head == "auto":
        fit = dataclasses.replace(fit, households=dataclasses.replace(fit.households, head=None))
    return dataclasses.replace(command, fit=fit)


def options_of_records(command: Risk) -> dict[str, object]:
    """Options that only the risk of records has, as they were given."""
    return {
        "validate": command.validate is not None, "what-if": command.what_if,
        "keys": command.keys, "id": command.data.id, "all-records": command.all_records,
        "suda": command.suda is not None, "missing-keys": command.missing_keys,
        "misclassification": command.misclassification,
    }  # fmt: skip


def run_household_risk(command: Risk) -> int:
    """Check everything, sample, evaluate the risk of households, write it; the exit code."""
    refuse(
        options_of_records(command) | {"baselines": command.baselines},
        "cannot be used for the risk of households (--household); leave it out",
    )
    inputs = checked_input(command)
    command = with_population(command, weights_of(inputs.table))
    assert isinstance(inputs.table, Households)
    with located(command.data):
        check_households(inputs.model, inputs.table, command.size)
        check_weights_for(command.data, inputs.table, command.size)
    settings = recorded_settings(
        command, inputs, population_size=command.size, ties=command.ties,
        **release_settings(command),
    )  # fmt: skip
    evaluate = functools.partial(
        household_risk,
        population_size=command.size,
        ties=command.ties,
        progress=shows_progress(command.output),
    )
    write = functools.partial(_write, command, inputs)
    command.data.sample.release()
    return sample_into_folder(command, inputs, settings, evaluate, write)


def _write(command: Risk, inputs: Inputs, done: Finished[HouseholdRisk]) -> str:
    """Write the files of a risk of households; return what is said of it."""
    run, result = done.run, done.evaluated
    assert is_of_households(run)
    checks = predictive_checks(run, unit="household")
    found: dict[str, Any] = {
        "diagnosis": done.diagnosis, "checks": checks, "limits": limits_of(command.limits),
    }  # fmt: skip
    summary = household_risk_summary(result, seed=inputs.chains.seed, **found)
    persons = result.records()
    persons["row"] += command.first_row
    tables = {
        name: functools.partial(_write_table, frame, command.bom)
        for name, frame in zip(
            table_names(command), (result.household_table(), persons), strict=True
        )
    }
    page = functools.partial(write_household_report, risk=result, **found)
    write_risk(command, inputs, done, result.households, summary, checks, tables, page)
    return _message(command, summary, done.out)


def _write_table(frame: pd.DataFrame, bom: bool, path: Path) -> None:
    """Write a table of households or of persons."""
    write_table(frame, path, [name for name in _PROBABILITIES if name in frame], bom=bom)


def _message(command: Risk, summary: dict[str, Any], out: Path) -> str:
    """Lines that say what was found, and what was written."""
    tau1, persons = summary["tau1"], summary["persons"]
    return "\n".join([
        f"{summary['sample_uniques']:,} of {summary['n']:,} households are unique in the sample by "
        f"their composition; of these, {tau1['mean']:.1f} are expected to be unique among "
        f"{summary['population_size']:,} (95% interval {tau1['q025']:.0f} to {tau1['q975']:.0f})",
        f"{persons['found']:.1f} of {persons['n']:,} persons are expected to be found, alone or "
        "through their household",
        summary["usable"]["why"],
        *verdict_lines(summary),
        *warning_lines(summary["warnings"]),
        written_line(command, out),
    ])  # fmt: skip
