"""Columns that say what a row stands for."""

import pandas as pd
import pytest

from bnp_models.data.design_columns import count_variable, named_as_weights, weight_variables
from bnp_models.data.microdata import Microdata

WEIGHTS = (
    "w", "wt", "Weight", "pweight", "final_wt", "finalwt", "designWeight", "hh_weight", "PERWT",
    "W_FSTUWT", "W_FSTURWT80", "repw1", "repwt12", "brr_w_3", "Gewicht", "RB050",
)  # fmt: skip
OTHERS = ("birth_weight", "bodyweight", "weight_kg", "wt_class", "growth", "income_w", "w1", "web")


@pytest.mark.parametrize("name", WEIGHTS + OTHERS)
def test_names_of_weights(name):
    assert named_as_weights(name) == (name in WEIGHTS)


def test_weights_are_several_numbers():
    frame = pd.DataFrame({"w": [1.5, 2.5, 3], "wt": ["a", "b", "c"], "weight": [1, 1, 1]})
    assert weight_variables(Microdata.from_frame(frame)) == ["w"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "Freq"),
        ({"Freq": [0, 1, 3, 2]}, None),
        ({"Freq": [1, 1, 1, 1]}, None),
        ({"Freq": [2, 1, None, 3]}, None),
        ({"Freq": [2.5, 1, 3, 2]}, None),
        ({"sex": ["F"] * 4}, None),
        # Neither in groups nor sorted, as records of a survey are.
        ({"age": list("abab"), "sex": list("FMMF")}, None),
        ({"age": list("abab"), "sex": list("FMMF"), "Freq": [3, 2, 2, 1]}, "Freq"),
    ],
)
def test_tables_of_counts(change, expected):
    counts = {"age": ["a", "a", "b", "b"], "sex": ["F", "M"] * 2, "Freq": [2, 1, 3, 2], **change}
    assert count_variable(Microdata.from_frame(pd.DataFrame(counts))) == expected
    renamed = pd.DataFrame(counts).rename(columns={"Freq": "rooms"})
    assert count_variable(Microdata.from_frame(renamed)) is None
