"""Arrays of coded households for the nested model."""

import jax.numpy as jnp
import numpy as np

DISTINCT_BELOW = 0.8
"""Share of distinct members up to which probabilities are computed for these alone."""

FEW_MEMBERS = 512
"""Members below which that is not tried."""


def variable_of_rows(num_levels):
    return jnp.asarray(np.repeat(np.arange(len(num_levels)), num_levels), jnp.int32)


def distinct_members(member_codes):
    """The distinct members and which of them each one is, where they are few enough."""
    if member_codes.shape[1] < FEW_MEMBERS:
        return None
    codes, index = np.unique(member_codes, axis=1, return_inverse=True)
    if codes.shape[1] > DISTINCT_BELOW * member_codes.shape[1]:
        return None
    return jnp.asarray(codes, jnp.int32), jnp.asarray(index.reshape(-1), jnp.int32)
