"""Simulation-based calibration of the nested model of households (Talts et al. 2018).

    python experiments/calibration/households.py

Parameters come from the prior, households of two from the truncated model, chains are run on them,
and the truth is ranked among their draws: uniformly, if the sampler is right. One rule set is
looked up in tables, the other is asked household by household. Writes households.csv and
households.png.
"""

import argparse
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from sbc import NUM_DRAWS, Run, draw_ranks, rank_of, uniformity

import bnp_models as bnp
from bnp_models import ndpmpm
from bnp_models.rules import aged, at_most, each, exactly, person

HERE = Path(__file__).parent
NUM_HOUSEHOLDS = 30
BATCH = 512
HEAD, CHILD = person(role="head"), person(role="child")
RULES = {
    "one head, by tables": bnp.Rules([exactly(1, HEAD), each(CHILD).is_younger_than(HEAD, 1)]),
    "nobody apart": bnp.Rules([at_most(1, CHILD), at_most(1, aged(2))]),
}
QUANTITIES = ("alpha", "beta", "log_possible", "share")
RUN = Run(burn=300, thin=20)


def template(model, rules):
    """The data of arbitrary households of two persons."""
    frame = pd.DataFrame({
        "hid": np.repeat(range(NUM_HOUSEHOLDS), 2), "home": "own",
        "role": ["head", "child"] * NUM_HOUSEHOLDS, "age": ["1", "0"] * NUM_HOUSEHOLDS,
    })  # fmt: skip
    levels = {"home": ["own", "rent"], "role": ["head", "child", "other"], "age": ["0", "1", "2"]}
    table = bnp.Households.from_frame(frame, "hid", ["home"], levels=levels)
    return model.prepare(table, rules)


def simulate(model, key, data):
    """Parameters from the prior, and the data of possible households of theirs."""
    key_prior, key_households = jax.random.split(key)
    state = ndpmpm.draw_prior(model, key_prior, data)
    draw = {"log_pi": state.log_pi, "log_omega": state.log_omega, "log_lambda": state.log_lambda,
            "log_phi": state.log_phi}  # fmt: skip
    first = jnp.asarray(ndpmpm.first_rows(data.household.num_levels), jnp.int32)[:, None]
    plain = ndpmpm.dataclasses.replace(data, head=None, tables=None)

    def again(carry):
        step, found, rows, codes = carry
        new, good = ndpmpm.simulate_possible(
            jax.random.fold_in(key_households, step), draw, plain, jnp.ones(1), BATCH
        )
        place = jnp.where(good, found + jnp.cumsum(good) - 1, NUM_HOUSEHOLDS)
        members = new.members[:, new.first[:, None] + jnp.arange(2)]
        rows = rows.at[:, place].set(first + new.codes, mode="drop")
        codes = codes.at[:, place].set(members, mode="drop")
        return step + 1, found + jnp.sum(good), rows, codes

    start = (jnp.int32(0), jnp.int32(0), data.household_rows,
             data.member_codes.reshape(-1, NUM_HOUSEHOLDS, 2))  # fmt: skip
    _, _, rows, codes = jax.lax.while_loop(lambda c: c[1] < NUM_HOUSEHOLDS, again, start)
    return state, ndpmpm.dataclasses.replace(
        data, household_rows=rows, member_codes=codes.reshape(codes.shape[0], -1)
    )


def measure(state, data):
    """The quantities that are ranked: the last is the possible mass of the first home's owners."""
    household = jnp.asarray(np.indices(data.household.num_levels[:-1]).reshape(1, -1).T, jnp.int32)
    levels = data.member.num_levels * 2
    members = jnp.asarray(np.indices(levels).reshape(4, -1).T.reshape(-1, 2, 2), jnp.int32)
    first = ndpmpm.first_rows(data.member.num_levels)
    by_class = jnp.ones(())
    for j in range(2):
        own = state.log_omega + sum(state.log_phi[first[v] + members[:, j, v]] for v in range(2))
        by_class = by_class * jnp.sum(jnp.exp(own), axis=2)
    joint = jnp.exp(state.log_pi + state.log_lambda[household[:, 0]])
    mass = jnp.einsum("hg,mg->hm", joint, by_class)
    possible = jnp.stack([
        data.possible(jnp.broadcast_to(one, (len(members), 1)), members) for one in household
    ])  # fmt: skip
    mass = jnp.where(possible, mass, 0)
    total = jnp.sum(mass)
    return state.alpha, state.beta, jnp.log(total), jnp.sum(mass[0]) / total


@partial(jax.jit, static_argnames="label")
def replicate(keys, model, label):
    """True quantities of parameters from the prior, and draws given households of each."""
    with jax.ensure_compile_time_eval():
        data = template(model, RULES[label])

    def one(key):
        key_truth, key_init, key_sweeps = jax.random.split(key, 3)
        truth, sample = simulate(model, key_truth, data)
        start = model.init(key_init, sample, model.capacity, jnp.int32(model.components))

        def sweep(t, state):
            return model.sweep(jax.random.fold_in(key_sweeps, t), state, sample, t)[0]

        def draw(state, i):
            begin = jnp.where(i == 0, 0, RUN.burn + i * RUN.thin)
            state = jax.lax.fori_loop(begin, RUN.burn + (i + 1) * RUN.thin, sweep, state)
            return state, measure(state, sample)

        _, drawn = jax.lax.scan(draw, start, jnp.arange(NUM_DRAWS))
        return measure(truth, sample), drawn

    return jax.vmap(one)(keys)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=208)
    parser.add_argument("--batch", type=int, default=104)
    args = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    model = bnp.NDPMPM(components=4, member_components=3, a=1.0, b=1.0, a_beta=1.0, b_beta=1.0)
    figure, axes = plt.subplots(
        len(QUANTITIES), len(RULES), figsize=(7, 9), sharey=True, layout="constrained"
    )
    rng, rows = np.random.default_rng(0), []
    for column, label in zip(axes.T, RULES, strict=True):
        found = [[] for _ in QUANTITIES]
        for start in range(0, args.replications, args.batch):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(7), start), args.batch)
            true, drawn = jax.tree.map(np.asarray, replicate(keys, model, label))
            for own, value, draws in zip(found, true, drawn, strict=True):
                own += [rank_of(rng, v, d) for v, d in zip(value, draws, strict=True)]
        for axis, name, rank in zip(column, QUANTITIES, map(np.array, found), strict=True):
            p = uniformity(rank)
            rows.append({"rules": label, "quantity": name, "replications": len(rank),
                         "mean_rank": rank.mean() / NUM_DRAWS, "p_uniform": p})  # fmt: skip
            print(rows[-1], flush=True)
            draw_ranks(axis, rank, f"{name}, {label} (p = {p:.2f})")
    figure.supxlabel(f"rank of the truth among {NUM_DRAWS} draws")
    figure.savefig(HERE / "households.png", dpi=110)
    pd.DataFrame(rows).to_csv(HERE / "households.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
