"""Gibbs kernels: pure functions of arrays that jit and vmap, and that a notebook can recombine.

Their folders, with all their modules, are imported when they are first used:
``dir(bnp_models.kernels)`` lists them, and ``dir(bnp_models.kernels.variates)`` those of one.
"""

import importlib
import pkgutil
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Import a folder of kernels, and its modules, when it is first used."""
    if name not in __dir__() or name[0] == "_":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    folder = importlib.import_module(f"{__name__}.{name}")
    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{folder.__name__}.{module.name}")
    return folder


def __dir__() -> list[str]:
    """Folders of kernels, for completion."""
    folders = {module.name for module in pkgutil.iter_modules(__path__)}
    return sorted({*folders, "__doc__", "__name__", "__path__"})
