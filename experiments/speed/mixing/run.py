"""Mixing of the truncated latent class samplers, each move added in turn.

    python experiments/speed/mixing/run.py          # both data sets: about 25 minutes on two cores
    python experiments/speed/mixing/run.py --long   # the default, 10,000 + 10,000 sweeps
    python experiments/speed/mixing/run.py --quick  # a twentieth of the sweeps, nothing written

Eight chains from scattered starts on two simulated samples: one under 60 real conditions, and one
with two known modes, in which two groups of records sit in one class or in two. Writes results.csv
(ESS per 1,000 sweeps of all chains, ESS per second, R-hat), traces.png and tables.md.
"""

import argparse
import csv
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmark"))
import conditions  # noqa: E402

PLAIN = {"reorder": False, "swap": False, "split_merge_every": 0}
SAMPLERS = {
    "plain Gibbs (boxes)": {"augmentation": "boxes", **PLAIN},
    "+ swaps, reordering": {"augmentation": "boxes", "split_merge_every": 0},
    "+ marginal levels, weights": {"split_merge_every": 0},
    "+ split-merge (default)": {},
    "truncation by class": {"truncation": "classes"},
}
NUM_CHAINS = 8
POPULATION_PER_RECORD = 100


def two_groups(n=1500, strength=0.15, num_variables=12, num_levels=6, seed=0):
    """Two groups of records that differ a little in every variable, under one condition."""
    rng = np.random.default_rng(seed)
    schema = bnp.Schema(
        tuple(f"v{j}" for j in range(num_variables)), (tuple(range(num_levels)),) * num_variables
    )
    condition = np.full((1, num_variables), -1)
    condition[0, :2] = num_levels - 1
    zeros = bnp.StructuralZeros.from_codes(condition, schema)
    base = rng.dirichlet(np.full(num_levels, 5.0), num_variables)
    favoured = np.array([[(g + 2 * (j % 2)) % num_levels for j in range(num_variables)]
                         for g in (0, 1)])  # fmt: skip
    found = []
    while len(found) < n:
        group = len(found) % 2
        drawn = [rng.choice(num_levels, p=(1 - strength) * p + strength * np.eye(num_levels)[k])
                 for p, k in zip(base, favoured[group], strict=True)]  # fmt: skip
        if not zeros.contains(np.array([drawn]))[0]:
            found.append(drawn)
    return bnp.Microdata(schema, np.array(found)), zeros


def cases():
    zeros = conditions.conditions_60()
    # Scattered starts: random labels over all classes, or over few.
    yield "60 conditions", conditions.simulate_latent_classes(zeros, 7000, 50), zeros, 50, (50,)
    table, zeros = two_groups()
    yield "two modes", table, zeros, 10, (1, 10)


def quantities(run, thin):
    """The reported quantities, each (chains, draws), and how much each was thinned."""
    size = POPULATION_PER_RECORD * run.table.n
    risk = bnp.population_risk(run, size, ties="off", thin=thin)
    schema, feasible = run.table.schema, jnp.asarray(run.conditions.feasible.sets)

    @jax.jit
    def margins(log_pi, log_lambda):
        def one(draw):
            return run.model.level_probabilities(
                {"log_pi": draw[0], "log_lambda": draw[1]}, schema.num_levels, feasible
            )

        return jax.lax.map(one, (log_pi, log_lambda))

    flat = [run.draws[name][:, ::thin] for name in ("log_pi", "log_lambda")]
    shape = flat[0].shape[:2]
    p = np.asarray(margins(*(x.reshape(-1, *x.shape[2:]) for x in flat))).reshape(*shape, -1)
    first = np.cumsum((0, *schema.num_levels[:-1]))
    named = {
        f"P({schema.variables[j]} = level 1)": p[:, :, first[j]]
        for j in (2, schema.num_levels.index(max(schema.num_levels)), len(first) - 1)
    }
    found = {
        "log likelihood (truncated)": (risk.log_likelihood, thin),
        "tau_1": (risk.tau1_conditional, thin),
        "alpha": (run.draws["alpha"], 1),
        "classes occupied": (run.draws["components"], 1),
    } | {name: (values, thin) for name, values in named.items()}
    return found, run.draws["log_feasible"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--warmup", type=int, default=4000)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--long", action="store_true")
    args = parser.parse_args()
    shorten = 20 if args.quick else 1
    warmup, draws, thin = args.warmup // shorten, args.draws // shorten, 4
    samplers, chosen = SAMPLERS, cases()
    if args.long:
        warmup, draws, thin = 10_000, 10_000, 20
        samplers, chosen = {"+ split-merge (default)": {}}, [next(chosen)]
    rows, traces = [], {}
    for name, table, zeros, num_classes, starts in chosen:
        for label, options in samplers.items():
            run = bnp.sample(
                bnp.TNPLCM(num_classes, **options), table, key=jax.random.key(2026),
                conditions=zeros, num_chains=NUM_CHAINS, num_warmup=warmup, num_samples=draws,
                start_components=tuple(s for s in starts for _ in range(NUM_CHAINS // len(starts))),
            )  # fmt: skip
            found, log_feasible = quantities(run, thin)
            found["log P(feasible), not judged"] = (log_feasible, 1)
            sweeps = NUM_CHAINS * draws
            seconds = run.seconds["draws"]
            for quantity, (values, _) in found.items():
                figures = figures_of(values)
                ess = figures["ess_bulk"]
                rows.append({
                    "data": name, "sampler": label, "quantity": quantity,
                    "rhat": figures["rhat"], "ess_per_1000_sweeps": ess and 1e3 * ess / sweeps,
                    "ess_per_second": ess and ess / seconds,
                    "sweeps_per_second": sweeps / seconds,
                    "accepted_splits": float(run.draws["accepted_splits"].mean()),
                })  # fmt: skip
                print(rows[-1], flush=True)
            traces[name, label] = found["log likelihood (truncated)"][0]
    if args.quick:
        return
    with open(HERE / ("long.csv" if args.long else "results.csv"), "w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    if args.long:
        return
    plot(traces)
    (HERE / "tables.md").write_text(tables(rows, warmup, draws))


def plot(traces):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(name for name, _ in traces))
    figure, axes = plt.subplots(
        len(names), len(SAMPLERS), figsize=(3 * len(SAMPLERS), 2.6 * len(names)), sharey="row",
        layout="constrained",
    )  # fmt: skip
    for row, name in zip(axes, names, strict=True):
        for axis, label in zip(row, SAMPLERS, strict=True):
            axis.plot(traces[name, label].T, lw=0.5)
            axis.set_title(f"{name}: {label}", fontsize=8)
            axis.tick_params(labelsize=7)
    figure.supylabel("truncated log-likelihood, 8 chains")
    figure.savefig(HERE / "traces.png", dpi=90)


def tables(rows, warmup, draws):
    lines = [f"{NUM_CHAINS} chains, {warmup} sweeps of warm-up, {draws} draws a chain.", ""]
    for name in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == name]
        quantities = list(dict.fromkeys(row["quantity"] for row in own))
        for title, show in (
            ("R-hat", lambda r: f"{r['rhat']:.3f}" if r["rhat"] else "-"),
            ("ESS per 1,000 sweeps / per second", lambda r: f"{r['ess_per_1000_sweeps']:.0f} / "
             f"{r['ess_per_second']:.0f}" if r["ess_per_1000_sweeps"] else "-"),
        ):  # fmt: skip
            lines += [f"**{name}: {title}**", "",
                      "| sampler | sweeps/s | " + " | ".join(quantities) + " |",
                      "|---|---|" + "---|" * len(quantities)]  # fmt: skip
            for label in SAMPLERS:
                mine = {r["quantity"]: r for r in own if r["sampler"] == label}
                speed = next(iter(mine.values()))["sweeps_per_second"]
                cells = " | ".join(show(mine[q]) for q in quantities)
                lines.append(f"| {label} | {speed:.0f} | {cells} |")
            lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
