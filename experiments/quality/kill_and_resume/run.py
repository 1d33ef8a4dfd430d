"""Kill `bnp-models risk` with SIGKILL at random moments, resume it, compare with an unkilled run.

    python experiments/quality/kill_and_resume/run.py

Moments are uniform over the duration of the whole command, so that they fall into start-up,
compilation, sampling, evaluation and writing. Each kill is followed by `--resume`; when the command
ends before its moment, its outputs are compared with those of the unkilled run and a new run
begins. Writes results.md beside this file.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bnp_models as bnp

OPTIONS = ["--population-size", "299285", "--chains", "2", "--warmup", "300", "--draws", "700",
           "--seed", "3", "--checkpoint-seconds", "0.2", "--quiet"]  # fmt: skip


def phase(out: Path) -> str:
    """How far a killed command had come, by what it left."""
    if (out / "risk.json").exists() or list(out.glob(".*.partial")):
        return "writing"
    manifest = out / "checkpoint" / "manifest.json"
    if not manifest.exists():
        return "before the first checkpoint"
    body = json.loads(json.loads(manifest.read_text())["body"])
    return f"sweep {body['progress']['iteration']} or later"


def untimed(out: Path) -> bytes:
    """risk.json without the entries that depend on the clock."""
    content = (out / "risk.json").read_bytes()
    return content[: content.index(b'  "seconds"')]


def same(out: Path, whole: Path) -> bool:
    """Whether two finished runs wrote the same bytes."""
    files = ("records.csv", "posterior.nc")
    return untimed(out) == untimed(whole) and all(
        (out / name).read_bytes() == (whole / name).read_bytes() for name in files
    )


def main(num_kills: int, seed: int) -> None:
    """Kill, resume and compare; stop with an error where anything differs."""
    moments = random.Random(seed)
    rows, comparisons = [], []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        bnp.datasets.census_income().write_sample(folder, 300, seed=1)
        command = [sys.executable, "-m", "bnp_models", "risk", str(folder / "sample.csv"),
                   "--levels", str(folder / "levels.csv"), *OPTIONS]  # fmt: skip
        whole = folder / "whole"
        # The first fills the compilation cache; the second is timed.
        for _ in range(2):
            began = time.perf_counter()
            subprocess.run([*command, "--out", str(whole)], check=True)
            duration = time.perf_counter() - began
        attempt = 0
        while len(rows) < num_kills or attempt:
            number = len(comparisons)
            out = folder / f"run{number}"
            process = subprocess.Popen([*command, "--out", str(out), "--resume"])
            moment = moments.uniform(0, duration) if len(rows) < num_kills else None
            try:
                process.wait(moment)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                attempt += 1
                rows.append((len(rows) + 1, number + 1, f"{moment:.1f}", phase(out)))
                continue
            if process.returncode:
                raise SystemExit(f"the resumed command failed with {process.returncode}")
            comparisons.append((number + 1, attempt, same(out, whole)))
            attempt = 0
    write(rows, comparisons, duration)
    if not all(equal for *_, equal in comparisons):
        raise SystemExit("a resumed run differs from the unkilled one")


def write(rows: list[tuple], comparisons: list[tuple], duration: float) -> None:
    """Write results.md."""
    lines = [
        "# Killed and resumed",
        "",
        f"{len(rows)} kills (SIGKILL) at random moments of a command that takes {duration:.1f} s; "
        f"bnp-models {bnp.__version__}. Outputs compared byte by byte with those of a run that was "
        "not killed: risk.json (except for seconds and sweeps_per_second), records.csv, "
        "posterior.nc.",
        "",
        "| run | kills | same bytes |",
        "|---:|---:|---|",
        *(f"| {run} | {kills} | {'yes' if equal else 'NO'} |" for run, kills, equal in comparisons),
        "",
        "| kill | of run | seconds after its start | what was there |",
        "|---:|---:|---:|---|",
        *(f"| {' | '.join(map(str, row))} |" for row in rows),
    ]
    Path(__file__).with_name("results.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.kills, options.seed)
