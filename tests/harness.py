"""What the statistical tests share: exact answers, chains that should be stationary, z-scores."""

import dataclasses
import math
from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln, roots_genlaguerre
from scipy.stats import qmc

from bnp_models.kernels.mixed_membership.tables import simulate_levels
from bnp_models.kernels.variates.levels import Levels
from bnp_models.models.mixed_membership import hdp
from bnp_models.models.mixed_membership.new_records import pad_levels
from bnp_models.models.mixed_membership.start import prepare_records
from bnp_models.models.mixed_membership.state import HDPData

# One statistical check in the suite fails by chance with this probability at most: about 200
# z-scores are taken in all, and each has two tails.
Z_LIMIT = 4.5

# Records are padded to a multiple of this, so that few have padding; all strides divide it.
PADDED = 8

# For tests with `either_form` that compile for long: the form for accelerators is among the long.
ACCELERATOR_IS_LONG = pytest.mark.parametrize(
    "either_form", ["cpu", pytest.param("accelerator", marks=pytest.mark.long)], indirect=True
)


def z_scores(chain_means: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Standardised errors of independent chains' means (chains, quantities) around the truth."""
    error = chain_means.std(axis=0, ddof=1) / math.sqrt(len(chain_means))
    return (chain_means.mean(axis=0) - np.asarray(truth)) / error


def prior_of(model):
    """What decides the Dirichlet shapes of levels: a fixed one, or the option `level_prior`."""
    return model.level_prior if model.level_shape is None else model.level_shape


def shape_of(prior):
    """The Dirichlet shape of a prior that is not learned: its number, or ones."""
    return 1.0 if prior == "uniform" else prior


def level_shapes(rng, level_prior, size, num_levels):
    """Draws (size, L) of the Dirichlet shapes of one variable's levels, from `prior_of` a model."""
    if level_prior != "learned":
        return np.broadcast_to(shape_of(level_prior), (size, num_levels))
    c = rng.exponential(num_levels, size)
    return c[:, None] * rng.dirichlet(np.ones(num_levels), size)


def draw_levels(rng, shapes, number):
    """Dirichlet variates (size, L, *number) given shapes (size, L), many of them far below one.

    None is below 1e-12, as in the models.
    """
    shapes = shapes.reshape(*shapes.shape, *[1] * len(number))
    shapes = np.broadcast_to(shapes, (*shapes.shape[:2], *number))
    log_g = np.log(rng.standard_gamma(1 + shapes)) + np.log(rng.random(shapes.shape)) / shapes
    g = np.exp(log_g - log_g.max(axis=1, keepdims=True))
    return np.maximum(g / g.sum(axis=1, keepdims=True), 1e-12)


def levels_of(num_levels, shape, trees=None):
    """Levels of these variables under a prior of these shapes."""
    return Levels.of_variables(num_levels, trees).with_shape(jnp.asarray(shape))


def of_ones(levels):
    """The same levels under the uniform prior."""
    return levels.with_shape(jnp.ones_like(levels.shape))


def where(wrong, fault, right):
    """One of two trees of arrays, by a switch."""
    return jax.tree.map(lambda a, b: jnp.where(wrong, a, b), fault, right)


def draw_variable(rng, level_prior, size, tree, number):
    """Level probabilities (size, L, *number) of one variable, and its log concentration (size,).

    A tree is a number of levels, or a list of trees, whose levels are in groups one after the
    other: their probabilities are products of the shares of groups and of those within them, and
    the concentration is that of the largest groups.
    """
    if isinstance(tree, int):
        shapes = level_shapes(rng, level_prior, size, tree)
        return draw_levels(rng, shapes, number), np.log(shapes.sum(axis=1))
    shares, log_c = draw_variable(rng, level_prior, size, len(tree), number)
    within = [draw_variable(rng, level_prior, size, part, number)[0] for part in tree]
    level = [share[:, None] * x for share, x in zip(shares.swapaxes(0, 1), within, strict=True)]
    return np.concatenate(level, axis=1), log_c


def bands(num_levels):
    """Bands of an ordered variable, as a tree: about as many as each has adjacent levels."""
    return [len(x) for x in np.array_split(np.arange(num_levels), round(num_levels**0.5))]


# Six levels in four groups in two larger ones, as a tree and as the models have it.
DEEP, DEEP_GROUPS = [[2, 1], [2, 1]], ((0, 0, 1, 2, 2, 3), (0, 0, 1, 1))


def set_partitions(items):
    """All partitions of a sequence into non-empty blocks."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in set_partitions(rest):
        yield [[first], *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], [first, *block], *partition[i + 1 :]]


@cache
def _gamma_expectation(log_function, shape, rate, moment):
    """Integral of x^moment exp(log_function(x)) under Ga(shape, rate), on a log axis.

    Without a rate x is the shape, a number that is fixed.
    """
    if rate is None:
        return shape**moment * math.exp(log_function(shape))

    def integrand(log_x):
        x = math.exp(log_x)
        return math.exp(
            log_function(x) + (shape + moment) * log_x - rate * x
            + shape * math.log(rate) - math.lgamma(shape)
        )  # fmt: skip

    return quad(integrand, -25, 7, limit=400, epsabs=0, epsrel=1e-9)[0]


@cache
def _alpha_integral(tables, num_items, num_records, shape, rate, moment):
    """Integral of alpha^tables / ((alpha)_J)^n under its prior, times alpha^moment."""

    def log_function(x):
        rising = math.lgamma(x + num_items) - math.lgamma(x)
        return tables * math.log(x) - num_records * rising

    return _gamma_expectation(log_function, shape, rate, moment)


@cache
def _alpha0_integral(components, tables, shape, rate, moment):
    def log_function(x):
        return components * math.log(x) + math.lgamma(x) - math.lgamma(x + tables)

    return _gamma_expectation(log_function, shape, rate, moment)


def enumerate_posterior(codes: np.ndarray, num_levels, model) -> dict[str, float]:
    """Posterior means on tiny data by summing over every seating and every assignment of dishes.

    Returns means of K, the number of tables, alpha (its mean over records), alpha_0, the
    probability that the first items of the first two records share a component, and the logarithm
    of the first variable's concentration of levels. The shapes of the levels' prior are summed over
    quasi-random points of it.
    """
    num_records, num_items = codes.shape
    seatings = list(set_partitions(list(range(num_items))))
    names = ("weight", "components", "tables", "alpha", "alpha0", "together", "log_c")
    total = dict.fromkeys(names, 0.0)
    shapes = [quasi_random_shapes(prior_of(model), levels) for levels in num_levels]
    of_alpha = (model.a, model.b) if model.alpha is None else (model.alpha, None)
    of_alpha0 = (model.a0, model.b0) if model.alpha0 is None else (model.alpha0, None)
    log_c = np.log(shapes[0].sum(axis=1))
    rates, share = rates_and_shares(model)

    @cache
    def log_dish(items, j):
        counts = np.bincount([codes[i, jj] for i, jj in items if jj == j], minlength=num_levels[j])
        c = shapes[j].sum(axis=1)
        value = gammaln(c) - gammaln(c + counts.sum())
        return value + (gammaln(shapes[j] + counts) - gammaln(shapes[j])).sum(axis=1)

    for chosen in product(seatings, repeat=num_records):
        tables = [(i, tuple(block)) for i, blocks in enumerate(chosen) for block in blocks]
        log_seating = sum(gammaln(len(block)) for _, block in tables)
        per_record = [len(blocks) for blocks in chosen]
        m = len(tables)
        if model.shared:
            weight = _alpha_integral(m, num_items, num_records, *of_alpha, 0)
            mean = _alpha_integral(m, num_items, num_records, *of_alpha, 1) / weight
        else:
            each, first = (
                np.array([
                    [_alpha_integral(t, num_items, 1, model.a, b, moment) for b in rates]
                    for t in per_record
                ])
                for moment in (0, 1)
            )  # fmt: skip
            of_rate = share * each.prod(axis=0)
            weight = of_rate.sum()
            mean = np.average((first / each).mean(axis=0), weights=of_rate)
        for dishes in set_partitions(list(range(m))):
            log_weight = log_seating + sum(gammaln(len(block)) for block in dishes)
            items = [
                tuple(sorted((tables[t][0], j) for t in block for j in tables[t][1]))
                for block in dishes
            ]
            likelihoods = [np.exp(sum(log_dish(group, j) for group in items))
                           for j in range(num_items)]  # fmt: skip
            log_weight += sum(np.log(likelihood.mean()) for likelihood in likelihoods)
            k = len(dishes)
            alpha0 = _alpha0_integral(k, m, *of_alpha0, 0)
            w = math.exp(log_weight) * weight * alpha0
            total["weight"] += w
            total["components"] += w * k
            total["tables"] += w * m
            total["alpha"] += w * mean
            total["alpha0"] += w * _alpha0_integral(k, m, *of_alpha0, 1) / alpha0
            total["log_c"] += w * np.average(log_c, weights=likelihoods[0])
            total["together"] += w * any((0, 0) in group and (1, 0) in group for group in items)
    weight = total.pop("weight")
    return {name: value / weight for name, value in total.items()}


def rates_and_shares(model):
    """Values of b and their probabilities: Gauss-Laguerre nodes where it has a prior."""
    if model.concentration != "hierarchical":
        return np.array([model.b]), np.ones(1)
    nodes, weights = roots_genlaguerre(30, model.a1 - 1)
    return nodes / model.b1, weights / weights.sum()


@cache
def quasi_random_shapes(level_prior, num_levels, number=2**13):
    """Shapes (number, L) of one variable's levels, Sobol points of their prior."""
    if level_prior != "learned":
        return np.full((1, num_levels), shape_of(level_prior))
    points = qmc.Sobol(num_levels + 1, seed=0).random(number)
    exponential = -np.log1p(-points)
    share = exponential[:, 1:] / exponential[:, 1:].sum(axis=1, keepdims=True)
    return num_levels * exponential[:, :1] * share


def run_chains(model, key, codes, num_levels, *, num_chains, num_sweeps, burn, capacity,
               sweep=None):  # fmt: skip
    """Per-chain means of the quantities of `enumerate_posterior` from the sampler."""
    data = prepare_records(model, codes, num_levels, multiple=PADDED)
    step = sweep or (lambda key, state, data, t: model.sweep(key, state, data, t))

    def one(key, start):
        key_init, key_sweeps = jax.random.split(key)

        def body(t, carry):
            state, sums = carry
            state, info = step(jax.random.fold_in(key_sweeps, t), state, data, t)
            now = jnp.stack([
                info.components.astype(float), info.tables.astype(float),
                model.keep(state, info)["alpha"],
                state.alpha0, (state.z[0, 0] == state.z[0, 1]).astype(float),
                jnp.log(jnp.sum(state.level_shape[: num_levels[0]])),
            ])  # fmt: skip
            return state, sums + jnp.where(t >= burn, now, 0)

        state = model.init(key_init, data, capacity, start)
        if sweep is not None:
            # `Model.sweep` alone knows that states hold labels in smaller integers.
            state = dataclasses.replace(state, z=state.z.astype(jnp.int32))
        carry = (state, jnp.zeros(6))
        return jax.lax.fori_loop(0, num_sweeps, body, carry)[1] / (num_sweeps - burn)

    keys = jax.random.split(key, num_chains)
    starts = 1 + jnp.arange(num_chains) % 4
    means = jax.jit(jax.vmap(one))(keys, starts)
    return np.asarray(means, np.float64)


def joint_chains(model, key, *, num_records, num_levels, num_chains, num_sweeps, capacity,
                 sweep=None):  # fmt: skip
    """Per-chain means over chains that alternate data and sweeps.

    Of K, alpha_0, log alpha, and the first variable's concentration of levels, its logarithm and
    the mean of its first level.

    Every chain starts from an exact draw of the joint prior, and alternates a draw of the data
    given labels and parameters with a sweep given the data (Geweke 2004,
    doi:10.1198/016214504000001132): it stays there if and only if the sweep leaves the posterior
    invariant.
    """
    template = prepare_records(
        model, np.zeros((num_records, len(num_levels)), int), num_levels, multiple=PADDED
    )
    padded = template.weight.size
    # Without a table of distinct cells the whole-record move takes every record for a cell.
    first_row = jnp.cumsum(jnp.asarray((0, *num_levels[:-1])))[:, None]
    step = sweep or model.sweep

    def with_codes(codes):
        rows = first_row + codes
        return HDPData(
            rows=rows, weight=template.weight, num_records=template.num_records,
            levels=template.levels, cell=jnp.arange(padded), cell_rows=rows,
            num_cells=jnp.asarray(padded),
        )  # fmt: skip

    def one(key):
        key_prior, key_steps = jax.random.split(key)
        state, codes = hdp.draw_prior(model, key_prior, padded, num_levels, capacity)

        def body(t, carry):
            state, codes, sums = carry
            key_x, key_sweep = jax.random.split(jax.random.fold_in(key_steps, t))
            codes = simulate_levels(key_x, state.z, pad_levels(state.theta, num_levels))
            state, info = step(key_sweep, state, with_codes(codes), t)
            real = template.weight > 0
            log_alpha = jnp.log(state.alpha)
            if log_alpha.ndim:
                log_alpha = jnp.sum(jnp.where(real, log_alpha, 0)) / num_records
            shape = state.level_shape[: num_levels[0]]
            c = jnp.sum(shape)
            now = jnp.stack([
                info.components.astype(float), state.alpha0, log_alpha, c, jnp.log(c), shape[0] / c,
            ])  # fmt: skip
            return state, codes, sums + now

        return jax.lax.fori_loop(0, num_sweeps, body, (state, codes, jnp.zeros(6)))[2] / num_sweeps

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(key, num_chains)), np.float64)
