"""The not-applicable form of records against the feasible cells, enumerated."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from latent import all_cells, feasible_cells, structural_zeros
from regions import check_coding, homes, random_zeros, some_feasible_cells

from bnp_models import MicrodataError, StructuralZeros
from bnp_models.zeros import Coding
from bnp_models.zeros.coding import choose_absences


def test_codings_are_exact():
    shapes = set()
    for zeros, cells in random_zeros(5, 300):
        coding, left = zeros.not_applicable
        check_coding((coding, left), zeros, cells, all_cells(coding.schema.num_levels))
        single = any(len(e.levels[0]) == 1 or len(e.levels[1]) == 1 for e in zeros.equivalences)
        if not coding.absent:
            assert coding.schema == zeros.schema and coding.sentences == ()
            assert left is (zeros if zeros.num_conditions else None)
            # Complements that are single levels count too.
            assert not single
        shapes.add((len(coding.absent), left is None))
    assert {absent for absent, _ in shapes} >= {0, 1, 2}
    assert {none for _, none in shapes} == {True, False}


def test_the_check_of_codings_sees_faults(real):
    zeros = real[60]
    coding, left = zeros.not_applicable
    cells = some_feasible_cells(zeros, 2_000, 6)
    reduced = np.random.default_rng(7).integers(0, coding.schema.num_levels, (2_000, 10))
    check_coding((coding, left), zeros, cells, reduced)
    first, *others = coding.absent
    faults = [
        {"absent": (first._replace(where=~first.where), *others)},
        {"absent": (first._replace(level=first.level + 1), *others)},
        {"absent": tuple(others)},
    ]
    for fault in faults:
        with pytest.raises((AssertionError, MicrodataError)):
            check_coding((dataclasses.replace(coding, **fault), left), zeros, cells, reduced)
    for wrong in (None, StructuralZeros.from_codes(left.conditions[1:], coding.schema)):
        with pytest.raises(AssertionError):
            check_coding((coding, wrong), zeros, cells, reduced)


def test_sixty_real_conditions(real):
    zeros = real[60]
    cells = feasible_cells(zeros.conditions, zeros.schema.num_levels)
    coding, left = zeros.not_applicable
    assert coding.sentences == (
        "MORTGAGE is absent, in place of 1, where OWNERSHP is one of 1, 3",
        "EMPSTAT is absent, in place of 1, where AGE is one of 1, 2",
        "DISABWRK is absent, in place of 1, where AGE is one of 1, 2",
        "VETSTAT is absent, in place of 1, where AGE is one of 1, 2, 3",
    )
    assert coding.schema.num_levels == (3, 3, 9, 2, 6, 5, 11, 3, 2, 2)
    assert coding.schema.levels[1] == (2, 3, 4)
    check_coding((coding, left), zeros, cells, all_cells(coding.schema.num_levels))
    assert left.num_conditions == 17
    assert len(left.impossible) <= 3 and len(left.feasible) <= 4
    assert left.equivalences == ()


def test_seventy_three_conditions(real):
    zeros = real[73]
    cells = some_feasible_cells(zeros, 5_000, 9)
    rng = np.random.default_rng(10)
    coding, left = zeros.not_applicable
    assert [a.variable for a in coding.absent] == [1, 6, 8, 9]
    reduced = rng.integers(0, coding.schema.num_levels, (20_000, 17))
    check_coding((coding, left), zeros, cells, reduced)
    assert left.num_conditions == 46
    assert sum(len(group.feasible) for group in left.groups) <= 20
    assert left.equivalences == ()


def test_the_expansion_runs_under_jit(real):
    for zeros in real.values():
        coding, left = zeros.not_applicable
        feasible = some_feasible_cells(zeros, 500, 11).astype(np.int32)
        codes = coding.reduce(feasible)
        assert codes.dtype == np.int32
        traces = []

        @jax.jit
        def expand(codes, coding=coding, traces=traces):
            traces.append(codes.shape)
            return coding.expand(codes)

        with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
            expanded = expand(codes)
            anything = np.random.default_rng(12).integers(-1, 9, codes.shape, dtype=np.int32)
            again = expand(jnp.asarray(np.where(codes < 0, anything, codes)))
        assert len(traces) == 1 and expanded.dtype == jnp.int32
        np.testing.assert_array_equal(expanded, feasible)
        np.testing.assert_array_equal(again, feasible)
        np.testing.assert_array_equal(coding.expand(codes.reshape(5, 100, -1))[4], feasible[400:])


def test_words():
    zeros = homes([{"rooms": 1}])
    coding, left = zeros.not_applicable
    assert isinstance(coding, Coding)
    assert coding.sentences == (
        "mortgage is absent, in place of 'not applicable', where ownership is one of 'rented', "
        "'free'",
    )
    assert coding.schema.levels[1] == ("small", "large")
    np.testing.assert_array_equal(left.conditions, [[-1, -1, 0]])
    assert homes().not_applicable.conditions is None


def test_one_level_may_be_left():
    zeros = structural_zeros([(0, 1), (1, 0)], (2, 2))
    coding, left = zeros.not_applicable
    assert coding.schema.num_levels == (2, 1) and left is None
    np.testing.assert_array_equal(coding.reduce(np.array([[0, 0], [1, 1]])), [[0, -1], [1, 0]])


def test_no_chains():
    # Each of four variables says whether the next applies; the first decides for all.
    rows = []
    for j in range(3):
        row = np.full((2, 4), -1)
        row[:, j : j + 2] = (0, 1), (1, 0)
        rows += row.tolist()
    zeros = structural_zeros(rows, (2, 2, 2, 2))
    coding, left = zeros.not_applicable
    assert len(coding.absent) == 3 and len({a.parent for a in coding.absent}) == 1
    check_coding(
        (coding, left), zeros, np.repeat([[0], [1]], 4, axis=1), all_cells(coding.schema.num_levels)
    )


def test_incomplete_records():
    coding = homes().not_applicable.coding
    codes = np.array([[0, -1, -1], [1, -1, 0], [-1, -1, 1], [0, 2, 1]])
    reduced = coding.reduce(codes)
    np.testing.assert_array_equal(reduced, [[0, -1, -1], [1, -1, 0], [-1, -1, 1], [0, 1, 1]])
    # What the parent says about a missing value is filled in.
    codes[1, 1] = 0
    np.testing.assert_array_equal(coding.expand(reduced), codes)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([[0, 1, 0], [0, 0, 0]], "row 1, column 'mortgage': .* 'ownership' = 'owned'; correct"),
        ([[1, 1, 0]], "row 0, column 'mortgage': .* 'ownership' = 'rented'; correct"),
        ([[-1, 1, 0]], "row 0, column 'mortgage': .* 'ownership', which says .* complete it"),
        ([[0, 3, 0]], "row 0, column 'mortgage': code 3"),
        ([[0, 1]], r"shape \(1, 2\)"),
    ],
)
def test_records_that_are_refused(codes, message):
    with pytest.raises(MicrodataError, match=message):
        homes().not_applicable.coding.reduce(np.array(codes))


def test_no_conditions():
    zeros = structural_zeros(np.zeros((0, 2), dtype=int), (2, 3))
    coding, left = zeros.not_applicable
    assert left is None and coding.schema == zeros.schema
    codes = np.array([[0, 2], [-1, 1]])
    np.testing.assert_array_equal(coding.reduce(codes), codes)
    np.testing.assert_array_equal(coding.expand(codes), codes)
    assert choose_absences(zeros.conditions, (2, 3), ()) == ()


def test_a_one_to_one_relation():
    cells = [(a, b) for a in range(3) for b in range(3) if a != b]
    zeros = structural_zeros(cells, (3, 3))
    diagonal = np.array([(0, 0), (1, 1), (2, 2)])
    check_coding(zeros.not_applicable, zeros, diagonal, all_cells((3, 2)))
