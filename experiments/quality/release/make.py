"""Build a release: wheel and source archive twice, the wheel in a clean environment, what it needs.

    python experiments/quality/release/make.py --python /path/to/python3.13

Clones the repository twice and builds each clone: the bytes have to be the same. Installs the wheel
with its extras in a fresh environment of that Python and checks it against the tree. Writes
``dist/`` (wheel, source archive, software bill of materials, SHA256SUMS),
``constraints/pythonX.Y.txt`` (exact versions, those of the tests too) and ``licences-X.Y.md``
beside this file, and fails at a licence that is not on the list below.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
EXTRAS = "formats,trees"

ALLOWED = (
    "0BSD", "Apache Software License", "Apache-2.0", "BSD", "BSD License", "BSD-2-Clause",
    "BSD-3-Clause", "CC0-1.0", "MIT", "MIT License",
    "MIT-CMU", "MPL-2.0", "PSF-2.0", "Python Software Foundation License", "Zlib",
)  # fmt: skip
"""Licences that leave users free to use, change and pass on the whole: permissive ones, and weak
copyleft of libraries that are not changed here."""


def run(*words: object, cwd: Path = ROOT) -> str:
    """Run a command; its output, or stop with its errors."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(python: str, folder: Path, *requirements: object) -> Path:
    """Make an environment with these requirements; its interpreter."""
    run(python, "-m", "venv", folder)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", *requirements)
    return folder / "bin/python"


def build(python: Path, folder: Path) -> dict[str, bytes]:
    """Build a clone of what is committed; the files by name."""
    run("git", "clone", "--quiet", ROOT, folder)
    run(python, "-m", "build", "--outdir", folder / "dist", folder)
    return {path.name: path.read_bytes() for path in sorted((folder / "dist").iterdir())}


def check_licences(found: list[dict]) -> None:
    """Stop where a package has a licence, or a part of one, that is not allowed."""
    for one in found:
        parts = re.split(r"\s+(?:AND|OR)\s+|;\s*", one["License"].replace("(", "").replace(")", ""))
        if unknown := [part for part in parts if part not in ALLOWED]:
            raise SystemExit(f"{one['Name']} {one['Version']}: {', '.join(unknown)}")


def main(python: str) -> None:
    """Build, install, list and check."""
    with tempfile.TemporaryDirectory(prefix="release-") as made:
        work = Path(made)
        tools = environment(
            sys.executable, work / "tools", "build", "cyclonedx-bom", "pip-licenses"
        )
        files = build(tools, work / "first")
        if files != build(tools, work / "second"):
            raise SystemExit("two builds of one commit differ")
        dist = ROOT / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir()
        for name, content in files.items():
            (dist / name).write_bytes(content)
        wheel = next(dist.glob("*.whl"))
        own = environment(python, work / "venv", f"{wheel}[{EXTRAS}]")
        version = run(own, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        print(run(own, "-P", ROOT / "tests/check_wheel.py", ROOT, cwd=work).strip())
        print(run(work / "venv/bin/bnp-models", "--version", cwd=work).strip())
        bill = dist / f"{wheel.name.split('-py')[0]}.cdx.json"
        run(work / "tools/bin/cyclonedx-py", "environment", own, "--output-reproducible",
            "--pyproject", ROOT / "pyproject.toml", "-o", bill)  # fmt: skip
        licences = [work / "tools/bin/pip-licenses", "--python", own, "--with-urls"]
        check_licences(json.loads(run(*licences, "--format=json")))
        table = run(*licences, "--format=markdown", "--order=license", "--ignore-packages",
                    "bnp-models")  # fmt: skip
        title = (
            f"# Licences of the packages installed with bnp-models[{EXTRAS}] on Python {version}"
        )
        (HERE / f"licences-{version}.md").write_text(f"{title}\n\n{table}")
        run(own, "-m", "pip", "install", "--quiet", f"{wheel}[test]")
        pinned = run(own, "-m", "pip", "freeze", "--exclude", "bnp-models")
        (ROOT / "constraints").mkdir(exist_ok=True)
        (ROOT / f"constraints/python{version}.txt").write_text(pinned)
        sums = [
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
            for path in sorted(dist.iterdir())
        ]
        (dist / "SHA256SUMS").write_text("".join(sums))
        print(*sums, sep="", end="")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter to install it in")
    main(parser.parse_args().python)
