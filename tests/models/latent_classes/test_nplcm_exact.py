"""Latent class models against quadrature, joint-distribution tests, and the faults these see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value
from harness import Z_LIMIT
from latent import (
    NO_ALPHA_STEP,
    feasible_cells,
    joint_chains,
    posterior_chains,
    prior_draws_posterior,
    prior_statistics,
    structural_zeros,
    switched,
    two_class_posterior,
    two_sample_z,
    update_parameters_simulation,
    with_counted,
)
from scipy.stats import nbinom

from bnp_models import NPLCM, TNPLCM
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.numerics.platforms import forms_of
from bnp_models.models.latent_classes import conditionals, nplcm, truncated
from bnp_models.models.latent_classes.state import (
    count_levels,
    label_records,
    prepare_cells,
    prepare_records,
)
from bnp_models.models.level_prior import learns_levels

LONG = pytest.mark.long
BINARY = (2, 2, 2)
ONE_CONDITION = [[1, 1, -1]]
CODES = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [0, 0, 1], [0, 1, 1]])
# Five cells of eight, one of them three times over: exactly one variable is 1.
OVERLAPPING = [[1, 1, -1], [-1, 1, 1], [1, -1, 1], [0, 0, 0]]
# The first record is 100 or 010, the second and the last are determined.
INCOMPLETE = np.array([[-1, -1, 0], [0, -1, 1], [0, 1, 0], [1, 0, 0], [-1, -1, -1], [1, -1, -1]])


class Exact:
    """A model on a table of three binary variables: compiled once, exact answers by quadrature."""

    def __init__(self, model, conditions, codes, faults=(), counted=False, same_as=None):
        self.model, self.faults, self.conditioned = model, faults, conditions is not None
        zeros = structural_zeros(conditions, BINARY)
        if counted:
            cells = np.unique(codes, axis=0, return_counts=True)
            self.data = prepare_cells(model, *cells, BINARY, zeros)
        else:
            self.data = prepare_records(model, codes, BINARY, zeros, multiple=4)
        self.cells = jnp.asarray(feasible_cells(conditions, BINARY))
        model = same_as or model
        self.fixed = model.alpha is not None
        if not learns_levels(model):
            self.truth = two_class_posterior(codes, conditions, model, (8, 8, 8))
            self.error = np.zeros_like(self.truth)
        else:
            self.truth, self.error = prior_draws_posterior(codes, conditions, model)

    def scores(self, key, on=None, num_sweeps=300, burn=100):
        means = posterior_chains(
            self.model, key, self.data, self.cells, switched(self.faults, on), num_sweeps, burn
        )
        means = np.asarray(means, np.float64)
        error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
        error = np.hypot(error, self.error)
        # A fixed alpha is what it is.
        error[-4] = max(error[-4], 1e-5 * self.fixed)
        z = (means.mean(axis=0) - self.truth) / error
        # log P(feasible) is zero without conditions.
        return z if self.conditioned else np.delete(z, -3)


ALL_MOVES_FAULTS = (NO_ALPHA_STEP, "hyperparameter for alpha", "reorder inverted")


@pytest.fixture(scope="module")
def all_moves():
    model = TNPLCM(components=2, split_merge_every=1)
    return Exact(model, ONE_CONDITION, CODES, ALL_MOVES_FAULTS)


@pytest.mark.long
def test_quadrature_with_all_moves(all_moves):
    """Cell probabilities, alpha, log P(feasible), occupied classes, log-likelihood."""
    z = all_moves.scores(jax.random.key(5))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
@pytest.mark.parametrize("fault", ALL_MOVES_FAULTS)
def test_quadrature_rejects(all_moves, fault):
    z = all_moves.scores(jax.random.key(6), fault, num_sweeps=200, burn=50)
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.mark.long
@pytest.mark.parametrize(
    "how",
    [
        {"augmentation": "boxes"},
        {"truncation": "classes", "level_prior": "uniform"},
        {"level_prior": "uniform"},
    ],
)
def test_quadrature(how):
    """The papers' augmentation, and classes truncated each by itself."""
    model = TNPLCM(components=2, split_merge_every=0, **how)
    z = Exact(model, ONE_CONDITION, CODES).scores(jax.random.key(7))
    assert np.abs(z).max() < Z_LIMIT, z


@LONG
@pytest.mark.parametrize("conditions", [None, ONE_CONDITION], ids=["all", "feasible"])
def test_quadrature_with_kernels_for_accelerators(conditions):
    kind = NPLCM if conditions is None else TNPLCM
    with forms_of(accelerator=True):
        z = Exact(kind(components=2, split_merge_every=1), conditions, CODES).scores(
            jax.random.key(8)
        )
    assert np.abs(z).max() < Z_LIMIT, z


# One cell of five records, one of three, one of two and one of one.
REPEATED = np.repeat([[0, 0, 0], [0, 1, 1], [1, 0, 1], [0, 0, 1]], [5, 3, 2, 1], axis=0)
CELL_FAULT = "classes of cells by the root of their weights"


@pytest.fixture(scope="module")
def counted():
    model = TNPLCM(components=2, split_merge_every=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bnp_models.models.latent_classes.state.LISTED_RECORDS", 2)
        exact = Exact(model, ONE_CONDITION, REPEATED, (CELL_FAULT,), counted=True)
    assert exact.data.weight.sum() == 3 and exact.data.cell_counts.sum() == 8
    assert exact.data.num_records == 11
    return exact


@LONG
def test_quadrature_with_cells_and_counts(counted):
    """Records one by one, and cells with the counts of their classes, all moves on."""
    z = counted.scores(jax.random.key(31))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
def test_quadrature_with_cells_rejects(counted):
    z = counted.scores(jax.random.key(32), CELL_FAULT)
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.mark.long
def test_boxes_against_records_simulated_one_by_one():
    """Parameters drawn from one state and one partition of the records.

    The draws are alike only where no box leaves a variable free, which it integrates out.
    """
    model = TNPLCM(components=3, augmentation="boxes")
    data = prepare_records(model, CODES, BINARY, structural_zeros([[1, 1, 1], [1, 0, 0]], BINARY))
    state = nplcm.draw_prior(model, jax.random.key(3), data.levels)
    z = jnp.asarray([0, 1, 0, 2, 1])
    records = label_records(data, z, None, data.rows)
    counts = count_levels(records, data.num_levels, model.components)

    def statistics(update):
        def one(key):
            new, log_mass, augmented, _ = update(model, key, state, data, *counts)
            levels, few = jnp.exp(new.log_lambda[1::2]).ravel(), augmented < 2
            return jnp.concatenate([
                levels, levels**2, jnp.exp(new.log_pi), jnp.exp(log_mass),
                jnp.log(new.alpha)[None], augmented[None] / 10, few[None],
            ])  # fmt: skip

        return jax.jit(lambda key: jax.vmap(one)(jax.random.split(key, 40_000)))

    z = two_sample_z(
        statistics(truncated.update_parameters_boxes)(jax.random.key(21)),
        statistics(update_parameters_simulation)(jax.random.key(22)),
    )
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.parametrize("level_prior", ["learned", pytest.param("uniform", marks=LONG)])
def test_quadrature_without_structural_zeros(level_prior):
    codes = CODES.copy()
    codes[0, 1] = -1
    model = NPLCM(components=2, split_merge_every=0, level_prior=level_prior)
    z = Exact(model, None, codes).scores(jax.random.key(8))
    assert np.abs(z).max() < Z_LIMIT, z


FIXED_FAULTS = ("alpha drawn although fixed", "shape of ones although fixed")
FIXED = {"alpha": 0.4, "level_shape": (2.0, 0.5, 0.3, 1.0, 1.0, 3.0), "split_merge_every": 1}


@pytest.fixture(scope="module")
def fixed():
    """A fixed alpha, and fixed Dirichlet shapes of the levels."""
    return Exact(NPLCM(components=2, **FIXED), None, CODES, FIXED_FAULTS)


def test_quadrature_of_what_is_fixed(fixed):
    z = fixed.scores(jax.random.key(41))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.parametrize("fault", FIXED_FAULTS)
def test_quadrature_of_what_is_fixed_rejects(fixed, fault):
    z = fixed.scores(jax.random.key(42), fault, num_sweeps=200, burn=50)
    # All but alpha itself, which would say so at once.
    assert np.abs(np.delete(z, -3)).max() > Z_LIMIT, z


@LONG
@pytest.mark.parametrize("how", [{}, {"augmentation": "boxes"}, {"truncation": "classes"}], ids=str)
def test_quadrature_of_what_is_fixed_under_structural_zeros(how):
    z = Exact(TNPLCM(components=2, **FIXED, **how), ONE_CONDITION, CODES).scores(jax.random.key(43))
    assert np.abs(z).max() < Z_LIMIT, z


class OwnAlpha(NPLCM):
    """A model of a user, whose alpha is a number."""

    def draw_alpha(self, key, sum_log_1mv):
        return jnp.full_like(sum_log_1mv, 0.4)


class OwnSticks(NPLCM):
    """A model of a user, whose sticks do not depend on alpha."""

    def draw_weights(self, key, class_counts, alpha):
        return super().draw_weights(key, class_counts, jnp.full_like(alpha, 0.4))


@pytest.mark.parametrize("kind", [OwnAlpha, pytest.param(OwnSticks, marks=LONG)])
def test_hooks_of_a_subclass(kind):
    """An alpha fixed by a subclass, or sticks at that alpha, have the posterior of the option."""
    how = FIXED | {"alpha": None, "split_merge_every": 0, "reorder": False}
    same_as = NPLCM(components=2, **FIXED)
    z = Exact(kind(components=2, **how), None, CODES, same_as=same_as).scores(jax.random.key(44))
    # The second has an alpha that nothing reads.
    assert np.abs(np.delete(z, -3) if kind is OwnSticks else z).max() < Z_LIMIT, z


@pytest.mark.long
def test_quadrature_with_missing_values_that_move_together():
    model = TNPLCM(components=2, split_merge_every=0)
    z = Exact(model, OVERLAPPING, INCOMPLETE).scores(jax.random.key(9))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
def test_classes_and_completions_of_a_record():
    """Frequencies of (class, cell) at given parameters, for every kind of incomplete record."""
    num_levels = (2, 3, 2)
    conditions = [[1, 2, -1], [-1, 0, 1], [0, 1, -1]]
    codes = np.array([[-1, 2, 0], [-1, -1, -1], [1, -1, 1], [-1, 1, -1], [0, 0, 0], [-1, -1, 1]])
    model = TNPLCM(components=3)
    zeros = structural_zeros(conditions, num_levels)
    data = prepare_records(model, codes, num_levels, zeros, multiple=4)
    state = nplcm.draw_prior(model, jax.random.key(1), data.levels)
    keys = jax.random.split(jax.random.key(2), 20_000)
    records, log_likelihood = jax.jit(jax.vmap(conditionals.update_classes, (0, None, None)))(
        keys, state, data
    )
    z, rows = records.z, records.rows
    cells = feasible_cells(conditions, num_levels)
    log_lambda = np.asarray(state.log_lambda, np.float64)
    joint = np.exp(log_lambda[cells + first_rows(num_levels)].sum(axis=1)
                   + np.asarray(state.log_pi, np.float64))  # fmt: skip
    exact = 0.0
    for i, record in enumerate(codes):
        fits = ((record < 0) | (cells == record)).all(axis=1)
        drawn = np.asarray(rows)[:, :, i] - first_rows(num_levels)
        which = (drawn[:, None] == cells).all(axis=2)
        assert which.any(axis=1).all()
        counts = np.zeros(joint.shape)
        np.add.at(counts, (which.argmax(axis=1), np.asarray(z)[:, i]), 1)
        assert chi_square_p_value(counts, joint * fits[:, None]) > P_LIMIT
        exact += np.log(joint[fits].sum() / joint.sum())
    np.testing.assert_allclose(log_likelihood, exact, rtol=1e-5)


# Joint-distribution tests: four classes, two groups of variables that conditions tie, a variable
# in no condition, and values of three records missing.
NUM_LEVELS = (2, 3, 2, 2, 2)
CONDITIONS = [[1, 2, -1, -1, -1], [0, 0, -1, -1, -1], [-1, -1, 1, 0, -1]]
MISSING = ([0, 0, 0, 1, 2], [0, 1, 2, 3, 4])
FLAT = {"a": 1.0, "b": 1.0}


class Joint:
    """A model under its joint distribution with data: compiled once, for any prior of alpha."""

    def __init__(self, faults=(), kind=TNPLCM, num_counted=0, **how):
        self.make = lambda **prior: kind(components=4, **how, **prior)
        self.faults, self.num_counted = faults, num_counted
        codes = np.zeros((8 - num_counted, len(NUM_LEVELS)), int)
        codes[MISSING] = -1
        conditions = None if kind is NPLCM else CONDITIONS
        model = self.make()
        zeros = structural_zeros(conditions, NUM_LEVELS)
        self.data = prepare_records(model, codes, NUM_LEVELS, zeros, multiple=3)
        if num_counted:
            self.data = with_counted(self.data, conditions, num_counted)

    def scores(self, key, on=None, num_sweeps=100, **prior):
        model = self.make(**prior)
        key_prior, key_chains = jax.random.split(key)
        number = self.num_counted
        truth = prior_statistics(model, key_prior, self.data, num_draws=20_000, num_counted=number)
        means = joint_chains(
            model, key_chains, self.data, switched(self.faults, on), num_sweeps, num_counted=number
        )
        # log P(feasible) is zero without conditions.
        keep = np.arange(15) != (2 if not self.data.constrained else -1)
        return two_sample_z(means, truth)[keep]


JOINT_FAULTS = (
    "tilt ignored", "augmented left out of the sticks", "split places without the prior",
    "completions not feasible", "split-merge with a prior of ones",
    "truncated levels with a prior of ones", "levels' prior from a record fewer",
    "levels' prior from even levels",
)  # fmt: skip


@pytest.fixture(scope="module")
def mixture():
    return Joint(JOINT_FAULTS, split_merge_every=1)


@pytest.fixture(scope="module")
def right_mixture():
    """The same without faults, which is compiled sooner."""
    return Joint(split_merge_every=1)


@LONG
@pytest.mark.parametrize("prior", [{}, FLAT], ids=["default prior", "flat prior"])
def test_joint_distribution_with_all_moves(right_mixture, prior):
    z = right_mixture.scores(jax.random.key(11), **prior)
    assert np.abs(z).max() < Z_LIMIT, z


# The other moves, which are right, undo most of what these do.
LONGER = {
    "tilt ignored": 1500, "levels' prior from a record fewer": 250,
    "split-merge with a prior of ones": 400,
}  # fmt: skip


@LONG
@pytest.mark.parametrize("fault", JOINT_FAULTS)
def test_joint_distribution_rejects(mixture, fault):
    z = mixture.scores(jax.random.key(12), fault, num_sweeps=LONGER.get(fault, 100), **FLAT)
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"split_merge_every": 0, "augmentation": "boxes"}, marks=pytest.mark.long),
        pytest.param({"split_merge_every": 1, "truncation": "classes"}, marks=pytest.mark.long),
        pytest.param({"split_merge_every": 1, "kind": NPLCM}, marks=pytest.mark.long),
        pytest.param({"split_merge_every": 1, "num_counted": 5}, marks=pytest.mark.long),
    ],
    ids=["boxes", "classes", "no structural zeros", "cells with counts"],
)
def test_joint_distribution(how):
    z = Joint(**how).scores(jax.random.key(13), **FLAT)
    assert np.abs(z).max() < Z_LIMIT, z


def test_augmented_records_are_negative_multinomial():
    """Each part of the impossible region against its margin, which is negative binomial."""
    num_records, outside, inside = 3, np.array([0.5, 0.1]), np.array([0.3, 0.1])
    keys = jax.random.split(jax.random.key(14), 20_000)
    w, p, n = jnp.log(outside), jnp.log(inside), jnp.float32(num_records)
    drawn = np.asarray(jax.vmap(lambda key: truncated.draw_augmented(key, w, p, n))(keys))
    odds = inside.sum() / (inside.sum() + [outside.sum(), *outside])
    for counts, chance in zip([drawn.sum(axis=1), *drawn.T], odds, strict=True):
        values = np.arange(counts.max() + 2)

        def p_value(n, counts=counts, chance=chance, values=values):
            probability = nbinom.pmf(values, n, chance)
            probability[-1] += nbinom.sf(values[-1], n, chance)
            return chi_square_p_value(np.bincount(counts, minlength=values.size), probability)

        assert p_value(num_records) > P_LIMIT
        # Shown to fail: impossible records before the next feasible one.
        assert p_value(num_records + 1) < P_LIMIT


@pytest.mark.parametrize(
    ("augmentation", "count"), [pytest.param("none", -1, marks=LONG), ("boxes", 2**30)]
)
def test_more_augmented_records_than_can_be_counted(augmentation, count, monkeypatch):
    """One count beyond int32, or their sum: the sweep says so, ends, and stays finite."""
    monkeypatch.setattr(truncated, "draw_augmented", lambda _, w, *rest: jnp.full(w.shape, count))
    model = TNPLCM(3, augmentation=augmentation, split_merge_every=0)
    codes = np.array([[0, 0, 1], [0, 1, 0], [0, 1, 1]])
    data = prepare_records(model, codes, (2, 2, 2), structural_zeros([(1, 1, -1)], (2, 2, 2)))
    state = nplcm.draw_prior(model, jax.random.key(1), data.levels)
    new, info = jax.jit(model.sweep)(jax.random.key(0), state, data, 1)
    assert info.augmented == -1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((new, info)))


def test_cells_with_as_many_records_as_can_be_counted():
    """All records of a cell have a class, up to the most; with one record more they are refused."""
    model, codes = NPLCM(2, split_merge_every=0), np.array([[0, 0, 0], [1, 1, 1]])
    counts = np.array([2**30 - 11, 10])
    data = prepare_cells(model, codes, counts, BINARY)
    state = nplcm.draw_prior(model, jax.random.key(1), data.levels)
    records, _ = jax.jit(conditionals.update_classes)(jax.random.key(0), state, data)
    assert (records.split >= 0).all()
    assert (records.split.sum(axis=0)[:2] == counts).all()
    with pytest.raises(ValueError, match="1,073,741,824 records are too many: latent class"):
        prepare_cells(model, codes, counts + [1, 0], BINARY)
