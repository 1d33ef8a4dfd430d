"""Repeated samples of the census population: posterior of tau_1 against the truth.

    python experiments/accuracy/known_truth/run.py  # the default model, all persons
    python experiments/accuracy/known_truth/run.py --population adults  # structural zeros removed
    python experiments/accuracy/known_truth/run.py --concentration record --seeds 5
    python experiments/accuracy/known_truth/run.py --level-prior uniform  # as the papers
    python experiments/accuracy/known_truth/run.py --conditions  # under 55 structural zeros
    python experiments/accuracy/known_truth/run.py --population survey --survey FOLDER
    python experiments/accuracy/known_truth/run.py --population simulated  # papers' model

Each line appends to results.csv what is not there yet;
`python experiments/accuracy/known_truth/tables.py` then makes the tables and figures.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np
from populations import NAMES, draw_sample, population
from results import Results

import bnp_models as bnp

HERE = Path(__file__).parent
KEY = ("population", "conditions", "concentration", "level_prior", "n", "seed")
CONDITIONS = HERE.parents[1] / "synthesis" / "repeated_sampling" / "conditions.csv"
HELD_OUT = 2000
SHOWN = ("n", "seed", "truth", "mean", "mean_ties", "q025_ties", "q975_ties")


def measure(args, case) -> dict:
    n, seed = case["n"], case["seed"]
    people = population(args.population, seed, args.survey)
    sample, table, others = draw_sample(people, n, seed, HELD_OUT)
    truth = people.truth(sample)
    zeros = bnp.read_conditions(CONDITIONS, table.schema) if args.conditions else None
    model = bnp.HDPMixedMembership(concentration=args.concentration, level_prior=args.level_prior)
    kept = None if args.chains is None else args.chains / "-".join(map(str, case.values()))
    run = bnp.sample(
        model, table, key=jax.random.key(seed), conditions=zeros, num_chains=4,
        num_warmup=args.warmup, num_samples=args.draws, thin=args.thin,
        start_components=tuple(args.starts), checkpoint=kept, resume=True,
    )  # fmt: skip
    began = time.perf_counter()
    risk = bnp.population_risk(run, len(people))
    risk_seconds = time.perf_counter() - began
    tied = risk.overdispersion.present
    checks = bnp.predictive_checks(run)
    row = case | {
        "sample_uniques": truth.sample_uniques, "truth": truth.tau1, "truth_tau2": truth.tau2,
        **_figures("", risk.overdispersion.tau1, truth.tau1),
        **_figures("_tau2", risk.overdispersion.tau2, truth.tau2),
        **_figures("_ties", risk.tau1, truth.tau1),
        **_figures("_tau2_ties", risk.tau2, truth.tau2),
        "tie_probability": tied.mean(), "tie_shape": np.median(risk.overdispersion.shape[tied]),
        "tie_exponent": risk.overdispersion.exponent[tied].mean(),
        "held_out": bnp.held_out_log_probability(run, others).mean(),
        "alpha": run.draws["alpha"].mean(),
        "components": " ".join(f"{k:.1f}" for k in run.draws["components"].mean(axis=1)),
        "log_likelihood": " ".join(f"{x:.0f}" for x in risk.log_likelihood.mean(axis=1)),
        "tau1_by_chain": " ".join(f"{x:.1f}" for x in risk.tau1.mean(axis=1)),
        "capacity": run.capacity, "warmup": args.warmup, "draws": args.draws, "thin": args.thin,
        "sweeps_per_second": run.sweeps_per_second, "risk_seconds": risk_seconds,
        "seconds": sum(run.seconds.values()) + risk_seconds,
    }  # fmt: skip
    for name, figures in bnp.diagnose(run, risk).figures.items():
        row |= {f"rhat_{name}": figures["rhat"], f"ess_{name}": figures["ess_bulk"]}
    return row | {
        "z_uniques": checks.cells[1].z, "z_doubles": checks.cells[2].z,
        "z_worst_pair": max(check.z for check in checks.pairs.values()),
    }  # fmt: skip


def _figures(name, draws, truth) -> dict:
    """Mean and 95% interval of a figure, and whether the interval holds the truth."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return {
        f"mean{name}": draws.mean(), f"q025{name}": low, f"q975{name}": high,
        f"covered{name}": int(low <= truth <= high),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--population", choices=NAMES, default="all")
    parser.add_argument("--survey", type=Path, help="folder of national2019.csv.gz")
    parser.add_argument("--conditions", action="store_true", help="the 55 of repeated_sampling")
    parser.add_argument("--concentration", default="shared")
    parser.add_argument("--level-prior", default="learned")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000, 10000])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=250)
    parser.add_argument("--thin", type=int, default=4)
    parser.add_argument("--starts", type=int, nargs="+", default=[30, 60, 40, 50])
    parser.add_argument("--chains", type=Path, help="folder in which chains are kept, and found")
    parser.add_argument("--minutes", type=float, help="begin no sample later than this")
    args = parser.parse_args()
    results = Results(HERE / "results.csv", KEY, args.minutes)
    same = {
        "population": args.population, "conditions": 55 if args.conditions else 0,
        "concentration": args.concentration, "level_prior": args.level_prior,
    }  # fmt: skip
    cases = (same | {"n": n, "seed": seed} for n in args.sizes for seed in range(args.seeds))
    for case in results.missing(cases):
        row = measure(args, case)
        results.append(row)
        print(*(row[name] for name in SHOWN), flush=True)


if __name__ == "__main__":
    main()
