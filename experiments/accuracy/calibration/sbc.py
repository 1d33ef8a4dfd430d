"""Simulation-based calibration of concentrations, margins and tau_1 (Talts et al. 2018).

    python experiments/accuracy/calibration/sbc.py hdp
    python experiments/accuracy/calibration/sbc.py hdp_zeros
    python experiments/accuracy/calibration/sbc.py latent_classes
    python experiments/accuracy/calibration/sbc.py ordered
    python experiments/accuracy/calibration/sbc.py groups

Populations are drawn from the prior, a sample is taken from each, chains are run on the sample, and
the truth is ranked among their draws: uniformly, if sampler and risk are right. arXiv:1804.06788.
Under structural zeros, populations of the prior in which fewer than 2% of the records would be
feasible are left out, and so are such draws: there the sampler would hold thousands of impossible
records for every feasible one. Ranks are kept in an .npz file, which is
deleted to begin again.
"""

import argparse
import dataclasses
from functools import partial
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.stats import chisquare

from bnp_models import NPLCM, TNPLCM, HDPMixedMembership, StructuralZeros
from bnp_models.data.schema import Schema
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.variates.levels import bands_of_levels
from bnp_models.models.latent_classes import nplcm, predictions, truncated
from bnp_models.models.latent_classes import state as latent_classes_state
from bnp_models.models.latent_classes.state import prepare_records as prepare_latent_classes
from bnp_models.models.mixed_membership import hdp
from bnp_models.models.mixed_membership import start as mixed_membership_start
from bnp_models.models.mixed_membership.feasible import feasible_totals, log_feasible
from bnp_models.models.mixed_membership.options import CONCENTRATIONS
from bnp_models.risk.evaluator import draw_joining

HERE = Path(__file__).parent
NUM_LEVELS = (3, 2, 4, 3)
SAMPLE, POPULATION = 40, 400
CAPACITY = 48
MULTIPLE = 8
NUM_DRAWS = 99
SEED = 2024
# Least share of feasible records.
LEAST_FEASIBLE = 0.02
# Variable whose concentration and mean of the learned prior of levels are ranked.
CHOSEN = 2
# Structural zeros of the truncated latent class model, -1 where a variable is free.
CONDITIONS = [[0, 1, -1, -1], [0, -1, 3, -1], [-1, -1, 0, 2]]
# Those of the HDP: the first levels of the first two variables go together, and one more.
EQUIVALENCE = [[0, 1, -1, -1], [1, 0, -1, -1], [2, 0, -1, -1], [-1, -1, 0, 2]]


def structural_zeros(conditions):
    names = tuple(f"v{j}" for j in range(len(NUM_LEVELS)))
    schema = Schema(names, tuple(tuple(range(size)) for size in NUM_LEVELS))
    return StructuralZeros.from_codes(np.array(conditions), schema)


def feasible_cells(conditions):
    """(J, B) codes of all cells that are feasible."""
    cells = np.indices(NUM_LEVELS).reshape(len(NUM_LEVELS), -1)
    return cells[:, ~structural_zeros(conditions).contains(cells.T)]


def draw_feasible(key, draw):
    """The first of the draws of the prior with enough feasible mass; it returns (state, log P)."""

    def again(carry):
        key, _, _ = carry
        key, key_draw = jax.random.split(key)
        return key, *draw(key_draw)

    def too_little(carry):
        return carry[2] < np.log(LEAST_FEASIBLE)

    start = again((key, None, None))
    return jax.lax.while_loop(too_little, again, start)[1]


def trees_of(model):
    """Groups of levels by column: of the chosen variable, if it is ordered or has any."""
    if model.ordered not in ("auto", ()):
        return {CHOSEN: bands_of_levels(NUM_LEVELS[CHOSEN])}
    if model.groups:
        ((_, hierarchy),) = model.groups
        return {CHOSEN: hierarchy.tree(range(NUM_LEVELS[CHOSEN]))}
    return {}


def of_levels(state):
    """Concentration and first mean of the prior of the chosen variable's levels.

    Or of its two bands, or its two largest groups.
    """
    first = first_rows(NUM_LEVELS)[CHOSEN]
    shape = state.level_shape[sum(NUM_LEVELS) :][-2:]
    if not shape.size:
        shape = state.level_shape[first : first + NUM_LEVELS[CHOSEN]]
    return jnp.sum(shape), shape[0] / jnp.sum(shape)


class MixedMembership:
    """Populations, samples and quantities of `bnp_models.HDPMixedMembership`."""

    quantities = ("alpha0", "c", "beta")

    @staticmethod
    def template(model, conditions=None):
        zeros = None if conditions is None else structural_zeros(conditions)
        codes = np.zeros((SAMPLE, len(NUM_LEVELS)), int)
        # Boxes are listed in NumPy, also while a replication is traced.
        with jax.ensure_compile_time_eval():
            return mixed_membership_start.prepare_records(
                model, codes, NUM_LEVELS, zeros, MULTIPLE, trees_of(model)
            )

    @classmethod
    def draw_population(cls, truth, key):
        levels = cls.template(truth).levels
        return hdp.draw_prior(truth, key, POPULATION, NUM_LEVELS, CAPACITY, levels)

    @classmethod
    def as_data(cls, model, codes):
        """A sample as the model's data, every record a cell of its own."""
        template = cls.template(model)
        padded = template.weight.size
        first_row = jnp.asarray(first_rows(NUM_LEVELS))[:, None]
        rows = first_row + jnp.pad(codes, ((0, 0), (0, padded - SAMPLE)))
        return dataclasses.replace(
            template, rows=rows, cell=jnp.arange(padded), cell_rows=rows,
            num_cells=jnp.asarray(padded),
        )  # fmt: skip

    @staticmethod
    def measure(model, state):
        """The quantities that are ranked, and a draw for cell probabilities."""
        summary = jnp.mean(state.alpha[:SAMPLE]) if state.alpha.ndim else state.alpha
        kept = {"g0": state.g0, "theta": state.theta, "alpha": summary,
                "alpha_rate": state.rate, "log_feasible": jnp.zeros(())}  # fmt: skip
        return (state.alpha0, *of_levels(state)), kept


class TruncatedMixedMembership(MixedMembership):
    """The same under structural zeros, with alpha (or b, where alphas have a prior of theirs)."""

    quantities = ("alpha", "alpha0", "c", "beta", "log_feasible")

    @staticmethod
    def template(model):
        return MixedMembership.template(model, EQUIVALENCE)

    @classmethod
    def draw_population(cls, truth, key):
        key_prior, key_records = jax.random.split(key)
        data = cls.template(truth)

        def draw(key):
            state, _ = hdp.draw_prior(truth, key, 1, NUM_LEVELS, CAPACITY, data.levels)
            totals = feasible_totals(state.g0, state.theta, data)
            state = dataclasses.replace(state, totals=totals)
            return state, log_feasible(truth, None, state, data)

        state = draw_feasible(key_prior, draw)
        return state, records_of(truth, key_records, cls.measure(truth, state)[1], EQUIVALENCE)

    @classmethod
    def measure(cls, model, state):
        of_all, kept = MixedMembership.measure(model, state)
        kept["log_feasible"] = log_feasible(model, None, state, cls.template(model))
        first = state.alpha if model.shared else state.rate
        return (first, *of_all, kept["log_feasible"]), kept


class LatentClasses:
    """The same of `bnp_models.NPLCM` and `bnp_models.TNPLCM`."""

    quantities = ("alpha", "margin", "c", "beta")

    @staticmethod
    def template(model):
        zeros = None
        if model.conditions_type is not None:
            zeros = structural_zeros(CONDITIONS)
        codes = np.zeros((SAMPLE, len(NUM_LEVELS)), int)
        return prepare_latent_classes(model, codes, NUM_LEVELS, zeros, trees=trees_of(model))

    @classmethod
    def draw_population(cls, truth, key):
        key_prior, key_records = jax.random.split(key)
        template = cls.template(truth)

        def draw(key):
            state = nplcm.draw_prior(truth, key, template.levels)
            return state, cls.measure(truth, state)[1]["log_feasible"]

        state = draw_feasible(key_prior, draw)
        conditions = [] if truth.conditions_type is None else CONDITIONS
        kept = cls.measure(truth, state)[1]
        return state, records_of(truth, key_records, kept, conditions)

    @classmethod
    def as_data(cls, model, codes):
        rows = codes + first_rows(NUM_LEVELS)[:, None]
        return eqx.tree_at(
            lambda data: (data.rows, data.one_hot), cls.template(model),
            (rows, latent_classes_state.one_hot_levels(codes, NUM_LEVELS)),
        )  # fmt: skip

    @classmethod
    def measure(cls, model, state):
        template = cls.template(model)
        kept = {"log_pi": state.log_pi, "log_lambda": state.log_lambda}
        margin = predictions.level_probabilities(kept, NUM_LEVELS, template.boxes)[0]
        log_mass = jnp.log(truncated.region_mass(state.log_lambda, template.feasible))
        kept["log_feasible"] = jax.nn.logsumexp(state.log_pi + log_mass)
        return (state.alpha, margin, *of_levels(state)), kept


def records_of(truth, key, kept, conditions):
    """A population of feasible records, their cells listed."""
    with jax.ensure_compile_time_eval():
        cells = feasible_cells(conditions) if conditions else np.indices(NUM_LEVELS)
    cells = jnp.asarray(cells.reshape(len(NUM_LEVELS), -1), jnp.int32)
    log_p = truth.log_cell_probability(None, kept, cells.T, NUM_LEVELS)
    return cells[:, jax.random.categorical(key, log_p, shape=(POPULATION,))]


def family(model):
    return MixedMembership if isinstance(model, HDPMixedMembership) else LatentClasses


class Run(NamedTuple):
    """Sweeps of warm-up and between draws, and components of the start."""

    burn: int = 150
    thin: int = 4
    start: int = 10


@partial(jax.jit, static_argnames=("run", "kind"))
def replicate(keys, truth, model, run, kind):
    """Populations of the prior `truth`, and draws of `model` given a sample of each."""

    def one(key):
        key_prior, key_init, key_sweeps = jax.random.split(key, 3)
        state, population = kind.draw_population(truth, key_prior)
        data = kind.as_data(model, population[:, :SAMPLE])
        start = model.init(key_init, data, CAPACITY, jnp.int32(run.start))

        def sweep(t, state):
            return model.sweep(jax.random.fold_in(key_sweeps, t), state, data, t)[0]

        def draw(state, i):
            begin = jnp.where(i == 0, 0, run.burn + i * run.thin)
            state = jax.lax.fori_loop(begin, run.burn + (i + 1) * run.thin, sweep, state)
            measured, kept = kind.measure(model, state)
            cells = population[:, :SAMPLE].T
            log_p = model.log_cell_probability(None, kept, cells, NUM_LEVELS)
            return state, (measured, log_p, kept["log_feasible"])

        _, drawn = jax.lax.scan(draw, start, jnp.arange(NUM_DRAWS))
        return kind.measure(truth, state)[0], population, *drawn

    # In turn: under vmap every loop of a kernel waits for the slowest chain of the batch.
    return jax.lax.map(one, keys)


def ranks(model, key, num_replications, *, truth=None, run=None, batch=104, kind=None):
    """Ranks (0..NUM_DRAWS) of the true quantities and tau_1, each (num_replications,).

    `truth` is the model that populations come from, by default `model` itself; `kind` the class
    that measures it, by default the one without structural zeros.
    """
    rng = np.random.default_rng(0)
    kind = kind or family(model)
    names = kind.quantities
    found = {name: [] for name in (*names, "tau1")}
    for start in range(0, num_replications, batch):
        keys = jax.random.split(jax.random.fold_in(key, start), batch)
        true, population, drawn, log_p, log_mass = jax.tree.map(
            np.asarray, replicate(keys, truth or model, model, run or Run(), kind)
        )
        for r in range(min(batch, num_replications - start)):
            cells, inverse, counts = np.unique(
                population[r, :, :SAMPLE].T, axis=0, return_inverse=True, return_counts=True
            )
            unique = np.flatnonzero(counts[inverse.ravel()] == 1)
            later = {tuple(x) for x in population[r, :, SAMPLE:].T}
            tau1 = sum(tuple(population[r, :, i]) not in later for i in unique)
            kept = log_mass[r] >= np.log(LEAST_FEASIBLE)
            q = np.exp(log_p[r][kept][:, unique].astype(float))
            found["tau1"].append(
                rank_of(rng, tau1, np.sum(draw_joining(rng, q, POPULATION - SAMPLE) == 0, axis=1))
            )
            for name, value, draws in zip(names, true, drawn, strict=True):
                found[name].append(rank_of(rng, value[r], draws[r][kept]))
    return {name: np.array(value) for name, value in found.items()}


def rank_of(rng, truth, draws):
    """The rank of the truth among 99 draws, ties broken at random; of fewer draws in proportion."""
    below, equal = np.sum(draws < truth), np.sum(draws == truth)
    rank = below + rng.integers(0, equal + 1)
    if len(draws) == NUM_DRAWS:
        return int(rank)
    return int((rank + rng.random()) / (len(draws) + 1) * (NUM_DRAWS + 1))


def uniformity(rank, num_bins=10) -> float:
    """p-value of the chi-square test that ranks are uniform."""
    bins = rank * num_bins // (NUM_DRAWS + 1)
    return float(chisquare(np.bincount(bins, minlength=num_bins)).pvalue)


def kept_ranks(path, labels, compute):
    """`compute(label)`, (quantities, replications), of each label that `path` does not hold yet."""
    found = dict(np.load(path)) if path.exists() else {}
    for label in labels:
        if label not in found:
            found[label] = np.array(compute(label))
            np.savez_compressed(path, **found)
    return {label: found[label] for label in labels}


def write_up(path, ranks, quantities):
    """The p-values of `kept_ranks` in a table, and histograms in a figure, beside `path`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(quantities), len(ranks), figsize=(3.5 * len(ranks), 2.4 * len(quantities)),
        sharey=True, layout="constrained",
    )  # fmt: skip
    rows = []
    for column, (label, by_quantity) in zip(axes.T, ranks.items(), strict=True):
        for axis, name, rank in zip(column, quantities, by_quantity, strict=True):
            p = uniformity(rank)
            rows.append({"model": label, "quantity": name, "replications": len(rank),
                         "mean_rank": rank.mean() / NUM_DRAWS, "p_uniform": p})  # fmt: skip
            print(rows[-1], flush=True)
            _draw_ranks(axis, rank, f"{name}, {label} (p = {p:.2f})")
    figure.supxlabel(f"rank of the truth among {NUM_DRAWS} draws")
    figure.savefig(path.with_suffix(".png"), dpi=100)
    pd.DataFrame(rows).to_csv(path.with_suffix(".csv"), index=False, float_format="%.4g")


def _draw_ranks(axis, rank, title):
    """Histogram of ranks, with the band that holds 99% of the bars of uniform ones."""
    axis.hist(rank, bins=np.linspace(-0.5, NUM_DRAWS + 0.5, 21), color="#4878a8")
    expected = len(rank) / 20
    axis.axhspan(expected - 2.6 * expected**0.5, expected + 2.6 * expected**0.5,
                 color="#999999", alpha=0.3)  # fmt: skip
    axis.axhline(expected, color="#444444", lw=0.8)
    axis.set_title(title, fontsize=9)


def models(kind):
    """Models of a family by label, how long their chains are, and the class that measures them."""
    moves = {"dish_stride": 4, "cell_stride": 1, "split_merge_every": 4, "seating_every": 4}
    if kind == "hdp_zeros":
        return (
            {
                f"alpha {name}": HDPMixedMembership(concentration=name, **moves)
                for name in ("shared", "hierarchical")
            },
            Run(burn=300, thin=25),
            TruncatedMixedMembership,
        )
    if kind == "hdp":
        return (
            {
                f"alpha {name}": HDPMixedMembership(concentration=name, **moves)
                for name in CONCENTRATIONS
            },
            Run(),
            MixedMembership,
        )
    few = {"components": 8, "split_merge_every": 2}
    if kind == "ordered":
        few["ordered"] = f"v{CHOSEN}"
    if kind == "groups":
        # Of the four levels two are a group, which is in a larger group with the third.
        codes = {"level": range(4), "group": [*"aabc"], "larger": [*"xxxy"]}
        few["groups"] = {f"v{CHOSEN}": pd.DataFrame(codes)}
    return {
        "no structural zeros": NPLCM(**few), "structural zeros": TNPLCM(**few)
    }, Run(burn=1000, thin=40), LatentClasses  # fmt: skip


KINDS = ("hdp", "hdp_zeros", "latent_classes", "ordered", "groups")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", choices=KINDS)
    parser.add_argument("--replications", type=int, default=208)
    parser.add_argument("--seed", type=int, default=SEED, help="another has files of its own")
    args = parser.parse_args()
    chosen, run, kind = models(args.models)
    key, quantities = jax.random.key(args.seed), (*kind.quantities, "tau1")

    def compute(label):
        found = ranks(chosen[label], key, args.replications, run=run, kind=kind)
        return [found[name] for name in quantities]

    seed = "" if args.seed == SEED else f"_{args.seed}"
    path = HERE / f"{args.models}{seed}.npz"
    write_up(path, kept_ranks(path, chosen, compute), quantities)


if __name__ == "__main__":
    main()
