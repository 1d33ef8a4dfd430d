"""Cumulative sums, searches among them, and draws of rows, against exact probabilities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value, compiles_once

from bnp_models.kernels.variates import categorical, rng

N = 60_000

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


@pytest.mark.usefixtures("either_form")
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


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("size", [5, 16, 64, 257])
def test_draws_through_both(key, size):
    x = weights_with_zeros(size, rows=1)
    u = rng.uniform_pair(key, (N,))[0]
    index, _ = search_cumulative(cumulative_sum(x), jnp.zeros(N, jnp.int32), u)
    counts = np.bincount(index, minlength=size)
    assert chi_square_p_value(counts, x) > P_LIMIT
    # Shown to fail: one column off.
    assert chi_square_p_value(np.roll(counts, 1), x) < P_LIMIT


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


def test_places_beyond_int32_are_refused():
    def search(rows, columns):
        return jax.eval_shape(
            categorical.search_cumulative, jax.ShapeDtypeStruct((rows, columns), jnp.float32),
            jax.ShapeDtypeStruct((3,), jnp.int32), jax.ShapeDtypeStruct((3,), jnp.float32),
        )  # fmt: skip

    search(2**25 - 1, 64)
    with pytest.raises(ValueError, match="overflow int32"):
        search(2**25, 64)
