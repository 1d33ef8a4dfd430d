"""Statements about households in YAML, against a plain reading of the documentation.

The reading below is of docs/household_rules.md alone: nothing of the package is in it.
"""

import itertools

import jax
import numpy as np
import yaml
from composed import draw_households
from fuzzing import fuzzed
from hypothesis import given
from hypothesis import strategies as st
from ruled import judge_by_tables

import bnp_models as bnp
from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.schema import Schema
from bnp_models.rules.head_forms import head_form
from bnp_models.rules.yaml_reading import rules_of_yaml

# Labels of ages, and the ages that each stands for.
OLD = range(15, 200)
AGES = (
    {str(age): [age] for age in range(0, 24, 2)},
    {"under 5": range(5), "5-9": range(5, 10), "10 to 14": range(10, 15), "15+": OLD},
    {"0": [0], "1-4": range(1, 5), "7 years": [7], "<3": range(3), "15 and over": OLD},
    {"0.5": [0.5], "1": [1], "2.25": [2.25], "3.5": [3.5], "10": [10]},
    {"3": [3], "4": [4], "5": [5], "6": [6]},
)
RELATE, RACE, OWNER = ("head", "spouse", "child"), ("a", "b"), ("b", "a", "c")
TENURE = ("own", "rent")


def schema_of(ages, has_head):
    levels = (RELATE, tuple(AGES[ages]), RACE, OWNER, TENURE)
    return HouseholdSchema(
        Schema(("relate", "age", "race", "owner", "tenure"), levels), "hid", ("owner", "tenure"),
        ("relate", "head") if has_head else None,
    )  # fmt: skip


SCHEMAS = {(a, h): schema_of(a, h) for a in range(len(AGES)) for h in (False, True)}
WHOLE = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 10, 15, 100])
# A label such as 5-9 stands for whole ages; which of them are between 6.2 and 6.4, nobody asks.
NUMBERS = [WHOLE, WHOLE, WHOLE, WHOLE | st.sampled_from([0.5, 1.5, 2.25]), WHOLE]
COUNTS = st.integers(0, 4)


@st.composite
def persons(draw, ages, names, depth=2):
    """A description of persons."""
    kind = draw(st.integers(0, 8 if depth else 5))
    if kind <= 1:
        node = {"relate": draw(st.lists(st.sampled_from(RELATE), min_size=1, max_size=2))}
        if draw(st.booleans()):
            node["race"] = draw(st.sampled_from(RACE))
        return node
    if kind == 2:
        labels = st.sampled_from(list(AGES[ages]))
        return {"age": draw(st.lists(labels, min_size=1, max_size=3))}
    if kind == 3:
        keys = draw(st.sampled_from([["at least"], ["at most"], ["at least", "at most"]]))
        bounds = sorted(draw(NUMBERS[ages]) for _ in keys)
        node = {"age": dict(zip(keys, bounds, strict=True))}
        return node | ({"relate": draw(st.sampled_from(RELATE))} if draw(st.booleans()) else {})
    if kind == 4:
        return {"race": {"same as household": "owner"}}
    if kind == 5:
        return draw(st.sampled_from(["anyone", *names]))
    parts = [draw(persons(ages, names, depth - 1)) for _ in range(draw(st.integers(2, 3)))]
    return [{"all of": parts}, {"any of": parts}, {"not": parts[0]}][kind - 6]


@st.composite
def statements(draw, ages, names, depth=2):
    """A statement about a household."""
    who, whom = persons(ages, names), persons(ages, names)
    whom = st.one_of(st.just({"relate": "head"}), whom)
    kind = draw(st.integers(0, 12 if depth else 8))
    of = {"of": draw(who)} if draw(st.booleans()) else {}
    if kind == 0:
        return {draw(st.sampled_from(["exactly", "at least", "at most"])): draw(COUNTS)} | of
    if kind == 1:
        least = draw(COUNTS)
        return {"at least": least, "at most": least + draw(COUNTS)} | of
    if kind == 2:
        return {"each": draw(who), "has": draw(whom)}
    if kind <= 4:
        how = draw(st.sampled_from(["younger than", "older than"]))
        years = draw(NUMBERS[ages] | st.sampled_from([-3, -1, 0.5]))
        return {"each": draw(who), how: draw(whom), "by at least": years}
    if kind == 5:
        node = {"each": draw(who), "within": draw(NUMBERS[ages] | st.just(1.5)), "of": draw(whom)}
        return node | ({"variable": "age"} if draw(st.booleans()) else {})
    if kind == 6:
        variable = draw(st.sampled_from(["race", "age", "relate"]))
        how = draw(st.sampled_from(["same as", "differs from"]))
        return {"each": draw(who), how: draw(whom), "variable": variable}
    if kind <= 8:
        node = {"tenure": draw(st.sampled_from(TENURE))}
        if draw(st.booleans()):
            node["owner"] = draw(st.lists(st.sampled_from(OWNER), min_size=1, max_size=2))
        return {"household": node}
    parts = [draw(statements(ages, names, depth - 1)) for _ in range(draw(st.integers(2, 3)))]
    return [
        {"if": parts[0], "then": parts[1]}, {"all of": parts}, {"any of": parts}, {"not": parts[0]},
    ][kind - 9]  # fmt: skip


@st.composite
def files(draw):
    """Ages and head of the schema, names of persons, statements, and a seed of households."""
    ages, has_head = draw(st.sampled_from(sorted(SCHEMAS)))
    named = {}
    for name in draw(st.sampled_from([[], ["young"], ["young", "other"]])):
        named[name] = draw(persons(ages, list(named), 1))
    one_head = {"exactly": 1, "of": {"relate": "head"}, "name": "one head"}
    rules = [one_head] if draw(st.booleans()) else []
    for k in range(draw(st.integers(1, 2))):
        rules.append(draw(statements(ages, list(named))) | {"name": f"rule {k}"})
    return ages, has_head, named, rules, draw(st.integers(0, 1000))


class Reading:
    """What the documentation says of statements, about persons that are dictionaries of labels."""

    def __init__(self, ages, named):
        self.ages, self.named = AGES[ages], named

    def is_one(self, node, one):
        """Whether a person is one of those described."""
        if isinstance(node, str):
            return node == "anyone" or self.is_one(self.named[node], one)
        ((word, of),) = list(node.items())[:1]
        if word == "not":
            return not self.is_one(of, one)
        if word == "all of":
            return all(self.is_one(part, one) for part in of)
        if word == "any of":
            return any(self.is_one(part, one) for part in of)
        return all(self.has(name, values, one) for name, values in node.items())

    def has(self, name, values, one):
        """Whether a person has one of some labels, a number within bounds, or the household's."""
        if not isinstance(values, dict):
            return one[name] in ([values] if isinstance(values, str) else values)
        if "same as household" in values:
            return one[name] == one[values["same as household"]]
        low, high = values.get("at least", -1e9), values.get("at most", 1e9)
        return any(low <= x <= high for x in self.ages[one[name]])

    def holds(self, node, household):
        """Whether a statement is true of a household, a list of persons."""
        if "household" in node:
            return all(self.has(name, of, household[0]) for name, of in node["household"].items())
        if "if" in node:
            return not self.holds(node["if"], household) or self.holds(node["then"], household)
        if "all of" in node:
            return all(self.holds(part, household) for part in node["all of"])
        if "any of" in node:
            return any(self.holds(part, household) for part in node["any of"])
        if "not" in node:
            return not self.holds(node["not"], household)
        if "each" not in node:
            number = sum(self.is_one(node.get("of", "anyone"), one) for one in household)
            least = node.get("exactly", node.get("at least", 0))
            return least <= number <= node.get("exactly", node.get("at most", number))
        first = [one for one in household if self.is_one(node["each"], one)]
        if "has" in node:
            return all(self.is_one(node["has"], one) for one in first)
        for word in ("younger than", "older than", "same as", "differs from", "of"):
            if word in node:
                others = [one for one in household if self.is_one(node[word], one)]
                return all(
                    self.related(word, node, one, other)
                    for one in first for other in others if one is not other
                )  # fmt: skip
        raise TypeError(node)

    def related(self, word, node, one, other):
        """Whether two persons are as a statement says; of labels for several ages, for some."""
        if word in ("same as", "differs from"):
            return (one[node["variable"]] == other[node["variable"]]) == (word == "same as")
        pairs = itertools.product(self.ages[one["age"]], self.ages[other["age"]])
        if word == "of":
            return any(abs(x - y) <= node["within"] for x, y in pairs)
        sign = 1 if word == "older than" else -1
        return any(sign * (x - y) >= node["by at least"] for x, y in pairs)


def people(houses):
    """The persons of each household as dictionaries of labels; None where a value is missing."""
    frame = houses.to_frame().astype(object)
    frame = frame.where(frame.notna(), None)
    return [group.to_dict("records") for _, group in frame.groupby("hid", sort=True)]


def completed(household, schema):
    """The household with every choice of values for those that are missing."""
    holes = []
    for name in schema.household_level:
        if household[0][name] is None:
            holes.append((range(len(household)), name, schema.labels(name)))
    for i, one in enumerate(household):
        for name in schema.personal:
            if one[name] is None:
                labels = schema.labels(name)
                if schema.head is not None and name == "relate":
                    labels = [label for label in labels if label != "head"]
                holes.append(((i,), name, labels))
    for values in itertools.product(*(labels for _, _, labels in holes)):
        made = [dict(one) for one in household]
        for (rows, name, _), value in zip(holes, values, strict=True):
            for i in rows:
                made[i][name] = value
        yield made


def with_holes(houses, rng):
    """The households with one or two values missing in each."""
    household, members = houses.household_codes.copy(), houses.member_codes.copy()
    first = np.cumsum(houses.sizes) - houses.sizes - houses.schema.num_heads * np.arange(houses.n)
    for i in range(houses.n):
        for _ in range(rng.integers(1, 3)):
            size = houses.sizes[i] - houses.schema.num_heads
            if rng.random() < 0.3 or size == 0:
                household[i, rng.integers(household.shape[1])] = -1
            else:
                members[first[i] + rng.integers(size), rng.integers(members.shape[1])] = -1
    return Households(houses.schema, household, houses.sizes, members)


def check(ages, has_head, named, rules, seed):
    """Judge households by the rules in every form, and by a plain reading of them."""
    schema = SCHEMAS[ages, has_head]
    document = ({"persons": named} if named else {}) | {"rules": rules}
    made = rules_of_yaml(yaml.safe_dump(document, sort_keys=False), schema)
    reading = Reading(ages, named)
    rng = np.random.default_rng(seed)
    houses = draw_households(rng, schema, 40)
    said = np.array(
        [all(reading.holds(rule, household) for rule in rules) for household in people(houses)]
    )
    np.testing.assert_array_equal(made.check(houses), said, err_msg=str(made))
    again = rules_of_yaml(bnp.rules.rules_to_yaml(made), schema)
    np.testing.assert_array_equal(again.check(houses), said)
    compiled, form = made.compile(schema), head_form(made, schema)
    for block in houses.size_blocks:
        codes = block.household_codes, block.member_codes
        jax.eval_shape(compiled, *codes)
        if form is not None:
            np.testing.assert_array_equal(judge_by_tables(form, *codes), said[block.households])
    few = with_holes(draw_households(rng, schema, 6), rng)
    said = [
        any(all(reading.holds(rule, made) for rule in rules) for made in completed(one, schema))
        for one in people(few)
    ]
    np.testing.assert_array_equal(made.check(few), said, err_msg=str(made))


@fuzzed()
@given(files())
def test_statements_mean_what_the_documentation_says(file):
    check(*file)


def test_what_was_found():
    """Nobody to compare with was taken for somebody of 4,000,000, and 5,000,000 for less."""
    levels = (("head", "child"), ("3", "5000000"))
    schema = HouseholdSchema(Schema(("relate", "age"), levels), "hid")
    text = "rules: [{each: {relate: child}, older than: {relate: head}, by at least: %d}]"
    for years, said in ((4_999_990, [True, True, False]), (9_000_000, [True, False, False])):
        members = np.array([[1, 0], [1, 1], [0, 0], [1, 0], [0, 1]])
        houses = Households(schema, np.zeros((3, 0), int), np.array([1, 2, 2]), members)
        np.testing.assert_array_equal(rules_of_yaml(text % years, schema).check(houses), said)
