"""Synthetic files read as their original was coded."""

from collections.abc import Mapping, Sequence
from os import PathLike

import numpy as np

from bnp_models.data.bins import Recodes, in_bins
from bnp_models.data.folders import read_records
from bnp_models.data.households import Households, persons_of, read_households
from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.schema import MicrodataError
from bnp_models.data.text_files import AS_FOUND, Reading


def read_like(
    path: str | PathLike,
    table: Records | Households,
    bins: Mapping[str, Recodes] | None = None,
    reading: Reading = AS_FOUND,
) -> Records | Households:
    """Read a file of the same variables and levels as a table, such as a synthetic one.

    Parameters
    ----------
    path
        As for `read_records`, or `read_households`; other columns are left out.
    table
        Table with the coding that its records get; of households, without a head.
    bins
        Bins or merged levels of the table's variables that have any: the file has values, any
        numbers, or the merged levels.
    reading
        How the file is written.

    Raises
    ------
    MicrodataError
        If the file cannot be read, lacks a variable, or has a label that the table's levels have
        not; it names the file, row, line, column and value.
    """
    bins, schema = bins or {}, persons_of(table).schema
    levels = {
        variable: labels
        for variable, labels in zip(schema.variables, schema.levels, strict=True)
        if variable not in bins
    }
    try:
        if isinstance(table, Households):
            return _read_households_like(path, table, levels, bins, reading)
        records = in_bins(read_records(path, schema.variables, levels, reading), bins)
    except MicrodataError as error:
        raise error if error.file is not None else error.in_file(path) from None
    return records.recoded(schema, records.codes)


def _read_households_like(path, table: Households, levels, bins, reading) -> Households:
    """Read a file of persons within households with the coding of a table."""
    schema = table.schema
    columns = list(schema.table.variables)
    columns.insert(schema.id_position, schema.household)
    households = read_households(
        path, schema.household, schema.household_level, columns, levels, reading=reading
    )
    persons = in_bins(households.persons, bins)
    households = households.with_persons(Microdata(schema.table, persons.codes))
    size = schema.size_variable
    if size is not None and households.schema.size_variable != size:
        raise MicrodataError(
            "is the number of persons in every household of the original, but not here; correct it",
            file=path,
            column=size,
        )
    # The labels of the table, whatever their type in the file.
    names = schema.table.variables
    codes = households.persons.codes[households.rows]
    first = np.cumsum(households.sizes) - households.sizes
    at_household = [names.index(name) for name in schema.household_variables]
    at_member = [names.index(name) for name in schema.personal]
    return Households(
        schema,
        codes[first][:, at_household],
        households.sizes,
        codes[:, at_member],
        households.ids,
        households.rows,
    )


def check_files(
    original: Records | Households,
    synthetic: Sequence[Records | Households],
    population: Records | Households | None = None,
    *,
    complete: bool = False,
) -> None:
    """Check that files can be compared with their original.

    Parameters
    ----------
    original, synthetic, population
        The files.
    complete
        Whether each of them has to have a complete record.

    Raises
    ------
    ValueError
        If no file is given, one has another schema, or no complete record where it has to.
    """
    if not synthetic:
        raise ValueError("at least one synthetic file is needed")
    for table in (*synthetic, *([] if population is None else [population])):
        if table.schema != original.schema:
            raise ValueError("the files have other variables or levels than the original")
    if complete and not all(persons_of(x).complete.any() for x in (original, *synthetic)):
        raise ValueError("a file has no complete record")
