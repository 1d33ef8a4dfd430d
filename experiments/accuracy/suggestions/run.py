"""Candidates for structural zeros in real files, and in the same files with shuffled columns.

    python experiments/accuracy/suggestions/run.py POPULATIONS NIST

Ten files: the bundled census and households, those of the folder POPULATIONS, and the file NIST.
Of each, ten samples of 2,000 records are taken as they are, and with each column shuffled by
itself, so that nothing is impossible. Writes table.md.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.zeros import suggestions

HERE = Path(__file__).parent
N, SAMPLES = 2000, 10


def files(folder, nist):
    """Frames of labels by name."""
    yield "census", bnp.datasets.census_income().frame.astype(str)
    yield "bay_area_persons", bnp.datasets.bay_area_households().frame.iloc[:, 1:].astype(str)
    for path in sorted(folder.glob("*.csv.gz")):
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        yield path.name.split(".")[0], frame.drop(columns=["hid", "pid"], errors="ignore")
    frame = pd.read_csv(nist, dtype=str, keep_default_na=False)
    few = [name for name in frame if 2 < frame[name].nunique() < 100]
    yield "nist", frame[few[:12]]


def candidates(frame):
    """Number of candidates, and of those that there would be whatever their chance."""
    table, limit = bnp.Microdata.from_frame(frame), suggestions.LARGEST_CHANCE
    found = [len(suggestions.suggest_conditions(table))]
    try:
        suggestions.LARGEST_CHANCE = math.inf
        found.append(len(suggestions.suggest_conditions(table)))
    finally:
        suggestions.LARGEST_CHANCE = limit
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("populations", type=Path)
    parser.add_argument("nist", type=Path)
    args = parser.parse_args()
    rows = []
    for name, frame in files(args.populations, args.nist):
        counts = []
        for seed in range(SAMPLES):
            rng = np.random.default_rng(seed)
            drawn = frame.iloc[rng.choice(len(frame), N, replace=False)].reset_index(drop=True)
            mixed = pd.DataFrame({x: rng.permutation(drawn[x].to_numpy()) for x in drawn})
            counts.append([*candidates(drawn), *candidates(mixed)])
        real, _, false, without = np.mean(counts, axis=0)
        rows.append((name, frame.shape[1], f"{real:.1f}", f"{false:.2f}", f"{without:.1f}"))
        print(*rows[-1], flush=True)
    head = ("file", "variables", "candidates", "when shuffled", "when shuffled, without the limit")
    lines = [head, ["---"] * len(head), *rows]
    text = "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
    (HERE / "table.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
