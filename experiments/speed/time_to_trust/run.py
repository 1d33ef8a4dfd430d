"""Time from the call to figures that can be trusted, on real samples.

    python experiments/speed/time_to_trust/run.py --version NAME
    python experiments/speed/time_to_trust/run.py --version NAME --models hdp --n 1000 5000
    python experiments/speed/time_to_trust/run.py --version NAME --models nplcm
    python experiments/speed/time_to_trust/tables.py

Each row is one run in a process of its own: four chains from the default starts, until tau_1 (of
households, the margin on which the chains agree least) and alpha have R-hat below 1.01 and 400
effective draws, and the log-likelihood and the components R-hat below 1.05, or the limit of its
size is used up.
Appends to results.csv what is not there yet; rows of two versions of the code are set side by side.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import Results  # noqa: E402

CONDITIONS = HERE.parents[1] / "synthesis" / "repeated_sampling" / "conditions.csv"
KEY = ("version", "model", "n", "seed")
SIZES = {
    "hdp": (1000, 5000, 10_000),
    "hdp, k-modes": (1000, 5000),
    "hdp, 55 conditions, k-modes": (1000, 5000),
    "hdp, 55 conditions": (1000, 5000, 10_000),
    "nplcm": (1000, 5000, 10_000),
    "tnplcm, 55 conditions": (1000, 5000, 10_000),
    "ndpmpm": (1000, 5000),
    "ndpmpm, Michigan, distinct": (1180,),
    "ndpmpm, Bay Area, distinct": (1968,),
    "ndpmpm, Michigan, distinct, shared": (1180,),
    "ndpmpm, Bay Area, distinct, shared": (1968,),
}
JUDGED = ("tau1", "margin", "alpha", "log_likelihood", "components")
# R-hat below the first, and effective draws; where only that is asked, R-hat below the second.
STRICT, LOOSE, MIN_ESS = 1.01, 1.05, 400
# Minutes of sampling, by the number of records; under conditions; and of households.
LIMITS, LIMIT_OF_HOUSEHOLDS = {1000: 4, 5000: 10, 10_000: 15}, 10
LIMITS_UNDER_CONDITIONS = {1000: 4, 5000: 10, 10_000: 20}
# Draws of a chain are thinned when they are so many.
MOST = 4000
# Draws of each chain at which tau_1 is evaluated, at the most, half of which are judged; at which
# margins are; and the fewest that are judged.
EVALUATED, MARGINS, FEWEST = 1000, 500, 40
# Prefixes of the draws that are looked at: each longer than the last by a tenth.
STEP = 1.1


def make_case(name, n, seed):
    """Model, records, conditions, and the population's size where tau_1 is asked for."""
    import bnp_models as bnp
    from bnp_models.rules.census import census_relationships

    kind, *options = name.split(", ")
    if kind == "ndpmpm":
        bay, distinct, shared = (x in options for x in ("Bay Area", "distinct", "shared"))
        data = bnp.datasets
        source = data.bay_area_households if bay else data.southeast_michigan_households
        # One of each source record is all there are.
        people = source(distinct=True) if distinct else source().sample(n, seed)
        # As the command does it now, or as in the rows of nested member classes.
        table = people.households(head=shared)
        rules = census_relationships(table)
        model = bnp.NDPMPM(member_classes="shared" if shared else "nested")
        return model, table.select(rules.check(table)), rules, None
    people = bnp.datasets.census_income()
    table = bnp.Microdata.from_frame(people.sample(n, seed))
    conditions = None
    if "55 conditions" in options:
        conditions = bnp.read_conditions(CONDITIONS, table.schema)
    models = {"hdp": bnp.HDPMixedMembership, "nplcm": bnp.NPLCM, "tnplcm": bnp.TNPLCM}
    if "k-modes" in options:
        from kmodes import FromClusters

        models["hdp"] = FromClusters
    return models[kind](), table, conditions, len(people)


def judged(run, population_size, evaluated=EVALUATED):
    """What is judged, each (chains, draws), tau_1 at so many draws of a chain at the most."""
    import bnp_models as bnp
    from bnp_models.inference.convergence import monitored
    from bnp_models.synthesis.posterior_margins import worst_margins

    if population_size is None:
        margins = bnp.level_margins(run, MARGINS)
        values = monitored(run) | {"margin": next(iter(worst_margins(margins, 1).values()))}
    else:
        thin = max(1, -(-run.settings.num_arrays // evaluated))
        values = bnp.population_risk(run, population_size, thin=thin)
        values = values.monitored(run)
    return {name: values[name] for name in JUDGED if name in values}


def all_trusted(values):
    """Whether the run may stop, by the second half of these draws."""
    return all(
        trusted(name, *figures_of(values[name], values[name].shape[1]))
        for name in JUDGED if name in values
    )  # fmt: skip


def figures_of(values, length):
    """R-hat and effective draws of the second half of a prefix."""
    from bnp_models.inference.convergence import figures_of

    figures = figures_of(values[:, length // 2 : length])
    return figures["rhat"] or np.inf, figures["ess_bulk"] or 0.0


def strict(rhat, ess):
    """Whether a quantity can be reported."""
    return rhat < STRICT and ess >= MIN_ESS


def loose(rhat, ess):
    """Whether chains agree on what is not reported."""
    return rhat < LOOSE


def trusted(name, rhat, ess):
    """Whether the run may stop for this quantity."""
    nuisance = name in ("log_likelihood", "components")
    return loose(rhat, ess) if nuisance else strict(rhat, ess)


def share_needed(values, suffice):
    """Share of the draws from which on the figures of every prefix suffice; nan: not at the end."""
    length, share = values.shape[1], np.nan
    while length >= FEWEST and suffice(*figures_of(values, length)):
        share, length = length / values.shape[1], int(length / STEP)
    return share


def limit_of(name, n):
    """Minutes of sampling."""
    if name.startswith("ndpmpm"):
        return LIMIT_OF_HOUSEHOLDS
    return (LIMITS_UNDER_CONDITIONS if "conditions" in name else LIMITS)[n]


def extended(run, minutes):
    """The run with twice its draws, thinned before they are too many, or cut short by the limit."""
    import bnp_models as bnp

    if run.settings.num_samples >= MOST:
        run = run.thinned(2)
    return bnp.extend(run, run.settings.num_samples, max_seconds=60 * minutes)


def measure(name, n, seed, began):
    """A row, of this process; `began` is when it was asked for."""
    import jax

    import bnp_models as bnp
    from bnp_models.inference.convergence import monitored

    limit = limit_of(name, n)
    model, table, conditions, population_size = make_case(name, n, seed)
    ready = time.time()

    run = bnp.sample(model, table, key=jax.random.key(seed), conditions=conditions)
    while True:
        used_up = sum(run.seconds.values()) >= 60 * limit
        # What is evaluated costs more: only where nothing else speaks against the draws.
        if used_up or all_trusted(monitored(run)):
            sampled = time.time()
            values = judged(run, population_size)
            evaluation = time.time() - sampled
            if used_up or all_trusted(values):
                break
        run = extended(run, limit)
    seconds, settings = run.seconds, run.settings
    row = {
        "sweeps": settings.num_samples * settings.thin, "capacity": run.capacity,
        "preparing": ready - began, "compiling": seconds["compile"], "warmup": seconds["warmup"],
        "drawing": seconds["draws"], "evaluating": evaluation,
        "components": " ".join(f"{k:.0f}" for k in run.draws["components"].mean(axis=1)),
    }  # fmt: skip
    before = row["preparing"] + row["compiling"] + row["warmup"]
    for quantity in JUDGED:
        if quantity not in values:
            kinds = ("until", "loosely", "rhat", "ess_second")
            row |= dict.fromkeys(f"{kind}_{quantity}" for kind in kinds)
            continue
        x = values[quantity]
        rhat, ess = figures_of(x, x.shape[1])
        per_draw = row["drawing"] + evaluation * (quantity in ("tau1", "margin"))
        row[f"until_{quantity}"] = before + share_needed(x, strict) * per_draw
        row[f"loosely_{quantity}"] = before + share_needed(x, loose) * per_draw
        row[f"rhat_{quantity}"] = rhat
        row[f"ess_second_{quantity}"] = ess / (per_draw / 2)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", help="of the code, such as a commit")
    parser.add_argument("--models", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--n", type=int, nargs="+", help="default: all sizes of each model")
    parser.add_argument("--seeds", type=int, nargs="+", default=[101])
    parser.add_argument("--minutes", type=float, help="begin no row later than this")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.row:
        row = measure(*json.loads(args.row))
        print(json.dumps(row))
        return
    if not args.version:
        parser.error("say --version")
    results = Results(HERE / "results.csv", KEY, args.minutes)
    cases = (
        {"version": args.version, "model": name, "n": n, "seed": seed}
        for seed in args.seeds for name in args.models
        for n in SIZES[name] if args.n is None or n in args.n
    )  # fmt: skip
    for case in results.missing(cases):
        asked = json.dumps([case["model"], case["n"], case["seed"], time.time()])
        command = [sys.executable, __file__, "--row", asked]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        row = case | json.loads(done.stdout.splitlines()[-1])
        results.append(row)
        print(row, flush=True)


if __name__ == "__main__":
    main()
