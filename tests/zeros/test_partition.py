"""Partitions of a union of conditions: every cell of the region once, and few boxes."""

import numpy as np
import pytest
from regions import enumerated, random_conditions, times_covered_of_all

from bnp_models.data.schema import MicrodataError
from bnp_models.zeros import partition
from bnp_models.zeros.boxes import FEASIBLE, IMPOSSIBLE, Boxes
from bnp_models.zeros.union import Union


def unions(number=40):
    rng = np.random.default_rng(3)
    for _ in range(number):
        num_levels, conditions = random_conditions(rng)
        if len(conditions):
            yield Union(conditions, num_levels), enumerated(conditions, num_levels)


def test_boxes_cover_each_cell_of_a_region_once():
    for union, impossible in unions():
        order = range(len(union.fields))
        for region, cells in ((IMPOSSIBLE, impossible), (FEASIBLE, ~impossible)):
            boxes = partition.make_boxes(union, order, region)
            np.testing.assert_array_equal(times_covered_of_all(boxes), cells)


def test_slices_cover_each_impossible_cell_once():
    for union, impossible in unions():
        codes = partition.make_slices(union, range(len(union.fields)))
        boxes = Boxes.from_codes(codes, union.num_levels)
        np.testing.assert_array_equal(times_covered_of_all(boxes), impossible)


def test_levels_of_a_box_need_not_be_neighbours():
    """The ring around the middle of 3 x 3 cells: two whole rows, and both ends of the third."""
    ring = [(a, b) for a in range(3) for b in range(3) if (a, b) != (1, 1)]
    union = Union(np.array(ring), (3, 3))
    assert len(partition.make_boxes(union, range(2), IMPOSSIBLE)) == 2
    assert len(partition.make_slices(union, range(2))) == 4


def test_too_many_boxes_are_refused(monkeypatch):
    monkeypatch.setattr(partition, "_MAX_BOXES", 2)
    union = Union(np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2]]), (3, 3, 3))
    with pytest.raises(MicrodataError, match="3 disjoint boxes, too many to list"):
        partition.make_boxes(union, range(3), IMPOSSIBLE)
