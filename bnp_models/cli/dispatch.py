"""Commands at work, and the errors that stand for bad input."""

from collections.abc import Callable

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
from bnp_models.cli.data_files import data_files as data_files
from bnp_models.cli.datasets import impute, synthesize
from bnp_models.cli.evaluate import evaluate
from bnp_models.cli.folder import MESSAGES as MESSAGES
from bnp_models.cli.folder import OutputError as OutputError
from bnp_models.cli.options import Command, UsageError
from bnp_models.cli.parts import Chains, Processes
from bnp_models.cli.protect import protect_sample
from bnp_models.cli.risk import risk
from bnp_models.data.schema import MicrodataError
from bnp_models.data.stata_spss import FormatError
from bnp_models.inference import processes
from bnp_models.inference.checkpoint import CheckpointError
from bnp_models.inference.memory import NotEnoughMemory
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
    try:
        processes.share(chains.chains)
    except ValueError as error:
        raise UsageError(f"--chains: {error}") from None
