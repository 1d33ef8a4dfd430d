"""Files that several readers share: opened once."""

import gzip
import hashlib
import io
import os
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest
from opens import opens

import bnp_models as bnp
from bnp_models.data.hierarchies import Hierarchy
from bnp_models.data.reading import columns_of_file

FRAME = pd.DataFrame({"w": [2, 1, 3], "sex": ["m", "f", "m"], "age": ["1", "2", "2"]})
TEXT = FRAME.to_csv(index=False)


@pytest.fixture
def sample(tmp_path):
    path = tmp_path / "sample.csv"
    path.write_text(TEXT)
    return path


def pipe(monkeypatch, content):
    """Standard input with this content."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_readers_open_a_file_once(sample, tmp_path):
    levels, groups = tmp_path / "levels.csv", tmp_path / "groups.csv"
    levels.write_text("variable,level\nsex,f\nsex,m\n")
    groups.write_text("level,group\n1,a\n2,a\n")
    for read in (
        lambda: bnp.read_microdata(sample, ["sex"], levels),
        lambda: bnp.read_microdata(sample, reading=bnp.io.Reading(",", missing=["m"])),
        lambda: bnp.io.read_frame(sample),
        lambda: bnp.read_weights(sample, "w"),
        lambda: bnp.read_households(sample, "w"),
        lambda: columns_of_file(sample),
    ):
        with opens(sample, levels) as number:
            read()
            assert number[str(sample)] == 1 and number[str(levels)] <= 1
    with opens(groups) as number:
        Hierarchy.of(groups)
        assert number[str(groups)] == 1


@pytest.mark.parametrize("kind", ["csv.gz", "xlsx", "dta", "sav"])
def test_a_source_is_opened_once_for_all(kind, tmp_path):
    path = tmp_path / f"sample.{kind}"
    if kind == "xlsx":
        FRAME.to_excel(path, index=False)
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(TEXT.encode()))
    else:
        bnp.io.write_frame(FRAME, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with opens(path) as number, bnp.io.Source(path) as source:
        table = bnp.read_microdata(source, ["sex", "age"])
        assert bnp.read_weights(source, "w").tolist() == [2, 1, 3]
        assert source.digest == digest
        bnp.io.read_labelling(source)
        frame, _ = bnp.io.read_frame(source)
        assert number[str(path)] == 1
    assert list(frame) == list(FRAME) and frame["sex"].tolist() == ["m", "f", "m"]
    assert table.codes.tolist() == [[1, 0], [0, 1], [1, 1]]


def test_what_is_closed_can_be_read_again(sample):
    source = bnp.io.Source(sample)
    source.release()
    first, digest = bnp.read_weights(source, "w"), source.digest
    source.close()
    sample.write_text(TEXT.replace("3", "4"))
    assert (first != bnp.read_weights(source, "w")).tolist() == [False, False, True]
    assert source.digest == digest and repr(source) == f"Source({str(sample)!r})"
    source.close()
    assert bnp.io.Source(sample.parent).digest is None


def test_standard_input(sample, monkeypatch):
    pipe(monkeypatch, gzip.compress(TEXT.encode(), mtime=0))
    with bnp.io.Source("-") as source:
        weights = bnp.read_weights(source, "w")
        table = bnp.read_microdata(source, ["sex", "age"])
        assert source.digest == hashlib.sha256(gzip.compress(TEXT.encode(), mtime=0)).hexdigest()
        with pytest.raises(bnp.MicrodataError, match="^standard input, column 'x': unknown"):
            bnp.read_microdata(source, ["x"])
    assert weights.tolist() == [2, 1, 3]
    assert table.digest == bnp.read_microdata(sample, ["sex", "age"]).digest
    with pytest.raises(bnp.MicrodataError, match="^standard input: the file is empty"):
        bnp.io.read_frame("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(bnp.MicrodataError, match="^standard input: cannot be read .it is closed"):
        bnp.io.read_frame("-")


def test_a_file_may_be_called_like_standard_input(sample, monkeypatch):
    pipe(monkeypatch, b"x\n1\n")
    monkeypatch.chdir(sample.parent)
    os.rename("sample.csv", "-")
    for name in (Path("-"), "./-"):
        assert columns_of_file(name) == list(FRAME)
    assert columns_of_file("-") == ["x"]


def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(path := tmp_path / "pipe")
    writer = threading.Thread(target=path.write_text, args=(TEXT,))
    writer.start()
    assert bnp.read_microdata(path).n == 3
    writer.join()
