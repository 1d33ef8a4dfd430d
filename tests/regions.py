"""Boxes checked against the region that they are to make up, without enumerating its cells."""

import numpy as np

from bnp_models.zeros.boxes import FEASIBLE, IMPOSSIBLE, Boxes, level_offsets
from bnp_models.zeros.membership import reach, walkers_at_once


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
