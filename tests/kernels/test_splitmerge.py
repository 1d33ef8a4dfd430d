"""The split-merge move against the enumerated posterior of a tiny partition."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import Z_LIMIT, set_partitions, z_scores
from scipy.special import gammaln

from bnp_models.kernels import splitmerge

NUM_LEVELS = (2, 3)
CODES = np.array([[0, 0], [0, 0], [1, 2], [0, 2]])
ALPHA0 = 1.3


def exact_pairs():
    """P(records a and b share a component) for all pairs, and E K, every record at one table."""
    weights, figures = [], []
    for blocks in set_partitions(list(range(len(CODES)))):
        log_w = len(blocks) * np.log(ALPHA0)
        for block in blocks:
            log_w += gammaln(len(block))
            for j, num_levels in enumerate(NUM_LEVELS):
                counts = np.bincount(CODES[block, j], minlength=num_levels)
                log_w += gammaln(num_levels) - gammaln(num_levels + counts.sum())
                log_w += gammaln(1 + counts).sum()
        label = {i: b for b, block in enumerate(blocks) for i in block}
        pairs = itertools.combinations(range(len(CODES)), 2)
        weights.append(np.exp(log_w))
        figures.append([len(blocks), *(label[a] == label[b] for a, b in pairs)])
    return np.average(np.array(figures, float), axis=0, weights=weights)


def chain_means(num_chains=512, num_moves=1500):
    first_row = np.array([0, 2])
    rows = jnp.asarray(CODES.T + first_row[:, None])
    num_items, num_records = rows.shape
    table = jnp.zeros_like(rows)
    pairs = np.array(list(itertools.combinations(range(num_records), 2)))

    def one(key):
        def move(t, carry):
            z, sums = carry
            z, _ = splitmerge.split_or_merge(
                jax.random.fold_in(key, t), z, table, rows, jnp.ones(num_records, jnp.int32),
                jnp.array([0, 0, 1, 1, 1]), jnp.int32(num_records), jnp.float32(ALPHA0), 6,
            )  # fmt: skip
            k = jnp.sum(jnp.zeros(6).at[z[0]].set(1))
            same = (z[0][pairs[:, 0]] == z[0][pairs[:, 1]]).astype(float)
            return z, sums + jnp.concatenate([k[None], same]) * (t >= 20)

        z = jnp.zeros((num_items, num_records), jnp.int32)
        sums = jnp.zeros(1 + len(pairs))
        return jax.lax.fori_loop(0, num_moves, move, (z, sums))[1] / (num_moves - 20)

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(5), num_chains)))


def test_leaves_the_posterior_of_the_partition_invariant():
    z = z_scores(chain_means(), exact_pairs())
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_rejects_a_wrong_ratio(monkeypatch, factor):
    right = splitmerge._log_split_ratio
    monkeypatch.setattr(splitmerge, "_log_split_ratio", lambda *args: right(*args) + np.log(factor))
    z = z_scores(chain_means(), exact_pairs())
    assert np.abs(z).max() > Z_LIMIT, z


def test_log_binomial_and_ratio_keep_their_digits():
    rng = np.random.default_rng(0)
    a = np.concatenate([np.arange(40), rng.integers(0, 10**6, 400), [10**6, 0, 3]])
    b = np.concatenate([np.arange(40)[::-1], rng.integers(0, 10**6, 400), [0, 10**6, 10**6]])
    exact = gammaln(a + b + 1.0) - gammaln(a + 1.0) - gammaln(b + 1.0)
    close = splitmerge.log_binomial(jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32))
    np.testing.assert_allclose(close, exact, rtol=3e-6, atol=2e-4)
    d = rng.integers(0, 50, a.size)
    exact = gammaln(a + 1.0 + d) - gammaln(a + 1.0)
    close = splitmerge.log_gamma_ratio(jnp.asarray(a + 1, jnp.float32), jnp.asarray(d, jnp.float32))
    np.testing.assert_allclose(close, exact, rtol=3e-6, atol=2e-3)
