"""Rules read from Python files, and the shipped set by its name."""

import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.rules import Rules, at_most, person
from bnp_models.rules.census import census_relationships
from bnp_models.rules.reading import read_rules

pytestmark = pytest.mark.filterwarnings("error")


SCHEMA = Schema(
    ("relate", "age", "sex"),
    (("Householder", "Spouse", "Child"), tuple(range(90)), ("Female", "Male")),
)


def households(*rows):
    frame = pd.DataFrame(rows, columns=["hid", "relate", "age", "sex"])
    return bnp.Households.from_frame(frame, "hid", levels=SCHEMA)


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
            r"mine.py, column 'kin': unknown person variable; .*\(read by the rule: exactly 1",
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
    with pytest.raises(MicrodataError, match="no such file, and no shipped rule set .*'census-rel"):
        read_rules("census_relationship", SCHEMA)
    (tmp_path / "rules.txt").write_text("rules = []")
    with pytest.raises(MicrodataError, match="rules.txt: is no file of rules; .* a YAML file"):
        read_rules(tmp_path / "rules.txt", SCHEMA)


def test_rules_do_not_move_when_read_again(tmp_path):
    """The same file gives equal rules, so that a run can be resumed."""
    path = tmp_path / "mine.py"
    path.write_text(SOURCE.format("[at_most(1, person(relate='Spouse'))]"))
    assert read_rules(path, SCHEMA) == read_rules(path, SCHEMA)
    assert read_rules(path, SCHEMA) == Rules([at_most(1, person(relate="Spouse"))])
