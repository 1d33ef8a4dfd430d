"""Install the project into a fresh environment of any Python, and run it there.

    python experiments/quality/versions/check.py --python /path/to/python3.13
    python experiments/quality/versions/check.py --python python3.11 --lowest

With the newest releases of all dependencies that pip finds, or with the lowest that pyproject.toml
declares. First without extras: the demo in small, once more with the programs that the first run
compiled, synthetic data, their evaluation, and posterior.nc read back; then, with the extra for
tests, the tests of some folders. Writes a table of versions and outcomes beside this file.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TESTS = ("tests/inference", "tests/report", "tests/data")
SMALL = ("--chains", "2", "--warmup", "100", "--draws", "100", "--quiet")

READ_BACK = """
import warnings
warnings.simplefilter("ignore")
import arviz as az, xarray as xr
for folder in ("demo", "synthetic"):
    with xr.open_datatree(folder + "/posterior.nc", engine="h5netcdf") as tree:
        assert tree["posterior"].sizes["chain"] == 2
        print(folder, *tree.children)
    print(az.summary(az.from_netcdf(folder + "/posterior.nc")))
"""

# A second run reads its programs from the cache.
SAME = """
import pathlib, sys, xarray as xr
assert list(pathlib.Path("cache").rglob("jit_advance_chains-*")), "nothing was cached"
first, again = (
    xr.open_datatree(folder + "/posterior.nc", engine="h5netcdf")["posterior"].to_dataset()
    for folder in ("demo", "again")
)
sys.exit(0 if first.equals(again) else "other draws with programs from the cache")
"""

VERSIONS = """
import importlib.metadata as found, json, sys
names = {found.metadata("bnp-models")["Name"], "jaxlib"}
for line in found.requires("bnp-models"):
    if "extra" not in line:
        names.add(line.split(">")[0])
for name in ("arviz-base", "arviz-plots"):
    try:
        found.version(name)
        names.add(name)
    except found.PackageNotFoundError:
        pass
print(json.dumps({"python": sys.version.split()[0]} | {n: found.version(n) for n in sorted(names)}))
"""


def steps(folder: Path) -> dict[str, list[str]]:
    """Arguments of Python by the name of what they do, in a folder of their own."""
    command = ["-m", "bnp_models"]
    sample = [str(folder / "demo/sample.csv"), "--levels", str(folder / "demo/levels.csv")]
    risk = ["risk", *sample, "--population-size", "228421", *SMALL]
    return {
        "demo: sample": ["-m", "bnp_models.datasets", "demo", "--adults", "--rows", "300"],
        "demo: risk": [*command, *risk, "--out", "demo"],
        "demo: risk again": [*command, *risk, "--out", "again"],
        "the same draws": ["-c", SAME],
        "demo: compare": ["-m", "bnp_models.datasets", "demo", "--compare"],
        "synthesize": [*command, "synthesize", *sample, "--components", "6", "--datasets", "2",
                       *SMALL, "--out", "synthetic"],
        "evaluate": [*command, "evaluate", sample[0], "synthetic/synthetic_1.csv",
                     "synthetic/synthetic_2.csv", *sample[1:], "--posterior",
                     "synthetic/posterior.nc", "--quiet", "--out", "evaluation"],
        "posterior.nc read back": ["-c", READ_BACK],
    }  # fmt: skip


def lowest() -> str:
    """Constraints that pin each dependency to the lowest version that is declared."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = project["dependencies"] + extras["formats"] + extras["trees"]
    return "".join(line.replace(">=", "==") + "\n" for line in lines)


def outcome(command: list[str], folder: Path, **variables: str) -> tuple[str, float, str]:
    """Run a command: whether it passed, its seconds and its last line, or the error's."""
    began = time.perf_counter()
    # The installed package, whatever the caller imports from, and no programs of earlier runs.
    left = {"PYTHONPATH", "JAX_COMPILATION_CACHE_DIR"}
    environment = {name: value for name, value in os.environ.items() if name not in left}
    environment |= variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    said = (done.stdout + (done.stderr if done.returncode else "")).strip()
    if done.returncode:
        print(said, file=sys.stderr)
    last = said.splitlines()[-1] if said else ""
    return "passed" if done.returncode == 0 else f"failed ({done.returncode})", seconds, last


def main(python: str, at_lowest: bool, tests: list[str]) -> int:
    """Make the environment, run everything, write the table; 1 where anything failed."""
    rows: list[tuple[str, str, float, str]] = []

    def run(name: str, command: list[str], folder: Path, **variables: str) -> None:
        rows.append((name, *outcome(command, folder, **variables)))
        print(*rows[-1], sep="  ", flush=True)

    with tempfile.TemporaryDirectory(prefix="versions-") as made:
        folder = Path(made)
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        own = str(folder / "venv/bin/python")
        (folder / "constraints.txt").write_text(lowest() if at_lowest else "")
        # A build leaves files behind.
        source = folder / "source"
        for name in ("bnp_models", "kernels", "pyproject.toml", "README.md", "LICENSE"):
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / name, symlinks=True)
            else:
                shutil.copy(ROOT / name, source / name)
        install = [own, "-m", "pip", "install", "--quiet", "-c", str(folder / "constraints.txt")]
        run("install", [*install, str(source)], folder)
        found = subprocess.run([own, "-c", VERSIONS], check=True, capture_output=True, text=True)
        versions = json.loads(found.stdout)
        for name, arguments in steps(folder).items():
            run(name, [own, *arguments], folder, XDG_CACHE_HOME=str(folder / "cache"))
        run("install with the extra for tests", [*install, f"{source}[test]"], folder)
        # -P: the installed package, not the tree.
        pytest = [own, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-m", "not long"]
        # Old versions warn of each other, and of what has come since.
        pytest += ["-o", "filterwarnings="] if at_lowest else []
        for part in tests:
            run(part, [*pytest, part], ROOT)
    kind = "lowest" if at_lowest else "newest"
    lines = [f"# Python {versions['python']}, {kind} versions", "", "| package | version |"]
    lines += ["|---|---|", *(f"| {name} | {version} |" for name, version in versions.items())]
    lines += ["", "| what | outcome | seconds | last line |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {how} | {seconds:.0f} | {last if name in tests else ''} |"
        for name, how, seconds, last in rows
    ]
    major = ".".join(versions["python"].split(".")[:2])
    (HERE / f"{kind}-{major}.md").write_text("\n".join(lines) + "\n")
    return int(any(how != "passed" for _, how, _, _ in rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter to check")
    parser.add_argument("--lowest", action="store_true", help="lowest versions, not newest")
    parser.add_argument("--tests", nargs="*", default=list(TESTS), help="folders of tests to run")
    options = parser.parse_args()
    sys.exit(main(options.python, options.lowest, options.tests))
