"""Synthetic files of NIST's benchmark: python experiments/synthesis/nist/run.py FOLDER

FOLDER has the excerpt, one file .csv or .csv.gz of persons with labels as text. The ten demographic
features, and the 21 of CART, which are fitted area by area (PUMA), as they are scored; the
benchmark's rules as structural zeros. Keeps files in ``experiments/synthesis/nist/work``, goes on
with what is not there yet, and writes results.csv and table.md.
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
from bnp_models.synthesis.synthesize import METHODS

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import Results, markdown  # noqa: E402

TEN = "AGEP SEX MSP RAC1P HOUSING_TYPE OWN_RENT EDU PINCP_DECILE DVET DEYE".split()
FEATURES = {
    10: TEN,
    21: ["PUMA", *TEN, *"HISP NOC NPF INDP INDP_CAT PINCP POVPIP DREM DPHY DEAR".split()],
}
BINS = 20
ORDERED = ("AGEP", "PINCP", "POVPIP")

# Classes, and sweeps of each of two chains, the last 200 of which are kept, by number of features.
SETTINGS = {10: (150, 1000), 21: (50, 800)}


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
        for name in ("PINCP", "POVPIP"):
            counts = target[name].value_counts()
            if name == "PINCP":
                # As many as a bin should have, so that it is a bin of its own: none crosses it.
                at_bound = pd.to_numeric(counts.index, errors="coerce") == bound
                counts[at_bound] = -(-len(target) // (BINS - 1))
            bins[name] = bnp.data.Bins.choose(name, list(counts.index), counts.to_numpy(), BINS)
        above = [
            label
            for label, low in zip(bins["PINCP"].labels, bins["PINCP"].low, strict=True)
            if low > bound
        ]
        table = bnp.data.in_bins(table, bins)
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


def areas_of(table, zeros):
    """Parts that are fitted by themselves: all records, or those of each area without PUMA."""
    if "PUMA" not in table.schema.variables:
        yield {}, table, zeros
        return
    position = table.schema.variables.index("PUMA")
    names = [name for name in table.schema.variables if name != "PUMA"]
    frame = table.to_frame()
    for area, label in enumerate(table.schema.levels[position]):
        inside = table.codes[:, position] == area
        part = bnp.Microdata.from_frame(frame[inside], names, levels=table.schema)
        conditions = np.delete(zeros.conditions, position, axis=1)
        yield {"PUMA": label}, part, bnp.StructuralZeros(part.schema, conditions)


def files_of(target, number, seed, work, ordered):
    """A file by each method, in `work` from then on, and seconds of the chains and of making it."""
    table, zeros, bins, industries = prepared(target)
    classes, sweeps = SETTINGS[number]
    for area, (added, part, part_zeros) in enumerate(areas_of(table, zeros)):
        paths = {method: work / f"{area}-{method}.csv" for method in METHODS}
        if all(path.exists() for path in paths.values()):
            continue
        names = tuple(name for name in ordered if name in part.schema.variables)
        key, began = jax.random.fold_in(jax.random.key(seed), area), time.perf_counter()
        run = bnp.sample(
            bnp.TNPLCM(components=classes, ordered=names), part, key=key, conditions=part_zeros,
            num_chains=2, num_warmup=sweeps - 200, num_samples=50, thin=4,
        )  # fmt: skip
        chains = time.perf_counter() - began
        print(added, part.n, "classes in use", run.draws["components"].mean(axis=1), flush=True)
        for method, path in paths.items():
            began = time.perf_counter()
            (frame,) = bnp.synthesize(run, 1, method=method)
            frame = bnp.data.draw_in_bins(np.random.default_rng([seed, area]), frame, bins)
            if industries is not None:
                frame = frame.assign(INDP_CAT=frame["INDP"].map(industries))
            frame = frame.assign(**added)[list(target.columns)]
            seconds = {"chains": chains, "file_made": time.perf_counter() - began}
            bnp.io.write_frame(frame.assign(**seconds), path)
        # Programs of other shapes take memory maps, of which a process has so many.
        jax.clear_caches()
    for method in METHODS:
        paths = sorted(work.glob(f"*-{method}.csv"))
        parts = [pd.read_csv(path, dtype=str, keep_default_na=False) for path in paths]
        seconds = {
            name: sum(float(part[name].iloc[0]) for part in parts)
            for name in ("chains", "file_made")
        }
        yield method, pd.concat(parts, ignore_index=True)[list(target.columns)], seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--features", type=int, nargs="+", choices=FEATURES, default=list(FEATURES))
    parser.add_argument("--unordered", action="store_true", help="no bands of near values")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of work, results and table")
    args = parser.parse_args()
    (path,) = [p for p in args.folder.iterdir() if p.name.endswith((".csv", ".csv.gz"))]
    everyone = pd.read_csv(path, dtype=str, keep_default_na=False)
    key = ("file", "features", "method", "ages", "seed")
    results = Results(args.out / "results.csv", key)
    ages = "unordered" if args.unordered else "ordered"
    for number in args.features:
        target = everyone[FEATURES[number]]
        case = {"file": path.name, "features": number, "seed": args.seed}
        baselines(results, case, target)
        case["ages"] = ages
        if not list(results.missing(case | {"method": method} for method in METHODS)):
            continue
        work = args.out / "work" / f"{path.name}-{number}-{ages}-{args.seed}"
        work.mkdir(parents=True, exist_ok=True)
        ordered = () if args.unordered else ORDERED
        for method, frame, seconds in files_of(target, number, args.seed, work, ordered):
            row = case | {"method": method}
            if list(results.missing([row])):
                results.append(row | scores_of(target, frame) | seconds)
    rows = pd.read_csv(results.path)
    (args.out / "table.md").write_text(markdown(rows, index=False) + "\n")


def baselines(results, case, target):
    """Rows of a bootstrap and of 40% of the target."""
    rng = np.random.default_rng(0)
    for method, rows in (
        ("bootstrap", rng.integers(len(target), size=len(target))),
        ("40% of the target", rng.permutation(len(target))[: int(0.4 * len(target))]),
    ):
        row = case | {"method": method, "ages": "-"}
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
