"""Floors of the house: the import contracts of pyproject.toml hold, and see planted imports."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def lint(folder: Path) -> subprocess.CompletedProcess:
    """Check the contracts on the package in this folder."""
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as main; main()",
    ]
    return subprocess.run(
        [*command, "--no-cache"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package and its contracts in another folder, to plant imports in."""
    folder = tmp_path_factory.mktemp("house")
    ignored = shutil.ignore_patterns("__pycache__", "*.parquet")
    shutil.copytree(ROOT / "bnp_models", folder / "bnp_models", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_imports_go_down_only():
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout


PLANTED = {
    "upward": ("inference/run.py", "from bnp_models.report import pages"),
    "sideways": ("risk/population.py", "from bnp_models.synthesis import posterior_margins"),
    "within the kernels": (
        "kernels/numerics/counting.py",
        "from bnp_models.kernels.boxes import region",
    ),
    "a family of another": (
        "kernels/nested/members.py",
        "from bnp_models.kernels.latent_classes import order",
    ),
    "a circle in a folder": ("data/messages.py", "from bnp_models.data import reading"),
    "hidden in a function": ("models/model.py", "def f():\n    import bnp_models.inference.run"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_import_is_seen(copy, planted):
    name, statement = PLANTED[planted]
    path = copy / "bnp_models" / name
    text = path.read_text()
    try:
        path.write_text(f"{text}\n{statement}\n")
        assert lint(copy).returncode == 1
    finally:
        path.write_text(text)


def test_nothing_imports_kernels_by_the_name_of_another_distribution():
    for folder in ("bnp_models", "kernels", "tests", "experiments", "notebooks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not re.search(r"^\s*(from|import) kernels\b", path.read_text(), re.MULTILINE), (
                path
            )
