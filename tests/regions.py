"""Small tables and their structural zeros, and boxes checked against the region they make up."""

import itertools

import numpy as np
import pandas as pd
from latent import feasible_cells, structural_zeros

from bnp_models.data.schema import Schema
from bnp_models.zeros.boxes import FEASIBLE, IMPOSSIBLE, Boxes, level_offsets
from bnp_models.zeros.membership import reach, walkers_at_once
from bnp_models.zeros.structural_zeros import StructuralZeros


def numbered_schema(num_levels):
    names = tuple(f"v{j}" for j in range(len(num_levels)))
    return Schema(names, tuple(tuple(range(levels)) for levels in num_levels))


def by_definition(conditions, cells):
    impossible = np.zeros(len(cells), dtype=bool)
    for condition in conditions:
        impossible |= ((condition < 0) | (cells == condition)).all(axis=1)
    return impossible


def enumerated(conditions, num_levels):
    """The whole table, true where impossible."""
    table = np.zeros(num_levels, dtype=bool)
    for condition in conditions:
        table[tuple(slice(None) if code < 0 else code for code in condition)] = True
    return table


def times_covered_of_all(boxes):
    times = np.zeros(boxes.num_levels, dtype=np.int16)
    for box in zip(*boxes.by_variable, strict=True):
        times[np.ix_(*map(np.flatnonzero, box))] += 1
    return times


def times_covered(boxes, cells):
    times = np.zeros(len(cells), dtype=int)
    for box in zip(*boxes.by_variable, strict=True):
        times += np.all([admitted[cells[:, j]] for j, admitted in enumerate(box)], axis=0)
    return times


def random_conditions(rng):
    """Level counts and conditions of a small table: few or many, wide or narrow, repeated."""
    num_levels = tuple(rng.integers(1, 6, rng.integers(1, 7)).tolist())
    num = int(rng.choice([1, 3, 8, 40]))
    conditions = rng.integers(0, num_levels, (num, len(num_levels)), dtype=np.int32)
    conditions[rng.random(conditions.shape) < rng.choice([0.1, 0.4, 0.6])] = -1
    conditions = np.vstack([conditions, conditions[: rng.integers(0, 3)]])
    return num_levels, conditions[(conditions >= 0).any(axis=1)]


def first_meeting(boxes, other=None):
    """The first pair of boxes that share a cell, or None; by default, of one collection."""
    others = boxes if other is None else other
    for start in range(0, len(boxes), 256):
        meet = np.ones((len(boxes.sets[start : start + 256]), len(others)), dtype=bool)
        for mine, theirs in zip(boxes.by_variable, others.by_variable, strict=True):
            # Products of 0 and 1 in float32 are BLAS; a positive sum cannot round to zero.
            block = mine[start : start + 256].astype(np.float32)
            meet &= block @ theirs.T.astype(np.float32) > 0
        if other is None:
            meet &= np.arange(len(boxes)) > start + np.arange(len(meet))[:, None]
        if meet.any():
            first, second = np.argwhere(meet)[0]
            return start + int(first), int(second)
    return None


def check_boxes(zeros, boxes, *, feasible=False):
    """Raise ValueError unless boxes make up the impossible (feasible) cells, each cell once.

    Boxes that are disjoint, lie in the region and have as many cells as it are the region.
    """
    if boxes.num_levels != zeros.schema.num_levels:
        raise ValueError("the boxes have other numbers of levels than the schema")
    if (pair := first_meeting(boxes)) is not None:
        raise ValueError(f"boxes {pair[0]} and {pair[1]} overlap")
    region, outside = ("feasible", IMPOSSIBLE) if feasible else ("impossible", FEASIBLE)
    offsets = level_offsets(zeros.schema.num_levels)
    diagram, step = zeros.diagram, walkers_at_once(zeros.diagram)
    for start in range(0, len(boxes), step):
        some = Boxes(boxes.sets[start : start + step], boxes.num_levels)
        by_variable = [sets.astype(np.float32) for sets in some.by_variable]

        def meets(e, j, by_variable=by_variable):
            return by_variable[j] @ diagram.sets[e, offsets[j] : offsets[j + 1]] > 0

        wrong = np.flatnonzero(reach(diagram, len(some), meets)[outside])
        if wrong.size:
            raise ValueError(f"box {start + wrong[0]} has cells that are not {region}")
    if feasible and zeros.num_conditions:
        # The same from the conditions themselves, in case the diagram is wrong.
        conditions = Boxes.from_codes(zeros.conditions, zeros.schema.num_levels)
        if (pair := first_meeting(boxes, conditions)) is not None:
            raise ValueError(f"box {pair[0]} meets condition {pair[1]}")
    expected = zeros.num_feasible_cells if feasible else zeros.num_impossible_cells
    if boxes.num_cells != expected:
        raise ValueError(f"the boxes have {boxes.num_cells} {region} cells of {expected}")


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


def one_hot(cells, num_levels):
    return np.concatenate(
        [cells[:, j, None] == np.arange(levels) for j, levels in enumerate(num_levels)], axis=1
    ).astype(float)


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
