"""Records of the impossible region, by box and one by one: how many, and what adds up."""

import dataclasses

import jax
import numpy as np
import pytest
from harness import Z_LIMIT
from truncated import WIDER, WIDER_CONDITIONS, fit_few_records, structural_zeros

from bnp_models import HDPMixedMembership
from bnp_models.models.mixed_membership.augmentation import augment_by_boxes, augment_by_simulation
from bnp_models.models.mixed_membership.feasible import feasible_totals, log_feasible
from bnp_models.models.mixed_membership.hdp import draw_prior
from bnp_models.models.mixed_membership.start import prepare_records

RECORDS, DRAWS = 5, 4000


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    fit_few_records(monkeypatch)


@pytest.mark.parametrize(
    "concentration", ["shared", pytest.param("record", marks=pytest.mark.long)]
)
def test_impossible_records_are_negative_binomial(concentration):
    """n (1 - P) / P of them on average, with n (1 - P) / P^2 for a variance."""
    model = HDPMixedMembership(concentration=concentration, a=2.0, b0=3.0, level_prior="uniform")
    codes = np.array([[0, 0, 0], [1, 2, 1], [1, 1, 1], [1, 1, 2], [0, 0, 2]])
    zeros = structural_zeros(WIDER_CONDITIONS, WIDER)
    data = prepare_records(model, codes, WIDER, zeros, multiple=8)
    state, _ = draw_prior(model, jax.random.key(1), data.weight.size, WIDER, 4)
    state = dataclasses.replace(state, totals=feasible_totals(state.g0, state.theta, data))
    p = np.exp(float(log_feasible(model, jax.random.key(3), state, data)))
    assert 0.1 < p < 0.9

    @jax.jit
    def both(keys, state, data):
        def one(key):
            return [
                augment(model, key, state, data)
                for augment in (augment_by_boxes, augment_by_simulation)
            ]

        return jax.lax.map(one, keys, batch_size=200)

    found = jax.tree.map(np.asarray, both(jax.random.split(jax.random.key(2), DRAWS), state, data))
    for augmented in found:
        records = augmented.records.astype(float)
        error = np.sqrt(RECORDS * (1 - p) / p**2 / DRAWS)
        z = (records.mean() - RECORDS * (1 - p) / p) / error
        # One record more or less would be seen.
        assert abs(z) < Z_LIMIT < (1 - p) / p / error
        assert abs(records.var() / DRAWS / error**2 - 1) < 0.15
    # One by one, all items of the records are there.
    levels = np.split(found[1].levels.sum(axis=2), np.cumsum(WIDER)[:-1], axis=1)
    for of_variable in levels:
        np.testing.assert_array_equal(of_variable.sum(axis=1), found[1].records)
    tables = found[1].tables.sum(axis=1)
    assert (tables >= found[1].records).all() and (tables <= len(WIDER) * found[1].records).all()
    # By box, items that are free in a box are left out.
    assert (found[0].levels.sum(axis=(1, 2)) <= len(WIDER) * found[0].records).all()
    assert (found[0].tables.sum(axis=1) >= found[0].records).all()
