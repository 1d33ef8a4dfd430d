"""The public names of the package: those at its top, and those in its namespaces."""

import importlib

import bnp_models as bnp

NAMESPACES = (
    "data", "evaluation", "inference", "io", "models", "report", "results", "risk", "rules",
    "zeros",
)  # fmt: skip
NOT_API = {"__version__", "datasets", "kernels", *NAMESPACES}


def names_in(namespace: str) -> list[str]:
    """Names of functions and classes in a namespace, or at the top of the package ("")."""
    if not namespace:
        return sorted(set(bnp.__all__) - NOT_API)
    module = importlib.import_module(f"bnp_models.{namespace}")
    return sorted(getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"]))


def public_names() -> dict[str, object]:
    """All functions and classes of the API, by their names under ``bnp``."""
    top = names_in("")
    found = {name: getattr(bnp, name) for name in top}
    for namespace in NAMESPACES:
        module = importlib.import_module(f"bnp_models.{namespace}")
        names = [name for name in names_in(namespace) if name not in top]
        found |= {f"{namespace}.{name}": getattr(module, name) for name in names}
    return found
