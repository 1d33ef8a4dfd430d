"""Two runs in one folder: the second is refused, and nothing that was killed holds one."""

import errno
import os
import signal
import subprocess
import sys

import pandas as pd
import pytest
from commands import one_line

from bnp_models.cli import folder
from bnp_models.cli.folder import LOCK, FolderInUse, locked
from bnp_models.cli.main import main

HOLD = """
import sys, time
from pathlib import Path
from bnp_models.cli.folder import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_folder_in_use_is_refused(holder, tmp_path, capsys):
    frame = pd.DataFrame({"a": list("xyxy"), "b": list("uuvv")})
    frame.to_csv(tmp_path / "a.csv", index=False)
    words = ["evaluate", str(tmp_path / "a.csv"), str(tmp_path / "a.csv"), "--quiet", "--out"]
    before = sorted(tmp_path.iterdir())
    assert main([*words, str(tmp_path)]) == 2
    said = one_line(capsys)
    assert f"another run is using this folder (process {holder.pid} on " in said
    assert sorted(tmp_path.iterdir()) == before
    # A killed process holds nothing, whatever file it leaves.
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert (tmp_path / LOCK).exists()
    assert main([*words, str(tmp_path)]) == 0
    assert not (tmp_path / LOCK).exists() and (tmp_path / "evaluation.json").exists()


def test_a_lock_is_let_go(tmp_path):
    for _ in range(2):
        with pytest.raises(RuntimeError), locked(tmp_path):
            with pytest.raises(FolderInUse, match=f"process {os.getpid()} on"), locked(tmp_path):
                pass
            raise RuntimeError
    assert not list(tmp_path.iterdir())


def test_a_lock_that_was_removed_in_between_is_taken_anew(tmp_path, monkeypatch):
    right, calls = folder.fcntl.flock, []

    def flock(descriptor, how):
        if not calls:
            # Its holder ends now.
            (tmp_path / LOCK).unlink()
        calls.append(descriptor)
        right(descriptor, how)

    monkeypatch.setattr(folder.fcntl, "flock", flock)
    with locked(tmp_path):
        assert len(calls) == 2 and (tmp_path / LOCK).exists()
        with pytest.raises(FolderInUse), locked(tmp_path):
            pass


def test_a_file_system_without_locks_is_worked_on(tmp_path, monkeypatch):
    def flock(descriptor, how):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(folder.fcntl, "flock", flock)
    with locked(tmp_path), locked(tmp_path):
        assert not (tmp_path / LOCK).exists()


def test_a_lock_that_cannot_be_written_or_removed(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EROFS, "read-only file system")

    with monkeypatch.context() as patch:
        for name in ("truncate", "unlink"):
            patch.setattr(os, name, fail)
        with locked(tmp_path), pytest.raises(FolderInUse), locked(tmp_path):
            pass
        assert (tmp_path / LOCK).exists()
        # The file alone holds nothing.
        with locked(tmp_path):
            pass
    with locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
