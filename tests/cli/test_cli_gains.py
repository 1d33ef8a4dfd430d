"""``bnp-models synthesize --attack``: files of every kind are made again and attacked."""

import json

import jsonschema
import numpy as np
import pandas as pd
import pytest
from commands import one_line
from pages import Page, words_of

import bnp_models as bnp
from bnp_models.cli import attacked
from bnp_models.cli.main import main

CHAINS = ["--chains", "2", "--warmup", "20", "--draws", "10", "--datasets", "2"]
NPLCM = ["--model", "nplcm", "--components", "4"]
BOX = "Not assessed: what an intruder learns"


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """240 records with weights, some with a missing value in the second file."""
    folder, rng = tmp_path_factory.mktemp("gains"), np.random.default_rng(0)
    frame = pd.DataFrame({
        "a": rng.choice(list("pqrs"), 240, p=[0.6, 0.2, 0.15, 0.05]), "b": rng.choice(3, 240),
        "c": rng.choice(list("xyz"), 240), "d": rng.choice(["no", "yes"], 240),
    })  # fmt: skip
    frame["c"] = frame["c"].where(frame["a"] != "p", "x")
    frame.assign(w=np.where(frame["d"] == "no", 2.0, 6.0)).to_csv(
        folder / "sample.csv", index=False
    )
    frame["b"] = frame["b"].astype(object).where(rng.random(240) < 0.95, "")
    frame.to_csv(folder / "incomplete.csv", index=False)
    return folder


KINDS = {
    "calibrated": (),
    "balanced": (),
    "keep": ("--keep", "a,b"),
    "given": ("--given", "d=no"),
    "weighted": ("--weights", "w"),
    "zeros": ("--model", "tnplcm"),
    "hdp": ("--model", "hdp"),
}
LONG = {"zeros", "hdp", "weighted", "given"}


@pytest.mark.parametrize(
    "kind", [pytest.param(x, marks=[pytest.mark.long] * (x in LONG)) for x in KINDS]
)
def test_every_kind_of_file(sample, tmp_path, capsys, kind):
    more = list(KINDS[kind])
    more += [] if "--model" in more else NPLCM
    if kind == "zeros":
        (tmp_path / "zeros.csv").write_text("a,c\np,y|z\n")
        more += ["--components", "4", "--conditions", str(tmp_path / "zeros.csv")]
    more += [] if kind in ("weighted", "balanced") else ["--drop", "w"]
    file = str(sample / ("incomplete.csv" if kind == "balanced" else "sample.csv"))
    out = tmp_path / "out"
    assert main(["synthesize", file, *CHAINS, *more, "--attack", "yes", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    run = json.loads((out / "run.json").read_text())
    jsonschema.validate(run, bnp.io.json_schema("run.json"))
    found = run["attack_gains"]
    assert found["design"] == "made_again" and found["files"] == 2
    rows = {(one["intruder"], one["records"]): one for one in found["gains"]}
    number = {"given": None, "balanced": None}.get(kind, 240)
    for intruder in ("files", "all_others"):
        one = rows[intruder, "all"]
        assert 0.4 < one["right"] < 1 and abs(one["right_gain"]["estimate"]) < 0.5
        if number:
            assert (one["kept"], one["left_out"]) == (192, 48)
    assert f"attack: {found['in_words']}" in said
    page = (out / "report.html").read_text()
    assert Page(page).open == [] and BOX not in page
    assert found["conclusion"] in words_of(page)
    made = [str(out / f"synthetic_{m}.csv") for m in (1, 2)]
    if kind == "calibrated":
        # Their tables are nearly those of the sample, which tell of the only person not known.
        assert rows["all_others", "all"]["right_gain"]["interval"][0] > 0
        # Who judges the files is told what the run found, and not that nothing is known.
        assert main(["evaluate", file, *made, "--drop", "w", "--out", str(tmp_path / "e")]) == 0
        judged = json.loads((tmp_path / "e" / "evaluation.json").read_text())
        assert judged["attack_not_assessed"] is None and judged["attack_gains"] is None
        assert found["in_words"] in judged["synthetic_runs"][0]["attack"]
        page = (tmp_path / "e" / "report.html").read_text()
        assert Page(page).open == [] and BOX not in page
        assert found["conclusion"] in words_of(page)
        # Not if one of the files is another.
        pd.read_csv(made[1])[::-1].to_csv(made[1], index=False)
        assert main(["evaluate", file, *made, "--drop", "w", "--out", str(tmp_path / "f")]) == 0
        judged = json.loads((tmp_path / "f" / "evaluation.json").read_text())
        assert "--method calibrated" in judged["attack_not_assessed"]
        page = (tmp_path / "f" / "report.html").read_text()
        assert BOX in page and "synthesize --attack yes" in page


def test_a_holdout_needs_no_other_files(sample, tmp_path):
    """Copies of the original are told from the holdout, whatever software made them."""
    frame = pd.read_csv(sample / "sample.csv").drop(columns="w")
    for name, some in (("original", frame[:150]), ("holdout", frame[150:])):
        some.to_csv(tmp_path / f"{name}.csv", index=False)
    args = [str(tmp_path / "original.csv"), str(tmp_path / "original.csv"), "--holdout",
            str(tmp_path / "holdout.csv"), "--out", str(tmp_path / "out"), "--quiet"]  # fmt: skip
    assert main(["evaluate", *args]) == 0
    judged = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    jsonschema.validate(judged, bnp.io.json_schema("evaluation.json"))
    found = judged["attack_gains"]
    assert found["design"] == "holdout" and judged["attack_not_assessed"] is None
    assert all(one["right_gain"]["interval"][0] > 0 for one in found["gains"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert Page(page).open == [] and found["conclusion"] in words_of(page)


def test_by_default_small_samples_are_not_attacked(sample, tmp_path, monkeypatch):
    args = ["synthesize", str(sample / "sample.csv"), *CHAINS, *NPLCM, "--drop", "w", "--quiet"]
    assert main([*args, "--out", str(tmp_path / "small")]) == 0
    run = json.loads((tmp_path / "small" / "run.json").read_text())
    assert "attack_gains" not in run and run["attack"] == "auto"
    assert BOX in (tmp_path / "small" / "report.html").read_text()
    # More files from the same draws may be attacked, and larger samples are.
    monkeypatch.setattr(attacked, "FEWEST", 240)
    again = ["--from", str(tmp_path / "small"), "--out", str(tmp_path / "again")]
    assert main([*args, *again]) == 0
    assert "attack_gains" in json.loads((tmp_path / "again" / "run.json").read_text())
    assert main([*args, "--attack", "no", "--from", str(tmp_path / "small"),
                 "--out", str(tmp_path / "no")]) == 0  # fmt: skip
    assert "attack_gains" not in json.loads((tmp_path / "no" / "run.json").read_text())


def test_refused(sample, tmp_path, capsys):
    frame = pd.read_csv(sample / "sample.csv")
    frame[:150].to_csv(tmp_path / "few.csv", index=False)
    out = ["--out", str(tmp_path / "out"), "--attack", "yes"]
    assert main(["synthesize", str(tmp_path / "few.csv"), "--drop", "w", *out]) == 2
    assert "--attack yes: needs at least 200 complete records" in one_line(capsys)
    frame.assign(home=np.arange(240) // 3).to_csv(tmp_path / "homes.csv", index=False)
    args = ["--model", "ndpmpm", "--household", "home", "--drop", "w"]
    assert main(["synthesize", str(tmp_path / "homes.csv"), *args, *out]) == 2
    assert "--attack yes: is only for single records" in one_line(capsys)
    assert not (tmp_path / "out").exists()
