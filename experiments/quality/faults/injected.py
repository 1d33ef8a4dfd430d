"""Commands run in this process, in which calls that change files fail, or are the last ones.

The process has to be started with the environment that `environment` gives.
"""

import contextlib
import ctypes
import functools
import io
import os
import re
import shutil
import subprocess
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOTHING, FAILS_ONCE, FULL_FROM, READ_ONLY_FROM, SIGNAL = range(5)
WATCHER = ctypes.CFUNCTYPE(None, ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p)

# What hangs on the clock, in JSON and on pages.
_CLOCK = re.compile(
    rb'"(seconds|sweeps_per_second|minutes_needed|date)": (\{[^}]*\}|[^,\n]*)'
    rb"|<dt>Seconds</dt><dd>[^<]*|20[0-9]{2}-[0-9]{2}-[0-9]{2}"
)


def build(folder: Path) -> Path:
    """Compile what counts the calls."""
    library = folder / "faults.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", library, HERE / "faults.c", "-ldl"]
    subprocess.run(command, check=True)
    return library


def environment(library: Path, cache: Path) -> dict[str, str]:
    """Environment of a process whose calls are counted, and whose programs compile fast."""
    return os.environ | {
        "LD_PRELOAD": str(library),
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "PYTHONPATH": str(HERE.parents[2]),
    }


@contextlib.contextmanager
def faults(
    folder: Path,
    what: int = NOTHING,
    target: int = -1,
    code: int = 0,
    watch: Callable[[int, str, str], None] | None = None,
) -> Iterator[None]:
    """Count the calls that change files below a folder, and do with one of them what is asked.

    `watch` is called before each of them with its number, its name and the path.
    """
    library = ctypes.CDLL(None)

    def told(number, name, path):
        watch(number, name.decode(), path.decode())

    watcher = WATCHER(told) if watch else WATCHER()
    library.faults_arm(str(folder).encode(), what, ctypes.c_long(target), code, watcher)
    try:
        yield
    finally:
        library.faults_disarm()


def call(argv: list[str]) -> tuple[int, str]:
    """Run a command in this process; its exit code, and what it says on stderr."""
    from bnp_models.cli.main import main

    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        try:
            code = main(argv)
        except BaseException:
            traceback.print_exc()
            code = -1
    return code, said.getvalue()


def in_short_chunks() -> None:
    """Have chains return to Python every 15 sweeps, so that there is more to save."""
    from bnp_models.cli import compare, runs

    runs.sample = functools.partial(runs.sample, chunk_sweeps=15)
    compare.compare = functools.partial(compare.compare, chunk_sweeps=15)


def content(folder: Path) -> dict[str, bytes]:
    """Files of a folder, by their path in it, but for what hangs on the clock."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            plain = path.suffix in (".json", ".html", ".toml")
            found[str(path.relative_to(folder))] = _CLOCK.sub(b"", data) if plain else data
    return found


def emptied(folder: Path) -> Path:
    """The folder's path, once nothing is there."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder
