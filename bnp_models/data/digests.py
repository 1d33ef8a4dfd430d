"""Digests of files, as ``sha256sum`` gives them."""

import hashlib
from os import PathLike
from pathlib import Path


def file_digest(path: str | PathLike) -> str | None:
    """Return the SHA-256 of a file's bytes in hexadecimal digits; None for a folder."""
    if Path(path).is_dir():
        return None
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
