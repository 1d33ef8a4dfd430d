"""Synthetic files of this package beside those of others, on samples of the census population.

    python -m pip install -r experiments/synthesis/peers/requirements.txt
    python experiments/synthesis/peers/run.py

Ten samples each of 1,000, 5,000 and 10,000 records under the 55 conditions of
``experiments/synthesis/repeated_sampling``, five files each. Appends to results.csv what is
not there yet, and makes table.md. Several may run at once, with other ``--methods``.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from methods import MODELS, PEERS, make

import bnp_models as bnp
from bnp_models.data.contingency import common_cells

HERE = Path(__file__).parent
CONDITIONS = HERE.parent / "repeated_sampling" / "conditions.csv"
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import Results, markdown  # noqa: E402

SIZES = (1000, 5000, 10_000)


def scores(table, made, zeros, population):
    """Figures of the files of one sample, as `bnp_models.evaluate` has them, and two more."""
    files = [bnp.Microdata(table.schema, codes) for codes in made]
    proportions = bnp.evaluation.proportions(table, files, 3, population=population).summary()
    uniques = bnp.evaluation.replicated_uniques(table, files)
    ratios = [
        bnp.evaluation.propensity_score(table, file, interactions=True).ratio for file in files
    ]
    _, counts = common_cells([population, *files])
    shares = counts / counts.sum(axis=1, keepdims=True)
    return {
        "total_variation": np.abs(shares[1:] - shares[0]).sum(axis=1).mean() / 2,
        "covered": proportions["covers_population"],
        "overlap": proportions["overlap"],
        "pmse_ratio": np.mean(ratios),
        "recurring": np.mean(uniques.found) / uniques.uniques,
        "impossible": float(np.mean([zeros.contains(codes).sum() for codes in made])),
    }


def write_table(rows):
    """Means over samples, with standard errors of the first four figures."""
    figures = list(rows.columns[3:])
    grouped = rows.groupby(["n", "method"])[figures]
    mean, error = grouped.mean(), grouped.sem()
    shown = mean.copy().astype(object)
    for name in ("total_variation", "covered", "overlap", "recurring"):
        shown[name] = [f"{m:.3f} ± {e:.3f}" for m, e in zip(mean[name], error[name], strict=True)]
    shown["samples"] = grouped.size()
    parts = []
    for n in sorted(rows["n"].unique()):
        part = shown.loc[n].loc[mean.loc[n].sort_values("total_variation").index]
        parts.append(f"## {n:,} records\n\n{markdown(part)}\n")
    (HERE / "table.md").write_text("\n".join(parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--methods", nargs="+", choices=[*MODELS, *PEERS], default=[*MODELS, *PEERS]
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seeds", type=int, nargs="+", default=range(10), help="of the samples")
    parser.add_argument("--out", type=Path, default=HERE / "results.csv")
    args = parser.parse_args()
    people = bnp.datasets.census_income()
    population = bnp.Microdata.from_frame(people.frame)
    zeros = bnp.read_conditions(CONDITIONS, population.schema)
    results = Results(args.out, ("method", "n", "seed"))
    for seed in args.seeds:
        for n in args.sizes:
            table = bnp.Microdata.from_frame(people.sample(n, seed), levels=population.schema)
            for method in args.methods:
                first = f"{method}, predictive" if method in MODELS else method
                case = {"method": first, "n": n, "seed": seed}
                if not list(results.missing([case])):
                    continue
                for name, (made, seconds) in make(method, table, zeros, population, seed).items():
                    row = scores(table, made, zeros, population)
                    results.append(case | {"method": name} | row | {"seconds": seconds})
    write_table(pd.read_csv(args.out))


if __name__ == "__main__":
    main()
