"""Samples that did not fit into the time on the card: chains of the package itself, on a CPU.

    python experiments/accuracy/layer_prior/rest.py FOLDER --nist FILE [--minutes 30]

Samples of the populations and sizes that results.csv has not. Their tau_1 and tau_2 are evaluated
with the prior that is fitted to laws.csv of the other populations, and with the prior that there
was before (one half for the model without the correction). Writes rest.csv a row at a time, and
rest.md, which puts these samples and those of results.csv together; another call goes on where one
was stopped.
"""

import argparse
import itertools
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from fit import GROUPS, HERE, half_on_the_model, markdown, summary

import bnp_models as bnp
from bnp_models.risk import overdispersion
from bnp_models.risk.overdispersion import OverdispersionPosterior, Prior

sys.path.append(str(HERE.parent / "known_truth"))
from results import Results  # noqa: E402
from samples import draw_sample, populations, truth  # noqa: E402

SMALL = ("mothers", "policies", "crash_occupants", "adults")
MISSING = [(name, n) for n in (500, 1000, 2000) for name in SMALL] + [
    ("all", 5000),
    ("survey", 5000),
]
CHAINS = {"num_chains": 2, "num_warmup": 600, "num_samples": 600}


def prior_of_others(laws: pd.DataFrame, name: str | None = None) -> Prior:
    """Prior that is fitted to the pairs of all populations but one, or of all of them."""
    targets = laws.assign(group=laws.population.replace(GROUPS)).groupby("group")
    targets = targets[["log10_shape", "exponent"]].mean()
    others = targets if name is None else targets.drop(GROUPS.get(name, name))
    return Prior(*zip(others.mean(), 1.1 * others.std(ddof=1), strict=True))


def rows_of(case: dict, frame: pd.DataFrame, laws: pd.DataFrame) -> list[dict]:
    """Four rows: tau_1 and tau_2, before and now."""
    name, n, seed = case["population"], case["n"], case["seed"]
    sample = draw_sample(frame, n, seed)
    run = bnp.sample(
        bnp.HDPMixedMembership(),
        bnp.Microdata.from_frame(sample),
        key=jax.random.key(seed),
        **CHAINS,
    )
    true = truth(frame, sample)
    risks = {}
    others = prior_of_others(laws[laws.ordered == "auto"], name)
    OverdispersionPosterior.log_prior = property(lambda _: others.log_probabilities())
    risks["now"] = bnp.population_risk(run, len(frame))
    power = overdispersion.LIKELIHOOD_POWER
    OverdispersionPosterior.log_prior = property(lambda _: half_on_the_model())
    overdispersion.LIKELIHOOD_POWER = 1.0
    risks["before, ordered"] = bnp.population_risk(run, len(frame))
    overdispersion.LIKELIHOOD_POWER = power
    figures = bnp.diagnose(run, risks["now"]).figures
    rows = []
    for (way, risk), tau in itertools.product(risks.items(), ("tau1", "tau2")):
        draws, of_truth = getattr(risk, tau), getattr(true, tau)
        low, high = np.quantile(draws, [0.025, 0.975])
        score = high - low + 40 * (max(low - of_truth, 0) + max(of_truth - high, 0))
        rows.append(case | {
            "way": way, "tau": tau, "truth": of_truth, "mean": draws.mean(), "q025": low,
            "q975": high, "score": score, "rhat_tau1": figures["tau1"]["rhat"],
            "rhat_log_likelihood": figures["log_likelihood"]["rhat"],
        })  # fmt: skip
    return rows


def write_tables(rest: pd.DataFrame) -> None:
    """rest.md: these samples alone, and together with those of results.csv."""
    first = pd.read_csv(HERE / "results.csv")
    together = pd.concat([first[first.way.isin(rest.way.unique())], rest])
    parts = [
        "Samples of this script", markdown(summary(rest, ["tau", "way"])),
        "All samples", markdown(summary(together, ["tau", "way"])),
        "By size", markdown(summary(together, ["tau", "n", "way"])),
        "By population", markdown(summary(together, ["tau", "population", "way"])),
        "Median and largest R-hat of the samples of this script: tau_1 "
        f"{rest.rhat_tau1.median():.3f} and {rest.rhat_tau1.max():.3f}, log-likelihood "
        f"{rest.rhat_log_likelihood.median():.2f} and {rest.rhat_log_likelihood.max():.2f}.",
    ]  # fmt: skip
    (HERE / "rest.md").write_text("\n\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nist", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--minutes", type=float)
    args = parser.parse_args()
    frames = dict(populations(args.folder, args.nist))
    laws = pd.read_csv(HERE / "laws.csv")
    results = Results(HERE / "rest.csv", ("population", "n", "seed"), args.minutes)
    cases = (
        {"population": name, "n": n, "seed": seed}
        for seed in range(args.seeds)
        for name, n in MISSING
    )
    for case in results.missing(cases):
        for row in rows_of(case, frames[case["population"]], laws):
            results.append(row)
        print(*case.values(), flush=True)
    write_tables(pd.read_csv(HERE / "rest.csv"))


if __name__ == "__main__":
    main()
