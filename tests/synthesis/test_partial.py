"""Partially synthetic data: columns that are kept, and the others drawn given them."""

import json

import numpy as np
import pandas as pd
import pytest
from commands import one_line
from pages import Page
from scipy import stats

import bnp_models as bnp
from bnp_models.cli.main import main
from bnp_models.inference.run import spaced_draws
from bnp_models.synthesis import partial

KEEP = ["age", "education"]


def deviation(latent, frames):
    """Standardised difference of the never married, weighted by age, from what the draws say."""
    schema = latent.table.schema
    cells = np.indices(schema.num_levels).reshape(len(schema.variables), -1)
    cells = cells[:, ~latent.conditions.contains(cells.T.astype(np.int32))].T
    drawn = schema.variables.index("marital_status")
    level = schema.levels[drawn].index("Never married")
    kept = [schema.variables.index(name) for name in KEEP]
    known = (latent.table.codes[:, kept] >= 0).all(axis=1)
    of_record = latent.table.codes[known][:, kept]
    age = of_record[:, 0] - of_record[:, 0].mean()
    same = (cells[None][..., kept] == of_record[:, None]).all(axis=2)
    found, expected, variance = 0.0, 0.0, 0.0
    for frame, draw in zip(frames, spaced_draws(latent.run, len(frames)), strict=True):
        # Classes by the levels of a cell: exactly, up to the truncation, which divides out.
        first = np.cumsum([0, *schema.num_levels[:-1]])
        rows = first + cells
        log_class = draw["log_pi"] + draw["log_lambda"][rows].sum(axis=1)
        p = np.exp(log_class).sum(axis=1)
        share = (same * p * (cells[:, drawn] == level)).sum(axis=1) / (same * p).sum(axis=1)
        found += age @ (frame.loc[known, "marital_status"] == "Never married")
        expected += age @ share
        variance += age**2 @ (share * (1 - share))
    return (found - expected) / np.sqrt(variance)


def test_other_columns_are_drawn_given_those_kept(latent, monkeypatch):
    frames = bnp.synthesize(latent.run, 60, keep=KEEP)
    given = latent.table.to_frame()
    for frame in frames[:3]:
        assert list(frame) == list(given) and len(frame) == len(given)
        for name in KEEP:
            known = given[name].notna()
            assert (frame.loc[known, name] == given.loc[known, name]).all()
        assert not latent.conditions.contains(
            bnp.Microdata.from_frame(frame, levels=latent.table.schema).codes
        ).any()
    assert (frames[0]["marital_status"] != frames[1]["marital_status"]).any()
    assert abs(deviation(latent, frames)) < stats.norm.isf(1e-4)
    # Drawn from other probabilities of levels, or for another record, they are seen to be wrong.
    monkeypatch.setattr(partial, "spaced_draws", lambda run, number: (
        {**draw, "log_lambda": draw["log_lambda"][::-1]} for draw in spaced_draws(run, number)
    ))  # fmt: skip
    assert abs(deviation(latent, bnp.synthesize(latent.run, 60, keep=KEEP))) > 6
    moved = [frame.assign(marital_status=np.roll(frame["marital_status"], 1)) for frame in frames]
    assert abs(deviation(latent, moved)) > 6


def test_what_cannot_be_kept(latent, small):
    for options, said in (
        ({"keep": ["height"]}, "unknown column"),
        ({"keep": list(latent.table.schema.variables)}, "nothing would be synthetic"),
        ({"keep": KEEP, "method": "balanced"}, 'only by method "predictive"'),
        ({"keep": KEEP, "num_rows": 9}, "leave it out"),
    ):
        with pytest.raises(ValueError, match=said):
            bnp.synthesize(latent.run, 1, **options)
    with pytest.raises(ValueError, match="cannot draw some columns given others"):
        bnp.synthesize(small.run, 1, keep=["age"])


def test_columns_kept_and_carried_by_the_command(tmp_path, capsys):
    rng = np.random.default_rng(0)
    sample = pd.DataFrame({
        "w": 1.5, "age": rng.integers(20, 60, 200), "sex": rng.choice(["f", "m"], 200),
        "job": rng.choice(["a", "b", "c"], 200), "pid": np.arange(200),
    })  # fmt: skip
    sample.to_csv(tmp_path / "s.csv", index=False)
    command = ["synthesize", str(tmp_path / "s.csv"), "--model", "nplcm", "--components", "4",
               "--chains", "2", "--warmup", "20", "--draws", "20", "--datasets", "1", "--out",
               str(tmp_path / "out"), "--quiet"]  # fmt: skip
    assert main([*command, "--keep", "sex", "--carry", "pid"]) == 2
    assert (
        "--carry: 200 of 200 records are the only ones with their values of sex and pid"
        in one_line(capsys)
    )
    assert main([*command, "--carry", "pid"]) == 2
    assert "--carry: needs --keep" in one_line(capsys)
    more = ["--keep", "sex,age", "--carry", "w", "--variables", "age,sex,job", "--bins", "age=5"]
    assert main([*command, *more]) == 2
    assert "records are the only ones" in one_line(capsys)
    more[1] = "sex"
    assert main([*command, *more]) == 0
    made = pd.read_csv(tmp_path / "out" / "synthetic_1.csv")
    assert list(made) == ["w", "age", "sex", "job"]
    assert (made["sex"] == sample["sex"]).all() and (made["w"] == 1.5).all()
    assert (made["job"] != sample["job"]).any()
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["keep"] == ["sex"] and run["carry"] == ["w"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert Page(page).open == [] and "keeps its sex" in page
    # The attack is of files that are synthetic throughout.
    evaluate = ["evaluate", str(tmp_path / "s.csv"), str(tmp_path / "out" / "synthetic_1.csv"),
                "--variables", "age,sex,job", "--bins", "age=5", "--posterior",
                str(tmp_path / "out" / "posterior.nc"), "--out", str(tmp_path / "x")]  # fmt: skip
    assert main(evaluate) == 0
    judged = json.loads((tmp_path / "x" / "evaluation.json").read_text())
    assert "keep columns of the sample" in judged["attack_not_assessed"]
    assert "Not assessed: what an intruder" in (tmp_path / "x" / "report.html").read_text()
