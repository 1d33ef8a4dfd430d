"""Coverage of tau_1 under structural zeros, where the data come from the model.

    python experiments/papers/structural_zeros/run.py
    python experiments/papers/structural_zeros/run.py --option not_applicable --n 1000 --minutes 30

Populations of 100,000 simulated from HDP mixed membership under 60 conditions that make 90% of the
cells impossible, each with parameters of its own; a sample of each; the posterior of tau_1 against
the truth. Appends to results.csv what is not there yet, then makes tables.md and intervals.png
(`tables.py`). A population's number is the seed of all that is random in it.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
import tables
from simulated import PEOPLE, draw_sample, population

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import Results  # noqa: E402

KEY = ("option", "n", "seed", "warmup", "draws", "thin", "starts")
OPTIONS = {
    "default": {},
    "not_applicable": {"not_applicable": True},
    "simulation": {"augmentation": "simulation"},
    "concentration=record": {"concentration": "record"},
    "concentration=hierarchical": {"concentration": "hierarchical"},
    "concentration=shared": {},
}
NUM_CHAINS = 3


def measure(case) -> dict:
    """One row: a sample, its fit, and how far that is from the truth."""
    zeros, _, share, _, _ = population(case["seed"])
    table, truth = draw_sample(case["seed"], case["n"])
    key = jax.random.fold_in(jax.random.key(case["seed"]), case["n"])
    run = bnp.sample(
        bnp.HDPMixedMembership(**OPTIONS[case["option"]]), table, key=key, conditions=zeros,
        num_chains=NUM_CHAINS, num_warmup=case["warmup"], num_samples=case["draws"],
        thin=case["thin"], start_components=[int(number) for number in case["starts"].split()],
    )  # fmt: skip
    began = time.perf_counter()
    risk = bnp.population_risk(run, PEOPLE, ties="off")
    risk_seconds = time.perf_counter() - began
    low, high = np.quantile(risk.tau1, [0.025, 0.975])
    low_conditional, high_conditional = np.quantile(risk.tau1_conditional, [0.025, 0.975])
    row = case | {
        "sample_uniques": len(risk.rows), "truth": truth, "mean": risk.tau1.mean(),
        "q025": low, "q975": high, "covered": int(low <= truth <= high),
        "covered_conditional": int(low_conditional <= truth <= high_conditional),
        "alpha": run.draws["alpha"].mean(),
        "components": " ".join(f"{k:.1f}" for k in run.draws["components"].mean(axis=1)),
        "log_likelihood": " ".join(f"{x:.1f}" for x in risk.log_likelihood.mean(axis=1)),
        "tau1_by_chain": " ".join(f"{x:.1f}" for x in risk.tau1.mean(axis=1)),
        "true_log_feasible": float(np.log(share)),
        "log_feasible": run.draws["log_feasible"].mean(),
        "rhat_log_feasible": figures_of(run.draws["log_feasible"])["rhat"],
        "capacity": run.capacity, "sweeps_per_second": run.sweeps_per_second,
        "compile_seconds": run.seconds["compile"], "risk_seconds": risk_seconds,
        "seconds": run.seconds["warmup"] + run.seconds["draws"] + risk_seconds,
    }  # fmt: skip
    for name, figures in bnp.diagnose(run, risk).figures.items():
        row |= {f"rhat_{name}": figures["rhat"], f"ess_{name}": figures["ess_bulk"]}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[1000, 5000, 10000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(20)], help="populations")
    parser.add_argument("--warmup", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=750)
    parser.add_argument("--thin", type=int, default=8)
    parser.add_argument(
        "--starts", type=int, nargs="+", default=bnp.HDPMixedMembership.start_components,
        help="components (the model's: 10 50 200)",
    )  # fmt: skip
    parser.add_argument("--option", nargs="+", choices=OPTIONS, default=["default"])
    parser.add_argument("--minutes", type=float, help="begin no sample later than this")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the results are")
    args = parser.parse_args()
    length = {"warmup": args.warmup, "draws": args.draws, "thin": args.thin}
    chains = length | {"starts": " ".join(map(str, args.starts))}
    options = ["default" if o == "concentration=shared" else o for o in args.option]
    results = Results(args.folder / "results.csv", KEY, args.minutes)
    # A population is simulated once; all sizes have as many samples when the time is used up.
    cases = (
        {"option": option, "n": n, "seed": seed} | chains
        for seed in args.seeds
        for n in args.n
        for option in dict.fromkeys(options)
    )
    for case in results.missing(cases):
        row = measure(case)
        results.append(row)
        # Compiled code adds up, in memory and in maps of it, of which Linux allows 65,530.
        jax.clear_caches()
        print(
            f"{row['option']}, n = {row['n']}, population {row['seed']}: tau_1 {row['truth']}, "
            f"estimate {row['mean']:.1f} ({row['q025']:.0f} to {row['q975']:.0f}), "
            f"R-hat {row['rhat_tau1'] or np.nan:.3f}, {row['seconds']:.0f} s",
            flush=True,
        )
    tables.write(args.folder)


if __name__ == "__main__":
    main()
