"""A sample of 10^8 records in a folder of Parquet files: read, fitted, synthesized, evaluated.

    python experiments/speed/large_files/run.py FOLDER
    python experiments/speed/large_files/run.py FOLDER --records 1000000

Two samples of ten variables are simulated from a latent class model that is fitted to 10,000
records of the census file, and written to FOLDER, the original in any order: some gibibytes. Each
step is a process of its own. Appends its seconds, the peak of its memory and what it found to
results.csv, as far as they are not there yet, and makes results.md.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / name) for name in ("speed/benchmark", "accuracy/known_truth")]
from results import Results, markdown  # noqa: E402

VARIABLES, FITTED, SEED, SWEEPS = 10, 10_000, 7, 8
RECORDS_OF_FILE = 2_000_000
STEPS = ("simulate and write", "read", "nplcm", "tnplcm, 55 conditions", "evaluate")
CONDITIONS = HERE.parents[1] / "synthesis" / "repeated_sampling" / "conditions.csv"


def simulate_and_write(folder, records):
    """Two folders of records from two draws of a fitted model."""
    import jax

    import bnp_models as bnp
    from bnp_models.data.folders import write_contingency_table

    people = bnp.datasets.census_income()
    table = bnp.Microdata.from_frame(people.sample(FITTED, SEED)).tabulated
    conditions = bnp.read_conditions(CONDITIONS, table.schema)
    run = bnp.sample(
        bnp.TNPLCM(), table, key=jax.random.key(SEED), conditions=conditions, num_chains=2,
        num_warmup=500, num_samples=100,
    )  # fmt: skip
    (folder / "original").mkdir(exist_ok=True)
    rng = np.random.default_rng(SEED)
    for number, start in enumerate(range(0, records, RECORDS_OF_FILE)):
        key, size = jax.random.key(number), min(RECORDS_OF_FILE, records - start)
        (made,) = bnp.synthesize(run, 1, size, key=key)
        rows = rng.permutation(np.repeat(np.arange(len(made.codes)), made.counts))
        frame = made.to_frame().iloc[rows]
        frame.to_parquet(folder / "original" / f"{number:04}.parquet", index=False)
    made = bnp.synthesize(run, 2, records)[1]
    write_contingency_table(made, folder / "synthetic")
    return {"cells": len(made.codes)}


def read(folder, records):
    """The original's cells with counts."""
    import bnp_models as bnp

    table = bnp.read_contingency_table(folder / "original")
    assert table.n == records and table.num_variables == VARIABLES
    return {"cells": len(table.codes), "uniques": int((table.counts == 1).sum())}


def fit(folder, model, conditions):
    """Seconds a sweep of one chain with all default moves."""
    from run import Chains

    import bnp_models as bnp

    table = bnp.read_contingency_table(folder / "original")
    conditions = bnp.read_conditions(CONDITIONS, table.schema) if conditions else None
    chains = Chains(model, table, 1, conditions=conditions, burn=2)
    seconds = []
    for _ in range(SWEEPS):
        began = time.perf_counter()
        chains.advance(1)
        seconds.append(time.perf_counter() - began)
    # Not every sweep has all moves.
    return {"cells": len(table.codes), "seconds_a_sweep": sum(seconds) / SWEEPS}


def evaluate(folder, records):
    """All figures of utility."""
    import bnp_models as bnp
    from bnp_models.evaluation.files import read_like

    original = bnp.read_contingency_table(folder / "original")
    found = bnp.evaluate(original, [read_like(folder / "synthetic", original)])
    (score,) = found.scores["main_effects"]
    return {"cells": len(original.codes), "pmse_ratio": score.ratio}


def measure(step, folder, records):
    """What a step found, its seconds, and gibibytes at the most."""
    import bnp_models as bnp

    began = time.perf_counter()
    if step == "nplcm":
        row = fit(folder, bnp.NPLCM(), False)
    elif step.startswith("tnplcm"):
        row = fit(folder, bnp.TNPLCM(), True)
    else:
        steps = {"simulate and write": simulate_and_write, "read": read, "evaluate": evaluate}
        row = steps[step](folder, records)
    seconds = time.perf_counter() - began
    gibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"seconds": seconds, "gibibytes": gibibytes} | row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=100_000_000)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        print(json.dumps(measure(args.step, args.folder, args.records)))
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    results = Results(HERE / "results.csv", ("records", "step"))
    figures = ("seconds", "gibibytes", "cells", "uniques", "seconds_a_sweep", "pmse_ratio")
    for case in results.missing({"records": args.records, "step": step} for step in STEPS):
        command = [sys.executable, __file__, str(args.folder), "--step", case["step"]]
        command += ["--records", str(args.records)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        results.append(case | dict.fromkeys(figures) | json.loads(done.stdout.splitlines()[-1]))
    table = pd.read_csv(results.path)
    (HERE / "results.md").write_text(markdown(table, index=False) + "\n")


if __name__ == "__main__":
    main()
