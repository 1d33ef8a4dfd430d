"""Data frames given in place of coded tables: coded by themselves, or like another table."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.microdata import RECORDS, Microdata, Records
from bnp_models.data.schema import Label, MicrodataError, errors_in, text_of
from bnp_models.data.weight_classes import require_unweighted

Tabular: TypeAlias = Records | Households | pd.DataFrame
"""A coded table, or a data frame that can be coded."""

TABLES = (*RECORDS, Households)
"""Types of coded tables."""


def code_like(given: Tabular, table: Records | Households) -> Records | Households:
    """Return a table as it is, and a data frame coded as another table is.

    Parameters
    ----------
    given
        A coded table, or a data frame with the variables of `table`; other columns are left out.
    table
        The records of the frame get its variables and levels and, for households, its column of
        identifiers and its head.

    Raises
    ------
    MicrodataError
        If the frame lacks a variable, or has a label that is not among the levels of the table.
    """
    if not isinstance(given, pd.DataFrame):
        return given
    require_unweighted(table, "coding a data frame like a table")
    if isinstance(table, Households):
        return households_like(given, table)
    made = Microdata.from_frame(given, table.schema.variables, table.schema)
    # The labels of the table, whatever their type in the frame.
    return made.recoded(table.schema, made.codes)


def households_like(frame: pd.DataFrame, table: Households) -> Households:
    """Code a frame of persons within households as others are.

    Raises
    ------
    MicrodataError
        As of `Households.from_frame`, or where the variable that is the households' size in the
        table is not in the frame.
    """
    schema = table.schema
    columns = person_columns(schema)
    made = Households.from_frame(
        frame, schema.household, schema.household_level, columns, schema.table, schema.head
    )
    return with_schema_of(made, table)


def person_columns(schema: HouseholdSchema) -> list[str]:
    """Columns of persons, the household's identifier at its place among them."""
    columns = list(schema.table.variables)
    columns.insert(schema.id_position, schema.household)
    return columns


def with_schema_of(made: Households, table: Households) -> Households:
    """Give households of the same variables, levels and head the schema of others.

    Labels may be of another type, and a variable may by chance be the number of persons.

    Raises
    ------
    MicrodataError
        Where the variable that is the households' size in the table is not.
    """
    schema = table.schema
    if schema.size_variable not in (None, made.schema.size_variable):
        raise MicrodataError(
            "is the number of persons of the household in every household of the original, but not "
            "in this one; correct it",
            column=schema.size_variable,
        )
    names = schema.table.variables
    codes = made.persons.codes[made.rows]
    first = np.cumsum(made.sizes) - made.sizes
    at_household = (*schema.modelled_household_level, *schema.head_variables)
    members = codes if schema.head is None else np.delete(codes, first, axis=0)
    members = members[:, [names.index(name) for name in schema.personal]]
    if schema.head is not None:
        relationship = members[:, schema.personal.index(schema.head[0])]
        relationship -= relationship > schema.head_code
    return Households(
        schema,
        codes[first][:, [names.index(name) for name in at_household]],
        made.sizes,
        members,
        made.ids,
        made.rows,
    )


def code_together(
    original: Tabular, others: Mapping[str, Tabular | None], call: str
) -> tuple[Records | Households, list[Records | Households | None]]:
    """Code data frames that are to be compared: the first by itself, the others like it.

    Parameters
    ----------
    original
        A table or a data frame. A frame is coded with the levels of the first table among the
        others; of frames only, with the labels that any of them has.
    others
        Tables or data frames by their names in messages; None stays.
    call
        How the function is called, for messages.

    Raises
    ------
    TypeError
        If one is neither.
    MicrodataError
        If a frame cannot be coded; it names the file.
    """
    given = {name: other for name, other in others.items() if other is not None}
    check_kind((*TABLES, pd.DataFrame), call, original=original, **given)
    if isinstance(original, pd.DataFrame):
        tables = [other for other in given.values() if not isinstance(other, pd.DataFrame)]
        frames = [other for other in given.values() if isinstance(other, pd.DataFrame)]
        original = (
            _named("original", original, tables[0])
            if tables
            else Microdata.from_frame(original, levels=_levels_of(original, frames))
        )
    coded = {name: _named(name, other, original) for name, other in given.items()}
    return original, [coded.get(name) for name in others]


def _named(name, given, table):
    """A table, or a frame coded like it; errors name the file."""
    with errors_in(name):
        return code_like(given, table)


def _levels_of(original: pd.DataFrame, files: Sequence[pd.DataFrame]) -> dict[str, list[Label]]:
    """Labels of an original's columns, and after them those that only files have."""
    schema = Microdata.from_frame(original).schema
    levels = {name: list(own) for name, own in zip(schema.variables, schema.levels, strict=True)}
    for file in files:
        common = [name for name in levels if name in file and file[name].notna().any()]
        for name in common:
            known = {text_of(label) for label in levels[name]}
            labels = Microdata.from_frame(file, [name]).schema.levels[0]
            levels[name] += [label for label in labels if text_of(label) not in known]
    return levels
