"""Records simulated through the urn, against its probabilities."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value, compiles_once, frequency_z_score
from harness import Z_LIMIT

from bnp_models.kernels.mixed_membership import tables
from bnp_models.kernels.numerics.counting import opens_table
from bnp_models.kernels.variates import rng

N = 50_000
G0 = np.array([0.7, 0.3])
simulate = jax.jit(tables.simulate_labels, static_argnames="num_items")


def simulate_labels(*args, **kwargs):
    return simulate(*args, **kwargs)[0]


simulate_levels = jax.jit(tables.simulate_levels)


def polya(alpha, g0, num_items):
    """Probabilities of all label patterns, in the order of base-K numbers."""
    probability = []
    for pattern in product(range(len(g0)), repeat=num_items):
        p = 1.0
        for j, k in enumerate(pattern):
            p *= (pattern[:j].count(k) + alpha * g0[k]) / (j + alpha)
        probability.append(p)
    return np.array(probability)


def count_patterns(z, size):
    powers = size ** np.arange(z.shape[0])[::-1]
    return np.bincount(powers @ np.asarray(z), minlength=size ** z.shape[0])


@pytest.mark.parametrize("alpha", [0.05, 1.0, 4.0])
def test_labels(key, alpha):
    z = simulate_labels(key, jnp.full(N, alpha), jnp.asarray(G0, jnp.float32), num_items=3)
    counts = count_patterns(z, 2)
    assert chi_square_p_value(counts, polya(alpha, G0, 3)) > P_LIMIT
    # Shown to fail: a concentration that is 30% off.
    assert chi_square_p_value(counts, polya(alpha * 1.3, G0, 3)) < P_LIMIT


@pytest.mark.parametrize("alpha", [0.05, 1.0, 4.0])
def test_items_that_open_tables(key, alpha):
    """Items open tables by themselves, with probability alpha / (alpha + j); the others copy."""
    num_items = 4
    z, table = simulate(key, jnp.full(N, alpha), jnp.asarray(G0, jnp.float32), num_items=num_items)
    z, opens = np.asarray(z), np.asarray(opens_table(table))
    assert opens[0].all()

    def probability(alpha):
        chance = alpha / (alpha + np.arange(num_items))
        return [
            np.prod(np.where(pattern, chance, 1 - chance))
            for pattern in product((0, 1), repeat=num_items)
        ]

    counts = count_patterns(opens.astype(int), 2)
    assert chi_square_p_value(counts, probability(alpha)) > P_LIMIT
    assert chi_square_p_value(counts, probability(1.3 * alpha)) < P_LIMIT
    for j in range(1, num_items):
        assert (z[:j] == z[j])[:, ~opens[j]].any(axis=0).all()
        # New tables take their labels from g_0, whatever was there before.
        for before in range(2):
            own = opens[j] & (z[j - 1] == before)
            assert chi_square_p_value(np.bincount(z[j, own], minlength=2), G0) > P_LIMIT


def test_first_labels_follow_g0_whatever_its_length(key):
    g0 = np.random.default_rng(0).dirichlet(np.full(37, 0.3))
    g0[[0, 5, 36]] = 0
    g0 /= g0.sum()
    z = simulate_labels(key, jnp.ones(N), jnp.asarray(g0, jnp.float32), num_items=2)
    for item in z:
        assert chi_square_p_value(np.bincount(item, minlength=37), g0) > P_LIMIT
    same = np.sum(np.asarray(z[0] == z[1]))
    assert abs(frequency_z_score(same, N, 0.5 + 0.5 * np.sum(g0**2))) < Z_LIMIT


@pytest.mark.parametrize(("granularity", "right"), [(1, True), (2**9, False)])
def test_rare_fresh_labels(monkeypatch, key, granularity, right):
    """Of the 2**32 words, the lowest 1e-8 share draws from g0; a 23-bit uniform misses it."""
    words = jnp.arange(2000, dtype=jnp.uint32) // granularity * granularity
    u = jnp.stack([jnp.full(2000, 0.5), rng.uniform(words)])
    u_base = jnp.stack([jnp.full(2000, 0.2), jnp.full(2000, 0.8)])
    monkeypatch.setattr(tables, "uniform_pair", lambda key, shape, dtype: (u, u_base))
    z, _ = tables.simulate_labels(key, jnp.full(2000, 1e-8), jnp.array([0.5, 0.5]), 2)
    assert np.all(z[0] == 0)
    fresh = np.sum(np.asarray(z[1]) == 1)
    assert (abs(fresh - 1e-8 * 2**32) <= 1) == right


def test_levels(key):
    theta = np.array([
        [[0.2, 0.5], [0.8, 0.5], [0, 0], [0, 0]],
        [[0.1, 0.4], [0.2, 0.3], [0.3, 0.2], [0.4, 0.1]],
        [[1e-3, 0.0], [0.0, 1.0], [0.999, 0], [0, 0]],
    ])  # fmt: skip
    z = np.random.default_rng(1).integers(0, 2, (3, N))
    x = np.asarray(simulate_levels(key, z, jnp.asarray(theta, jnp.float32)))
    for j in range(3):
        for k in range(2):
            counts = np.bincount(x[j, z[j] == k], minlength=4)
            assert chi_square_p_value(counts, theta[j, :, k]) > P_LIMIT, (j, k)
            if j < 2:
                assert chi_square_p_value(counts, theta[j, :, 1 - k]) < P_LIMIT, (j, k)


def test_under_vmap_and_compiled_once(key):
    keys, g0 = jax.random.split(key), jnp.asarray(G0, jnp.float32)
    alpha = jnp.linspace(0.1, 4, 40)
    batched = jax.jit(jax.vmap(lambda k: tables.simulate_labels(k, alpha, g0, 3)[0]))(keys)
    for i in range(2):
        np.testing.assert_array_equal(
            batched[i], simulate_labels(keys[i], alpha, g0, num_items=3)
        )  # fmt: skip
    first, second = (keys[0], alpha, g0), (keys[1], 2 * alpha, g0[::-1])
    assert compiles_once(tables.simulate_labels, first, second, num_items=3)
