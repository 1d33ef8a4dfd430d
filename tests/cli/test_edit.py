"""Impossible records that ``impute --edit`` corrects."""

import json
import stat

import numpy as np
import pandas as pd
import pytest
from commands import one_line
from pages import Page

from bnp_models.cli import runs
from bnp_models.cli.changes import Changes
from bnp_models.cli.main import main
from bnp_models.data.microdata import Microdata
from bnp_models.data.recoding import Recoding
from bnp_models.data.schema import MicrodataError

SHORT = ["--datasets", "2", "--components", "4", "--chains", "2", "--warmup", "10", "--draws", "10"]


def workers(n=150):
    """Persons, three of whom are impossible; for two of these only one answer is right."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "age": rng.choice(["0-14", "15-64", "65+"], n), "sex": rng.choice(["f", "m", "-"], n),
        "job": rng.choice(["clerk", "cook", "none"], n), "home": rng.choice(["own", "rent"], n),
    })  # fmt: skip
    frame.loc[frame["age"] == "0-14", ["job", "home"]] = ["none", "rent"]
    # The age alone makes two pairs of values possible; the third record has two smallest sets.
    frame.loc[[7, 50]] = ["0-14", "f", "cook", "own"]
    frame.loc[149] = ["0-14", "-", "clerk", "rent"]
    return frame


@pytest.fixture
def folder(tmp_path):
    workers().to_csv(tmp_path / "s.csv", index=False)
    (tmp_path / "z.csv").write_text("age,job,home\n0-14,!none,\n0-14,,own\n")
    return tmp_path


def words(folder, out, *more, sample="s.csv"):
    return ["impute", str(folder / sample), "--conditions", str(folder / "z.csv"), "--missing", "-",
            "--out", str(folder / out), *SHORT, *more]  # fmt: skip


def test_impossible_records_are_corrected(folder, capsys):
    frame, before = workers(), (folder / "s.csv").read_bytes()
    out = folder / "out"
    assert main(words(folder, "out", "--edit")) == 0
    said = capsys.readouterr().out
    assert (folder / "s.csv").read_bytes() == before
    edits = pd.read_csv(out / "edits.csv")
    assert list(edits) == ["row", "variable", "value"]
    assert edits.values.tolist()[:2] == [[7, "age", "0-14"], [50, "age", "0-14"]]
    last = edits.iloc[2].tolist()
    assert len(edits) == 3 and last in ([149, "age", "0-14"], [149, "job", "clerk"])
    assert stat.S_IMODE((out / "edits.csv").stat().st_mode) == 0o600

    number = edits["variable"].value_counts().to_dict()
    assert json.loads((out / "run.json").read_text())["edited"] == {
        "records": 3, "values": 3, "by_variable": number
    }  # fmt: skip
    assert "edited: 3 values of 3 impossible records (age " in said and "edits.csv" in said
    page = (out / "report.html").read_text()
    assert Page(page).open == [] and "Values that were set free" in page
    assert "3 of them were set free, because 3 records of the sample were impossible" in page

    known = (frame != "-").to_numpy()
    known[edits["row"], [frame.columns.get_loc(name) for name in edits["variable"]]] = False
    for m in (1, 2):
        made = pd.read_csv(out / f"imputed_{m}.csv")
        np.testing.assert_array_equal(made.to_numpy()[known], frame.to_numpy()[known])
        assert not (made == "-").any(axis=None) and not made.isna().any(axis=None)
        children = made[made["age"] == "0-14"]
        assert (children["job"] == "none").all() and (children["home"] == "rent").all()

    # The same once more, and a run without the option leaves no file of an earlier one.
    again = folder / "again"
    assert main(words(folder, "again", "--edit", "--quiet")) == 0
    assert (again / "edits.csv").read_bytes() == (out / "edits.csv").read_bytes()
    assert (again / "imputed_2.csv").read_bytes() == (out / "imputed_2.csv").read_bytes()
    frame.drop(index=[7, 50, 149]).to_csv(folder / "good.csv", index=False)
    assert main(words(folder, "again", "--force", "--quiet", sample="good.csv")) == 0
    assert not (again / "edits.csv").exists()
    assert "edited" not in json.loads((again / "run.json").read_text())
    assert "Edited values" not in (again / "report.html").read_text()


def test_no_record_is_impossible(folder, capsys):
    """Inequalities that exclude nothing among the levels of the sample."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({
        "age": rng.choice(["20", "30"], 100), "years": rng.choice(["1", "2", "-"], 100)
    })  # fmt: skip
    frame.to_csv(folder / "s.csv", index=False)
    (folder / "z.csv").write_text("age\n<years\n")
    assert main(words(folder, "out", "--edit")) == 0
    assert "edited: no record is impossible" in capsys.readouterr().out
    assert pd.read_csv(folder / "out" / "edits.csv").empty
    assert (
        "No record of the sample breaks a condition" in (folder / "out" / "report.html").read_text()
    )
    # Nor is a value missing.
    frame.replace("-", "2").to_csv(folder / "s.csv", index=False)
    assert main(words(folder, "none", "--edit", "--quiet")) == 2
    assert "no record is impossible, so there is nothing to impute" in one_line(capsys)


def test_a_number_in_a_bin_that_was_set_free_does_not_come_back(folder):
    frame = workers().assign(rent=np.resize(np.arange(100, 700, 20), 150))
    frame.loc[:5, "rent"] = 9000
    frame.to_csv(folder / "s.csv", index=False)
    (folder / "z.csv").write_text("rent\n>510\n")
    assert main(words(folder, "out", "--edit", "--bins", "rent=6", "--quiet")) == 0
    edits = pd.read_csv(folder / "out" / "edits.csv")
    assert set(edits["variable"]) == {"rent"} and edits["value"].tolist()[:2] == [9000, 9000]
    made = pd.read_csv(folder / "out" / "imputed_1.csv")
    kept = ~frame.index.isin(edits["row"])
    assert (made.loc[kept, "rent"] == frame.loc[kept, "rent"]).all()
    assert (made["rent"] <= 510).all()


def test_the_seed_chooses_among_smallest_sets(folder, monkeypatch):
    frame = workers()
    frame.loc[:29] = ["0-14", "m", "clerk", "rent"]
    frame.to_csv(folder / "s.csv", index=False)
    tables = []

    def enough(_, table, **__):
        tables.append(table)
        raise MicrodataError("enough")

    monkeypatch.setattr(runs, "sample", enough)
    for seed in ("1", "1", "2"):
        assert main(words(folder, "out", "--edit", "--quiet", "--seed", seed)) == 2
    first, again, other = (table.codes[:30] < 0 for table in tables)
    assert (first.sum(axis=1) == 1).all() and (other.sum(axis=1) == 1).all()
    assert (first == again).all() and (first != other).any()


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (["impute", "--edit"], ["--edit: needs", "add --conditions, or leave --edit out"]),
        (["impute", "--edit", "--settles", "job=home"], ["--edit: needs"]),
        (["impute", "--edit", "--model", "ndpmpm", "--household", "h"],
         ["--edit: cannot be used with --model ndpmpm", "Leave it out"]),
        (["impute", "--edit", "--model", "nplcm", "--conditions", "z.csv"],
         ["the nplcm model does not take structural zeros"]),
        (["synthesize", "--edit"], ["--edit is an option of impute"]),
    ],
)  # fmt: skip
def test_what_edit_is_not_for(given, parts, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main([given[0], "s.csv", *given[1:], "--out", "out"]) == 2
    said = one_line(capsys)
    assert all(part in said for part in parts), said
    assert not (folder / "out").exists()


def test_without_the_option_the_refusal_names_it(folder, capsys):
    assert main(words(folder, "out", "--quiet")) == 2
    said = one_line(capsys)
    assert "3 of 150 records are impossible" in said and "bnp-models impute --edit" in said


def test_nothing_is_possible(folder, capsys):
    (folder / "z.csv").write_text("home\nown\nrent\n")
    assert main(words(folder, "out", "--edit", "--quiet")) == 2
    assert "z.csv: the conditions together make every combination impossible" in one_line(capsys)
    assert not (folder / "out").exists()


def test_edits_have_the_values_that_were_read():
    frame = pd.DataFrame({"a": ["1.5", "2.5", "1.5"], "b": ["x", "y", "x"]})
    table = Microdata.from_frame(frame)
    changes = Changes(table, Recoding.of(table.schema, {}), ("a",))
    edited = changes.edited(pd.DataFrame({"row": [1, 2], "variable": ["a", "b"]}))
    assert edited.edits.values.tolist() == [[1, "a", "2,5"], [2, "b", "x"]]
    assert edited.original.codes.tolist() == [[0, 0], [-1, 1], [0, -1]]
    assert table.codes.tolist() == [[0, 0], [1, 1], [0, 0]]
    assert edited.num_edited == {"records": 2, "values": 2, "by_variable": {"a": 1, "b": 1}}
