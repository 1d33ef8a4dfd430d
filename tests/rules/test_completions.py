"""Households with missing values: possible if some completion is."""

import numpy as np
import pandas as pd
import pytest
from ruled import schema_of

import bnp_models as bnp
from bnp_models.data.households import Households
from bnp_models.data.schema import MicrodataError
from bnp_models.rules import completions as completions_module
from bnp_models.rules.completions import completions
from bnp_models.rules.views import Columns

pytestmark = pytest.mark.filterwarnings("error")


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


def test_each_completion_comes_once():
    schema = schema_of(age=tuple(range(9)))
    household, members = np.array([1, -1]), np.array([[0, -1, 1, -1], [-1, 3, -1, 2]])
    columns = Columns((0, 1), (0, 1, 3))
    chunks = list(completions(schema, columns, household, members))
    households = np.concatenate([chunk for chunk, _ in chunks])
    filled = np.concatenate([chunk for _, chunk in chunks])
    # An owner, an age, a race and a relationship; the sex is in none of the columns.
    assert len(filled) == 3 * 9 * 3 * 10
    flat = np.column_stack([households, filled.reshape(len(filled), -1)])
    assert len(np.unique(flat, axis=0)) == 810
    known = members >= 0
    np.testing.assert_array_equal(filled[:, known], np.tile(members[known], (810, 1)))
    assert (filled[:, 1, 2] == -1).all() and (households[:, 0] == 1).all()
    some = completions(schema, columns, household, members, 100)
    assert sum(len(chunk) for chunk, _ in some) == 100


@pytest.mark.parametrize(("limit", "undecided"), [(16, False), (15, True)])
def test_none_of_all_completions_is_told_from_none_of_those_tried(monkeypatch, limit, undecided):
    """Four missing values of two levels have 16 completions."""
    monkeypatch.setattr(completions_module, "_COMPLETIONS", limit)
    schema = schema_of(age=(0, 1))
    age = schema.member_variables.index("age")
    members = np.zeros((4, len(schema.member_variables)), np.int32)
    members[:, age] = -1
    household = np.zeros(len(schema.household_variables), np.int32)
    answer = completions_module.completable(
        lambda households, _: np.zeros(len(households), bool), schema, Columns((), (age,)),
        household, members,
    )  # fmt: skip
    assert answer == undecided
