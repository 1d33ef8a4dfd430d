"""Faults of the disk and signals during a command: results are whole or absent, and it goes on.

`experiments/quality/faults` tries them at every call, and on chains.
"""

import errno
import os
import re
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import one_line

from bnp_models.cli import evaluate, folder, runs
from bnp_models.cli.main import main
from bnp_models.data.writing import replacing

FILES = ["evaluation.json", "report.html", "run.toml"]
SECONDS = r'"seconds": \{[^}]*\}|<dt>Seconds</dt><dd>[^<]*'


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    path, rng = tmp_path_factory.mktemp("input") / "a.csv", np.random.default_rng(0)
    pd.DataFrame({name: rng.choice(list("xyz"), 30) for name in "ab"}).to_csv(path, index=False)
    return path


@pytest.fixture
def command(inputs, tmp_path):
    return ["evaluate", str(inputs), str(inputs), "--quiet", "--out", str(tmp_path / "out")]


@pytest.fixture
def whole(command, tmp_path):
    """Files of a run that nothing disturbs, in a folder of the same name."""
    assert main(command) == 0
    return emptied(tmp_path / "out")


def emptied(out):
    """What was in the folder."""
    made = contents(out)
    for name in made:
        (out / name).unlink()
    return made


def contents(out):
    """Files of a folder, but for the seconds that the command took."""
    made = {path.name: path.read_text() for path in out.iterdir()} if out.exists() else {}
    return {name: re.sub(SECONDS, "", text) for name, text in made.items()}


class Failing:
    """A function of `os` whose calls on files of a folder are counted; one of them fails."""

    def __init__(self, monkeypatch, name, out, target, number):
        self.right, self.out, self.target, self.number = getattr(os, name), out, target, number
        self.calls = 0
        monkeypatch.setattr(os, name, self)

    def __call__(self, *arguments, **options):
        path = arguments[0]
        path = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else str(path)
        if path.startswith(str(self.out)):
            self.calls += 1
            if self.calls == self.target:
                raise OSError(self.number, os.strerror(self.number))
        return self.right(*arguments, **options)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="paths of descriptors from /proc")
@pytest.mark.parametrize(
    "number", [errno.ENOSPC, pytest.param(errno.EACCES, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("name", ["open", pytest.param("fsync", marks=pytest.mark.long), "replace"])
def test_a_call_that_fails(command, whole, tmp_path, capsys, monkeypatch, name, number):
    out = tmp_path / "out"
    for target in count(1):
        with monkeypatch.context() as patch:
            failing = Failing(patch, name, out, target, number)
            code = main(command)
        if failing.calls < target:
            break
        assert code == 1
        said = one_line(capsys)
        assert str(out) in said and os.strerror(number) in said and "repeat the command" in said
        left = contents(out)
        assert left.items() <= whole.items()
        assert main(command) == 0
        assert emptied(out) == whole
    assert code == 0 and target > len(FILES)
    assert contents(out) == whole


def test_an_error_without_a_name_gets_one(tmp_path):
    with pytest.raises(OSError, match=r"No space left on device: '.*table.csv'"):
        with replacing(tmp_path / "table.csv"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    # One that is not the system's keeps its words.
    with pytest.raises(OSError, match="^no column$"), replacing(tmp_path / "table.csv"):
        raise OSError("no column")
    assert not list(tmp_path.iterdir())


def test_chains_that_cannot_be_saved_can_be_resumed(inputs, tmp_path, capsys, monkeypatch):
    def sample(*_, **options):
        path = str(options["checkpoint"] / "manifest.json")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(runs, "sample", sample)
    out = tmp_path / "a" / "out"
    assert main(["risk", str(inputs), "--population-size", "900", "--out", str(out)]) == 1
    said = one_line(capsys)
    assert f"{out / 'checkpoint' / 'manifest.json'}: No space left on device; once that is" in said
    assert f"repeat the command with --resume to go on in {out}" in said
    assert not out.parent.exists()

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    # What was wrong first is said.
    monkeypatch.setattr(os, "rmdir", read_only)
    assert main(["risk", str(inputs), "--population-size", "900", "--out", str(out)]) == 1
    assert "manifest.json: No space left on device" in one_line(capsys)


def test_a_run_killed_before_its_last_file_is_repeated(command, whole, tmp_path):
    out = tmp_path / "out"
    assert main(command) == 0
    (out / "run.toml").unlink()
    assert main(command) == 0
    assert contents(out) == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["_checked_files", "_make_folder", "end"])
def test_signals(command, tmp_path, capsys, monkeypatch, number, where):
    out = tmp_path / "out"

    def stop(*_, **__):
        signal.raise_signal(number)

    if where == "end":
        write = folder.write_text
        monkeypatch.setattr(folder, "write_text", lambda *given: (write(*given), stop()))
    else:
        monkeypatch.setattr(evaluate if where == "_checked_files" else folder, where, stop)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(command) == 128 + number
    finally:
        signal.signal(signal.SIGINT, before)
    said = one_line(capsys)
    assert (
        f"the results in {out} are complete" if where == "end" else "repeat the command"
    ) in said
    assert sorted(contents(out)) == (FILES if where == "end" else [])


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_closed_and_full_outputs(command, tmp_path):
    out = tmp_path / "out"
    words = [sys.executable, "-m", "bnp_models", *(word for word in command if word != "--quiet")]
    for redirected, code, said in [
        (">&- 2>&-", 0, ""),
        (">/dev/full", 2, "bnp-models: error: stdout: No space left on device\n"),
    ]:
        shell = ["sh", "-c", f'"$@" {redirected}', "sh", *words]
        done = subprocess.run(shell, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (code, said)
        assert sorted(emptied(out)) == FILES
