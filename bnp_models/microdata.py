"""Categorical microdata: labelled records coded once as integers, labels kept.

A :class:`Schema` holds the variables and their levels, a :class:`Microdata` the records as level
codes, and :class:`Cells` the distinct combinations that occur. The full contingency table is never
formed, so its number of cells may be of any size.

Labels are compared by their text: ``1``, ``1.0`` and ``"1"`` are one level, ``"01"`` is another.
"""

import hashlib
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from bnp_models.wording import listing, quoted

Label = Hashable
Levels = Mapping[str, Sequence[Label]] | pd.DataFrame

_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")
_WORD_SIZE = 2**63 - 1


class MicrodataError(ValueError):
    """Input that cannot be used; the message is one line that names the place and the remedy.

    Parameters
    ----------
    problem : str
        What is wrong, with the offending value, and what to do about it.
    file : str or path, optional
        The file read.
    row : int, optional
        0-based index of the record.
    line : int, optional
        1-based line of the file on which the record starts (CSV only).
    column : str, optional
        The variable.
    """

    def __init__(self, problem, *, file=None, row=None, line=None, column=None):
        self.problem, self.file, self.row, self.line, self.column = problem, file, row, line, column
        place = [] if file is None else [str(file)]
        if row is not None:
            place.append(f"row {row}" if line is None else f"row {row} (line {line})")
        elif line is not None:
            place.append(f"line {line}")
        if column is not None:
            place.append(f"column {quoted(column)}")
        super().__init__(": ".join([", ".join(place), problem] if place else [problem]))

    def in_file(self, file, lines=None):
        """Return the same error, placed in a file.

        Parameters
        ----------
        file : str or path
        lines : (n,) sequence of int, optional
            Line of the file on which each record starts.
        """
        line = self.line if lines is None or self.row is None else lines[self.row]
        return MicrodataError(self.problem, file=file, row=self.row, line=line, column=self.column)


@dataclass(frozen=True)
class Schema:
    """The variables of a table and their levels; hashable.

    Parameters
    ----------
    variables : tuple of str, length J
        Names, distinct.
    levels : tuple of tuples of labels, length J
        The labels of each variable in the order of their codes, distinct as text.

    Raises
    ------
    MicrodataError
        If there is no variable, a name or a label occurs twice, or a variable has no level.
    """

    variables: tuple[str, ...]
    levels: tuple[tuple[Label, ...], ...]

    def __post_init__(self):
        if not self.variables:
            raise MicrodataError("no variable is chosen; name at least one")
        if len(self.variables) != len(self.levels):
            raise MicrodataError(
                f"{len(self.variables)} variables but {len(self.levels)} lists of levels"
            )
        if (repeated := first_repeated(self.variables)) is not None:
            raise MicrodataError("the variable is listed twice; list it once", column=repeated)
        for variable, labels in zip(self.variables, self.levels, strict=True):
            if not labels:
                raise MicrodataError(
                    "the variable has no level (every value is missing); declare its levels or "
                    "leave it out",
                    column=variable,
                )
            if (repeated := first_repeated([text_of(label) for label in labels])) is not None:
                raise MicrodataError(
                    f"level {quoted(repeated)} is declared twice; keep one", column=variable
                )

    @property
    def num_levels(self) -> tuple[int, ...]:
        """Number of levels of each variable."""
        return tuple(len(labels) for labels in self.levels)

    @property
    def num_cells(self) -> int:
        """Number of cells of the full table, exact whatever its size."""
        return math.prod(self.num_levels)

    def encode(self, variable: str, label: Label) -> int:
        """Return the code of a label.

        Raises
        ------
        MicrodataError
            If the variable or the level is unknown.
        """
        if variable not in self.variables:
            raise unknown_variable(variable, self.variables)
        labels = self.levels[self.variables.index(variable)]
        texts = [text_of(known) for known in labels]
        text = text_of(plain_label(label))
        if text not in texts:
            raise MicrodataError(undeclared_level(label, labels), column=variable)
        return texts.index(text)


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
    """Records of a categorical table as level codes.

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
            Declared levels, in order; they may be more than those seen. A variable that is not
            named keeps those seen: the categories in order if it is a pandas categorical, else
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
        """Which records have values of all variables, (n,) bool."""
        return (self.codes >= 0).all(axis=1)

    @property
    def digest(self) -> str:
        """SHA-256 of the schema and the codes, in hexadecimal digits."""
        return content_digest(self.schema, self.codes)

    def require_complete(self, what: str) -> None:
        """Check that no value is missing.

        Parameters
        ----------
        what : str
            What needs complete records, for the message.

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
        """Group the records by cell, in O(n log n) whatever the size of the table.

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


def plain_label(value) -> Label:
    """Return a plain Python label: NumPy scalars unwrapped, integral floats as integers."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def text_of(label: Label) -> str:
    """Return the text by which labels are compared."""
    return label if isinstance(label, str) else str(label)


def first_repeated(values: Iterable) -> object | None:
    """Return the first value that has occurred before, None if there is none."""
    seen = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def unknown_variable(variable, known: Sequence[str]) -> MicrodataError:
    """Return the error for a name that is none of the known ones."""
    return MicrodataError(f"unknown column; the columns are {listing(known)}", column=variable)


def undeclared_level(value, labels: Sequence[Label]) -> str:
    """Return what is wrong with a value that is none of the labels."""
    return (
        f"value {quoted(value)} is not a declared level (declared: {listing(labels)}); declare it "
        "or correct the value"
    )


def _too_few(usable: int) -> MicrodataError:
    return MicrodataError(
        f"{usable} usable record{'' if usable == 1 else 's'} (with at least one value); at least "
        "two are needed"
    )


def choose_variables(variables: Sequence[str] | None, names: Sequence[str]) -> tuple[str, ...]:
    """Return the chosen variables, checked against the column names of a table."""
    if variables is None:
        chosen = tuple(names)
        if (repeated := first_repeated(chosen)) is not None:
            raise MicrodataError("the column name occurs twice; rename one", column=repeated)
    else:
        chosen = (variables,) if isinstance(variables, str) else tuple(variables)
        if (repeated := first_repeated(chosen)) is not None:
            raise MicrodataError("the variable is listed twice; list it once", column=repeated)
    for variable in chosen:
        if variable not in names:
            raise unknown_variable(variable, names)
        if names.count(variable) > 1:
            raise MicrodataError("the column name occurs twice; rename one", column=variable)
        if not variable:
            raise MicrodataError(
                f"column {names.index('')} (0-based) has no name; name it or choose the variables"
            )
    if not chosen:
        raise MicrodataError("no variable is chosen; name at least one")
    return chosen


def declared_levels(
    levels: Levels | Schema | None, names: Sequence[str]
) -> Mapping[str, Sequence[Label]]:
    """Return declared levels by variable; those of a mapping or frame must be among the names."""
    if levels is None:
        return {}
    if isinstance(levels, Schema):
        return dict(zip(levels.variables, levels.levels, strict=True))
    if isinstance(levels, pd.DataFrame):
        for column in ("variable", "level"):
            if column not in levels.columns:
                raise unknown_variable(column, [str(name) for name in levels.columns])
        return levels_of_frame(levels, names)
    for variable in levels:
        if variable not in names:
            raise unknown_variable(variable, names)
    return levels


def levels_of_frame(
    frame: pd.DataFrame, names: Sequence[str] | None
) -> dict[str, tuple[Label, ...]]:
    """Return the levels that rows of a variable and a level declare; any variable by default."""
    levels: dict[str, dict[str, Label]] = {}
    for row, (variable, value) in enumerate(zip(frame["variable"], frame["level"], strict=True)):
        if pd.isna(variable) or variable == "":
            raise MicrodataError("the cell is empty; name a variable", row=row, column="variable")
        if pd.isna(value) or value == "":
            raise MicrodataError("the cell is empty; name a level", row=row, column="level")
        if names is not None and variable not in names:
            raise MicrodataError(
                f"unknown variable {quoted(variable)}; the variables are {listing(names)}",
                row=row,
                column="variable",
            )
        known = levels.setdefault(variable, {})
        if text_of(plain_label(value)) in known:
            raise MicrodataError(
                f"level {quoted(value)} of {quoted(variable)} is declared twice; keep one",
                row=row,
                column="level",
            )
        known[text_of(plain_label(value))] = plain_label(value)
    return {variable: tuple(known.values()) for variable, known in levels.items()}


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
        labels = list(seen.values()) if categorical else _sorted_labels(list(seen.values()))
    else:
        labels = _retyped([plain_label(label) for label in declared], list(seen.values()))
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


def _sorted_labels(labels: list[Label]) -> list[Label]:
    def number(label):
        if isinstance(label, str):
            return int(label) if _INTEGER.fullmatch(label) else None
        return label if isinstance(label, int | float) else None

    if any(number(label) is None for label in labels):
        return sorted(labels, key=text_of)
    return sorted(labels, key=lambda label: (number(label), text_of(label)))


def _retyped(declared: list[Label], seen: list[Label]) -> list[Label]:
    """Return declared labels in the type of those seen, where that keeps their text."""
    if seen and all(isinstance(label, str) for label in seen):
        return [label if pd.isna(label) else text_of(label) for label in declared]
    if seen and all(type(label) is int for label in seen):
        texts = [text_of(label) for label in declared]
        if all(_INTEGER.fullmatch(text) and str(int(text)) == text for text in texts):
            return [int(text) for text in texts]
    return declared


def _pack(codes: np.ndarray, num_levels: Sequence[int]) -> list[np.ndarray]:
    """Pack each row into as few int64 words as hold it, in an order that sorts as the rows do."""
    words, size = [], 1
    for j, levels in enumerate(num_levels):
        if not words or size * levels > _WORD_SIZE:
            words.append(codes[:, j].astype(np.int64))
            size = levels
        else:
            words[-1] = words[-1] * levels + codes[:, j]
            size *= levels
    return words


def content_digest(schema, *arrays: np.ndarray) -> str:
    """SHA-256 of a schema and arrays, in hexadecimal digits."""
    digest = hashlib.sha256(repr(schema).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
