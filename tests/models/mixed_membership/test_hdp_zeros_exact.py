"""HDP mixed membership under structural zeros: exact answers, joint distributions, faults seen."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import Z_LIMIT
from truncated import (
    BINARY,
    MOST_FEASIBLE,
    SAMPLES,
    WIDER_CONDITIONS,
    exact_means,
    fit_few_records,
    joint_chains,
    joint_data,
    posterior_chains,
    prepared,
    prior_means,
    scores,
    structural_zeros,
    switched,
)

from bnp_models import HDPMixedMembership
from bnp_models.kernels.mixed_membership import (
    hamiltonian,
    tilts,
    truncated_split_merge,
    urn_boxes,
)
from bnp_models.kernels.numerics.counting import count_components, count_rows_by_component
from bnp_models.kernels.numerics.platforms import forms_of
from bnp_models.models.mixed_membership import feasible, sweep, truncated_sweep
from bnp_models.models.mixed_membership.feasible import feasible_totals
from bnp_models.models.mixed_membership.start import prepare_records

# A smaller alpha_0 than the default's, for which few slots hold nearly all of the mass.
SMALL = {"b0": 3.0, "split_merge_every": 0}
ALL_MOVES = SMALL | {
    "dish_stride": 2, "cell_stride": 1, "seating_every": 3, "trajectory_steps": 4
}  # fmt: skip
PLAIN = SMALL | {"dish_stride": 0, "cell_stride": 0, "seating_every": 0, "trajectory_steps": 0}
TRAJECTORIES = PLAIN | {"trajectory_steps": 4}
UNIFORM = {"level_prior": "uniform"}
LONG = pytest.mark.long
CAPACITY = 8
# Of the joint distribution, whose alpha_0 is that of the prior: 8 slots are seen to be too few.
JOINT_CAPACITY = 16


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    fit_few_records(monkeypatch)
    # Fewer than the slots, so that not all components are to choose among.
    monkeypatch.setattr(sweep, "DISH_SLOTS", (4, 4))


def posterior_scores(model, name, key, switches=None, *, num_chains=64, num_sweeps=200):
    """Those of `truncated.exact_means`."""
    data, ends = prepared(model, name)
    means = posterior_chains(
        model, jax.random.key(key), data, ends, switches or {}, num_sweeps, num_sweeps // 4,
        num_chains=num_chains, capacity=CAPACITY,
    )  # fmt: skip
    z = scores(means, exact_means(model, name))
    # log c is constant under the uniform prior.
    return z if model.level_prior == "learned" else z[:-1]


@pytest.mark.parametrize(
    ("name", "concentration", "augmentation", "how"),
    [
        pytest.param("equivalence", "shared", "boxes", ALL_MOVES, marks=LONG),
        pytest.param("one", "shared", "simulation", PLAIN, marks=LONG),
        pytest.param("one", "shared", "boxes", ALL_MOVES | UNIFORM, marks=LONG),
        pytest.param("one", "record", "boxes", PLAIN, marks=LONG),
        pytest.param("half", "hierarchical", "boxes", TRAJECTORIES | UNIFORM, marks=LONG),
        pytest.param("half", "shared", "simulation", PLAIN, marks=LONG),
    ],
)
def test_posterior_means(name, concentration, augmentation, how):
    model = HDPMixedMembership(concentration=concentration, augmentation=augmentation, **how)
    z = posterior_scores(model, name, 1)
    assert np.abs(z).max() < Z_LIMIT, z


SPLITS = PLAIN | {"split_merge_every": 1}


@LONG
def test_posterior_means_with_split_merge():
    z = posterior_scores(HDPMixedMembership(**SPLITS), "equivalence", 21)
    assert np.abs(z).max() < Z_LIMIT, z


@LONG
def test_posterior_means_with_kernels_for_accelerators():
    with forms_of(accelerator=True):
        model = HDPMixedMembership(**ALL_MOVES | {"split_merge_every": 2})
        z = posterior_scores(model, "equivalence", 22)
    assert np.abs(z).max() < Z_LIMIT, z


class Joint:
    """A model under its joint distribution with records: compiled once for all its faults.

    Under the learned prior with few feasible cells, next to nothing may be feasible, and records
    are not simulated in reasonable time.
    """

    def __init__(self, concentration, augmentation, how, faults, level_prior="uniform"):
        self.model = HDPMixedMembership(
            concentration=concentration, augmentation=augmentation, a1=2.0,
            level_prior=level_prior, **how,
        )  # fmt: skip
        self.conditions = MOST_FEASIBLE if level_prior == "learned" else WIDER_CONDITIONS
        self.faults, self.data = faults, joint_data(self.model, 19, self.conditions)

    def scores(self, key, on=None, num_sweeps=100):
        """Those of `truncated.prior_means`."""
        means = joint_chains(
            self.model, jax.random.key(key), self.data, switched(self.faults, on), num_sweeps,
            num_chains=256, capacity=JOINT_CAPACITY,
        )  # fmt: skip
        z = scores(means, prior_means(self.model, self.conditions))
        # c is constant under the uniform prior.
        return z if self.model.level_prior == "learned" else z[:-3]


AUGMENTED = ("augmented tables left out", "augmented levels left out")
BOXES_FAULTS = (
    *AUGMENTED, "alpha not truncated", "tilt with the prior of levels twice", "tilt not truncated",
    "trajectory with the prior of levels twice", "trajectory not truncated",
    "seating at another concentration", "records at many tables seated anew",
    "records of other components seated anew", "tables of the records that stay left out",
    "records that stay summed out too",
)  # fmt: skip
# The other moves, which are right, undo most of what these do.
LONGER = {
    "alpha not truncated": 1500, "tilt with the prior of levels twice": 300,
    "trajectory with the prior of levels twice": 250,
    "records of other components seated anew": 250,
}  # fmt: skip
SIMULATION_FAULTS = (*AUGMENTED, "augmented alphas left out")


@pytest.fixture(scope="module")
def boxes():
    return Joint("shared", "boxes", ALL_MOVES, BOXES_FAULTS)


@pytest.fixture(scope="module")
def simulation():
    return Joint("hierarchical", "simulation", PLAIN, SIMULATION_FAULTS)


@LONG
def test_joint_distribution_by_boxes(boxes):
    z = boxes.scores(11)
    assert np.abs(z).max() < Z_LIMIT, z


@LONG
@pytest.mark.parametrize("fault", BOXES_FAULTS)
def test_joint_distribution_by_boxes_rejects(boxes, fault):
    z = boxes.scores(12, fault, num_sweeps=LONGER.get(fault, 50))
    assert np.abs(z).max() > Z_LIMIT, z


# Faults, and sweeps after which they are seen.
LEARNED_FAULTS = {
    "trajectory with a prior of ones": 300,
    "levels' prior without impossible records": 100,
    "split-merge at another alpha_0": 50,
    "split-merge with a prior of ones": 50,
    "split-merge not truncated": 300,
    "split-merge with half the total of the weights": 200,
    "split-merge with a table more": 200,
}


def learned_with(faults):
    how = ALL_MOVES | {"split_merge_every": 1}
    return Joint("shared", "boxes", how, faults, "learned")


@pytest.fixture(scope="module")
def learned():
    return learned_with(tuple(LEARNED_FAULTS))


@LONG
def test_joint_distribution_with_a_learned_prior():
    # Programs without faults are compiled sooner.
    z = learned_with(()).scores(16)
    assert np.abs(z).max() < Z_LIMIT, z


@LONG
@pytest.mark.parametrize("fault", LEARNED_FAULTS)
def test_joint_distribution_with_a_learned_prior_rejects(learned, fault):
    z = learned.scores(17, fault, num_sweeps=LEARNED_FAULTS[fault])
    assert np.abs(z).max() > Z_LIMIT, z


@LONG
def test_joint_distribution_by_simulation(simulation):
    z = simulation.scores(13)
    assert np.abs(z).max() < Z_LIMIT, z


@LONG
@pytest.mark.parametrize("fault", SIMULATION_FAULTS)
def test_joint_distribution_by_simulation_rejects(simulation, fault):
    z = simulation.scores(14, fault, num_sweeps=50)
    assert np.abs(z).max() > Z_LIMIT, z


def test_conditions_that_exclude_nothing():
    """All is as without them."""
    model = HDPMixedMembership()
    data = prepare_records(
        model, np.array(SAMPLES["one"]), BINARY, structural_zeros(np.zeros((0, 3)))
    )
    assert data.zeros is None


@pytest.mark.long
def test_sums_that_give_the_feasible_mass_are_those_of_the_new_parameters():
    """After a split or merge, a trajectory and a tilt."""
    model = HDPMixedMembership(**TRAJECTORIES | {"split_merge_every": 1})
    data, _ = prepared(model, "equivalence")

    def one(key):
        keys = jax.random.split(key, 5)
        state = model.init(keys[0], data, CAPACITY, 2)
        state = dataclasses.replace(state, z=state.z.astype(jnp.int32))
        opens = sweep.draw_tables(keys[1], state)
        tables = count_components(state.z, opens * data.weight, CAPACITY)
        counts = count_rows_by_component(data.rows, state.z, data.weight, state.theta.shape)
        split = truncated_sweep.update_components_truncated(model, keys[2], state, data, opens, 0)
        moved, _ = truncated_sweep.update_trajectory(
            model, keys[3], state, data, counts, tables, tables.sum()
        )
        tilted, _ = truncated_sweep.update_tilts(model, keys[4], state, data, counts, tables)
        return [
            (state.totals, new.totals, feasible_totals(new.g0, new.theta, data))
            for new in (split, moved, tilted)
        ]

    for old, new, exact in jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(41), 100)):
        np.testing.assert_allclose(new, exact, rtol=1e-5)
        assert np.abs(exact - old).max() > 1e-2


def _ratio_off(function, *args, wrong, in_double):
    return in_double(function, *args) + jnp.where(wrong, 5, 0)


def _uniform_off(function, t, u, *args, wrong, in_double):
    return in_double(function, t, jnp.where(wrong, 1e-6 * u, u), *args)


def _all_accepted(function, *args, wrong, in_double):
    moved, accepted = in_double(function, *args)
    return moved, accepted | wrong


# In each module that computes in double precision, what lets it accept nearly all.
IN_DOUBLE_FAULTS = {
    feasible: _ratio_off, hamiltonian: _ratio_off, urn_boxes: _ratio_off, tilts: _uniform_off,
    truncated_split_merge: _all_accepted,
}  # fmt: skip


def in_double_planted(monkeypatch, switches):
    """Compute as large samples do, with the fault of a module where its switch is on."""
    monkeypatch.setattr(feasible, "RECORDS", 1)
    for (module, fault), wrong in zip(IN_DOUBLE_FAULTS.items(), switches, strict=True):
        given = {"wrong": wrong, "in_double": module.in_double}
        monkeypatch.setattr(module, "in_double", partial(fault, **given))


@pytest.fixture(scope="module")
def few_sweeps():
    """States of 64 chains after five sweeps, in single precision or, with switches, in double."""
    model = HDPMixedMembership(**TRAJECTORIES | {"split_merge_every": 1})
    data, _ = prepared(model, "equivalence")

    def chains(switches):
        def one(key):
            def body(t, state):
                return model.sweep(jax.random.fold_in(key, t), state, data, t)[0]

            return jax.lax.fori_loop(0, 5, body, model.init(key, data, CAPACITY, 2))

        with pytest.MonkeyPatch.context() as patch:
            fit_few_records(patch)
            if switches is not None:
                in_double_planted(patch, switches)
            return jax.vmap(one)(jax.random.split(jax.random.key(22), 64))

    return jax.jit(chains)


def _differ(state, other):
    """Chains with other labels or, by more than rounding, other parameters."""
    labels = (state.z != other.z).any(axis=(1, 2))
    return labels | ~np.isclose(state.theta, other.theta, rtol=1e-3, atol=1e-6).all(axis=(1, 2))


@LONG
def test_double_precision_takes_the_same_moves(few_sweeps):
    """Same keys, same labels: at few records both precisions decide alike."""
    none = np.zeros(len(IN_DOUBLE_FAULTS), bool)
    assert not _differ(few_sweeps(None), few_sweeps(none)).any()


@LONG
@pytest.mark.parametrize("number", range(5), ids=[x.__name__ for x in IN_DOUBLE_FAULTS])
def test_double_precision_that_goes_wrong_is_seen(few_sweeps, number):
    wrong = np.arange(len(IN_DOUBLE_FAULTS)) == number
    assert _differ(few_sweeps(None), few_sweeps(wrong)).any()


@LONG
@pytest.mark.parametrize("wrong", [False, True])
def test_posterior_means_in_double_precision(wrong, monkeypatch):
    in_double_planted(monkeypatch, np.full(len(IN_DOUBLE_FAULTS), wrong))
    # What other tests compiled would be run again.
    jax.clear_caches()
    model = HDPMixedMembership(**SPLITS | {"trajectory_steps": 4})
    z = posterior_scores(model, "equivalence", 23)
    assert (np.abs(z).max() < Z_LIMIT) != wrong, z


def test_tables_of_impossible_records_count_like_those_of_the_sample():
    """Also for alpha_0, where they alone are in a component."""
    model, key = HDPMixedMembership(), jax.random.key(42)
    data, _ = prepared(model, "one")
    state = model.init(key, data, CAPACITY, 2)
    tables, added = jnp.array([[3, 1, 0, 0, 0, 0, 0, 0], [2, 0, 4, 1, 0, 0, 0, 0]])
    apart = model.draw_weights(key, state, tables, added)
    together = model.draw_weights(key, state, tables + added, jnp.zeros_like(added))
    jax.tree.map(np.testing.assert_array_equal, apart, together)
