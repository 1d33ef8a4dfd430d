"""HDP mixed membership against enumeration, and joint-distribution tests that can fail."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import Z_LIMIT, enumerate_posterior, joint_chains, run_chains, z_scores

from bnp_models.kernels.mixed_membership.tables import table_indicators
from bnp_models.kernels.numerics.platforms import forms_of
from bnp_models.models.mixed_membership import start
from bnp_models.models.mixed_membership import sweep as mixed_membership_sweep
from bnp_models.models.mixed_membership.hdp import HDPMixedMembership, draw_prior, update_parameters

NUM_LEVELS = (2, 3, 2)
# Padding has the first level of the first variable, which no record has.
CODES = np.array([[1, 2, 1], [1, 1, 1]])

RECORD = pytest.param("record", marks=pytest.mark.long)

# All moves in every sweep or nearly so, and the plain sampler.
ALL_MOVES = {"dish_stride": 2, "cell_stride": 1, "split_merge_every": 2, "seating_every": 3}
PLAIN = {"dish_stride": 0, "cell_stride": 0, "split_merge_every": 0, "seating_every": 0}

# Of the prior of b, where it has one: alpha's has moments then.
RATE = {"a1": 6.0, "b1": 3.0}


@pytest.fixture(autouse=True)
def both_ways_of_labels(monkeypatch):
    """Labels of all records where alpha is large, and of some in rotation where it is small."""
    monkeypatch.setattr(mixed_membership_sweep, "SMALL_ALPHA", 1.0)


@pytest.fixture(scope="module")
def exact():
    """Posterior means by enumeration, for each concentration and prior of the levels."""
    return {
        how: enumerate_posterior(
            CODES, NUM_LEVELS, HDPMixedMembership(concentration=how[0], level_prior=how[1], **RATE)
        )
        for how in (
            ("shared", "learned"), ("shared", "uniform"), ("record", "learned"),
            ("hierarchical", "uniform"),
        )
    }  # fmt: skip


def scores(exact, model, sweep=None, num_sweeps=300):
    means = run_chains(
        model, jax.random.key(7), CODES, NUM_LEVELS, num_chains=256, num_sweeps=num_sweeps,
        burn=50, capacity=32, sweep=sweep,
    )  # fmt: skip
    truth = list(exact[model.concentration, model.level_prior].values())
    number = 6 if model.level_prior == "learned" else 5
    return z_scores(means[:, :number], truth[:number])


@pytest.mark.parametrize(
    ("concentration", "level_prior", "moves"),
    [
        ("shared", "learned", ALL_MOVES),
        pytest.param("shared", "learned", PLAIN, marks=pytest.mark.long),
        pytest.param("shared", "uniform", PLAIN, marks=pytest.mark.long),
        pytest.param("record", "learned", ALL_MOVES, marks=pytest.mark.long),
    ],
)
def test_enumeration(exact, concentration, level_prior, moves):
    """K, tables, alpha, alpha_0, a co-clustering probability, c: all partitions summed."""
    model = HDPMixedMembership(concentration=concentration, level_prior=level_prior, **moves)
    z = scores(exact, model)
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
@pytest.mark.parametrize("accelerator", [False, True])
def test_enumeration_of_concentrations_with_a_common_prior(exact, accelerator):
    """The same where every record has an alpha of its own, and the rate of their prior is drawn."""
    model = HDPMixedMembership(concentration="hierarchical", level_prior="uniform", **RATE, **PLAIN)
    with forms_of(accelerator):
        z = scores(exact, model, num_sweeps=200)
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
def test_enumeration_with_kernels_for_accelerators(exact):
    with forms_of(accelerator=True):
        z = scores(exact, HDPMixedMembership(**ALL_MOVES))
    assert np.abs(z).max() < Z_LIMIT, z


FIXED = {"alpha": 0.6, "alpha0": 1.5, "level_shape": 0.05}


class OwnAlpha(HDPMixedMembership):
    """A model of a user, whose alpha and alpha_0 are numbers."""

    def draw_alpha(self, key, state, data, opens, num_tables, augmented=None, log_growth=None):
        return jnp.full_like(state.alpha, 0.6), state.rate

    def draw_alpha0(self, key, alpha0, tables):
        return jnp.full_like(alpha0, 1.5)


@pytest.fixture(scope="module")
def fixed():
    """Posterior means by enumeration where concentrations and shapes are fixed."""
    return list(enumerate_posterior(CODES, NUM_LEVELS, HDPMixedMembership(**FIXED)).values())


def fixed_scores(fixed, model, num_sweeps=300):
    means = run_chains(
        model, jax.random.key(7), CODES, NUM_LEVELS, num_chains=256, num_sweeps=num_sweeps,
        burn=50, capacity=32,
    )  # fmt: skip
    # What is fixed is what it is, but for rounding: alpha and alpha_0, and the last, log c.
    given = means.std(axis=0) < 1e-5
    constant = np.flatnonzero(given[:5])
    truth = np.array(fixed)
    np.testing.assert_allclose(means[:, constant].mean(axis=0), truth[constant], rtol=1e-4)
    return z_scores(means[:, ~given], truth[~given])


def test_enumeration_of_what_is_fixed(fixed):
    """alpha, alpha_0 and the shape of levels are options, all moves on."""
    z = fixed_scores(fixed, HDPMixedMembership(**FIXED, **ALL_MOVES))
    assert len(z) == 3 and np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
@pytest.mark.parametrize("moves", [ALL_MOVES, PLAIN], ids=["all moves", "plain"])
def test_hooks_of_a_subclass(fixed, moves):
    """Concentrations that a subclass fixes have the posterior of the options."""
    z = fixed_scores(fixed, OwnAlpha(level_shape=FIXED["level_shape"], **moves))
    assert len(z) == 3 and np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
@pytest.mark.parametrize("ignored", FIXED)
def test_enumeration_rejects_what_is_fixed_but_ignored(fixed, ignored):
    how = FIXED | {ignored: None, "level_prior": "uniform"}
    z = fixed_scores(fixed, HDPMixedMembership(**how, **PLAIN))
    assert np.abs(z).max() > Z_LIMIT, z


# Prior truth for n = 4, J = 5, L = 3 with Ga(2, 1) priors: E K by simulation of 4e6 urns,
# E alpha_0 = 2, E log alpha = psi(2); of the levels E c = 3,
# E log c = log 3 + psi(1), E beta = 1/3.
JOINT = {"num_records": 4, "num_levels": (3,) * 5, "num_chains": 512, "capacity": 32}
LEVELS = (3.0, 0.52140, 1 / 3)
TRUTH = {"record": (3.851, 2.0, 0.42278, *LEVELS), "shared": (None, 2.0, 0.42278, *LEVELS)}


def joint_scores(model, **sweep):
    means = joint_chains(model, jax.random.key(11), num_sweeps=250, **sweep, **JOINT)
    truth = list(TRUTH[model.concentration])
    if truth[0] is None:
        truth[0] = prior_components(model)
    return z_scores(means, truth)


def prior_components(model):
    """E K of a sample of the joint prior."""
    keys = jax.random.split(jax.random.key(3), 100_000)

    @jax.jit
    @jax.vmap
    def count(key):
        z = draw_prior(model, key, 4, JOINT["num_levels"], 32)[0].z
        return jnp.sum(jnp.zeros(32).at[z.reshape(-1)].set(1))

    return float(np.mean(count(keys)))


@pytest.mark.long
@pytest.mark.parametrize("concentration", ["shared", RECORD])
def test_joint_distribution(concentration):
    model = HDPMixedMembership(
        concentration=concentration,
        dish_stride=4,
        cell_stride=2,
        split_merge_every=2,
        seating_every=3,
    )
    z = joint_scores(model)
    assert np.abs(z).max() < Z_LIMIT, z


def printed_step_2(model):
    """Battiston & Rimella's step 2 as printed: tables with concentration alpha_0 g_0k."""

    def sweep(key, state, data, t):
        key_z, key_m, key_rest = jax.random.split(key, 3)
        state = mixed_membership_sweep.update_labels(key_z, state, data, t)
        opens = table_indicators(key_m, state.z, state.alpha0 * state.g0[state.z])
        return update_parameters(model, key_rest, state, data, opens, t)

    return sweep


@pytest.mark.long
def test_joint_distribution_rejects_the_printed_algorithm():
    model = HDPMixedMembership(concentration="record", **PLAIN)
    z = joint_scores(model, sweep=printed_step_2(model))
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.mark.long
def test_enumeration_rejects_a_dish_move_without_weights(exact):
    """A dish move that ignores the weights g_0 is found out."""
    model = HDPMixedMembership(concentration="record", **{**PLAIN, "dish_stride": 2})

    def sweep(key, state, data, t):
        key_z, key_m, key_d, key_rest = jax.random.split(key, 4)
        state = mixed_membership_sweep.update_labels(key_z, state, data, t)
        opens = mixed_membership_sweep.draw_tables(key_m, state)
        flat = eqx.tree_at(lambda s: s.g0, state, jnp.full_like(state.g0, 1 / 32))
        moved = mixed_membership_sweep.update_dishes(model, key_d, flat, data, opens, t)
        state = dataclasses.replace(state, z=moved.z)
        return update_parameters(model, key_rest, state, data, opens, t)

    z = scores(exact, model, sweep)
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.mark.long
def test_enumeration_rejects_labels_drawn_where_they_agree(exact):
    """Which records are drawn may depend on alpha, and not on the labels."""
    model = HDPMixedMembership(concentration="shared", **PLAIN)

    def sweep(key, state, data, t):
        key_z, key_m, key_rest = jax.random.split(key, 3)
        drawn = mixed_membership_sweep.update_labels(key_z, state, data, t).z
        agree = state.z[0, 0] == state.z[1, 0]
        state = dataclasses.replace(state, z=jnp.where(agree, drawn, state.z))
        opens = mixed_membership_sweep.draw_tables(key_m, state)
        return update_parameters(model, key_rest, state, data, opens, t)

    z = scores(exact, model, sweep)
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.fixture(scope="module")
def seating_scores():
    """z-scores of moments before and after `update_seating`, from exact draws of the joint prior.

    Of log alpha, of the number U of records with two labels, and of log alpha U. Two items never
    sit at more than two tables, so that all records are seated anew. The new labels of a wrong step
    are given the old alpha. There are rows of padding, which are of no one.
    """
    model, num_levels, num_records = HDPMixedMembership(**PLAIN), (3, 3), 4
    first_row = jnp.cumsum(jnp.asarray((0, *num_levels[:-1])))[:, None]
    template = start.prepare_records(model, np.zeros((num_records, 2), int), num_levels, multiple=3)
    padded, real = template.weight.size, template.weight > 0
    assert padded > num_records

    def one(key, wrong):
        key_prior, key_step = jax.random.split(key)
        state, codes = draw_prior(model, key_prior, padded, num_levels, 16)
        rows = first_row + codes
        data = eqx.tree_at(
            lambda d: (d.rows, d.cell, d.cell_rows, d.num_cells), template,
            (rows, jnp.arange(padded) * real, rows, jnp.asarray(num_records)),
        )  # fmt: skip
        right = mixed_membership_sweep.draw_seating

        def draw_seating(key, rows, alpha, *others):
            return right(key, rows, jnp.where(wrong, state.alpha, alpha), *others)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mixed_membership_sweep, "draw_seating", draw_seating)
            new = mixed_membership_sweep.update_seating(model, key_step, state, data)

        def moments(state):
            log_alpha, two = jnp.log(state.alpha), jnp.sum((state.z[0] != state.z[1]) & real)
            return jnp.stack([log_alpha, two, log_alpha * two])

        return moments(new) - moments(state)

    run = jax.jit(jax.vmap(one, (0, None)))

    def scores(seed, wrong):
        keys = jax.random.split(jax.random.key(seed), 20_000)
        difference = np.asarray(run(keys, jnp.asarray(wrong)), np.float64)
        return difference.mean(axis=0) / difference.std(axis=0) * np.sqrt(len(keys))

    return scores


def test_seating_leaves_the_joint_distribution(seating_scores):
    z = seating_scores(21, False)
    assert np.abs(z).max() < Z_LIMIT, z


def test_seating_given_the_old_alpha_is_rejected(seating_scores):
    """Seen by alpha and the labels together, and by neither alone."""
    z = seating_scores(22, True)
    assert np.abs(z[:2]).max() < Z_LIMIT < np.abs(z[2]), z


@pytest.mark.long
def test_seating_is_not_of_padding():
    """Records have the same new alpha and labels whether or not padding could be seated anew."""
    model, num_padded = HDPMixedMembership(**PLAIN), 16
    data = start.prepare_records(model, CODES, NUM_LEVELS, multiple=num_padded)
    state, _ = draw_prior(model, jax.random.key(31), num_padded, NUM_LEVELS, 16)

    @jax.jit
    @partial(jax.vmap, in_axes=(None, 0))
    def seat(padding, key):
        z = jnp.where(data.weight > 0, state.z, padding[:, None])
        new = mixed_membership_sweep.update_seating(
            model, key, dataclasses.replace(state, z=z), data
        )
        return new.alpha, new.z[:, : len(CODES)]

    keys = jax.random.split(jax.random.key(32), 300)
    at_one, at_three = (seat(jnp.asarray(z, state.z.dtype), keys) for z in ((0, 0, 0), (0, 1, 2)))
    jax.tree.map(np.testing.assert_array_equal, at_one, at_three)
    assert (at_one[0] != state.alpha).any()
    assert (at_one[1] != state.z[:, : len(CODES)]).any()


@pytest.mark.long
def test_weights_are_drawn_given_the_new_alpha0():
    """Hardly any mass would be left to the components in use, were it the alpha_0 of before."""
    model = HDPMixedMembership(**PLAIN)
    data = start.prepare_records(model, CODES, NUM_LEVELS, multiple=1)
    state, _ = draw_prior(model, jax.random.key(33), len(CODES), NUM_LEVELS, 16)
    state = dataclasses.replace(state, alpha0=jnp.asarray(1e6, state.alpha0.dtype))

    @jax.jit
    @jax.vmap
    def update(key):
        opens = jnp.ones(state.z.shape, bool)
        return update_parameters(model, key, state, data, opens, 0)[0]

    new = update(jax.random.split(jax.random.key(34), 20))
    assert new.alpha0.max() < 1e3
    assert new.g0[:, np.unique(state.z)].sum(axis=1).min() > 1e-3
