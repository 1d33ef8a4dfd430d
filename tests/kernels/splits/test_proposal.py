"""Proposals of splits and merges: the records that shape them."""

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.kernels.numerics.counting import count_components, count_rows_by_component
from bnp_models.kernels.splits import proposal, seated_items
from bnp_models.kernels.variates.levels import Levels

J, N, LEVELS, SLOTS = 3, 600, 5, 6


def test_few_records_shape_a_proposal_as_if_the_others_were_padding(monkeypatch):
    """Components of 60 to 540 records: some take the rounds of few records, some those of all."""
    rng = np.random.default_rng(0)
    z = np.tile(rng.choice(3, N, p=[0.2, 0.1, 0.7]).astype(np.int32), (J, 1))
    rows = (rng.integers(0, LEVELS, (J, N)) + LEVELS * np.arange(J)[:, None]).astype(np.int32)
    z, rows = jnp.asarray(z), jnp.asarray(rows)
    levels = Levels.of_variables((LEVELS,) * J).with_shape(jnp.full(J * LEVELS, 0.5))
    counts = count_rows_by_component(rows, z, jnp.ones(N, jnp.int32), (J * LEVELS, SLOTS))
    tables = count_components(z[0], jnp.ones(N, jnp.int32), SLOTS)
    seated = seated_items.SeatedItems(z, jnp.zeros_like(z), rows, jnp.int32(N))

    def proposals(few):
        monkeypatch.setattr(proposal, "FEW_RECORDS", few)

        def one(key):
            return proposal.propose_sides(key, seated, counts, tables, levels, jnp.int32(3))

        return jax.lax.map(one, jax.random.split(jax.random.key(1), 40))

    found, expected = proposals(256), proposals(N)
    concerned = np.asarray(found.tables).sum(axis=1)
    assert (concerned <= 250).any() and (concerned > 256).any()
    for new, old in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(new, old)
