"""Unions of conditions as bit masks, and their cuts, against tables of all cells."""

import numpy as np
from regions import enumerated, random_conditions, times_covered_of_all

from bnp_models.zeros.boxes import Boxes
from bnp_models.zeros.union import Union, merge_in_best_order, merge_masks, single_bits


def cells_of(union, masks):
    """How many masks hold each cell of the whole table."""
    return times_covered_of_all(Boxes(union.sets(sorted(masks)), union.num_levels))


def cases(number=60):
    rng = np.random.default_rng(1)
    for _ in range(number):
        num_levels, conditions = random_conditions(rng)
        if len(conditions):
            yield Union(conditions, num_levels), enumerated(conditions, num_levels)


def test_the_root_is_the_impossible_cells():
    for union, impossible in cases():
        np.testing.assert_array_equal(cells_of(union, union.root) > 0, impossible)


def test_levels_that_no_condition_tells_apart_are_one_part():
    union = Union(np.array([[0, 1], [1, 1], [2, 0]]), (4, 2))
    assert [[union.levels[bit] for bit in bits] for bits in union.level_parts] == [
        [[0, 1], [2], [3]], [[0], [1]]
    ]  # fmt: skip
    assert union.num_levels_of(union.fields[0]) == 4
    assert list(single_bits(0b10110)) == [0b10, 0b100, 0b10000]


def test_a_split_is_the_family_level_by_level():
    for union, impossible in cases():
        for v, j in enumerate(union.variables):
            parts = union.split(union.root, v)
            assert sum(bits for bits, _ in parts) == union.fields[v]
            for bits, child in parts:
                kept = [level for bit in single_bits(bits) for level in union.levels[bit]]
                found = np.take(cells_of(union, child) > 0, kept, axis=j)
                np.testing.assert_array_equal(found, np.take(impossible, kept, axis=j))


def test_components_share_no_variable_and_make_up_the_family():
    for union, _ in cases():
        components = union.components(union.root)
        supports = [union.support(component) for component in components]
        assert sum(supports) == union.support(union.root)
        assert frozenset().union(*components) == union.root


def test_merged_masks_hold_the_same_cells_once():
    rng = np.random.default_rng(2)
    for union, _ in cases():
        # Single cells of level parts: disjoint, and many of them merge.
        masks = [0]
        for bits in union.level_parts:
            masks = [mask | bit for mask in masks for bit in bits][:200]
        masks = [mask for mask in masks if rng.random() < 0.7]
        for merged in (merge_masks(masks, union.fields), merge_in_best_order(union, masks)):
            assert len(merged) <= len(masks)
            np.testing.assert_array_equal(cells_of(union, merged), cells_of(union, masks))
