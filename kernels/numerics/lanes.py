"""What the lanes of `jax.vmap` have in common.

A loop whose condition differs from lane to lane goes on until the last lane is done, and JAX then
selects, every time round and for every array that the loop carries, between the lanes that go on
and those that have stopped: as costly as copying all of them. Where another time round changes
nothing for a lane that is done, a condition that is the same for all lanes saves that.
"""

from functools import wraps

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap, sequential_vmap
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array, Bool, Int


@custom_vmap
def most_of_lanes(x: Int[Array, ""] | Bool[Array, ""]) -> Int[Array, ""] | Bool[Array, ""]:
    """The largest value of `x` in any lane of `jax.vmap`, the same for all; without it, `x`."""
    return x


@most_of_lanes.def_vmap
def _(size, batched, x):
    return jnp.max(x, axis=0), False


def in_turn(function):
    """`function`, of arrays, which lanes of `jax.vmap` go through one after the other.

    Several lanes together are rounded otherwise than one alone. What decides by sums of floats is
    so the same however many of the lanes a device has.
    """

    @wraps(function)
    def call(*args):
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)

        # Traced already: what it has taken from around it is an argument.
        @sequential_vmap
        def run(consts, leaves):
            return jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(*leaves)

        leaves = run(closed.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), leaves)

    return call
