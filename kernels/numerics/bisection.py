"""Elementwise bisection with a fixed number of steps."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float


def bisect(
    holds: Callable[[Float[Array, "..."]], Bool[Array, "..."]],
    low: Float[Array, "..."],
    high: Float[Array, "..."],
    steps: int,
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Enclose the point at which a predicate changes from true (below) to false (above).

    Parameters
    ----------
    holds
        Function of an array, elementwise; assumed true at `low` and false at `high`.
    low, high
        Arrays of one shape.
    steps
        Number of halvings.

    Returns
    -------
    low, high
        Ends of the remaining interval.
    """

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        below = holds(middle)
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    return lax.fori_loop(0, steps, halve, (low, high))
