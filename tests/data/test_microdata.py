"""Coding, levels and cells of microdata."""

import decimal
import math
import subprocess
import sys
import time
import weakref

import numpy as np
import pandas as pd
import pytest

from bnp_models.data.microdata import Microdata, group_cells, once_for_each_table
from bnp_models.data.schema import MicrodataError, Schema

pytestmark = pytest.mark.filterwarnings("error")


def wide_schema(*num_levels):
    return Schema(
        tuple(f"v{j}" for j in range(len(num_levels))), tuple(tuple(range(k)) for k in num_levels)
    )


def test_import_needs_no_sampler():
    code = (
        "import importlib.util as u, sys; s = u.spec_from_file_location('m', sys.argv[1]); "
        "m = u.module_from_spec(s); sys.modules['m'] = m; s.loader.exec_module(m); "
        "assert not {'jax', 'arviz', 'matplotlib'} & set(sys.modules)"
    )
    path = sys.modules["bnp_models.data.microdata"].__file__
    subprocess.run([sys.executable, "-c", code, path], check=True)


def test_codes_and_labels_round_trip():
    frame = pd.DataFrame({"sex": ["m", "f", None, "f"], "rooms": [10, 2, 2, 10]})
    table = Microdata.from_frame(frame)
    assert table.schema == Schema(("sex", "rooms"), (("f", "m"), (2, 10)))
    assert table.schema.num_levels == (2, 2)
    assert table.codes.dtype == np.int32 and table.codes.flags.c_contiguous
    assert not table.codes.flags.writeable
    np.testing.assert_array_equal(table.codes, [[1, 1], [0, 0], [-1, 0], [0, 1]])
    assert (table.n, table.num_variables, table.has_missing) == (4, 2, True)
    assert list(table.complete) == [True, True, False, True]
    pd.testing.assert_frame_equal(table.to_frame(), frame)


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        ([3, 20, 1], (1, 3, 20)),
        (["3", "20", "01", "1"], ("01", "1", "3", "20")),
        (["3", "20", "b"], ("3", "20", "b")),
        ([2.0, np.nan, 10.0], (2, 10)),
        ([2.5, 10.0], (2.5, 10)),
        ([True, False], (False, True)),
        ([1, "1", 2], (1, 2)),
        (["a", "", np.nan, pd.NA, None, "b", "  ", "\t"], ("a", "b")),
        (pd.array([0.1, 2, 1234.56], dtype="float32"), (0.1, 2, 1234.56)),
        ([decimal.Decimal("2.00"), decimal.Decimal("0.10")], (0.1, 2)),
        (pd.Categorical(["lo", "hi"], ["lo", "mid", "hi"]), ("lo", "mid", "hi")),
        (pd.Categorical(["lo", ""], ["", "lo"]), ("lo",)),
        (pd.Categorical(["10-14", "100+", "5-9"]), ("5-9", "10-14", "100+")),
        (pd.Categorical(["10", "5"], ["10", "2", "5"]), ("2", "5", "10")),
        (pd.Categorical(["10", "5"], ["10", "5"], ordered=True), ("10", "5")),
    ],
)
def test_default_levels(values, levels):
    frame = pd.DataFrame({"x": pd.Series(values, dtype=getattr(values, "dtype", object)), "y": 0})
    schema = Microdata.from_frame(frame).schema
    assert schema.levels[0] == levels
    assert [type(label) for label in schema.levels[0]] == [type(label) for label in levels]
    assert schema.levels[1] == (0,)


def test_declared_levels_take_the_type_of_the_column():
    frame = pd.DataFrame({"x": [2, 1], "y": ["2", "1"], "z": [2, 1]})
    levels = {"x": ["1", "2", "3"], "y": [1, 2, 3], "z": ["1", "2", "none"]}
    table = Microdata.from_frame(frame, levels=levels)
    assert table.schema.levels == ((1, 2, 3), ("1", "2", "3"), ("1", "2", "none"))
    np.testing.assert_array_equal(table.codes, [[1, 1, 1], [0, 0, 0]])


def test_declared_levels_as_a_frame_and_as_a_schema():
    frame = pd.DataFrame({"x": ["b", "c"], "y": [1, 1]})
    levels = pd.DataFrame({"variable": ["x"] * 3, "level": ["c", "a", "b"]})
    table = Microdata.from_frame(frame, levels=levels)
    assert table.schema.levels == (("c", "a", "b"), (1,))
    again = Microdata.from_frame(table.to_frame(), levels=table.schema)
    assert again.schema == table.schema
    assert table.schema.encode("x", "b") == 2 and table.schema.encode("y", "1") == 0


@pytest.mark.parametrize(
    ("frame", "options", "parts"),
    [
        ({"x": ["a", "b"]}, {"variables": ["sex"]}, ["'sex'", "unknown", "'x'"]),
        ({"x": ["a", "b"]}, {"variables": ["x", "x"]}, ["'x'", "twice"]),
        ({"x": ["a", "b"]}, {"variables": []}, ["no variable"]),
        ({"x": ["a"]}, {}, ["1 usable record "]),
        ({"x": ["a", None]}, {}, ["1 usable record "]),
        ({"x": []}, {}, ["0 usable records"]),
        ({"x": [None, None], "y": [1, 2]}, {}, ["'x'", "no level"]),
        ({"x": ["a", "b"]}, {"levels": {"x": ["a"]}}, ["row 1", "'x'", "'b'", "not a declared"]),
        ({"x": ["a", "b"]}, {"levels": {"x": ["a", "b", ""]}}, ["'x'", "empty"]),
        ({"x": ["a", "b"]}, {"levels": {"x": ["a", "b", "a"]}}, ["'x'", "'a'", "twice"]),
        ({"x": ["a", "b"]}, {"levels": {"y": ["a", "b"]}}, ["'y'", "unknown"]),
        ({"x": [["a"], ["b"]]}, {}, ["'x'", "plain labels"]),
    ],
)
def test_errors_name_the_place(frame, options, parts):
    with pytest.raises(MicrodataError) as caught:
        Microdata.from_frame(pd.DataFrame(frame), **options)
    message = str(caught.value)
    assert all(part in message for part in parts), message
    assert "\n" not in message


def test_duplicate_column_names():
    frame = pd.DataFrame([[1, 2, 3], [1, 2, 3]], columns=["x", "x", "y"])
    with pytest.raises(MicrodataError, match="'x': the column name occurs twice"):
        Microdata.from_frame(frame)
    assert Microdata.from_frame(frame, ["y"]).num_variables == 1


@pytest.mark.parametrize(
    "codes", [np.zeros((3, 1), int), np.zeros((3, 2)), np.array([[0, 2]]), np.array([[-2, 0]])]
)
def test_wrong_codes_are_refused(codes):
    with pytest.raises(MicrodataError):
        Microdata(wide_schema(2, 2), codes)


def test_require_complete():
    frame = pd.DataFrame({"x": ["a", "b", "b"], "y": ["c", "", None]})
    with pytest.raises(MicrodataError, match=r"row 1, column 'y'.*2 of 3 records.*drop"):
        Microdata.from_frame(frame).cells()
    Microdata.from_frame(frame, ["x"]).require_complete("this")


def test_cells_of_a_small_table():
    codes = np.array([[1, 0], [0, 1], [1, 0], [0, 0]])
    cells = Microdata(wide_schema(2, 2), codes).cells()
    np.testing.assert_array_equal(cells.codes, [[0, 0], [0, 1], [1, 0]])
    np.testing.assert_array_equal(cells.counts, [1, 1, 2])
    np.testing.assert_array_equal(cells.record_cell, [2, 1, 2, 0])
    np.testing.assert_array_equal(cells.sample_uniques, [1, 3])
    np.testing.assert_array_equal(cells.unique_cells, [0, 1])


@pytest.mark.parametrize(
    ("num_levels", "size"),
    [
        ((1,), 1),
        ((30,) * 6 + (4, 1, 1), 2_916_000_000),
        ((2,) * 62 + (1,), 2**62),
        ((2,) * 63, 2**63),
        ((2,) * 64, 2**64),
        ((10,) * 40, 10**40),
        ((2_000,) * 3 + (7,) * 40, 2_000**3 * 7**40),
    ],
)
def test_cells_of_a_table_of_any_size(num_levels, size):
    schema = wide_schema(*num_levels)
    assert schema.num_cells == size == math.prod(num_levels)
    rng = np.random.default_rng(len(num_levels))
    top = np.array(num_levels) - 1
    # Records that differ in one variable only, at the top of the table, are where overflow shows.
    near_top = top - np.minimum(top, np.eye(len(top), dtype=int))
    codes = np.vstack([near_top, near_top[:2], rng.integers(0, num_levels, (50, len(top)))])
    cells = Microdata(schema, codes).cells()
    expected = np.unique(codes, axis=0, return_counts=True, return_inverse=True)
    np.testing.assert_array_equal(cells.codes, expected[0])
    np.testing.assert_array_equal(cells.record_cell, expected[1].ravel())
    np.testing.assert_array_equal(cells.counts, expected[2])
    np.testing.assert_array_equal(cells.codes[cells.record_cell], codes)


def test_a_million_records_are_coded_and_grouped_in_seconds():
    num_levels = (30,) * 10
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.integers(0, num_levels, (1_000_000, 10))).rename(columns=str)
    start = time.perf_counter()
    cells = Microdata.from_frame(frame).cells()
    assert time.perf_counter() - start < 10
    assert cells.counts.sum() == 1_000_000
    assert group_cells(cells.codes, num_levels).counts.max() == 1


def test_results_are_found_once_for_each_table_and_go_with_it():
    found = []

    @once_for_each_table
    def find(table):
        found.append(table.n)
        return table.n

    schema = wide_schema(2, 3)
    table, other = (Microdata(schema, np.zeros((n, 2), np.int32)) for n in (4, 5))
    assert [find(table), find(table), find(other)] == [4, 4, 5] and found == [4, 5]
    gone = weakref.ref(table)
    del table
    assert gone() is None
