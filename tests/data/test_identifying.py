"""Columns that identify records."""

import numpy as np
import pandas as pd
import pytest

from bnp_models.data.identifying import identifying_variables, share_of_values, values_of_one
from bnp_models.data.microdata import Microdata


def test_what_identifies():
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            "pid": np.arange(n),
            "nearly": [f"P{i // 2 if i < 100 else i}" for i in range(n)],
            "income": rng.permutation(np.arange(n) % 250) * 100,
            "age": rng.integers(0, 90, n),
            "wage": ["none", *(rng.permutation(np.arange(n - 1) % 230) * 50)],
            "place": [f"place {i % 30}" for i in range(n)],
            "sex": rng.integers(0, 2, n),
        }
    )
    # Nobody is alone with a place, and a place is no number.
    table = Microdata.from_frame(frame)
    found = {x.variable: x for x in identifying_variables(table)}
    assert list(found) == ["pid", "nearly", "income", "wage"]
    assert found["pid"].alone == 1 and found["nearly"].alone == pytest.approx(0.75)
    assert "has 400 values, and 100% of the records" in found["pid"].why
    but = {"pid", "income", "wage"}
    assert [x.variable for x in identifying_variables(table, but)] == ["nearly"]
    # Ages in years of a small sample: most are alone with theirs, and they are no key.
    ages = frame[["age", "pid"]][:40]
    assert ages["age"].nunique() >= 20
    assert [x.variable for x in identifying_variables(Microdata.from_frame(ages))] == ["pid"]
    # A small file is no list of names.
    assert identifying_variables(Microdata.from_frame(frame[:12])) == []


def test_what_identifies_groups():
    """Households, clusters and interviewers as text and as numbers, in any order of the records."""
    rng = np.random.default_rng(0)
    household = np.repeat(np.arange(250), rng.integers(1, 6, 250))
    n, cluster = len(household), household // 7
    frame = pd.DataFrame(
        {
            "h": [f"H{i:05}" for i in household],
            "number": household + 1000,
            "area": [f"EA {i}" for i in cluster],
            "interviewer_id": cluster % 21,
            "PSU": cluster,
            "int_no": cluster % 20,
            "town": [f"T{i}" for i in (60 * rng.random(n) ** 2).astype(int)],
            "age": rng.integers(0, 80, n),
            "month": np.arange(n) % 24,
            "household size": np.bincount(household)[household],
            "unique": [f"X{i}" for i in range(n)],
            # Few records a name, but half of all records have one name.
            "city": rng.permutation([f"C{max(i // 2, n // 4)}" for i in range(n)]),
        }
    )
    groups = ["h", "number", "area", "interviewer_id", "PSU", "int_no"]
    found = {x.variable: x for x in identifying_variables(Microdata.from_frame(frame))}
    assert list(found) == [*groups, "unique"]
    assert [name for name, x in found.items() if x.group] == groups
    assert found["h"].group == pytest.approx(n / 250) and not found["h"].numbers
    assert f"has 250 values, each of which {n / 250:.1f} records have" in found["h"].why
    # In another order, an area is like a town, and the number like an income.
    shuffled = Microdata.from_frame(frame.sample(frac=1, random_state=1).reset_index(drop=True))
    for table in (shuffled, shuffled.tabulated):
        found = {x.variable: x.group for x in identifying_variables(table)}
        assert list(found) == ["h", "number", "interviewer_id", "PSU", "int_no", "unique"]
        assert found["number"] is None


def test_values_that_one_record_has():
    frame = pd.DataFrame({"x": [1, 1, 2, 3], "y": ["a", "a", "b", None]})
    table = Microdata.from_frame(frame)
    alone = values_of_one(table)
    assert alone == {"x": {"2", "3"}, "y": {"b"}}
    made = pd.DataFrame({"x": [2.0, 2.0, 1.0, 4.0], "y": ["a", "b", "a", "a"]})
    assert share_of_values(made, "x", alone["x"]) == 0.5
    assert share_of_values(made, "y", alone["y"]) == 0.25
    assert share_of_values(table.tabulated, "x", alone["x"]) == 0.5
    assert share_of_values(table, "y", alone["y"]) == pytest.approx(1 / 3)
    assert share_of_values(made, "x", ()) == 0
