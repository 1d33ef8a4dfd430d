"""Files as people have them, and columns that tell who somebody is."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from commands import one_line
from pages import Page

from bnp_models.cli import runs
from bnp_models.cli.main import main

CHAINS = ("--chains", "2", "--warmup", "20", "--draws", "20")
LATENT = ("--model", "nplcm", "--components", "6", *CHAINS)


@pytest.fixture(scope="module")
def frame():
    rng, n = np.random.default_rng(0), 300
    hid = np.repeat(np.arange(100), 3)
    return pd.DataFrame({
        "pid": [f"P{i:04}" for i in range(n)], "hid": hid,
        "role": np.tile(["Householder", "Spouse", "Child"], 100),
        "age": rng.integers(15, 95, n).astype(str),
        "town": rng.choice(["Köln", "Łódź", "NA", "-9"], n, p=[0.5, 0.3, 0.19, 0.01]),
        "rent": (100 * rng.integers(2, 40, 100)[hid]).astype(str),
    })  # fmt: skip


@pytest.fixture
def european(frame, tmp_path):
    """Semicolons, UTF-16, gzip."""
    path = tmp_path / "sample.csv.gz"
    path.write_bytes(gzip.compress(frame.to_csv(index=False, sep=";").encode("utf-16")))
    return path


def test_identifiers_are_refused(frame, european, tmp_path, capsys, caplog, monkeypatch):
    out = tmp_path / "out"
    command = ("risk", str(european), "--population-size", "9000", *LATENT, "--out", str(out))
    assert main(command) == 2
    read = f"{european}: read as utf-16 text and with semicolons between cells"
    town = "missing values? 'town' has '-9' (5 records) and 'NA' (63 records) among its levels"
    assert caplog.messages[0] == read and f"{european}: {town}" in caplog.messages[1]
    # One line, on what is wrong: how the file was read is said where the work begins.
    said = one_line(capsys)
    assert "column 'pid': has 300 values, and 100% of the records have one that no other" in said
    assert "--variables" in said and "--allow-identifying" in said
    assert not out.exists()
    # Declared levels are a code book, and what is named is asked for.
    levels = tmp_path / "levels.csv"
    declared = [("pid", f"P{i:04}") for i in range(300)] + [("hid", i) for i in range(100)]
    pd.DataFrame(declared, columns=["variable", "level"]).to_csv(levels, index=False)
    asked = []

    def stop(_model, table, **_options):
        asked.append(table.schema.variables)
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "sample", stop)
    for more in (("--levels", str(levels)), ("--allow-identifying",), ("--variables", "pid,age")):
        assert main((*command, *more)) == 130
        assert capsys.readouterr().err.count(f"bnp-models: {read}\n") == 1
    assert asked == [tuple(frame)] * 2 + [("pid", "age")]


def test_all_identifying_columns_are_named_at_once(frame, tmp_path, capsys):
    path = tmp_path / "sample.csv"
    frame.assign(number=range(300), salary=range(1000, 1300)).to_csv(path, index=False)
    command = ("risk", str(path), "--population-size", "9000", "--out", str(tmp_path / "out"))
    assert main(command) == 2
    said = one_line(capsys)
    assert "column 'pid': has 300 values" in said
    assert "; 'hid', 'number' and 'salary' are refused too: " in said
    assert "--variables without them (or --drop pid,hid,number,salary)" in said
    assert said.endswith("; --id pid writes it with the results\n")
    assert main((*command, "--id", "pod")) == 2
    assert "column 'pod': unknown column; the columns are 'pid'" in one_line(capsys)


def test_merging_down_to_one_level_is_said(frame, tmp_path, capsys, monkeypatch):
    path = tmp_path / "sample.csv"
    frame[["age", "town"]].to_csv(path, index=False)

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "sample", stop)
    command = ("risk", str(path), "--population-size", "9000", "--out", str(tmp_path / "out"))
    assert main((*command, "--merge-rare", "200")) == 130
    said = capsys.readouterr().err
    assert f"{path}: only one level is left of 'age' and 'town', " in said
    assert main((*command, "--merge-rare", "20")) == 130
    assert "one level is left" not in capsys.readouterr().err


def test_levels_are_merged_and_said(european, tmp_path, capsys):
    out = tmp_path / "out"
    chosen = ("--variables", "age,town,rent", "--missing", "-9,NA", "--top-code", "age=80",
              "--merge-rare", "8", "--bins", "rent=6")  # fmt: skip
    assert main(("synthesize", str(european), *LATENT, *chosen, "--datasets", "2", "--out",
                 str(out), "--quiet")) == 0  # fmt: skip
    made = pd.read_csv(out / "synthetic_1.csv", dtype=str, keep_default_na=False)
    assert set(made["town"]) == {"Köln", "Łódź"}
    assert "80+" in set(made["age"]) and made["age"].nunique() < 40
    assert made["rent"].astype(int).nunique() > 6
    run = json.loads((out / "run.json").read_text())
    assert run["merged"]["age"]["80+"] == [str(age) for age in range(80, 95)]
    assert set(run["bins"]) == {"rent"}
    alone = run["values_of_one_person"]
    assert set(alone) == {"age", "town", "rent"} and alone["age"] == 0
    page = (out / "report.html").read_text()
    assert Page(page).open == [] and "80+ (15 labels)" in page and "values of one" in page
    # Judged like that.
    judged = tmp_path / "judged"
    assert main(("evaluate", str(european), str(out / "synthetic_1.csv"), *chosen, "--population",
                 str(european), "--out", str(judged), "--quiet")) == 0  # fmt: skip
    assert (judged / "evaluation.json").exists()


@pytest.mark.long
def test_observed_values_stay_in_imputed_files(frame, tmp_path):
    sample, out = tmp_path / "s.xlsx", tmp_path / "out"
    rent = frame["rent"].astype(int).astype(object).where(frame.index % 5 > 0)
    frame.assign(rent=rent)[["role", "rent"]].to_excel(sample, index=False)
    assert main(("impute", str(sample), *LATENT, "--bins", "rent=6", "--datasets", "1", "--out",
                 str(out), "--quiet")) == 0  # fmt: skip
    made = pd.read_csv(out / "imputed_1.csv")
    known = frame.index % 5 > 0
    assert (made.loc[known, "rent"] == frame.loc[known, "rent"].astype(int)).all()
    assert made["rent"].notna().all() and (made["rent"] % 100 == 0).all()


@pytest.mark.long
def test_bins_of_households(frame, tmp_path, capsys):
    sample, out = tmp_path / "s.csv", tmp_path / "out"
    frame.drop(columns="pid").to_csv(sample, index=False, encoding="cp1250")
    households = ("--household", "hid", "--household-variables", "rent", "--bins", "rent=5")
    reading = ("--encoding", "cp1250", "--merge-rare", "10")
    command = ("synthesize", str(sample), "--model", "ndpmpm", "--components", "4",
               "--member-components", "3", *CHAINS, *households, *reading, "--datasets", "1",
               "--quiet")  # fmt: skip
    assert main((*command, "--out", str(out))) == 0
    made = pd.read_csv(out / "synthetic_1.csv", dtype=str, keep_default_na=False)
    assert list(made) == list(frame.drop(columns="pid"))
    # All of a household pay one rent; of which there are more than bins.
    assert (made.groupby("hid")["rent"].nunique() == 1).all() and made["rent"].nunique() > 6
    judged = tmp_path / "judged"
    judge = ("evaluate", str(sample), str(out / "synthetic_1.csv"), *households, "--quiet")
    assert main((*judge, *reading, "--out", str(judged))) == 0
    # In the usual encoding the towns are others.
    assert main((*judge, *reading[2:], "--out", str(judged))) == 2
    assert "is not a label of the original" in one_line(capsys)
    rules = tmp_path / "rules.py"
    rules.write_text(
        "from bnp_models.rules import at_most, aged\nrules = at_most(3, aged(at_least=60))\n"
    )
    more = ("--rules", str(rules), "--bins", "age=5", "--out", str(tmp_path / "x"))
    assert main((*command, *more)) == 2
    assert "--bins: the rules use 'age'" in one_line(capsys)


def test_cells_of_merged_levels(european, tmp_path):
    out = tmp_path / "out"
    assert main(("risk", str(european), "--variables", "age,town", "--population-size", "9000",
                 "--model", "polettini-stander-1", "--alpha", "0.9", "--merge-rare", "20",
                 "--bins", "age=8", "--draws", "20",
                 "--out", str(out), "--quiet")) == 0  # fmt: skip
    cells = pd.read_csv(out / "cells.csv", dtype=str, keep_default_na=False)
    assert cells["age"].nunique() in range(6, 11) and "other" in set(cells["town"])
