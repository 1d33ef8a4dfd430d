"""Tests of the steps of a sweep of mixed membership models."""

import dataclasses
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import Schema
from bnp_models.kernels.numerics.platforms import forms_of
from bnp_models.kernels.variates.levels import Levels
from bnp_models.models.mixed_membership import sweep
from bnp_models.models.mixed_membership.conditionals import draw_theta_in_use
from bnp_models.models.mixed_membership.hdp import HDPMixedMembership
from bnp_models.models.mixed_membership.state import HDPState, log_likelihood_items
from bnp_models.models.mixed_membership.sweep import components_first

CELLS, AT_ONCE = 250, 101


@pytest.fixture
def records():
    """One record in each of 250 cells, whose second variable alternates, and its levels."""
    schema = Schema(("a", "b"), (tuple(range(CELLS // 2)), (0, 1)))
    codes = np.stack(np.divmod(np.arange(CELLS), 2), axis=1)
    return Microdata(schema, codes), codes[:, 1]


def test_whole_records_move_by_their_own_cell_at_every_turn(records, monkeypatch):
    """The last turn's cells would begin too late to be as many as those of the others."""
    monkeypatch.setattr(sweep, "CELLS_AT_LEAST", AT_ONCE)
    table, level = records
    model = HDPMixedMembership(dish_stride=0, cell_stride=128)
    data = model.prepare(table)
    # Component k has level k of the second variable alone.
    theta = jnp.concatenate([jnp.full((CELLS // 2, 2), 2 / CELLS), jnp.eye(2)])
    wrong = jnp.broadcast_to(1 - (data.rows[1] - CELLS // 2), data.rows.shape)
    assert (np.asarray(wrong[0, :CELLS]) != level).all()
    one = jnp.ones(())
    state = HDPState(
        z=wrong, g0=jnp.array([0.5, 0.5]), theta=theta, level_shape=jnp.ones(len(theta)),
        alpha=one, rate=one, alpha0=one,
    )  # fmt: skip
    opens = jnp.zeros(data.rows.shape, bool).at[0].set(True)
    moved = np.zeros(CELLS, bool)
    for turn in range(-(-CELLS // AT_ONCE)):
        z = sweep.update_dishes(model, jax.random.key(turn), state, data, opens, jnp.int32(turn)).z
        z = np.asarray(z[:, :CELLS])
        changed = z[0] != np.asarray(wrong[0, :CELLS])
        assert changed.any() and (z[0] == z[1]).all()
        np.testing.assert_array_equal(z[0][changed], level[changed])
        moved |= changed
    assert moved.all()


@pytest.mark.parametrize("of_records", [False, True], ids=["shared", "record"])
def test_labels_follow_the_levels(records, of_records):
    """Where each level belongs to one component, that is the component of its items."""
    table, level = records
    data = HDPMixedMembership().prepare(table)
    parity = jnp.arange(CELLS // 2) % 2
    theta = jnp.concatenate([jnp.stack([1 - parity, parity], axis=1), jnp.eye(2)])
    one, alpha = jnp.ones(()), jnp.full(data.rows.shape[1], 2.0)
    state = HDPState(
        z=jnp.zeros(data.rows.shape, jnp.int32), g0=jnp.array([0.5, 0.5]), theta=theta,
        level_shape=jnp.ones(len(theta)), alpha=alpha if of_records else alpha[0], rate=one,
        alpha0=one,
    )  # fmt: skip
    z = np.asarray(sweep.update_labels(jax.random.key(0), state, data, jnp.int32(0)).z)[:, :CELLS]
    np.testing.assert_array_equal(z[0], table.codes[:, 0] % 2)
    np.testing.assert_array_equal(z[1], level)


def test_records_of_a_cell_are_counted_in_integers(records):
    """Ones that are added to a float stop at 2**24: seventeen million records of one cell."""
    table, _ = records
    model = HDPMixedMembership(capacity=8)
    data = model.prepare(table)
    key = jax.random.key(0)
    state = jax.eval_shape(lambda: model.init(key, data, 8, jnp.int32(2)))
    program = str(jax.make_jaxpr(partial(sweep.update_seating, model))(key, state, data))
    types = re.findall(r":(\w+)\[\d+\] = scatter-add", program)
    assert types and not [name for name in types if name.startswith("f")]
    assert jnp.zeros(1).at[0].add(2.0**24).at[0].add(1)[0] == 2**24


@pytest.mark.parametrize(
    "options",
    [
        {"dish_stride": -64},
        {"seating_every": -1},
        {"split_merge_every": 0.5},
        {"trajectory_steps": -1},
    ],
)
def test_options_that_count_are_integers(options):
    with pytest.raises(ValueError, match="must be an integer of at least 0"):
        HDPMixedMembership(**options)


def test_components_keep_their_items_when_slots_are_added_and_given_back(records):
    table, _ = records
    model = HDPMixedMembership()
    data = model.prepare(table)
    one, two, three = jax.random.split(jax.random.key(0), 3)
    state = jax.jit(lambda: model.init(one, data, 32, jnp.int32(2)))()
    # In twenty slots out of order; a tenth of the mass is in the others.
    used = jax.random.permutation(two, 32)[:20]
    weights = jax.random.dirichlet(three, jnp.ones(20))
    g0 = jnp.full(32, 0.1 / 12).at[used].set(0.9 * weights)
    z = used[jnp.arange(state.z.size).reshape(state.z.shape) % 20]
    state = dataclasses.replace(state, z=z, g0=g0)
    grown = jax.jit(model.grow, static_argnums=3)(one, state, data, 64)
    shrunk = jax.jit(model.shrink, static_argnums=2)(grown, data, 24)

    def of_items(state):
        z = np.asarray(state.z)[:, : table.n]
        assert z.max() < state.g0.size
        return np.asarray(state.g0)[z], np.asarray(state.theta)[:, z]

    assert (shrunk.g0.size, grown.g0.size) == (24, 64)
    for new in (grown, shrunk):
        np.testing.assert_allclose(new.g0.sum(), 1, rtol=1e-5)
        for before, after in zip(of_items(state), of_items(new), strict=True):
            np.testing.assert_array_equal(before, after)


def test_components_come_first_in_their_order():
    z = jnp.array([[5, 0, 2], [5, 5, 2]])
    placed, tables = components_first(z, jnp.array([1, 0, 2, 0, 0, 4]))
    np.testing.assert_array_equal(placed, [[2, 0, 1], [2, 2, 1]])
    np.testing.assert_array_equal(tables, [1, 2, 4, 0, 0, 0])


@pytest.mark.parametrize("accelerator", [False, True])
def test_level_probabilities_of_slots_in_use(accelerator):
    """Each slot's are drawn given its own counts, whatever the block that it is in."""
    counts = np.zeros((5, 40), int)
    counts[np.arange(30) % 3, np.arange(30)] = 10**6
    levels = Levels.of_variables((3, 2)).with_shape(jnp.array([2.0, 1.0, 1.0, 0.5, 0.5]))
    with forms_of(accelerator):
        theta = np.asarray(jax.jit(draw_theta_in_use)(
            jax.random.key(0), jnp.asarray(counts), levels, jnp.int32(35)
        ))  # fmt: skip
    np.testing.assert_allclose(theta[:3, :30], counts[:3, :30] > 0, atol=1e-4)
    np.testing.assert_allclose(theta[:3].sum(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(theta[3:].sum(axis=0), 1, rtol=1e-5)
    # No two of the slots in use have the same, not even those without counts.
    assert len(np.unique(theta[3, :35])) == 35


def test_the_log_likelihood_of_items_is_their_sum():
    """Levels that no item has may have probability zero."""
    counts = np.array([[3, 0], [1, 4], [0, 0]])
    theta = np.array([[0.75, 0.3], [0.25, 0.7], [0.0, 0.0]])
    expected = 3 * np.log(0.75) + np.log(0.25) + 4 * np.log(0.7)
    found = log_likelihood_items(jnp.asarray(counts), jnp.asarray(theta))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
