"""Person predicates: statements that are true or false of one person of a household."""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, TypeAlias

import numpy as np

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.messages import quoted
from bnp_models.data.schema import Label, text_of
from bnp_models.rules.views import (
    JointLevels,
    View,
    bounds_of_label,
    codes_of_joint,
    label_table,
    look_up,
)

Values: TypeAlias = tuple[tuple[str, tuple[Label, ...]], ...]
"""Pairs of a variable and the labels that it may have."""

# Joint levels up to which two predicates are compared.
_JOINT_LEVELS = 2**20


class PersonPredicate(ABC):
    """A statement that is true or false of one person; combine by ``&``, ``|`` and ``~``."""

    @property
    def household(self) -> tuple[str, ...]:
        """Variables of households that it reads."""
        return ()

    @property
    def member(self) -> tuple[str, ...]:
        """Variables of persons that it reads."""
        return ()

    @abstractmethod
    def mask(self, view: View) -> Any:
        """Return the persons of whom it is true, (..., h) bool."""

    def __and__(self, other: "PersonPredicate") -> "PersonPredicate":
        return Both(self, other)

    def __or__(self, other: "PersonPredicate") -> "PersonPredicate":
        return Either(self, other)

    def __invert__(self) -> "PersonPredicate":
        return Negation(self)


@dataclass(frozen=True)
class Person(PersonPredicate):
    """A person with some values; with none, any person."""

    values: Values

    @property
    def member(self):
        return tuple(variable for variable, _ in self.values)

    def mask(self, view):
        if not self.values:
            return view.everyone()
        return _have(view, self.values, view.person_codes)

    def __str__(self):
        return _values_in_words(self.values)


@dataclass(frozen=True)
class Aged(PersonPredicate):
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
        return look_up(view.xp, table, view.person_codes(self.variable))

    def __str__(self):
        if self.at_most is None:
            return f"{self.variable} at least {self.at_least}"
        if self.at_least is None:
            return f"{self.variable} at most {self.at_most}"
        return f"{self.variable} from {self.at_least} to {self.at_most}"


@dataclass(frozen=True)
class AsHousehold(PersonPredicate):
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
        code_of_text = {
            text_of(label): code
            for code, label in enumerate(view.schema.labels(self.household_variable))
        }
        # A label that the household's variable lacks, and a missing one, agrees with nothing.
        agreeing = [
            code_of_text.get(text_of(label), -2) for label in view.schema.labels(self.variable)
        ]
        table = view.xp.asarray(np.array([*agreeing, -2], dtype=np.int32))
        return table[view.person_codes(self.variable)] == view.household_codes(
            self.household_variable
        )

    def __str__(self):
        return f"{self.variable} equal to the household's {self.household_variable}"


@dataclass(frozen=True)
class OfHousehold(PersonPredicate):
    """A person whose household has some values."""

    values: Values

    @property
    def household(self):
        return tuple(variable for variable, _ in self.values)

    def mask(self, view):
        return _have(view, self.values, view.household_codes)

    def __str__(self):
        return _values_in_words(self.values)


@dataclass(frozen=True)
class _Pair(PersonPredicate):
    """A combination of two predicates."""

    first: PersonPredicate
    second: PersonPredicate

    @property
    def member(self):
        return tuple(dict.fromkeys((*self.first.member, *self.second.member)))

    @property
    def household(self):
        return tuple(dict.fromkeys((*self.first.household, *self.second.household)))


@dataclass(frozen=True)
class Both(_Pair):
    """A person of whom both predicates are true."""

    def mask(self, view):
        return self.first.mask(view) & self.second.mask(view)

    def __str__(self):
        return f"{_bracketed(self.first)} and {_bracketed(self.second)}"


@dataclass(frozen=True)
class Either(_Pair):
    """A person of whom at least one predicate is true."""

    def mask(self, view):
        return self.first.mask(view) | self.second.mask(view)

    def __str__(self):
        return f"{_bracketed(self.first)} or {_bracketed(self.second)}"


@dataclass(frozen=True)
class Negation(PersonPredicate):
    """A person of whom a predicate is false."""

    negated: PersonPredicate

    @property
    def member(self):
        return self.negated.member

    @property
    def household(self):
        return self.negated.household

    def mask(self, view):
        return ~self.negated.mask(view)

    def __str__(self):
        return f"not ({self.negated})"


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

    Examples
    --------
    >>> print(bnp.rules.person(relate="Householder"))
    relate 'Householder'
    """
    return Person(as_values(values, named))


def aged(
    at_least: float | None = None, at_most: float | None = None, variable: str = "age"
) -> Aged:
    """Describe persons by their age, or another variable whose labels are numbers.

    Parameters
    ----------
    at_least, at_most : float, optional
        Bounds, both included; give at least one. A label that stands for several numbers is within
        them if some of its numbers are.
    variable : str
        The variable.

    Examples
    --------
    >>> print(bnp.rules.aged(15))
    age at least 15
    """
    if at_least is None and at_most is None:
        raise ValueError("give at_least, at_most or both")
    if at_least is not None and at_most is not None and at_least > at_most:
        raise ValueError(f"at_least {at_least} is above at_most {at_most}; correct one")
    return Aged(at_least, at_most, variable)


def as_values(values: Mapping | None, named: Mapping) -> Values:
    """Return the values of a mapping and of keyword arguments, one label or several each."""
    given = {**(values or {}), **named}
    pairs = []
    for variable, labels in given.items():
        several = isinstance(labels, tuple | list | set | frozenset)
        labels = tuple(labels) if several else (labels,)
        if not labels:
            raise ValueError(f"no label of {variable!r} is given")
        pairs.append((variable, labels))
    return tuple(pairs)


def _have(view: View, values: Values, codes_of: Callable[[str], Any]) -> Any:
    """Return where all variables have one of their labels."""
    masks = [
        look_up(view.xp, label_table(view.schema, variable, labels), codes_of(variable))
        for variable, labels in values
    ]
    return reduce(operator.and_, masks)


def _values_in_words(values: Values) -> str:
    """Say that variables have these values."""
    return " and ".join(
        f"{variable} {' or '.join(map(quoted, labels))}" for variable, labels in values
    )


def _bracketed(predicate: PersonPredicate) -> str:
    """Return a predicate in words, in brackets where it combines two."""
    return f"({predicate})" if isinstance(predicate, _Pair) else str(predicate)


@lru_cache(maxsize=256)
def disjoint(first: PersonPredicate, second: PersonPredicate, schema: HouseholdSchema) -> bool:
    """Return whether it is certain that two predicates are true of no person at once."""
    both = first & second
    variables = both.member
    num_levels = [len(schema.labels(variable)) for variable in variables]
    if both.household or not variables or math.prod(num_levels) > _JOINT_LEVELS:
        return False
    persons = dict(zip(variables, codes_of_joint(num_levels), strict=True))
    return not both.mask(JointLevels(schema, persons, {})).any()
