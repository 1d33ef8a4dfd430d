"""Structural zeros: every compiled form against the cells enumerated, exact counts, errors."""

import itertools

import numpy as np
import pandas as pd
import pytest
from latent import all_cells
from regions import (
    by_definition,
    check_boxes,
    enumerated,
    first_meeting,
    numbered_schema,
    random_conditions,
    times_covered,
    times_covered_of_all,
)

from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.zeros.boxes import Boxes
from bnp_models.zeros.structural_zeros import StructuralZeros, read_conditions

pytestmark = pytest.mark.filterwarnings("error")


def assert_forms_agree(zeros):
    num_levels = zeros.schema.num_levels
    cells = all_cells(num_levels)
    truth = enumerated(zeros.conditions, num_levels)
    np.testing.assert_array_equal(zeros.contains(cells), truth.ravel())
    np.testing.assert_array_equal(zeros.admits(cells), ~truth.ravel())
    slices = Boxes.from_codes(zeros.slices(), num_levels)
    np.testing.assert_array_equal(times_covered_of_all(zeros.impossible), truth)
    np.testing.assert_array_equal(times_covered_of_all(zeros.feasible), ~truth)
    np.testing.assert_array_equal(times_covered_of_all(slices), truth)
    assert zeros.num_impossible_cells == truth.sum() == zeros.impossible.num_cells
    assert zeros.num_feasible_cells == (~truth).sum() == zeros.feasible.num_cells
    check_boxes(zeros, zeros.impossible)
    check_boxes(zeros, zeros.feasible, feasible=True)
    check_boxes(zeros, slices)


def test_sixty_real_conditions(sixty):
    assert sixty.num_impossible_cells == 2_317_030
    assert sixty.schema.num_cells == 2_566_080
    # The best known: 557 slices in the paper, 567 in an R package.
    assert len(sixty.slices()) <= 537
    assert len(sixty.impossible) <= 18
    assert len(sixty.feasible) <= 10
    assert len(sixty.diagram.variable) <= 15
    assert_forms_agree(sixty)


def test_random_conditions():
    rng = np.random.default_rng(20)
    refused = 0
    for _ in range(150):
        num_levels, conditions = random_conditions(rng)
        schema = numbered_schema(num_levels)
        if enumerated(conditions, num_levels).all():
            refused += 1
            with pytest.raises(MicrodataError, match="every combination impossible"):
                StructuralZeros.from_codes(conditions, schema)
        else:
            assert_forms_agree(StructuralZeros.from_codes(conditions, schema))
    assert 10 < refused < 75


def test_all_pairs_of_conditions_of_a_tiny_table():
    rows = [np.array(row) for row in itertools.product((-1, 0, 1), repeat=2) if max(row) >= 0]
    for first, second in itertools.product(rows, rows):
        conditions = np.stack([first, second])
        if not enumerated(conditions, (2, 2)).all():
            assert_forms_agree(StructuralZeros.from_codes(conditions, numbered_schema((2, 2))))


def test_a_table_too_large_to_enumerate(pairwise):
    assert pairwise.conditions.shape == (73, 17)
    assert 0.96 < pairwise.num_impossible_cells / pairwise.schema.num_cells < 0.98
    assert len(pairwise.feasible) <= 128
    assert len(pairwise.impossible) <= 187
    check_boxes(pairwise, pairwise.feasible, feasible=True)
    check_boxes(pairwise, pairwise.impossible)
    assert first_meeting(pairwise.impossible, pairwise.feasible) is None
    assert first_meeting(pairwise.impossible, pairwise.impossible) == (0, 0)
    rng = np.random.default_rng(0)
    cells = rng.integers(0, pairwise.schema.num_levels, (20_000, 17), dtype=np.int32)
    truth = by_definition(pairwise.conditions, cells)
    assert 0 < truth.sum() < len(truth)
    np.testing.assert_array_equal(pairwise.contains(cells), truth)
    np.testing.assert_array_equal(times_covered(pairwise.impossible, cells), truth)
    np.testing.assert_array_equal(times_covered(pairwise.feasible, cells), ~truth)


def test_the_same_conditions_in_another_order_give_the_same_region(sixty):
    again = StructuralZeros.from_codes(sixty.conditions, sixty.schema)
    np.testing.assert_array_equal(again.impossible.sets, sixty.impossible.sets)
    np.testing.assert_array_equal(again.slices(), sixty.slices())
    rng = np.random.default_rng(3)
    shuffled = rng.permutation(np.vstack([sixty.conditions, sixty.conditions[:7]]))
    zeros = StructuralZeros.from_codes(shuffled, sixty.schema)
    assert zeros.num_impossible_cells == sixty.num_impossible_cells
    check_boxes(sixty, zeros.impossible)
    assert len(zeros.impossible) <= 21


def test_no_conditions():
    schema = numbered_schema((3, 2))
    zeros = StructuralZeros.from_frame(pd.DataFrame(columns=["v1"]), schema)
    assert (zeros.num_conditions, zeros.num_impossible_cells) == (0, 0)
    assert (len(zeros.impossible), len(zeros.feasible), len(zeros.slices())) == (0, 1, 0)
    assert zeros.feasible.num_cells == zeros.num_feasible_cells == 6
    assert_forms_agree(zeros)
    zeros.require_feasible(Microdata(schema, np.array([[0, -1]])))
    assert list(zeros.to_frame().columns) == ["v0", "v1"] and len(zeros.to_frame()) == 0


PEOPLE = Schema(("age", "marital", "rooms"), (("0-14", "15+"), ("single", "married"), (1, 2, 10)))


def test_labels_are_matched_by_name():
    frame = pd.DataFrame(
        {"rooms": [None, "10", "", 2.0], "age": ["0-14", "15+", "0-14", np.nan],
         "marital": ["married", pd.NA, "single", None], "income": ["", None, np.nan, pd.NA]}
    )  # fmt: skip
    zeros = StructuralZeros.from_frame(frame, PEOPLE)
    np.testing.assert_array_equal(
        zeros.conditions, [[0, 1, -1], [1, -1, 2], [0, 0, -1], [-1, -1, 1]]
    )
    assert not zeros.conditions.flags.writeable
    again = StructuralZeros.from_frame(zeros.to_frame(), PEOPLE)
    np.testing.assert_array_equal(again.conditions, zeros.conditions)
    text = Schema(PEOPLE.variables, (*PEOPLE.levels[:2], ("1", "2", "10")))
    for rooms in ([1, 10], [1.0, 10.0], ["1", "10"], pd.Categorical([1, 10], [10, 1])):
        for schema in (PEOPLE, text):
            zeros = StructuralZeros.from_frame(pd.DataFrame({"rooms": rooms}), schema)
            np.testing.assert_array_equal(zeros.conditions[:, 2], [0, 2])


@pytest.mark.parametrize(
    ("frame", "parts"),
    [
        ({"age": ["0-14", "90+"]}, ["row 1, column 'age'", "'90+'", "'15+'", "--levels"]),
        ({"age": ["0-14", None]}, ["row 1", "fixes no variable", "remove the row"]),
        ({"sex": ["", "m"], "age": ["15+", ""]}, ["row 1, column 'sex'", "'m'", "add it"]),
        ({"age": ["0-14", "15+"]}, ["every combination impossible", "remove"]),
        ({"age": [["0-14"], "15+"]}, ["column 'age'", "plain labels"]),
        ({"rooms": [1.5]}, ["row 0, column 'rooms'", "1.5"]),
    ],
)
def test_conditions_that_are_refused(frame, parts):
    with pytest.raises(MicrodataError) as caught:
        StructuralZeros.from_frame(pd.DataFrame(frame), PEOPLE)
    message = str(caught.value)
    assert all(part in message for part in parts), message
    assert "\n" not in message


def test_other_conditions_that_are_refused():
    twice = pd.DataFrame([["0-14", "15+"]], columns=["age", "age"])
    with pytest.raises(MicrodataError, match="'age': the column name occurs twice"):
        StructuralZeros.from_frame(twice, PEOPLE)
    with pytest.raises(MicrodataError, match="row 0, column 'marital': code 2"):
        StructuralZeros.from_codes(np.array([[0, 2, -1]]), PEOPLE)
    with pytest.raises(MicrodataError, match="row 1: the condition fixes no variable"):
        StructuralZeros.from_codes(np.array([[0, 1, -1], [-1, -1, -1]]), PEOPLE)


def test_conditions_file(tmp_path):
    path = tmp_path / "zeros.csv"
    path.write_text("marital,note,age\nmarried,,0-14\n\n", encoding="utf-8")
    expected = [[0, 1, -1]]
    np.testing.assert_array_equal(read_conditions(path, PEOPLE).conditions, expected)
    frame = pd.DataFrame({"age": ["0-14"], "marital": ["married"]})
    frame.to_parquet(tmp_path / "zeros.parquet")
    read = read_conditions(tmp_path / "zeros.parquet", PEOPLE)
    np.testing.assert_array_equal(read.conditions, expected)
    path.write_text("marital,age\n", encoding="utf-8")
    with pytest.raises(MicrodataError, match="zeros.csv: has a header and no condition"):
        read_conditions(path, PEOPLE)
    path.write_text("marital,age\n\nmarried,0-14\nwidowed,\n", encoding="utf-8")
    with pytest.raises(MicrodataError, match=r"zeros.csv, row 1 \(line 4\), column 'marital'"):
        read_conditions(path, PEOPLE)
    with pytest.raises(MicrodataError, match="absent.csv: cannot be read"):
        read_conditions(tmp_path / "absent.csv", PEOPLE)


def test_records_in_a_structural_zero():
    frame = pd.DataFrame({"age": ["0-14", "15+", ""], "marital": ["married", "", "single"],
                          "rooms": ["", "10", "2"]})  # fmt: skip
    zeros = StructuralZeros.from_frame(frame, PEOPLE)
    zeros.require_feasible(Microdata(PEOPLE, np.array([[0, 0, 0], [0, -1, 0], [-1, -1, 2]])))
    # A child with two rooms can be neither single nor married.
    records = np.array([[0, 0, 0], [0, -1, 1], [0, 1, 0], [1, -1, 2]])
    with pytest.raises(MicrodataError) as caught:
        zeros.require_feasible(Microdata(PEOPLE, records))
    message = str(caught.value)
    for part in ["row 1: ", "no values are possible for the missing",
                 "'age' = '0-14' and 'rooms' = 2", "3 of 4 records", "correct"]:  # fmt: skip
        assert part in message
    with pytest.raises(MicrodataError, match=r"row 0: 'age' = '0-14' and 'marital' = 'married'"):
        zeros.require_feasible(Microdata(PEOPLE, records[2:]))
    with pytest.raises(MicrodataError, match=r"row 0: 'age' = '15\+' and 'rooms' = 10 cannot"):
        zeros.require_feasible(Microdata(PEOPLE, records[3:]))
    assert [list(zeros.broken_by(record)) for record in records] == [[], [], [0], [1]]
    other = Schema(PEOPLE.variables[:2], PEOPLE.levels[:2])
    with pytest.raises(MicrodataError, match="other variables or levels"):
        zeros.require_feasible(Microdata(other, np.array([[0, 0]])))


def test_a_level_forbidden_alone():
    zeros = StructuralZeros.from_frame(pd.DataFrame({"rooms": [10]}), PEOPLE)
    with pytest.raises(MicrodataError, match=r"row 0: 'rooms' = 10 cannot occur \(row 0 of"):
        zeros.require_feasible(Microdata(PEOPLE, np.array([[0, 0, 2]])))
    assert len(zeros.feasible) == len(zeros.impossible) == 1


def test_groups_share_no_variable_and_multiply():
    schema = Schema(tuple("abcdef"), ((0, 1, 2),) * 6)
    codes = np.full((5, 6), -1)
    codes[0, [0, 3]], codes[1, [3, 4]] = (1, 2), (0, 0)
    codes[2, [1, 5]], codes[3, [1, 5]] = (0, 1), (2, 2)
    codes[4, 2] = 1
    zeros = StructuralZeros.from_codes(codes, schema)
    fixed = [frozenset(np.flatnonzero((g.conditions >= 0).any(axis=0))) for g in zeros.groups]
    assert set(fixed) == {frozenset({0, 3, 4}), frozenset({1, 5}), frozenset({2})}
    assert all(group.groups == (group,) for group in zeros.groups)
    cells = np.array(list(itertools.product(range(3), repeat=6)))
    inside = np.all([~g.contains(cells) for g in zeros.groups], axis=0)
    np.testing.assert_array_equal(inside, ~zeros.contains(cells))
