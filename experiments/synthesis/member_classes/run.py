"""Nested and shared member classes: prediction of held-out households, relations, chains.

    python experiments/synthesis/member_classes/run.py POPULATIONS               # resumes
    python experiments/synthesis/member_classes/run.py POPULATIONS --minutes 10
    python experiments/synthesis/member_classes/run.py POPULATIONS --components 80
    python experiments/synthesis/member_classes/run.py POPULATIONS --prior-possible 60

POPULATIONS is the folder with simulated_households.csv.gz. A row is one process: the chains of one
model on a random 80% of the households of one file, and what they say of the other 20%. Appends to
results.csv and heldout.csv what is not there yet, and writes tables.md. With another number of
household classes than the default, the files are results_80.csv and so on, and with another prior
of P(possible) results_possible_60.csv.
"""

import argparse
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from scipy.special import logsumexp

import bnp_models as bnp
from bnp_models.evaluation.attack.targets import over_draws
from bnp_models.inference.convergence import figures_of
from bnp_models.models import relative_to_heads
from bnp_models.models.nested.probabilities import (
    household_arrays,
    log_households,
    log_possible_by_size,
)
from bnp_models.rules.census import census_relationships
from bnp_models.synthesis.posterior_margins import worst_margins

HERE = Path(__file__).parent
sys.path += [str(HERE.parents[1] / name) for name in ("accuracy/known_truth", "papers/households")]
from results import Results  # noqa: E402
from tables import CASE, relations_within, write  # noqa: E402

# Member classes, and how many; and whether ages and races are relative to the head's.
MODELS = (
    ("nested", 15, "no"), ("shared", 15, "no"), ("shared", 40, "no"),
    ("nested", 15, "yes"), ("shared", 40, "yes"),
)  # fmt: skip
COMPONENTS, POSSIBLE = bnp.NDPMPM().components, bnp.NDPMPM().prior_possible
NUM_FILES, HOUSEHOLDS_SIMULATED, HELD_OUT = 5, 2500, 0.2
# Arrays are kept of every so many draws.
KEPT_EVERY = 5


def load(name, folder):
    """Households of one file and their rules."""
    if name == "simulated":
        frame = pd.read_csv(folder / "simulated_households.csv.gz").drop(columns="pid")
        chosen = np.random.default_rng(1).permutation(frame["hid"].unique())[:HOUSEHOLDS_SIMULATED]
        frame = frame[frame["hid"].isin(chosen)].fillna("unknown").astype({"ecoStat": str})
        return bnp.Households.from_frame(frame, "hid", ["region", "income_tenth"]), None
    sources = {
        "Michigan": bnp.datasets.southeast_michigan_households,
        "Bay Area": bnp.datasets.bay_area_households,
    }
    table = sources[name](distinct=True).households(head=True)
    rules = census_relationships(table)
    return table.select(rules.check(table)), rules


def divided(table, seed):
    """The households to fit, and the held-out ones of sizes that are among these."""
    order = np.random.default_rng(seed).permutation(table.n)
    number = round(HELD_OUT * table.n)
    fitted = table.select(np.sort(order[number:]))
    held_out = table.select(np.sort(order[:number]))
    return fitted, held_out.select(np.isin(held_out.sizes, fitted.sizes))


def model_of(table, classes, member_components, relative, components, possible):
    """The model with all other options as by default."""
    pairs = relative_to_heads(table) if relative == "auto" else ()
    if relative == "yes":
        pairs = tuple(sorted({"age", "race"} & set(table.schema.member_variables)))
    return bnp.NDPMPM(
        components, member_components, member_classes=classes, relative=pairs,
        prior_possible=possible,
    )  # fmt: skip


def log_predictive(run, held_out):
    """(chains, draws, households) log probability of possible households, in the order of sizes."""
    data = run.model.prepare(run.table, run.conditions)
    arrays = household_arrays(held_out, np.unique(run.table.sizes), data.relative)
    evaluate = partial(log_households, **arrays)
    draws = run.parameters()
    shape = draws["alpha"].shape
    draws = {name: x.reshape(-1, *x.shape[2:]) for name, x in draws.items()}
    draws["number"] = np.arange(draws["alpha"].size)
    log_p = over_draws(draws, evaluate, np.transpose, False, "")
    possible = partial(log_possible_by_size, data=data, key=jax.random.key(0))
    log_possible = over_draws(draws, possible, np.transpose, False, "")
    return (log_p - logsumexp(log_possible, axis=0)).T.reshape(*shape, -1)


def mean_log(log_p, axes):
    """Log of the mean of probabilities over draws."""
    return logsumexp(log_p, axis=axes) - np.log(np.prod([log_p.shape[k] for k in axes]))


def measure(folder, case, *numbers):
    """A row, and the log predictive probability of each held-out household."""
    table, rules = load(case["data"], folder)
    fitted, held_out = divided(table, case["seed"])
    options = case["classes"], case["member_components"], case["relative"]
    model = model_of(fitted, *options, *numbers)
    sample = partial(
        bnp.sample, model, fitted, key=jax.random.key(case["seed"]), conditions=rules,
        num_chains=case["chains"], parameters_every=KEPT_EVERY,
    )  # fmt: skip
    began = time.process_time()
    sample(num_warmup=KEPT_EVERY, num_samples=KEPT_EVERY)
    compiled = time.process_time()
    run = sample(num_warmup=case["warmup"], num_samples=case["draws"])
    cpu, sweeps = time.process_time() - compiled, case["chains"] * (case["warmup"] + case["draws"])
    margins = bnp.level_margins(run)
    worst = next(iter(worst_margins(margins, 1).values()))
    varies = np.ptp(margins.draws, axis=(0, 1)) > 0
    effective = [figures_of(x)["ess_bulk"] for x in np.moveaxis(margins.draws[:, :, varies], 2, 0)]
    effective = np.array([x or np.nan for x in effective])
    log_p = log_predictive(run, held_out)
    each = mean_log(log_p, (0, 1))
    of_chains = mean_log(log_p, (1,)).sum(axis=1)
    relations = relations_within(case["data"], fitted, bnp.synthesize(run, NUM_FILES))
    draws, half = run.draws, case["draws"] // 2
    row = {
        "households": fitted.n, "held_out": held_out.n, "log_predictive": each.sum(),
        "worst_chain": of_chains.min(), "best_chain": of_chains.max(),
        "overlaps": int(relations["overlaps"].sum()), "covers": int(relations["covers"].sum()),
        "quantities": len(relations), "cpu_compiling": compiled - began, "cpu": cpu,
        "sweeps_cpu_second": sweeps / cpu,
        "rhat_log_likelihood": figures_of(draws["log_likelihood"])["rhat"],
        "rhat_margin": figures_of(worst)["rhat"], "rhat_alpha": figures_of(draws["alpha"])["rhat"],
        "ess_margin_least": np.nanmin(effective), "ess_margin_median": np.nanmedian(effective),
        "ess_median_cpu_second": np.nanmedian(effective) / cpu,
        "log_likelihood": " ".join(
            f"{x:.0f}" for x in draws["log_likelihood"][:, half:].mean(axis=1)
        ),
        "components": draws["components"].mean(),
        "member_components_used": draws["member_components"].mean(),
        "last_member_class": draws["last_member_class"].mean(),
        "augmented": draws["augmented"].mean(),
    }  # fmt: skip
    order, _ = held_out.order_by_size
    each = dict(zip(held_out.ids[order].tolist(), each.round(3).tolist(), strict=True))
    return row, each, relations.reset_index().to_dict("records")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", nargs="+", default=["Michigan", "Bay Area", "simulated"])
    parser.add_argument("--models", nargs="+", help="such as shared,40,no (or yes, auto: relative)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sweeps", type=int, nargs=2, default=[500, 500], help="warm-up, draws")
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--components", type=int, default=COMPONENTS)
    parser.add_argument("--prior-possible", type=int, default=POSSIBLE)
    parser.add_argument("--minutes", type=float, help="begin no row later than this")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.row:
        row = measure(args.folder, json.loads(args.row), args.components, args.prior_possible)
        print(json.dumps(row, default=float))
        return
    models = [x.split(",") for x in args.models] if args.models else MODELS
    end = "" if args.components == COMPONENTS else f"_{args.components}"
    end += ".csv" if args.prior_possible == POSSIBLE else f"_possible_{args.prior_possible}.csv"
    results = Results(HERE / f"results{end}", CASE, args.minutes)
    heldout = Results(HERE / f"heldout{end}", (*CASE, "household"))
    relations = Results(HERE / f"relations{end}", (*CASE, "quantity"))
    cases = (
        dict(zip(CASE, (data, relative, classes, int(number), args.seed, args.chains, *args.sweeps),
                 strict=True))
        for data in args.data for classes, number, relative in models
        if relative == "no" or data != "simulated"
    )  # fmt: skip
    for case in results.missing(cases):
        command = [sys.executable, __file__, str(args.folder), "--row", json.dumps(case),
                   "--components", str(args.components),
                   "--prior-possible", str(args.prior_possible)]  # fmt: skip
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        row, each, of_relations = json.loads(done.stdout.splitlines()[-1])
        for household, log_p in each.items():
            heldout.append(case | {"household": household, "log_p": log_p})
        for one in of_relations:
            relations.append(case | one)
        results.append(case | row)
        write()
        print(case | row, flush=True)


if __name__ == "__main__":
    main()
