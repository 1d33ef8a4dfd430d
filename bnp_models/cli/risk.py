"""``bnp-models risk``: disclosure risk of a sample."""

import dataclasses
import functools
import logging
from typing import Any, NamedTuple

import jax
import pandas as pd

from bnp_models.cli.cells import run_cell_risk
from bnp_models.cli.coarser_keys import asked_coarsenings, with_drops
from bnp_models.cli.column_checks import tell_of_households
from bnp_models.cli.commands import Risk
from bnp_models.cli.folder import located, shows_progress
from bnp_models.cli.household_risk import options_of_records, run_household_risk
from bnp_models.cli.inputs import Inputs, checked_input
from bnp_models.cli.models import CELL_MODELS, HOUSEHOLD_MODELS
from bnp_models.cli.options import UsageError, about, refuse
from bnp_models.cli.outputs import risk_message, table_name
from bnp_models.cli.parts import Chains
from bnp_models.cli.population import require_population, weights_of, with_population, with_unit
from bnp_models.cli.release import limits_of, read_ids, release_settings, with_strictness
from bnp_models.cli.risk_files import write_risk
from bnp_models.cli.runs import (
    Finished,
    further_chains,
    recorded_settings,
    sample_into_folder,
)
from bnp_models.cli.samples import check_weights_for
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.households import persons_of
from bnp_models.data.messages import as_cells, listed
from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.recoding import Recoding
from bnp_models.data.weight_classes import WeightedMicrodata, records_of
from bnp_models.inference.progress import Monitor
from bnp_models.inference.run import Run, is_of_records
from bnp_models.inference.weighting import sample_law
from bnp_models.models.model import PredictsCells
from bnp_models.report.inference_data import write_records
from bnp_models.report.risk import write_report
from bnp_models.report.summaries import risk_summary
from bnp_models.risk.baselines import baseline_cells, baselines
from bnp_models.risk.coarsening import keep_variables, require_listable, single_drops
from bnp_models.risk.coarser_risk import CoarserRisk, coarsen
from bnp_models.risk.evaluator import check_table
from bnp_models.risk.likelihood import early_diagnosis
from bnp_models.risk.misclassification import Misclassification
from bnp_models.risk.missing_keys import MISSING_KEYS, num_incomplete
from bnp_models.risk.population import (
    PopulationRisk,
    population_risk,
    tau1_monitor,
)
from bnp_models.risk.rare_combinations import check_combinations
from bnp_models.risk.special_uniques import suda
from bnp_models.risk.validation import Validation, validate_within
from bnp_models.rules.rules import Rules
from bnp_models.synthesis.predictive_checks import predictive_checks

_LOG = logging.getLogger(__name__)

# Folded into the key that a run set aside.
_VALIDATION = 0x56414C


class _Checked(NamedTuple):
    """What was asked for beside the risk, checked before chains are run."""

    coarsenings: dict[str, Recoding]
    """Coarser keys by their text."""
    ids: pd.Series | None
    """Identifiers of the records."""
    scores: pd.DataFrame | None
    """SUDA scores of the records."""
    missing_keys: str
    """How missing values are read."""
    misclassification: Misclassification | None
    """Probabilities with which values were changed before the release."""
    notes: list[str]
    """Sentences on the sample for risk.json and the page."""


def risk(command: Risk) -> int:
    """``bnp-models risk``: check everything, sample, evaluate the risk, write it."""
    document = command.output.folder / "risk.json"
    command = with_unit(command)
    require_population(command)
    _check_table(command)
    if command.fit.chosen_model in HOUSEHOLD_MODELS:
        return with_strictness(command.limits, run_household_risk(command), document)
    if command.fit.chosen_model in CELL_MODELS:
        other = {
            "first-row": command.first_row, "ties": command.ties != "on",
            "distributed": command.processes.distributed,
            "checkpoint-seconds": command.chains.checkpoint_seconds != Chains.checkpoint_seconds,
        }  # fmt: skip
        refuse(
            options_of_records(command) | other,
            f"cannot be used with a model of cells (--model {command.fit.chosen_model}); leave it "
            "out",
        )
        return with_strictness(command.limits, run_cell_risk(command), document)
    if command.misclassification is not None:
        refuse(
            {"keys": command.keys, "what-if": command.what_if, "baselines": command.baselines},
            "cannot be used with --misclassification, which corrects only the risk of the whole "
            "key by the model; leave it out",
        )
    command = _with_keys(command)
    inputs = checked_input(command)
    command = with_population(command, weights_of(inputs.table))
    checked = _checked(command, inputs)
    evaluate = functools.partial(
        population_risk,
        population_size=command.size,
        ties=command.ties,
        all_records=command.all_records,
        missing_keys=checked.missing_keys,
        misclassification=checked.misclassification,
        progress=shows_progress(command.output),
    )
    write = functools.partial(_write_risk, command, inputs, checked)
    settings, monitor = _settings(command, inputs, checked), _monitor(command, inputs)
    # Only the digest of its file is asked for from here on.
    command.data.sample.release()
    code = sample_into_folder(
        command, inputs, settings, evaluate, write, monitor, early=early_diagnosis
    )
    return with_strictness(command.limits, code, document)


def _check_table(command: Risk) -> None:
    """Check the options of the table of single units; say which --no-records leaves without use."""
    if command.format != "csv":
        refuse({"bom": command.bom}, f"is only for CSV, not for --format {command.format}; leave "
               "one of them out")  # fmt: skip
    beside = {
        "--all-records": command.all_records, "--suda": command.suda is not None,
        "--bom": command.bom, "--format": command.format != "csv",
    }  # fmt: skip
    if command.output.no_records and (unused := [name for name, given in beside.items() if given]):
        _LOG.warning(
            "%s: without effect, because --no-records leaves out the tables of single records",
            listed(unused),
        )  # fmt: skip


def _with_keys(command: Risk) -> Risk:
    """The command for all variables of --keys, if no others are named."""
    if not command.keys or command.data.variables is not None:
        return command
    names = dict.fromkeys(name for names in command.keys for name in names)
    data = dataclasses.replace(command.data, variables=tuple(names))
    return dataclasses.replace(command, data=data)


def _checked(command: Risk, inputs: Inputs) -> _Checked:
    """Check what is asked for beside the risk."""
    data, table = command.data, persons_of(inputs.table)
    coarsenings = _checked_coarsenings(command, inputs)
    if isinstance(table, ContingencyTable):
        given = options_of_records(command)
        refuse(
            {name: given[name] for name in ("validate", "all-records", "suda")},
            "needs single records, but SAMPLE is a folder, of which only cell counts are kept; "
            "leave it out",
        )
    ids = read_ids(data, command.all_records)
    scores = _suda(command, records_of(table))
    missing_keys = _reading_of_missing(command, records_of(table))
    misclassification = _misclassification(command, records_of(table))
    with located(data):
        check_table(records_of(table), command.size, command.all_records, complete=False)
        check_weights_for(data, table, command.size)
    notes = tell_of_households(data, records_of(table))
    return _Checked(coarsenings, ids, scores, missing_keys, misclassification, notes)


def _settings(command: Risk, inputs: Inputs, checked: _Checked) -> dict[str, Any]:
    """Settings that run.json records."""
    missing = persons_of(inputs.table).has_missing
    return recorded_settings(
        command, inputs, population_size=command.size, validate=command.validate,
        ties=command.ties, coarsenings=list(checked.coarsenings), baselines=command.baselines,
        all_records=command.all_records, suda=command.suda, **release_settings(command),
        **({"missing_keys": checked.missing_keys} if missing else {}),
        **_of_misclassification(command),
    )  # fmt: skip


def _of_misclassification(command: Risk) -> dict[str, str | None]:
    """Settings of a file of misclassification probabilities; none without one."""
    file = command.misclassification
    if file is None:
        return {}
    return {"misclassification": str(file), "misclassification_sha256": file.digest}


def _monitor(command: Risk, inputs: Inputs) -> Monitor | None:
    """Function that puts tau_1 on the progress bar.

    None for a sample with weights, which it would take for a simple one, with missing values, or
    with values that were changed.
    """
    table = persons_of(inputs.table)
    changed = command.misclassification is not None
    if isinstance(table, WeightedMicrodata) or table.has_missing or changed:
        return None
    assert isinstance(inputs.model, PredictsCells)
    return tau1_monitor(inputs.model, table, command.size, conditions=inputs.conditions)


def _misclassification(command: Risk, table: Records) -> Misclassification | None:
    """Probabilities with which values were changed, where they are given."""
    file = command.misclassification
    if file is None:
        return None
    with about("--misclassification"):
        return Misclassification.from_file(file, table.schema)


def _reading_of_missing(command: Risk, table: Records) -> str:
    """How missing values are read, which is said where there are any and it was not asked for.

    Raises
    ------
    UsageError
        If an option takes no missing values.
    """
    reading = command.missing_keys or MISSING_KEYS[0]
    if not table.has_missing:
        return reading
    refuse(
        {
            "validate": command.validate is not None,
            "baselines": command.baselines,
            "misclassification": command.misclassification,
        },  # fmt: skip
        "cannot be used if values of key variables are missing; leave it out, or complete the "
        "records with bnp-models impute",
    )
    if command.all_records and reading == "random":
        raise UsageError(
            "--all-records: if values are missing, needs --missing-keys wildcard; add it, or leave "
            "--all-records out"
        )
    if command.missing_keys is None:
        number = num_incomplete(table)
        _LOG.warning(
            "%s: %s of %s records have missing values, which are taken as missing at random "
            "(--missing-keys random): each missing value stands for a value that exists but is not "
            "known; if the values were suppressed, say --missing-keys "
            "wildcard", command.data.sample,
            f"{number:,}", f"{table.n:,}",
        )  # fmt: skip
    return reading


def _checked_coarsenings(command: Risk, inputs: Inputs) -> dict[str, Recoding]:
    """Coarser keys: sets of key variables, those asked for, and each variable dropped.

    None for a file with values that were changed, whose coarser levels change with other
    probabilities.
    """
    if command.misclassification is not None:
        return {}
    table, conditions = records_of(persons_of(inputs.table)), inputs.conditions
    assert not isinstance(conditions, Rules)
    with about("--keys"):
        sets = {
            f"keep:{as_cells(names)}": keep_variables(names, table.schema) for names in command.keys
        }
        require_listable(sets, table, conditions)
    asked = asked_coarsenings(command, table.schema, inputs)
    with about("--what-if"):
        require_listable(asked, table, conditions)
    drops = functools.partial(single_drops, table, conditions)
    return with_drops(command, table.schema, sets | asked, drops)


def _suda(command: Risk, table: Records) -> pd.DataFrame | None:
    """SUDA scores of the records, where they are asked for."""
    if command.suda is None:
        return None
    assert isinstance(table, Microdata)
    columns = ["suda", "dis_suda"]
    for name in columns:
        if name in (*table.schema.variables, command.data.id):
            raise UsageError(
                f"--suda: records.csv gets a column {name!r}, and SAMPLE has a column of this "
                "name; rename the column of SAMPLE"
            )
    largest = min(command.suda, table.num_variables)
    with about("--suda"):
        check_combinations(table.num_variables, largest, "give a smaller M, or fewer --variables")
    return suda(table, largest).frame()[columns]


def _write_risk(
    command: Risk, inputs: Inputs, checked: _Checked, done: Finished[PopulationRisk]
) -> str:
    """Write the files of a risk; return what is said of it."""
    run, result = done.run, done.evaluated
    assert is_of_records(run)
    checks = predictive_checks(run)
    validation = None
    if command.validate is not None:
        validation = _validate(command, run)
    found: dict[str, Any] = {
        "diagnosis": done.diagnosis, "checks": checks, "validation": validation,
        "coarser": _coarser(command, inputs, checked, result), "limits": limits_of(command.limits),
        "baselines": baselines(baseline_cells(run.table, command.size))
        if command.baselines else None,
        "notes": checked.notes,
    }  # fmt: skip
    summary = risk_summary(result, seed=inputs.chains.seed, **found)

    write_table = functools.partial(
        write_records, result, ids=checked.ids, beside=checked.scores, bom=command.bom,
        first_row=command.first_row,
    )  # fmt: skip
    tables = {table_name(command): write_table}
    page = functools.partial(write_report, risk=result, first_row=command.first_row, **found)
    write_risk(command, inputs, done, result, summary, checks, tables, page)
    return risk_message(command, summary, done.out)


def _coarser(
    command: Risk, inputs: Inputs, checked: _Checked, result: PopulationRisk
) -> dict[str, CoarserRisk]:
    """Risk on coarser keys by their text.

    A key without a constant has the figures of the whole key, and not those of fewer draws.
    """
    coarser = coarsen(
        result.run, command.size, checked.coarsenings, ties=command.ties,
        missing_keys=command.missing_keys or MISSING_KEYS[0],
    )  # fmt: skip
    finest = records_of(persons_of(inputs.table)).schema.num_cells
    uniques = None if result.num_uniques is None else result.num_uniques.ravel()
    whole: dict[str, Any] = {
        "tau1": result.tau1.ravel(), "tau2": result.tau2.ravel(), "num_uniques": uniques,
    }  # fmt: skip
    return {
        text: dataclasses.replace(one, **whole) if one.num_cells == finest else one
        for text, one in coarser.items()
    }


def _validate(command: Risk, run: Run) -> Validation:
    """Validate within the sample, by chains like those of the run.

    Parts are simple random samples of it, whatever weights it has.
    """
    records = sample_law(run)
    return validate_within(
        run.model, records.table, key=jax.random.fold_in(run.key, _VALIDATION),
        conditions=records.conditions, num_splits=command.validate or 0,
        progress=shows_progress(command.output), **further_chains(command),
    )  # fmt: skip
