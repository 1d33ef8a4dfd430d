"""Repeated samples of the census population: what synthetic data say of three-way proportions.

    python experiments/synthesis/repeated_sampling/run.py

Keeps a file per replication, goes on with those that are not there yet, and then makes the table
and the figures (`tables.py`). A replication's number is the seed of all that is random in it.
"""

import argparse
import os
import time
from pathlib import Path

import jax
import numpy as np
import tables
from proportions import ThreeWay

import bnp_models as bnp

HERE = Path(__file__).parent


def replicate(args, people, three_way, seed) -> dict[str, np.ndarray]:
    """Counts of all cells of three-way tables: of the sample, and of M files from each model."""
    table = bnp.Microdata.from_frame(people.sample(args.n, seed))
    zeros = bnp.read_conditions(HERE / "conditions.csv", table.schema)
    found = {"original": three_way.counts(table.codes)}
    for m, model in enumerate((bnp.TNPLCM(), bnp.NPLCM())):
        began = time.perf_counter()
        run = bnp.sample(
            model, table, key=jax.random.fold_in(jax.random.key(seed), m),
            conditions=None if model.conditions_type is None else zeros, num_chains=1,
            num_warmup=args.warmup, num_samples=args.datasets, thin=args.spacing,
        )  # fmt: skip
        files = [
            bnp.Microdata.from_frame(frame, levels=table.schema).codes
            for frame in bnp.synthesize(run, args.datasets)
        ]
        found |= {
            model.name: np.stack([three_way.counts(codes) for codes in files]),
            f"{model.name}_impossible": np.array([zeros.contains(codes).sum() for codes in files]),
            f"{model.name}_seconds": np.array(time.perf_counter() - began),
        } | {
            f"{model.name}_{name}": run.draws[name][0]
            for name in ("components", "last_class", "log_likelihood", "log_feasible")
        }
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--n", type=int, default=5000, help="records of a sample")
    parser.add_argument("--datasets", type=int, default=5, help="synthetic files, M")
    parser.add_argument("--warmup", type=int, default=600, help="sweeps before the first file")
    parser.add_argument("--spacing", type=int, default=200, help="sweeps between files")
    parser.add_argument("--out", type=Path, help="folder of the table and figures (default: n5000)")
    args = parser.parse_args()
    settings = f"n{args.n}_m{args.datasets}_warmup{args.warmup}_spacing{args.spacing}"
    folder = HERE / "replications" / settings
    folder.mkdir(parents=True, exist_ok=True)
    people = bnp.datasets.census_income()
    three_way = ThreeWay(bnp.Microdata.from_frame(people.frame).schema)
    for seed in range(args.replications):
        path = folder / f"{seed:04d}.npz"
        if path.exists():
            continue
        began = time.perf_counter()
        found = replicate(args, people, three_way, seed)
        with open(path.with_suffix(".part"), "wb") as stream:
            np.savez_compressed(stream, **found)
        os.replace(path.with_suffix(".part"), path)
        print(
            f"replication {seed}: impossible records TNPLCM {found['tnplcm_impossible'].sum()}, "
            f"NPLCM {found['nplcm_impossible'].sum()}; {time.perf_counter() - began:.1f} s",
            flush=True,
        )
    files = [folder / f"{seed:04d}.npz" for seed in range(args.replications)]
    tables.write(files, args.n, args.out or HERE / f"n{args.n}")


if __name__ == "__main__":
    main()
