"""Tables of a head and one other member against the rules that they stand for."""

import itertools

import numpy as np
import pytest
from composed import HEAD as SMALL_HEAD
from composed import draw_households, make_rule
from composed import schema_of as small_schema
from ruled import HEAD, OTHERS, SPOUSE, draw, judge_by_tables, schema_of

import bnp_models as bnp
from bnp_models.rules import Rules, at_most, each, exactly, person
from bnp_models.rules.head_forms import head_form

pytestmark = pytest.mark.filterwarnings("error")


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
    assert tuple(form.schema.member_variables[j] for j in form.columns.member) == (
        ("relate", "age", "sex") if seed == 4 else ("relate", "age", "sex", "race")
    )
    # Rules that compare other members with each other, and Python, are left over.
    assert form.rest.names == (() if seed == 4 else ("3", "4", "6", "18"))
    compiled = rules.compile(households)
    possible = 0
    for block in households.size_blocks:
        codes = (block.household_codes, block.member_codes)
        expected = compiled.on_numpy(*codes)
        np.testing.assert_array_equal(judge_by_tables(form, *codes), expected)
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
            np.testing.assert_array_equal(judge_by_tables(form, codes, members), expected)
            assert 0 < expected.sum() < len(expected)
            # A wrong entry that matters is seen.
            if b == 0:
                form.pair_ok[:] = ~form.pair_ok
                assert (judge_by_tables(form, codes, members) != expected).any()
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


@pytest.mark.parametrize("head", [None, ("relate", "head")], ids=["member", "household"])
@pytest.mark.parametrize("seed", range(8))
def test_tables_of_rules_composed_at_random(head, seed):
    rng = np.random.default_rng(seed)
    schema = small_schema(head)
    houses = draw_households(rng, schema)
    in_form = 0
    for _ in range(40):
        rules = Rules([exactly(1, SMALL_HEAD).named("one head"), make_rule(rng).named("the rule")])
        form = head_form(rules, schema)
        in_form += not len(form.rest)
        compiled = rules.compile(schema)
        for block in houses.size_blocks:
            codes = (block.household_codes, block.member_codes)
            np.testing.assert_array_equal(
                judge_by_tables(form, *codes), compiled.on_numpy(*codes), err_msg=str(rules)
            )
    # Rules with a table are well represented.
    assert 8 <= in_form <= 36


def test_a_rule_of_the_head_that_has_another_form():
    """Without the rule that names the head there are no tables, unless the households have one."""
    child = person(relate="Biological child")
    both = Rules([exactly(1, HEAD) & each(child).is_within(9, child)])
    assert head_form(both, schema_of()) is None
    assert len(head_form(both, schema_of(head=("relate", "Head"))).rest) == 1
