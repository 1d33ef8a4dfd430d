"""Classes of design weights: which there are, what they hold, and weights that are refused."""

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.weight_classes import MAX_CLASSES, VARIABLE, records_of, require_unweighted


def records(n=6):
    frame = pd.DataFrame({"x": [i % 3 for i in range(n)], "y": ["a"] * (n - 1) + ["b"]})
    return bnp.Microdata.from_frame(frame)


def test_distinct_weights_are_the_classes():
    weights = np.array([5.0, 2.0, 5.0, 100.0, 2.0, 2.0])
    table = bnp.weighted_microdata(records(), weights)
    assert table.schema.variables == ("x", "y", VARIABLE)
    np.testing.assert_array_equal(table.codes[:, -1], [1, 0, 1, 2, 0, 0])
    np.testing.assert_array_equal(table.class_weights, [2, 5, 100])
    assert table.classes()["records"].tolist() == [3, 2, 1]
    assert table.document()["sum"] == 116
    # Kish: n sum w^2 / (sum w)^2.
    assert table.document()["design_effect"] == pytest.approx(
        6 * (3 * 4 + 2 * 25 + 10_000) / 116**2
    )
    np.testing.assert_array_equal(table.records.codes, records().codes)
    assert table.records.schema == records().schema
    assert records_of(table) is table.records and records_of(table.records) is table.records


def test_many_weights_are_put_into_few_classes_that_keep_the_total():
    weights = np.exp(np.random.default_rng(0).normal(5, 0.6, 2000))
    table = bnp.weighted_microdata(records(2000), weights)
    classes = table.classes()
    assert 8 <= len(classes) <= MAX_CLASSES
    # In order, next to each other, and none so wide that its mean would be no weight of its own.
    assert (classes["least"].to_numpy()[1:] > classes["largest"].to_numpy()[:-1]).all()
    assert (classes["largest"] / classes["least"]).iloc[1:-1].max() < 2
    assert table.class_weights @ classes["records"] == pytest.approx(weights.sum())


def test_classes_are_cut_where_weights_are_apart():
    """Three groups of weights, of which no class has two."""
    rng = np.random.default_rng(1)
    centre = rng.choice([20.0, 150.0, 160.0], 600)
    table = bnp.weighted_microdata(records(600), centre * rng.uniform(0.99, 1.01, 600))
    group = np.searchsorted([100, 155], table.weights)
    found = np.unique(table.codes[:, -1])
    assert len(found) > 3
    assert all(len(np.unique(group[table.codes[:, -1] == k])) == 1 for k in found)


def test_cells_have_shares_by_weight():
    table = bnp.weighted_microdata(records(), np.array([1.0, 2, 3, 4, 5, 5]))
    cells = table.records.tabulated
    shares = {tuple(c): s for c, s in zip(cells.codes.tolist(), table.cell_shares, strict=True)}
    assert shares == pytest.approx({(0, 0): 5 / 20, (1, 0): 7 / 20, (2, 0): 3 / 20, (2, 1): 5 / 20})
    missing = bnp.Microdata(table.records.schema, np.array([[0, -1], [0, -1], [0, 0], [-1, 1]]))
    some = bnp.weighted_microdata(missing, np.array([1.0, 2, 3, 4]))
    # As the cells are ordered: missing values first.
    np.testing.assert_allclose(some.cell_shares, np.array([4, 3, 3]) / 10)


def test_weights_are_part_of_the_digest():
    one, other = (bnp.weighted_microdata(records(), np.arange(1.0, 7) * k) for k in (1, 2))
    np.testing.assert_array_equal(one.codes, other.codes)
    assert one.digest != other.digest


def test_what_is_refused_and_what_is_warned_of():
    with pytest.raises(ValueError, match="shape"):
        bnp.weighted_microdata(records(), np.ones(5))
    for bad in (0, -1, np.nan, np.inf):
        with pytest.raises(bnp.MicrodataError, match="row 2: the weight .* is not a positive"):
            bnp.weighted_microdata(records(), np.array([1, 2, bad, 4, 5, 6]))
    light = bnp.weighted_microdata(records(), np.array([1, 1, 0.8, 4, 5, 6]))
    with pytest.raises(bnp.MicrodataError, match=r"row 2: the weight 0.8 is below 1.*rescale"):
        light.require_counts()
    bnp.weighted_microdata(records(), np.array([1, 1, 1 - 1e-12, 4, 5, 6])).require_counts()
    with pytest.raises(bnp.MicrodataError, match="impute takes no design weights"):
        require_unweighted(light, "impute")
    require_unweighted(records(), "impute")
    assert light.warnings(18) == [] and light.warnings() == []
    assert "the weights add up to 18" in light.warnings(40)[0]
    equal = bnp.weighted_microdata(records(), np.full(6, 2.5))
    assert equal.warnings(15) == ["all design weights are equal, so that they change nothing"]
    (sentence,) = bnp.weighted_microdata(records(41), np.geomspace(1, 1e6, 41)).warnings()
    assert "differ by a factor of up to" in sentence
