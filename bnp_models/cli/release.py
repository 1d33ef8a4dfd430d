"""What a release is judged and filed by: limits, identifiers, title, author and date."""

import argparse
import datetime
import json
from pathlib import Path

import pandas as pd

from bnp_models.cli.folder import UsageError, reading_of
from bnp_models.data.reading import read_frame
from bnp_models.data.schema import MicrodataError
from bnp_models.inference import processes
from bnp_models.report.pages import Filing
from bnp_models.risk.verdict import Limits

# Columns of records.csv and keys of changes.json besides the key variables.
_TAKEN = ("row", "r1", "r2")

NOT_MET = 3
"""Exit code of ``--strict``."""


def limits_of(options: argparse.Namespace) -> Limits:
    """Limits that were given."""
    return Limits(options.max_tau1, options.max_risk)


def release_settings(options: argparse.Namespace) -> dict:
    """Settings among these that decide the outputs, for run.json."""
    names = ("max_tau1", "max_risk", "id", "title", "author", "bom")
    return {name: vars(options)[name] for name in names if name in vars(options)}


def filing_of(options: argparse.Namespace) -> Filing:
    """Date, input and names by which a page is filed."""
    return Filing(
        date=datetime.date.today().isoformat(),
        input=Path(str(options.sample)).name,
        sha256=options.sample.digest,
        title=options.title,
        author=options.author,
    )


def read_ids(options: argparse.Namespace) -> pd.Series | None:
    """Identifiers (n,) of the sample's records, if a column of them is named.

    Raises
    ------
    MicrodataError
        If the column is missing, is a key variable, or has the name of one of records.csv.
    """
    column = options.id
    if column is None:
        return None
    if column in _TAKEN or (column == "f" and vars(options).get("all_records")):
        raise MicrodataError(
            "records.csv has another column of this name; rename the column of identifiers",
            file=options.sample, column=column,
        )  # fmt: skip
    frame, _ = read_frame(options.sample, (column,), reading_of(options))
    return frame[column]


def with_strictness(options: argparse.Namespace, code: int, document: str = "risk.json") -> int:
    """Exit code of a command that ended with `code`: 3 where --strict finds fault with its results.

    Parameters
    ----------
    options
        Options of the command.
    code
        What it would return without --strict.
    document
        The file that holds "usable" and "verdict", or "warnings" alone.
    """
    if not options.strict or code != 0 or not processes.is_first():
        return code
    found = json.loads((Path(options.out) / document).read_text(encoding="utf-8"))
    # The verdict on cells is unknown already where their figures cannot be used.
    converged = "verdict" in found or not found["warnings"]
    if "usable" in found:
        converged = found["usable"]["tau1"]
    released = found["verdict"]["release"] is True if "verdict" in found else True
    return 0 if converged and released else NOT_MET


def check_limits(options: argparse.Namespace, required: bool = False) -> None:
    """Refuse limits that are missing where they are needed."""
    if required and not limits_of(options).given:
        raise UsageError("protect: give --max-tau1 X, --max-risk P or both, the limits to meet")
