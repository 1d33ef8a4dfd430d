"""The command ``bnp-models``: the public API, in the order in which a notebook would call it.

Bad input ends with exit code 2 and one line on stderr, before anything is written.
"""

import sys

from bnp_models.cli.datasets import impute, synthesize
from bnp_models.cli.evaluate import evaluate
from bnp_models.cli.folder import UsageError
from bnp_models.cli.parser import make_parser
from bnp_models.cli.risk import risk
from bnp_models.cli.runs import fail
from bnp_models.data.formats import FormatError
from bnp_models.data.schema import MicrodataError
from bnp_models.inference.checkpoint import CheckpointError
from bnp_models.models.cells.polettini_stander import NoMaximumError


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv
        Arguments after the command's name; by default those of the process.

    Returns
    -------
    code
        0, or 2 on bad input, or 130 when interrupted.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        options = make_parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code
    try:
        return COMMANDS[options.name](options, argv)
    except (
        MicrodataError,
        CheckpointError,
        NoMaximumError,
        FormatError,
        UsageError,
    ) as error:
        return fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return fail(f"{where}{error.strerror or error}")


COMMANDS = {"risk": risk, "synthesize": synthesize, "impute": impute, "evaluate": evaluate}
