"""tables.md and intervals.png of results: python experiments/papers/structural_zeros/tables.py"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import draw_intervals, longest, markdown  # noqa: E402

# What convergence is judged by; log P(feasible) is driven by the prior and is not.
JUDGED = ("tau1", "alpha", "log_likelihood", "components")


def coverage(rows: pd.DataFrame) -> pd.DataFrame:
    """Truth, estimate and coverage by option and size."""
    rows = rows.assign(
        error=rows["mean"] / rows["truth"] - 1, width=rows["q975"] - rows["q025"]
    )  # fmt: skip
    return rows.groupby(["option", "n"], sort=False).agg(
        samples=("seed", "size"),
        truth=("truth", "mean"),
        estimate=("mean", "mean"),
        mean_relative_error=("error", "mean"),
        interval_width=("width", "mean"),
        covered=("covered", "sum"),
        covered_by_the_expectation=("covered_conditional", "sum"),
        alpha=("alpha", "median"),
        true_log_feasible=("true_log_feasible", "mean"),
        log_feasible=("log_feasible", "mean"),
        sweeps=("sweeps", "median"),
        sweeps_per_second=("sweeps_per_second", "median"),
        seconds=("seconds", "median"),
    )


def agreement(rows: pd.DataFrame) -> pd.DataFrame:
    """Median and largest R-hat by option, size, length and starts of the chains."""
    rows = rows.assign(low=rows["ess_tau1"] < 300)
    groups = rows.groupby(["option", "n", "sweeps", "starts"], sort=False)
    columns = {"samples": groups.size()}
    for name in (*JUDGED, "log_feasible"):
        figures = groups[f"rhat_{name}"]
        columns[f"{name} median"] = figures.median()
        columns[f"{name} max"] = figures.max()
    few = groups["low"].sum()
    return pd.DataFrame(columns | {"samples with an ESS of tau_1 below 300": few})


def intervals(rows: pd.DataFrame, path: Path) -> None:
    """95% intervals of tau_1 for each sample, the truth in red; a single one needs no panel."""
    rows = rows[rows.groupby("option")["seed"].transform("size") > 1]
    if rows.empty:
        return
    options, sizes = list(dict.fromkeys(rows["option"])), sorted(set(rows["n"]))
    figure = Figure(figsize=(3.6 * len(sizes), 2.6 * len(options)), layout="constrained")
    axes = figure.subplots(len(options), len(sizes), squeeze=False, sharey="col")
    for line, option in zip(axes, options, strict=True):
        for axis, n in zip(line, sizes, strict=True):
            own = rows[(rows["option"] == option) & (rows["n"] == n)]
            if own.empty:
                axis.set_axis_off()
                continue
            axis.set_title(f"{option}, n = {n:,}", fontsize=9)
            draw_intervals(axis, own)
    figure.supylabel("tau_1: mean, 95% interval, truth (red)", fontsize=9)
    figure.savefig(path, dpi=100)


def write(folder: Path = HERE) -> None:
    """Make the tables and the figure, if there are results."""
    if not (folder / "results.csv").exists():
        return
    rows = longest(pd.read_csv(folder / "results.csv"), ["option", "n", "seed"])
    rows = rows.assign(sweeps=rows["warmup"] + rows["draws"] * rows["thin"])
    order = {option: i for i, option in enumerate(dict.fromkeys(rows["option"]))}
    rows = rows.iloc[np.lexsort((rows["seed"], rows["n"], rows["option"].map(order)))]
    text = ["## Coverage", markdown(coverage(rows)), "## R-hat", markdown(agreement(rows))]
    (folder / "tables.md").write_text("\n\n".join(text) + "\n")
    intervals(rows, folder / "intervals.png")


if __name__ == "__main__":
    write()
