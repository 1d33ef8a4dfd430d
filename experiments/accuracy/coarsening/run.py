"""Coarser keys from the draws at hand, against new chains on the coarser file.

    python experiments/accuracy/coarsening/run.py

One sample of 1,000 of all persons of the census population; writes results.csv and prints a table.
"""

import argparse
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.risk.coarsening import parse_coarsening

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "known_truth"))
from results import Results, markdown  # noqa: E402

N, SEED = 1000, 0
AGES = "merge:age=0-14+15-24;merge:age=25-34+35-44;merge:age=45-54+55-64;merge:age=65-74+75+"
COARSENINGS = ("drop:age", "drop:race", "drop:education", "drop:household_relationship", AGES,
               "keep:age,sex,race,education,marital_status")  # fmt: skip
CHAINS = {"num_chains": 4, "num_warmup": 600, "num_samples": 100, "thin": 4,
          "start_components": (30, 60, 40, 50)}  # fmt: skip


def coarse_frame(frame, table):
    """Columns and labels of the coarser records, as text."""
    names = table.schema.variables
    return pd.DataFrame(
        {name: np.array(labels, object)[table.codes[:, j]]
         for j, (name, labels) in enumerate(zip(names, table.schema.levels, strict=True))}
    ).astype(str)  # fmt: skip


def interval(name, tau1):
    low, high = np.quantile(tau1, [0.025, 0.975])
    return {name: tau1.mean(), f"{name}_q025": low, f"{name}_q975": high}


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    people = bnp.datasets.census_income()
    sample = people.sample(N, SEED)
    table = bnp.Microdata.from_frame(sample)
    whole = bnp.Microdata.from_frame(people.frame, levels=table.schema)
    results = Results(HERE / "results.csv", ("coarsening",))
    cases = list(results.missing({"coarsening": text} for text in COARSENINGS))
    if cases:
        run = bnp.sample(bnp.HDPMixedMembership(), table, key=jax.random.key(SEED), **CHAINS)
        found = bnp.coarsen(run, len(people), COARSENINGS)
    for case in cases:
        coarsening = parse_coarsening(case["coarsening"], table.schema)
        coarse = coarsening.coarser(table)
        everyone = coarse_frame(people.frame, coarsening.coarser(whole))
        population = bnp.datasets.Population(everyone.astype("category"), "", "")
        truth = population.truth(coarse_frame(sample, coarse))
        new = bnp.sample(bnp.HDPMixedMembership(), coarse, key=jax.random.key(SEED + 1), **CHAINS)
        again, one = bnp.population_risk(new, len(people)), found[case["coarsening"]]
        results.append(case | {
            "variables": len(coarse.schema.variables), "sample_uniques": one.sample_uniques,
            "tau1_true": truth.tau1, **interval("same_draws", one.tau1),
            **interval("new_chains", again.tau1), "tau2_true": truth.tau2,
            "tau2_same_draws": one.tau2.mean(), "tau2_new_chains": again.tau2.mean(),
        })  # fmt: skip
    (HERE / "table.md").write_text(markdown(pd.read_csv(HERE / "results.csv"), index=False) + "\n")


if __name__ == "__main__":
    main()
