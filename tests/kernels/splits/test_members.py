"""Members of components: whole records, one by one or counted by cell, are the same records."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value

from bnp_models.kernels.splits import anchors, members

ROWS = jnp.array([[0, 1, 0, 1], [2, 2, 3, 4]])
VARIABLE = jnp.array([0, 0, 1, 1, 1])
# Entry 0 and 1 are records of classes 1 and 2, entries 2 and 3 cells with records of both.
SPLIT = jnp.array([[4, 0], [3, 2], [1, 5]])


def labelled():
    return members.LabelledRecords(
        jnp.array([1, 2]), SPLIT, ROWS, jnp.array([True, True]), jnp.int32(17)
    )


def chosen(is_split, records, places=(0, 1)):
    return anchors.Anchors(
        jnp.bool_(is_split), tuple(map(jnp.int32, records)), tuple(map(jnp.int32, places)),
        jnp.int32(1), jnp.int32(1 if is_split else 2), jnp.int32(0), jnp.bool_(True),
    )  # fmt: skip


@pytest.mark.usefixtures("either_form")
def test_a_record_of_a_class_is_drawn_uniformly():
    """The entry by its records of the class, and which one of them."""
    found = jax.vmap(lambda key: labelled().pick(key, jnp.int32(2)))(
        jax.random.split(jax.random.key(0), 20_000)
    )
    entry, place = map(np.asarray, found)
    assert set(entry) == {1, 2, 3} and (place[entry < 3] == 0).all()
    drawn = np.bincount(np.select([entry == 1, entry == 2], [0, 1], 2 + place), minlength=7)
    assert chi_square_p_value(drawn, np.full(7, 1 / 7)) > P_LIMIT


def test_anchors_are_apart_from_what_is_allocated():
    entries = labelled().entries_of(chosen(True, (2, 2)))(None)
    np.testing.assert_array_equal(entries.free, [1, 0, 3 - 2, 2])
    np.testing.assert_array_equal(entries.concerned, [True, False, True, True])
    entries = labelled().entries_of(chosen(False, (0, 3)))(None)
    np.testing.assert_array_equal(entries.free, [0, 1, 4, 6])
    np.testing.assert_array_equal(entries.second, [0, 1, 1, 4])
    some = labelled().entries_of(chosen(False, (0, 3)))(jnp.array([3, 0]))
    np.testing.assert_array_equal(some.free, [6, 0])
    np.testing.assert_array_equal(some.rows, ROWS[:, jnp.array([3, 0])])


def test_sides_as_they_are_drawn_as_often_as_their_cost_says():
    """exp(-cost) is the probability of each count, over the ways to choose which records."""
    entries = labelled().entries_of(chosen(True, (0, 3)))(None)
    odds = jnp.array([0.3, -1.0, 0.7, -0.4])
    keys = jax.random.split(jax.random.key(1), 40_000)
    drawn = np.asarray(jax.vmap(lambda key: entries.draw(key, odds, jnp.bool_(True)))(keys))
    ways = np.array([1, 3, 3, 1])
    expected = np.exp(-np.array([entries.cost(jnp.full(4, side), odds)[2] for side in range(4)]))
    np.testing.assert_allclose((ways * expected).sum(), 1, rtol=1e-5)
    assert chi_square_p_value(np.bincount(drawn[:, 2], minlength=4), ways * expected) > P_LIMIT
    assert (drawn[:, 1] == 0).all()
    merged = entries.draw(keys[0], odds, jnp.bool_(False))
    np.testing.assert_array_equal(merged, entries.second)


def test_records_are_where_the_move_put_them():
    """Nothing is lost; a merge empties the second class."""
    records = labelled()
    z, split = records.after(chosen(True, (2, 3)), jnp.array([1, 0, 2, 1]))
    np.testing.assert_array_equal(z, [0, 2])
    np.testing.assert_array_equal(split, [[2, 1], [1, 1], [1, 5]])
    both = anchors.Anchors(*chosen(False, (0, 3)))._replace(k_new=jnp.int32(2))
    z, split = records.after(both, jnp.array([0, 1, 1, 5]))
    np.testing.assert_array_equal(z, [1, 1])
    np.testing.assert_array_equal(split, [[4, 0], [4, 7], [0, 0]])


@pytest.mark.usefixtures("either_form")
def test_counted_as_one_by_one():
    """Weighted counts and scores of a cell are those of its records."""
    entries = labelled().entries_of(chosen(False, (0, 3)))(None)
    unit = jnp.int32(256)
    share = entries.expected(jnp.array([0.0, 1.0, -2.0, 30.0]), unit)
    np.testing.assert_array_equal(share, np.round(
        256 * np.array([0, 1, 4, 6]) / (1 + np.exp([0.0, -1.0, 2.0, -30.0]))
    ))  # fmt: skip
    counted = entries.add_up(entries.settled(share, unit), VARIABLE)
    settled = np.asarray(share) + [0, 0, 0, 256]
    np.testing.assert_array_equal(counted.items, [
        settled[[0, 2]].sum(), settled[[1, 3]].sum(), settled[:2].sum(), settled[2], settled[3]
    ])  # fmt: skip
    assert counted.tables == settled.sum()
    scores = entries.scores(jnp.array([1.0, 2.0, 4.0, 8.0, 16.0]))
    np.testing.assert_array_equal(scores, [5, 6, 9, 18])
