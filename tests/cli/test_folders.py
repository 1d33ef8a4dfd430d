"""The commands on samples that are folders of Parquet files."""

import json

import numpy as np
import pandas as pd
import pytest
from commands import one_line

import bnp_models as bnp
from bnp_models.cli.main import main

SHORT = ["--chains", "2", "--warmup", "40", "--draws", "20", "--components", "5", "--quiet"]


def people(rng, rows):
    """Records of which those below 15 and above 64 do not work."""
    age = rng.choice(["0-14", "15-64", "65+"], rows, p=[0.2, 0.7, 0.1])
    work = np.where((age == "15-64") & (rng.random(rows) < 0.7), "yes", "no")
    region = np.minimum(rng.geometric(0.4, rows), 30)
    return pd.DataFrame({"age": age, "work": work, "region": region})


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Records in two files, the same in one CSV, and structural zeros."""
    place, frame = tmp_path_factory.mktemp("folders"), people(np.random.default_rng(0), 900)
    (place / "sample").mkdir()
    frame.iloc[:500].to_parquet(place / "sample" / "a.parquet", index=False)
    frame.iloc[500:].to_parquet(place / "sample" / "b.parquet", index=False)
    frame.to_csv(place / "sample.csv", index=False)
    (place / "zeros.csv").write_text("age,work\n0-14,yes\n")
    return place


@pytest.mark.long
def test_risk(sample, tmp_path):
    """By cells with counts; rows are those of the files, one after the other."""
    out = tmp_path / "out"
    command = ["risk", str(sample / "sample"), "--model", "tnplcm", "--population-size", "5000",
               "--conditions", str(sample / "zeros.csv"), "--out", str(out)]  # fmt: skip
    assert main([*command, *SHORT]) == 0
    risk = json.loads((out / "risk.json").read_text())
    records = pd.read_csv(out / "records.csv")
    frame = pd.read_csv(sample / "sample.csv")
    alone = frame[~frame.duplicated(keep=False)]
    assert risk["n"] == 900 and risk["sample_uniques"] == len(alone) > 0
    assert sorted(records["row"]) == sorted(alone.index)
    own = frame.loc[records["row"], list(frame)].reset_index(drop=True)
    pd.testing.assert_frame_equal(records[list(frame)], own)
    assert risk["checks"]["cells_with_1"]["observed"] == len(alone)
    assert 0 < risk["tau1_conditional"]["mean"] <= len(alone)
    levels = risk["contributions"]["age"]["levels"]
    totals = {level: row["records"] for level, row in levels.items()}
    assert totals == frame["age"].value_counts().to_dict()


def test_synthesize_and_evaluate(sample, tmp_path):
    """Data sets are folders of the sample's labels and types, which evaluate takes."""
    out = tmp_path / "out"
    command = ["synthesize", str(sample / "sample"), "--conditions", str(sample / "zeros.csv"),
               "--datasets", "2", "--rows", "700", "--out", str(out), *SHORT]  # fmt: skip
    assert main(command) == 0
    made = [pd.read_parquet(out / f"synthetic_{m}") for m in (1, 2)]
    for frame in made:
        assert len(frame) == 700 and frame["region"].dtype == np.int64
        assert not ((frame["age"] == "0-14") & (frame["work"] == "yes")).any()
        assert set(frame["age"]) == {"0-14", "15-64", "65+"}
    assert not made[0].equals(made[1])
    written = (out / "synthetic_1").stat().st_mtime_ns
    assert main([*command, "--resume"]) == 0
    assert (out / "synthetic_1").stat().st_mtime_ns == written
    found = []
    for original in ("sample", "sample.csv"):
        judged = tmp_path / f"judged {original}"
        assert main(["evaluate", str(sample / original), str(out / "synthetic_1"),
                     str(out / "synthetic_2"), "--conditions", str(sample / "zeros.csv"),
                     "--out", str(judged), "--quiet"]) == 0  # fmt: skip
        found.append(json.loads((judged / "evaluation.json").read_text()))
        for name in ("seconds", "command", "original_sha256", "synthetic_sha256"):
            del found[-1][name]
    assert found[0] == found[1]
    assert found[0]["n"] == 900 and found[0]["impossible"][0]["number"] == 0


def test_evaluation_counts_as_records_do(sample):
    """Records that are missing values or impossible too."""
    frames = [people(np.random.default_rng(seed), 400) for seed in (1, 2)]
    frames[0].loc[3, "age"] = frames[1].loc[[7, 9], "work"] = None
    frames[1].loc[[20, 30], ["age", "work"]] = ["0-14", "yes"]
    levels = {"age": ["0-14", "15-64", "65+"], "work": ["no", "yes"], "region": range(1, 31)}
    tables = [bnp.Microdata.from_frame(frame, levels=levels) for frame in frames]
    zeros = bnp.StructuralZeros.from_frame(pd.read_csv(sample / "zeros.csv"), tables[0].schema)
    one_by_one, by_cell = (
        bnp.evaluate(original, [synthetic], conditions=zeros).summary()
        for original, synthetic in (tables, [table.tabulated for table in tables])
    )
    del one_by_one["seconds"], by_cell["seconds"]
    assert one_by_one == by_cell
    assert by_cell["impossible"][0]["first_rows"] == [20, 30] and by_cell["missing"] == 1


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["synthesize", "{}/sample", "--format", "dta"], ["--format dta", "leave --format out"]),
        (["risk", "{}/gone", "--model", "nplcm", "--population-size", "5000"],
         ["gone", "row 600", "'age'", "missing"]),
        (["risk", "{}/sample", "--model", "nplcm", "--population-size", "5000", "--validate", "2"],
         ["--validate", "folder"]),
        (["risk", "{}/sample", "--model", "tnplcm", "--population-size", "5000", "--conditions",
          "{}/wrong.csv"], ["row ", "'work'", "of 900 records are impossible"]),
    ],
    ids=["format", "missing", "validation", "impossible"],
)  # fmt: skip
def test_what_is_refused(sample, tmp_path, capsys, options, parts):
    frame = people(np.random.default_rng(0), 900)
    frame.loc[600, "age"] = None
    (sample / "gone").mkdir(exist_ok=True)
    frame.to_parquet(sample / "gone" / "a.parquet", index=False)
    (sample / "wrong.csv").write_text("work\nyes\n")
    out = tmp_path / "out"
    assert main([*(text.format(sample) for text in options), "--out", str(out)]) == 2
    line = one_line(capsys)
    assert all(part in line for part in parts), line
    assert not out.exists()


@pytest.mark.long
def test_models_of_records_take_folders_too(sample, tmp_path):
    """Into memory, record by record."""
    out = tmp_path / "out"
    assert main(["risk", str(sample / "sample"), "--population-size", "5000", "--chains", "2",
                 "--warmup", "40", "--draws", "20", "--out", str(out), "--quiet"]) == 0  # fmt: skip
    risk = json.loads((out / "risk.json").read_text())
    assert risk["model"] == "hdp" and risk["n"] == 900
