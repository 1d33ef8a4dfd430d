"""Rules: statements about one household that a possible household keeps."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.schema import unknown_variable
from bnp_models.rules.persons import (
    ANYONE,
    AsHousehold,
    Condition,
    OfHousehold,
    Person,
    as_values,
    disjoint,
)
from bnp_models.rules.views import OPEN_ENDED, Columns, HouseholdView, JointLevels, numbers_of


class Variables(NamedTuple):
    """Names of the variables of the table that rules read.

    Attributes
    ----------
    household : tuple of str
        Variables of households.
    member : tuple of str
        Variables of persons.
    """

    household: tuple[str, ...]
    member: tuple[str, ...]


@dataclass(frozen=True)
class Rule(ABC):
    """A statement about one household, true or false; combine by ``&``, ``|`` and ``~``.

    ``str(rule)`` says it in words. ``rule.name`` is that text unless the rule was
    :meth:`named`.
    """

    title: str | None = field(default=None, kw_only=True)

    kind = "logic"

    @property
    def name(self) -> str:
        """The name given, or the rule in words."""
        return str(self) if self.title is None else self.title

    @property
    def variables(self) -> Variables:
        """The variables of the table that the rule reads."""
        parts = self._conditions()
        return Variables(
            tuple(dict.fromkeys(name for part in parts for name in part.household)),
            tuple(dict.fromkeys(name for part in parts for name in part.member)),
        )

    def named(self, name: str) -> "Rule":
        """Return the rule under a name."""
        return replace(self, title=name)

    def implies(self, other: "Rule") -> "Rule":
        """Return the rule that wherever this one holds, the other does."""
        if isinstance(self, HouseholdHas) and isinstance(other, HouseholdHas):
            return HouseholdHas(~self.condition | other.condition)
        return Implies(self, other)

    def __and__(self, other: "Rule") -> "Rule":
        if isinstance(self, HouseholdHas) and isinstance(other, HouseholdHas):
            return HouseholdHas(self.condition & other.condition)
        return And(self, other)

    def __or__(self, other: "Rule") -> "Rule":
        if isinstance(self, HouseholdHas) and isinstance(other, HouseholdHas):
            return HouseholdHas(self.condition | other.condition)
        return Or(self, other)

    def __invert__(self) -> "Rule":
        return Not(self)

    @abstractmethod
    def _conditions(self) -> tuple["Condition | Variables", ...]:
        """What the rule is made of, each with the names of the variables that it reads."""

    @abstractmethod
    def _holds(self, view: HouseholdView):
        """(...) bool: in which households it is true."""

    def parts(self) -> "Parts | None":
        """The rule as statements about single persons and pairs, or None if it is not such."""
        return None


class Parts(NamedTuple):
    """Statements that together are a rule.

    ``unary``: (who, what): who is, is what. ``pairs``: rules that compare two persons. ``never``:
    two conditions of which not both occur, in one person or two. ``at_most``: (who, count).
    """

    one: tuple[Condition, ...] = ()
    at_most: tuple[tuple[Condition, int], ...] = ()
    unary: tuple[tuple[Condition, Condition], ...] = ()
    pairs: tuple["_Comparison", ...] = ()
    never: tuple[tuple[Condition, Condition], ...] = ()


@dataclass(frozen=True)
class Count(Rule):
    """How many persons some condition is true of: from ``least`` to ``most``."""

    least: int
    most: int | None
    who: Condition

    kind = "count"

    def _conditions(self):
        return (self.who,)

    def _holds(self, view):
        count = self.who.mask(view).astype(np.int32).sum(-1)
        if self.most is None:
            return count >= self.least
        if self.least == self.most:
            return count == self.least
        return (count >= self.least) & (count <= self.most)

    def parts(self):
        if self.most == 0:
            return Parts(unary=((self.who, ~ANYONE),))
        if self.least == 0 and self.most is not None:
            return Parts(at_most=((self.who, self.most),))
        if self.least == self.most == 1:
            return Parts(one=(self.who,))
        return None

    def __str__(self):
        if self.most is None:
            return f"at least {_persons(self.least, self.who)}"
        if self.most == 0:
            return f"no {_one(self.who)}"
        if self.least == self.most:
            return f"exactly {_persons(self.least, self.who)}"
        if self.least == 0:
            return f"at most {_persons(self.most, self.who)}"
        return f"{self.least} to {_persons(self.most, self.who)}"


@dataclass(frozen=True)
class Each(Rule):
    """Everyone of whom one condition is true has the other too."""

    who: Condition
    what: Condition

    kind = "each"

    def _conditions(self):
        return (self.who, self.what)

    def _holds(self, view):
        return (~self.who.mask(view) | self.what.mask(view)).all(-1)

    def parts(self):
        return Parts(unary=((self.who, self.what),))

    def __str__(self):
        return f"each {_one(self.who)} has {self.what}"


@dataclass(frozen=True)
class _Comparison(Rule):
    """Every ``who`` stands in some relation to every other person that is ``whom``."""

    who: Condition
    whom: Condition
    variable: str

    kind = "pair"

    def _conditions(self):
        return (self.who, self.whom, Person(((self.variable, ()),)))

    @abstractmethod
    def related(self, first, second):
        """Whether the relation holds, for views or levels that broadcast."""

    def _holds(self, view):
        who, whom = self.who.mask(view), self.whom.mask(view)
        if disjoint(self.who, self.whom, view.schema):
            return self._holds_apart(view, who, whom)
        return self._holds_between(view, who, whom)

    def _holds_apart(self, view, who, whom):
        """As ``_holds``, where no person is both."""
        return self._holds_between(view, who, whom)

    def _holds_between(self, view, who, whom):
        codes = view._person_code(self.variable)
        first, second = (
            JointLevels(view.schema, {self.variable: code}, {}, xp=view._xp)
            for code in (codes[..., :, None], codes[..., None, :])
        )
        other = view._xp.asarray(~np.eye(view.size, dtype=bool))
        other = other.reshape((1,) * (who.ndim - 1) + other.shape)
        broken = who[..., :, None] & whom[..., None, :] & ~self.related(first, second) & other
        return ~broken.any((-2, -1))

    def parts(self):
        return Parts(pairs=(self,))

    def _whom(self) -> str:
        return f"other {_one(self.whom)}" if self.whom in (self.who, ANYONE) else _one(self.whom)


@dataclass(frozen=True)
class Compare(_Comparison):
    """A difference in age, or another number: ``younger``, ``older`` by at least ``years``, or
    ``within`` them."""

    relation: str
    years: float

    def _ages(self, view):
        codes = view._person_code(self.variable)
        least, most = numbers_of(view._xp, view.schema, self.variable, codes)
        if isinstance(self.years, int):
            return least, most
        return least.astype(np.float32), most.astype(np.float32)

    def related(self, first, second):
        least, most = self._ages(first)
        least_other, most_other = self._ages(second)
        if self.relation == "younger":
            return least <= most_other - self.years
        if self.relation == "older":
            return most >= least_other + self.years
        return (least - most_other <= self.years) & (least_other - most <= self.years)

    def _holds_apart(self, view, who, whom):
        xp = view._xp
        least, most = self._ages(view)
        far = np.array(4 * OPEN_ENDED, dtype=least.dtype)
        # The extremes decide: the oldest of those who must be younger, and so on.
        highest = xp.where(who, least, -far).max(-1)
        lowest = xp.where(who, most, far).min(-1)
        highest_other = xp.where(whom, least, -far).max(-1)
        lowest_other = xp.where(whom, most, far).min(-1)
        if self.relation == "younger":
            return highest <= lowest_other - self.years
        if self.relation == "older":
            return lowest >= highest_other + self.years
        return (highest - lowest_other <= self.years) & (highest_other - lowest <= self.years)

    def __str__(self):
        years = "year" if self.years == 1 else "years"
        how = {
            "younger": f"at least {self.years} {years} younger than",
            "older": f"at least {self.years} {years} older than",
            "within": f"within {self.years} {years} of",
        }[self.relation]
        by = "" if self.variable == "age" else f" by {self.variable}"
        return f"each {_one(self.who)} is {how} each {self._whom()}{by}"


@dataclass(frozen=True)
class Same(_Comparison):
    """The same value, or another one."""

    same: bool

    def related(self, first, second):
        codes = (first._person_code(self.variable), second._person_code(self.variable))
        return codes[0] == codes[1] if self.same else codes[0] != codes[1]

    def _holds_apart(self, view, who, whom):
        num_levels = len(view.schema.labels(self.variable))
        if num_levels > 8:
            return self._holds_between(view, who, whom)
        codes = view._person_code(self.variable)
        broken = []
        for code in range(num_levels):
            here = codes == code
            broken.append((who & here).any(-1) & (whom & (~here if self.same else here)).any(-1))
        return ~reduce(operator.or_, broken)

    def __str__(self):
        how = f"the same {self.variable} as" if self.same else f"another {self.variable} than"
        return f"each {_one(self.who)} has {how} each {self._whom()}"


@dataclass(frozen=True)
class HouseholdHas(Rule):
    """A condition on variables of the household alone."""

    condition: Condition

    kind = "household"

    def _conditions(self):
        return (self.condition,)

    def _holds(self, view):
        return self.condition.mask(view)[..., 0]

    def parts(self):
        return Parts(unary=((ANYONE, self.condition),))

    def __invert__(self):
        return HouseholdHas(~self.condition)

    def __str__(self):
        return f"the household has {self.condition}"


@dataclass(frozen=True)
class Not(Rule):
    """Where another rule does not hold."""

    rule: Rule

    def _conditions(self):
        return self.rule._conditions()

    def _holds(self, view):
        return ~self.rule._holds(view)

    def __str__(self):
        return f"not ({self.rule})"


@dataclass(frozen=True)
class _TwoRules(Rule):
    first: Rule
    second: Rule

    def _conditions(self):
        return (*self.first._conditions(), *self.second._conditions())


@dataclass(frozen=True)
class And(_TwoRules):
    """Where both rules hold."""

    def _holds(self, view):
        return self.first._holds(view) & self.second._holds(view)

    def parts(self):
        parts = (self.first.parts(), self.second.parts())
        return None if None in parts else Parts(*(a + b for a, b in zip(*parts, strict=True)))

    def __str__(self):
        return f"({self.first}) and ({self.second})"


@dataclass(frozen=True)
class Or(_TwoRules):
    """Where at least one rule holds."""

    def _holds(self, view):
        return self.first._holds(view) | self.second._holds(view)

    def __str__(self):
        return f"({self.first}) or ({self.second})"


@dataclass(frozen=True)
class Implies(_TwoRules):
    """Where the first rule does not hold, or the second does."""

    def _holds(self, view):
        return ~self.first._holds(view) | self.second._holds(view)

    def parts(self):
        then = self.second.parts()
        if then is None:
            return None
        if isinstance(self.first, HouseholdHas):
            if then.one or then.at_most:
                return None
            given = self.first.condition
            return Parts(
                unary=tuple((who & given, what) for who, what in then.unary),
                pairs=tuple(replace(rule, who=rule.who & given) for rule in then.pairs),
                never=tuple((first & given, second) for first, second in then.never),
            )
        if isinstance(self.first, Count) and (self.first.least, self.first.most) == (1, None):
            if then._replace(unary=()) != Parts():
                return None
            given = self.first.who
            of_household = [what for who, what in then.unary if who == ANYONE and not what.member]
            return Parts(
                unary=tuple((given, what) for what in of_household),
                never=tuple(
                    (given, who & ~what) for who, what in then.unary if who != ANYONE or what.member
                ),
            )
        return None

    def __str__(self):
        there_is = "there is " if isinstance(self.first, Count) else ""
        return f"if {there_is}{self.first}, then {self.second}"


@dataclass(frozen=True)
class Predicate(Rule):
    """A rule written in Python; see :func:`predicate`."""

    function: Callable[[HouseholdView], Any]
    text: str
    reads: Variables

    kind = "predicate"

    def _conditions(self):
        return (self.reads,)

    def _holds(self, view):
        return self.function(view)

    def __str__(self):
        return self.text


class Subject(NamedTuple):
    """Persons of whom a rule is to be made; see :func:`each`."""

    who: Condition

    def has(self, what: Condition) -> Rule:
        """Each of them has this, such as ``aged(15)`` or ``person(sex="Female")``."""
        return Each(self.who, what)

    def is_younger_than(self, whom: Condition, years: float, variable: str = "age") -> Rule:
        """Each of them is at least so many years younger than each ``whom``."""
        return Compare(self.who, whom, variable, "younger", years)

    def is_older_than(self, whom: Condition, years: float, variable: str = "age") -> Rule:
        """Each of them is at least so many years older than each ``whom``."""
        return Compare(self.who, whom, variable, "older", years)

    def is_within(self, years: float, whom: Condition, variable: str = "age") -> Rule:
        """The ages of each of them and each ``whom`` are at most so many years apart."""
        return Compare(self.who, whom, variable, "within", years)

    def differs_from(self, whom: Condition, variable: str) -> Rule:
        """Each of them has another value than each ``whom``."""
        return Same(self.who, whom, variable, False)

    def agrees_with(self, whom: Condition, variable: str) -> Rule:
        """Each of them has the same value as each ``whom``."""
        return Same(self.who, whom, variable, True)

    def agrees_with_household(self, variable: str, household_variable: str) -> Rule:
        """Each of them has the label that a variable of the household has."""
        return Each(self.who, AsHousehold(variable, household_variable))


def exactly(count: int, who: Condition = ANYONE) -> Rule:
    """So many persons, neither more nor less."""
    return Count(count, count, who)


def at_most(count: int, who: Condition = ANYONE) -> Rule:
    """So many persons or fewer."""
    return Count(0, count, who)


def at_least(count: int, who: Condition = ANYONE) -> Rule:
    """So many persons or more."""
    return Count(count, None, who)


def each(who: Condition = ANYONE) -> Subject:
    """Start a rule about every person described: ``each(child).is_younger_than(head, 7)``."""
    return Subject(who)


def household(values: Mapping[str, Any] | None = None, /, **named) -> Rule:
    """The household has one of the labels given, in each variable: ``household(tenure="own")``."""
    given = as_values(values, named)
    if not given:
        raise ValueError("give at least one variable")
    return HouseholdHas(OfHousehold(given))


def predicate(
    function: Callable[[HouseholdView], Any],
    text: str,
    *,
    member: Iterable[str] = (),
    household: Iterable[str] = (),
) -> Rule:
    """Make a rule of a Python function.

    Parameters
    ----------
    function : callable
        Of a :class:`HouseholdView` of households of one size h; returns (...) bool, one for each.
        It must work on NumPy arrays and on traced JAX arrays: no ``if`` on values.
    text : str
        The rule in words.
    member, household : iterables of str
        The variables that it reads; it sees no others.
    """
    return Predicate(function, text, Variables(tuple(household), tuple(member)))


def schema_of(schema: Households | HouseholdSchema) -> HouseholdSchema:
    """Return the schema of households, or the schema given."""
    return schema.schema if isinstance(schema, Households) else schema


def _one(who: Condition) -> str:
    return f"person with {who}" if str(who) else "person"


def _persons(count: int, who: Condition) -> str:
    persons = "person" if count == 1 else "persons"
    return f"{count} {persons} with {who}" if str(who) else f"{count} {persons}"


def columns_of(schema: HouseholdSchema, reads: Variables) -> Columns:
    for known, names in (
        (schema.household_level, reads.household),
        (schema.personal, reads.member),
    ):
        for name in names:
            if name not in known:
                raise unknown_variable(name, known)
    household = [name for name in reads.household if name != schema.size_variable]
    if schema.head is not None:
        household += [f"head_{name}" for name in reads.member if name != schema.head[0]]
    return Columns(
        tuple(sorted(schema.household_variables.index(name) for name in household)),
        tuple(sorted(schema.member_variables.index(name) for name in reads.member)),
    )
