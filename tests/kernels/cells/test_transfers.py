"""Transfers between cells against the exact distribution of all counts with the same total."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value, compiles_once
from scipy.special import gammaln

from bnp_models.kernels.cells.transfers import transfer_units

N = 20_000
TOTAL = 7
LEAST = np.array([1, 0, 2])
SHAPE = np.array([0.3, 2.0, 1.0])
STATES = np.array([
    state for state in itertools.product(range(TOTAL + 1), repeat=3)
    if sum(state) == TOTAL and (np.array(state) >= LEAST).all()
])  # fmt: skip


def log_weight(cells, counts, shape):
    """Negative binomial weights of counts of at least so many; -inf of fewer."""
    unseen = counts - jnp.asarray(LEAST)[cells]
    a = jnp.asarray(shape, jnp.float32)[cells]
    log_w = jax.scipy.special.gammaln(a + jnp.maximum(unseen, 0)) - jax.scipy.special.gammaln(
        jnp.maximum(unseen, 0) + 1.0
    )
    return jnp.where(unseen >= 0, log_w, -jnp.inf)


def transfer(key, counts, shape=SHAPE):
    def log_ratio(cells, counts, change):
        new = log_weight(cells, counts + change, shape)
        return new - log_weight(cells, counts, shape)

    return transfer_units(key, counts, log_ratio, num_scales=3)


def exact_probability():
    unseen = STATES - LEAST
    log_w = (gammaln(SHAPE + unseen) - gammaln(unseen + 1)).sum(axis=1)
    return np.exp(log_w) / np.exp(log_w).sum()


def frequencies(counts):
    return (np.asarray(counts)[:, None] == STATES).all(axis=2).sum(axis=0)


@pytest.mark.parametrize("wrong", [False, True])
def test_one_round_leaves_the_target_invariant(key, seed, wrong):
    """From the exact distribution; a target with other shapes is seen."""
    probability = exact_probability()
    start = STATES[np.random.default_rng(seed).choice(len(STATES), N, p=probability)]
    shape = np.array([1.0, 2.0, 1.0]) if wrong else SHAPE
    move = jax.jit(jax.vmap(lambda key, counts: transfer(key, counts, shape)))
    counts, accepted = move(jax.random.split(key, N), jnp.asarray(start))
    np.testing.assert_array_equal(np.sum(counts, axis=1), TOTAL)
    moved = (np.asarray(counts) != start).any(axis=1)
    np.testing.assert_array_equal(np.asarray(accepted) > 0, moved)
    assert 0.1 < moved.mean() < 0.9
    p = chi_square_p_value(frequencies(counts), probability)
    assert p < P_LIMIT if wrong else p > P_LIMIT


def test_many_rounds_reach_the_target(key):
    """From one state; a pair of cells at a time, the odd one out in turn."""

    def chain(key):
        def one_round(t, counts):
            return transfer(jax.random.fold_in(key, t), counts)[0]

        return jax.lax.fori_loop(0, 60, one_round, jnp.asarray(STATES[0]))

    counts = jax.jit(jax.vmap(chain))(jax.random.split(key, N))
    assert chi_square_p_value(frequencies(counts), exact_probability()) > P_LIMIT


def test_second_calls_compile_nothing(key):
    one, two = jax.random.split(key)
    assert compiles_once(transfer, (one, jnp.asarray(STATES[0])), (two, jnp.asarray(STATES[3])))
