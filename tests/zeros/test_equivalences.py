"""Equivalences, tilts and the not-applicable coding against the feasible cells, enumerated."""

import dataclasses
import importlib.util
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from latent import all_cells, feasible_cells, structural_zeros

from bnp_models import Coding, Equivalence, MicrodataError, Schema, StructuralZeros
from bnp_models.zeros.boxes import Boxes
from bnp_models.zeros.coding import choose_absences
from bnp_models.zeros.equivalences import find_relations, null_space

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def real():
    path = ROOT / "experiments" / "benchmark" / "conditions.py"
    spec = importlib.util.spec_from_file_location("conditions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {60: module.conditions_60(), 73: module.conditions_73()}


def tied_conditions(rng):
    """Level counts and conditions of a small table, some of which tie two or three variables."""
    num_levels = tuple(rng.integers(1, 5, rng.integers(2, 6)).tolist())
    rows = []
    for _ in range(rng.integers(0, 4)):
        item, parent = rng.choice(len(num_levels), 2, replace=False)
        some = rng.random(num_levels[item]) < 0.4
        if rng.random() < 0.7:
            some = np.arange(num_levels[item]) == rng.integers(num_levels[item])
        where = rng.random(num_levels[parent]) < 0.5
        for a, b in itertools.product(range(num_levels[item]), range(num_levels[parent])):
            if some[a] != where[b]:
                rows.append({item: a, parent: b})
    if len(num_levels) > 2 and rng.random() < 0.3:
        tied = rng.choice(len(num_levels), 3, replace=False)
        weights = [rng.integers(0, 3, num_levels[j]) for j in tied]
        for levels in np.ndindex(*(num_levels[j] for j in tied)):
            if sum(weight[level] for weight, level in zip(weights, levels, strict=True)) != 2:
                rows.append(dict(zip(tied, levels, strict=True)))
    for _ in range(rng.integers(0, 5)):
        fixed = rng.choice(len(num_levels), rng.integers(1, len(num_levels) + 1), replace=False)
        rows.append({j: rng.integers(num_levels[j]) for j in fixed})
    codes = np.full((len(rows), len(num_levels)), -1)
    for row, fixed in zip(codes, rows, strict=True):
        for j, level in fixed.items():
            row[j] = level
    return num_levels, codes


def random_zeros(seed, number, make=tied_conditions):
    """Structural zeros that leave a feasible cell, and their feasible cells."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        num_levels, codes = make(rng)
        cells = feasible_cells(codes, num_levels)
        if len(cells):
            yield structural_zeros(codes, num_levels), cells


def one_hot(cells, num_levels):
    return np.concatenate(
        [cells[:, j, None] == np.arange(levels) for j, levels in enumerate(num_levels)], axis=1
    ).astype(float)


def some_feasible_cells(zeros, number, seed):
    """Cells drawn uniformly from the feasible boxes."""
    rng = np.random.default_rng(seed)
    boxes = zeros.feasible
    sizes = np.array(boxes.sizes, dtype=float)
    box = rng.choice(len(boxes), number, p=sizes / sizes.sum())
    columns = [
        np.argmax(np.where(sets[box], rng.random((number, sets.shape[1])), -1), axis=1)
        for sets in boxes.by_variable
    ]
    return np.stack(columns, axis=1)


def check_tilt(tilt, cells, num_levels, rng):
    """A tilted product distribution is the same among the feasible cells."""
    hot = one_hot(cells, num_levels)
    log_p = np.concatenate([np.log(rng.dirichlet(np.ones(levels))) for levels in num_levels])
    weights = [np.exp(hot @ (log_p + t * tilt)) for t in (0, rng.normal())]
    before, after = (weight / weight.sum() for weight in weights)
    np.testing.assert_allclose(after, before, rtol=1e-12)


def check_equivalence(equivalence, zeros, cells):
    """Its weights add up to its total in every feasible cell; two variables say if and only if."""
    names, labels = zeros.schema.variables, zeros.schema.levels
    total, holds = np.zeros(len(cells), dtype=int), []
    for name, levels, weights in zip(
        equivalence.variables, equivalence.levels, equivalence.weights, strict=True
    ):
        j = names.index(name)
        weight = dict(zip(levels, weights, strict=True))
        total += np.array([weight.get(label, 0) for label in labels[j]])[cells[:, j]]
        holds.append(np.array([label in levels for label in labels[j]])[cells[:, j]])
    np.testing.assert_array_equal(total, equivalence.total)
    if len(holds) == 2:
        np.testing.assert_array_equal(*holds)
        assert " if and only if " in str(equivalence)


def check_coding(form, zeros, feasible, reduced):
    """Exact both ways, on feasible cells and on cells of the reduced schema."""
    coding, conditions = form
    codes = coding.reduce(feasible)
    np.testing.assert_array_equal(coding.expand(codes), feasible)
    absent = np.zeros(feasible.shape, dtype=bool)
    for item, level, parent, where in coding.absent:
        absent[:, item] = where[feasible[:, parent]]
        np.testing.assert_array_equal(absent[:, item], feasible[:, item] == level)
        assert not any(other.variable == parent for other in coding.absent)
    np.testing.assert_array_equal(codes < 0, absent)
    impossible = zeros.contains(coding.expand(reduced))
    if conditions is None:
        assert not impossible.any()
    else:
        np.testing.assert_array_equal(conditions.contains(reduced), impossible)
        assert conditions.schema == coding.schema


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


HOMES = Schema(
    ("ownership", "mortgage", "rooms"),
    (("owned", "rented", "free"), ("not applicable", "small", "large"), (1, 2)),
)


def homes(extra=()):
    rows = [
        {"ownership": "owned", "mortgage": "not applicable"},
        *({"ownership": o, "mortgage": m} for o in ("rented", "free") for m in ("small", "large")),
        *extra,
    ]
    return StructuralZeros.from_frame(pd.DataFrame(rows), HOMES)


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
    coding, left = zeros.not_applicable
    assert isinstance(coding, Coding)
    assert coding.sentences == (
        "mortgage is absent, in place of 'not applicable', where ownership is one of 'rented', "
        "'free'",
    )
    assert coding.schema.levels[1] == ("small", "large")
    np.testing.assert_array_equal(left.conditions, [[-1, -1, 0]])
    assert homes().not_applicable.conditions is None


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
    assert str(equivalence) == equivalence.sentence == sentence
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
    coding, left = zeros.not_applicable
    check_coding((coding, left), zeros, np.array([(0, 0), (1, 1), (2, 2)]), all_cells((3, 2)))


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


def test_no_conditions():
    zeros = structural_zeros(np.zeros((0, 2), dtype=int), (2, 3))
    assert zeros.equivalences == zeros.sentences == zeros.impossible_levels == ()
    assert zeros.tilts.shape == (0, 5)
    coding, left = zeros.not_applicable
    assert left is None and coding.schema == zeros.schema
    codes = np.array([[0, 2], [-1, 1]])
    np.testing.assert_array_equal(coding.reduce(codes), codes)
    np.testing.assert_array_equal(coding.expand(codes), codes)
    relations = find_relations(zeros.schema, [Boxes(np.ones((1, 5), dtype=bool), (2, 3))])
    assert relations.equivalences == () and relations.absences == ((),)
    assert choose_absences(zeros.conditions, (2, 3), ()) == ()


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
