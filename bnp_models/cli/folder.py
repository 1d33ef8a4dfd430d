"""The folder of a command's results, and the messages that a command prints."""

import contextlib
import json
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from bnp_models.cli.argument_types import label_of_column
from bnp_models.cli.config import REPEATING
from bnp_models.cli.options import UsageError, about
from bnp_models.cli.parts import STOPPING, Data, Output
from bnp_models.data.messages import listed
from bnp_models.data.reading import columns_of_file, read_frame
from bnp_models.data.recoding import variables_with_ranges
from bnp_models.data.schema import MicrodataError, unknown_variable
from bnp_models.data.text_files import Reading
from bnp_models.data.writing import write_text
from bnp_models.inference import processes
from bnp_models.inference.compilation import use_compilation_cache
from bnp_models.inference.interruption import OutOfTime, Stopped

try:
    import fcntl
except ImportError:
    # Not on Windows, where two runs in one folder are not told apart.
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


class FolderInUse(ValueError):
    """Another run is at work in the folder."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; the lock of a process that was killed is free.

    Raises
    ------
    FolderInUse
        If another process holds it; the message says which.
    """
    if fcntl is None:
        yield
        return
    path = folder / LOCK
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode(errors="replace").strip()
            os.close(descriptor)
            raise FolderInUse(
                f"another run is using this folder ({holder or 'of which nothing more is known'}); "
                "wait for it, stop it, or choose another folder"
            ) from None
        except OSError:
            # A file system that knows no locks.
            os.close(descriptor)
            path.unlink(missing_ok=True)
            yield
            return
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                break
        # Its holder has removed it since it was opened.
        os.close(descriptor)
    try:
        # Who holds it is only for a message.
        with contextlib.suppress(OSError):
            os.truncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


class HeldMessages(logging.Handler):
    """Messages on what is told from files, held until the input is known to be good."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Hold a message."""
        self.held.append(record.getMessage())

    def show(self) -> None:
        """Print what is held to stderr."""
        for text in self.held:
            tell(text)
        self.held.clear()


MESSAGES = HeldMessages()


class OutputError(RuntimeError):
    """Files of a result that could not be made, where others were."""


def into_folder(
    output: Output,
    settings: dict,
    outputs: Iterable[str],
    work: Callable[[Path], str],
    how_to_go_on: str,
    *,
    resume: bool = False,
) -> int:
    """Do the work in the folder, unless it is done already; leave no empty folder behind.

    Parameters
    ----------
    output
        The folder, and what is said.
    settings
        Settings that decide the outputs, JSON values only.
    outputs
        Names of the files of a finished run.
    work
        Function that makes them in the folder; it returns what is said at the end.
    how_to_go_on
        Words that are said after an interruption.
    resume
        Whether what is done already is left as it is.

    Returns
    -------
    code
        The exit code.
    """
    out = output.folder
    if resume and _is_complete(out, (*outputs, REPEATING), settings):
        say(output, f"{out} is complete: nothing to resume")
        return 0
    finished = all((out / name).exists() for name in (*outputs, REPEATING))
    if finished and not resume and not output.force:
        raise UsageError(
            f"--out {out}: holds finished results; choose another folder, or say --force to "
            "replace them"
        )
    MESSAGES.show()
    use_compilation_cache()
    if not processes.is_first():
        with tempfile.TemporaryDirectory(prefix="bnp-models-") as aside:
            # The first process has the same results, and writes them.
            try:
                work(Path(aside))
            except OutOfTime as error:
                raise OutputError(str(error)) from None
        return 0
    made = _make_folder(out)
    try:
        with locked(out):
            # An earlier run's would stay beside new results if this run were killed between.
            (out / REPEATING).unlink(missing_ok=True)
            answer = work(out)
            write_text(output.repeating, out / REPEATING)
    except FolderInUse as error:
        raise UsageError(f"--out {out}: {error}") from None
    except KeyboardInterrupt as error:
        _remove_empty(made)
        how = how_to_go_on
        if all((out / name).exists() for name in (*outputs, REPEATING)):
            how = f"the results in {out} are complete"
        elif not (out / "checkpoint").exists():
            how = "nothing was saved; repeat the command"
        tell(f"{str(error) or 'interrupted'}; {how}")
        return 128 + (error.number if isinstance(error, Stopped) else signal.SIGINT)
    except BrokenPipeError:
        # Nobody reads what is said; this is not about the folder.
        _remove_empty(made)
        raise
    except OutOfTime as error:
        _remove_empty(made)
        again = "--resume and more --max-minutes"
        raise OutputError(f"{error}; repeat the command with {again}") from None
    except (OutputError, OSError) as error:
        _remove_empty(made)
        why = str(error)
        if isinstance(error, OSError):
            why = f"{error.filename or out}: {error.strerror or error}"
        raise OutputError(f"{why}; once that is corrected, {how_to_go_on}") from error
    except BaseException:
        _remove_empty(made)
        raise
    say(output, answer)
    return 0


def write_files(out: Path, writers: Mapping[str, Callable[[Path], None]]) -> None:
    """Write the files of a result, in this order; if one cannot be written, write the others.

    Files of an earlier run are removed first. If all files exist, they are therefore of the same
    run; by this `--resume` recognises a finished run.

    Parameters
    ----------
    out
        The folder.
    writers
        Functions that write a file, given its path, by its name.

    Raises
    ------
    OutputError
        If some could not be made.
    """
    for name in writers:
        if not (out / name).is_dir():
            (out / name).unlink(missing_ok=True)
    failed: dict[str, Exception] = {}
    for name, write in writers.items():
        try:
            write(out / name)
        except Exception as error:
            failed[name] = error
            if not isinstance(error, OSError | ImportError | ValueError):
                # A fault of the program: whoever mends it needs the place.
                traceback.print_exc()
    if failed:
        why = "; ".join(
            f"{out / name}: could not be made ({type(error).__name__}: {error})"
            for name, error in failed.items()
        )
        written = [name for name in writers if name not in failed]
        kept = f"; written: {listed(written, 'and')}" if written else ""
        raise OutputError(f"{why}{kept}") from next(iter(failed.values()))


@contextlib.contextmanager
def located(data: Data) -> Iterator[None]:
    """Name the file, and the line of the record, in an error about its coded records."""
    try:
        yield
    except MicrodataError as error:
        lines = None
        if error.row is not None:
            _, lines = read_frame(data.sample, variables_of(data), reading_of(data))
        raise error.in_file(data.sample, lines) from None


def reading_of(data: Data) -> Reading:
    """How files are written, as far as the options say, and which columns are needed as numbers.

    Raises
    ------
    UsageError
        If one of them says what cannot be.
    """
    text, asked = data.text, data.recoding
    for name in ("sep", "encoding", "decimal", "thousands"):
        with about(f"--{name}"):
            Reading(**{name: vars(text)[name]})
    missing = [label_of_column(one) for one in text.missing or ()]
    ranged = () if asked.recode_by is None else variables_with_ranges(asked.recode_by)
    with about("--thousands"):
        return Reading(
            text.sep, text.encoding, tuple(label for name, label in missing if name is None),
            text.skip, text.sheet,
            text.decimal, text.thousands,
            (*(name for name, _ in (*asked.bins, *asked.top_code)), *ranged),
            normalise=text.normalise,
            missing_of=tuple((name, label) for name, label in missing if name is not None),
        )  # fmt: skip


def columns_with(data: Data, wanted: Sequence[str]) -> Sequence[str]:
    """Names of the columns of the sample, after checking that it has the wanted ones.

    Raises
    ------
    MicrodataError
        If it lacks one.
    """
    names = columns_of_file(data.sample, reading_of(data), (*(data.variables or ()), *wanted))
    for name in wanted:
        if name not in names:
            raise unknown_variable(name, names).in_file(data.sample)
    return names


def in_order(data: Data, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of a frame that the sample has, in its order."""
    names = columns_of_file(data.sample, reading_of(data), list(frame))
    return frame[[name for name in names if name in frame]]


def variables_of(data: Data) -> Sequence[str] | None:
    """Columns that are read: those of --variables, or all but those of --drop; None for all.

    Raises
    ------
    UsageError
        If both are given, or there is no such column, or none that --missing names.
    """
    if missing_of := reading_of(data).missing_of:
        with about("--missing"):
            columns_with(data, [name for name, _ in missing_of])
    if not data.drop:
        return data.variables
    if data.variables is not None:
        raise UsageError(
            "--drop: names columns to leave out, but --variables or --keys name the columns to "
            "read; give only one of them"
        )
    with about("--drop"):
        names = columns_with(data, data.drop)
    return [name for name in names if name not in data.drop]


def shows_progress(output: Output) -> bool:
    """Whether progress bars are shown."""
    shown = output.progress or (sys.stderr.isatty() and not output.quiet)
    return shown and processes.is_first()


def progress_of_chains(output: Output) -> bool | Callable[[str], None]:
    """A bar for chains, or, where stderr is no terminal, what writes a line a minute to it."""
    if shows_progress(output) or output.quiet or not processes.is_first():
        return shows_progress(output)
    return tell


def _make_folder(out):
    """Make the folder; the folders that had to be made, innermost first.

    Raises
    ------
    UsageError
        If it cannot be made or written to.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: is a file; name a folder")
    missing = []
    for folder in (out, *out.parents):
        if folder.exists():
            break
        missing.append(folder)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove_empty(missing)
        why = f"cannot be made ({error.strerror}); choose another folder"
        raise UsageError(f"--out {out}: {why}") from None
    if not os.access(out, os.W_OK | os.X_OK):
        _remove_empty(missing)
        raise UsageError(f"--out {out}: is not writable; choose another folder")
    return missing


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, innermost first, up to one that holds something or cannot be removed."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def tell(text: str) -> None:
    """Print a line on stderr, where no reader of the results can end the command."""
    print(f"bnp-models: {text}", file=sys.stderr, flush=True)


def say(output: Output, text: str) -> None:
    """Print a text, unless the command is to be quiet."""
    if not output.quiet:
        try:
            print(text, flush=True)
        except OSError as error:
            error.filename = "stdout"
            raise


def _is_complete(out, outputs, settings):
    """Whether a finished run with these settings is in the folder.

    Raises
    ------
    UsageError
        If a finished run with other settings is.
    """
    if not all((out / name).exists() for name in outputs):
        return False
    try:
        recorded = json.loads((out / "run.json").read_text(encoding="utf-8"))
        different = {name for name, value in settings.items()
                     if name not in recorded or not _agrees(recorded[name], value)}  # fmt: skip
        same = "command" in recorded and not different
    except (ValueError, TypeError):
        return False
    if different <= set(STOPPING) and (out / "checkpoint").is_dir():
        # A run that had used up its minutes, and may go on.
        return same
    if not same:
        raise UsageError(
            f"{out}: holds a finished run with other data, settings or versions; choose another "
            "--out, or leave out --resume to replace it"
        )
    return True


def _agrees(recorded, value):
    """Whether what was recorded is this value; of a mapping it may say more."""
    if isinstance(value, dict) and isinstance(recorded, dict):
        return value.items() <= recorded.items()
    return recorded == value


def numbered(out, pattern):
    """Files of the folder that this program named by number."""
    name = re.compile(pattern.replace(".", r"\.").format("[1-9][0-9]*"))
    return [path for path in out.iterdir() if name.fullmatch(path.name)]
