"""Risk, margins and synthetic files of samples drawn with unequal probabilities.

    python experiments/accuracy/survey_weights/run.py

Ten samples of 2,000 of the adults of the census population, drawn with unequal probabilities: older
persons, graduates and minorities more often, and all by a factor of their own that depends on
nothing. Each is fitted with its weights and without. Writes results.csv a row at a time, and
table.md; another call goes on where one was stopped.
"""

import argparse
import itertools
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "known_truth"))
from results import Results, markdown  # noqa: E402

SAMPLES, SIZE = 10, 2000
MODELS = {"nplcm": bnp.NPLCM(components=40), "hdp": bnp.HDPMixedMembership()}
CHAINS = {"num_chains": 2, "num_warmup": 300, "num_samples": 300}
STARTS = {"nplcm": {}, "hdp": {"start_components": (20, 60)}}
DATASETS = 5

OLDER = {"15-24": 1, "25-34": 1, "35-44": 1.5, "45-54": 2, "55-64": 3, "65-74": 4, "75+": 4}


def inclusion(frame: pd.DataFrame) -> np.ndarray:
    """Probability that each person is included; they add up to 2,000."""
    rate = frame["age"].map(OLDER).astype(float).to_numpy()
    rate = rate * np.where(frame["education"] == "Bachelor or higher", 2.5, 1)
    rate = rate * np.where(frame["race"] == "White", 1, 1.5)
    rate = rate * np.random.default_rng(0).uniform(0.8, 1.25, len(frame))
    return SIZE * rate / rate.sum()


def systematic_sample(included: np.ndarray, seed: int) -> np.ndarray:
    """Rows of persons drawn with these probabilities: systematically, in random order."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(included))
    reached = np.cumsum(included[order]) + rng.random()
    return np.sort(order[np.diff(np.floor(reached), prepend=0) > 0])


def shares(table: bnp.Microdata, variables: tuple[int, ...], weights=None) -> np.ndarray:
    """Table of some variables, as shares."""
    sizes = [table.schema.num_levels[j] for j in variables]
    cell = np.ravel_multi_index([table.codes[:, j] for j in variables], sizes)
    found = np.bincount(cell, weights, int(np.prod(sizes)))
    return found / found.sum()


def distance(table, population, number, weights=None) -> float:
    """Total variation to the population, the mean over all tables of so many variables."""
    of = itertools.combinations(range(table.num_variables), number)
    return float(np.mean([
        np.abs(shares(table, js, weights) - shares(population, js)).sum() / 2 for js in of
    ]))  # fmt: skip


def figures(run, population, truth) -> dict:
    """Errors of everything that is made of a run."""
    size = population.n
    risk = bnp.population_risk(run, size, thin=3)
    margins = bnp.level_margins(run).draws.reshape(-1, sum(population.schema.num_levels))
    true = np.concatenate([shares(population, (j,)) for j in range(population.num_variables)])
    low, high = np.quantile(margins, [0.025, 0.975], axis=0)
    files = [
        bnp.Microdata.from_frame(made, levels=population.schema)
        for made in bnp.synthesize(run, DATASETS)
    ]
    found = {}
    for name, of_draws, value in (("tau1", risk.tau1, truth.tau1), ("tau2", risk.tau2, truth.tau2)):
        low_tau, high_tau = np.quantile(of_draws, [0.025, 0.975])
        found |= {
            f"{name}_true": value, name: of_draws.mean(), f"{name}_q025": low_tau,
            f"{name}_q975": high_tau, f"{name}_held": int(low_tau <= value <= high_tau),
        }  # fmt: skip
    varies = true > 0
    found |= {
        "margins_error": np.abs(margins.mean(axis=0) - true).mean(),
        "margins_held": np.mean(((low <= true) & (true <= high))[varies]),
    }
    for number in (1, 2, 3):
        found[f"tv{number}"] = np.mean([distance(made, population, number) for made in files])
    figure = bnp.diagnose(run, risk).figures
    return found | {"rhat_tau1": figure["tau1"]["rhat"], "seconds": sum(run.seconds.values())}


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """One row for each model, with weights and without: means over the samples."""
    results = results.assign(
        tau1_ratio=results["tau1"] / results["tau1_true"],
        tau2_ratio=results["tau2"] / results["tau2_true"],
    )
    columns = ["tau1_true", "tau1", "tau1_ratio", "tau1_held", "tau2_true", "tau2", "tau2_ratio",
               "tau2_held", "margins_error", "margins_held", "tv1", "tv2", "tv3", "rhat_tau1",
               "seconds"]  # fmt: skip
    table = results.groupby(["model", "weights"], sort=False)[columns].mean()
    table[["tau1_held", "tau2_held"]] *= len(results["sample"].unique())
    return table.reset_index()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="begin no row later than this")
    options = parser.parse_args()
    adults = bnp.datasets.census_income(adults=True)
    population = bnp.Microdata.from_frame(adults.frame)
    included = inclusion(adults.frame)
    results = Results(HERE / "results.csv", ("sample", "model", "weights"), minutes=options.minutes)
    cases = (
        {"sample": seed, "model": model, "weights": weights}
        for seed in range(SAMPLES) for model in MODELS for weights in ("yes", "no")
    )  # fmt: skip
    for case in results.missing(cases):
        seed = case["sample"]
        rows = systematic_sample(included, seed)
        frame = adults.frame.iloc[rows].reset_index(drop=True)
        weights = 1 / included[rows]
        table = bnp.Microdata.from_frame(frame, levels=population.schema)
        fitted = bnp.weighted_microdata(table, weights) if case["weights"] == "yes" else table
        run = bnp.sample(
            MODELS[case["model"]], fitted, key=jax.random.key(seed), **CHAINS,
            **STARTS[case["model"]],
        )  # fmt: skip
        truth = adults.truth(frame)
        own = {
            f"sample_tv{number}": distance(
                table, population, number, weights if case["weights"] == "yes" else None
            )
            for number in (1, 2, 3)
        }
        of_sample = {
            "n": table.n, "least_weight": weights.min(), "largest_weight": weights.max(),
            "sum_of_weights": weights.sum(), "sample_uniques": truth.sample_uniques,
        }  # fmt: skip
        results.append(case | of_sample | figures(run, population, truth) | own)
    found = pd.read_csv(HERE / "results.csv")
    (HERE / "table.md").write_text(markdown(summary(found), index=False) + "\n")


if __name__ == "__main__":
    main()
