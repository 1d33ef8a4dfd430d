"""Files of data of a command: opened once, compressed, and from standard input."""

import bz2
import gzip
import io
import json
import sys

import numpy as np
import pandas as pd
import pytest
from commands import one_line, untimed
from opens import opens

from bnp_models.cli.main import main

CHAINS = ("--model", "nplcm", "--components", "4", "--chains", "2", "--warmup", "20", "--draws",
          "20", "--quiet")  # fmt: skip
RISK = ("--population-size", "9000", "--weights", "w", "--id", "pid", *CHAINS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rng, n = tmp_path_factory.mktemp("files"), np.random.default_rng(0), 200
    frame = pd.DataFrame({
        "pid": [f"P{i}" for i in range(n)], "w": rng.integers(1, 5, n) + 0.5,
        "age": rng.integers(0, 9, n), "sex": rng.choice(["m", "f"], n),
        "town": rng.choice(list("abcd"), n),
    })  # fmt: skip
    frame.to_csv(folder / "sample.csv", index=False)
    frame.to_csv(folder / "sample.tsv.bz2", index=False, sep="\t")
    pd.DataFrame({"level": range(9), "group": ["a"] * 4 + ["b"] * 5}).to_csv(
        folder / "ages.csv", index=False
    )
    pd.DataFrame({"variable": "sex", "level": ["f", "m", "x"]}).to_csv(
        folder / "levels.csv", index=False
    )
    pd.DataFrame({"sex": ["x"], "town": ["a"]}).to_csv(folder / "zeros.csv", index=False)
    (folder / "sample.csv.gz").write_bytes(gzip.compress((folder / "sample.csv").read_bytes()))
    return folder


@pytest.fixture
def piped(monkeypatch):
    """Put bytes on standard input."""

    def put(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return put


def run_of(out):
    return json.loads((out / "run.json").read_text())


def test_risk_of_standard_input(folder, piped, tmp_path, capsys):
    sample, out, again = folder / "sample.csv", tmp_path / "out", tmp_path / "again"
    more = ("--levels", str(folder / "levels.csv"), "--groups", f"age={folder / 'ages.csv'}")
    with opens(sample, folder / "levels.csv", folder / "ages.csv") as number:
        assert main(("risk", str(sample), *RISK, *more, "--out", str(out))) == 0
        assert set(number.values()) == {1}
    piped(sample.read_bytes())
    command = ("risk", "-", *RISK, *more, "--out", str(again))
    assert main(command) == 0
    assert untimed(again) == untimed(out)
    for name in ("records.csv", "posterior.nc"):
        assert (again / name).read_bytes() == (out / name).read_bytes()
    named, unnamed = run_of(out), run_of(again)
    assert unnamed["filing"] == {**named["filing"], "input": "standard input"}
    differ = {key for key, value in named.items() if unnamed[key] != value}
    assert differ <= {"command", "filing"}
    # The same records again are those of the finished run, others are not.
    piped(sample.read_bytes())
    assert main((*command, "--resume")) == 0
    piped(sample.read_bytes().replace(b",a\n", b",b\n"))
    assert main((*command, "--resume")) == 2
    assert "holds a finished run with other data" in one_line(capsys)
    # So does what repeats the run.
    piped(sample.read_bytes())
    assert main(("risk", "--config", str(again / "run.toml"), "--out", str(again),
                 "--resume")) == 0  # fmt: skip


def test_synthesis_of_a_compressed_file(folder, piped, tmp_path):
    made = {}
    options = ("--weights", "w", "--variables", "age,sex,town", "--datasets", "1", *CHAINS)
    for name in ("sample.csv", "sample.csv.gz", "sample.tsv.bz2"):
        path, out = folder / name, tmp_path / name
        with opens(path) as number:
            assert main(("synthesize", str(path), *options, "--out", str(out))) == 0
            assert number[str(path)] == 1
        made[name] = (out / "synthetic_1.csv").read_bytes(), run_of(out)["sample_sha256"]
    assert len(set(made.values())) == 1
    # Judged with either from standard input.
    judged = [tmp_path / "a", tmp_path / "b"]
    judge = ("--variables", "age,sex,town", "--quiet", "--out")
    piped(bz2.compress(made["sample.csv"][0]))
    assert main(("evaluate", str(folder / "sample.csv"), "-", *judge, str(judged[0]))) == 0
    synthetic = tmp_path / "sample.csv" / "synthetic_1.csv"
    piped((folder / "sample.csv").read_bytes())
    with opens(synthetic) as number:
        assert main(("evaluate", "-", str(synthetic), *judge, str(judged[1]))) == 0
        assert number[str(synthetic)] == 1
    first, second = (json.loads((x / "evaluation.json").read_text()) for x in judged)
    assert first["synthetic_sha256"] == second["synthetic_sha256"]
    assert first["original_sha256"] == second["original_sha256"]
    assert "standard input" in json.dumps(first["files"])


def test_conditions_from_standard_input(folder, piped, tmp_path, capsys):
    zeros, out = (folder / "zeros.csv").read_bytes(), tmp_path / "broken.csv"
    command = ("conditions", "check", str(folder / "sample.csv"), "--variables", "sex,town",
               "--conditions", "-", "--out", str(out))  # fmt: skip
    piped(zeros.replace(b"\nx", b"\nm"))
    assert main((*command, "--quiet")) == 0
    assert out.exists()
    piped(zeros.replace(b"\nx", b"\ny"))
    assert main((*command, "--force")) == 2
    assert one_line(capsys).startswith("bnp-models: error: standard input, row 0 (line 2), column")


@pytest.mark.parametrize(
    ("more", "content", "said"),
    [
        (("--conditions", "-"), b"a\n1\n", "SAMPLE and --conditions: - is standard input, which"),
        (("--groups", "a=-"), b"a\n1\n", "SAMPLE and --groups: - is standard input, which can"),
        ((), b"", "standard input: the file is empty"),
        ((), b"PK\3\4", "standard input: cannot be read"),
        ((), b"PAR1\0\0\1\0", "standard input: is not a text file; a Parquet, Excel, Stata or"),
    ],
)
def test_what_standard_input_cannot_be(more, content, said, piped, tmp_path, capsys):
    piped(content)
    out = tmp_path / "out"
    assert main(("risk", "-", "--population-size", "9", *more, "--out", str(out))) == 2
    assert one_line(capsys).startswith(f"bnp-models: error: {said}")
    assert not out.exists()
