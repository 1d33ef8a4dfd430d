"""How numbers are written: told from a column where it is plain, refused where it is not."""

from fractions import Fraction

import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.label_numbers import plain_number
from bnp_models.data.notation import Notation, notation_of
from bnp_models.data.schema import MicrodataError


def told(*texts, **known):
    """Notation of texts, and what they say by it."""
    notation = notation_of(dict.fromkeys(texts, 1), **known)
    return notation, [notation.plain(text) for text in texts]


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        # The column of the report: half of it was read, and 1.200 as 1.2.
        (("980", "1200,5", "1,003", "1.200"), ("980", "1200.5", "1.003", "1200")),
        (("1.349,31", "501,75"), ("1349.31", "501.75")),
        (("1,349.31", "501.75"), ("1349.31", "501.75")),
        (("1,234,567", "12"), ("1234567", "12")),
        (("12,34,567", "12"), ("1234567", "12")),
        (("1 200", "1\u202f300,5", "1\u00a0400"), ("1200", "1300.5", "1400")),
        (("1'200", "1\u2019300.25"), ("1200", "1300.25")),
        (("-1,5", "+2,25", ",5", "0,125"), ("-1.5", "+2.25", ".5", "0.125")),
        (("113.077", "98.5", "1.5e3"), ("113.077", "98.5", "1.5e3")),
        (("1", "25", "unknown"), ("1", "25", "unknown")),
        (("15,000-24,999", "$25,000 or more"), ("15000-24999", "$25000 or more")),
        (("1,5 bis 2,5", "3,5 to 1.200"), ("1.5 bis 2.5", "3.5 to 1200")),
        (("[15,25)", "[25,35)"), ("[15,25)", "[25,35)")),
    ],
)
def test_what_is_plain(texts, numbers):
    assert told(*texts)[1] == list(numbers)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"1.200": 5, "980": 3}, r"5 records .*'1\.200' \(1\.200 or 1200\)"),
        ({"113,077": 300}, r"300 records .*'113,077' \(113077 or 113\.077\)"),
        ({"1,5": 2, "2.5": 1}, r"2 records .*'1,5' and 1 record .*'2\.5'"),
        # One of 301 may be a slip: it does not decide about the others.
        ({"1,003": 300, "12,5": 1}, r"300 records .*1 record .*'12,5'"),
        ({"1.200-2.400": 2}, "cannot be told"),
    ],
)
def test_what_cannot_be_told(counts, said):
    with pytest.raises(MicrodataError, match=said):
        notation_of(counts)


@pytest.mark.parametrize(
    ("known", "number"),
    [
        ({"decimal": ","}, "1.2"), ({"decimal": "."}, "1200"),
        ({"thousands": ","}, "1200"), ({"thousands": "."}, "1.2"),
    ],
)  # fmt: skip
def test_what_is_said(known, number):
    [plain] = told("1,200", **known)[1]
    assert plain_number(plain) == Fraction(number)


def test_what_the_original_tells():
    # Values that are drawn in bins may all have three decimals.
    for otherwise, plain in ((Notation(), "1.200"), (Notation(",", "."), "1200")):
        notation = notation_of({"1.200": 5, "980": 1}, otherwise=otherwise)
        assert notation.plain("1.200") == plain
    assert notation_of({"1,5": 9}, otherwise=Notation()).decimal == ","


def test_other_notations_do_not_fit():
    assert Notation(",", ".").plain("1.5") is None
    assert Notation(".").plain("1,200") is None
    assert Notation().plain("05.09.2026") is None


@pytest.mark.parametrize("marks", [{"decimal": ";"}, {"thousands": "x"},
                                   {"decimal": ",", "thousands": ","}])  # fmt: skip
def test_marks_that_cannot_be(marks):
    with pytest.raises(MicrodataError, match="cannot be"):
        bnp.io.Reading(**marks)


def written(path, column, sep=";"):
    pd.DataFrame({"x": column, "y": ["a", "b"] * (len(column) // 2)}).to_csv(
        path, sep=sep, index=False
    )
    return path


def test_columns_that_are_needed_as_numbers(tmp_path, caplog):
    path = written(tmp_path / "s.csv", ["1.200", "980,5", "unknown", "7"])
    table = bnp.read_microdata(path, reading=bnp.io.Reading(numbers=["x"]))
    assert table.schema.levels[0] == ("7", "980.5", "1200", "unknown")
    assert "column 'x' were read with a decimal comma and points" in caplog.text
    assert "'1.200' is 1200 (2 records)" in caplog.text
    # Nobody asked.
    assert "1.200" in bnp.read_microdata(path).schema.levels[0]


def test_codes_that_are_missing_in_the_notation_of_the_column(tmp_path):
    path = written(tmp_path / "s.csv", ["1,50", "2,50", "9999,00", "2,50"])
    reading = bnp.io.Reading(numbers=["x"], missing=["9999.00"])
    assert bnp.read_microdata(path, reading=reading).schema.levels[0] == ("1.50", "2.50")


def test_options_hold_for_all_columns_of_numbers_and_for_declared_levels(tmp_path):
    path = tmp_path / "s.csv"
    frame = pd.DataFrame({"x": ["1,5", "2,5"], "code": ["A1,5", "B"], "z": ["1.5", "3"]})
    frame.to_csv(path, sep=";", index=False)
    reading = bnp.io.Reading(decimal=",")
    table = bnp.read_microdata(path, levels={"x": ["0,5", "1,5", "2,5"]}, reading=reading)
    assert table.schema.levels == (("0.5", "1.5", "2.5"), ("A1,5", "B"), ("1.5", "3"))
    with pytest.raises(MicrodataError, match=r"s.csv, column 'z': '1.5' \(1 record\) cannot be"):
        bnp.read_microdata(path, reading=bnp.io.Reading(decimal=",", numbers=["z"]))


@pytest.mark.parametrize("sep", [",", ";"])
def test_weights_in_other_notations(tmp_path, sep):
    path = written(tmp_path / "w.csv", ["113,077", "98,5", "1.081,25", "7"], sep)
    assert bnp.read_weights(path, "x").tolist() == [113.077, 98.5, 1081.25, 7]
    path = written(tmp_path / "w.csv", ["113,077", "98,123"], sep)
    with pytest.raises(MicrodataError, match="w.csv, column 'x': how its numbers .* 2 records"):
        bnp.read_weights(path, "x")
    for reading, first in (
        (bnp.io.Reading(decimal=","), 113.077), (bnp.io.Reading(thousands=","), 113077),
    ):  # fmt: skip
        assert bnp.read_weights(path, "x", reading)[0] == first


def test_columns_that_are_no_labels_are_refused_as_such(tmp_path):
    pd.DataFrame({"a": [[1], [2]], "b": ["x", "y"]}).to_parquet(tmp_path / "s.parquet")
    with pytest.raises(MicrodataError, match="not plain labels"):
        bnp.read_microdata(tmp_path / "s.parquet", reading=bnp.io.Reading(normalise=True))
