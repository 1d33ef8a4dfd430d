"""Seconds of the risk of the paper's table: 20,384 cells, of which 2,966 have records.

    python experiments/papers/polettini_stander/benchmark.py

A sample of the hierarchy itself of about that size, with weights such that no two cells share their
(f, phat), which is the slowest case, and with two sampling fractions, as in the paper. Prints a
table and writes it to benchmark.md; compilation apart.
"""

import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import markdown  # noqa: E402

CELLS, NON_EMPTY, POPULATION = 20_384, 2_966, 15_142_320


def table(distinct, seed=0):
    """Non-empty cells with f as skewed as in a survey."""
    random = np.random.default_rng(seed)
    f = np.maximum(1, np.round(random.lognormal(0.9, 1.6, NON_EMPTY)))
    phat = np.where(random.random(NON_EMPTY) < 0.14, 0.028, 0.0034)
    if distinct:
        phat = phat * random.lognormal(0, 0.2, NON_EMPTY)
    codes = np.arange(NON_EMPTY, dtype=np.int32)[:, None]
    schema = bnp.Schema(("cell",), (tuple(range(CELLS)),))
    records = np.repeat(codes, f.astype(int), axis=0)
    return bnp.data.WeightedCells(
        table=bnp.Microdata(schema, records), population_size=POPULATION, num_cells=CELLS,
        codes=codes, f=f, weight=f / phat,
    )  # fmt: skip


def seconds(function, repeats):
    began = time.perf_counter()
    function()
    first = time.perf_counter() - began
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return first - float(np.median(times)), float(np.median(times))


def main():
    jax.config.update("jax_enable_compilation_cache", False)
    rows = []
    for variant in (1, 2):
        for distinct in (True, False):
            cells = table(distinct)
            model = bnp.PolettiniStander(variant)
            pairs = len(cells.distinct[0]) if variant == 2 else len(np.unique(cells.f))
            row = {"model": "I" * variant, "distinct cells": pairs}
            compiling, running = seconds(
                lambda m=model, c=cells: bnp.cell_risk(
                    m, c, key=jax.random.key(0), num_chains=1, num_samples=1
                ), 15,
            )  # fmt: skip
            row |= {"all summaries, ms": 1e3 * running, "compilation, s": compiling}
            try:
                fitted = bnp.fit_empirical_bayes(model, cells)
                row |= {"empirical Bayes, s": fitted.seconds["search"], "steps": fitted.steps,
                        "its compilation, s": fitted.seconds["compile"]}  # fmt: skip
            except bnp.NoMaximumError as error:
                print(error)
            rows.append(row)
            print(row, flush=True)
    text = markdown(pd.DataFrame(rows), index=False)
    (HERE / "benchmark.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
