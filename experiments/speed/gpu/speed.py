"""Sweeps a second of every model, with few chains and with many, on the device at hand.

    python experiments/speed/gpu/speed.py
    python experiments/speed/gpu/speed.py --cases hdp nplcm --chains 1 32 256

Records of the census file and households of Michigan, all moves on, chains that have come to few
components; medians of three stretches of some seconds. Appends to speed.csv what is not there yet
for this device, and makes speed.md. Several may run at once: they compile side by side, and are
timed one after the other.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

HERE = Path(__file__).parent
sys.path += [str(HERE.parents[1] / name) for name in ("speed/benchmark", "accuracy/known_truth")]
from cases import MODELS, alone, make_case  # noqa: E402
from results import Results, markdown  # noqa: E402
from run import Chains  # noqa: E402

# Seconds of a stretch, and sweeps of it at the most.
STRETCH, MOST = 1.5, 3000


def measure(case, num_chains):
    """A row."""
    model, table, conditions = make_case(case)
    start = {} if case.startswith("ndpmpm") else {"start": 40, "fixed": True}
    chains = Chains(model, table, num_chains, conditions, burn=0, **start)
    with alone():
        sweeps, seconds = 5, 0.0
        while seconds < STRETCH and sweeps < MOST:
            if seconds:
                sweeps = min(MOST, int(sweeps * min(8, 1.3 * STRETCH / seconds)) + 1)
            began = time.perf_counter()
            chains.advance(sweeps)
            seconds = time.perf_counter() - began
        row = chains.row(sweeps, repeats=3)
    return {
        "jax": jax.__version__, "sweeps_second": row["sweeps_per_second"],
        "chain_sweeps_second": row["chain_sweeps_per_second"],
        "compile_seconds": row["compile_seconds"],
        "components": float(np.mean(chains.latest["components"])),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 32])
    args = parser.parse_args()
    device = jax.devices()[0].device_kind
    results = Results(HERE / "speed.csv", ("device", "case", "chains"))
    cases = (
        {"device": device, "case": case, "chains": number}
        for case in args.cases for number in args.chains
    )  # fmt: skip
    for case in results.missing(cases):
        results.append(case | measure(case["case"], case["chains"]))
        jax.clear_caches()
    table = pd.read_csv(results.path).sort_values(["device", "case", "chains"])
    (HERE / "speed.md").write_text(markdown(table, index=False) + "\n")


if __name__ == "__main__":
    main()
