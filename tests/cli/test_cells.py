"""``risk --model polettini-stander-1`` and ``-2``: what is written, and what is refused."""

import json
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from commands import one_line, untimed
from pages import check_well_formed

import bnp_models as bnp
from bnp_models.cli import cells
from bnp_models.cli.main import main
from bnp_models.inference.arviz import load_arviz
from bnp_models.risk.baselines import NAMES

VARIABLES = ["age", "sex", "race", "education"]
OUTPUTS = ["cells.csv", "posterior.nc", "report.html", "risk.json", "run.json", "run.toml"]
COLUMNS = ["f", "phat", "risk", "p_unique", "median", "mode", "q025", "q975"]
FIGURES = ["mean", "sd", "q025", "q05", "q50", "q95", "q975"]
SHORT = ["--population-size", "20000", "--chains", "2", "--draws", "50"]
MORE = ["--alpha", "0.2", "--a", "20", "--gamma", "0.9", "--cells", "400", "--baselines",
        "--empty-phat", "0.02:0.5,0.05:0.5"]  # fmt: skip


@pytest.fixture(scope="module")
def sample(tmp_path_factory, sample_frame):
    """150 records, men with a third of the weight of women; weights add up to 20,000."""
    path = tmp_path_factory.mktemp("cells") / "sample.csv"
    weight = np.where(sample_frame["sex"] == "Male", 1.0, 3.0)
    sample_frame.assign(w=weight * 20_000 / weight.sum()).to_csv(path, index=False)
    return path


def arguments(sample, out, *more, model="polettini-stander-2"):
    return ["risk", str(sample), "--model", model, "--weights", "w", *SHORT, "--out", str(out),
            "--quiet", *more]  # fmt: skip


@pytest.fixture(scope="module")
def done(sample, tmp_path_factory):
    out = tmp_path_factory.mktemp("done") / "out"
    assert main(arguments(sample, out, *MORE)) == 0
    return out


def test_outputs(done, sample):
    assert sorted(path.name for path in done.iterdir()) == OUTPUTS
    risk = json.loads((done / "risk.json").read_text())
    assert list(risk) == [
        "model", "n", "population_size", "variables", "levels", "cells", "non_empty_cells",
        "sample_uniques", "seed", "version", "device", "hyperparameters", "tau1",
        "tau1_conditional", "tau2", "tau2_conditional", "baselines", "log_likelihood", "fit",
        "diagnostics", "warnings", "seconds", "sweeps_per_second",
    ]  # fmt: skip
    assert (risk["model"], risk["n"], risk["cells"]) == ("polettini-stander-2", 150, 400)
    assert risk["variables"] == VARIABLES
    assert risk["hyperparameters"] == {"method": "fixed", "alpha": 0.2, "a": 20.0, "gamma": 0.9}
    for name in ("tau1", "tau1_conditional", "tau2", "tau2_conditional"):
        assert list(risk[name]) == FIGURES
    for name in ("tau1", "tau2"):
        assert risk[name]["mean"] == risk[f"{name}_conditional"]["mean"]
        assert risk[name]["q025"] < risk[name]["mean"] < risk[name]["q975"]
    cells = pd.read_csv(done / "cells.csv", dtype={name: str for name in VARIABLES})
    baselines = [row["name"] for row in risk["baselines"]]
    assert baselines == list(NAMES)
    assert list(cells) == [*VARIABLES, *COLUMNS, *baselines]
    assert len(cells) == risk["non_empty_cells"] and cells["f"].sum() == 150
    assert cells["risk"].is_monotonic_decreasing
    unique = cells[cells["f"] == 1]
    for row in risk["baselines"]:
        assert unique[row["name"]].sum() == pytest.approx(row["tau2"], rel=1e-7)
    assert "Classical estimates" in (done / "report.html").read_text()
    assert len(unique) == risk["sample_uniques"]
    assert unique["p_unique"].sum() == pytest.approx(risk["tau1"]["mean"], rel=1e-7)
    assert unique["risk"].sum() == pytest.approx(risk["tau2"]["mean"], rel=1e-7)
    assert (cells["q025"] <= cells["median"]).all() and (cells["median"] <= cells["q975"]).all()
    assert (cells["mode"] >= cells["f"]).all()
    # The command is the notebook's few lines: same numbers.
    table = bnp.read_microdata(sample, VARIABLES)
    weighted = bnp.weighted_cells(table, 20_000, bnp.read_weights(sample, "w"), num_cells=400)
    model = bnp.PolettiniStander(2, alpha=0.2, a=20, gamma=0.9)
    result = bnp.cell_risk(model, weighted, key=jax.random.key(1), num_samples=5)
    np.testing.assert_allclose(result.frame()["risk"], cells["risk"], rtol=1e-7)
    assert sum(row["observed"] for row in risk["fit"]) == 400


def test_draws_and_report(done):
    risk = json.loads((done / "risk.json").read_text())
    data = load_arviz().from_netcdf(str(done / "posterior.nc"))
    posterior = data["posterior"]
    assert dict(posterior.sizes) == {"chain": 2, "draw": 50}
    assert set(posterior.data_vars) == {
        "alpha", "a", "gamma", "tau1", "tau1_conditional", "tau2", "tau2_conditional",
        "log_likelihood",
    }  # fmt: skip
    assert "sample_stats" in data
    assert abs(float(posterior["tau1"].mean()) - risk["tau1"]["mean"]) < risk["tau1"]["sd"]
    page = (done / "report.html").read_text()
    check_well_formed(page, num_plots=1)
    assert "Do the hyperparameters fit?" in page and "Have the chains converged?" not in page
    assert "<svg" in page and "--hyperparameters" not in page and "bnp-models risk" in page


def test_a_finished_run_is_recognised(done, sample, tmp_path, capsys):
    before = (done / "risk.json").stat().st_mtime_ns
    assert main(arguments(sample, done, *MORE, "--resume")) == 0
    assert (done / "risk.json").stat().st_mtime_ns == before
    assert main(arguments(sample, done, *MORE, "--resume", "--seed", "1")) == 2
    assert "finished run with other" in one_line(capsys)
    assert main(arguments(sample, tmp_path / "again", *MORE, "--resume")) == 0
    assert untimed(tmp_path / "again") == untimed(done)
    for name in ("cells.csv", "posterior.nc"):
        assert (tmp_path / "again" / name).read_bytes() == (done / name).read_bytes()


@pytest.mark.long
def test_full_bayes(sample, tmp_path, capsys):
    out = tmp_path / "out"
    more = ["--hyperparameters", "full-bayes", "--warmup", "60"]
    assert main(arguments(sample, out, *more, model="polettini-stander-1")) == 0
    risk = json.loads((out / "risk.json").read_text())
    assert set(risk["hyperparameters"]) == {"method", "alpha", "a", "b"}
    assert list(risk["hyperparameters"]["alpha"]) == FIGURES
    assert list(risk["diagnostics"]) == [
        "tau1", "tau1_conditional", "alpha", "a", "b", "log_likelihood",
    ]  # fmt: skip
    assert any("too few effective draws" in sentence for sentence in risk["warnings"])
    data = load_arviz().from_netcdf(str(out / "posterior.nc"))
    assert {"diverging", "acceptance_rate", "energy"} <= set(data["sample_stats"].data_vars)
    assert float(data["posterior"]["alpha"].std()) > 0
    assert "Have the chains converged?" in (out / "report.html").read_text()


def test_empirical_bayes_at_the_edge_leaves_nothing(sample, tmp_path, capsys, monkeypatch):
    out = tmp_path / "deep" / "out"

    def edge(*_):
        raise bnp.NoMaximumError("empirical Bayes: no estimate")

    monkeypatch.setattr(cells, "fit_empirical_bayes", edge)
    assert main(arguments(sample, out, "--hyperparameters", "empirical-bayes")) == 2
    assert "no estimate" in one_line(capsys)
    assert not out.parent.exists()


@pytest.mark.parametrize("estimated", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_default_is_estimated(estimated, sample, tmp_path, monkeypatch):
    def fit(model, _):
        if not estimated:
            raise bnp.NoMaximumError("empirical Bayes: no estimate")
        return SimpleNamespace(model=bnp.PolettiniStander(2, alpha=0.3), seconds={})

    monkeypatch.setattr(cells, "fit_empirical_bayes", fit)
    out = tmp_path / "out"
    assert main(arguments(sample, out, "--warmup", "60")) == 0
    assert "of its stratum, defined by sex" in (out / "report.html").read_text()
    risk = json.loads((out / "risk.json").read_text())
    assert not any("of the empty cells are not known" in text for text in risk["warnings"])
    method = "empirical-bayes" if estimated else "full-bayes"
    assert risk["hyperparameters"]["method"] == method
    noted = "empirical Bayes: no estimate; full Bayes was used instead"
    assert (noted in risk["warnings"]) == (not estimated)
    assert (noted[1:] in (out / "report.html").read_text()) == (not estimated)


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        ([], True),
        (["--alpha", "0.3"], False),
        (["--empty-phat", "0.02:1"], False),
        (["--model", "polettini-stander-1"], False),
    ],
)
def test_strata_that_are_not_among_the_variables(more, warned, sample, tmp_path, monkeypatch):
    """Without sex, no variables explain the weights, on which estimates of model 2 depend."""
    monkeypatch.setattr(
        cells, "fit_empirical_bayes", lambda model, _: SimpleNamespace(model=model, seconds={})
    )
    out = tmp_path / "out"
    assert main(arguments(sample, out, "--variables", "age,race,education", *more)) == 0
    risk = json.loads((out / "risk.json").read_text())
    found = [text for text in risk["warnings"] if "of the empty cells are not known" in text]
    assert len(found) == warned
    assert "of its stratum" not in (out / "report.html").read_text()


GOOD = "x,y,w\n1,2,30\n1,2,40\n3,4,30\n"
BAD = {
    "unknown weights": (GOOD, ["--weights", "v"], ["a.csv", "column 'v'"]),
    "weight is text": (GOOD.replace("40", "many"), [], ["a.csv", "row 1 (line 3)", "'many'"]),
    "weight is empty": (GOOD.replace("40", ""), [], ["a.csv", "row 1 (line 3)", "'w'", "empty"]),
    "weight is negative": (GOOD.replace("40", "-4"), [], ["a.csv", "row 1 (line 3)", "'-4'"]),
    "weight below one": (GOOD.replace("4,30", "4,0.5"), [], ["a.csv", "row 2 (line 4)", "0.5"]),
    "weights as variable": (GOOD, ["--variables", "x,w"], ["a.csv", "column 'w'", "--variables"]),
    "missing": (GOOD.replace("3,4", "3,"), [], ["a.csv", "row 2 (line 4)", "column 'y'"]),
    "own column": (GOOD.replace("y", "risk"), [], ["a.csv", "column 'risk'", "cells.csv"]),
    "population": (GOOD, ["--population-size", "2"], ["a.csv", "population size 2", "3 records"]),
    "few cells": (GOOD, ["--cells", "1"], ["a.csv", "1 cells are fewer than the 2"]),
    "b of model 2": (GOOD, ["--b", "5"], ["--b", "only with --model polettini-stander-1;"]),
    "alpha": (GOOD, ["--alpha", "0"], ["--alpha", "out of range"]),
    "gamma": (GOOD, ["--gamma", "1.5"], ["gamma must be above 0 and at most 1"]),
    "mixture": (GOOD, ["--empty-phat", "0.5"], ["--empty-phat", "0.0034:0.86"]),
    "shares": (GOOD, ["--empty-phat", "0.5:0.5"], ["--empty-phat", "add up to 1"]),
    "conditions": (GOOD, ["--conditions", "z.csv"], ["--conditions", "hdp"]),
    "changed": (GOOD, ["--misclassification", "m.csv"], ["--misclassification", "model of cells"]),
    "keep": (GOOD, ["--keep-parameters"], ["--keep-parameters", "hdp"]),
    "rhat": (GOOD, ["--until-rhat", "1.1"], ["--until-rhat", "hdp"]),
    "priors": (GOOD, ["--alpha", "1", "--hyperparameters", "full-bayes"], ["--alpha", "full"]),
    "estimated": (
        GOOD, ["--alpha", "1", "--hyperparameters", "empirical-bayes"], ["--alpha", "is estimated"],
    ),
    "warmup": (GOOD, ["--hyperparameters", "fixed", "--warmup", "9"], ["--warmup", "full-bayes"]),
    "thin": (GOOD, ["--alpha", "1", "--thin", "2"], ["--thin", "full-bayes"]),
    "ties": (GOOD, ["--ties", "off"], ["--ties", "a model of cells"]),
    "checkpoints": (GOOD, ["--checkpoint-seconds", "1"], ["--checkpoint-seconds", "of cells"]),
    "method of others": (
        GOOD, ["--model", "hdp", "--hyperparameters", "fixed"], ["--hyperparameters", "only with"],
    ),
    "of others": (GOOD, ["--model", "hdp", "--cells", "9"], ["--cells", "polettini-stander-1 or"]),
    "gamma of hdp": (GOOD, ["--model", "hdp", "--gamma", "1"], ["--gamma", "polettini-stander-2"]),
}  # fmt: skip


@pytest.mark.parametrize(("content", "more", "parts"), BAD.values(), ids=BAD)
def test_bad_input(content, more, parts, tmp_path, capsys):
    source, out = tmp_path / "a.csv", tmp_path / "deep" / "out"
    source.write_text(content)
    base = ["risk", str(source), "--model", "polettini-stander-2", "--weights", "w",
            "--population-size", "100", "--out", str(out)]  # fmt: skip
    assert main([*base, *more]) == 2
    message = one_line(capsys)
    for part in parts:
        assert part in message
    assert not out.parent.exists()
