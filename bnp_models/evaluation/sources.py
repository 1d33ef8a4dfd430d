"""Runs that made synthetic files, and the warnings of these runs.

`bnp-models synthesize` writes run.json beside its files, with their digests and the warnings of the
run. Files that are good by every comparison may come from chains that did not converge.
"""

import json
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from bnp_models.data.display import counted
from bnp_models.data.messages import listed
from bnp_models.data.source import file_digest


class Source(NamedTuple):
    """Run whose run.json lies beside synthetic files."""

    run: str
    """Path of the run.json."""
    files: list[str]
    """Files that are unchanged since the run made them."""
    changed: list[str]
    """Files that have changed since the run made them."""
    strangers: list[str]
    """Files in the folder of the run that it did not make."""
    warnings: list[str]
    """Warnings of the run."""
    method: str | None = None
    """Method by which it made the files from its draws, where that is known."""
    attack: str | None = None
    """What the run found by an attack on its files, if there was one, and what may be concluded."""

    def sentences(self) -> Iterator[str]:
        """Sentences on the run, and on files that it did not make."""
        made = self.files + self.changed
        if made and self.warnings:
            first, *others = self.warnings
            more = f" ({counted(len(others), 'more warning')} in {self.run})" if others else ""
            yield f"the run that made {_shown(made)}: {first}{more}"
        if self.changed:
            have = "have" if len(self.changed) > 1 else "has"
            yield f"{_shown(self.changed)} {have} changed since the run in {self.run}"
        if self.strangers:
            yield (
                f"the run in {self.run} did not make {_shown(self.strangers)}: it is not known "
                "whether the chains of these files converged"
            )


def find_sources(
    paths: Sequence[str | PathLike], names: Sequence[str] | None = None
) -> tuple[Source, ...]:
    """Find the runs that made files, by the run.json in the folders of the files.

    Parameters
    ----------
    paths
        Synthetic files.
    names
        Names of the files in messages; by default their paths.

    Returns
    -------
    sources
        One for each folder with a run.json of `bnp-models synthesize`, or of `impute`.
    """
    folders: dict[Path, list[tuple[str | PathLike, str]]] = {}
    for path, name in zip(paths, names or map(str, paths), strict=True):
        folders.setdefault(Path(path).parent, []).append((path, name))
    found = []
    for folder, files in folders.items():
        run = _read(folder / "run.json")
        if run is None:
            continue
        made = run["files_sha256"]
        kinds: tuple[list[str], ...] = [], [], []
        for path, name in files:
            file = Path(path).name
            same = file in made and made[file] == file_digest(path)
            kinds[0 if same else 1 if file in made else 2].append(name)
        warnings = list(map(str, run["warnings"]))
        method = run.get("method") if isinstance(run.get("method"), str) else None
        made_here, changed, others = kinds
        where = str(folder / "run.json")
        attack = _attack_in_words(run.get("attack_gains"))
        found.append(Source(where, made_here, changed, others, warnings, method, attack))
    return tuple(found)


def _read(path: Path) -> dict | None:
    """Content of the run.json of a run that made files; None if there is none."""
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(run, dict) or not isinstance(run.get("files_sha256"), dict):
        return None
    return run if isinstance(run.get("warnings"), list) else None


def _attack_in_words(gains: object) -> str | None:
    """What a run says of an attack on its files; None if it says nothing."""
    if not isinstance(gains, dict) or not {"in_words", "conclusion"} <= gains.keys():
        return None
    return f"{gains['in_words']}. What may be concluded: {gains['conclusion']}"


def _shown(names: Sequence[str]) -> str:
    """Names of the first three files, and the number of further files."""
    rest = [] if len(names) <= 3 else [f"{len(names) - 3} others"]
    return listed([*names[:3], *rest])
