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
            "place": [f"place {i}" for i in rng.integers(0, 250, n)],
            "sex": rng.integers(0, 2, n),
        }
    )
    # Few are alone with their place, and a place is no number.
    frame["place"] = [f"place {i % 130}" for i in range(n)]
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
