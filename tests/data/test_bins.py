"""Bins of numeric columns: what they hold, what is drawn of them, and what they do not tell."""

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.label_numbers import OwnLevel


def incomes(rng, n=2000):
    """Incomes in tens, a tenth of them zero, and a label that is no number."""
    x = 10 * np.round(rng.lognormal(7.5, 1, n)).astype(int)
    x[rng.random(n) < 0.1] = 0
    x[:3] = [10**7, 2 * 10**7 + 10, -50_000]
    labels = x.astype(str).astype(object)
    labels[rng.random(n) < 0.05] = "N"
    return pd.DataFrame({"income": labels, "sex": rng.choice(["f", "m"], n)})


@pytest.fixture(scope="module")
def binned():
    frame = incomes(np.random.default_rng(0))
    table, bins = bnp.bin_columns(bnp.Microdata.from_frame(frame), {"income": 20})
    return frame, table, bins["income"]


def test_bins_hold_about_as_many_records_each(binned):
    frame, table, bins = binned
    counts = np.bincount(table.codes[:, 0], minlength=len(bins.labels))
    assert bins.labels[:1] == ("N",) and counts[0] == (frame["income"] == "N").sum()
    zero = bins.labels.index("0")
    # The only loss is with those who have nothing: it has no bin of its own.
    assert counts[zero] == (frame["income"] == "0").sum() + 1
    numbers = counts[1:].sum()
    others = np.delete(counts, [0, zero])
    assert len(others) <= 21 and others.max() < 1.6 * numbers / 20
    assert (others >= 5).all()
    assert np.isnan(bins.low[0]) and (np.diff(bins.low[1:]) > 0).all()
    assert (bins.high[1:-1] < bins.low[2:]).all()


def test_values_are_drawn_in_their_bins(binned):
    frame, table, bins = binned
    rng = np.random.default_rng(1)
    made = bnp.data.draw_in_bins(rng, table.to_frame(), {"income": bins})
    assert list(made.columns) == ["income", "sex"] and (made["sex"] == frame["sex"]).all()
    assert ((made["income"] == "N") == (frame["income"] == "N")).all()
    assert ((made["income"] == "0") == frame["income"].isin(["0", "-50000"])).all()
    again = bnp.data.in_bins(bnp.Microdata.from_frame(made), {"income": bins})
    np.testing.assert_array_equal(again.codes[:, 0], table.codes[:, 0])
    x = pd.to_numeric(made["income"], errors="coerce").dropna()
    assert (x % 10 == 0).all()
    # Two incomes and a loss stand out; they are drawn inside.
    assert x.max() < 10**6 and x.min() > -50_000
    copied = set(made["income"]) & set(frame["income"]) - {"N", "0"}
    assert len(copied) < frame["income"].nunique()


def test_draws_are_uniform_on_the_grid_of_a_bin():
    bins = bnp.data.Bins.choose("x", list(range(0, 100, 5)), np.full(20, 50), 2)
    low, high, unit = bins.low[0], bins.high[0], bins.unit[0]
    rng = np.random.default_rng(2)
    x = bins.draw(rng, np.zeros(20_000, int)).to_numpy()
    grid = np.arange(low, high + 1, unit)
    assert set(x) == set(grid)
    counts = np.array([(x == value).sum() for value in grid])
    expected = len(x) / len(grid)
    assert ((counts - expected) ** 2 / expected).sum() < 3 * len(grid)


def test_ends_do_not_tell_single_values():
    """The outermost ends are the fifth values; the planted bins of plain quantiles would tell."""
    values = [*range(1000, 2000), 123_456]
    bins = bnp.data.Bins.choose("x", values, np.ones(len(values), int), 10)
    assert bins.high[-1] < 2000 and bins.low[0] >= 1004
    assert not any("123456" in str(label) for label in bins.labels)


def test_labels_and_missing_values():
    values = [0.5, 1.25, 2.0, 3.75, 9.0, "unknown"]
    counts = np.array([20, 20, 20, 20, 20, 5])
    bins = bnp.data.Bins.choose("x", values, counts, 2)
    assert bins.labels[0] == "unknown" and 2 in bins.low
    codes = bins.code([1.9, 2, 100, -7, "unknown"])
    assert list(codes[:2]) != [codes[1]] * 2 and codes[4] == 0
    assert codes[2] == len(bins.labels) - 1 and codes[3] == 1
    drawn = bins.draw(np.random.default_rng(0), np.array([-1, 0, 1]))
    assert drawn[0] is None and drawn[1] == "unknown"
    with pytest.raises(bnp.MicrodataError, match="column 'x'.*is neither a number"):
        bins.code(["other"])


def test_what_stays_beside_the_bins():
    values = [*map(str, range(10, 90)), "90+", "under 10", "none", OwnLevel("9999")]
    bins = bnp.data.Bins.choose("x", values, np.full(len(values), 5), 2)
    assert bins.labels == ("under 10", "none", "9999", "10 to 49", "50 to 89", "90+")
    assert bins.code(["90+", "89", "10", "none", "3"]).tolist() == [5, 4, 3, 1, 3]
    drawn = bins.draw(np.random.default_rng(0), np.arange(6))
    assert drawn[[0, 1, 2, 5]].tolist() == ["under 10", "none", "9999", "90+"]
    for label, said in (
        ("20-30", "'20-30' is not a single number"), ("12,5", "cannot be read"), ("99 €", "a unit"),
    ):  # fmt: skip
        with pytest.raises(bnp.MicrodataError, match=said):
            bnp.data.Bins.choose("x", ["1", "25", "60", label], np.full(4, 5), 2)


def test_few_records_between_bins_join_the_one_that_is_no_single_value():
    """Of 100 records, twenty a bin: 3 has two, and 4 enough for a bin of its own."""
    bins = bnp.data.Bins.choose("x", [1, 2, 3, 4, 5], np.array([12, 9, 2, 50, 27]), 5)
    assert bins.labels == ("1 to 3", 4, 5)
    assert bins.code([1, 2, 3, 4, 5]).tolist() == [0, 0, 0, 1, 2]
    # The next one, where that is none and where there is no other.
    bins = bnp.data.Bins.choose("x", [1, 2, 3, 4, 5, 6], np.full(6, 2), 4)
    assert bins.code([1, 2, 3, 4, 5, 6]).tolist() == [0, 0, 0, 1, 1, 1]
    bins = bnp.data.Bins.choose("x", [1, 2, 3], np.array([2, 50, 48]), 5)
    assert bins.code([1, 2, 3]).tolist() == [0, 0, 1]


def test_values_of_a_very_wide_bin_can_be_counted():
    """From a half to 3e16 in hundreds: in tenths or tens they would be more than 10^15."""
    values = [0.5, 1e16, 2e16, 3e16]
    bins = bnp.data.Bins.choose("x", values, np.full(4, 10), 1)
    assert (bins.low[0], bins.high[0], bins.unit[0]) == (100, 3e16, 100)
    drawn = bins.draw(np.random.default_rng(0), np.zeros(2000, int))
    assert drawn.between(100, 3e16).all()
    # All with one probability: a variance of the width squared over 12.
    assert abs(drawn.mean() - 1.5e16) < 5 * 3e16 / np.sqrt(12 * 2000)
    narrow = bnp.data.Bins.choose("x", [0.5, 1.0, 99_999_999_999.0], np.full(3, 10), 1)
    assert narrow.unit[0] == 0.1


def test_columns_without_numbers_are_refused():
    table = bnp.Microdata.from_frame(pd.DataFrame({"a": ["x", "y"], "b": ["1", "2"]}))
    with pytest.raises(bnp.MicrodataError, match="column 'a'.*fewer than two numbers"):
        bnp.bin_columns(table, {"a": 3})
    with pytest.raises(bnp.MicrodataError, match="unknown variable"):
        bnp.bin_columns(table, {"c": 3})


def test_all_of_a_household_get_one_value():
    rng = np.random.default_rng(0)
    rent = np.repeat(rng.integers(10, 60, 50), 3)
    frame = pd.DataFrame({"hid": np.repeat(np.arange(50), 3), "rent": rent, "age": rent})
    table, bins = bnp.bin_columns(frame[["rent", "age"]], {"rent": 4, "age": 4})
    labels = table.to_frame().assign(hid=frame["hid"])
    made = bnp.data.draw_in_bins(rng, labels, bins, "hid", ["rent"])
    assert (made.groupby("hid")["rent"].nunique() == 1).all() and made["rent"].nunique() > 8
    assert (made.groupby("hid")["age"].nunique() > 1).any()
    # In the bins that they were drawn from.
    again = bnp.data.in_bins(made[["rent", "age"]], bins)
    np.testing.assert_array_equal(again.codes, table.codes)
