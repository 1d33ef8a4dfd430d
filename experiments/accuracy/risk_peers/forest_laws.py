"""Shape and exponent of the correction about a log-linear forest, by population.

    python experiments/accuracy/risk_peers/forest_laws.py POPULATIONS_FOLDER NIST_FILE

For each sample of run.py, a forest is fitted, and the pair of shape and exponent is found that best
explains the counts of the *population* in the cells of the sample, as in ../layer_prior for the
HDP. The script writes forest_laws.csv, and prints the prior that is fitted to all populations.
"""

import argparse
import itertools
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import bnp_models as bnp

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "known_truth"), str(HERE.parent / "layer_prior")]
from fit import GRID, LOG10_SHAPE, of_population  # noqa: E402
from rest import prior_of_others  # noqa: E402
from results import Results  # noqa: E402
from samples import draw_sample, populations  # noqa: E402

SIZES, NUM_SEEDS = (500, 1000, 2000, 5000), 10
LAWS = HERE / "forest_laws.csv"


def cell_numbers(frame: pd.DataFrame) -> np.ndarray:
    """A number for each person, alike for those whose values are all alike."""
    codes = [frame[name].cat.codes.to_numpy(np.int64) for name in frame]
    sizes = [len(frame[name].cat.categories) for name in frame]
    return np.ravel_multi_index(codes, sizes)


def law_of(sample: pd.DataFrame, in_population: pd.Series) -> dict:
    """The best pair of a sample, and its gain in log-likelihood over the forest alone.

    `in_population` has the count of each cell of the population, by number.
    """
    size = int(in_population.sum())
    cells = bnp.weighted_cells(bnp.Microdata.from_frame(sample), size)
    b = bnp.loglinear_risk(cells, structure="forest").population_mean / size
    of_cell = np.empty(len(cells.f))
    of_cell[cells.table.cells().record_cell] = in_population[cell_numbers(sample)]
    found = of_population(b, cells.f, of_cell, size)
    best = np.argmax(found[:-1])
    return {
        "log10_shape": round(LOG10_SHAPE[best], 3),
        "exponent": GRID[1][best],
        "gain": round(found[best] - found[-1], 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("nist", type=Path)
    args = parser.parse_args()
    results = Results(LAWS, ("population", "n", "seed"))
    for name, frame in populations(args.folder, args.nist):
        frame = frame.astype("category")
        counts = pd.Series(cell_numbers(frame)).value_counts()
        grid = itertools.product(SIZES, range(NUM_SEEDS))
        for case in results.missing({"population": name, "n": n, "seed": s} for n, s in grid):
            sample = draw_sample(frame, case["n"], case["seed"])
            results.append(case | law_of(sample, counts))
        print(name, flush=True)
    print(prior_of_others(pd.read_csv(LAWS)))


if __name__ == "__main__":
    main()
