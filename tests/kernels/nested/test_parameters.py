"""Weights of household classes against enumeration, levels of variables."""

import jax.numpy as jnp
import numpy as np
import pytest
from small_households import (
    HOUSEHOLD,
    IS_HEAD,
    MEMBER,
    SIZES,
    all_households,
    class_probabilities,
    make_tables,
    parameters,
)

from bnp_models.kernels.nested.parameters import log_class_weight, log_class_weights

VALUES = parameters()
HEADS = np.array([IS_HEAD[list(members)].sum() for _, _, members in all_households()])
SIZE = np.array([i for _, i, _ in all_households()])


def test_class_weights_are_sums_over_households():
    exact, _ = class_probabilities(VALUES)
    tables = make_tables(VALUES, True)
    log_size = VALUES[2][HOUSEHOLD.size_rows]
    for i, size in enumerate(SIZES):
        for heads in range(size + 2):
            weight = np.exp(log_class_weight(tables, log_size[i], size, heads))
            of_these = exact[(SIZE == i) & (HEADS == heads)].sum(axis=0)
            np.testing.assert_allclose(weight, of_these, rtol=1e-5)
        weight = np.exp(log_class_weight(tables, log_size[i], size, None))
        np.testing.assert_allclose(weight, exact[SIZE == i].sum(axis=0), rtol=1e-5)


@pytest.mark.parametrize("has_head", [False, True])
def test_class_weights_of_all_sizes(has_head):
    exact, _ = class_probabilities(VALUES)
    tables = make_tables(VALUES, has_head)
    weights = log_class_weights(tables, VALUES[2][HOUSEHOLD.size_rows], SIZES, has_head)
    counted = (HEADS == 1) | (not has_head)
    of_size = [exact[(i == SIZE) & counted].sum(axis=0) for i in range(len(SIZES))]
    np.testing.assert_allclose(np.exp(weights), of_size, rtol=1e-5)


def test_rows_of_levels():
    assert HOUSEHOLD.first == (0,) and MEMBER.first == (0, 3)
    np.testing.assert_array_equal(HOUSEHOLD.size_rows, [2, 3, 4])
    np.testing.assert_array_equal(MEMBER.block(jnp.arange(5), 1), [3, 4])


def test_cumulative_weights():
    tables = make_tables(VALUES, True)
    log_phi = np.asarray(VALUES[3], float)
    role, age = (np.asarray(table, float) for table in tables.member)
    # Kinds of members are apart: a head has the first level of the role, others have none of it.
    role = role.reshape(2, 2, 2, 3)
    np.testing.assert_allclose(role[0, ..., 0], 0)
    np.testing.assert_allclose(role[1, ..., 0], role[1, ..., 2])
    share = np.exp(log_phi[1]) / np.exp(log_phi[1:3]).sum(axis=0)
    np.testing.assert_allclose(role[0, ..., 1] / role[0, ..., 2], share, rtol=1e-5)
    age = age.reshape(2, 2, 2, 2)
    np.testing.assert_allclose(age[0], age[1])
    np.testing.assert_allclose(age[0, ..., 0] / age[0, ..., 1], np.exp(log_phi[3]), rtol=1e-5)
