"""Exact answers for HDP mixed membership under structural zeros on a 2 x 2 x 2 table.

Posterior means are ratios of expectations under the prior of (G_0, alpha), drawn here with NumPy,
of the likelihood prod_i p(x_i) / P(F)^n, every cell's p(x) summed over the five partitions of three
variables by hand: nothing of the package is used.
"""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, stats

from bnp_models import StructuralZeros, hdp
from bnp_models.microdata import Schema

NUM_LEVELS = (2, 2, 2)
SCHEMA = Schema(("a", "b", "c"), ((0, 1), (0, 1), (0, 1)))
CELLS = np.array(list(product((0, 1), repeat=3)))

# One condition; half of the table impossible; an equivalence between the first two variables.
CONDITIONS = {
    "one": [[1, 1, -1]],
    "half": [[0, 0, 0], [1, 1, -1], [-1, 1, 1]],
    "equivalence": [[0, 1, -1], [1, 0, -1]],
}
SAMPLES = {
    "one": [[0, 0, 0], [0, 0, 0], [1, 0, 1], [0, 1, 1]],
    "half": [[0, 0, 1], [1, 0, 0], [1, 0, 0]],
    "equivalence": [[0, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 1]],
}
NAMES = ("alpha", "alpha0", "log_feasible", "first cell", "last cell")

_STICKS = 64


def conditions(name: str) -> StructuralZeros:
    """A set of conditions on the table."""
    return StructuralZeros.from_codes(np.array(CONDITIONS[name], np.int32), SCHEMA)


def _feasible(name):
    impossible = np.zeros(len(CELLS), bool)
    for row in CONDITIONS[name]:
        row = np.array(row)
        impossible |= np.all((row < 0) | (CELLS == row), axis=1)
    return ~impossible


def _cell_probabilities(g0, theta, weight):
    """(draws, 8) from g0 (draws, K), theta (draws, 3, K) = P(level 1), weight (draws, 3) of B."""
    probability = []
    for cell in CELLS:
        f = [theta[:, j] if cell[j] else 1 - theta[:, j] for j in range(3)]

        def s(*block, f=f):
            return np.sum(g0 * np.prod([f[j] for j in block], axis=0), axis=1)

        probability.append(
            weight[:, 2] * s(0) * s(1) * s(2)
            + weight[:, 1] * (s(0, 1) * s(2) + s(0, 2) * s(1) + s(1, 2) * s(0))
            + weight[:, 0] * 2 * s(0, 1, 2)
        )
    return np.stack(probability, axis=1)


def _weights(alpha):
    rising = alpha * (alpha + 1) * (alpha + 2)
    return np.stack([alpha**b / rising for b in (1, 2, 3)], axis=-1)


def _mean_weights(model):
    """E[alpha^B / (alpha)_3] for a fresh alpha ~ Ga(a, b)."""
    prior = stats.gamma(model.a, scale=1 / model.b)
    return np.array([
        integrate.quad(lambda x, b=b: _weights(x)[b] * prior.pdf(x), 0, np.inf, epsabs=1e-12)[0]
        for b in range(3)
    ])  # fmt: skip


def exact_means(model, name: str, num_draws: int = 400_000, seed: int = 0):
    """Posterior means of alpha (or b), alpha_0, log P(F) and two cells' share, and their errors.

    Under the model of alphas of their own, "alpha" is the rate b where it has a prior, else 0.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(0, num_draws, 50_000):
        size = 50_000
        alpha0 = rng.gamma(model.a0, 1 / model.b0, size)
        log_1mv = np.log(rng.random((size, _STICKS))) / alpha0[:, None]
        log_1mv[:, -1] = -np.inf
        passed = np.cumsum(log_1mv[:, :-1], axis=1)
        g0 = -np.expm1(log_1mv) * np.exp(np.concatenate([np.zeros((size, 1)), passed], axis=1))
        theta = rng.random((size, 3, _STICKS))
        first = np.zeros(size)
        if model.shared:
            first = rng.gamma(model.a, 1 / model.b, size)
            weight = _weights(first)
        elif model.concentration == "record":
            weight = np.broadcast_to(_mean_weights(model), (size, 3))
        else:
            # A grid of b, for each of which the weights are a quadrature.
            first = stats.gamma(model.a1, scale=1 / model.b1).rvs(size, random_state=rng)
            weight = _interpolated(model, first)
        p = _cell_probabilities(g0, theta, weight)
        feasible = _feasible(name)
        mass = p[:, feasible].sum(axis=1)
        index = [int(np.flatnonzero(np.all(CELLS == x, axis=1))[0]) for x in SAMPLES[name]]
        likelihood = np.prod(p[:, index], axis=1) / mass ** len(index)
        ends = np.flatnonzero(feasible)[[0, -1]]
        values = np.column_stack([first, alpha0, np.log(mass), p[:, ends] / mass[:, None]])
        parts.append((likelihood[:, None] * values, likelihood))
    top, bottom = (np.concatenate(part) for part in zip(*parts, strict=True))
    mean = top.mean(axis=0) / bottom.mean()
    error = (top - mean * bottom[:, None]).std(axis=0) / bottom.mean() / np.sqrt(len(bottom))
    return mean, error


def _interpolated(model, rates):
    grid = np.exp(np.linspace(-12, 5, 400))
    nodes = np.exp(np.linspace(-40, 12, 4001))
    # alpha ~ Ga(a, b) by the trapezoid rule on a log axis.
    density = stats.gamma.pdf(nodes[:, None], model.a, scale=1 / grid) * nodes[:, None]
    table = np.einsum("nb,nr->rb", _weights(nodes), density) * np.diff(np.log(nodes))[0]
    return np.stack([np.interp(np.log(rates), np.log(grid), table[:, b]) for b in range(3)], axis=1)


def _now(model, state, info, feasible_cells):
    """The quantities of `exact_means` of one state."""
    first = state.alpha if model.shared else jnp.zeros(())
    if model.concentration == "hierarchical":
        first = state.rate
    draw = {"g0": state.g0, "theta": state.theta, "alpha": state.alpha, "alpha_rate": state.rate,
            "log_feasible": info.log_feasible}  # fmt: skip
    ends = hdp.log_cell_probability(model, None, draw, feasible_cells, NUM_LEVELS)
    return jnp.stack([first, state.alpha0, info.log_feasible, *jnp.exp(ends)])


def posterior_chains(model, name, key, *, num_chains, num_sweeps, burn, capacity=32, sweep=None):
    """Per-chain means of the quantities of `exact_means` from the sampler."""
    multiple = max(model.dish_stride, model.cell_stride, 1)
    data = model.prepare(np.array(SAMPLES[name]), NUM_LEVELS, conditions(name), multiple=multiple)
    ends = jnp.asarray(CELLS[np.flatnonzero(_feasible(name))[[0, -1]]], jnp.int32)
    step = sweep or model.sweep

    def one(key, start):
        key_init, key_sweeps = jax.random.split(key)

        def body(t, carry):
            state, sums = carry
            state, info = step(jax.random.fold_in(key_sweeps, t), state, data, t)
            return state, sums + jnp.where(t >= burn, _now(model, state, info, ends), 0)

        carry = (model.init(key_init, data, capacity, start), jnp.zeros(len(NAMES)))
        return jax.lax.fori_loop(0, num_sweeps, body, carry)[1] / (num_sweeps - burn)

    keys = jax.random.split(key, num_chains)
    starts = 1 + jnp.arange(num_chains) % 3
    return np.asarray(jax.jit(jax.vmap(one))(keys, starts), np.float64)


def scores(means: np.ndarray, exact: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Standardised differences of chains' means from exact ones, both errors counted."""
    truth, error = exact
    own = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    return (means.mean(axis=0) - truth) / np.sqrt(own**2 + error**2 + 1e-20)
