"""Person predicates: which members of a household a rule is about."""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.messages import quoted
from bnp_models.data.schema import Label, text_of
from bnp_models.rules.views import (
    JOINT_LEVELS,
    JointLevels,
    bounds_of_label,
    codes_of_joint,
    label_table,
    look_up,
)


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
            look_up(
                view._xp, label_table(view.schema, variable, labels), view._person_code(variable)
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
        least, most = bounds_of_label(view.schema, self.variable)
        table = np.ones(len(least), dtype=bool)
        if self.at_least is not None:
            table &= most >= self.at_least
        if self.at_most is not None:
            table &= least <= self.at_most
        return look_up(view._xp, table, view._person_code(self.variable))

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
            look_up(
                view._xp, label_table(view.schema, variable, labels),
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


@lru_cache(maxsize=256)
def disjoint(first: Condition, second: Condition, schema: HouseholdSchema) -> bool:
    """Whether it is known that no person is both."""
    both = first & second
    variables = both.member
    num_levels = [len(schema.labels(variable)) for variable in variables]
    if both.household or not variables or math.prod(num_levels) > JOINT_LEVELS:
        return False
    persons = dict(zip(variables, codes_of_joint(num_levels), strict=True))
    return not both.mask(JointLevels(schema, persons, {})).any()
