"""Mixed membership with levels in bands or groups against exact posterior means."""

import jax
import numpy as np
import pytest
from harness import Z_LIMIT
from truncated import (
    LEVELS,
    exact_means,
    fit_few_records,
    posterior_chains,
    prepared,
    scores,
    switched,
)

from bnp_models import HDPMixedMembership
from bnp_models.models.mixed_membership import sweep

LONG = pytest.mark.long
# A smaller alpha_0 than the default's, for which few slots hold nearly all of the mass.
ALL_MOVES = {
    "b0": 3.0, "split_merge_every": 1, "dish_stride": 2, "cell_stride": 1, "seating_every": 3,
    "trajectory_steps": 4,
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    fit_few_records(monkeypatch)
    monkeypatch.setattr(sweep, "DISH_SLOTS", (4, 4))


def posterior_scores(name, key, switches=None, num_sweeps=200, **how):
    """Those of `truncated.exact_means`; the last is of the bands' concentration."""
    model = HDPMixedMembership(**ALL_MOVES, **how)
    data, ends = prepared(model, name)
    means = posterior_chains(
        model, jax.random.key(key), data, ends, switches or {}, num_sweeps, num_sweeps // 4,
        num_chains=64, capacity=8, num_levels=LEVELS[name],
    )  # fmt: skip
    z = scores(means, exact_means(model, name))
    return z if model.level_prior == "learned" else z[:-1]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param("ordered, without", {}, marks=LONG),
        pytest.param("ordered, equivalence", {}, marks=LONG),
        pytest.param("ordered", {}, marks=LONG),
        pytest.param("ordered", {"level_prior": "uniform"}, marks=LONG),
        pytest.param("ordered", {"augmentation": "simulation"}, marks=LONG),
        pytest.param("groups, without", {}, marks=LONG),
        pytest.param("groups", {}, marks=LONG),
    ],
)
def test_posterior_means(name, how):
    z = posterior_scores(name, 3, **how)
    assert np.abs(z).max() < Z_LIMIT, z


# Faults, and sweeps after which they are seen: the other moves undo most of what a tilt does.
FAULTS = {
    "trajectory without bands": 1000,
    "tilt without bands": 8000,
    "split-merge with a prior of ones": 1000,
    "levels' prior without impossible records": 1000,
}


@LONG
@pytest.mark.parametrize("fault", FAULTS)
def test_posterior_means_reject(fault):
    z = posterior_scores("ordered, equivalence", 4, switched(FAULTS, fault), FAULTS[fault])
    assert np.abs(z).max() > Z_LIMIT, z
