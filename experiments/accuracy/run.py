"""Repeated samples of the census population: posterior of tau_1 against the truth.

    python experiments/accuracy/run.py                         # the default model, all persons
    python experiments/accuracy/run.py --population adults     # structural zeros removed
    python experiments/accuracy/run.py --concentration record --seeds 5 --sizes 1000 5000
    python experiments/accuracy/run.py --level-prior uniform   # the paper's prior of the levels

Each line appends to results.csv what is not there yet; `python experiments/accuracy/tables.py` then
makes the tables and figures.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np
from held_out import held_out_log_likelihood
from results import Results

import bnp_models as bnp
from bnp_models.inference.convergence import convergence

HERE = Path(__file__).parent
KEY = ("population", "concentration", "level_prior", "n", "seed")
HELD_OUT = 2000


def measure(args, people, n, seed) -> dict:
    sample = people.sample(n, seed)
    truth = people.truth(sample)
    table = bnp.Microdata.from_frame(sample)
    model = bnp.HDPMixedMembership(concentration=args.concentration, level_prior=args.level_prior)
    run = bnp.sample(
        model, table, key=jax.random.key(seed), num_chains=4, num_warmup=args.warmup,
        num_samples=args.draws, thin=args.thin, start_components=tuple(args.starts),
    )  # fmt: skip
    began = time.perf_counter()
    risk = bnp.population_risk(run, len(people))
    risk_seconds = time.perf_counter() - began
    low, high = np.quantile(risk.tau1, [0.025, 0.975])
    low_tau2, high_tau2 = np.quantile(risk.tau2, [0.025, 0.975])
    checks = bnp.predictive_checks(run)
    chosen = np.random.default_rng(10_000 + seed).choice(len(people), HELD_OUT, replace=False)
    others = bnp.Microdata.from_frame(people.frame.iloc[chosen], levels=table.schema)
    row = {
        "population": args.population, "concentration": args.concentration,
        "level_prior": args.level_prior, "n": n, "seed": seed,
        "sample_uniques": truth.sample_uniques, "truth": truth.tau1, "mean": risk.tau1.mean(),
        "q025": low, "q975": high, "covered": int(low <= truth.tau1 <= high),
        "truth_tau2": truth.tau2, "mean_tau2": risk.tau2.mean(),
        "held_out": held_out_log_likelihood(run, others.codes),
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
    return row | {
        "z_uniques": checks.cells[1].z, "z_doubles": checks.cells[2].z,
        "z_worst_pair": max(check.z for check in checks.pairs.values()),
        "q025_tau2": low_tau2, "q975_tau2": high_tau2,
        "covered_tau2": int(low_tau2 <= truth.tau2 <= high_tau2),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--population", choices=("all", "adults"), default="all")
    parser.add_argument("--concentration", default="shared")
    parser.add_argument("--level-prior", default="learned")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000, 10000])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=250)
    parser.add_argument("--thin", type=int, default=4)
    parser.add_argument("--starts", type=int, nargs="+", default=[30, 60, 40, 50])
    parser.add_argument("--minutes", type=float, help="begin no sample later than this")
    args = parser.parse_args()
    results = Results(HERE / "results.csv", KEY, args.minutes)
    people = bnp.datasets.census_income(adults=args.population == "adults")
    same = {"population": args.population, "concentration": args.concentration,
            "level_prior": args.level_prior}  # fmt: skip
    cases = (same | {"n": n, "seed": seed} for n in args.sizes for seed in range(args.seeds))
    for case in results.missing(cases):
        row = measure(args, people, case["n"], case["seed"])
        results.append(row)
        print(*(row[name] for name in ("n", "seed", "truth", "mean", "q025", "q975")), flush=True)


if __name__ == "__main__":
    main()
