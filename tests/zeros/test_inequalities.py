"""Conditions that compare the numbers of two variables."""

import itertools
import operator

import numpy as np
import pandas as pd
import pytest

from bnp_models.data.label_numbers import OwnLevel
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.zeros.structural_zeros import StructuralZeros

AGES = tuple(range(15, 26))
YEARS = ("0", "1-3", "4 to 9", "10+", "unknown")
# The numbers that each of these levels stands for.
ENDS = {"0": (0, 0), "1-3": (1, 3), "4 to 9": (4, 9), "10+": (10, np.inf)}
SCHEMA = Schema(("age", "sex", "experience"), (AGES, ("f", "m"), YEARS))
COMPARES = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def impossible(zeros):
    """Impossible records of a schema, as labels."""
    schema = zeros.schema
    return {
        tuple(labels[code] for labels, code in zip(schema.levels, record, strict=True))
        for record in itertools.product(*map(range, schema.num_levels))
        if zeros.contains(np.array([record]))[0]
    }


@pytest.mark.parametrize("sign", COMPARES)
def test_all_numbers_of_two_levels_are_compared(sign):
    """The levels are impossible together if every pair of their numbers is."""
    schema = Schema(("a", "b"), (tuple(range(12)), YEARS))
    truth = {
        (a, b) for a, b in itertools.product(range(12), ENDS)
        if all(COMPARES[sign](a, end) for end in ENDS[b])
    }  # fmt: skip
    frame = pd.DataFrame({"a": [f"{sign} b"], "b": [None]})
    if truth:
        zeros = StructuralZeros.from_frame(frame, schema)
        assert impossible(zeros) == truth
        assert zeros.num_conditions == 1
    # The same from the other side.
    other = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[sign]
    turned = StructuralZeros.from_frame(pd.DataFrame({"b": [f"{other}a"]}), schema)
    assert impossible(turned) == truth


def test_an_inequality_beside_other_cells():
    """Messages have the rows as written, and several sets of levels are intersected."""
    frame = pd.DataFrame({
        "age": [None, "≤experience", "<20", "< experience"],
        "sex": ["f", "m", None, None],
        "experience": [None, None, "4 to 9", "10+"],
    }).iloc[1:]  # fmt: skip
    schema = Schema(SCHEMA.variables, (AGES, ("f", "m"), ("0", "4 to 9", "18-20", "25+")))
    frame.loc[3, "experience"] = "0|25+"
    zeros = StructuralZeros.from_frame(frame, schema)
    truth = set()
    for age, sex, years in itertools.product(*schema.levels):
        low = {"0": 0, "4 to 9": 4, "18-20": 18, "25+": 25}[years]
        below = age < low and years in ("0", "25+")
        if (age <= low and sex == "m") or (age < 20 and years == "4 to 9") or below:
            truth.add((age, sex, years))
    assert impossible(zeros) == truth
    assert zeros.num_conditions == 3
    with pytest.raises(MicrodataError, match=r"'age' = 15 and 'experience' = '25\+'.*\(row 2 of"):
        zeros.require_feasible(Microdata(schema, np.array([[0, 0, 3]])))


def test_labels_without_a_number_are_in_no_inequality():
    schema = Schema(("age", "years"), ((OwnLevel("-1"), 1, 2), ("none", "1", "2")))
    zeros = StructuralZeros.from_frame(pd.DataFrame({"age": ["<=years"]}), schema)
    assert impossible(zeros) == {(1, "1"), (1, "2"), (2, "2")}


def test_three_variables_in_one_row():
    schema = Schema(("a", "b", "c"), (tuple(range(4)),) * 3)
    zeros = StructuralZeros.from_frame(pd.DataFrame({"a": ["<b"], "b": ["<c"]}), schema)
    assert impossible(zeros) == {
        record for record in itertools.product(range(4), repeat=3) if list(record) == sorted(
            set(record)
        )
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"age": ["<age"]}, "row 0, column 'age': '<age' compares the variable with itself"),
        ({"age": ["<sex"]}, "level 'f' cannot be read as a number.*variable 'sex'"),
        ({"sex": [">age"]}, "level 'f' cannot be read as a number.*variable 'sex'"),
        ({"age": [">=weeks"]}, "different units: year and week"),
        ({"age": ["<experiance"]}, "and <B with the name B of another variable"),
        ({"age": ["!<experience"]}, "and <B with the name B of another variable"),
    ],
)
def test_what_cannot_be_compared(cells, said):
    years = tuple(f"{age} years" for age in AGES)
    schema = Schema((*SCHEMA.variables, "weeks"), (years, ("f", "m"), YEARS, ("1 week", "2 weeks")))
    with pytest.raises(MicrodataError, match=said):
        StructuralZeros.from_frame(pd.DataFrame(cells), schema)


def test_labels_come_before_inequalities():
    """A level may be written like an inequality, and a variable's name like a number."""
    schema = Schema(("a", "b", "3"), (("<b", "1", "5"), (1, 2), (1, 4)))
    zeros = StructuralZeros.from_frame(pd.DataFrame({"a": ["<b"], "b": ["<3"]}), schema)
    assert impossible(zeros) == {("<b", b, three) for b in (1, 2) for three in (1, 4)}
    assert zeros.compared == ()
    frame = pd.DataFrame({"a": ["<b", None], "3": [None, ">= b"]})
    assert StructuralZeros.from_frame(frame, schema).compared == ("b", "3")


def test_inequalities_that_exclude_nothing(caplog):
    """As in a file from which the impossible records were removed; coarse levels are warned of."""
    schema = Schema(("age", "years", "band"), ((20, 21), (0, 5), ("0-20", "21-40")))
    frame = pd.DataFrame({"age": ["<years", "20"], "years": [None, "5"]})
    zeros = StructuralZeros.from_frame(frame, schema)
    assert zeros.rows.tolist() == [1] and zeros.num_impossible_cells == 2
    alone = StructuralZeros.from_frame(frame[:1], schema)
    assert alone.num_conditions == 0 and not caplog.messages
    record = Microdata(schema, np.array([[0, 1, 0]]))
    alone.require_feasible(record)
    assert alone.impossible_records(record).empty
    assert not caplog.messages
    # 5 is at least 0, but not at least 20.
    coarse = StructuralZeros.from_frame(pd.DataFrame({"years": [">=band"]}), schema)
    assert coarse.num_conditions == 0
    assert "the condition years >=band excludes nothing" in caplog.text
    caplog.clear()
    assert StructuralZeros.from_frame(pd.DataFrame({"band": [">=age"]}), schema).num_conditions
    assert not caplog.messages
