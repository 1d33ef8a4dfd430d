"""Checkpoints that survive kill -9: files are written under another name, synced and renamed.

A checkpoint is a folder. ``manifest.json`` names the other files with their SHA-256 digests. It is
replaced last, in one rename, so that at any moment it describes a complete set of files. One file
has the chains' state. Each block of kept draws is in a file that is never changed; later, one file
may replace all of these.
"""

import hashlib
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bnp_models.data.writing import replacing
from bnp_models.inference import processes

_MANIFEST = "manifest.json"


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged, or of another run.

    Examples
    --------
    >>> run = bnp.sample(model, table, key=jax.random.key(0), checkpoint="chains", **short)
    >>> bnp.sample(model, table, key=jax.random.key(1), checkpoint="chains", resume=True, **short)
    Traceback (most recent call last):
    ...
    bnp_models.inference.checkpoint.CheckpointError: chains/manifest.json: made with other data, ...
    """


@dataclass(frozen=True)
class Saved:
    """Content of a checkpoint."""

    progress: dict
    """State of the driver: JSON values."""
    state: list[np.ndarray]
    """Leaves of the chains' state."""
    segments: list[dict[str, np.ndarray]]
    """Kept draws, in order."""


class Checkpoint:
    """A run's checkpoint folder.

    Parameters
    ----------
    directory
        The folder; made at the first `save`.
    fingerprint
        Identifies the run (data, model, settings, key); a folder of another run is refused.

    Examples
    --------
    >>> run = bnp.sample(model, table, key=jax.random.key(0), checkpoint="chains", **short)
    >>> again = bnp.sample(
    ...     model, table, key=jax.random.key(0), checkpoint="chains", resume=True, **short
    ... )
    >>> bool((again.draws["alpha"] == run.draws["alpha"]).all())
    True
    """

    def __init__(self, directory: str | os.PathLike, fingerprint: str):
        self.directory = Path(directory)
        self.fingerprint = fingerprint
        self._segments: list[dict[str, str]] = []

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.directory)!r})"

    def save(
        self,
        progress: dict,
        state: list[np.ndarray],
        draws: dict[str, np.ndarray] | None,
        *,
        replace: bool = False,
    ):
        """Write the state and, if given, one more block of draws, or one that replaces all blocks.

        What the folder has before stays until the new files are complete. If there are several
        processes, only the first one writes.
        """
        if not processes.is_first():
            return
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        generation = 1 + max((int(path.stem.split("-")[1]) for path in self._arrays()), default=0)
        self._segments = [] if replace else list(self._segments)
        if draws is not None:
            name = f"draws-{generation:06d}.npz"
            self._segments.append(self._write_arrays(name, draws))
        leaves = {f"leaf{i:03d}": leaf for i, leaf in enumerate(state)}
        entry = self._write_arrays(f"state-{generation:06d}.npz", leaves)
        body = {
            "fingerprint": self.fingerprint,
            "generation": generation,
            "progress": progress,
            "state": entry,
            "segments": self._segments,
        }
        text = json.dumps(body, sort_keys=True)
        document = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "body": text}
        self._write(_MANIFEST, json.dumps(document).encode())
        named = {one["file"] for one in (entry, *self._segments)}
        for path in self._arrays():
            if path.name not in named:
                path.unlink()

    def load(self) -> Saved | None:
        """Read the last complete checkpoint; None if the folder has none.

        Raises
        ------
        CheckpointError
            If a file is damaged or the checkpoint is of another run.
        """
        path = self.directory / _MANIFEST
        if not path.exists():
            return None
        try:
            document = json.loads(path.read_bytes())
            text = document["body"]
            intact = hashlib.sha256(text.encode()).hexdigest() == document["sha256"]
        except (ValueError, KeyError, TypeError, AttributeError):
            intact = False
        if not intact:
            raise CheckpointError(f"{path}: damaged; delete {self.directory} and run again")
        body = json.loads(text)
        if body["fingerprint"] != self.fingerprint:
            raise CheckpointError(
                f"{path}: made with other data, settings or versions; run with the same ones, or "
                "without --resume to start again"
            )
        state = self._read_arrays(body["state"])
        segments = [self._read_arrays(entry) for entry in body["segments"]]
        self._segments = body["segments"]
        return Saved(body["progress"], [state[name] for name in sorted(state)], segments)

    def clear(self):
        """Remove the checkpoint's files, and the folder if nothing else is in it.

        If there are several processes, only the first one does this.
        """
        if not processes.is_first() or not self.directory.is_dir():
            return
        (self.directory / _MANIFEST).unlink(missing_ok=True)
        for path in (*self._arrays(), *self.directory.glob("*.partial")):
            path.unlink()
        if not any(self.directory.iterdir()):
            self.directory.rmdir()

    def _arrays(self) -> list[Path]:
        """Files of states and draws, of this checkpoint and of any that was here before."""
        return [*self.directory.glob("state-[0-9]*.npz"), *self.directory.glob("draws-[0-9]*.npz")]

    def _write_arrays(self, name: str, arrays: dict[str, np.ndarray]) -> dict[str, str]:
        """Write a file of arrays; return its entry in the manifest."""
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        return {"file": name, "sha256": self._write(name, buffer.getvalue())}

    def _write(self, name: str, content: bytes) -> str:
        """Write a complete file, so that it survives a crash; return its SHA-256 digest."""
        # Only its owner may read it: the states have values that were drawn for each record.
        with replacing(self.directory / name) as partial:
            partial.write_bytes(content)
        folder = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return hashlib.sha256(content).hexdigest()

    def _read_arrays(self, entry: dict[str, str]) -> dict[str, np.ndarray]:
        """Read the arrays of an entry of the manifest and check their digest."""
        path = self.directory / entry["file"]
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = b""
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise CheckpointError(
                f"{path}: damaged or missing; delete {self.directory} and run again"
            )
        with np.load(io.BytesIO(content)) as arrays:
            return {name: arrays[name] for name in arrays.files}
