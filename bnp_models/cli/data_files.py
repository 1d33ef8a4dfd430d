"""Files of data that the options of a command name, each opened once."""

import contextlib
from collections.abc import Iterator
from typing import Any

from bnp_models.cli.options import UsageError, flag
from bnp_models.data.messages import listed
from bnp_models.data.source import STANDARD_INPUT, Source

_POSITIONAL = ("sample", "original", "synthetic")
_OPTIONS = (
    "sample", "original", "levels", "recode_by", "conditions", "roles", "population", "holdout",
)  # fmt: skip


@contextlib.contextmanager
def data_files(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield values of options with sources in the place of paths; close these at the end.

    Raises
    ------
    UsageError
        If more than one of them is standard input.
    """
    named = [(name, values[name]) for name in _OPTIONS if values.get(name) is not None]
    named += [("synthetic", path) for path in values.get("synthetic") or ()]
    named += [("groups", path) for _, path in values.get("groups") or ()]
    piped = [
        name.upper() if name in _POSITIONAL else flag(name)
        for name, path in named
        if path == STANDARD_INPUT
    ]
    if len(piped) > 1:
        raise UsageError(
            f"{listed(piped)}: - is standard input, which can be read only once; give the names of "
            "files for the others"
        )
    with contextlib.ExitStack() as stack:
        sources = {path: stack.enter_context(Source(path)) for path in {path for _, path in named}}
        opened: dict[str, Any] = {name: sources[path] for name, path in named if name in _OPTIONS}
        if values.get("synthetic"):
            opened["synthetic"] = tuple(sources[path] for path in values["synthetic"])
        if values.get("groups"):
            opened["groups"] = tuple((name, sources[path]) for name, path in values["groups"])
        yield values | opened
