"""Sequential trees and random forests on the repeated samples, as `run.py` has the models.

    python -m pip install "scikit-learn>=1.5"
    python experiments/synthesis/repeated_sampling/trees.py --minutes 20

The samples and quantities are those of `run.py`; the makers of files are those of
``experiments/synthesis/peers``. Keeps a file per replication and maker, goes on with those that are
not there yet, and then makes the table and the figures of those that are there.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import tables
from proportions import ThreeWay

import bnp_models as bnp

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "peers"))
import methods  # noqa: E402


def replicate(maker, table, zeros, three_way, seed) -> dict[str, np.ndarray]:
    """Counts of all cells of three-way tables: of the sample, and of the files of one maker."""
    began = time.perf_counter()
    made = getattr(methods, maker)(table, zeros, None, seed)
    seconds = time.perf_counter() - began
    files = [bnp.Microdata(table.schema, codes) for codes in made]
    uniques = bnp.evaluation.replicated_uniques(table, files)
    return {
        "original": three_way.counts(table.codes),
        maker: np.stack([three_way.counts(codes) for codes in made]),
        "impossible": np.array([zeros.contains(codes).sum() for codes in made]),
        "recurring": np.mean(uniques.found) / uniques.uniques,
        "seconds": np.array(seconds),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--n", type=int, default=5000, help="records of a sample")
    parser.add_argument("--makers", nargs="+", choices=tables.TREES, default=[*tables.TREES])
    parser.add_argument("--minutes", type=float, default=np.inf, help="begin no replication later")
    parser.add_argument("--out", type=Path, help="folder of the table and figures (default: n5000)")
    args = parser.parse_args()
    people = bnp.datasets.census_income()
    schema = bnp.Microdata.from_frame(people.frame).schema
    zeros, three_way = bnp.read_conditions(HERE / "conditions.csv", schema), ThreeWay(schema)
    folder = HERE / "replications" / f"n{args.n}_m{methods.FILES}"
    end = time.monotonic() + 60 * args.minutes
    for seed in range(args.replications):
        for maker in args.makers:
            path = folder / maker / f"{seed:04d}.npz"
            if path.exists() or time.monotonic() > end:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            table = bnp.Microdata.from_frame(people.sample(args.n, seed), levels=schema)
            found = replicate(maker, table, zeros, three_way, seed)
            with open(path.with_suffix(".part"), "wb") as stream:
                np.savez_compressed(stream, **found)
            os.replace(path.with_suffix(".part"), path)
            print(f"replication {seed}, {maker}: {found['seconds']:.1f} s", flush=True)
    files = {maker: sorted((folder / maker).glob("*.npz")) for maker in tables.TREES}
    tables.write_trees(files, args.n, args.out or HERE / f"n{args.n}")


if __name__ == "__main__":
    main()
