"""``bnp-models risk --household``: disclosure risk of the households of a sample."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from bnp_models.cli.commands import Risk
from bnp_models.cli.folder import located, shows_progress, write_files
from bnp_models.cli.inputs import Inputs, checked_input
from bnp_models.cli.models import HOUSEHOLD_MODELS, MODELS_OF
from bnp_models.cli.options import UsageError
from bnp_models.cli.outputs import recoding_file, table_names, verdict_lines, warning_lines
from bnp_models.cli.release import filing_of, limits_of, release_settings
from bnp_models.cli.runs import Finished, recorded_settings, sample_into_folder
from bnp_models.data.writing import write_json, write_table
from bnp_models.inference.arviz import write_netcdf
from bnp_models.inference.run import is_of_households
from bnp_models.report.households import household_risk_summary, write_household_report
from bnp_models.report.inference_data import to_inference_data
from bnp_models.risk.households import HouseholdRisk, check_households, household_risk
from bnp_models.synthesis.predictive_checks import predictive_checks

# Columns of households.csv and of records.csv that are estimates.
_PROBABILITIES = ("r1", "r2", "r_household", "hierarchical")


def with_unit(command: Risk) -> Risk:
    """The command with the model of households if they are asked for, else without their options.

    The default model is that of persons.
    """
    fit = command.fit
    if fit.households.household is None:
        if fit.model in HOUSEHOLD_MODELS or fit.households.head != "auto":
            return command
        households = dataclasses.replace(fit.households, head=None)
        return dataclasses.replace(command, fit=dataclasses.replace(fit, households=households))
    if fit.model != MODELS_OF["risk"][0]:
        return command
    return dataclasses.replace(command, fit=dataclasses.replace(fit, model=HOUSEHOLD_MODELS[0]))


def run_household_risk(command: Risk) -> int:
    """Check everything, sample, evaluate the risk of households, write it; the exit code."""
    for name, given in (
        ("validate", command.validate is not None), ("what-if", command.what_if),
        ("keys", command.keys), ("id", command.data.id), ("all-records", command.all_records),
        ("suda", command.suda is not None), ("missing-keys", command.missing_keys),
        ("baselines", command.baselines),
    ):  # fmt: skip
        if given:
            raise UsageError(
                f"--{name}: cannot be used for the risk of households (--household); leave it out"
            )
    inputs = checked_input(command)
    with located(command.data):
        check_households(inputs.model, inputs.table, command.size)
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
    run, result, out = done.run, done.evaluated, done.out
    assert is_of_households(run)
    output, seed = command.output, inputs.chains.seed
    checks = predictive_checks(run, unit="household")
    found: dict[str, Any] = {
        "diagnosis": done.diagnosis, "checks": checks, "limits": limits_of(command.limits),
    }  # fmt: skip
    summary = household_risk_summary(result, seed=seed, **found)

    def write_posterior(path):
        data = to_inference_data(
            run, result.households, parameters=output.keep_parameters, seed=seed, checks=checks
        )
        write_netcdf(data, path)

    made: tuple[Callable[[], pd.DataFrame], ...] = (
        result.household_table, functools.partial(_records, result, command.first_row)
    )  # fmt: skip
    tables = {
        name: functools.partial(_write_table, frame, command.bom)
        for name, frame in zip(table_names(command), made, strict=True)
    }
    filing = filing_of(command.data.sample, command.filing)
    of_run = {"level_prior": summary["level_prior"], "filing": filing._asdict()}
    write_files(out, {
        "risk.json": functools.partial(write_json, summary),
        **({} if output.no_records else tables),
        "run.json": functools.partial(write_json, done.settings | of_run),
        "posterior.nc": write_posterior,
        "report.html": lambda path: write_household_report(
            path, result, command=output.command, seed=seed,
            records=not output.no_records, filing=filing, **found,
        ),
        **recoding_file(command.data, inputs.changes.recoding),
    })  # fmt: skip
    return _message(command, summary, out)


def _records(result: HouseholdRisk, first_row: int) -> pd.DataFrame:
    """Table of persons, whose first one in the file has this number."""
    frame = result.records()
    frame["row"] += first_row
    return frame


def _write_table(made: Callable[[], pd.DataFrame], bom: bool, path: Path) -> None:
    """Write a table, which is made for it."""
    frame = made()
    write_table(frame, path, [name for name in _PROBABILITIES if name in frame], bom=bom)


def _message(command: Risk, summary: dict[str, Any], out: Path) -> str:
    """Lines that say what was found, and what was written."""
    tau1, persons = summary["tau1"], summary["persons"]
    names = () if command.output.no_records else table_names(command)
    return "\n".join([
        f"{summary['sample_uniques']:,} of {summary['n']:,} households are unique in the sample by "
        f"their composition; of these, {tau1['mean']:.1f} are expected to be unique among "
        f"{summary['population_size']:,} (95% interval {tau1['q025']:.0f} to {tau1['q975']:.0f})",
        f"{persons['found']:.1f} of {persons['n']:,} persons are expected to be found, alone or "
        "through their household",
        summary["usable"]["why"],
        *verdict_lines(summary),
        *warning_lines(summary["warnings"]),
        f"written: {out / 'report.html'}, {', '.join(['risk.json', *names, 'posterior.nc'])}",
    ])  # fmt: skip
