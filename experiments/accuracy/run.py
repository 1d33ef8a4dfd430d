"""Repeated samples of the census population: posterior of tau_1 against the truth.

    python experiments/accuracy/run.py                         # the default model, all persons
    python experiments/accuracy/run.py --population adults     # structural zeros removed
    python experiments/accuracy/run.py --concentration record --seeds 5 --sizes 1000 5000

Each line appends to results.csv what is not there yet; `python experiments/accuracy/tables.py` then
makes the tables and figures.
"""

import argparse
import csv
import os
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import bnp_models as bnp
from bnp_models.diagnostics import convergence

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
HELD_OUT = 2000


@partial(jax.jit, static_argnames="num_levels")
def log_p_of_draws(model, draws, cells, num_levels):
    def one(draw):
        return model.log_cell_probability(jax.random.key(0), draw, cells, num_levels)

    return jax.lax.map(one, draws)


def held_out_log_likelihood(run, people, seed) -> float:
    """Mean log posterior predictive probability of records that the sample need not hold."""
    rows = np.random.default_rng(10_000 + seed).choice(len(people), HELD_OUT, replace=False)
    other = bnp.Microdata.from_frame(people.frame.iloc[rows], levels=run.table.schema)
    chosen = slice(None, None, max(1, run.settings.num_samples // 25))
    names = (*run.model.parameters, "alpha")
    draws = {k: run.draws[k][:, chosen].reshape(-1, *run.draws[k].shape[2:]) for k in names}
    codes = jnp.asarray(other.codes, jnp.int32)
    log_p = np.asarray(log_p_of_draws(run.model, draws, codes, run.table.schema.num_levels))
    return float(np.mean(np.logaddexp.reduce(log_p.astype(float), axis=0) - np.log(len(log_p))))


def measure(args, people, n, seed) -> dict:
    sample = people.sample(n, seed)
    truth = people.truth(sample)
    table = bnp.Microdata.from_frame(sample)
    model = bnp.HDPMixedMembership(concentration=args.concentration)
    run = bnp.sample(
        model, table, key=jax.random.key(seed), num_chains=4, num_warmup=args.warmup,
        num_samples=args.draws, thin=args.thin,
    )  # fmt: skip
    began = time.perf_counter()
    risk = bnp.population_risk(run, len(people))
    risk_seconds = time.perf_counter() - began
    low, high = np.quantile(risk.tau1, [0.025, 0.975])
    row = {
        "population": args.population, "concentration": args.concentration, "n": n, "seed": seed,
        "sample_uniques": truth.sample_uniques, "truth": truth.tau1, "mean": risk.tau1.mean(),
        "q025": low, "q975": high, "covered": int(low <= truth.tau1 <= high),
        "truth_tau2": truth.tau2, "mean_tau2": risk.tau2.mean(),
        "held_out": held_out_log_likelihood(run, people, seed),
        "alpha": run.draws["alpha"].mean(),
        "components": " ".join(f"{k:.1f}" for k in run.draws["components"].mean(axis=1)),
        "log_likelihood": " ".join(f"{x:.0f}" for x in risk.log_likelihood.mean(axis=1)),
        "tau1_by_chain": " ".join(f"{x:.1f}" for x in risk.tau1.mean(axis=1)),
        "capacity": run.capacity, "warmup": args.warmup, "draws": args.draws, "thin": args.thin,
        "sweeps_per_second": run.sweeps_per_second, "risk_seconds": risk_seconds,
        "seconds": sum(run.seconds.values()) + risk_seconds,
    }  # fmt: skip
    for name, figures in convergence(run, risk).items():
        row |= {f"rhat_{name}": figures["rhat"], f"ess_{name}": figures["ess_bulk"]}
    return {k: f"{v:.5g}" if isinstance(v, float | np.floating) else v for k, v in row.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--population", choices=("all", "adults"), default="all")
    parser.add_argument("--concentration", default="shared")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000, 10000])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=250)
    parser.add_argument("--thin", type=int, default=4)
    args = parser.parse_args()
    done = set()
    if RESULTS.exists():
        with open(RESULTS, newline="") as stream:
            done = {
                (r["population"], r["concentration"], int(r["n"]), int(r["seed"]))
                for r in csv.DictReader(stream)
            }
    people = bnp.datasets.census_income(adults=args.population == "adults")
    for n in args.sizes:
        for seed in range(args.seeds):
            if (args.population, args.concentration, n, seed) in done:
                continue
            row = measure(args, people, n, seed)
            new = not RESULTS.exists() or os.path.getsize(RESULTS) == 0
            with open(RESULTS, "a", newline="") as stream:
                writer = csv.DictWriter(stream, row)
                if new:
                    writer.writeheader()
                writer.writerow(row)
            print(n, seed, row["truth"], row["mean"], row["q025"], row["q975"], flush=True)


if __name__ == "__main__":
    main()
