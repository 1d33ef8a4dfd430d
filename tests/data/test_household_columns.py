"""Variables of persons that are about their households."""

import numpy as np
import pandas as pd
import pytest

from bnp_models.data.household_columns import household_columns
from bnp_models.data.households import Households


@pytest.fixture(scope="module")
def persons():
    """Sixty households of one to four, in no order, with what is told of each."""
    rng = np.random.default_rng(0)
    rows = [
        (h, k + 1, 1 + h % 4, h % 2, 1 if k == 0 else rng.integers(2, 4), rng.integers(2))
        for h in range(60)
        for k in range(1 + h % 4)
    ]
    names = ["hid", "person", "size", "tenure", "rel", "sex"]
    return pd.DataFrame(rows, columns=names).sample(frac=1, random_state=0)


def test_columns_of_households(persons):
    found = household_columns(Households.from_frame(persons, "hid"))
    assert found == (["size"], ["person"], ["tenure"], [("rel", 1)])
    named = Households.from_frame(persons, "hid", household_variables=["tenure", "size"])
    assert household_columns(named) == ([], ["person"], [], [("rel", 1)])


def test_one_exception_is_enough(persons):
    changed = persons.reset_index(drop=True)
    last = changed.index[changed["size"] == 4][-1]
    changed.loc[last, ["size", "tenure", "rel"]] = [9, 2, 1]
    changed = changed[["hid", "size", "tenure", "rel"]]
    assert household_columns(Households.from_frame(changed, "hid")) == ([], [], [], [])
    few = persons[persons.hid < 19]
    assert household_columns(Households.from_frame(few, "hid")) == ([], [], [], [])
