"""One run at a time in a folder of results."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:
    # Not on Windows, where two runs in one folder are not told apart.
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


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
    path = folder / NAME
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
