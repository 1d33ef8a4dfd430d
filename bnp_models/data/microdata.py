"""Coded categorical microdata: records of level codes under a schema, and their distinct cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from bnp_models.data.schema import (
    Label,
    Levels,
    MicrodataError,
    Schema,
    choose_variables,
    content_digest,
    declared_levels,
    in_type_of,
    plain_label,
    sorted_labels,
    text_of,
    undeclared_level,
)

_WORD_SIZE = 2**63 - 1


class Cells(NamedTuple):
    """The distinct cells that records fall in.

    Attributes
    ----------
    codes : (D, J) int32 array
        Level codes of the non-empty cells, in lexicographic order.
    counts : (D,) int64 array
        Number of records in each.
    record_cell : (n,) int64 array
        Index into ``codes`` of each record's cell.
    """

    codes: np.ndarray
    counts: np.ndarray
    record_cell: np.ndarray

    @property
    def unique_cells(self) -> np.ndarray:
        """Indices of the cells with one record, ascending."""
        return np.flatnonzero(self.counts == 1)

    @property
    def sample_uniques(self) -> np.ndarray:
        """0-based rows of the records that are alone in their cell, ascending."""
        return np.flatnonzero(self.counts[self.record_cell] == 1)


@dataclass(frozen=True, eq=False)
class Microdata:
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
            Declared levels, in order; they may be more than occur. A variable that is not named
            has the levels that occur: the categories in order if it is a pandas categorical, else
            the labels sorted, as numbers if all are numbers or the text of integers and as text
            otherwise. Where the column holds text, or integers only, declared labels are kept in
            that type, so that levels read from a file fit a frame of integers.

        Raises
        ------
        MicrodataError
            On an unknown, repeated or empty column, a label that is not declared, or fewer than
            two records with any value.
        """
        names = [str(name) for name in frame.columns]
        variables = choose_variables(variables, names)
        declared = declared_levels(levels, names)
        if len(frame) < 2:
            raise _too_few(len(frame))
        columns, labels = [], []
        for variable in variables:
            codes, known = _encode_column(
                frame.iloc[:, names.index(variable)], variable, declared.get(variable)
            )
            columns.append(codes)
            labels.append(known)
        codes = np.stack(columns, axis=1)
        if (usable := int((codes >= 0).any(axis=1).sum())) < 2:
            raise _too_few(usable)
        return cls(Schema(variables, tuple(labels)), codes)

    def to_frame(self) -> pd.DataFrame:
        """Return the records with their labels, None (or NaN, for text) where missing."""
        columns = {}
        for j, (variable, labels) in enumerate(
            zip(self.schema.variables, self.schema.levels, strict=True)
        ):
            # The code -1 picks the last entry, which stands for a missing value.
            values = np.empty(len(labels) + 1, dtype=object)
            values[:-1] = labels
            columns[variable] = pd.Series(values[self.codes[:, j]]).infer_objects()
        return pd.DataFrame(columns)

    @property
    def n(self) -> int:
        """Number of records."""
        return self.codes.shape[0]

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
        """Records that have values of all variables, (n,) bool."""
        return np.asarray((self.codes >= 0).all(axis=1))

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
        missing = self.codes < 0
        incomplete = np.flatnonzero(missing.any(axis=1))
        if incomplete.size == 0:
            return
        row = int(incomplete[0])
        raise MicrodataError(
            f"the value is missing ({incomplete.size} of {self.n} records are incomplete) and "
            f"{what} needs complete records; drop them, or complete them with bnp-models impute",
            row=row,
            column=self.schema.variables[int(np.argmax(missing[row]))],
        )

    def cells(self) -> Cells:
        """Group the records by cell, in O(n log n) whatever the number of cells.

        Raises
        ------
        MicrodataError
            If a value is missing.
        """
        self.require_complete("grouping records by cell")
        return group_cells(self.codes, self.schema.num_levels)


def group_cells(codes: np.ndarray, num_levels: Sequence[int]) -> Cells:
    """Find the distinct rows of an array of level codes.

    Parameters
    ----------
    codes : (n, J) integer array
        Complete records: ``0 <= codes[:, j] < num_levels[j]``.
    num_levels : sequence of int, length J
        Number of levels; their product may exceed 64 bits.
    """
    words = _pack(codes, num_levels)
    order = np.lexsort(words[::-1])
    first = np.ones(len(order), dtype=bool)
    first[1:] = np.any([word[order[1:]] != word[order[:-1]] for word in words], axis=0)
    starts = np.flatnonzero(first)
    record_cell = np.empty(len(order), dtype=np.int64)
    record_cell[order] = np.cumsum(first) - 1
    return Cells(
        codes=np.asarray(codes, dtype=np.int32)[order[starts]],
        counts=np.diff(starts, append=len(order)),
        record_cell=record_cell,
    )


def _too_few(usable: int) -> MicrodataError:
    """Return the error for fewer than two records with any value."""
    return MicrodataError(
        f"{usable} usable record{'' if usable == 1 else 's'} (with at least one value); at least "
        "two are needed"
    )


def _encode_column(
    column: pd.Series, variable: str, declared: Sequence[Label] | None
) -> tuple[np.ndarray, tuple[Label, ...]]:
    """Code one column of n labels; return the (n,) int32 codes and the labels."""
    categorical = isinstance(column.dtype, pd.CategoricalDtype)
    if categorical:
        raw, values = column.cat.codes.to_numpy(), column.cat.categories
    else:
        try:
            raw, values = pd.factorize(column)
        except TypeError:
            raise MicrodataError(
                "values that are not plain labels (lists or the like); use text or numbers",
                column=variable,
            ) from None
    seen: dict[str, Label] = {}
    for label in map(plain_label, values):
        if label != "":
            seen.setdefault(text_of(label), label)
    if declared is None:
        labels = list(seen.values()) if categorical else sorted_labels(list(seen.values()))
    else:
        labels = in_type_of(list(seen.values()), [plain_label(label) for label in declared])
        if any(label == "" or pd.isna(label) for label in labels):
            raise MicrodataError("a declared level is empty; name it or remove it", column=variable)
    position = {text_of(label): code for code, label in enumerate(labels)}
    position[""] = -1
    undeclared = -2
    recode = [position.get(text_of(plain_label(value)), undeclared) for value in values]
    # The raw code -1 of a missing value picks the last entry.
    codes = np.array([*recode, -1], dtype=np.int32)[raw]
    unknown = codes == undeclared
    if unknown.any():
        row = int(np.argmax(unknown))
        raise MicrodataError(
            undeclared_level(plain_label(column.iloc[row]), labels), row=row, column=variable
        )
    return codes, tuple(labels)


def _pack(codes: np.ndarray, num_levels: Sequence[int]) -> list[np.ndarray]:
    """Pack each row into as few int64 words as hold it, in an order that sorts as the rows do."""
    words: list[np.ndarray] = []
    size = 1
    for j, levels in enumerate(num_levels):
        if not words or size * levels > _WORD_SIZE:
            words.append(codes[:, j].astype(np.int64))
            size = levels
        else:
            words[-1] = words[-1] * levels + codes[:, j]
            size *= levels
    return words


class SmallCells(NamedTuple):
    """Records in cells of fewer than k records."""

    k: int
    """Records of a cell that is large enough."""
    records: int
    """Number of records in smaller cells."""
    share: float
    """Share of the complete records that are in smaller cells."""


def k_anonymity(table: Microdata, sizes: Sequence[int] = (2, 3, 5)) -> list[SmallCells]:
    """Count the records that share their cell with fewer than k - 1 others, for each k.

    Parameters
    ----------
    table
        Records; incomplete ones are left out.
    sizes
        The values of k.
    """
    complete = table.codes[table.complete]
    if not len(complete):
        return []
    cells = group_cells(complete, table.schema.num_levels)
    in_cell = cells.counts[cells.record_cell]
    return [SmallCells(k, int((in_cell < k).sum()), float((in_cell < k).mean())) for k in sizes]
