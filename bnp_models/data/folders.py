"""Folders of Parquet files that together are one sample: read in batches, and counted by cell."""

import shutil
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bnp_models.data.bins import level_counts
from bnp_models.data.coding import ColumnCoder, not_plain
from bnp_models.data.contingency import ContingencyTable, Tabulator, too_few
from bnp_models.data.microdata import Records
from bnp_models.data.reading import (
    choose_columns,
    parquet_dataset,
    parquet_errors,
    parquet_names,
    read_microdata,
    stands_for_missing,
    tell_of_unused,
)
from bnp_models.data.recoding import Merged, Recoding
from bnp_models.data.respelling import is_respelled, respelled_labels, tell_of_trimmed
from bnp_models.data.schema import (
    Label,
    Levels,
    MicrodataError,
    Schema,
    choose_variables,
    errors_in,
)
from bnp_models.data.source import Source, opened
from bnp_models.data.text_files import AS_FOUND, Reading
from bnp_models.data.writing import replacing

if TYPE_CHECKING:
    from pyarrow import ChunkedArray, Table

# Records of a batch, and of a file that is written.
_BATCH, _RECORDS_OF_FILE = 2**19, 2**21


def read_records(
    path: str | PathLike,
    variables: Sequence[str] | None = None,
    levels: Levels | Schema | str | PathLike | None = None,
    reading: Reading = AS_FOUND,
) -> Records:
    """Read a file as `read_microdata` does, and a folder as `read_contingency_table` does."""
    with opened(path) as source:
        read = read_contingency_table if source.is_folder else read_microdata
        return read(source, variables, levels, reading)


def read_contingency_table(
    path: str | PathLike,
    variables: Sequence[str] | None = None,
    levels: Levels | Schema | str | PathLike | None = None,
    reading: Reading = AS_FOUND,
) -> ContingencyTable:
    """Read a folder of Parquet files, or one such file, in batches, and count the records by cell.

    Parameters
    ----------
    path : str or path
        The files of a folder are read in the order of their names, including the files in
        subfolders. All files must have the columns of the first one.
    variables, levels, reading
        As for `read_microdata`.

    Raises
    ------
    MicrodataError
        If the files cannot be read or used; it names the file, row, column and value.

    Notes
    -----
    The memory that is needed is that of one batch and of the distinct cells, whatever the number of
    records is.

    Examples
    --------
    >>> frame.to_parquet("sample.parquet")
    >>> counted = bnp.read_contingency_table("sample.parquet", levels=table.schema)
    >>> counted.digest == table.tabulated.digest
    True
    """
    with opened(path) as source:
        declared, chosen = choose_columns(
            source, levels, lambda names: choose_variables(variables, names), reading
        )
        with errors_in(source):
            return _tabulate(source, chosen, declared, reading)


def _tabulate(source, variables, declared, reading) -> ContingencyTable:
    """Read chosen columns into a contingency table."""
    from pyarrow import types

    dataset, in_file = parquet_dataset(source), parquet_names(source)
    coders = [
        ColumnCoder(
            # The labels of all parts tell how they are written.
            name, None if is_respelled(name, reading) else declared.get(name),
            types.is_dictionary(kind), getattr(kind, "ordered", False),
        )
        for name, kind in ((name, dataset.schema.field(in_file[name]).type) for name in variables)
    ]  # fmt: skip
    tabulator, trimmed = Tabulator(), set[str]()
    with parquet_errors(source):
        for batch in dataset.to_batches(
            columns=[in_file[name] for name in variables],
            batch_size=_BATCH,
            batch_readahead=2,
            fragment_readahead=1,
        ):
            batch.validate(full=True)
            row = tabulator.num_rows
            columns = [
                coder.add(*_factorized(column, name, reading, trimmed), row)
                for coder, column, name in zip(coders, batch.columns, variables, strict=True)
            ]
            tabulator.add(np.stack(columns, axis=1), [coder.num_labels for coder in coders])
    levels, recodes = zip(*(coder.finish() for coder in coders), strict=True)
    schema = Schema(tuple(variables), levels)
    if tabulator.num_rows < 2:
        raise too_few(tabulator.num_rows)
    table = tabulator.finish(schema, recodes)
    usable = int(table.counts[(table.codes >= 0).any(axis=1)].sum())
    if usable < 2:
        raise too_few(usable)
    for name, coder, labels in zip(variables, coders, levels, strict=True):
        if coder.categorical and name not in declared:
            unused = np.flatnonzero(level_counts(table, name) == 0)
            tell_of_unused(source, name, [labels[code] for code in unused])
    again = {
        name: one
        for name in variables
        if is_respelled(name, reading)
        and (one := _respelled(table, name, declared.get(name), source, reading)) is not None
    }
    tell_of_trimmed(source, [name for name in variables if name in trimmed])
    return Recoding.of(schema, again).coarser(table).tabulated if again else table


def _respelled(
    table: ContingencyTable,
    name: str,
    declared: Sequence[Label] | None,
    source: Source,
    reading: Reading,
) -> Merged | None:
    """Recoding of a variable to its labels as they are to be read; None where all stay."""
    labels = table.schema.levels[table.schema.variables.index(name)]
    counts = level_counts(table, name)
    seen = {label: int(n) for label, n in zip(labels, counts, strict=True) if n}
    new, known = respelled_labels(seen, name, declared, source, reading)
    if not new and known is None:
        return None
    coder = ColumnCoder(name, known)
    try:
        # Categories that no record has, and nobody declared, become any level.
        used = np.arange(len(labels))
        if known is not None:
            used[counts == 0] = -1
        codes = coder.add(used, [new.get(label, label) for label in labels])
    except MicrodataError as error:
        # Its row is that of a label.
        raise MicrodataError(error.problem, column=name) from None
    levels, recode = coder.finish()
    return Merged.of(name, labels, np.maximum(recode[codes], 0), levels)


def _factorized(
    column: "ChunkedArray", name: str, reading: Reading, trimmed: set[str]
) -> tuple[np.ndarray, list[Label]]:
    """Index of each record's value, -1 where missing, and the values, "" for a missing one.

    Texts, but no categories, are without blanks at their ends; `trimmed` gets the names of columns
    that had any.
    """
    from pyarrow import ArrowInvalid, ArrowNotImplementedError, types

    is_text = types.is_string(column.type) or types.is_large_string(column.type)
    try:
        if not types.is_dictionary(column.type):
            column = column.dictionary_encode()
    except (ArrowNotImplementedError, ArrowInvalid):
        raise not_plain(name) from None
    raw = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    values = column.dictionary.to_pylist()
    if types.is_float32(column.dictionary.type):
        values = [None if value is None else np.float32(value) for value in values]
    if is_text:
        bare = [value and (value.strip() or value) for value in values]
        if bare != values:
            trimmed.add(name)
        values = bare
    return raw, ["" if stands_for_missing(value, name, reading) else value for value in values]


def write_contingency_table(table: ContingencyTable, folder: str | PathLike) -> None:
    """Write the records of a contingency table, cell by cell, as a folder of Parquet files.

    The folder is replaced as a whole: a crash leaves the old one, or none, but never half of it.
    """
    from pyarrow.parquet import write_table

    folder = Path(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        for number, codes in enumerate(_records_of_cells(table)):
            with replacing(partial / f"part-{number:05}.parquet", private=False) as path:
                write_table(_labelled(table.schema, codes), path)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _labelled(schema: Schema, codes: np.ndarray) -> "Table":
    """Labels that codes stand for, as a ``pyarrow.Table``."""
    from pyarrow import DictionaryArray, array, table

    return table({
        variable: DictionaryArray.from_arrays(
            array(codes[:, j], mask=codes[:, j] < 0), array(labels)
        ).dictionary_decode()
        for j, (variable, labels) in enumerate(zip(schema.variables, schema.levels, strict=True))
    })  # fmt: skip


def _records_of_cells(table: ContingencyTable) -> Iterator[np.ndarray]:
    """Codes of the records, cell by cell, so many at a time."""
    ends = np.cumsum(table.counts)
    for start in range(0, table.n, _RECORDS_OF_FILE):
        stop = min(start + _RECORDS_OF_FILE, table.n)
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        inside = np.arange(first, last + 1)
        number = np.minimum(ends[inside], stop) - np.maximum(
            ends[inside] - table.counts[inside], start
        )
        yield np.repeat(table.codes[inside], number, axis=0)
