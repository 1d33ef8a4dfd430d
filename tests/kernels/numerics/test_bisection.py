"""Bisection of many lanes at once."""

import jax.numpy as jnp
import numpy as np

from bnp_models.kernels.numerics.bisection import bisect


def test_the_change_is_enclosed():
    square = jnp.asarray([0.25, 2.0, 9.0])
    low, high = bisect(lambda x: x * x < square, jnp.zeros(3), jnp.full(3, 4.0), 20)
    assert (low * low < square).all() and (high * high >= square).all()
    np.testing.assert_array_equal(high - low, 4.0 * 2.0**-20)
    # Shown to fail: the other direction.
    low, high = bisect(lambda x: x * x > square, jnp.zeros(3), jnp.full(3, 4.0), 20)
    assert not ((low * low < square) & (high * high >= square)).any()
