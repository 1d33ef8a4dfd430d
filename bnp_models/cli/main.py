"""The command ``bnp-models``: its arguments, and the codes it ends with.

Bad input ends with exit code 2 and one line on stderr, before anything is written. If a file of the
results cannot be written, the others are written, and the exit code is 1. It is also 1 if the
minutes that were allowed are used up before there are results.
"""

import importlib
import logging
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator

from bnp_models.cli.config import ConfigError, check_texts, repeated, with_config
from bnp_models.cli.options import ParseError, one_line, parse, read
from bnp_models.cli.parser import make_parser
from bnp_models.inference.interruption import Stopped

# What a code for missing values, and no option, begins with.
_CODE = r"-[^a-zA-Z-]"


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv
        Arguments after the command's name; by default those of the process.

    Returns
    -------
    code
        0; 1 if a file could not be written, or --max-minutes were too few for results; 2 on bad
        input; 3 if --strict is given and the results do not meet its conditions; 130 or 143 after
        SIGINT or SIGTERM; 141 if stdout was closed.
    """
    for name in ("stdout", "stderr"):
        if vars(sys)[name] is None:
            # Closed by who began the process: a file opened later must not take its place.
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        return _run(argv)
    except KeyboardInterrupt as error:
        # Before the work, or after it; `into_folder` says more of what stops it.
        print(f"bnp-models: {str(error) or 'interrupted'}; repeat the command", file=sys.stderr)
        return 128 + (error.number if isinstance(error, Stopped) else signal.SIGINT)


def _run(argv):
    """Run the command; its exit code, unless a signal ends it."""
    argv = list(_joined(sys.argv[1:] if argv is None else argv))
    parser = make_parser()
    try:
        argv = with_config(parser, argv)
        parsed = parse(parser, argv)
        check_texts(parsed)
    except ParseError as error:
        print(error, file=sys.stderr)
        return 2
    except ConfigError as error:
        return _fail(str(error))
    except BrokenPipeError:
        return _unread()
    except SystemExit as stop:
        return int(stop.code or 0)
    # XLA's alarms on slow compilation; what it fails at is raised.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Imported late: --help and --version need no JAX.
    dispatch = importlib.import_module("bnp_models.cli.dispatch")
    log = logging.getLogger("bnp_models")
    level = log.level
    try:
        terminated = signal.signal(signal.SIGTERM, _terminate)
    except ValueError:
        # Not in the main thread, where alone signals are handled.
        terminated = None
    try:
        log.addHandler(dispatch.MESSAGES)
        with dispatch.data_files(parsed.values) as values:
            command = read(parsed.command, values | repeated(parsed, argv))
            if command.output.quiet:
                log.setLevel(logging.ERROR)
            code = dispatch.run(command)
        dispatch.MESSAGES.show()
        sys.stdout.flush()
        return code
    except dispatch.OutputError as error:
        return _fail(str(error), 1)
    except dispatch.BAD_INPUT as error:
        return _fail(str(error))
    except BrokenPipeError:
        return _unread()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")
    finally:
        log.setLevel(level)
        log.removeHandler(dispatch.MESSAGES)
        dispatch.MESSAGES.held.clear()
        if terminated is not None:
            signal.signal(signal.SIGTERM, terminated)


def _terminate(number: int, _frame: object) -> None:
    """Let SIGTERM end the command as Ctrl-C does."""
    raise Stopped(number, "terminated")


def _unread() -> int:
    """End without a message if the reader of stdout has closed it, as ``head`` does."""
    # What is still to be flushed at the end goes nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _joined(argv: Iterable[str]) -> Iterator[str]:
    """Words of a command; --missing and codes such as -9,NA or -,?, which look like options, in
    one."""
    held = False
    for word in argv:
        if held and not re.match(_CODE, word):
            yield "--missing"
        before, held = held, word == "--missing"
        if not held:
            yield f"--missing={word}" if before and re.match(_CODE, word) else word
    if held:
        yield "--missing"


def _fail(message: str, code: int = 2) -> int:
    """Say on stderr why the command fails; return its exit code."""
    print(f"bnp-models: error: {one_line(message)}", file=sys.stderr)
    return code
