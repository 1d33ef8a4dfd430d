"""Coverage of intervals of tau_1 by the agreement of the chains on supporting quantities.

    python experiments/accuracy/layer_prior/agreement.py CHAINS

CHAINS has the files of `chains.py sample`, and results.csv the results of `fit.py`. The samples are
in four classes by R-hat of a quantity. Because populations differ in R-hat and in coverage, they
are also in two classes: R-hat above and below the median of the samples of the same population and
size. The script writes agreement.md.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from bnp_models.inference.convergence import figures_of

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "known_truth"))
from results import markdown  # noqa: E402

# "tau1" is what the model alone expects of it, at each draw.
QUANTITIES = ("alpha", "components", "tau1")


def figures(path):
    """R-hat of a sample's chains, those with ordered variables."""
    population, n, seed = path.stem.rsplit("-", 2)
    stored = np.load(path)
    found = {"population": population, "n": int(n), "seed": int(seed)}
    return found | {name: figures_of(stored[name][1])["rhat"] for name in QUANTITIES}


def summary(rows, by, name):
    """Coverage, relative error and score of the samples of each class."""
    found = rows.groupby(by).agg(
        samples=("held", "size"), least=(name, "min"), largest=(name, "max"), held=("held", "mean"),
        error=("error", "mean"), score=("score", "mean"),
    )  # fmt: skip
    return markdown(found.round(3))


def main():
    rhats = pd.DataFrame([figures(path) for path in sorted(Path(sys.argv[1]).glob("*.npz"))])
    rows = pd.read_csv(HERE / "results.csv").query("way == 'now' and tau == 'tau1'")
    rows = rows.merge(rhats, on=["population", "n", "seed"], validate="one_to_one")
    rows["held"] = rows.truth.between(rows.q025, rows.q975)
    rows["error"] = (rows["mean"] / rows.truth - 1).abs()
    rows["score"] /= rows.truth
    parts = []
    for name in QUANTITIES:
        rows["quarter"] = 1 + pd.qcut(rows[name], 4, labels=False)
        of_row = rows.groupby(["population", "n"])[name].transform("median")
        rows["half"] = np.where(rows[name] > of_row, "above its row's median", "below")
        parts += [
            f"## R-hat of {name}",
            summary(rows, "quarter", name),
            summary(rows, "half", name),
        ]
    (HERE / "agreement.md").write_text("\n\n".join(parts) + "\n")
    print(*parts, sep="\n\n")


if __name__ == "__main__":
    main()
