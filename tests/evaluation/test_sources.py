"""Runs that synthetic files come from, found by run.json."""

import json

import pytest

from bnp_models.data.source import file_digest
from bnp_models.evaluation.sources import find_sources

WARNING = "not converged: R-hat is 1.4"


@pytest.fixture
def folder(tmp_path):
    """Two files of a run that warned, one of which has changed, and a third beside them."""
    for name in ("synthetic_1.csv", "synthetic_2.csv", "other.csv"):
        (tmp_path / name).write_text(f"a\n{name}\n")
    digests = {f"synthetic_{m}.csv": file_digest(tmp_path / f"synthetic_{m}.csv") for m in (1, 2)}
    run = {"files_sha256": digests, "warnings": [WARNING]}
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "synthetic_2.csv").write_text("a\nedited\n")
    return tmp_path


def test_what_is_said_of_files(folder):
    names = ["synthetic_1.csv", "synthetic_2.csv", "other.csv"]
    (found,) = find_sources([folder / name for name in names], names)
    assert (found.files, found.changed, found.strangers) == (names[:1], names[1:2], names[2:])
    said = list(found.sentences())
    assert said[0] == f"the run that made synthetic_1.csv and synthetic_2.csv: {WARNING}"
    assert "synthetic_2.csv has changed" in said[1] and "did not make other.csv" in said[2]
    assert len(said) == 3
    (alone,) = find_sources([folder / "other.csv"], ["other.csv"])
    assert [*alone.sentences()] == [said[2]]


@pytest.mark.parametrize("content", ["", "[]", '{"model": "hdp"}', '{"files_sha256": {}}'])
def test_other_files_of_this_name_say_nothing(folder, content):
    (folder / "run.json").write_text(content)
    assert find_sources([folder / "synthetic_1.csv"]) == ()
