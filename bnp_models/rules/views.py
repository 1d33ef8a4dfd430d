"""Views of coded households, in which person predicates and rules look values up."""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from bnp_models.data.household_schema import HouseholdSchema, codes_of_sizes
from bnp_models.data.households import Households
from bnp_models.data.label_numbers import OwnLevel, read_numbers
from bnp_models.data.messages import as_option, quoted
from bnp_models.data.schema import (
    Label,
    MicrodataError,
    plain_label,
    text_of,
    undeclared_level,
    unknown_variable,
)

# The number that a label without an upper bound ("85+") stands for at most, and the largest that a
# rule may speak of: sums of a few are exact.
OPEN_ENDED = 10**8


class Variables(NamedTuple):
    """Names of the variables that rules read.

    Attributes
    ----------
    household : tuple of str
        Variables of households.
    member : tuple of str
        Variables of persons.
    """

    household: tuple[str, ...]
    member: tuple[str, ...]

    @classmethod
    def of(cls, readers: Iterable[Any]) -> "Variables":
        """Return all that some reader reads: predicates, rules or others with these names."""
        readers = list(readers)
        return cls(
            tuple(dict.fromkeys(name for reader in readers for name in reader.household)),
            tuple(dict.fromkeys(name for reader in readers for name in reader.member)),
        )


class Columns(NamedTuple):
    """Columns of the arrays of codes that rules read, ascending.

    Attributes
    ----------
    household : tuple of int
        Columns of ``household_codes``; with the head at household level, the head's variables are
        here too.
    member : tuple of int
        Columns of ``member_codes``.
    """

    household: tuple[int, ...]
    member: tuple[int, ...]


class View(ABC):
    """Codes of persons and their households, which broadcast over leading dimensions.

    Attributes
    ----------
    schema : HouseholdSchema
        The variables and their levels.
    xp : module
        Module of the code arrays: numpy or jax.numpy.
    """

    schema: HouseholdSchema
    xp: ModuleType

    @abstractmethod
    def everyone(self) -> Any:
        """Return a bool array that is true of every person."""

    @abstractmethod
    def person_codes(self, variable: str) -> Any:
        """Return the (..., h) codes of a variable of persons."""

    @abstractmethod
    def household_codes(self, variable: str) -> Any:
        """Return the (..., 1) codes of a variable of households, which broadcast over persons."""


class HouseholdView(View):
    """Households of one size, as a rule sees them; arrays broadcast over leading dimensions.

    Predicates written in Python (:func:`predicate`) get one. Whether the head is a member or at
    household level makes no difference here: h persons, the head among them.

    Attributes
    ----------
    schema : HouseholdSchema
        The variables and their levels.
    xp : module
        Module of the code arrays: numpy or jax.numpy.
    size : int
        Number of persons h.

    Examples
    --------
    >>> def two_adults(view: bnp.rules.HouseholdView):
    ...     return (view.number("age") >= 18).sum(-1) >= 2
    >>> rule = bnp.rules.predicate(two_adults, "two adults", member=["age"])
    >>> bnp.Rules([rule]).check(households).shape
    (20,)
    """

    def __init__(self, schema, xp, household_codes, member_codes, columns: Columns):
        self.schema, self.xp, self._columns = schema, xp, columns
        self._household = xp.asarray(household_codes)
        self._members = xp.asarray(member_codes)
        self._persons: dict[str, Any] = {}
        self.size = self._members.shape[-2] + schema.num_heads

    def code(self, variable: str):
        """Return level codes: (..., h) for a variable of persons, (...) for one of households."""
        if variable in self.schema.household_level:
            return self.household_codes(variable)[..., 0]
        return self.person_codes(variable)

    def is_(self, variable: str, *labels: Label):
        """Whether the value is one of some labels: (..., h) or (...) bool, as for ``code``."""
        return look_up(self.xp, label_table(self.schema, variable, labels), self.code(variable))

    def number(self, variable: str):
        """Return the number that each label stands for, as for ``code``; of an interval the
        least."""
        return numbers_of(self.xp, self.schema, variable, self.code(variable))[0]

    def everyone(self):
        """Return a (..., h) bool array that is true of every person."""
        lead = np.broadcast_shapes(self._household.shape[:-1], self._members.shape[:-2])
        return self.xp.ones((*lead, self.size), dtype=bool)

    def household_codes(self, variable: str):
        """Return the (..., 1) codes of a variable of households, which broadcast over persons."""
        if variable == self.schema.size_variable:
            code = codes_of_sizes(self.schema.labels(variable), np.array([self.size]))[0]
            return self.xp.full((*self._household.shape[:-1], 1), code, dtype=np.int32)
        if variable not in self.schema.household_level:
            raise unknown_variable(variable, self.schema.household_level, "household variable")
        return self._column(self._household, self.schema.household_variables, variable, 0)

    def person_codes(self, variable: str):
        """Return the (..., h) codes of a variable of persons, the head's first if it is not a
        member."""
        if variable not in self._persons:
            self._persons[variable] = self._person_codes(variable)
        return self._persons[variable]

    def _person_codes(self, variable: str):
        """Return what `person_codes` keeps."""
        schema, xp = self.schema, self.xp
        if variable not in schema.personal:
            raise unknown_variable(variable, schema.personal, "person variable")
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
        """Return the (..., 1) codes of a variable, whose place among all columns `names` tells."""
        index = names.index(variable)
        if index not in self._columns[which]:
            raise ValueError(
                f"the arrays of codes lack {variable!r}, which a rule reads; name it where the "
                "rule says what it reads, or compile the rules for that column too"
            )
        k = self._columns[which].index(index)
        return codes[..., k : k + 1].astype(np.int32)


class JointLevels(View):
    """Joint levels in place of persons.

    Parameters
    ----------
    schema : HouseholdSchema
        The variables and their levels.
    persons, households : mappings of variable to codes
        Codes of each variable at each joint level, which broadcast to `shape`.
    shape : tuple of int
        Shape of the joint levels.
    xp : module
        NumPy or jax.numpy.
    """

    def __init__(
        self,
        schema: HouseholdSchema,
        persons: Mapping[str, Any],
        households: Mapping[str, Any],
        shape: tuple[int, ...] = (),
        xp: ModuleType = np,
    ):
        self.schema, self.xp = schema, xp
        self._persons, self._households, self._shape = persons, households, shape

    def everyone(self) -> np.ndarray:
        """Return a bool array that is true of every joint level."""
        return np.ones(self._shape, dtype=bool)

    def person_codes(self, variable: str):
        """Return the codes of a variable of persons at each joint level."""
        return self._persons[variable]

    def household_codes(self, variable: str):
        """Return the codes of a variable of households at each joint level."""
        return self._households[variable]


def schema_of(schema: Households | HouseholdSchema) -> HouseholdSchema:
    """Return the schema of households, or the schema given."""
    return schema.schema if isinstance(schema, Households) else schema


def columns_of(schema: HouseholdSchema, reads: Variables) -> Columns:
    """Return the columns of codes that hold some variables.

    Raises
    ------
    MicrodataError
        If the schema lacks a variable.
    """
    for kind, known, names in (
        ("household variable", schema.household_level, reads.household),
        ("person variable", schema.personal, reads.member),
    ):
        for name in names:
            if name not in known:
                raise unknown_variable(name, known, kind)
    household = [name for name in reads.household if name != schema.size_variable]
    if schema.head is not None:
        household += [f"head_{name}" for name in reads.member if name != schema.head[0]]
    return Columns(
        tuple(sorted(schema.household_variables.index(name) for name in household)),
        tuple(sorted(schema.member_variables.index(name) for name in reads.member)),
    )


def look_up(xp: ModuleType, table: np.ndarray, codes):
    """Return whether codes are in the set that a (L,) bool table marks; missing ones are not."""
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


def numbers_of(xp: ModuleType, schema: HouseholdSchema, variable: str, codes):
    """Return the least and the largest number that the label of each code stands for."""
    least, most = bounds_of_label(schema, variable)
    if (least == most).all() and (np.diff(least) == 1).all() and least.dtype == np.int32:
        number = codes + int(least[0])
        return number, number
    return xp.asarray(least)[codes], xp.asarray(most)[codes]


@lru_cache(maxsize=256)
def label_table(schema: HouseholdSchema, variable: str, labels: tuple[Label, ...]) -> np.ndarray:
    """Return the (L,) bool table of the codes of some labels of a variable.

    Raises
    ------
    MicrodataError
        If the variable is unknown or lacks a label.
    """
    known = schema.labels(variable)
    codes = {text_of(label): code for code, label in enumerate(known)}
    table = np.zeros(len(known), dtype=bool)
    for label in labels:
        text = text_of(plain_label(label))
        if text not in codes:
            raise MicrodataError(undeclared_level(label, known), column=variable)
        table[codes[text]] = True
    return table


def _number_after_all(variable: str, label: Label) -> str:
    """What to say of a number that was taken for a code."""
    if not isinstance(label, OwnLevel):
        return ""
    option = as_option([f"{variable}={label}"])
    return f"; it was taken for a code; if it is a number, say --number {option}"


@lru_cache(maxsize=256)
def bounds_of_label(schema: HouseholdSchema, variable: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the (L,) least and largest number that each label of a variable stands for.

    Raises
    ------
    MicrodataError
        If the variable is unknown, or a label is no number, interval or bound.
    """
    labels, pairs = schema.labels(variable), []
    for label, interval in zip(labels, read_numbers(labels), strict=True):
        if interval is None:
            raise MicrodataError(
                f"level {quoted(label)} is no number; a rule that compares numbers takes levels "
                f"such as 7, '5-9', '85+' or 'under 5'{_number_after_all(variable, label)}",
                column=variable,
            )
        low, high = interval
        if math.isinf(high):
            high = OPEN_ENDED
        if math.isinf(low):
            low = 0 if high >= 0 else -OPEN_ENDED
        if max(-low, high) > OPEN_ENDED:
            raise MicrodataError(
                f"level {quoted(label)} is too large for a rule that compares numbers; let them be "
                f"at most {OPEN_ENDED:,}",
                column=variable,
            )
        pairs.append((low, high))
    bounds = np.array(pairs).T
    bounds = bounds.astype(np.int32 if (bounds == np.round(bounds)).all() else np.float32)
    return bounds[0], bounds[1]


def codes_of_joint(num_levels: Sequence[int]) -> list[np.ndarray]:
    """Return each variable's code at each joint level, the last variable fastest: int32 arrays."""
    cells = math.prod(num_levels)
    return list(np.indices(num_levels, dtype=np.int32).reshape(len(num_levels), cells))


def joint_level(codes: np.ndarray, num_levels: Sequence[int]) -> np.ndarray:
    """Return (...) joint levels of (..., variables) codes, the last variable fastest."""
    result = np.zeros(codes.shape[:-1], dtype=np.int64)
    for j, levels in enumerate(num_levels):
        result = result * levels + codes[..., j]
    return result
