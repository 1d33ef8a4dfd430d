"""Correction for overdispersion: fitted exactly, as a sensitivity analysis, and without it.

    python experiments/accuracy/ties/run.py
    python experiments/accuracy/ties/run.py --population simulated --seeds 4

x_i | P ~ P, P ~ DP(c_0, F) with F the HDP mixed membership model: records of a cell sit at tables,
and F is fitted to one record of each table. Each command appends missing rows to results.csv and
prints its table.
"""

import argparse
import dataclasses
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.risk import overdispersion
from bnp_models.risk.evaluator import draw_joining

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "known_truth"))
from populations import population  # noqa: E402
from results import Results, markdown  # noqa: E402

KEY = ("population", "n", "seed")
GRID = np.logspace(1, 10, 181)
CAPACITY = 128


def impute(key, rows, draw, follow=None):
    """Labels of items in turn, each given those before; and log p(labels, x) / q(labels).

    Labels to follow are given; the others are drawn from q.
    """
    num_items, n = rows.shape
    alpha, g0, theta = draw
    seated = jnp.zeros((n, g0.size))
    log_w, labels = jnp.zeros(n), []
    for j in range(num_items):
        above = jnp.cumsum((alpha * g0 + seated) * theta[rows[j]], axis=1)
        if follow is None:
            u = jax.random.uniform(jax.random.fold_in(key, j), (n,)) * above[:, -1]
            label = jnp.minimum(jnp.sum(above < u[:, None], axis=1), g0.size - 1)
        else:
            label = follow[j]
        log_w += jnp.log(above[:, -1] / (alpha + j))
        seated += jax.nn.one_hot(label, g0.size)
        labels.append(label)
    return jnp.stack(labels), log_w


@partial(jax.jit, static_argnames="model")
def advance(model, key, carry, data, position, log_rising, begin, end):
    """Sweeps: the model given one record a table, who opens a table, and c_0.

    A record at position i of its cell opens a table with odds c_0 F(cell) : i - 1; its labels come
    and go with it, by the weights of `impute`.
    """
    n = data.rows.shape[1]
    log_position = jnp.log(jnp.maximum(position - 1, 1e-30))

    def sweep(t, carry):
        state, opens, log_c = carry
        keys = jax.random.split(jax.random.fold_in(key, t), 4)
        order = jnp.argsort(~opens, stable=True)
        of_tables = dataclasses.replace(
            data, rows=data.rows[:, order], cell=data.cell[order],
            weight=opens[order].astype(data.weight.dtype),
            num_records=jnp.sum(opens, dtype=data.num_records.dtype),
        )  # fmt: skip
        state, _ = model.sweep(
            keys[0], dataclasses.replace(state, z=state.z[:, order]), of_tables, t
        )
        z, draw = state.z[:, jnp.argsort(order)], (state.alpha, state.g0, state.theta)
        new, log_w_new = impute(keys[1], data.rows, draw)
        _, log_w = impute(None, data.rows, draw, z)
        log_u = jnp.log(jax.random.uniform(keys[2], (n,)))
        opened = ~opens & (log_u < log_c + log_w_new - log_position) & (data.weight > 0)
        closed = opens & (log_u < log_position - log_c - log_w) & (position > 1)
        z = jnp.where(opened, new, z).astype(state.z.dtype)
        opens = (opens & ~closed) | opened
        log_p = (jnp.sum(opens) - jnp.sum(data.weight)) * jnp.log(GRID) + log_rising
        log_c = jnp.log(jnp.asarray(GRID))[jax.random.categorical(keys[3], log_p)]
        return dataclasses.replace(state, z=z), opens, log_c

    return jax.lax.fori_loop(begin, end, sweep, carry)


def exact(table, population_size, seed, warmup=600, draws=100, thin=4, starts=(30, 50)):
    """Draws of tau_1 and c_0 of the exactly fitted correction, chain by chain."""
    model = bnp.HDPMixedMembership()
    data = model.prepare(table, None)
    cells = table.cells()
    position = np.zeros(data.rows.shape[1])
    frame = pd.Series(cells.record_cell)
    position[: table.n] = frame.groupby(frame).cumcount() + 1
    log_rising = jnp.asarray([-np.log1p(np.arange(table.n) / c).sum() for c in GRID])
    log_p = jax.jit(model.log_cell_probability, static_argnums=3)
    generator = np.random.default_rng(seed)
    tau1, concentration = [], []
    for chain, start in enumerate(starts):
        key_init, key = jax.random.split(jax.random.fold_in(jax.random.key(seed), chain))
        state = model.init(key_init, data, CAPACITY, jnp.int32(start))
        carry = state, data.weight > 0, jnp.log(jnp.float32(1e7))
        done = 0
        for d in range(draws):
            end = warmup + (d + 1) * thin
            carry = advance(model, key, carry, data, jnp.asarray(position), log_rising, done, end)
            state, done = carry[0], end
            draw = {"g0": state.g0, "theta": state.theta, "alpha": state.alpha,
                    "alpha_rate": state.rate, "log_feasible": jnp.zeros(())}  # fmt: skip
            codes = jnp.asarray(cells.codes, jnp.int32)
            b = np.exp(np.asarray(log_p(None, draw, codes, table.schema.num_levels), float))
            c = float(jnp.exp(carry[2]))
            g = generator.standard_gamma(np.append(c * b + cells.counts, c * max(1 - b.sum(), 0)))
            q = (g / g.sum())[:-1][cells.unique_cells]
            joined = draw_joining(generator, q[None], population_size - table.n)
            tau1.append(np.sum(joined == 0))
            concentration.append(c)
    return np.array(tau1, float), np.array(concentration)


def interval(name, tau1, truth):
    low, high = np.quantile(tau1, [0.025, 0.975])
    return {name: tau1.mean(), f"{name}_q025": low, f"{name}_q975": high,
            f"{name}_covers": int(low <= truth <= high)}  # fmt: skip


def measure(case):
    """tau_1 of a sample: without correction, as a sensitivity analysis, and fitted exactly."""
    people = population(case["population"], case["seed"], None)
    sample = people.sample(case["n"], case["seed"])
    truth, table = people.truth(sample).tau1, bnp.Microdata.from_frame(sample)
    run = bnp.sample(
        bnp.HDPMixedMembership(), table, key=jax.random.key(case["seed"]), num_chains=2,
        num_warmup=600, num_samples=100, thin=4, start_components=(30, 50),
    )  # fmt: skip
    overdispersion.EXPONENTS = np.ones(1)
    risk = bnp.population_risk(run, len(people), ties="sensitivity")
    c0 = len(sample) * np.median(risk.overdispersion.shape)
    tau1, concentration = exact(table, len(people), case["seed"])
    first, second = np.split(tau1, 2)
    return case | {
        "truth": truth,
        **interval("none", risk.tau1, truth),
        **interval("sensitivity", risk.overdispersion.tau1, truth), "c0": c0,
        **interval("exact", tau1, truth), "exact_c0": np.median(concentration),
        "exact_chains": f"{first.mean():.1f} {second.mean():.1f}",
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--population", default="all")
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    results = Results(HERE / "results.csv", KEY)
    cases = [{"population": args.population, "n": args.n, "seed": s} for s in range(args.seeds)]
    for case in results.missing(cases):
        results.append(measure(case))
    (HERE / "table.md").write_text(markdown(pd.read_csv(HERE / "results.csv"), index=False) + "\n")


if __name__ == "__main__":
    main()
