"""Predictions for many variables: right for each, and by programs that do not grow with them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bnp_models.kernels.boxes.region import masses_of_sets
from bnp_models.kernels.numerics.counting import first_rows, variables_by_size
from bnp_models.models.latent_classes import predictions

NUM_LEVELS = (3, 2, 3, 2, 4)
FIRST = first_rows(NUM_LEVELS)


def draw_of(num_levels, seed=0, classes=3):
    rng = np.random.default_rng(seed)
    levels = [rng.dirichlet(np.ones(k), classes).T for k in num_levels]
    return {
        "log_pi": jnp.log(rng.dirichlet(np.ones(classes))),
        "log_lambda": jnp.log(np.concatenate(levels)), "log_feasible": jnp.zeros(()),
    }  # fmt: skip


def boxes(seed=1):
    """Disjoint boxes: the first variable tells them apart."""
    sets = np.random.default_rng(seed).random((3, sum(NUM_LEVELS))) < 0.6
    sets[:, FIRST[1:]] = True
    sets[:, :3] = np.eye(3)
    return sets


def test_variables_of_one_size_go_together():
    found = [(v.tolist(), rows.tolist()) for v, rows in variables_by_size(NUM_LEVELS)]
    assert found == [
        ([1, 3], [[3, 4], [8, 9]]), ([0, 2], [[0, 1, 2], [5, 6, 7]]), ([4], [[10, 11, 12, 13]]),
    ]  # fmt: skip


def test_masses_of_sets():
    draw, sets = draw_of(NUM_LEVELS), boxes()
    level = np.exp(draw["log_lambda"])
    masses = masses_of_sets(draw["log_lambda"], jnp.asarray(sets), NUM_LEVELS)
    for j, (start, size) in enumerate(zip(FIRST, NUM_LEVELS, strict=True)):
        rows = slice(start, start + size)
        np.testing.assert_allclose(masses[j], sets[:, rows] @ level[rows], rtol=1e-5)


@pytest.mark.parametrize("constrained", [False, True])
def test_level_probabilities_are_sums_over_all_cells(constrained):
    draw, sets = draw_of(NUM_LEVELS), boxes()
    feasible = jnp.asarray(sets) if constrained else None
    rows = np.array(list(itertools.product(*map(range, NUM_LEVELS)))) + FIRST
    p = np.exp(draw["log_lambda"])[rows].prod(axis=1) @ np.exp(draw["log_pi"])
    if constrained:
        p = np.where(sets[:, rows].all(axis=2).any(axis=0), p, 0)
    expected = np.array([p[(rows == r).any(axis=1)].sum() for r in range(sum(NUM_LEVELS))])
    found = predictions.level_probabilities(draw, NUM_LEVELS, feasible)
    np.testing.assert_allclose(found, expected / p.sum(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("constrained", [False, True])
def test_programs_do_not_grow_with_the_variables(constrained):
    def lines(number):
        num_levels = (2, 3) * (number // 2)
        shape = jax.eval_shape(lambda: draw_of(num_levels))
        sets = jax.ShapeDtypeStruct((2, sum(num_levels)), bool) if constrained else None

        def margins(draw, sets):
            return predictions.level_probabilities(draw, num_levels, sets)

        def records(draw, sets):
            return predictions.simulate_records(jax.random.key(0), draw, 8, num_levels, sets)

        return [len(jax.jit(of).lower(shape, sets).as_text().splitlines())
                for of in (margins, records)]  # fmt: skip

    few, many = lines(16), lines(128)
    assert all(y < 1.2 * x for x, y in zip(few, many, strict=True)), (few, many)
