"""Rows that are no records: refused where that is certain, told of where it is likely."""

import logging

import numpy as np
import pandas as pd
import pytest

from bnp_models.data.reading import read_frame
from bnp_models.data.schema import MicrodataError

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({
    "age": RNG.choice(["0-14", "15-64", "65+"], 60),
    "sex": RNG.choice(["F", "M"], 60),
    "region": RNG.choice(["North", "South"], 60),
})  # fmt: skip
HEADER, *RECORDS = FRAME.to_csv(index=False).splitlines()


def read(tmp_path, lines):
    path = tmp_path / "s.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_frame(path)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([HEADER, *RECORDS[:9], HEADER, *RECORDS[9:]], r"row 9 \(line 11\): this is the header"),
        ([HEADER, *RECORDS, "Total,60,60"], r"row 60 \(line 62\), column 'age': 'Total' in the"),
        ([HEADER, *RECORDS, ",,Summe:"], "column 'region': 'Summe:' in the last row only"),
        (RECORDS, "line 1: the first line looks like a record and no header"),
        (["3,1,2", *["1,2,1", "3,1,2", "2,1,2"] * 9], "looks like a record and no header"),
    ],
)
def test_what_is_refused(tmp_path, lines, said):
    with pytest.raises(MicrodataError, match=said):
        read(tmp_path, lines)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([HEADER, "Age group,Sex,Place", *RECORDS], "line 2: no value occurs in any other record"),
        ([HEADER, *RECORDS, "North,3.5,"], "line 62: no value occurs in any other record"),
        ([HEADER, *RECORDS, *RECORDS], "the last 60 rows are the first 60 again"),
        ([HEADER, *RECORDS, *[",,"] * 3], "3 empty rows at the end are left out"),
        (
            [HEADER, *(line if k % 20 == 0 else f",{line.split(',', 1)[1]}"
                       for k, line in enumerate(["0-14,F,North", *RECORDS[1:20], "15-64,F,North",
                                                 *RECORDS[21:40], "65+,F,North", *RECORDS[41:]]))],
            "column 'age' has each of its 3 values once",
        ),
    ],
)  # fmt: skip
def test_what_is_told(tmp_path, lines, said, caplog):
    frame, found = read(tmp_path, lines)
    assert said in caplog.text
    assert len(frame) == len(found) == sum(line != ",," for line in lines) - 1


@pytest.mark.parametrize(
    "lines",
    [
        [HEADER, *RECORDS],
        # One rare value is no reason, nor is a total among others, or a file of names.
        [HEADER, *RECORDS, "85+,F,North"],
        [HEADER, "Total,F,North", *RECORDS, "Total,M,South"],
        ["name,town,job", *(f"n{k},t{k},j{k}" for k in range(60))],
        # Boxes that have the names of their columns where they are ticked.
        ["tv,radio,web", *["tv,,web", ",radio,", "tv,radio,web", ",,web"] * 15],
        # Names that are the codes of their columns.
        ["0,1,2", *["0,1,2", "1,2,0", "2,0,1"] * 21],
    ],
)
def test_nothing_is_said_of_records(tmp_path, lines, caplog):
    caplog.set_level(logging.WARNING)
    frame, _ = read(tmp_path, lines)
    assert len(frame) == len(lines) - 1 and caplog.text == ""


def test_rows_that_end_with_a_separator(tmp_path, caplog):
    frame, _ = read(tmp_path, [HEADER, *(f"{line}," for line in RECORDS)])
    pd.testing.assert_frame_equal(frame, FRAME, check_dtype=False)
    assert "without a name and without values" in caplog.text


def test_an_empty_row_is_a_record_of_one_column(tmp_path):
    assert len(read(tmp_path, ["x", "a", "", "b", ""])[0]) == 4
