"""Contingency tables: the distinct cells of categorical records, with counts.

Files that are larger than memory are read into contingency tables. Memory and time then depend on
the number of distinct cells and not on the number of records.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bnp_models.data.cells import group_cells
from bnp_models.data.display import Shown, counted, displayed, levels_by_variable
from bnp_models.data.schema import MicrodataError, Schema, content_digest

# Cells of parts that are put together, at the least.
LEAST_HELD = 2**20


class Coded:
    """Rows of level codes with a schema; a row is a record or a cell."""

    schema: Schema
    codes: np.ndarray

    @property
    def n(self) -> int:
        """Number of records."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Return the number of records."""
        return self.n

    @property
    def num_variables(self) -> int:
        """Number of variables, J."""
        return self.codes.shape[1]

    @property
    def has_missing(self) -> bool:
        """Whether any value is missing."""
        return bool((self.codes < 0).any())

    @property
    def complete(self) -> np.ndarray:
        """Rows that have values of all variables, bool."""
        return np.asarray((self.codes >= 0).all(axis=1))

    def to_frame(self) -> pd.DataFrame:
        """Return the rows with their labels, None (or NaN, for text) where missing."""
        return labels_of(self.schema, self.codes)


@dataclass(frozen=True, eq=False)
@displayed
class ContingencyTable(Coded):
    """Distinct cells of records of categorical variables, and how many records are in each.

    `Microdata.tabulated` and `read_contingency_table` make them.

    Parameters
    ----------
    schema : Schema
        The J variables and their levels.
    codes : (D, J) int32 array
        Level codes of the cells, distinct, in lexicographic order, -1 where missing.
    counts : (D,) int64 array
        Number of records in each, at least 1.
    first_rows : (D,) int64 array
        0-based row of the first record of each.

    Examples
    --------
    >>> counted = table.tabulated
    >>> len(counted), int(counted.counts.sum())
    (62, 62)
    """

    schema: Schema
    codes: np.ndarray
    counts: np.ndarray
    first_rows: np.ndarray

    @cached_property
    def n(self) -> int:
        """Number of records."""
        return int(self.counts.sum())

    @property
    def unique_cells(self) -> np.ndarray:
        """Indices of the cells with one record, ascending."""
        return np.flatnonzero(self.counts == 1)

    @property
    def digest(self) -> str:
        """SHA-256 of the schema, the codes and the counts, in hexadecimal digits."""
        return content_digest(self.schema, self.codes, self.counts)

    @property
    def tabulated(self) -> "ContingencyTable":
        """The table itself, as `Microdata.tabulated` is of records."""
        return self

    def require_complete(self, what: str) -> None:
        """Check that no value is missing; parameters and errors as of `Microdata`."""
        missing = np.flatnonzero(~self.complete)
        if missing.size:
            cell = missing[np.argmin(self.first_rows[missing])]
            number = int(self.counts[missing].sum()), self.n
            row = int(self.first_rows[cell])
            raise missing_value(self.schema, self.codes[cell], row, what, *number)

    def codes_at(self, rows: np.ndarray) -> np.ndarray:
        """Level codes (m, J) of the first records of cells, given their rows."""
        order = np.argsort(self.first_rows)
        return self.codes[order[np.searchsorted(self.first_rows, rows, sorter=order)]]

    def recoded(self, schema: Schema, codes: np.ndarray) -> "ContingencyTable":
        """Return the same records under another schema, their cells with these codes (D, J)."""
        grouped = group_rows(codes, schema.num_levels, self.counts, self.first_rows)
        return ContingencyTable(schema, *grouped)

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        what = f"{counted(self.n, 'record')} in {counted(len(self.counts), 'cell')}"
        lines = levels_by_variable(self.schema.variables, self.schema.levels)
        uniques = {"cells with one record": len(self.unique_cells)}
        title = f"ContingencyTable: {what} of {counted(self.num_variables, 'variable')}"
        return Shown(title, {**lines, **uniques})


class Tabulator:
    """Distinct cells of records that arrive in several parts.

    The memory that is needed is that of the distinct cells and of one part.
    """

    def __init__(self) -> None:
        self.num_rows = 0
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, codes: np.ndarray, num_levels: Sequence[int]) -> None:
        """Count records.

        Parameters
        ----------
        codes : (b, J) integer array
            Level codes, -1 where missing.
        num_levels : sequence of int, length J
            Numbers of levels so far; they may grow from part to part.
        """
        table = group_rows(codes, num_levels)
        self._parts.append((table[0], table[1], table[2] + self.num_rows))
        self.num_rows += len(codes)
        held = [len(part) for part, *_ in self._parts]
        # The first part is what was put together before: together again when it would double.
        if sum(held[1:]) > max(held[0], LEAST_HELD):
            self._parts = [self._together(num_levels)]

    def finish(
        self, schema: Schema, recodes: Sequence[np.ndarray] | None = None
    ) -> ContingencyTable:
        """Return the table.

        Parameters
        ----------
        schema : Schema
            The variables and their levels.
        recodes : sequence of arrays, optional
            For each variable, the new code of every code of `add`, last that of -1.
        """
        codes, counts, first_rows = (np.concatenate(x) for x in zip(*self._parts, strict=True))
        if recodes is not None:
            codes = np.stack([of[codes[:, j]] for j, of in enumerate(recodes)], axis=1)
        return ContingencyTable(schema, *group_rows(codes, schema.num_levels, counts, first_rows))

    def _together(self, num_levels):
        """All parts as one."""
        codes, counts, first_rows = (np.concatenate(x) for x in zip(*self._parts, strict=True))
        return group_rows(codes, num_levels, counts, first_rows)


def group_rows(
    codes: np.ndarray,
    num_levels: Sequence[int],
    counts: np.ndarray | None = None,
    first_rows: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group rows of codes, which may repeat and have missing values.

    Parameters
    ----------
    codes : (rows, J) integer array
        Level codes, -1 where missing.
    num_levels : sequence of int, length J
        Numbers of levels.
    counts, first_rows : (rows,) int64 arrays, optional
        Number of records that each row stands for, and the row of the first of them; by default
        each row is one record.

    Returns
    -------
    codes, counts, first_rows
        As of `ContingencyTable`.
    """
    # A missing value is a level of its own, the first.
    cells = group_cells(codes + 1, [size + 1 for size in num_levels])
    number, first = cells.counts, cells.first_rows
    if counts is not None:
        number = np.zeros(len(cells.codes), np.int64)
        np.add.at(number, cells.record_cell, counts)
    if first_rows is not None:
        first = np.full(len(cells.codes), np.iinfo(np.int64).max)
        np.minimum.at(first, cells.record_cell, first_rows)
    return cells.codes - 1, number, first


def common_cells(tables: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Find the cells of the complete records of several tables of one schema.

    Parameters
    ----------
    tables : sequence of ContingencyTable or Microdata
        M tables.

    Returns
    -------
    codes : (C, J) int32 array
        Level codes of the cells that some table has, in lexicographic order.
    counts : (M, C) int64 array
        Number of records of each table in each cell.
    """
    tables = [table.tabulated for table in tables]
    complete = [(table.codes[table.complete], table.counts[table.complete]) for table in tables]
    return count_in_cells(complete, tables[0].schema.num_levels)


def count_in_cells(
    parts: Sequence[tuple[np.ndarray, np.ndarray]], num_levels: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Find the distinct rows of several arrays of level codes, none missing, and count records.

    Parameters
    ----------
    parts : sequence of ((D, J) integer array, (D,) integer array)
        Level codes of M tables, and the records that each row stands for.
    num_levels : sequence of int, length J
        Numbers of levels.

    Returns
    -------
    codes, counts
        As of `common_cells`.
    """
    cells = group_cells(np.concatenate([codes for codes, _ in parts]), num_levels)
    counts = np.zeros((len(parts), len(cells.codes)), np.int64)
    of_part = np.split(cells.record_cell, np.cumsum([len(codes) for codes, _ in parts])[:-1])
    for total, (_, number), where in zip(counts, parts, of_part, strict=True):
        np.add.at(total, where, number)
    return cells.codes, counts


def labels_of(schema: Schema, codes: np.ndarray) -> pd.DataFrame:
    """Return the labels that codes stand for, None (or NaN, for text) where missing.

    Parameters
    ----------
    schema : Schema
        The J variables and their levels.
    codes : (m, J) integer array
        Level codes, -1 where missing.
    """
    columns = {}
    for j, (variable, labels) in enumerate(zip(schema.variables, schema.levels, strict=True)):
        # The code -1 picks the last entry, which stands for a missing value.
        values = np.empty(len(labels) + 1, dtype=object)
        values[:-1] = labels
        columns[variable] = pd.Series(values[codes[:, j]]).infer_objects()
    return pd.DataFrame(columns)


def too_few(usable: int) -> MicrodataError:
    """Return the error for fewer than two records with any value."""
    return MicrodataError(
        f"{usable} usable record{'' if usable == 1 else 's'} (with at least one value); at least "
        "two are needed"
    )


def missing_value(
    schema: Schema, record: np.ndarray, row: int, what: str, number: int, total: int
) -> MicrodataError:
    """Return the error for a task that needs complete records, at the first that is not.

    Parameters
    ----------
    record : (J,) array
        Its level codes, -1 where missing.
    row : int
        Its 0-based row.
    what : str
        Name of the task.
    number, total : int
        Records that are incomplete, and all.
    """
    return MicrodataError(
        f"the value is missing ({number} of {total} records are incomplete) and "
        f"{what} needs complete records; drop them, or complete them with bnp-models impute",
        row=row,
        column=schema.variables[int(np.argmax(record < 0))],
    )
