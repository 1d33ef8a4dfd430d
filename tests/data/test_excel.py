"""Excel workbooks."""

import importlib.util
import zipfile

import numpy as np
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
    with pytest.raises(MicrodataError, match="the first sheet is empty"):
        read_microdata(path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MicrodataError, match="needs openpyxl"):
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
