"""Sweeps a second of every model, with few chains and with many, on the device at hand.

    python experiments/gpu/speed.py
    python experiments/gpu/speed.py --cases hdp nplcm --chains 1 32 256

Records of the census file and households of Michigan, all moves on, chains that have come to few
components; medians of three stretches of some seconds. Appends to speed.csv what is not there yet
for this device, and makes speed.md. Several may run at once: they compile side by side, and are
timed one after the other.
"""

import argparse
import fcntl
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.rules.census import census_relationships

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / name) for name in ("benchmark", "accuracy")]
from results import Results, markdown  # noqa: E402
from run import PLAIN_HDP, Chains  # noqa: E402

CONDITIONS = HERE.parent / "synthesis" / "conditions.csv"
MODELS = {
    "hdp plain": bnp.HDPMixedMembership(**PLAIN_HDP),
    "hdp": bnp.HDPMixedMembership(),
    "hdp, 55 conditions, plain": bnp.HDPMixedMembership(**PLAIN_HDP),
    "hdp, 55 conditions": bnp.HDPMixedMembership(),
    "nplcm": bnp.NPLCM(),
    "tnplcm, 55 conditions": bnp.TNPLCM(),
    "ndpmpm, rules": bnp.NDPMPM(),
    "ndpmpm": bnp.NDPMPM(),
}
# Records; of households, households.
RECORDS, HOUSEHOLDS = 10_000, 1000
# Seconds of a stretch, and sweeps of it at the most.
STRETCH, MOST = 1.5, 3000


def chains_of(case, num_chains):
    """Chains of a case, from many components."""
    if case.startswith("ndpmpm"):
        table = bnp.datasets.southeast_michigan_households().sample(HOUSEHOLDS, 0).households()
        rules = census_relationships(table)
        table = table.select(rules.check(table))
        return Chains(MODELS[case], table, num_chains, rules if "rules" in case else None, burn=0)
    table = bnp.Microdata.from_frame(bnp.datasets.census_income().sample(RECORDS, 0))
    conditions = bnp.read_conditions(CONDITIONS, table.schema) if "conditions" in case else None
    return Chains(
        MODELS[case], table, num_chains, conditions, start=40, burn=0, fixed=True
    )  # fmt: skip


def measure(case, num_chains):
    """A row."""
    chains = chains_of(case, num_chains)
    with open(Path(tempfile.gettempdir()) / "bnp-models-speed.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
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
