"""Collapsed assignment of items against enumeration."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value, compiles_once

from bnp_models.kernels.mixed_membership import tables
from bnp_models.kernels.variates import rng

N = 60_000
ALPHA, G0 = 0.6, np.array([0.5, 0.3, 0.2])
# Two levels for each of three items: rows 0-1, 2-3, 4-5.
THETA = np.array([[0.9, 0.4, 0.1], [0.1, 0.6, 0.9], [0.3, 0.5, 0.8], [0.7, 0.5, 0.2],
                  [0.05, 0.6, 0.5], [0.95, 0.4, 0.5]])  # fmt: skip
ROWS, START = np.array([0, 3, 4]), np.array([0, 2, 1])

assign_items = jax.jit(tables.assign_items)


def conditionals(z, j, alpha=ALPHA, own=False):
    """p(z_j = k | the other labels) of the record, by its definition."""
    others = np.bincount(z if own else np.delete(z, j), minlength=3)
    p = (others + alpha * G0) * THETA[ROWS[j]]
    return p / p.sum()


def scan_probabilities(**planted):
    """P(z_1, z_2, z_3) after one systematic scan from START."""
    table = np.zeros((3, 3, 3))
    for labels in product(range(3), repeat=3):
        z, p = START.copy(), 1.0
        for j, k in enumerate(labels):
            p *= conditionals(z, j, **planted)[k]
            z[j] = k
        table[labels] = p
    return table


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("alpha_shape", [(), (N,)])
def test_one_scan(key, alpha_shape):
    z = np.broadcast_to(START[:, None], (3, N)).astype(np.int32)
    rows = np.broadcast_to(ROWS[:, None], (3, N)).astype(np.int32)
    z = assign_items(
        key, z, rows, jnp.full(alpha_shape, ALPHA), jnp.float32(G0), jnp.float32(THETA)
    )
    counts = np.bincount(np.array([9, 3, 1]) @ np.asarray(z), minlength=27)
    exact = scan_probabilities()
    assert chi_square_p_value(np.bincount(z[0], minlength=3), exact.sum(axis=(1, 2))) > P_LIMIT
    assert chi_square_p_value(counts, exact) > P_LIMIT
    # Shown to fail: the item's own label counted, and a concentration that is 10% off.
    assert chi_square_p_value(counts, scan_probabilities(own=True)) < P_LIMIT
    assert chi_square_p_value(counts, scan_probabilities(alpha=1.1 * ALPHA)) < P_LIMIT


def test_many_scans_reach_the_posterior(key):
    """Scans from one start end in p(z) prop. to the urn's probability times theta."""
    table = np.zeros((3, 3, 3))
    for labels in product(range(3), repeat=3):
        p = 1.0
        for j, k in enumerate(labels):
            p *= (labels[:j].count(k) + ALPHA * G0[k]) / (j + ALPHA) * THETA[ROWS[j], k]
        table[labels] = p
    z = jnp.zeros((3, N), jnp.int32)
    rows = np.broadcast_to(ROWS[:, None], (3, N)).astype(np.int32)
    for t in range(25):
        z = assign_items(
            jax.random.fold_in(key, t), z, rows, jnp.float32(ALPHA), jnp.float32(G0),
            jnp.float32(THETA),
        )  # fmt: skip
    counts = np.bincount(np.array([9, 3, 1]) @ np.asarray(z), minlength=27)
    assert chi_square_p_value(counts, table) > P_LIMIT


def test_records_keep_their_own_concentration_and_data(key):
    """Records of different alpha and levels side by side, the first item of each."""
    group = np.arange(N) % 2
    alpha = np.where(group, 5.0, 0.1).astype(np.float32)
    rows = np.where(group, ROWS[:, None] ^ 1, ROWS[:, None]).astype(np.int32)
    z = np.broadcast_to(START[:, None], (3, N)).astype(np.int32)
    z = assign_items(key, z, rows, alpha, jnp.float32(G0), jnp.float32(THETA))
    for g, a in enumerate((0.1, 5.0)):
        p = (np.array([0, 1, 1]) + a * G0) * THETA[ROWS[0] ^ g]
        assert chi_square_p_value(np.bincount(z[0, group == g], minlength=3), p) > P_LIMIT


@pytest.mark.parametrize(("granularity", "right"), [(1, True), (2**9, False)])
def test_rare_events_have_their_frequency(monkeypatch, key, granularity, right):
    """Of the 2**32 words, the lowest 1e-8 share takes the base part; a 23-bit uniform misses it."""
    words = jnp.arange(2000, dtype=jnp.uint32) // granularity * granularity
    u = jnp.broadcast_to(rng.uniform(words), (2, 2000))
    u_base = jnp.full((2, 2000), 0.9)
    monkeypatch.setattr(tables, "uniform_pair", lambda key, shape, dtype: (u, u_base))
    theta = jnp.full((2, 2), 0.5)
    rows = jnp.broadcast_to(jnp.arange(2)[:, None], (2, 2000))
    z = tables.assign_items(
        key, jnp.zeros((2, 2000), jnp.int32), rows, jnp.float32(1e-8), jnp.full(2, 0.5), theta
    )
    # The base draw takes the second component, the copy the first.
    base = np.sum(np.asarray(z[0]) == 1)
    assert (abs(base - 1e-8 * 2**32) <= 1) == right


def test_single_items_draw_from_the_base(key):
    z = assign_items(
        key, jnp.zeros((1, N), jnp.int32), jnp.ones((1, N), jnp.int32), jnp.float32(ALPHA),
        jnp.float32(G0), jnp.float32(THETA),
    )  # fmt: skip
    assert chi_square_p_value(np.bincount(z[0], minlength=3), G0 * THETA[1]) > P_LIMIT


def test_under_vmap_and_compiled_once(key):
    keys = jax.random.split(key)
    z = jnp.broadcast_to(START[:, None], (3, 50)).astype(jnp.int32)
    rows = jnp.broadcast_to(ROWS[:, None], (3, 50)).astype(jnp.int32)
    others = (z, rows, jnp.full(50, ALPHA), jnp.float32(G0), jnp.float32(THETA))
    batched = jax.jit(jax.vmap(lambda k: tables.assign_items(k, *others)))(keys)
    for i in range(2):
        np.testing.assert_array_equal(batched[i], assign_items(keys[i], *others))
    changed = (2 - z, rows ^ 1, 2 * others[2], others[3][::-1], others[4])
    assert compiles_once(tables.assign_items, (keys[0], *others), (keys[1], *changed))
