"""Outputs of a command: the names of its files, and what it says of a risk."""

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bnp_models.cli.folder import numbered
from bnp_models.cli.models import CELL_MODELS, counts_cells
from bnp_models.data.recoding import Recoding
from bnp_models.data.writing import FORMATS

OUTPUTS = {
    "risk": ("risk.json", "run.json", "report.html", "records.csv", "posterior.nc"),
    "synthesize": ("run.json", "report.html", "posterior.nc"),
    "impute": ("run.json", "report.html", "posterior.nc"),
    "protect": ("protected.csv", "changes.json", "run.json", "report.html"),
}

_RECODING = "recoding.csv"

DATASETS = {"synthesize": "synthetic_{}", "impute": "imputed_{}"}


def output_names(options: argparse.Namespace) -> tuple[str, ...]:
    """Names of all files of a finished run."""
    names = OUTPUTS[options.name]
    if options.no_records:
        names = tuple(name for name in names if name != "records.csv")
    names = tuple(table_name(options) if name == "records.csv" else name for name in names)
    return names + dataset_names(options) + ((_RECODING,) if options.keep_recoding else ())


def recoding_file(options: argparse.Namespace, recoding: Recoding) -> dict[str, Callable]:
    """What writes the recoding by the name of its file, if it is to be kept."""
    return {_RECODING: recoding.to_file} if options.keep_recoding else {}


def table_name(options: argparse.Namespace) -> str:
    """Name of the table of records, or of cells by the models of these."""
    stem = "cells" if options.model in CELL_MODELS else "records"
    return f"{stem}.{vars(options).get('format') or 'csv'}"


def remove_outputs(options: argparse.Namespace) -> None:
    """Remove what an earlier run left, of another model too."""
    tables = {f"{stem}.{kind}" for stem in ("records", "cells") for kind in FORMATS}
    for name in {*OUTPUTS[options.name], *output_names(options), *tables, _RECODING}:
        path = Path(options.out) / name
        if not path.is_dir():
            path.unlink(missing_ok=True)


def dataset_names(options: argparse.Namespace) -> tuple[str, ...]:
    """Names of the data sets, where the command makes some."""
    if options.name not in DATASETS:
        return ()
    return tuple(
        f"{DATASETS[options.name].format(m + 1)}{_suffix(options)}" for m in range(options.datasets)
    )


def remove_datasets(options: argparse.Namespace) -> None:
    """Remove the data sets of an earlier run, in any format."""
    for suffix in ("", *(f".{kind}" for kind in FORMATS)):
        for path in numbered(Path(options.out), f"{DATASETS[options.name]}{suffix}"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _suffix(options):
    """Ending of a data set's name: none for a folder, as the sample is one."""
    return "" if counts_cells(options) else f".{options.format}"


PROTECT = "bnp-models protect finds the coarsening and suppressions that meet the limits"


def verdict_lines(summary: dict[str, Any], advice: str = "") -> list[str]:
    """Lines that say the verdict of a summary, where there is one, and what to do if it is no."""
    if "verdict" not in summary:
        return []
    verdict = summary["verdict"]
    word = {True: "yes", False: "no"}.get(verdict["release"], "unknown")
    lines = [f"release: {word}; {verdict['why']}"]
    return [*lines, advice] if advice and verdict["release"] is False else lines


def risk_message(options: argparse.Namespace, summary: dict[str, Any], records: str) -> str:
    """Lines that say what was found, and what was written; `records` names the file of records."""
    tau1, out = summary["tau1"], Path(options.out)
    lines = [
        f"{summary['sample_uniques']:,} of {summary['n']:,} records are unique in the sample; of "
        f"these, {tau1['mean']:.1f} are expected to be unique among {summary['population_size']:,} "
        f"(95% interval {tau1['q025']:.0f} to {tau1['q975']:.0f})"
    ]
    if "usable" in summary:
        lines.append(summary["usable"]["why"])
    lines += verdict_lines(summary, PROTECT)
    lines += [f"warning: {sentence}" for sentence in summary["warnings"]]
    names = ("risk.json", *([] if options.no_records else [records]), "posterior.nc")
    lines.append(f"written: {out / 'report.html'}, {', '.join(names)}")
    return "\n".join(lines)
