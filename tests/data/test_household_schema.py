"""Schemas of households that are refused, and labels that stand for sizes."""

import numpy as np
import pytest

from bnp_models.data.household_schema import HouseholdSchema, codes_of_sizes
from bnp_models.data.schema import MicrodataError, Schema

pytestmark = pytest.mark.filterwarnings("error")


def test_a_schema_checks_itself():
    table = Schema(("a", "b"), ((0, 1), (0, 1)))
    with pytest.raises(MicrodataError, match="identifier is among the variables"):
        HouseholdSchema(table, "a")
    with pytest.raises(MicrodataError, match="'c': unknown column"):
        HouseholdSchema(table, "hid", ("c",))
    with pytest.raises(MicrodataError, match="'b': unknown household variable; .* are 'a'"):
        HouseholdSchema(table, "hid", ("a",), size_variable="b")


@pytest.mark.parametrize(
    ("labels", "codes"),
    [
        (("1", "2", "3+"), [0, 1, 2, 2]),
        ((3, 1, 2), [1, 2, 0, -1]),
        (("4 or more", "1", " 2 "), [1, 2, -1, 0]),
        (("one", "2"), [-1, 1, -1, -1]),
    ],
)
def test_labels_that_stand_for_sizes(labels, codes):
    np.testing.assert_array_equal(codes_of_sizes(labels, np.array([1, 2, 3, 9])), codes)


def test_no_code_of_a_head_that_is_a_member():
    schema = HouseholdSchema(Schema(("a", "b"), ((0, 1), (0, 1))), "hid")
    with pytest.raises(ValueError, match="not at household level"):
        schema.head_code  # noqa: B018
