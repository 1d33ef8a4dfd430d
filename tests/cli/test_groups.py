"""Groups of levels by the command line: files that are refused, what is recorded and evaluated."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from commands import one_line

from bnp_models.cli.compare import _model
from bnp_models.cli.main import main
from bnp_models.data.hierarchies import as_hierarchies

CHAINS = ("--chains", "2", "--warmup", "10", "--draws", "10", "--level-prior", "learned",
          "--quiet")  # fmt: skip
JOBS = ["111", "112", "121", "211", "212", "221"]
TABLE = "level,group,group\n" + "".join(f"{x},{x[:2]},{x[0]}\n" for x in [*JOBS, "999"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("groups"), np.random.default_rng(0)
    frame = pd.DataFrame({"job": rng.choice(JOBS, 100), "sex": rng.choice(["f", "m"], 100)})
    frame.to_csv(folder / "sample.csv", index=False)
    (folder / "jobs.csv").write_text(TABLE)
    (folder / "few.csv").write_text(TABLE.replace("211,21,2\n", ""))
    (folder / "torn.csv").write_text(TABLE.replace("112,11,1", "112,11,2"))
    return folder


def test_groups_are_recorded_and_repeated(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    out, again = tmp_path / "out", tmp_path / "again"
    assert main([
        "risk", "sample.csv", "--population-size", "2000", "--model", "nplcm", "--components", "4",
        "--groups", "job=jobs.csv", "--what-if", "group:job", "group:job=2", *CHAINS,
        "--out", str(out),
    ]) == 0  # fmt: skip
    run, risk = (json.loads((out / name).read_text()) for name in ("run.json", "risk.json"))
    assert run["groups"] == {"job": "jobs.csv"}
    assert run["coarsenings"][:2] == ["group:job", "group:job=2"]
    assert set(run["level_prior"]["concentration"]) == {"job", "sex"}
    assert {"group:job", "group:job=2"} <= {one["spec"] for one in risk["what_if"]}
    assert main(["risk", "--config", str(out / "run.toml"), "--out", str(again)]) == 0
    assert (again / "records.csv").read_bytes() == (out / "records.csv").read_bytes()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--groups", "work=jobs.csv"), "column 'work': cannot have groups, only job, sex can"),
        (("--groups", "job=few.csv"), "column 'job': level '211' has no row"),
        (("--groups", "job=torn.csv"), r"torn.csv, row 1 \(line 3\): group '11' lies in '1' and"),
        (("--groups", "job=none.csv"), "none.csv: cannot be read"),
        (("--groups", "job=jobs.csv", "--ordered", "job"), "--groups of 'job' and ordered"),
        (("--groups", "job=jobs.csv", "--what-if", "group:sex"), "'sex': has no groups"),
        (("--model", "polettini-stander-1", "--groups", "job=jobs.csv"), "--groups: can be used"),
    ],
)  # fmt: skip
def test_what_is_refused(folder, tmp_path, capsys, more, says, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.chdir(folder)
    arguments = ("risk", "sample.csv", "--population-size", "9000", *more)
    assert main([*arguments, "--out", str(out)]) == 2
    assert not out.exists()
    assert re.search(says, one_line(capsys))


def test_models_to_compare_have_groups(folder):
    groups = as_hierarchies([("job", folder / "jobs.csv")])
    assert _model("nplcm:components=4", groups).groups == groups
