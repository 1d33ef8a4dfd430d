"""Chains of any model on any table: sampling, checkpoints, diagnostics."""

import importlib

import lazy_loader

_lazy, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used; those that `diagnose` replaces warn."""
    if name in ("monitored", "target_reached"):
        return importlib.import_module(f"{__name__}.earlier").earlier(__name__, name)
    return _lazy(name)
