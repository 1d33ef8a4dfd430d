"""Checks of the types of arguments, which are wrong if, for example, two arguments are swapped."""

from numbers import Real

from bnp_models.data.messages import listed, quoted


def check_kind(kinds: type | tuple[type, ...], call: str, **given: object) -> None:
    """Raise TypeError unless the arguments are of a given type.

    Parameters
    ----------
    kinds
        The type, or several types.
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


def check_number(**given: object) -> None:
    """Raise TypeError unless arguments are numbers."""
    for name, value in given.items():
        if not isinstance(value, Real) or isinstance(value, bool):
            raise TypeError(f"{name} must be a number, not {described(value)}")


def described(value: object) -> str:
    """Describe an argument for a message: a plain value by itself, any other by its type."""
    plain = value is None or isinstance(value, (str, int, float, bool))
    return quoted(value) if plain else type(value).__name__
