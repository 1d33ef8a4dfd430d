"""Sets of rules: compiled to JAX, judged, combined, and mistakes."""

import itertools
import re

import jax
import numpy as np
import pytest
from ruled import CENSUS, HEAD, OTHERS, SPOUSE, draw, people, schema_of

import bnp_models as bnp
from bnp_models.data.schema import MicrodataError
from bnp_models.rules import Rules, aged, at_most, each, exactly, household, person, predicate

pytestmark = pytest.mark.filterwarnings("error")


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


def test_broken_rules_are_named():
    drawn = draw(schema_of(age=tuple(range(64))), 1_000, seed=1)
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


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        (
            exactly(1, person(role="Head")),
            r"column 'role': unknown person variable; .*\(read by the rule",
        ),
        (exactly(1, person(relate="head")), "column 'relate': value 'head' is not a declared"),
        (each(HEAD).has(aged(3, variable="sex")), "column 'sex': level 'f' is no number"),
        (
            household(race="a"),
            "column 'race': unknown household variable; .* are 'tenure', 'owner'",
        ),
        (exactly(1, person(tenure="own")), "column 'tenure': unknown person variable"),
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
