"""Values and lists as they are written in messages."""

import csv
import io
import shlex
import sys
from collections.abc import Iterable, Sequence


def quoted(value: object) -> str:
    """Return a value for a message, shortened where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-10:]}"


def listing(values: Sequence) -> str:
    """Return values for a message: the first twelve, and how many there are."""
    shown = ", ".join(quoted(value) for value in values[:12])
    return shown if len(values) <= 12 else f"{shown}, ... ({len(values)} in all)"


def listed(items: Iterable[str], word: str = "and", most: int | None = None) -> str:
    """Return items as an enumeration, the last one after the word; of more than `most`, the first.

    The last item is then how many more there are.
    """
    items = list(items)
    if most is not None and len(items) > most:
        items = [*items[:most], f"{len(items) - most:,} more"]
    return f" {word} ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


def in_quotes(text: str) -> str:
    """Return a text in double quotes, with its own doubled."""
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def as_cells(names: Iterable[str]) -> str:
    """Return names as a line of a CSV file has them, which is how options take them."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()


def as_option(names: Iterable[str]) -> str:
    """Return names as an option A,B,.. takes them, quoted for a shell where they need it."""
    return shlex.quote(as_cells(names))


def reason(error: Exception) -> str:
    """Return the reason of an error in one line."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return " ".join(text.split()) or type(error).__name__


def install_command(package: str) -> str:
    """Return the command that installs a package for the Python that runs."""
    python = sys.executable or "python"
    return f"{in_quotes(python) if ' ' in python else python} -m pip install {package}"
