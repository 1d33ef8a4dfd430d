"""Feasible completions of households with missing values."""

import jax
import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.households import Households
from bnp_models.data.schema import MicrodataError
from bnp_models.models.nested import starts
from bnp_models.models.nested.starts import complete_households

pytestmark = pytest.mark.filterwarnings("error")


def incomplete(data, share, seed, head):
    """Values missing at random, but for the size, and the head if it is at household level."""
    frame = data.frame.astype({name: object for name in data.frame.select_dtypes("category")})
    rng = np.random.default_rng(seed)
    for name in frame.columns.drop(["household", "persons"]):
        if name in data.household_variables:
            gone = frame["household"].isin(
                frame["household"].unique()[rng.random(len(data)) < share]
            )
        else:
            gone = rng.random(len(frame)) < share
            if head and name == "relate":
                gone &= frame["relate"] != "Householder"
        frame[name] = frame[name].mask(gone)
    return Households.from_frame(
        frame, "household", data.household_variables, levels=data.households().schema.table,
        head=data.head if head else None,
    )  # fmt: skip


@pytest.mark.parametrize("head", [False, True])
def test_every_household_becomes_possible_and_keeps_what_was_seen(head):
    data = bnp.datasets.bay_area_households().sample(200, seed=1)
    table = incomplete(data, 0.3, 0, head)
    rules = bnp.census_relationships(table)
    assert table.incomplete.mean() > 0.5
    done = complete_households(table, rules, key=jax.random.key(2))
    assert not done.has_missing and rules.check(done).all()
    for before, after in (
        (table.household_codes, done.household_codes),
        (table.member_codes, done.member_codes),
    ):
        np.testing.assert_array_equal(after[before >= 0], before[before >= 0])
        assert (before < 0).any()
    np.testing.assert_array_equal(done.ids, table.ids)
    np.testing.assert_array_equal(done.rows, table.rows)
    again = complete_households(table, rules, key=jax.random.key(2))
    np.testing.assert_array_equal(again.member_codes, done.member_codes)
    other = complete_households(table, rules, key=jax.random.key(3))
    assert (other.member_codes != done.member_codes).any()


def test_without_rules_the_margins_decide():
    frame = pd.DataFrame({"hid": np.arange(3_000) // 2, "x": ["a", "b", "b", "b", None] * 600})
    table = Households.from_frame(frame, "hid", levels={"x": ["a", "b", "c"]})
    done = complete_households(table, key=jax.random.key(0))
    drawn = done.member_codes[table.member_codes < 0]
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 600, [0.25, 0.75, 0], atol=0.06)
    complete = complete_households(done, key=jax.random.key(0))
    np.testing.assert_array_equal(complete.member_codes, done.member_codes)


def people(*rows):
    frame = pd.DataFrame(rows, columns=["hid", "relate", "age", "sex"])
    levels = {"relate": ["Head", "Spouse", "Child"], "age": range(91), "sex": ["f", "m"]}
    return Households.from_frame(frame, "hid", levels=levels)


@pytest.mark.parametrize("rounds", [0, 100])
def test_completions_that_are_few_are_found(rounds, monkeypatch):
    monkeypatch.setattr(starts, "_ROUNDS", rounds)
    table = people(
        (1, "Head", 90, "f"), (1, None, 83, "f"), (1, None, None, None),
        (2, "Head", 15, "m"), (2, "Child", None, "m"), (2, "Child", None, "m"),
        (3, None, None, None), (3, "Child", 83, "f"), (3, "Spouse", 89, "m"),
    )  # fmt: skip
    rules = bnp.census_relationships(table)
    done = complete_households(table, rules, key=jax.random.key(0))
    assert rules.check(done).all()
    frame = done.to_frame()
    assert frame.loc[1, "relate"] == "Child"  # a spouse would be of the head's sex
    assert (frame.loc[4:5, "age"] <= 8).all()
    assert frame.loc[6].tolist()[1::2] == ["Head", "f"] and frame.loc[6, "age"] == 90


def test_households_without_one_are_named():
    table = people(
        (1, "Head", 40, "f"), (1, None, 34, "f"),
        (2, "Head", 40, "f"), (2, None, 3, "f"),
    )  # fmt: skip
    rules = bnp.census_relationships(table)
    with pytest.raises(
        MicrodataError, match="row 0: household 1 breaks a rule whatever its missing values are"
    ):
        complete_households(table, rules, key=jax.random.key(0))
    broken = people((1, "Head", 4, "f"), (2, "Head", 40, "f"), (2, None, 3, "f"))
    with pytest.raises(MicrodataError, match="household 1 breaks the rule 'age of the head'"):
        complete_households(broken, rules, key=jax.random.key(0))
