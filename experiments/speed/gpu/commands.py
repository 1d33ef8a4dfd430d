"""From a command to its page, as a user would run it: seconds on the device at hand.

    python experiments/speed/gpu/commands.py
    python experiments/speed/gpu/commands.py --commands "risk, demo" --folder /tmp/commands
    python experiments/speed/gpu/commands.py --runs first --at-once 7 --folder /tmp/commands
    python experiments/speed/gpu/commands.py --runs again --folder /tmp/commands

Each command runs twice: first with an empty cache of compiled programs, and again, with what
the first left there. Seconds are of the whole process. Appends to commands.csv what is not there
yet for this device, and makes commands.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import Results, markdown  # noqa: E402

CONDITIONS = HERE.parents[1] / "synthesis" / "repeated_sampling" / "conditions.csv"
DEMO = "demo/sample.csv --levels demo/levels.csv --population-size 228421"
CENSUS = "census/sample.csv --levels census/levels.csv"
# What has no --draws goes on until its chains agree, or its minutes are used up.
COMMANDS = {
    "risk, demo": f"risk {DEMO} --warmup 500 --draws 2000 --thin 3",
    "protect, demo": f"protect {DEMO} --max-tau1 5",
    "risk, 10,000, 4 chains": f"risk {CENSUS} --population-size 299285",
    "risk, 10,000, 32 chains": f"risk {CENSUS} --population-size 299285 --chains 32",
    "synthesize, nplcm, 10,000": f"synthesize {CENSUS} --model nplcm",
    "synthesize, tnplcm, 10,000": f"synthesize {CENSUS} --model tnplcm --conditions {CONDITIONS}",
    "synthesize, ndpmpm, 1,000 households": "synthesize households.csv --model ndpmpm "
    "--household household --household-variables persons,income,vehicles "
    "--rules census-relationships",
}
RUNS = ("first", "again")
# Quantities of every run, as opposed to tau_1 and margins.
OF_ALL = ("log_likelihood", "components", "alpha", "beta", "alpha_rate")


def write_data(folder):
    """The samples that the commands read."""
    import bnp_models as bnp
    from bnp_models.datasets.__main__ import write
    from bnp_models.rules.census import census_relationships

    write(folder / "demo", rows=1000, seed=0, adults=True)
    write(folder / "census", rows=10_000, seed=0, adults=False)
    people = bnp.datasets.southeast_michigan_households().sample(1000, 0)
    table = people.households()
    kept = table.select(census_relationships(table).check(table))
    kept.to_frame().to_csv(folder / "households.csv", index=False)


def measure(name, run, folder, minutes):
    """A row but for the device: one command, its seconds and what its page says."""
    words = COMMANDS[name].split()
    if "--draws" not in words:
        words += ["--max-minutes", f"{minutes:g}"]
    place = "".join(c if c.isalnum() else "-" for c in name)
    out, cache = folder / "out" / f"{place}-{run}", folder / "cache" / place
    if run == "again" and not cache.is_dir():
        raise SystemExit(f"{name}: nothing has run first in {folder}")
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "bnp_models", *words, "--out", str(out)],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    print(f"{name}, {run}: {seconds:.1f} s\n{done.stdout}{done.stderr}", flush=True)
    if done.returncode:
        raise SystemExit(f"{name}: exit code {done.returncode}")
    return {"seconds": seconds} | figures(out)


def figures(out):
    """What is said of the chains in a folder of results."""
    path = out / "risk.json"
    summary = json.loads((path if path.exists() else out / "run.json").read_text())
    figures, spent = summary["diagnostics"], summary["seconds"]
    # Of synthetic data the margin that the chains agree on least.
    judged = "tau1"
    if judged not in figures:
        others = [name for name in figures if figures[name]["rhat"] and name not in OF_ALL]
        judged = max(others, key=lambda name: figures[name]["rhat"], default=None)
    found = figures.get(judged) or {}
    stopping = summary.get("stopping") or {}
    return {
        "compiling": spent["compile"], "warmup": spent["warmup"], "drawing": spent["draws"],
        "sweeps_second": summary.get("sweeps_per_second"), "agreed": stopping.get("reached"),
        "judged": judged, "rhat": found.get("rhat"), "ess": found.get("ess_bulk"),
        "rhat_log_likelihood": figures.get("log_likelihood", {}).get("rhat"),
        "warnings": " | ".join(summary["warnings"]),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=RUNS)
    parser.add_argument("--folder", type=Path, help="of samples, caches and results (temporary)")
    parser.add_argument("--minutes", type=float, default=10, help="--max-minutes of each (10)")
    parser.add_argument("--at-once", type=int, default=1, help="commands side by side (1)")
    args = parser.parse_args()
    # In a process of its own: this one would keep memory of the device.
    code = "import jax; print(jax.devices()[0].device_kind); print(jax.__version__)"
    asked = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    device, version = asked.stdout.splitlines()[-2:]
    results = Results(HERE / "commands.csv", ("device", "command", "run"))
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(args.at_once) as pool:
        folder = (args.folder or Path(temporary)).resolve()
        if not (folder / "households.csv").exists():
            folder.mkdir(parents=True, exist_ok=True)
            code = (
                "import sys; sys.path.append(sys.argv[1]); from pathlib import Path; "
                "from commands import write_data; write_data(Path(sys.argv[2]))"
            )
            command = [sys.executable, "-c", code, str(HERE), str(folder)]
            subprocess.run(command, check=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})

        def add(case):
            row = measure(case["command"], case["run"], folder, args.minutes)
            results.append(case | {"jax": version, "at_once": args.at_once} | row)

        for run in args.runs:
            cases = [{"device": device, "command": name, "run": run} for name in args.commands]
            list(pool.map(add, results.missing(cases)))
    table = pd.read_csv(results.path)
    table["run"] = pd.Categorical(table["run"], RUNS)
    table = table.sort_values(["device", "command", "run"]).drop(columns="warnings")
    (HERE / "commands.md").write_text(markdown(table, index=False) + "\n")


if __name__ == "__main__":
    main()
