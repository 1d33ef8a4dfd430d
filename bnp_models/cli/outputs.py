"""Outputs of a command: the names of its files, and the lines that it prints about a risk."""

import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bnp_models.cli.changes import Changes
from bnp_models.cli.commands import Impute, Protect, Risk, Sampling, Synthesize
from bnp_models.cli.folder import numbered
from bnp_models.cli.models import CELL_MODELS, HOUSEHOLD_MODELS, counts_cells
from bnp_models.cli.parts import Data
from bnp_models.data.display import counted
from bnp_models.data.recoding import Recoding
from bnp_models.data.writing import FORMATS, write_table

OUTPUTS = {
    "risk": ("risk.json", "run.json", "report.html", "records.csv", "posterior.nc"),
    "synthesize": ("run.json", "report.html", "posterior.nc"),
    "impute": ("run.json", "report.html", "posterior.nc"),
    "protect": ("protected.csv", "changes.json", "run.json", "report.html"),
}

_RECODING = "recoding.csv"

EDITS = "edits.csv"

_TABLES = ("records", "cells", "households")

_WARNINGS_SHOWN = 5

DATASETS = {"synthesize": "synthetic_{}", "impute": "imputed_{}"}


def output_names(command: Sampling) -> tuple[str, ...]:
    """Names of all files of a finished run."""
    names = OUTPUTS[command.name]
    kept = (_RECODING,) if command.data.keep_recoding else ()
    if isinstance(command, Impute) and command.edit:
        kept = (EDITS, *kept)
    if isinstance(command, Risk):
        tables = () if command.output.no_records else table_names(command)
        return (*(x for x in names if x != "records.csv"), *tables, *kept)
    return (names if isinstance(command, Protect) else names + dataset_names(command)) + kept


def recoding_file(data: Data, recoding: Recoding) -> dict[str, Callable]:
    """Return the file name of the recoding and the function that writes it, if it is to be kept."""
    return {_RECODING: recoding.to_file} if data.keep_recoding else {}


def edits_file(changes: Changes) -> dict[str, Callable]:
    """Return the name of the file of edits and the function that writes it, if any were asked."""
    edits = changes.edits
    return {} if edits is None else {EDITS: functools.partial(write_table, edits)}


def edited_lines(changes: Changes) -> list[str]:
    """Line on the values of impossible records that were set free, if that was asked for."""
    number = changes.num_edited
    if not number:
        return []
    if not number["records"]:
        return ["edited: no record is impossible"]
    by_variable = ", ".join(f"{name} {count:,}" for name, count in number["by_variable"].items())
    return [
        f"edited: {counted(number['fields'], 'value')} of "
        f"{counted(number['records'], 'impossible record')} ({by_variable}), which are in {EDITS}"
    ]


def table_name(command: Risk) -> str:
    """Name of the table of records, or of cells by the models of these."""
    return f"{'cells' if command.fit.chosen_model in CELL_MODELS else 'records'}.{command.format}"


def table_names(command: Risk) -> tuple[str, ...]:
    """Names of the tables of single units: of records or cells, and of households."""
    own = (table_name(command),)
    if command.fit.chosen_model in HOUSEHOLD_MODELS:
        return (f"households.{command.format}", *own)
    return own


def remove_outputs(command: Sampling, out: Path) -> None:
    """Remove what an earlier run left in the folder, of another model too."""
    tables = {f"{stem}.{kind}" for stem in _TABLES for kind in FORMATS}
    for name in {*OUTPUTS[command.name], *output_names(command), *tables, _RECODING, EDITS}:
        if not (out / name).is_dir():
            (out / name).unlink(missing_ok=True)


def dataset_names(command: Synthesize | Impute) -> tuple[str, ...]:
    """Names of the data sets."""
    made = command.made
    # None for a folder, as the sample is one.
    folders = counts_cells(command.name, command.fit.chosen_model, command.data.sample)
    suffix = "" if folders else f".{made.format}"
    stem = DATASETS[command.name]
    return tuple(f"{stem.format(m + 1)}{suffix}" for m in range(made.datasets))


def remove_datasets(command: Synthesize | Impute, out: Path) -> None:
    """Remove the data sets of an earlier run, in any format."""
    for suffix in ("", *(f".{kind}" for kind in FORMATS)):
        for path in numbered(out, f"{DATASETS[command.name]}{suffix}"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


PROTECT = "bnp-models protect finds recodings and suppressions with which the limits are met"


def verdict_lines(summary: dict[str, Any], advice: str = "") -> list[str]:
    """Lines with the verdict of a summary, if it has one, and advice if the verdict is no."""
    if "verdict" not in summary:
        return []
    verdict = summary["verdict"]
    word = {True: "yes", False: "no"}.get(verdict["release"], "unknown")
    lines = [f"release: {word}; {verdict['why']}"]
    return [*lines, advice] if advice and verdict["release"] is False else lines


def warning_lines(warnings: Sequence[str]) -> list[str]:
    """Lines of the warnings of a command; where there are many, of the first, to be acted on."""
    more = len(warnings) - _WARNINGS_SHOWN
    rest = f"warning: {counted(more, 'more warning')} on the page" if more > 0 else None
    shown = [f"warning: {sentence}" for sentence in warnings[:_WARNINGS_SHOWN]]
    return shown if rest is None else [*shown, rest]


def risk_message(command: Risk, summary: dict[str, Any], out: Path) -> str:
    """Lines that say what was found, and what was written."""
    tau1 = summary["tau1"]
    own = " and to have their own values" if "misclassification" in summary else ""
    lines = [
        f"{summary['sample_uniques']:,} of {summary['n']:,} records are unique in the sample; of "
        f"these, {tau1['mean']:.1f} are expected to be unique among {summary['population_size']:,}"
        f"{own} (95% interval {tau1['q025']:.0f} to {tau1['q975']:.0f})"
    ]
    if "usable" in summary:
        lines.append(summary["usable"]["why"])
    lines += verdict_lines(summary, PROTECT)
    lines += warning_lines(summary["warnings"])
    return "\n".join([*lines, written_line(command, out)])


def written_line(command: Risk, out: Path) -> str:
    """Line with the files of a risk."""
    tables = () if command.output.no_records else table_names(command)
    names = ("risk.json", *tables, "posterior.nc", "run.json", "run.toml")
    return f"written: {out / 'report.html'}, {', '.join(names)}"
