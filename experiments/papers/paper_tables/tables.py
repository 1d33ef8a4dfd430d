"""tables.md and the figures of results.csv: python experiments/papers/paper_tables/tables.py"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import accuracy_rows, longest, markdown  # noqa: E402

import bnp_models as bnp  # noqa: E402
from bnp_models.inference.convergence import MAX_RHAT  # noqa: E402

ORDER = ("removed", "ignored", "modelled", "not_applicable")
PRIORS = ("uniform", "uniform, corrected", "learned", "learned, corrected")
DEFAULT, PUBLISHED = "hdp-shared", "hdp-record"
TARGET_ESS = 400
NUM_CHAINS = 3
# Tables 3 and 1 as printed: true tau_1, mean and standard deviation of the estimate, and hours.
PRINTED_TABLE_3 = {
    ("removed", 1000): (9, "7.49 +- 5.32"),
    ("removed", 5000): (27, "38.8 +- 12.0"),
    ("removed", 10000): (53, "66.72 +- 10.85"),
    ("ignored", 1000): (11, "57.98 +- 13.25"),
    ("ignored", 5000): (55, "186.06 +- 46.67"),
    ("ignored", 10000): (88, "288.7 +- 47.15"),
    ("modelled", 1000): (11, "10.81 +- 1.66"),
    ("modelled", 5000): (55, "56.16 +- 3.78"),
    ("modelled", 10000): (88, "189.46 +- 5.76, 101.98 +- 5.27"),
}
PRINTED_TABLE_1 = {
    ("sampling", 1000): ("4", "6.66 +- 2.42", "12.01"),
    ("sampling", 5000): ("28", "34.92 +- 23.63", "12.01"),
    ("sampling", 10000): ("66", "67.33 +- 25.42", "12.0"),
    ("Monte Carlo", 1000): ("4", "6.79 +- 1.55", "1.49"),
    ("Monte Carlo", 5000): ("28", "34.48 +- 20.86", "3.13"),
    ("Monte Carlo", 10000): ("66", "67.64 +- 24.78", "5.35"),
    ("K = 2", 1000): ("4", "4.01 +- 1.68", "5.39"),
    ("K = 2", 5000): ("28", "20.26 +- 3.67", "5.95"),
    ("K = 60", 10000): ("66", "45.63 +- 5.25", "6.89"),
}
PAPER_ITERATIONS = 400_000
JUDGED = {"tau1": "tau_1", "alpha": "alpha", "log_likelihood": "log-likelihood"}


def draws_path(folder: Path, row) -> Path:
    """Where the draws of a row are."""
    sweeps = f"{row['warmup']}-{row['draws']}x{row['thin']}"
    model = f"{row['model']}-{row['level_prior']}"
    name = f"{row['treatment']}-{model}-n{row['n']}-sample{row['seed']}-{sweeps}.npz"
    return folder / "draws" / name


def interval(row) -> str:
    """Mean and 95% interval in a cell."""
    return f"{row['mean']:.1f} ({row['q025']:.0f} to {row['q975']:.0f})"


def first_sample(rows: pd.DataFrame) -> pd.DataFrame:
    """The first sample of each size under each treatment, a line each: the paper's table 3."""
    return pd.DataFrame({
        "structural zeros": rows["treatment"],
        "level prior": rows["level_prior"],
        "n": rows["n"],
        "sample uniques": rows["sample_uniques"],
        "true tau_1": rows["truth"],
        "mean, 95% interval": [interval(row) for _, row in rows.iterrows()],
        "sd": rows["sd"],
        "expectation by (11)": rows["mean_exponent"],
        "exact expectation": rows["mean_conditional"],
        "R-hat of tau_1": rows["rhat_tau1"].map("{:.3f}".format),
        "of log-likelihood": rows["rhat_log_likelihood"].map("{:.3f}".format),
        "components by chain": rows["components"],
        "modes": rows["modes"],
    })  # fmt: skip


def times(rows: pd.DataFrame) -> pd.DataFrame:
    """Sweeps and seconds to an effective sample size of tau_1 of 400, the first samples.

    Where the chains disagree, the effective sample size says how far apart they are and not how
    long a run would take: no time is given.
    """
    rows = with_speeds(rows)
    agree = rows["rhat_tau1"] <= MAX_RHAT
    sweeps = (1000 * TARGET_ESS / rows["ess_per_1000"]).where(agree)
    return pd.DataFrame({
        "structural zeros": rows["treatment"],
        "level prior": rows["level_prior"],
        "n": rows["n"],
        "R-hat of tau_1": rows["rhat_tau1"].map("{:.3f}".format),
        "ESS of tau_1": rows["ess_tau1"],
        "ESS per 1,000 sweeps": rows["ess_per_1000"],
        f"sweeps to an ESS of {TARGET_ESS}": sweeps,
        "sweeps per second": rows["sweeps_per_second"],
        f"seconds to an ESS of {TARGET_ESS}": sweeps / rows["sweeps_per_second"],
    })  # fmt: skip


def with_speeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Speed while drawing, and effective samples of tau_1, by sweeps that update all chains."""
    sweeps = rows["draws"] * rows["thin"]
    return rows.assign(
        sweeps_per_second=sweeps / rows["draws_seconds"],
        ess_per_1000=1000 * rows["ess_tau1"] / sweeps,
    )


def over_samples(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over samples, by treatment and size."""
    rows = with_speeds(rows[rows["model"] == DEFAULT])
    rows = rows.assign(
        error=rows["mean"] / rows["truth"] - 1, width=rows["q975"] - rows["q025"],
        exponent_error=rows["mean_exponent"] / rows["truth"] - 1,
    )  # fmt: skip
    return rows.groupby(["treatment", "level_prior", "n"], sort=False).agg(
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
        ess_per_1000_sweeps=("ess_per_1000", "median"),
        held_out=("held_out", "mean"),
        alpha=("alpha", "median"),
        log_feasible=("log_feasible", "mean"),
    )


def rows_by_prior() -> pd.DataFrame:
    """The first five samples of a size under both priors, without and with the correction.

    The chains are those of `experiments/accuracy/known_truth`, whose samples are the same:
    four of 600 + 400 sweeps.
    """
    rows = accuracy_rows().query(
        "concentration == 'shared' and seed < 5 and population in ['all', 'adults']"
    )
    of_all = np.where(rows["conditions"] == 0, "ignored", "modelled")
    rows = rows.assign(treatment=np.where(rows["population"] == "adults", "removed", of_all))
    ties = {"mean_ties": "mean", "q025_ties": "q025", "q975_ties": "q975"}
    tied = rows.dropna(subset=["mean_ties"]).drop(columns=list(ties.values())).rename(columns=ties)
    tied = tied.assign(
        level_prior=tied["level_prior"] + ", corrected", covered=tied["covered_ties"]
    )
    return pd.concat([rows, tied])


def by_prior() -> pd.DataFrame:
    """Both priors of levels, without and with the correction: means over the samples."""
    rows = rows_by_prior()
    rows = rows.assign(
        error=rows["mean"] / rows["truth"] - 1, width=rows["q975"] - rows["q025"],
        order=rows["treatment"].map(ORDER.index), prior=rows["level_prior"].map(PRIORS.index),
    )  # fmt: skip
    return (
        rows.sort_values(["order", "n", "prior"])
        .groupby(["treatment", "n", "level_prior"], sort=False)
        .agg(
            samples=("seed", "size"),
            truth=("truth", "mean"),
            estimate=("mean", "mean"),
            mean_relative_error=("error", "mean"),
            covered=("covered", "sum"),
            interval_width=("width", "mean"),
            held_out=("held_out", "mean"),
        )
    )


def published(rows: pd.DataFrame) -> pd.DataFrame:
    """Table 3 in the paper's own setting, beside one alpha for all records and the paper's figures.

    The columns of one alpha are means over the same samples, as far as they were run.
    """
    others = rows_by_prior()
    lines = []
    for (treatment, n), own in rows.groupby(["treatment", "n"], sort=False):
        line = {
            "structural zeros": treatment, "n": n, "samples": len(own),
            "true tau_1": own["truth"].mean(), "estimate": own["mean"].mean(),
            "sd": own["sd"].mean(), "covered": own["covered"].sum(),
            "expectation": own["mean_conditional"].mean(),
        }  # fmt: skip
        for name, shown in JUDGED.items():
            line[f"R-hat of {shown}, largest"] = f"{own[f'rhat_{name}'].max():.3f}"
            line[f"ESS of {shown}, least"] = own[f"ess_{name}"].min()
        same = others[(others["treatment"] == treatment) & (others["n"] == n)]
        same = same[same["seed"].isin(own["seed"])]
        for prior in ("uniform", "learned, corrected"):
            of_prior = same[same["level_prior"] == prior]
            covered = f"{of_prior['covered'].sum():.0f} of {len(of_prior)}"
            shown = f"{of_prior['mean'].mean():.1f} ({covered})" if len(of_prior) else "-"
            line[f"one alpha, {prior} (covered)"] = shown
        truth, estimate = PRINTED_TABLE_3[treatment, n]
        lines.append(line | {"paper: true tau_1": truth, "paper: estimate": estimate})
    return pd.DataFrame(lines)


def chains(rows: pd.DataFrame) -> pd.DataFrame:
    """The chains of each sample: how far they agree, and their speed."""
    columns = {
        "structural zeros": rows["treatment"],
        "model": rows["model"],
        "n": rows["n"],
        "sample": rows["seed"],
        "sweeps": rows["warmup"].map(str) + " + " + (rows["draws"] * rows["thin"]).map(str),
        "sample uniques": rows["sample_uniques"],
        "true tau_1": rows["truth"],
        "mean, 95% interval": [interval(row) for _, row in rows.iterrows()],
    }
    for name, shown in JUDGED.items():
        columns[f"R-hat of {shown}"] = rows[f"rhat_{name}"].map("{:.3f}".format)
        columns[f"ESS of {shown}"] = rows[f"ess_{name}"]
    return pd.DataFrame(columns | {
        "tau_1 by chain": rows["tau1_by_chain"],
        "log-likelihood by chain": rows["log_likelihood"],
        "components by chain": rows["components"],
        "alpha": rows["alpha"],
        "sweeps per second": with_speeds(rows)["sweeps_per_second"],
    })  # fmt: skip


def simulated_estimates(rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Table 1: tau_1 of the simulated population by sampling, by Monte Carlo, and by K profiles."""
    lines = []
    for _, row in with_speeds(rows).iterrows():
        draws = np.load(draws_path(folder, row))
        if row["model"] == PUBLISHED:
            estimates = {"sampling": "sampled", "count": "tau1", "Monte Carlo": "expectation"}
        else:
            estimates = {f"K = {row['model'].removeprefix('profiles-')}": "tau1"}
        for name, of in estimates.items():
            tau1 = draws[of]
            low, high = np.quantile(tau1, [0.025, 0.975])
            figures = "tau1_conditional" if of == "expectation" else "tau1"
            truth, printed, hours = PRINTED_TABLE_1.get((name, row["n"]), ("-", "-", "-"))
            # Sampling was stopped after 12 hours, at an iteration that is not printed.
            known = hours != "-" and name != "sampling"
            rate = PAPER_ITERATIONS / 3600 / float(hours) if known else np.nan
            lines.append({
                "way": name, "n": row["n"], "true tau_1": row["truth"],
                "estimate +- sd": f"{tau1.mean():.2f} +- {tau1.std():.2f}",
                "95% interval": f"{low:.1f} to {high:.1f}", "draws": tau1.size,
                "R-hat of tau_1": f"{row[f'rhat_{figures}']:.3f}",
                "ESS of tau_1": row[f"ess_{figures}"],
                "R-hat of alpha": f"{row['rhat_alpha']:.3f}", "ESS of alpha": row["ess_alpha"],
                "R-hat of log-likelihood": f"{row['rhat_log_likelihood']:.3f}",
                "ESS of log-likelihood": row["ess_log_likelihood"],
                "sweeps of a chain per second": NUM_CHAINS * row["sweeps_per_second"],
                "seconds of an estimate": float(draws["sampled_seconds"]) / tau1.size
                if of == "sampled" else row["risk_seconds"] / draws["tau1"].size,
                "paper: true tau_1": truth, "paper: estimate": printed, "paper: hours": hours,
                "paper: iterations per second": rate,
            })  # fmt: skip
    order = {name: i for i, name in enumerate(dict.fromkeys(line["way"] for line in lines))}
    lines.sort(key=lambda line: (order[line["way"]], line["n"]))
    return pd.DataFrame(lines)


def age_by_education() -> pd.DataFrame:
    """Table 2 of the bundled census population."""
    frame = bnp.datasets.census_income().frame
    table = pd.crosstab(frame["age"], frame["education"], dropna=False)
    return table.rename_axis(index="age", columns=None)


def concentrations(rows: pd.DataFrame) -> pd.DataFrame | None:
    """The modes of alpha on the samples that all of them have been fitted to."""
    compared = rows[rows["model"].str.startswith("hdp-")]
    where = ["treatment", "level_prior", "n", "seed"]
    number = compared.groupby(where)["model"].transform("nunique")
    compared = compared[number == 3]
    if compared.empty:
        return None
    compared = compared.assign(
        error=compared["mean"] / compared["truth"] - 1,
        concentration=compared["model"].str.removeprefix("hdp-"),
    )
    where = ["treatment", "level_prior", "n"]
    groups = compared.groupby([*where, "concentration"], sort=False)
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
    ).sort_index(level=where, sort_remaining=False)


def profiles(rows: pd.DataFrame) -> pd.DataFrame:
    """tau_1 and prediction against the number of extreme profiles, with the HDP's."""
    chosen = with_speeds(with_profiles(rows))
    return pd.DataFrame({
        "structural zeros": chosen["treatment"],
        "level prior": chosen["level_prior"],
        "n": chosen["n"],
        "sample": chosen["seed"],
        "K": chosen["K"].map(lambda k: f"{k:.0f}" if k > 0 else "HDP"),
        "true tau_1": chosen["truth"],
        "mean, 95% interval": [interval(row) for _, row in chosen.iterrows()],
        "R-hat of tau_1": chosen["rhat_tau1"].map("{:.3f}".format),
        "tau_1 by chain": chosen["tau1_by_chain"],
        "held out": chosen["held_out"],
        "alpha": chosen["alpha"],
        "ESS per 1,000 sweeps": chosen["ess_per_1000"],
        "sweeps per second": chosen["sweeps_per_second"],
    })  # fmt: skip


def with_profiles(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of extreme profiles, K of each, and, with K = 0, the HDP's of the same samples."""
    is_profiles = rows["model"].str.startswith("profiles-")
    k = rows["model"].str.removeprefix("profiles-").where(is_profiles, "0").astype(int)
    hdp = np.where(rows["treatment"] == "simulated", PUBLISHED, DEFAULT)
    rows = rows[is_profiles | (rows["model"] == hdp)].assign(K=k)
    most = rows.groupby(["treatment", "level_prior", "n", "seed"])["K"].transform("max")
    return rows[most > 0].sort_values(["level_prior", "seed", "n", "K"], kind="stable")


def plot_boxes(rows: pd.DataFrame, folder: Path) -> None:
    """Posterior of tau_1 for the first sample of each size, a box a treatment and prior."""
    sizes = sorted(set(rows["n"]))
    if not sizes:
        return
    figure, axes = panels(1, len(sizes), width=4.5, height=3)
    for axis, n in zip(axes[0], sizes, strict=True):
        own = rows[rows["n"] == n]
        labels = own["treatment"].str.replace("_", "\n") + "\n" + own["level_prior"]
        draw_boxes(axis, own, labels, folder)
        axis.set_title(f"n = {n:,}", fontsize=9)
    figure.supylabel("tau_1", fontsize=9)
    figure.savefig(folder / "boxes.png", dpi=120)


def plot_profiles(rows: pd.DataFrame, path: Path, folder: Path) -> None:
    """Posterior of tau_1 for the first sample of each size, a box a K, and the HDP's."""
    rows = with_profiles(rows[rows["seed"] == 0])
    if rows.empty:
        return
    lines, sizes = list(rows.groupby(["treatment", "level_prior"])), sorted(set(rows["n"]))
    figure, axes = panels(len(lines), len(sizes), width=4.2, height=3)
    for line, ((treatment, prior), of_line) in zip(axes, lines, strict=True):
        for axis, n in zip(line, sizes, strict=True):
            own = of_line[of_line["n"] == n]
            draw_boxes(axis, own, own["K"].map(str).replace("0", "HDP"), folder)
            axis.set_title(f"{treatment}, {prior}, n = {n:,}", fontsize=9)
    figure.supxlabel("number of extreme profiles K", fontsize=9)
    figure.supylabel("tau_1", fontsize=9)
    figure.savefig(path, dpi=120)


def plot_as_printed(rows: pd.DataFrame, draws: str, path: Path, folder: Path) -> None:
    """The paper's figures: histogram and box of tau_1, traces of the components, a line a size."""
    rows = rows[[draws_path(folder, row).exists() for _, row in rows.iterrows()]]
    if rows.empty:
        return
    figure, axes = panels(len(rows), 3, width=3.6, height=2.2)
    for line, (_, row) in zip(axes, rows.iterrows(), strict=True):
        kept = np.load(draws_path(folder, row))
        tau1 = kept[draws].ravel()
        whole = np.issubdtype(tau1.dtype, np.integer)
        width = max(1, int(np.ptp(tau1)) // 30)
        bins = np.arange(tau1.min() - 0.5, tau1.max() + width + 0.5, width) if whole else 30
        line[0].hist(tau1, bins=bins, density=True, color="#7fa3c4")
        line[0].axvline(row["truth"], color="red", lw=1.5)
        line[0].set_title(f"n = {row['n']:,}", fontsize=8)
        draw_box(line[1], 0, tau1)
        line[1].hlines(row["truth"], -0.45, 0.45, color="red", lw=2)
        line[1].set_xticks([])
        sweeps = row["warmup"] + row["thin"] * np.arange(1, kept["components"].shape[1] + 1)
        line[2].plot(sweeps, kept["components"].T, lw=0.5)
    for axis, name in zip(axes[-1], ("tau_1", "tau_1", "components against sweeps"), strict=True):
        axis.set_xlabel(name, fontsize=8)
    figure.savefig(path, dpi=100)


def draw_box(axis, x: float, tau1: np.ndarray) -> None:
    """A box as the paper draws it: whiskers are the 95% interval, the mean is dashed and green."""
    low, q1, median, q3, high = np.quantile(tau1, [0.025, 0.25, 0.5, 0.75, 0.975])
    box = {"whislo": low, "q1": q1, "med": median, "q3": q3, "whishi": high, "mean": tau1.mean()}
    axis.bxp(
        [box], positions=[x], widths=0.5, showfliers=False, showmeans=True, meanline=True,
        patch_artist=True, boxprops={"facecolor": "#d5e3ee"},
    )  # fmt: skip


def draw_boxes(axis, rows: pd.DataFrame, labels, folder: Path) -> None:
    """A box a row as the paper draws it, the mean of each chain beside it, the truth in red.

    Whiskers are the 95% interval, the median is orange, the mean dashed and green. A row whose
    draws were not kept has its mean and interval alone.
    """
    for x, (_, row) in enumerate(rows.iterrows()):
        if draws_path(folder, row).exists():
            tau1 = np.load(draws_path(folder, row))["tau1"]
            draw_box(axis, x, tau1)
            axis.plot(np.full(len(tau1), x + 0.35), tau1.mean(axis=1), ".", ms=4, color="black")
        else:
            axis.vlines(x, row["q025"], row["q975"], color="black", lw=1)
            axis.hlines(row["mean"], x - 0.15, x + 0.15, color="green", ls="--")
        axis.hlines(row["truth"], x - 0.45, x + 0.45, color="red", lw=2)
    axis.set_xticks(np.arange(len(rows)), labels)
    axis.set_xlim(-0.6, len(rows) - 0.4)


def panels(num_rows, num_columns, width=3, height=2.3, **options):
    """A figure and its axes, (rows, columns), each `width` by `height` inches."""
    figure = Figure(figsize=(width * num_columns, height * num_rows), layout="constrained")
    axes = figure.subplots(num_rows, num_columns, squeeze=False, **options)
    for axis in axes.flat:
        axis.tick_params(labelsize=7)
    return figure, axes


def plot_draws(rows: pd.DataFrame, folder: Path) -> None:
    """Posterior of tau_1 and trace of the components for the first sample, the default prior.

    Where that was not run, of the uniform one.
    """
    rows = rows.sort_values("level_prior", ascending=False, kind="stable")
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
            row, draws = found[treatment, n]
            title = f"{treatment}, {row['level_prior']}, n = {n:,}"
            above[i, j].set_title(title, fontsize=8)
            below[i, j].set_title(title, fontsize=8)
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


def write(folder: Path = HERE) -> None:
    """Make the tables and the figures of what results there are."""
    if not (folder / "results.csv").exists():
        return
    where = ["treatment", "model", "level_prior", "n", "seed"]
    rows = longest(pd.read_csv(folder / "results.csv"), where)
    order = rows["treatment"].map((*ORDER, "simulated").index)
    rows = rows.iloc[np.lexsort((rows["seed"], rows["n"], rows["level_prior"], order))]
    made_up = rows["treatment"] == "simulated"
    made_up, rows = rows[made_up], rows[~made_up]
    text = []
    first = rows[(rows["seed"] == 0) & (rows["model"] == DEFAULT)]
    if (rows["model"] == DEFAULT).any():
        text += ["## The first sample", markdown(first_sample(first), index=False)]
        text += [f"## Time to an effective sample size of {TARGET_ESS}"]
        text += [markdown(times(first), index=False)]
        text += ["## Over samples", markdown(over_samples(rows))]
    text += ["## Priors of levels, and the correction for overdispersion", markdown(by_prior())]
    own = rows[(rows["model"] == PUBLISHED) & (rows["level_prior"] == "uniform")]
    if len(own):
        text += ["## Table 3 in the paper's own setting", markdown(published(own), index=False)]
        text += ["## Chains in the paper's own setting", markdown(chains(own), index=False)]
        for treatment in dict.fromkeys(own["treatment"]):
            kept = own[(own["treatment"] == treatment) & (own["seed"] == 0)]
            plot_as_printed(kept, "tau1", folder / f"published_{treatment}.png", folder)
    if (compared := concentrations(rows)) is not None:
        text += ["## Concentration of records", markdown(compared)]
    if len(table := profiles(rows)):
        text += ["## Extreme profiles", markdown(table, index=False)]
    if len(made_up):
        table = simulated_estimates(made_up, folder)
        text += ["## Table 1, the simulated population", markdown(table, index=False)]
        text += ["## Chains on the simulated population", markdown(chains(made_up), index=False)]
        hdp = made_up[made_up["model"] == PUBLISHED]
        plot_as_printed(hdp, "tau1", folder / "simulated_sampling.png", folder)
        plot_as_printed(hdp, "expectation", folder / "simulated_monte_carlo.png", folder)
        plot_profiles(made_up, folder / "simulated_profiles.png", folder)
    text += ["## Table 2, age by education", markdown(age_by_education())]
    (folder / "tables.md").write_text("\n\n".join(text) + "\n")
    plot_draws(first, folder)
    plot_boxes(first, folder)
    plot_profiles(rows, folder / "profiles.png", folder)


if __name__ == "__main__":
    write()
