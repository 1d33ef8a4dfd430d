"""Shares of households against pandas."""

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.rules import Rules, at_least, exactly, person


def test_shares_of_households():
    rng = np.random.default_rng(4)
    schema = None
    tables = []
    for children in (0.5, 0.55, 0.45, 0.2):
        rows = []
        for i in range(300):
            rows.append((i, "head", "own" if i % 3 else "rent"))
            rows += [(i, "child", "own" if i % 3 else "rent")] * int(rng.random() < children)
        frame = pd.DataFrame(rows, columns=["hid", "relate", "tenure"])
        levels = None if schema is None else schema.table
        table = bnp.Households.from_frame(frame, "hid", ["tenure"], levels=levels)
        schema = schema or table.schema
        tables.append((table, frame))
    (original, frame), *made = tables
    child = person(relate="child")
    quantities = Rules([at_least(1, child), exactly(1, person(relate="head")).named("one head")])
    shares = bnp.evaluation.household_shares(quantities, original, [table for table, _ in made[:2]],
                                 population=made[2][0])  # fmt: skip
    expected = [(f["relate"] == "child").groupby(f["hid"]).any().mean() for _, f in tables]
    assert shares.original == pytest.approx([expected[0], 1])
    assert shares.synthetic == pytest.approx([np.mean(expected[1:3]), 1])
    assert shares.population == pytest.approx([expected[3], 1])
    assert shares.names == ("at least 1 person with relate 'child'", "one head") or shares.names[1]
    assert shares.overlap[1] == 1 and 0 < shares.overlap[0] < 1
    low, high = shares.interval
    assert low[0] < shares.synthetic[0] < high[0]
    bad = bnp.evaluation.household_shares(quantities, original, [made[2][0]] * 2)
    assert bad.overlap[0] == 0
