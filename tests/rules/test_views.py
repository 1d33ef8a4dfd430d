"""Numbers that labels stand for, and households as rules see them."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from ruled import SPOUSE, schema_of

from bnp_models.data.households import Households
from bnp_models.rules import Rules, at_least, household, predicate
from bnp_models.rules.views import OPEN_ENDED, bounds_of_label, look_up, numbers_of

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize(
    ("labels", "least", "most"),
    [
        (("7", "8", "10"), (7, 8, 10), (7, 8, 10)),
        ((0.5, 1, "2 years"), (0.5, 1, 2), (0.5, 1, 2)),
        (
            ("<5", "Under 10", "10–14", "85 and over", "85+", "90 years or older", "5 to 9 years"),
            (0, 0, 10, 85, 85, 90, 5),
            (4, 9, 14, OPEN_ENDED, OPEN_ENDED, OPEN_ENDED, 9),
        ),
        (("3 Years", "5 To 9", "85 And Over"), (3, 5, 85), (3, 9, OPEN_ENDED)),
    ],
)
def test_numbers_of_labels(labels, least, most):
    found = bounds_of_label(schema_of(age=labels), "age")
    np.testing.assert_array_equal(found, [least, most])


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("labels", [(3, 4, 5), (0.5, 1.5, 2.5), (1, 3, 4), ("0-2", "3-5", "6+")])
def test_numbers_of_codes_are_those_of_their_labels(labels, xp):
    """Also where labels are one apart and no integers."""
    schema, codes = schema_of(age=labels), np.array([2, 0, 1, 1])
    found = numbers_of(xp, schema, "age", xp.asarray(codes))
    for number, bound in zip(found, bounds_of_label(schema, "age"), strict=True):
        np.testing.assert_array_equal(number, bound[codes])


def test_the_size_may_be_a_variable():
    frame = pd.DataFrame(
        {"hid": [1, 1, 2], "n": ["2+", "2+", "1"], "relate": ["Head", "Spouse", "Head"]}
    )
    rules = Rules([household(n="2+").implies(at_least(1, SPOUSE)), household(n="2+")])
    for head in (None, ("relate", "Head")):
        table = Households.from_frame(frame, "hid", ["n"], head=head)
        assert table.schema.size_variable == "n"
        np.testing.assert_array_equal(rules.check(table), [True, False])


def test_a_predicate_sees_what_it_names():
    rule = predicate(lambda view: view.is_("age", 3).any(-1), "no age", member=["sex"])
    with pytest.raises(ValueError, match="lack 'age', which a rule reads"):
        Rules([rule]).compile(schema_of())


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("marked", [[], [2], [0, 1, 2], [0, 2, 4, 6, 8], range(10)])
def test_codes_in_a_set_are_truth_values(marked, xp):
    """Also of an empty set, whose negation would be -1 in integers; missing codes are in none."""
    table = np.isin(np.arange(10), list(marked))
    codes = np.arange(-1, 10)
    found = look_up(xp, table, xp.asarray(codes))
    assert found.dtype == bool
    np.testing.assert_array_equal(found, np.isin(codes, list(marked)))
