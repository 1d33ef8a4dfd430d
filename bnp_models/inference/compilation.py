"""Compiled programs, kept between runs."""

import hashlib
import os
import platform
from pathlib import Path

import jax


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
