"""Cell probabilities: the exact road against enumeration, the others against the exact one."""

from functools import partial
from itertools import product
from math import factorial, prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import set_partitions

from bnp_models.kernels.mixed_membership import cell_probability
from bnp_models.kernels.numerics import set_partitions as partition_sums
from bnp_models.kernels.numerics.set_partitions import log_block_weights

Z_BOUND = 4.5

log_cell_probability_exact = jax.jit(
    cell_probability.log_cell_probability_exact, static_argnames="chunk_size"
)
log_cell_probability_draws = jax.jit(
    cell_probability.log_cell_probability_draws, static_argnames="num_draws"
)
log_block_weights_gamma = jax.jit(partition_sums.log_block_weights_gamma, static_argnums=2)


def make_state(seed, num_variables, num_levels, num_slots, dtype=np.float64, spread=0.5):
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet(np.full(num_levels, spread), (num_variables, num_slots))
    g0 = rng.dirichlet(np.full(num_slots, 0.8))
    return jnp.asarray(theta.swapaxes(1, 2), dtype), jnp.asarray(g0, dtype)


def all_cells(num_variables, num_levels):
    return jnp.asarray(list(product(range(num_levels), repeat=num_variables)), jnp.int32)


def urn_weight(alpha, sizes):
    seated = prod(alpha * factorial(size - 1) for size in sizes)
    return seated / prod(alpha + t for t in range(sum(sizes)))


def by_partitions(theta, g0, cell, weights):
    """Sum over set partitions; weights[B - 1] is w_B."""
    column = np.stack([np.asarray(theta)[j, level] for j, level in enumerate(cell)])
    return sum(
        weights[len(partition) - 1]
        * prod(
            factorial(len(block) - 1) * np.sum(np.asarray(g0) * column[block].prod(axis=0))
            for block in partition
        )
        for partition in set_partitions(list(range(len(cell))))
    )


def by_labels(theta, g0, cell, alpha):
    """Sum over all label vectors of the Polya urn's probability times the levels' probability."""
    theta, g0 = np.asarray(theta), np.asarray(g0)
    total = 0.0
    for z in product(range(g0.size), repeat=len(cell)):
        p = 1.0
        for j, k in enumerate(z):
            p *= (alpha * g0[k] + z[:j].count(k)) / (alpha + j) * theta[j, cell[j], k]
        total += p
    return total


@pytest.mark.parametrize("num_variables", [1, 2, 5])
def test_exact_equals_the_enumerated_partitions(x64, num_variables):
    theta, g0 = make_state(1, num_variables, 3, 6)
    cells = all_cells(num_variables, 3)[::7]
    gamma = log_block_weights_gamma(2.0, 0.7, num_variables)
    for weights in (log_block_weights(0.3, num_variables), gamma):
        got = log_cell_probability_exact(theta, g0, cells, log_weights=weights)
        wanted = [by_partitions(theta, g0, c, np.exp(weights)) for c in np.asarray(cells)]
        np.testing.assert_allclose(np.exp(got), wanted, rtol=1e-12)
    fixed = log_cell_probability_exact(theta, g0, cells, alpha=0.3)
    tracked = log_cell_probability_exact(
        theta, g0, cells, log_weights=log_block_weights(0.3, num_variables)
    )
    np.testing.assert_allclose(fixed, tracked, rtol=1e-12)


@pytest.mark.parametrize("alpha", [1e-4, 0.5, 7.0, 1e6])
def test_exact_equals_the_sum_over_labels(x64, alpha):
    theta, g0 = make_state(2, 4, 3, 3)
    cells = all_cells(4, 3)[::9]
    got = log_cell_probability_exact(theta, g0, cells, alpha=alpha)
    wanted = [by_labels(theta, g0, c, alpha) for c in np.asarray(cells)]
    np.testing.assert_allclose(np.exp(got), wanted, rtol=1e-11)


def total_probability(num_variables, num_levels, dtype=np.float32, **urn):
    theta, g0 = make_state(3, num_variables, num_levels, 20, dtype)
    log_p = log_cell_probability_exact(theta, g0, all_cells(num_variables, num_levels), **urn)
    return float(np.exp(np.asarray(log_p, float)).sum())


@pytest.mark.parametrize(
    ("num_variables", "num_levels"), [(5, 3), pytest.param(11, 2, marks=pytest.mark.long)]
)
def test_cells_sum_to_one(num_variables, num_levels):
    total = partial(total_probability, num_variables, num_levels)
    weights = log_block_weights_gamma(jnp.float32(2), jnp.float32(1), num_variables)
    assert total(alpha=0.05) == pytest.approx(1, abs=1e-5)
    assert total(alpha=50.0) == pytest.approx(1, abs=1e-5)
    assert total(log_weights=weights) == pytest.approx(1, abs=1e-5)


def test_float32_follows_float64_for_rare_cells_and_tiny_weights(x64):
    theta, g0 = make_state(4, 10, 4, 64, spread=0.05)
    theta = theta.at[:, 3].multiply(1e-4).at[:, 0].add(1e-5)
    theta = theta / theta.sum(1, keepdims=True)
    # Free slots: one that does not exist, and one that no record uses but that fits cell 0 exactly.
    g0 = g0.at[7].set(0).at[8].set(1e-30)
    theta = theta.at[:, :, 8].set(0).at[:, 0, 8].set(1)
    g0 = g0 / g0.sum()
    rng = np.random.default_rng(0)
    cells = jnp.asarray(rng.integers(0, 4, (300, 10)), jnp.int32)
    cells = cells.at[0].set(0).at[1].set(3)
    single = partial(log_cell_probability_exact, theta.astype(np.float32), g0.astype(np.float32))
    for alpha in (0.05, 2.0):
        double = log_cell_probability_exact(theta, g0, cells, alpha=alpha)
        assert np.exp(double).min() < 1e-15
        got = single(cells, alpha=alpha)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, double, atol=1e-4)
        weights = log_block_weights(np.float32(alpha), 10)
        np.testing.assert_allclose(single(cells, log_weights=weights), double, atol=1e-4)


def test_impossible_cells_have_probability_zero():
    theta, g0 = make_state(5, 3, 3, 4, np.float32)
    theta = theta.at[1, 2].set(0)
    cells = jnp.asarray([[0, 2, 0], [0, 1, 0]], jnp.int32)
    key = jax.random.key(5)
    for log_p in (
        log_cell_probability_exact(theta, g0, cells, alpha=1.0),
        log_cell_probability_draws(key, theta, g0, 1.0, cells, 10).log_p,
    ):
        assert log_p[0] == -jnp.inf
        assert jnp.isfinite(log_p[1])


def test_no_cells_give_no_probabilities():
    theta, g0 = make_state(5, 3, 3, 4, np.float32)
    cells = jnp.zeros((0, 3), jnp.int32)
    assert log_cell_probability_exact(theta, g0, cells, alpha=1.0).shape == (0,)
    estimate = log_cell_probability_draws(jax.random.key(50), theta, g0, 1.0, cells, 10)
    assert estimate.log_p.shape == estimate.relative_se.shape == (0,)
    assert estimate.log_p_halves.shape == (2, 0)


def test_shared_draws_are_unbiased():
    theta, g0 = make_state(7, 6, 3, 12, np.float32, spread=1.0)
    g0 = g0.at[3].set(1e-30).at[4].set(0)
    g0 = g0 / g0.sum()
    cells = all_cells(6, 3)[::40]

    @jax.jit
    def replicates(key, alpha):
        keys = jax.random.split(key, 100)
        run = partial(log_cell_probability_draws, num_draws=500)
        return jax.lax.map(lambda k: run(k, theta, g0, alpha, cells), keys)

    for seed, alpha in ((70, 0.05), (71, 3.0)):
        exact = log_cell_probability_exact(theta, g0, cells, alpha=alpha)
        estimate = replicates(jax.random.key(seed), alpha)
        ratio = np.exp(np.asarray(estimate.log_p) - np.asarray(exact))
        error = ratio.std(0, ddof=1) / np.sqrt(len(ratio))
        assert np.abs((ratio.mean(0) - 1) / error).max() < Z_BOUND
        # The stated error is the spread over keys.
        stated = np.sqrt(np.mean((estimate.relative_se * ratio) ** 2, 0))
        np.testing.assert_allclose(stated, ratio.std(0), rtol=0.4)
        halves = np.exp(estimate.log_p_halves).mean(1)
        np.testing.assert_allclose(halves, np.exp(estimate.log_p), rtol=1e-4)


def test_shared_draws_with_alpha_drawn():
    theta, g0 = make_state(8, 5, 3, 8, np.float32, spread=1.0)
    cells = all_cells(5, 3)[::20]
    weights = log_block_weights_gamma(jnp.float32(2), jnp.float32(1), 5)
    exact = log_cell_probability_exact(theta, g0, cells, log_weights=weights)
    alpha = jnp.asarray(np.random.default_rng(80).gamma(2, 1, 20_000), jnp.float32)
    estimate = log_cell_probability_draws(jax.random.key(81), theta, g0, alpha, cells, 20_000)
    z = np.expm1(estimate.log_p - exact) / estimate.relative_se
    assert np.abs(z).max() < Z_BOUND
    assert np.max(estimate.relative_se) < 0.05


def test_shared_draws_stay_in_range_for_rare_cells():
    theta, g0 = make_state(9, 10, 3, 8, np.float32, spread=1.0)
    theta = jnp.concatenate([theta * (1 - 1e-5), jnp.full((10, 1, 8), 1e-5, jnp.float32)], axis=1)
    cells = jnp.full((1, 10), 3, jnp.int32)
    estimate = log_cell_probability_draws(jax.random.key(90), theta, g0, 0.5, cells, 100)
    np.testing.assert_allclose(estimate.log_p, 10 * np.log(1e-5), rtol=1e-5)


def test_vmap_and_map_over_draws():
    states = [make_state(s, 5, 3, 8, np.float32) for s in range(3)]
    theta, g0 = (jnp.stack(part) for part in zip(*states, strict=True))
    alpha = jnp.asarray([0.1, 1.0, 4.0], jnp.float32)
    cells = all_cells(5, 3)

    @jax.jit
    def one(theta, g0, alpha):
        weights = log_block_weights_gamma(2 * alpha, alpha, 5)
        return log_cell_probability_exact(theta, g0, cells, log_weights=weights, chunk_size=100)

    alone = jnp.stack([one(*args) for args in zip(theta, g0, alpha, strict=True)])
    mapped = jax.lax.map(lambda args: one(*args), (theta, g0, alpha))
    np.testing.assert_allclose(jax.vmap(one)(theta, g0, alpha), alone, rtol=1e-5)
    np.testing.assert_allclose(mapped, alone, rtol=1e-5)


def test_new_data_compile_nothing():
    traces = []

    @jax.jit
    def run(key, theta, g0, alpha, cells):
        traces.append(None)
        weights = log_block_weights_gamma(alpha, alpha, 4)
        exact = log_cell_probability_exact(theta, g0, cells, log_weights=weights)
        return exact, log_cell_probability_draws(key, theta, g0, alpha, cells, 10)

    for seed in range(2):
        theta, g0 = make_state(seed, 4, 3, 8, np.float32)
        run(jax.random.key(seed), theta, g0, jnp.float32(0.5 + seed), all_cells(4, 3))
    assert len(traces) == 1


def test_arguments_are_checked():
    theta, g0 = make_state(0, 3, 2, 4, np.float32)
    cells = all_cells(3, 2)
    with pytest.raises(ValueError, match="exactly one"):
        log_cell_probability_exact(theta, g0, cells)
    with pytest.raises(ValueError, match=r"\(4,\), not \(3,\): one for each number of blocks"):
        log_cell_probability_exact(theta, g0, cells, log_weights=log_block_weights(1.0, 4))
    wide = jnp.ones((cell_probability.MAX_VARIABLES + 1, 2, 4), np.float32)
    with pytest.raises(ValueError, match="at most 14 variables"):
        log_cell_probability_exact(wide, g0, jnp.zeros((1, 15), jnp.int32), alpha=1.0)
    with pytest.raises(ValueError, match="even"):
        log_cell_probability_draws(jax.random.key(0), theta, g0, 1.0, cells, 7)


@pytest.mark.parametrize("kind", ["shared", "by blocks"])
def test_gradients_are_finite_where_slots_are_empty(kind, x64):
    """Against differences of the log-likelihood, on the side on which weights are not negative."""
    theta, g0 = make_state(5, 3, 3, 5)
    g0 = g0.at[3:].set(0) / g0[:3].sum()
    # The last slot has no level probabilities either.
    theta = theta.at[..., 4].set(0)
    weights = {"shared": {"alpha": 0.7}, "by blocks": {
        "log_weights": log_block_weights_gamma(2.0, 3.0, 3)
    }}[kind]  # fmt: skip
    cells = all_cells(3, 3)[::3]

    def log_likelihood(theta, g0):
        return jnp.sum(log_cell_probability_exact(theta, g0, cells, **weights))

    of_theta, of_g0 = jax.grad(log_likelihood, argnums=(0, 1))(theta, g0)
    step, here = 1e-7, log_likelihood(theta, g0)
    slopes = [(log_likelihood(theta, g0.at[k].add(step)) - here) / step for k in range(5)]
    np.testing.assert_allclose(of_g0, jnp.stack(slopes), rtol=1e-4, atol=1e-4)
    assert of_g0[3] > 1 and of_g0[4] == 0
    slope = (log_likelihood(theta.at[1, 2, 0].add(step), g0) - here) / step
    np.testing.assert_allclose(of_theta[1, 2, 0], slope, rtol=1e-4)
    assert np.isfinite(of_theta).all()
