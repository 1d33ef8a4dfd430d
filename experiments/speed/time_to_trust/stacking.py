"""Chains in different modes, weighted by their prediction of held-out records, for comparison.

    python experiments/speed/time_to_trust/stacking.py               # resumes
    python experiments/speed/time_to_trust/stacking.py --minutes 10  # begins no row later

A row is four short chains of the HDP under 55 conditions on a sample of the census. As many further
records of the population are held out. Stacking (Yao, Vehtari, Simpson & Gelman 2018,
doi:10.1214/17-BA1091) weighs the chains by the first half of these; the second half judges equal
and stacked weights, as does the true tau_1. Appends to stacking.csv and writes stacking.md.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from scipy.special import logsumexp

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from populations import draw_sample  # noqa: E402
from results import Results, markdown  # noqa: E402
from run import CONDITIONS  # noqa: E402

CASE = ("n", "sweeps", "seed")
CASES = [(n, sweeps, seed) for n, sweeps in ((1000, 500), (1000, 2000), (5000, 500))
         for seed in (101, 102, 103)]  # fmt: skip
ROUNDS = 2000


def chain_of(run, number):
    """The run with one chain only."""
    settings = dataclasses.replace(
        run.settings, num_chains=1, start_components=run.settings.start_components[:1]
    )
    draws = {name: x[[number]] for name, x in run.draws.items()}
    return dataclasses.replace(run, settings=settings, draws=draws)


def stacked(log_p):
    """Weights of chains with the largest sum of log mixtures, by expectation-maximisation."""
    weight = np.full(len(log_p), 1 / len(log_p))
    for _ in range(ROUNDS):
        log_share = np.log(weight)[:, None] + log_p
        weight = np.exp(log_share - logsumexp(log_share, axis=0)).mean(axis=1)
        weight = np.maximum(weight, 1e-12)
    return weight / weight.sum()


def measure(n, sweeps, seed):
    """Weights, held-out log probability and tau_1, by equal and by stacked weights."""
    people = bnp.datasets.census_income()
    sample, table, others = draw_sample(people, n, seed, n)
    conditions = bnp.read_conditions(CONDITIONS, table.schema)
    run = bnp.sample(
        bnp.HDPMixedMembership(), table, key=jax.random.key(seed), conditions=conditions,
        num_chains=4, num_warmup=sweeps, num_samples=sweeps,
    )  # fmt: skip
    log_p = np.stack([bnp.held_out_log_probability(chain_of(run, c), others) for c in range(4)])
    half = len(others) // 2
    weights = {"equal": np.full(4, 0.25), "stacked": stacked(log_p[:, :half])}
    risk = bnp.population_risk(run, len(people))
    tau1 = risk.tau1
    row = {
        "tau1_true": people.truth(sample).tau1,
        "rhat_tau1": figures_of(tau1)["rhat"],
        "rhat_log_likelihood": figures_of(risk.log_likelihood)["rhat"],
        "tau1_chains": " ".join(f"{x:.1f}" for x in tau1.mean(axis=1)),
        "weights": " ".join(f"{x:.2f}" for x in weights["stacked"]),
    }
    for name, weight in weights.items():
        held_out = logsumexp(np.log(weight)[:, None] + log_p[:, half:], axis=0)
        row[f"held_out_{name}"] = held_out.mean()
        row[f"tau1_{name}"] = weight @ tau1.mean(axis=1)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="begin no row later than this")
    args = parser.parse_args()
    results = Results(HERE / "stacking.csv", CASE, args.minutes)
    for case in results.missing(dict(zip(CASE, case, strict=True)) for case in CASES):
        results.append(case | measure(**case))
        table = pd.read_csv(HERE / "stacking.csv")
        (HERE / "stacking.md").write_text(markdown(table, index=False) + "\n")


if __name__ == "__main__":
    main()
