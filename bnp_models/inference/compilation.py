"""Compiled programs: options of XLA, copies kept between runs, and whether they fit into memory."""

import hashlib
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import jax

GRAPHS = "xla_gpu_enable_command_buffer"
"""Option of XLA that lists the operations that Nvidia GPUs run as graphs."""

IN_GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"
"""Operations that XLA puts into graphs by default, followed by loops and branches."""


def options_of_loops(devices: Sequence[jax.Device]) -> tuple[tuple[str, str], ...]:
    """XLA's options for programs that loop over sweeps.

    On Nvidia GPUs whole loops become graphs, so that the host neither waits nor launches kernels
    within them. If XLA_FLAGS in the environment sets this option, its value is used:
    ``--xla_gpu_enable_command_buffer=`` means no graphs.
    """
    nvidia = "cuda" in devices[0].client.platform_version.lower()
    if not nvidia or GRAPHS in os.environ.get("XLA_FLAGS", ""):
        return ()
    return ((GRAPHS, IN_GRAPHS),)


SHARE_OF_MAPS = 0.5
"""Share of a process's memory maps from which on compiled programs are removed from memory."""


def forget_programs() -> None:
    """Remove all compiled programs from memory if half of the process's memory maps are in use.

    A program for CPUs uses hundreds of maps. Linux allows a process 65,530 of them
    (``vm.max_map_count``) and ends a process that needs more. This would happen to a long session
    that analyses samples of many different shapes. Programs that are needed again are read from the
    cache on disk.
    """
    try:
        with open("/proc/self/maps", "rb") as maps:
            taken = sum(1 for _ in maps)
        granted = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return
    if taken > SHARE_OF_MAPS * granted:
        jax.clear_caches()


def use_compilation_cache():
    """Keep compiled programs between runs, in the user's cache folder, unless one is set.

    A compiled program works on one kind of processor only. If several machines share a home folder,
    each kind of processor has its own folder for programs.
    """
    if jax.config.jax_compilation_cache_dir is not None:
        return
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        kind = hashlib.sha256(_processor().encode()).hexdigest()[:12]
        folder = cache / "bnp-models" / "xla" / kind
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _processor() -> str:
    """Description of the processor that distinguishes its kind from others."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.system()} {platform.machine()} {platform.processor()} {flags}"


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
