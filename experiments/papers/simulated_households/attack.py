"""The supplement's attack on small samples of the simulated populations, with its histograms.

    python experiments/papers/simulated_households/attack.py

An intruder knows all households but one, or all persons but one, and guesses the missing one among
the candidates that differ from it in one variable.
"""

import argparse
import time
from functools import partial

import jax
import numpy as np
import pandas as pd
from run import DATA, HERE, PRINTED, Results, markdown

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of
from bnp_models.results import AttackRisk

HOUSEHOLDS = 400
CHAINS = {"num_chains": 2, "num_warmup": 500, "num_samples": 1000, "parameters_every": 2}
MODELS = {
    "adults": partial(bnp.NDPMPM, 30, 10, **PRINTED),
    "families": partial(bnp.NDPMPM, 40, 15, **PRINTED),
}
# Of the supplement: attacked, ranked first, among the first three, largest probability, candidates.
PRINTED_RISKS = {
    ("adults", "person", 0): (15_280, 11, 194, 0.236, 40),
    ("adults", "household", 2): (5375, 0, 7, 0.0557, 57),
    ("adults", "household", 3): (1375, 0, 0, 0.05, 82),
    ("adults", "household", 4): (478, 0, 0, 0.0438, 107),
    ("families", "person", 0): (3517, 33, 269, 0.3878, 25),
    ("families", "household", 2): (4070, 0, 18, 0.174, 32),
    ("families", "household", 3): (2492, 0, 2, 0.0866, 47),
    ("families", "household", 4): (2124, 0, 0, 0.0544, 62),
}


def attacks(data: str):
    """Rows by target, estimator and size of household; histograms on the way."""
    design = DATA[data].design()
    table = design.sample(HOUSEHOLDS, seed=0)
    model = MODELS[data]()
    began = time.perf_counter()
    run = bnp.sample(model, table, key=jax.random.key(0), conditions=design.rules, **CHAINS)
    files = bnp.synthesize(run, 5)
    refits = bnp.evaluation.refit(
        model, table, files, key=jax.random.key(1), conditions=design.rules, **CHAINS
    )
    told = {"seconds_of_chains": time.perf_counter() - began}
    chains = [figures_of(x.draws["log_likelihood"]) for x in (run, *refits)]
    told |= {"rhat": max(x["rhat"] for x in chains), "ess": min(x["ess_bulk"] for x in chains)}
    for target in ("person", "household"):
        for estimator, more in (("refit", {"refits": refits}), ("direct", {"estimator": "direct"})):
            began = time.perf_counter()
            found = bnp.attack_risk(
                run, table, files, key=jax.random.key(2), target=target, max_draws=2000, **more
            )
            seconds = time.perf_counter() - began
            if estimator == "refit":
                draw(found, f"attack-{data}-{target}")
            of = found.rows if target == "household" else table.member_household[found.rows]
            size = table.sizes[of]
            for own in (0, *(np.unique(size) if target == "household" else ())):
                yield {"data": data, "target": target, "estimator": estimator, "size": int(own)} | (
                    summary(found, (size == own) | (own == 0)) | told | {"seconds": seconds}
                )


def summary(found: AttackRisk, at: np.ndarray) -> dict:
    """Figures of some of the attacked units."""
    rank, rho, candidates = found.rank[at], found.rho[at, 0], found.num_candidates[at]
    return {
        "attacked": int(at.sum()), "first": int((rank == 1).sum()),
        "within_3": int((rank <= 3).sum()), "within_3_by_chance": float((3 / candidates).sum()),
        "candidates": float(candidates.mean()), "mean_rho": float(rho.mean()),
        "mean_before": float((1 / candidates).mean()), "largest_rho": float(rho.max()),
        "median_error": float(np.median(found.typical_error[at])),
    }  # fmt: skip


def draw(found, name: str) -> None:
    """Histograms of the ranks of the truth, as a share of the candidates, and of its probability
    in units of a blind guess."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5))
    axes[0].hist((found.rank - 0.5) / found.num_candidates, bins=20, range=(0, 1))
    axes[0].set(xlabel="rank of the truth, as a share of the candidates", ylabel=f"{found.target}s")
    axes[1].hist(found.rho[:, 0] * found.num_candidates, bins=30)
    axes[1].set(xlabel="probability of the truth, relative to a blind guess")
    figure.tight_layout()
    figure.savefig(HERE / f"{name}.png", dpi=70)
    plt.close(figure)


def text_of(rows: pd.DataFrame) -> str:
    shown = rows.copy()
    columns = ("attacked", "first", "within_3", "largest_rho", "candidates")
    for k, column in enumerate(columns):
        shown[f"paper: {column}"] = [
            PRINTED_RISKS[key][k] if key in PRINTED_RISKS else ""
            for key in zip(rows["data"], rows["target"], rows["size"], strict=True)
        ]
    return (
        f"Attacks on five files of {HOUSEHOLDS} households (`attack.py`); size 0 is all sizes, and "
        f"the paper's columns are of its 10,000 households.\n\n{markdown(shown, index=False)}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="begin no population later than this")
    args = parser.parse_args()
    path = HERE / "attack.csv"
    key = ("data", "target", "estimator", "size")
    results, unlimited = Results(path, key, args.minutes), Results(path, key)
    cases = [{"data": data, "target": "household", "estimator": "direct", "size": 4}
             for data in MODELS]  # fmt: skip
    for case in results.missing(cases):
        for row in attacks(case["data"]):
            # Some rows may be there from a run that was stopped.
            for _ in unlimited.missing([row]):
                unlimited.append(row)
        (HERE / "attack.md").write_text(text_of(pd.read_csv(path)))
        print(row, flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
