"""Memory and seconds a sweep of one chain on many households of the simulated populations.

    python experiments/papers/simulated_households/scale.py

Each row is measured in a process of its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from functools import partial

import jax
import pandas as pd
from run import DATA, HERE, PRINTED, Results, markdown

import bnp_models as bnp

MODELS = {
    "printed": {"adults": partial(bnp.NDPMPM, 30, 10, **PRINTED),
                "families": partial(bnp.NDPMPM, 40, 15, **PRINTED)},
    "default": {"adults": bnp.NDPMPM, "families": bnp.NDPMPM},
}  # fmt: skip
CASES = [
    ("adults", 100_000, "printed", 30), ("families", 50_000, "printed", 15),
    ("adults", 100_000, "default", 30), ("adults", 10_000, "printed", 100),
    ("families", 100_000, "printed", 10), ("families", 10_000, "printed", 50),
    ("families", 50_000, "default", 15),
]  # fmt: skip


def measure(data: str, n: int, model: str, sweeps: int) -> dict:
    """Peak memory and seconds of one chain, in this process."""
    design = DATA[data].design()
    table = design.sample(n, seed=0)
    before = peak()
    began = time.perf_counter()
    run = bnp.sample(
        MODELS[model][data](), table, key=jax.random.key(0), conditions=design.rules,
        num_chains=1, num_warmup=sweeps, num_samples=sweeps,
    )  # fmt: skip
    return {
        "data": data, "n": n, "model": model, "sweeps": 2 * sweeps, "persons": table.num_persons,
        "augmented": float(run.draws["augmented"].mean()),
        "compile_seconds": run.seconds["compile"],
        "seconds_a_sweep": run.seconds["draws"] / sweeps,
        "seconds_in_all": time.perf_counter() - began,
        "gib_before": before, "peak_gib": peak(),
    }  # fmt: skip


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="begin no chain later than this")
    parser.add_argument("--one", nargs=4, help="measure one case and print it")
    args = parser.parse_args()
    if args.one:
        data, n, model, sweeps = args.one
        print(json.dumps(measure(data, int(n), model, int(sweeps))))
        return
    path = HERE / "scale.csv"
    results = Results(path, ("data", "n", "model"), args.minutes)
    sweeps = {case[:3]: case[3] for case in CASES}
    cases = [dict(zip(("data", "n", "model"), case, strict=True)) for case in sweeps]
    for case in results.missing(cases):
        own = map(str, (*case.values(), sweeps[tuple(case.values())]))
        done = subprocess.run(
            [sys.executable, __file__, "--one", *own], capture_output=True, text=True, check=True
        )
        results.append(json.loads(done.stdout.splitlines()[-1]))
        print(done.stdout, flush=True)
        rows = pd.read_csv(path)
        text = "One chain of so many households (`scale.py`), warm-up and draws in equal parts.\n\n"
        (HERE / "scale.md").write_text(text + markdown(rows, index=False) + "\n")


if __name__ == "__main__":
    main()
