"""How long chains take, by records and variables: python experiments/speed/minutes/run.py

Four chains of each model on real records: seconds of compilation, and of a sweep after up to 300
sweeps, or half a minute of them. From these follow the minutes of the least run, four chains of
2,000 sweeps. Appends to results.csv what is not there yet, and makes table.md of all of it.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "benchmark"), str(HERE.parents[1] / "accuracy" / "known_truth")]
from results import Results  # noqa: E402
from run import Chains, report  # noqa: E402

CONDITIONS = HERE.parents[1] / "synthesis" / "repeated_sampling" / "conditions.csv"
MODELS = {
    "hdp": bnp.HDPMixedMembership,
    "hdp, conditions": bnp.HDPMixedMembership,
    "nplcm": bnp.NPLCM,
    "tnplcm, conditions": bnp.TNPLCM,
    "ndpmpm, rules": bnp.NDPMPM,
}
FIVE = ["age", "sex", "marital_status", "education", "class_of_worker"]
CHAINS, LEAST, MOST_SWEEPS, MOST_SECONDS = 4, 2000, 300, 30


def persons(n, num_variables):
    """Persons of the census population, with 5 or 10 variables; with 20, two persons a record."""
    population = bnp.datasets.census_income()
    frame = population.sample(n, seed=0)
    if num_variables == 20:
        other = population.sample(n, seed=1).add_suffix("_2")
        return pd.concat([frame, other], axis=1)
    return frame[FIVE] if num_variables == 5 else frame


def conditions_of(table):
    """Those of the conditions that speak of the table's variables alone."""
    conditions = pd.read_csv(CONDITIONS, dtype=str)
    others = [name for name in conditions if name not in table.schema.variables]
    kept = conditions[conditions[others].isna().all(axis=1)].drop(columns=others)
    return bnp.StructuralZeros.from_frame(kept, table.schema)


def household_case(num_persons):
    """About so many persons within households that keep the rules, and the rules."""
    data = bnp.datasets.southeast_michigan_households()
    share = num_persons / len(data.frame)
    count = round(share * data.frame[data.household].nunique())
    table = data.sample(count, seed=0).households()
    rules = bnp.census_relationships(table)
    return table.select(rules.check(table)), rules


def measure(case):
    """A row of results.csv."""
    if case["model"] == "ndpmpm, rules":
        table, zeros = household_case(case["n"])
    else:
        table = bnp.Microdata.from_frame(persons(case["n"], case["variables"]))
        zeros = conditions_of(table) if "conditions" in case["model"] else None
    options = {"capacity": 128} if case["model"].startswith("hdp") and case["n"] > 1000 else {}
    model = MODELS[case["model"]](**options)
    chains = Chains(model, table, CHAINS, zeros, burn=0, fixed=True)
    began = time.perf_counter()
    while chains.iteration < MOST_SWEEPS and time.perf_counter() - began < MOST_SECONDS:
        chains.advance(10)
    burn = chains.iteration
    stretch = max(2, min(50, round(2 * burn / (time.perf_counter() - began))))
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        chains.advance(stretch)
        seconds.append((time.perf_counter() - start) / stretch)
    return {
        "compile_seconds": chains.compile_seconds,
        "ms_per_sweep": 1e3 * float(np.median(seconds)),
        "sweeps_before": burn,
        "components": float(np.mean(chains.latest["components"])),
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
    }


def write_table(rows, path):
    """Minutes of the least run: models by numbers of records and variables."""
    seconds = rows["compile_seconds"] + LEAST * rows["ms_per_sweep"] / 1e3
    rows = rows.assign(minutes=seconds / 60)
    minutes = rows.pivot_table(index=["model", "variables"], columns="n", values="minutes")
    sizes = list(minutes.columns)
    lines = [
        "| model | variables | " + " | ".join(f"n = {n:,}" for n in sizes) + " | compilation |",
        "|---|---|" + "---|" * (len(sizes) + 1),
    ]
    compiling = rows.groupby(["model", "variables"])["compile_seconds"].max()
    for model, variables in sorted(minutes.index, key=lambda x: (list(MODELS).index(x[0]), x[1])):
        cells = [_minutes(minutes.loc[(model, variables), n]) for n in sizes]
        spent = f"{compiling[(model, variables)]:.0f} s"
        lines.append(f"| {model} | {variables} | " + " | ".join([*cells, spent]) + " |")
    path.write_text("\n".join(lines) + "\n")


def _minutes(x):
    return "" if np.isnan(x) else f"{x:.1f}" if x < 9.95 else f"{x:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="begin no case later")
    args = parser.parse_args()
    results = Results(HERE / "results.csv", ("model", "n", "variables"), args.minutes)
    plain = ["hdp", "nplcm", "tnplcm, conditions"]
    ten = [(model, 10) for model in [*plain, "hdp, conditions"]]
    others = [(model, j) for j in (5, 20) for model in plain]
    cases = [{"model": m, "n": n, "variables": j} for n in (1000, 10_000) for m, j in ten]
    cases += [{"model": "ndpmpm, rules", "n": n, "variables": 8} for n in (1000, 10_000)]
    cases += [{"model": m, "n": 100_000, "variables": 10} for m in plain]
    cases += [{"model": m, "n": n, "variables": j} for n in (1000, 10_000) for m, j in others]
    cases += [{"model": m, "n": 100_000, "variables": j} for m, j in others]
    for case in results.missing(cases):
        row = case | measure(case)
        results.append(row)
        report(row)
        jax.clear_caches()
    write_table(pd.read_csv(HERE / "results.csv"), HERE / "table.md")


if __name__ == "__main__":
    main()
