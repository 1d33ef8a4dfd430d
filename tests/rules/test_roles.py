"""Roles of labels in any language, and columns, by a table."""

import re

import pandas as pd
import pytest

from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.rules.census import census_relationships, find_head
from bnp_models.rules.reading import read_rules
from bnp_models.rules.roles import ROLES, Roles, read_roles

pytestmark = pytest.mark.filterwarnings("error")

TABLE = """role,label
relationship variable,stellung
age variable,alter
Head,Haushaltsvorstand
spouse,Ehefrau
spouse,Ehemann
same-sex spouse,Lebenspartner
child,Kind
Parent in law,Schwiegermutter
other,Untermieter
"""
GERMAN = Schema(
    ("stellung", "alter", "sex"),
    (("Haushaltsvorstand", "Ehefrau", "Ehemann", "Kind", "UNTERMIETER"), tuple(range(90)), (1, 2)),
)
ENGLISH = Schema(
    ("relate", "age", "sex"),
    (("Householder", "Wife", "Husband", "Child", "Roommate"), *GERMAN.levels[1:]),
)


def write(folder, text=TABLE):
    (folder / "roles.csv").write_text(text, encoding="utf-8")
    return folder / "roles.csv"


def test_the_shipped_set_in_another_language(tmp_path):
    roles = read_roles(write(tmp_path), GERMAN)
    rules = read_rules("census-relationships", GERMAN, roles)
    assert rules == census_relationships(GERMAN, roles=roles)
    words = census_relationships(ENGLISH).describe()
    for english, german in zip(ENGLISH.levels[0], GERMAN.levels[0], strict=True):
        words = words.replace(repr(english), repr(german))
    words = words.replace("with relate", "with stellung").replace(" age at", " alter at")
    words = re.sub(r"(each person with stellung 'Haushaltsvorstand')$", r"\1 by alter", words)
    words = re.sub(r"((?:younger than|years of) each [^\n]*)(?<! by alter)(?=\n|$)", r"\1 by alter",
                   words)  # fmt: skip
    assert rules.describe() == words
    assert find_head(GERMAN, roles) == ("stellung", "Haushaltsvorstand")
    assert find_head(GERMAN) is None


def test_a_table_is_stronger_than_usual_labels_and_weaker_than_arguments():
    roles = Roles({"child": "stepchild", "roommate": "sibling"})
    names = census_relationships(ENGLISH, roles=roles).names
    assert "age of stepchild" in names and "age of sibling" in names and "age of child" not in names
    again = census_relationships(ENGLISH, labels={"Child": "child"}, roles=roles).names
    assert "age of child" in again and "age of stepchild" not in again
    assert find_head(ENGLISH, Roles({"child": "head"})) is None
    assert find_head(ENGLISH, Roles({"child": "head", "householder": "other"})) == (
        "relate", "Child",
    )  # fmt: skip


@pytest.mark.parametrize("as_text", [True, False])
def test_codes_are_labels(as_text, tmp_path):
    codes = ("1", "2", "3") if as_text else (1, 2, 3)
    schema = Schema(("RELP", "AGEP", "SEX"), (codes, tuple(range(90)), (1, 2)))
    text = "role;label\nhead;1\nspouse;2\nother;3\nchild;4\n"
    if as_text:
        path = write(tmp_path, text)
    else:
        path = tmp_path / "roles.parquet"
        frame = pd.DataFrame([line.split(";") for line in text.split()[1:]])
        frame.columns = ["role", "label"]
        frame.assign(label=frame["label"].astype(int)).to_parquet(path)
    roles = read_roles(path, schema)
    rules = read_rules("census-relationships", schema, roles)
    assert str(rules["one spouse"]) == f"at most 1 person with RELP {codes[1]!r}"
    assert find_head(schema, roles) == ("RELP", codes[0])
    assert not [name for name in rules.names if "child" in name]


def test_every_role_may_be_given(tmp_path):
    text = "role,label\n" + "".join(f"{role},L{i}\n" for i, role in enumerate(ROLES))
    roles = read_roles(write(tmp_path, text))
    assert [roles.role(f"l{i}") for i in range(len(ROLES))] == list(ROLES)
    assert roles.role("x") is None and roles.role("Child of head") == "child"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("role,name\nhead,x\n", "roles.csv.*'label'"),
        ("role,label\nhead,\n", r"roles.csv, row 0 \(line 2\), column 'label': the cell is empty"),
        ("role,label\n,Kind\n", "column 'role': the cell is empty; give a role"),
        (
            "role,label\nhead,A\nboss,B\n",
            r"row 1 \(line 3\), column 'role': unknown role 'boss'; the roles are 'head', .* and "
            "'relationship variable', 'age variable', 'sex variable' name columns",
        ),
        ("role,label\nchild,Kind\nhead,kind\n", "'kind' is given as 'head', .* says 'child'"),
        ("role,label\nage variable,age\n", r"'age' is no column that is read; .* 'stellung'"),
    ],
)
def test_mistakes_in_a_table_are_named(text, part, tmp_path):
    with pytest.raises(MicrodataError, match=part):
        read_roles(write(tmp_path, text), GERMAN)


def test_labels_without_a_role_are_named():
    roles = Roles({"haushaltsvorstand": "head"}, {"relationship": "stellung", "age": "alter"})
    with pytest.raises(
        MicrodataError, match="role of 'Ehefrau', .* such as other,Ehefrau of --rol"
    ):
        census_relationships(GERMAN, roles=roles)
    with pytest.raises(MicrodataError, match="by a row relationship variable,NAME of --roles"):
        census_relationships(GERMAN)
