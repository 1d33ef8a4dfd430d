"""Tests of draws from the joint prior of mixed membership."""

import jax
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value

from bnp_models.models.mixed_membership.hdp import HDPMixedMembership, draw_prior
from bnp_models.models.mixed_membership.options import CONCENTRATIONS

RECORDS, LEVELS, CAPACITY = 20_000, 3, 4


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_levels_given_labels_are_those_of_theta_whatever_the_other_labels(concentration):
    model = HDPMixedMembership(concentration=concentration)
    draw = jax.jit(lambda key: draw_prior(model, key, RECORDS, (LEVELS,) * 3, CAPACITY))
    state, codes = draw(jax.random.key(5))
    z, codes, theta = map(np.asarray, (state.z, codes, state.theta))
    p_values = []
    for j, other in ((0, 1), (1, 2), (2, 0)):
        counts = np.zeros((CAPACITY, LEVELS, CAPACITY))
        np.add.at(counts, (z[other], codes[j], z[j]), 1)
        for given in counts:
            expected = theta[j * LEVELS : (j + 1) * LEVELS] * given.sum(axis=0)
            p_values += [
                chi_square_p_value(given[:, k], expected[:, k])
                for k in np.flatnonzero(given.sum(axis=0))
            ]
    assert len(p_values) > 20
    assert min(p_values) > P_LIMIT, np.round(p_values, 4)
