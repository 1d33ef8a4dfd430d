"""Reading of synthetic files, and coding of frames, like their original."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.bins import in_bins
from bnp_models.data.folders import read_records
from bnp_models.data.frames import TABLES, Tabular, code_together, person_columns, with_schema_of
from bnp_models.data.households import Households, persons_of, read_households
from bnp_models.data.messages import as_option, listed, quoted
from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.reading import columns_of_file
from bnp_models.data.recoding import Merged
from bnp_models.data.schema import MicrodataError
from bnp_models.data.text_files import AS_FOUND, Reading


def read_like(
    path: str | PathLike,
    table: Records | Households,
    bins: Mapping[str, Merged] | None = None,
    reading: Reading = AS_FOUND,
) -> Records | Households:
    """Read a file of the same variables and levels as a table, such as a synthetic one.

    Parameters
    ----------
    path
        As for `read_records`, or `read_households`; other columns are left out.
    table
        Table whose coding the records get.
    bins
        Bins or merged levels of variables of the table. In the file such a variable may have
        unmerged values, any numbers, or the merged levels.
    reading
        Format of the file.

    Raises
    ------
    MicrodataError
        If the file cannot be read, lacks a variable, or has a label that is not a level of the
        table. The message names the file, row, line, column and value.

    Examples
    --------
    >>> files[0].to_csv("synthetic_1.csv", index=False)
    >>> bnp.io.read_like("synthetic_1.csv", table).schema == table.schema
    True
    """
    bins, schema = bins or {}, persons_of(table).schema
    levels = {
        variable: labels
        for variable, labels in zip(schema.variables, schema.levels, strict=True)
        if variable not in bins
    }
    try:
        _require_columns(path, schema.variables, reading)
        if isinstance(table, Households):
            return _read_households_like(path, table, levels, bins, reading)
        records = read_records(path, schema.variables, levels, reading)
        records = in_bins(_spelt_alike(records, bins) if reading.normalise else records, bins)
    except MicrodataError as error:
        raise error if error.file is not None else error.in_file(path) from None
    return records.recoded(schema, records.codes)


def _require_columns(path: str | PathLike, names: Sequence[str], reading: Reading) -> None:
    """Raise `MicrodataError`, which names all of them, if columns of the original are lacking."""
    there = columns_of_file(path, reading, names)
    if lacking := [name for name in names if name not in there]:
        some = listed(map(quoted, lacking))
        raise MicrodataError(
            f"has no column {some}, which the original has; choose the variables that are compared "
            f"(--drop {as_option(lacking)})"
        )


def _read_households_like(path, table: Households, levels, bins, reading) -> Households:
    """Read a file of persons within households with the coding of a table."""
    schema = table.schema
    columns = person_columns(schema)
    households = read_households(
        path, schema.household, schema.household_level, columns, levels, reading=reading
    )
    persons: Records = households.persons
    if reading.normalise:
        persons = _spelt_alike(persons, bins)
    persons = Microdata(schema.table, in_bins(persons, bins).codes)
    return with_schema_of(households.with_persons(persons, schema.head), table)


def _spelt_alike(table: Records, bins: Mapping[str, Merged]) -> Records:
    """Records with merged levels, whose values are first spelt like the labels of the original."""
    levels = dict(zip(table.schema.variables, table.schema.levels, strict=True))
    return in_bins(table, {name: of.in_one_spelling(levels[name]) for name, of in bins.items()})


def coded_files(
    call: str,
    original: Tabular,
    synthetic: Tabular | Sequence[Tabular],
    *,
    complete: bool = False,
    **others: Tabular | None,
) -> tuple[Any, list[Any], dict[str, Any]]:
    """Code files that are to be compared with their original, and check that this is possible.

    Parameters
    ----------
    call
        How the function is called, for messages.
    original
        Coded records or households, or a data frame of records.
    synthetic
        The files, or one: tables of the same schema, or data frames, which are coded like the
        original.
    complete
        Whether each file must have a complete record.
    others
        Further files by the names of their arguments, or None.

    Returns
    -------
    original, synthetic, others
        The coded files.

    Raises
    ------
    TypeError
        If a file is neither a table nor a data frame.
    ValueError
        If no file is given, or one has another schema or lacks a complete record that it must have;
        a MicrodataError if a data frame cannot be coded.
    """
    files = [synthetic] if isinstance(synthetic, (*TABLES, pd.DataFrame)) else synthetic
    check_kind(Sequence, call, synthetic=files)
    if not len(files):
        raise ValueError("at least one synthetic file is needed")
    named = {f"synthetic file {m + 1}": file for m, file in enumerate(files)}
    table, coded = code_together(original, {**named, **others}, call)
    there = [table, *(x for x in coded if x is not None)]
    if any(x.schema != table.schema for x in there):
        raise ValueError("the files have other variables or levels than the original")
    if complete and not all(persons_of(x).complete.any() for x in there):
        raise ValueError("a file has no complete record")
    number = len(named)
    return table, coded[:number], dict(zip(others, coded[number:], strict=True))
