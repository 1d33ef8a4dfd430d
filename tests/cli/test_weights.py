"""Design weights on the command line: what is said of them, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
from commands import one_line

import bnp_models as bnp
from bnp_models.cli import runs
from bnp_models.cli.main import main

CHAINS = ["--chains", "2", "--warmup", "60", "--draws", "30", "--model", "nplcm",
          "--components", "4", "--quiet"]  # fmt: skip
SIZE = 3000


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """200 records of three variables; those with x = 3 were included five times as often."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.permutation(np.repeat(range(4), [20, 40, 40, 100])),
                          "y": rng.choice(9, 200), "z": rng.choice(12, 200)})  # fmt: skip
    frame["w"] = np.where(frame["x"] == 3, 5.0, 25.0)
    path = tmp_path_factory.mktemp("weights") / "sample.csv"
    frame.to_csv(path, index=False)
    return path


def risk_of(source, out, *more):
    return ["risk", str(source), "--population-size", str(SIZE), *CHAINS, "--out", str(out), *more]


def test_risk_with_weights(source, tmp_path):
    more = "--what-if", "drop:z", "--weights", "w", "--level-prior", "learned"
    assert main(risk_of(source, tmp_path, *more)) == 0
    risk, settings = (
        json.loads((tmp_path / name).read_text()) for name in ("risk.json", "run.json")
    )
    assert settings["weights"] == "w" and risk["variables"] == ["x", "y", "z"]
    assert [one["mean"] for one in risk["weights"]["classes"]] == [5, 25]
    assert risk["checks"]["cells_with_1"]["observed"] == risk["sample_uniques"]
    assert set(risk["level_prior"]["concentration"]) == {"x", "y", "z"}
    assert {one["spec"] for one in risk["what_if"]} == {"drop:x", "drop:y", "drop:z"}
    assert not any("add up to" in sentence for sentence in risk["warnings"])
    records = pd.read_csv(tmp_path / "records.csv")
    assert list(records.columns) == ["row", "x", "y", "z", "r1", "r2"]
    page = (tmp_path / "report.html").read_text()
    assert "Design weights" in page and "w − 1 are not in the sample" in page
    # Of its record's class a person who was not sampled is rarer by far than the sample says.
    often = records["x"] == 3
    assert records[often]["r1"].mean() > records[~often]["r1"].mean()


@pytest.mark.long
def test_files_with_weights(source, tmp_path):
    out = tmp_path / "files"
    assert main(["synthesize", str(source), *CHAINS, "--rows", "2000", "--datasets", "2",
                 "--weights", "w", "--for", "inference", "--out", str(out)]) == 0  # fmt: skip
    made = pd.read_csv(out / "synthetic_1.csv")
    assert list(made.columns) == ["x", "y", "z"]
    frame = pd.read_csv(source)
    share = frame["w"][frame["x"] == 3].sum() / frame["w"].sum()
    assert abs((made["x"] == 3).mean() - share) < 0.04 < abs((frame["x"] == 3).mean() - share)
    assert json.loads((out / "run.json").read_text())["weights"]["classes"][0]["mean"] == 5
    page = (out / "report.html").read_text()
    assert "The files need no weights" in page and "counted by design weights" in page
    with pytest.raises(bnp.MicrodataError, match="design weights"):
        bnp.io.read_posterior(out / "posterior.nc")


GOOD = "x,y,w\n1,2,30\n1,2,40\n3,4,30\n"

BAD = {
    "no column": (GOOD.replace(",w", ",v"), [], ["a.csv", "'w'"]),
    "no number": (GOOD.replace("40", "many"), [], ["row 1 (line 3)", "'w'", "'many'"]),
    "empty": (GOOD.replace(",40", ","), [], ["row 1 (line 3)", "empty"]),
    "zero": (GOOD.replace("40", "0"), [], ["row 1 (line 3)", "'0' is not a positive number"]),
    "negative": (GOOD.replace("40", "-4"), [], ["row 1 (line 3)", "'-4' is not a positive"]),
    "below one": (GOOD.replace("40", "0.4"), [], ["row 1 (line 3)", "0.4 is below 1", "rescale"]),
    "a variable": (GOOD, ["--variables", "x,w"], ["column 'w'", "leave it out of --variables"]),
    "small population": (GOOD, ["--population-size", "2"], ["population size 2", "3 records"]),
}


@pytest.mark.parametrize(("content", "more", "parts"), BAD.values(), ids=BAD)
def test_bad_weights_end_with_one_line(content, more, parts, tmp_path, capsys):
    source, out = tmp_path / "a.csv", tmp_path / "out"
    source.write_text(content)
    assert main(risk_of(source, out, "--weights", "w", *more)) == 2
    line = one_line(capsys)
    assert all(part in line for part in parts), line
    assert not out.exists()


def test_weights_that_do_not_fit_are_named_before_the_chains(source, tmp_path, monkeypatch, capsys):
    def enough(*_, **__):
        raise bnp.MicrodataError("enough")

    monkeypatch.setattr(runs, "sample", enough)
    words = risk_of(source, tmp_path / "out")
    words.remove("--quiet")
    assert main([*words, "--weights", "w", "--population-size", "300"]) == 2
    assert "the weights add up to 3,000, and the population size is 300" in capsys.readouterr().err
    # A column of weights that nobody called so.
    other = tmp_path / "other.csv"
    frame = pd.read_csv(source)
    frame.assign(w=frame["w"] + np.arange(200) / 1000).to_csv(other, index=False)
    assert main(risk_of(other, tmp_path / "out")) == 2
    said = one_line(capsys)
    assert "column 'w': has numbers and the name of design weights" in said
    assert "; say --weights w, or leave it out (--drop w)" in said
    assert "--id" not in said and "--bins" not in said
    assert main([*risk_of(other, tmp_path / "out"), "--weights", "w"]) == 2
    assert "enough" in capsys.readouterr().err


def test_synthetic_households_and_folders_take_no_weights(source, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["synthesize", str(source), "--model", "ndpmpm", "--household", "y", "--weights",
                 "w", "--out", str(out)]) == 2  # fmt: skip
    assert "--weights: synthetic households are made without design weights" in one_line(capsys)
    folder = tmp_path / "folder"
    folder.mkdir()
    pd.read_csv(source).to_parquet(folder / "part.parquet", index=False)
    assert main(risk_of(folder, out, "--weights", "w")) == 2
    assert "--weights: cannot be used if SAMPLE is a folder, because the nplcm model" in one_line(
        capsys
    )
    assert main(["impute", str(source), "--weights", "w", "--out", str(out)]) == 2
    said = one_line(capsys)
    assert "unrecognized arguments: --weights w" in said
    assert said.endswith("--weights is an option of risk, synthesize and protect\n")
    assert not out.exists()


@pytest.mark.parametrize("model", ["nplcm", "polettini-stander-1"])
def test_weights_give_the_size_of_the_population(model, source, tmp_path, capsys):
    """Their sum is the size that nobody gives, which is said; another option gives the same."""
    chains = CHAINS[:6] if model == "nplcm" else ["--draws", "30"]
    given = [str(source), "--variables", "x,y,z", "--weights", "w", "--model", model, *chains]
    if model == "nplcm":
        given += ["--components", "4"]
    out = tmp_path / "out"
    assert main(["risk", *given, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "--population-size is not given; the weights in column 'w' add up to 3,000" in said.err
    assert "are expected to be unique among 3,000" in said.out
    found = json.loads((out / "risk.json").read_text())
    assert found["population_size"] == SIZE
    assert json.loads((out / "run.json").read_text())["population_size"] == SIZE
    assert main(["risk", *given, "--population-size", str(SIZE), "--out", str(out), "--force"]) == 0
    assert "not given" not in capsys.readouterr().err
    again = json.loads((out / "risk.json").read_text())
    assert again["tau1"] == found["tau1"] and again["tau2"] == found["tau2"]


@pytest.mark.parametrize("command", ["risk", "protect"])
def test_the_size_of_the_population_is_needed(command, source, tmp_path, capsys):
    """Weights that add up to the number of records count nobody."""
    out = ["--out", str(tmp_path / "out"), *(["--max-tau1", "5"] * (command == "protect"))]
    start = [command, str(source), "--variables", "x,y,z", *CHAINS]
    assert main([*start, *out]) == 2
    assert "--population-size: is needed: the number of persons" in one_line(capsys)
    frame = pd.read_csv(source)
    frame.assign(w=frame["w"] / frame["w"].mean()).to_csv(tmp_path / "normalised.csv", index=False)
    start[1] = str(tmp_path / "normalised.csv")
    assert main([*start, "--weights", "w", *out]) == 2
    said = one_line(capsys)
    assert "column 'w'" in said and "the weights add up to 200, and there are 200 records" in said
    assert not (tmp_path / "out").exists()


def test_protect_with_the_size_of_the_weights(source, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["protect", str(source), "--variables", "x,y,z", *CHAINS[:-1], "--weights", "w",
                 "--max-tau1", "1e6", "--out", str(out)]) == 0  # fmt: skip
    assert "add up to 3,000" in capsys.readouterr().err
    assert json.loads((out / "run.json").read_text())["population_size"] == SIZE


def test_rows_counted_from_one(source, tmp_path, capsys):
    """In the table of records and on the page; the risks are the same."""
    given = risk_of(source, tmp_path / "out", "--variables", "x,y,z", "--weights", "w")
    assert main(given) == 0
    from_zero = pd.read_csv(tmp_path / "out" / "records.csv")
    assert "counted from 0" in (tmp_path / "out" / "report.html").read_text()
    assert main([*given, "--first-row", "1", "--force"]) == 0
    from_one = pd.read_csv(tmp_path / "out" / "records.csv")
    pd.testing.assert_frame_equal(from_one.assign(row=from_one["row"] - 1), from_zero)
    sample = pd.read_csv(source).iloc[from_one["row"] - 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(from_one[["x", "y", "z"]], sample[["x", "y", "z"]])
    page = (tmp_path / "out" / "report.html").read_text()
    riskiest = page[page.index("The riskiest records") :]
    assert "counted from 1" in riskiest and f">{from_one['row'][0]}</t" in riskiest
    assert json.loads((tmp_path / "out" / "run.json").read_text())["first_row"] == 1
    assert main([*given, "--first-row", "2", "--force"]) == 2
    assert "--first-row" in capsys.readouterr().err
