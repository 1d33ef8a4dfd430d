"""Cells with design weights, and weights that are refused."""

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def records():
    """Four variables with many frequent and some rare combinations."""
    rng = np.random.default_rng(0)
    codes = np.minimum(rng.geometric(0.6, (600, 4)) - 1, (2, 3, 1, 2))
    levels = tuple(tuple(range(size)) for size in (3, 4, 2, 3))
    return bnp.Microdata(bnp.Schema(tuple("abcd"), levels), codes)


def test_weighted_cells(records):
    weights = np.random.default_rng(2).uniform(1, 30, 600)
    cells = bnp.weighted_cells(records, 9000, weights)
    np.testing.assert_allclose(cells.weight.sum(), weights.sum())
    f, phat, number, pair = cells.distinct
    np.testing.assert_allclose(f[pair], cells.f)
    np.testing.assert_allclose(phat[pair], cells.phat)
    assert number.sum() == len(cells.f) and cells.num_cells == 72
    assert bnp.weighted_cells(records, 9000).pooled_phat == pytest.approx(600 / 9000)
    assert bnp.weighted_cells(records, 9000).warnings() == []
    assert "weights add up to" in bnp.weighted_cells(records, 90_000, weights).warnings()[0]


def test_bad_weights_are_refused(records, tmp_path):
    good = np.full(600, 5.0)
    for value in (np.nan, 0.0, -1.0, np.inf):
        bad = good.copy()
        bad[7] = value
        with pytest.raises(bnp.MicrodataError, match="row 7"):
            bnp.weighted_cells(records, 6000, bad)
    alone = records.cells()
    row = int(alone.sample_uniques[0])
    bad = good.copy()
    bad[row] = 0.5
    with pytest.raises(bnp.MicrodataError, match=f"row {row}: the weights of this record's cell"):
        bnp.weighted_cells(records, 6000, bad)
    with pytest.raises(bnp.MicrodataError, match="fewer than"):
        bnp.weighted_cells(records, 6000, num_cells=5)
    with pytest.raises(ValueError, match="expected"):
        bnp.weighted_cells(records, 6000, good[:5])
    path = tmp_path / "s.csv"
    pd.DataFrame({"x": list("ab"), "w": ["1", "many"]}).to_csv(path, index=False)
    with pytest.raises(bnp.MicrodataError, match=r"row 1 \(line 3\), column 'w': 'many'"):
        bnp.read_weights(path, "w")
    with pytest.raises(bnp.MicrodataError, match="unknown column"):
        bnp.read_weights(path, "v")
    for missing in (pd.NA, np.nan):
        column = pd.array([1, missing], dtype="Int64" if missing is pd.NA else "float64")
        pd.DataFrame({"w": column}).to_parquet(tmp_path / "s.parquet")
        with pytest.raises(bnp.MicrodataError, match="row 1, column 'w': the cell is empty"):
            bnp.read_weights(tmp_path / "s.parquet", "w")


def test_a_population_is_at_least_the_sample(records):
    bnp.data.check_population_size(records, 600)
    with pytest.raises(bnp.MicrodataError, match="599 is smaller than the sample's 600 records"):
        bnp.data.check_population_size(records, 599)


@pytest.mark.parametrize("size", [2**53 + 1, 10**400, float("nan"), float("inf")])
def test_a_population_is_at_most_what_float64_counts(records, size):
    bnp.data.check_population_size(records, 2**53)
    with pytest.raises(bnp.MicrodataError, match="is not a number of persons up to 2\\^53"):
        bnp.data.check_population_size(records, size)
