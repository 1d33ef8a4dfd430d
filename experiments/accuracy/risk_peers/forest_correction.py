"""The correction for overdispersion about a log-linear forest: its prior, one population left out.

    python experiments/accuracy/risk_peers/forest_correction.py POPULATIONS_FOLDER NIST_FILE

For each sample of run.py, a forest is fitted, and the pair of shape and exponent is found that best
explains the counts of the *population* in the cells of the sample, as in ../layer_prior for the
HDP. Then tau_1 and tau_2 are estimated by `bnp.loglinear_risk`, with a prior that is fitted to the
pairs of the other populations. On three samples of each population and size, the prior is also
fitted to the HDP's pairs, and the likelihood raised to other powers. The script writes
forest_laws.csv and forest_results.csv a row at a time, and forest.md.
"""

import argparse
import itertools
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.risk import overdispersion
from bnp_models.risk.loglinear import corrected

HERE = Path(__file__).parent
LAYER_PRIOR = HERE.parent / "layer_prior"
sys.path += [str(HERE.parent / "known_truth"), str(LAYER_PRIOR)]
from fit import GRID, GROUPS, LOG10_SHAPE, markdown, of_population, summary  # noqa: E402
from rest import prior_of_others  # noqa: E402
from results import Results  # noqa: E402
from samples import draw_sample, populations, truth  # noqa: E402

# Of each population and size; the other ways are compared on the first of these.
SIZES, NUM_SEEDS, NUM_COMPARED = (500, 1000, 2000, 5000), 10, 3
LAWS, RESULTS = HERE / "forest_laws.csv", HERE / "forest_results.csv"
NOW = "now"
# Which pairs the prior is fitted to, and the power of the likelihood.
WAYS = {
    NOW: ("forest", overdispersion.LIKELIHOOD_POWER),
    "prior of the HDP": ("HDP", overdispersion.LIKELIHOOD_POWER),
    "power 0": ("forest", 0.0),
    "power 1": ("forest", 1.0),
}


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


def laws_of_forests() -> pd.DataFrame:
    """The pair of each sample."""
    return pd.read_csv(LAWS)


def laws_of_hdp() -> pd.DataFrame:
    """The HDP's pairs, of the samples that it has."""
    laws = pd.read_csv(LAYER_PRIOR / "laws.csv")
    return laws[laws.ordered == "auto"]


def rows_of(case: dict, frame: pd.DataFrame, priors: dict) -> list[dict]:
    """Rows of tau_1 and tau_2 of a sample, by each way."""
    sample = draw_sample(frame, case["n"], case["seed"])
    true = truth(frame, sample)
    cells = bnp.weighted_cells(bnp.Microdata.from_frame(sample), len(frame))
    forest, key = bnp.loglinear_risk(cells, structure="forest"), jax.random.key(case["seed"])
    rows, now = [], overdispersion.LIKELIHOOD_POWER
    ways = WAYS if case["seed"] < NUM_COMPARED else {NOW: WAYS[NOW]}
    for way, (laws, power) in ways.items():
        overdispersion.LIKELIHOOD_POWER = power
        found = corrected(forest, cells, key, priors[laws])
        for tau in ("tau1", "tau2"):
            of_truth, (low, high) = getattr(true, tau), getattr(found, f"{tau}_interval")
            score = high - low + 40 * (max(low - of_truth, 0) + max(of_truth - high, 0))
            rows.append(case | {
                "way": way, "tau": tau, "truth": of_truth, "mean": getattr(found, tau),
                "q025": low, "q975": high, "score": score,
            })  # fmt: skip
    overdispersion.LIKELIHOOD_POWER = now
    return rows


def figures(rows: pd.DataFrame, by: str | list[str]) -> pd.DataFrame:
    """The figures of ../layer_prior, and the mean absolute error relative to the truth."""
    errors = rows.assign(absolute_error=(rows["mean"] / rows.truth - 1).abs())
    found = errors.groupby(by)["absolute_error"].mean().round(3).reset_index()
    return summary(rows, by).merge(found)


def beside_hdp(now: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Figures of the samples that the HDP has, and in how many rows the forest is nearer to tau_1.

    A row is a combination of population and size.
    """
    key = ["population", "n", "seed", "tau"]
    hdp = pd.read_csv(LAYER_PRIOR / "results.csv")
    hdp = hdp[hdp.way == NOW].assign(model="HDP")
    both = pd.concat([now.assign(model="forest"), hdp]).merge(hdp[key])
    tau1 = both[both.tau == "tau1"]
    errors = tau1.assign(error=(tau1["mean"] / tau1.truth - 1).abs())
    of_row = errors.pivot_table(index=["population", "n"], columns="model", values="error")
    nearer = f"{(of_row.forest < of_row.HDP).sum()} of {len(of_row)}"
    return figures(both, ["tau", "model"]), nearer


def write_tables() -> None:
    """forest.md."""
    laws, rows = laws_of_forests(), pd.read_csv(RESULTS)
    pairs = laws.assign(group=laws.population.replace(GROUPS)).groupby("group")
    prior, now = prior_of_others(laws), rows[rows.way == NOW]
    compared, (of_both, nearer) = rows[rows.seed < NUM_COMPARED], beside_hdp(now)
    parts = [
        "Shape and exponent that populations need about a forest",
        markdown(pairs[["log10_shape", "exponent", "gain"]].mean().round(2).reset_index()),
        "Location and scale over populations: log10 of the shape {:.2f}, {:.2f}; exponent {:.2f}, "
        "{:.2f}.".format(*prior.log10_shape, *prior.exponent),
        "All samples", markdown(figures(now, "tau")),
        "Samples that the HDP has", markdown(of_both),
        f"The forest is nearer to tau_1 in {nearer} combinations of population and size.",
        "By size", markdown(figures(now, ["tau", "n"])),
        "By population", markdown(figures(now, ["tau", "population"])),
        f"By prior and power, on {NUM_COMPARED} samples of each population and size",
        markdown(figures(compared, ["tau", "way"])),
    ]  # fmt: skip
    (HERE / "forest.md").write_text("\n\n".join(parts) + "\n")
    print(*parts[2:], sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("nist", type=Path)
    args = parser.parse_args()
    key, grid = ("population", "n", "seed"), list(itertools.product(SIZES, range(NUM_SEEDS)))

    def cases(name):
        return ({"population": name, "n": n, "seed": seed} for n, seed in grid)

    results = Results(LAWS, key)
    for name, frame in populations(args.folder, args.nist):
        frame = frame.astype("category")
        counts = pd.Series(cell_numbers(frame)).value_counts()
        for case in results.missing(cases(name)):
            sample = draw_sample(frame, case["n"], case["seed"])
            results.append(case | law_of(sample, counts))
    results = Results(RESULTS, key)
    for name, frame in populations(args.folder, args.nist):
        laws = {"forest": laws_of_forests(), "HDP": laws_of_hdp()}
        priors = {of: prior_of_others(pairs, name) for of, pairs in laws.items()}
        for case in results.missing(cases(name)):
            for row in rows_of(case, frame, priors):
                results.append(row)
        print(name, flush=True)
    write_tables()


if __name__ == "__main__":
    main()
