"""Text files of records: how one is written, told by what is in it, and its rows."""

import codecs
import contextlib
import csv
import io
import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from bnp_models.data.messages import listed, quoted
from bnp_models.data.notation import Notation, check_marks
from bnp_models.data.schema import MicrodataError
from bnp_models.data.source import Source

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

# Bytes that are looked at for the kind of a file, and rows for what is between its cells.
_HEAD, _ROWS = 2**16, 100

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reading:
    """Format of text files of records, for what should not be detected from the files.

    Parameters
    ----------
    sep : str, optional
        Separator between the cells of a text file: one character. By default the one of comma,
        semicolon, tab and bar that divides the first rows into equally many cells.
    encoding : str, optional
        Encoding of a text file, as Python names it. By default UTF-8 or UTF-16, or, where it is
        neither, cp1252, the usual one of Western Windows.
    missing : sequence of str, optional
        Labels that stand for a missing value, such as "NA" and "-9", besides empty cells.
    decimal, thousands : str, optional
        Mark before the decimals of numbers (a point or a comma) and mark between thousands (comma,
        point, space or apostrophe), of all columns of text that are numbers. By default they are
        told from each column that is named in `numbers`.
    numbers : sequence of str, optional
        Columns whose values are needed as numbers, such as those of bins.
    notations : mapping of str to Notation, optional
        How numbers of columns are written where a file does not tell, such as those of the
        original of a synthetic file.
    normalise : bool
        Whether labels of a column that are one value in several spellings (`spelling_key`) become
        one label.

    Raises
    ------
    MicrodataError
        If `sep` is not one character, the encoding is unknown, or there is no such mark in numbers.

    Examples
    --------
    >>> frame.astype(str).replace("Male", "-9").to_csv("s.csv", sep=";", index=False)
    >>> bnp.read_microdata("s.csv", reading=bnp.io.Reading(missing=["-9"])).schema.num_levels
    (8, 1, 5)
    """

    sep: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()
    decimal: str | None = None
    thousands: str | None = None
    numbers: tuple[str, ...] = ()
    notations: Mapping[str, Notation] = field(default_factory=dict)
    normalise: bool = False

    def __post_init__(self):
        object.__setattr__(self, "missing", tuple(map(str, self.missing)))
        object.__setattr__(self, "numbers", tuple(map(str, self.numbers)))
        check_marks(self.decimal, self.thousands)
        if self.sep == "\\t":
            object.__setattr__(self, "sep", "\t")
        if self.sep is not None and (len(self.sep) != 1 or self.sep in '"\r\n'):
            raise MicrodataError(
                f"{quoted(self.sep)} cannot be between cells; give one character, such as ';'"
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
"""Everything is told from the files."""


def text_rows(source: Source, how: Reading) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line (1-based) and the cells of each row of a text file, header included.

    Raises
    ------
    MicrodataError
        If the file cannot be read; it names the file and the line.
    """
    sep, encoding = written_as(source, how)
    if how.sep is not None:
        _check_separator(source, sep, encoding)
    line = 1
    try:
        with _text(source, encoding) as file:
            reader = csv.reader(file, strict=True, delimiter=sep)
            for cells in reader:
                yield line, cells
                line = reader.line_num + 1
    except UnicodeError:
        raise MicrodataError(
            f"is not {encoding} text; name its encoding (--encoding)", file=source
        ) from None
    except csv.Error as error:
        raise MicrodataError(f"is not valid CSV ({error})", file=source, line=line) from None


def written_as(source: Source, how: Reading) -> tuple[str, str]:
    """Return what is between the cells of a text file, and its encoding.

    What is told from the file and is not usual is logged, once for each source.

    Raises
    ------
    MicrodataError
        If the file cannot be read, or is no text in an encoding that can be told.
    """
    return source.once((how.sep, how.encoding), lambda: _found(source, how.sep, how.encoding))


def _found(source: Source, sep: str | None, encoding: str | None) -> tuple[str, str]:
    """Separator and encoding of a file, as given or as found."""
    found = []
    if encoding is None:
        encoding = _encoding_of(source)
        if encoding != "utf-8-sig":
            found.append(f"as {encoding} text")
    if sep is None:
        sep = _separator_of(source, encoding)
        if sep != ",":
            found.append(f"with {SEPARATORS[sep]} between cells")
    if found:
        _LOG.warning("%s: read %s", source, listed(found))
    return sep, encoding


@contextlib.contextmanager
def _text(source: Source, encoding: str) -> Iterator[TextIO]:
    """Yield a text file from its beginning, decompressed."""
    with source.decompressed() as stream:
        file = io.TextIOWrapper(stream, encoding=encoding, newline="")
        try:
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


def _separator_of(source: Source, encoding: str) -> str:
    """The separator that cuts the first rows into as many cells each, the most of them."""
    best, most = ",", (False, 1)
    for sep in SEPARATORS:
        widths = _widths(source, sep, encoding)
        if widths and (score := (len(set(widths)) == 1 and widths[0] > 1, widths[0])) > most:
            best, most = sep, score
    return best


def _widths(source: Source, sep: str, encoding: str) -> list[int]:
    """Numbers of cells of the first rows, none where they cannot be read."""
    try:
        with _text(source, encoding) as file:
            rows = csv.reader(file, strict=True, delimiter=sep)
            return [len(cells) for cells in itertools.islice(rows, _ROWS) if cells]
    except (UnicodeError, csv.Error):
        return []


def _check_separator(source: Source, sep: str, encoding: str) -> None:
    """Refuse a separator that leaves one column where another one cuts all rows alike."""
    if _widths(source, sep, encoding)[:1] != [1]:
        return
    other = _separator_of(source, encoding)
    widths = set(_widths(source, other, encoding))
    if other != sep and len(widths) == 1 and widths != {1}:
        raise MicrodataError(
            f"the file has one column if {SEPARATORS.get(sep, quoted(sep))} separates cells, and "
            f"{widths.pop()} columns if {SEPARATORS[other]} does; leave --sep out, or correct it",
            file=source,
        )  # fmt: skip
