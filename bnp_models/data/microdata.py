"""Coded categorical microdata: records of level codes under a schema."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import NamedTuple, TypeAlias, TypeVar, overload
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.cells import Cells, group_cells
from bnp_models.data.coding import ColumnCoder, not_plain
from bnp_models.data.contingency import (
    Coded,
    ContingencyTable,
    group_rows,
    missing_value,
    too_few,
)
from bnp_models.data.display import Shown, counted, displayed, levels_by_variable
from bnp_models.data.documents import Share
from bnp_models.data.schema import (
    Label,
    Levels,
    MicrodataError,
    Schema,
    choose_variables,
    content_digest,
    declared_levels,
)


@dataclass(frozen=True, eq=False)
@displayed
class Microdata(Coded):
    """Records of categorical variables as level codes.

    Parameters
    ----------
    schema : Schema
        The J variables and their levels.
    codes : (n, J) integer array
        Level codes, -1 where missing. Copied to a read-only C-ordered int32 array.

    Raises
    ------
    MicrodataError
        If the array has the wrong shape or a code is outside its variable's levels.

    Examples
    --------
    >>> records = bnp.Microdata.from_frame(pd.DataFrame({"a": ["x", "y", "x"], "b": [1, 2, 2]}))
    >>> records
    Microdata: 3 records of 2 variables
      a  2 levels: x, y
      b  2 levels: 1, 2
    >>> records.codes.tolist()
    [[0, 0], [1, 1], [0, 1]]
    """

    schema: Schema
    codes: np.ndarray

    def __post_init__(self):
        given = np.asarray(self.codes)
        if given.ndim != 2 or given.shape[1] != len(self.schema.variables):
            raise MicrodataError(
                f"codes have shape {given.shape}; expected (n, {len(self.schema.variables)})"
            )
        if not np.issubdtype(given.dtype, np.integer):
            raise MicrodataError(f"codes have dtype {given.dtype}; expected integers")
        outside = (given < -1) | (given >= np.array(self.schema.num_levels))
        if outside.any():
            row, j = np.argwhere(outside)[0]
            raise MicrodataError(
                f"code {given[row, j]} is not between -1 and {self.schema.num_levels[j] - 1}",
                row=int(row),
                column=self.schema.variables[j],
            )
        codes = np.array(given, dtype=np.int32, order="C")
        codes.flags.writeable = False
        object.__setattr__(self, "codes", codes)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        variables: Sequence[str] | None = None,
        levels: Levels | Schema | None = None,
    ) -> "Microdata":
        """Code a frame of labels.

        Parameters
        ----------
        frame : DataFrame, (n, any)
            One record a row. NaN, None, NA and the empty string are missing.
        variables : sequence of str, optional
            The columns to keep, in this order; all of them by default.
        levels : mapping of variable to labels, frame with columns variable and level, or Schema
            Declared levels, in order; they may include levels that do not occur. A variable without
            declared levels has the levels that occur: the categories in order if it is a pandas
            categorical, else the labels sorted, as numbers if all are numbers or the text of
            integers and as text otherwise. Where the column holds text, or integers only, declared
            labels are kept in that type, so that levels read from a file fit a frame of integers.

        Raises
        ------
        MicrodataError
            On an unknown, repeated or empty column, a label that is not declared, or fewer than
            two records with any value.
        """
        check_kind(pd.DataFrame, "Microdata.from_frame(frame)", frame=frame)
        names = [str(name) for name in frame.columns]
        variables = choose_variables(variables, names)
        declared = declared_levels(levels, names)
        if len(frame) < 2:
            raise too_few(len(frame))
        columns, labels = [], []
        for variable in variables:
            codes, known = _encode_column(
                frame.iloc[:, names.index(variable)], variable, declared.get(variable)
            )
            columns.append(codes)
            labels.append(known)
        codes = np.stack(columns, axis=1)
        if (usable := int((codes >= 0).any(axis=1).sum())) < 2:
            raise too_few(usable)
        return cls(Schema(variables, tuple(labels)), codes)

    @property
    def n(self) -> int:
        """Number of records."""
        return self.codes.shape[0]

    @property
    def digest(self) -> str:
        """SHA-256 of the schema and the codes, in hexadecimal digits."""
        return content_digest(self.schema, self.codes)

    def require_complete(self, what: str) -> None:
        """Check that no value is missing.

        Parameters
        ----------
        what : str
            Name of the task that needs complete records, for the message.

        Raises
        ------
        MicrodataError
            If a value is missing; it names the first one and counts the incomplete records.
        """
        incomplete = np.flatnonzero(~self.complete)
        if incomplete.size:
            row = int(incomplete[0])
            number = incomplete.size, self.n
            raise missing_value(self.schema, self.codes[row], row, what, *number)

    def codes_at(self, rows: np.ndarray) -> np.ndarray:
        """Level codes (m, J) of the records in some rows."""
        return self.codes[rows]

    def recoded(self, schema: Schema, codes: np.ndarray) -> "Microdata":
        """Return the same records under another schema, with these codes (n, J)."""
        return Microdata(schema, codes)

    @cached_property
    def tabulated(self) -> ContingencyTable:
        """The records as a `ContingencyTable`."""
        return ContingencyTable(self.schema, *group_rows(self.codes, self.schema.num_levels))

    def cells(self) -> Cells:
        """Group the records by cell, in O(n log n) whatever the number of cells.

        `tabulated` has the same cells, but not the cell of each record.

        Raises
        ------
        MicrodataError
            If a value is missing.
        """
        self.require_complete("grouping records by cell")
        return group_cells(self.codes, self.schema.num_levels)

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        incomplete = int((~self.complete).sum())
        lines = levels_by_variable(self.schema.variables, self.schema.levels)
        missing = {"missing": f"values in {counted(incomplete, 'record')}"} if incomplete else {}
        what = f"{counted(self.n, 'record')} of {counted(self.num_variables, 'variable')}"
        return Shown(f"{type(self).__name__}: {what}", lines | missing)


Records: TypeAlias = Microdata | ContingencyTable
"""Records, one by one or by cell."""

RECORDS = (Microdata, ContingencyTable)
"""Their types."""

FoundT = TypeVar("FoundT")


def once_for_each_table(find: Callable[[Records], FoundT]) -> Callable[[Records], FoundT]:
    """Make a function of one table compute its result once for each table, and keep it with it."""
    results: WeakKeyDictionary[Records, FoundT] = WeakKeyDictionary()

    @wraps(find)
    def found(table: Records) -> FoundT:
        if table not in results:
            results[table] = find(table)
        return results[table]

    return found


TableT = TypeVar("TableT")


@overload
def as_records(given: Records | pd.DataFrame, call: str) -> Records: ...


@overload
def as_records(
    given: TableT | pd.DataFrame, call: str, kinds: tuple[type, ...]
) -> TableT | Microdata: ...


def as_records(given, call, kinds=RECORDS):
    """Return coded records as they are, and a data frame coded with all its columns.

    Parameters
    ----------
    given
        Coded records, or a data frame of one record a row.
    call
        How the function is called, for messages.
    kinds
        Types of coded records that may be given.

    Raises
    ------
    TypeError
        If it is neither.
    MicrodataError
        If the frame cannot be coded.
    """
    check_kind((*kinds, pd.DataFrame), call, table=given)
    return Microdata.from_frame(given) if isinstance(given, pd.DataFrame) else given


def _encode_column(
    column: pd.Series, variable: str, declared: Sequence[Label] | None
) -> tuple[np.ndarray, tuple[Label, ...]]:
    """Code one column of n labels; return the (n,) int32 codes and the labels."""
    categorical = isinstance(column.dtype, pd.CategoricalDtype)
    coder = ColumnCoder(variable, declared, categorical, categorical and column.cat.ordered)
    if categorical:
        raw, values = column.cat.codes.to_numpy(), column.cat.categories
    else:
        try:
            raw, values = pd.factorize(column)
        except TypeError:
            raise not_plain(variable) from None
        # NumPy scalars know their precision, which plain labels need.
        values = np.asarray(values) if column.dtype in (np.float16, np.float32) else values
    codes = coder.add(raw, values)
    labels, recode = coder.finish()
    return recode[codes], labels


class SmallCells(NamedTuple):
    """Records in cells of fewer than k records."""

    k: int
    """Number of records from which a cell counts as large enough."""
    records: int
    """Records that share their values with fewer than k - 1 others."""
    share: Share
    """Share of the complete records that these are."""


def k_anonymity(
    table: Records | pd.DataFrame, sizes: Sequence[int] = (2, 3, 5)
) -> list[SmallCells]:
    """Count the records that share their cell with fewer than k - 1 others, for each k.

    Parameters
    ----------
    table
        Records, or a data frame of them; incomplete ones are left out.
    sizes
        The values of k.

    Examples
    --------
    >>> [row.k for row in bnp.k_anonymity(table)]
    [2, 3, 5]
    """
    cells = as_records(table, "k_anonymity(table)").tabulated
    counts = cells.counts[cells.complete]
    return small_cells(counts, counts, sizes) if len(counts) else []


def small_cells(
    matching: np.ndarray, counts: np.ndarray, sizes: Sequence[int] = (2, 3, 5)
) -> list[SmallCells]:
    """Count the records that match fewer than k records, themselves included, for each k.

    Parameters
    ----------
    matching
        (C,) records that those of each cell match.
    counts
        (C,) records of each cell.
    sizes
        The values of k.
    """
    small = {k: int(counts[matching < k].sum()) for k in sizes}
    return [SmallCells(k, number, float(number / counts.sum())) for k, number in small.items()]
