"""Excel workbooks: one sheet, read by pandas and openpyxl."""

import contextlib
import importlib.util
import logging
import shlex
import warnings
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import pandas as pd

from bnp_models.data.layout import Layout, Row, find_layout
from bnp_models.data.messages import install_command, listing, quoted, reason
from bnp_models.data.schema import MicrodataError
from bnp_models.data.source import Source
from bnp_models.data.text_files import AS_FOUND, Reading

_SUFFIXES = (".xlsx", ".xlsm")

# Rows of a sheet up to which it is no table of records.
_FEW_ROWS = 2

_LOG = logging.getLogger(__name__)


def is_excel(path: str | PathLike) -> bool:
    """Whether this is the name of an Excel workbook."""
    return Path(path).suffix.lower() in _SUFFIXES


def column_names(source: Source, reading: Reading = AS_FOUND) -> list[str]:
    """Return the names in the header of a sheet; errors as of `read_sheet`."""
    return _laid_out(source, reading)[1].names


def read_sheet(source: Source, reading: Reading = AS_FOUND) -> tuple[pd.DataFrame, list[int]]:
    """Read a sheet of a workbook, the first unless `reading` names one.

    Returns
    -------
    frame : DataFrame
        Cells as they are, numbers as numbers, NaN where empty; rows that are empty are left out.
    lines : (n,) list of int
        The 1-based row of the sheet that holds each record.

    Raises
    ------
    MicrodataError
        If openpyxl is not installed, the file is no workbook, it has no such sheet, or the sheet
        is empty or has a title in the place of its header.
    """
    sheet, layout = _laid_out(source, reading)
    records = sheet.iloc[reading.skip + 1 :].dropna(how="all")
    lines = [int(row) + 1 for row in records.index]
    records = records.iloc[:, layout.positions].set_axis(layout.names, axis=1)
    records = records.reset_index(drop=True)
    columns = [records.iloc[:, j].infer_objects() for j in range(len(layout.names))]
    return pd.concat(columns, axis=1), lines


def _laid_out(source: Source, reading: Reading) -> tuple[pd.DataFrame, Layout]:
    """Cells of a sheet, and its columns; it is read once, which takes long."""

    def read():
        sheet = _sheet(source, reading.sheet)
        filled = sheet.iloc[reading.skip :]
        if filled.isna().all(axis=None):
            raise MicrodataError("the sheet is empty; expected a header and records", file=source)
        # All rows are looked at: what belongs to no column must be empty in all of them.
        texts = filled.astype(object).where(filled.notna(), "").map(str).to_numpy()
        rows = [Row(reading.skip + 1 + k, cells) for k, cells in enumerate(texts)]
        if reading.sheet is None and len(filled.dropna(how="all")) <= _FEW_ROWS:
            _refuse_first(source)
        layout = find_layout([row for k, row in enumerate(rows) if any(row.cells) or not k], source)
        for remark in layout.remarks:
            _LOG.warning("%s: %s", source, remark)
        return sheet, layout

    return source.once(("sheet", reading.skip, reading.sheet), read)


def _refuse_first(source: Source) -> None:
    """Refuse the first sheet, which has hardly a row, if there are others."""
    with _errors(source), pd.ExcelFile(source.rewound(), engine="openpyxl") as book:
        names = list(map(str, book.sheet_names))
    if len(names) > 1:
        raise MicrodataError(
            f"the first sheet, {quoted(names[0])}, has no table of records; say which one has, "
            f"such as --sheet {shlex.quote(names[1])}",
            file=source,
        )


def _sheet(source: Source, asked: str | None) -> pd.DataFrame:
    """Cells of the sheet of this name or number, or of the first."""
    with _errors(source), pd.ExcelFile(source.rewound(), engine="openpyxl") as book:
        names = list(map(str, book.sheet_names))
        shown = [name for name in names if book.book[name].sheet_state == "visible"] or names
        if asked is None and len(names) > 1:
            hidden = " that is not hidden" if shown[0] != names[0] else ""
            _LOG.warning(
                "%s: read the first of %d sheets%s, %r (--sheet)", source, len(names), hidden,
                shown[0],
            )  # fmt: skip
        chosen = shown[0] if asked is None else asked
        if chosen not in names and chosen.isdecimal() and 1 <= int(chosen) <= len(names):
            chosen = names[int(chosen) - 1]
        if chosen not in names:
            raise MicrodataError(
                f"has no sheet {quoted(chosen)}; the sheets are {listing(names)}", file=source
            )
        return pd.read_excel(
            book, sheet_name=chosen, header=None, dtype=object, keep_default_na=False,
            na_values=[""],
        )  # fmt: skip


@contextlib.contextmanager
def _errors(source: Source) -> Iterator[None]:
    """Raise the errors of reading a workbook as errors of input."""
    if importlib.util.find_spec("openpyxl") is None:
        raise MicrodataError(
            "can be read only with the package openpyxl; save the sheet as CSV, or install the "
            f"package: {install_command('openpyxl')}",
            file=source,
        )
    try:
        with warnings.catch_warnings():
            # Of styles and the like that openpyxl does not keep.
            warnings.simplefilter("ignore", UserWarning)
            yield
    except MicrodataError:
        raise
    except OSError as error:
        raise MicrodataError(f"cannot be read ({reason(error)})", file=source) from None
    except Exception as error:
        # openpyxl checks little: what is wrong with a file comes as any kind of error.
        raise MicrodataError(f"is not an Excel workbook ({reason(error)})", file=source) from None
