"""A data file that several functions read: it is opened once, and rewound for each of them."""

import bz2
import contextlib
import gzip
import hashlib
import io
import lzma
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

from bnp_models.data.messages import reason
from bnp_models.data.schema import MicrodataError

STANDARD_INPUT = "-"

Found = TypeVar("Found")

_Opened: TypeAlias = io.BufferedReader | io.BytesIO


class Source:
    """A data file that is opened only once, although several functions read it.

    Parameters
    ----------
    path : str or path
        The file, or a folder of Parquet files; "-" is standard input, which holds a text file.

    Raises
    ------
    MicrodataError
        If the file cannot be read; the error is raised when it is read first.

    Examples
    --------
    >>> frame.assign(weight=2.5).to_csv("sample.csv.gz", index=False)
    >>> with bnp.io.Source("sample.csv.gz") as source:
    ...     weights = bnp.read_weights(source, "weight")
    ...     table = bnp.read_microdata(source, ["age", "sex"])
    >>> len(weights) == table.n
    True
    """

    def __init__(self, path: str | PathLike):
        self._path = os.fspath(path)
        # A path object is that of a file, whatever its name.
        self.is_standard_input = path == STANDARD_INPUT
        self._found: dict[Hashable, Any] = {}

    def __fspath__(self) -> str:
        """Return the path."""
        return self._path

    def __str__(self) -> str:
        """Return the name that messages have for it."""
        return "standard input" if self.is_standard_input else self._path

    def __repr__(self) -> str:
        """Return the call that makes it."""
        return f"Source({self._path!r})"

    def __enter__(self) -> "Source":
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, of Parquet files as it must be."""
        return not self.is_standard_input and Path(self._path).is_dir()

    @cached_property
    def digest(self) -> str | None:
        """SHA-256 of the file's bytes in hexadecimal digits; None for a folder."""
        if self.is_folder:
            return None
        return hashlib.file_digest(self.rewound(), "sha256").hexdigest()

    def rewound(self) -> _Opened:
        """Return the open file, moved back to its first byte; earlier readers can read no more.

        Raises
        ------
        OSError
            If it cannot be read.
        """
        self._file.seek(0)
        return self._file

    @contextlib.contextmanager
    def decompressed(self) -> Iterator[IO[bytes]]:
        """Yield the file at its first byte, decompressed if its first bytes say how.

        Raises
        ------
        MicrodataError
            If it cannot be read, then or later.
        """
        try:
            head = self.rewound().read(10)
            as_it_is = contextlib.nullcontext
            decompress = next((do for start, do in _COMPRESSED if start.match(head)), as_it_is)
            with decompress(self.rewound()) as stream:
                yield stream
        except _UNREADABLE as error:
            raise MicrodataError(f"cannot be read ({reason(error)})", file=self) from None

    def once(self, what: Hashable, find: Callable[[], Found]) -> Found:
        """Return a fact about the file, which is computed when it is needed first."""
        if what not in self._found:
            self._found[what] = find()
        return self._found[what]

    def close(self) -> None:
        """Let go of the content; a file, not standard input, can be read again."""
        self._found.clear()
        if "_file" in vars(self):
            vars(self).pop("_file").close()

    def release(self) -> None:
        """Compute the digest of the file, which is all that is needed from now on, and close it."""
        _ = self.digest
        self.close()

    @cached_property
    def _file(self) -> _Opened:
        """The file, open, or the content of what cannot be rewound: standard input, and pipes."""
        if self.is_standard_input:
            if sys.stdin is None:
                raise OSError("it is closed")
            return io.BytesIO(sys.stdin.buffer.read())
        file = open(self._path, "rb")
        if file.seekable():
            return file
        with file:
            return io.BytesIO(file.read())


def opened(given: str | PathLike) -> contextlib.AbstractContextManager[Source]:
    """Return a context of a path's source, closed at its end; of a source, as it is."""
    return contextlib.nullcontext(given) if isinstance(given, Source) else Source(given)


@contextlib.contextmanager
def _only_member(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield the one file in a zip file."""
    with zipfile.ZipFile(file) as archive:
        # The Finder of macOS puts notes of its own beside each file.
        names = [
            name
            for name in archive.namelist()
            if not name.endswith("/") and not name.startswith("__MACOSX/")
        ]
        if "[Content_Types].xml" in names:
            raise zipfile.BadZipFile("looks like an Excel workbook: its name must end in .xlsx")
        if len(names) != 1:
            raise zipfile.BadZipFile(f"a zip file with {len(names)} files: it must have one")
        with archive.open(names[0]) as member:
            yield member


# What a compressed file begins with, and what opens it.
_COMPRESSED: tuple[tuple[re.Pattern[bytes], Callable[[IO[bytes]], Any]], ...] = (
    (re.compile(rb"\x1f\x8b"), gzip.open),
    (re.compile(rb"BZh[1-9]1AY&SY"), bz2.open),
    (re.compile(rb"\xfd7zXZ\x00"), lzma.open),
    (re.compile(rb"PK\x03\x04"), _only_member),
)

# RuntimeError is what zipfile raises where a password or another program is needed.
_UNREADABLE = (
    OSError, EOFError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile
)  # fmt: skip


def file_digest(path: str | PathLike) -> str | None:
    """Return the SHA-256 of a file's bytes in hexadecimal digits; None for a folder."""
    with opened(path) as source:
        return source.digest
