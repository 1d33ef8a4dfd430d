"""Files written whole or not at all."""

import json

import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.data import writing

pytestmark = pytest.mark.filterwarnings("error")


def test_frames_read_back(tmp_path):
    frame = pd.DataFrame({"a": ["01", "1,5", 'say "x"'], "b": [1, 2, 3], "c": [None, "é", "-"]})
    bnp.write_frame(frame, tmp_path / "a.csv")
    read, _ = bnp.read_frame(tmp_path / "a.csv")
    assert read.to_numpy().tolist() == [["01", "1", ""], ["1,5", "2", "é"], ['say "x"', "3", "-"]]
    assert b"\r" not in (tmp_path / "a.csv").read_bytes()


def test_json_refuses_what_json_cannot_hold(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        bnp.write_json({"x": float("nan")}, tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.json"
    bnp.write_json({"x": 1}, path)
    with pytest.raises(RuntimeError, match="half way"), writing.replacing(path) as partial:
        partial.write_text("{")
        raise RuntimeError("half way")
    assert json.loads(path.read_text()) == {"x": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]
