"""Coarser keys and protected files of households, with and without rules, beside the truth.

    python experiments/accuracy/household_protection/run.py

The population has the 1,183 distinct households of Southeast Michigan. Of each sample of 300 the
risk is estimated if one variable is left out or ages are in tens, and of the file that
`bnp.protect` makes for a limit of 5 population uniques. Writes results.csv and table.md; another
call goes on where one was stopped.
"""

import argparse
import itertools
import sys
import time
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.risk.coarsening import parse_coarsening
from bnp_models.risk.protected_risks import patterns
from bnp_models.risk.recoding import Recoded

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "known_truth"))
from results import Results, markdown  # noqa: E402

N, LIMIT = 300, 5
CHAINS = {"num_chains": 2, "num_warmup": 200, "num_samples": 240}
DROPPED = ("income", "vehicles", "relate", "age", "sex", "race", "employment")


def keys_of(table, recoding, gone):
    """What is left of each household, in no order: the coarser values that are not suppressed."""
    codes = recoding.coarser_codes(table.persons.codes)[:, ~gone].tolist()
    members = [[] for _ in range(table.n)]
    for household, values in zip(table.of_household, codes, strict=True):
        members[household].append(tuple(values))
    return [tuple(sorted(one)) for one in members]


def truth(everybody, sample, recoding, mask):
    """Households that only one of the sample matches, and that only one of the population does."""
    uniques = found = 0
    for gone, where in patterns(mask):
        own = keys_of(sample, recoding, gone)
        of_sample, of_all = Counter(own), Counter(keys_of(everybody, recoding, gone))
        uniques += sum(of_sample[own[i]] == 1 for i in where)
        found += sum(of_all[own[i]] == 1 for i in where)
    return {"uniques": uniques, "tau1_true": found}


def estimate(tau1):
    """Mean and interval of draws of tau_1."""
    low, high = np.quantile(tau1, [0.025, 0.975])
    return {"tau1": tau1.mean(), "tau1_low": low, "tau1_high": high}


def tens(schema):
    """Statement that merges ages to tens."""
    labels = schema.levels[schema.variables.index("age")]
    groups = [list(of) for _, of in itertools.groupby(labels, lambda age: int(age) // 10)]
    return ";".join(f"merge:age={'+'.join(map(str, of))}" for of in groups if len(of) > 1)


def measure(data, everybody, case):
    """Rows of one sample."""
    sample = data.sample(N, case["seed"])
    table = bnp.Households.from_frame(
        sample.frame, data.household, data.household_variables, levels=everybody.schema.table,
        head=data.head,
    )  # fmt: skip
    rules = bnp.census_relationships(table) if case["rules"] == "census" else None
    if rules is not None and not rules.check(table).all():
        # Three households of the population break a rule, and nothing is estimated if one is drawn.
        print(*case.values(), "breaks a rule", flush=True)
        return
    start = time.perf_counter()
    run = bnp.sample(
        bnp.NDPMPM(), table, key=jax.random.key(case["seed"]), conditions=rules, **CHAINS
    )
    fitted = time.perf_counter() - start
    start = time.perf_counter()
    risk = bnp.household_risk(run, everybody.n)
    none = Recoded.unchanged(table.persons).coarsening
    nothing = np.zeros((table.n, len(none.variables)), bool)
    empty = {"recodings": 0, "suppressed": 0, "bits": 0.0}
    yield {
        **case, "what": "the sample", **truth(everybody, table, none, nothing),
        **estimate(risk.households.tau1), **empty, "seconds": time.perf_counter() - start,
        "seconds_of_chains": fitted,
    }  # fmt: skip
    texts = {f"drop:{name}": f"drop:{name}" for name in DROPPED}
    texts["age in tens"] = tens(table.schema.table)
    asked = {name: parse_coarsening(text, none.original) for name, text in texts.items()}
    start = time.perf_counter()
    found = bnp.coarsen(run, everybody.n, asked)
    seconds = time.perf_counter() - start
    for name, one in found.items():
        mask = nothing[:, : len(asked[name].variables)]
        yield {
            **case, "what": name, **truth(everybody, table, asked[name], mask),
            **estimate(one.tau1), **empty, "seconds": seconds, "seconds_of_chains": fitted,
        }  # fmt: skip
    start = time.perf_counter()
    made = bnp.protect(run, everybody.n, max_tau1=LIMIT)
    yield {
        **case, "what": "protected", **truth(everybody, table, made.coarsening, made.suppressed),
        **estimate(made.after.tau1), "recodings": len(made.recodings),
        "suppressed": int(made.suppressed.any(axis=1).sum()), "bits": made.after.loss,
        "seconds": time.perf_counter() - start, "seconds_of_chains": fitted,
    }  # fmt: skip


def make_table(rows):
    """Means over the samples, and the samples whose interval has the truth."""
    rows["held"] = rows["tau1_true"].between(rows["tau1_low"], rows["tau1_high"]).astype(int)
    table = rows.groupby(["rules", "what"], sort=False).agg(
        samples=("seed", "size"), uniques=("uniques", "mean"), tau1_true=("tau1_true", "mean"),
        tau1=("tau1", "mean"), held=("held", "sum"), recodings=("recodings", "mean"),
        suppressed=("suppressed", "mean"), bits=("bits", "mean"), seconds=("seconds", "mean"),
    )  # fmt: skip
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 3])
    parser.add_argument("--minutes", type=float)
    args = parser.parse_args()
    data = bnp.datasets.southeast_michigan_households(distinct=True)
    everybody = data.households(head=True)
    results = Results(HERE / "results.csv", ("rules", "seed"), args.minutes)
    cases = ({"rules": rules, "seed": seed} for seed in args.seeds
             for rules in ("none", "census"))  # fmt: skip
    for case in results.missing(cases):
        for row in list(measure(data, everybody, case)):
            results.append(row)
            print(*row.values(), flush=True)
    table = make_table(pd.read_csv(HERE / "results.csv", keep_default_na=False))
    (HERE / "table.md").write_text(markdown(table) + "\n")


if __name__ == "__main__":
    main()
