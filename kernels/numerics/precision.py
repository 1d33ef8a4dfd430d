"""Double precision within a program of single precision, for small sums that need it.

A log density of n records is of the order of n nats, and a difference of a tenth of a nat matters
for whether a proposal is accepted. Sums over levels and components cost little beside what is done
for each record.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp

try:
    from jax import enable_x64
except ImportError:
    from jax.experimental import enable_x64  # type: ignore[attr-defined,no-redef]

RECORDS = 2**15
"""Records from which on a log density of them all is evaluated in double precision."""


def double_precision() -> AbstractContextManager:
    """Context in which JAX computes in float64, of what is traced in it too."""
    return enable_x64(True)


def in_double(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of trees of arrays in double precision; the result has their precision.

    What the function reads besides its arguments keeps its values.
    """
    floats = [x.dtype for x in jax.tree.leaves(args) if jnp.issubdtype(x.dtype, jnp.floating)]
    with double_precision():
        result = function(*_with_floats(args, jnp.float64))
        return _with_floats(result, jnp.result_type(*floats))


def _with_floats(tree, dtype):
    """A tree whose floats have this type."""
    return jax.tree.map(
        lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
    )
