"""Rows of padding are of no one: what they hold changes nothing of the parameters."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from latent import structural_zeros

from bnp_models import NPLCM, TNPLCM
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.models.latent_classes import conditionals, nplcm
from bnp_models.models.latent_classes.state import count_levels, one_hot_levels, prepare_records

NUM_LEVELS = (2, 3, 2)
CONDITIONS = [[1, 2, -1]]
CODES = np.array([[0, 0, 0], [0, 1, -1], [1, 0, 1], [0, -1, 1], [1, 1, 0]])
# Records of the first of four cells with counts; the other three are padding.
COUNTED = 7


def with_padding(data, seed):
    """The same records and a cell of seven more, and other values wherever there is padding."""
    keys = jax.random.split(jax.random.key(seed), 4)
    limits, first = (jnp.asarray(x)[:, None] for x in (NUM_LEVELS, first_rows(NUM_LEVELS)))
    codes, cells = (
        jax.random.randint(key, (len(NUM_LEVELS), size), 0, limits, jnp.int32)
        for key, size in zip(keys[:2], (data.weight.size, 4), strict=True)
    )
    cells = cells.at[:, 0].set(0)
    real, incomplete = data.weight > 0, data.incomplete < data.weight.size
    missing = jax.random.bernoulli(keys[2], shape=data.missing.shape)
    admitted = jax.random.bernoulli(keys[3], shape=data.admitted.shape).astype(float)
    return dataclasses.replace(
        data,
        rows=jnp.where(real, data.rows, codes + first),
        one_hot=jnp.where(real, data.one_hot, one_hot_levels(codes, NUM_LEVELS)),
        missing=jnp.where(incomplete[:, None], data.missing, missing),
        admitted=jnp.where(incomplete, data.admitted, admitted),
        cell_rows=cells + first,
        cell_one_hot=one_hot_levels(cells, NUM_LEVELS),
        cell_counts=jnp.zeros(4, jnp.int32).at[0].set(COUNTED),
        num_records=data.num_records + COUNTED,
    )


def check(model, step):
    """Make steps of two samples that differ in their padding alone, and compare the results."""
    zeros = structural_zeros(None if isinstance(model, NPLCM) else CONDITIONS, NUM_LEVELS)
    data = prepare_records(model, CODES, NUM_LEVELS, zeros, multiple=8)
    assert data.weight.size > len(CODES) and data.incomplete.size > 2
    samples = [with_padding(data, seed) for seed in (1, 2)]
    state = jax.jit(nplcm.draw_prior)(model, jax.random.key(3), data.levels)
    step = jax.jit(step)
    for key in jax.random.split(jax.random.key(4), 5):
        found = [step(key, state, data, jnp.int32(0)) for data in samples]
        jax.tree.map(np.testing.assert_array_equal, *found)


def test_counts_do_not_depend_on_padding():
    """Those of classes and levels, which are all that the parameters know of the sample."""

    def step(key, state, data, t):
        records, log_likelihood = conditionals.update_classes(key, state, data)
        counts, of_class = count_levels(records, NUM_LEVELS, 3)
        return counts, of_class, log_likelihood

    check(TNPLCM(3), step)


@pytest.mark.long
@pytest.mark.parametrize(
    "model",
    [
        NPLCM(3, split_merge_every=1),
        TNPLCM(3, split_merge_every=1),
        TNPLCM(3, split_merge_every=1, augmentation="boxes"),
        TNPLCM(3, split_merge_every=1, truncation="classes"),
    ],
    ids=["no structural zeros", "mixture", "boxes", "classes"],
)
def test_a_sweep_does_not_depend_on_padding(model):
    check(model, model.sweep)
