"""Synthetic files of NIST's benchmark: python experiments/nist/run.py FOLDER

FOLDER has the excerpt, one file .csv or .csv.gz of persons with labels as text. The ten demographic
features and the 21 of CART, the benchmark's rules as structural zeros. Keeps its chains and files in
``experiments/nist/work``, goes on with what is not there yet, and writes results.csv and table.md.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from rules import conditions, top_code_bound, violations
from scores import k_marginal, uniques_matched

import bnp_models as bnp

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "accuracy"))
from results import Results, markdown  # noqa: E402

TEN = "AGEP SEX MSP RAC1P HOUSING_TYPE OWN_RENT EDU PINCP_DECILE DVET DEYE".split()
FEATURES = {
    10: TEN,
    21: ["PUMA", *TEN, *"HISP NOC NPF INDP INDP_CAT PINCP POVPIP DREM DPHY DEAR".split()],
}
METHODS = ("predictive", "balanced", "calibrated")
BINS = 20

# Classes, and sweeps of each of two chains, by the number of features.
SETTINGS = {10: (150, 800, 200), 21: (200, 800, 200)}


def sorted_levels(column):
    """Labels, N first, numbers by size."""
    labels = column.unique()
    numeric = pd.to_numeric(pd.Series(labels), errors="coerce")
    return [labels[i] for i in np.lexsort([labels.astype(str), numeric.fillna(-1e18)])]


def prepared(target):
    """Table, structural zeros, bins, and INDP_CAT by INDP where it is in the file."""
    levels = {name: sorted_levels(target[name]) for name in target}
    table, bins, above = bnp.Microdata.from_frame(target, levels=levels), {}, []
    industries = None
    if "PINCP" in target:
        bound = top_code_bound(target)
        for name, cuts in (("PINCP", [bound + 1]), ("POVPIP", [])):
            counts = target[name].value_counts()
            bins[name] = bnp.Bins.choose(name, list(counts.index), counts.to_numpy(), BINS, cuts)
        above = [
            label
            for label, low in zip(bins["PINCP"].labels, bins["PINCP"].low, strict=True)
            if low > bound
        ]
        table = bnp.in_bins(table, bins)
        # What an industry's category is follows from it.
        pairs = target[["INDP", "INDP_CAT"]].drop_duplicates()
        if pairs["INDP"].duplicated().any():
            raise ValueError("an industry has two categories")
        industries = pairs.set_index("INDP")["INDP_CAT"]
        kept = [name for name in table.schema.variables if name != "INDP_CAT"]
        table = bnp.Microdata.from_frame(table.to_frame(), kept, levels=table.schema)
    levels = dict(zip(table.schema.variables, map(list, table.schema.levels), strict=True))
    zeros = bnp.StructuralZeros.from_frame(conditions(levels, above), table.schema)
    zeros.require_feasible(table)
    return table, zeros, bins, industries


def finished(frame, target, bins, industries, seed):
    """A file with the target's columns: values in the place of bins, categories of industries."""
    frame = bnp.draw_in_bins(np.random.default_rng(seed), frame, bins)
    if industries is not None:
        frame = frame.assign(INDP_CAT=frame["INDP"].map(industries))
    return frame[list(target.columns)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--features", type=int, nargs="+", choices=FEATURES, default=list(FEATURES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    (path,) = [p for p in args.folder.iterdir() if p.name.endswith((".csv", ".csv.gz"))]
    everyone = pd.read_csv(path, dtype=str, keep_default_na=False)
    results = Results(args.out / "results.csv", ("file", "features", "method", "seed"))
    for number in args.features:
        target = everyone[FEATURES[number]]
        case = {"file": path.name, "features": number, "seed": args.seed}
        baselines(results, case, target)
        missing = list(results.missing(case | {"method": method} for method in METHODS))
        if not missing:
            continue
        table, zeros, bins, industries = prepared(target)
        classes, warmup, draws = SETTINGS[number]
        began = time.perf_counter()
        run = bnp.sample(
            bnp.TNPLCM(components=classes), table, key=jax.random.key(args.seed),
            conditions=zeros, num_chains=2, num_warmup=warmup, num_samples=draws // 4, thin=4,
            checkpoint=HERE / "work" / f"{path.name}-{number}-{args.seed}", resume=True,
        )  # fmt: skip
        chains = time.perf_counter() - began
        print(number, "classes in use", run.draws["components"].mean(axis=1), *bnp.warnings_of(run))
        for row in missing:
            began = time.perf_counter()
            (frame,) = bnp.synthesize(run, 1, method=row["method"])
            frame = finished(frame, target, bins, industries, args.seed)
            made = time.perf_counter() - began
            results.append(row | scores_of(target, frame) | {"chains": chains, "file_made": made})
    rows = pd.read_csv(results.path)
    (args.out / "table.md").write_text(markdown(rows, index=False) + "\n")


def baselines(results, case, target):
    """Rows of a bootstrap and of 40% of the target."""
    rng = np.random.default_rng(0)
    for method, rows in (
        ("bootstrap", rng.integers(len(target), size=len(target))),
        ("40% of the target", rng.permutation(len(target))[: int(0.4 * len(target))]),
    ):
        row = case | {"method": method}
        if list(results.missing([row])):
            frame = target.iloc[rows].reset_index(drop=True)
            results.append(row | scores_of(target, frame) | {"chains": 0.0, "file_made": 0.0})


def scores_of(target, frame):
    """Scores of one file."""
    bound = top_code_bound(target) if "PINCP" in target else None
    return {
        "k_marginal": k_marginal(target, frame),
        "violations": violations(frame, bound),
        "uniques_matched": 100 * uniques_matched(target, frame),
    }


if __name__ == "__main__":
    main()
