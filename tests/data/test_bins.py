"""Bins of numeric columns: what they hold, what is drawn of them, and what they do not tell."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.bin_values import BinValues, Rounded
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


def drawn(bins, number=20_000, seed=2, code=0):
    """Values of one bin, many times."""
    return bins.draw(np.random.default_rng(seed), np.full(number, code)).to_numpy(float)


def assert_equally_often(x, grid):
    """By the chi-squared statistic, which has a mean of one less than the values."""
    assert set(x) == set(grid)
    counts = np.array([(x == value).sum() for value in grid])
    expected = len(x) / len(grid)
    assert ((counts - expected) ** 2 / expected).sum() < 3 * len(grid)


def test_values_of_many_records_are_drawn_as_often_as_they_have_them():
    counts = np.arange(10, 210, 10)
    bins = bnp.data.Bins.choose("x", list(range(0, 100, 5)), counts, 1)
    x, share = drawn(bins), counts / counts.sum()
    kept = (np.arange(0, 100, 5) >= bins.low[0]) & (np.arange(0, 100, 5) <= bins.high[0])
    assert kept.all()
    found = np.array([(x == value).mean() for value in range(0, 100, 5)])
    assert (np.abs(found - share) < 5 * np.sqrt(share / len(x))).all()


def test_values_of_few_records_are_drawn_like_others_that_are_as_round():
    """Which they are does not matter, only how many are multiples of 1, 5 and 10."""
    few, others = [103, 117, 124, 126, 131, 135, 140, 150], [102, 108, 119, 133, 142, 125, 120, 130]
    for values in (few, others):
        ends = (Fraction(100), Fraction(159), Fraction(1))
        made = BinValues.of(ends, [*map(Fraction, values)], np.ones(8, int), np.ones(8, int))
        # Multiples of 50 are two, and those of 10 without them four, too few: they are joined.
        assert made.rounded == (Rounded(10, None, 2), Rounded(5, 10, 1), Rounded(1, 5, 5))
        x = 100 + made.draw(np.random.default_rng(0), 40_000)
        for every, but, share in ((10, 1000, 2 / 8), (5, 10, 1 / 8), (1, 5, 5 / 8)):
            ours = x[(x % every == 0) & (x % but != 0)]
            assert abs(len(ours) / len(x) - share) < 5 * np.sqrt(share / len(x))
            grid = [v for v in range(100, 160) if v % every == 0 and v % but != 0]
            assert_equally_often(ours, grid)


def test_roundness_is_that_of_values_in_units_and_each_record_counts():
    """Five multiples of ten are enough, in units of one and of ten; they have seven records."""
    for unit in (1, 10):
        ends = (Fraction(100 * unit), Fraction(149 * unit), Fraction(unit))
        values = [unit * Fraction(x) for x in (110, 120, 117)]
        counts = np.array([4, 3, 2])
        made = BinValues.of(ends, values, counts, np.minimum(counts, 1))
        assert made.first == 100
        assert made.rounded == (Rounded(10, None, 7), Rounded(1, 5, 2))
    # A multiple of a hundred, with the next ones below it, and no multiple of ten besides.
    values, ends = [*map(Fraction, (100, 350, 355))], (Fraction(90), Fraction(400), Fraction(1))
    made = BinValues.of(ends, values, np.ones(3, int), np.ones(3, int))
    assert made.rounded == (Rounded(50, None, 2), Rounded(5, 10, 1))
    # Four multiples of five are none of ten: they are joined to others that are none of ten.
    values, ends = [*map(Fraction, (110, 105, 117))], (Fraction(100), Fraction(140), Fraction(1))
    made = BinValues.of(ends, values, np.ones(3, int), np.ones(3, int))
    assert made.rounded == (Rounded(10, None, 1), Rounded(1, 10, 2))


def test_heaping_is_kept_and_values_of_one_record_are_not():
    """Incomes of which 83% are multiples of 50, as those of a survey are."""
    rng = np.random.default_rng(5)
    income = rng.lognormal(7.2, 0.6, 4000)
    every = rng.choice([1, 10, 50, 100, 500, 1000], 4000, p=[0.07, 0.1, 0.13, 0.4, 0.2, 0.1])
    income = (np.round(income / every) * every).astype(int)
    table, bins = bnp.bin_columns(pd.DataFrame({"income": income}), {"income": 20})
    files = [
        bnp.data.draw_in_bins(np.random.default_rng(m), table.to_frame(), bins)["income"].to_numpy()
        for m in range(20)
    ]
    for every in (10, 50, 100, 500, 1000):
        share = (income % every == 0).mean()
        found = np.mean([(x % every == 0).mean() for x in files])
        # Values of fewer than five records in a bin may be joined to less round ones.
        assert abs(found - share) < 0.012, (every, share, found)
    values, counts = np.unique(income, return_counts=True)
    alone = values[counts == 1]
    assert len(alone) > 200
    # A bootstrap of a bin's values copies each with a probability of 63%.
    assert np.mean([np.isin(alone, x) for x in files]) < 0.3
    assert np.mean([np.isin(x, alone) for x in files]) < 0.4 * len(alone) / len(income)


def test_no_value_of_few_records_is_more_probable_than_four_others():
    """The exact law of every bin, of incomes and of ages, some of one record."""
    rng = np.random.default_rng(6)
    incomes = np.round(rng.lognormal(7.2, 0.6, 3000) / 50).astype(int) * 50
    incomes[:600] += rng.integers(50, size=600)
    for x, number in ((incomes, 20), (rng.poisson(rng.uniform(2, 60, 800)), 12)):
        values, counts = np.unique(x, return_counts=True)
        bins = bnp.data.Bins.choose("x", values.tolist(), counts, number)
        held = dict(zip(values.tolist(), counts.tolist(), strict=True))
        for low, within in zip(bins.low, bins.within, strict=True):
            assert all(held[int(low) + k] >= 5 for k in within.shared)
            if within.steps == 0:
                continue
            law = dict.fromkeys(range(within.steps + 1), 0.0)
            for one in within.rounded:
                every = [
                    k for k in law if (low + k) % one.every == 0
                    and not (one.but and (low + k) % one.but == 0) and k not in within.shared
                ]  # fmt: skip
                assert len(every) >= 5
                for k in every:
                    law[k] += one.records / len(every)
            total = sum(law.values()) + within.records.sum()
            if not total:
                continue
            found = np.bincount(within.draw(rng, 20_000), minlength=within.steps + 1) / 20_000
            for k, share in law.items():
                share += within.records[within.shared == k].sum()
                share /= total
                assert abs(found[k] - share) < 5 * np.sqrt(max(share, 1e-4) / 20_000), (low, k)


def test_a_value_that_nobody_could_be_mistaken_for_is_not_drawn():
    """Of 41 years are two records, and the other ages of the bin are shared: it would be told."""
    counts = np.array([20, 2, 30, 25])
    bins = bnp.data.Bins.choose("age", [40, 41, 42, 43], counts, 1)
    assert set(drawn(bins)) == {40, 42, 43}
    # Where no value is shared, each is as probable.
    bins = bnp.data.Bins.choose("age", [40, 41, 43], np.array([4, 4, 4]), 1)
    assert_equally_often(drawn(bins), range(int(bins.low[0]), int(bins.high[0]) + 1))


def test_a_rent_of_one_household_is_not_shared():
    """Six persons pay 503, all of one household, and six pay 498, of six households."""
    rent = np.array([503] * 6 + [498] * 6 + list(range(400, 700, 10)) * 2)
    homes = np.r_[np.zeros(6, int), np.arange(1, 67)]
    frame = pd.DataFrame({"rent": rent})
    _, bins = bnp.bin_columns(frame, {"rent": 2}, homes)
    shared = [
        low + k for low, one in zip(bins["rent"].low, bins["rent"].within, strict=True)
        for k in one.shared
    ]  # fmt: skip
    assert 498 in shared and 503 not in shared
    _, alone = bnp.bin_columns(frame, {"rent": 2})
    assert any(503 - low in one.shared for low, one in
               zip(alone["rent"].low, alone["rent"].within, strict=True))  # fmt: skip


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
    # A quarter below the bin's end, whose places any value takes, and the three that are shared.
    assert drawn[~drawn.isin(values)].nunique() > 20
    assert abs(drawn.mean() - (1.5e16 + 6e16) / 4) < 5 * 1e16 / np.sqrt(2000)
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
