"""Rules composed at random, and a plain Python reading of each."""

import itertools

import numpy as np

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.schema import Schema
from bnp_models.rules import aged, at_least, at_most, each, exactly, household, person
from bnp_models.rules.persons import (
    Aged,
    AsHousehold,
    Both,
    Either,
    Negation,
    OfHousehold,
    Person,
)
from bnp_models.rules.statements import (
    And,
    Compare,
    Count,
    Each,
    HouseholdHas,
    Implies,
    Not,
    Or,
    Same,
)

LEVELS = {
    "relate": ("head", "spouse", "child"),
    "age": tuple(range(12)),
    "race": ("a", "b"),
    "owner": ("b", "a", "c"),
    "tenure": ("own", "rent"),
}


HEAD = person(relate="head")


def schema_of(head):
    return HouseholdSchema(
        Schema(tuple(LEVELS), tuple(LEVELS.values())), "hid", ("owner", "tenure"), head
    )


def is_true(predicate, one):
    """Whether a person predicate is true of a person, a dictionary of labels."""
    match predicate:
        case Person(values) | OfHousehold(values):
            return all(one[variable] in labels for variable, labels in values)
        case Aged(at_least, at_most, variable):
            return (at_least is None or one[variable] >= at_least) and (
                at_most is None or one[variable] <= at_most
            )
        case AsHousehold(variable, other):
            return one[variable] == one[other]
        case Both(first, second):
            return is_true(first, one) and is_true(second, one)
        case Either(first, second):
            return is_true(first, one) or is_true(second, one)
        case Negation(negated):
            return not is_true(negated, one)
    raise TypeError(predicate)


def holds(rule, persons):
    """Whether a rule holds in a household, a list of persons."""
    match rule:
        case Count(least=least, most=most, who=who):
            count = sum(is_true(who, one) for one in persons)
            return count >= least and (most is None or count <= most)
        case Each(who=who, what=what):
            return all(is_true(what, one) for one in persons if is_true(who, one))
        case HouseholdHas(what=what):
            return is_true(what, persons[0])
        case Not(rule=of):
            return not holds(of, persons)
        case And(first=first, second=second):
            return holds(first, persons) and holds(second, persons)
        case Or(first=first, second=second):
            return holds(first, persons) or holds(second, persons)
        case Implies(first=first, second=second):
            return not holds(first, persons) or holds(second, persons)
    pairs = [
        (a[rule.variable], b[rule.variable])
        for a, b in itertools.permutations(persons, 2)
        if is_true(rule.who, a) and is_true(rule.whom, b)
    ]
    match rule:
        case Same(same=same):
            return all((x == y) == same for x, y in pairs)
        case Compare(relation="younger", years=years):
            return all(y - x >= years for x, y in pairs)
        case Compare(relation="older", years=years):
            return all(x - y >= years for x, y in pairs)
        case Compare(relation="within", years=years):
            return all(abs(x - y) <= years for x, y in pairs)
    raise TypeError(rule)


def make_predicate(rng, depth=2):
    kind = rng.integers(8 if depth else 5)
    if kind <= 1:
        return person(relate=list(rng.choice(LEVELS["relate"], rng.integers(1, 3))))
    if kind == 2:
        low = int(rng.integers(0, 8))
        return [aged(low), aged(at_most=low), aged(low, low + 3)][rng.integers(3)]
    if kind == 3:
        return person(race=str(rng.choice(["a", "b"])))
    if kind == 4:
        return [person(), AsHousehold("race", "owner")][rng.integers(2)]
    first, second = make_predicate(rng, depth - 1), make_predicate(rng, depth - 1)
    return [first & second, first | second, ~first][kind - 5]


def make_rule(rng, depth=2):
    kind = rng.integers(11 if depth else 7)
    who = make_predicate(rng)
    whom = [HEAD, make_predicate(rng)][rng.integers(2)]
    years = int(rng.integers(0, 6))
    if kind == 0:
        return [exactly, at_most, at_least][rng.integers(3)](int(rng.integers(0, 3)), who)
    if kind == 1:
        return each(who).has(make_predicate(rng))
    if kind == 2:
        given = household(owner=list(rng.choice(LEVELS["owner"], 2)))
        return [given, ~given, given & household(tenure="own")][rng.integers(3)]
    if kind <= 4:
        subject = each(who)
        return [
            subject.is_younger_than(whom, years),
            subject.is_older_than(whom, years),
            subject.is_within(years, whom),
        ][rng.integers(3)]
    if kind == 5:
        return each(who).agrees_with(whom, "race")
    if kind == 6:
        return each(who).differs_from(whom, str(rng.choice(["race", "age"])))
    first, second = make_rule(rng, depth - 1), make_rule(rng, depth - 1)
    if kind <= 8:
        premise = [first, at_least(1, who), household(tenure="own")][rng.integers(3)]
        return premise.implies(second)
    return [first & second, first | second, ~first][rng.integers(3)]


def draw_households(rng, schema, n=120):
    """Households of independent uniform values, four in five with one head."""
    sizes = rng.integers(1, 5, n)
    members = rng.integers(0, schema.num_member_levels, (sizes.sum() - n * schema.num_heads, 3))
    if schema.head is None:
        one = rng.random(n) < 0.8
        first = np.cumsum(sizes) - sizes
        members[:, 0] = rng.integers(one.repeat(sizes), 3)
        members[first[one], 0] = 0
    return Households(
        schema,
        rng.integers(0, schema.num_household_levels, (n, len(schema.num_household_levels))),
        sizes,
        members,
    )


def persons_of(houses):
    """The persons of each household as dictionaries of labels."""
    return [group.to_dict("records") for _, group in houses.to_frame().groupby("hid")]
