"""Latent classes with levels in bands or groups: exact answers, joint distributions, faults."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from harness import DEEP, DEEP_GROUPS, Z_LIMIT
from latent import (
    feasible_cells,
    joint_chains,
    posterior_chains,
    prior_draws_posterior,
    prior_statistics,
    structural_zeros,
    switched,
    two_sample_z,
)

from bnp_models import NPLCM, TNPLCM, Microdata
from bnp_models.data.schema import MicrodataError
from bnp_models.kernels.variates.levels import bands_of_levels
from bnp_models.models.latent_classes.state import prepare_records

LONG = pytest.mark.long
# The first variable has two bands of two levels; conditions cut across them.
NUM_LEVELS = (4, 2, 2)
CONDITIONS = [[1, 1, -1], [2, 1, -1], [3, -1, 0]]
CODES = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [3, 1, 1], [1, 0, 1], [0, 0, 0]])
TREES = {0: bands_of_levels(4)}
SPLITS = {"components": 2, "split_merge_every": 1}


def posterior_scores(model, conditions, key, num_levels=NUM_LEVELS, tree=None, groups=None):
    """Those of `latent.two_class_posterior`: exact answers by weighting draws of the prior."""
    zeros = structural_zeros(conditions, num_levels)
    trees = TREES if groups is None else {0: groups}
    data = prepare_records(model, CODES, num_levels, zeros, multiple=4, trees=trees)
    cells = jnp.asarray(feasible_cells(conditions, num_levels))
    means = posterior_chains(model, jax.random.key(key), data, cells, {}, 300, 100)
    means = np.asarray(means, np.float64)
    truth, error = prior_draws_posterior(CODES, conditions, model, num_levels, {0: tree or [2, 2]})
    own = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    z = (means.mean(axis=0) - truth) / np.hypot(own, error)
    return z if conditions else np.delete(z, -3)


@pytest.mark.parametrize(
    ("model", "conditions"),
    [
        pytest.param(NPLCM(**SPLITS), None, marks=LONG),
        pytest.param(TNPLCM(**SPLITS), CONDITIONS, marks=LONG),
        pytest.param(TNPLCM(**SPLITS, level_prior="uniform"), CONDITIONS, marks=LONG),
        pytest.param(TNPLCM(**SPLITS, truncation="classes"), CONDITIONS, marks=LONG),
        pytest.param(TNPLCM(**SPLITS, augmentation="boxes"), CONDITIONS, marks=LONG),
    ],
)
def test_posterior_means(model, conditions):
    """Cell probabilities, alpha, log P(feasible), occupied classes, log-likelihood."""
    z = posterior_scores(model, conditions, 5)
    assert np.abs(z).max() < Z_LIMIT, z


DEEP_LEVELS = (6, 2, 2)
DEEP_CONDITIONS = [[1, 1, -1], [2, 1, -1], [5, -1, 0]]


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "conditions"), [(NPLCM(**SPLITS), None), (TNPLCM(**SPLITS), DEEP_CONDITIONS)]
)
def test_posterior_means_with_groups_in_groups(model, conditions):
    """Faults of trees are shown by tests of the prior and of proposals of levels."""
    z = posterior_scores(model, conditions, 7, DEEP_LEVELS, DEEP, DEEP_GROUPS)
    assert np.abs(z).max() < Z_LIMIT, z


FAULTS = (
    "bands without their factor",
    "split-merge with a prior of ones", "truncated levels with a prior of ones",
    "levels' prior from even levels",
)  # fmt: skip


class Joint:
    """A model under its joint distribution with records: compiled once for all its faults."""

    def __init__(self, model, conditions, faults):
        self.model, self.faults = model, faults
        zeros = structural_zeros(conditions, NUM_LEVELS)
        codes = np.zeros((12, 3), int)
        self.data = prepare_records(model, codes, NUM_LEVELS, zeros, trees=TREES)

    def scores(self, key, on=None, num_sweeps=200):
        """Those of `latent.statistics`: the last three are of the bands' shapes."""
        key_chains, key_prior = jax.random.split(jax.random.key(key))
        means = joint_chains(
            self.model, key_chains, self.data, switched(self.faults, on), num_sweeps
        )
        draws = prior_statistics(self.model, key_prior, self.data, 30_000)
        return two_sample_z(means, draws)


@pytest.fixture(scope="module")
def joint():
    model = TNPLCM(components=3, a=1.0, b=1.0, split_merge_every=1)
    return Joint(model, [[1, 1, -1], [2, 1, -1]], FAULTS)


@pytest.mark.long
def test_joint_distribution(joint):
    z = joint.scores(11)
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.long
def test_joint_distribution_rejects(joint, fault):
    z = joint.scores(12, fault)
    assert np.abs(z).max() > Z_LIMIT, z


def test_unknown_variables_are_named():
    table = Microdata.from_frame(pd.DataFrame(CODES, columns=["a", "b", "c"]))
    with pytest.raises(MicrodataError, match="age"):
        NPLCM(ordered=("age",)).check(table)
    assert NPLCM(ordered="a").ordered == ("a",)
    NPLCM(ordered="a").check(table)
