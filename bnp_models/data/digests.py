"""Digests of files, as ``sha256sum`` gives them."""

from os import PathLike

from bnp_models.data.source import opened


def file_digest(path: str | PathLike) -> str | None:
    """Return the SHA-256 of a file's bytes in hexadecimal digits; None for a folder."""
    with opened(path) as source:
        return source.digest
