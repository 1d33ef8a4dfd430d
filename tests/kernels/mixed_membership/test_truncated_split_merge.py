"""Splits and merges under structural zeros of large samples; of small ones the exact tests say."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import levels_of
from latent import structural_zeros

from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.mixed_membership import truncated_split_merge
from bnp_models.kernels.mixed_membership.tilts import Atoms, DirichletDensity, Truncation
from bnp_models.kernels.mixed_membership.urn_boxes import (
    UrnBoxes,
    block_sums,
    partition_totals,
    weights_by_size,
)
from bnp_models.kernels.numerics.set_partitions import log_block_weights

NUM_LEVELS = (2, 3, 4)
VARIABLE = np.repeat(np.arange(3), NUM_LEVELS)
CONDITIONS = [[0, 1, -1], [0, 2, -1], [1, 0, 2]]
RECORDS = 4_000_000
TABLES = np.array([2_000_000, 1_500_000, 500_000, 0, 0, 0, 0, 0])


@pytest.fixture
def state():
    """Two components, alike, each with millions of items, and levels proposed for a move."""
    rng = np.random.default_rng(0)
    levels = []
    for size in NUM_LEVELS:
        block = rng.dirichlet(np.ones(size), len(TABLES)).T
        block[:, 1] = block[:, 0] * np.exp(0.01 * rng.normal(size=size))
        levels.append(block / block.sum(axis=0))
    theta = np.concatenate(levels)
    items = np.round(theta[:, :2] * TABLES[:2] * 1.2).astype(np.int32)
    drawn = [
        np.stack([rng.dirichlet(1 + items[VARIABLE == j] @ on) for on in ([1, 0], [0, 1], [1, 1])])
        for j in range(3)
    ]
    g0 = rng.dirichlet(1 + TABLES)
    return tuple(
        x.astype(np.float32) for x in (theta, g0, np.concatenate(drawn, axis=1).T)
    ), items  # fmt: skip


@pytest.mark.parametrize("is_split", [pytest.param(True, marks=pytest.mark.long), False])
def test_large_sides_are_decided_in_double_precision(x64, state, is_split, monkeypatch):
    """Log ratios of a million nats, to a hundredth; single precision is shown to fail."""
    (theta, g0, drawn), items = state
    zeros = structural_zeros(CONDITIONS, NUM_LEVELS)

    def decide(dtype, drawn, double=False):
        """Log ratio by which the move is decided, and level probabilities after it."""
        region = Region.of_boxes([zeros.feasible.sets], NUM_LEVELS)
        boxes = UrnBoxes.of_boxes(zeros.feasible.sets, NUM_LEVELS)
        weights = weights_by_size(log_block_weights(0.9, boxes.most_variables), boxes)
        found = []
        proposal = SimpleNamespace(
            is_split=jnp.asarray(is_split), stays=jnp.int32(0), other=jnp.int32(1),
            items=jnp.asarray(items), tables=jnp.asarray(TABLES[:2], jnp.int32),
            labels=jnp.zeros((1, 1), jnp.int32),
            accepted=lambda ratio: found.append(ratio) or jnp.ones((), bool),
        )  # fmt: skip

        def levels(_, proposal, log_theta, *args):
            three = jnp.log(jnp.asarray(drawn, log_theta.dtype))
            of_state = jnp.append(three[:, :2], log_theta[:, :1], axis=1)
            of_merge = jnp.append(log_theta, three[:, 2:], axis=1)
            given = jnp.where(is_split, of_state, of_merge)
            return truncated_split_merge.weigh_side_levels(given, proposal, *args)

        @jax.jit
        def ratio(theta, g0, alpha0, shape, weights):
            atoms = Atoms(theta, g0, partition_totals(block_sums(theta, g0, boxes), boxes))
            density = DirichletDensity(
                jnp.asarray(items), levels_of(NUM_LEVELS, shape), jnp.asarray(TABLES), alpha0
            )
            moved = truncated_split_merge.split_or_merge_truncated(
                jax.random.key(0), proposal, proposal.labels, density, atoms,
                Truncation(jnp.asarray(RECORDS), weights, boxes), region, double=double,
            )  # fmt: skip
            return found[0], moved.theta

        share = np.log(TABLES[:2] / TABLES[:2].sum()).astype(np.float32)
        variates = {
            "propose_side_levels": levels, "gamma_variate": lambda _, total, __: total,
            "logbeta": lambda _, a, b: share.astype(a.dtype),
        }  # fmt: skip
        for name, function in variates.items():
            monkeypatch.setattr(truncated_split_merge, name, function)
        given = theta, g0, np.float32(1.3), np.ones(9), np.asarray(weights, np.float32)
        ratio, after = ratio(*(jnp.asarray(x, dtype) for x in given))
        return float(ratio), np.asarray(after)

    with jax.enable_x64(False):
        double, after = decide(np.float32, drawn, double=True)
        single, _ = decide(np.float32, drawn)
    # The levels as the state has them, rounded.
    drawn = np.stack([after[:, 0], after[:, 1], after[:, 0]], axis=1)
    exact, _ = decide(float, drawn)
    assert abs(double - exact) < 0.01 < 0.05 < abs(single - exact)
