"""Simulated households against the probability of every household."""

import jax
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value
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

from bnp_models.kernels.nested.parameters import log_class_weights
from bnp_models.kernels.nested.simulation import DrawnVariables, simulate_households

LANES = 40_000
VALUES = parameters()


def simulate(key, has_head, slots=3 * LANES):
    tables = make_tables(VALUES, has_head)
    log_weight = log_class_weights(tables, VALUES[2][HOUSEHOLD.size_rows], SIZES, has_head)
    others = tuple(size - has_head for size in SIZES)

    def run(key):
        drawn = DrawnVariables(HOUSEHOLD, MEMBER, has_head)
        return simulate_households(key, tables, log_weight, others, LANES, slots, drawn)

    return jax.tree.map(np.asarray, jax.jit(run)(key))


def joint(codes):
    return codes[0] * 2 + codes[1]


@pytest.mark.parametrize("has_head", [False, True])
def test_households_have_their_probability(key, has_head):
    """Of those with one head where it is drawn apart; it comes first then."""
    new = simulate(key, has_head)
    assert new.used.all()
    probability, _ = class_probabilities(VALUES)
    index, weight = {}, []
    for household, p in zip(all_households(), probability, strict=True):
        home, i, members = household
        if has_head and (not IS_HEAD[members[0]] or IS_HEAD[list(members)].sum() != 1):
            continue
        index[household] = len(weight)
        # The head may be at any place.
        weight.append(p * (SIZES[i] if has_head else 1))
    weight = np.array(weight)
    members = joint(new.members)
    heads = joint(new.head[1]) if has_head else None
    number = np.array(SIZES)[new.size] - has_head
    drawn = []
    for b in range(LANES):
        others = tuple(members[new.first[b] : new.first[b] + number[b]].tolist())
        head = (int(heads[b]),) if has_head else ()
        drawn.append((int(new.codes[0, b]), int(new.size[b]), head + others))
    assert index.keys() >= set(drawn)
    counts = np.bincount([index[one] for one in drawn], minlength=len(weight))
    assert chi_square_p_value(counts, weight.sum(axis=1)) > P_LIMIT
    # Shown to fail: of one class only.
    assert chi_square_p_value(counts, weight[:, 0]) < P_LIMIT
    of_class = np.bincount(new.g, minlength=2)
    assert chi_square_p_value(of_class, weight.sum(axis=0)) > P_LIMIT


def test_a_batch_without_room_is_cut_short(key):
    """Households that are used have their members, and no others; sizes are not selected."""
    new = simulate(key, False, slots=LANES)
    used, size = new.used, np.array(SIZES)[new.size]
    number = used.sum()
    assert used[:number].all() and 0 < number < LANES
    assert np.sum(new.present) == size[used].sum() <= LANES
    of_household = np.repeat(np.arange(number), size[used])
    np.testing.assert_array_equal(new.household[new.present], of_household)
    full = simulate(key, False)
    np.testing.assert_array_equal(full.size[:number], new.size[:number])
