"""Tables and figures of results.csv: python experiments/accuracy/known_truth/tables.py"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from results import accuracy_rows, draw_intervals, markdown

HERE = Path(__file__).parent
GROUP = ["population", "conditions", "concentration", "level_prior", "n"]
SAMPLE = ["population", "level_prior", "n", "seed"]


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """One row per population, model and sample size."""
    r = results.assign(
        error=results["mean"] / results["truth"] - 1,
        width=results["q975"] - results["q025"],
        tau2_error=results["mean_tau2"] / results["truth_tau2"] - 1,
        error_ties=results["mean_ties"] / results["truth"] - 1,
        width_ties=results["q975_ties"] - results["q025_ties"],
        off_ties=(results["mean_ties"] - results["truth"]).abs(),
        tau2_error_ties=results["mean_tau2_ties"] / results["truth_tau2"] - 1,
    )
    return r.groupby(GROUP).agg(
        samples=("seed", "size"),
        truth=("truth", "mean"),
        estimate=("mean", "mean"),
        relative_error=("error", "mean"),
        covered=("covered", "sum"),
        width=("width", "mean"),
        tau2_relative_error=("tau2_error", "mean"),
        samples_corrected=("mean_ties", "count"),
        estimate_corrected=("mean_ties", "mean"),
        relative_error_corrected=("error_ties", "mean"),
        absolute_error_corrected=("off_ties", "mean"),
        covered_corrected=("covered_ties", _count),
        width_corrected=("width_ties", "mean"),
        tau2_relative_error_corrected=("tau2_error_ties", "mean"),
        covered_tau2_corrected=("covered_tau2_ties", _count),
        correction=("tie_probability", "mean"),
        shape=("tie_shape", "median"),
        exponent=("tie_exponent", "mean"),
        z_uniques=("z_uniques", "mean"),
        rhat_tau1=("rhat_tau1", "median"),
        rhat_tau1_max=("rhat_tau1", "max"),
        rhat_log_likelihood=("rhat_log_likelihood", "median"),
        held_out=("held_out", "mean"),
        seconds=("seconds", "median"),
    )


def _count(x: pd.Series) -> float:
    """Sum; nan where there is nothing to add."""
    return x.sum(min_count=1)


def intervals(results: pd.DataFrame, path: Path) -> None:
    """95% intervals of tau_1 for each sample, without and with correction; the truth in red."""
    shared = results[results["concentration"] == "shared"]
    corrected = shared[shared["mean_ties"].notna()].drop(columns=["mean", "q025", "q975"])
    corrected = corrected.rename(columns={f"{x}_ties": x for x in ("mean", "q025", "q975")})
    corrected["level_prior"] += ", corrected"
    shared = pd.concat([shared, corrected])
    shared["level_prior"] = np.where(
        shared["conditions"] > 0, shared["level_prior"] + ", 55 conditions", shared["level_prior"]
    )
    groups = list(shared.groupby(["population", "n", "level_prior"]))
    figure = Figure(figsize=(10, 2.7 * -(-len(groups) // 3)), layout="constrained")
    axes = np.atleast_1d(figure.subplots(-(-len(groups) // 3), 3)).ravel()
    for axis, ((population, n, prior), rows) in zip(axes, groups, strict=False):
        draw_intervals(axis, rows)
        axis.set_title(f"{population}, n = {n:,}, {prior}", fontsize=9)
    for axis in axes[len(groups):]:  # fmt: skip
        axis.set_axis_off()
    figure.supylabel("tau_1: mean, 95% interval, truth (red)", fontsize=9)
    figure.savefig(path, dpi=100)


def beside_validation(results: pd.DataFrame) -> pd.DataFrame:
    """The error of tau_1 in each sample, the predictive check's z, and validation within it."""
    default = results[(results["concentration"] == "shared") & (results["conditions"] == 0)]
    validation = pd.read_csv(HERE / "validation.csv")
    rows = default.merge(validation, on=SAMPLE, suffixes=("", "_within"))
    return rows.assign(
        error=rows["mean"] / rows["truth"] - 1,
        error_within=rows["mean_within"] / rows["truth_within"] - 1,
    )


def power(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each population, prior and size: what the two checks say, beside the error of tau_1."""
    return rows.groupby(["population", "level_prior", "n"]).agg(
        samples=("seed", "size"),
        error=("error", "mean"),
        covered=("covered", "sum"),
        z_uniques=("z_uniques", "mean"),
        samples_beyond_2_5=("z_uniques", lambda z: (z.abs() > 2.5).sum()),
        error_within=("error_within", "mean"),
        splits=("splits", "sum"),
        splits_covered=("covered_within", "sum"),
        samples_that_fail=("warned", "sum"),
    )


def scatter(rows: pd.DataFrame, path: Path) -> None:
    """The error of tau_1 of each sample against z of uniques, and against validation's error."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    names = {"z_uniques": "z of the sample uniques", "error_within": "error within the sample"}
    for axis, (name, label) in zip(axes, names.items(), strict=True):
        for (population, prior), group in rows.groupby(["population", "level_prior"]):
            marker = "o" if prior == "learned" else "x"
            axis.plot(group[name], group["error"], marker, ms=4, label=f"{population}, {prior}")
        axis.axhline(0, color="0.8", lw=0.8)
        axis.axvline(0, color="0.8", lw=0.8)
        correlation = rows[["error", name]].corr(method="spearman").iloc[0, 1]
        axis.set_title(f"rank correlation {correlation:.2f}", fontsize=9)
        axis.set_xlabel(label)
    axes[0].set_ylabel("relative error of tau_1")
    axes[1].legend(fontsize=7)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Write table.md, intervals.png, validation.md and checks.png."""
    results = accuracy_rows()
    (HERE / "table.md").write_text(markdown(summary(results)) + "\n")
    intervals(results, HERE / "intervals.png")
    rows = beside_validation(results)
    (HERE / "validation.md").write_text(markdown(power(rows)) + "\n")
    scatter(rows, HERE / "checks.png")


if __name__ == "__main__":
    main()
