"""Simulation-based calibration of the full Bayes of Models I and II (Talts et al. 2018).

    python experiments/papers/polettini_stander/sbc.py

Hyperparameters are drawn from their priors, a population and a sample of it from the hierarchy,
NUTS is run on the sample, and the truth is ranked among its draws: uniformly, if likelihood and
sampler are right. Writes sbc.csv. arXiv:1804.06788.
"""

import argparse
import csv
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.hmc import hmc
from numpyro.infer.util import potential_energy
from scipy.stats import chisquare

from bnp_models import PolettiniStander
from bnp_models.kernels.numerics.platforms import double_precision
from bnp_models.models.cells.full_bayes import FRACTION_SD, PRIORS, hierarchy
from bnp_models.models.cells.polettini_stander import likelihood_data

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[2] / "tests"))
from hierarchy import simulate_cells  # noqa: E402

CELLS, POPULATION, FRACTION = 200, 4_000, 0.05
PHATS = ((0.02, 0.6), (0.1, 0.4))
# Distinct cells are padded to as many, so that all data sets are one compiled program.
PADDED = 72
WARMUP, DRAWS, THIN = 200, 63, 4
BINS = 8


def draw_truth(random, variant):
    alpha, concentration = (np.exp(random.normal(*PRIORS[name])) for name in PRIORS)
    if variant == 2:
        return {"alpha": alpha, "a": concentration, "gamma": random.uniform()}
    odds = np.log(FRACTION / (1 - FRACTION)) + FRACTION_SD * random.normal()
    share = 1 / (1 + np.exp(-odds))
    return {"alpha": alpha, "a": concentration * share, "b": concentration * (1 - share)}


def padded(data):
    """With cells of number zero."""
    missing = PADDED - data.f.size
    assert missing >= 0, f"{data.f.size} distinct cells"
    ones = jnp.ones(missing)
    parts = {"f": ones, "phat": 0.5 * ones, "number": 0 * ones}
    return data._replace(**{k: jnp.concatenate([getattr(data, k), v]) for k, v in parts.items()})


@partial(jax.jit, static_argnums=0)
def chain(variant, key, data):
    """Draws of the model's sites, on the real line."""
    model = partial(hierarchy, variant)
    init_kernel, sample_kernel = hmc(
        potential_fn_gen=lambda data: partial(potential_energy, model, (data, FRACTION), {}),
        algo="NUTS",
    )
    names = (*(f"z_{name}" for name in PRIORS), "z_fraction" if variant == 1 else "gamma")
    state = init_kernel(
        dict.fromkeys(names, jnp.zeros(())), num_warmup=WARMUP, model_args=(data,), rng_key=key
    )

    def steps(number, state):
        return jax.lax.fori_loop(0, number, lambda _, s: sample_kernel(s, (data,)), state)

    def draw(state, _):
        state = steps(THIN, state)
        return state, state.z

    return jax.lax.scan(draw, steps(WARMUP, state), length=DRAWS)[1]


def values_of(variant, z):
    """The hyperparameters of the draws."""
    alpha, concentration = (
        np.exp(centre + sd * z[f"z_{name}"]) for name, (centre, sd) in PRIORS.items()
    )
    if variant == 2:
        return {"alpha": alpha, "a": concentration, "gamma": 1 / (1 + np.exp(-z["gamma"]))}
    share = 1 / (1 + (1 - FRACTION) / FRACTION * np.exp(-FRACTION_SD * z["z_fraction"]))
    return {"alpha": alpha, "a": concentration * share, "b": concentration * (1 - share)}


def ranks(variant, num_data, seed=0):
    """Rank of each hyperparameter among the draws, for each data set."""
    random = np.random.default_rng(seed)
    found = []
    while len(found) < num_data:
        truth = draw_truth(random, variant)
        values = {"phats": PHATS} if variant == 2 else {}
        drawn = simulate_cells(random, CELLS, POPULATION, **truth, **values)
        empty = {"empty_phat": drawn.empty_phat} if variant == 2 else {}
        data = padded(likelihood_data(PolettiniStander(variant, **empty), drawn.cells))
        z = jax.tree.map(np.asarray, chain(variant, jax.random.key(len(found)), data))
        draws = values_of(variant, z)
        found.append([int((draws[k] < v).sum()) for k, v in truth.items()])
        if len(found) % 10 == 0:
            print(variant, len(found), flush=True)
    return tuple(truth), np.array(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-sets", type=int, default=100)
    args = parser.parse_args()
    rows = []
    with double_precision():
        for variant in (1, 2):
            names, found = ranks(variant, args.data_sets)
            for name, column in zip(names, found.T, strict=True):
                heights = np.bincount(column * BINS // (DRAWS + 1), minlength=BINS)
                p = chisquare(heights).pvalue
                rows.append([f"Model {'I' * variant}", name, len(column), f"{p:.3g}", *heights])
    with open(HERE / "sbc.csv", "w", newline="") as stream:
        header = ["model", "hyperparameter", "data_sets", "p_value"]
        header += [f"bin{i}" for i in range(BINS)]
        csv.writer(stream).writerows([header, *rows])
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
