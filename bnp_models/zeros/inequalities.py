"""Inequalities between the numbers of two variables, as a cell of a file of conditions states."""

import logging
import operator
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.data.label_numbers import Interval, read_range, require_numbers, unit_of
from bnp_models.data.messages import quoted
from bnp_models.data.schema import MicrodataError, Schema

_LOG = logging.getLogger(__name__)

# The order counts: "<=" begins with "<".
_SIGN = re.compile(r"(<=|>=|≤|≥|<|>)\s*(\S.*)")
_PLAIN = {"≤": "<=", "≥": ">="}
_COMPARES = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

_NOTHING = Interval(np.nan, np.nan)


class Inequality(NamedTuple):
    """Pairs of levels of two variables of which an inequality holds.

    Attributes
    ----------
    variable, other : int
        Positions of the variables in the schema.
    holds : (L, K) bool array
        Whether it holds of each level of `variable` and each level of `other`: of all numbers that
        the two levels stand for, and not only of some.
    """

    variable: int
    other: int
    holds: np.ndarray


def read_inequality(text: str, name: str, schema: Schema) -> Inequality | None:
    """Read a cell of a condition as an inequality between its variable and another one.

    Parameters
    ----------
    text
        The cell: one of the signs <, <=, > and >=, and the name of another variable.
    name
        The variable of the cell's column.
    schema
        The variables and their levels. Labels such as "unknown" and codes that are levels of their
        own stand for no number, so that no inequality holds of them.

    Returns
    -------
    inequality
        None if the text is no sign with the name of a variable, or is a range of numbers.

    Raises
    ------
    MicrodataError
        If both variables are the same, a level cannot be read as numbers, or the units differ.

    Notes
    -----
    A warning is logged if the inequality holds of some numbers, but of no two levels as a whole.
    """
    said = _said(text, schema)
    if said is None:
        return None
    sign, other = said
    if other == name:
        raise MicrodataError(f"{quoted(text)} compares the variable with itself; name another one")
    sides = [schema.levels[schema.variables.index(one)] for one in (name, other)]
    intervals = [
        _intervals(one, labels, text) for one, labels in zip((name, other), sides, strict=True)
    ]
    units = [unit_of(labels) for labels in sides]
    if all(units) and len(set(units)) > 1:
        raise MicrodataError(
            f"{quoted(text)} compares numbers of different units: {units[0]} and {units[1]}"
        )
    holds, may_hold = _of_all_and_of_some(sign, *intervals)
    if may_hold.any() and not holds.any():
        _LOG.warning(
            "the condition %s %s excludes nothing, because it holds of no two levels as a whole: "
            "it needs finer levels", name, text.strip(),
        )  # fmt: skip
    return Inequality(schema.variables.index(name), schema.variables.index(other), holds)


def _of_all_and_of_some(
    sign: str, first: Sequence[Interval], second: Sequence[Interval]
) -> tuple[np.ndarray, np.ndarray]:
    """Whether it holds (L, K) of all, and of some, of the numbers of two levels."""
    lows, highs = ([[getattr(one, end) for one in side] for side in (first, second)]
                   for end in ("low", "high"))  # fmt: skip
    compare = _COMPARES[sign]
    far = compare(np.array(highs[0])[:, None], np.array(lows[1]))
    near = compare(np.array(lows[0])[:, None], np.array(highs[1]))
    return (far, near) if sign in ("<", "<=") else (near, far)


def _said(text: str, schema: Schema) -> tuple[str, str] | None:
    """The sign and the variable of a text; None where it is no inequality."""
    match = _SIGN.fullmatch(text.strip())
    if match is None or match[2].strip() not in schema.variables or read_range(text) is not None:
        return None
    return _PLAIN.get(match[1], match[1]), match[2].strip()


def _intervals(name: str, labels: Sequence, text: str) -> list[Interval]:
    """Intervals of the levels of a variable; nothing compares with those without a number."""
    try:
        read = require_numbers(labels, quoted(text))
    except MicrodataError as error:
        raise MicrodataError(f"{error.problem} (variable {quoted(name)})") from None
    return [_NOTHING if one is None else one for one in read]
