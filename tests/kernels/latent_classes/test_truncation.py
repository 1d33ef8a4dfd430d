"""Truncated classes: masses against enumeration, conditionals against quadrature."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value, compiles_once
from harness import Z_LIMIT
from latent import feasible_cells, structural_zeros, two_sample_z
from scipy import stats

from bnp_models.kernels.boxes import region as boxes_region
from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.latent_classes import observed_weights, truncated_levels
from bnp_models.kernels.latent_classes import order as latent_classes_order
from bnp_models.kernels.latent_classes.truncated_levels import Tilt

N = 20_000
NUM_LEVELS = (3, 2, 4, 2, 3, 2)
# Variables 0, 2, 4 in one group, 1 and 5 in another, 3 in no condition.
CONDITIONS = [
    [0, -1, 3, -1, -1, -1], [1, -1, -1, -1, 1, -1], [-1, -1, 2, -1, 0, -1], [-1, 1, -1, -1, -1, 0],
]  # fmt: skip
CONSTRAINED = (0, 2, 4, 1, 5)
FIRST = np.cumsum((0, *NUM_LEVELS[:-1]))
VARIABLE = np.repeat(np.arange(6), NUM_LEVELS)


def make_regions():
    groups = structural_zeros(CONDITIONS, NUM_LEVELS).groups
    assert len(groups) == 2
    return [
        Region.of_boxes([getattr(group, name).sets for group in groups], NUM_LEVELS)
        for name in ("feasible", "impossible")
    ]


def make_region():
    return make_regions()[0]


def make_levels(seed, num_classes=3):
    """Level probabilities of every class, with some of about 1e-12."""
    rng = np.random.default_rng(seed)
    levels = [rng.dirichlet(np.full(size, 0.3), num_classes).T + 1e-12 for size in NUM_LEVELS]
    return np.log(np.concatenate([x / x.sum(axis=0) for x in levels]))


def cell_probabilities(log_lambda):
    cells = feasible_cells(CONDITIONS, NUM_LEVELS)
    return cells, np.exp(log_lambda[cells + FIRST].sum(axis=1))


def check_masses(seed, rtol):
    log_lambda = make_levels(seed)
    feasible, impossible = make_regions()
    _, probability = cell_probabilities(log_lambda)
    mass = boxes_region.region_mass(jnp.asarray(log_lambda), feasible)
    np.testing.assert_allclose(mass, probability.sum(axis=0), rtol=rtol)
    outside = boxes_region.outside_mass(jnp.asarray(log_lambda), feasible, impossible)
    np.testing.assert_allclose(outside, 1 - probability.sum(axis=0), rtol=rtol, atol=rtol)
    assert feasible.group == (0, 0, 0, 1, 1)


def test_masses_are_those_of_the_cells(seed):
    check_masses(seed, 3e-6)


def test_masses_in_double_precision(seed, x64):
    check_masses(seed, 1e-12)


def test_the_padding_of_levels_is_empty(seed):
    region = make_region()
    widths = [NUM_LEVELS[j] for j in CONSTRAINED]
    np.testing.assert_array_equal(region.num_levels, widths)
    log_lambda = jnp.asarray(make_levels(seed))
    blocks = region.take(log_lambda, -jnp.inf)
    for v, width in enumerate(widths):
        assert (region.rows[v, width:] == sum(NUM_LEVELS)).all()
        assert not region.sets[v, :, width:].any() and np.isneginf(blocks[v, width:]).all()
    np.testing.assert_array_equal(region.free, VARIABLE == 3)
    np.testing.assert_array_equal(
        region.put(jnp.zeros_like(log_lambda), blocks),
        jnp.where(VARIABLE[:, None] == 3, 0, log_lambda),
    )


def test_mass_given_each_level(seed):
    """New levels of earlier variables, old ones of later variables."""
    old, new = make_levels(seed), make_levels(seed + 1)
    region = make_region()

    def update(own, block, mass):
        return own, (block, mass)

    result, mass, (blocks, of_level) = boxes_region.through_variables(
        jnp.asarray(old), region, update, region.take(jnp.asarray(new), -jnp.inf)
    )
    np.testing.assert_array_equal(blocks, region.take(jnp.asarray(old), -jnp.inf))
    mixed = old.copy()
    for v, j in enumerate(CONSTRAINED):
        cells, probability = cell_probabilities(mixed)
        free = np.exp(mixed[VARIABLE == 3]).sum(axis=0)
        for level in range(NUM_LEVELS[j]):
            given = probability[cells[:, j] == level] / np.exp(mixed[FIRST[j] + level]) / free
            np.testing.assert_allclose(of_level[v, level], given.sum(axis=0), rtol=3e-6)
        mixed[VARIABLE == j] = new[VARIABLE == j]
    np.testing.assert_allclose(result, mixed, rtol=1e-6)
    cells, probability = cell_probabilities(mixed)
    np.testing.assert_allclose(mass, probability.sum(axis=0), rtol=3e-6)


def from_grid(rng, log_density, axes):
    """Draws from a density on a grid of midpoints, uniform within its cells."""
    weight = np.exp(log_density - log_density.max()).ravel()
    which = rng.choice(weight.size, N, p=weight / weight.sum())
    index = np.unravel_index(which, log_density.shape)
    return np.stack([
        axis[i] + (rng.random(N) - 0.5) * (axis[1] - axis[0])
        for axis, i in zip(axes, index, strict=True)
    ])  # fmt: skip


# Two binary variables that are not both 1: records at (0, 0), (0, 1) and (1, 0).
PAIR = Region.of_boxes([np.array([[1, 0, 1, 1], [0, 1, 1, 0]], bool)], (2, 2))


@jax.jit
@jax.vmap
def update_pair(key, level, counts, size, tilt):
    log_lambda = jnp.log(jnp.stack([1 - level, level], axis=1)).reshape(4, 1)
    variable = jnp.array([0, 0, 1, 1])
    new, log_mass, accepted = truncated_levels.update_levels_truncated(
        key, log_lambda, counts[:, None], size[None], variable, PAIR, tilt
    )
    return jnp.exp(new[1::2, 0]), log_mass[0], accepted


def pair_p_values(seed, key, cells, pull, power, exact_power):
    """An exact draw moved once, against another: both probabilities of 1, and the mass."""
    rng = np.random.default_rng(seed)
    both, second, first = cells
    size = sum(cells)
    grid = []
    for ones in (first, second):
        middle, width = (ones + 1) / (size + 2), 9 / np.sqrt(size + 1)
        grid.append(np.linspace(max(middle - width, 0), min(middle + width, 1), 1201))
    grid = [(x[1:] + x[:-1]) / 2 for x in grid]
    p, q = np.meshgrid(*grid, indexing="ij")
    mass = 1 - p * q
    log_density = (
        first * np.log(p) + second * np.log(q) + (size - first) * np.log1p(-p)
        + (size - second) * np.log1p(-q) - (size + exact_power) * np.log(mass) - pull / mass
    )  # fmt: skip
    start, other = from_grid(rng, log_density, grid), from_grid(rng, log_density, grid)
    counts = jnp.array([size - first, first, size - second, second])
    tilt = Tilt(jnp.full((N, 1), pull, jnp.float32), jnp.full((N, 1), power, jnp.float32))
    moved, log_mass, accepted = update_pair(
        jax.random.split(key, N), jnp.asarray(start.T, jnp.float32),
        jnp.broadcast_to(counts, (N, 4)), jnp.full(N, size), tilt,
    )  # fmt: skip
    moved = np.asarray(moved, float).T
    np.testing.assert_allclose(np.exp(log_mass), 1 - moved[0] * moved[1], rtol=1e-4)
    assert np.mean(accepted) > 0.5
    return [
        stats.ks_2samp(x, y, method="asymp").pvalue
        for x, y in zip((*moved, moved[0] * moved[1]), (*other, other[0] * other[1]), strict=True)
    ]


@pytest.mark.parametrize(
    "cells, pull, power",
    [((0, 0, 0), 0.7, 1.0), ((1, 2, 1), 0.3, 0.4), ((0, 5, 0), 0.0, 0.0), ((2000, 900, 400), 5.0,
     1.0)], ids=["empty", "few records", "no tilt", "many records"],
)  # fmt: skip
def test_levels_leave_their_target_invariant(key, seed, cells, pull, power):
    assert min(pair_p_values(seed, key, cells, pull, power, power)) > P_LIMIT


def test_levels_with_a_wrong_power_are_seen(key, seed):
    assert min(pair_p_values(seed, key, (1, 2, 1), 0.3, 0.4, 1.4)) < P_LIMIT


MASS = np.array([0.9, 0.05, 0.4])


@jax.jit
@jax.vmap
def update_weights(key, log_pi, class_counts, alpha):
    key_tilt, key_weights = jax.random.split(key)
    log_mass = jnp.log(jnp.asarray(MASS[: log_pi.size], log_pi.dtype))
    _, log_s = observed_weights.stick_tilt(key_tilt, log_pi, log_mass, alpha, jnp.sum(class_counts))
    return observed_weights.draw_observed_weights(key_weights, class_counts, log_mass, log_s, alpha)


def weights_z(seed, key, counts, alpha, exact_alpha):
    """Sticks on a scale on which a grid holds them: s_k = (1 - V_k)^(alpha / power)."""
    rng = np.random.default_rng(seed)
    num_sticks = len(counts) - 1
    power = 2 * max(exact_alpha, 1)
    axis = (np.arange(600) + 0.5) / 600
    s = np.stack(np.meshgrid(*[axis] * num_sticks, indexing="ij"))

    def log_weights(s):
        left = power * np.log(s) / exact_alpha
        before = np.concatenate([np.zeros_like(left[:1]), np.cumsum(left, axis=0)])
        return before + np.concatenate([np.log(-np.expm1(left)), np.zeros_like(left[:1])])

    log_pi = log_weights(s)
    mass = MASS[: len(counts)].reshape(-1, *[1] * num_sticks)
    counts = np.array(counts)
    log_density = np.tensordot(counts, log_pi, 1) + (power - 1) * np.log(s).sum(axis=0)
    log_density = log_density - counts.sum() * np.log((mass * np.exp(log_pi)).sum(axis=0))
    start, other = (log_weights(from_grid(rng, log_density, [axis] * num_sticks)) for _ in range(2))
    moved = update_weights(
        jax.random.split(key, N), jnp.asarray(start.T, jnp.float32),
        jnp.broadcast_to(counts, (N, len(counts))), jnp.full(N, alpha, jnp.float32),
    )  # fmt: skip
    weights = np.exp(np.asarray(moved, float)), np.exp(other.T)
    return two_sample_z(*(np.concatenate([w, w**2], axis=1)[:, :-1] for w in weights))


@pytest.mark.parametrize("counts", [(2, 5), (0, 1), (2, 0, 1), (20, 3, 0)], ids=str)
@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_weights_leave_their_target_invariant(key, seed, counts, alpha):
    z = weights_z(seed, key, counts, alpha, alpha)
    assert np.abs(z).max() < Z_LIMIT, z


def test_weights_with_another_concentration_are_seen(key, seed):
    z = weights_z(seed, key, (2, 0, 1), 0.5, 0.7)
    assert np.abs(z).max() > Z_LIMIT, z


def log_density_of_sticks(pi, alpha):
    """The density of pi when its sticks are Beta(1, alpha), the last one 1."""
    left = 1 - np.concatenate([[0], np.cumsum(pi)[:-2]])
    v = pi[:-1] / left
    return np.sum(stats.beta(1, alpha).logpdf(v) - np.log(left))


@pytest.mark.parametrize("alpha", [0.25, 2.0])
def test_log_stick_prior(seed, alpha):
    rng = np.random.default_rng(seed)
    found, exact = [], []
    for x in rng.gamma(0.7, size=(20, 5)):
        found.append(float(observed_weights.log_stick_prior(jnp.log(x), jnp.float32(alpha))))
        total = x.sum()
        exact.append(
            log_density_of_sticks(x / total, alpha) - 4 * np.log(alpha) - 5 * np.log(total)
        )
    np.testing.assert_allclose(found, exact, rtol=2e-5, atol=2e-5)


PI = np.array([0.15, 0.4, 0.05, 0.4 - 1e-3, 1e-3])
ORDERS = np.array(list(itertools.permutations(range(4))))


def order_p_value(seed, log_target, propose):
    """Orders drawn from their target, moved once, counted against it."""
    target = np.exp(log_target - np.max(log_target))
    rng = np.random.default_rng(seed)
    start = ORDERS[rng.choice(len(ORDERS), N, p=target / target.sum())]
    moved = np.take_along_axis(start, np.asarray(propose(jnp.asarray(start))), axis=1)
    assert (moved != start).any()
    counts = (moved[:, None] == ORDERS).all(axis=2).sum(axis=0)
    return chi_square_p_value(counts, target)


@pytest.mark.parametrize("alpha, wrong", [(0.4, False), (2.5, False), (0.4, True), (2.5, True)])
def test_reordering_leaves_the_posterior_invariant(key, seed, alpha, wrong):
    weight = PI[:4] / PI[:4].sum()
    log_target = [log_density_of_sticks(weight[order], alpha) for order in ORDERS]
    keys = jax.random.split(key, N)
    # Wrong: 2 - alpha turns the last pair's ratio upside down.
    used = jnp.float32(2 - alpha if wrong else alpha)

    @jax.jit
    @jax.vmap
    def propose(key, order):
        return latent_classes_order.reorder_classes(key, jnp.log(jnp.asarray(weight))[order], used)

    p = order_p_value(seed, log_target, lambda order: propose(keys, order))
    assert p < P_LIMIT if wrong else p > P_LIMIT


@pytest.mark.parametrize("wrong", [False, True])
def test_swapping_leaves_the_posterior_invariant(key, seed, wrong):
    weight, mass, counts = PI[:4] / PI[:4].sum(), np.array([0.9, 0.2, 0.5, 0.7]), np.arange(4)
    log_target = [
        counts[order] @ np.log(weight) - counts.sum() * np.log(weight @ mass[order])
        for order in ORDERS
    ]
    keys = jax.random.split(key, N)
    log_pi, log_mass = jnp.log(jnp.asarray(weight)), jnp.log(jnp.asarray(mass))
    used = jnp.zeros_like(log_mass) if wrong else log_mass

    @jax.jit
    @jax.vmap
    def propose(key, order):
        return latent_classes_order.swap_classes(
            key, log_pi, used[order], jnp.asarray(counts)[order]
        )

    p = order_p_value(seed, log_target, lambda order: propose(keys, order))
    assert p < P_LIMIT if wrong else p > P_LIMIT


def test_second_calls_compile_nothing(key, seed):
    one, two = jax.random.split(key)
    region = make_region()
    some = jnp.asarray(make_levels(seed)), jnp.ones(3)
    other = jnp.asarray(make_levels(seed + 1)), jnp.zeros(3)
    counts = jnp.ones((VARIABLE.size, 3), jnp.int32)

    def both(key, log_lambda, tilt, counts):
        new, log_mass, _ = truncated_levels.update_levels_truncated(
            key, log_lambda, counts, counts[0], jnp.asarray(VARIABLE), region, Tilt(tilt, tilt)
        )
        order = latent_classes_order.reorder_classes(key, log_mass, jnp.float32(1))
        return new, latent_classes_order.swap_classes(key, log_mass, log_mass[order], counts[0])

    assert compiles_once(both, (one, *some, counts), (two, *other, 3 * counts))
