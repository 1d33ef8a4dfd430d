"""Values and loops that are shared by the lanes (batch elements) of `jax.vmap`.

A loop whose condition differs between lanes continues until the last lane is done. In each
iteration JAX selects, for every array of the loop, between lanes that continue and lanes that have
stopped, which costs as much as copying all arrays. If further iterations change nothing for a lane
that is done, a condition that is the same for all lanes avoids this cost.
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
    """Largest value of `x` over all lanes of `jax.vmap`, returned to each; outside vmap, `x`."""
    return x


@most_of_lanes.def_vmap
def _(size, batched, x):
    return jnp.max(x, axis=0), False


def in_turn(function):
    """Wrap a function of arrays so that the lanes of `jax.vmap` call it one after the other.

    Several lanes together are rounded differently from one alone. With this wrapper, a decision by
    sums of floats does not depend on the number of lanes on a device. On accelerators the lanes run
    together, because one after the other would need 25 times as many launches.
    """

    @wraps(function)
    def call(*args):
        if on_accelerator():
            return function(*args)
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)

        # The function is traced already: values from its closure have become arguments.
        @sequential_vmap
        def run(consts, leaves):
            return jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(*leaves)

        leaves = run(closed.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), leaves)

    return call
