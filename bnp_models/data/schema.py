"""Names and levels of categorical variables, and the error for input that cannot be used."""

import contextlib
import decimal
import hashlib
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from os import PathLike
from typing import TypeAlias, TypeVar

import numpy as np
import pandas as pd

from bnp_models.data.display import Shown, counted, displayed, levels_by_variable
from bnp_models.data.messages import as_option, listed, listing, quoted

Label: TypeAlias = Hashable
"""A value of a variable."""

Levels: TypeAlias = Mapping[str, Sequence[Label]] | pd.DataFrame
"""Declared levels: labels by variable, or rows of a variable and a level."""

_Item = TypeVar("_Item", bound=Hashable)

_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")


class MicrodataError(ValueError):
    """Error for input that cannot be used: one line that names the mistake, its place and the
    remedy.

    Parameters
    ----------
    problem : str
        The mistake, with the offending value, and the remedy.
    file : str or path, optional
        The file read.
    row : int, optional
        0-based index of the record.
    line : int, optional
        1-based line of the file on which the record starts (CSV only).
    column : str, optional
        The variable.

    Examples
    --------
    >>> table.schema.encode("sex", "unknown")
    Traceback (most recent call last):
    ...
    bnp_models.data.schema.MicrodataError: column 'sex': value 'unknown' is not a declared level ...
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | PathLike | None = None,
        row: int | None = None,
        line: int | None = None,
        column: str | None = None,
    ):
        self.problem, self.file, self.row, self.line, self.column = problem, file, row, line, column
        place = [] if file is None else [str(file)]
        if row is not None:
            place.append(f"row {row}" if line is None else f"row {row} (line {line})")
        elif line is not None:
            place.append(f"line {line}")
        if column is not None:
            place.append(f"column {quoted(column)}")
        super().__init__(": ".join([", ".join(place), problem] if place else [problem]))

    def in_file(self, file: str | PathLike, lines: Sequence[int] | None = None) -> "MicrodataError":
        """Return the same error, placed in a file.

        Parameters
        ----------
        file : str or path
            The file.
        lines : (n,) sequence of int, optional
            Line of the file on which each record starts.
        """
        line = self.line if lines is None or self.row is None else lines[self.row]
        return MicrodataError(self.problem, file=file, row=self.row, line=line, column=self.column)


@contextlib.contextmanager
def errors_in(file: str | PathLike, lines: Sequence[int] | None = None) -> Iterator[None]:
    """Name a file, and the line of the record, in an error about what the file has."""
    try:
        yield
    except MicrodataError as error:
        raise error.in_file(file, lines) from None


@dataclass(frozen=True)
@displayed
class Schema:
    """Categorical variables and their levels; hashable.

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

    Examples
    --------
    >>> schema = bnp.Schema(("age", "sex"), (("young", "old"), ("f", "m")))
    >>> schema.num_cells
    4
    """

    variables: tuple[str, ...]
    levels: tuple[tuple[Label, ...], ...]

    def __post_init__(self):
        if not self.variables:
            raise MicrodataError("no variable is chosen; name at least one")
        if len(self.variables) != len(self.levels):
            raise MicrodataError(
                f"{len(self.variables)} variables but {len(self.levels)} lists of levels; give "
                "each variable its levels"
            )
        if (repeated := first_repeated(self.variables)) is not None:
            raise MicrodataError("the variable is listed twice; list it once", column=repeated)
        if empty := [v for v, of in zip(self.variables, self.levels, strict=True) if not of]:
            raise _no_level(empty)
        for variable, labels in zip(self.variables, self.levels, strict=True):
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
        """Number of cells, all combinations of levels: exact whatever its size."""
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

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        title = (
            f"Schema: {counted(len(self.variables), 'variable')}, {counted(self.num_cells, 'cell')}"
        )
        return Shown(title, levels_by_variable(self.variables, self.levels))


def _no_level(variables: Sequence[str]) -> MicrodataError:
    """Return the error for variables of which every value is missing."""
    remedy = f"(--drop {as_option(variables)})"
    if len(variables) == 1:
        return MicrodataError(
            "the variable has no level (every value is missing); declare its levels or leave it "
            f"out {remedy}",
            column=variables[0],
        )
    return MicrodataError(
        f"the variables {listed(map(repr, variables))} have no level (every value is missing); "
        f"declare their levels or leave them out {remedy}"
    )


def plain_label(value: Label) -> Label:
    """Return a plain Python label: NumPy scalars unwrapped, integral floats as integers.

    A number of single precision has the digits that it is written with, 0.1 and not 0.10000000149.
    """
    if isinstance(value, np.float16 | np.float32) and np.isfinite(value):
        value = float(str(value))
    elif isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, decimal.Decimal) and value.is_finite():
        value = float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def text_of(label: Label) -> str:
    """Return the text by which labels are compared."""
    return label if isinstance(label, str) else str(label)


def first_repeated(values: Iterable[_Item]) -> _Item | None:
    """Return the first value that has occurred before, None if there is none."""
    seen: set[_Item] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def unknown_variable(variable: str, known: Sequence[str], kind: str = "column") -> MicrodataError:
    """Return the error for an unknown name, of a column or of another kind."""
    # A part of a name with a comma, where names in a list have commas between them.
    whole = [name for name in known if "," in name and variable in map(str.strip, name.split(","))]
    quotes = f"; in a list of names, write {as_option(whole[:1])}" if whole else ""
    return MicrodataError(
        f"unknown {kind}; the {kind}s are {listing(known) or 'none'}{quotes}", column=variable
    )


def undeclared_level(value: Label, labels: Sequence[Label]) -> str:
    """Return the message on a value that is none of the labels."""
    return (
        f"value {quoted(value)} is not a declared level (declared: {listing(labels)}); declare it "
        "or correct the value"
    )


def choose_variables(variables: Sequence[str] | None, names: Sequence[str]) -> tuple[str, ...]:
    """Return the chosen variables, checked against the names of columns; by default, all columns.

    Raises
    ------
    MicrodataError
        If no variable is chosen, or one is unknown, has no name, or is there twice.
    """
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
            # None, in SPSS files that are damaged.
            raise MicrodataError(
                f"column {names.index(variable)} (0-based) has no name; name it, or choose "
                "variables without it (--variables)"
            )
    if not chosen:
        raise MicrodataError("no variable is chosen; name at least one")
    return chosen


def declared_levels(
    levels: Levels | Schema | None, names: Sequence[str]
) -> Mapping[str, Sequence[Label]]:
    """Return declared levels by variable, the labels of each in order.

    Raises
    ------
    MicrodataError
        If a mapping or frame declares levels of a variable that is none of the names.
    """
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
    """Return the levels that rows of a variable and a level declare.

    Raises
    ------
    MicrodataError
        If a cell is empty, a level repeated, or names are given and a variable is none of them.
    """
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
        labels = levels.setdefault(variable, {})
        if text_of(plain_label(value)) in labels:
            raise MicrodataError(
                f"level {quoted(value)} of {quoted(variable)} is declared twice; keep one",
                row=row,
                column="level",
            )
        labels[text_of(plain_label(value))] = plain_label(value)
    return {variable: tuple(labels.values()) for variable, labels in levels.items()}


def in_type_of(seen: list[Label], declared: list[Label]) -> list[Label]:
    """Return declared labels in the type of the labels seen, where that keeps their text."""
    if seen and all(isinstance(label, str) for label in seen):
        return [label if pd.isna(label) else text_of(label) for label in declared]
    if seen and all(type(label) is int for label in seen):
        texts = [text_of(label) for label in declared]
        if all(_INTEGER.fullmatch(text) and str(int(text)) == text for text in texts):
            return [int(text) for text in texts]
    return declared


def _spelled(value: object) -> str:
    """Return a value with all fields of dataclasses, whatever their ``repr`` shows."""
    if not is_dataclass(value):
        return repr(value)
    spelled = (f"{field.name}={_spelled(getattr(value, field.name))}" for field in fields(value))
    return f"{type(value).__qualname__}({', '.join(spelled)})"


def content_digest(schema: object, *arrays: np.ndarray) -> str:
    """Return the SHA-256 of a schema, by its fields, and arrays, in hexadecimal digits."""
    digest = hashlib.sha256(_spelled(schema).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
