"""Time and error of the three roads to cell probabilities; writes results.json and results.md.

python experiments/speed/cell_probability/benchmark.py
"""

import json
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from sequential import log_cell_probability_sequential

from bnp_models.kernels.mixed_membership.cell_probability import (
    log_cell_probability_draws,
    log_cell_probability_exact,
)
from bnp_models.kernels.numerics.set_partitions import (
    log_block_weights,
    log_block_weights_gamma,
)

NUM_CELLS, NUM_LEVELS, NUM_ACTIVE, UNSAMPLED = 2000, (2, 2, 3, 4, 5, 5, 6, 7, 8, 9), 20, 290_000
ALPHAS = {"0.05": 0.05, "0.5": 0.5, "Ga(2, 1)": (2.0, 1.0)}
DRAWS = (1000, 4000, 16_000)
PARTICLES = (64, 256, 1024, 4096)


def median_time(function, *arguments, repeats=11):
    """(seconds of the first call, median milliseconds of the others, last result)."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        result = jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return times[0], float(np.median(times[1:]) * 1e3), result


def make_state(rng, num_slots):
    """A posterior state: 20 components with about 2,500 items each, the other slots from H."""
    theta = np.zeros((len(NUM_LEVELS), max(NUM_LEVELS), num_slots))
    for j, levels in enumerate(NUM_LEVELS):
        for k in range(num_slots):
            counts = np.zeros(levels)
            if k < NUM_ACTIVE:
                profile = rng.dirichlet(np.full(levels, 0.3))
                counts = rng.multinomial(rng.poisson(250), profile)
            theta[j, :levels, k] = rng.dirichlet(1 + counts)
    sticks = np.append(rng.beta(1, 4, num_slots - 1), 1)
    g0 = sticks * np.cumprod(np.append(1, 1 - sticks[:-1]))
    return theta, g0


def sample_uniques(rng, theta, g0, alpha):
    """Cells that occur once in a sample from the model, the number of cells asked for."""
    num_records = 10_000
    while True:
        concentration = rng.gamma(*alpha, num_records) if isinstance(alpha, tuple) else alpha
        concentration = np.broadcast_to(concentration, num_records)
        labels = np.zeros((len(NUM_LEVELS), num_records), int)
        cells = np.zeros((num_records, len(NUM_LEVELS)), np.int32)
        for j in range(len(NUM_LEVELS)):
            position = rng.random(num_records) * (j + concentration) - concentration
            earlier = np.clip(position.astype(int), 0, max(j - 1, 0))
            copied = labels[earlier, np.arange(num_records)]
            fresh = rng.choice(g0.size, num_records, p=g0 / g0.sum())
            labels[j] = np.where((position < 0) | (j == 0), fresh, copied)
            cumulative = theta[j].cumsum(0)[:, labels[j]]
            target = rng.random(num_records) * cumulative[-1]
            cells[:, j] = (cumulative <= target).sum(0)
        found, counts = np.unique(cells, axis=0, return_counts=True)
        found = found[counts == 1]
        if len(found) >= NUM_CELLS:
            return rng.permutation(found)[:NUM_CELLS]
        num_records *= 2


def draw_alpha(rng, alpha, size):
    value = rng.gamma(alpha[0], 1 / alpha[1], size) if isinstance(alpha, tuple) else alpha
    return jnp.asarray(value, jnp.float32)


def tau_1(log_p):
    return jnp.sum(jnp.exp(UNSAMPLED * jnp.log1p(-jnp.exp(log_p))))


def exact(theta, g0, cells, alpha):
    if isinstance(alpha, tuple):
        weights = log_block_weights_gamma(*(jnp.asarray(x, theta.dtype) for x in alpha), 10)
        return log_cell_probability_exact(theta, g0, cells, log_weights=weights)
    return log_cell_probability_exact(theta, g0, cells, alpha=alpha)


def time_roads(theta, g0, cells):
    """Compile and run times of every road at alpha = 0.5."""
    key, alpha = jax.random.key(0), jnp.float32(0.5)
    weights = log_block_weights(alpha, len(NUM_LEVELS))
    fixed = jax.jit(lambda w: log_cell_probability_exact(theta, g0, cells, alpha=w))
    tracked = jax.jit(lambda w: log_cell_probability_exact(theta, g0, cells, log_weights=w))
    roads = {"exact, fixed alpha": (fixed, alpha), "exact, blocks tracked": (tracked, weights)}
    for size in DRAWS:
        run = jax.jit(log_cell_probability_draws, static_argnums=5)
        roads[f"draws, T = {size}"] = (run, key, theta, g0, alpha, cells, size)
    for size in PARTICLES:
        run = jax.jit(log_cell_probability_sequential, static_argnums=5)
        roads[f"sequential, P = {size}"] = (run, key, theta, g0, alpha, cells, size)
    rows = []
    for name, (function, *arguments) in roads.items():
        slow = name.startswith("seq") or "000" in name
        first, milliseconds, _ = median_time(function, *arguments, repeats=3 if slow else 11)
        compiled = max(first - milliseconds / 1e3, 0.0)
        rows.append({"road": name, "compile_s": compiled, "run_ms": milliseconds})
    return rows


def jackknifed_tau_1(estimate):
    """tau_1 without the bias from its curvature: a jackknife over two halves of the draws."""
    first, second = map(tau_1, estimate.log_p_halves)
    return 2 * tau_1(estimate.log_p) - (first + second) / 2


def errors(rng, name, theta, g0, cells, times, num_slots):
    """Relative errors against the exact road in float64, and tau_1's bias, over a few keys."""
    alpha = ALPHAS[name]
    with jax.enable_x64(True):
        wanted = np.asarray(exact(*map(jnp.asarray, (theta, g0)), jnp.asarray(cells), alpha))
    theta, g0 = jnp.asarray(theta, jnp.float32), jnp.asarray(g0, jnp.float32)
    truth = float(tau_1(jnp.asarray(wanted, jnp.float32)))

    def row(road, log_p, tau, corrected):
        ratio = np.expm1(np.asarray(log_p, float) - wanted)
        spread = np.std(tau, ddof=1) if len(tau) > 1 else 0.0
        return {
            "alpha": name,
            "K": num_slots,
            "road": road,
            "run_ms": times.get(road),
            "median_error": float(np.median(np.abs(ratio))),
            "rms_error": float(np.sqrt(np.mean(ratio**2))),
            "tau_1_exact": round(truth, 1),
            "bias": float(np.mean(tau) - truth),
            "spread": float(spread),
            "bias_jackknife": float(np.mean(corrected) - truth),
        }

    single = exact(theta, g0, jnp.asarray(cells), alpha)
    road = "exact, blocks tracked" if isinstance(alpha, tuple) else "exact, fixed alpha"
    rows = [row(road, single, [tau_1(single)], [tau_1(single)])]
    for label, estimator, sizes in (
        ("draws, T", log_cell_probability_draws, DRAWS),
        ("sequential, P", log_cell_probability_sequential, PARTICLES),
    ):
        run = jax.jit(estimator, static_argnums=5)
        for size in sizes:
            log_p, tau, corrected = [], [], []
            for key in jax.random.split(jax.random.key(1), 4):
                drawn = draw_alpha(rng, alpha, size)
                estimate = run(key, theta, g0, drawn, jnp.asarray(cells), size)
                log_p.append(estimate.log_p)
                tau.append(tau_1(estimate.log_p))
                corrected.append(jackknifed_tau_1(estimate))
            rows.append(row(f"{label} = {size}", np.stack(log_p), tau, corrected))
    return rows


def show(value):
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2g}"


def table(rows, columns):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [show(row[c]) for c in columns]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    rng = np.random.default_rng(20)
    timing, error = [], []
    for num_slots in (64, 256):
        theta, g0 = make_state(rng, num_slots)
        cells = {name: sample_uniques(rng, theta, g0, alpha) for name, alpha in ALPHAS.items()}
        single = [jnp.asarray(x, jnp.float32) for x in (theta, g0)]
        rows = time_roads(*single, jnp.asarray(cells["0.5"]))
        timing += [{"K": num_slots, **row} for row in rows]
        if num_slots == 64:
            times = {row["road"]: row["run_ms"] for row in rows}
            for name in ALPHAS:
                error += errors(rng, name, theta, g0, cells[name], times, num_slots)
    machine = f"jax {jax.__version__}, {jax.default_backend()}, {os.cpu_count()} cores, float32"
    text = "\n\n".join(
        [
            f"# Results\n\n{machine}; C = {NUM_CELLS}, J = 10.",
            "## Time",
            table(timing, ["K", "road", "compile_s", "run_ms"]),
            "## Relative error at K = 64, and tau_1 of the sample uniques (4 keys)",
            table(error, [c for c in error[0] if c != "K"]),
        ]
    )
    print(text)
    folder = Path(__file__).parent
    (folder / "results.md").write_text(text + "\n")
    results = {"machine": machine, "timing": timing, "error": error}
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
