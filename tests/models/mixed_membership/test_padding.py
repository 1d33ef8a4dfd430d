"""Rows of padding are of no one: what they hold changes nothing of the records or parameters."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from truncated import BINARY, CONDITIONS, SAMPLES, structural_zeros

from bnp_models import HDPMixedMembership, MixedMembership
from bnp_models.models.mixed_membership import truncated_sweep
from bnp_models.models.mixed_membership.augmentation import Augmented
from bnp_models.models.mixed_membership.options import CONCENTRATIONS
from bnp_models.models.mixed_membership.start import prepare_records

CODES = np.array(SAMPLES["one"])
PADDED, CAPACITY = 2 * len(CODES), 4
# The moves of labels and tables take longest to compile, and so does what a learned prior adds.
FEW_MOVES = {
    "dish_stride": 0, "cell_stride": 0, "seating_every": 0, "trajectory_steps": 2,
    "level_prior": "uniform",
}  # fmt: skip
ALL_MOVES = {"dish_stride": 2, "cell_stride": 1, "seating_every": 1, "trajectory_steps": 2}


def models(split_merge_every, **moves):
    """Every model of the family, by name."""
    found = {"fixed": MixedMembership(components=CAPACITY, **moves)}
    for how in CONCENTRATIONS:
        options = {"concentration": how, "split_merge_every": split_merge_every}
        found[how] = HDPMixedMembership(**options, **moves)
    return found


def with_other_padding(data, state, seed):
    """The same records, with values, labels and concentrations of its own in each other row."""
    key_rows, key_z, key_alpha = jax.random.split(jax.random.key(seed), 3)

    def other(x, drawn):
        return jnp.where(data.weight > 0, x, drawn.astype(x.dtype))

    rows = jax.random.randint(key_rows, data.rows.shape, 0, sum(BINARY))
    z = jax.random.randint(key_z, state.z.shape, 0, CAPACITY)
    alpha = state.alpha
    if alpha.ndim:
        alpha = other(alpha, jax.random.exponential(key_alpha, alpha.shape))
    data = dataclasses.replace(data, rows=other(data.rows, rows))
    return data, dataclasses.replace(state, z=other(state.z, z), alpha=alpha)


def without_padding(state):
    """The state, of records only."""
    alpha = state.alpha[: len(CODES)] if state.alpha.ndim else state.alpha
    return dataclasses.replace(state, z=state.z[:, : len(CODES)], alpha=alpha)


def check(model, conditions):
    """Make sweeps of two samples that differ in their padding alone, and compare all else."""
    data = prepare_records(model, CODES, BINARY, structural_zeros(conditions), multiple=PADDED)
    state = model.init(jax.random.key(1), data, CAPACITY, 3)
    samples = [with_other_padding(data, state, seed) for seed in (2, 3)]
    sweep, labels = jax.jit(model.sweep), []
    # Of several, since a move may be rejected of both.
    for key in jax.random.split(jax.random.key(4), 10):
        found = [sweep(key, start, data, jnp.int32(0)) for data, start in samples]
        rest = [(without_padding(new), info) for new, info in found]
        jax.tree.map(np.testing.assert_array_equal, *rest)
        labels.append([new.z[:, len(CODES) :] for new, _ in found])
    one, other = np.swapaxes(labels, 0, 1)
    assert (one != other).any()


CELLS = {"all cells": [], "zeros": CONDITIONS["one"]}
FEW, ALL = models(0, **FEW_MOVES), models(1, **ALL_MOVES)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("fixed", "all cells"), ("hierarchical", "zeros"),
        pytest.param("shared", "all cells", marks=pytest.mark.long),
        pytest.param("shared", "zeros", marks=pytest.mark.long),
        pytest.param("hierarchical", "all cells", marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_parameters_do_not_depend_on_padding(name, cells, monkeypatch):
    """Records of the impossible region, which know nothing of padding, are left out."""

    def none(model, key, state, data):
        nobody = jnp.zeros((len(data.zeros.parts.variable), CAPACITY), jnp.int32)
        return Augmented(jnp.int32(0), nobody[0], nobody, jnp.zeros_like(state.alpha0))

    monkeypatch.setattr(truncated_sweep, "draw_augmented", none)
    check(FEW[name], CELLS[cells])


@pytest.mark.long
@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("name", ALL)
def test_a_sweep_with_all_moves_does_not_depend_on_padding(name, cells):
    check(ALL[name], CELLS[cells])
