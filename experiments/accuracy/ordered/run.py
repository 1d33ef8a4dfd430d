"""Held-out prediction with ordered ages: python experiments/accuracy/ordered/run.py FOLDER

FOLDER has persons with whole years of age (AGEP), one file .csv or .csv.gz. Samples of them are
fitted with ages unordered, ordered (bands), and coded as two variables, the band and the place in
it; the log probability of 5,000 other persons is compared. Goes on with what is not there yet.
"""

import argparse
import sys
import time
from itertools import product
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.comparison.comparison import held_out_log_probability

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "known_truth"))
from results import Results, markdown  # noqa: E402

VARIABLES = ["AGEP", "SEX", "MSP", "RAC1P", "OWN_RENT", "EDU", "PINCP_DECILE"]
AGES = range(100)
MODELS = {"nplcm": bnp.NPLCM, "hdp": bnp.HDPMixedMembership}
WAYS = ("unordered", "ordered", "coded")
HELD_OUT = 5000
SWEEPS = {"num_chains": 2, "num_warmup": 600, "num_samples": 100, "thin": 4}


def table_of(frame, way, levels):
    """Coded persons, with AGEP as it is or in two variables."""
    if way == "coded":
        age = frame["AGEP"].astype(int)
        frame = frame.drop(columns="AGEP").assign(tens=age // 10, units=age % 10)
        levels = {k: v for k, v in levels.items() if k != "AGEP"}
        levels |= {"tens": list(range(10)), "units": list(range(10))}
    return bnp.Microdata.from_frame(frame, levels=levels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    (path,) = [p for p in args.folder.iterdir() if p.name.endswith((".csv", ".csv.gz"))]
    everyone = pd.read_csv(path, dtype=str, keep_default_na=False)[VARIABLES]
    levels = {name: sorted(everyone[name].unique()) for name in VARIABLES}
    levels["AGEP"] = [str(age) for age in AGES]
    results = Results(HERE / "results.csv", ("model", "way", "n", "sample"))
    for sample, n, model, way in product(range(2), (1000, 5000), MODELS, WAYS):
        row = {"model": model, "way": way, "n": n, "sample": sample}
        if not list(results.missing([row])):
            continue
        order = np.random.default_rng(sample).permutation(len(everyone))
        table = table_of(everyone.iloc[order[:n]], way, levels)
        others = table_of(everyone.iloc[order[n : n + HELD_OUT]], way, levels)
        began = time.perf_counter()
        options = {"ordered": "AGEP"} if way == "ordered" else {}
        run = bnp.sample(MODELS[model](**options), table, key=jax.random.key(sample), **SWEEPS)
        seconds = time.perf_counter() - began
        log_p = held_out_log_probability(run, others.codes)
        results.append(row | {
            "held_out": log_p.mean(), "se": log_p.std() / np.sqrt(len(log_p)),
            "components": run.draws["components"].mean(), "seconds": seconds,
        })  # fmt: skip
        jax.clear_caches()
    rows = pd.read_csv(results.path)
    means = rows.pivot_table(index=["model", "n"], columns="way", values="held_out")
    shown = means[list(WAYS)].map("{:.3f}".format).reset_index()
    (HERE / "table.md").write_text(markdown(shown, index=False) + "\n")


if __name__ == "__main__":
    main()
