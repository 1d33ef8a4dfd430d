"""Anchors of a split or a merge."""

import jax
import jax.numpy as jnp

from bnp_models.kernels.splits import anchors, seated_items
from bnp_models.kernels.variates.levels import Levels


def test_a_partner_that_rounding_picks_is_none():
    """A uniform that rounds up to the sum of the probabilities is beyond their last sum."""
    z = jnp.array([[0, 1], [0, 1]])
    counts = jnp.array([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0]])
    present = anchors.Counts(counts, jnp.array([1, 1, 0]))

    def chosen(share):
        u = jnp.array([0.0, 0.9, share, 0.5])
        levels, num_records = Levels.of_variables((2, 2)), jnp.int32(2)
        seated = seated_items.SeatedItems(
            z, jnp.zeros_like(z), jnp.array([[0, 1], [2, 3]]), num_records
        )
        return anchors.choose_anchors(jax.random.key(0), u, seated, present, levels, jnp.int32(2))

    assert chosen(0.5).possible and chosen(0.5).k_b == 1
    assert not chosen(1.0).possible
