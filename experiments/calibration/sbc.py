"""Simulation-based calibration of tau_1 and alpha_0 (Talts et al. 2018, arXiv:1804.06788).

    python experiments/calibration/sbc.py

Populations are drawn from the prior, a sample is taken from each, chains are run on the sample, and
the truth is ranked among their draws: uniformly, if sampler and risk are right.
"""

import argparse
import csv
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chisquare

from bnp_models import hdp
from bnp_models.hdp import CONCENTRATIONS, HDPMixedMembership
from bnp_models.risk import draw_tau1

HERE = Path(__file__).parent
NUM_LEVELS = (3, 2, 4, 3)
SAMPLE, POPULATION = 40, 400
CAPACITY = 48
MULTIPLE = 8
NUM_DRAWS = 99


def as_data(model, codes):
    """A sample as the model's data, every record a cell of its own, for vmap."""
    template = model.prepare(np.zeros((SAMPLE, len(NUM_LEVELS)), int), NUM_LEVELS, MULTIPLE)
    padded = template.weight.size
    first_row = jnp.cumsum(jnp.asarray((0, *NUM_LEVELS[:-1])))[:, None]
    rows = first_row + jnp.pad(codes, ((0, 0), (0, padded - SAMPLE)))
    return hdp.HDPData(
        rows=rows, weight=template.weight, num_records=template.num_records,
        variable=template.variable, cell=jnp.arange(padded), cell_rows=rows,
        num_cells=jnp.asarray(padded),
    )  # fmt: skip


@partial(jax.jit, static_argnames=("truth", "model", "burn", "thin"))
def replicate(keys, truth, model, burn, thin):
    """Populations of the prior `truth`, and draws of `model` given a sample of each."""

    def one(key):
        key_prior, key_init, key_sweeps = jax.random.split(key, 3)
        state, population = hdp.draw_prior(truth, key_prior, POPULATION, NUM_LEVELS, CAPACITY)
        data = as_data(model, population[:, :SAMPLE])
        start = model.init(key_init, data, CAPACITY, jnp.int32(10))

        def sweep(t, state):
            return model.sweep(jax.random.fold_in(key_sweeps, t), state, data, t)[0]

        def draw(state, i):
            begin = jnp.where(i == 0, 0, burn + i * thin)
            state = jax.lax.fori_loop(begin, burn + (i + 1) * thin, sweep, state)
            summary = jnp.mean(state.alpha[:SAMPLE]) if state.alpha.ndim else state.alpha
            kept = {"g0": state.g0, "theta": state.theta, "alpha": summary,
                    "alpha_rate": state.rate}  # fmt: skip
            cells = population[:, :SAMPLE].T
            log_p = model.log_cell_probability(None, kept, cells, NUM_LEVELS)
            return state, (state.alpha0, log_p)

        _, (alpha0, log_p) = jax.lax.scan(draw, start, jnp.arange(NUM_DRAWS))
        return state.alpha0, population, alpha0, log_p

    return jax.vmap(one)(keys)


def ranks(model, key, num_replications, *, truth=None, burn=150, thin=4, batch=104):
    """Ranks (0..NUM_DRAWS) of the true alpha_0 and tau_1, each (num_replications,).

    `truth` is the model that populations come from, by default `model` itself.
    """
    rng = np.random.default_rng(0)
    found = {"alpha0": [], "tau1": []}
    for start in range(0, num_replications, batch):
        keys = jax.random.split(jax.random.fold_in(key, start), batch)
        alpha0, population, draws, log_p = map(
            np.asarray, replicate(keys, truth or model, model, burn, thin)
        )
        for r in range(min(batch, num_replications - start)):
            cells, inverse, counts = np.unique(
                population[r, :, :SAMPLE].T, axis=0, return_inverse=True, return_counts=True
            )
            unique = np.flatnonzero(counts[inverse.ravel()] == 1)
            later = {tuple(x) for x in population[r, :, SAMPLE:].T}
            tau1 = sum(tuple(population[r, :, i]) not in later for i in unique)
            q = np.exp(log_p[r][:, unique].astype(float))
            found["tau1"].append(_rank(rng, tau1, draw_tau1(rng, q, POPULATION - SAMPLE)))
            found["alpha0"].append(_rank(rng, alpha0[r], draws[r]))
    return {name: np.array(value) for name, value in found.items()}


def _rank(rng, truth, draws):
    """The rank of the truth, ties broken at random."""
    below, equal = np.sum(draws < truth), np.sum(draws == truth)
    return int(below + rng.integers(0, equal + 1))


def uniformity(rank, num_bins=10) -> float:
    """p-value of the chi-square test that ranks are uniform."""
    return float(
        chisquare(np.bincount(rank * num_bins // (NUM_DRAWS + 1), minlength=num_bins)).pvalue
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=208)
    args = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(10, 5), sharey=True, layout="constrained")
    rows = []
    for column, concentration in zip(axes.T, CONCENTRATIONS, strict=True):
        model = HDPMixedMembership(
            concentration=concentration, dish_stride=4, cell_stride=1, split_merge_every=4
        )
        found = ranks(model, jax.random.key(2024), args.replications)
        for axis, (name, rank) in zip(column, found.items(), strict=True):
            p = uniformity(rank)
            rows.append({"concentration": concentration, "quantity": name,
                         "replications": len(rank), "mean_rank": rank.mean() / NUM_DRAWS,
                         "p_uniform": p})  # fmt: skip
            print(rows[-1], flush=True)
            axis.hist(rank, bins=np.linspace(-0.5, NUM_DRAWS + 0.5, 21), color="#4878a8")
            expected = len(rank) / 20
            axis.axhspan(expected - 2.6 * expected**0.5, expected + 2.6 * expected**0.5,
                         color="#999999", alpha=0.3)  # fmt: skip
            axis.axhline(expected, color="#444444", lw=0.8)
            axis.set_title(f"{name}, alpha {concentration} (p = {p:.2f})", fontsize=9)
    figure.supxlabel("rank of the truth among 99 draws")
    figure.savefig(HERE / "rank_histograms.png", dpi=110)
    with open(HERE / "results.csv", "w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
