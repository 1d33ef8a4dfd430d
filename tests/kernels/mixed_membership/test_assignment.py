"""Cumulative sums, searches, and the collapsed assignment of items against enumeration."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value, compiles_once

from bnp_models.kernels.mixed_membership import assignment
from bnp_models.kernels.variates import categorical, rng

N = 60_000
ALPHA, G0 = 0.6, np.array([0.5, 0.3, 0.2])
# Two levels for each of three items: rows 0-1, 2-3, 4-5.
THETA = np.array([[0.9, 0.4, 0.1], [0.1, 0.6, 0.9], [0.3, 0.5, 0.8], [0.7, 0.5, 0.2],
                  [0.05, 0.6, 0.5], [0.95, 0.4, 0.5]])  # fmt: skip
ROWS, START = np.array([0, 3, 4]), np.array([0, 2, 1])

assign_items = jax.jit(assignment.assign_items)
cumulative_sum = jax.jit(categorical.cumulative_sum)
search_cumulative = jax.jit(categorical.search_cumulative)


def weights_with_zeros(size, rows=50):
    random = np.random.default_rng(size)
    x = random.gamma(0.2, size=(rows, size)) * (random.random((rows, size)) < 0.6)
    x[:, random.integers(size)] += 1e-3
    return x.astype(np.float32)


@pytest.mark.parametrize("size", [1, 5, 16, 64, 100, 257])
def test_cumulative_sum(size):
    x = weights_with_zeros(size)
    exact = np.cumsum(x, axis=1, dtype=float)
    cumulative = np.asarray(cumulative_sum(x))
    error = np.abs(cumulative - exact) / exact[:, -1:]
    assert error.max() < 1e-6
    # The sum of each block is rounded on its own: a column is too wide by an ulp or two at most.
    error = np.abs(np.diff(cumulative, axis=1) - x[:, 1:]) / exact[:, -1:]
    assert np.all(error < 2.0**-21)
    lanes = jax.vmap(categorical.cumulative_sum)(x[:4])
    np.testing.assert_allclose(lanes, exact[:4], atol=1e-6 * exact.max())


@pytest.mark.parametrize("size", [1, 5, 16, 64, 100, 257])
def test_search_equals_numpys(size):
    """Draws at, next to and between all edges of a monotone table, empty columns included."""
    x = weights_with_zeros(size)
    cumulative = np.cumsum(x, axis=1)
    total = cumulative[:, -1:]
    edges = np.clip(cumulative / total, 2.0**-33, 1 - 2.0**-24)
    grid = np.broadcast_to((np.arange(200) + 0.5) / 200, (len(x), 200))
    u = np.concatenate([edges, np.nextafter(edges, 0), grid], axis=1).astype(np.float32)
    u = np.clip(u, 2.0**-33, 1 - 2.0**-24).astype(np.float32)
    rows = np.broadcast_to(np.arange(len(x))[:, None], u.shape)
    index, drawn_total = search_cumulative(cumulative, rows, u)
    edges = zip(cumulative, u * total, strict=True)
    exact = [np.searchsorted(row, target, side="right") for row, target in edges]
    np.testing.assert_array_equal(index, exact)
    np.testing.assert_array_equal(drawn_total, np.broadcast_to(total, u.shape))
    assert np.take_along_axis(x, np.asarray(index), axis=1).min() > 0


@pytest.mark.parametrize("size", [5, 16, 64, 257])
def test_draws_through_both(key, size):
    x = weights_with_zeros(size, rows=1)
    u = rng.uniform_pair(key, (N,))[0]
    index, _ = search_cumulative(cumulative_sum(x), jnp.zeros(N, jnp.int32), u)
    counts = np.bincount(index, minlength=size)
    assert chi_square_p_value(counts, x) > P_LIMIT
    # Shown to fail: one column off.
    assert chi_square_p_value(np.roll(counts, 1), x) < P_LIMIT


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
    monkeypatch.setattr(assignment, "uniform_pair", lambda key, shape, dtype: (u, u_base))
    theta = jnp.full((2, 2), 0.5)
    rows = jnp.broadcast_to(jnp.arange(2)[:, None], (2, 2000))
    z = assignment.assign_items(
        key, jnp.zeros((2, 2000), jnp.int32), rows, jnp.float32(1e-8), jnp.full(2, 0.5), theta
    )
    # The base draw takes the second component, the copy the first.
    base = np.sum(np.asarray(z[0]) == 1)
    assert (abs(base - 1e-8 * 2**32) <= 1) == right


def test_rare_components_have_their_frequency():
    """A component that comes first in the table and has 1e-8 of its mass."""
    words = jnp.arange(2000, dtype=jnp.uint32)
    for size in (3, 40, 200):
        x = np.zeros((1, size), np.float32)
        x[0, 0], x[0, -1] = 1e-8, 1
        index, _ = search_cumulative(
            cumulative_sum(x), jnp.zeros(2000, jnp.int32), rng.uniform(words)
        )
        assert abs(np.sum(np.asarray(index) == 0) - 1e-8 * 2**32) <= 1
        assert np.isin(index, [0, size - 1]).all()


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
    batched = jax.jit(jax.vmap(lambda k: assignment.assign_items(k, *others)))(keys)
    for i in range(2):
        np.testing.assert_array_equal(batched[i], assign_items(keys[i], *others))
    changed = (2 - z, rows ^ 1, 2 * others[2], others[3][::-1], others[4])
    assert compiles_once(assignment.assign_items, (keys[0], *others), (keys[1], *changed))


class TestDrawRows:
    def weights(self, num_rows=37, num_columns=50_000):
        rng = np.random.default_rng(0)
        weight = rng.gamma(0.3, size=num_rows)
        weight[[0, 5, 20, num_rows - 1]] = 0
        with np.errstate(divide="ignore"):
            log_weight = np.log(weight) - 200
        return weight / weight.sum(), jnp.tile(jnp.asarray(log_weight)[:, None], (1, num_columns))

    def test_frequencies_and_totals(self):
        probability, log_weight = self.weights()
        row, log_total = categorical.draw_rows(jax.random.key(1), log_weight)
        counts = np.bincount(row, minlength=len(probability))
        # Rows of no weight, the last one among them, are never drawn: the p-value would be zero.
        assert chi_square_p_value(counts, probability) > P_LIMIT
        np.testing.assert_allclose(log_total, jax.nn.logsumexp(log_weight, axis=0), rtol=1e-6)

    def test_a_shifted_draw_is_seen(self):
        probability, log_weight = self.weights()
        row, _ = categorical.draw_rows(jax.random.key(1), log_weight)
        counts = np.bincount((np.asarray(row) + 1) % 37, minlength=37)
        assert chi_square_p_value(counts, probability) < P_LIMIT

    def test_columns_of_one_possible_row(self):
        log_weight = jnp.where(jnp.eye(50, dtype=bool), -3e3, -jnp.inf)
        row, log_total = categorical.draw_rows(jax.random.key(2), log_weight)
        np.testing.assert_array_equal(row, np.arange(50))
        np.testing.assert_allclose(log_total, -3e3)

    def test_vmap_and_one_compilation(self):
        _, log_weight = self.weights(num_columns=10)
        keys = jax.random.split(jax.random.key(3), 4)
        alone = [categorical.draw_rows(key, log_weight)[0] for key in keys]
        together, _ = jax.vmap(categorical.draw_rows, (0, None))(keys, log_weight)
        np.testing.assert_array_equal(together, np.stack(alone))
        assert compiles_once(
            categorical.draw_rows, (keys[0], log_weight), (keys[1], log_weight - 1)
        )
