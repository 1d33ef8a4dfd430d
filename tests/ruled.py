"""Households drawn at random, and rules of them stated in plain Python."""

import itertools
from functools import lru_cache

import numpy as np

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.schema import Schema
from bnp_models.rules import aged, at_least, at_most, each, exactly, household, person, predicate
from bnp_models.rules.views import joint_level

ROLES = (
    "Head", "Spouse", "Biological child", "Adopted child", "Stepchild", "Sibling", "Parent",
    "Parent-in-law", "Grandchild", "Roommate",
)  # fmt: skip
AGES = tuple(range(0, 96))
HEAD = person(relate="Head")
SPOUSE = person(relate="Spouse")
CHILD = person(relate=("Biological child", "Stepchild"))


def schema_of(relate=ROLES, age=AGES, head=None, **others):
    table = {"relate": relate, "age": age, "sex": ("f", "m"), "race": ("a", "b", "c"), **others}
    table |= {"tenure": ("own", "rent"), "owner": ("b", "c", "d")}
    return HouseholdSchema(
        Schema(tuple(table), tuple(table.values())), "hid", ("tenure", "owner"), head
    )


def draw(schema, num_households, seed, max_size=4):
    """Households of independent uniform values, but for a first person that often is the head."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, max_size + 1, num_households)
    members = sizes - schema.num_heads
    codes = rng.integers(
        0, schema.num_member_levels, (members.sum(), len(schema.num_member_levels))
    )
    if schema.head is None:
        first = (np.cumsum(sizes) - sizes)[rng.random(num_households) < 0.8]
        again = rng.random(len(codes)) < 0.9
        codes[again, 0] = rng.integers(1, schema.num_member_levels[0], again.sum())
        codes[first, 0] = 0
        codes[first, 1] = rng.integers(len(schema.labels("age")) // 8, len(schema.labels("age")),
                                       len(first))  # fmt: skip
    return Households(
        schema,
        rng.integers(
            0, schema.num_household_levels, (num_households, len(schema.num_household_levels))
        ),
        sizes,
        codes,
    )


@lru_cache
def people(households):
    """The persons of each household as dictionaries of labels, by way of the frame."""
    return [
        group.to_dict("records") for _, group in households.to_frame().groupby("hid", sort=True)
    ]


def role(persons, *roles):
    return [one for one in persons if one["relate"] in roles]


def pairs(persons, these, those):
    """Pairs of different persons, one of these roles and one of those."""
    return [
        (a, b)
        for i, a in enumerate(persons)
        for j, b in enumerate(persons)
        if i != j and a["relate"] in these and b["relate"] in those
    ]


def younger(persons, these, years):
    return all(b["age"] - a["age"] >= years for a, b in pairs(persons, these, ["Head"]))


def older(persons, these, years):
    return all(a["age"] - b["age"] >= years for a, b in pairs(persons, these, ["Head"]))


def near(persons, these, years):
    return all(abs(a["age"] - b["age"]) <= years for a, b in pairs(persons, these, ["Head"]))


def grandchild_needs(persons, who, age):
    return not role(persons, "Grandchild") or all(one["age"] >= age for one in role(persons, who))


CENSUS = {
    "one head": lambda p: len(role(p, "Head")) == 1,
    "age of the head": lambda p: all(one["age"] >= 15 for one in role(p, "Head")),
    "one spouse": lambda p: len(role(p, "Spouse")) <= 1,
    "age of the spouse": lambda p: all(one["age"] >= 15 for one in role(p, "Spouse")),
    "spouse of the other sex": lambda p: all(
        a["sex"] != b["sex"] for a, b in pairs(p, ["Spouse"], ["Head"])
    ),
    "ages of spouses": lambda p: near(p, ["Spouse"], 49),
    "age of child": lambda p: younger(p, ["Biological child"], 7),
    "age of adopted child": lambda p: younger(p, ["Adopted child"], 11),
    "age of stepchild": lambda p: younger(p, ["Stepchild"], 9),
    "age of parent": lambda p: older(p, ["Parent"], 4),
    "age of parent-in-law": lambda p: older(p, ["Parent-in-law"], 4),
    "age of sibling": lambda p: near(p, ["Sibling"], 37),
    "age of grandparent": lambda p: grandchild_needs(p, "Head", 30),
    "age of grandparent's spouse": lambda p: grandchild_needs(p, "Spouse", 16),
    "age of grandchild": lambda p: younger(p, ["Grandchild"], 26),
}


OTHERS = [
    (at_least(2, person(sex="f")), lambda p: sum(one["sex"] == "f" for one in p) >= 2),
    (exactly(0, SPOUSE), lambda p: not role(p, "Spouse")),
    (exactly(3), lambda p: len(p) == 3),
    (
        each(CHILD).is_within(20, CHILD),
        lambda p: all(
            abs(a["age"] - b["age"]) <= 20
            for a, b in itertools.combinations(role(p, "Biological child", "Stepchild"), 2)
        ),
    ),
    (
        each(CHILD).is_older_than(person(), 1.5),
        lambda p: all(a["age"] - b["age"] >= 1.5
                      for a, b in pairs(p, ["Biological child", "Stepchild"], ROLES)),
    ),
    (
        each(CHILD).agrees_with(HEAD, "race"),
        lambda p: all(a["race"] == b["race"]
                      for a, b in pairs(p, ["Biological child", "Stepchild"], ["Head"])),
    ),
    (
        each().differs_from(person(), "age"),
        lambda p: len({one["age"] for one in p}) == len(p),
    ),
    (
        each(CHILD).is_within(30, HEAD & person(sex="f")),
        lambda p: all(abs(a["age"] - b["age"]) <= 30
                      for a, b in pairs(p, ["Biological child", "Stepchild"], ["Head"])
                      if b["sex"] == "f"),
    ),
    (
        each(HEAD).agrees_with_household("race", "owner"),
        lambda p: all(one["race"] == one["owner"] for one in role(p, "Head")),
    ),
    (
        each(HEAD | SPOUSE).has(aged(20, 60) & ~person(race="a")),
        lambda p: all(20 <= one["age"] <= 60 and one["race"] != "a"
                      for one in role(p, "Head", "Spouse")),
    ),
    (
        household(tenure="own").implies(each(HEAD).has(aged(30))),
        lambda p: p[0]["tenure"] != "own" or all(one["age"] >= 30 for one in role(p, "Head")),
    ),
    (
        household(tenure="own").implies(each(CHILD).is_younger_than(HEAD, 15)),
        lambda p: p[0]["tenure"] != "own"
        or younger(p, ["Biological child", "Stepchild"], 15),
    ),
    (
        at_least(1, CHILD).implies(household(tenure="own") & household(owner=["b", "c"])),
        lambda p: not role(p, "Biological child", "Stepchild")
        or (p[0]["tenure"] == "own" and p[0]["owner"] in "bc"),
    ),
    (~household(tenure="own"), lambda p: p[0]["tenure"] != "own"),
    (
        household(tenure="own").implies(household(owner="b")),
        lambda p: p[0]["tenure"] != "own" or p[0]["owner"] == "b",
    ),
    (
        at_least(1, SPOUSE).implies(exactly(0, CHILD)) & at_most(1, SPOUSE),
        lambda p: not (role(p, "Spouse") and role(p, "Biological child", "Stepchild"))
        and len(role(p, "Spouse")) <= 1,
    ),
    (at_least(1, SPOUSE) | at_least(1, CHILD), lambda p: bool(
        role(p, "Spouse", "Biological child", "Stepchild"))),
    (~at_most(1, HEAD), lambda p: len(role(p, "Head")) > 1),
    (
        predicate(
            lambda view: (view.is_("relate", "Head") * view.number("age")).sum(-1)
            >= 10 * view.size * ~view.is_("tenure", "own"),
            "heads who rent have ten years a person",
            member=["relate", "age"], household=["tenure"],
        ),
        lambda p: p[0]["tenure"] == "own"
        or sum(one["age"] for one in role(p, "Head")) >= 10 * len(p),
    ),
]  # fmt: skip


def disagreements(rules, statement, households):
    """In how many households the compiled rules and a plain Python statement differ."""
    said = np.array([statement(persons) for persons in people(households)])
    return int((rules.check(households) != said).sum())


def judge_by_tables(form, household_codes, member_codes):
    """Whether households of one size are possible, by the definition of a head form.

    Parameters
    ----------
    household_codes : (k, q) integer array
    member_codes : (k, m, p) integer array
    """
    b = joint_level(household_codes[..., form.columns.household], form.num_household_levels)
    r = joint_level(member_codes[..., form.columns.member], form.num_member_levels)
    head = form.is_head[r]
    if form.schema.head is not None:
        possible, a = ~head.any(1), np.zeros(len(b), dtype=np.int64)
    else:
        possible = head.sum(1) == 1
        level = np.take_along_axis(r, head.argmax(1)[:, None], axis=1)[:, 0]
        a = np.where(possible, np.searchsorted(form.heads, level), 0)
        a = np.minimum(a, max(len(form.heads) - 1, 0))
    if len(form.heads) == 0:
        return np.zeros(len(b), dtype=bool)
    possible &= form.head_ok[b, a]
    possible &= (head | form.pair_ok[b[:, None], a[:, None], r]).all(1)
    for mask, count in form.at_most:
        possible &= (mask[r] & ~head).sum(1) <= count
    for first, second in form.apart:
        possible &= ~((first[r] & ~head).any(1) & (second[r] & ~head).any(1))
    rest = form.rest.compile(form.schema)
    return possible & rest.on_numpy(household_codes, member_codes)
