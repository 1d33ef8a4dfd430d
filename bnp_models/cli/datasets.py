"""``bnp-models synthesize`` and ``bnp-models impute``."""

import dataclasses
import functools
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from bnp_models.cli.attacked import attack_files, check_attack, is_attacked
from bnp_models.cli.changes import Changes
from bnp_models.cli.commands import Datasets, Impute, Synthesize
from bnp_models.cli.folder import in_order, reading_of, write_files
from bnp_models.cli.inputs import Inputs, check_datasets, check_draws, checked_input
from bnp_models.cli.models import counts_cells
from bnp_models.cli.options import UsageError, about, flag
from bnp_models.cli.outputs import (
    dataset_names,
    edited_lines,
    edits_file,
    recoding_file,
    remove_datasets,
    warning_lines,
)
from bnp_models.cli.parts import Data
from bnp_models.cli.runs import Finished, recorded_settings, sample_into_folder
from bnp_models.data.bins import draw_in_bins
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.folders import write_contingency_table
from bnp_models.data.households import Households, persons_of
from bnp_models.data.identifying import share_of_values
from bnp_models.data.messages import listed, quoted
from bnp_models.data.microdata import Records
from bnp_models.data.reading import read_frame
from bnp_models.data.respelling import with_decimal_commas
from bnp_models.data.schema import MicrodataError
from bnp_models.data.source import file_digest
from bnp_models.data.stata_spss import Labelling, names_in_file, read_labelling
from bnp_models.data.weight_classes import records_of
from bnp_models.data.writing import write_frame, write_json
from bnp_models.inference.arviz import read_draws, write_netcdf
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.inference.driver import keys_of
from bnp_models.inference.loading import run_of_draws
from bnp_models.inference.run import Run
from bnp_models.report.inference_data import to_inference_data
from bnp_models.report.summaries import run_summary
from bnp_models.report.synthesis import write_synthesis_report
from bnp_models.risk.missing_keys import num_incomplete
from bnp_models.synthesis import synthesize as data_sets
from bnp_models.synthesis.calibration import MODEL_SHARE
from bnp_models.synthesis.given import check_given
from bnp_models.synthesis.partial import check_keep
from bnp_models.synthesis.posterior_margins import Margins, margins_of_files
from bnp_models.synthesis.predictive_checks import predictive_checks
from bnp_models.synthesis.synthesize import num_records
from bnp_models.zeros.settled import EMPTY, NOT_APPLICABLE

_LOG = logging.getLogger(__name__)


def synthesize(command: Synthesize) -> int:
    """``bnp-models synthesize``: check everything, sample, write synthetic data sets."""
    made = command.made
    if made.for_ is not None and made.method is not None:
        raise UsageError("--for: cannot be used together with --method; leave one of them out")
    inputs = checked_input(command)
    rows = persons_of(inputs.table).n
    if command.fit.households.household is not None and made.rows not in (None, rows):
        raise UsageError(
            "--rows: the synthetic households have the same sizes as those of the sample; leave "
            "--rows out"
        )
    method = _method(made, inputs.table)
    try:
        data_sets.check_method(method, inputs.table)
    except ValueError as error:
        asked = f"--for {made.for_}" if made.method is None else f"--method {method}"
        raise UsageError(f"{asked}: {error}") from None
    made = dataclasses.replace(made, rows=rows if made.rows is None else made.rows, method=method)
    command = dataclasses.replace(command, made=made)
    _check_kept(command, inputs)
    _check_given(command, inputs)
    check_attack(command, inputs.table)
    _tell_of_missing(command, inputs)
    more = {"given": made.given} if made.given else {}
    return _make_datasets(
        command, inputs, rows=made.rows, method=made.method, keep=made.keep, carry=made.carry,
        keep_missing=made.keep_missing, attack=made.attack,
        **more,
    )  # fmt: skip


def _tell_of_missing(command: Synthesize, inputs: Inputs) -> None:
    """Say that synthetic files have values where some of the sample's are missing."""
    made, table = command.made, records_of(persons_of(inputs.table))
    if not table.has_missing or made.keep_missing or made.keep:
        return
    as_cells = counts_cells(command.name, command.fit.chosen_model, command.data.sample)
    keep = "" if as_cells else "; say --keep-missing for files with as many missing values"
    _LOG.warning(
        "%s: %s of %s records have missing values, which are taken as missing at random, and the "
        "synthetic files have a value in each cell%s",
        command.data.sample, f"{num_incomplete(table):,}", f"{table.n:,}", keep,
    )  # fmt: skip


def _method(made: Datasets, table: Records | Households) -> str:
    """Method by which the files are made: given, chosen by --for, or the usual one."""
    if made.method is not None:
        return made.method
    if made.for_ == "inference":
        return "predictive"
    if made.for_ == "tables":
        return data_sets.usual_method(records_of(persons_of(table)))
    return data_sets.usual_method(table, keep=bool(made.keep), given=bool(made.given))


def _values_given(made: Datasets) -> dict[str, list[str]]:
    """Values that all records are to have, by variable."""
    values: dict[str, list[str]] = {}
    for text in made.given:
        name, _, value = text.partition("=")
        values.setdefault(name, []).append(value)
    return values


def _check_given(command: Synthesize, inputs: Inputs) -> None:
    """Check the values that all records are to have, before any work is done."""
    made = command.made
    if not made.given:
        return
    if made.keep:
        raise UsageError(
            "--given: cannot be used with --keep, by which records have values of the sample; "
            "leave one of them out"
        )
    assert made.rows is not None
    with about("--given"):
        check_given(
            _values_given(made), inputs.model, inputs.table, inputs.conditions,
            made.chosen_method,
            made.rows,
        )  # fmt: skip


def _check_kept(command: Synthesize, inputs: Inputs) -> None:
    """Check the columns that are kept, and those that are carried along with them.

    Raises
    ------
    UsageError
        If columns cannot be kept, or columns that are carried reveal to whom the records belong.
    """
    made = command.made
    if not made.keep:
        if made.carry:
            raise UsageError(
                "--carry: needs --keep, because otherwise no synthetic record belongs to a record "
                "of the sample from which a column could be copied; add --keep, or leave --carry "
                "out"
            )
        return
    table = inputs.table
    if made.rows != persons_of(table).n:
        raise UsageError(
            "--rows: with --keep there is one synthetic record for each record of the "
            "sample; leave --rows out"
        )
    with about("--keep"):
        check_keep(made.keep, inputs.model, table, made.chosen_method)
    if made.carry:
        carried = _carried(command.data, made)
        kept = inputs.changes.as_released(table.to_frame()[list(made.keep)])
        alone = _num_alone(pd.concat([kept, carried], axis=1))
        if alone:
            raise UsageError(
                f"--carry: {alone:,} of {table.n:,} records are the only ones with their values of "
                f"{listed([*made.keep, *made.carry])}: whoever knows these values can find the "
                "record. Carry or keep fewer columns, or coarser ones"
            )


def impute(command: Impute) -> int:
    """``bnp-models impute``: check everything, sample, write completed data sets."""
    inputs = checked_input(command)
    if not inputs.table.has_missing:
        but = (
            "--empty-as-level has made all missing values a level"
            if command.data.text.empty_as_level
            else (
                "no value is missing (a value is missing if its cell is empty or has a label of "
                "--missing)"
            )
        )
        if command.edit:
            but += ", and no record is impossible"
        raise MicrodataError(f"{but}, so there is nothing to impute", file=command.data.sample)
    return _make_datasets(command, inputs)


def _make_datasets(command: Synthesize | Impute, inputs: Inputs, **more: object) -> int:
    """Check, sample and write data sets; `more` is what decides them in this command alone."""
    check_datasets(command, inputs)
    made, sample = command.made, command.data.sample
    persons = records_of(persons_of(inputs.table))
    data_sets.check_files(persons, made.datasets, made.rows or persons.n)
    settings = recorded_settings(
        command, inputs, datasets=made.datasets, **more, format=made.format
    )
    earlier = None
    if made.from_ is not None:
        earlier = read_run(Path(made.from_), inputs, settings)
        check_draws(made, earlier.settings.num_chains * earlier.settings.num_arrays)
    # Convergence is judged by the margins of the levels too.
    labelling = read_labelling(sample, command.data.variables or ())
    write = functools.partial(_write_datasets, command, inputs.changes, labelling)
    if not made.carry:
        sample.close()
    # Tables of calibrated files are taken from the sample, but for a share.
    calibrated = isinstance(command, Synthesize) and command.calibrated
    share = MODEL_SHARE if calibrated else 1.0
    evaluate = functools.partial(margins_of_files, share=share)
    # The log-likelihood does not matter for tables that are those of the sample.
    early = None if calibrated else Diagnosis.of
    return sample_into_folder(
        command, inputs, settings, evaluate, write, earlier=earlier, early=early
    )


def _write_datasets(
    command: Synthesize | Impute,
    changes: Changes,
    labelling: Labelling,
    done: Finished[Margins | None],
) -> str:
    """Write data sets and the files that tell of them; return what is said of them."""
    out, run, settings = done.out, done.run, done.settings
    made, output, seed = command.made, command.output, command.chains.seed
    imputed, keep = isinstance(command, Impute), list(made.keep)
    remove_datasets(command, out)
    frames, names = _frames(command, run), dataset_names(command)
    checks = predictive_checks(run)
    summary = run_summary(run, done.diagnosis, seed=seed, checks=checks)
    notes = _notes_on_kept(changes.as_released(run.table.to_frame()[keep])) if keep else []
    attack = None
    if isinstance(command, Synthesize) and is_attacked(command, run.table):
        attack = attack_files(command, run, frames, _values_given(made)).summary()
        notes = notes + [f"attack: {sentence}" for sentence in attack["warnings"]]
    summary["warnings"] = notes + summary["warnings"]
    alone = {} if imputed else changes.values_of_one()
    shares = dict.fromkeys(alone, 0.0)
    renamed: dict[str, str] = {}
    carried = _carried(command.data, made)

    def write_dataset(m, path):
        frame = frames[m]
        if isinstance(frame, ContingencyTable):
            write_contingency_table(frame, path)
        else:
            frame = _as_in_sample(command, changes, frame, m)
            as_read = with_decimal_commas(frame, changes.decimal_commas)
            written = as_read
            if carried is not None:
                written = in_order(command.data, pd.concat([as_read, carried], axis=1))
            # Completed records are those of real persons.
            write_frame(written, path, labelling, private=imputed)
            renamed.update(names_in_file(list(written), made.format))
        for variable in shares:
            shares[variable] += share_of_values(frame, variable, alone[variable]) / len(names)

    def write_settings(path):
        found = {"files_sha256": {n: file_digest(out / n) for n in names if (out / n).exists()}}
        if shares:
            found["values_of_one_person"] = shares
        if attack is not None:
            found["attack_gains"] = attack
        write_json(settings | found | summary, path)

    def write_posterior(path):
        data = to_inference_data(
            run, parameters=output.keep_parameters, seed=seed, num_datasets=len(frames),
            checks=checks, method="keep" if keep else settings.get("method"),
        )  # fmt: skip
        write_netcdf(data, path)

    write_files(out, {
        **{name: functools.partial(write_dataset, m) for m, name in enumerate(names)},
        "run.json": write_settings,
        "posterior.nc": write_posterior,
        "report.html": lambda path: write_synthesis_report(
            path, run, frames, diagnosis=done.diagnosis, imputed=imputed, command=output.command,
            seed=seed, records=not output.no_records, checks=checks,
            method=settings.get("method", "predictive"), binned=tuple(changes.bins),
            merged=changes.merged_groups,
            values_of_one=shares, kept=keep, notes=notes, edited=changes.num_edited,
            attack=attack,
        ),
        **edits_file(changes),
        **recoding_file(command.data, changes.recoding),
    })  # fmt: skip
    said = edited_lines(changes) + _renamed_message(made.format, renamed)
    said += [] if attack is None else [f"attack: {attack['in_words']}"]
    said += warning_lines(summary["warnings"])
    of_persons = not isinstance(run.table, Households)
    good_for = None if imputed or keep else _good_for(made.chosen_method, of_persons)
    return _datasets_message(run, frames, names, said, out, imputed, good_for)


def _frames(command: Synthesize | Impute, run: Run) -> Sequence[pd.DataFrame | ContingencyTable]:
    """Data sets that are made of a run, each when it is asked for."""
    made = command.made
    if isinstance(command, Impute):
        return data_sets.impute(run, made.datasets)
    return data_sets.synthesize(
        run, made.datasets, made.rows, method=made.chosen_method, keep=made.keep,
        given=_values_given(made),
    )  # fmt: skip


def _as_in_sample(
    command: Synthesize | Impute, changes: Changes, frame: pd.DataFrame, m: int
) -> pd.DataFrame:
    """The m-th data set with values drawn in bins, and with missing values if they are kept."""
    made, of_households = command.made, command.fit.households
    households = of_households.household, of_households.household_variables or ()
    random = np.random.default_rng([command.chains.seed, m])
    frame = draw_in_bins(random, frame, changes.bins, *households)
    observed = [x for x in changes.bins if isinstance(command, Impute) or x in made.keep]
    if observed:
        frame = frame.assign(**changes.as_released(frame[observed]))
    return _with_missing(frame, changes) if made.keep_missing else frame


def _with_missing(frame: pd.DataFrame, changes: Changes) -> pd.DataFrame:
    """A file with missing values in the place of the levels that stood for them."""
    schema, stand_for = changes.original.schema, [NOT_APPLICABLE, EMPTY]
    some = [
        name
        for name, labels in zip(schema.variables, schema.levels, strict=True)
        if name in frame and not set(labels).isdisjoint(stand_for)
    ]
    return frame.assign(**{name: frame[name].mask(frame[name].isin(stand_for)) for name in some})


def _renamed_message(kind: str, names: dict[str, str]) -> list[str]:
    """Line on columns that have other names in the files than in the sample."""
    changed = [f"{quoted(name)} -> {own}" for name, own in names.items() if name != own]
    if not changed:
        return []
    more = [f"... ({len(changed)} in all)"] if len(changed) > 12 else []
    shown = ", ".join(changed[:12] + more)
    return [
        f"renamed for .{kind}, which does not allow the original names (they are the labels of the "
        f"columns): {shown}"
    ]


def _carried(data: Data, made: Datasets) -> pd.DataFrame | None:
    """Columns of the sample that are carried along; None where none are."""
    if not made.carry:
        return None
    carried, _ = read_frame(data.sample, made.carry, reading_of(data))
    return carried


def _notes_on_kept(kept: pd.DataFrame) -> list[str]:
    """Sentence on records that the columns kept tell apart."""
    alone = _num_alone(kept)
    return [
        f"{alone:,} of {len(kept):,} records are the only ones with their values of "
        f"{listed(kept)}, which are kept: whoever knows these values can find the record, although "
        "its other values are synthetic"
    ] if alone else []  # fmt: skip


def _num_alone(frame: pd.DataFrame) -> int:
    """Number of rows that no other is like."""
    return int((~frame.astype(str).duplicated(keep=False)).sum())


def _good_for(method: str, of_persons: bool) -> str:
    """Line that says what files made by a method are for, and which option makes other files."""
    if method == "predictive":
        other = "; for tables that are close to those of the sample, say --for tables"
        other = other if of_persons else ""
        return (
            "use: estimates with standard errors, which combine all files "
            f"(bnp.evaluation.combine_partially_synthetic){other}"
        )
    return (
        "use: tables, which are closer to those of the sample than tables of another sample would "
        "be; more unique combinations of the sample occur in these files. For estimates with "
        "standard errors by combining rules, say --for inference"
    )


def _datasets_message(run, frames, names, said, out, imputed, good_for=None) -> str:
    """Lines that say what was made of the sample, and where it is."""
    kind = "completed" if imputed else "synthetic"
    keeping = "" if run.conditions is None else ", none of them in a structural zero"
    if run.conditions is not None and isinstance(run.table, Households):
        keeping = " in households that obey the rules"
    plural = "s"[: len(frames) > 1]
    number = num_records(frames[0])
    lines = [f"{len(frames)} {kind} data set{plural} of {number:,} records{keeping}", *said]
    shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    if good_for is not None:
        lines.append(good_for)
    lines.append(f"written: {out / shown}, report.html, run.json, run.toml, posterior.nc")
    return "\n".join(lines)


# Settings of data sets, and of what made them, which may differ from those of the earlier run.
_OWN = (
    "datasets", "rows", "for_", "method", "attack", "keep", "carry", "given", "from_", "format",
    "no_records", "version", "jax_version",
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
    *_, key = keys_of(jax.random.key(inputs.chains.seed))
    of_file = inputs.model, inputs.table, inputs.conditions, draws, every, attributes
    try:
        run = run_of_draws(*of_file, key)
    except ValueError as error:
        raise UsageError(f"{where}: posterior.nc: {error}; run synthesize again") from None
    return dataclasses.replace(run, seconds=recorded["seconds"], device=recorded["device"])


def _same(recorded: object, value: object) -> bool:
    """Whether a setting is that of the run, whose file may say more of it.

    Earlier versions recorded None for an option that was not given.
    """
    if isinstance(recorded, dict) and isinstance(value, dict):
        return value.items() <= recorded.items()
    return bool(recorded == value or (recorded is None and not value))
