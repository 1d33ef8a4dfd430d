"""Counters against numpy, and a sum that no order of its terms changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import compiles_once

from bnp_models.kernels.numerics import counting
from bnp_models.kernels.numerics.platforms import double_precision

J, N, ROWS, SLOTS = 4, 300, 9, 6


def items(seed):
    rng = np.random.default_rng(seed)
    rows, z = rng.integers(0, ROWS, (J, N)), rng.integers(0, SLOTS, (J, N))
    return rows.astype(np.int32), z.astype(np.int32), rng.integers(0, 4, N).astype(np.int32)


def test_rows_of_variables():
    np.testing.assert_array_equal(counting.first_rows((2, 3, 1)), [0, 2, 5])
    np.testing.assert_array_equal(counting.variable_of_rows((2, 3, 1)), [0, 0, 1, 1, 1, 2])


@pytest.mark.usefixtures("either_form")
def test_count_rows_by_component(seed):
    rows, z, weight = items(seed)
    counts = counting.count_rows_by_component(rows, z, weight, (ROWS, SLOTS))
    weights = np.broadcast_to(weight, (J, N)).ravel()
    exact = np.bincount((rows * SLOTS + z).ravel(), weights, ROWS * SLOTS)
    np.testing.assert_array_equal(counts, exact.reshape(ROWS, SLOTS))
    assert counts.dtype == jnp.int32 and counts.sum() == J * weight.sum()
    # Shown to fail: padding that counts.
    assert counts.sum() != counting.count_rows_by_component(
        rows, z, np.maximum(weight, 1), (ROWS, SLOTS)
    ).sum()  # fmt: skip


@pytest.mark.usefixtures("either_form")
def test_count_components(seed):
    rows, z, weight = items(seed)
    weights = np.broadcast_to(weight, (J, N))
    counts = counting.count_components(z, weights, SLOTS)
    np.testing.assert_array_equal(counts, np.bincount(z.ravel(), weights.ravel(), SLOTS))
    indicators = counting.count_components(z, weights > 1, SLOTS)
    np.testing.assert_array_equal(indicators, np.bincount(z[weights > 1], minlength=SLOTS))


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_sums_by_group(seed, dtype, monkeypatch):
    """Groups of none have zero, and groups beyond the number are left out."""
    rng = np.random.default_rng(seed)
    x, group = rng.integers(0, 99, (40, 3)).astype(dtype), rng.integers(0, 6, 40)
    group[group == 2] = 7
    exact = np.stack([x[group == g].sum(axis=0) for g in range(6)])
    for terms in (counting._TERMS, 10):
        monkeypatch.setattr(counting, "_TERMS", terms)
        for column in (np.s_[:], np.s_[:, 0]):
            sums = counting.sum_by_group(jnp.asarray(x[column]), jnp.asarray(group), 6)
            assert sums.dtype == dtype
            np.testing.assert_array_equal(sums, exact[column])


def test_types_of_labels():
    """Each holds the last label, and the next smaller type would not."""
    for number, expected in ((256, np.uint8), (257, np.uint16), (65537, np.int32)):
        assert counting.label_type(number) == expected
        assert number - 1 <= np.iinfo(expected).max
    # Shown to matter: counters of labels of one byte go beyond it.
    z = jnp.full((1, 4), 255, jnp.uint8)
    assert counting.count_components(z, jnp.ones((1, 4), jnp.int32), 256)[255] == 4


def test_counts_are_exact_where_floats_are_not():
    """Above 2**24 a float32 counter stands still."""
    z = np.zeros((1, 3), np.int32)
    counts = counting.count_rows_by_component(z, z, np.array([2**24, 1, 1], np.int32), (1, 2))
    assert counts[0, 0] == 2**24 + 2


def test_counters_under_jit_and_vmap(seed):
    rows, z, weight = (np.stack(x) for x in zip(*map(items, (seed, seed + 1)), strict=True))
    batched = jax.vmap(
        lambda *args: counting.count_rows_by_component(*args, shape=(ROWS, SLOTS))
    )(rows, z, weight)  # fmt: skip
    for i in range(2):
        alone = counting.count_rows_by_component(rows[i], z[i], weight[i], (ROWS, SLOTS))
        np.testing.assert_array_equal(batched[i], alone)
    assert compiles_once(
        counting.count_rows_by_component, items(seed), items(seed + 1), shape=(ROWS, SLOTS)
    )


def test_overflow_raises():
    z = jnp.zeros((1, 1), jnp.int32)
    with pytest.raises(ValueError, match="overflow int32"):
        counting.count_rows_by_component(z, z, jnp.ones(1, jnp.int32), (2**16, 2**15))
    many = jax.ShapeDtypeStruct((2**16, 2**15), jnp.int32)
    with pytest.raises(ValueError, match="overflow int32"):
        jax.eval_shape(
            lambda z, w: counting.count_rows_by_component(z, z, w, (2, 2)), many,
            jax.ShapeDtypeStruct((2**15,), jnp.int32),
        )  # fmt: skip
    with pytest.raises(ValueError, match="at most 134217728"):
        jax.eval_shape(
            counting.order_free_sum, jax.ShapeDtypeStruct((2**27 + 1,), jnp.float32)
        )  # fmt: skip


def test_order_free_sum(seed):
    rng = np.random.default_rng(seed)
    summed, plain = jax.jit(counting.order_free_sum), jax.jit(jnp.sum)
    differs = False
    for scale in (1e-20, 1.0, 1e20):
        x = (scale * rng.gamma(0.5, size=20_000)).astype(np.float32)
        orders = [rng.permutation(x) for _ in range(5)]
        assert len({float(summed(order)) for order in orders}) == 1
        differs |= len({float(plain(order)) for order in orders}) > 1
        np.testing.assert_allclose(summed(x), x.sum(dtype=float), rtol=1e-6)
    # Shown to fail: an ordinary sum.
    assert differs


SIZES = [1, 2, 2**15, 2**15 + 1, 2**20 + 1, 2**24 + 1]


@pytest.mark.parametrize("size", SIZES)
def test_order_free_sum_of_many_equal_terms(size):
    """The largest partial sums that int32 must hold."""
    x = jnp.full(size, 1 - 2**-24, jnp.float32)
    np.testing.assert_allclose(counting.order_free_sum(x), size, rtol=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_order_free_sum_in_double_precision(x64, size):
    """The largest that int64 must hold, and terms that float32 does not see."""
    x = jnp.full(size, 1 - 2**-53)
    assert x.dtype == jnp.float64
    np.testing.assert_allclose(counting.order_free_sum(x), size, rtol=1e-15)
    small = x.at[0].set(1e-15).at[1:].set(0)
    assert counting.order_free_sum(small) == 1e-15
    if size > 1:
        assert counting.order_free_sum(small.at[1].set(1.0)) == 1 + 1e-15


def test_order_free_sum_of_single_precision_in_double(seed):
    x = np.random.default_rng(seed).random(2**20 + 1).astype(np.float32)
    single = counting.order_free_sum(jnp.asarray(x))
    with double_precision():
        total = counting.order_free_sum(jnp.asarray(x), dtype=jnp.float64)
    assert total.dtype == jnp.float64
    np.testing.assert_allclose(total, x.sum(dtype=float), rtol=1e-11)
    # Shown to fail: the sum in single precision.
    assert abs(float(single) / x.sum(dtype=float) - 1) > 1e-11


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_order_free_sum_along_an_axis(seed, axis):
    """Rows of very different size are each rounded to their own largest term."""
    rng = np.random.default_rng(seed)
    x = rng.gamma(0.5, size=(40, 50)) * np.logspace(-15, 15, 40)[:, None]
    x = x.astype(np.float32)
    summed = counting.order_free_sum(jnp.asarray(x), axis=axis)
    order = rng.permutation(x.shape[axis])
    np.testing.assert_array_equal(
        summed, counting.order_free_sum(jnp.take(jnp.asarray(x), order, axis), axis=axis)
    )
    np.testing.assert_allclose(summed, x.sum(axis, dtype=float), rtol=1e-6)


def test_order_free_sum_of_nothing():
    assert counting.order_free_sum(jnp.zeros(5)) == 0
    assert counting.order_free_sum(jnp.array([3.0])) == 3
    np.testing.assert_array_equal(
        counting.order_free_sum(jnp.array([[0.0, 0.0], [2.0, 1.0]]), axis=1), [0, 3]
    )


def test_more_terms_than_can_be_summed_raise():
    jax.eval_shape(counting.order_free_sum, jax.ShapeDtypeStruct((2**27,), jnp.float32))
    with pytest.raises(ValueError, match="134217729 terms; at most"):
        jax.eval_shape(counting.order_free_sum, jax.ShapeDtypeStruct((2**27 + 1,), jnp.float32))
