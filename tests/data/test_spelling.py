"""One value in several spellings, and ranges that became dates."""

import datetime

import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data.schema import MicrodataError
from bnp_models.data.spelling import one_spelling, ranges_of_dates, several_spellings


@pytest.mark.parametrize(
    "same",
    [
        ("Qu\u00e9bec", "Que\u0301bec"), ("M", "M\u200b"), ("no answer", "no\u00a0answer"),
        ("01", "1"), ("1", "1.0"), (1, "1.0"), ("007", "7.00"), ("F", "f"), (" F", "F"),
        ("5\u20139", "5-9"), ("\ufeffa", "a"), ("\uff26", "F"), ("d\u2019Or", "d'Or"),
    ],
)  # fmt: skip
def test_one_value(same):
    assert several_spellings([*same, "other"]) == [list(same)]


@pytest.mark.parametrize("labels", [("1", "10"), ("1", "1.5"), ("m2", "m²"), ("a-b", "ab")])
def test_two_values(labels):
    assert several_spellings(labels) == []


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
