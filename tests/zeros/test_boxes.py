"""The check of boxes, which the other tests rely on, sees what is wrong."""

import dataclasses

import numpy as np
import pytest
from regions import check_boxes

from bnp_models.zeros.boxes import Boxes
from bnp_models.zeros.structural_zeros import StructuralZeros

pytestmark = pytest.mark.filterwarnings("error")


def replaced(boxes, sets):
    return dataclasses.replace(boxes, sets=sets)


def test_the_check_sees_what_is_wrong(sixty):
    boxes = sixty.impossible
    with pytest.raises(ValueError, match="have .* impossible cells of 2317030"):
        check_boxes(sixty, replaced(boxes, boxes.sets[1:]))
    with pytest.raises(ValueError, match="boxes 0 and .* overlap"):
        check_boxes(sixty, replaced(boxes, np.vstack([boxes.sets, boxes.sets[:1]])))
    narrower, wider = boxes.sets.copy(), boxes.sets.copy()
    j = next(j for j, levels in enumerate(boxes.by_variable) if levels[0].sum() > 1)
    start = sum(sixty.schema.num_levels[:j])
    narrower[0, start + np.flatnonzero(narrower[0, start:])[0]] = False
    with pytest.raises(ValueError, match="impossible cells of"):
        check_boxes(sixty, replaced(boxes, narrower))
    wider[0] = True
    with pytest.raises(ValueError, match="overlap|not impossible"):
        check_boxes(sixty, replaced(boxes, wider))
    with pytest.raises(ValueError, match="box 0 has cells that are not impossible"):
        check_boxes(sixty, replaced(boxes, wider[:1]))
    with pytest.raises(ValueError, match="box 0 has cells that are not feasible"):
        check_boxes(sixty, replaced(boxes, wider[:1]), feasible=True)
    with pytest.raises(ValueError, match="other numbers of levels"):
        check_boxes(sixty, Boxes(np.ones((1, 3), dtype=bool), (3,)))


def test_the_check_does_not_trust_the_diagram(sixty):
    # Conditions that the diagram, made before they were swapped in, knows nothing of.
    zeros = StructuralZeros.from_codes(sixty.conditions, sixty.schema)
    boxes = zeros.feasible
    other = np.vstack([sixty.conditions, np.eye(1, 10, 3, dtype=np.int32) - 1])
    object.__setattr__(zeros, "conditions", other.astype(np.int32))
    with pytest.raises(ValueError, match="meets condition 60"):
        check_boxes(zeros, boxes, feasible=True)
