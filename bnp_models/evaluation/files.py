"""Synthetic files read as their original was coded."""

from os import PathLike

import numpy as np

from bnp_models.data.households import Households, read_households
from bnp_models.data.microdata import Microdata
from bnp_models.data.reading import read_microdata
from bnp_models.data.schema import MicrodataError


def read_like(path: str | PathLike, table: Microdata | Households) -> Microdata | Households:
    """Read a file of the same variables and levels as a table, such as a synthetic one.

    Parameters
    ----------
    path
        As for `read_microdata`, or `read_households`; other columns are left out.
    table
        What its records are coded like; of households, without a head.

    Raises
    ------
    MicrodataError
        If the file cannot be read, lacks a variable, or has a label that the table's levels have
        not; it names the file, row, line, column and value.
    """
    if isinstance(table, Households):
        schema = table.schema
        columns = list(schema.table.variables)
        columns.insert(schema.id_position, schema.household)
        found = read_households(
            path, schema.household, schema.household_level, columns, schema.table
        )
        size = schema.size_variable
        if size is not None and found.schema.size_variable != size:
            raise MicrodataError(
                "is the number of persons in every household of the original, but not here; "
                "correct it",
                file=path,
                column=size,
            )
        # The labels of the table, whatever their type in the file.
        names = schema.table.variables
        codes, first = found.persons.codes[found.rows], np.cumsum(found.sizes) - found.sizes
        own, personal = (
            [names.index(name) for name in chosen]
            for chosen in (schema.household_variables, schema.personal)
        )
        return Households(
            schema, codes[first][:, own], found.sizes, codes[:, personal], found.ids, found.rows
        )
    found = read_microdata(path, table.schema.variables, table.schema)
    return Microdata(table.schema, found.codes)


def check_files(original, synthetic, population):
    if not synthetic:
        raise ValueError("at least one synthetic file is needed")
    for table in (*synthetic, *([] if population is None else [population])):
        if table.schema != original.schema:
            raise ValueError("the files have other variables or levels than the original")
