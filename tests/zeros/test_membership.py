"""Membership of complete and incomplete records against the cells enumerated."""

import numpy as np
import pytest
from latent import all_cells
from regions import by_definition, enumerated, numbered_schema, random_conditions

from bnp_models.data.schema import MicrodataError
from bnp_models.zeros.structural_zeros import StructuralZeros

pytestmark = pytest.mark.filterwarnings("error")


def test_millions_of_records(sixty):
    rng = np.random.default_rng(5)
    codes = rng.integers(0, sixty.schema.num_levels, (1_000_000, 10), dtype=np.int32)
    impossible = sixty.contains(codes)
    truth = by_definition(sixty.conditions, codes[-20_001:])
    np.testing.assert_array_equal(impossible[-20_001:], truth)
    some = slice(7, 30_000, 3)
    for given in (codes.astype(np.int64), np.asfortranarray(codes), codes.astype(np.uint8)):
        np.testing.assert_array_equal(sixty.contains(given[some]), impossible[some])


def test_incomplete_records(sixty):
    rng = np.random.default_rng(8)
    for _ in range(60):
        num_levels, conditions = random_conditions(rng)
        cells = all_cells(num_levels)
        truth = enumerated(conditions, num_levels).ravel()
        if truth.all():
            continue
        zeros = StructuralZeros.from_codes(conditions, numbered_schema(num_levels))
        records = rng.integers(-1, num_levels, (20, len(num_levels)))
        expected = [
            bool((~truth[((record < 0) | (cells == record)).all(axis=1)]).any())
            for record in records
        ]
        np.testing.assert_array_equal(zeros.admits(records), expected)
    with pytest.raises(MicrodataError, match="row 1, column 'v9': the value is missing"):
        sixty.contains(np.array([[0] * 10, [0] * 9 + [-1]]))


@pytest.mark.parametrize("method", ["contains", "admits"])
@pytest.mark.parametrize(
    ("codes", "parts"),
    [
        ([[0, 0], [0, 2]], ["row 1, column 'v1'", "code 2", "1"]),
        ([[0, 0], [-2, 0]], ["row 1, column 'v0'", "code -2"]),
        ([[2**32, 0]], ["row 0, column 'v0'", "code"]),
        ([0, 0], ["shape (2,)", "(n, 2)"]),
        ([[0, 0, 0]], ["shape (1, 3)"]),
        ([[0.0, 0.0]], ["float64", "integers"]),
    ],
)
def test_codes_that_are_refused(method, codes, parts):
    zeros = StructuralZeros.from_codes(np.array([[0, 1]]), numbered_schema((3, 2)))
    with pytest.raises(MicrodataError) as caught:
        getattr(zeros, method)(np.array(codes))
    assert all(part in str(caught.value) for part in parts), caught.value
