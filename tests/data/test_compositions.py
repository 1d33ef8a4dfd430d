"""Compositions of households, by hand."""

import numpy as np
import pandas as pd

from bnp_models.data.compositions import composition_rows, compositions_of
from bnp_models.data.households import Households

ROWS = [
    ("a", "own", "head", 1), ("a", "own", "child", 2), ("a", "own", "child", 2),
    ("b", "own", "child", 2), ("b", "own", "head", 1), ("b", "own", "child", 2),
    ("c", "own", "head", 2), ("c", "own", "child", 1), ("c", "own", "child", 2),
    ("d", "rent", "head", 1),
    ("e", "own", "child", 2), ("e", "own", "child", 1), ("e", "own", "head", 2),
    ("f", "own", "head", 1), ("f", "own", "child", 2),
]  # fmt: skip
FRAME = pd.DataFrame(ROWS, columns=["hid", "home", "role", "age"])


def orders(found):
    return np.exp(found.log_orders).round(9)[found.of_household].tolist()


def test_members_are_in_no_order():
    found = compositions_of(Households.from_frame(FRAME, "hid", ["home"]))
    of = found.of_household
    assert of[0] == of[1] and of[2] == of[4] and len({*of}) == 4
    assert found.counts[of].tolist() == [2, 2, 2, 1, 2, 1]
    # a and b: 3! / 2!, c and e: 3!, d: 1, f: 2!.
    assert orders(found) == [3, 3, 6, 1, 6, 2]


def test_the_head_has_its_own_place():
    table = Households.from_frame(FRAME, "hid", ["home"], head=("role", "head"))
    found = compositions_of(table)
    # Besides the head: a and b have two equal children, c and e two of different ages.
    assert orders(found) == [1, 1, 2, 1, 2, 1]
    assert found.counts[found.of_household].tolist() == [2, 2, 2, 1, 2, 1]


def test_rows_of_several_tables_can_be_compared():
    table = Households.from_frame(FRAME, "hid", ["home"])
    rows = composition_rows(table)
    assert np.array_equal(composition_rows(table.select(np.array([4, 3, 0]))), rows[[4, 3, 0]])
    assert len(np.unique(rows, axis=0)) == 4
