"""Double precision within a program in single precision, for small sums that need it.

A log density of n records has about n nats, and a difference of a tenth of a nat can decide whether
a proposal is accepted. Sums over levels and components cost little compared with the work for each
record.
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
"""Number of records from which on their log density is computed in double precision."""


def double_precision() -> AbstractContextManager:
    """Context in which JAX computes in float64, also in programs that are traced in it."""
    return enable_x64(True)


def in_double(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of trees of arrays in double precision; the result has their precision.

    Values from the closure of the function do not change.
    """
    floats = [x.dtype for x in jax.tree.leaves(args) if jnp.issubdtype(x.dtype, jnp.floating)]
    with double_precision():
        result = function(*_with_floats(args, jnp.float64))
        return _with_floats(result, jnp.result_type(*floats))


def _with_floats(tree, dtype):
    """Tree with its floats converted to this type."""
    return jax.tree.map(
        lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
    )
