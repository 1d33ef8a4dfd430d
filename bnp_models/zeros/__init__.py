"""Structural zeros of records: conditions compiled into boxes, diagrams and equivalences."""

import warnings

import lazy_loader

_lazy, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "ties":
        warnings.warn(
            f"{__name__}.ties is {__name__}.not_applicable_zeros now; the old name goes with the "
            "first release",
            DeprecationWarning,
            stacklevel=2,
        )
        name = "not_applicable_zeros"
    return _lazy(name)
