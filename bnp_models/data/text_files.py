"""Text files of records: how one is written, told by what is in it, and its rows."""

import codecs
import csv
import functools
import gzip
import io
import itertools
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import TextIO

from bnp_models.data.messages import listed, quoted, reason
from bnp_models.data.schema import MicrodataError

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

    Raises
    ------
    MicrodataError
        If `sep` is not one character, or the encoding is unknown.

    Examples
    --------
    >>> frame.astype(str).replace("Male", "-9").to_csv("s.csv", sep=";", index=False)
    >>> bnp.read_microdata("s.csv", reading=bnp.Reading(missing=["-9"])).schema.num_levels
    (8, 1, 5)
    """

    sep: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "missing", tuple(map(str, self.missing)))
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
                    f"no encoding is called {quoted(self.encoding)}; such as utf-8, utf-16 and "
                    "cp1252 are"
                ) from None


AS_FOUND = Reading()
"""Everything is told from the files."""


def text_rows(path: str | PathLike, how: Reading) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line (1-based) and the cells of each row of a text file, header included.

    The file may be compressed by gzip.

    Raises
    ------
    MicrodataError
        If the file cannot be read; it names the file and the line.
    """
    sep, encoding = written_as(path, how)
    line = 1
    try:
        with _opened(path, encoding) as file:
            reader = csv.reader(file, strict=True, delimiter=sep)
            for cells in reader:
                if line == 1 and how.sep is not None and len(cells) == 1:
                    _check_separator(path, sep, encoding)
                yield line, cells
                line = reader.line_num + 1
    except (OSError, EOFError) as error:
        raise MicrodataError(f"cannot be read ({reason(error)})", file=path) from None
    except UnicodeError:
        raise MicrodataError(
            f"is not {encoding} text; name its encoding (--encoding)", file=path
        ) from None
    except csv.Error as error:
        raise MicrodataError(f"is not valid CSV ({error})", file=path, line=line) from None


def written_as(path: str | PathLike, how: Reading) -> tuple[str, str]:
    """Return what is between the cells of a text file, and its encoding.

    What is told from the file and is not usual is logged, once for each file.

    Raises
    ------
    MicrodataError
        If the file cannot be read, or is no text in an encoding that can be told.
    """
    try:
        about = os.stat(path)
    except OSError as error:
        raise MicrodataError(f"cannot be read ({reason(error)})", file=path) from None
    return _found(os.fspath(path), how.sep, how.encoding, about.st_size, about.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _found(path: str, sep: str | None, encoding: str | None, *_: int) -> tuple[str, str]:
    """Separator and encoding of a file, as given or as found; the rest tells old files from new."""
    found = []
    try:
        if encoding is None:
            encoding = _encoding_of(path)
            if encoding != "utf-8-sig":
                found.append(f"as {encoding} text")
        if sep is None:
            sep = _separator_of(path, encoding)
            if sep != ",":
                found.append(f"with {SEPARATORS[sep]} between cells")
    except (OSError, EOFError) as error:
        raise MicrodataError(f"cannot be read ({reason(error)})", file=path) from None
    if found:
        _LOG.warning("%s: read %s", path, listed(found))
    return sep, encoding


def _opened(path: str | PathLike, encoding: str) -> TextIO:
    """Open a text file, decompressed."""
    return io.TextIOWrapper(_binary(path), encoding=encoding, newline="")


def _binary(path):
    """Open a file, decompressed if it is compressed by gzip."""
    with open(path, "rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if compressed else open(path, "rb")


def _encoding_of(path: str) -> str:
    """Encoding of a text file, by its first bytes and by whether all of it decodes."""
    with _binary(path) as file:
        head = file.read(_HEAD)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in head:
        # Without a mark: every other byte of Western text in UTF-16 is 0.
        for encoding, start in (("utf-16-le", 1), ("utf-16-be", 0)):
            if not any(head[start::2]):
                return encoding
        raise MicrodataError(
            "is not a text file, nor Parquet, Stata or SPSS by its name", file=path
        )
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            with _opened(path, encoding) as file:
                while file.read(_HEAD):
                    pass
            return encoding
        except UnicodeDecodeError:
            continue
    raise MicrodataError(
        "is neither UTF-8, UTF-16 nor Windows-1252 text; name its encoding (--encoding)", file=path
    )


def _separator_of(path: str | PathLike, encoding: str) -> str:
    """The separator that cuts the first rows into as many cells each, the most of them."""
    best, most = ",", (False, 1)
    for sep in SEPARATORS:
        widths = _widths(path, sep, encoding)
        if widths and (score := (len(set(widths)) == 1 and widths[0] > 1, widths[0])) > most:
            best, most = sep, score
    return best


def _widths(path: str | PathLike, sep: str, encoding: str) -> list[int]:
    """Numbers of cells of the first rows, none where they cannot be read."""
    try:
        with _opened(path, encoding) as file:
            rows = csv.reader(file, strict=True, delimiter=sep)
            return [len(cells) for cells in itertools.islice(rows, _ROWS) if cells]
    except (UnicodeError, csv.Error):
        return []


def _check_separator(path: str | PathLike, sep: str, encoding: str) -> None:
    """Refuse a separator that leaves one column where another one cuts all rows alike."""
    other = _separator_of(path, encoding)
    widths = set(_widths(path, other, encoding))
    if other != sep and len(widths) == 1 and widths != {1}:
        raise MicrodataError(
            f"one column with {SEPARATORS.get(sep, quoted(sep))} between cells, and {widths.pop()} "
            f"with {SEPARATORS[other]}; leave --sep out, or correct it", file=path,
        )  # fmt: skip
