"""Baselines: fits against closed forms, risks against simulation."""

import itertools

import numpy as np
import pytest
from harness import Z_LIMIT
from populations import weighted
from scipy.stats import poisson

import bnp_models as bnp
from bnp_models.risk.interactions import Bounds, fit_margins, list_cells
from bnp_models.risk.reciprocals import poisson_reciprocal


@pytest.fixture(scope="module")
def records():
    """Four variables with two-way interactions, and a combination that never occurs."""
    random = np.random.default_rng(0)
    sizes = (3, 4, 2, 3)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*map(range, sizes), indexing="ij")], 1)
    effect = np.zeros(len(grid))
    for i in range(4):
        for j in range(i):
            table = random.normal(0, 0.7, (sizes[i], sizes[j]))
            effect += table[grid[:, i], grid[:, j]]
    effect[(grid[:, 0] == 1) & (grid[:, 1] == 2)] = -np.inf
    p = np.exp(effect)
    return grid[random.choice(len(grid), 600, p=p / p.sum())].astype(np.int32)


def test_main_effects_are_products_of_margins(records):
    cells = weighted(records, 6000)
    fitted = bnp.loglinear_risk(cells, structure="independence")
    pairs = zip(records.T, cells.codes.T, strict=True)
    expected = 6000 * np.prod([np.bincount(c, minlength=9)[k] / 600 for c, k in pairs], axis=0)
    np.testing.assert_allclose(fitted.population_mean, expected, rtol=1e-12)


def test_two_way_margins_are_those_of_the_sample(records):
    """The support leaves out what some two-way margin excludes, and holds all else."""
    pairs = list(itertools.combinations(range(4), 2))
    support = list_cells(np.unique(records, axis=0), pairs, 10**6)
    assert not ((support[:, 0] == 1) & (support[:, 1] == 2)).any()
    assert len(support) == 3 * 4 * 2 * 3 - 2 * 3
    cells = weighted(records, 6000, np.random.default_rng(1).uniform(5, 15, 600))
    weight = cells.weight / cells.weight.sum()
    fitted, _, discrepancy = fit_margins(support, cells.codes, weight, pairs, Bounds())
    assert discrepancy < 1e-6
    for i in range(4):
        for j in range(i):
            key, seen = support[:, i] * 9 + support[:, j], cells.codes[:, i] * 9 + cells.codes[:, j]
            margins = np.bincount(key, fitted, 100), np.bincount(seen, weight, 100)
            np.testing.assert_allclose(*margins, atol=2e-6)
    # Log-linear: no interaction of three variables is left in the fit.
    table = np.zeros((3, 4, 2, 3))
    table[tuple(support.T)] = fitted
    part = np.log(table[np.ix_([0, 2], [0, 1], [0, 1], [0])][..., 0])
    assert abs(np.diff(np.diff(np.diff(part, axis=0), axis=1), axis=2).item()) < 1e-8


def test_two_variables_are_saturated(records):
    cells = weighted(records[:, :2], 6000)
    fitted = bnp.loglinear_risk(cells, structure="two-way")
    np.testing.assert_allclose(fitted.population_mean, cells.f * 10, rtol=1e-12)
    assert fitted.support == 0


def test_too_large_a_support_is_refused(records):
    with pytest.raises(bnp.MicrodataError, match="more than 20 cells"):
        bnp.loglinear_risk(weighted(records, 6000), max_support=20)
    with pytest.raises(ValueError, match="structure is one of independence, two-way"):
        bnp.loglinear_risk(weighted(records, 6000), structure="tree")


def test_poisson_reciprocal():
    f = np.array([1.0, 1, 2, 5, 40, 3, 1])
    mean = np.array([0.0, 1e-9, 0.3, 7, 900, 1e4, 1e8])
    value = poisson_reciprocal(f, mean)
    for k in range(6):
        x = np.arange(13_000)
        np.testing.assert_allclose(
            value[k], np.sum(poisson.pmf(x, mean[k]) / (f[k] + x)), rtol=1e-9
        )
    np.testing.assert_allclose(value[6], 1e-8, rtol=1e-7)
    np.testing.assert_allclose(value[0], 1, rtol=1e-12)


@pytest.mark.parametrize("fraction", [0.2, 0.6])
def test_risks_against_simulated_populations(fraction):
    """Many cells whose means the main effects fit exactly: the scale of lambda is the population's.

    With the mean of the *sample* counts for lambda, a fault of a well-known package, it is seen;
    and so is, where most are sampled, the mean of all persons for that of those who are not.
    """
    random = np.random.default_rng(5)
    sizes = (60, 50)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*map(range, sizes), indexing="ij")], 1)
    p = random.dirichlet(np.ones(60))[grid[:, 0]] * random.dirichlet(np.ones(50))[grid[:, 1]]
    F = random.poisson(6000 * p)
    f = random.binomial(F, fraction)
    cells = weighted(np.repeat(grid, f, axis=0).astype(np.int32), int(F.sum()), num_cells=3000)
    fitted = bnp.loglinear_risk(cells, structure="independence")
    true = 1 / F[f > 0]
    unique = cells.f == 1

    def z_scores(risk, p_unique):
        return np.array([
            (true.sum() - risk.sum()) / np.sqrt((risk * (1 - risk)).sum()),
            ((true == 1).sum() - p_unique.sum()) / np.sqrt((p_unique * (1 - p_unique)).sum()),
        ])  # fmt: skip

    assert unique.sum() > 300
    assert np.abs(z_scores(fitted.risk, fitted.p_unique)).max() < Z_LIMIT
    unseen = (1 - cells.phat) * fitted.population_mean * fraction
    if fraction > 0.5:
        unseen = fitted.population_mean
    wrong = poisson_reciprocal(cells.f, unseen), np.where(unique, np.exp(-unseen), 0)
    assert np.abs(z_scores(*wrong)).min() > Z_LIMIT


def test_benedetti_franconi_by_cells(records):
    cells = weighted(records, 6000, np.random.default_rng(1).uniform(1, 30, 600))
    risk = bnp.risk.benedetti_franconi_risk(cells)
    p = cells.phat
    unique = cells.f == 1
    expected = -p * np.log(p) / (1 - p)
    np.testing.assert_allclose(risk[unique], expected[unique], rtol=1e-9)
