"""Person predicates: which are apart, and mistakes."""

import pytest
from ruled import CHILD, HEAD, SPOUSE, schema_of

from bnp_models.rules import aged, person
from bnp_models.rules.persons import AsHousehold, disjoint

pytestmark = pytest.mark.filterwarnings("error")


def test_predicates_of_no_person_at_once():
    schema = schema_of()
    assert disjoint(HEAD, SPOUSE | CHILD, schema)
    assert disjoint(HEAD & aged(30), HEAD & aged(at_most=29), schema)
    assert not disjoint(HEAD & aged(30), HEAD & aged(at_most=30), schema)
    assert not disjoint(HEAD, person(sex="f"), schema)
    # The household may decide.
    assert not disjoint(AsHousehold("race", "owner"), ~AsHousehold("race", "owner"), schema)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="give at_least"):
        aged()
    with pytest.raises(ValueError, match="no label of 'sex'"):
        person(sex=[])
