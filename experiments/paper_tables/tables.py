"""tables.md and the figures of results.csv: python experiments/paper_tables/tables.py"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "accuracy"))
from results import longest, markdown  # noqa: E402

ORDER = ("removed", "ignored", "modelled", "not_applicable")
DEFAULT = "hdp-shared"


def draws_path(folder: Path, row) -> Path:
    """Where the draws of a row are."""
    sweeps = f"{row['warmup']}-{row['draws']}x{row['thin']}"
    name = f"{row['treatment']}-{row['model']}-n{row['n']}-sample{row['seed']}-{sweeps}.npz"
    return folder / "draws" / name


def interval(row) -> str:
    """Mean and 95% interval in a cell."""
    return f"{row['mean']:.1f} ({row['q025']:.0f} to {row['q975']:.0f})"


def first_sample(rows: pd.DataFrame) -> pd.DataFrame:
    """The first sample of each size under each treatment, a line each: the paper's table 3."""
    rows = rows[(rows["seed"] == 0) & (rows["model"] == DEFAULT)]
    return pd.DataFrame({
        "structural zeros": rows["treatment"],
        "n": rows["n"],
        "sample uniques": rows["sample_uniques"],
        "true tau_1": rows["truth"],
        "mean, 95% interval": [interval(row) for _, row in rows.iterrows()],
        "sd": rows["sd"],
        "expectation by (11)": rows["mean_exponent"],
        "exact expectation": rows["mean_conditional"],
        "R-hat of tau_1": rows["rhat_tau1"],
        "of log-likelihood": rows["rhat_log_likelihood"],
        "components by chain": rows["components"],
        "modes": rows["modes"],
        "sweeps per second": rows["sweeps_per_second"],
        "seconds to an ESS of 400": rows["seconds_to_target_ess"],
    })  # fmt: skip


def over_samples(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over samples, by treatment and size."""
    rows = rows[rows["model"] == DEFAULT]
    rows = rows.assign(
        error=rows["mean"] / rows["truth"] - 1, width=rows["q975"] - rows["q025"],
        exponent_error=rows["mean_exponent"] / rows["truth"] - 1,
    )  # fmt: skip
    return rows.groupby(["treatment", "n"], sort=False).agg(
        samples=("seed", "size"),
        truth=("truth", "mean"),
        estimate=("mean", "mean"),
        mean_relative_error=("error", "mean"),
        mean_relative_error_by_equation_11=("exponent_error", "mean"),
        covered=("covered", "sum"),
        interval_width=("width", "mean"),
        rhat_tau1=("rhat_tau1", "median"),
        rhat_tau1_max=("rhat_tau1", "max"),
        rhat_log_likelihood=("rhat_log_likelihood", "median"),
        seconds_to_ess_of_400=("seconds_to_target_ess", "median"),
        held_out=("held_out", "mean"),
        alpha=("alpha", "median"),
        log_feasible=("log_feasible", "mean"),
    )


def concentrations(rows: pd.DataFrame) -> pd.DataFrame | None:
    """The modes of alpha on the samples that all of them have been fitted to."""
    compared = rows[rows["model"].str.startswith("hdp-")]
    where = ["treatment", "n", "seed"]
    number = compared.groupby(where)["model"].transform("nunique")
    compared = compared[number == 3]
    if compared.empty:
        return None
    compared = compared.assign(
        error=compared["mean"] / compared["truth"] - 1,
        concentration=compared["model"].str.removeprefix("hdp-"),
    )
    groups = compared.groupby(["treatment", "n", "concentration"], sort=False)
    return groups.agg(
        samples=("seed", "size"),
        held_out=("held_out", "mean"),
        truth=("truth", "mean"),
        estimate=("mean", "mean"),
        mean_relative_error=("error", "mean"),
        covered=("covered", "sum"),
        alpha=("alpha", "median"),
        log_feasible=("log_feasible", "mean"),
        rhat_tau1=("rhat_tau1", "median"),
        rhat_log_likelihood=("rhat_log_likelihood", "median"),
    ).sort_index(level=["treatment", "n"], sort_remaining=False)


def profiles(rows: pd.DataFrame) -> pd.DataFrame:
    """tau_1 and prediction against the number of extreme profiles, with the HDP's."""
    chosen = with_profiles(rows)
    return pd.DataFrame({
        "structural zeros": chosen["treatment"],
        "n": chosen["n"],
        "sample": chosen["seed"],
        "K": chosen["K"].map(lambda k: f"{k:.0f}" if k > 0 else "HDP"),
        "true tau_1": chosen["truth"],
        "mean, 95% interval": [interval(row) for _, row in chosen.iterrows()],
        "R-hat of tau_1": chosen["rhat_tau1"],
        "held out": chosen["held_out"],
        "alpha": chosen["alpha"],
        "sweeps per second": chosen["sweeps_per_second"],
    })  # fmt: skip


def with_profiles(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of extreme profiles, K of each, and, with K = 0, the HDP's of the same samples."""
    is_profiles = rows["model"].str.startswith("profiles-")
    k = rows["model"].str.removeprefix("profiles-").where(is_profiles, "0").astype(int)
    rows = rows[is_profiles | (rows["model"] == DEFAULT)].assign(K=k)
    most = rows.groupby(["treatment", "n", "seed"])["K"].transform("max")
    return rows[most > 0].sort_values(["seed", "n", "K"], kind="stable")


def plot_profiles(rows: pd.DataFrame, path: Path) -> None:
    """tau_1 against K for the first sample, the HDP's interval as a band, the truth in red."""
    rows = with_profiles(rows[rows["seed"] == 0])
    if rows.empty:
        return
    treatments, sizes = list(dict.fromkeys(rows["treatment"])), sorted(set(rows["n"]))
    figure, axes = panels(len(treatments), len(sizes))
    for line, treatment in zip(axes, treatments, strict=True):
        for axis, n in zip(line, sizes, strict=True):
            own = rows[(rows["treatment"] == treatment) & (rows["n"] == n)]
            for _, hdp in own[own["K"] == 0].iterrows():
                axis.axhspan(hdp["q025"], hdp["q975"], color="#d5e3ee", label="HDP")
                axis.axhline(hdp["mean"], color="#7fa3c4", lw=1)
            fixed = own[own["K"] > 0]
            axis.vlines(fixed["K"], fixed["q025"], fixed["q975"], color="#1f5f8b", lw=1.5)
            axis.plot(fixed["K"], fixed["mean"], "o", ms=4, color="#1f5f8b", label="K profiles")
            if len(own):
                axis.axhline(own["truth"].iloc[0], color="red", lw=1, label="truth")
            axis.set_title(f"{treatment}, n = {n:,}", fontsize=9)
    axes[0, 0].legend(fontsize=7)
    figure.supxlabel("K", fontsize=9)
    figure.supylabel("tau_1: mean and 95% interval", fontsize=9)
    figure.savefig(path, dpi=100)


def panels(num_rows, num_columns, **options):
    """A figure and its axes, (rows, columns)."""
    figure = Figure(figsize=(3 * num_columns, 2.3 * num_rows), layout="constrained")
    axes = figure.subplots(num_rows, num_columns, squeeze=False, **options)
    for axis in axes.flat:
        axis.tick_params(labelsize=7)
    return figure, axes


def plot_draws(rows: pd.DataFrame, folder: Path) -> None:
    """Posterior of tau_1 and trace of the components for the first sample."""
    rows = rows[(rows["seed"] == 0) & (rows["model"] == DEFAULT)]
    found = {
        (row["treatment"], row["n"]): (row, np.load(draws_path(folder, row)))
        for _, row in rows.iterrows()
        if draws_path(folder, row).exists()
    }
    if not found:
        return
    treatments = [t for t in ORDER if any(t == treatment for treatment, _ in found)]
    sizes = sorted({n for _, n in found})
    histograms, above = panels(len(sizes), len(treatments))
    traces, below = panels(len(sizes), len(treatments), sharex="row")
    for i, n in enumerate(sizes):
        for j, treatment in enumerate(treatments):
            if (treatment, n) not in found:
                above[i, j].set_visible(False)
                below[i, j].set_visible(False)
                continue
            title = f"{treatment}, n = {n:,}"
            above[i, j].set_title(title, fontsize=9)
            below[i, j].set_title(title, fontsize=9)
            row, draws = found[treatment, n]
            tau1 = draws["tau1"].ravel()
            width = max(1, int(np.ptp(tau1)) // 30)
            edges = np.arange(tau1.min() - 0.5, tau1.max() + width + 0.5, width)
            above[i, j].hist(tau1, bins=edges, density=True, color="#7fa3c4")
            above[i, j].axvline(row["truth"], color="red", lw=1.5)
            sweeps = row["warmup"] + row["thin"] * np.arange(1, draws["components"].shape[1] + 1)
            below[i, j].plot(sweeps, draws["components"].T, lw=0.5)
    histograms.supxlabel("tau_1; truth in red", fontsize=9)
    histograms.savefig(folder / "histograms.png", dpi=100)
    traces.supxlabel("sweep", fontsize=9)
    traces.supylabel("components, a line a chain", fontsize=9)
    traces.savefig(folder / "components.png", dpi=100)


def plot_means(rows: pd.DataFrame, path: Path) -> None:
    """Posterior means over samples, each by its truth, which is the red line."""
    rows = rows[rows["model"] == DEFAULT]
    rows = rows.assign(ratio=rows["mean"] / rows["truth"])
    sizes = sorted(set(rows["n"]))
    if not sizes:
        return
    figure, axes = panels(1, len(sizes), sharey=True)
    for axis, n in zip(axes[0], sizes, strict=True):
        own = rows[rows["n"] == n]
        treatments = [t for t in ORDER if (own["treatment"] == t).any()]
        ratios = [own.loc[own["treatment"] == t, "ratio"].to_numpy() for t in treatments]
        axis.boxplot(ratios, showmeans=True, meanline=True, widths=0.6)
        for j, ratio in enumerate(ratios):
            axis.plot(np.full(ratio.size, j + 1), ratio, ".", ms=4, color="#1f5f8b")
        axis.axhline(1, color="red", lw=1.5)
        labels = [t.replace("_", "\n") for t in treatments]
        axis.set_xticks(np.arange(1, len(labels) + 1), labels)
        axis.set_title(f"n = {n:,}", fontsize=9)
    figure.supylabel("posterior mean of tau_1 / truth", fontsize=9)
    figure.savefig(path, dpi=100)


def write(folder: Path = HERE) -> None:
    """Make the tables and the figures of what results there are."""
    if not (folder / "results.csv").exists():
        return
    where = ["treatment", "model", "n", "seed"]
    rows = longest(pd.read_csv(folder / "results.csv"), where)
    order = rows["treatment"].map(ORDER.index)
    rows = rows.iloc[np.lexsort((rows["seed"], rows["n"], order))]
    text = []
    if (rows["model"] == DEFAULT).any():
        text += ["## The first sample", markdown(first_sample(rows), index=False)]
        text += ["## Over samples", markdown(over_samples(rows))]
    if (compared := concentrations(rows)) is not None:
        text += ["## Concentration of records", markdown(compared)]
    if len(table := profiles(rows)):
        text += ["## Extreme profiles", markdown(table, index=False)]
    (folder / "tables.md").write_text("\n\n".join(text) + "\n")
    plot_draws(rows, folder)
    plot_means(rows, folder / "means.png")
    plot_profiles(rows, folder / "profiles.png")


if __name__ == "__main__":
    write()
