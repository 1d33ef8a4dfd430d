"""The command line: what it writes, what it refuses, and that a killed run loses nothing."""

import html
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pyreadstat
import pytest
from commands import one_line, untimed

import bnp_models as bnp
from bnp_models.cli import datasets, parts, risk_files, runs
from bnp_models.cli import risk as cli_risk
from bnp_models.cli.main import main
from bnp_models.data.source import file_digest
from bnp_models.inference.arviz import load_arviz
from bnp_models.kernels.mixed_membership import urn_partitions
from bnp_models.risk.baselines import baselines

VARIABLES = ("age", "sex", "race", "education")
SHORT = ["--population-size", "20000", "--chains", "2", "--warmup", "100", "--draws", "30"]
LATENT = ["--model", "nplcm", "--components", "6"]
OUTPUTS = ["posterior.nc", "records.csv", "report.html", "risk.json", "run.json", "run.toml"]
FIGURES = ["mean", "sd", "q025", "q05", "q50", "q95", "q975"]


@pytest.fixture(scope="module")
def files(tmp_path_factory, sample_frame):
    folder = tmp_path_factory.mktemp("input")
    sample_frame.to_csv(folder / "sample.csv", index=False)
    levels = [(v, level) for v in VARIABLES for level in sample_frame[v].cat.categories]
    pd.DataFrame(levels, columns=["variable", "level"]).to_csv(folder / "levels.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def done(files, tmp_path_factory):
    """The folder of a finished run."""
    out = tmp_path_factory.mktemp("done") / "out"
    code = main(["risk", str(files / "sample.csv"), "--levels", str(files / "levels.csv"),
                 *SHORT, "--out", str(out), "--quiet"])  # fmt: skip
    assert code == 0
    return out


def risk_arguments(files, out, *more):
    return ["risk", str(files / "sample.csv"), "--levels", str(files / "levels.csv"), *SHORT,
            "--out", str(out), *more]  # fmt: skip


def test_risk_json(done, files, small):
    risk = json.loads((done / "risk.json").read_text())
    assert list(risk) == [
        "model", "n", "population_size", "variables", "levels", "cells", "sample_uniques", "seed",
        "version", "device", "tau1", "tau1_conditional", "tau2", "tau2_conditional",
        "usable", "diagnostics", "modes", "components", "level_prior", "checks", "ties",
        "without_ties", "contributions", "what_if", "warnings", "seconds", "sweeps_per_second",
    ]  # fmt: skip
    assert (risk["model"], risk["n"], risk["seed"]) == ("hdp", 150, 0)
    assert risk["population_size"] == 20_000
    assert risk["variables"] == list(VARIABLES)
    assert risk["levels"] == list(small.table.schema.num_levels)
    assert risk["cells"] == math.prod(risk["levels"])
    assert risk["sample_uniques"] == len(small.table.cells().sample_uniques)
    assert risk["version"] == bnp.__version__
    for name in ("tau1", "tau1_conditional", "tau2", "tau2_conditional"):
        assert list(risk[name]) == FIGURES
    assert list(risk["diagnostics"]) == ["tau1", "tau1_conditional", "components", "alpha",
                                         "log_likelihood"]  # fmt: skip
    assert risk["ties"].pop("kind") == "on"
    assert 0 < risk["ties"].pop("probability") <= 1
    assert list(risk["ties"]) == ["shape", "exponent"]
    assert list(risk["without_ties"]) == ["tau1", "tau2"]
    for figures in (*risk["ties"].values(), *risk["without_ties"].values()):
        assert list(figures) == FIGURES
    for figures in risk["diagnostics"].values():
        assert list(figures) == ["rhat", "ess_bulk", "ess_tail"]
    assert list(risk["seconds"]) == ["compile", "warmup", "draws"]
    # The command is the notebook's few lines: same key, same numbers.
    assert risk["tau1_conditional"]["mean"] == small.risk.tau1_conditional.mean()


def test_classical_estimates_and_all_records(files, tmp_path, small):
    out = tmp_path / "out"
    more = ["--baselines", "--all-records", "--quiet"]
    assert main([*risk_arguments(files, out, *LATENT), *more]) == 0
    found = json.loads((out / "risk.json").read_text())["baselines"]
    expected = baselines(bnp.weighted_cells(small.table, 20_000)).document()["baselines"]
    assert found == expected and len(found) == 5
    page = (out / "report.html").read_text()
    assert "log-linear, interactions along a forest" in page and "no intervals" in page
    settings = json.loads((out / "run.json").read_text())
    assert settings["baselines"] is True and settings["all_records"] is True
    # And all records.
    records = pd.read_csv(out / "records.csv")
    assert list(records) == ["row", *VARIABLES, "f", "r1", "r2"] and len(records) == small.table.n
    assert (records["r1"][records["f"] > 1] == 0).all()
    assert "all 150 are in records.csv" in page
    levels = json.loads((out / "risk.json").read_text())["contributions"]["sex"]["levels"]
    total = sum(level["r2"] for level in levels.values())
    assert total == pytest.approx(records["r2"].sum(), rel=1e-6)


def test_records_and_netcdf(done, sample_frame):
    risk = json.loads((done / "risk.json").read_text())
    records = pd.read_csv(done / "records.csv", dtype=str).astype({"r1": float, "row": int})
    assert list(records) == ["row", *VARIABLES, "r1", "r2"]
    assert len(records) == risk["sample_uniques"]
    assert records["r1"].is_monotonic_decreasing
    assert records["r1"].sum() == pytest.approx(risk["tau1_conditional"]["mean"], rel=1e-7)
    expected = sample_frame.iloc[records["row"]].astype(str).to_numpy()
    np.testing.assert_array_equal(records[list(VARIABLES)].to_numpy(), expected)
    posterior = load_arviz().from_netcdf(str(done / "posterior.nc"))["posterior"]
    assert dict(posterior.sizes) == {"chain": 2, "draw": 30}
    assert float(posterior["tau1"].mean()) == pytest.approx(risk["tau1"]["mean"])


def test_no_records_are_written_on_request(done, files, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("records.csv", "cells.csv"):
        (out / name).write_text("those of an earlier call")
    assert main(risk_arguments(files, out, "--no-records", "--bom")) == 0
    said = capsys.readouterr()
    assert "records.csv" not in said.out
    assert "--bom: without effect, because --no-records leaves out the tables" in said.err
    assert sorted(path.name for path in out.iterdir()) == [
        name for name in OUTPUTS if name != "records.csv"
    ]
    assert untimed(out) == untimed(done)
    page = (out / "report.html").read_text()
    assert "The riskiest records" not in page and "left out of this page" in page


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--processes", "2"), "only with --distributed"),
        (
            ("--distributed", "--coordinator", "localhost:1", "--processes", "2"),
            "give --coordinator",
        ),
    ],
)
def test_processes_that_are_half_described_are_refused(files, tmp_path, capsys, more, said):
    out = tmp_path / "out"
    assert main(risk_arguments(files, out, *more)) == 2
    assert said in one_line(capsys)
    assert not out.exists()


def test_a_finished_run_is_left_alone(done, files, capsys):
    assert sorted(path.name for path in done.iterdir()) == OUTPUTS
    before = (done / "risk.json").stat().st_mtime_ns
    assert main(risk_arguments(files, done, "--resume")) == 0
    assert "is complete" in capsys.readouterr().out
    assert main(risk_arguments(files, done, "--resume", "--seed", "1")) == 2
    assert "finished run with other" in one_line(capsys)
    assert (done / "risk.json").stat().st_mtime_ns == before


def test_finished_results_are_replaced_only_by_force(done, files, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    shutil.copytree(done, out)
    before = (out / "risk.json").read_bytes()
    assert main(risk_arguments(files, out, *LATENT)) == 2
    assert "holds finished results" in one_line(capsys)
    assert (out / "risk.json").read_bytes() == before
    monkeypatch.setattr(runs, "sample", interrupt)
    assert main(risk_arguments(files, out, *LATENT, "--force")) == 130
    assert not (out / "risk.json").exists()


def test_interruption_damage_and_resume(done, files, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(cli_risk, "population_risk", interrupt)
        assert main(risk_arguments(files, out)) == 130
    assert "--resume" in one_line(capsys)
    assert main(risk_arguments(files, out, "--resume", "--seed", "1")) == 2
    assert "made with other data, settings or versions" in one_line(capsys)
    manifest = out / "checkpoint" / "manifest.json"
    intact = manifest.read_bytes()
    manifest.write_bytes(intact[:-40])
    assert main(risk_arguments(files, out, "--resume")) == 2
    assert "damaged" in one_line(capsys)
    manifest.write_bytes(intact)
    assert main(risk_arguments(files, out, "--resume")) == 0
    assert untimed(out) == untimed(done)
    for name in ("records.csv", "posterior.nc"):
        assert (out / name).read_bytes() == (done / name).read_bytes()
    assert sorted(path.name for path in out.iterdir()) == OUTPUTS


def test_a_file_that_fails_loses_no_other(done, files, tmp_path, capsys, monkeypatch):
    """Its draws stay in the checkpoint, and `--resume` makes it."""
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(risk_files, "write_netcdf", missing_package)
        patch.setattr(cli_risk, "write_report", fault)
        assert main(risk_arguments(files, out)) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said and "in fault" in said
    line = said.splitlines()[-1]
    for part in ("posterior.nc: could not be made (ImportError: No module named 'h5py')",
                 "report.html: could not be made (TypeError: wrong)",
                 "written: risk.json, records.csv and run.json", "--resume"):  # fmt: skip
        assert part in line
    kept = ["records.csv", "risk.json", "run.json"]
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint", *kept]
    assert untimed(out) == untimed(done)
    with monkeypatch.context() as patch:
        # Stopped between two files, with one of another run about.
        patch.setattr(risk_files, "write_netcdf", interrupt)
        (out / "posterior.nc").touch()
        assert main(risk_arguments(files, out, "--resume")) == 130
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint", *kept]
    assert main(risk_arguments(files, out, "--resume", "--quiet")) == 0
    assert sorted(path.name for path in out.iterdir()) == OUTPUTS
    for name in ("records.csv", "posterior.nc"):
        assert (out / name).read_bytes() == (done / name).read_bytes()


def missing_package(*_arguments):
    raise ImportError("No module named 'h5py'")


def fault(*_arguments, **_options):
    raise TypeError("wrong")


def test_nothing_is_left_of_a_run_interrupted_early(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runs, "sample", interrupt)
    assert main(risk_arguments(files, tmp_path / "a" / "out")) == 130
    assert list(tmp_path.iterdir()) == []


def interrupt(*_arguments, **_options):
    raise KeyboardInterrupt


def test_no_sample_unique(files, tmp_path, sample_frame):
    doubled = pd.concat([sample_frame.head(75)] * 2)
    doubled.to_csv(tmp_path / "doubled.csv", index=False)
    out = tmp_path / "out"
    assert main(["risk", str(tmp_path / "doubled.csv"), "--levels", str(files / "levels.csv"),
                 *SHORT, *LATENT, "--out", str(out), "--quiet"]) == 0  # fmt: skip
    risk = json.loads((out / "risk.json").read_text())
    assert risk["sample_uniques"] == 0
    assert risk["tau1"] == risk["tau2"] == dict.fromkeys(FIGURES, 0.0)
    assert risk["diagnostics"]["tau1"] == dict.fromkeys(["rhat", "ess_bulk", "ess_tail"])
    assert (out / "records.csv").read_text() == ",".join(["row", *VARIABLES, "r1", "r2"]) + "\n"
    assert "No record is unique" in (out / "report.html").read_text()


BAD = {
    "no such file": ("x,y\n1,2\n", ["risk", "{dir}/none.csv"], ["none.csv", "No such file"]),
    "a folder": ("x,y\n1,2\n", ["risk", "{dir}"], ["is a folder without Parquet files"]),
    "empty file": ("", [], ["a.csv", "empty"]),
    "no record": ("x,y\n", [], ["a.csv", "0 usable records"]),
    "one record": ("x,y\n1,2\n", [], ["a.csv", "1 usable record "]),
    "ragged row": ("x,y\n1,2\n1\n", [], ["a.csv", "row 1 (line 3)", "1 cell "]),
    "missing": ("x,y\n1,2\n1,\n3,4\n", ["--baselines"],
                ["--baselines: cannot be used if values of key", "bnp-models impute"]),
    "missing in cells": ("x,y\n1,2\n1,\n3,4\n", ["--model", "polettini-stander-1"],
                         ["a.csv", "row 1 (line 3)", "column 'y'", "missing", "bnp-models impute"]),
    "every value missing": ("x,y,z\n1,,\n1,,\n3,,\n", [],
                            ["a.csv", "'y' and 'z'", "every value is missing", "--drop y,z"]),
    "unknown column": ("x,y\n1,2\n3,4\n", ["--variables", "x,z"], ["a.csv", "column 'z'"]),
    "unknown level": ("x,y\n1,2\n3,4\n", ["--levels", "{dir}/l.csv"],
                      ["a.csv", "row 1 (line 3)", "column 'x'", "'3'"]),
    "own column": ("row,y\n1,2\n3,4\n", [], ["a.csv", "column 'row'", "records.csv"]),
    "population": ("x,y\n" + "1,2\n" * 101, [], ["a.csv", "population size 100", "101 records"]),
    "conditions of nplcm": ("x,y\n1,2\n3,4\n",
                            ["--model", "nplcm", "--conditions", "{dir}/z.csv"],
                            ["--conditions", "nplcm", "--model hdp, mixed-membership or tnplcm"]),
    "zero chains": ("x,y\n1,2\n3,4\n", ["--chains", "0"], ["--chains", "0 is out of range"]),
    "no number": ("x,y\n1,2\n3,4\n", ["--draws", "many"], ["--draws", "'many'"]),
    "too many sweeps": ("x,y\n1,2\n3,4\n", ["--thin", "2000000000"], ["sweeps than 2**31"]),
    "seed": ("x,y\n1,2\n3,4\n", ["--seed", "-1"], ["--seed", "-1"]),
    "model": ("x,y\n1,2\n3,4\n", ["--model", "other"], ["--model", "other", "hdp", "tnplcm"]),
    "components": ("x,y\n1,2\n3,4\n", ["--components", "5"],
                   ["--components", "only with --model mixed-membership, nplcm, tnplcm or ndpmpm"]),
    "augmentation": ("x,y\n1,2\n3,4\n", ["--model", "tnplcm", "--augmentation", "boxes"],
                     ["--augmentation", "only with --model hdp or mixed-membership"]),
    "not applicable": ("x,y\n1,2\n3,4\n", ["--model", "nplcm", "--not-applicable"],
                       ["--not-applicable", "only with --model hdp or mixed-membership"]),
    "augmentation of nothing": ("x,y\n1,2\n3,4\n", ["--augmentation", "simulation"],
                                ["--augmentation", "only with structural zeros; add --conditions"]),
    "not applicable to nothing": ("x,y\n1,2\n3,4\n", ["--not-applicable"],
                                  ["--not-applicable", "structural zeros; add --conditions"]),
    "concentration": ("x,y\n1,2\n3,4\n", ["--model", "nplcm", "--concentration", "shared"],
                      ["--concentration", "only with --model hdp;"]),
    "one component": ("x,y\n1,2\n3,4\n", ["--model", "nplcm", "--components", "1"],
                      ["--components", "out of range"]),
    "no target": ("x,y\n1,2\n3,4\n", ["--draws", "9", "--max-minutes", "5"],
                  ["--max-minutes", "--until-rhat"]),
    "no R-hat": ("x,y\n1,2\n3,4\n", ["--until-rhat", "1"], ["--until-rhat", "1 is out of range"]),
    "one chain": ("x,y\n1,2\n3,4\n", ["--until-rhat", "1.01", "--chains", "1"],
                  ["--until-rhat", "--chains"]),
    "no minutes": ("x,y\n1,2\n3,4\n", ["--until-rhat", "1.01", "--max-minutes", "nan"],
                   ["--max-minutes", "nan is out of range"]),
    "newline": ("x,y\n1,2\n3,4\n", ["--variables", "x\nz"], ["column 'x z'"]),
}  # fmt: skip


@pytest.mark.parametrize(("content", "more", "parts"), BAD.values(), ids=BAD)
def test_bad_input(content, more, parts, tmp_path, capsys):
    source = tmp_path / "a.csv"
    source.write_text(content)
    (tmp_path / "l.csv").write_text("variable,level\nx,1\n")
    more = [word.format(dir=tmp_path) for word in more]
    start = [] if more[:1] == ["risk"] else ["risk", str(source)]
    out = tmp_path / "deep" / "out"
    code = main([*start, *more, "--population-size", "100", "--out", str(out)])
    assert code == 2
    message = one_line(capsys)
    for part in parts:
        assert part in message
    assert not out.parent.exists()


# Sample, conditions, arguments, parts of the message.
BAD_ZEROS = {
    "no file": ("x,y\n1,2\n3,4\n", None, [], ["z.csv", "No such file"]),
    "empty": ("x,y\n1,2\n3,4\n", "", [], ["z.csv", "empty"]),
    "unknown column": ("x,y\n1,2\n3,4\n", "x,w\n1,2\n", [], ["z.csv", "row 0 (line 2)", "'w'"]),
    "unknown level": ("x,y\n1,2\n3,4\n", "x,y\n1,4\n3,5\n", [],
                      ["z.csv", "row 1 (line 3)", "column 'y'", "'5'"]),
    "nothing fixed": ("x,y\n1,2\n3,4\n", "x,y\n,\n1,2\n", [], ["z.csv", "row 0 (line 2)"]),
    "everything": ("x,y\n1,2\n3,4\n", "x,y\n1,\n3,\n", [], ["z.csv", "every combination"]),
    "record in a zero": ("x,y\n1,2\n3,4\n1,4\n", "x,y\n1,4\n", [],
                         ["a.csv", "row 2 (line 4)", "'x' = '1' and 'y' = '4'"]),
    "no completion": ("x,y\n1,2\n3,4\n1,\n3,2\n", "x,y\n1,2\n1,4\n", ["--variables", "y,x"],
                      ["a.csv", "row 0 (line 2)", "'x' = '1'"]),
    "no completion of the missing": ("x,y\n5,2\n3,4\n1,\n", "x,y\n1,2\n1,4\n", [],
                                     ["a.csv", "row 2 (line 4)", "'x' = '1'"]),
    "nplcm": ("x,y\n1,2\n3,4\n", "x,y\n1,4\n", ["--model", "nplcm"], ["--conditions", "tnplcm"]),
    "cells": ("x,y\n1,2\n3,4\n", None, ["--model", "polettini-stander-1"],
              ["--model", "'polettini-stander-1'"]),
    "no data set": ("x,y\n1,2\n3,4\n", "x,y\n1,4\n", ["--datasets", "0"], ["--datasets", "0"]),
    "too many data sets": ("x,y\n1,2\n3,\n", "x,y\n1,4\n",
                           ["--levels", "{dir}/l.csv", "--datasets", "9", "--chains", "2",
                            "--draws", "4"], ["--datasets 9", "only 8 draws can be used"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ["synthesize", "impute"])
@pytest.mark.parametrize(("content", "zeros", "more", "parts"), BAD_ZEROS.values(), ids=BAD_ZEROS)
def test_bad_conditions(name, content, zeros, more, parts, tmp_path, capsys):
    (tmp_path / "a.csv").write_text(content)
    (tmp_path / "l.csv").write_text("variable,level\ny,2\ny,4\n")
    if zeros is not None:
        (tmp_path / "z.csv").write_text(zeros)
    out = tmp_path / "deep" / "out"
    more = [word.format(dir=tmp_path) for word in more]
    code = main([name, str(tmp_path / "a.csv"), "--conditions", str(tmp_path / "z.csv"),
                 "--out", str(out), *more])  # fmt: skip
    assert code == 2
    message = one_line(capsys)
    for part in parts:
        assert part in message
    assert not out.parent.exists()


def test_boxes_that_cannot_be_listed(tmp_path, monkeypatch, capsys):
    """As where conditions fix very many variables."""
    monkeypatch.setattr(urn_partitions, "MAX_PARTITIONS", 1)
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    (tmp_path / "z.csv").write_text("x,y\n1,4\n")
    out = tmp_path / "deep" / "out"
    more = ["--conditions", str(tmp_path / "z.csv"), "--augmentation", "boxes", "--out", str(out)]
    code = main(["risk", str(tmp_path / "a.csv"), "--population-size", "100", *more])
    assert code == 2
    message = one_line(capsys)
    assert 'augmentation "boxes"' in message and 'use "simulation"' in message
    assert not out.parent.exists()


def test_bad_numbers_of_records(files, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["synthesize", str(files / "sample.csv"), "--rows", "0", "--out", str(out)]) == 2
    assert "--rows" in one_line(capsys)
    assert main(["impute", str(files / "sample.csv"), "--rows", "5", "--out", str(out)]) == 2
    assert "--rows" in one_line(capsys)
    assert main(["impute", str(files / "sample.csv"), "--out", str(out)]) == 2
    assert "nothing to impute" in one_line(capsys)
    assert not out.exists()


@pytest.mark.parametrize("name", ["file", "file/out", "file/deep/out"])
def test_a_folder_that_cannot_be(name, files, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(risk_arguments(files, tmp_path / name)) == 2
    assert name in one_line(capsys)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture(scope="module")
def latent_files(tmp_path_factory, incomplete_frame, conditions_frame):
    """Labels as awkward as real ones: leading zeros, commas, spaces."""
    folder = tmp_path_factory.mktemp("latent")
    codes = {"Female": "01", "Male": "02"}
    frame = incomplete_frame.assign(sex=incomplete_frame["sex"].map(codes))
    frame = frame.assign(note=["a, b", "c"] * 75)
    frame.to_csv(folder / "sample.csv", index=False)
    zeros = conditions_frame.assign(sex=conditions_frame["sex"].map(codes))
    zeros.to_csv(folder / "zeros.csv", index=False)
    return folder


def made_arguments(name, folder, out, *more):
    return [name, str(folder / "sample.csv"), "--conditions", str(folder / "zeros.csv"),
            "--variables", "age,sex,marital_status,education,class_of_worker", *SHORT[2:],
            "--out", str(out), *more]  # fmt: skip


def read(path):
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def without_clock(path):
    content = path.read_bytes()
    return content[: content.index(b'  "seconds"')]


@pytest.fixture(scope="module")
def synthesized(latent_files, tmp_path_factory):
    out = tmp_path_factory.mktemp("synthesized") / "out"
    assert main(made_arguments("synthesize", latent_files, out, "--quiet")) == 0
    return out


SYNTHETIC = [f"synthetic_{m}.csv" for m in range(1, 6)]


def test_synthesize(synthesized, latent_files, latent):
    assert sorted(path.name for path in synthesized.iterdir()) == [
        "posterior.nc", "report.html", "run.json", "run.toml", *SYNTHETIC,
    ]  # fmt: skip
    sample = read(latent_files / "sample.csv")
    for name in SYNTHETIC:
        frame = read(synthesized / name)
        assert list(frame) == list(latent.table.schema.variables)
        assert len(frame) == 150
        assert all(set(frame[v]) <= set(sample[v]) - {""} for v in frame)
    assert set(read(synthesized / SYNTHETIC[0])["sex"]) == {"01", "02"}
    # The command is the notebook's few lines: same key, same records.
    made = bnp.synthesize(latent.run, method="balanced")[0]["age"].tolist()
    assert read(synthesized / SYNTHETIC[0])["age"].tolist() == made
    run = json.loads((synthesized / "run.json").read_text())
    assert list(run)[-3:] == ["warnings", "seconds", "sweeps_per_second"]
    assert run["files_sha256"] == {x: file_digest(synthesized / x) for x in SYNTHETIC}
    assert (run["model"], run["components"], run["datasets"], run["rows"]) == ("tnplcm", 50, 5, 150)
    assert run["augmented"] == latent.run.draws["augmented"].mean()
    assert list(run["p_zero"]) == FIGURES
    assert len(run["diagnostics"]) == 6
    assert "synthetic data sets" in (synthesized / "report.html").read_text()
    data = load_arviz().from_netcdf(str(synthesized / "posterior.nc"))
    np.testing.assert_array_equal(data["posterior"]["log_lambda"], latent.run.draws["log_lambda"])
    assert "last_class" in data["sample_stats"]


def test_spss_files_in_and_out(synthesized, latent_files, tmp_path):
    """The same records as from the CSV file, as values with labels."""
    sample = read(latent_files / "sample.csv")
    texts = {name: sorted(set(sample[name]) - {""}) for name in sample}
    labels = {name: {10 * k + 1: text for k, text in enumerate(texts[name])} for name in sample}
    values = {name: {text: value for value, text in labels[name].items()} for name in sample}
    coded = pd.DataFrame({name: sample[name].map(values[name]).astype(float) for name in sample})
    pyreadstat.write_sav(coded, tmp_path / "sample.sav", variable_value_labels=labels)
    arguments = made_arguments("synthesize", latent_files, tmp_path / "out", "--format", "sav")
    arguments[1] = str(tmp_path / "sample.sav")
    assert main([*arguments, "--quiet"]) == 0
    assert not list((tmp_path / "out").glob("*.csv"))
    for name in SYNTHETIC:
        frame, metadata = pyreadstat.read_sav(str(tmp_path / "out" / name.replace("csv", "sav")))
        expected = read(synthesized / name)
        assert {v: metadata.variable_value_labels[v] for v in expected} == {
            v: labels[v] for v in expected
        }
        for variable in expected:
            assert frame[variable].map(labels[variable]).tolist() == expected[variable].tolist()


def test_stata_files_of_names_that_it_cannot_have(synthesized, latent_files, tmp_path, capsys):
    """The same records as with other names, which are labels, and evaluate finds the columns."""
    out, names = tmp_path / "out", {"age": "int", "class_of_worker": "class of worker"}
    for name in ("sample.csv", "zeros.csv"):
        read(latent_files / name).rename(columns=names).to_csv(tmp_path / name, index=False)
    expected = read(synthesized / SYNTHETIC[0]).rename(columns=names)
    arguments = made_arguments("synthesize", tmp_path, out, "--format", "dta")
    arguments[5] = ",".join(expected)
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "the labels of the columns): 'int' -> v_int, 'class of worker' -> " in said
    made = str(out / "synthetic_1.dta")
    labels = pyreadstat.read_dta(made, metadataonly=True)[1].column_names_to_labels
    assert {label: own for own, label in labels.items() if label} == {
        "int": "v_int", "class of worker": "class_of_worker"
    }  # fmt: skip
    pd.testing.assert_frame_equal(bnp.io.read_frame(made, list(expected))[0], expected)
    judged = ["evaluate", arguments[1], made, "--variables", arguments[5], "--quiet"]
    assert main([*judged, "--out", str(tmp_path / "judged")]) == 0
    found = json.loads((tmp_path / "judged" / "evaluation.json").read_text())
    assert found["variables"] == list(expected)


def test_impute(latent_files, tmp_path, capsys, latent):
    out = tmp_path / "out"
    assert main(made_arguments("impute", latent_files, out, "--datasets", "2")) == 0
    printed = capsys.readouterr().out
    assert "2 completed data sets of 150 records, none of them in a structural zero" in printed
    assert "warning: " in printed and "imputed_1.csv to imputed_2.csv" in printed
    assert sorted(path.name for path in out.iterdir()) == [
        "imputed_1.csv", "imputed_2.csv", "posterior.nc", "report.html", "run.json", "run.toml",
    ]  # fmt: skip
    sample = read(latent_files / "sample.csv").drop(columns="note")
    for m in (1, 2):
        frame = read(out / f"imputed_{m}.csv")
        observed = (sample != "").to_numpy()
        np.testing.assert_array_equal(frame.to_numpy()[observed], sample.to_numpy()[observed])
        assert not (frame == "").any(axis=None)
        completed = bnp.Microdata.from_frame(
            frame.assign(sex=frame["sex"].map({"01": "Female", "02": "Male"})),
            levels=latent.table.schema,
        )
        assert not latent.conditions.contains(completed.codes).any()
    data = load_arviz().from_netcdf(str(out / "posterior.nc"))
    assert "log_lambda" not in data["posterior"]


def test_synthesis_goes_on_after_an_interruption(synthesized, latent_files, tmp_path, capsys,
                                                 monkeypatch):  # fmt: skip
    out = tmp_path / "out"
    arguments = made_arguments("synthesize", latent_files, out, "--checkpoint-seconds", "0")
    save = bnp.Checkpoint.save

    def save_and_stop(self, *saved, **how):
        save(self, *saved, **how)
        if saved[2] is not None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bnp.Checkpoint, "save", save_and_stop)
        assert main(arguments) == 130
    missing, stopped = capsys.readouterr().err.splitlines()
    assert "--keep-missing" in missing and "--resume" in stopped
    assert [path.name for path in out.iterdir()] == ["checkpoint"]
    with monkeypatch.context() as patch:
        patch.setattr(datasets, "margins_of_files", interrupt)
        assert main([*arguments, "--resume"]) == 130
    # What an earlier call left of more data sets is not this one's.
    (out / "synthetic_6.csv").touch()
    (out / "synthetic_of_mine.csv").touch()
    assert main([*arguments, "--resume", "--quiet"]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "posterior.nc", "report.html", "run.json", "run.toml", *SYNTHETIC, "synthetic_of_mine.csv",
    ]  # fmt: skip
    for name in (*SYNTHETIC, "posterior.nc"):
        assert (out / name).read_bytes() == (synthesized / name).read_bytes()
    mine, theirs = (json.loads(without_clock(folder / "run.json").rstrip(b",\n") + b"}")
                    for folder in (out, synthesized))  # fmt: skip
    assert mine.pop("command") != theirs.pop("command")
    assert mine == theirs
    capsys.readouterr()
    assert main([*arguments, "--resume"]) == 0
    assert "is complete" in capsys.readouterr().out
    for other in (["--rows", "7"], ["--components", "20"]):
        assert main([*arguments, "--resume", *other]) == 2
        assert "finished run with other" in one_line(capsys)


@pytest.mark.long
def test_risk_by_latent_classes(latent_files, tmp_path):
    """Of the records without missing values, under the conditions."""
    sample = read(latent_files / "sample.csv").drop(columns="note")
    sample[(sample != "").all(axis=1)].to_csv(tmp_path / "complete.csv", index=False)
    out = tmp_path / "out"
    code = main(["risk", str(tmp_path / "complete.csv"), *SHORT, "--model", "tnplcm",
                 "--conditions", str(latent_files / "zeros.csv"), "--components", "10",
                 "--out", str(out), "--quiet"])  # fmt: skip
    assert code == 0
    risk = json.loads((out / "risk.json").read_text())
    assert risk["model"] == "tnplcm"
    assert list(risk)[-10:] == [
        "p_zero", "equivalences", "checks", "ties", "without_ties", "contributions", "what_if",
        "warnings", "seconds", "sweeps_per_second",
    ]  # fmt: skip
    assert list(risk["p_zero"]) == FIGURES
    assert list(risk["diagnostics"]) == ["tau1", "tau1_conditional", "components", "alpha",
                                         "log_likelihood"]  # fmt: skip
    assert 0 < risk["tau1_conditional"]["mean"] < risk["sample_uniques"]
    assert 1 <= risk["components"] <= 10
    run = json.loads((out / "run.json").read_text())
    assert run["components"] == 10 and run["conditions_sha256"] is not None
    assert "on the prior and not on the data" in (out / "report.html").read_text()


@pytest.mark.long
def test_risk_under_structural_zeros_by_mixed_membership(latent_files, tmp_path):
    """In the form in which what the conditions settle is left out of the records."""
    sample = read(latent_files / "sample.csv").drop(columns="note")
    sample[(sample != "").all(axis=1)].to_csv(tmp_path / "complete.csv", index=False)
    out = tmp_path / "out"
    assert main(["risk", str(tmp_path / "complete.csv"), *SHORT, "--draws", "20", "--conditions",
                 str(latent_files / "zeros.csv"), "--model", "mixed-membership", "--components",
                 "8", "--not-applicable", "--out", str(out), "--quiet"]) == 0  # fmt: skip
    tied = "age is '0-14' if and only if education is 'Under 15 years old'"
    risk = json.loads((out / "risk.json").read_text())
    assert risk["model"] == "mixed-membership" and risk["equivalences"] == [tied]
    assert list(risk["p_zero"]) == FIGURES and risk["components"] <= 8
    assert 0 < risk["tau1_conditional"]["mean"] < risk["sample_uniques"]
    page = html.unescape((out / "report.html").read_text())
    assert f"The conditions imply: {tied}. The values that" in page and "were left out" in page
    run = json.loads((out / "run.json").read_text())
    assert run["components"] == 8 and run["not_applicable"] is True


# Of a file with a header alone, which excludes nothing.
NO_CONDITION = ["--conditions", "{dir}/z.csv"]


@pytest.mark.parametrize(
    ("arguments", "model", "options"),
    [
        (["risk"], bnp.HDPMixedMembership, {}),
        (
            ["risk", "--concentration", "record"],
            bnp.HDPMixedMembership, {"concentration": "record"},
        ),
        (
            ["risk", "--augmentation", "simulation", "--not-applicable", *NO_CONDITION],
            bnp.HDPMixedMembership, {"augmentation": "simulation", "not_applicable": True},
        ),
        (
            ["risk", "--model", "mixed-membership", "--components", "12", "--not-applicable",
             *NO_CONDITION],
            bnp.MixedMembership, {"components": 12, "not_applicable": True},
        ),
        (["risk", "--model", "nplcm"], bnp.NPLCM, {}),
        (["risk", "--model", "tnplcm", "--components", "7"], bnp.TNPLCM, {"components": 7}),
        (["risk", "--alpha", "0.3"], bnp.HDPMixedMembership, {"alpha": 0.3}),
        (
            ["risk", "--model", "nplcm", "--alpha", "2", "--level-shape", "0.5"],
            bnp.NPLCM, {"alpha": 2, "level_shape": 0.5},
        ),
        (["synthesize"], bnp.TNPLCM, {}),
        (["synthesize", "--model", "nplcm", "--components", "9"], bnp.NPLCM, {"components": 9}),
    ],
)  # fmt: skip
def test_options_of_the_model(arguments, model, options, files, tmp_path, monkeypatch):
    asked = []

    def stop(*given, **_options):
        asked.append(given[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "sample", stop)
    header = (files / "sample.csv").read_text().splitlines()[0]
    (tmp_path / "z.csv").write_text(f"{header}\n0-14,,,Bachelor or higher\n")
    name, *more = [word.format(dir=tmp_path) for word in arguments]
    size = SHORT if name == "risk" else SHORT[2:]
    assert (
        main([name, str(files / "sample.csv"), *size, "--out", str(tmp_path / "o"), *more]) == 130
    )
    assert asked == [model(**options)]


def test_usage_errors_are_one_line(capsys):
    assert main([]) == 2
    assert "COMMAND" in one_line(capsys)
    assert main(["risk"]) == 2
    assert "SAMPLE" in one_line(capsys)


def command(files, out, *more):
    return [sys.executable, "-m", "bnp_models", *risk_arguments(files, out, *more)]


@pytest.mark.long
def test_a_killed_run_goes_on_as_if_it_had_not_been(files, tmp_path):
    moments = random.Random(0)
    longer = [*LATENT, "--draws", "600", "--checkpoint-seconds", "0", "--quiet"]
    # Other processes have the models' own defaults, which this one has not.
    subprocess.run(command(files, tmp_path / "whole", *longer), check=True)
    out = tmp_path / "killed"
    kills = 0
    for attempt in range(2):
        again = ["--resume"] if attempt else []
        manifest = out / "checkpoint" / "manifest.json"
        before = manifest.read_bytes() if manifest.exists() else None
        process = subprocess.Popen(command(files, out, *longer, *again))
        while process.poll() is None and (not manifest.exists() or manifest.read_bytes() == before):
            time.sleep(0.005)
        time.sleep(moments.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    assert kills == 2
    assert not (out / "risk.json").exists()
    subprocess.run(command(files, out, *longer, "--resume"), check=True)
    assert untimed(out) == untimed(tmp_path / "whole")
    for name in ("records.csv", "posterior.nc"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


UNTIL = [*LATENT, "--until-rhat", "1.1", "--until-ess", "80"]


@pytest.fixture(scope="module")
def until_done(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("until") / "out"
    assert main(risk_arguments(files, out, *UNTIL, "--quiet")) == 0
    return out


def test_a_run_goes_on_until_it_has_converged(until_done, small, files, capsys):
    risk = json.loads((until_done / "risk.json").read_text())
    stopping = risk["stopping"]
    assert stopping["reached"] and stopping["draws"] > 30
    held = stopping["draws"] // stopping["thin"]
    assert stopping["kept"] == held - held // 4
    assert (stopping["max_rhat"], stopping["min_ess"], stopping["max_minutes"]) == (1.1, 80, 60)
    for name, figures in risk["diagnostics"].items():
        # Components and alpha are shown alone.
        assert figures["rhat"] <= 1.1 or name in ("components", "alpha")
        assert min(figures["ess_bulk"], figures["ess_tail"]) >= 80 or not name.startswith("tau")
    assert not any(sentence.startswith("stopped") for sentence in risk["warnings"])
    assert sorted(path.name for path in until_done.iterdir()) == OUTPUTS
    # The last three quarters of the draws of a run of that length, and the last round was needed.
    run = bnp.sample(
        bnp.NPLCM(components=6), small.table, key=jax.random.key(0), num_chains=2, num_warmup=100,
        num_samples=stopping["draws"],
    )  # fmt: skip
    later = bnp.population_risk(run.thinned(stopping["thin"]).later_draws(), 20_000)
    assert risk["tau1_conditional"]["mean"] == later.tau1_conditional.mean()
    assert main(risk_arguments(files, until_done, *UNTIL, "--resume")) == 0
    assert "is complete" in capsys.readouterr().out
    more = [*LATENT, "--until-rhat", "1.09", "--until-ess", "80"]
    assert main(risk_arguments(files, until_done, *more, "--resume")) == 2
    assert "finished run with other" in one_line(capsys)


def test_without_draws_a_run_has_a_target(files, tmp_path, capsys, monkeypatch):
    """It says how long the target would have taken; minutes by default leave the first draws."""
    monkeypatch.setattr(parts, "DEFAULT_MINUTES", 0.0001)
    out = tmp_path / "out"
    data = [str(files / "sample.csv"), "--levels", str(files / "levels.csv")]
    few = ["--population-size", "20000", "--model", "nplcm", "--chains", "2", "--warmup", "10"]
    many = ["--components", "6", "--until-ess", "1000000000"]
    assert main(["risk", *data, *few, *many, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "allow more minutes (--max-minutes: about " in printed
    stopping = json.loads((out / "risk.json").read_text())["stopping"]
    assert (stopping["max_rhat"], stopping["draws"]) == (1.01, 1000)


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        ((1.6, 6.4), "; the run probably needs about 2 to 6 minutes in all"),
        (None, "; it is too early to say how long the run will take"),
    ],
)
def test_what_is_missing_is_said_while_a_run_goes_on(needed, words):
    """Of what costs little, and only then of what is evaluated."""
    said, evaluated = [], []
    alone, diagnosis = (
        SimpleNamespace(
            reached=False,
            missed=[f"R-hat of {name} is 1.2", "that of x is 2"],
            minutes_needed=needed,
        )  # fmt: skip
        for name in ("alpha", "tau1")
    )

    def diagnose(run):
        evaluated.append(run)
        return diagnosis

    run = SimpleNamespace(seconds={"draws": 90.0}, until=SimpleNamespace(max_minutes=10.0))
    target = runs._JudgedTarget(1.01, diagnose=diagnose, early=lambda run: alone, say=said.append)
    assert not target(run) and not evaluated
    alone.reached = True
    assert not target(run) and evaluated == [run]
    assert said == [
        f"after 1.5 minutes, R-hat of {name} is 1.2 and that of x is 2{words}, and it ends after "
        "10 minutes at the latest"
        for name in ("alpha", "tau1")
    ]
    diagnosis.reached = True
    assert target(run) and len(said) == 2


def test_minutes_that_are_used_up_and_more_of_them(
    until_done, files, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "out"
    # The minutes that are asked for end the first draws too.
    assert main(risk_arguments(files, out, *UNTIL, "--max-minutes", "0.00001")) == 1
    message = one_line(capsys)
    assert "there are no results yet" in message and not out.exists()
    assert message.endswith("; repeat the command with --resume and more --max-minutes\n")
    monkeypatch.setattr(parts, "MAX_MINUTES", 0.00001)
    assert main(risk_arguments(files, out, *UNTIL)) == 0
    printed = capsys.readouterr().out
    assert "warning: stopped after 1e-05 minutes: " in printed
    assert "to go on: repeat the command with --resume and more --max-minutes" in printed
    risk = json.loads((out / "risk.json").read_text())
    assert risk["stopping"]["draws"] == 30 and not risk["stopping"]["reached"]
    assert risk["warnings"][0].startswith("stopped after 1e-05 minutes: ")
    assert main(risk_arguments(files, out, *UNTIL, "--resume")) == 0
    assert "is complete" in capsys.readouterr().out
    more = ["--max-minutes", "60", "--resume", "--quiet"]
    assert main(risk_arguments(files, out, *UNTIL, *more)) == 0
    assert untimed(out) == untimed(until_done)
    for name in ("records.csv", "posterior.nc"):
        assert (out / name).read_bytes() == (until_done / name).read_bytes()
    assert sorted(path.name for path in out.iterdir()) == OUTPUTS


@pytest.mark.long
def test_a_run_with_a_target_survives_being_killed(files, tmp_path):
    whole, out, moments = tmp_path / "whole", tmp_path / "out", random.Random(1)
    options = [*UNTIL, "--checkpoint-seconds", "0", "--quiet"]
    subprocess.run(command(files, whole, *options), check=True)
    manifest = out / "checkpoint" / "manifest.json"
    process = subprocess.Popen(command(files, out, *options))
    while process.poll() is None and not manifest.exists():
        time.sleep(0.002)
    time.sleep(moments.uniform(0, 0.05))
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    subprocess.run(command(files, out, *options, "--resume"), check=True)
    assert untimed(out) == untimed(whole)
    assert (out / "posterior.nc").read_bytes() == (whole / "posterior.nc").read_bytes()


@pytest.mark.long
def test_synthesis_goes_on_until_it_has_converged(latent_files, tmp_path):
    out = tmp_path / "out"
    arguments = made_arguments("synthesize", latent_files, out, "--quiet", "--datasets", "2")
    assert main([*arguments, "--until-rhat", "1.8", "--until-ess", "8"]) == 0
    run = json.loads((out / "run.json").read_text())
    assert run["stopping"]["reached"] and run["until_rhat"] == 1.8
    assert len(run["diagnostics"]) == 6
    for name, figures in run["diagnostics"].items():
        # The effective size is asked of what is reported; components and alpha are shown alone.
        assert figures["rhat"] <= 1.8 or name in ("components", "alpha")
        assert figures["ess_bulk"] >= 8 or "margin" not in name
    assert run["modes"]["verdict"] and "tau1" not in run["modes"]["modes"][0]


def test_the_import_is_light():
    code = (
        "import bnp_models as bnp, bnp_models.cli, sys; "
        "bnp.sample; bnp.population_risk; bnp.Microdata; "
        "print(*sorted({'arviz', 'matplotlib', 'numpyro', 'jinja2'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            env=os.environ, check=True)  # fmt: skip
    assert result.stdout.strip() == ""


def test_a_name_that_does_not_exist_is_an_error():
    with pytest.raises(AttributeError, match="nothing"):
        bnp.nothing  # noqa: B018
