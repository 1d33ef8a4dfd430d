"""Default synthetic files of real surveys: python experiments/synthesis/defaults/run.py FOLDER

FOLDER has the files of ``files.py``. Samples of each are made synthetic by the command line, by the
former default and the present one, and by sequential trees, and judged by ``bnp-models evaluate``
and by this script. Keeps its files in ``work``, appends to results.csv what is not there yet, and
writes table.md. A second call goes on.
"""

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from files import FILES

import bnp_models as bnp
from bnp_models.cli.main import main as bnp_models

HERE = Path(__file__).parent
sys.path += [str(HERE.parents[1] / "accuracy" / "known_truth"), str(HERE.parent / "peers")]
from methods import trees  # noqa: E402
from results import Results, markdown  # noqa: E402

METHODS = ("predictive", "calibrated", "sequential trees", "second sample")
DATASETS = 3
CHAINS = ("--chains", "2", "--warmup", "1000", "--draws", "1000", "--quiet")

# A two-way cell is well filled from so many records of the sample on.
WELL_FILLED = 50


def command(*words):
    """Run a command of the program; all must succeed."""
    code = bnp_models([str(word) for word in words])
    if code:
        raise RuntimeError(f"bnp-models {' '.join(map(str, words))} ended with {code}")


def options(file, folder):
    """Options that all commands on a file have."""
    words = [word for name, k in file.bins.items() for word in ("--bins", f"{name}={k}")]
    if file.conditions:
        (folder / "zeros.csv").write_text(file.conditions)
        words += ["--conditions", folder / "zeros.csv"]
    return words


def make(file, method, folder, table, bins, other, seed):
    """Write the synthetic files of one method; return their folder."""
    out, sample = folder / method.replace(" ", "_"), folder / "sample.csv"
    if method == "predictive":
        command("synthesize", sample, *options(file, folder), "--method", method, *CHAINS,
                "--datasets", DATASETS, "--seed", seed, "--force", "--out", out)  # fmt: skip
    elif method == "calibrated":
        command("synthesize", sample, *options(file, folder), "--from", folder / "predictive",
                "--datasets", DATASETS, "--method", method, *CHAINS, "--seed", seed, "--force",
                "--out", out)  # fmt: skip
    else:
        out.mkdir(exist_ok=True)
        frames = [other] if method == "second sample" else [
            bnp.data.draw_in_bins(
                np.random.default_rng([seed, m]),
                bnp.Microdata(table.schema, codes).to_frame(), bins,
            )
            for m, codes in enumerate(trees(table, None, None, seed)[:DATASETS])
        ]  # fmt: skip
        for m, frame in enumerate(frames):
            bnp.io.write_frame(frame, out / f"synthetic_{m + 1}.csv")
    return out


def tables(codes, num_levels):
    """Shares of the cells of all tables of two variables."""
    for i, j in itertools.combinations(range(codes.shape[1]), 2):
        cells = codes[:, i].astype(np.int64) * num_levels[j] + codes[:, j]
        yield np.bincount(cells, minlength=num_levels[i] * num_levels[j]) / len(codes)


def own_scores(table, made, population):
    """Figures that `evaluate` does not have: distances from the population, the worst cell."""
    levels = table.schema.num_levels
    distance, worst, nobody = [], 0.0, np.zeros(made.n, bool)
    pairs = itertools.combinations(range(len(levels)), 2)
    three = zip(*(tables(t.codes, levels) for t in (table, made, population)), strict=True)
    for (i, j), (sample, file, truth) in zip(pairs, three, strict=True):
        distance.append([np.abs(file - of).sum() / 2 for of in (sample, truth)])
        filled = sample * table.n >= WELL_FILLED
        worst = max(worst, np.abs(file[filled] / sample[filled] - 1).max(initial=0))
        cells = made.codes[:, i].astype(np.int64) * levels[j] + made.codes[:, j]
        nobody |= truth[cells] == 0
    from_sample, from_population = np.mean(distance, axis=0)
    return {
        "from_sample": from_sample, "from_population": from_population, "worst_cell": worst,
        "pair_of_nobody": nobody.mean(),
    }  # fmt: skip


def number_scores(file, sample, frame, bins, rng):
    """Multiples of a round number, and values that one record of the sample has, in a file."""
    name, every = file.heaped

    def numbers(column):
        found = pd.to_numeric(column, errors="coerce").dropna().to_numpy(float)
        return found[found != 0]

    counts = sample[name].value_counts()
    alone = pd.to_numeric(pd.Series(counts.index[counts == 1]), errors="coerce").to_numpy(float)
    of = bins[name]
    uniform = of.code(list(frame[name]))
    steps = np.nan_to_num((of.high - of.low) / of.unit).round().astype(int)
    within = of.low[uniform] + rng.integers(steps[uniform] + 1) * of.unit[uniform]
    columns = {"": numbers(frame[name]), "_uniform": numbers(pd.Series(within))}
    heaped = {f"heaped{k}": (x % every == 0).mean() for k, x in columns.items()}
    ones = {f"values_of_one{k}": np.isin(x, alone).mean() for k, x in columns.items()}
    return {
        "heaped_sample": (numbers(sample[name]) % every == 0).mean(),
        "ones_sample": np.isin(numbers(sample[name]), alone).mean(), **heaped, **ones,
    }  # fmt: skip


def judged(file, folder, out):
    """Figures of `bnp-models evaluate`."""
    files = sorted(out.glob("synthetic_*.csv"))
    command(
        "evaluate", folder / "sample.csv", *files, *options(file, folder),
        "--levels", folder / "levels.csv", "--holdout", folder / "holdout.csv",
        "--keys", ",".join(file.keys), "--targets", file.target,
        "--out", out / "judged", "--force", "--quiet",
    )  # fmt: skip
    found = json.loads((out / "judged" / "evaluation.json").read_text())
    uniques, [keys] = found["replicated_uniques"], found["disclosure"]
    kind = "pairs" if "pairs" in found["pmse"] else "main_effects"
    return {
        "pmse_ratio": found["pmse"][kind]["ratio"], "pmse_by": kind,
        "recurring": float(np.mean(uniques["found"])) / max(uniques["uniques"], 1),
        "closer_to_sample": found["closest_records"]["closer_to_original"],
        "keys_unique_in_both": keys["replicated_uniques"],
        "disco": keys["targets"][0]["disco"],
        "impossible": np.nan if found["impossible"] is None else float(
            np.mean([one["number"] for one in found["impossible"]])
        ),
    }  # fmt: skip


def rows_of(name, seed, data, work, results):
    """Make and judge the files of one sample."""
    file = FILES[name]
    cases = [{"file": name, "seed": seed, "method": method} for method in METHODS]
    missing = [case["method"] for case in results.missing(cases)]
    if not missing:
        return
    folder = work / f"{name}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    everyone = file.population(data)
    chosen = np.random.default_rng(seed).permutation(len(everyone))
    parts = [
        everyone.iloc[chosen[k * file.n : (k + 1) * file.n]].reset_index(drop=True)
        for k in range(3)
    ]
    sample, holdout, other = parts
    for part, at in ((sample, "sample.csv"), (holdout, "holdout.csv")):
        bnp.io.write_frame(part, folder / at)
    labels = {
        column: sorted(everyone[column].unique()) for column in everyone if column not in file.bins
    }
    rows = [(column, label) for column, of in labels.items() for label in of]
    bnp.io.write_frame(pd.DataFrame(rows, columns=["variable", "level"]), folder / "levels.csv")
    _, bins = bnp.bin_columns(sample, file.bins)

    def coded(frame):
        return bnp.data.in_bins(bnp.Microdata.from_frame(frame, levels=labels), bins)

    table, population = coded(sample), coded(everyone)
    for method in missing:
        began = time.perf_counter()
        out = make(file, method, folder, table, bins, other, seed)
        seconds = time.perf_counter() - began
        scores = []
        for path in sorted(out.glob("synthetic_*.csv")):
            frame = pd.read_csv(path, dtype=str, keep_default_na=False)
            made = coded(frame)
            rng = np.random.default_rng([seed, len(scores)])
            scores.append(own_scores(table, made, population)
                          | number_scores(file, sample, frame, bins, rng))  # fmt: skip
        found = judged(file, folder, out) | pd.DataFrame(scores).mean().to_dict()
        row = {"file": name, "seed": seed, "method": method, **found, "seconds": seconds}
        results.append(row)
        print(row, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="with the folders nist and populations")
    parser.add_argument("--files", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--out", type=Path, default=HERE, help="folder of work and results")
    args = parser.parse_args()
    results = Results(args.out / "results.csv", ("file", "seed", "method"))
    for name, seed in itertools.product(args.files, args.seeds):
        rows_of(name, seed, args.folder, args.out / "work", results)
    write_tables(pd.read_csv(results.path), args.out / "table.md")


# Figures of each table.
UTILITY = ["pmse_ratio", "from_sample", "from_population", "worst_cell", "pair_of_nobody",
           "impossible", "seconds"]  # fmt: skip
DISCLOSURE = ["recurring", "closer_to_sample", "keys_unique_in_both", "disco"]
NUMBERS = ["heaped_sample", "heaped", "heaped_uniform", "ones_sample", "values_of_one",
           "values_of_one_uniform"]  # fmt: skip


def write_tables(rows, path):
    """Means over the samples, by file and method."""
    rows["method"] = pd.Categorical(rows["method"], METHODS)
    parts = []
    for title, figures in (("Utility", UTILITY), ("Disclosure", DISCLOSURE), ("Numbers", NUMBERS)):
        made = (
            rows[rows["method"].isin(("predictive", "calibrated"))] if title == "Numbers" else rows
        )
        shown = made.groupby(["file", "method"], sort=True, observed=True)[figures].mean()
        parts.append(f"## {title}\n\n{markdown(shown)}\n")
    path.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
