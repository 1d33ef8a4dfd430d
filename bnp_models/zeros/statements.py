"""Files of conditions, whose cells are a label, several labels, a range, all labels but some, or an
inequality with another variable."""

import math
from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from bnp_models.data.coding import not_plain
from bnp_models.data.label_numbers import plain_number, read_range, require_numbers
from bnp_models.data.messages import listing, quoted
from bnp_models.data.schema import (
    Label,
    MicrodataError,
    Schema,
    first_repeated,
    plain_label,
    text_of,
)
from bnp_models.zeros.inequalities import Inequality, read_inequality

_FREE = np.array([-1])

# Combinations that the rows of a file stand for, at the most.
_MOST_COMBINATIONS = 10**6


def read_statements(
    frame: pd.DataFrame, schema: Schema
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Read a frame of conditions.

    Parameters
    ----------
    frame : DataFrame, (rows, any)
        As for `StructuralZeros.from_frame`.
    schema : Schema
        The variables and their levels.

    Returns
    -------
    conditions : (M, J) int array
        One impossible combination a row: level codes, -1 where a variable is free.
    rows : (M,) int array
        The row of the frame that each comes from, ascending.
    compared : tuple of str
        Variables that inequalities compare.

    Raises
    ------
    MicrodataError
        As of `StructuralZeros.from_frame`.
    """
    names = [str(name) for name in frame.columns]
    if (repeated := first_repeated(names)) is not None:
        raise MicrodataError("the column name occurs twice; rename one", column=repeated)
    conditions = np.full((len(frame), len(schema.variables)), -1)
    several: dict[int, dict[int, np.ndarray]] = {}
    compared: dict[int, list[Inequality]] = {}
    for position, name in enumerate(names):
        column = frame.iloc[:, position]
        if name.startswith("#"):
            _require_confirmed(column, name)
            continue
        raw, meant = _read_column(column, name, schema)
        if name not in schema.variables:
            continue
        j = schema.variables.index(name)
        first = [-1 if isinstance(codes, Inequality) else codes[0] for codes in meant]
        conditions[:, j] = np.array([*first, -1])[raw]
        for k, codes in enumerate(meant):
            for row in map(int, np.flatnonzero(raw == k)):
                if isinstance(codes, Inequality):
                    compared.setdefault(row, []).append(codes)
                elif len(codes) > 1:
                    several.setdefault(row, {})[j] = codes
    rows = np.arange(len(frame))
    if compared:
        conditions, several, rows = _with_pairs(conditions, several, compared)
    found, origin = _expanded(conditions, several, rows)
    used = {j for row in compared.values() for one in row for j in (one.variable, one.other)}
    return found, rows[origin], tuple(schema.variables[j] for j in sorted(used))


def _with_pairs(
    conditions: np.ndarray,
    several: dict[int, dict[int, np.ndarray]],
    compared: dict[int, list[Inequality]],
) -> tuple[np.ndarray, dict[int, dict[int, np.ndarray]], np.ndarray]:
    """The same rows, one for each level of a variable that is compared; and the row of each.

    A row whose inequality holds of no levels of this sample excludes nothing, and is left out.
    """
    made: list[list[int]] = []
    codes_of, rows = {}, []
    for row, fixed in enumerate(conditions):
        pieces = [several.get(row, {})]
        for one in compared.get(row, ()):
            pieces = [part for piece in pieces for part in _pieces(one, piece, fixed)]
        for piece in pieces:
            if piece:
                codes_of[len(made)] = piece
            made.append([piece[j][0] if j in piece else code for j, code in enumerate(fixed)])
            rows.append(row)
    found = np.array(made, conditions.dtype).reshape(-1, conditions.shape[1])
    return found, codes_of, np.array(rows, int)


def _pieces(
    one: Inequality, piece: dict[int, np.ndarray], fixed: np.ndarray
) -> list[dict[int, np.ndarray]]:
    """Parts of a combination of sets of levels of which an inequality holds."""
    sides = []
    for j, size in zip((one.variable, one.other), one.holds.shape, strict=True):
        free = np.arange(size) if fixed[j] < 0 else fixed[[j]]
        sides.append(piece.get(j, free))
    found = []
    for code in sides[0]:
        others = sides[1][one.holds[code, sides[1]]]
        if others.size:
            found.append(piece | {one.variable: np.array([code]), one.other: others})
    return found


def _expanded(conditions, several, rows_of_file) -> tuple[np.ndarray, np.ndarray]:
    """One row for each combination, of rows some of whose variables have several codes."""
    # Integers of Python: some tens of variables have more combinations than 64 bits count.
    numbers = {row: math.prod(map(len, of_row.values())) for row, of_row in several.items()}
    total = len(conditions) - len(numbers) + sum(numbers.values())
    if total > max(_MOST_COMBINATIONS, len(conditions)):
        row = max(numbers, key=lambda row: numbers[row])
        raise MicrodataError(
            f"the row stands for {numbers[row]:,} combinations, and all rows for {total:,}, more "
            f"than {_MOST_COMBINATIONS:,}; describe it with fewer variables or levels",
            row=int(rows_of_file[row]),
        )
    sizes = np.ones(len(conditions), np.int64)
    sizes[list(numbers)] = list(numbers.values())
    rows = np.repeat(np.arange(len(conditions)), sizes)
    found = conditions[rows]
    first = np.cumsum(sizes) - sizes
    for row, by_variable in several.items():
        mesh = np.meshgrid(*by_variable.values(), indexing="ij")
        for j, codes in zip(by_variable, mesh, strict=True):
            found[first[row] : first[row] + sizes[row], j] = codes.reshape(-1)
    return found, rows


def _require_confirmed(column: pd.Series, name: str) -> None:
    """Refuse rows that are suggested and that nobody has confirmed."""
    open_rows = np.flatnonzero(column.astype(str).str.strip() == "?")
    if name == "#confirm" and open_rows.size:
        raise MicrodataError(
            f"{open_rows.size} suggested conditions wait for a person to confirm them: remove the "
            "? where the combination is impossible, and the row where it is only rare",
            row=int(open_rows[0]),
            column=name,
        )


def _read_column(
    column: pd.Series, name: str, schema: Schema
) -> tuple[np.ndarray, list[np.ndarray | Inequality]]:
    """Read one column; return the value of each cell, -1 where free, and what values mean."""
    try:
        raw, values = pd.factorize(column)
    except TypeError:
        raise not_plain(name) from None
    meant: list[np.ndarray | Inequality] = []
    for k, value in enumerate(map(plain_label, values)):
        if value == "":
            meant.append(_FREE)
            continue
        row = int(np.argmax(raw == k))
        if name not in schema.variables:
            raise MicrodataError(
                f"value {quoted(value)} of a column that is not among the variables "
                f"({listing(schema.variables)}); add it (--variables), correct its name or "
                "remove the conditions that fix it",
                row=row,
                column=name,
            )
        labels = schema.levels[schema.variables.index(name)]
        try:
            text = text_of(value)
            is_level = text.strip() in (text_of(label).strip() for label in labels)
            compared = None if is_level else read_inequality(text, name, schema)
            meant.append(codes_meant(text, labels) if compared is None else compared)
        except MicrodataError as error:
            raise MicrodataError(
                f"{error.problem} (levels that no record has are declared with levels, or "
                "--levels)",
                row=row,
                column=name,
            ) from None
    return raw, meant


def _apart(text: str, known: Collection[str]) -> list[str]:
    """Parts of a text apart by "|", which a known label may hold too."""
    pieces, parts = text.split("|"), []
    while pieces:
        ends = range(len(pieces), 1, -1)
        end = next((k for k in ends if "|".join(pieces[:k]).strip() in known), 1)
        parts.append("|".join(pieces[:end]))
        del pieces[:end]
    return parts


def codes_meant(text: str, labels: Sequence[Label]) -> np.ndarray:
    """Codes of the levels that a cell of a condition means.

    Parameters
    ----------
    text
        A label as it is; else ``a|b``, one of several; ``!x``, all but these; ``<25``, ``<=24``,
        ``>64``, ``>=65`` and ``15-24``, numbers in a range.
    labels
        Levels of the variable, whose numbers are those of `read_numbers`. Labels such as "none" and
        "unknown" are in no range.

    Returns
    -------
    codes : (m,) int array
        At least one, ascending.

    Raises
    ------
    MicrodataError
        If the text stands for no level, if a range contains only a part of a level, or if a range
        is given for a variable with a level that cannot be read as numbers.
    """
    text = text.strip()
    known = {text_of(label).strip(): code for code, label in enumerate(labels)}
    if text in known:
        return np.array([known[text]])
    if text.startswith("!"):
        meant = np.setdiff1d(np.arange(len(labels)), codes_meant(text[1:], labels))
        if not meant.size:
            raise MicrodataError(f"{quoted(text)} excludes every level ({listing(labels)})")
        return meant
    if "|" in text:
        parts = [codes_meant(part, labels) for part in _apart(text, known)]
        return np.unique(np.concatenate(parts))
    said = None if plain_number(text) is not None else read_range(text)
    if said is None:
        raise MicrodataError(
            f"value {quoted(text)} is not a declared level (declared: {listing(labels)}), and has "
            "none of the forms <25, >=65, 15-24, a|b and !x, and <B with the name B of another "
            "variable"
        )
    inside = []
    for code, interval in enumerate(require_numbers(labels, quoted(text))):
        if interval is None or interval.high < said.low or interval.low > said.high:
            continue
        if interval.low < said.low or interval.high > said.high:
            raise MicrodataError(
                f"{quoted(text)} contains only a part of the level {quoted(labels[code])}; name "
                "whole levels, as a|b"
            )
        inside.append(code)
    if not inside:
        raise MicrodataError(f"{quoted(text)} contains no level (the levels are {listing(labels)})")
    return np.array(inside)
