"""``bnp-models evaluate --posterior``: attack risks, as they are written and refused."""

import json

import jax
import numpy as np
import pandas as pd
import pytest
from commands import one_line
from pages import check_well_formed, words_of

import bnp_models as bnp
from bnp_models.cli.main import main

ZEROS = "age,work\n0-14,yes\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An original, conditions, two synthetic files and the draws that they come from."""
    folder, rng = tmp_path_factory.mktemp("attack"), np.random.default_rng(0)
    age = rng.choice(["0-14", "15-64", "65+"], 80)
    frame = pd.DataFrame({
        "age": age,
        "work": np.where((age == "0-14") | (rng.random(80) < 0.5), "no", "yes"),
        "region": rng.choice(["n", "e", "s", "w"], 80, p=[0.6, 0.3, 0.08, 0.02]),
        "status": rng.choice(["a", "b", "c", "d", "e"], 80, p=[0.5, 0.3, 0.1, 0.05, 0.05]),
    })  # fmt: skip
    frame.to_csv(folder / "original.csv", index=False)
    (folder / "zeros.csv").write_text(ZEROS)
    table = bnp.read_microdata(folder / "original.csv")
    conditions = bnp.read_conditions(folder / "zeros.csv", table.schema)
    model = bnp.TNPLCM(components=3, split_merge_every=0)
    run = bnp.sample(
        model, table, key=jax.random.key(0), conditions=conditions, num_chains=2, num_warmup=50,
        num_samples=100,
    )  # fmt: skip
    for m, made in enumerate(bnp.synthesize(run, 2)):
        bnp.io.write_frame(made, folder / f"synthetic_{m + 1}.csv")
    data = bnp.to_inference_data(run, parameters=True, num_datasets=2)
    bnp.io.write_netcdf(data, folder / "posterior.nc")
    return folder


def arguments(folder, *more, original="original.csv", zeros=True):
    conditions = ["--conditions", str(folder / "zeros.csv")] if zeros else []
    return ["evaluate", str(folder / original), str(folder / "synthetic_1.csv"),
            str(folder / "synthetic_2.csv"), *conditions, "--posterior",
            str(folder / "posterior.nc"), *map(str, more)]  # fmt: skip


@pytest.fixture(scope="module")
def done(folder):
    out = folder / "out"
    assert main(arguments(folder, "--out", out, "--quiet")) == 0
    return out


def test_what_is_written(done, folder):
    found = json.loads((done / "evaluation.json").read_text())["attack_risk"]
    records = pd.read_csv(done / "records.csv")
    original = pd.read_csv(folder / "original.csv")
    alone = original.index[~original.duplicated(keep=False)]
    assert sorted(records["row"]) == list(alone)
    assert found["attacked"] == len(records) and found["target"] == "record"
    assert found["files"] == 2 and found["draws"] == 198
    names = list(original.columns)
    pd.testing.assert_frame_equal(
        records[names], original.loc[records["row"], names].reset_index(drop=True)
    )
    assert list(records.columns) == ["row", *names, *list(records.columns)[-8:]]
    assert set(records.columns[-8:]) == bnp.results.AttackRisk.COLUMNS - {"row"}
    assert records["rho"].is_monotonic_decreasing and records["rho"].between(0, 1).all()
    assert records["at_risk"].sum() == found["at_risk"]["1"]
    assert (records["rank"] == 1).sum() == found["ranked_within"]["1"]
    # Children do not work: their candidates are fewer.
    child = records["age"] == "0-14"
    assert (records["candidates"][~child & (records["work"] == "no")] == 1 + 2 + 1 + 3 + 4).all()
    assert (records["candidates"][child] == 1 + 2 + 3 + 4).all()


def test_the_page_says_the_same(done):
    found = json.loads((done / "evaluation.json").read_text())
    text = (done / "report.html").read_text()
    words = words_of(text)
    assert found["attack_risk"]["in_words"][1:] in words and "was not evaluated" not in words
    assert f"{found['attack_risk']['tau']['1']:.1%}" in words
    for sentence in found["attack_risk"]["warnings"]:
        assert f"attack risk: {sentence}" in found["warnings"]
    check_well_formed(text, num_plots=6)


@pytest.mark.long
def test_refit_and_no_records(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(arguments(folder, "--refit", "--no-records", "--out", out)) == 0
    found = json.loads((out / "evaluation.json").read_text())["attack_risk"]
    assert found["estimator"] == "refit" and len(found["log_likelihood"]) == 4
    assert not (out / "records.csv").exists()
    assert found["in_words"] in capsys.readouterr().out


def test_another_sample_or_other_conditions(folder, tmp_path, capsys):
    out = tmp_path / "out"
    pd.read_csv(folder / "original.csv")[::-1].to_csv(folder / "other.csv", index=False)
    for given, message in (
        (arguments(folder, "--out", out, original="other.csv"), "not of this sample"),
        (arguments(folder, "--out", out, zeros=False), "other conditions"),
        (arguments(folder, "--out", out, "--variables", "age,work"), "not of this sample"),
        (arguments(folder, "--out", out, "--target", "person"), "--target"),
        (arguments(folder, "--out", out)[:-4] + ["--refit", "--out", str(out)], "--posterior"),
    ):
        assert main(given) == 2
        assert message in one_line(capsys)
    assert not out.exists()
