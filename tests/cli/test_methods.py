"""Synthetic files by every method, of numeric columns too, and what is said of them."""

import json

import h5py
import numpy as np
import pandas as pd
import pytest
from commands import one_line
from pages import Page

from bnp_models.cli.main import main

CHAINS = ("--chains", "2", "--warmup", "20", "--draws", "20", "--quiet")


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("methods"), np.random.default_rng(0)
    age = rng.integers(100, size=400)
    frame = pd.DataFrame({
        "sex": rng.choice(["f", "m"], 400), "age": age,
        "income": np.where(age < 15, "N", (100 * (rng.gamma(2, 150, 400)).astype(int)).astype(str)),
    })  # fmt: skip
    frame.to_csv(folder / "sample.csv", index=False)
    return folder / "sample.csv"


MAKES = {
    "calibrated": (),
    "balanced": ("--method", "balanced"),
    "predictive": ("--for", "inference"),
}


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("tnplcm", "calibrated"),
        pytest.param("hdp", "balanced", marks=pytest.mark.long),
        pytest.param("nplcm", "predictive", marks=pytest.mark.long),
    ],
)
def test_values_within_bins(sample, tmp_path, capsys, model, method):
    out, binned = tmp_path / "out", ("--bins", "age=10", "income=8")
    assert main([
        "synthesize", str(sample), "--model", model, *MAKES[method], *binned, *CHAINS[:-1],
        "--datasets", "2", "--out", str(out),
    ]) == 0  # fmt: skip
    said = capsys.readouterr().out
    assert ("use: tables" in said, "use: estimates" in said) == (
        method != "predictive", method == "predictive",
    )  # fmt: skip
    original = pd.read_csv(sample, keep_default_na=False)
    files = [pd.read_csv(out / f"synthetic_{m}.csv", keep_default_na=False) for m in (1, 2)]
    assert not files[0].equals(files[1])
    for made in files:
        assert list(made) == list(original) and len(made) == 400
        assert made["age"].between(0, 99).all() and made["age"].nunique() > 40
        numbers = pd.to_numeric(made.loc[made["income"] != "N", "income"])
        assert (numbers % 100 == 0).all()
    run = json.loads((out / "run.json").read_text())
    assert run["method"] == method and len(run["bins"]["age"]) in range(8, 13)
    assert "N" in run["bins"]["income"]
    # What the files take from the chains is judged; they say nothing of population uniques.
    margins = [name for name in run["diagnostics"] if name.startswith("margin ")]
    of_two = sum(" and " in name for name in margins)
    assert (len(margins), of_two) == ((6, 3) if method == "calibrated" else (3, 0))
    assert all(x.endswith(" in the files") == (method == "calibrated") for x in margins)
    assert ("log_likelihood" in run["diagnostics"]) == (model != "hdp" and method != "calibrated")
    assert "tau" not in said and "tau_1" not in json.dumps(run["warnings"])
    page = (out / "report.html").read_text()
    assert Page(page).open == []
    assert "drawn within bins" in page and "τ₁" not in page
    assert ("take 20% of a margin from the chains" in page) == (method == "calibrated")
    assert "drawn within bins" in page and "Not assessed: what an intruder learns" in page
    assert ("be near to the model" in page) == (method != "predictive")
    assert ("With <code>--posterior</code> it also" in page) == (method == "predictive")
    # The files are judged in the same bins.
    judged = tmp_path / "judged"
    assert main([
        "evaluate", str(sample), *(str(out / f"synthetic_{m}.csv") for m in (1, 2)), *binned,
        "--keys", "sex,age", "--targets", "income", "--holdout", str(sample), "--trees",
        "--out", str(judged), "--quiet",
    ]) == 0  # fmt: skip
    found = json.loads((judged / "evaluation.json").read_text())
    assert found["disclosure"][0]["keys"] == ["sex", "age"]
    assert found["disclosure"][0]["targets"][0]["target"] == "income"
    assert found["closest_records"]["closer_to_original"] == 0.5
    assert found["pmse_trees"]["expected"] > 0
    page = (judged / "report.html").read_text()
    assert Page(page).open == []
    assert "Disclosure by sex, age" in page and "classification tree" in page
    if model == "tnplcm":
        # A holdout makes an attack on files of any kind possible.
        assert found["attack_risk"] is None and found["attack_not_assessed"] is None
        assert found["attack_gains"]["design"] == "holdout"
        assert "Not assessed: what an intruder learns" not in page
        # The other attack is of files drawn at random; this is said, asked for or not.
        capsys.readouterr()
        assert main(["evaluate", str(sample), str(out / "synthetic_1.csv"), *binned, "--posterior",
                     str(out / "posterior.nc"), "--out", str(tmp_path / "x")]) == 0  # fmt: skip
        assert "warning: attack risk not assessed:" in capsys.readouterr().out
        found = json.loads((tmp_path / "x" / "evaluation.json").read_text())
        assert "--method calibrated" in found["attack_not_assessed"]
        assert any("attack risk not assessed" in one for one in found["warnings"])
        assert not (tmp_path / "x" / "records.csv").exists()


USUAL = {
    (): {
        (): "calibrated",
        ("--for", "inference"): "predictive",
        ("--keep", "sex"): "predictive",
        ("--given", "sex=f"): "predictive",
    },
    ("--missing", "N"): {
        (): "balanced",
        ("--for", "tables"): "balanced",
        ("--method", "predictive"): "predictive",
    },
}


@pytest.mark.parametrize("missing", USUAL)
def test_the_method_that_is_chosen(sample, tmp_path, missing):
    """And chosen again by a call that is repeated."""
    call = ["synthesize", str(sample), "--model", "nplcm", "--components", "4", *CHAINS, "--bins",
            "age=4", "income=4", *missing, "--datasets", "1"]  # fmt: skip
    assert main([*call, "--out", str(tmp_path / "run")]) == 0
    first = json.loads((tmp_path / "run" / "run.json").read_text())
    for number, (more, method) in enumerate(USUAL[missing].items()):
        out = tmp_path / str(number)
        assert main(["synthesize", "--from", str(tmp_path / "run"), "--quiet", *more, "--out",
                     str(out)]) == 0  # fmt: skip
        run = json.loads((out / "run.json").read_text())
        assert run["method"] == method
        assert (run["files_sha256"] == first["files_sha256"]) == (method == first["method"])
        with h5py.File(out / "posterior.nc") as file:
            recorded = file["posterior"].attrs["method"]
        assert recorded == ("keep" if "--keep" in more else method)
    again = ["synthesize", "--config", str(tmp_path / "run" / "run.toml")]
    assert main([*again, "--out", str(tmp_path / "again")]) == 0
    run = json.loads((tmp_path / "again" / "run.json").read_text())
    assert run["files_sha256"] == first["files_sha256"]


def test_calibrated_files_have_the_tables_of_the_sample(sample, tmp_path):
    """Of sex by age group, where the former default has the noise of a sample."""
    call = ["synthesize", str(sample), "--model", "nplcm", "--components", "4", *CHAINS,
            "--variables", "sex,age", "--bins", "age=4", "--datasets", "5"]  # fmt: skip
    assert main([*call, "--out", str(tmp_path / "usual")]) == 0
    assert main([*call, "--for", "inference", "--out", str(tmp_path / "random")]) == 0

    def table(path):
        frame = pd.read_csv(path)
        return pd.crosstab(frame["sex"], frame["age"] // 25).to_numpy() / len(frame)

    away = {
        kind: np.mean([
            np.abs(table(path) - table(sample)).sum() / 2
            for path in (tmp_path / kind).glob("synthetic_*.csv")
        ])
        for kind in ("usual", "random")
    }  # fmt: skip
    assert away["usual"] < 0.6 * away["random"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["synthesize", "--bins", "sex=4"], "column 'sex': has fewer than two numbers"),
        (["synthesize", "--bins", "height=4"], "unknown variable"),
        (["synthesize", "--bins", "age"], "not a variable and a number of bins"),
        (["synthesize", "--bins", "age=1"], "not a variable and a number of bins"),
        (["synthesize", "--method", "best"], "invalid choice"),
        (["synthesize", "--for", "tables", "--method", "balanced"], "--for: cannot be used"),
        (["synthesize", "--for", "tables", "--keep", "sex", "--bins", "income=4"],
         "--keep: columns can be kept only"),
        (["synthesize", "--bins", "age=4", "--top-code", "age=80"], "'age' is also put into bins"),
        (["synthesize", "--top-code", "age=800"], "'age': has no number of 800 or more"),
        (["synthesize", "--top-code", "age=old"], "not a variable and a number, such as"),
        (["synthesize", "--model", "ndpmpm", "--household", "sex", "--variables", "sex,age",
          "--method", "balanced"],
         "--method balanced: households"),
        (["synthesize", "--variables", "sex,age,income", "--sep", ";"], "leave --sep out"),
    ],
)  # fmt: skip
def test_what_cannot_be(arguments, said, sample, tmp_path, capsys):
    command, *more = arguments
    try:
        code = main([command, str(sample), *more, "--out", str(tmp_path / "out")])
    except SystemExit as stop:
        code = stop.code
    assert code == 2 and said in one_line(capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--keys", "height"], "--keys: column 'height': unknown variable"),
        (["--targets", "age"], "--targets: needs --keys"),
        (["--keys", "sex", "--targets", "height"], "--targets: column 'height'"),
        (["--holdout", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_what_evaluate_refuses(more, said, sample, tmp_path, capsys):
    assert main(["evaluate", str(sample), str(sample), *more, "--out", str(tmp_path / "x")]) == 2
    assert said in one_line(capsys)


def test_trees_want_scikit_learn(sample, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert (
        main(["evaluate", str(sample), str(sample), "--trees", "--out", str(tmp_path / "x")]) == 2
    )
    assert "pip install" in one_line(capsys)
