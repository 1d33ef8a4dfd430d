"""TNPLCM with impossible records drawn one by one, and with counts of them by slice.

    python experiments/papers/printed_sampler/latent_classes.py
    python experiments/papers/printed_sampler/latent_classes.py --only speed

Manrique-Vallier & Hu (2018, doi:10.1111/rssa.12352, section 2.3) replace the impossible records of
Manrique-Vallier & Reiter (2014) by counts, and report 300% more speed and 97% less memory. Both are
here in NumPy, beside the two augmentations of the program: their posterior on a small case, and
their time and memory on larger ones. Writes posterior.md and speed.md.
"""

import argparse
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of, monte_carlo_errors

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
sys.path.append(str(HERE.parents[1] / "speed" / "benchmark"))
from conditions import conditions_73, simulate_latent_classes  # noqa: E402
from results import markdown  # noqa: E402

A, B = 0.25, 0.25
"""Of the prior of alpha."""
WAYS = {"record by record": True, "counts (the paper)": False}
"""Whether records are listed one by one."""
PLAIN = {
    "level_prior": "uniform", "ordered": "none", "reorder": False, "swap": False,
    "split_merge_every": 0,
}  # fmt: skip

# The small case: three variables of two levels, one condition, two classes.
SMALL = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [0, 0, 1], [0, 1, 0]])
CHAINS, SWEEPS = 4, 3000
QUANTITIES = ("P(impossible)", "p(0, 0, 0)", "p(1, 0, 1)", "largest class", "log(1 + alpha)")
CELLS = np.stack(np.meshgrid(*[[0, 1]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)


@dataclass
class State:
    """K classes, J variables."""

    pi: np.ndarray  # (K,)
    theta: list[np.ndarray]  # J arrays (K, L_j)
    alpha: float


def start(rng, num_classes, num_levels) -> State:
    theta = [rng.dirichlet(np.ones(size), num_classes) for size in num_levels]
    return State(rng.dirichlet(np.ones(num_classes)), theta, 1.0)


def class_weights(state: State, rows: np.ndarray) -> np.ndarray:
    """(N, K) pi_k prod_j theta_jk[row_j] of records or slices; a level of -1 is free."""
    weight = np.tile(state.pi, (len(rows), 1))
    for theta, level in zip(state.theta, rows.T, strict=True):
        weight *= np.where(level[:, None] < 0, 1, theta.T[level])
    return weight


def choose(rng, weight: np.ndarray) -> np.ndarray:
    """Index drawn with probabilities proportional to the weights of each row."""
    cumulative = np.cumsum(weight, axis=1)
    u = rng.random(len(weight)) * cumulative[:, -1]
    return (u[:, None] > cumulative).sum(axis=1)


def count_records(codes, z, num_classes, num_levels):
    """J arrays (K, L_j): listed records by class and level."""
    return [
        np.bincount(z * size + x, minlength=num_classes * size).reshape(num_classes, size)
        for x, size in zip(codes.T, num_levels, strict=True)
    ]


def observed(rng, state, data, one_by_one):
    """Step (a): counts of the sample by class, and by class and level."""
    num_classes = len(state.pi)
    if one_by_one:
        z = choose(rng, class_weights(state, data.codes))
        by_class = np.bincount(z, minlength=num_classes)
        return by_class, count_records(data.codes, z, num_classes, data.num_levels)
    weight = class_weights(state, data.cells)
    m = rng.multinomial(data.counts, weight / weight.sum(axis=1, keepdims=True))
    return m.sum(axis=0), [
        m.T @ (level[:, None] == np.arange(size))
        for level, size in zip(data.cells.T, data.num_levels, strict=True)
    ]


def impossible(rng, state, data, one_by_one):
    """Steps (d) to (f), or records with their slices, classes and values."""
    num_classes = len(state.pi)
    weight = class_weights(state, data.slices)
    omega = weight.sum(axis=1)
    # The negative multinomial: Poisson counts with a gamma variate in common.
    rate = rng.gamma(len(data.codes)) / max(1 - omega.sum(), 1e-12)
    number = rng.poisson(rate * omega)
    if one_by_one:
        of_slice = np.repeat(np.arange(len(number)), number)
        z = choose(rng, weight[of_slice])
        codes = data.slices[of_slice]
        for theta, level in zip(state.theta, codes.T, strict=True):
            free = level < 0
            level[free] = choose(rng, theta[z[free]])
        by_class = np.bincount(z, minlength=num_classes)
        return by_class, count_records(codes, z, num_classes, data.num_levels)
    m = rng.multinomial(number, weight / omega[:, None])
    levels = []
    for theta, level, size in zip(state.theta, data.slices.T, data.num_levels, strict=True):
        drawn = rng.multinomial(m[level < 0], theta).sum(axis=0)
        levels.append(drawn + m.T @ (level[:, None] == np.arange(size)))
    return m.sum(axis=0), levels


def log_gamma(rng, shape):
    """Logarithms of gamma variates, which may be smaller than any number."""
    return np.log(rng.gamma(shape + 1)) + np.log(rng.random(np.shape(shape))) / shape


def sweep(rng, state: State, data, one_by_one: bool) -> tuple[State, int]:
    """All steps: classes, impossible records, levels, sticks, alpha. Also the number of these."""
    seen, seen_levels = observed(rng, state, data, one_by_one)
    added, added_levels = impossible(rng, state, data, one_by_one)
    theta = []
    for one, two in zip(seen_levels, added_levels, strict=True):
        gamma = rng.gamma(1.0 + one + two)
        theta.append(gamma / gamma.sum(axis=1, keepdims=True))
    nu = seen + added
    above = np.cumsum(nu[::-1])[::-1][1:]
    first, rest = log_gamma(rng, 1.0 + nu[:-1]), log_gamma(rng, state.alpha + above)
    both = np.logaddexp(first, rest)
    log_v, log_1mv = np.append(first - both, 0), rest - both
    pi = np.exp(log_v + np.append(0, np.cumsum(log_1mv)))
    alpha = rng.gamma(A + len(log_1mv)) / (B - log_1mv.sum())
    return State(pi, theta, alpha), int(added.sum())


class Data:
    """A sample, its cells with their counts, and the disjoint slices of the impossible region."""

    def __init__(self, table, zeros):
        self.codes, self.num_levels = table.codes.astype(np.int64), table.schema.num_levels
        self.cells, self.counts = np.unique(self.codes, axis=0, return_counts=True)
        self.slices = zeros.slices().astype(np.int64)


def quantities(pi, theta, alpha):
    """(draws, 5) of parameters (draws, ...) of the small case; theta is (draws, K, 3, 2)."""
    of_cell = theta[:, :, np.arange(3), CELLS]  # (draws, K, cells, 3)
    p = (pi[:, :, None] * of_cell.prod(axis=3)).sum(axis=1)
    outside = p[:, 6:].sum(axis=1)  # the condition: both of the first two are 1
    share = p / (1 - outside[:, None])
    return p, np.column_stack([
        outside, share[:, 0], share[:, 5], pi.max(axis=1), np.log1p(alpha),
    ])  # fmt: skip


def exact(draws=2_000_000, size=100_000):
    """Posterior means of the small case by weighted draws of the prior, and their errors."""
    rng = np.random.default_rng(0)
    index = SMALL @ [4, 2, 1]
    weights, values = [], []
    for _ in range(0, draws, size):
        alpha = np.maximum(rng.gamma(A, 1 / B, size), 1e-300)
        rest = np.exp(np.maximum(np.log(rng.random(size)) / alpha, -700))
        theta = rng.random((size, 2, 3, 1))
        theta = np.concatenate([theta, 1 - theta], axis=3)
        p, value = quantities(np.column_stack([1 - rest, rest]), theta, alpha)
        weights.append(np.prod(p[:, index], axis=1) / p[:, :6].sum(axis=1) ** len(index))
        values.append(value)
    weight, value = np.concatenate(weights), np.concatenate(values)
    mean = weight @ value / weight.sum()
    error = (weight[:, None] * (value - mean)).std(axis=0) / weight.mean() / np.sqrt(draws)
    return mean, error


def chains_here(data, one_by_one):
    """(CHAINS, SWEEPS, 5) quantities of the small case by a sampler in NumPy."""
    found = []
    for chain in range(CHAINS):
        rng = np.random.default_rng((1, chain))
        state, kept = start(rng, 2, data.num_levels), []
        for _ in range(SWEEPS + 200):
            state, _ = sweep(rng, state, data, one_by_one)
            kept.append((state.pi, np.stack(state.theta, axis=1), state.alpha))
        of_draws = (np.stack(x) for x in zip(*kept[200:], strict=True))
        found.append(quantities(*of_draws)[1])
    return np.stack(found)


def chains_of_program(table, zeros, augmentation):
    """The same by the program."""
    run = bnp.sample(
        bnp.TNPLCM(2, augmentation=augmentation, **PLAIN), table, key=jax.random.key(0),
        conditions=zeros, num_chains=CHAINS, num_warmup=200, num_samples=SWEEPS,
        parameters_every=1,
    )  # fmt: skip
    kept = run.parameters()
    # Rows are the levels of all variables, columns the classes.
    theta = np.moveaxis(np.exp(kept["log_lambda"]).reshape(-1, 3, 2, 2), 3, 1)
    pi = np.exp(kept["log_pi"]).reshape(-1, 2)
    return quantities(pi, theta, run.draws["alpha"].reshape(-1))[1].reshape(CHAINS, SWEEPS, -1)


def check():
    """Rows of posterior means by all samplers, with z-scores against the exact ones."""
    schema = bnp.Schema(("a", "b", "c"), ((0, 1),) * 3)
    table = bnp.Microdata(schema, SMALL.astype(np.int32))
    zeros = bnp.StructuralZeros.from_codes(np.array([[1, 1, -1]], np.int32), schema)
    data = Data(table, zeros)
    truth, error = exact()
    yield {"sampler": "exact"} | dict(zip(QUANTITIES, map(shown, truth, error), strict=True))
    chains = {f"{way}, NumPy": partial(chains_here, data, x) for way, x in WAYS.items()} | {
        f"the program, {x}": partial(chains_of_program, table, zeros, x) for x in ("boxes", "none")
    }
    for name, make in chains.items():
        values = np.moveaxis(make(), 2, 0)
        errors = np.array([monte_carlo_errors(x).mean for x in values])
        mean, figures = values.mean(axis=(1, 2)), [figures_of(x) for x in values]
        z = np.abs((mean - truth) / np.hypot(error, errors)).max()
        yield {
            "sampler": name, **dict(zip(QUANTITIES, map(shown, mean, errors), strict=True)),
            "largest z": f"{z:.1f}", "largest R-hat": f"{max(x['rhat'] for x in figures):.3f}",
            "least effective draws": f"{min(x['ess_bulk'] for x in figures):.0f}",
        }  # fmt: skip


def shown(mean, error):
    return f"{mean:.4f} +- {error:.4f}"


def timed(function, repeats):
    """Median seconds of the processor in calls, which other work on the machine does not change."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        function()
        seconds.append(time.process_time() - began)
    return float(np.median(seconds))


def measure_here(name, table, zeros, num_classes, sweeps, repeats):
    """Rows of seconds a sweep and memory of the samplers in NumPy, after sweeps with counts."""
    data, rng = Data(table, zeros), np.random.default_rng(2)
    state = start(rng, num_classes, data.num_levels)
    for _ in range(sweeps):
        state, _ = sweep(rng, state, data, False)
    case = {"data": name, "slices": len(data.slices)}
    for way, one_by_one in WAYS.items():
        numbers = []

        def once(one_by_one=one_by_one, numbers=numbers):
            numbers.append(sweep(rng, state, data, one_by_one)[1])

        milliseconds = 1e3 * timed(once, repeats)
        tracemalloc.start()
        once()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if one_by_one:
            listed = int(np.mean(numbers))
            kept = listed * (1 + len(data.num_levels)) * 8
        else:
            kept = (len(data.slices) * num_classes + num_classes * sum(data.num_levels)) * 8
        yield case | {
            "sampler": f"{way}, NumPy", "impossible records": int(np.mean(numbers)),
            "CPU ms a sweep": milliseconds, "kept of them, MiB": kept / 2**20,
            "peak of a sweep, MiB": peak / 2**20,
        }  # fmt: skip


def measure_program(name, table, zeros, num_classes, sweeps, repeats):
    """The same of the program's samplers, after as many sweeps of their own."""
    case = {"data": name, "slices": len(zeros.slices())}
    for augmentation in ("boxes", "none"):
        model = bnp.TNPLCM(num_classes, augmentation=augmentation, **PLAIN)
        prepared = model.prepare(table, zeros)
        own = model.init(jax.random.key(1), prepared, num_classes, jnp.asarray(num_classes))
        step = jax.jit(model.sweep).lower(jax.random.key(2), own, prepared, 0).compile()
        for i in range(sweeps):
            own, info = step(jax.random.fold_in(jax.random.key(3), i), own, prepared, i)
        jax.block_until_ready(own)

        def once(step=step, own=own, prepared=prepared):
            jax.block_until_ready(step(jax.random.key(4), own, prepared, sweeps))

        memory = step.memory_analysis()
        yield case | {
            "sampler": f"the program, {augmentation}", "impossible records": int(info.augmented),
            "CPU ms a sweep": 1e3 * timed(once, repeats), "kept of them, MiB": np.nan,
            "peak of a sweep, MiB": memory.temp_size_in_bytes / 2**20,
        }  # fmt: skip


def cases():
    """Name, sample, structural zeros, classes, sweeps before, and sweeps that are timed."""
    people = bnp.datasets.census_income()
    path = HERE.parents[1] / "synthesis" / "repeated_sampling" / "conditions.csv"
    for n in (1000, 10_000):
        table = bnp.Microdata.from_frame(people.sample(n, 0))
        zeros = bnp.read_conditions(path, table.schema)
        yield f"census, n = {n:,}", table, zeros, 50, 100, 9
    zeros = conditions_73()
    table = simulate_latent_classes(zeros, 10_000, 80)
    yield "17 variables, n = 10,000", table, zeros, 80, 30, 5


def write(rows: Iterator[dict], name: str) -> None:
    """Write a table again with each row, so that those of a stopped run are kept."""
    found = []
    for row in rows:
        found.append(row)
        print(row, flush=True)
        (HERE / name).write_text(markdown(pd.DataFrame(found).fillna("-"), index=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("posterior", "speed"), help="one of the two tables")
    args = parser.parse_args()
    if args.only != "speed":
        write(check(), "posterior.md")
    if args.only != "posterior":
        measures = measure_here, measure_program
        write((row for f in measures for case in cases() for row in f(*case)), "speed.md")


if __name__ == "__main__":
    main()
