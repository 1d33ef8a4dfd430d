"""Compiled programs, kept between runs."""

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

    On Nvidia GPUs whole loops become graphs: the host waits for nothing and launches nothing within
    them. Where the environment's XLA_FLAGS say what graphs have, as
    ``--xla_gpu_enable_command_buffer=`` says that there are none, that holds.
    """
    nvidia = "cuda" in devices[0].client.platform_version.lower()
    if not nvidia or GRAPHS in os.environ.get("XLA_FLAGS", ""):
        return ()
    return ((GRAPHS, IN_GRAPHS),)


SHARE_OF_MAPS = 0.5
"""Share of the memory maps that a process may have, from which on programs are forgotten."""


def forget_programs() -> None:
    """Forget all compiled programs where half of the memory maps of the process are taken.

    A program for CPUs takes hundreds of maps, and Linux grants a process 65,530 of them
    (``vm.max_map_count``); one that asks for more is killed. A long session that analyses samples
    of ever other shapes would get there. What is used again comes from the cache on disk.
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

    Compiled programs fit one kind of processor; a home that several machines share gets one
    folder for each kind.
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
    """Words that tell this kind of processor from others."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.system()} {platform.machine()} {platform.processor()} {flags}"
