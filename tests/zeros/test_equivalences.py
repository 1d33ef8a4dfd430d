"""Equivalences and tilts against the feasible cells, enumerated."""

import dataclasses
import itertools

import numpy as np
import pytest
from latent import all_cells, feasible_cells, structural_zeros
from regions import check_equivalence, homes, one_hot, random_zeros, some_feasible_cells

from bnp_models.zeros import Equivalence
from bnp_models.zeros.boxes import Boxes
from bnp_models.zeros.equivalences import find_relations, null_space


def check_tilt(tilt, cells, num_levels, rng):
    """A tilted product distribution is the same among the feasible cells."""
    hot = one_hot(cells, num_levels)
    log_p = np.concatenate([np.log(rng.dirichlet(np.ones(levels))) for levels in num_levels])
    weights = [np.exp(hot @ (log_p + t * tilt)) for t in (0, rng.normal())]
    before, after = (weight / weight.sum() for weight in weights)
    np.testing.assert_allclose(after, before, rtol=1e-12)


def test_all_directions_are_found():
    dimensions, wider = [], 0
    for zeros, cells in random_zeros(0, 300):
        num_levels = zeros.schema.num_levels
        hot = one_hot(cells, num_levels)
        occurs = hot.any(axis=0)
        constants = one_hot(np.diag(np.ones(len(num_levels), dtype=int)), (2,) * len(num_levels))
        constants = np.repeat(constants[:, 1::2], num_levels, axis=1) * occurs
        # Main effects that are constant, among those of levels that occur; not counting trivial
        # ones.
        rank = np.linalg.matrix_rank(hot[:, occurs]) if len(cells) else 0
        dimension = occurs.sum() - rank + 1 - len(num_levels)
        assert zeros.tilts.shape == (dimension, sum(num_levels))
        assert len(zeros.equivalences) == dimension
        together = np.vstack([zeros.tilts, constants])
        assert np.linalg.matrix_rank(together) == len(together)
        assert not zeros.tilts[:, ~occurs].any()
        never = [(f"v{j}", level) for j, levels in enumerate(num_levels) for level in range(levels)]
        assert zeros.impossible_levels == tuple(itertools.compress(never, ~occurs))
        assert len(zeros.sentences) == dimension + (~occurs).sum()
        dimensions.append(dimension)
        wider += sum(len(e.variables) > 2 for e in zeros.equivalences)
    assert np.mean(np.array(dimensions) > 0) > 0.2 and max(dimensions) >= 3
    assert wider > 0


def test_equivalences_hold_and_tilts_are_free():
    rng = np.random.default_rng(1)
    for zeros, cells in random_zeros(2, 200):
        for equivalence, tilt in zip(zeros.equivalences, zeros.tilts, strict=True):
            check_equivalence(equivalence, zeros, cells)
            check_tilt(tilt, cells, zeros.schema.num_levels, rng)


def test_the_checks_of_tilts_see_faults(real):
    zeros, rng = real[60], np.random.default_rng(3)
    cells = some_feasible_cells(zeros, 2_000, 4)
    tilt = zeros.tilts[0]
    check_tilt(tilt, cells, zeros.schema.num_levels, rng)
    for wrong in (abs(tilt), np.maximum(tilt, 0), np.roll(tilt, 1)):
        with pytest.raises(AssertionError):
            check_tilt(wrong, cells, zeros.schema.num_levels, rng)
    equivalence = zeros.equivalences[0]
    check_equivalence(equivalence, zeros, cells)
    first, second = equivalence.levels
    for wrong in (
        {"levels": (first[:1], second), "weights": ((1,), (-1,))},
        {"weights": equivalence.weights[::-1]},
        {"variables": equivalence.variables[::-1]},
        {"total": 1},
    ):
        with pytest.raises((AssertionError, ValueError)):
            check_equivalence(dataclasses.replace(equivalence, **wrong), zeros, cells)


def test_sixty_real_conditions(real):
    zeros = real[60]
    cells = feasible_cells(zeros.conditions, zeros.schema.num_levels)
    assert zeros.sentences == (
        "OWNERSHP is one of 1, 3 if and only if MORTGAGE is 1",
        "EMPSTAT is 1 if and only if DISABWRK is 1",
        "AGE is one of 1, 2 if and only if EMPSTAT is 1",
        "AGE is one of 1, 2, 3 if and only if VETSTAT is 1",
    )
    rng = np.random.default_rng(8)
    for equivalence, tilt in zip(zeros.equivalences, zeros.tilts, strict=True):
        check_equivalence(equivalence, zeros, cells)
        check_tilt(tilt, cells[::9], zeros.schema.num_levels, rng)


def test_seventy_three_conditions(real):
    zeros = real[73]
    assert zeros.sentences == (
        "tenure is one of 1, 2 if and only if mortgage is 0",
        "age is 0 if and only if employment is 0",
        "age is 0 if and only if disability is 0",
        "age is one of 0, 1 if and only if veteran is 0",
    )
    cells = some_feasible_cells(zeros, 5_000, 9)
    rng = np.random.default_rng(10)
    for equivalence, tilt in zip(zeros.equivalences, zeros.tilts, strict=True):
        check_equivalence(equivalence, zeros, cells)
        check_tilt(tilt, cells, zeros.schema.num_levels, rng)


def test_words():
    zeros = homes([{"rooms": 1}])
    assert zeros.sentences == (
        "ownership is one of 'rented', 'free' if and only if mortgage is 'not applicable'",
        "level 1 of rooms never occurs",
    )
    assert zeros.equivalences == (
        Equivalence(
            ("ownership", "mortgage"), (("rented", "free"), ("not applicable",)), ((1, 1), (-1,)), 0
        ),
    )
    np.testing.assert_array_equal(zeros.tilts, [[0, 1, 1, -1, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("feasible", "sentence"),
    [
        (
            [(1, 0, 0), (0, 1, 0), (0, 0, 1)],
            "always exactly 1 of these 3 hold: v0 is 1; v1 is 1; v2 is 1",
        ),
        (
            [(0, 0, 0), (1, 1, 0), (2, 1, 0), (1, 0, 1), (2, 0, 1)],
            "always exactly 1 of these 3 hold: v0 is 0; v1 is 1; v2 is 1",
        ),
        (
            [(0, 0, 0), (1, 0, 1), (1, 1, 0), (2, 1, 1)],
            "these numbers always add up to 2: 2 where v0 is 0; 1 where v0 is 1; 1 where v1 is 1; "
            "1 where v2 is 1",
        ),
    ],
)
def test_relations_of_three_variables(feasible, sentence):
    num_levels = tuple(np.max(feasible, axis=0) + 1)
    infeasible = [cell for cell in all_cells(num_levels).tolist() if tuple(cell) not in feasible]
    zeros = structural_zeros(infeasible, num_levels)
    (equivalence,) = zeros.equivalences
    check_equivalence(equivalence, zeros, np.array(feasible))
    check_tilt(zeros.tilts[0], np.array(feasible), num_levels, np.random.default_rng(13))
    assert str(equivalence) == sentence
    assert zeros.not_applicable.coding.absent == ()


def test_equivalences_of_pairs_and_wider_ones_together():
    # Three indicators of which one holds, the first of them copied: pairs first.
    feasible = [(1, 0, 0, 1), (0, 1, 0, 0), (0, 0, 1, 0)]
    infeasible = [cell for cell in all_cells((2,) * 4).tolist() if tuple(cell) not in feasible]
    zeros = structural_zeros(infeasible, (2,) * 4)
    assert [e.variables for e in zeros.equivalences] == [("v0", "v3"), ("v0", "v1", "v2")]
    assert [a.variable for a in zeros.not_applicable.coding.absent] == [3]


def test_a_one_to_one_relation():
    # Two variables that name one another: two independent equivalences imply the third.
    cells = [(a, b) for a, b in itertools.product(range(3), repeat=2) if a != b]
    zeros = structural_zeros(cells, (3, 3))
    assert zeros.sentences == (
        "v0 is 0 if and only if v1 is 0",
        "v0 is 1 if and only if v1 is 1",
    )


def test_no_conditions():
    zeros = structural_zeros(np.zeros((0, 2), dtype=int), (2, 3))
    assert zeros.equivalences == zeros.sentences == zeros.impossible_levels == ()
    assert zeros.tilts.shape == (0, 5)
    relations = find_relations(zeros.schema, [Boxes(np.ones((1, 5), dtype=bool), (2, 3))])
    assert relations.equivalences == () and relations.absences == ((),)


def test_null_spaces_are_exact():
    rng = np.random.default_rng(14)
    for _ in range(60):
        size, width, scale = rng.integers(1, 9), rng.integers(1, 9), rng.choice([1, 3, 10**5])
        rows = rng.integers(-scale, scale + 1, (size, width))
        rows[:, rng.integers(width)] = rows[:, 0]
        basis = null_space(rows)
        rank = np.linalg.matrix_rank(rows)
        assert basis.shape == (width - rank, width)
        assert not (rows.astype(object) @ basis.T.astype(object)).any()
        assert np.linalg.matrix_rank(basis.astype(float)) == width - rank
        assert all(np.gcd.reduce(vector) == 1 for vector in basis)
