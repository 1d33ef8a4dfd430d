"""Chains of many samples of known populations at once, on an accelerator.

    python experiments/accuracy/layer_prior/chains.py prepare FOLDER --nist FILE --into PREPARED
    python experiments/accuracy/layer_prior/chains.py sample PREPARED/JOB.npz --into CHAINS

`prepare` draws the samples and writes them, those with as many variables and about as many records
into one file. `sample` runs four chains of each sample of a file, all in one program: without
ordered variables, with those that `--ordered auto` takes, and with all whose levels are numbers. It
writes, for some draws of each chain, log probabilities of the sample's cells, of cells of simulated
records that the sample has not, and of other persons of the population.

The default model, but with a fixed capacity; levels are those that the sample has.
"""

import argparse
import re
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "risk_peers"))

SIZES = (500, 1000, 2000, 5000)
JOBS = {"small": ((500, 1000, 2000), 2048), "large": ((5000,), 5120)}
VARIANTS = ("none", "auto", "all")
ROWS, NODES, LEVELS, OTHERS, UNSEEN = 256, 320, 128, 400, 64
STARTS = (10, 25, 40, 55)
CAPACITY = {"small": 64, "large": 96}
SWEEPS = {"small": (900, 800), "large": (900, 800)}
DRAWS = 8
MANY = 12


def bands_of(labels, variant):
    """Band of each level of a variable, by number; -1: none. Levels are in order."""
    is_number = np.array([re.match(r"\s*[<$]?[+-]?\d", str(label)) is not None for label in labels])
    size = int(is_number.sum())
    enough = {"none": 10**9, "auto": MANY, "all": 3}[variant]
    of_level = np.full(len(labels), -1)
    if size > enough and size >= 4 and (~is_number).sum() <= 2:
        for band, group in enumerate(np.array_split(np.flatnonzero(is_number), round(size**0.5))):
            of_level[group] = band
    return of_level


def coded(sample, others, variant=None):
    """Codes of a sample and of others, by levels of the sample; labels of each variable."""
    codes, out, labels = [], [], []
    for name in sample:
        seen = np.unique(sample[name].cat.codes)
        place = np.full(len(sample[name].cat.categories), -1)
        place[seen] = np.arange(len(seen))
        codes.append(place[sample[name].cat.codes])
        out.append(place[others[name].cat.codes])
        labels.append([str(x) for x in sample[name].cat.categories[seen]])
    return np.stack(codes, 1), np.stack(out, 1), labels


def prepare(args):
    """Write the samples, a file for each number of variables and each of `JOBS`."""
    from samples import draw_sample, populations

    args.into.mkdir(parents=True, exist_ok=True)
    jobs = {}
    for name, frame in populations(args.folder, args.nist):
        frame = frame.astype("category")
        for job, (sizes, padded) in JOBS.items():
            for n in sizes:
                for seed in range(args.seeds):
                    sample = draw_sample(frame, n, seed)
                    chosen = np.random.default_rng((seed, n, 1)).choice(len(frame), 3000, False)
                    inside = np.random.default_rng((seed, n)).choice(len(frame), n, replace=False)
                    others = frame.iloc[np.setdiff1d(chosen, inside)]
                    codes, out, labels = coded(sample, others)
                    out = out[(out >= 0).all(axis=1)][:OTHERS]
                    sizes_of = [len(x) for x in labels]
                    assert sum(sizes_of) < ROWS and max(sizes_of) <= LEVELS
                    bands = np.full((len(VARIANTS), ROWS), -1)
                    for v, variant in enumerate(VARIANTS):
                        at, number = 0, 0
                        for x in labels:
                            of_level = bands_of(x, variant)
                            of_row = np.where(of_level < 0, -1, of_level + number)
                            bands[v, at : at + len(x)] = of_row
                            number += of_level.max() + 1
                            at += len(x)
                    padded_codes = np.zeros((padded, codes.shape[1]), np.uint8)
                    padded_codes[:n] = codes
                    jobs.setdefault((codes.shape[1], job), []).append({
                        "name": f"{name}/{n}/{seed}", "n": n, "population": len(frame),
                        "codes": padded_codes,
                        "num_levels": np.array(sizes_of), "bands": bands,
                        "others": out[np.arange(OTHERS) % len(out)].astype(np.uint8),
                    })  # fmt: skip
    for (width, job), entries in jobs.items():
        stacked = {name: np.stack([entry[name] for entry in entries]) for name in entries[0]}
        np.savez_compressed(args.into / f"{job}-{width}.npz", **stacked)
        print(job, width, len(entries), flush=True)


def sample(args):
    """Run the chains of a file, and write what is kept of them."""
    import jax
    import jax.numpy as jnp

    import bnp_models as bnp
    from bnp_models.data.cells import group_cells
    from bnp_models.kernels.mixed_membership.cell_probability import log_cell_probability_exact
    from bnp_models.kernels.mixed_membership.tables import simulate_labels, simulate_levels
    from bnp_models.kernels.variates.levels import Layer, Levels
    from bnp_models.models.mixed_membership.state import HDPData

    began = time.perf_counter()
    job = args.job.stem.split("-")[0]
    stored = dict(np.load(args.job))
    if args.only:
        stored = {name: x[:: args.only] for name, x in stored.items()}
    num_variants = args.variants
    names, width = stored["name"], stored["codes"].shape[2]
    padded, capacity = stored["codes"].shape[1], CAPACITY[job]
    model = bnp.HDPMixedMembership(capacity=capacity)
    datas, cells_of, tables = [], [], []
    for i in range(len(names)):
        n, num_levels = int(stored["n"][i]), stored["num_levels"][i]
        codes = stored["codes"][i, :n].astype(np.int32)
        first = np.cumsum(num_levels) - num_levels
        cells = group_cells(codes, tuple(num_levels))
        total = num_levels.sum()
        variable = np.repeat(np.arange(width + 1), [*num_levels, ROWS - total]).astype(np.int32)
        rows = np.zeros((width, padded), np.int32)
        rows[:, :n] = (codes + first).T
        cell_rows = np.zeros((width, padded), np.int32)
        cell_rows[:, : len(cells.codes)] = (cells.codes + first).T
        record_cell = np.zeros(padded, np.int32)
        record_cell[:n] = cells.record_cell
        in_levels = np.minimum(np.arange(LEVELS) + first[:, None], ROWS - 1)
        exists = np.arange(LEVELS) < num_levels[:, None]
        cells_padded = cells.codes[np.minimum(np.arange(padded), len(cells.codes) - 1)]
        for v in range(num_variants):
            of_row = stored["bands"][i, v]
            number = of_row.max() + 1
            first_row = np.full(NODES - ROWS, ROWS - 1)
            first_row[:number] = [np.argmax(of_row == g) for g in range(number)]
            datas.append(HDPData(
                rows=rows, weight=(np.arange(padded) < n).astype(np.int32),
                num_records=np.int32(n), cell=record_cell, cell_rows=cell_rows,
                num_cells=np.int32(len(cells.codes)), zeros=None,
                levels=Levels(
                    variable=variable, shape=np.ones(NODES, np.float32),
                    total=np.ones(NODES, np.float32), variables=width, spare=1,
                    layers=(Layer(
                        of=np.where(of_row < 0, NODES - ROWS, of_row).astype(np.int32),
                        first=first_row.astype(np.int32),
                    ),),
                ),
            ))  # fmt: skip
            cells_of.append(cells_padded)
            tables.append((in_levels, exists, stored["others"][i].astype(np.int32)))
    data = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *datas)
    cells_of = jnp.asarray(np.stack(cells_of))
    in_levels, exists, others = (jnp.asarray(np.stack(x)) for x in zip(*tables, strict=True))
    total = len(datas)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(args.seed), width), (total, 4))
    starts = jnp.asarray(STARTS)
    warmup, kept = SWEEPS[job]
    if args.sweeps:
        warmup, kept = args.sweeps
    patience = warmup // 4

    @jax.jit
    def init(data, keys):
        def one(data, keys):
            start = jnp.minimum(starts, data.num_records // 10)
            return jax.vmap(lambda key, k: model.init(key, data, capacity, k))(keys, start)

        return jax.vmap(one)(data, keys)

    @jax.jit
    def advance(data, keys, states, worst, begin, end):
        def of_group(group):
            data, keys, states, worst = group

            def sweep(t, carry):
                states, worst = carry

                def chain(data, key, state):
                    return model.sweep(jax.random.fold_in(key, t), state, data, t - patience)

                states, info = jax.vmap(jax.vmap(chain, (None, 0, 0)))(data, keys, states)
                late = jnp.where(t >= warmup // 2, info.left_over, 0)
                return states, jnp.maximum(worst, late)

            return jax.lax.fori_loop(begin, end, sweep, (states, worst))

        grouped = jax.tree.map(
            lambda x: x.reshape(-1, args.group or total, *x.shape[1:]), (data, keys, states, worst)
        )
        result = jax.lax.map(of_group, grouped)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), result)

    @jax.jit
    def evaluate(key, states, in_levels, exists, cells, others):
        def one(arguments):
            keys, states, in_levels, exists, cells, others = arguments

            def chain(key, state):
                theta = jnp.where(exists[:, :, None], state.theta[in_levels], 0)
                key_z, key_x = jax.random.split(key)
                alphas = jnp.full(UNSEEN, state.alpha)
                z, _ = simulate_labels(key_z, alphas, state.g0, width)
                new = simulate_levels(key_x, z, theta).T
                exact = partial(log_cell_probability_exact, theta, state.g0, alpha=state.alpha)
                of_cells = exact(cells)
                known = jax.vmap(lambda x: jnp.any(jnp.all(cells == x, axis=1)))(new)
                unseen = jnp.where(known, jnp.inf, exact(new))
                return of_cells.astype(jnp.float16), unseen.astype(jnp.float16), exact(others)

            return jax.vmap(chain)(keys, states)

        return jax.lax.map(
            one, (key, states, in_levels, exists, cells, others), batch_size=8
        )  # fmt: skip

    states = init(data, keys)
    worst = jnp.zeros((total, 4))
    seen, new, held, components, alpha = [], [], [], [], []
    done = 0
    while done < warmup and (done == 0 or time.time() < args.warm_by):
        states, worst = advance(data, keys, states, worst, done, min(done + 100, warmup))
        jax.block_until_ready(states)
        if not done:
            print(args.job.stem, "compiled, 100 sweeps", time.perf_counter() - began, flush=True)
        done = min(done + 100, warmup)
    print(args.job.stem, total, "warm", done, time.perf_counter() - began, flush=True)
    for d in range(DRAWS):
        if d and time.time() > args.end_by:
            break
        step = kept // DRAWS
        states, worst = advance(data, keys, states, worst, done, done + step)
        done += step
        fold = partial(jax.random.fold_in, data=10**6 + d)
        of_draw = jax.vmap(jax.vmap(fold))(keys)
        a, b, c = evaluate(of_draw, states, in_levels, exists, cells_of, others)
        seen.append(np.asarray(a))
        new.append(np.asarray(b))
        held.append(np.asarray(c))
        used = jax.vmap(jax.vmap(lambda z: jnp.sum(
            jnp.zeros(capacity).at[z.astype(jnp.int32).reshape(-1)].add(1) > 0
        )))(states.z)  # fmt: skip
        components.append(np.asarray(used))
        alpha.append(np.asarray(states.alpha))
    seconds = time.perf_counter() - began

    def stack(x):
        """Put the axes in the order samples, variants, chains, draws, and the rest."""
        x = np.stack(x, axis=2)
        return x.reshape(len(names), num_variants, *x.shape[1:])

    seen, new, held, components, alpha = map(stack, (seen, new, held, components, alpha))
    # Held-out: log of the mean over all draws.
    flat = held.reshape(*held.shape[:2], -1, held.shape[-1]).astype(float)
    top = flat.max(axis=2)
    log_mean = top + np.log(np.mean(np.exp(flat - top[:, :, None]), axis=2))
    worst = np.asarray(worst).reshape(len(names), num_variants, 4)
    args.into.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        n = int(stored["n"][i])
        cells = group_cells(stored["codes"][i, :n].astype(np.int32), tuple(stored["num_levels"][i]))
        number = len(cells.codes)
        log_b = seen[i, ..., :number]
        uniques = np.exp(log_b[..., cells.counts == 1].astype(float))
        tau1 = np.exp((int(stored["population"][i]) - n) * np.log1p(-uniques)).sum(axis=-1)
        np.savez_compressed(
            args.into / f"{str(name).replace('/', '-')}.npz",
            log_b_none=log_b[0, :, ::2], log_b_auto=log_b[1],
            unseen_none=new[i, 0, :, ::2], unseen_auto=new[i, 1], tau1=tau1.astype(np.float32),
            sweeps=done,
            held_out=log_mean[i].astype(np.float32), components=components[i].astype(np.int16),
            alpha=alpha[i].astype(np.float32), left_over=worst[i].astype(np.float32),
        )  # fmt: skip
    print(args.job.stem, total, "ended", seconds, jax.devices()[0].device_kind, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("prepare")
    command.add_argument("folder", type=Path)
    command.add_argument("--nist", type=Path)
    command.add_argument("--seeds", type=int, default=10)
    command.set_defaults(run=prepare)
    command.add_argument("--into", type=Path, required=True)
    command = commands.add_parser("sample")
    command.add_argument("job", type=Path)
    command.add_argument("--into", type=Path, required=True)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--only", type=int, help="one of every so many samples")
    command.add_argument("--sweeps", type=int, nargs=2)
    command.add_argument("--variants", type=int, default=len(VARIANTS))
    command.add_argument("--group", type=int, help="samples times variants that are run at once")
    command.add_argument("--warm-by", type=float, default=1e12, help="time (seconds since 1970)")
    command.add_argument("--end-by", type=float, default=1e12)
    command.set_defaults(run=sample)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
