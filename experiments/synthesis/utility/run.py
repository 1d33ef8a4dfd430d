"""Utility figures of synthetic data whose quality is known, and what they take.

``python experiments/synthesis/utility/run.py``: samples of 5,000 of the bundled census population;
what stands for each is the sample itself, five other samples, five files of TNPLCM under the
conditions of ``experiments/synthesis/repeated_sampling``, and the sample with each variable
shuffled. Writes tables.md.
"""

import argparse
import resource
import time
from pathlib import Path

import jax
import numpy as np

import bnp_models as bnp

HERE = Path(__file__).parent
CONDITIONS = HERE.parent / "repeated_sampling" / "conditions.csv"
KINDS = ("the sample itself", "other samples", "TNPLCM", "variables shuffled")
COLUMNS = ("overlap", "covers_original", "covers_population")


def files_of(kind, people, table, zeros, seed):
    """Five files that stand for a sample."""
    if kind == "the sample itself":
        return [table] * 5
    if kind == "other samples":
        seeds = [1000 * (seed + 1) + m for m in range(5)]
        frames = [people.sample(table.n, other) for other in seeds]
    elif kind == "TNPLCM":
        run = bnp.sample(
            bnp.TNPLCM(), table, key=jax.random.key(seed), conditions=zeros, num_chains=1,
            num_warmup=600, num_samples=5, thin=200,
        )  # fmt: skip
        frames = bnp.synthesize(run, 5)
    else:
        rng = np.random.default_rng(seed)
        codes = [rng.permuted(table.codes, axis=0) for _ in range(5)]
        return [bnp.Microdata(table.schema, made) for made in codes]
    coded = [bnp.Microdata.from_frame(frame, levels=table.schema).codes for frame in frames]
    return [bnp.Microdata(table.schema, codes) for codes in coded]


def census(replications):
    """Rows of means over samples, and for three-way tables both combining rules."""
    people = bnp.datasets.census_income()
    population = bnp.Microdata.from_frame(people.frame)
    schema = population.schema
    found = {}
    for seed in range(replications):
        table = bnp.Microdata.from_frame(people.sample(5000, seed), levels=schema)
        zeros = bnp.read_conditions(CONDITIONS, schema)
        for kind in KINDS:
            files = files_of(kind, people, table, zeros, seed)
            for order in (1, 2, 3):
                for rule in ("partially", "fully"):
                    summary = bnp.evaluation.proportions(
                        table, files, order, population=population, combining=rule
                    ).summary()
                    found.setdefault((kind, order, rule), []).append([summary[c] for c in COLUMNS])
            scores = [bnp.evaluation.propensity_score(table, file, interactions=i)
                      for i in (False, True) for file in files]  # fmt: skip
            found.setdefault((kind, "pmse"), []).append([
                np.mean([s.ratio for s in scores[:5]]), np.mean([s.ratio for s in scores[5:]])
            ])  # fmt: skip
            print(seed, kind, np.round(found[kind, "pmse"][-1], 2), flush=True)
    return {key: np.mean(rows, axis=0) for key, rows in found.items()}


def large():
    """Seconds, by order, of 10 variables of 10 levels, n = 50,000, five files; and peak memory."""
    rng = np.random.default_rng(0)
    names = tuple(f"v{j}" for j in range(10))
    schema = bnp.Schema(names, (tuple(map(str, range(10))),) * 10)
    files = [bnp.Microdata(schema, rng.integers(10, size=(50_000, 10))) for _ in range(6)]
    seconds = []
    for order in (1, 2, 3):
        began = time.perf_counter()
        bnp.evaluation.proportions(files[0], files[1:], order)
        seconds.append(time.perf_counter() - began)
    began = time.perf_counter()
    bnp.evaluation.propensity_score(files[0], files[1])
    seconds.append(time.perf_counter() - began)
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=10)
    args = parser.parse_args()
    seconds, memory = large()
    found = census(args.replications)
    lines = [
        "| files | variables | rule | overlap | original covered | population covered |",
        "|---|---:|---|---:|---:|---:|",
    ]
    for kind in KINDS:
        for order in (1, 2, 3):
            for rule in ("partially", "fully"):
                figures = " | ".join(f"{100 * x:.1f}" for x in found[kind, order, rule])
                lines.append(f"| {kind} | {order} | {rule} | {figures} |")
    lines += ["", "| files | pMSE ratio, main effects | with pairs |", "|---|---:|---:|"]
    for kind in KINDS:
        first, second = found[kind, "pmse"]
        lines.append(f"| {kind} | {first:.2f} | {second:.2f} |")
    lines += [
        "",
        f"{args.replications} samples of 5,000; percentages. 10 variables of 10 levels, n = "
        "50,000, five files: one-, two- and three-way proportions in "
        f"{', '.join(f'{s:.2f}' for s in seconds[:3])} s, a propensity score of main effects in "
        f"{seconds[3]:.2f} s, at most {memory:.1f} GiB of memory, on a shared machine.",
    ]
    (HERE / "tables.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
