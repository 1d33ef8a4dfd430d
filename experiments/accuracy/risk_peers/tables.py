"""Tables of results.csv and cells.csv: python experiments/accuracy/risk_peers/tables.py

The HDP's rows are those of ../layer_prior/results.csv, on the same samples: with the
correction for overdispersion, whose prior was fitted without the population in question. The
nearest method of a row is bold.
"""

import sys
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "known_truth"))

from results import markdown  # noqa: E402

ALPHA = 0.05
OURS = "HDP, corrected"
QUICK, SLOW = "correction about forest", "power about search"
LISTED = "power about two-way"
BESIDE = ("log-linear forest", "log-linear search", "log-linear two-way", "Ewens")
FAST = (
    "gamma about independence", "gamma about forest", "Dirichlet process about forest",
    "power about independence", "power about forest", QUICK, "Model I, paper's values",
    "Model II, paper's values",
)  # fmt: skip
FIGURES = {
    "error1": "relative error of tau_1, mean",
    "absolute1": "absolute relative error of tau_1, mean",
    "covered": "share of 95% intervals that contain tau_1",
    "score": "interval score divided by tau_1, mean",
    "error2": "relative error of tau_2, mean",
    "absolute2": "absolute relative error of tau_2, mean",
}


def scored(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with what is averaged; truths of zero count as one where they divide."""
    rows = rows.copy()
    for k in "12":
        truth = rows[f"truth{k}"]
        rows[f"error{k}"] = (rows[f"estimate{k}"] - truth) / truth.clip(lower=1)
        rows[f"absolute{k}"] = rows[f"error{k}"].abs()
    truth, low, high = rows["truth1"], rows["lower"], rows["upper"]
    missed = (low - truth).clip(lower=0) + (truth - high).clip(lower=0)
    rows["covered"] = (missed == 0).astype(float)
    rows["score"] = (high - low + 2 / ALPHA * missed) / truth.clip(lower=1)
    return rows


def of_hdp() -> pd.DataFrame:
    """The HDP's rows, in the columns of results.csv."""
    rows = pd.read_csv(HERE.parent / "layer_prior" / "results.csv")
    rows = rows[rows["way"] == "now"]
    columns = ["population", "n", "seed"]
    tau1, tau2 = (rows[rows["tau"] == tau].set_index(columns) for tau in ("tau1", "tau2"))
    return pd.DataFrame({
        "method": OURS, "truth1": tau1["truth"], "truth2": tau2["truth"],
        "estimate1": tau1["mean"], "estimate2": tau2["mean"], "lower": tau1["q025"],
        "upper": tau1["q975"],
    }).reset_index()  # fmt: skip


def nearest_bold(table: pd.DataFrame, methods: list[str]) -> pd.DataFrame:
    """The same with the smallest figure of each row in bold."""
    shown = table.copy()
    shown[methods] = table[methods].map(lambda x: f"{x:.3g}" if pd.notna(x) else "-")
    for place, row in table.iterrows():
        best = row[methods].astype(float).idxmin()
        shown.loc[place, best] = f"**{shown.loc[place, best]}**"
    return shown


def write_cells(peers: pd.DataFrame) -> None:
    """cells.md: the models of cells, and other methods on the same samples."""
    columns = ["population", "n", "seed"]
    cells = pd.read_csv(HERE / "cells.csv")
    peers = peers[peers["method"].isin(BESIDE)]
    rows = scored(pd.concat([of_hdp(), peers, cells], ignore_index=True))
    quick = cells[cells["method"] == QUICK][columns]
    slow = cells[cells["method"] == SLOW][columns]
    fits = slow.merge(cells[cells["method"] == LISTED][columns])
    sets = {
        "All samples of cells.csv": quick, "Those that the HDP has": quick.merge(of_hdp()[columns]),
        "Those that were searched": slow, "Those with all two-way interactions": fits,
    }  # fmt: skip
    parts = [f"- {name}: {title}" for name, title in FIGURES.items()]
    for title, samples in sets.items():
        of_method = rows.merge(samples).groupby("method", sort=False)
        figures = of_method[list(FIGURES)].mean()
        figures.insert(0, "samples", of_method.size())
        complete = figures[figures["samples"] == len(samples)]
        parts += [f"\n## {title}\n", markdown(complete)]
    methods = list(dict.fromkeys(rows["method"]))
    for name in ("error1", "absolute1", "absolute2"):
        table = rows.merge(quick).pivot_table(index=["population", "n"], columns="method",
                                              values=name, sort=False)  # fmt: skip
        table = table[[m for m in methods if m not in dict.fromkeys(cells["method"]) or m in FAST]]
        table = table.reset_index()
        if name.startswith("absolute"):
            table = nearest_bold(table, list(table.columns[2:]))
        title = FIGURES[name]
        parts += [f"\n## {title[0].upper()}{title[1:]}\n", markdown(table, index=False)]
    (HERE / "cells.md").write_text("\n".join(parts) + "\n")


def main():
    peers = pd.read_csv(HERE / "results.csv")
    rows = scored(pd.concat([of_hdp(), peers], ignore_index=True))
    methods = list(dict.fromkeys(rows["method"]))
    columns = ["population", "n", "seed"]
    common = rows.merge(of_hdp()[columns]).groupby("method")
    figures = common[list(FIGURES)].mean().loc[methods]
    figures.insert(0, "samples", common.size())
    known = f"## The {figures['samples'].max()} samples that the HDP has\n"
    by = rows.groupby("method")
    overall = by[list(FIGURES)].mean().loc[methods]
    overall.insert(0, "samples", by.size())
    overall["absolute1, median"] = by["absolute1"].median()
    overall["absolute2, median"] = by["absolute2"].median()
    overall["seconds, median"] = by["seconds"].median()
    titles = [f"- {name}: {title}" for name, title in FIGURES.items()]
    parts = [known, *titles, "", markdown(figures), "\n## All samples\n", markdown(overall)]
    for name, title in FIGURES.items():
        table = rows.pivot_table(index=["population", "n"], columns="method", values=name)
        order = list(dict.fromkeys(zip(peers["population"], peers["n"], strict=True)))
        table = table.loc[order, methods].reset_index()
        if name.startswith("absolute") or name == "score":
            table = nearest_bold(table, methods)
        parts += [f"\n## {title[0].upper()}{title[1:]}\n", markdown(table, index=False)]
    (HERE / "table.md").write_text("\n".join(parts) + "\n")
    write_cells(peers)


if __name__ == "__main__":
    main()
