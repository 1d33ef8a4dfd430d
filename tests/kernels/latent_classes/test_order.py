"""Exchanges of classes between positions, against all orders."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value, compiles_once
from truncated_classes import log_density_of_sticks

from bnp_models.kernels.latent_classes import order as latent_classes_order
from bnp_models.kernels.numerics.platforms import double_precision

N = 20_000
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


def test_swaps_of_a_million_records_are_those_of_double_precision(key):
    """An exchange that changes the mass by a few units of float32's last place is weighed right."""
    keys = jax.random.split(key, 4000)
    log_pi, log_mass = np.log(np.float32([[0.6, 0.4], [0.5, 0.5 + 2e-6]]))
    counts = jnp.array([500_000, 500_000])
    swap = jax.jit(
        jax.vmap(latent_classes_order.swap_classes, (0, None, None, None, None)), static_argnums=4
    )
    single = swap(keys, log_pi, log_mass, counts, 1)
    with double_precision():
        double = swap(keys, log_pi.astype(float), log_mass.astype(float), counts, 1)
    assert 0.2 < (np.asarray(double)[:, 0] == 1).mean() < 0.6
    np.testing.assert_array_equal(single, double)


def test_second_calls_compile_nothing(key):
    one, two = jax.random.split(key)
    log_mass = jnp.log(jnp.array([0.9, 0.05, 0.4]))

    def both(key, log_mass, counts, alpha):
        order = latent_classes_order.reorder_classes(key, log_mass, alpha)
        return latent_classes_order.swap_classes(key, log_mass, log_mass[order], counts)

    assert compiles_once(
        both, (one, log_mass, jnp.arange(3), jnp.float32(1)),
        (two, log_mass - 1, 3 * jnp.arange(3), jnp.float32(2)),
    )  # fmt: skip
