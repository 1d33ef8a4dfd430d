"""Design weights of households: the class as a household variable, and weights of persons."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.weight_classes import VARIABLE

FRAME = pd.DataFrame({
    "hid": ["a", "b", "a", "c", "b", "b"], "size": ["2", "3", "2", "1", "3", "3"],
    "region": ["N", "S", "N", "S", "S", "S"],
    "role": ["head", "other", "other", "head", "head", "other"], "sex": [*"fmmfmf"],
})  # fmt: skip
WEIGHTS = np.array([20.0, 30.0, 20.0, 50.0, 30.0, 30.0])


@pytest.fixture(params=[None, ("role", "head")], ids=["no head", "a head"])
def table(request):
    return bnp.Households.from_frame(FRAME, "hid", ["size", "region"], head=request.param)


def test_the_class_is_a_household_variable(table):
    of_households = bnp.data.weights_of_households(table, WEIGHTS)
    assert dict(zip(table.ids, of_households, strict=True)) == {"a": 20, "b": 30, "c": 50}
    weighted = bnp.data.weighted_households(table, of_households)
    schema = weighted.schema
    assert schema.household_variables[:2] == ("region", VARIABLE)
    assert (schema.size_variable, schema.head) == ("size", table.schema.head)
    np.testing.assert_array_equal(weighted.class_codes, [0, 1, 2])
    np.testing.assert_array_equal(weighted.class_weights, [20, 30, 50])
    # The levels of the region come first.
    np.testing.assert_array_equal(weighted.class_rows, [2, 3, 4])
    assert weighted.document()["sum"] == 100
    assert "their sum 100" in repr(weighted)


def test_without_the_class_they_are_the_same_households(table):
    weighted = bnp.data.weighted_households(table, np.array([3.0, 2.0, 2.0]))
    for field in dataclasses.fields(table):
        before, after = (getattr(x, field.name) for x in (table, weighted.households))
        assert np.array_equal(before, after) if field.name != "schema" else before == after
    assert weighted.households.digest == table.digest
    pd.testing.assert_frame_equal(weighted.to_frame(), FRAME)
    other = bnp.data.weighted_households(table, np.array([2.0, 3.0, 4.0]))
    assert len({table.digest, weighted.digest, other.digest}) == 3


def test_many_weights_are_classes_as_of_records():
    rng = np.random.default_rng(0)
    persons = pd.DataFrame({"hid": np.arange(60), "sex": rng.choice(["f", "m"], 60)})
    weights = rng.uniform(1, 100, 60)
    weighted = bnp.data.weighted_households(bnp.Households.from_frame(persons), weights)
    of_records = bnp.weighted_microdata(persons[["sex"]], weights)
    np.testing.assert_array_equal(weighted.class_codes, of_records.codes[:, -1])


def test_what_is_refused(table):
    with pytest.raises(
        bnp.MicrodataError, match=r"row 4, column 'w': .* 31, but 30 in row 1 .*'b'"
    ):
        bnp.data.weights_of_households(table, np.where(np.arange(6) == 4, 31, WEIGHTS), "w")
    with pytest.raises(bnp.MicrodataError, match="not a positive number"):
        bnp.data.weights_of_households(table, np.where(np.arange(6) == 4, 0, WEIGHTS))
    with pytest.raises(ValueError, match=r"expected \(6,\)"):
        bnp.data.weights_of_households(table, WEIGHTS[:3])
    with pytest.raises(ValueError, match=r"expected \(3,\)"):
        bnp.data.weighted_households(table, WEIGHTS)
    light = bnp.data.weighted_households(table, np.array([2.0, 0.5, 3.0]))
    # The first person of the second household.
    with pytest.raises(bnp.MicrodataError, match="row 1: the weight 0.5 is below 1"):
        light.require_counts()
