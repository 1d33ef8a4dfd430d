"""``bnp-models synthesize --from`` and ``--given``: more files of a finished run."""

import json

import pandas as pd
import pytest
from commands import one_line

from bnp_models.cli.main import main

SHORT = ["--model", "nplcm", "--components", "4", "--chains", "2", "--warmup", "30", "--draws",
         "20", "--variables", "age,sex,race", "--seed", "3", "--quiet"]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory, sample_frame):
    folder = tmp_path_factory.mktemp("earlier")
    sample_frame.to_csv(folder / "sample.csv", index=False)
    return folder


def test_more_files_are_those_of_a_run_that_made_as_many(finished, tmp_path):
    call = ["synthesize", str(finished / "sample.csv"), *SHORT]
    assert main([*call, "--datasets", "2", "--out", str(tmp_path / "two")]) == 0
    assert main([*call, "--datasets", "5", "--out", str(tmp_path / "five")]) == 0
    assert main(["synthesize", "--from", str(tmp_path / "two"), "--datasets", "5", "--out",
                 str(tmp_path / "more"), "--quiet"]) == 0  # fmt: skip
    names = [f"synthetic_{m + 1}.csv" for m in range(5)]
    for name in (*names, "posterior.nc"):
        assert (tmp_path / "more" / name).read_bytes() == (tmp_path / "five" / name).read_bytes()
    two, five, more = (
        json.loads((tmp_path / x / "run.json").read_text()) for x in ("two", "five", "more")
    )
    assert more["files_sha256"] == five["files_sha256"] and more["checks"] == five["checks"]
    assert more["seconds"] == two["seconds"] and not (tmp_path / "more" / "checkpoint").exists()


def test_rows_with_given_values(finished, tmp_path, capsys):
    first = tmp_path / "first"
    call = ["synthesize", str(finished / "sample.csv"), *SHORT]
    assert main([*call, "--datasets", "1", "--out", str(first)]) == 0
    again = ["synthesize", "--from", str(first), "--datasets", "2", "--quiet"]
    assert main([*again, "--given", "sex=Male", "age=0-14", "age=15-24", "--rows", "40", "--out",
                 str(tmp_path / "boys")]) == 0  # fmt: skip
    made = pd.read_csv(tmp_path / "boys" / "synthetic_2.csv")
    assert len(made) == 40 and set(made["sex"]) == {"Male"}
    assert set(made["age"]) == {"0-14", "15-24"} and made["race"].nunique() > 1
    capsys.readouterr()
    for words, problem in (
        (["--given", "sex=x"], "--given: column 'sex': value 'x' is not a declared level"),
        (["--given", "sex=Male", "--keep", "age"], "--given: cannot be used with --keep"),
        (["--given", "sex=Male", "--method", "balanced"], "--given: records can be drawn given"),
        (["--components", "5"], "was made with other values of --components"),
        (["--variables", "age,sex"], "sample of this run has other records, variables or levels"),
        (["--datasets", "41"], "--datasets 41: each data set needs a draw of its own, but only 40"),
    ):  # fmt: skip
        assert main([*again, *words, "--out", str(tmp_path / "no")]) == 2
        assert problem in one_line(capsys) and not (tmp_path / "no").exists()
    (first / "posterior.nc").write_bytes(b"nothing")
    assert main([*again, "--out", str(tmp_path / "no")]) == 2
    assert "holds no finished run of synthesize" in one_line(capsys)
    assert main(["synthesize", "--from", str(tmp_path / "no"), "--out", str(tmp_path / "x")]) == 2
    assert "run.toml is missing" in one_line(capsys)
