"""Commands of ``bnp-models`` by name, and the errors that stand for bad input."""

import argparse

from bnp_models.cli.compare import compare_models
from bnp_models.cli.conditions import conditions
from bnp_models.cli.data_files import data_files as data_files
from bnp_models.cli.datasets import impute, synthesize
from bnp_models.cli.evaluate import evaluate
from bnp_models.cli.folder import MESSAGES as MESSAGES
from bnp_models.cli.folder import OutputError as OutputError
from bnp_models.cli.folder import UsageError
from bnp_models.cli.protect import protect_sample
from bnp_models.cli.risk import risk
from bnp_models.data.schema import MicrodataError
from bnp_models.data.stata_spss import FormatError
from bnp_models.inference import processes
from bnp_models.inference.checkpoint import CheckpointError
from bnp_models.inference.memory import NotEnoughMemory
from bnp_models.models.cells.polettini_stander import NoMaximumError

COMMANDS = {
    "risk": risk,
    "synthesize": synthesize,
    "impute": impute,
    "evaluate": evaluate,
    "compare": compare_models,
    "conditions": conditions,
    "protect": protect_sample,
}

BAD_INPUT = (
    MicrodataError, CheckpointError, NoMaximumError, FormatError, UsageError, NotEnoughMemory
)  # fmt: skip


def connect(options: argparse.Namespace) -> None:
    """Connect with the other processes of the command, where there are any.

    Raises
    ------
    UsageError
        If it is not known where they are, they do not meet, or cannot have as many chains each.
    """
    given = vars(options)
    said = [given.get(name) for name in ("coordinator", "processes", "process")]
    if not given.get("distributed"):
        if any(value is not None for value in said):
            raise UsageError("--coordinator, --processes and --process go with --distributed")
        return
    try:
        processes.connect(*said)
    except (ValueError, RuntimeError) as error:
        raise UsageError(
            f"--distributed: {error}; if no scheduler such as Slurm provides them, give "
            "--coordinator, --processes and --process"
        ) from None
    try:
        processes.share(options.chains)
    except ValueError as error:
        raise UsageError(f"--chains: {error}") from None
