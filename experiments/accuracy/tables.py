"""Tables and figures of results.csv: python experiments/accuracy/tables.py"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from results import draw_intervals, markdown

HERE = Path(__file__).parent
GROUP = ["population", "conditions", "concentration", "level_prior", "n"]


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """One row per population, model and sample size."""
    r = results.assign(
        error=results["mean"] / results["truth"] - 1,
        tau2_error=results["mean_tau2"] / results["truth_tau2"] - 1,
        width=results["q975"] - results["q025"],
        error_ties=results["mean_ties"] / results["truth"] - 1,
        width_ties=results["q975_ties"] - results["q025_ties"],
        worst=results[[f"rhat_{k}" for k in ("tau1", "tau1_conditional", "alpha")]].max(axis=1),
    )
    return r.groupby(GROUP).agg(
        samples=("seed", "size"),
        truth=("truth", "mean"),
        estimate=("mean", "mean"),
        mean_relative_error=("error", "mean"),
        tau2_relative_error=("tau2_error", "mean"),
        covered=("covered", "sum"),
        covered_tau2=("covered_tau2", lambda x: x.sum(min_count=1)),
        z_uniques=("z_uniques", "mean"),
        interval_width=("width", "mean"),
        estimate_with_ties=("mean_ties", "mean"),
        error_with_ties=("error_ties", "mean"),
        covered_with_ties=("covered_ties", lambda x: x.sum(min_count=1)),
        width_with_ties=("width_ties", "mean"),
        rhat_tau1=("rhat_tau1", "median"),
        rhat_tau1_max=("rhat_tau1", "max"),
        rhat_tau1_conditional=("rhat_tau1_conditional", "median"),
        rhat_log_likelihood=("rhat_log_likelihood", "median"),
        rhat_components=("rhat_components", "median"),
        held_out=("held_out", "mean"),
        seconds=("seconds", "median"),
    )


def intervals(results: pd.DataFrame, path: Path) -> None:
    """95% intervals of tau_1 for each sample, the truth in red, and those with ties."""
    shared = results[results["concentration"] == "shared"]
    with_ties = shared[shared["mean_ties"].notna()].drop(columns=["mean", "q025", "q975"])
    with_ties = with_ties.rename(columns={f"{x}_ties": x for x in ("mean", "q025", "q975")})
    with_ties["level_prior"] += ", ties"
    shared = pd.concat([shared, with_ties])
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


def main() -> None:
    """Write table.md and intervals.png."""
    results = pd.read_csv(HERE / "results.csv")
    (HERE / "table.md").write_text(markdown(summary(results)) + "\n")
    intervals(results, HERE / "intervals.png")


if __name__ == "__main__":
    main()
