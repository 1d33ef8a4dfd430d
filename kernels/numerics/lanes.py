"""Values and loops that the lanes of `jax.vmap` share.

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

from bnp_models.kernels.numerics.platforms import on_accelerator


@custom_vmap
def most_of_lanes(x: Int[Array, ""] | Bool[Array, ""]) -> Int[Array, ""] | Bool[Array, ""]:
    """Largest value of `x` in any lane of `jax.vmap`, the same for all; outside it, `x`."""
    return x


@most_of_lanes.def_vmap
def _(size, batched, x):
    return jnp.max(x, axis=0), False


def in_turn(function):
    """Wrap a function of arrays so that lanes of `jax.vmap` go through it one after the other.

    Several lanes together are rounded otherwise than one alone. So a decision by sums of floats is
    the same however many of the lanes a device has. On accelerators lanes go together: in turn they
    would take 25 times as many launches.
    """

    @wraps(function)
    def call(*args):
        if on_accelerator():
            return function(*args)
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)

        # Traced already: values that it closes over have become arguments.
        @sequential_vmap
        def run(consts, leaves):
            return jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(*leaves)

        leaves = run(closed.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), leaves)

    return call
