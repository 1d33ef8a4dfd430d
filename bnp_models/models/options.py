"""Options of models, declared once as fields: their checks, documentation and list; random keys."""

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from bnp_models.data.arguments import described


class Option(NamedTuple):
    """Option of a model, as declared by a field."""

    name: str
    """Name of the field."""
    type: str
    """Type of the option, as written in the class."""
    default: Any
    """Default value."""
    help: str
    """Help text, in sentences."""
    choices: tuple[str, ...] = ()
    """Possible values, if these are words."""
    least: int | None = None
    """The least value of an integer."""
    positive: bool = False
    """Whether a number must be positive; None is accepted if it is the default."""
    command: bool = False
    """Whether the option exists on the command line."""


def option(
    default: Any,
    help: str,  # noqa: A002
    *,
    choices: Sequence[str] = (),
    least: int | None = None,
    positive: bool = False,
    command: bool = False,
    **field: Any,
) -> Any:
    """Declare a field of a model as one of its options; the arguments are fields of `Option`.

    Numbers that are not integers, and None, may be traced, except with `static`; all other values
    are static.
    """
    field.setdefault("static", not (default is None or isinstance(default, float)))
    declared = {"choices": tuple(choices), "least": least, "positive": positive, "command": command}
    metadata = {"option": {"help": " ".join(help.split()), **declared}}
    return eqx.field(default=default, metadata=metadata, **field)


def options_of(model: eqx.Module | type[eqx.Module]) -> dict[str, Option]:
    """Options of a model, or of its class, by name; keyword-only options come last."""
    fields = [field for field in dataclasses.fields(model) if "option" in field.metadata]
    fields.sort(key=lambda field: bool(field.kw_only))
    return {
        field.name: Option(
            field.name, _written(field.type), field.default, **field.metadata["option"]
        )
        for field in fields
    }


def _written(kind: object) -> str:
    """A type as it is written."""
    return kind.__name__ if isinstance(kind, type) else str(kind)


def check_options(model: eqx.Module) -> None:
    """Raise ValueError unless the values of a model are within what its fields declare."""
    for name, declared in options_of(model).items():
        value = vars(model)[name]
        if declared.choices and (isinstance(value, str) or not declared.positive):
            check_choice(declared.choices, **{name: value})
        elif declared.least is not None:
            check_integer(declared.least, **{name: value})
        elif declared.positive and not (value is None and declared.default is None):
            check_fixed(**{name: value})


_Class = TypeVar("_Class", bound=type)


def documented(cls: _Class) -> _Class:
    """Write the options of a model into its docstring, before "References"."""
    options, lines = list(options_of(cls).values()), []
    for i, one in enumerate(options):
        if i and one.help == options[i - 1].help:
            # One entry for several names.
            continue
        names = [other.name for other in options[i:] if other.help == one.help]
        lines += [", ".join(names), textwrap.indent(textwrap.fill(one.help, 92), "    ")]
    text = textwrap.indent("\n".join(["Parameters", "----------", *lines]), "    ")
    before, heading, after = (cls.__doc__ or "").partition("    References\n")
    cls.__doc__ = f"{before}{text}\n\n{heading}{after}"
    return cls


def check_fixed(**options: Any) -> None:
    """Raise ValueError unless the options are None or positive numbers; traced values pass."""
    for name, value in options.items():
        if value is None or (isinstance(value, jax.Array) and value.shape == ()):
            continue
        if isinstance(value, jax.Array | np.ndarray) and value.shape != ():
            raise ValueError(
                f"{name} must be one positive number, not an array of shape {value.shape}; "
                "jax.vmap fits a model for each of several numbers"
            )
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not (number and 0 < value < math.inf):
            raise ValueError(f"{name} must be a positive number, not {value!r}")


def fixed_or(fixed: ArrayLike | None, drawn: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the array that was drawn, or the number to which an option fixes it."""
    return drawn if fixed is None else jnp.full_like(drawn, fixed)


def check_integer(least: int, **options: object) -> None:
    """Raise ValueError unless the options are integers of at least `least`."""
    for name, value in options.items():
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")


def check_choice(choices: Sequence[str], **options: object) -> None:
    """Raise ValueError unless the options are among the choices."""
    for name, value in options.items():
        if value not in choices:
            raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")


def typed_key(key: jax.Array) -> jax.Array:
    """Return one typed random key; a key of `jax.random.PRNGKey` is converted.

    Raises TypeError for anything else.
    """
    if isinstance(key, jax.Array):
        if key.shape == () and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            return key
        if key.shape == (2,) and key.dtype == jnp.uint32:
            return jax.random.wrap_key_data(key)
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            raise TypeError(
                f"key must be one key, not {key.size:,}; all chains and draws derive theirs from it"
            )
    raise TypeError(f"key must be a random key, such as jax.random.key(0), not {described(key)}")


def key_or_default(key: jax.Array | None) -> jax.Array:
    """Return the given key, typed, or `jax.random.key(0)` if it is None."""
    return jax.random.key(0) if key is None else typed_key(key)


def as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names of variables, or the name of one, as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)
