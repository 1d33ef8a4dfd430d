"""One value in several spellings, and ranges that became dates."""

import datetime

import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.bins import in_bins
from bnp_models.data.recoding import Merged
from bnp_models.data.schema import MicrodataError
from bnp_models.data.spelling import are_dates, one_spelling, ranges_of_dates, several_spellings


@pytest.mark.parametrize(
    "same",
    [
        ("Qu\u00e9bec", "Que\u0301bec"), ("M", "M\u200b"), ("no answer", "no\u00a0answer"),
        ("01", "1"), ("1", "1.0"), (1, "1.0"), ("007", "7.00"), ("F", "f"), (" F", "F"),
        ("5\u20139", "5-9"), ("\ufeffa", "a"), ("\uff26", "F"), ("d\u2019Or", "d'Or"),
        ("65+", "65 and over"), ("15-24", "15 to 24"), ("under 5", "<5"), ("5-9 years", "5 to 9 y"),
        ("Qu\u00c3\u00a9bec", "Qu\u00e9bec"), ("\u00c2\u00a3 zone", "\u00a3 zone"),
    ],
)  # fmt: skip
def test_one_value(same):
    assert several_spellings([*same, "other"]) == [list(same)]


@pytest.mark.parametrize(
    "labels",
    [
        ("1", "10"), ("1", "1.5"), ("m2", "m²"), ("a-b", "ab"), ("1-2 days", "1-2 hours"),
        ("65+", "65"), ("15-24", "15-25"), ("<5", "5 or less"), ("5 kg", "5"),
    ],
)  # fmt: skip
def test_two_values(labels):
    assert several_spellings(labels) == []


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["1983-05-12", "1983-12-05 10:30:00"], True),
        (["12.05.1983", "5.12.2001"], True),
        (["5/31/1983", "12/1/2001"], True),
        ([datetime.date(1983, 5, 12), pd.Timestamp(2001, 1, 1)], True),
        (["19830512", 20011231], True),
        (["198305", "200112"], True),
        (["1983", "2001"], False),
        (["19831305", "20011232"], False),
        (["198313", "200100"], False),
        (["18501", "18999"], False),
        (["1983-05-12"], False),
        (["15-24", "25-34"], False),
    ],
)
def test_dates(labels, expected):
    assert are_dates(labels) == expected


def test_the_best_spelling():
    assert one_spelling({"1": 50, "01": 1, "1.0": 70}) == {"1": "01", "1.0": "01"}
    assert one_spelling({"M\u200b": 50, "M": 1}) == {"M\u200b": "M"}
    assert one_spelling({"Paris": 2, "PARIS": 9}) == {"Paris": "PARIS"}
    assert one_spelling({"1.0": 3, "2": 1}, declared=["01", "2"]) == {"1.0": "01"}
    assert one_spelling({"0123": 1, "456": 2}) == {}


def test_files_are_normalised_and_it_is_said(tmp_path, caplog):
    path = tmp_path / "s.csv"
    frame = pd.DataFrame({"sex": ["M\u200b", "M", "F"], "prov": ["01", "1", "02"]})
    frame.to_csv(path, index=False)
    table = bnp.read_microdata(path, reading=bnp.io.Reading(normalise=True))
    assert table.schema.levels == (("F", "M"), ("01", "02"))
    assert table.codes[:, 1].tolist() == [0, 0, 1]
    assert r"'M\u200b' is 'M' (1 record)" in caplog.text and "'1' is '01'" in caplog.text
    assert bnp.read_microdata(path).schema.num_levels == (3, 3)


def test_files_are_normalised_like_the_declared_levels(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("prov\n1.0\n2\n")
    levels = {"prov": ["01", "02"]}
    with pytest.raises(MicrodataError, match="if it is another spelling of '01', say --normalise"):
        bnp.read_microdata(path, levels=levels)
    table = bnp.read_microdata(path, levels=levels, reading=bnp.io.Reading(normalise=True))
    assert table.to_frame()["prov"].tolist() == ["01", "02"]


def test_files_are_normalised_like_levels_that_were_merged(tmp_path):
    path = tmp_path / "made.csv"
    path.write_text("prov,edu\n1,1.0\n2,2.0\n10,3.0\nother,1.0\n")
    frame = pd.DataFrame({"prov": ["01", "02", "10", "01"], "edu": ["1", "2", "3", "4"]})
    original = bnp.Microdata.from_frame(frame)
    recoding = {
        "prov": Merged.of("prov", ["01", "02", "10"], [0, 1, 1], ["01", "other"]),
        "edu": Merged.of("edu", ["1", "2", "3", "4"], [0, 0, 1, 1], ["1 to 2", "3 to 4"]),
    }
    table = in_bins(original, recoding)
    made = bnp.io.read_like(path, table, recoding, bnp.io.Reading(normalise=True))
    assert made.schema == table.schema
    assert made.to_frame()["prov"].tolist() == ["01", "other", "other", "other"]
    assert made.to_frame()["edu"].tolist() == ["1 to 2", "1 to 2", "3 to 4", "1 to 2"]
    with pytest.raises(MicrodataError, match="'1' .* if it is another spelling of '01', say"):
        bnp.io.read_like(path, table, recoding)
    path.write_text("prov,edu\n*,1\n01,1\n")
    with pytest.raises(MicrodataError, match=r"if it stands for .* say --missing '\*'"):
        bnp.io.read_like(path, table, recoding)
    path.write_text("prov\n01\n02\n")
    with pytest.raises(MicrodataError, match=r"has no column 'edu', which .*--drop edu\)"):
        bnp.io.read_like(path, table, recoding)


def test_identifiers_of_households_are_left_alone(tmp_path):
    path = tmp_path / "s.csv"
    frame = pd.DataFrame({"hid": ["01", "1", "01", "1"], "sex": ["F", "f", "M", "F"]})
    frame.to_csv(path, index=False)
    households = bnp.read_households(path, reading=bnp.io.Reading(normalise=True, decimal=","))
    assert len(households) == 2 and households.schema.labels("sex") == ("F", "M")


@pytest.mark.parametrize(
    ("date", "was"),
    [
        ("05-Sep", "5-9"), ("5-Sep", "5-9"), ("9-May", "5-9"), ("Sep-05", "5-9"),
        ("14-Oct", "10-14"), ("Oct-14", "10-14"), ("5. Sep", "5-9"), ("09. Mai", "5-9"),
        ("5-sept", "5-9"), ("2026-09-05", "5-9"), ("2026-09-05 00:00:00", "5-9"),
        (datetime.datetime(2026, 9, 5), "5-9"), (datetime.date(2014, 10, 1), "10-14"),
        ("05/09/2026", "5-9"), ("9/5/26", "5-9"), ("5-Sep-26", "5-9"), ("05.09.2026", "5-9"),
        ("5-juin", "5-6"), ("5. juillet", "5-7"),
    ],
)  # fmt: skip
def test_ranges_that_became_dates(date, was):
    assert ranges_of_dates(["0-4", date, "15-24", "25+"]) == {date: was}


@pytest.mark.parametrize(
    "labels",
    [("05-Sep", "14-Oct"), ("0-4", "5-9"), ("2026-09-05", "2026-09-06", "unknown"), ("May", "1-4"),
     ("1-2-3", "0-4"), ("A-12", "0-4")],
)  # fmt: skip
def test_no_dates_among_ranges(labels):
    assert ranges_of_dates(labels) == {}
