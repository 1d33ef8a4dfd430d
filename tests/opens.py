"""How often files are opened."""

import contextlib
import functools
import os
import sys

_COUNTED: dict[str, int] = {}


@functools.cache
def _count() -> None:
    """Count from now on; an audit hook stays as long as the process."""

    def hook(event, arguments):
        if event == "open" and _COUNTED and isinstance(arguments[0], str | os.PathLike):
            name = os.fspath(arguments[0])
            if name in _COUNTED:
                _COUNTED[name] += 1

    sys.addaudithook(hook)


@contextlib.contextmanager
def opens(*paths):
    """Yield numbers by path, which go up with each time that Python opens the file."""
    _count()
    _COUNTED.update({os.fspath(path): 0 for path in paths})
    try:
        yield _COUNTED
    finally:
        _COUNTED.clear()
