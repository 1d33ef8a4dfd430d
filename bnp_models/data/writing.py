"""Files written whole or not at all: JSON, text, and records in several formats.

Only the owner may read files that describe a sample (mode 0600). Data sets for release have the
mode that the process gives to its files.
"""

import contextlib
import csv
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path

import pandas as pd
from pandas.api.types import is_numeric_dtype

from bnp_models.data.stata_spss import FormatError, Labelling, write_labelled

FORMATS = ("csv", "parquet", "dta", "sav")

DIGITS = 8
"""Significant digits of figures in tables: sums of thousands of them agree to a millionth."""

# A spreadsheet runs text that begins with one of these, or with a sign, as a formula; some take the
# wide forms of East Asian text for them.
_FORMULA = re.compile(r"[=@\t\r\n\uff1d\uff20\uff0b\uff0d]|[+-](?![0-9.,]*\Z)")


def write_json(document: dict, path: str | PathLike) -> None:
    """Write a document as JSON, in a file that its owner alone may read.

    Parameters
    ----------
    document
        Dictionary of JSON values.
    path
        Where the file is written.

    Raises
    ------
    ValueError
        If it holds NaN or infinity.

    Examples
    --------
    >>> bnp.io.write_json({"tau1": risk.tau1.mean()}, "risk.json")
    """
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(text + "\n", path)


def write_frame(
    frame: pd.DataFrame,
    path: str | PathLike,
    labelling: Labelling | None = None,
    *,
    private: bool = False,
) -> None:
    """Write records as CSV, or as Parquet, Stata (.dta) or SPSS (.sav) by the name of the file.

    If Stata or SPSS does not allow the name of a column, the name is changed ("age in years"
    becomes age_in_years), and the original name becomes the label of the column, in place of a
    description. `read_microdata` and `read_frame` find the column by either name.

    Parameters
    ----------
    frame
        Records as labels.
    path
        The file. CSV has a header, and missing values are empty cells.
    labelling
        Value and variable labels for Stata and SPSS, as `read_labelling` returns them.
    private
        Whether its owner alone may read the file.

    Raises
    ------
    FormatError
        If the format cannot hold the values, or cannot hold a name even as a label; if it is .zsav;
        or if pyreadstat is not installed.

    Examples
    --------
    >>> bnp.io.write_frame(frame, "sample.parquet")
    >>> pd.read_parquet("sample.parquet").shape
    (62, 3)
    >>> bnp.io.write_frame(frame.rename(columns={"age": "age in years"}), "sample.dta")
    >>> bnp.read_microdata("sample.dta").schema.variables[0]
    'age_in_years'
    >>> bnp.read_microdata("sample.dta", ["age in years"]).schema.variables
    ('age in years',)
    """
    kind = Path(path).suffix.lower().lstrip(".")
    if kind == "zsav":
        raise FormatError("compressed .zsav files can be read but not written; name the file .sav")
    with replacing(path, private) as partial:
        if kind in ("dta", "sav"):
            write_labelled(frame, partial, kind, labelling)
        elif kind in ("parquet", "pq"):
            frame.to_parquet(partial, index=False)
        else:
            _write_csv(frame, partial, "utf-8")


def write_table(
    frame: pd.DataFrame, path: str | PathLike, figures: Sequence[str] = (), *, bom: bool = False
) -> None:
    """Write a table for spreadsheets as CSV, or as Parquet if the file is named so.

    Its owner alone may read the file. Text that a spreadsheet would run as a formula, of cells and
    of the header, is written after an apostrophe; numbers such as -9 are left as they are.

    Parameters
    ----------
    frame
        The table.
    path
        The file.
    figures
        Columns of estimates, which are written with `DIGITS` significant digits.
    bom
        Begin with a byte order mark, by which Excel knows UTF-8.

    Examples
    --------
    >>> bnp.io.write_table(pd.DataFrame({"label": ["=1+1"], "r1": [1 / 3]}), "risks.csv", ["r1"])
    >>> pd.read_csv("risks.csv")["label"].tolist()
    ["'=1+1"]
    """
    if Path(path).suffix.lower() in (".parquet", ".pq"):
        write_frame(frame, path, private=True)
        return
    columns = {
        name: frame[name].map(lambda x: float(f"{x:.{DIGITS}g}"))
        if name in figures
        else frame[name].astype(object).map(_harmless)
        for name in frame
    }
    table = pd.DataFrame(columns, columns=frame.columns).rename(columns=_harmless)
    with replacing(path) as partial:
        _write_csv(table, partial, "utf-8-sig" if bom else "utf-8")


def _write_csv(frame: pd.DataFrame, path: Path, encoding: str) -> None:
    """Write a frame as CSV."""
    columns = (column for _, column in frame.items() if not is_numeric_dtype(column.dtype))
    texts = itertools.chain(frame.columns, *(column.unique() for column in columns))
    # Python puts no quotes around a carriage return, which ends a line when it is read.
    bare = any(isinstance(text, str) and "\r" in text for text in texts)
    quoting = csv.QUOTE_NONNUMERIC if bare else csv.QUOTE_MINIMAL
    frame.to_csv(path, index=False, lineterminator="\n", encoding=encoding, quoting=quoting)


def _harmless(value):
    """The value, after an apostrophe where it is text that a spreadsheet would run."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def write_text(text: str, path: str | PathLike) -> None:
    """Write a text as UTF-8, in a file that its owner alone may read."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing(path: str | PathLike, private: bool = True) -> Iterator[Path]:
    """Yield an empty file to write to; then sync that file and rename it to `path`.

    A crash leaves the old file, or none, but never half of the new one. Where it is private, its
    owner alone may ever read it.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        os.close(os.open(partial, flags, 0o600 if private else 0o666))
        yield partial
        with open(partial, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(partial, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            # Writing and syncing know no name.
            error.filename = os.fspath(path)
        raise
