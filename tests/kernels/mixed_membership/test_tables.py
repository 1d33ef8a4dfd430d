"""Tables of a record: counts and seating, against enumeration."""

from math import lgamma

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value
from harness import set_partitions

from bnp_models.kernels.mixed_membership import tables

N = 60_000

table_indicators = jax.jit(tables.table_indicators)
seat_items = jax.jit(tables.seat_items)


def stirling(n):
    """Unsigned Stirling numbers of the first kind s(n, 0..n)."""
    s = np.array([1.0])
    for t in range(n):
        s = np.append(0, s) + t * np.append(s, 0)
    return s


@pytest.mark.parametrize("num_items", [6, tables.COMPARED_AT_ONCE + 8])
def test_ranks(seed, num_items):
    z = np.random.default_rng(seed).integers(0, 3, (num_items, 50))
    exact = [[np.sum(z[:j, i] == z[j, i]) for i in range(50)] for j in range(num_items)]
    np.testing.assert_array_equal(tables.rank_among_equals(jnp.asarray(z)), exact)


def test_memory_of_ranks_does_not_grow_with_pairs_of_items():
    z = jax.ShapeDtypeStruct((200, 128), jnp.int32)
    program = jax.jit(tables.rank_among_equals).lower(z).compile()
    assert program.memory_analysis().temp_size_in_bytes < 8 * 200 * 128 * 4


@pytest.mark.parametrize("c", [0.02, 0.8, 6.0])
def test_number_of_tables(key, c):
    """Five items of one label and one of another, with its own concentration."""
    z = np.zeros((6, N), np.int32)
    z[2] = 1
    opens = np.asarray(table_indicators(key, z, jnp.where(z == 0, jnp.float32(c), 50.0)))
    assert opens[0].all() and opens[2].all()
    counts = np.bincount(np.sum(opens & (z == 0), axis=0), minlength=6)
    p = stirling(5) * c ** np.arange(6)
    assert chi_square_p_value(counts, p) > P_LIMIT
    # Shown to fail: ranks that count the other label's item too.
    assert chi_square_p_value(counts, (stirling(6) * c ** np.arange(7))[1:]) < P_LIMIT


def crp(num_items, c):
    """Probabilities of the partitions of the items, as restricted growth strings."""
    probability = {}
    for blocks in set_partitions(list(range(num_items))):
        string = np.zeros(num_items, int)
        for block in blocks:
            string[block] = min(block)
        log_p = len(blocks) * np.log(c) + sum(lgamma(len(block)) for block in blocks)
        probability[tuple(string)] = np.exp(log_p)
    total = sum(probability.values())
    return {seating: p / total for seating, p in probability.items()}


@pytest.mark.usefixtures("either_form")
def test_seating_is_the_restaurant_process(key):
    """Four items of one label round one of another: 15 partitions."""
    c = 0.8
    z = np.zeros((5, N), np.int32)
    z[1] = 2
    key_opens, key_seat = jax.random.split(key)
    opens = table_indicators(key_opens, z, jnp.full((5, N), c))
    table = np.asarray(seat_items(key_seat, z, opens))
    assert np.all(table[1] == 1)
    # A table is named by the item that opened it.
    np.testing.assert_array_equal(table == np.arange(5)[:, None], opens)
    four = np.searchsorted([0, 2, 3, 4], table[[0, 2, 3, 4]])
    powers = np.array([64, 16, 4, 1])
    counts = np.bincount(powers @ four, minlength=256)
    exact, wrong = np.zeros(256), np.zeros(256)
    for seating, p in crp(4, c).items():
        exact[powers @ np.array(seating)] = p
    for seating, p in crp(4, 1.1 * c).items():
        wrong[powers @ np.array(seating)] = p
    assert (exact > 0).sum() == 15
    assert chi_square_p_value(counts, exact) > P_LIMIT
    assert chi_square_p_value(counts, wrong) < P_LIMIT


def test_indicators_under_vmap(key, seed):
    rng = np.random.default_rng(seed)
    z, keys = jnp.asarray(rng.integers(0, 3, (3, 40)), jnp.int32), jax.random.split(key)
    concentration = jnp.asarray(rng.gamma(1.0, 1.0, (3, 40)), jnp.float32)
    batched = jax.jit(jax.vmap(tables.table_indicators, (0, None, None)))(keys, z, concentration)
    assert np.all(batched[1] == table_indicators(keys[1], z, concentration))
