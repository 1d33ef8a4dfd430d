"""Checks, before a compiled program runs, that it fits into the free memory."""

from pathlib import Path

import jax

_GIB = 2**30

LARGE = 2**24
"""Bytes of data and states from which on the memory is checked. The check needs a second
compilation, which usually comes from the cache."""


class NotEnoughMemory(MemoryError):
    """A run needs more memory than is free; the message says how much.

    Examples
    --------
    >>> issubclass(bnp.inference.NotEnoughMemory, MemoryError)
    True
    """


def check_memory(program: jax.stages.Compiled, device: jax.Device, number: int = 1) -> None:
    """Raise `NotEnoughMemory` if copies of a program that run at the same time do not fit.

    Parameters
    ----------
    program
        The program. Its arguments are in memory already.
    device
        The device on which it will run.
    number
        Number of copies that share the device's memory.
    """
    found, free = program.memory_analysis(), free_bytes(device)
    if found is None:
        return
    _require(
        "the chains", number * (found.temp_size_in_bytes + found.output_size_in_bytes), free,
        "run fewer chains (--chains), or use fewer components (--components), take a sample of the "
        "records, or put the records into a folder of Parquet files, so that equal records are "
        "stored once with their number",
    )  # fmt: skip


def check_kept(what: str, needed: float, advice: str) -> None:
    """Raise `NotEnoughMemory` if future arrays or data sets do not fit into the host's memory.

    Parameters
    ----------
    what
        The arrays or data sets in words, with an article.
    needed
        Number of their bytes.
    advice
        Advice on how to need less memory.
    """
    _require(what, needed, host_bytes(), advice)


def _require(what: str, needed: float, free: int | None, advice: str) -> None:
    """Raise `NotEnoughMemory` if more bytes are needed than are known to be free."""
    if free is not None and needed > free:
        raise NotEnoughMemory(
            f"{what} need about {needed / _GIB:.0f} GiB of memory, and {free / _GIB:.0f} GiB are "
            f"free; {advice}"
        )


def free_bytes(device: jax.Device) -> int | None:
    """Free memory of a device, or of the host if the device is a CPU; None: unknown."""
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        if "bytes_limit" not in stats:
            return None
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    return host_bytes()


def host_bytes() -> int | None:
    """Free memory of the host; None: unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines if "kB" in line}
    if "MemAvailable" not in kilobytes:
        return None
    return 1024 * (kilobytes["MemAvailable"] + kilobytes.get("SwapFree", 0))
