"""Masses of the feasible and the impossible region are those of the levels drawn last."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from latent import all_cells, feasible_cells, structural_zeros

from bnp_models import NPLCM, TNPLCM
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.models.latent_classes import nplcm, truncated
from bnp_models.models.latent_classes.state import prepare_records

NUM_LEVELS, CONDITIONS = (2, 3, 2), [[1, 2, -1], [-1, 0, 1]]
CODES = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 0], [0, 1, 0]])
# Of an alpha near one, so that no weight is next to nothing.
OPTIONS = {"a": 9.0, "b": 9.0, "split_merge_every": 0, "level_prior": "uniform"}


def parameters_drawn(**how):
    """Parameters of four classes, each with a record, drawn anew; and their feasible masses."""
    model = TNPLCM(4, **OPTIONS, **how)
    data = prepare_records(model, CODES, NUM_LEVELS, structural_zeros(CONDITIONS, NUM_LEVELS))
    marginal, boxes = nplcm.update_parameters_marginal, truncated.update_parameters_boxes
    counts = jnp.zeros((sum(NUM_LEVELS), 4), jnp.int32).at[data.rows, jnp.arange(4)].add(1)

    @jax.jit
    def update(key):
        old = nplcm.draw_prior(model, key, data.levels)
        step = boxes if model.by_box else marginal
        return old, step(model, key, old, data, counts, jnp.ones(4, jnp.int32))[:2]

    old, (new, log_mass) = update(jax.random.key(1))
    assert (new.log_lambda != old.log_lambda).any(axis=0).all()
    return new, log_mass


def mass(state, cells):
    """Probability of these cells in every class."""
    log_p = state.log_lambda[cells + first_rows(NUM_LEVELS)].sum(axis=1)
    return np.exp(np.asarray(log_p, np.float64)).sum(axis=0)


@pytest.mark.parametrize(
    "how",
    [{}, {"augmentation": "boxes"}, {"truncation": "classes"}],
    ids=["mixture", "boxes", "classes"],
)
def test_feasible_masses_are_those_of_the_new_levels(how):
    new, log_mass = parameters_drawn(**how)
    exact = mass(new, feasible_cells(CONDITIONS, NUM_LEVELS))
    np.testing.assert_allclose(np.exp(log_mass), exact, rtol=1e-4)


def test_impossible_records_are_drawn_given_the_new_levels(monkeypatch):
    """Given are the probabilities outside and inside of the feasible region, class by class."""
    given = []

    def draw_augmented(key, log_outside, log_inside, num_records):
        jax.debug.callback(lambda *x: given.extend(x), log_outside, log_inside)
        # As many as cannot be counted, so that the weights stay as they are now.
        return jnp.full(log_outside.shape, -1)

    monkeypatch.setattr(truncated, "draw_augmented", draw_augmented)
    new, _ = parameters_drawn()
    jax.effects_barrier()
    inside = mass(new, feasible_cells(CONDITIONS, NUM_LEVELS))
    outside = mass(new, all_cells(NUM_LEVELS)) - inside
    for log_p, exact in zip(given, (outside, inside), strict=True):
        np.testing.assert_allclose(np.exp(log_p - new.log_pi), exact, rtol=1e-4)


def test_records_in_the_last_class_are_counted():
    """More of them than few say that there are too few classes."""
    model = NPLCM(3, reorder=False, swap=False, **OPTIONS)
    data = prepare_records(model, CODES, NUM_LEVELS)
    state = nplcm.draw_prior(model, jax.random.key(1), data.levels)
    counts = []
    for only in range(3):
        log_pi = jnp.where(jnp.arange(3) == only, 0.0, -jnp.inf)
        start = dataclasses.replace(state, log_pi=log_pi)
        _, info = model.sweep(jax.random.key(2), start, data, jnp.int32(0))
        counts.append(int(info.last_class))
    assert counts == [0, 0, len(CODES)]
