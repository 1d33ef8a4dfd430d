"""Excel workbooks."""

import importlib.util
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pytest

from bnp_models.data.reading import columns_of_file, read_frame, read_microdata
from bnp_models.data.schema import MicrodataError
from bnp_models.data.text_files import Reading


def test_the_first_sheet(tmp_path):
    path = tmp_path / "s.xlsx"
    frame = pd.DataFrame(
        {"age": [3, 20, 3, None], "note": ["NA", "x", None, None], "w": [1.5, 2, 3, None]}
    )
    with pd.ExcelWriter(path) as writer:
        frame.to_excel(writer, sheet_name="persons", index=False)
        frame[::-1].to_excel(writer, sheet_name="other", index=False)
    assert columns_of_file(path) == ["age", "note", "w"]
    read, lines = read_frame(path, ["age", "note"])
    # The row that is empty is left out.
    assert lines == [2, 3, 4]
    table = read_microdata(path, ["age", "note"])
    assert table.schema.levels == ((3, 20), ("NA", "x"))
    np.testing.assert_array_equal(table.codes, [[0, 0], [1, 1], [0, -1]])
    assert read_microdata(path, ["age"], None, Reading(missing=("20",))).codes.T.tolist() == [
        [0, -1, 0]
    ]
    with pytest.raises(MicrodataError, match=r"row 1 \(line 3\), column 'age': value 20"):
        read_microdata(path, ["age"], {"age": [3]})


def test_what_is_no_workbook(tmp_path, monkeypatch):
    path = tmp_path / "s.xlsx"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(MicrodataError, match="not an Excel workbook"):
        read_microdata(path)
    with pytest.raises(MicrodataError, match="cannot be read"):
        read_microdata(tmp_path / "absent.xlsx")
    pd.DataFrame().to_excel(path, index=False, header=False)
    with pytest.raises(MicrodataError, match="the sheet is empty"):
        read_microdata(path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MicrodataError, match="the package openpyxl"):
        read_microdata(path)


@pytest.mark.parametrize(("part", "old", "new"), [("Types", b"xmlns", b"x"), ("styles", b"<", b"")])
def test_damaged_parts_of_a_workbook(tmp_path, part, old, new):
    path, damaged = tmp_path / "s.xlsx", tmp_path / "damaged.xlsx"
    pd.DataFrame({"a": [1, 2]}).to_excel(path, index=False)
    with zipfile.ZipFile(path) as book, zipfile.ZipFile(damaged, "w") as changed:
        for name in book.namelist():
            content = book.read(name)
            changed.writestr(name, content.replace(old, new) if part in name else content)
    with pytest.raises(MicrodataError, match="damaged.xlsx: is not an Excel workbook"):
        read_microdata(damaged)


def workbook(path, *sheets):
    """A workbook of sheets of cells, None where one is empty."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"s{number}")
        for row in rows:
            sheet.append(row or [None])
    book.save(path)
    return path


CELLS = [["age", "sex", "town"], [1, "f", 7], [2, "m", 7], [2, "f", 8]]


@pytest.mark.parametrize("above", [[["Survey"]], [["Survey"], []], [[], [None, "Survey"]], [[]]])
def test_a_title_is_no_header(tmp_path, above):
    path = workbook(tmp_path / "s.xlsx", [*above, *CELLS])
    number = len(above)
    with pytest.raises(MicrodataError, match=f"--skip {number}$"):
        columns_of_file(path)
    how = Reading(skip=number)
    read, lines = read_frame(path, reading=how)
    assert list(read) == CELLS[0] and read.to_numpy().tolist() == CELLS[1:]
    assert lines == [number + 2, number + 3, number + 4]


def test_what_stands_beside_the_header(tmp_path, caplog):
    path = workbook(tmp_path / "s.xlsx", [[*row, None, ""] for row in CELLS])
    assert columns_of_file(path) == CELLS[0]
    # A value without a name is not left out in silence.
    workbook(path, [[*CELLS[0], None], *([*row, "x"] for row in CELLS[1:])])
    with pytest.raises(MicrodataError, match=r"column 3 \(0-based\) has no name"):
        read_microdata(path)
    assert read_microdata(path, ["age", "town"]).schema.variables == ("age", "town")
    # Row names are, and that is said.
    workbook(path, [[None, *CELLS[0]], *([k, *row] for k, row in enumerate(CELLS[1:]))])
    assert read_microdata(path).schema.variables == tuple(CELLS[0])
    assert (
        "left out: the first, which has no name and a different value in every row" in caplog.text
    )


def test_the_sheet_that_is_asked_for(tmp_path, caplog):
    path = workbook(tmp_path / "s.xlsx", [["note"], ["x"], ["y"]], CELLS)
    assert columns_of_file(path) == ["note"]
    assert "read the first of 2 sheets, 's0' (--sheet)" in caplog.text
    note = workbook(tmp_path / "note.xlsx", [["note"], ["x"]], CELLS)
    with pytest.raises(MicrodataError, match="'s0', has no table of records.* such as --sheet s1"):
        read_microdata(note)
    for sheet in ("s1", "2"):
        assert columns_of_file(path, Reading(sheet=sheet)) == CELLS[0]
    with pytest.raises(MicrodataError, match="has no sheet '3'; the sheets are 's0', 's1'"):
        columns_of_file(path, Reading(sheet="3"))
    (tmp_path / "s.csv").write_text("a,b\n1,2\n")
    with pytest.raises(MicrodataError, match="is no workbook with sheets; leave --sheet out"):
        columns_of_file(tmp_path / "s.csv", Reading(sheet="1"))
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "s.parquet")
    with pytest.raises(MicrodataError, match="no lines above a header; leave --skip out"):
        columns_of_file(tmp_path / "s.parquet", Reading(skip=1))
    for file in (tmp_path / "s.parquet", path):
        with pytest.raises(MicrodataError, match="is no text file; leave --sep out"):
            columns_of_file(file, Reading(sep=";"))
        with pytest.raises(MicrodataError, match="is no text file; leave --encoding out"):
            columns_of_file(file, Reading(encoding="cp1252"))


def test_hidden_sheets_are_read_only_if_asked_for(tmp_path, caplog):
    path = workbook(tmp_path / "s.xlsx", [["old"], *[["x"]] * 5], CELLS)
    book = openpyxl.load_workbook(path)
    book["s0"].sheet_state = "hidden"
    book.active = 1
    book.save(path)
    assert columns_of_file(path) == CELLS[0]
    assert "read the first of 2 sheets that is not hidden, 's1' (--sheet)" in caplog.text
    assert columns_of_file(path, Reading(sheet="s0")) == ["old"]
