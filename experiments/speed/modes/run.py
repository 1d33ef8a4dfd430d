"""Two modes of known mass: chains started in each, with and without split-merge.

    python experiments/speed/modes/run.py            # about three minutes
    python experiments/speed/modes/run.py --quick    # a tenth of the sweeps, nothing written

Four blocks of equal records on six binary variables have two modes, {AB, CD} and {AC, BD}, whose
masses are in the ratio of two products of Dirichlet-multinomial marginals (see
tests/inference/test_modes.py, which has the data, the starts and the exact masses). Writes
tables.md and traces.png.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.inference.convergence import figures_of
from bnp_models.models.mixed_membership.hdp import HDPMixedMembership
from bnp_models.models.mixed_membership.start import prepare_records

HERE = Path(__file__).parent
sys.path += [str(HERE.parents[2] / "tests" / name) for name in (".", "inference")]
import test_modes as modes  # noqa: E402

SAMPLERS = {
    "plain": modes.PLAIN,
    "no split-merge": modes.NO_SPLITS,
    "default": {},
    "split-merge in every sweep": {"split_merge_every": 1},
}
NUM_CHAINS = 8


def trace(sizes, moves, num_sweeps):
    """Mode of every sweep, (chains, sweeps): 0 or 1, or 2 in neither; and seconds, compiled."""
    model = HDPMixedMembership(**modes.PRIOR, **moves, level_prior="uniform")
    block = np.repeat(np.arange(4), sizes)
    data = prepare_records(model, np.repeat(modes.TRIPLES[block], 3, axis=1), modes.NUM_LEVELS)
    labels = modes.MODES[:, block]
    padded = np.pad(labels, ((0, 0), (0, data.weight.size - len(block))))

    def chain(key, start):
        key_init, key_sweeps = jax.random.split(key)

        def one(state, t):
            state, _ = model.sweep(jax.random.fold_in(key_sweeps, t), state, data, t)
            return state, modes.mode_of(state.z[:, : len(block)], labels).astype(jnp.int8)

        state = modes.in_mode(model, key_init, data, jnp.asarray(padded)[start])
        return jax.lax.scan(one, state, jnp.arange(num_sweeps))[1]

    keys = jax.random.split(jax.random.key(2026), NUM_CHAINS)
    run = jax.jit(jax.vmap(chain)).lower(keys, jnp.arange(NUM_CHAINS) % 2).compile()
    began = time.perf_counter()
    found = np.asarray(run(keys, jnp.arange(NUM_CHAINS) % 2))
    return found, time.perf_counter() - began


def carried(visited):
    """The mode that each chain was in last: sweeps in neither take that of the sweep before."""
    where = np.where(visited < 2, np.arange(visited.shape[1]), 0)
    return np.take_along_axis(visited, np.maximum.accumulate(where, axis=1), axis=1)


def line(name, sizes, visited, seconds):
    last = carried(visited)
    crossings = np.abs(np.diff(last.astype(int), axis=1)).sum(axis=1)
    each = (visited == 0).sum(axis=1) / np.maximum((visited < 2).sum(axis=1), 1)
    share = (visited == 0).sum() / (visited < 2).sum()
    figures = figures_of((last == 0).astype(float)) if crossings.min() else {}
    ess, rhat = figures.get("ess_bulk"), figures.get("rhat")
    error = np.sqrt(share * (1 - share) / ess) if ess else None
    cells = [
        f"{sizes}", name, f"{visited.size / seconds:.0f}",
        f"{crossings.mean():.1f} ({crossings.min()} to {crossings.max()})",
        f"{modes.mass_of_first(np.array(sizes)):.3f}",
        f"{share:.3f} ± {error:.3f}" if ess else " ".join(f"{x:.0f}" for x in each),
        f"{ess:.0f}" if ess else "-", f"{rhat:.3f}" if rhat else "-",
    ]  # fmt: skip
    print(*cells, sep=" | ", flush=True)
    return "| " + " | ".join(cells) + " |"


def plot(traces):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(SAMPLERS), 2, figsize=(10, 6), sharex=True, layout="constrained"
    )
    for row, name in zip(axes, SAMPLERS, strict=True):
        for axis, chain in zip(row, (0, 1), strict=True):
            axis.plot(1 + carried(traces[name])[chain], lw=0.5)
            axis.set_yticks([1, 2], ["AB, CD", "AC, BD"])
            axis.set_ylim(0.8, 2.2)
            axis.set_title(f"{name}: started in mode {chain + 1}", fontsize=8)
    figure.supxlabel("sweep")
    figure.savefig(HERE / "traces.png", dpi=90)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    num_sweeps = 1000 if args.quick else 10_000
    lines = [
        f"{NUM_CHAINS} chains of {num_sweeps} sweeps, half started in each mode.", "",
        "| blocks A, B, C, D | sampler | sweeps/s | crossings a chain | mass of the first mode | "
        "share of sweeps in it | ESS | R-hat |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    traces = {}
    for sizes in modes.SIZES:
        for name, moves in SAMPLERS.items():
            visited, seconds = trace(sizes, moves, num_sweeps)
            lines.append(line(name, sizes, visited, seconds))
            if sizes == modes.EQUAL:
                traces[name] = visited
    if args.quick:
        return
    plot(traces)
    (HERE / "tables.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
