"""The command line: what it writes, what it refuses, and that a killed run loses nothing."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.cli import main
from bnp_models.diagnostics import load_arviz

VARIABLES = ("age", "sex", "race", "education")
SHORT = ["--population-size", "20000", "--chains", "2", "--warmup", "100", "--draws", "30"]
OUTPUTS = ["posterior.nc", "records.csv", "report.html", "risk.json", "run.json"]
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


def untimed(out):
    """The bytes of risk.json that do not depend on the clock."""
    content = (out / "risk.json").read_bytes()
    return content[: content.index(b'  "seconds"')]


def one_line(capsys):
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1 and printed.err.endswith("\n")
    return printed.err


def test_risk_json(done, files, small):
    risk = json.loads((done / "risk.json").read_text())
    assert list(risk) == [
        "model", "n", "population_size", "variables", "levels", "cells", "sample_uniques", "seed",
        "version", "device", "tau1", "tau1_conditional", "tau2", "diagnostics", "components",
        "warnings", "seconds", "sweeps_per_second",
    ]  # fmt: skip
    assert (risk["model"], risk["n"], risk["seed"]) == ("hdp", 150, 0)
    assert risk["population_size"] == 20_000
    assert risk["variables"] == list(VARIABLES)
    assert risk["levels"] == list(small.table.schema.num_levels)
    assert risk["cells"] == math.prod(risk["levels"])
    assert risk["sample_uniques"] == len(small.table.cells().sample_uniques)
    assert risk["version"] == bnp.__version__
    for name in ("tau1", "tau1_conditional", "tau2"):
        assert list(risk[name]) == FIGURES
    assert list(risk["diagnostics"]) == ["tau1", "tau1_conditional", "components", "alpha",
                                         "log_likelihood"]  # fmt: skip
    for figures in risk["diagnostics"].values():
        assert list(figures) == ["rhat", "ess_bulk", "ess_tail"]
    assert list(risk["seconds"]) == ["compile", "warmup", "draws"]
    # The command is the notebook's few lines: same key, same numbers.
    assert risk["tau1_conditional"]["mean"] == small.risk.tau1_conditional.mean()


def test_records_and_netcdf(done, sample_frame):
    risk = json.loads((done / "risk.json").read_text())
    records = pd.read_csv(done / "records.csv", dtype=str).astype({"r1": float, "row": int})
    assert list(records) == ["row", *VARIABLES, "r1", "r2"]
    assert len(records) == risk["sample_uniques"]
    assert records["r1"].is_monotonic_decreasing
    assert records["r1"].sum() == pytest.approx(risk["tau1_conditional"]["mean"], rel=1e-12)
    expected = sample_frame.iloc[records["row"]].astype(str).to_numpy()
    np.testing.assert_array_equal(records[list(VARIABLES)].to_numpy(), expected)
    posterior = load_arviz().from_netcdf(str(done / "posterior.nc"))["posterior"]
    assert dict(posterior.sizes) == {"chain": 2, "draw": 30}
    assert float(posterior["tau1"].mean()) == pytest.approx(risk["tau1"]["mean"])


def test_a_finished_run_is_left_alone(done, files, capsys):
    assert sorted(path.name for path in done.iterdir()) == OUTPUTS
    before = (done / "risk.json").stat().st_mtime_ns
    assert main(risk_arguments(files, done, "--resume")) == 0
    assert "is complete" in capsys.readouterr().out
    assert main(risk_arguments(files, done, "--resume", "--seed", "1")) == 2
    assert "finished run with other" in one_line(capsys)
    assert (done / "risk.json").stat().st_mtime_ns == before


def test_interruption_damage_and_resume(done, files, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(bnp, "population_risk", interrupt)
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


def test_nothing_is_left_of_a_run_interrupted_early(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bnp, "sample", interrupt)
    assert main(risk_arguments(files, tmp_path / "a" / "out")) == 130
    assert list(tmp_path.iterdir()) == []


def interrupt(*_arguments, **_options):
    raise KeyboardInterrupt


def test_no_sample_unique(files, tmp_path, sample_frame):
    doubled = pd.concat([sample_frame.head(75)] * 2)
    doubled.to_csv(tmp_path / "doubled.csv", index=False)
    out = tmp_path / "out"
    assert main(["risk", str(tmp_path / "doubled.csv"), "--levels", str(files / "levels.csv"),
                 *SHORT, "--out", str(out), "--quiet"]) == 0  # fmt: skip
    risk = json.loads((out / "risk.json").read_text())
    assert risk["sample_uniques"] == 0
    assert risk["tau1"] == risk["tau2"] == dict.fromkeys(FIGURES, 0.0)
    assert risk["diagnostics"]["tau1"] == dict.fromkeys(["rhat", "ess_bulk", "ess_tail"])
    assert (out / "records.csv").read_text() == ",".join(["row", *VARIABLES, "r1", "r2"]) + "\n"
    assert "No record is unique" in (out / "report.html").read_text()


BAD = {
    "no such file": ("x,y\n1,2\n", ["risk", "{dir}/none.csv"], ["none.csv", "No such file"]),
    "a folder": ("x,y\n1,2\n", ["risk", "{dir}"], ["is a directory"]),
    "empty file": ("", [], ["a.csv", "empty"]),
    "no record": ("x,y\n", [], ["a.csv", "0 usable records"]),
    "one record": ("x,y\n1,2\n", [], ["a.csv", "1 usable record "]),
    "ragged row": ("x,y\n1,2\n1\n", [], ["a.csv", "row 1 (line 3)", "1 cells"]),
    "missing": ("x,y\n1,2\n1,\n3,4\n", [], ["a.csv", "row 1", "column 'y'", "missing"]),
    "unknown column": ("x,y\n1,2\n3,4\n", ["--variables", "x,z"], ["a.csv", "column 'z'"]),
    "unknown level": ("x,y\n1,2\n3,4\n", ["--levels", "{dir}/l.csv"],
                      ["a.csv", "row 1 (line 3)", "column 'x'", "'3'"]),
    "own column": ("row,y\n1,2\n3,4\n", [], ["a.csv", "column 'row'", "records.csv"]),
    "population": ("x,y\n" + "1,2\n" * 101, [], ["a.csv", "population size 100", "101 records"]),
    "conditions": ("x,y\n1,2\n3,4\n", ["--conditions", "z.csv"], ["--conditions", "not available"]),
    "zero chains": ("x,y\n1,2\n3,4\n", ["--chains", "0"], ["--chains", "0 is out of range"]),
    "no number": ("x,y\n1,2\n3,4\n", ["--draws", "many"], ["--draws", "'many'"]),
    "too many sweeps": ("x,y\n1,2\n3,4\n", ["--thin", "2000000000"], ["2**31 sweeps"]),
    "seed": ("x,y\n1,2\n3,4\n", ["--seed", "-1"], ["--seed", "-1"]),
    "model": ("x,y\n1,2\n3,4\n", ["--model", "nplcm"], ["--model", "nplcm", "hdp"]),
    "option": ("x,y\n1,2\n3,4\n", ["--components", "5"], ["--components"]),
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


@pytest.mark.parametrize("name", ["file", "file/out", "file/deep/out"])
def test_a_folder_that_cannot_be(name, files, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(risk_arguments(files, tmp_path / name)) == 2
    assert name in one_line(capsys)
    assert (tmp_path / "file").read_text() == "mine"


def test_usage_errors_are_one_line(capsys):
    assert main([]) == 2
    assert "COMMAND" in one_line(capsys)
    assert main(["risk"]) == 2
    assert "SAMPLE" in one_line(capsys)


def command(files, out, *more):
    return [sys.executable, "-m", "bnp_models", *risk_arguments(files, out, *more)]


def test_a_killed_run_goes_on_as_if_it_had_not_been(files, tmp_path):
    moments = random.Random(0)
    longer = ["--draws", "1500", "--checkpoint-seconds", "0", "--quiet"]
    assert main(risk_arguments(files, tmp_path / "whole", *longer)) == 0
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


def test_the_import_is_light():
    code = (
        "import bnp_models as bnp, sys; bnp.sample; bnp.population_risk; bnp.Microdata; bnp.cli; "
        "print(*sorted({'arviz', 'matplotlib', 'numpyro', 'jinja2'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            env=os.environ, check=True)  # fmt: skip
    assert result.stdout.strip() == ""


def test_every_public_name_exists():
    assert all(getattr(bnp, name) is not None for name in bnp.__all__)
    assert set(bnp.__all__) <= set(dir(bnp))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        bnp.nothing  # noqa: B018
