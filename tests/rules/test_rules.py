"""Rules of households against plain Python statements of the same, tables, words and errors."""

import itertools
import re
from functools import lru_cache

import jax
import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households
from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.rules import (
    Rules,
    aged,
    at_least,
    at_most,
    each,
    exactly,
    household,
    person,
    predicate,
)
from bnp_models.rules.head_forms import head_form

pytestmark = pytest.mark.filterwarnings("error")

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


@pytest.fixture(scope="module", params=[None, ("relate", "Head")], ids=["members", "head"])
def drawn(request):
    return draw(schema_of(age=tuple(range(64)), head=request.param), 3_000, seed=1)


def test_the_census_rules_are_what_they_say(drawn):
    rules = bnp.census_relationships(drawn)
    assert set(rules.names) == set(CENSUS)
    said = {name: [] for name in CENSUS}
    for persons in people(drawn):
        for name, statement in CENSUS.items():
            said[name].append(statement(persons))
    for rule in rules:
        found = Rules([rule]).check(drawn)
        np.testing.assert_array_equal(found, said[rule.name], err_msg=rule.name)
        # Both outcomes are seen, unless the head is one by construction.
        assert drawn.schema.head is not None or 0 < found.sum() < drawn.n, rule.name
    everything = np.all(list(said.values()), axis=0)
    np.testing.assert_array_equal(rules.check(drawn), everything)
    assert 20 < everything.sum() < drawn.n
    assert rules.tally(drawn) == {name: said[name].count(False) for name in rules.names}


@pytest.mark.parametrize(
    ("rule", "statement"), [pytest.param(*pair, id=str(pair[0])[:60]) for pair in OTHERS]
)
def test_the_vocabulary_is_what_it_says(rule, statement, drawn):
    rules = Rules([rule])
    assert disagreements(rules, statement, drawn) == 0
    assert 0 < rules.check(drawn).sum() < drawn.n or drawn.schema.head is not None


def test_faults_are_found(drawn):
    """The comparison sees a rule that is one year, one person or one label off."""
    for rule, name in [
        (each(person(relate="Biological child")).is_younger_than(HEAD, 8), "age of child"),
        (each(person(relate="Sibling")).is_within(36, HEAD), "age of sibling"),
        (each(person(relate="Parent")).is_older_than(HEAD, 5), "age of parent"),
        (at_most(2, SPOUSE), "one spouse"),
        (each(SPOUSE).has(aged(16)), "age of the spouse"),
        (each(SPOUSE).agrees_with(HEAD, "sex"), "spouse of the other sex"),
        (at_least(2, person(relate="Grandchild")).implies(each(HEAD).has(aged(30))),
         "age of grandparent"),
    ]:  # fmt: skip
        assert disagreements(Rules([rule]), CENSUS[name], drawn) > 0, name


@pytest.mark.parametrize("head", [None, ("relate", "Head")])
def test_compiled_rules_are_pure_jax_functions(head):
    households = draw(schema_of(head=head), 200, seed=2)
    rules = bnp.census_relationships(households) + [rule for rule, _ in OTHERS[:-1]]
    compiled = rules.compile(households)
    assert compiled == rules.compile(households) and hash(compiled) == hash(
        rules.compile(households)
    )
    few = rules.columns(households)
    of_few = rules.compile(households, few)
    judge = jax.jit(lambda rules, *codes: rules(*codes), static_argnums=0)
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        for block in households.size_blocks:
            codes = (block.household_codes, block.member_codes)
            expected = compiled.on_numpy(*codes)
            np.testing.assert_array_equal(judge(compiled, *codes), expected)
            # Leading dimensions are broadcast, and codes may be of any integer type.
            half = len(block.households) // 2
            stacked = [code[: 2 * half].reshape(2, half, *code.shape[1:]) for code in codes]
            small = [code.astype(np.uint8) for code in stacked]
            found = judge(compiled, *small)
            assert found.shape == (2, half) and found.dtype == bool
            np.testing.assert_array_equal(found.reshape(-1), expected[: 2 * half])
            # Only the columns read are needed.
            np.testing.assert_array_equal(
                judge(of_few, codes[0][:, few.household], codes[1][:, :, few.member]), expected
            )
            crossed = judge(compiled, codes[0][:3, None], codes[1][None, :4])
            for i, j in itertools.product(range(3), range(4)):
                one = compiled.on_numpy(codes[0][i], codes[1][j])
                assert bool(crossed[i, j]) == bool(one)


def test_one_compilation_a_shape():
    households = draw(schema_of(), 50, seed=3)
    compiled = bnp.census_relationships(households).compile(households)
    traces = []

    @jax.jit
    def judge(household_codes, member_codes):
        traces.append(None)
        return compiled(household_codes, member_codes)

    block = households.size_blocks[-1]
    for codes in (block.member_codes, block.member_codes[:, ::-1]):
        judge(block.household_codes, codes)
    assert len(traces) == 1


@pytest.mark.parametrize("head", [None, ("relate", "Head")])
@pytest.mark.parametrize("seed", [4, 5])
def test_head_form_agrees_with_the_rules(head, seed):
    households = draw(schema_of(age=tuple(range(0, 90, 2)), head=head), 1_000, seed=seed)
    rules = bnp.census_relationships(households)
    if seed == 5:
        rules = rules + [rule.named(str(i)) for i, (rule, _) in enumerate(OTHERS)]
        rules = rules.without("0", "1", "2", "13", "16", "17")
    form = head_form(rules, households)
    assert form.pair_ok.shape == (len(form.head_ok), len(form.heads), len(form.is_head))
    assert form.member_variables_read == (
        ("relate", "age", "sex") if seed == 4 else ("relate", "age", "sex", "race")
    )
    # Rules that compare other members with each other, and Python, are left over.
    assert form.rest.names == (() if seed == 4 else ("3", "4", "6", "18"))
    compiled = rules.compile(households)
    possible = 0
    for block in households.size_blocks:
        codes = (block.household_codes, block.member_codes)
        expected = compiled.on_numpy(*codes)
        np.testing.assert_array_equal(form.holds(*codes), expected)
        possible += expected.sum()
    assert possible > (20 if seed == 4 else 0)


@pytest.mark.parametrize("head", [None, ("relate", "Head")])
def test_head_form_on_all_households_of_two_and_three(head):
    schema = schema_of(("Spouse", "Head", "Grandchild"), (14, 15, 29, 30, 56, 80), head)
    rules = bnp.census_relationships(schema)
    form = head_form(rules, schema)
    assert len(form.at_most) == len(form.apart) == 1 and len(form.rest) == 0
    levels = (3, 6, 2)
    one = np.array(list(itertools.product(*map(range, levels))))
    if head is not None:
        one = one[one[:, 0] < 2]
    ways = len(one) ** (2 - schema.num_heads)
    for size in (2, 3):
        many = np.array(list(itertools.product(range(len(one)), repeat=size - schema.num_heads)))
        rng = np.random.default_rng(0)
        many = many if len(many) <= ways else many[rng.choice(len(many), 20_000)]
        members = np.concatenate([one[many], np.zeros((*many.shape, 1), dtype=int)], axis=2)
        for b in range(4):
            codes = np.zeros((len(many), len(schema.household_variables)), dtype=int)
            codes[:, :2] = b % 2, b // 2
            if head is not None:
                codes[:, 2] = rng.integers(0, 6, len(codes))
                codes[:, 3] = rng.integers(0, 2, len(codes))
            expected = rules.compile(schema).on_numpy(codes, members)
            np.testing.assert_array_equal(form.holds(codes, members), expected)
            assert 0 < expected.sum() < len(expected)
            # A wrong entry that matters is seen.
            if b == 0:
                form.pair_ok[:] = ~form.pair_ok
                assert (form.holds(codes, members) != expected).any()
                form.pair_ok[:] = ~form.pair_ok


def test_no_head_form_without_a_head():
    schema = schema_of()
    assert head_form(Rules([at_most(1, SPOUSE)]), schema) is None
    assert head_form(Rules([at_most(1, HEAD)]), schema) is None
    assert head_form(Rules([exactly(1, HEAD & person(sex="m"))]), schema) is not None
    head = schema_of(head=("relate", "Head"))
    assert head_form(Rules([at_most(1, SPOUSE)]), head).at_most[0][1] == 1
    # "Exactly one spouse" is not about the head that the households have.
    assert head_form(Rules([exactly(1, SPOUSE)]), head).rest.names == (
        "exactly 1 person with relate 'Spouse'",
    )


@pytest.mark.parametrize("head", [None, ("relate", "Head")])
def test_stages_read_few_levels_first(head):
    households = draw(schema_of(head=head), 300, seed=6)
    rules = bnp.census_relationships(households) + household(tenure="own").named("owners")
    stages = rules.stages(households)
    names = [rule.name for stage in stages for rule in stage.rules.rules]
    assert sorted(names) == sorted(rules.names)
    assert stages[0].columns.member in ((), (0,))
    for before, after in itertools.pairwise(stages):
        assert set(before.columns.household) <= set(after.columns.household)
        assert set(before.columns.member) <= set(after.columns.member)
    assert stages[-1].columns == rules.columns(households)
    for block in households.size_blocks:
        found = np.ones(len(block.households), dtype=bool)
        for stage in stages:
            found &= stage.rules.on_numpy(
                block.household_codes[:, stage.columns.household],
                block.member_codes[:, :, stage.columns.member],
            )
        np.testing.assert_array_equal(
            found, rules.compile(households).on_numpy(block.household_codes, block.member_codes)
        )


AGE_GROUPS = ("under 5", "5-9", "10 to 14", "15-29", "30-64", "65+")
RANGES = dict(zip(AGE_GROUPS, [(0, 4), (5, 9), (10, 14), (15, 29), (30, 64), (65, 120)],
                  strict=True))  # fmt: skip


def test_ages_in_intervals_are_impossible_only_at_every_age_within():
    households = draw(schema_of(age=AGE_GROUPS), 600, seed=7)

    def somewhere(persons, statement):
        """Whether a comparison of two persons holds at some ages within the intervals."""
        return all(
            any(
                statement(x, y)
                for x in range(RANGES[a["age"]][0], RANGES[a["age"]][1] + 1)
                for y in range(RANGES[b["age"]][0], RANGES[b["age"]][1] + 1)
            )
            for a, b in pairs(persons, ["Biological child", "Stepchild"], ["Head"])
        )

    for rule, statement in [
        (each(CHILD).is_younger_than(HEAD, 12), lambda x, y: y - x >= 12),
        (each(CHILD).is_older_than(HEAD, 12), lambda x, y: x - y >= 12),
        (each(CHILD).is_within(12, HEAD), lambda x, y: abs(x - y) <= 12),
    ]:
        rules = Rules([rule])
        assert disagreements(rules, lambda p, s=statement: somewhere(p, s), households) == 0
        assert 0 < rules.check(households).sum() < households.n
    adults = Rules([each(HEAD).has(aged(20))])
    assert disagreements(
        adults, lambda p: all(RANGES[one["age"]][1] >= 20 for one in role(p, "Head")), households
    ) == 0  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "least", "most"),
    [
        (("7", "8", "10"), (7, 8, 10), (7, 8, 10)),
        ((0.5, 1, "2 years"), (0.5, 1, 2), (0.5, 1, 2)),
        (
            ("<5", "Under 10", "10–14", "85 and over", "85+", "90 years or older", "5 to 9 years"),
            (0, 0, 10, 85, 85, 90, 5),
            (4, 9, 14, 10**6, 10**6, 10**6, 9),
        ),
    ],
)
def test_numbers_of_labels(labels, least, most):
    from bnp_models.rules.views import bounds_of_label

    found = bounds_of_label(schema_of(age=labels), "age")
    np.testing.assert_array_equal(found, [least, most])


def test_the_size_may_be_a_variable():
    frame = pd.DataFrame(
        {"hid": [1, 1, 2], "n": ["2+", "2+", "1"], "relate": ["Head", "Spouse", "Head"]}
    )
    rules = Rules([household(n="2+").implies(at_least(1, SPOUSE)), household(n="2+")])
    for head in (None, ("relate", "Head")):
        table = Households.from_frame(frame, "hid", ["n"], head=head)
        assert table.schema.size_variable == "n"
        np.testing.assert_array_equal(rules.check(table), [True, False])


def test_incomplete_households_are_possible_if_some_completion_is():
    schema = schema_of(age=tuple(range(0, 40)))
    rules = bnp.census_relationships(schema)
    rows = [
        [("Head", 20, "m", "a"), (None, None, None, None)],
        [("Head", 20, "m", None), ("Spouse", 20, "m", "a")],
        [("Head", None, "m", "a"), ("Biological child", 32, "m", "a")],
        [("Head", None, "m", "a"), ("Biological child", 33, "m", "a")],
        [(None, 14, "m", "a"), ("Biological child", None, "m", "a")],
        [(None, None, None, None)] * 4,
    ]
    frame = pd.DataFrame(
        [(i, *one) for i, persons in enumerate(rows) for one in persons],
        columns=["hid", "relate", "age", "sex", "race"],
    ).assign(tenure="own", owner="b")
    table = Households.from_frame(frame, "hid", ["tenure", "owner"], levels=schema.table)
    np.testing.assert_array_equal(rules.check(table), [True, False, True, False, False, True])
    with pytest.raises(MicrodataError, match=r"row 2: household 1 breaks the rule 'spouse of"):
        rules.require_feasible(table)
    with pytest.raises(MicrodataError, match="row 6: household 3 breaks the rule 'age of child'"):
        rules.require_feasible(table.select(np.array([0, 2, 3])))
    rules.require_feasible(table.select(np.array([0, 2, 5])))


def test_broken_rules_are_named(drawn):
    rules = bnp.census_relationships(drawn)
    bad = ~rules.check(drawn)
    i = int(np.argmax(bad))
    with pytest.raises(MicrodataError) as caught:
        rules.require_feasible(drawn)
    text = str(caught.value)
    assert text.startswith(f"row {drawn.first_row(i)}: household {i + 1} breaks the rule '")
    assert f"({bad.sum()} of {drawn.n} households are impossible)" in text
    name = re.search("rule '(.*?)(?:':|$)", text)[1]
    assert str(rules[name]) in text
    broken = [rule.name for rule in rules.broken_by(drawn, i)]
    assert broken == [rule for rule in rules.names if not CENSUS[rule](people(drawn)[i])]
    assert broken[0] == name


WORDS = [
    (exactly(1, HEAD), "exactly 1 person with relate 'Head'"),
    (at_most(2, person(sex="f", relate="Spouse")),
     "at most 2 persons with sex 'f' and relate 'Spouse'"),
    (at_least(2), "at least 2 persons"),
    (exactly(0, CHILD), "no person with relate 'Biological child' or 'Stepchild'"),
    (each(HEAD).has(aged(15)), "each person with relate 'Head' has age at least 15"),
    (each(~HEAD).has(aged(at_most=9, variable="years")),
     "each person with not (relate 'Head') has years at most 9"),
    (each(HEAD | SPOUSE).has(aged(1, 9) & person(sex="f")),
     "each person with relate 'Head' or relate 'Spouse' has age from 1 to 9 and sex 'f'"),
    (each(SPOUSE).is_within(1, HEAD),
     "each person with relate 'Spouse' is within 1 year of each person with relate 'Head'"),
    (each().is_older_than(person(), 3, "height"),
     "each person is at least 3 years older than each other person by height"),
    (each(SPOUSE).differs_from(HEAD, "sex"),
     "each person with relate 'Spouse' has another sex than each person with relate 'Head'"),
    (each(SPOUSE).agrees_with(SPOUSE, "sex"),
     "each person with relate 'Spouse' has the same sex as each other person with relate "
     "'Spouse'"),
    (each(SPOUSE).agrees_with_household("race", "owner"),
     "each person with relate 'Spouse' has race equal to the household's owner"),
    (at_least(1, SPOUSE).implies(household(tenure="own")),
     "if there is at least 1 person with relate 'Spouse', then the household has tenure 'own'"),
    (~(at_most(1) | at_least(3)), "not ((at most 1 person) or (at least 3 persons))"),
    (~household(tenure=["own", "rent"]), "the household has not (tenure 'own' or 'rent')"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "words"), WORDS, ids=range(len(WORDS)))
def test_rules_in_words(rule, words):
    assert str(rule) == rule.name == words
    assert rule.named("short").name == "short" and str(rule.named("short")) == words


def test_sets_of_rules():
    first, second = exactly(1, HEAD).named("one"), at_most(1, SPOUSE)
    rules = Rules([first]) + second
    assert rules.names == ("one", "at most 1 person with relate 'Spouse'")
    assert rules["one"] == first and len(rules) == 2 and list(rules) == [first, second]
    assert rules.without("one") == Rules([second]) and rules + [] == rules
    assert rules.describe() == (
        "- one: exactly 1 person with relate 'Head'\n- at most 1 person with relate 'Spouse'"
    )
    assert repr(rules) == f"<2 rules>\n{rules.describe()}"
    assert rules.variables == ((), ("relate",))
    more = rules + household(tenure="own") + each(SPOUSE).agrees_with_household("race", "owner")
    assert more.variables == (("tenure", "owner"), ("relate", "race"))
    python = predicate(lambda view: view.is_("sex", "f").any(-1), "a woman", member=["sex"])
    assert (~python & household(tenure="own")).variables == (("tenure",), ("sex",))
    with pytest.raises(KeyError, match="no rule is called"):
        rules.without("two")
    with pytest.raises(ValueError, match="two rules are called 'one'"):
        rules + first
    with pytest.raises(TypeError, match="'x' is not a rule"):
        Rules(["x"])
    with pytest.raises(ValueError, match="give at_least"):
        aged()
    with pytest.raises(ValueError, match="no label of 'sex'"):
        person(sex=[])


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        (exactly(1, person(role="Head")), r"column 'role': unknown column; .*\(read by the rule"),
        (exactly(1, person(relate="head")), "column 'relate': value 'head' is not a declared"),
        (each(HEAD).has(aged(3, variable="sex")), "column 'sex': level 'f' is no number"),
        (household(race="a"), "column 'race': unknown column; the columns are 'tenure', 'owner'"),
        (exactly(1, person(tenure="own")), "column 'tenure': unknown column"),
        (
            predicate(lambda view: view.is_("sex", "f"), "women", member=["sex"]),
            r"the rule 'women' gave shape \(1, 2\) and dtype bool for 1 household",
        ),
    ],
)
def test_rules_that_do_not_fit_the_table(rule, part):
    for head in (None, ("relate", "Head")):
        with pytest.raises(MicrodataError, match=part):
            Rules([rule]).compile(schema_of(head=head))


def test_a_predicate_sees_what_it_names():
    rule = predicate(lambda view: view.is_("age", 3).any(-1), "no age", member=["sex"])
    with pytest.raises(ValueError, match="lack 'age', which a rule reads"):
        Rules([rule]).compile(schema_of())
