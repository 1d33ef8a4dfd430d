"""Keys that run out, random words, uniforms and normals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value, compiles_once, ks_p_value
from harness import Z_LIMIT
from jax.extend.random import threefry_2x32
from scipy import stats

from bnp_models.kernels.variates import rng

N = 2**16


def test_keys_are_those_of_split(key):
    split = jax.random.key_data(jax.random.split(key, 5))
    keys = rng.Keys(key, 5)
    popped = jnp.stack([jax.random.key_data(keys.pop()) for _ in range(5)])
    np.testing.assert_array_equal(popped, split)
    first, second, *others = rng.Keys(key, 5)
    unpacked = jnp.stack([jax.random.key_data(k) for k in (first, second, *others)])
    np.testing.assert_array_equal(unpacked, split)
    np.testing.assert_array_equal(jax.random.key_data(rng.key_array(key, 5)), split)
    batched = jax.vmap(jax.random.key_data)(rng.key_array(key, 5))
    np.testing.assert_array_equal(batched, split)


def test_keys_run_out(key):
    keys = rng.Keys(key, 2)
    keys.pop(), keys.pop()
    with pytest.raises(IndexError, match="all 2 keys have been handed out"):
        keys.pop()
    # What the class is there for: an index into an array of keys is clamped.
    split = jax.random.key_data(jax.jit(lambda key: jax.random.split(key, 2)[2])(key))
    np.testing.assert_array_equal(split, jax.random.key_data(jax.random.split(key, 2)[1]))


def test_too_few_or_too_many_keys_to_unpack(key):
    with pytest.raises(ValueError, match="not enough values"):
        _, _, _ = rng.Keys(key, 2)
    with pytest.raises(ValueError, match="too many values"):
        _, _ = rng.Keys(key, 3)
    keys = rng.Keys(key, 3)
    keys.pop()
    assert len(list(keys)) == 2 and not list(keys)


def test_keys_run_out_while_tracing(key):
    def one_too_many(key):
        keys = rng.Keys(key)
        return [jax.random.bits(keys.pop()) for _ in range(3)]

    with pytest.raises(IndexError, match="split off more"):
        jax.eval_shape(one_too_many, key)


def test_words_are_threefry_blocks_of_the_position(key):
    """Against jax's own threefry of explicit counters."""
    first, second = rng.word_pair(key, (3, 5), stream=7)
    seed = jax.random.key_data(key)
    # threefry_2x32 takes the first words of all blocks, then the second ones.
    counters = jnp.concatenate([jnp.full(15, 7, jnp.uint32), jnp.arange(15, dtype=jnp.uint32)])
    blocks = threefry_2x32(tuple(seed), counters)
    np.testing.assert_array_equal(jnp.concatenate([first.ravel(), second.ravel()]), blocks)


def test_words_depend_on_the_position_alone(key):
    """The first rows of a taller array are the shorter array, as a sharded computation needs."""
    tall, short = rng.word_pair(key, (8, 33)), rng.word_pair(key, (3, 33))
    for a, b in zip(tall, short, strict=True):
        np.testing.assert_array_equal(a[:3], b)
    flat = rng.word_pair(key, (8 * 33,))
    np.testing.assert_array_equal(flat[0].reshape(8, 33), tall[0])


def test_words_under_jit_and_vmap(key):
    keys = jax.random.split(key, 4)
    batched = jax.jit(jax.vmap(lambda k: rng.word_pair(k, (17,))))(keys)
    for i in range(4):
        alone = rng.word_pair(keys[i], (17,))
        np.testing.assert_array_equal(batched[0][i], alone[0])
        np.testing.assert_array_equal(batched[1][i], alone[1])
    assert compiles_once(rng.uniform_pair, (keys[0],), (keys[1],), shape=(17,))


def test_streams_keys_and_words_are_unrelated(key):
    other = jax.random.fold_in(key, 1)
    draws = np.stack([
        *rng.word_pair(key, (N,)), *rng.word_pair(key, (N,), 1),
        *rng.word_pair(key, (N,), 2**32 - 1), *rng.word_pair(other, (N,)),
    ]).astype(float)  # fmt: skip
    correlation = np.corrcoef(draws)[np.triu_indices(8, 1)]
    assert np.abs(correlation).max() * np.sqrt(N) < Z_LIMIT
    # Shown to fail: the same stream twice.
    assert np.corrcoef(draws[0], np.asarray(rng.word_pair(key, (N,), 0)[0], float))[0, 1] > 0.999


@pytest.mark.parametrize("shape", [(), (7,), (1, 9), (4, 9), (5, 3, 2)])
def test_single_words_are_the_pairs_end_to_end(key, shape):
    """No word is used twice, and columns do not depend on how the last axis is sharded."""
    words = rng.words(key, shape)
    assert words.shape == shape
    assert np.unique(words).size == words.size
    if len(shape) > 1 and shape[0] > 1:
        half = (shape[0] + 1) // 2
        pair = rng.word_pair(key, (half, *shape[1:]))
        np.testing.assert_array_equal(words, np.concatenate(pair)[: shape[0]])


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_every_key_implementation(impl):
    words = [rng.word_pair(jax.random.key(s, impl=impl), (N,))[0] for s in (11, 12)]
    assert np.mean(words[0] == words[1]) < 1e-3
    for word in words:
        assert ks_p_value(rng.uniform(word), stats.uniform.cdf) > P_LIMIT


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_uniform_is_open_and_fine_near_zero(x64, dtype):
    words = jnp.array([0, 1, 2, 2**31, 2**32 - 129, 2**32 - 2, 2**32 - 1], jnp.uint32)
    u = rng.uniform(words, dtype)
    assert u.dtype == dtype
    np.testing.assert_array_equal(u[:3], np.array([0.5, 1.5, 2.5]) * 2.0**-32)
    assert 0 < u.min() and u.max() < 1
    assert np.isfinite(np.log1p(-np.asarray(u))).all()
    assert np.abs(u - (np.asarray(words, float) + 0.5) / 2**32).max() <= 2.0**-24


def test_uniform_and_its_bits(key):
    first, second = rng.uniform_pair(key, (N,))
    for u in (first, second):
        assert ks_p_value(u, stats.uniform.cdf) > P_LIMIT
        assert ks_p_value(u**1.05, stats.uniform.cdf) < P_LIMIT
    cells = np.floor(8 * np.stack([first, second])).astype(int)
    counts = np.bincount(cells[0] * 8 + cells[1], minlength=64)
    assert chi_square_p_value(counts, np.ones(64)) > P_LIMIT
    ones = np.unpackbits(np.asarray(rng.word_pair(key, (N,))[0])[:, None].view(np.uint8), axis=1)
    assert np.abs(ones.mean(axis=0) - 0.5).max() * 2 * np.sqrt(N) < Z_LIMIT


def test_uniform_index():
    u = jnp.asarray([1e-9, 0.2499, 0.2501, 0.7499, 1 - 2.0**-24])
    np.testing.assert_array_equal(rng.uniform_index(u, 4), [0, 0, 1, 2, 3])
    # The largest index stays below n where u n rounds up to n.
    sizes = jnp.asarray([1, 3, 10**6, 2**24, 0])
    np.testing.assert_array_equal(rng.uniform_index(u[-1:], sizes)[:3], [0, 2, 10**6 - 1])
    np.testing.assert_array_equal(rng.uniform_index(u[-1:], sizes)[3:], [2**24 - 1, -1])


def test_normal(key):
    words, others = rng.word_pair(key, (N,))
    x = rng.normal(words)
    assert ks_p_value(x, stats.norm.cdf) > P_LIMIT
    assert ks_p_value(1.05 * x, stats.norm.cdf) < P_LIMIT
    assert abs(np.corrcoef(x, rng.normal(others))[0, 1]) * np.sqrt(N) < Z_LIMIT


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_normal_at_the_ends(x64, dtype):
    words = jnp.array([0, 1, 2**31, 2**32 - 2, 2**32 - 1], jnp.uint32)
    x = np.asarray(rng.normal(words, dtype), float)
    assert np.isfinite(x).all() and x[0] == 0 and x[3] == -x[4] < -5.2
    exact = stats.norm.ppf(0.75)
    np.testing.assert_allclose(x[2], -exact, rtol=1e-6)


def test_too_many_elements():
    with pytest.raises(ValueError, match="more than 2"):
        jax.eval_shape(lambda k: rng.word_pair(k, (2**17, 2**16)), jax.random.key(0))


def test_more_words_than_positions_raise(key):
    assert jax.eval_shape(lambda: rng.word_pair(key, (2**16, 2**16)))[0].size == 2**32
    with pytest.raises(ValueError, match="more than 2\\*\\*32 elements"):
        jax.eval_shape(lambda: rng.word_pair(key, (2**16, 2**16 + 1)))


def test_indices_below_numbers_as_large_as_int32():
    largest = np.float32(1 - np.finfo(np.float32).epsneg)
    for n in (1, 2**24 + 1, 2**30, 2**31 - 1):
        index = rng.uniform_index(jnp.asarray([2.0**-33, 0.5, largest]), jnp.asarray(n))
        assert (index >= 0).all() and (index < n).all()
        assert abs(int(index[1]) - n / 2) <= 64
