"""Judges of simulated households against the rules, one household at a time."""

import jax
import numpy as np
import pytest
from small_households import (
    HOUSEHOLD,
    MEMBER,
    SIZES,
    is_possible,
    make_tables,
    parameters,
    predicate,
    rule_tables,
)

from bnp_models.kernels.nested.judges import judge_by_predicate, judge_by_tables
from bnp_models.kernels.nested.parameters import log_class_weights
from bnp_models.kernels.nested.simulation import DrawnVariables, simulate_households

LANES = 2048


@pytest.mark.parametrize("has_head", [False, True])
def test_both_judges_keep_the_rules(key, has_head):
    values = parameters()
    tables = make_tables(values, has_head)
    log_weight = log_class_weights(tables, values[2][HOUSEHOLD.size_rows], SIZES, has_head)
    others = tuple(size - has_head for size in SIZES)
    by_tables = judge_by_tables(rule_tables(has_head), HOUSEHOLD, MEMBER)
    by_predicate = judge_by_predicate(predicate(has_head), SIZES, (5, 10, 15))

    @jax.jit
    def simulate(key):
        key_draw, key_judge = jax.random.split(key)
        drawn = DrawnVariables(HOUSEHOLD, MEMBER, has_head)
        new = simulate_households(
            key_draw, tables, log_weight, others, LANES, 3 * LANES, drawn
        )  # fmt: skip
        return new, by_tables(new, key_judge), by_predicate(new, key_judge)

    new, one, other = jax.tree.map(np.asarray, simulate(key))
    members = new.members[0] * 2 + new.members[1]
    exact = []
    for b in range(LANES):
        i, first = int(new.size[b]), int(new.first[b])
        joint = members[first : first + others[i]].tolist()
        if has_head:
            joint.append(int(new.head[1][0, b] * 2 + new.head[1][1, b]))
        exact.append(is_possible(int(new.codes[0, b]), joint, has_head))
    assert new.used.all() and 0.05 < np.mean(exact) < 0.95
    np.testing.assert_array_equal(one, exact)
    np.testing.assert_array_equal(other, exact)
