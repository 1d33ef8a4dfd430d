"""Text files as people have them: separators, encodings, compression."""

import bz2
import gzip
import io
import lzma
import zipfile

import pytest

from bnp_models.data.schema import MicrodataError
from bnp_models.data.source import Source
from bnp_models.data.text_files import AS_FOUND, Reading, layout_of, text_rows, written_as

ROWS = [["name", "size"], ["Zoë; the first, of two", "1"], ["Žofie", "2"]]


def zipped(content, *others, name="s.csv"):
    """A zip file, as the Finder of macOS makes it."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for each, held in ((name, content), ("__MACOSX/._s.csv", b"\0notes"), *others):
            archive.writestr(each, held)
    return stream.getvalue()


COMPRESS = {
    "": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zip": zipped,
}  # fmt: skip


def rows_of(path, how=AS_FOUND):
    with Source(path) as source:
        return [cells for _, cells in text_rows(source, how)]


def kind_of(path, how=AS_FOUND):
    with Source(path) as source:
        return written_as(source, how)


def written(sep, quote='"'):
    return "\r\n".join(sep.join(f"{quote}{cell}{quote}" for cell in row) for row in ROWS) + "\r\n"


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
@pytest.mark.parametrize("compressed", COMPRESS)
def test_what_is_told_from_the_file(sep, encoding, compressed, tmp_path, caplog):
    content = written(sep).encode(encoding)
    if encoding == "utf-16-le":
        # Without a mark it is known by its zero bytes: of Western letters.
        content = content.replace("Ž".encode(encoding), "Z".encode(encoding))
    path = tmp_path / "s.csv"
    path.write_bytes(COMPRESS[compressed](content))
    with Source(path) as source:
        rows = [cells for _, cells in text_rows(source, AS_FOUND)]
        assert [cells for _, cells in text_rows(source, AS_FOUND)] == rows
    assert [row[1] for row in rows] == ["size", "1", "2"]
    assert rows[1] == ROWS[1]
    unusual = (sep != ",") + (encoding not in ("utf-8", "utf-8-sig"))
    assert len(caplog.records) == (unusual > 0)
    if encoding == "cp1252":
        assert "read as cp1252 text" in caplog.text


def test_what_is_said_is_not_looked_for(tmp_path, caplog):
    path = tmp_path / "s.csv"
    path.write_bytes("a;b\n1,5;é\n2,5;è\n".encode("latin-1"))
    assert kind_of(path, Reading(",", "latin-1")) == (",", "latin-1")
    assert kind_of(path, Reading("\\t")) == ("\t", "cp1252")
    caplog.clear()
    assert kind_of(path, AS_FOUND) == (";", "cp1252")
    assert "with semicolons between cells" in caplog.text
    # Another file of the same name.
    path.write_text("a,b\n1,2\n")
    assert kind_of(path, AS_FOUND) == (",", "utf-8-sig")


def test_commas_within_cells_are_no_separators(tmp_path):
    for text, sep in (("a;b\n1,5;2,5\n", ";"), ("a;b,c\n1,2\n", ","), ("a\n1;2\n", ","),
                      ("a,b,c\n1,2\n3;4;5,6,7\n", ","), ("", ",")):  # fmt: skip
        path = tmp_path / "s.csv"
        path.write_text(text)
        assert kind_of(path, AS_FOUND)[0] == sep, text
        path.unlink()


@pytest.mark.parametrize(
    ("content", "how", "said"),
    [
        (b"a,b\n\x81,1\n", AS_FOUND, "neither UTF-8, UTF-16 nor Windows-1252"),
        (b"\x89PNG\0\x01\0\0\0\x01", AS_FOUND, "not a text file"),
        ("a,b\né,1\n".encode("latin-1"), Reading(encoding="utf-8"), "is not utf-8 text"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], AS_FOUND, "cannot be read"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:10] + b"\xff" * 9, AS_FOUND, "cannot be read"),
        (bz2.compress(b"a,b\n1,2\n")[:-9], AS_FOUND, "cannot be read"),
        (lzma.compress(b"a,b\n1,2\n")[:-9], AS_FOUND, "cannot be read"),
        (lzma.compress(b"a,b\n1,2\n")[:30] + b"\xff" * 30, AS_FOUND, "cannot be read"),
        (zipped(b"a,b\n1,2\n")[:60], AS_FOUND, "cannot be read"),
        (zipped(b"a", ("b.csv", b"b")), AS_FOUND, "a zip file with 2 files: it must have one"),
        (
            zipped(b"", name="[Content_Types].xml"),
            AS_FOUND,
            "looks like an Excel workbook: its name must end in .xlsx",
        ),
        (
            gzip.compress(b"PAR1\0\1\0\0", mtime=0),
            AS_FOUND,
            "not a text file.*recognised by its name.*not be compressed",
        ),
        (b'a,b\n"1,2\n', AS_FOUND, "line 2.*not valid CSV"),
        (
            b"a,b\n1,2\n",
            Reading(";"),
            "one column with semicolons .* 2 columns with commas; leave --sep",
        ),
        (
            b"a\tb\n1\t2\n",
            Reading("^"),
            "one column with carets between cells, and 2 columns with tabs",
        ),
    ],
    # Archives have the time at which they were made, and names of tests must not.
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_cannot_be_read(content, how, said, tmp_path):
    path = tmp_path / "s.csv"
    path.write_bytes(content)
    with pytest.raises(MicrodataError, match=f"s.csv.*{said}"):
        rows_of(path, how)


def test_one_column_may_have_signs_of_other_files(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("sex, at birth\nmale\nfemale\n")
    assert rows_of(path, Reading(";"))[0] == ["sex, at birth"]


TABLE = [
    ["age", "sex", "region"],
    *([f"{a}-{a + 9}", "fm"[a % 20 > 0], "N"] for a in (0, 10, 20, 30)),
]


def table(sep, rows=TABLE, numbered=False):
    before = [f'"{k}"{sep}' if numbered and k else "" for k in range(len(rows))]
    return "".join(f"{b}{sep.join(row)}\n" for b, row in zip(before, rows, strict=True))


@pytest.mark.parametrize("sep", [" ", ":", "^", "~", "\x01"])
@pytest.mark.parametrize("numbered", [False, True])
def test_rare_separators_are_looked_for_where_there_is_one_column(sep, numbered, tmp_path, caplog):
    """Files of SAS, Hive and the like; R puts the names of rows before the cells."""
    path = tmp_path / "s.txt"
    path.write_text(table(sep, numbered=numbered))
    with Source(path) as source:
        layout = layout_of(source, AS_FOUND)
        assert layout_of(source, AS_FOUND) is layout
    assert layout.names == TABLE[0]
    assert layout.positions == [0 + numbered, 1 + numbered, 2 + numbered]
    assert "between cells; --sep names another character" in caplog.text
    assert ("a different value in every row" in caplog.text) is numbered
    # That other character.
    path.write_text(table(sep))
    assert rows_of(path, Reading(","))[0] == [sep.join(TABLE[0])]


@pytest.mark.parametrize(
    "text",
    [
        "age group\n25 to 44\n45 to 64\n25 to 44\n",
        "place of birth\nLima\nNew York\nRome\n",
        "time\n8:30\n9:10\n8:30\n",
    ],
)
def test_one_column_of_words(text, tmp_path):
    path = tmp_path / "s.csv"
    path.write_text(text)
    assert {len(row) for row in rows_of(path)} == {1}


def test_columns_that_are_aligned_by_blanks_are_refused(tmp_path):
    path = tmp_path / "s.txt"
    path.write_text("".join("{:8}{:6}{:9}\n".format(*row) for row in TABLE))
    with pytest.raises(MicrodataError, match="the rows are 3 words each, .* or say --sep , if"):
        rows_of(path)
    assert {len(row) for row in rows_of(path, Reading(","))} == {1}


@pytest.mark.parametrize("said", ["sep=;", '"sep=;"', "SEP=;\r", "sep=;;;;"])
def test_a_first_line_that_says_what_is_between_cells(said, tmp_path, caplog):
    """Excel's: with the labels of this file, commas would seem to be between cells."""
    rows = [TABLE[0], *([a, s, "N,E,S"] for a, s, _ in TABLE[1:])]
    path = tmp_path / "s.csv"
    path.write_bytes("\ufeff".encode() + f"{said}\n{table(';', rows)}".encode())
    with Source(path) as source:
        lines, cells = zip(*text_rows(source, AS_FOUND), strict=True)
    assert list(cells) == rows and lines == (2, 3, 4, 5, 6)
    assert "with semicolons between cells" in caplog.text
    for how in (Reading(";"), Reading(skip=1), Reading(";", skip=1)):
        assert rows_of(path, how) == rows


@pytest.mark.parametrize("above", ["Table 1", "Table 1;;", "Survey, of 2024\n", 'The "new one'])
def test_lines_above_the_header(above, tmp_path):
    """What the error says is right, whatever stands in the title."""
    path = tmp_path / "s.csv"
    path.write_text(f"{above}\n{table(';')}")
    with pytest.raises(MicrodataError) as error, Source(path) as source:
        layout_of(source, AS_FOUND)
    number = above.count("\n") + 1
    if '"' not in above:
        assert f"header is in line {number + 1}, " in str(error.value)
        assert str(error.value).endswith(f"say --skip {number}")
    how = Reading(skip=number)
    assert kind_of(path, how)[0] == ";" and rows_of(path, how) == TABLE
    with Source(path) as source:
        assert next(text_rows(source, how))[0] == number + 1


def test_how_a_file_cannot_be_written():
    with pytest.raises(MicrodataError, match="skip is -1; give a number of lines, 0 or more"):
        Reading(skip=-1)
    for sep in ("", ";;", '"', "\n"):
        with pytest.raises(MicrodataError, match="cannot separate cells"):
            Reading(sep)
    with pytest.raises(MicrodataError, match="there is no encoding called 'ascii-9'"):
        Reading(encoding="ascii-9")
