"""Results kept row by row, so that a run goes on where it was stopped; tables and figures of them.

For the experiments beside this one too.
"""

import csv
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd


class Results:
    """A CSV file that grows by a row at a time.

    Parameters
    ----------
    path
        Where it is, or will be.
    key
        The columns that tell its rows apart.
    minutes
        No row is begun later than this. Default: no limit.
    """

    def __init__(self, path: Path, key: tuple[str, ...], minutes: float | None = None):
        self.path, self.key = path, key
        self._end = time.monotonic() + 60 * (np.inf if minutes is None else minutes)
        rows, self._columns = [], None
        if path.exists():
            with open(path, newline="") as stream:
                reader = csv.DictReader(stream)
                rows, self._columns = list(reader), reader.fieldnames
        self._done = {tuple(row[name] for name in key) for row in rows}

    def missing(self, cases: Iterable[dict]) -> Iterator[dict]:
        """Those of the cases without a row, for as long as there is time."""
        for case in cases:
            if self._key(case) in self._done:
                continue
            if time.monotonic() > self._end:
                print("the minutes are used up; the same command goes on", flush=True)
                return
            yield case

    def append(self, row: dict) -> None:
        """Write a row, floats with five digits."""
        row = {
            name: f"{value:.5g}" if isinstance(value, float | np.floating) else value
            for name, value in row.items()
        }
        first = self._columns is None
        self._columns = self._columns or list(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", newline="") as stream:
            writer = csv.DictWriter(stream, self._columns)
            if first:
                writer.writeheader()
            writer.writerow(row)
        self._done.add(self._key(row))

    def _key(self, row):
        return tuple(str(row[name]) for name in self.key)


def accuracy_rows() -> pd.DataFrame:
    """Rows of this folder's results.csv, and of earlier.csv for the samples that it has not."""
    here = Path(__file__).parent
    rows = pd.concat([pd.read_csv(here / name) for name in ("results.csv", "earlier.csv")])
    case = ["population", "conditions", "concentration", "level_prior", "n", "seed"]
    return rows.drop_duplicates(case).reset_index(drop=True)


def longest(rows: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """Of the rows that differ in nothing but their numbers of sweeps, those with the most."""
    sweeps = rows["warmup"] + rows["draws"] * rows["thin"]
    order = np.argsort(sweeps.to_numpy(), kind="stable")
    return rows.iloc[order].drop_duplicates(key, keep="last").sort_index()


def markdown(table: pd.DataFrame, index: bool = True) -> str:
    """A Markdown table with three significant digits."""
    table = table.reset_index() if index else table
    header = [str(name).replace("_", " ").replace("tau 1", "tau_1") for name in table.columns]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in table.itertuples(index=False):
        lines.append("| " + " | ".join(map(_shown, row)) + " |")
    return "\n".join(lines)


def _shown(x) -> str:
    if not isinstance(x, float):
        return str(x)
    if np.isnan(x):
        return "-"
    return f"{x:.3g}" if abs(x) < 100 else f"{x:.0f}"


def shown_intervals(rows: pd.DataFrame, low: str, high: str) -> pd.Series:
    """Intervals as text, from two columns."""
    shown = [f"({a:.3f}, {b:.3f})" for a, b in zip(rows[low], rows[high], strict=True)]
    return pd.Series(shown, rows.index)


def draw_intervals(axis, rows: pd.DataFrame) -> None:
    """95% intervals of tau_1, one a sample, in the order of the truth, which is red."""
    rows = rows.sort_values("truth")
    x = np.arange(len(rows))
    axis.vlines(x, rows["q025"], rows["q975"], color="#7fa3c4", lw=3)
    axis.plot(x, rows["mean"], ".", color="#1f5f8b")
    axis.plot(x, rows["truth"], "_", color="red", ms=8, mew=2)
    axis.set_xticks([])
