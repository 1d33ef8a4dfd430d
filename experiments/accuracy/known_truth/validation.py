"""Validation within the samples of results.csv, to set beside their errors of tau_1.

    python experiments/accuracy/known_truth/validation.py --sizes 1000 5000
    python experiments/accuracy/known_truth/validation.py --sizes 1000 5000 --level-prior uniform
    python experiments/accuracy/known_truth/validation.py --population survey --survey FOLDER

Each line appends to validation.csv what is not there yet; tables.py makes the table and the figure.
"""

import argparse
from pathlib import Path

import jax
from populations import NAMES, population
from results import Results

import bnp_models as bnp

HERE = Path(__file__).parent
KEY = ("population", "level_prior", "n", "seed")


def measure(args, case) -> dict:
    n, seed = case["n"], case["seed"]
    people = population(args.population, seed, args.survey)
    validation = bnp.validate_within(
        bnp.HDPMixedMembership(level_prior=args.level_prior),
        bnp.Microdata.from_frame(people.sample(n, seed)),
        key=jax.random.key(30_000 + seed), num_splits=args.splits, num_chains=4,
        num_warmup=args.warmup, num_samples=args.draws, thin=args.thin,
        start_components=tuple(args.starts),
    )  # fmt: skip
    splits = validation.splits
    return case | {
        "splits": len(splits), "sample_uniques": sum(split.sample_uniques for split in splits),
        "truth": sum(split.truth for split in splits), "mean": sum(split.mean for split in splits),
        "covered": sum(split.covered for split in splits), "warned": len(validation.warnings()),
        "warmup": args.warmup, "draws": args.draws, "thin": args.thin,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--population", choices=NAMES, default="all")
    parser.add_argument("--survey", type=Path, help="folder of national2019.csv.gz")
    parser.add_argument("--level-prior", default="learned")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=400)
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--thin", type=int, default=4)
    parser.add_argument("--starts", type=int, nargs="+", default=[30, 60, 40, 50])
    parser.add_argument("--minutes", type=float, help="begin no sample later than this")
    args = parser.parse_args()
    results = Results(HERE / "validation.csv", KEY, args.minutes)
    same = {"population": args.population, "level_prior": args.level_prior}
    cases = (same | {"n": n, "seed": seed} for n in args.sizes for seed in range(args.seeds))
    for case in results.missing(cases):
        row = measure(args, case)
        results.append(row)
        print(*(row[name] for name in ("n", "seed", "truth", "mean", "covered")), flush=True)


if __name__ == "__main__":
    main()
