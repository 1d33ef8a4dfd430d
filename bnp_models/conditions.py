"""What is true of one person of a household, for rules to be made of.

A condition (:func:`person`, :func:`aged`, ...) names variables and labels as the table has them,
and finds its persons in the codes of any :class:`~bnp_models.households.HouseholdSchema`, on NumPy
or JAX arrays.
"""

import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from bnp_models.households import HouseholdSchema, codes_of_sizes
from bnp_models.microdata import (
    Label,
    MicrodataError,
    plain_label,
    text_of,
    undeclared_level,
    unknown_variable,
)
from bnp_models.wording import quoted

# Joint levels over which two conditions are compared.
_JOINT_LEVELS = 2**20

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
        table = _label_table(self.schema, variable, labels)
        return _look_up(self._xp, table, self.code(variable))

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


class Condition(ABC):
    """Something that is true or false of one person; combine by ``&``, ``|`` and ``~``."""

    household: tuple[str, ...] = ()
    member: tuple[str, ...] = ()

    @abstractmethod
    def mask(self, view):
        """(..., h) bool: of which persons it is true."""

    def __and__(self, other: "Condition") -> "Condition":
        return _Both(self, other)

    def __or__(self, other: "Condition") -> "Condition":
        return _Either(self, other)

    def __invert__(self) -> "Condition":
        return _Otherwise(self)


@dataclass(frozen=True)
class Person(Condition):
    """A person with some values: (variable, labels) pairs; with none, any person."""

    values: tuple[tuple[str, tuple[Label, ...]], ...]

    @property
    def member(self):
        return tuple(variable for variable, _ in self.values)

    def mask(self, view):
        if not self.values:
            return view._everyone()
        masks = [
            _look_up(
                view._xp, _label_table(view.schema, variable, labels), view._person_code(variable)
            )
            for variable, labels in self.values
        ]
        return reduce(operator.and_, masks)

    def __str__(self):
        return " and ".join(
            f"{variable} {' or '.join(map(quoted, labels))}" for variable, labels in self.values
        )


@dataclass(frozen=True)
class Aged(Condition):
    """A person whose age, or other number, is within bounds; both included."""

    at_least: float | None
    at_most: float | None
    variable: str = "age"

    @property
    def member(self):
        return (self.variable,)

    def mask(self, view):
        least, most = _bounds(view.schema, self.variable)
        table = np.ones(len(least), dtype=bool)
        if self.at_least is not None:
            table &= most >= self.at_least
        if self.at_most is not None:
            table &= least <= self.at_most
        return _look_up(view._xp, table, view._person_code(self.variable))

    def __str__(self):
        if self.at_most is None:
            return f"{self.variable} at least {self.at_least}"
        if self.at_least is None:
            return f"{self.variable} at most {self.at_most}"
        return f"{self.variable} from {self.at_least} to {self.at_most}"


@dataclass(frozen=True)
class AsHousehold(Condition):
    """A person whose value has the same label as a variable of the household."""

    variable: str
    household_variable: str

    @property
    def member(self):
        return (self.variable,)

    @property
    def household(self):
        return (self.household_variable,)

    def mask(self, view):
        ours = view._person_code(self.variable)
        theirs = view._household_code(self.household_variable)
        texts = {
            text_of(label): code
            for code, label in enumerate(view.schema.labels(self.household_variable))
        }
        # A label that the household's variable lacks agrees with nothing.
        table = [texts.get(text_of(label), -2) for label in view.schema.labels(self.variable)]
        return view._xp.asarray(np.array([*table, -2], dtype=np.int32))[ours] == theirs

    def __str__(self):
        return f"{self.variable} equal to the household's {self.household_variable}"


@dataclass(frozen=True)
class OfHousehold(Condition):
    """A household with some values: (variable, labels) pairs."""

    values: tuple[tuple[str, tuple[Label, ...]], ...]

    @property
    def household(self):
        return tuple(variable for variable, _ in self.values)

    def mask(self, view):
        masks = [
            _look_up(
                view._xp, _label_table(view.schema, variable, labels),
                view._household_code(variable),
            )
            for variable, labels in self.values
        ]  # fmt: skip
        return reduce(operator.and_, masks)

    def __str__(self):
        return " and ".join(
            f"{variable} {' or '.join(map(quoted, labels))}" for variable, labels in self.values
        )


@dataclass(frozen=True)
class _Pair(Condition):
    first: Condition
    second: Condition

    @property
    def member(self):
        return tuple(dict.fromkeys((*self.first.member, *self.second.member)))

    @property
    def household(self):
        return tuple(dict.fromkeys((*self.first.household, *self.second.household)))


@dataclass(frozen=True)
class _Both(_Pair):
    def mask(self, view):
        return self.first.mask(view) & self.second.mask(view)

    def __str__(self):
        return f"{_bracketed(self.first)} and {_bracketed(self.second)}"


@dataclass(frozen=True)
class _Either(_Pair):
    def mask(self, view):
        return self.first.mask(view) | self.second.mask(view)

    def __str__(self):
        return f"{_bracketed(self.first)} or {_bracketed(self.second)}"


@dataclass(frozen=True)
class _Otherwise(Condition):
    of: Condition

    @property
    def member(self):
        return self.of.member

    @property
    def household(self):
        return self.of.household

    def mask(self, view):
        return ~self.of.mask(view)

    def __str__(self):
        return f"not ({self.of})"


ANYONE = Person(())


def person(values: Mapping[str, Any] | None = None, /, **named) -> Person:
    """Describe persons by their values.

    Parameters
    ----------
    values : mapping of variable to label or labels, optional
        For names of variables that are no Python names.
    **named
        ``person(relate=("Child", "Stepchild"), sex="Female")``: one of the labels given, in each
        variable. Without any, every person.
    """
    return Person(as_values(values, named))


def aged(
    at_least: float | None = None, at_most: float | None = None, variable: str = "age"
) -> Aged:
    """Describe persons by their age, or another variable whose labels are numbers; bounds
    included."""
    if at_least is None and at_most is None:
        raise ValueError("give at_least, at_most or both")
    return Aged(at_least, at_most, variable)


def as_values(values: Mapping | None, named: Mapping) -> tuple[tuple[str, tuple[Label, ...]], ...]:
    """Return (variable, labels) pairs, as conditions keep them."""
    given = {**(values or {}), **named}
    pairs = []
    for variable, labels in given.items():
        several = isinstance(labels, tuple | list | set | frozenset)
        labels = tuple(labels) if several else (labels,)
        if not labels:
            raise ValueError(f"no label of {variable!r} is given")
        pairs.append((variable, labels))
    return tuple(pairs)


def _bracketed(condition: Condition) -> str:
    return f"({condition})" if isinstance(condition, _Pair) else str(condition)


def _look_up(xp, table: np.ndarray, codes):
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
    least, most = _bounds(schema, variable)
    if (least == most).all() and (np.diff(least) == 1).all() and least.dtype == np.int32:
        number = codes + int(least[0])
        return number, number
    return xp.asarray(least)[codes], xp.asarray(most)[codes]


@lru_cache(maxsize=256)
def _label_table(schema: HouseholdSchema, variable: str, labels: tuple[Label, ...]) -> np.ndarray:
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
def _bounds(schema: HouseholdSchema, variable: str) -> tuple[np.ndarray, np.ndarray]:
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


@lru_cache(maxsize=256)
def disjoint(first: Condition, second: Condition, schema: HouseholdSchema) -> bool:
    """Whether it is known that no person is both."""
    both = first & second
    variables = both.member
    num_levels = [len(schema.labels(variable)) for variable in variables]
    if both.household or not variables or math.prod(num_levels) > _JOINT_LEVELS:
        return False
    persons = dict(zip(variables, codes_of_joint(num_levels), strict=True))
    return not both.mask(JointLevels(schema, persons, {})).any()


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
