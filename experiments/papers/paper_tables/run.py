"""Tables and figures of Battiston & Rimella (2024), section 5, on the bundled census population.

    python experiments/papers/paper_tables/run.py                         # four treatments of zeros
    python experiments/papers/paper_tables/run.py --part profiles         # K extreme profiles
    python experiments/papers/paper_tables/run.py --part concentration    # alpha of records
    python experiments/papers/paper_tables/run.py --part published        # the paper's own setting
    python experiments/papers/paper_tables/run.py --part simulated        # the simulated population
    python experiments/papers/paper_tables/run.py --level-priors uniform  # the papers' prior alone
    python experiments/papers/paper_tables/run.py --n 1000 --minutes 30   # what there is time for

Appends to results.csv, a line per sample and model, what is not there yet, keeps draws of the first
sample in draws/, then makes tables.md and the figures (`tables.py`). A sample's number is the seed
of all that is random in it.
"""

import argparse
import dataclasses
import sys
import time
from functools import cache
from pathlib import Path

import jax
import numpy as np
import simulated
import tables

import bnp_models as bnp
from bnp_models.inference.convergence import monitored
from bnp_models.inference.modes import find_modes
from bnp_models.risk.evaluator import cell_probabilities, record_risks

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import Results  # noqa: E402

KEY = ("treatment", "model", "level_prior", "n", "seed", "warmup", "draws", "thin")
CONDITIONS = HERE.parents[1] / "synthesis" / "repeated_sampling" / "conditions.csv"
TREATMENTS = {
    "removed": "persons of 15 and over, without the variable that only children have",
    "ignored": "all persons, no conditions",
    "modelled": "all persons, 55 conditions",
    "not_applicable": "the same, settled items absent from the records",
    "simulated": "712,174 persons simulated from extreme profiles",
}
LEVEL_PRIORS = ("learned", "uniform")
PROFILES = (3, 5, 10, 15, 20, 30, 50)
# The paper's table names 2 and 60 as the best of its values, and the text none.
SIMULATED_PROFILES = (2, 5, 10, 20, 60)
HELD_OUT = 2000
# Draws at which the approximation of the truncated risk is evaluated: every so many.
THIN_EXPONENT = 10


@cache
def people_of(treatment):
    """The population, and its persons' numbers as a variable more."""
    if treatment == "simulated":
        people = simulated.population()
    else:
        people = bnp.datasets.census_income(adults=treatment == "removed")
    numbered = people.frame.assign(person=np.arange(len(people)))
    return people, dataclasses.replace(people, frame=numbered)


def draw_sample(treatment, n, seed):
    """A sample, the same as `census_income().sample(n, seed)`, and 2,000 other persons' codes."""
    people, numbered = people_of(treatment)
    sample = numbered.sample(n, seed)
    left = np.setdiff1d(np.arange(len(people)), sample.pop("person"))
    chosen = np.random.default_rng((seed, n)).choice(left, HELD_OUT, replace=False)
    table = bnp.Microdata.from_frame(sample)
    others = bnp.Microdata.from_frame(people.frame.iloc[chosen], levels=table.schema)
    return people, sample, table, others.codes


def make_model(case):
    """The model of a row: hdp-shared, hdp-record, hdp-hierarchical or profiles-K."""
    kind, option = case["model"].split("-")
    options = {
        "not_applicable": case["treatment"] == "not_applicable",
        "level_prior": case["level_prior"],
    }
    if kind == "profiles":
        return bnp.MixedMembership(int(option), **options)
    return bnp.HDPMixedMembership(concentration=option, **options)


def measure(case, folder) -> dict:
    """One row: a sample, its fit, and how far that is from the truth."""
    treatment, n, seed = case["treatment"], case["n"], case["seed"]
    people, sample, table, others = draw_sample(treatment, n, seed)
    truth = people.truth(sample)
    zeros = None
    if treatment in ("modelled", "not_applicable"):
        zeros = bnp.read_conditions(CONDITIONS, table.schema)
    model = make_model(case)
    run = bnp.sample(
        model, table, key=jax.random.key(seed), conditions=zeros, num_chains=tables.NUM_CHAINS,
        num_warmup=case["warmup"], num_samples=case["draws"], thin=case["thin"],
    )  # fmt: skip
    began = time.perf_counter()
    risk = bnp.population_risk(run, len(people), ties="off")
    risk_seconds = time.perf_counter() - began
    low, high = np.quantile(risk.tau1, [0.025, 0.975])
    log_feasible = run.draws["log_feasible"]
    row = case | {
        "sample_uniques": truth.sample_uniques, "truth": truth.tau1, "mean": risk.tau1.mean(),
        "sd": risk.tau1.std(), "q025": low, "q975": high,
        "covered": int(low <= truth.tau1 <= high),
        "mean_conditional": risk.tau1_conditional.mean(), "mean_exponent": exponent(run, people),
        "truth_tau2": truth.tau2, "mean_tau2": risk.tau2.mean(),
        "held_out": bnp.held_out_log_probability(run, others).mean(),
        "alpha": run.draws["alpha"].mean(), "log_feasible": log_feasible.mean(),
        "modes": find_modes(monitored(run, risk)).number or np.nan,
        "components": " ".join(f"{k:.1f}" for k in run.draws["components"].mean(axis=1)),
        "log_likelihood": " ".join(f"{x:.1f}" for x in risk.log_likelihood.mean(axis=1)),
        "tau1_by_chain": " ".join(f"{x:.1f}" for x in risk.tau1.mean(axis=1)),
        "capacity": run.capacity, "sweeps_per_second": run.sweeps_per_second,
        "compile_seconds": run.seconds["compile"], "warmup_seconds": run.seconds["warmup"],
        "draws_seconds": run.seconds["draws"], "risk_seconds": risk_seconds,
    }  # fmt: skip
    for name, figures in bnp.diagnose(run, risk).figures.items():
        row |= {f"rhat_{name}": figures["rhat"], f"ess_{name}": figures["ess_bulk"]}
    if seed == 0:
        path = tables.draws_path(folder, row)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {
            "tau1": risk.tau1.astype(np.int32), "expectation": risk.tau1_conditional,
            "components": run.draws["components"].astype(np.int16),
        }  # fmt: skip
        if treatment == "simulated" and case["model"] == tables.PUBLISHED:
            kept["sampled"], kept["sampled_seconds"] = simulated.sampled_tau1(run)
        np.savez_compressed(path, **kept)
    return row


def exponent(run, people) -> float | None:
    """The expectation of tau_1 by equation (11) of the paper, where there are structural zeros."""
    if run.conditions is None:
        return None
    draws = run.parameters(min(THIN_EXPONENT, run.settings.num_samples))
    cells = run.table.cells()
    unique = cells.codes[cells.counts == 1]
    blocks = cell_probabilities(run, draws, unique, "exact", run.key)
    log_q = np.concatenate([log_p for log_p, _, _ in blocks])
    # The probability of a cell before the truncation, and more records in proportion.
    log_feasible = draws["log_feasible"].astype(np.float64).reshape(-1, 1)
    num_new = (len(people) - run.table.n) * np.exp(-log_feasible)
    r1, _ = record_risks(log_q + log_feasible, num_new)
    return r1.sum(axis=1).mean()


def models_of(part, treatments):
    """(treatment, model) of each row of a part."""
    if part in ALONE:
        return [(treatment, ALONE[part]) for treatment in treatments]
    if part == "profiles":
        models = [tables.DEFAULT, *(f"profiles-{k}" for k in PROFILES)]
    elif part == "simulated":
        models = [tables.PUBLISHED, *(f"profiles-{k}" for k in SIMULATED_PROFILES)]
    else:
        models = [f"hdp-{mode}" for mode in ("shared", "record", "hierarchical")]
    return [(treatment, model) for treatment in treatments for model in models]


# Parts with one model.
ALONE = {"treatments": tables.DEFAULT, "published": tables.PUBLISHED}
DEFAULT_TREATMENTS = {
    "treatments": ["removed", "ignored", "modelled", "not_applicable"], "profiles": ["removed"],
    "concentration": ["modelled"], "published": ["removed", "ignored", "modelled"],
    "simulated": ["simulated"],
}  # fmt: skip
DEFAULT_PRIORS = {"published": ("uniform",), "simulated": ("uniform",)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=DEFAULT_TREATMENTS, default="treatments")
    parser.add_argument("--treatments", nargs="+", choices=TREATMENTS, help="of structural zeros")
    parser.add_argument("--level-priors", nargs="+", choices=LEVEL_PRIORS)
    parser.add_argument("--n", type=int, nargs="+", default=[1000, 5000, 10000])
    parser.add_argument("--seeds", type=int, help="samples (profiles, simulated: 1, else 5)")
    parser.add_argument("--warmup", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--thin", type=int, default=4)
    parser.add_argument("--minutes", type=float, help="begin no sample later than this")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the results are")
    args = parser.parse_args()
    seeds = args.seeds or (1 if args.part in ("profiles", "simulated") else 5)
    priors = args.level_priors or DEFAULT_PRIORS.get(args.part, LEVEL_PRIORS)
    sweeps = {"warmup": args.warmup, "draws": args.draws, "thin": args.thin}
    results = Results(args.folder / "results.csv", KEY, args.minutes)
    cases = (
        {"treatment": treatment, "model": model, "level_prior": prior, "n": n, "seed": seed}
        | sweeps
        for seed in range(seeds)
        for n in args.n
        for prior in priors
        for treatment, model in models_of(
            args.part, args.treatments or DEFAULT_TREATMENTS[args.part]
        )
    )
    for case in results.missing(cases):
        row = measure(case, args.folder)
        results.append(row)
        # Compiled code adds up, in memory and in maps of it, of which Linux allows 65,530.
        jax.clear_caches()
        print(
            f"{row['treatment']}, {row['model']}, {row['level_prior']}, n = {row['n']}, sample "
            f"{row['seed']}: tau_1 {row['truth']}, estimate {row['mean']:.1f} "
            f"({row['q025']:.0f} to {row['q975']:.0f}), "
            f"R-hat {row['rhat_tau1'] or np.nan:.3f}, {row['sweeps_per_second']:.0f} sweeps/s",
            flush=True,
        )
    tables.write(args.folder)


if __name__ == "__main__":
    main()
