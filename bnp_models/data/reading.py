"""Files of microdata: CSV, Parquet, Stata and SPSS, read as labels or coded."""

import contextlib
import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from bnp_models.data.messages import quoted, reason
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import (
    Label,
    Levels,
    MicrodataError,
    Schema,
    choose_variables,
    declared_levels,
    first_repeated,
    levels_of_frame,
)
from bnp_models.data.stata_spss import (
    FormatError,
    column_names,
    is_labelled,
    read_labelled,
    read_labelling,
)

_PARQUET_SUFFIXES = (".parquet", ".pq")

Coded = TypeVar("Coded")


def read_microdata(
    path: str | PathLike,
    variables: Sequence[str] | None = None,
    levels: Levels | Schema | str | PathLike | None = None,
) -> Microdata:
    """Read a CSV file, or Parquet (.parquet, .pq), Stata (.dta) or SPSS (.sav, .zsav) by its name.

    Parameters
    ----------
    path : str or path
        One record a row, with a header. A folder of Parquet files, in the order of their names, is
        one sample (`read_contingency_table` reads one that is larger than memory). CSV is UTF-8;
        its values are read as text (``01`` is not ``1``, ``NA`` is a label) and only empty cells
        are missing. Stata and SPSS files need pyreadstat: values with a label are read as the
        label, in the order of the values, and user-missing and extended missing values are missing.
    variables : sequence of str, optional
        The columns to keep; all by default.
    levels : path, mapping, frame or Schema, optional
        Declared levels as in :meth:`Microdata.from_frame`, or the file that :func:`read_levels`
        reads.

    Raises
    ------
    MicrodataError
        If the file cannot be read or used; it names the file, row, line, column and value.
    """
    return read_coded(
        path,
        levels,
        lambda names: choose_variables(variables, names),
        lambda frame, declared: Microdata.from_frame(frame, levels=declared),
    )


def read_coded(
    path: str | PathLike,
    levels: Levels | Schema | str | PathLike | None,
    choose: Callable[[list[str]], Sequence[str]],
    code: Callable[[pd.DataFrame, Mapping[str, Sequence[Label]]], Coded],
) -> Coded:
    """Read the columns that `choose` picks of a file's names, coded by `code`.

    Parameters
    ----------
    path, levels
        As for :func:`read_microdata`.
    choose : callable
        Takes the names of the file's columns, returns the chosen ones.
    code : callable
        Takes the frame of the chosen columns and the levels declared of them, returns coded data.

    Raises
    ------
    MicrodataError
        If the file cannot be read, or `choose` or `code` raise it; it names the file.
    """
    declared, chosen = choose_columns(path, levels, choose)
    frame, lines = read_frame(path, chosen)
    try:
        return code(frame, declared)
    except MicrodataError as error:
        raise error.in_file(path, lines) from None


def choose_columns(
    path: str | PathLike,
    levels: Levels | Schema | str | PathLike | None,
    choose: Callable[[list[str]], Sequence[str]],
) -> tuple[dict[str, Sequence[Label]], Sequence[str]]:
    """Return the levels declared of the columns that `choose` picks, and these columns.

    Parameters and errors are as of :func:`read_coded`.
    """
    names = columns_of_file(path)
    if isinstance(levels, str | PathLike):
        levels = read_levels(levels, names)
    try:
        declared = declared_levels(levels, names)
        chosen = choose(names)
    except MicrodataError as error:
        raise error.in_file(path) from None
    return {name: kept for name, kept in declared.items() if name in chosen}, chosen


def read_levels(
    path: str | PathLike, variables: Schema | Iterable[str] | None = None
) -> dict[str, tuple[Label, ...]]:
    """Read declared levels from a file with columns ``variable`` and ``level``.

    Parameters
    ----------
    path : str or path
        One row a level, in order. In a Stata or SPSS file without these columns, the value labels
        are the levels.
    variables : Schema or iterable of str, optional
        The names that may occur; any by default.

    Raises
    ------
    MicrodataError
        If the file cannot be read, a cell is empty, a variable is unknown or a level repeated.
    """
    if isinstance(variables, Schema):
        variables = variables.variables
    names = None if variables is None else list(variables)
    if is_labelled(path) and not {"variable", "level"} <= set(columns_of_file(path)):
        return _levels_of_labels(path, names)
    frame, lines = read_frame(path, ("variable", "level"))
    try:
        return levels_of_frame(frame, names)
    except MicrodataError as error:
        raise error.in_file(path, lines) from None


def read_frame(
    path: str | PathLike, columns: Sequence[str] | None = None
) -> tuple[pd.DataFrame, list[int] | None]:
    """Read columns of a file as :func:`read_microdata` does, uncoded.

    Returns
    -------
    frame : DataFrame
        For CSV, text, with empty strings where cells are empty.
    lines : (n,) list of int or None
        For CSV, the 1-based line on which each record starts.

    Raises
    ------
    MicrodataError
        If the file cannot be read, a row has too many or too few cells, or a column is missing.
    """
    names = columns_of_file(path)
    try:
        chosen = choose_variables(columns, names)
    except MicrodataError as error:
        raise error.in_file(path) from None
    if is_folder(path) or Path(path).suffix.lower() in _PARQUET_SUFFIXES:
        with parquet_errors(path):
            return parquet_dataset(path).to_table(list(chosen)).to_pandas(), None
    if is_labelled(path):
        return _labelled(lambda: read_labelled(path, chosen), path), None
    return _read_csv(path, names, chosen)


def _read_csv(
    path: str | PathLike, names: Sequence[str], chosen: Sequence[str]
) -> tuple[pd.DataFrame, list[int]]:
    """Read chosen columns of a CSV file with these names; return frame and lines."""
    positions = [names.index(name) for name in chosen]
    values: list[list[str]] = [[] for _ in chosen]
    # One object for each distinct value of a column: a tenth of the memory on large files.
    pools: list[dict[str, str]] = [{} for _ in chosen]
    lines: list[int] = []
    for line, cells in _csv_rows(path):
        if line == 1:
            continue
        if not cells and len(names) > 1:
            continue
        cells = cells or [""]
        if len(cells) != len(names):
            raise MicrodataError(
                f"{len(cells)} cells but the header has {len(names)}; add or remove cells, or "
                "quote the values that hold commas",
                file=path,
                row=len(lines),
                line=line,
            )
        lines.append(line)
        for column, pool, position in zip(values, pools, positions, strict=True):
            column.append(pool.setdefault(cells[position], cells[position]))
    return pd.DataFrame(dict(zip(chosen, values, strict=True)), dtype=object), lines


def columns_of_file(path: str | PathLike) -> list[str]:
    """Return the names of a file's columns, without reading its records."""
    if is_folder(path) or Path(path).suffix.lower() in _PARQUET_SUFFIXES:
        schema = parquet_dataset(path).schema
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        return [name for name in schema.names if name not in index]
    if is_labelled(path):
        return _labelled(lambda: column_names(path), path)
    header = next(iter(_csv_rows(path)), None)
    if header is None:
        raise MicrodataError("the file is empty; expected a header and records", file=path)
    _, cells = header
    if not cells:
        raise MicrodataError("the first line is empty; expected a header", file=path, line=1)
    return cells


def _levels_of_labels(
    path: str | PathLike, names: Sequence[str] | None
) -> dict[str, tuple[Label, ...]]:
    """Return the value labels of a Stata or SPSS file, by variable that has any."""
    labelling = _labelled(lambda: read_labelling(path), path)
    labelled = [name for name in labelling.values if names is None or name in names]
    levels = {name: tuple(labelling.substantive(name).values()) for name in labelled}
    for name, labels in levels.items():
        if (repeated := first_repeated(labels)) is not None:
            raise MicrodataError(
                f"two values are labelled {quoted(repeated)}; relabel one", file=path, column=name
            )
    return levels


def is_folder(path: str | PathLike) -> bool:
    """Whether this is a folder, of Parquet files as it must be."""
    return Path(path).is_dir()


def parquet_dataset(path: str | PathLike) -> Any:
    """Open a Parquet file, or a folder of them, as a ``pyarrow.dataset.Dataset``."""
    from pyarrow import dataset

    files = [str(path)]
    if is_folder(path):
        found = (p for p in Path(path).rglob("*") if p.suffix.lower() in _PARQUET_SUFFIXES)
        files = sorted(map(str, found))
        if not files:
            raise MicrodataError(
                "is a folder without Parquet files (.parquet, .pq); give a file, or such a folder",
                file=path,
            )
    with parquet_errors(path):
        return dataset.dataset(files, format="parquet")


@contextlib.contextmanager
def parquet_errors(path: str | PathLike) -> Iterator[None]:
    """Raise the errors of reading Parquet files as errors of input."""
    from pyarrow import ArrowException

    try:
        yield
    except MicrodataError:
        raise
    except OSError as error:
        raise MicrodataError(f"cannot be read ({reason(error)})", file=path) from None
    except (ArrowException, ValueError) as error:
        raise MicrodataError(f"is not a Parquet file ({reason(error)})", file=path) from None


def _labelled(read: Callable[[], Coded], path: str | PathLike) -> Coded:
    """Read a Stata or SPSS file, and raise its errors as errors of input."""
    try:
        return read()
    except FormatError as error:
        raise MicrodataError(str(error), file=path, column=error.column) from None
    except OSError as error:
        raise MicrodataError(f"cannot be read ({reason(error)})", file=path) from None


def _csv_rows(path: str | PathLike) -> Iterable[tuple[int, list[str]]]:
    """Yield the first line (1-based) and the cells of each row of a CSV file, header included."""
    line = 1
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for cells in reader:
                yield line, cells
                line = reader.line_num + 1
    except OSError as error:
        raise MicrodataError(f"cannot be read ({reason(error)})", file=path) from None
    except UnicodeDecodeError:
        raise MicrodataError("is not UTF-8 text; save it as UTF-8 CSV", file=path) from None
    except csv.Error as error:
        raise MicrodataError(f"is not valid CSV ({error})", file=path, line=line) from None
