"""Files of microdata: text, Parquet, Excel, Stata and SPSS, read as labels or coded."""

import contextlib
import errno
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pandas as pd

from bnp_models.data import excel
from bnp_models.data.display import counted
from bnp_models.data.layout import one_line, renamed
from bnp_models.data.messages import listing, quoted, reason
from bnp_models.data.microdata import Microdata
from bnp_models.data.respelling import respelled
from bnp_models.data.schema import (
    Label,
    Levels,
    MicrodataError,
    Schema,
    choose_variables,
    declared_levels,
    errors_in,
    first_repeated,
    levels_of_frame,
    plain_label,
    text_of,
)
from bnp_models.data.source import Source, opened
from bnp_models.data.stata_spss import (
    FormatError,
    column_names,
    is_labelled,
    read_labelled,
    read_labelling,
)
from bnp_models.data.strange_rows import check_rows
from bnp_models.data.text_files import (
    AS_FOUND,
    SEPARATORS,
    Reading,
    layout_of,
    text_rows,
    written_as,
)

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

_LOG = logging.getLogger(__name__)

_PARQUET_SUFFIXES = (".parquet", ".pq")

Coded = TypeVar("Coded")


def read_microdata(
    path: str | PathLike,
    variables: Sequence[str] | None = None,
    levels: Levels | Schema | str | PathLike | None = None,
    reading: Reading = AS_FOUND,
) -> Microdata:
    """Read a text file, or Parquet (.parquet, .pq), Excel (.xlsx), Stata or SPSS by its name.

    Parameters
    ----------
    path : str, path or Source
        One record a row, with a header. A folder of Parquet files, in the order of their names, is
        one sample (`read_contingency_table` reads one that is larger than memory). The values of
        text files, CSV and the like, compressed (gzip, bzip2, xz, or a zip file of one alone) or
        not, are read as text (``01`` is not ``1``, ``NA`` is a label) and only empty cells are
        missing; "-" is a text file on standard input. Of a workbook (.xlsx, needs
        openpyxl) the first sheet is read, or that of `reading`. Stata (.dta) and SPSS files (.sav,
        .zsav) need pyreadstat: values with a label are read as the label, in the order of the
        values, and user-missing and extended missing values are missing.
    variables : sequence of str, optional
        The columns to keep; all by default. A column that :func:`~bnp_models.io.write_frame` had to
        rename for Stata or SPSS can be given by its original name.
    levels : path, mapping, frame or Schema, optional
        Declared levels as in :meth:`Microdata.from_frame`, or the file that
        :func:`~bnp_models.io.read_levels` reads.
    reading : Reading, optional
        Separator of the cells, encoding, labels that stand for missing values, position of the
        header, and notation of numbers. A first column that numbers the rows and has no name is
        left out, and so are columns without a name and without values.

    Raises
    ------
    MicrodataError
        If the file cannot be read or used; it names the file, row, line, column and value.

    Examples
    --------
    >>> frame.to_csv("sample.csv", index=False)
    >>> bnp.read_microdata("sample.csv", variables=["age", "sex"]).n
    62
    """
    return read_coded(
        path,
        levels,
        lambda names: choose_variables(variables, names),
        lambda frame, declared: Microdata.from_frame(frame, levels=declared),
        reading,
        variables or (),
    )


def read_coded(
    path: str | PathLike,
    levels: Levels | Schema | str | PathLike | None,
    choose: Callable[[list[str]], Sequence[str]],
    code: Callable[[pd.DataFrame, Mapping[str, Sequence[Label]]], Coded],
    reading: Reading = AS_FOUND,
    wanted: Sequence[str] = (),
    identifiers: Sequence[str] = (),
) -> Coded:
    """Read the columns that `choose` picks of a file's names, coded by `code`.

    Parameters
    ----------
    path, levels, reading
        As for :func:`~bnp_models.read_microdata`.
    choose : callable
        Takes the names of the file's columns, returns the chosen ones.
    code : callable
        Takes the frame of the chosen columns and their declared levels, returns coded data.
    wanted : sequence of str
        Names that `choose` will ask for, as for :func:`columns_of_file`.
    identifiers : sequence of str
        Columns whose labels stay as they are in the file.

    Raises
    ------
    MicrodataError
        If the file cannot be read, or `choose` or `code` raise it; it names the file.
    """
    with opened(path) as source:
        declared, chosen = choose_columns(source, levels, choose, reading, wanted)
        frame, lines = read_frame(source, chosen, reading)
        for name in chosen:
            if name not in declared and isinstance(frame[name].dtype, pd.CategoricalDtype):
                kept = frame[name].cat.remove_unused_categories().cat.categories
                tell_of_unused(
                    source, name, frame[name].cat.categories.difference(kept, sort=False)
                )
        with errors_in(source):
            kept = frame[[name for name in chosen if name in identifiers]]
            frame, declared = respelled(frame.drop(columns=kept), declared, source, reading)
    for name in frame if reading.missing or reading.missing_of else ():
        # Those that are spelt as others now.
        frame[name] = _without_missing(frame[name], name, reading)
    if len(kept.columns):
        frame = frame.assign(**{name: kept[name] for name in kept})[list(chosen)]
    with errors_in(source, lines):
        return code(frame, declared)


def tell_of_unused(source: Source, variable: str, unused: Sequence[Label]) -> None:
    """Say that a column has categories that no record has, if there are any."""
    if len(unused):
        _LOG.warning(
            "%s: column %r has %s that no record has (%s); they are levels of the variable, but "
            "would not be if SAMPLE were a text file; --levels declares which levels there are",
            source, variable, counted(len(unused), "category", "categories"),
            listing(list(unused)),
        )  # fmt: skip


def choose_columns(
    source: Source,
    levels: Levels | Schema | str | PathLike | None,
    choose: Callable[[list[str]], Sequence[str]],
    reading: Reading = AS_FOUND,
    wanted: Sequence[str] = (),
) -> tuple[dict[str, Sequence[Label]], Sequence[str]]:
    """Return the levels declared of the columns that `choose` picks, and these columns.

    Parameters and errors are as of :func:`read_coded`.
    """
    names = columns_of_file(source, reading, wanted)
    if isinstance(levels, str | PathLike):
        levels = read_levels(levels, names)
    with errors_in(source):
        declared = declared_levels(levels, names)
        chosen = choose(names)
    return {
        name: [label for label in kept if not stands_for_missing(label, name, reading)]
        for name, kept in declared.items()
        if name in chosen
    }, chosen


def stands_for_missing(label: Label, column: str, reading: Reading) -> bool:
    """Whether a label is one of those that stand for a missing value in a column."""
    if not (reading.missing or reading.missing_of):
        return False
    text = text_of(plain_label(label))
    return text in reading.missing or (column, text) in reading.missing_of


def read_levels(
    path: str | PathLike, variables: Schema | Iterable[str] | None = None
) -> dict[str, tuple[Label, ...]]:
    """Read declared levels from a file with columns ``variable`` and ``level``.

    Parameters
    ----------
    path : str or path
        One row for each level, in order. If a Stata or SPSS file does not have these columns, its
        value labels are the levels.
    variables : Schema or iterable of str, optional
        The names that may occur; any by default.

    Raises
    ------
    MicrodataError
        If the file cannot be read, a cell is empty, a variable is unknown or a level repeated.

    Examples
    --------
    >>> levels = pd.DataFrame({"variable": ["sex", "sex"], "level": ["Female", "Male"]})
    >>> levels.to_csv("levels.csv", index=False)
    >>> bnp.io.read_levels("levels.csv")
    {'sex': ('Female', 'Male')}
    """
    if isinstance(variables, Schema):
        variables = variables.variables
    names = None if variables is None else list(variables)
    with opened(path) as source:
        if is_labelled(source) and not {"variable", "level"} <= set(columns_of_file(source)):
            return _levels_of_labels(source, names)
        frame, lines = read_frame(source, ("variable", "level"))
    with errors_in(source, lines):
        return levels_of_frame(frame, names)


def read_frame(
    path: str | PathLike, columns: Sequence[str] | None = None, reading: Reading = AS_FOUND
) -> tuple[pd.DataFrame, list[int] | None]:
    """Read columns of a file as :func:`~bnp_models.read_microdata` does, uncoded.

    Parameters
    ----------
    path
        A file in one of the formats that `read_microdata` reads.
    columns
        Columns to read. Default: all.
    reading
        Separator, encoding, signs of missing values and the like. Default: as found in the file.

    Returns
    -------
    frame : DataFrame
        For text files, text, with empty strings where cells are empty.
    lines : (n,) list of int or None
        For text files and workbooks, the 1-based line on which each record starts.

    Raises
    ------
    MicrodataError
        If the file cannot be read, a row has too many or too few cells, or a column is missing.

    Examples
    --------
    >>> frame.to_csv("sample.csv", index=False)
    >>> read, lines = bnp.io.read_frame("sample.csv")
    >>> read.shape, lines[:2]
    ((62, 3), [2, 3])
    """
    with opened(path) as source:
        names = columns_of_file(source, reading, columns or ())
        with errors_in(source):
            chosen = choose_variables(columns, names)
        frame, lines = _read_columns(source, names, chosen, reading)
        check_rows(source, frame, lines)
    if reading.missing or reading.missing_of:
        for name in chosen:
            frame[name] = _without_missing(frame[name], name, reading)
    return frame, lines


def _read_columns(source: Source, names, chosen, reading) -> tuple[pd.DataFrame, list[int] | None]:
    """Read chosen columns of a file of any format with these names; return frame and lines."""
    if is_parquet(source):
        with parquet_errors(source):
            in_file = parquet_names(source)
            table = parquet_dataset(source).to_table([in_file[name] for name in chosen])
            # Or bytes that are no text are found by whoever looks at them first.
            table.validate(full=True)
            return table.to_pandas().set_axis(list(chosen), axis=1), None
    if is_labelled(source):
        return _labelled(lambda: read_labelled(source, chosen), source), None
    if excel.is_excel(source):
        frame, rows = excel.read_sheet(source, reading)
        return frame.loc[:, list(chosen)], rows
    return _read_text(source, names, chosen, reading)


def _without_missing(column: pd.Series, name: str, reading: Reading) -> pd.Series:
    """A column without the labels that stand for missing values."""
    codes = [value for value in column.unique() if stands_for_missing(value, name, reading)]
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.remove_categories(codes)
    return column.mask(column.isin(codes)) if codes else column


def _read_text(
    source: Source, names: Sequence[str], chosen: Sequence[str], reading: Reading
) -> tuple[pd.DataFrame, list[int]]:
    """Read chosen columns of a text file with these names; return frame and lines."""
    layout = layout_of(source, reading)
    positions = [layout.positions[names.index(name)] for name in chosen]
    values: list[list[str]] = [[] for _ in chosen]
    # One object for each distinct value of a column: a tenth of the memory on large files.
    pools: list[dict[str, str]] = [{} for _ in chosen]
    lines: list[int] = []
    # Number of records up to the last one that has a value.
    used = 0
    for line, cells in itertools.islice(text_rows(source, reading), 1, None):
        if not cells and max(layout.widths) > 1:
            continue
        cells = cells or [""]
        if stray := [j for j in layout.empty if j < len(cells) and cells[j]]:
            raise MicrodataError(
                f"value {quoted(cells[stray[0]])} in column {stray[0]} (0-based), which has no "
                "name; name the column, or remove the value",
                file=source,
                row=len(lines),
                line=line,
            )
        if len(cells) not in layout.widths:
            sep, _ = written_as(source, reading)
            note = ", or remove the line, if it is a note on the table" * (len(cells) == 1)
            raise MicrodataError(
                f"{counted(len(cells), 'cell')} but the header has {len(names)}; add or remove "
                f"cells, or quote the values that hold {SEPARATORS.get(sep, quoted(sep))}{note}",
                file=source,
                row=len(lines),
                line=line,
            )
        lines.append(line)
        if any(cells) or len(cells) == 1:
            used = len(lines)
        for column, pool, position in zip(values, pools, positions, strict=True):
            column.append(pool.setdefault(cells[position], cells[position]))
    if used < len(lines):
        source.once(("empty", used), lambda: _LOG.warning(
            "%s: %d empty rows at the end are left out", source, len(lines) - used
        ))  # fmt: skip
    frame = pd.DataFrame(dict(zip(chosen, values, strict=True)), dtype=object)
    return frame.iloc[:used], lines[:used]


def columns_of_file(
    path: str | PathLike, reading: Reading = AS_FOUND, wanted: Sequence[str] = ()
) -> list[str]:
    """Return the names of a file's columns, without reading its records.

    A column of a Stata or SPSS file that was renamed when it was written has the name that it had
    if that is `wanted`, and the name in the file otherwise.
    """
    with opened(path) as source:
        _check_reading(source, reading)
        if is_parquet(source):
            with parquet_errors(source):
                return list(parquet_names(source))
        if is_labelled(source):
            return _labelled(lambda: column_names(source, wanted), source)
        if excel.is_excel(source):
            return excel.column_names(source, reading)
        return layout_of(source, reading).names


def _check_reading(source: Source, reading: Reading) -> None:
    """Refuse what is said of a sheet, of lines or of text, where the file has none."""
    if reading.sheet is not None and not excel.is_excel(source):
        raise MicrodataError("is no workbook with sheets; leave --sheet out", file=source)
    if reading.skip and (is_parquet(source) or is_labelled(source)):
        raise MicrodataError("has no lines above a header; leave --skip out", file=source)
    for name in ("sep", "encoding"):
        if vars(reading)[name] is not None and not is_text(source):
            raise MicrodataError(f"is no text file; leave --{name} out", file=source)


def _levels_of_labels(source: Source, names: Sequence[str] | None) -> dict[str, tuple[Label, ...]]:
    """Return the value labels of a Stata or SPSS file, by variable that has any."""
    labelling = _labelled(lambda: read_labelling(source, names or ()), source)
    labelled = [name for name in labelling.values if names is None or name in names]
    levels = {name: tuple(labelling.substantive(name).values()) for name in labelled}
    for name, labels in levels.items():
        if (repeated := first_repeated(labels)) is not None:
            raise MicrodataError(
                f"two values are labelled {quoted(repeated)}; relabel one", file=source, column=name
            )
    return levels


def is_text(source: Source) -> bool:
    """Whether this is a text file by its name."""
    return not (is_parquet(source) or is_labelled(source) or excel.is_excel(source))


def is_parquet(source: Source) -> bool:
    """Whether this is a folder, or the name of a Parquet file."""
    return source.is_folder or Path(source).suffix.lower() in _PARQUET_SUFFIXES


def parquet_dataset(source: Source) -> "Dataset":
    """Open a Parquet file, or a folder of them, as a ``pyarrow.dataset.Dataset``."""
    return source.once("dataset", lambda: _parquet_dataset(source))


def parquet_names(source: Source) -> dict[str, str]:
    """Names of the columns as those of text files are read, and what they are in the file."""

    def find() -> dict[str, str]:
        schema = parquet_dataset(source).schema
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        names = [name for name in schema.names if name not in index]
        for sentence in renamed(names):
            _LOG.warning("%s: %s", source, sentence)
        read = list(map(one_line, names))
        if (repeated := first_repeated(read)) is not None:
            raise MicrodataError(
                "the column name occurs twice; rename one", file=source, column=repeated
            )
        return dict(zip(read, names, strict=True))

    return source.once("parquet names", find)


def _parquet_dataset(source: Source) -> "Dataset":
    """Find the files, and the schema of the first."""
    from pyarrow import dataset

    files = [str(source)]
    if source.is_folder:
        found = (p for p in Path(source).rglob("*") if p.suffix.lower() in _PARQUET_SUFFIXES)
        files = sorted(map(str, found))
        if not files:
            raise MicrodataError(
                "is a folder without Parquet files (.parquet, .pq); give a file, or such a folder",
                file=source,
            )
    with parquet_errors(source):
        return dataset.dataset(files, format="parquet")


@contextlib.contextmanager
def parquet_errors(source: Source) -> Iterator[None]:
    """Raise the errors of reading Parquet files as errors of input."""
    try:
        yield
    except MicrodataError:
        raise
    except FileNotFoundError:
        # That of pyarrow has the path and no reason.
        raise MicrodataError(f"cannot be read ({os.strerror(errno.ENOENT)})", file=source) from None
    except OSError as error:
        raise MicrodataError(f"cannot be read ({reason(error)})", file=source) from None
    except Exception as error:
        # Of pyarrow's own kind, or of any where what pandas had noted of the columns is damaged.
        raise MicrodataError(f"is not a Parquet file ({reason(error)})", file=source) from None


def _labelled(read: Callable[[], Coded], source: Source) -> Coded:
    """Read a Stata or SPSS file, and raise its errors as errors of input."""
    try:
        return read()
    except FormatError as error:
        raise MicrodataError(str(error), file=source, column=error.column) from None
    except OSError as error:
        raise MicrodataError(f"cannot be read ({reason(error)})", file=source) from None
