"""Others' estimates of the risk of samples of known populations, and the truth.

    python experiments/accuracy/risk_peers/run.py POPULATIONS_FOLDER [NIST_FILE]

`--methods table-priors exchangeable --seeds 5 --out cells.csv` measures the models of cells. Rows
that the file has already are not made again; `python experiments/accuracy/risk_peers/tables.py`
then makes the tables.
"""

import argparse
import itertools
import sys
import time
from pathlib import Path

from methods import METHODS, Method, interval
from samples import draw_sample, populations
from table_priors import ESTIMATED, EXCHANGEABLE, SEARCHED_OR_LISTED, TABLE_PRIORS, leave_out

import bnp_models as bnp

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "known_truth"))

from results import Results  # noqa: E402

SETS = {
    "peers": METHODS, "table-priors": TABLE_PRIORS, "slow-table-priors": SEARCHED_OR_LISTED,
    "exchangeable": EXCHANGEABLE, "estimated": ESTIMATED,
}  # fmt: skip
KEY = ("population", "n", "seed", "method")


def measure(
    case: dict, method: Method, cells: bnp.data.WeightedCells, truth: bnp.datasets.Truth
) -> dict | None:
    """A row of results; None where the method refuses the sample."""
    began = time.perf_counter()
    try:
        found = method(cells, case["seed"])
    except (bnp.MicrodataError, bnp.NoMaximumError):
        return None
    seconds = time.perf_counter() - began
    lower, upper = found.limits or interval(found.p_unique)
    return case | {
        "sample_uniques": truth.sample_uniques, "truth1": truth.tau1, "truth2": truth.tau2,
        "estimate1": found.tau1, "estimate2": found.tau2, "lower": lower, "upper": upper,
        "seconds": seconds,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("nist", type=Path, nargs="?")
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 2000, 5000])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--populations", nargs="+")
    parser.add_argument("--methods", nargs="+", choices=SETS, default=["peers"])
    parser.add_argument("--out", type=Path, default=HERE / "results.csv")
    args = parser.parse_args()
    results = Results(args.out, KEY)
    methods = {name: method for chosen in args.methods for name, method in SETS[chosen].items()}
    for name, frame in populations(args.folder, args.nist):
        if name not in (args.populations or [name]):
            continue
        leave_out(name)
        people = bnp.datasets.Population(frame, source=name, licence="")
        for n, seed in itertools.product(args.sizes, range(args.seeds)):
            case = {"population": name, "n": n, "seed": seed}
            cases = list(results.missing(case | {"method": method} for method in methods))
            if not cases:
                continue
            sample = draw_sample(frame, n, seed)
            truth = people.truth(sample)
            cells = bnp.weighted_cells(bnp.Microdata.from_frame(sample), len(people))
            rows = [measure(case, methods[case["method"]], cells, truth) for case in cases]
            for row in rows:
                if row is not None:
                    results.append(row)
        print(name, f"{time.process_time():.0f} s", flush=True)


if __name__ == "__main__":
    main()
