"""Commands at work, and the errors that stand for bad input."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from bnp_models.cli.commands import (
    Check,
    Compare,
    Evaluate,
    Impute,
    Protect,
    Risk,
    Sampling,
    Suggest,
    Synthesize,
)
from bnp_models.cli.compare import compare_models
from bnp_models.cli.conditions import check, suggest
from bnp_models.cli.datasets import impute, synthesize
from bnp_models.cli.evaluate import evaluate
from bnp_models.cli.folder import MESSAGES as MESSAGES
from bnp_models.cli.folder import OutputError as OutputError
from bnp_models.cli.options import Command, UsageError, about, flag
from bnp_models.cli.parts import Chains, Processes
from bnp_models.cli.protect import protect_sample
from bnp_models.cli.risk import risk
from bnp_models.data.messages import listed
from bnp_models.data.schema import MicrodataError
from bnp_models.data.source import STANDARD_INPUT, Source
from bnp_models.data.stata_spss import FormatError
from bnp_models.inference import processes
from bnp_models.inference.checkpoint import CheckpointError
from bnp_models.inference.compilation import NotEnoughMemory
from bnp_models.models.cells.polettini_stander import NoMaximumError

_WORK: dict[type, Callable[..., int]] = {
    Risk: risk,
    Synthesize: synthesize,
    Impute: impute,
    Evaluate: evaluate,
    Compare: compare_models,
    Protect: protect_sample,
    Suggest: suggest,
    Check: check,
}

BAD_INPUT = (
    MicrodataError, CheckpointError, NoMaximumError, FormatError, UsageError, NotEnoughMemory
)  # fmt: skip


def run(command: Command) -> int:
    """Run a command; its exit code."""
    if isinstance(command, Sampling):
        _connect(command.processes, command.chains)
    return _WORK[type(command)](command)


def _connect(given: Processes, chains: Chains) -> None:
    """Connect with the other processes of the command, where there are any.

    Raises
    ------
    UsageError
        If their addresses are not known, they cannot be reached, or they cannot have equal shares
        of the chains.
    """
    said = given.coordinator, given.processes, given.process
    if not given.distributed:
        if any(value is not None for value in said):
            raise UsageError(
                "--coordinator, --processes and --process are used only with --distributed; add "
                "it, or leave them out"
            )
        return
    try:
        processes.connect(*said)
    except (ValueError, RuntimeError) as error:
        raise UsageError(
            f"--distributed: {error}; if no scheduler such as Slurm tells where the processes are, "
            "give --coordinator, --processes and --process"
        ) from None
    with about("--chains"):
        processes.share(chains.chains)


_POSITIONAL = ("sample", "original", "synthetic")
_OPTIONS = (
    "sample", "original", "levels", "recode_by", "conditions", "roles", "population", "holdout",
    "misclassification",
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
