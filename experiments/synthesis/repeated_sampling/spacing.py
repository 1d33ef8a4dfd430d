"""Are files of every 200th sweep as good as those of every 2,000th?

    python experiments/synthesis/repeated_sampling/spacing.py --minutes 10

Four chains of TNPLCM with the paper's priors on each sample. Five files are made from the first
draws of a chain, 200 sweeps apart, and five from draws that are 2,000 apart. Appends a row for each
sample and spacing to spacing.csv, and goes on where it was stopped; writes spacing.md.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import tables

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import Results, markdown  # noqa: E402

CHAINS, FILES = 4, 5
NEAR, FAR = 200, 2000


def first_draws(run, number):
    """The run as it was after so many draws."""
    settings = replace(run.settings, num_samples=number)
    draws = {name: value[:, :number] for name, value in run.draws.items()}
    return replace(run, settings=settings, draws=draws)


def judged(run, of, three_way, chosen):
    """Means over chains and estimands: coverage, width, error, and variance between files."""
    made = bnp.synthesize(run, CHAINS * FILES)
    coded = (bnp.Microdata.from_frame(frame, levels=run.table.schema) for frame in made)
    counts = np.stack([three_way.counts(table.codes)[chosen] for table in coded])
    n, truth, rows = run.table.n, of.truth[chosen], []
    for q in np.split(counts / n, CHAINS):
        combined = bnp.evaluation.combine_partially_synthetic(q, q * (1 - q) / n)
        one = tables.judge(combined.estimate, combined.interval(), truth)
        common = n * truth >= 10
        rows.append((
            one.covered.mean(), one.covered[common].mean(), one.width[common].mean(),
            np.sqrt(one.square[common]).mean(), q[:, common].var(axis=0, ddof=1).mean(),
        ))  # fmt: skip
    names = ("covered", "covered_common", "width", "absolute_error", "variance_between_files")
    return dict(zip(names, np.mean(rows, axis=0), strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1000, help="records of a sample")
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--minutes", type=float, help="begin no sample later than this")
    args = parser.parse_args()
    people, of = bnp.datasets.census_income(), tables.estimands()
    schema = bnp.Microdata.from_frame(people.frame).schema
    three_way = tables.ThreeWay(schema)
    zeros = bnp.read_conditions(HERE / "conditions.csv", schema)
    chosen = of.with_zeros & ~of.impossible
    path = HERE / "spacing.csv"
    results = Results(path, ("n", "seed", "spacing"), args.minutes)
    cases = [{"n": args.n, "seed": seed, "spacing": FAR} for seed in range(args.samples)]
    for case in results.missing(cases):
        table = bnp.Microdata.from_frame(people.sample(args.n, case["seed"]), levels=schema)
        run = bnp.sample(
            bnp.TNPLCM(level_prior="uniform", ordered="none"), table, conditions=zeros,
            key=jax.random.key(case["seed"]), num_chains=CHAINS, num_warmup=600, thin=NEAR,
            num_samples=FILES * FAR // NEAR,
        )  # fmt: skip
        figures = figures_of(run.draws["log_likelihood"])
        told = {"rhat": figures["rhat"], "ess": figures["ess_bulk"]}
        for spacing, chains in ((NEAR, first_draws(run, FILES)), (FAR, run.thinned(FAR // NEAR))):
            row = case | {"spacing": spacing} | judged(chains, of, three_way, chosen) | told
            results.append(row)
            print(row, flush=True)
    rows = pd.read_csv(path)
    means = rows.groupby(["n", "spacing"]).mean().drop(columns="seed")
    means["samples"] = rows.groupby(["n", "spacing"]).size()
    (HERE / "spacing.md").write_text(markdown(means) + "\n")


if __name__ == "__main__":
    main()
