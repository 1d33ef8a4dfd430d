"""Structural zeros: every compiled form against the table enumerated, exact counts, errors."""

import dataclasses
import importlib.util
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from regions import check_boxes, first_meeting

from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.zeros.structural_zeros import IMPOSSIBLE, Boxes, StructuralZeros, read_conditions

pytestmark = pytest.mark.filterwarnings("error")

HERE = Path(__file__).parents[1]
NUM_LEVELS_60 = (3, 4, 9, 2, 6, 5, 11, 4, 3, 3)


def numbered_schema(num_levels):
    names = tuple(f"v{j}" for j in range(len(num_levels)))
    return Schema(names, tuple(tuple(range(levels)) for levels in num_levels))


def all_cells(num_levels):
    return np.indices(num_levels, dtype=np.int32).reshape(len(num_levels), -1).T


def by_definition(conditions, cells):
    impossible = np.zeros(len(cells), dtype=bool)
    for condition in conditions:
        impossible |= ((condition < 0) | (cells == condition)).all(axis=1)
    return impossible


def enumerated(conditions, num_levels):
    """The whole table, true where impossible."""
    table = np.zeros(num_levels, dtype=bool)
    for condition in conditions:
        table[tuple(slice(None) if code < 0 else code for code in condition)] = True
    return table


def times_covered_of_all(boxes):
    times = np.zeros(boxes.num_levels, dtype=np.int16)
    for box in zip(*boxes.by_variable, strict=True):
        times[np.ix_(*map(np.flatnonzero, box))] += 1
    return times


def times_covered(boxes, cells):
    times = np.zeros(len(cells), dtype=int)
    for box in zip(*boxes.by_variable, strict=True):
        times += np.all([admitted[cells[:, j]] for j, admitted in enumerate(box)], axis=0)
    return times


def random_conditions(rng):
    """Level counts and conditions of a small table: few or many, wide or narrow, repeated."""
    num_levels = tuple(rng.integers(1, 6, rng.integers(1, 7)).tolist())
    num = int(rng.choice([1, 3, 8, 40]))
    conditions = rng.integers(0, num_levels, (num, len(num_levels)), dtype=np.int32)
    conditions[rng.random(conditions.shape) < rng.choice([0.1, 0.4, 0.6])] = -1
    conditions = np.vstack([conditions, conditions[: rng.integers(0, 3)]])
    return num_levels, conditions[(conditions >= 0).any(axis=1)]


@pytest.fixture(scope="module")
def sixty():
    codes = pd.read_csv(HERE / "reference" / "conditions_60.csv").to_numpy() - 1
    return StructuralZeros.from_codes(codes, numbered_schema(NUM_LEVELS_60))


@pytest.fixture(scope="module")
def pairwise():
    path = HERE.parent / "experiments" / "benchmark" / "conditions.py"
    spec = importlib.util.spec_from_file_location("conditions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    num_levels, codes = module.pairwise_conditions()
    return StructuralZeros.from_codes(codes, numbered_schema(num_levels))


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


def test_counts_are_exact_beyond_64_bits():
    levels = 11
    schema = numbered_schema((levels,) * 60)
    conditions = np.full((30, 60), -1)
    for row in range(30):
        conditions[row, [2 * row, 2 * row + 1]] = 3, 4
    zeros = StructuralZeros.from_codes(conditions, schema)
    assert zeros.num_feasible_cells == (levels**2 - 1) ** 30
    assert zeros.num_impossible_cells == levels**60 - (levels**2 - 1) ** 30
    assert Boxes.from_codes(conditions, schema.num_levels).sizes == (levels**58,) * 30
    # 2^30 feasible boxes are counted but not listed; 30 nodes walk the same region.
    assert len(zeros.diagram.variable) == 2 + 60
    with pytest.raises(MicrodataError, match=f"{2**30} disjoint boxes, too many to list"):
        zeros.feasible  # noqa: B018
    np.testing.assert_array_equal(zeros.contains(np.full((2, 60), [[3], [4]])), [False, False])
    np.testing.assert_array_equal(zeros.contains(np.array([[0] * 58 + [3, 4]])), [True])


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
    start = sum(NUM_LEVELS_60[:j])
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


def test_no_conditions():
    schema = numbered_schema((3, 2))
    zeros = StructuralZeros.from_frame(pd.DataFrame(columns=["v1"]), schema)
    assert (zeros.num_conditions, zeros.num_impossible_cells) == (0, 0)
    assert (len(zeros.impossible), len(zeros.feasible), len(zeros.slices())) == (0, 1, 0)
    assert zeros.feasible.num_cells == zeros.num_feasible_cells == 6
    assert_forms_agree(zeros)
    zeros.require_feasible(Microdata(schema, np.array([[0, -1]])))
    assert list(zeros.to_frame().columns) == ["v0", "v1"] and len(zeros.to_frame()) == 0


def test_millions_of_records(sixty):
    rng = np.random.default_rng(5)
    codes = rng.integers(0, NUM_LEVELS_60, (1_000_000, 10), dtype=np.int32)
    impossible = sixty.contains(codes)
    truth = by_definition(sixty.conditions, codes[-20_001:])
    np.testing.assert_array_equal(impossible[-20_001:], truth)
    some = slice(7, 30_000, 3)
    for given in (codes.astype(np.int64), np.asfortranarray(codes), codes.astype(np.uint8)):
        np.testing.assert_array_equal(sixty.contains(given[some]), impossible[some])


@pytest.mark.parametrize("fixture", ["sixty", "pairwise"])
def test_the_walk_runs_under_jit(fixture, request):
    zeros = request.getfixturevalue(fixture)
    strides, table, start = zeros.walk

    @jax.jit
    def impossible(codes):
        index = codes @ strides
        position = jnp.full(len(codes), start, dtype=jnp.int32)
        for g in range(strides.shape[1]):
            position = jnp.asarray(table)[position + index[:, g]]
        return position == IMPOSSIBLE

    num_levels = zeros.schema.num_levels
    rng = np.random.default_rng(6)
    codes = rng.integers(0, num_levels, (5_000, len(num_levels)), dtype=np.int32)
    np.testing.assert_array_equal(impossible(codes), by_definition(zeros.conditions, codes))


def test_edges_carry_probabilities(sixty):
    """Mass flows along the edges to the sum over the impossible cells."""
    rng = np.random.default_rng(7)
    levels = [rng.dirichlet(np.ones(k)) for k in NUM_LEVELS_60]
    table = levels[0]
    for column in levels[1:]:
        table = np.multiply.outer(table, column)
    truth = table[enumerated(sixty.conditions, NUM_LEVELS_60)].sum()
    diagram = sixty.diagram
    weights = diagram.sets @ np.concatenate(levels)
    mass = np.zeros(len(diagram.variable))
    mass[IMPOSSIBLE] = 1
    for parent, child, weight in zip(diagram.parent, diagram.child, weights, strict=True):
        mass[parent] += weight * mass[child]
    assert mass[diagram.root] == pytest.approx(truth, rel=1e-10)
    by_box = np.prod(
        [sets @ p for sets, p in zip(sixty.impossible.by_variable, levels, strict=True)], axis=0
    )
    assert by_box.sum() == pytest.approx(truth, rel=1e-10)


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
    assert read_conditions(path, PEOPLE).num_conditions == 0
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
    for part in ["row 1: ", "no value for the missing ones", "'age' = '0-14' and 'rooms' = 2",
                 "3 of 4 records", "correct"]:  # fmt: skip
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
