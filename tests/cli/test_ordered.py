"""Ordered variables by the command line: names, orders that are refused, bins, households."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from commands import one_line

from bnp_models.cli.compare import _model
from bnp_models.cli.main import main

CHAINS = ("--chains", "2", "--warmup", "20", "--draws", "20", "--level-prior", "learned",
          "--quiet")  # fmt: skip
GROUPS = ["0-4", "5-9", "10-14", "15-24", "25+"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("ordered"), np.random.default_rng(0)
    frame = pd.DataFrame({
        "age": rng.integers(100, size=300), "group": rng.choice(GROUPS, 300),
        "sex": rng.choice(["f", "m"], 300),
    })  # fmt: skip
    frame.to_csv(folder / "sample.csv", index=False)
    levels = [("group", label) for label in GROUPS]
    levels = pd.DataFrame(levels, columns=["variable", "level"])
    levels.to_csv(folder / "levels.csv", index=False)
    levels[::-1].to_csv(folder / "reversed.csv", index=False)
    return folder


def test_ordered_variables_in_bins_and_by_declared_levels(folder, tmp_path):
    assert main([
        "synthesize", str(folder / "sample.csv"), "--model", "nplcm", "--ordered", "age,group",
        "--levels", str(folder / "levels.csv"), "--bins", "age=20", *CHAINS, "--datasets", "1",
        "--out", str(tmp_path / "out"),
    ]) == 0  # fmt: skip
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["ordered"] == ["age", "group"]
    # Of two values of sex, and of the bands of the others.
    assert set(run["level_prior"]["concentration"]) == {"age", "group", "sex"}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--ordered", "group", "--levels", "reversed.csv"),
         r"column 'group': the levels .* not in the order .*--levels"),
        (("--ordered", "ages"), "column 'ages': cannot be ordered, only age, group, sex can"),
        (("--model", "polettini-stander-1", "--ordered", "age"), "--ordered: can be used only"),
    ],
)  # fmt: skip
def test_what_is_refused(folder, tmp_path, capsys, more, says, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.chdir(folder)
    arguments = ("risk", str(folder / "sample.csv"), "--population-size", "9000", *more)
    assert main([*arguments, "--out", str(out)]) == 2
    assert not out.exists()
    assert re.search(says, one_line(capsys))


def test_an_order_that_nobody_declared_is_asked_for(tmp_path, capsys):
    """Labels that are no numbers are not taken in the order of the alphabet without a word."""
    schools = ["Preschool", "Masters", "Bachelors", "unknown"]
    frame = pd.DataFrame({"school": np.repeat(schools, 10), "sex": ["f", "m"] * 20})
    frame.to_csv(tmp_path / "sample.csv", index=False)
    levels = pd.DataFrame({"variable": "school", "level": schools})
    levels.to_csv(tmp_path / "levels.csv", index=False)
    in_order = pd.Categorical(frame["school"], sorted(schools))
    frame.assign(school=in_order).to_parquet(tmp_path / "sample.parquet")

    def said(*call):
        """The error, with a population that is too small where there is no other."""
        out = ("--out", str(tmp_path / "out"), "--population-size", "5")
        assert main([*call, *out]) == 2
        return one_line(capsys)

    sample, ordered = str(tmp_path / "sample.csv"), ("--ordered", "school")
    for command, more in (
        ("risk", ordered), ("protect", (*ordered, "--max-tau1", "1")),
        ("compare", ("--models", "hdp:ordered=school,nplcm")),
    ):  # fmt: skip
        problem = said(command, sample, *more)
        assert "column 'school': nothing says in which order its levels are" in problem
        assert "--levels" in problem
        known = said(command, sample, *more, "--levels", str(tmp_path / "levels.csv"))
        assert "is smaller than the sample" in known
    assert "nothing says" not in said("risk", sample, "--ordered", "sex")
    assert "nothing says" not in said("risk", str(tmp_path / "sample.parquet"), *ordered)


def test_models_to_compare_have_ordered_variables():
    assert _model("nplcm:ordered=age+income", ()).ordered == ("age", "income")


def test_ordered_variables_of_households_are_checked_first(tmp_path, capsys):
    persons = pd.DataFrame({"hid": [1, 1, 2], "home": ["own", "own", "rent"], "age": [4, 30, 50]})
    persons.to_csv(tmp_path / "persons.csv", index=False)
    out = tmp_path / "out"
    assert main([
        "synthesize", str(tmp_path / "persons.csv"), "--model", "ndpmpm", "--household", "hid",
        "--household-variables", "home", "--ordered", "ages", "--out", str(out),
    ]) == 2  # fmt: skip
    assert not out.exists()
    assert "column 'ages': cannot be ordered, only home, age can; leave it out" in one_line(capsys)
