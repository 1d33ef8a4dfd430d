"""Sums over set partitions against their enumeration, and the urn's weights of blocks."""

from math import factorial, prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import set_partitions

from bnp_models.kernels.numerics import set_partitions as kernels
from bnp_models.kernels.numerics.set_partitions import MATMUL_CELLS

log_block_weights = jax.jit(kernels.log_block_weights, static_argnums=1)
log_block_weights_gamma = jax.jit(kernels.log_block_weights_gamma, static_argnums=2)


def make_columns(seed, num_variables, num_slots=3):
    """Columns of cells, and weights of slots."""
    rng = np.random.default_rng(seed)
    columns = rng.gamma(0.5, 1.0, (2 * MATMUL_CELLS, num_variables, num_slots))
    return jnp.asarray(columns), jnp.asarray(rng.dirichlet(np.ones(num_slots)))


def sums_by_blocks(columns, g0):
    """Sum over partitions into B = 1..J blocks of prod (|b| - 1)! S_b, cell by cell."""
    columns, g0 = np.asarray(columns), np.asarray(g0)
    num_cells, num_variables, _ = columns.shape
    totals = np.zeros((num_variables, num_cells))
    for partition in set_partitions(list(range(num_variables))):
        totals[len(partition) - 1] += prod(
            factorial(len(block) - 1) * columns[:, block].prod(axis=1) @ g0 for block in partition
        )
    return totals


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("num_variables", [1, 2, 5])
def test_partition_sums_are_those_of_the_enumerated_partitions(x64, seed, num_variables):
    columns, g0 = make_columns(seed, num_variables)
    exact = sums_by_blocks(columns, g0)
    by_blocks = kernels.log_partition_sums_by_blocks(columns, g0)
    np.testing.assert_allclose(np.exp(by_blocks), exact, rtol=1e-12)
    for alpha in (0.3, 40.0):
        rising = prod(alpha + j for j in range(num_variables))
        weights = alpha ** np.arange(1, num_variables + 1) / rising
        np.testing.assert_allclose(
            np.exp(log_block_weights(alpha, num_variables)), weights, rtol=1e-12
        )
        log_sums = kernels.log_partition_sums(columns, g0, jnp.asarray(alpha))
        np.testing.assert_allclose(np.exp(log_sums), weights @ exact, rtol=1e-12)


@pytest.mark.usefixtures("either_form")
def test_wrong_orders_of_a_block_are_seen(x64, seed, monkeypatch):
    """Blocks of s items with s! seatings in the place of (s - 1)!."""

    def wrong(num_variables):
        size, _ = right(num_variables)
        return size, np.array([float(factorial(s)) for s in size.tolist()])

    right = kernels.sizes_and_orders
    columns, g0 = make_columns(seed, 4)
    exact = sums_by_blocks(columns, g0)
    monkeypatch.setattr(kernels, "sizes_and_orders", wrong)
    by_blocks = np.exp(kernels.log_partition_sums_by_blocks(columns, g0))
    # Four blocks are of one item each.
    np.testing.assert_allclose(by_blocks[3], exact[3], rtol=1e-12)
    assert (by_blocks[:3] > 1.5 * exact[:3]).all()


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("num_variables", [1, 3, 4])
def test_subset_sums(x64, seed, num_variables):
    columns, g0 = make_columns(seed, num_variables)
    sums = kernels.subset_sums(columns, g0)
    for mask in range(2**num_variables):
        members = [j for j in range(num_variables) if mask >> j & 1]
        exact = np.asarray(columns)[:, members].prod(axis=1) @ np.asarray(g0)
        np.testing.assert_allclose(sums[mask], exact, rtol=1e-13)


def test_sizes_and_orders():
    size, orders = kernels.sizes_and_orders(5)
    np.testing.assert_array_equal(size, [bin(mask).count("1") for mask in range(32)])
    np.testing.assert_array_equal(orders[[0, 1, 3, 7, 15, 31]], [1, 1, 1, 2, 6, 24])


def test_scaled_columns_stay_in_range(seed):
    """A component of tiny weight fits best by far, and another not at all."""
    columns, _ = make_columns(seed, 3)
    g0 = jnp.asarray([1e-30, 1 - 1e-7, 1e-7], jnp.float32)
    columns = columns.astype(jnp.float32).at[:, :, 0].set(1.0).at[:, :, 1:].multiply(1e-9)
    scaled, log_scale = kernels.scale_columns(columns, g0, 3)
    assert float(jnp.max(scaled * g0 ** (1 / 3))) <= 1 + 1e-6
    np.testing.assert_allclose(
        jnp.log(scaled) + log_scale[..., None], jnp.log(columns), rtol=1e-5, atol=1e-5
    )
    none, log_of_none = kernels.scale_columns(jnp.zeros((2, 3, 3)), g0, 3)
    assert (none == 0).all() and (log_of_none == -jnp.inf).all()


@pytest.mark.parametrize("num_rows", [0, 1, 8, 9, 1000, 1025])
def test_chunks_hold_all_rows(num_rows):
    num_chunks, size = kernels.equal_chunks(num_rows, 256)
    assert size % MATMUL_CELLS == 0
    assert num_rows <= num_chunks * size < num_rows + num_chunks * MATMUL_CELLS + MATMUL_CELLS
    assert size <= 256


@pytest.mark.parametrize("b", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("a", [0.05, 1.0, 100.0])
def test_gamma_block_weights(x64, a, b):
    x = np.linspace(-800.0, 14.0, 100_001)
    log_density = a * (x + np.log(b)) - b * np.exp(x)
    rising = np.logaddexp(x, np.log(np.arange(1, 10))[:, None]).sum(0)
    centre = np.log(np.exp(log_density - log_density.max()).sum()) + log_density.max()
    values = np.arange(1, 11)[:, None] * x - x - rising + log_density - centre
    top = values.max(1)
    exact = np.log(np.exp(values - top[:, None]).sum(1)) + top
    log_weights = log_block_weights_gamma(a, b, 10)
    np.testing.assert_allclose(np.expm1(log_weights - exact), 0, atol=1e-10)
    single = log_block_weights_gamma(np.float32(a), np.float32(b), 10)
    assert single.dtype == np.float32
    np.testing.assert_allclose(np.expm1(single - exact), 0, atol=1e-5)
