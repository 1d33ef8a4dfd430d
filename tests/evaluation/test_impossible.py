"""Impossible records and households of synthetic files, counted by hand."""

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.evaluation.impossible import find_impossible
from bnp_models.rules import Rules, at_most, exactly, person

SCHEMA = bnp.Schema(("age", "work"), (("child", "adult"), ("no", "yes")))
ZEROS = bnp.StructuralZeros(SCHEMA, np.array([[0, 1]]))


def test_records_by_hand():
    table = bnp.Microdata(SCHEMA, np.array([[0, 0], [0, 1], [1, 1], [0, 1]]))
    impossible = find_impossible(table, ZEROS)
    assert impossible.number == 2 and impossible.rows == (1, 3)
    assert impossible.broken == ("age = child and work = yes",) * 2
    assert impossible.by_rule == {}


def test_a_missing_value_is_impossible_where_no_completion_is():
    table = bnp.Microdata(SCHEMA, np.array([[0, -1], [-1, 1]]))
    assert find_impossible(table, ZEROS).number == 0
    nothing = bnp.StructuralZeros(SCHEMA, np.array([[0, 0], [0, 1]]))
    impossible = find_impossible(table, nothing)
    assert impossible.rows == (0,)
    assert impossible.broken == ("no values are possible for the missing ones",)


def test_the_first_twenty_rows_are_told():
    table = bnp.Microdata(SCHEMA, np.tile([[1, 0], [0, 1]], (30, 1)))
    impossible = find_impossible(table, ZEROS)
    assert impossible.number == 30
    assert impossible.rows == tuple(range(1, 40, 2))


def test_households_by_hand():
    """The second has two heads, the third no head and two spouses."""
    roles = {1: ["head", "child"], 2: ["head", "head"], 3: ["spouse", "spouse"]}
    frame = pd.DataFrame(
        [(i, role, "own") for i, members in roles.items() for role in members],
        columns=["id", "role", "tenure"],
    )
    table = bnp.Households.from_frame(frame, "id", ["tenure"])
    one_head = exactly(1, person(role="head")).named("one head")
    one_spouse = at_most(1, person(role="spouse")).named("one spouse")
    rules = Rules([one_head, one_spouse])
    impossible = find_impossible(table, rules)
    assert impossible.number == 2 and impossible.rows == (2, 4)
    assert impossible.broken == ("one head", "one head; one spouse")
    assert impossible.by_rule == {"one head": 2, "one spouse": 1}
    assert find_impossible(table, Rules([one_spouse])).by_rule == {"one spouse": 1}
    with pytest.raises(TypeError, match="households have rules"):
        find_impossible(table, ZEROS)
