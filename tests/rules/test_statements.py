"""Rules against plain Python statements of the same, and in words."""

import numpy as np
import pytest
from composed import draw_households, holds, make_rule, persons_of
from composed import schema_of as small_schema
from ruled import CENSUS, CHILD, HEAD, OTHERS, SPOUSE, disagreements, draw, pairs, role, schema_of

from bnp_models.rules import Rules, aged, at_least, at_most, each, exactly, household, person

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module", params=[None, ("relate", "Head")], ids=["members", "head"])
def drawn(request):
    return draw(schema_of(age=tuple(range(64)), head=request.param), 3_000, seed=1)


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


@pytest.mark.parametrize("head", [None, ("relate", "head")], ids=["member", "household"])
@pytest.mark.parametrize("seed", range(8))
def test_rules_composed_at_random(head, seed):
    rng = np.random.default_rng(seed)
    houses = draw_households(rng, small_schema(head))
    everyone = persons_of(houses)
    outcomes = set()
    for _ in range(40):
        rule = make_rule(rng)
        said = np.array([holds(rule, persons) for persons in everyone])
        np.testing.assert_array_equal(Rules([rule]).check(houses), said, err_msg=str(rule))
        outcomes |= {(bool(said.all()), bool(said.any()))}
    # Rules that hold sometimes are well represented.
    assert (False, True) in outcomes


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
