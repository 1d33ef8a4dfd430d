"""Excel workbooks: the first sheet, read by pandas and openpyxl."""

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import pandas as pd

from bnp_models.data.messages import reason
from bnp_models.data.schema import MicrodataError
from bnp_models.data.source import Source

_SUFFIXES = (".xlsx", ".xlsm")


def is_excel(path: str | PathLike) -> bool:
    """Whether this is the name of an Excel workbook."""
    return Path(path).suffix.lower() in _SUFFIXES


def column_names(source: Source) -> list[str]:
    """Return the names in the first row of the first sheet; errors as of `read_sheet`."""
    names = _named(_sheet(source), source)
    # What stands to the right of the header belongs to no column.
    return names[: max(j for j, name in enumerate(names) if name) + 1]


def read_sheet(source: Source) -> tuple[pd.DataFrame, list[int]]:
    """Read the first sheet of a workbook.

    Returns
    -------
    frame : DataFrame
        Cells as they are, numbers as numbers, NaN where empty; rows that are empty are left out.
    lines : (n,) list of int
        The 1-based row of the sheet that holds each record.

    Raises
    ------
    MicrodataError
        If openpyxl is not installed, or the file is no workbook.
    """
    sheet = _sheet(source)
    names = _named(sheet, source)
    records = sheet.iloc[1:].dropna(how="all")
    lines = [int(row) + 1 for row in records.index]
    records = records.set_axis(names, axis=1).reset_index(drop=True)
    return pd.concat([records.iloc[:, j].infer_objects() for j in range(len(names))], axis=1), lines


def _sheet(source: Source) -> pd.DataFrame:
    """Cells of the first sheet; it is read once, which takes long."""
    with _errors(source):
        return source.once("sheet", lambda: pd.read_excel(
            source.rewound(), header=None, dtype=object, keep_default_na=False, na_values=[""],
            engine="openpyxl",
        ))  # fmt: skip


def _named(sheet: pd.DataFrame, source: Source) -> list[str]:
    """Names in the first row, "" where it is empty."""
    names = [] if sheet.empty else ["" if pd.isna(name) else str(name) for name in sheet.iloc[0]]
    if not any(names):
        raise MicrodataError("the first sheet is empty; expected a header and records", file=source)
    return names


@contextlib.contextmanager
def _errors(source: Source) -> Iterator[None]:
    """Raise the errors of reading a workbook as errors of input."""
    if importlib.util.find_spec("openpyxl") is None:
        raise MicrodataError(
            "needs openpyxl; pip install 'bnp-models[formats]', or save the sheet as CSV",
            file=source,
        )
    try:
        with warnings.catch_warnings():
            # Of styles and the like that openpyxl does not keep.
            warnings.simplefilter("ignore", UserWarning)
            yield
    except OSError as error:
        raise MicrodataError(f"cannot be read ({reason(error)})", file=source) from None
    except Exception as error:
        # openpyxl checks little: what is wrong with a file comes as any kind of error.
        raise MicrodataError(f"is not an Excel workbook ({reason(error)})", file=source) from None
