"""Microdata read from files, and what is said of files that cannot be used."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from bnp_models.data.folders import read_contingency_table
from bnp_models.data.reading import read_frame, read_levels, read_microdata
from bnp_models.data.schema import MicrodataError, Schema, choose_variables
from bnp_models.data.text_files import Reading

pytestmark = pytest.mark.filterwarnings("error")


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_csv_labels_stay_text(tmp_path):
    path = write(tmp_path / "s.csv", '\ufeffx,y\nNA,01\nNone,1\n"a\nb",\n\n,1\n')
    table = read_microdata(path)
    assert table.schema.levels == (("NA", "None", "a\nb"), ("01", "1"))
    np.testing.assert_array_equal(table.codes, [[0, 0], [1, 1], [2, -1], [-1, 1]])


def test_blank_line_of_a_single_column_is_a_missing_value(tmp_path):
    table = read_microdata(write(tmp_path / "s.csv", "x\na\n\nb\n"))
    np.testing.assert_array_equal(table.codes, [[0], [-1], [1]])


def test_parquet_equals_frame(tmp_path):
    frame = pd.DataFrame(
        {
            "x": pd.Categorical(["b", "a"], ["c", "b", "a"]),
            "n": pd.array([1, None], "Int64"),
            "z": 0,
        },
        index=[5, 7],
    )
    frame.to_parquet(tmp_path / "s.parquet")
    table = read_microdata(tmp_path / "s.parquet", levels={"n": ["1", "2"]})
    assert table.schema == Schema(("x", "n", "z"), (("c", "b", "a"), (1, 2), (0,)))
    np.testing.assert_array_equal(table.codes, [[1, 0, 0], [2, -1, 0]])
    assert read_microdata(tmp_path / "s.parquet", ["z"]).num_variables == 1


def test_levels_file(tmp_path):
    levels = write(tmp_path / "levels.csv", "variable,level,note\nx,b,\nx,a,\nx,c,unseen\ny,1,\n")
    sample = write(tmp_path / "s.csv", "x,y,w\na,1,5\nb,1,6\n")
    assert read_levels(levels) == {"x": ("b", "a", "c"), "y": ("1",)}
    schema = read_microdata(sample, ["x"], levels).schema
    assert schema == Schema(("x",), (("b", "a", "c"),))
    with pytest.raises(MicrodataError, match=r"levels.csv, row 3 \(line 5\).*'y'.*'x', 'w'"):
        read_levels(levels, ["x", "w"])
    with pytest.raises(MicrodataError, match=r"'y'.*'x'"):
        read_levels(levels, schema)


@pytest.mark.parametrize(
    ("name", "text", "options", "parts"),
    [
        ("s.csv", "", {}, ["empty"]),
        ("s.csv", "\nx\n", {}, ["line 1", "header"]),
        ("s.csv", "x,y\n", {}, ["0 usable records"]),
        ("s.csv", "x,y\na,b\nc\n", {}, ["row 1 (line 3)", "1 cell ", "header has 2"]),
        ("s.csv", "x,y\na,b\nc,d,e\n", {}, ["row 1 (line 3)", "3 cells"]),
        ("s.csv", 'x,y\na,b\n"c,d\n', {}, ["line 3", "not valid CSV"]),
        ("s.csv", "x,x\na,b\nc,d\n", {}, ["'x'", "twice"]),
        ("s.csv", ",x\n0,b\n1,d\n", {}, ["column 0", "no name"]),
        ("s.csv", "x,y\na,b\nc,d\n", {"variables": ["z"]}, ["'z'", "'x', 'y'"]),
        ("s.csv", "x,y,,z\na,b,,c\nc,d,e,c\n", {}, ["column 2 (0-based)", "no name"]),
        ("s.csv", "x,y,\n" + "a,b\n" * 100 + "a,b,c\n", {}, ["row 100", "value 'c' in column 2"]),
        ("s.csv", 'x,y\na,"b\\"s"\n', {}, ["line 2", 'within quotes is written ""']),
        ("s.csv", "x,y,z\na,,\nb,,\n", {}, ["'y' and 'z' have no level", "(--drop y,z)"]),
        (
            "s.csv",
            'x,"y, of all"\na,1\nb,2\n',
            {"variables": ["x", "y"]},
            ["column 'y'", "'x', 'y, of all'", """write '"y, of all"'"""],
        ),
        (
            "s.csv",
            'x,y\n"a\nb",1\nc,2\n',
            {"levels": {"y": ["1"]}},
            ["row 1 (line 4)", "column 'y'", "value '2'"],
        ),
        ("s.parquet", "not parquet", {}, ["not a Parquet file"]),
    ],
)
def test_file_errors_name_the_file(tmp_path, name, text, options, parts):
    path = write(tmp_path / name, text)
    with pytest.raises(MicrodataError) as caught:
        read_microdata(path, **options)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("name", ["absent.csv", "absent.parquet", "folder", "bytes.csv"])
def test_unreadable_files(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "bytes.csv").write_bytes(b"x\n\x81\n\x8d\n")
    with pytest.raises(MicrodataError, match=name):
        read_microdata(tmp_path / name)
    if name.startswith("absent"):
        with pytest.raises(MicrodataError, match=r"cannot be read \(No such file"):
            read_microdata(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("variable,label\nx,a\n", "'level': unknown column"),
        ("variable,level\nx,\n", r"row 0 \(line 2\), column 'level': the cell is empty"),
        ("variable,level\n,a\n", "column 'variable': the cell is empty"),
        ("variable,level\nx,a\nx,a\n", r"row 1 \(line 3\).*'a' of 'x' is declared twice"),
    ],
)
def test_levels_file_errors(tmp_path, text, part):
    with pytest.raises(MicrodataError, match=part):
        read_levels(write(tmp_path / "levels.csv", text))


@pytest.mark.parametrize("levels", [None, {"x": [1, 2, -9]}])
def test_labels_that_stand_for_missing_values(tmp_path, levels):
    reading = Reading(missing=("-9", "NA", "."))
    frame = pd.DataFrame({"x": [1, -9, 2, 1], "y": pd.Categorical(["a", "b", "NA", "."])})
    frame.to_csv(tmp_path / "s.csv", index=False)
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "s.parquet", tmp_path / "folder" / "0.parquet"):
        frame.to_parquet(path)
    for name, text in (("s.csv", True), ("s.parquet", False)):
        table = read_microdata(tmp_path / name, None, levels, reading)
        assert table.schema.levels == ((("1", "2") if text else (1, 2)), ("a", "b"))
        np.testing.assert_array_equal(table.codes, [[0, 0], [-1, 1], [1, -1], [0, -1]])
    cells = read_contingency_table(tmp_path / "folder", None, levels, reading)
    assert cells.n == 4 and cells.codes.tolist() == table.tabulated.codes.tolist()


@pytest.mark.parametrize(
    "noted", [b"{", b"\xe0", b'{"index_columns": [{"kind": "range"}]}', b"[1]"]
)
def test_damaged_notes_of_pandas_in_parquet(tmp_path, noted):
    table = pa.table({"a": ["x", "y"]}).replace_schema_metadata({"pandas": noted})
    parquet.write_table(table, tmp_path / "s.parquet")
    with pytest.raises(MicrodataError, match="s.parquet: is not a Parquet file"):
        read_microdata(tmp_path / "s.parquet")


def test_bytes_that_are_no_text_in_parquet(tmp_path):
    array = pa.array([b"a", b"\xb2"]).cast(pa.string(), safe=False)
    parquet.write_table(pa.table({"a": array}), path := tmp_path / "s.parquet")
    for read in (read_microdata, read_contingency_table):
        with pytest.raises(MicrodataError, match="s.parquet: is not a Parquet file"):
            read(path)


@pytest.mark.parametrize("nameless", ["", None])
def test_a_column_without_a_name(nameless):
    with pytest.raises(MicrodataError, match=r"column 1 \(0-based\) has no name"):
        choose_variables(None, ["a", nameless])


@pytest.mark.parametrize(
    "text",
    [
        "x,y,\na,b,\nc,d,\n",
        "x,y,\na,b\nc,d\n",
        "x,,y,,\na,,b,,\nc,,d,,\n",
        ",x,y\n1,a,b\n2,a,b\n3,c,d\n",
        "x,y\n1,a,b\n2,a,b\n3,c,d\n",
    ],
)
def test_columns_without_a_name_and_without_values_or_of_row_names(tmp_path, text, caplog):
    path = write(tmp_path / "s.csv", text)
    table = read_microdata(path)
    assert table.schema.variables == ("x", "y")
    assert table.schema.levels == (("a", "c"), ("b", "d"))
    assert caplog.text.count("columns that are left out: ") == 1
    assert read_microdata(path, ["y"]).schema.levels == (("b", "d"),)


def test_a_note_below_the_table_is_told(tmp_path, caplog):
    path = write(tmp_path / "s.csv", "x,y,z\na,b,c\nc,d,c\nSource: a survey,,\n")
    frame, _ = read_frame(path)
    assert len(frame) == 3
    assert "line 4, the last, has 'Source: a survey' and nothing else" in caplog.text
    caplog.clear()
    for text in ("x,y,z\na,b,c\na,,\n", "x,y\na,b\nSource,\n", "x,y,z\na,b,c\nd,e,\n"):
        read_frame(write(path, text))
        assert caplog.text == ""


def test_names_with_line_breaks(tmp_path, caplog):
    path = write(tmp_path / "s.csv", ' x ,"level,\r\n of all"\na,b\nc,d\n')
    frame, lines = read_frame(path)
    assert list(frame) == ["x", "level, of all"] and lines == [3, 4]
    assert "read without line breaks and without blanks at the ends: ' x ' and " in caplog.text


def test_categories_that_no_record_has_are_told(tmp_path, caplog):
    path = tmp_path / "s.parquet"
    column = pd.Categorical(["b", "a", "b"], categories=["c", "b", "a", "d"])
    pd.DataFrame({"x": column}).to_parquet(path)
    for read in (read_microdata, read_contingency_table):
        assert read(path).schema.levels == (("c", "b", "a", "d"),)
        assert "column 'x' has 2 categories that no record has ('c', 'd')" in caplog.text
        caplog.clear()
        assert read(path, levels={"x": ["a", "b"]}).schema.levels == (("a", "b"),)
        assert caplog.text == ""


def test_blanks_around_all_values_of_a_column(tmp_path, caplog):
    path = write(tmp_path / "s.csv", "x, y\na , 1\nb , 2\n  , 1\na,3\n")
    assert read_microdata(path, ["y"]).schema.levels == (("1", "2", "3"),)
    assert "values that are read without blanks at the ends: those of 'y'" in caplog.text
    caplog.clear()
    # They tell values apart: --normalise is asked for.
    table = read_microdata(path, ["x"], levels={"x": ["a", "a ", "b "]})
    assert table.schema.levels == (("a", "a ", "b "),) and list(table.codes[:, 0]) == [1, 2, -1, 0]
    assert read_microdata(path, ["x"]).schema.levels == (("a", "a ", "b "),)
    assert "values that are read" not in caplog.text
    for declared in (["3", "2", "1"], [" 3", " 2", " 1"]):
        read = read_microdata(path, ["y"], levels={"y": declared})
        assert read.schema.levels == (("3", "2", "1"),)
