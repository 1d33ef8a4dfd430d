"""The shipped rule set's labels and words, and rules read from Python files."""

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.rules import Rules, at_most, person
from bnp_models.rules.census import ROLES, census_relationships, find_head
from bnp_models.rules.reading import read_rules

pytestmark = pytest.mark.filterwarnings("error")

USUAL = (
    "Householder", "Husband/wife", "Biological child", "Adopted child", "Stepchild",
    "Brother/sister", "Father or mother", "Parent-in-law", "Grandchild", "Housemate/roommate",
)  # fmt: skip


def schema_of(relate=USUAL, relationship="relate", age="age", sex="sex", ages=tuple(range(90))):
    return Schema((relationship, age, sex), (relate, ages, ("Female", "Male")))


def households(*rows):
    frame = pd.DataFrame(rows, columns=["hid", "relate", "age", "sex"])
    return bnp.Households.from_frame(frame, "hid", levels=schema_of())


def test_the_rules_in_words():
    by_name = {rule.name: str(rule) for rule in census_relationships(schema_of())}
    head, spouse = "person with relate 'Householder'", "person with relate 'Husband/wife'"
    grandchild = "if there is at least 1 person with relate 'Grandchild', then each"
    younger, older = "years younger than each", "years older than each"
    assert by_name == {
        "one head": f"exactly 1 {head}",
        "age of the head": f"each {head} has age at least 15",
        "one spouse": f"at most 1 {spouse}",
        "age of the spouse": f"each {spouse} has age at least 15",
        "spouse of the other sex": f"each {spouse} has another sex than each {head}",
        "ages of spouses": f"each {spouse} is within 49 years of each {head}",
        "age of child": (
            f"each person with relate 'Biological child' is at least 7 {younger} {head}"
        ),
        "age of adopted child": (
            f"each person with relate 'Adopted child' is at least 11 {younger} {head}"
        ),
        "age of stepchild": f"each person with relate 'Stepchild' is at least 9 {younger} {head}",
        "age of parent": f"each person with relate 'Father or mother' is at least 4 {older} {head}",
        "age of parent-in-law": (
            f"each person with relate 'Parent-in-law' is at least 4 {older} {head}"
        ),
        "age of sibling": (
            f"each person with relate 'Brother/sister' is within 37 years of each {head}"
        ),
        "age of grandparent": f"{grandchild} {head} has age at least 30",
        "age of grandparent's spouse": f"{grandchild} {spouse} has age at least 16",
        "age of grandchild": (
            f"each person with relate 'Grandchild' is at least 26 {younger} {head}"
        ),
    }


def test_roles_that_no_label_has_make_no_rule():
    rules = census_relationships(schema_of(("Householder", "Sibling", "Lodger")))
    assert rules.names == ("one head", "age of the head", "age of sibling")
    assert rules.variables == ((), ("relate", "age"))


def test_the_other_sex_can_be_dropped():
    table = households(
        (1, "Householder", 40, "Male"), (1, "Husband/wife", 40, "Male"),
        (2, "Householder", 40, "Female"), (2, "Husband/wife", 40, "Male"),
    )  # fmt: skip
    rules = census_relationships(table)
    np.testing.assert_array_equal(rules.check(table), [False, True])
    dropped = rules.without("spouse of the other sex")
    assert dropped == census_relationships(table, same_sex_spouse=True)
    np.testing.assert_array_equal(dropped.check(table), [True, True])
    assert "sex" not in dropped.variables.member
    # A label of their own says that they are of the same sex.
    own = census_relationships(schema_of(("Head", "Spouse", "Same-sex husband/wife/spouse")))
    assert "'Same-sex husband/wife/spouse'" in str(own["one spouse"])
    assert "'Same-sex husband/wife/spouse'" not in str(own["spouse of the other sex"])


@pytest.mark.parametrize("role", sorted(ROLES))
def test_every_usual_label_is_known(role):
    for label in ROLES[role]:
        shown = (label.title(), label.upper().replace(" ", "_"), f"{label} of householder")
        for text in shown if role not in ("head", "other") else shown[:2]:
            levels = ("The head",) if role == "head" else ("Head", text)
            rules = census_relationships(
                schema_of(levels if role != "head" else (text, "Lodger")), same_sex_spouse=True
            )
            words = rules.describe()
            assert (text in words) == (role != "other"), text


def test_labels_are_mapped_by_name():
    with pytest.raises(MicrodataError) as caught:
        census_relationships(schema_of(("Boss", "Kid", "Spouse", "Zorp")))
    text = str(caught.value)
    assert text.startswith("column 'relate': the role of 'Boss', 'Kid', 'Zorp' is not known; map")
    assert "labels={'Boss': 'other'}" in text and "'grandchild'" in text
    labels = {"boss": "head", "Kid": "stepchild", "Zorp": None, "Spouse": "sibling"}
    rules = census_relationships(schema_of(("Boss", "Kid", "Spouse", "Zorp")), labels=labels)
    assert rules.names == ("one head", "age of the head", "age of stepchild", "age of sibling")
    assert "'Spouse'" in str(rules["age of sibling"])
    # Codes are labels too.
    rules = census_relationships(schema_of((0, 1, 2)), labels={0: "head", 1: "spouse", 2: "child"})
    assert str(rules["one head"]) == "exactly 1 person with relate 0"


@pytest.mark.parametrize(
    ("schema", "options", "part"),
    [
        (schema_of(), {"labels": {"Grandchild": "elf"}}, "mapped to 'elf', which is no role"),
        (schema_of(), {"labels": {"Elf": "child"}}, "'Elf' is mapped to a role but is no level"),
        (schema_of(("Spouse", "Child")), {}, "'relate': no level is the head of the household"),
        (schema_of(relationship="role"), {}, "no variable has a usual name of the relationship"),
        (schema_of(age="years"), {}, r"usual name of the age .*census_relationships\(schema, age="),
        (schema_of(sex="Gender", age="sex"), {}, "usual name of the age"),
        (schema_of(), {"age": "years"}, "column 'years': unknown column"),
    ],
)
def test_what_is_not_found_is_named(schema, options, part):
    with pytest.raises(MicrodataError, match=part):
        census_relationships(schema, **options)


def test_variables_are_found_by_usual_names():
    rules = census_relationships(schema_of(relationship="RELP", age="AGEP", sex="Gender"))
    assert rules.variables.member == ("RELP", "AGEP", "Gender")
    two = Schema(("relate", "relp", "age"), (USUAL, USUAL, (1, 2)))
    with pytest.raises(MicrodataError, match="'relate', 'relp' all have a usual name"):
        census_relationships(two)
    assert census_relationships(two, "relp", same_sex_spouse=True).variables.member[0] == "relp"


def test_ages_must_be_numbers():
    schema = bnp.HouseholdSchema(schema_of(ages=("child", "adult")), "hid")
    with pytest.raises(MicrodataError, match="'age': level 'child' is no number.*age of the head"):
        census_relationships(schema)


def test_the_head_is_found():
    assert find_head(schema_of()) == ("relate", "Householder")
    assert find_head(schema_of(relationship="kin")) is None
    assert find_head(schema_of(("Spouse", "Child"))) is None
    assert find_head(schema_of(("Head", "Householder"))) is None


SOURCE = """
import bnp_models as bnp
from bnp_models.rules import at_most, each, exactly, person

rules = {}
"""


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("exactly(1, person(relate='Householder')).named('one')", ("one",)),
        ("[at_most(1), at_most(2)]", ("at most 1 person", "at most 2 persons")),
        ("bnp.Rules([at_most(1)])", ("at most 1 person",)),
        ("lambda schema: bnp.census_relationships(schema).without('one spouse')", None),
    ],
)
def test_rules_from_a_file(source, names, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SOURCE.format(source))
    table = households((1, "Householder", 40, "Male"), (2, "Householder", 50, "Male"))
    rules = read_rules(path, table)
    assert isinstance(rules, Rules)
    if names is None:
        names = census_relationships(table).without("one spouse").names
    assert rules.names == names
    assert rules.check(table).all()


def test_the_shipped_set_by_its_name():
    table = households((1, "Householder", 40, "Male"), (2, "Householder", 14, "Male"))
    rules = read_rules("census-relationships", table)
    assert rules == census_relationships(table) == bnp.read_rules("census-relationships", table)
    with pytest.raises(
        MicrodataError,
        match=r"row 1: household 2 breaks the rule 'age of the head': each person with relate "
        r"'Householder' has age at least 15 \(1 of 2 ",
    ):
        rules.require_feasible(table)


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("rule = 1\n", r"mine.py: defines no variable `rules`; assign"),
        ("rules = 3\n", "mine.py: `rules` is of type int; expected bnp_models.Rules, a rule"),
        ("rules = 'one head'\n", "mine.py: `rules` is of type str"),
        ("rules = [1]\n", "mine.py: `rules` holds 1, of type int, which is no rule"),
        ("\nrules = 1 / 0\n", r"mine.py, line 2: ZeroDivisionError: division by zero"),
        ("rules = (\n", r"mine.py, line 1: SyntaxError: '\(' was never closed"),
        ("import bnp_models.nothing\n", r"mine.py, line 1: ModuleNotFoundError: No module named"),
        ("def rules(schema):\n    return schema.nothing\n", "mine.py, line 2: AttributeError"),
        (
            "from bnp_models.rules import *\nrules = exactly(1, person(kin='x'))\n",
            r"mine.py, column 'kin': unknown column; .*\(read by the rule: exactly 1 person with",
        ),
        (
            "from bnp_models.rules import *\n"
            "def f(view):\n    return view.oops\n"
            "rules = predicate(f, 'oops')\n",
            "mine.py, line 3: AttributeError: .*oops",
        ),
        (
            "from bnp_models.rules import *\nrules = [at_most(1), at_most(1)]\n",
            "mine.py: ValueError: two rules are called 'at most 1 person'",
        ),
    ],
)
def test_mistakes_in_a_file_are_named(source, part, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(source)
    table = households((1, "Householder", 40, "Male"), (2, "Householder", 50, "Male"))
    with pytest.raises(MicrodataError, match=part):
        read_rules(path, table)


def test_files_that_are_none(tmp_path):
    schema = schema_of()
    with pytest.raises(MicrodataError, match="no such file, and no shipped rule set .*'census-rel"):
        read_rules("census_relationship", schema)
    (tmp_path / "rules.txt").write_text("rules = []")
    with pytest.raises(MicrodataError, match="rules.txt: is no Python file"):
        read_rules(tmp_path / "rules.txt", schema)


def test_rules_do_not_move_when_read_again(tmp_path):
    """The same file gives equal rules, so that a run can be resumed."""
    path = tmp_path / "mine.py"
    path.write_text(SOURCE.format("[at_most(1, person(relate='Spouse'))]"))
    schema = schema_of()
    assert read_rules(path, schema) == read_rules(path, schema)
    assert read_rules(path, schema) == Rules([at_most(1, person(relate="Spouse"))])
