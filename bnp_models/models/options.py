"""Checks of options and of random keys."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bnp_models.data.arguments import described


def check_positive(**options: Any) -> None:
    """Raise ValueError unless the numbers are positive; traced values pass."""
    for name, value in options.items():
        if isinstance(value, (int, float)) and not value > 0:
            raise ValueError(f"{name} must be positive, not {value}")


def check_fixed(**options: Any) -> None:
    """Raise ValueError unless the options are None or positive numbers; traced values pass."""
    for name, value in options.items():
        if value is None or isinstance(value, jax.Array):
            continue
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not (number and 0 < value < math.inf):
            raise ValueError(f"{name} must be a positive number, not {value!r}")


def fixed_or(fixed: Any, drawn: Float[Array, "..."]) -> Float[Array, "..."]:
    """An array that was drawn, or, where an option fixes it, that number in its place."""
    return drawn if fixed is None else jnp.full_like(drawn, fixed)


def check_integer(least: int, **options: Any) -> None:
    """Raise ValueError unless the options are integers of at least `least`."""
    for name, value in options.items():
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")


def check_choice(choices: Sequence[str], **options: Any) -> None:
    """Raise ValueError unless the options are among the choices."""
    for name, value in options.items():
        if value not in choices:
            raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")


def typed_key(key: jax.Array) -> jax.Array:
    """Return one random key, typed where it is of `jax.random.PRNGKey`; else raise TypeError."""
    if isinstance(key, jax.Array):
        if key.shape == () and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            return key
        if key.shape == (2,) and key.dtype == jnp.uint32:
            return jax.random.wrap_key_data(key)
    raise TypeError(f"key must be a random key, such as jax.random.key(0), not {described(key)}")


def as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names of variables, or the name of one, as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)
