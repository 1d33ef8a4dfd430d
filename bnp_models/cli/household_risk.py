"""``bnp-models risk --household``: disclosure risk of the households of a sample."""

import functools
from pathlib import Path
from typing import Any

import pandas as pd

from bnp_models.cli.coarser_keys import household_coarsenings
from bnp_models.cli.commands import Risk
from bnp_models.cli.folder import located, shows_progress
from bnp_models.cli.inputs import Inputs, checked_input
from bnp_models.cli.options import refuse
from bnp_models.cli.outputs import PROTECT, table_names, verdict_lines, warning_lines, written_line
from bnp_models.cli.population import weights_of, with_population
from bnp_models.cli.release import limits_of, release_settings
from bnp_models.cli.risk_files import write_risk
from bnp_models.cli.runs import Finished, recorded_settings, sample_into_folder
from bnp_models.cli.samples import check_weights_for
from bnp_models.data.household_weights import plain_households
from bnp_models.data.households import Households
from bnp_models.data.recoding import Recoding
from bnp_models.data.writing import write_table
from bnp_models.inference.run import is_of_households
from bnp_models.report.households import household_risk_summary, write_household_report
from bnp_models.risk.coarser_risk import coarsen
from bnp_models.risk.households import HouseholdRisk, check_households, household_risk
from bnp_models.synthesis.predictive_checks import predictive_checks

# Columns of households.csv and of records.csv that are estimates.
_PROBABILITIES = ("r1", "r2", "r_household", "hierarchical")


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
    given = options_of_records(command) | {"baselines": command.baselines}
    refuse(
        {name: value for name, value in given.items() if name != "what-if"},
        "cannot be used for the risk of households (--household); leave it out",
    )
    inputs = checked_input(command)
    command = with_population(command, weights_of(inputs.table))
    assert isinstance(inputs.table, Households)
    with located(command.data):
        check_households(inputs.model, inputs.table, command.size)
        check_weights_for(command.data, inputs.table, command.size)
    coarsenings = household_coarsenings(command, inputs, plain_households(inputs.table))
    settings = recorded_settings(
        command, inputs, population_size=command.size, ties=command.ties,
        coarsenings=list(coarsenings), **release_settings(command),
    )  # fmt: skip
    evaluate = functools.partial(
        household_risk,
        population_size=command.size,
        ties=command.ties,
        progress=shows_progress(command.output),
    )
    write = functools.partial(_write, command, inputs, coarsenings)
    command.data.sample.release()
    return sample_into_folder(command, inputs, settings, evaluate, write)


def _write(
    command: Risk,
    inputs: Inputs,
    coarsenings: dict[str, Recoding],
    done: Finished[HouseholdRisk],
) -> str:
    """Write the files of a risk of households; return what is said of it."""
    run, result = done.run, done.evaluated
    assert is_of_households(run)
    checks = predictive_checks(run, unit="household")
    found: dict[str, Any] = {
        "diagnosis": done.diagnosis, "checks": checks, "limits": limits_of(command.limits),
        "coarser": coarsen(run, command.size, coarsenings, ties=command.ties),
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
        *verdict_lines(summary, PROTECT),
        *warning_lines(summary["warnings"]),
        written_line(command, out),
    ])  # fmt: skip
