"""Checks of arguments whose kind is wrong, as where two of them are swapped."""

from numbers import Real
from typing import Any

from bnp_models.data.messages import listed, quoted


def check_kind(kinds: type | tuple[type, ...], call: str, **given: Any) -> None:
    """Raise TypeError unless arguments are of a kind.

    Parameters
    ----------
    kinds
        The kind, or several.
    call
        How the function is called, for the message.
    given
        The arguments, by name.
    """
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    for name, value in given.items():
        if isinstance(value, kinds):
            continue
        wanted = listed([kind.__name__ for kind in kinds], "or")
        if isinstance(value, type) and issubclass(value, kinds):
            what = value.__name__
            raise TypeError(f"{name} is the class {what}; give an object of it, such as {what}()")
        raise TypeError(f"{name} must be of type {wanted}, not {described(value)}; write {call}")


def check_number(**given: Any) -> None:
    """Raise TypeError unless arguments are numbers."""
    for name, value in given.items():
        if not isinstance(value, Real) or isinstance(value, bool):
            raise TypeError(f"{name} must be a number, not {described(value)}")


def described(value: object) -> str:
    """Say what an argument is, for a message: a plain value itself, else its type."""
    plain = value is None or isinstance(value, (str, int, float, bool))
    return quoted(value) if plain else type(value).__name__
