"""Table of results.csv: python experiments/risk_peers/tables.py"""

import sys
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "accuracy"))

from results import markdown  # noqa: E402

ALPHA = 0.05
FIGURES = {
    "error1": "relative error of tau_1, mean",
    "absolute1": "relative error of tau_1 without its sign, mean",
    "covered": "share of 95% intervals that hold tau_1",
    "score": "interval score over tau_1, mean",
    "error2": "relative error of tau_2, mean",
    "absolute2": "relative error of tau_2 without its sign, mean",
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


def main():
    rows = scored(pd.read_csv(HERE / "results.csv"))
    methods = list(dict.fromkeys(rows["method"]))
    by = rows.groupby("method")
    overall = by[list(FIGURES)].mean().loc[methods]
    overall.insert(0, "samples", by.size())
    overall["absolute1, median"] = by["absolute1"].median()
    overall["absolute2, median"] = by["absolute2"].median()
    overall["seconds, median"] = by["seconds"].median()
    titles = [f"- {name}: {title}" for name, title in FIGURES.items()]
    parts = ["## All samples\n", *titles, "", markdown(overall)]
    for name, title in FIGURES.items():
        table = rows.pivot_table(index=["population", "n"], columns="method", values=name)
        order = list(dict.fromkeys(zip(rows["population"], rows["n"], strict=True)))
        table = table.loc[order, methods].reset_index()
        parts += [f"\n## {title[0].upper()}{title[1:]}\n", markdown(table, index=False)]
    (HERE / "table.md").write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
