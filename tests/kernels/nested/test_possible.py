"""P(possible) against the sum over all households."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from small_households import (
    HOUSEHOLD,
    IS_HEAD,
    MEMBER,
    all_households,
    class_probabilities,
    is_possible,
    parameters,
    rule_tables,
)

from bnp_models.kernels.nested.judges import log_possible


@pytest.mark.parametrize("has_head", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_sum_over_all_households(has_head, seed):
    values = parameters(seed)
    probability = class_probabilities(values)[0].sum(axis=1)
    good = [is_possible(home, members, has_head) for home, _, members in all_households()]
    np.testing.assert_allclose(probability.sum(), 1, rtol=1e-5)
    apart = jnp.asarray(IS_HEAD) if has_head else None
    log_p = log_possible(*values, rule_tables(has_head), HOUSEHOLD, MEMBER, apart)
    np.testing.assert_allclose(np.exp(log_p), probability[good].sum(), rtol=1e-5)


def test_without_compositions():
    rules = dataclasses.replace(rule_tables(True), compositions=None)
    with pytest.raises(ValueError, match="too many compositions"):
        log_possible(*parameters(), rules, HOUSEHOLD, MEMBER, jnp.asarray(IS_HEAD))
