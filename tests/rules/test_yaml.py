"""Rules stated in YAML: the whole vocabulary, the same as in Python; mistakes; written and read."""

import re
from inspect import isfunction
from pathlib import Path

import numpy as np
import pytest
from composed import HEAD as SMALL_HEAD
from composed import make_rule
from composed import schema_of as small_schema
from ruled import CHILD, HEAD, OTHERS, SPOUSE, schema_of

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
from bnp_models.rules.census import census_relationships
from bnp_models.rules.reading import read_rules
from bnp_models.rules.statements import Count, Subject
from bnp_models.rules.yaml_reading import FORMS, rules_of_yaml
from bnp_models.rules.yaml_writing import rules_to_yaml

pytestmark = pytest.mark.filterwarnings("error")

PERSONS = """
persons:
  head: {relate: Head}
  spouse: {relate: Spouse}
  child: {relate: [Biological child, Stepchild]}
"""

# Each way to say something, and the same in Python.
VOCABULARY = [
    ("exactly: 1\nof: head", exactly(1, HEAD)),
    ("exactly: 3", exactly(3)),
    ("at least: 2\nof: child", at_least(2, CHILD)),
    ("at most: 1\nof: anyone", at_most(1)),
    ("at least: 1\nat most: 3\nof: child", Count(1, 3, CHILD)),
    ("each: head\nhas: {age: {at least: 15}}", each(HEAD).has(aged(15))),
    ("each: anyone\nhas: {age: {at most: 99.5}}", each().has(aged(at_most=99.5))),
    ("each: head\nhas: {age: {at most: 60, at least: 15}}", each(HEAD).has(aged(15, 60))),
    ("each: child\nyounger than: head\nby at least: 15", each(CHILD).is_younger_than(HEAD, 15)),
    (
        "each: child\nolder than: head\nby at least: -1.5\nvariable: race",
        each(CHILD).is_older_than(HEAD, -1.5, "race"),
    ),
    ("each: spouse\nwithin: 49\nof: head", each(SPOUSE).is_within(49, HEAD)),
    (
        "each: spouse\nwithin: 49\nof: head\nvariable: sex",
        each(SPOUSE).is_within(49, HEAD, "sex"),
    ),
    ("each: child\nsame as: head\nvariable: race", each(CHILD).agrees_with(HEAD, "race")),
    ("each: spouse\ndiffers from: head\nvariable: sex", each(SPOUSE).differs_from(HEAD, "sex")),
    (
        "each: head\nhas: {race: {same as household: owner}}",
        each(HEAD).agrees_with_household("race", "owner"),
    ),
    ("household: {tenure: own, owner: [b, c]}", household(tenure="own", owner=("b", "c"))),
    ("not: {household: {tenure: own}}", ~household(tenure="own")),
    (
        "if: {household: {tenure: own}}\nthen: {exactly: 1, of: head}",
        household(tenure="own").implies(exactly(1, HEAD)),
    ),
    (
        "all of: [{exactly: 1}, {at least: 1, of: head}, {at most: 2}]",
        exactly(1) & at_least(1, HEAD) & at_most(2),
    ),
    (
        "any of: [{exactly: 1, name: alone}, {household: {tenure: own}}]",
        exactly(1).named("alone") | household(tenure="own"),
    ),
    ("name: one head\nexactly: 1\nof: head", exactly(1, HEAD).named("one head")),
    # Persons.
    (
        "exactly: 0\nof: {sex: f, age: {at least: 20}, race: [a, b]}",
        exactly(0, person(sex="f", race=("a", "b")) & aged(20)),
    ),
    (
        "exactly: 0\nof: {age: {at least: 20}, race: {same as household: owner}}",
        exactly(0, aged(20) & each().agrees_with_household("race", "owner").what),
    ),
    (
        "exactly: 0\nof: {all of: [child, {sex: f}, head]}",
        exactly(0, CHILD & person(sex="f") & HEAD),
    ),
    ("exactly: 0\nof: {any of: [child, {not: head}]}", exactly(0, CHILD | ~HEAD)),
    ("exactly: 0\nof: {}", exactly(0, person())),
]  # fmt: skip


def indented(statement):
    return "rules:\n- " + statement.replace("\n", "\n  ")


@pytest.mark.parametrize(
    ("statement", "rule"), [pytest.param(*pair, id=str(pair[1])[:60]) for pair in VOCABULARY]
)
def test_the_vocabulary_is_that_of_python(statement, rule):
    rules = rules_of_yaml(PERSONS + indented(statement))
    assert rules == Rules([rule])
    persons = {"head": HEAD, "child": CHILD, "spouse": SPOUSE}
    for names in ({}, persons):
        assert rules_of_yaml(rules_to_yaml(rules, names)) == rules


def test_the_vocabulary_is_whole():
    """Every form is said above, and every method by which Python makes a rule of persons."""
    said = [set(re.findall(r"^[a-z ]+(?=:)", text, re.MULTILINE)) - {"name"}
            for text, _ in VOCABULARY]  # fmt: skip
    for form in FORMS:
        assert any({*form.needed} <= keys <= {*form.needed, *form.optional} for keys in said), form
    said_of_it = {
        "has": "has age", "is_younger_than": "younger", "is_older_than": "older",
        "is_within": "within", "differs_from": "another", "agrees_with": "the same",
        "agrees_with_household": "the household's",
    }  # fmt: skip
    own = {name for name, value in vars(Subject).items() if isfunction(value) and name[0] != "_"}
    assert own == {*said_of_it}
    words = "".join(str(rule) for _, rule in VOCABULARY)
    assert all(word in words for word in said_of_it.values())


def test_composed_rules_are_written_and_read():
    rng = np.random.default_rng(0)
    for _ in range(150):
        rules = Rules([make_rule(rng).named("x")])
        text = rules_to_yaml(rules, {"head": SMALL_HEAD})
        assert rules_of_yaml(text, small_schema(None)) == rules
    rules = Rules([rule for rule, _ in OTHERS[:-1]])
    text = rules_to_yaml(rules, {"head": HEAD, "child": CHILD})
    assert rules_of_yaml(text, schema_of()) == rules
    assert "  of: {all of: [head, {sex: f}]}\n" in text and "&" not in text


def test_code_is_not_written():
    code = OTHERS[-1][0]
    with pytest.raises(ValueError, match="the rule 'heads who .* cannot be written in YAML"):
        rules_to_yaml(Rules([code]))
    with pytest.raises(ValueError, match="a label or the name of a variable .* cannot be written"):
        rules_to_yaml(Rules([exactly(1, person({"not": "a"}))]))
    with pytest.raises(ValueError, match="cannot be written in YAML"):
        rules_to_yaml(Rules([~predicate(lambda view: view, "x")]))


def test_labels_are_as_they_are_written():
    read = rules_of_yaml(
        "rules:\n- exactly: 1\n  of: {x: [01, no, 1.0, '1', 2020-01-01, 85+, <5, \"a, b\", ~, é]}"
    )
    texts = ["01", "no", "1.0", "1", "2020-01-01", "85+", "<5", "a, b", "~", "é"]
    assert read == Rules([exactly(1, person(x=texts))])
    numbers = rules_of_yaml("rules:\n- exactly: 1\n  of: {x: [1, -3, 1.5, 0]}")
    assert numbers == Rules([exactly(1, person(x=[1, -3, 1.5, 0]))])
    assert "'1'" in read.describe() and "'1" not in numbers.describe()
    for label in [*texts, "*", "1e3", "true", " x ", "a: b", "#", 1, -3, 1.5, np.int64(7), 2.0]:
        rules = Rules([exactly(1, person(x=label)), household(y=[label, "z"])])
        assert rules_of_yaml(rules_to_yaml(rules)) == rules


def test_a_file_is_not_run(tmp_path):
    path = tmp_path / "rules.yml"
    planted = tmp_path / "planted"
    path.write_text(f"rules: !!python/object/apply:os.mkdir ['{planted}']\n")
    with pytest.raises(MicrodataError, match="rules.yml, line 1: the tag .*os.mkdir is not read"):
        read_rules(path, schema_of())
    assert not planted.exists()


OF = "rules:\n- exactly: 1\n  of: "


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "mine.yaml: is empty; it needs a list of `rules`"),
        ("persons: {}\n", "mine.yaml, line 1: has no list of `rules`; add one"),
        ("- a\n", "line 1: here should be `persons` and `rules`, as `key: value`, not a list"),
        ("rules:\n", "line 1: here should be a list of statements, .* not nothing"),
        ("rule: []\n", "line 1: unknown key 'rule'; the keys are persons and rules"),
        ("rules: [a\n", r"line [12]: is not valid YAML \(while parsing .*; indent by spaces"),
        ("rules:\n\t- a\n", r"line 2: is not valid YAML \(.*\\t.*\); indent by spaces"),
        ("rules: []\n---\nrules: []\n", "line 2: is not valid YAML .*another document"),
        ("rules: []\nrules: []\n", "line 2: 'rules' is there twice; keep one"),
        ("rules: &a [*a]\n", r"line 1: the alias \*a is not read; write it out"),
        (b"rules: \xff", "mine.yaml: is no plain text in UTF-8"),
        ("[" * 5000, "mine.yaml: is nested too deeply"),
        ("rules:\n- at_least: 3\n", "line 2: unknown key 'at_least'; the keys are name, exactly, "),
        ("rules:\n- one head\n", "line 2: here should be a statement, .* not 'one head'"),
        (
            "rules:\n- name: x\n",
            "line 2: the keys .none. do not make a complete statement; .*: exactly",
        ),
        (
            "rules:\n\n- each: anyone\n  younger than: anyone\n",
            r"line 3: the keys 'each' and 'younger than' do not make a complete statement; besides "
            r"`name`, a statement has: "
            r"each \+ younger than \+ by at least \+ \[variable\]$",
        ),
        ("rules:\n- exactly: one\n", "line 2: here should be a number of persons, .* not 'one'"),
        ("rules:\n- exactly: -1\n", "line 2: here should be a number of persons, 0 or more"),
        ("rules:\n- at least: 3\n  at most: 1\n", "line 3: at least 3 and at most 1 cannot be"),
        ("rules:\n- all of: [{exactly: 1}]\n", "line 2: here should be a list of two or more"),
        ("rules:\n- exactly: 1\n- exactly: 1\n", "line 3: two statements are called 'exactly 1 p"),
        ("rules:\n- household: {race: a}\n", "line 2, column 'race': unknown household variable"),
        ("rules:\n- household: {}\n", "line 2: here should be variables of the household"),
        (
            "rules:\n- each: anyone\n  same as: anyone\n  variable: kin\n",
            r"line 2, column 'kin': unknown person variable; .*\(read by the rule: each person",
        ),
        ("persons:\n  anyone: {sex: f}\nrules: []\n", "line 2: 'anyone' is every person"),
        (
            "persons:\n  head:\n    relate: Haed\nrules: []\n",
            "mine.yaml, line 3, column 'relate': value 'Haed' is not a declared level",
        ),
        (f"{OF}haed\n", "line 3: nobody is called 'haed'; describe them under `persons`"),
        (f"{OF}{{relat: Head}}\n", "line 3, column 'relat': unknown person variable; .*'relate'"),
        (f"{OF}{{relate: }}\n", "line 3: the value is empty, and should be a label"),
        (f"{OF}{{relate: []}}\n", "line 3: the list of labels is empty; name one"),
        (f"{OF}{{relate: [Head, [a]]}}\n", "line 3: here should be a label, not a list"),
        (f"{OF}{{age: {{at least: x}}}}\n", "line 3: here should be a number, such as 15, not 'x'"),
        (f"{OF}{{age: {{from: 3}}}}\n", "line 3: unknown key 'from'; the keys are at least, at mo"),
        (f"{OF}{{age: {{}}}}\n", "line 3: give 'at least', 'at most' or both, or 'same as"),
        (f"{OF}{{sex: {{at least: 3}}}}\n", "line 3, column 'sex': level 'f' is no number"),
        (f"{OF}{{relate: Head, not: {{sex: f}}}}\n", "line 3: 'not' must be the only key; use"),
        (f"{OF}{{race: {{same as household: x}}}}\n", "line 3, column 'x': unknown household var"),
    ],
)
def test_mistakes_in_a_file_are_named(text, part, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(MicrodataError, match=part) as caught:
        read_rules(path, schema_of())
    assert "\n" not in str(caught.value) and str(caught.value).startswith(str(path))


def test_names_do_not_grow_without_bounds():
    twice = [f"  p{i + 1}: {{any of: [p{i}, p{i}]}}\n" for i in range(60)]
    with pytest.raises(MicrodataError, match="line 1[0-9]: 'p[0-9]+' is too long a description"):
        rules_of_yaml("persons:\n  p0: {sex: f}\n" + "".join(twice) + "rules: []\n")


DOCUMENT = Path(__file__).parents[2] / "docs" / "household_rules.md"


def test_the_documented_files():
    page = DOCUMENT.read_text(encoding="utf-8")
    example, shipped = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    rules = rules_of_yaml(example)
    head = person(relate="Householder")
    assert rules.names[0] == "one head" and rules["one head"] == exactly(1, head).named("one head")
    assert rules["young parents rent"] == at_least(1, head & aged(15, 24)).implies(
        household(tenure=("Rented", "No rent"))
    ).named("young parents rent")
    roles = ("Householder", "Spouse", "Child", "Stepchild", "Parent", "Sibling", "Grandchild")
    schema = Schema(("relate", "age", "sex"), (roles, tuple(range(90)), ("Female", "Male")))
    of_set = census_relationships(schema)
    assert rules_of_yaml(shipped) == of_set
    assert rules_to_yaml(of_set, {"head": head}) == shipped
    # Every key is explained.
    for form in FORMS:
        for key in (*form.needed, *form.optional):
            assert f"`{key}: " in page or f"{{{key}: " in page, key
