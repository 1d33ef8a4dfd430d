"""Ten million records of ten variables: seconds a sweep and peak memory here, bytes on a GPU.

    python experiments/speed/gpu/large.py
    PYTHONPATH=PLUGIN python experiments/speed/gpu/large.py --bytes

One chain, all default moves, simulated records. The first appends what it measures on the device at
hand, each model in a process of its own; the second compiles for an H200 instead (launches.py says
what PLUGIN is). Both append to large.csv what is not there yet, and make large.md.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path += [str(HERE.parents[1] / name) for name in ("speed/benchmark", "accuracy/known_truth")]
from results import Results, markdown  # noqa: E402

RECORDS, SWEEPS = 10_000_000, 6
CELLS = ", cells with counts"


def make_case(name):
    """Model and records."""
    from cases import MODELS
    from run import latent_class_sample

    table = latent_class_sample(RECORDS)
    return MODELS[name.removesuffix(CELLS)], table.tabulated if name.endswith(CELLS) else table


def measure(name):
    """Seconds of one sweep after another, and gibibytes at the most, of a GPU if there is one."""
    import jax
    from cases import alone
    from run import Chains

    chains = Chains(*make_case(name), 1, start=40, burn=0, fixed=True)
    seconds = []
    with alone():
        # The first sweep of a program has more to do.
        chains.advance(1)
        for _ in range(SWEEPS):
            began = time.perf_counter()
            chains.advance(1)
            seconds.append(time.perf_counter() - began)
    of_device = jax.devices()[0].memory_stats()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10
    # Not every sweep has all moves.
    return {
        "seconds_a_sweep": sum(seconds) / SWEEPS, "compile_seconds": chains.compile_seconds,
        "gibibytes": (of_device["peak_bytes_in_use"] if of_device else most) / 2**30,
    }  # fmt: skip


def count_bytes(name):
    """Gibibytes of arguments, results and what is between, compiled for an H200."""
    import launches

    memory = launches.compiled(*make_case(name), None, 1).memory_analysis()
    parts = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
    total = sum(getattr(memory, part) for part in parts) - memory.alias_size_in_bytes
    return {"seconds_a_sweep": None, "compile_seconds": None, "gibibytes": total / 2**30}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["hdp plain", "hdp", "nplcm", f"nplcm{CELLS}"]
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--bytes", action="store_true", help="compile for an H200")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.row:
        print(json.dumps((count_bytes if args.bytes else measure)(args.row)))
        return
    device = "NVIDIA H200, compiled"
    if not args.bytes:
        import jax

        device = jax.devices()[0].device_kind
    results = Results(HERE / "large.csv", ("device", "model"))
    for case in results.missing({"device": device, "model": name} for name in args.models):
        command = [sys.executable, __file__, "--row", case["model"], *["--bytes"] * args.bytes]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        results.append(case | {"records": RECORDS} | json.loads(done.stdout.splitlines()[-1]))
    table = pd.read_csv(results.path).sort_values(["device", "model"])
    (HERE / "large.md").write_text(markdown(table, index=False) + "\n")


if __name__ == "__main__":
    main()
