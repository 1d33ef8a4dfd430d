"""Chains of households without rules: how soon they agree, and what keeps them apart.

    python experiments/speed/time_to_trust/household_classes.py POPULATIONS --minutes 10
    python experiments/speed/time_to_trust/household_classes.py POPULATIONS --components 60
    python experiments/speed/time_to_trust/household_classes.py POPULATIONS --exchange 0 3

POPULATIONS is the folder with simulated_households.csv.gz. The first command runs four chains of
the default model on 2,500 households, writes the mean of each 50 sweeps to household_classes.csv,
and keeps the last states in build/household_classes.pickle. The second does so with 60 household
classes (household_classes_60.csv). The third goes on from the states of two chains, whose household
classes and member classes it exchanges, and prints log-likelihoods.
"""

import argparse
import dataclasses
import pickle
import sys
import time
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of
from bnp_models.kernels.nested.members import (
    log_member_probability,
    merged_rows,
    merged_tables,
    repeat_by_member,
)
from bnp_models.models.nested.sweep import update_classes

HERE = Path(__file__).resolve().parent
STATES = HERE.parents[2] / "build" / "household_classes.pickle"
# Before the folder of this script, which has another module of the name.
sys.path.insert(0, str(HERE.parents[1] / "synthesis/member_classes"))
from run import load  # noqa: E402

NUM_CHAINS, SEED, BLOCK, EXCHANGED, ROUNDS = 4, 5, 50, 400, 50
# Blocks of the warm-up, and the number of households above which a class is called large.
SETTLED, LARGE = 10, 10


@eqx.filter_jit
def advance(model, keys, states, data):
    """States of the chains after a block of sweeps, and quantities of every sweep."""

    def sweep(state, key):
        state, info = model.sweep(key, state, data, jnp.int32(0))
        households = jnp.zeros(model.components, jnp.int32)
        g, _, _ = update_classes(jax.random.fold_in(key, 1), state, data)
        large = jnp.sum(households.at[g].add(1) > LARGE)
        return state, {"log_likelihood": info.log_likelihood, "components": info.components,
                       "large": large, "alpha": state.alpha}  # fmt: skip

    def one(args):
        key, state = args
        return jax.lax.scan(sweep, state, jax.random.split(key, BLOCK))

    return jax.lax.map(one, (keys, states))


def chains(model, data, minutes, path):
    """Run the chains from the default starts; write a row for each chain and block."""
    key = jax.random.key(SEED)
    start = partial(model.init, data=data, capacity=0, num_components=model.start_components[0])
    states = jax.vmap(start)(jax.random.split(key, NUM_CHAINS))
    settle = jax.jit(jax.vmap(partial(model.settle, data=data)))
    began, draws, rows = time.monotonic(), [], []
    while time.monotonic() - began < 60 * minutes:
        keys = jax.random.split(jax.random.fold_in(key, len(draws)), NUM_CHAINS)
        states, block = advance(model, keys, states, data)
        if len(draws) < SETTLED:
            states = settle(states)
        draws.append(jax.tree.map(np.asarray, block))
        for chain in range(NUM_CHAINS):
            means = {name: x[chain].mean().round(2) for name, x in draws[-1].items()}
            rows.append({"chain": chain, "sweeps": BLOCK * len(draws)} | means)
        pd.DataFrame(rows).to_csv(path, index=False)
        kept = jax.tree.map(np.asarray, states)
        STATES.parent.mkdir(exist_ok=True)
        STATES.write_bytes(pickle.dumps(kept))
    joined = {name: np.concatenate([x[name] for x in draws], axis=1) for name in draws[0]}
    for share in (8, 4, 2, 1):
        end = BLOCK * len(draws) // share
        print(end, {x: figures_of(y[:, end // 2 : end])["rhat"] for x, y in joined.items()})


def combined(model, key, of_households, of_members, data):
    """A state with the household classes of one chain and the member classes of another.

    The weights of the member classes in each household class are those of most likelihood.
    """
    g, _, _ = update_classes(key, of_households, data)
    g = repeat_by_member(g, data.blocks_of_part, data.parts)
    tables = merged_tables(jnp.exp(of_members.log_phi), data.member.num_levels, data.plan)
    rows = merged_rows(data.member_codes, data.member.num_levels, data.plan)
    one_each = jnp.eye(model.member_components)
    log_p = log_member_probability(tables, one_each, rows)
    p = jnp.exp(log_p - jnp.max(log_p, axis=1, keepdims=True))

    def maximise(_, omega):
        share = p * omega[g]
        share = share / jnp.sum(share, axis=1, keepdims=True)
        members = jnp.zeros_like(omega).at[g].add(share) + of_members.member_class_shapes
        return members / jnp.sum(members, axis=1, keepdims=True)

    even = jnp.full((model.components, model.member_components), 1 / model.member_components)
    omega = jax.lax.fori_loop(0, ROUNDS, maximise, even)
    return dataclasses.replace(
        of_households, log_omega=jnp.log(omega), log_phi=of_members.log_phi,
        member_shape=of_members.member_shape, beta=of_members.beta,
        member_class_shapes=of_members.member_class_shapes,
    )  # fmt: skip


def exchange(model, data, first, second):
    """Go on from all four combinations of the classes of two chains, and print their means."""
    kept = jax.tree.map(jnp.asarray, pickle.loads(STATES.read_bytes()))
    of_chain = {c: jax.tree.map(lambda x, c=c: x[c], kept) for c in (first, second)}
    pairs = [(g, m) for g in (first, second) for m in (first, second)]
    key = jax.random.key(3)
    mixed = [eqx.filter_jit(combined)(model, key, of_chain[g], of_chain[m], data) for g, m in pairs]
    states = jax.tree.map(lambda *x: jnp.stack(x), *mixed)
    for block in range(EXCHANGED // BLOCK):
        keys = jax.random.split(jax.random.fold_in(key, block), len(pairs))
        states, draws = advance(model, keys, states, data)
        for (g, m), x, large in zip(pairs, draws["log_likelihood"], draws["large"], strict=True):
            print(f"household classes of {g}, member classes of {m}, sweeps to "
                  f"{BLOCK * (block + 1)}: {x.mean():.0f}, {large.mean():.1f} large")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--components", type=int, help="household classes, if not the default")
    parser.add_argument("--exchange", type=int, nargs=2, metavar="CHAIN")
    args = parser.parse_args()
    table, rules = load("simulated", args.folder)
    model, name = bnp.NDPMPM(), "household_classes.csv"
    if args.components:
        model, name = bnp.NDPMPM(args.components), f"household_classes_{args.components}.csv"
    data = model.prepare(table, rules)
    if args.exchange:
        exchange(model, data, *args.exchange)
    else:
        chains(model, data, args.minutes, HERE / name)


if __name__ == "__main__":
    main()
