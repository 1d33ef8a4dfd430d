"""Variables and levels, and errors that name the place."""

import numpy as np
import pandas as pd
import pytest

from bnp_models.data.schema import (
    MicrodataError,
    Schema,
    choose_variables,
    content_digest,
    declared_levels,
    in_type_of,
    levels_of_frame,
)

SCHEMA = Schema(("age", "sex"), ((10, 20, 30), ("m", "f")))


def test_an_error_names_file_row_line_and_column():
    error = MicrodataError("no value", row=3, column="age")
    assert str(error) == "row 3, column 'age': no value"
    placed = error.in_file("persons.csv", lines=[2, 3, 4, 7])
    assert str(placed) == "persons.csv, row 3 (line 7), column 'age': no value"
    assert str(MicrodataError("no value")) == "no value"
    assert str(MicrodataError("no value", line=2)) == "line 2: no value"


def test_a_schema_counts_and_encodes():
    assert SCHEMA.num_levels == (3, 2) and SCHEMA.num_cells == 6
    assert hash(SCHEMA) == hash(Schema(SCHEMA.variables, SCHEMA.levels))
    assert [SCHEMA.encode("age", label) for label in (20, "20", 20.0, np.int64(20))] == [1] * 4
    wide = Schema(tuple(map(str, range(99))), (tuple(range(10)),) * 99)
    assert wide.num_cells == 10**99
    with pytest.raises(MicrodataError, match="'income': unknown column; the columns are 'age'"):
        SCHEMA.encode("income", 1)
    with pytest.raises(MicrodataError, match="value 40 is not a declared level"):
        SCHEMA.encode("age", 40)


@pytest.mark.parametrize(
    ("variables", "levels", "message"),
    [
        ((), (), "no variable is chosen"),
        (("a", "b"), (("x",),), "2 variables but 1 lists of levels"),
        (("a", "a"), (("x",), ("y",)), "'a': the variable is listed twice"),
        (("a",), ((),), "'a': the variable has no level"),
        (("a",), ((1, "1"),), "level '1' is declared twice"),
    ],
)
def test_a_schema_that_cannot_be(variables, levels, message):
    with pytest.raises(MicrodataError, match=message):
        Schema(variables, levels)


def test_chosen_variables():
    assert choose_variables(None, ["a", "b"]) == ("a", "b")
    assert choose_variables("b", ["a", "b"]) == ("b",)
    for chosen, names, message in (
        (["c"], ["a"], "unknown column"), (["a", "a"], ["a"], "listed twice"),
        (None, ["a", "a"], "occurs twice"), ([], ["a"], "no variable is chosen"),
        (None, ["a", ""], "column 1 .* has no name"),
    ):  # fmt: skip
        with pytest.raises(MicrodataError, match=message):
            choose_variables(chosen, names)


def test_declared_levels_of_all_forms():
    frame = pd.DataFrame([("sex", "m"), ("age", 20.0), ("sex", "f")], columns=["variable", "level"])
    assert levels_of_frame(frame, None) == {"sex": ("m", "f"), "age": (20,)}
    assert declared_levels(frame, ["age", "sex"]) == levels_of_frame(frame, None)
    assert declared_levels(SCHEMA, []) == {"age": (10, 20, 30), "sex": ("m", "f")}
    assert declared_levels(None, ["age"]) == {}
    with pytest.raises(MicrodataError, match="row 1, column 'variable': unknown variable 'age'"):
        levels_of_frame(frame, ["sex"])
    with pytest.raises(MicrodataError, match="row 3, column 'level': level 'm' of 'sex' is decl"):
        levels_of_frame(pd.concat([frame, frame[:1]]), None)
    with pytest.raises(MicrodataError, match="'level': unknown column"):
        declared_levels(frame[["variable"]], ["sex"])


def test_declared_labels_take_the_type_of_those_seen():
    assert in_type_of(["1"], [1, 2]) == ["1", "2"]
    assert in_type_of([1], ["1", "2"]) == [1, 2]
    # Not where an integer would lose the text.
    assert in_type_of([1], ["01", "2"]) == ["01", "2"]
    assert in_type_of([], ["01"]) == ["01"]


def test_the_digest_is_of_names_levels_and_values():
    codes = np.array([[0, 1], [2, 0]])
    digest = content_digest(SCHEMA, codes)
    assert digest == content_digest(Schema(SCHEMA.variables, SCHEMA.levels), codes.copy())
    others = (
        content_digest(SCHEMA, codes.T),
        content_digest(Schema(("a", "s"), SCHEMA.levels), codes),
    )
    assert digest not in others
