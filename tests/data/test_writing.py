"""Files written whole or not at all."""

import json
import os

import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data import writing

pytestmark = pytest.mark.filterwarnings("error")


def test_frames_read_back(tmp_path):
    frame = pd.DataFrame({"a": ["01", "1,5", 'say "x"'], "b": [1, 2, 3], "c": [None, "é", "-"]})
    bnp.io.write_frame(frame, tmp_path / "a.csv")
    read, _ = bnp.io.read_frame(tmp_path / "a.csv")
    assert read.to_numpy().tolist() == [["01", "1", ""], ["1,5", "2", "é"], ['say "x"', "3", "-"]]
    assert b"\r" not in (tmp_path / "a.csv").read_bytes()


def test_json_refuses_what_json_cannot_hold(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        bnp.io.write_json({"x": float("nan")}, tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.json"
    bnp.io.write_json({"x": 1}, path)
    with pytest.raises(RuntimeError, match="half way"), writing.replacing(path) as partial:
        partial.write_text("{")
        raise RuntimeError("half way")
    assert json.loads(path.read_text()) == {"x": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


def test_tables_are_safe_in_spreadsheets(tmp_path):
    labels = ["=1+1", "+SUM(A1)", "-cmd|' /C calc'!A0", "@x", "-9", "+1.5", "0-14", "\tx", "é"]
    frame = pd.DataFrame({"=a": labels, "b": range(9), "r1": np.array([1 / 3] * 9)})
    bnp.io.write_table(frame, tmp_path / "a.csv", ["r1"], bom=True)
    content = (tmp_path / "a.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbf'=a,b,r1\n")
    read = pd.read_csv(tmp_path / "a.csv", dtype=str, encoding="utf-8-sig")
    assert read["'=a"].tolist() == [
        "'=1+1", "'+SUM(A1)", "'-cmd|' /C calc'!A0", "'@x", "-9", "+1.5", "0-14", "'\tx", "é"
    ]  # fmt: skip
    assert set(read["r1"]) == {"0.33333333"} and read["b"][8] == "8"
    bnp.io.write_table(frame, tmp_path / "a.csv", ["r1"])
    assert (tmp_path / "a.csv").read_bytes().startswith(b"'=a,b,r1\n")


def test_a_table_as_parquet(tmp_path):
    frame = pd.DataFrame({"label": ["=1+1", "a"], "r1": [1 / 3, 0.5]})
    bnp.io.write_table(frame, tmp_path / "a.parquet", ["r1"], bom=True)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "a.parquet"), frame)


@pytest.mark.parametrize("kind", ["csv", "parquet", "dta", "sav"])
def test_files_for_release_alone_are_for_all(tmp_path, kind):
    frame = pd.DataFrame({"a": ["x", "y"]})
    path = tmp_path / f"a.{kind}"
    before = os.umask(0o022)
    try:
        for private, mode in ((False, 0o644), (True, 0o600), (False, 0o644)):
            bnp.io.write_frame(frame, path, private=private)
            assert path.stat().st_mode & 0o777 == mode
        bnp.io.write_table(frame, path)
        assert path.stat().st_mode & 0o777 == 0o600
        bnp.io.write_json({}, path)
        assert path.stat().st_mode & 0o777 == 0o600
        # What a killed process left.
        aside = tmp_path / f".{path.name}.partial"
        aside.touch(0o666)
        with writing.replacing(path) as partial:
            assert partial == aside and partial.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
