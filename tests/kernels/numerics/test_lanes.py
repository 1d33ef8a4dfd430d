"""Lanes of `jax.vmap`: taken in turn, what each has is what it has alone."""

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.kernels.numerics.platforms import in_turn

SIZE = 1025


def lanes(num_lanes, wrap, x, shift):
    """A sum of each of the first lanes that closes over an array; within a loop, as in a sweep."""

    @jax.jit
    def run(x, shift):
        def one(x):
            log_sum = wrap(lambda tree: (jax.nn.logsumexp(tree["x"] + shift), tree["n"] + 1))

            def again(i, carry):
                total, n = log_sum({"x": x + 0 * carry[0], "n": carry[1]})
                return total, n

            return jax.lax.fori_loop(0, 3, again, (jnp.float32(0), jnp.int32(0)))

        return jax.vmap(one)(x[:num_lanes])

    return [np.asarray(out) for out in run(x, shift)]


def test_lanes_in_turn_have_the_bits_of_one_alone(seed):
    x = jnp.asarray(np.random.default_rng(seed).normal(size=(8, SIZE)), jnp.float32)
    shift = jnp.linspace(-1, 1, SIZE)
    together, n = lanes(8, in_turn, x, shift)
    alone = [lanes(1, in_turn, x[i : i + 1], shift)[0][0] for i in range(8)]
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(n, 3)
    plain, _ = lanes(8, lambda function: function, x, shift)
    np.testing.assert_allclose(together, plain, rtol=1e-6)


def test_in_turn_without_lanes_is_the_function():
    assert in_turn(lambda x, y: {"sum": x + y})(jnp.int32(2), jnp.int32(3)) == {"sum": 5}
