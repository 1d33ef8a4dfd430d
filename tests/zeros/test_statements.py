"""What cells of conditions mean."""

import itertools

import numpy as np
import pandas as pd
import pytest

from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.zeros.statements import codes_meant
from bnp_models.zeros.structural_zeros import StructuralZeros

AGES = ("0-14", "15-24", "25 to 64", "65+", "N")
YEARS = (0, 1, 5, 17, 18, 64, 65)


@pytest.mark.parametrize(
    ("text", "labels", "codes"),
    [
        ("15-24", AGES, [1]),
        ("<25", AGES, [0, 1]),
        ("<=24", AGES, [0, 1]),
        (" >= 65 ", AGES, [3]),
        ("≥65", AGES, [3]),
        (">24", AGES, [2, 3]),
        ("0-24", AGES, [0, 1]),
        ("0-14|65+", AGES, [0, 3]),
        ("!N", AGES, [0, 1, 2, 3]),
        ("!0-14|N", AGES, [1, 2, 3]),
        ("!<25", AGES, [2, 3, 4]),
        ("<18", YEARS, [0, 1, 2, 3]),
        ("<=18", YEARS, [0, 1, 2, 3, 4]),
        (">17", YEARS, [4, 5, 6]),
        ("1-17", YEARS, [1, 2, 3]),
        ("5", YEARS, [2]),
        ("5|<1", YEARS, [0, 2]),
        # A label as it is comes first.
        ("a|b", ("a", "b", "a|b"), [2]),
        ("c|a|b", ("a", "a|b", "c"), [1, 2]),
        ("a|b|c", ("a", "a|b", "c"), [1, 2]),
        ("!a|b", ("a", "a|b", "c"), [0, 2]),
        ("<5", ("<5", "5"), [0]),
        ("!x", ("!x", "x"), [0]),
        ("<30000", ("$9,500", "$30,000", "$100,000"), [0]),
        (">=10000", ("under 10000", "10000 and more"), [1]),
        ("-5-0", (-7, -5, 0, 1), [1, 2]),
    ],
)
def test_levels_that_are_meant(text, labels, codes):
    assert codes_meant(text, labels).tolist() == codes


@pytest.mark.parametrize(
    ("text", "labels", "said"),
    [
        ("<20", AGES, "contains only a part of the level '15-24'"),
        (">70", AGES, r"contains only a part of the level '65\+'"),
        ("20-22", AGES, "contains only a part of the level '15-24'"),
        ("16", AGES, "none of the forms <25"),
        ("<0", AGES, "contains no level"),
        ("24-15", AGES, "none of the forms"),
        ("!a|b", ("a", "b"), "excludes every level"),
        ("a|c", ("a", "b"), "'c' is not a declared level"),
    ],
)
def test_what_means_no_level(text, labels, said):
    with pytest.raises(MicrodataError, match=said):
        codes_meant(text, labels)


def test_rows_that_mean_several_combinations():
    schema = Schema(("age", "marital", "rooms"), (AGES, ("single", "married", "widowed"), (1, 2)))
    frame = pd.DataFrame({
        "age": ["<25", "N", None], "marital": ["!single", None, "widowed"],
        "rooms": [None, "1|2", ">1"], "#note": ["children", "?", None],
    })  # fmt: skip
    zeros = StructuralZeros.from_frame(frame, schema)
    assert zeros.num_conditions == 3 and len(zeros.conditions) == 4 + 2 + 1
    young, single, widowed = ("0-14", "15-24"), "single", "widowed"
    for record in itertools.product(*map(range, schema.num_levels)):
        age, marital, rooms = (schema.levels[j][code] for j, code in enumerate(record))
        truth = (
            (age in young and marital != single) or age == "N" or (marital == widowed and rooms > 1)
        )
        assert zeros.contains(np.array([record]))[0] == truth
    # Messages have the rows as written.
    records = Microdata(schema, np.array([[2, 2, 1], [1, 2, 0], [0, 0, 0], [4, 0, 0]]))
    with pytest.raises(MicrodataError, match=r"row 0: .*\(row 2 of .*3 of 4.*\(rows 0, 1, 3\)"):
        zeros.require_feasible(records)
    listed = zeros.impossible_records(records)
    assert listed["row"].tolist() == [0, 1, 3] and listed["condition"].tolist() == [2, 0, 1]
    assert listed["marital"].tolist() == ["widowed", "widowed", "single"]
    assert "'age' = '15-24' and 'marital' = 'widowed'" in listed["why"][1]
    cells = zeros.impossible_records(records.tabulated)
    pd.testing.assert_frame_equal(cells, listed)


def test_rows_that_wait_for_somebody():
    schema = Schema(("age", "marital"), (AGES, ("single", "married")))
    frame = pd.DataFrame({"age": ["0-14", "N"], "marital": ["married"] * 2, "#confirm": ["", "?"]})
    with pytest.raises(MicrodataError, match="row 1, column '#confirm': 1 suggested"):
        StructuralZeros.from_frame(frame, schema)
    assert StructuralZeros.from_frame(frame.drop(columns="#confirm"), schema).num_conditions == 2


def test_rows_that_stand_for_too_many():
    levels = tuple(map(str, range(1001)))
    schema = Schema(("a", "b"), (levels, levels))
    frame = pd.DataFrame({"a": ["1", "<1000"], "b": ["2", "!7"]})
    with pytest.raises(MicrodataError, match="row 1: the row stands for 1,000,000 combinations"):
        StructuralZeros.from_frame(frame, schema)


@pytest.mark.parametrize(("variables", "rows"), [(64, 1), (62, 2), (62, 4)])
def test_rows_that_stand_for_more_than_64_bits_count(variables, rows):
    """The number of one row, or of all rows, is beyond int64: the sum of the last wraps to zero."""
    names = tuple(f"v{j}" for j in range(variables))
    schema = Schema(names, (("a", "b", "c"),) * variables)
    frame = pd.DataFrame({name: ["a|b"] * rows for name in names})
    number = f"{2**variables:,} combinations, and all rows for {rows * 2**variables:,}"
    with pytest.raises(MicrodataError, match=f"row 0: the row stands for {number}"):
        StructuralZeros.from_frame(frame, schema)
