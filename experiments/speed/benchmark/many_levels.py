"""A sweep of HDP mixed membership at n = 1,000 with many levels, and its steps, before and after.

    python experiments/speed/benchmark/many_levels.py
    python experiments/speed/benchmark/many_levels.py --before CHECKOUT --records workers.csv.gz

Milliseconds are of one chain and of processor time, which other work on the machine disturbs least.
Each checkout has a process of its own, and the processes take turns. Prints tables, and writes them
with --out.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
NUM_LEVELS = (90, 42, 15, 8, 6, 4, 3, 2)
NUM_CLASSES = 20
ROUNDS, STRETCH, CALLS = 11, 40, 16


def latent_class_codes(n, seed=0):
    """Codes of a latent class model: two variables as of ages and countries, and six small ones."""
    rng = np.random.default_rng(seed)
    classes = rng.choice(NUM_CLASSES, n, p=rng.dirichlet(np.ones(NUM_CLASSES)))
    columns = []
    for number in NUM_LEVELS:
        cumulative = rng.dirichlet(np.full(number, 0.5), NUM_CLASSES).cumsum(axis=1)
        column = (rng.random((n, 1)) > cumulative[classes]).sum(axis=1)
        columns.append(np.minimum(column, number - 1))
    return np.stack(columns, axis=1)


def table_of(records, n):
    """Make the sample: simulated, that of `run.py`, or of a file."""
    import bnp_models as bnp

    if records == "simulated":
        names = tuple(f"v{j}" for j in range(len(NUM_LEVELS)))
        levels = tuple(tuple(range(number)) for number in NUM_LEVELS)
        return bnp.Microdata(bnp.Schema(names, levels), latent_class_codes(n))
    if records == "ten-variables":
        from run import latent_class_sample

        return latent_class_sample(n)
    frame = pd.read_csv(records, dtype=str)
    return bnp.Microdata.from_frame(frame.sample(n, random_state=0))


def steps_of(model, data):
    """Named steps of a sweep: a function of key and state, and the sweeps between two of them."""
    import jax.numpy as jnp

    from bnp_models.kernels.numerics import counting
    from bnp_models.models.mixed_membership import conditionals, sweep

    now = jnp.int32(0)
    # Before, all slots had sticks and level probabilities.
    of_slots_in_use = hasattr(conditionals, "draw_theta_in_use")

    def counted(state):
        opens = jnp.ones(state.z.shape, bool).at[1:].set(state.z[1:] != state.z[:-1])
        z = state.z.astype(jnp.int32)
        counts = counting.count_rows_by_component(data.rows, z, data.weight, state.theta.shape)
        tables = counting.count_components(z, opens * data.weight, state.g0.size)
        return z, opens, counts, tables

    def splits(key, state, given):
        z, opens, counts, tables = given
        labelled = z, counts, tables
        return sweep.draw_split_merge(
            key, labelled, opens, data, state.alpha0, state.level_shape, False
        )

    def weights(key, state, given):
        if not of_slots_in_use:
            return conditionals.draw_g0(key, given[3], state.alpha0)
        return conditionals.draw_g0(key, given[3], state.alpha0, conditionals.NEGLIGIBLE)

    def levels(key, state, given):
        counts, shape = given[2], state.level_shape
        if not of_slots_in_use:
            return conditionals.draw_theta(key, counts, shape, data.variable, data.bands)
        in_use = counting.length_in_use(state.g0 > 0)
        return conditionals.draw_theta_in_use(key, counts, data.levels.with_shape(shape), in_use)

    steps = {
        "labels": (lambda k, s, g: sweep.update_labels(k, s, data, now), 1),
        "seating": (lambda k, s, g: sweep.update_seating(model, k, s, data), model.seating_every),
        "tables": (lambda k, s, g: sweep.draw_tables(k, s), 1),
        "dishes": (lambda k, s, g: sweep.update_dishes(model, k, s, data, g[1], now), 1),
        "splits and merges": (splits, model.split_merge_every),
        "weights": (weights, 1),
        "prior of levels": (
            lambda k, s, g: conditionals.draw_level_shape(model, k, s, data, g[2], now), 1
        ),
        "level probabilities": (levels, 1),
    }  # fmt: skip
    return steps, counted


def worker(records, n):
    """Run chains, then answer each line of stdin with times: of a sweep, and of its steps."""
    import jax
    import jax.numpy as jnp

    import bnp_models as bnp

    table = table_of(records, n)
    model = bnp.HDPMixedMembership()
    began = time.perf_counter()
    run = bnp.sample(
        model, table, key=jax.random.key(1), num_chains=1, num_warmup=400,
        num_samples=200, keep=model.scalars,
    )  # fmt: skip
    total = time.perf_counter() - began
    data = model.prepare(table)

    @jax.jit
    def sweeps(key, state, begin):
        def one(i, state):
            return model.sweep(jax.random.fold_in(key, i), state, data, begin + i)[0]

        return jax.lax.fori_loop(0, STRETCH, one, state)

    steps, counted = steps_of(model, data)

    def repeated(step):
        def sum_of(leaf):
            return jnp.sum(leaf.astype(jnp.float32))

        @jax.jit
        def program(key, state, given):
            def one(i, total):
                made = step(jax.random.fold_in(key, i), state, given)
                return total + sum(map(sum_of, jax.tree.leaves(made)))

            return jax.lax.fori_loop(0, CALLS, one, jnp.float32(0))

        return program

    state = jax.tree.map(lambda leaf: leaf[0], run.state)
    given = jax.jit(counted)(state)
    # Labels are summed in int32 within a sweep.
    wide = jax.tree.map(lambda x: x.astype(jnp.int32) if x.dtype.kind == "u" else x, state)
    programs = {name: (repeated(step), every) for name, (step, every) in steps.items()}
    of_run = {
        "slots": run.capacity,
        "growths": len(run.growth),
        "components": float(run.draws["components"].mean()),
        "alpha": float(run.draws["alpha"].mean()),
        "alpha0": float(run.draws["alpha0"].mean()),
        "log-likelihood": float(run.draws["log_likelihood_items"].mean()),
        "seconds of tracing and compilation": run.seconds["compile"],
        "seconds of 600 sweeps": total - run.seconds["compile"],
    }

    def timed(function, *arguments):
        began = time.process_time()
        made = jax.block_until_ready(function(*arguments))
        return time.process_time() - began, made

    key, begin = jax.random.key(0), 0
    timed(sweeps, key, state, begin)
    for program, _ in programs.values():
        timed(program, key, wide, given)
    print(json.dumps(of_run), flush=True)
    for _ in sys.stdin:
        times = {}
        begin += STRETCH
        key = jax.random.fold_in(key, begin)
        elapsed, state = timed(sweeps, key, state, begin)
        times["sweep"] = 1e3 * elapsed / STRETCH
        for name, (program, every) in programs.items():
            elapsed, _ = timed(program, key, wide, given)
            times[name] = 1e3 * elapsed / CALLS / every
        print(json.dumps(times), flush=True)


class Process:
    """A checkout's process."""

    def __init__(self, checkout, records, n):
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        command = [sys.executable, __file__, "--worker", "--records", records, "--n", str(n)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.of_run = self._read()

    def _read(self):
        return json.loads(self._process.stdout.readline())

    def time(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read()

    def end(self):
        self._process.stdin.close()
        self._process.wait()


def measure(records, n, checkouts):
    """Medians of milliseconds a sweep, and what the runs were."""
    processes = {name: Process(path, records, n) for name, path in checkouts.items()}
    rounds = [{name: p.time() for name, p in processes.items()} for _ in range(ROUNDS)]
    for process in processes.values():
        process.end()
    times = {name: pd.DataFrame([one[name] for one in rounds]).median() for name in processes}
    table = pd.DataFrame(times)
    if "before" in table:
        ratios = [pd.Series(one["before"]) / pd.Series(one["now"]) for one in rounds]
        table["before / now"] = pd.DataFrame(ratios).median()
    runs = pd.DataFrame({name: p.of_run for name, p in processes.items()})
    return table, runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="checkout of the code to compare with")
    parser.add_argument("--records", nargs="+", default=["simulated"])
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="file of the tables")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.records[0], args.n)
        return
    checkouts = {"now": HERE.parents[2]}
    if args.before:
        checkouts = {"before": args.before.resolve()} | checkouts
    text = []
    for records in args.records:
        table, runs = measure(records, args.n, checkouts)
        name = Path(records).name.split(".")[0]
        text += [f"## {name}, n = {args.n:,}", as_markdown(table, "ms a sweep"),
                 as_markdown(runs, "chains")]  # fmt: skip
        print("\n\n".join(text[-3:]), flush=True)
    if args.out:
        args.out.write_text("\n\n".join(text) + "\n")


def as_markdown(frame, corner):
    lines = [[corner, *frame.columns], ["---"] * (1 + len(frame.columns))]
    lines += [[name, *(f"{x:,.4g}" for x in row)] for name, row in frame.iterrows()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
