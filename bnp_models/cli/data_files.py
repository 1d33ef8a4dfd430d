"""Files of data that the options of a command name, each opened once."""

import argparse
import contextlib
from collections.abc import Iterator

from bnp_models.cli.folder import UsageError
from bnp_models.cli.parser import flag
from bnp_models.data.messages import listed
from bnp_models.data.source import STANDARD_INPUT, Source

_OPTIONS = (
    "sample", "original", "levels", "recode_by", "conditions", "roles", "population", "holdout",
)  # fmt: skip


@contextlib.contextmanager
def data_files(options: argparse.Namespace) -> Iterator[None]:
    """Put sources in the place of their paths among the options, and close them at the end.

    Raises
    ------
    UsageError
        If more than one of them is standard input.
    """
    given = vars(options)
    named = [(name, given[name]) for name in _OPTIONS if given.get(name) is not None]
    named += [("synthetic", path) for path in given.get("synthetic") or ()]
    named += [("groups", path) for _, path in given.get("groups") or ()]
    piped = [
        name.upper() if name in ("sample", "original", "synthetic") else flag(name)
        for name, path in named
        if path == STANDARD_INPUT
    ]
    if len(piped) > 1:
        raise UsageError(
            f"{listed(piped)}: - is standard input, which can be read once; name files"
        )
    with contextlib.ExitStack() as stack:
        sources = {path: stack.enter_context(Source(path)) for path in {path for _, path in named}}
        given |= {name: sources[path] for name, path in named if name in _OPTIONS}
        if given.get("synthetic"):
            options.synthetic = [sources[path] for path in options.synthetic]
        if given.get("groups"):
            options.groups = [(name, sources[path]) for name, path in options.groups]
        yield
