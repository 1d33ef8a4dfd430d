"""Limits by which a release is judged, and its identifiers, title, author and date."""

import datetime
import json
import logging
from pathlib import Path

import pandas as pd

from bnp_models.cli import parts
from bnp_models.cli.commands import Protect, Risk
from bnp_models.cli.folder import reading_of
from bnp_models.cli.parts import Data
from bnp_models.data.display import counted
from bnp_models.data.reading import read_frame
from bnp_models.data.schema import MicrodataError
from bnp_models.data.source import Source
from bnp_models.inference import processes
from bnp_models.report.pages import Filing
from bnp_models.risk.verdict import Limits

_LOG = logging.getLogger(__name__)

# Columns of records.csv and keys of changes.json besides the key variables.
_TAKEN = ("row", "r1", "r2")

NOT_MET = 3
"""Exit code of ``--strict``."""


def limits_of(given: parts.Limits) -> Limits:
    """Limits that were given."""
    return Limits(given.max_tau1, given.max_risk)


def release_settings(command: Risk | Protect) -> dict[str, object]:
    """Settings among these that decide the outputs, for run.json."""
    limits, filing = command.limits, command.filing
    return {
        "max_tau1": limits.max_tau1, "max_risk": limits.max_risk, "id": command.data.id,
        "title": filing.title, "author": filing.author,
        **({"bom": command.bom, "first_row": command.first_row}
           if isinstance(command, Risk) else {}),
    }  # fmt: skip


def filing_of(sample: Source, given: parts.Filing) -> Filing:
    """Date, input and names by which a page is filed."""
    return Filing(
        date=datetime.date.today().isoformat(),
        input=Path(str(sample)).name,
        sha256=sample.digest,
        title=given.title,
        author=given.author,
    )


def read_ids(data: Data, all_records: bool = False) -> pd.Series | None:
    """Identifiers (n,) of the sample's records, if a column of them is named.

    Raises
    ------
    MicrodataError
        If the column is missing, is a key variable, or has the name of one of records.csv.
    """
    column = data.id
    if column is None:
        return None
    if column in _TAKEN or (column == "f" and all_records):
        raise MicrodataError(
            "records.csv has another column of this name; rename the column of identifiers",
            file=data.sample, column=column,
        )  # fmt: skip
    frame, _ = read_frame(data.sample, (column,), reading_of(data))
    ids = frame[column]
    counts = ids[ids != ""].value_counts()
    if number := int((counts > 1).sum()):
        _LOG.warning(
            "%s: %s of --id %s, such as %r, have several records; if each is one person, the "
            "person is in the file more than once",
            data.sample, counted(number, "value"), column, counts.index[0],
        )  # fmt: skip
    return ids


def with_strictness(limits: parts.Limits, code: int, document: Path) -> int:
    """Exit code of a command that ended with `code`: 3 where --strict finds fault with its results.

    Parameters
    ----------
    limits
        Whether they are strict.
    code
        What it would return without --strict.
    document
        The file that holds "usable" and "verdict", or "warnings" alone.
    """
    if not limits.strict or code != 0 or not processes.is_first():
        return code
    found = json.loads(document.read_text(encoding="utf-8"))
    # The verdict on cells is unknown already where their figures cannot be used.
    converged = "verdict" in found or not found["warnings"]
    if "usable" in found:
        converged = found["usable"]["tau1"]
    released = found["verdict"]["release"] is True if "verdict" in found else True
    return 0 if converged and released else NOT_MET
