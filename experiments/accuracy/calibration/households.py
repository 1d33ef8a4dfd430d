"""Simulation-based calibration of the nested model of households (Talts et al. 2018).

    python experiments/accuracy/calibration/households.py

Parameters come from the prior, households from the truncated model by listing all, chains are run
on them, and the truth is ranked among their draws: uniformly, if the sampler is right. Rules are
looked up in tables, asked household by household, or looked up for values relative to the head's.
Parameters with which fewer than 2% of the households are possible are left out, of the prior and of
the draws. Writes households.csv and households.png, and keeps ranks in households.npz, which is
deleted to begin again.
"""

import argparse
import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from sbc import LEAST_FEASIBLE, NUM_DRAWS, Run, draw_feasible, kept_ranks, rank_of, write_up

import bnp_models as bnp
from bnp_models.models.nested import sweep as nested_sweep
from bnp_models.rules import aged, at_most, each, exactly, person

HERE = Path(__file__).parent
NUM_HOUSEHOLDS = 30
LEVELS = {"home": ["own", "rent"], "role": ["head", "child", "other"], "age": ["0", "1", "2"]}
HEAD, CHILD = person(role="head"), person(role="child")


class Case(NamedTuple):
    """Rules, and the households and the model that they are for."""

    rules: bnp.Rules
    head: tuple[str, str] | None = None
    """The relationship and the head's, where the head is at household level."""
    levels: Mapping = LEVELS
    options: Mapping = {}
    """Of the model."""


CASES = {
    "one head, by tables": Case(
        bnp.Rules([exactly(1, HEAD), each(CHILD).is_younger_than(HEAD, 1)])
    ),
    "nobody apart": Case(
        bnp.Rules([at_most(1, CHILD & aged(2)), at_most(1, person(role="other") & aged(0))])
    ),
    "relative to the head": Case(
        bnp.Rules([each(CHILD).is_younger_than(HEAD, 1), each(CHILD).agrees_with(HEAD, "race")]),
        head=("role", "head"),
        levels=LEVELS | {"race": ["black", "other", "white"]},
        options={"relative": [("age", "difference"), ("race", "same")]},
    ),
}  # fmt: skip
QUANTITIES = ("alpha", "beta", "log_possible", "share", "alike", "c", "mean")
RUN = Run(burn=300, thin=20)


def model_of(case):
    return bnp.NDPMPM(
        components=4, member_components=3, a=1.0, b=1.0, a_beta=1.0, b_beta=1.0,
        **{"member_classes": "nested"} | case.options,
    )  # fmt: skip


class Possible(NamedTuple):
    """Codes of all possible households."""

    household: jax.Array
    """(B, q), the size left out."""
    members: jax.Array
    """(B, 2, p), relative to the head's where the model's are."""


def template(model, case):
    """The data of arbitrary households of two members, and all that are possible."""
    roles = ["child", "child"] if case.head is None else ["head", "child", "child"]
    frame = pd.DataFrame({name: labels[0] for name, labels in case.levels.items()},
                         index=range(NUM_HOUSEHOLDS * len(roles)))  # fmt: skip
    frame["role"] = roles * NUM_HOUSEHOLDS
    frame.insert(0, "hid", np.repeat(range(NUM_HOUSEHOLDS), len(roles)))
    table = bnp.Households.from_frame(frame, "hid", ["home"], levels=case.levels, head=case.head)
    data = model.prepare(table, case.rules)
    num_levels = data.household.num_levels[:-1] + 2 * data.member.num_levels
    codes = np.indices(num_levels).reshape(len(num_levels), -1).T
    household, members = np.split(codes, [len(data.household.num_levels) - 1], axis=1)
    members = members.reshape(len(codes), 2, -1)
    keep = case.rules.compile(table).on_numpy(household, members)
    household, members = household[keep], members[keep]
    if data.relative is not None:
        members = data.relative.encode(household, members)
    return data, Possible(jnp.asarray(household, jnp.int32), jnp.asarray(members, jnp.int32))


def log_probability(state, data, possible):
    """(B,): of the possible households, before truncation; all are of one size."""
    first = nested_sweep.first_rows(data.household.num_levels)
    total = state.log_pi
    for k in range(possible.household.shape[1]):
        total = total + state.log_lambda[first[k] + possible.household[:, k]]
    first = nested_sweep.first_rows(data.member.num_levels)
    for j in range(2):
        own = state.log_omega
        for v in range(len(data.member.num_levels)):
            own = own + state.log_phi[first[v] + possible.members[:, j, v]]
        total = total + jax.nn.logsumexp(own, axis=2)
    return jax.nn.logsumexp(total, axis=1)


def simulate(model, key, data, possible):
    """Parameters from the prior, and the data of possible households of theirs."""
    key_prior, key_households = jax.random.split(key)

    def draw(key):
        state = nested_sweep.draw_prior(model, key, data)
        return state, jax.nn.logsumexp(log_probability(state, data, possible))

    state = draw_feasible(key_prior, draw)
    chosen = jax.random.categorical(
        key_households, log_probability(state, data, possible), shape=(NUM_HOUSEHOLDS,)
    )
    first = jnp.asarray(nested_sweep.first_rows(data.household.num_levels[:-1]), jnp.int32)
    rows = data.household_rows.at[:-1].set((first + possible.household[chosen]).T)
    members = possible.members[chosen].reshape(2 * NUM_HOUSEHOLDS, -1).T
    return state, dataclasses.replace(data, household_rows=rows, member_codes=members)


def measure(state, data, possible):
    """The quantities that are ranked.

    After the probability of possible households come, among these, the share of the first home and
    the log probability that two are alike; then the concentration of the learned prior of the
    homes, and its first mean.
    """
    log_p = log_probability(state, data, possible)
    log_possible = jax.nn.logsumexp(log_p)
    log_p = log_p - log_possible
    share = jnp.sum(jnp.exp(log_p), where=possible.household[:, 0] == 0)
    homes = state.household_shape[:2]
    return (
        state.alpha, state.beta, log_possible, share, jax.nn.logsumexp(2 * log_p),
        jnp.sum(homes), homes[0] / jnp.sum(homes),
    )  # fmt: skip


@partial(jax.jit, static_argnames="label")
def replicate(keys, model, label):
    """True quantities of parameters from the prior, and draws given households of each."""
    with jax.ensure_compile_time_eval():
        data, possible = template(model, CASES[label])

    def one(key):
        key_truth, key_init, key_sweeps = jax.random.split(key, 3)
        truth, sample = simulate(model, key_truth, data, possible)
        start = model.init(key_init, sample, model.capacity, jnp.int32(model.components))

        def sweep(t, state):
            return model.sweep(jax.random.fold_in(key_sweeps, t), state, sample, t)[0]

        def draw(state, i):
            begin = jnp.where(i == 0, 0, RUN.burn + i * RUN.thin)
            state = jax.lax.fori_loop(begin, RUN.burn + (i + 1) * RUN.thin, sweep, state)
            return state, measure(state, sample, possible)

        _, drawn = jax.lax.scan(draw, start, jnp.arange(NUM_DRAWS))
        return measure(truth, sample, possible), drawn

    return jax.lax.map(one, keys)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=208)
    parser.add_argument("--batch", type=int, default=104)
    args = parser.parse_args()

    def compute(label):
        model, found = model_of(CASES[label]), [[] for _ in QUANTITIES]
        rng = np.random.default_rng(0)
        for start in range(0, args.replications, args.batch):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(7), start), args.batch)
            true, drawn = jax.tree.map(np.asarray, replicate(keys, model, label))
            kept = drawn[QUANTITIES.index("log_possible")] >= np.log(LEAST_FEASIBLE)
            for own, value, draws in zip(found, true, drawn, strict=True):
                own += [rank_of(rng, v, d[k]) for v, d, k in zip(value, draws, kept, strict=True)]
        return found

    path = HERE / "households.npz"
    write_up(path, kept_ranks(path, CASES, compute), QUANTITIES)


if __name__ == "__main__":
    main()
