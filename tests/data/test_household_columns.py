"""Variables of persons that are about their households."""

import numpy as np
import pandas as pd
import pytest

from bnp_models.data.household_columns import (
    household_columns,
    households_by_size,
    households_of_column,
)
from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata


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


def test_columns_that_group_persons_of_households(persons):
    """By a usual name in any order; by any name if persons follow each other and share a value."""
    in_order = persons.sort_values("hid", kind="stable").reset_index(drop=True)
    keys = ["tenure", "rel", "sex"]
    for frame, name, found in (
        (persons, "hid", True), (persons, "unit", False), (in_order, "unit", True),
        (in_order, "sex", False),
    ):  # fmt: skip
        values = frame["hid" if name in ("hid", "unit") else name]
        grouping = households_of_column(name, values, Microdata.from_frame(frame[keys]))
        assert (grouping is not None) == found
        if grouping is not None:
            assert grouping == (60, 2.5, ["tenure"])
    # No value of a variable is shared by the members.
    of_sex = Microdata.from_frame(in_order[["sex"]])
    assert households_of_column("unit", in_order["hid"], of_sex) is None
    assert households_of_column("hid", np.arange(len(persons)), of_sex) is None


def test_a_sorted_file_of_persons_has_no_households():
    """Sorted by date of birth: some share a day, and all who share it are of one age."""
    rng = np.random.default_rng(0)
    born = np.sort(rng.integers(0, 1500, 3000))
    frame = pd.DataFrame({"age": born // 50, "sex": rng.integers(2, size=3000)})
    table = Microdata.from_frame(frame)
    assert households_of_column("born", born, table) is None
    assert households_by_size(table) is None


def test_households_without_a_column_of_their_own(persons):
    in_order = persons.sort_values("hid", kind="stable").reset_index(drop=True)
    table = Microdata.from_frame(in_order[["size", "tenure", "rel", "sex"]])
    assert households_by_size(table) == ("size", (60, 2.5, ["size", "tenure"]))
    shuffled = Microdata.from_frame(persons[["size", "tenure", "rel", "sex"]])
    assert households_by_size(shuffled) is None
    missing = in_order.astype({"size": object})
    missing.loc[3, "size"] = None
    assert households_by_size(Microdata.from_frame(missing[["size", "tenure"]])) is None
