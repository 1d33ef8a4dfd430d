"""Text files of records: detection of their format, and their rows."""

import codecs
import contextlib
import csv
import io
import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from bnp_models.data.layout import ROWS, Layout, Row, differ, find_layout
from bnp_models.data.messages import listed, quoted
from bnp_models.data.notation import Notation, check_marks
from bnp_models.data.schema import MicrodataError
from bnp_models.data.source import Source

# The usual ones, and those that are looked for where none of these makes two columns.
_USUAL = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_RARE = {" ": "spaces", ":": "colons", "^": "carets", "~": "tildes", "\x01": "control characters"}

SEPARATORS = _USUAL | _RARE
"""Possible separators of cells, with their names."""

# Bytes that are looked at for the kind of a file.
_HEAD = 2**16

# A first line that says to Excel what is between cells.
_DECLARED = re.compile(r'"?sep=(\\t|.)"?[\s,;]*', re.I)

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reading:
    """Format of files of records, as far as it should not be detected.

    Parameters
    ----------
    sep : str, optional
        Separator between the cells of a text file: one character. By default it is detected: a
        first line such as ``sep=;`` names it; otherwise it is the one of comma, semicolon, tab and
        bar that divides the first rows into equally many cells. If none of these makes two columns,
        space, colon, caret and tilde are tried.
    encoding : str, optional
        Encoding of a text file, as Python names it. By default UTF-8 or UTF-16, or, where it is
        neither, cp1252, the usual one of Western Windows.
    missing : sequence of str, optional
        Labels that stand for a missing value in every column, such as "NA" and "-9", besides empty
        cells.
    skip : int
        Lines of a text file, or rows of a sheet, above the header.
    sheet : str, optional
        Name of the sheet of a workbook, or its number, counted from 1; the first by default.
    decimal, thousands : str, optional
        Decimal mark (a point or a comma) and mark between thousands (comma, point, space or
        apostrophe) of the numbers in all columns of text. By default they are detected in each
        column that `numbers` names.
    numbers : sequence of str, optional
        Columns whose values are needed as numbers, for example because they are put into bins.
    notations : mapping of str to Notation, optional
        By column, the notation of its numbers if a file does not show it. For a synthetic file, for
        example, these are the notations of the original.
    normalise : bool
        Whether labels of a column that are different spellings of one value (`spelling_key`) are
        merged.
    missing_of : sequence of (str, str), optional
        Columns and labels that stand for a missing value in this column alone.

    Raises
    ------
    MicrodataError
        If `sep` is not one character, the encoding is unknown, `skip` is negative, or there is no
        such mark in numbers.

    Examples
    --------
    >>> frame.astype(str).replace("Male", "-9").to_csv("s.csv", sep=";", index=False)
    >>> bnp.read_microdata("s.csv", reading=bnp.io.Reading(missing=["-9"])).schema.num_levels
    (8, 1, 5)
    """

    sep: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()
    skip: int = 0
    sheet: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    numbers: tuple[str, ...] = ()
    notations: Mapping[str, Notation] = field(default_factory=dict, hash=False)
    normalise: bool = False
    missing_of: tuple[tuple[str, str], ...] = ()

    def __post_init__(self):
        if self.skip < 0:
            raise MicrodataError(f"skip is {self.skip}; give a number of lines, 0 or more")
        object.__setattr__(self, "missing", tuple(map(str, self.missing)))
        pairs = tuple((str(column), str(label)) for column, label in self.missing_of)
        object.__setattr__(self, "missing_of", pairs)
        object.__setattr__(self, "numbers", tuple(map(str, self.numbers)))
        check_marks(self.decimal, self.thousands)
        if self.sep == "\\t":
            object.__setattr__(self, "sep", "\t")
        if self.sep is not None and (len(self.sep) != 1 or self.sep in '"\r\n'):
            raise MicrodataError(
                f"{quoted(self.sep)} cannot separate cells; give one character, such as ';'"
            )
        if self.encoding is not None:
            try:
                # Knows codecs of bytes, such as rot13, from those of text.
                io.TextIOWrapper(io.BytesIO(), self.encoding)
            except (LookupError, ValueError):
                raise MicrodataError(
                    f"there is no encoding called {quoted(self.encoding)}; known ones are, for "
                    "example, utf-8, utf-16 and cp1252"
                ) from None


AS_FOUND = Reading()
"""The format of files is detected."""


def text_rows(source: Source, how: Reading) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line (1-based) and the cells of each row of a text file, header included.

    Raises
    ------
    MicrodataError
        If the file cannot be read; it names the file and the line.
    """
    sep, encoding = written_as(source, how)
    above = _lines_above(source, how, encoding)
    if how.sep is not None:
        _check_separator(source, sep, encoding, above)
    line = above + 1
    try:
        with _text(source, encoding, above) as file:
            reader = csv.reader(file, strict=True, delimiter=sep)
            for cells in reader:
                yield line, cells
                line = above + reader.line_num + 1
    except UnicodeError:
        raise MicrodataError(
            f"is not {encoding} text; name its encoding (--encoding)", file=source
        ) from None
    except csv.Error as error:
        raise MicrodataError(
            f'is not valid CSV ({error}); a quote within quotes is written "", not \\"',
            file=source,
            line=line,
        ) from None


def layout_of(source: Source, how: Reading) -> Layout:
    """Return the columns of a text file; what is left out of it is logged, once for each source.

    Raises
    ------
    MicrodataError
        As `text_rows` and `find_layout`.
    """

    def found():
        rows = itertools.starmap(Row, itertools.islice(text_rows(source, how), ROWS))
        layout = find_layout([row for k, row in enumerate(rows) if row.cells or not k], source)
        for remark in layout.remarks:
            _LOG.warning("%s: %s", source, remark)
        return layout

    return source.once(("layout", how.sep, how.encoding, how.skip), found)


def written_as(source: Source, how: Reading) -> tuple[str, str]:
    """Return the separator of the cells of a text file, and its encoding.

    An unusual format that was detected is logged, once for each source.

    Raises
    ------
    MicrodataError
        If the file cannot be read, or is no text in an encoding that can be told.
    """
    return source.once((how.sep, how.encoding, how.skip), lambda: _found(source, how))


def _found(source: Source, how: Reading) -> tuple[str, str]:
    """Separator and encoding of a file, as given or as found."""
    found, sep, encoding = [], how.sep, how.encoding
    if encoding is None:
        encoding = _encoding_of(source)
        if encoding != "utf-8-sig":
            found.append(f"as {encoding} text")
    if sep is None:
        sep = _declared(source, encoding)
        if sep is None:
            sep = _separator_of(source, encoding, how.skip)
            _refuse_aligned(source, sep, encoding, how.skip)
        if sep != ",":
            found.append(f"with {SEPARATORS.get(sep, quoted(sep))} between cells")
    if found:
        other = "; --sep names another character" if sep in _RARE and how.sep is None else ""
        _LOG.warning("%s: read %s%s", source, listed(found), other)
    return sep, encoding


def _declared(source: Source, encoding: str) -> str | None:
    """Separator that a first line such as sep=; declares; None if there is no such line."""
    try:
        with _text(source, encoding) as file:
            said = _DECLARED.fullmatch(file.readline(_HEAD).rstrip("\r\n"))
    except UnicodeError:
        return None
    return said and said[1].replace("\\t", "\t")


def _lines_above(source: Source, how: Reading, encoding: str) -> int:
    """Lines above the header: those that are to be skipped, or the one that names a separator."""
    return how.skip or int(_declared(source, encoding) is not None)


@contextlib.contextmanager
def _text(source: Source, encoding: str, skip: int = 0) -> Iterator[TextIO]:
    """Yield a text file from its beginning, or after some lines, decompressed."""
    with source.decompressed() as stream:
        file = io.TextIOWrapper(stream, encoding=encoding, newline="")
        try:
            for _ in range(skip):
                file.readline()
            yield file
        finally:
            # Or it would close the source's own.
            file.detach()


def _encoding_of(source: Source) -> str:
    """Encoding of a text file, by its first bytes and by whether all of it decodes."""
    with source.decompressed() as file:
        head = file.read(_HEAD)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in head:
        # Without a mark: every other byte of Western text in UTF-16 is 0.
        for encoding, start in (("utf-16-le", 1), ("utf-16-be", 0)):
            if not any(head[start::2]):
                return encoding
        raise MicrodataError(
            "is not a text file; a Parquet, Excel, Stata or SPSS file is recognised by its name "
            "(.parquet, .xlsx, .dta, .sav), and must not be compressed",
            file=source,
        )
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            with _text(source, encoding) as text:
                while text.read(_HEAD):
                    pass
            return encoding
        except UnicodeDecodeError:
            continue
    raise MicrodataError(
        "is neither UTF-8, UTF-16 nor Windows-1252 text; name its encoding (--encoding)",
        file=source,
    )


def _separator_of(source: Source, encoding: str, skip: int) -> str:
    """The separator that cuts the first rows, or most of them, into as many cells each."""
    best, most = ",", (False, 0, 1)
    for sep in _USUAL:
        if (score := _score(_widths(source, sep, encoding, skip))) > most:
            best, most = sep, score
    if most[2] > 1:
        return best
    for sep in _RARE:
        header, *body = _first_rows(source, sep, encoding, skip) or [Row(1, [])]
        width, widths = len(header.cells), {len(row.cells) for row in body}
        # Rows of R have their name before the cells.
        if width > 1 and (widths == {width} or widths == {width + 1} and differ(body, 0)):
            return sep
    return best


def _refuse_aligned(source: Source, sep: str, encoding: str, skip: int) -> None:
    """Refuse a file of one column whose rows are as many words each, with runs of blanks."""
    rows = _first_rows(source, sep, encoding, skip)
    if len(rows) < 2 or any(len(row.cells) > 1 for row in rows):
        return
    texts = [row.cells[0].strip() for row in rows]
    words = {len(text.split()) for text in texts}
    if len(words) == 1 and words != {1} and any(re.search(r"\s\s", text) for text in texts):
        raise MicrodataError(
            f"the rows are {words.pop()} words each, with several blanks between them; write one "
            "character, such as a comma, between the cells, or say --sep , if it is one column",
            file=source,
        )


def _score(widths: list[int]) -> tuple[bool, int, int]:
    """Whether rows have as many cells each, how many do, and that number of cells."""
    if not widths:
        return False, 0, 0
    width, rows = Counter(widths).most_common(1)[0]
    return len(set(widths)) == 1 and width > 1, rows if width > 1 else 0, width


def _widths(source: Source, sep: str, encoding: str, skip: int) -> list[int]:
    """Numbers of cells of the first rows, none where they cannot be read."""
    return [len(row.cells) for row in _first_rows(source, sep, encoding, skip)]


def _first_rows(source: Source, sep: str, encoding: str, skip: int) -> list[Row]:
    """The first rows that are not empty, none where they cannot be read."""
    try:
        with _text(source, encoding, skip) as file:
            rows = csv.reader(file, strict=True, delimiter=sep)
            return [Row(k, cells) for k, cells in enumerate(itertools.islice(rows, ROWS)) if cells]
    except (UnicodeError, csv.Error):
        return []


def _check_separator(source: Source, sep: str, encoding: str, skip: int) -> None:
    """Refuse a separator that leaves one column where a usual one cuts all rows alike."""
    if _widths(source, sep, encoding, skip)[:1] != [1]:
        return
    other = _separator_of(source, encoding, skip)
    widths = set(_widths(source, other, encoding, skip))
    if other != sep and other in _USUAL and len(widths) == 1 and widths != {1}:
        raise MicrodataError(
            f"the file has one column with {SEPARATORS.get(sep, quoted(sep))} between cells, and "
            f"{widths.pop()} columns with {SEPARATORS[other]}; leave --sep out, or correct it",
            file=source,
        )  # fmt: skip
