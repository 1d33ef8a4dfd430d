"""Structural zeros of records: conditions compiled into boxes, diagrams and equivalences."""

import lazy_loader

from bnp_models.data.messages import warn_of_new_name

_lazy, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "ties":
        warn_of_new_name(f"{__name__}.ties", f"{__name__}.not_applicable_zeros")
        name = "not_applicable_zeros"
    return _lazy(name)
