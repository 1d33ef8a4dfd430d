"""The shipped rule set: its rules against plain Python, its labels and its words."""

import numpy as np
import pandas as pd
import pytest
from ruled import CENSUS, draw, people
from ruled import schema_of as drawn_schema

import bnp_models as bnp
from bnp_models.data.label_numbers import OwnLevel
from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.rules import Rules
from bnp_models.rules.census import census_relationships, find_head
from bnp_models.rules.roles import ROLES

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
    # The command line takes a number for a code if it is far from the others.
    schema = bnp.HouseholdSchema(schema_of(ages=("90", "91", OwnLevel("94"))), "hid")
    with pytest.raises(MicrodataError, match="taken for a code.*say --number age=94"):
        census_relationships(schema)


def test_the_head_is_found():
    assert find_head(schema_of()) == ("relate", "Householder")
    assert find_head(schema_of(relationship="kin")) is None
    assert find_head(schema_of(("Spouse", "Child"))) is None
    assert find_head(schema_of(("Head", "Householder"))) is None


@pytest.mark.parametrize("head", [None, ("relate", "Head")], ids=["members", "head"])
def test_the_census_rules_are_what_they_say(head):
    drawn = draw(drawn_schema(age=tuple(range(64)), head=head), 3_000, seed=1)
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
