"""Protected samples of the census population: what is left of the risk in truth, and what was lost.

    python experiments/accuracy/protection/run.py

Ten samples of 1,000 of the persons of 15 and over. Each is protected to a limit of 5 population
uniques, with recoding and without, and brought to 3-anonymity by local suppression alone. Writes
results.csv and table.md; a run goes on where it was stopped.
"""

import argparse
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.data.cells import group_cells
from bnp_models.risk.protected_risks import patterns
from bnp_models.risk.recoding import Recoded

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "known_truth"))
from results import Results, markdown  # noqa: E402

N, LIMIT, K = 1000, 5, 3
CHAINS = {"num_chains": 4, "num_warmup": 600, "num_samples": 200, "thin": 3,
          "start_components": (30, 60, 40, 50)}  # fmt: skip
METHODS = {"recoding and suppression": {}, "suppression": {"max_suppressed": 1.0}}


def counts_on_keys(codes, others, mask, num_levels):
    """For each record (n, J) with values suppressed, how many of the others agree on the rest."""
    found = np.full(len(codes), len(others))
    for pattern, where in patterns(mask):
        if pattern.all():
            continue
        both = np.concatenate([codes[where], others])[:, ~pattern]
        cells = group_cells(both, np.array(num_levels)[~pattern])
        of_others = np.bincount(cells.record_cell[len(where) :], minlength=len(cells.codes))
        found[where] = of_others[cells.record_cell[: len(where)]]
    return found


def anonymous(codes, num_levels):
    """Values to suppress until each record shares the rest with K - 1 others, greedily."""
    mask = np.zeros(codes.shape, bool)
    while True:
        few = np.flatnonzero(counts_on_keys(codes, codes, mask, num_levels) < K)
        if not few.size:
            return mask
        number = np.zeros((len(few), codes.shape[1]))
        for j in range(codes.shape[1]):
            more = mask[few].copy()
            more[:, j] = True
            number[:, j] = counts_on_keys(codes[few], codes, more, num_levels)
        number[mask[few]] = -1
        mask[few, number.argmax(axis=1)] = True


def row(case, method, whole, recoded, mask, tau1=None):
    """Figures of a protected file, with the truth in the population."""
    sample = recoded.coarsening.coarser(recoded.table)
    people = recoded.coarsening.coarser(whole)
    share = counts_on_keys(sample.codes, people.codes, mask, sample.schema.num_levels)
    weight = np.ones(recoded.table.num_variables)
    loss = recoded.loss(weight) + recoded.costs(weight)[mask].sum() / N
    estimate = {"estimate": np.nan, "q975": np.nan}
    if tau1 is not None:
        estimate = {"estimate": tau1.mean(), "q975": np.quantile(tau1, 0.975)}
    return case | {
        "method": method, "limit": LIMIT, **estimate, "truth": int((share == 1).sum()),
        "levels_lost": sum(whole.schema.num_levels)
        - sum(recoded.coarsening.schema.num_levels),
        "values": int(mask.sum()), "records": int(mask.any(axis=1).sum()), "bits_lost": loss,
    }  # fmt: skip


def measure(people, whole, case):
    """Rows of one sample."""
    seed = case["seed"]
    table = bnp.Microdata.from_frame(people.sample(N, seed), levels=whole.schema)
    run = bnp.sample(bnp.HDPMixedMembership(), table, key=jax.random.key(seed), **CHAINS)
    unchanged = Recoded.unchanged(table)
    nothing = np.zeros((N, table.num_variables), bool)
    for method, options in METHODS.items():
        found = bnp.protect(run, len(people), max_tau1=LIMIT, ordered=["education"], **options)
        if method == next(iter(METHODS)):
            yield row(case, "the sample", whole, unchanged, nothing, found.before.tau1)
        yield row(case, method, whole, found.recoded, found.suppressed, found.after.tau1)
    mask = anonymous(table.codes, table.schema.num_levels)
    yield row(case, f"{K}-anonymity", whole, unchanged, mask)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    people = bnp.datasets.census_income(adults=True)
    whole = bnp.Microdata.from_frame(people.frame)
    results = Results(HERE / "results.csv", ("seed",))
    for case in results.missing({"seed": seed} for seed in range(args.seeds)):
        for one in list(measure(people, whole, case)):
            results.append(one)
    rows = pd.read_csv(HERE / "results.csv")
    rows["above_limit"] = (rows["truth"] > rows["limit"]).astype(int)
    means = ["estimate", "truth", "levels_lost", "values", "records", "bits_lost"]
    by = rows.groupby("method", sort=False)
    table = by[means].mean().join(by["truth"].agg(largest_truth="max"))
    table = table.join(by["above_limit"].sum())
    (HERE / "table.md").write_text(markdown(table) + "\n")


if __name__ == "__main__":
    main()
