"""Balanced samples and calibrated weights of cells."""

from itertools import product

import numpy as np
import pytest
from scipy import optimize, stats

import bnp_models as bnp
from bnp_models.synthesis.calibration import balanced_sample, calibrate, shuffled_records

SCHEMA = bnp.Schema(("a", "b", "c"), (("0", "1"), ("0", "1", "2"), ("0", "1")))
CELLS = np.array(list(product(range(2), range(3), range(2))))


def some_weights(seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(len(CELLS)))


def sample(seed=1, n=400):
    rng = np.random.default_rng(seed)
    return bnp.Microdata(SCHEMA, CELLS[rng.choice(len(CELLS), n, p=some_weights(5))])


def two_way(codes, weight):
    """All two-way margins, one after the other."""
    tables = []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        table = np.zeros((SCHEMA.num_levels[i], SCHEMA.num_levels[j]))
        np.add.at(table, (codes[:, i], codes[:, j]), weight)
        tables.append(table.ravel())
    return np.concatenate(tables)


def test_expected_counts_are_those_of_the_weights():
    """And they vary less than those of records drawn at random."""
    weight, number, times = some_weights(), 30, 4000
    rng = np.random.default_rng(2)
    counts = np.array([balanced_sample(rng, CELLS, weight, number) for _ in range(times)])
    assert (counts.sum(axis=1) == number).all()
    error = np.sqrt(number * weight / times)
    z = (counts.mean(axis=0) - number * weight) / error
    assert np.abs(z).max() < 4.5
    of_multinomial = number * weight * (1 - weight)
    assert (counts.var(axis=0) < 0.6 * of_multinomial)[weight > 1 / number].all()
    first = counts[:, CELLS[:, 0] == 0].sum(axis=1)
    share = weight[CELLS[:, 0] == 0].sum()
    assert first.var() < 0.6 * number * share * (1 - share)
    # Planted: one stratum too few, the last of which is lost.
    biased = np.array([balanced_sample(rng, CELLS, weight, number - 1) for _ in range(times)])
    assert np.abs((biased.mean(axis=0) - number * weight) / error).max() > 4.5


def test_strata_are_drawn_independently_and_in_random_order():
    """Three cells in two strata: the half of all records is between the others in a third."""
    rng, weight = np.random.default_rng(3), np.array([0.5, 0.25, 0.25])
    counts = [balanced_sample(rng, np.arange(3)[:, None], weight, 2)[0] for _ in range(4000)]
    found, expected = np.bincount(counts, minlength=3) / 4000, np.array([1, 10, 1]) / 12
    assert (np.abs(found - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 4000)).all()


def test_records_are_shuffled():
    counts = np.arange(len(CELLS))
    records = shuffled_records(np.random.default_rng(0), CELLS, counts)
    cells = np.ravel_multi_index(records.T, SCHEMA.num_levels)
    np.testing.assert_array_equal(np.bincount(cells, minlength=len(CELLS)), counts)
    assert (np.diff(cells) < 0).any()


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_calibrated_weights_have_the_margins(share):
    weight, table = some_weights(), sample()
    made = calibrate(CELLS, weight, table.tabulated, share)
    observed = two_way(table.codes, np.full(table.n, 1 / table.n))
    expected = share * two_way(CELLS, weight) + (1 - share) * observed
    assert made.sum() == pytest.approx(1)
    np.testing.assert_allclose(two_way(CELLS, made), expected, atol=2e-4)


def test_calibrated_weights_are_the_nearest_in_relative_entropy():
    """Against a general optimiser; of all weights with these margins one direction is left over."""
    weight, table = some_weights(3), sample(4)
    made = calibrate(CELLS, weight, table.tabulated, 0.2)
    design = np.array([two_way(CELLS, row) for row in np.eye(len(CELLS))]).T
    free = np.linalg.svd(design)[2][np.linalg.matrix_rank(design) :]
    assert len(free) == 2

    def entropy(step):
        moved = made + step @ free
        return np.inf if (moved <= 0).any() else stats.entropy(moved, weight)

    best = optimize.minimize(entropy, np.zeros(2), method="Nelder-Mead", tol=1e-12)
    assert entropy(np.zeros(2)) - best.fun < 1e-6
    # Planted: weights that have the margins and not the interactions of the model.
    other = calibrate(CELLS, np.ones(len(CELLS)), table.tabulated, 0.0)
    assert entropy((other - made) @ free.T) - best.fun > 1e-3


def test_cells_that_no_weight_reaches_are_left_out():
    """And zeros stay zeros."""
    possible = ~((CELLS[:, 0] == 1) & (CELLS[:, 1] == 2))
    made = calibrate(CELLS[possible], some_weights()[possible], sample().tabulated)
    assert np.isfinite(made).all() and made.sum() == pytest.approx(1)


def test_one_variable():
    schema = bnp.Schema(("a",), (("0", "1"),))
    table = bnp.Microdata(schema, np.array([[0]] * 30 + [[1]] * 10))
    made = calibrate(np.array([[0], [1]]), np.array([0.5, 0.5]), table.tabulated, 0.5)
    np.testing.assert_allclose(made, [0.625, 0.375], atol=1e-4)
