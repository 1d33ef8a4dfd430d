"""Coverage of 95% intervals over samples from the simulated populations, original and synthetic.

python experiments/papers/simulated_households/coverage.py               # resumes
python experiments/papers/simulated_households/coverage.py --minutes 10  # begins no chain later
"""

import argparse
from functools import partial

import jax
import numpy as np
import pandas as pd
from run import DATA, HERE, PRINTED, Chains, Fit, Results, files_of, fit, interval, markdown

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of

NESTED = partial(bnp.NDPMPM, 30, 10, **PRINTED)
CASES = [
    ("adults", 2000, 9, Fit(partial(NESTED, beta="class"), False, Chains(500, 500),
                            ("printed, beta by class",))),
    ("families", 2000, 15, Fit(partial(bnp.NDPMPM, 40, 15, **PRINTED), True, Chains(500, 500),
                               ("truncated",))),
    ("adults", 2000, 30, Fit(NESTED, False, Chains(500, 500), ("printed", "classes kept"))),
    ("adults", 10_000, 10, Fit(NESTED, False, Chains(500, 500), ("printed",))),
]  # fmt: skip


def measure(data: str, n: int, seed: int, fitted: Fit):
    """One row for each method and quantity of one sample."""
    design, quantities = DATA[data].design(), DATA[data].quantities
    truth = quantities(design.population.to_frame())["q"]
    table = design.sample(n, seed=1000 + seed)
    original = quantities(table.to_frame())
    run = fit(fitted, design, table, jax.random.key(seed))
    judged = figures_of(run.draws["log_likelihood"])
    half = 1.96 * np.sqrt(original["u"])
    for method in fitted.methods:
        files = files_of(method, run, design, table, 5, jax.random.key(1000 + seed))
        low, high, centre = interval([quantities(f).reindex(original.index) for f in files])
        for i, name in enumerate(original.index):
            yield {
                "data": data, "n": n, "method": method, "seed": seed, "quantity": name,
                "truth": truth[name], "original": original["q"][name], "half": half[name],
                "synthetic": centre[i], "low": low[i], "high": high[i],
                "rhat": judged["rhat"], "ess": judged["ess_bulk"],
            }  # fmt: skip


def table_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Coverage, bias and width by quantity, of one population, size and method."""
    inside = (rows["low"] <= rows["truth"]) & (rows["truth"] <= rows["high"])
    held = (rows["original"] - rows["truth"]).abs() <= rows["half"]
    rows = rows.assign(
        covered=inside.astype(float), original_covered=held.astype(float),
        error=rows["synthetic"] - rows["truth"], width=rows["high"] - rows["low"],
        original_width=2 * rows["half"],
    )  # fmt: skip
    return rows.groupby("quantity", sort=False).agg(
        truth=("truth", "first"), original_covered=("original_covered", "mean"),
        covered=("covered", "mean"), mean_error=("error", "mean"),
        original_width=("original_width", "mean"), width=("width", "mean"),
    )  # fmt: skip


def text_of(rows: pd.DataFrame) -> str:
    parts = ["Coverage of 95% intervals (`coverage.py`)"]
    for (data, n, method), own in rows.groupby(["data", "n", "method"], sort=False):
        one = own.drop_duplicates("seed")
        rhat = one["rhat"].quantile([0.5, 1])
        parts += [
            f"## {data.capitalize()}, {n:,} households, {method}: {len(one)} samples",
            f"R-hat of the log-likelihood: median {rhat[0.5]:.2f}, largest {rhat[1]:.2f}; median "
            f"effective draws {one['ess'].median():.0f}.",
            markdown(table_of(own)),
        ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="begin no chain later than this")
    args = parser.parse_args()
    path = HERE / "coverage.csv"
    results = Results(path, ("data", "n", "method", "seed", "quantity"), args.minutes)
    for data, n, number, fitted in CASES:
        last, method = list(DATA[data].printed)[-1], fitted.methods[-1]
        cases = [
            {"data": data, "n": n, "method": method, "seed": seed, "quantity": last}
            for seed in range(number)
        ]
        for case in results.missing(cases):
            for row in list(measure(data, n, case["seed"], fitted)):
                results.append(row)
            print(row, flush=True)
            (HERE / "coverage.md").write_text(text_of(pd.read_csv(path)))
        jax.clear_caches()


if __name__ == "__main__":
    main()
