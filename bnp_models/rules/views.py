"""Views of coded households, in which person predicates and rules look values up."""

import math
import operator
import re
from collections.abc import Mapping
from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np

from bnp_models.data.household_schema import HouseholdSchema, codes_of_sizes
from bnp_models.data.messages import quoted
from bnp_models.data.schema import (
    Label,
    MicrodataError,
    plain_label,
    text_of,
    undeclared_level,
    unknown_variable,
)

# Joint levels over which two conditions are compared.
JOINT_LEVELS = 2**20

OPEN_ENDED = 10**6

_YEARS = r"\s*(?:years?(?: old| of age)?)?\s*"

_NUMBER = re.compile(rf"\s*([0-9]+(?:\.[0-9]+)?){_YEARS}")

_INTERVAL = re.compile(rf"\s*([0-9]+)\s*(?:-|–|to)\s*([0-9]+){_YEARS}")

_AT_LEAST = re.compile(
    rf"\s*([0-9]+){_YEARS}(?:\+|(?:and|or) (?:over|older|above|more|up)){_YEARS}"
)

_LESS_THAN = re.compile(rf"\s*(?:<|under|below|less than)\s*([0-9]+){_YEARS}", re.IGNORECASE)


class Columns(NamedTuple):
    """Columns of the arrays of codes that rules read, ascending.

    Attributes
    ----------
    household : tuple of int
        Of ``household_codes``; with the head at household level, its variables are here too.
    member : tuple of int
        Of ``member_codes``.
    """

    household: tuple[int, ...]
    member: tuple[int, ...]


class HouseholdView:
    """What a rule sees of households of one size; arrays broadcast over leading dimensions.

    Predicates written in Python (:func:`predicate`) get one. Whether the head is a member or at
    household level makes no difference here: h persons, the head among them.

    Attributes
    ----------
    schema : HouseholdSchema
    size : int
        Number of persons h.
    """

    def __init__(self, schema, xp, household_codes, member_codes, columns: Columns):
        self.schema, self._xp, self._columns = schema, xp, columns
        self._household = xp.asarray(household_codes)
        self._members = xp.asarray(member_codes)
        self.size = self._members.shape[-2] + schema.num_heads

    def code(self, variable: str):
        """Return level codes: (..., h) for a variable of persons, (...) for one of households."""
        if variable in self.schema.household_level:
            return self._household_code(variable)[..., 0]
        return self._person_code(variable)

    def is_(self, variable: str, *labels: Label):
        """Whether the value is one of some labels: (..., h) or (...) bool, as for ``code``."""
        table = label_table(self.schema, variable, labels)
        return look_up(self._xp, table, self.code(variable))

    def number(self, variable: str):
        """Return the numbers that the labels stand for, as for ``code``; of an interval the
        least."""
        return numbers_of(self._xp, self.schema, variable, self.code(variable))[0]

    def _everyone(self):
        lead = np.broadcast_shapes(self._household.shape[:-1], self._members.shape[:-2])
        return self._xp.ones((*lead, self.size), dtype=bool)

    def _household_code(self, variable: str):
        """(..., 1) codes, which broadcast over persons."""
        if variable == self.schema.size_variable:
            code = codes_of_sizes(self.schema.labels(variable), np.array([self.size]))[0]
            return self._xp.full((*self._household.shape[:-1], 1), code, dtype=np.int32)
        if variable not in self.schema.household_level:
            raise unknown_variable(variable, self.schema.household_level)
        return self._column(self._household, self.schema.household_variables, variable, 0)

    def _person_code(self, variable: str):
        schema, xp = self.schema, self._xp
        if variable not in schema.personal:
            raise unknown_variable(variable, schema.personal)
        codes = self._column(self._members, schema.member_variables, variable, 1)[..., 0]
        if schema.head is None:
            return codes
        if variable == schema.head[0]:
            codes = codes + (codes >= schema.head_code).astype(codes.dtype)
            head = xp.full((*codes.shape[:-1], 1), schema.head_code, dtype=np.int32)
        else:
            head = self._column(self._household, schema.household_variables, f"head_{variable}", 0)
        lead = np.broadcast_shapes(head.shape[:-1], codes.shape[:-1])
        return xp.concatenate(
            [xp.broadcast_to(part, (*lead, part.shape[-1])) for part in (head, codes)], axis=-1
        )

    def _column(self, codes, names, variable: str, which: int):
        """(..., 1) entries of one column."""
        index = names.index(variable)
        if index not in self._columns[which]:
            raise ValueError(f"the arrays of codes lack {variable!r}, which a rule reads")
        k = self._columns[which].index(index)
        return codes[..., k : k + 1].astype(np.int32)


class JointLevels:
    """Joint levels in place of persons: codes of each variable, which broadcast to `shape`."""

    def __init__(self, schema, persons: Mapping, households: Mapping, shape=(), xp=np):
        self.schema, self._xp = schema, xp
        self._persons, self._households, self._shape = persons, households, shape

    def _everyone(self):
        return np.ones(self._shape, dtype=bool)

    def _person_code(self, variable: str):
        return self._persons[variable]

    def _household_code(self, variable: str):
        return self._households[variable]


def look_up(xp, table: np.ndarray, codes):
    """Whether codes are in the set that a (L,) bool table marks; missing ones are in none."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], table, [False]]).astype(np.int8)))
    runs = edges.reshape(-1, 2)
    if len(runs) > 4:
        return xp.asarray(np.append(table, False))[codes]
    # Few runs of codes: comparisons, which fuse, in place of gathers.
    masks = [
        codes == int(start) if stop == start + 1 else (codes >= int(start)) & (codes < int(stop))
        for start, stop in runs
    ]
    return reduce(operator.or_, masks) if masks else xp.zeros_like(codes, dtype=bool)


def numbers_of(xp, schema: HouseholdSchema, variable: str, codes):
    """Return the least and the largest number that the label of each code stands for."""
    least, most = bounds_of_label(schema, variable)
    if (least == most).all() and (np.diff(least) == 1).all() and least.dtype == np.int32:
        number = codes + int(least[0])
        return number, number
    return xp.asarray(least)[codes], xp.asarray(most)[codes]


@lru_cache(maxsize=256)
def label_table(schema: HouseholdSchema, variable: str, labels: tuple[Label, ...]) -> np.ndarray:
    known = schema.labels(variable)
    codes = {text_of(label): code for code, label in enumerate(known)}
    table = np.zeros(len(known), dtype=bool)
    for label in labels:
        text = text_of(plain_label(label))
        if text not in codes:
            raise MicrodataError(undeclared_level(label, known), column=variable)
        table[codes[text]] = True
    return table


@lru_cache(maxsize=256)
def bounds_of_label(schema: HouseholdSchema, variable: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the (L,) least and largest number that each label of a variable stands for."""
    pairs = []
    for label in schema.labels(variable):
        text = text_of(label)
        if found := _NUMBER.fullmatch(text):
            pairs.append((float(found[1]), float(found[1])))
        elif found := _INTERVAL.fullmatch(text):
            pairs.append((float(found[1]), float(found[2])))
        elif found := _AT_LEAST.fullmatch(text):
            pairs.append((float(found[1]), float(OPEN_ENDED)))
        elif found := _LESS_THAN.fullmatch(text):
            pairs.append((0.0, float(found[1]) - 1))
        else:
            raise MicrodataError(
                f"level {quoted(label)} is no number; a rule that compares numbers takes levels "
                "such as 7, '5-9', '85+' or 'under 5'",
                column=variable,
            )
    bounds = np.array(pairs).T
    bounds = bounds.astype(np.int32 if (bounds == np.round(bounds)).all() else np.float32)
    return bounds[0], bounds[1]


def codes_of_joint(num_levels) -> list[np.ndarray]:
    """Return the code of each variable at each joint level, a (levels,) int32 array each."""
    if not num_levels:
        return []
    codes = np.unravel_index(np.arange(math.prod(num_levels)), num_levels)
    return [code.astype(np.int32) for code in codes]


def joint_level(codes: np.ndarray, num_levels) -> np.ndarray:
    """Return (...) joint levels of (..., variables) codes, the last variable fastest."""
    result = np.zeros(codes.shape[:-1], dtype=np.int64)
    for j, levels in enumerate(num_levels):
        result = result * levels + codes[..., j]
    return result
