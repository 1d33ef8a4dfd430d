"""Rules: statements that are true of every possible household."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from bnp_models.rules.persons import (
    ANYONE,
    AsHousehold,
    OfHousehold,
    PersonPredicate,
    as_values,
    disjoint,
)
from bnp_models.rules.views import (
    OPEN_ENDED,
    HouseholdView,
    JointLevels,
    Variables,
    View,
    numbers_of,
)


@dataclass(frozen=True)
class Rule(ABC):
    """A statement about one household, true or false; combine by ``&``, ``|`` and ``~``.

    ``str(rule)`` says it in words. ``rule.name`` is that text unless the rule was :meth:`named`.

    Parameters
    ----------
    title : str, optional
        A name for the rule.

    Examples
    --------
    >>> from bnp_models import rules
    >>> rule = rules.exactly(1, rules.person(relate="Householder"))
    >>> bool(bnp.Rules([rule]).check(households).all())
    True
    """

    title: str | None = field(default=None, kw_only=True)

    @property
    def name(self) -> str:
        """The name given, or the rule in words."""
        return str(self) if self.title is None else self.title

    @property
    def variables(self) -> Variables:
        """The variables that the rule reads."""
        return Variables.of(self._readers())

    def named(self, name: str) -> "Rule":
        """Return the rule under a name."""
        return replace(self, title=name)

    def implies(self, other: "Rule") -> "Rule":
        """Return the rule that the other one holds wherever this one does."""
        if isinstance(self, HouseholdHas) and isinstance(other, HouseholdHas):
            return HouseholdHas(~self.what | other.what)
        return Implies(self, other)

    def __and__(self, other: "Rule") -> "Rule":
        if isinstance(self, HouseholdHas) and isinstance(other, HouseholdHas):
            return HouseholdHas(self.what & other.what)
        return And(self, other)

    def __or__(self, other: "Rule") -> "Rule":
        if isinstance(self, HouseholdHas) and isinstance(other, HouseholdHas):
            return HouseholdHas(self.what | other.what)
        return Or(self, other)

    def __invert__(self) -> "Rule":
        return Not(self)

    @abstractmethod
    def _readers(self) -> tuple["PersonPredicate | Variables", ...]:
        """Return the predicates that the rule is made of, or the variables that it reads."""

    @abstractmethod
    def holds(self, view: HouseholdView) -> Any:
        """Return the households of which it is true, (...) bool."""

    def parts(self) -> "Parts | None":
        """Return the rule as statements about single persons and pairs; None if it is not such."""
        return None


class Parts(NamedTuple):
    """Statements about single persons and pairs that together are a rule.

    Attributes
    ----------
    one : tuple of PersonPredicate
        Each is true of exactly one person.
    at_most : tuple of (PersonPredicate, int)
        Each is true of so many persons or fewer.
    unary : tuple of (PersonPredicate, PersonPredicate)
        Everyone of whom the first is true has the second too.
    pairs : tuple of rules
        Comparisons of two persons.
    never : tuple of (PersonPredicate, PersonPredicate)
        Not both are true, of one person or of two.
    """

    one: tuple[PersonPredicate, ...] = ()
    at_most: tuple[tuple[PersonPredicate, int], ...] = ()
    unary: tuple[tuple[PersonPredicate, PersonPredicate], ...] = ()
    pairs: tuple["Comparison", ...] = ()
    never: tuple[tuple[PersonPredicate, PersonPredicate], ...] = ()


@dataclass(frozen=True)
class Count(Rule):
    """From ``least`` to ``most`` persons are ``who``; ``most`` None is any number."""

    least: int
    most: int | None
    who: PersonPredicate

    def _readers(self):
        return (self.who,)

    def holds(self, view):
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
    """Everyone who is ``who`` has ``what`` too."""

    who: PersonPredicate
    what: PersonPredicate

    def _readers(self):
        return (self.who, self.what)

    def holds(self, view):
        return (~self.who.mask(view) | self.what.mask(view)).all(-1)

    def parts(self):
        return Parts(unary=((self.who, self.what),))

    def __str__(self):
        return f"each {_one(self.who)} has {self.what}"


@dataclass(frozen=True)
class Comparison(Rule):
    """Every person who is ``who`` stands in a relation to every other person who is ``whom``."""

    who: PersonPredicate
    whom: PersonPredicate
    variable: str

    def _readers(self):
        return (self.who, self.whom, Variables((), (self.variable,)))

    @abstractmethod
    def related(self, first: View, second: View) -> Any:
        """Return whether the relation holds, for views that broadcast."""

    def holds(self, view):
        who, whom = self.who.mask(view), self.whom.mask(view)
        if disjoint(self.who, self.whom, view.schema):
            return self._holds_apart(view, who, whom)
        return self._holds_between(view, who, whom)

    def _holds_apart(self, view, who, whom):
        """Do as ``holds``, where no person is both ``who`` and ``whom``."""
        return self._holds_between(view, who, whom)

    def _holds_between(self, view, who, whom):
        """Do as ``holds``, by all pairs of persons."""
        codes = view.person_codes(self.variable)
        first, second = (
            JointLevels(view.schema, {self.variable: code}, {}, xp=view.xp)
            for code in (codes[..., :, None], codes[..., None, :])
        )
        other = view.xp.asarray(~np.eye(view.size, dtype=bool))
        other = other.reshape((1,) * (who.ndim - 1) + other.shape)
        broken = who[..., :, None] & whom[..., None, :] & ~self.related(first, second) & other
        return ~broken.any((-2, -1))

    def parts(self):
        return Parts(pairs=(self,))

    def _whom(self) -> str:
        return f"other {_one(self.whom)}" if self.whom in (self.who, ANYONE) else _one(self.whom)


@dataclass(frozen=True)
class Compare(Comparison):
    """A difference in age or another number between ``who`` and ``whom``.

    Parameters
    ----------
    relation : str
        ``younger`` or ``older`` by at least ``years``, or ``within`` them.
    years : float
        The difference.
    """

    relation: str
    years: float

    def __post_init__(self):
        least = 0 if self.relation == "within" else -OPEN_ENDED
        if not least <= self.years <= OPEN_ENDED:
            raise ValueError(f"years: from {least:,} to {OPEN_ENDED:,}, not {self.years}")

    def _ages(self, view: View):
        """Return the least and largest numbers that the labels of persons stand for."""
        codes = view.person_codes(self.variable)
        least, most = numbers_of(view.xp, view.schema, self.variable, codes)
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
        xp = view.xp
        least, most = self._ages(view)
        far = np.array(10 * OPEN_ENDED, dtype=least.dtype)
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
class Same(Comparison):
    """The same value of a variable as another person has or, if not ``same``, another one."""

    same: bool

    def related(self, first, second):
        codes = (first.person_codes(self.variable), second.person_codes(self.variable))
        return codes[0] == codes[1] if self.same else codes[0] != codes[1]

    def _holds_apart(self, view, who, whom):
        num_levels = len(view.schema.labels(self.variable))
        if num_levels > 8:
            return self._holds_between(view, who, whom)
        codes = view.person_codes(self.variable)
        broken = []
        for code in range(num_levels):
            has = codes == code
            broken.append((who & has).any(-1) & (whom & (~has if self.same else has)).any(-1))
        return ~reduce(operator.or_, broken)

    def __str__(self):
        how = f"the same {self.variable} as" if self.same else f"another {self.variable} than"
        return f"each {_one(self.who)} has {how} each {self._whom()}"


@dataclass(frozen=True)
class HouseholdHas(Rule):
    """A statement about variables of the household alone, the same for all its persons."""

    what: PersonPredicate

    def _readers(self):
        return (self.what,)

    def holds(self, view):
        return self.what.mask(view)[..., 0]

    def parts(self):
        return Parts(unary=((ANYONE, self.what),))

    def __invert__(self):
        return HouseholdHas(~self.what)

    def __str__(self):
        return f"the household has {self.what}"


@dataclass(frozen=True)
class Not(Rule):
    """The rule that another one does not hold."""

    rule: Rule

    def _readers(self):
        return self.rule._readers()

    def holds(self, view):
        return ~self.rule.holds(view)

    def __str__(self):
        return f"not ({self.rule})"


@dataclass(frozen=True)
class _TwoRules(Rule):
    """A combination of two rules."""

    first: Rule
    second: Rule

    def _readers(self):
        return (*self.first._readers(), *self.second._readers())


@dataclass(frozen=True)
class And(_TwoRules):
    """The rule that both rules hold."""

    def holds(self, view):
        return self.first.holds(view) & self.second.holds(view)

    def parts(self):
        parts = (self.first.parts(), self.second.parts())
        return None if None in parts else Parts(*(a + b for a, b in zip(*parts, strict=True)))

    def __str__(self):
        return f"({self.first}) and ({self.second})"


@dataclass(frozen=True)
class Or(_TwoRules):
    """The rule that at least one of two holds."""

    def holds(self, view):
        return self.first.holds(view) | self.second.holds(view)

    def __str__(self):
        return f"({self.first}) or ({self.second})"


@dataclass(frozen=True)
class Implies(_TwoRules):
    """The rule that the second one holds wherever the first does."""

    def holds(self, view):
        return ~self.first.holds(view) | self.second.holds(view)

    def parts(self):
        then = self.second.parts()
        if then is None:
            return None
        if isinstance(self.first, HouseholdHas):
            return _where_household(self.first.what, then)
        if isinstance(self.first, Count) and (self.first.least, self.first.most) == (1, None):
            return _where_there_is(self.first.who, then)
        return None

    def __str__(self):
        there_is = "there is " if isinstance(self.first, Count) else ""
        return f"if {there_is}{self.first}, then {self.second}"


def _where_household(given: PersonPredicate, then: Parts) -> Parts | None:
    """Return the parts of a rule for households of which a statement is true, None if not such."""
    if then.one or then.at_most:
        return None
    return Parts(
        unary=tuple((who & given, what) for who, what in then.unary),
        pairs=tuple(replace(rule, who=rule.who & given) for rule in then.pairs),
        never=tuple((first & given, second) for first, second in then.never),
    )


def _where_there_is(given: PersonPredicate, then: Parts) -> Parts | None:
    """Return the parts of a rule for households that have some person, None if not such."""
    if then._replace(unary=()) != Parts():
        return None
    of_household = [what for who, what in then.unary if who == ANYONE and not what.member]
    return Parts(
        unary=tuple((given, what) for what in of_household),
        never=tuple(
            (given, who & ~what) for who, what in then.unary if who != ANYONE or what.member
        ),
    )


@dataclass(frozen=True)
class Predicate(Rule):
    """A rule written in Python, as :func:`predicate` makes it."""

    function: Callable[[HouseholdView], Any]
    text: str
    reads: Variables

    def _readers(self):
        return (self.reads,)

    def holds(self, view):
        return self.function(view)

    def __str__(self):
        return self.text


class Subject(NamedTuple):
    """Persons of whom a rule is to be made, as :func:`each` describes them."""

    who: PersonPredicate

    def has(self, what: PersonPredicate) -> Rule:
        """Make the rule: each of them has this, ``aged(15)`` or ``person(sex="Female")``, say."""
        return Each(self.who, what)

    def is_younger_than(self, whom: PersonPredicate, years: float, variable: str = "age") -> Rule:
        """Make the rule: each of them is at least so many years younger than each ``whom``."""
        return Compare(self.who, whom, variable, "younger", years)

    def is_older_than(self, whom: PersonPredicate, years: float, variable: str = "age") -> Rule:
        """Make the rule: each of them is at least so many years older than each ``whom``."""
        return Compare(self.who, whom, variable, "older", years)

    def is_within(self, years: float, whom: PersonPredicate, variable: str = "age") -> Rule:
        """Make the rule: each of them and each ``whom`` are at most so many years apart."""
        return Compare(self.who, whom, variable, "within", years)

    def differs_from(self, whom: PersonPredicate, variable: str) -> Rule:
        """Make the rule: each of them has another value than each ``whom``."""
        return Same(self.who, whom, variable, False)

    def agrees_with(self, whom: PersonPredicate, variable: str) -> Rule:
        """Make the rule: each of them has the same value as each ``whom``."""
        return Same(self.who, whom, variable, True)

    def agrees_with_household(self, variable: str, household_variable: str) -> Rule:
        """Make the rule: each of them has the label that a variable of the household has."""
        return Each(self.who, AsHousehold(variable, household_variable))


def exactly(count: int, who: PersonPredicate = ANYONE) -> Rule:
    """Make the rule: so many persons are ``who``, neither more nor less.

    Parameters
    ----------
    count
        Number of persons.
    who
        Which persons are counted, such as ``person(relate="Child")``. Default: all.

    Examples
    --------
    >>> print(bnp.rules.exactly(1, bnp.rules.person(relate="Householder")))
    exactly 1 person with relate 'Householder'
    """
    return Count(count, count, who)


def at_most(count: int, who: PersonPredicate = ANYONE) -> Rule:
    """Make the rule: so many persons or fewer are ``who``.

    Parameters
    ----------
    count
        Largest number of persons.
    who
        Which persons are counted. Default: all.

    Examples
    --------
    >>> print(bnp.rules.at_most(1, bnp.rules.person(relate="Husband/wife")))
    at most 1 person with relate 'Husband/wife'
    """
    return Count(0, count, who)


def at_least(count: int, who: PersonPredicate = ANYONE) -> Rule:
    """Make the rule: so many persons or more are ``who``.

    Parameters
    ----------
    count
        Smallest number of persons.
    who
        Which persons are counted. Default: all.

    Examples
    --------
    >>> print(bnp.rules.at_least(1, bnp.rules.aged(15)))
    at least 1 person with age at least 15
    """
    return Count(count, None, who)


def each(who: PersonPredicate = ANYONE) -> Subject:
    """Start a rule about every person described: ``each(child).is_younger_than(head, 7)``.

    Parameters
    ----------
    who
        Persons about whom the rule is. Default: all.

    Examples
    --------
    >>> print(bnp.rules.each(bnp.rules.person(relate="Householder")).has(bnp.rules.aged(15)))
    each person with relate 'Householder' has age at least 15
    """
    return Subject(who)


def household(values: Mapping[str, Any] | None = None, /, **named) -> Rule:
    """Make the rule: the household has one of the labels given, in each variable.

    Parameters
    ----------
    values : mapping of variable to label or labels, optional
        For names of variables that are no Python names.
    **named
        ``household(tenure=("own", "rent"))``.

    Examples
    --------
    >>> print(bnp.rules.household(tenure="Rented"))
    the household has tenure 'Rented'
    """
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
        Takes a :class:`HouseholdView` of households of one size h; returns (...) bool, one for
        each. It must work on NumPy arrays and on traced JAX arrays: no ``if`` on values.
    text : str
        The rule in words.
    member, household : iterables of str
        The variables that it reads; it sees no others.

    Examples
    --------
    >>> rented = bnp.rules.predicate(
    ...     lambda view: view.is_("tenure", "Rented"), "rented", household=["tenure"]
    ... )
    >>> bnp.Rules([rented]).check(households).shape
    (20,)
    """
    return Predicate(function, text, Variables(tuple(household), tuple(member)))


def _one(who: PersonPredicate) -> str:
    """Return one person described, in words."""
    return f"person with {who}" if str(who) else "person"


def _persons(count: int, who: PersonPredicate) -> str:
    """Return so many persons described, in words."""
    persons = "person" if count == 1 else "persons"
    return f"{count} {persons} with {who}" if str(who) else f"{count} {persons}"
