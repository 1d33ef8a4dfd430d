"""Eight scattered chains on the hardest cases on record: which agree, after how long.

    python experiments/speed/time_to_trust/traces.py                # two hours
    python experiments/speed/time_to_trust/traces.py --cases "census, n = 10,000" --minutes 5

Appends to agreement.csv what is not there yet, and makes a figure of each case and agreement.md.
"""

import argparse
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from run import STRICT, extended, figures_of, judged, loose, make_case, share_needed

import bnp_models as bnp

HERE = Path(__file__).parent
sys.path += [
    str(HERE.parents[1] / name) for name in ("accuracy/known_truth", "papers/structural_zeros")
]
from results import Results, markdown  # noqa: E402
from simulated import PEOPLE, draw_sample, population  # noqa: E402

NUM_CHAINS, SEED = 8, 101
# Draws of each chain at which tau_1 is evaluated.
EVALUATED = 300


def simulated(seed, n):
    """As `make_case`, of a simulated population under 60 conditions."""
    return bnp.HDPMixedMembership(), draw_sample(seed, n)[0], population(seed)[0], PEOPLE


CASES = {
    "census, n = 10,000": lambda: make_case("hdp", 10_000, SEED),
    "population 1, n = 5,000": lambda: simulated(1, 5000),
    "population 9, n = 5,000": lambda: simulated(9, 5000),
    "population 15, n = 5,000": lambda: simulated(15, 5000),
    "population 0, n = 10,000": lambda: simulated(0, 10_000),
    "Michigan, 1,000 households": lambda: make_case("ndpmpm", 1000, SEED),
    "Michigan, 1,180 distinct households": lambda: make_case(
        "ndpmpm, Michigan, distinct, shared", 1180, SEED
    ),
    "Bay Area, 1,968 distinct households": lambda: make_case(
        "ndpmpm, Bay Area, distinct, shared", 1968, SEED
    ),
}
LABELS = {
    "tau1": "tau_1", "margin": "margin on which the chains agree least", "alpha": "alpha",
    "log_likelihood": "log-likelihood", "components": "components",
}  # fmt: skip


def measure(case, minutes):
    """A row; draws its figure."""
    model, table, conditions, population_size = CASES[case]()
    run = bnp.sample(
        model, table, key=jax.random.key(SEED), conditions=conditions, num_chains=NUM_CHAINS
    )
    while sum(run.seconds.values()) < 60 * minutes:
        run = extended(run, minutes)
    values = judged(run, population_size, EVALUATED)
    sweeps = run.settings.num_samples * run.settings.thin
    draw(case, values, sweeps)
    row = {"case": case, "device": run.device, "sweeps": sweeps,
           "sweeps_second": sweeps / run.seconds["draws"]}  # fmt: skip
    for quantity in LABELS:
        x = values.get(quantity)
        for kind, suffice in (("loosely", loose), ("closely", close)):
            share = np.nan if x is None else share_needed(x, suffice)
            row[f"{kind}_{quantity}"] = share * sweeps
        row[f"rhat_{quantity}"] = np.nan if x is None else figures_of(x, x.shape[1])[0]
    return row


def close(rhat, ess):
    """Whether chains agree on what is reported."""
    return rhat < STRICT


def draw(name, values, sweeps):
    """The chains of each quantity, one above the other, by sweeps after the warm-up."""
    figure = Figure(figsize=(9, 7), layout="constrained")
    axes = figure.subplots(len(values), sharex=True)
    for axis, (quantity, x) in zip(axes, values.items(), strict=True):
        axis.plot(np.linspace(0, sweeps, x.shape[1]), x.T, lw=0.6)
        axis.set_ylabel(LABELS[quantity], fontsize=7)
    axes[0].set_title(name, fontsize=9)
    axes[-1].set_xlabel("sweeps")
    folder, file = HERE / "traces", re.sub(r"\W+", "_", name)
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / f"{file}.png", dpi=80)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--minutes", type=float, default=15, help="of each case (15)")
    args = parser.parse_args()
    results = Results(HERE / "agreement.csv", ("case",))
    for case in results.missing({"case": name, "minutes": args.minutes} for name in args.cases):
        row = measure(**case)
        results.append(row)
        jax.clear_caches()
        print(row, flush=True)
    table = pd.read_csv(results.path)
    (HERE / "agreement.md").write_text(markdown(table, index=False) + "\n")


if __name__ == "__main__":
    main()
