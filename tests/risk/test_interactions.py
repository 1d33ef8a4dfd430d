"""Log-linear models with some interactions: by hand, against full grids, and criterion B_1."""

import itertools

import numpy as np
import pytest
from harness import Z_LIMIT

import bnp_models as bnp
from bnp_models.risk.interactions import (
    Bounds,
    Fitter,
    blocks_of,
    fit_margins,
    forest,
    gains,
    list_cells,
    misfit_of_uniques,
    spread_evenly,
)


def grid_of(sizes):
    """All cells of a table, (C, J)."""
    return np.array(list(itertools.product(*map(range, sizes))), np.int32)


def cells_of(codes, population_size, sizes):
    names = tuple(f"v{j}" for j in range(len(sizes)))
    table = bnp.Microdata(bnp.Schema(names, tuple(tuple(range(k)) for k in sizes)), codes)
    return bnp.weighted_cells(table, population_size)


def test_a_table_by_hand():
    """Ten records; p(a, b) p(b, c) / p(b), and the risk of the one that is alone."""
    rows = [(0, 0, 0)] * 4 + [(0, 1, 1)] * 2 + [(1, 0, 0)] * 1 + [(1, 1, 1)] * 2 + [(1, 1, 0)] * 1
    codes = np.array(rows, np.int32)
    cells = cells_of(codes, 100, (2, 2, 2))
    fitted = Fitter(cells.codes, cells.weight / 100, Bounds()).fit([(0, 1), (1, 2)])
    # Cells (0,0,0), (0,1,1), (1,0,0), (1,1,0), (1,1,1); b = 0 and b = 1 have five records each.
    by_hand = [0.4 * 0.5 / 0.5, 0.2 * 0.4 / 0.5, 0.1 * 0.5 / 0.5, 0.3 * 0.1 / 0.5, 0.3 * 0.4 / 0.5]
    np.testing.assert_allclose(fitted.share, by_hand, rtol=1e-12)
    risk = bnp.loglinear_risk(cells, structure="forest")
    # AIC: n I(b, c) = 4.2 pays for one parameter, I(a, b) does not: a is by itself.
    assert risk.interactions == (("v1", "v2"),)
    # p(a) p(b, c) of the two cells of one record: (1,0,0) and (1,1,0).
    means = np.array([100 * 0.4 * 0.5, 100 * 0.4 * 0.1])
    np.testing.assert_allclose(risk.population_mean[[2, 3]], means, rtol=1e-12)
    unseen = 0.9 * means
    np.testing.assert_allclose(risk.tau1, np.exp(-unseen).sum(), rtol=1e-12)
    np.testing.assert_allclose(risk.tau2, np.sum((1 - np.exp(-unseen)) / unseen), rtol=1e-9)


@pytest.mark.parametrize(
    ("edges", "blocks"),
    [
        ([], []),
        ([(0, 1), (2, 3)], [[(0, 1)], [(2, 3)]]),
        ([(0, 1), (1, 2), (2, 3), (0, 2)], [[(0, 1), (0, 2), (1, 2)], [(2, 3)]]),
        # Two triangles that share a variable are two blocks; joined by an edge they are one.
        (
            [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)],
            [[(0, 1), (0, 2), (1, 2)], [(2, 3), (2, 4), (3, 4)]],
        ),
        (
            [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4), (1, 4)],
            [[(0, 1), (0, 2), (1, 2), (1, 4), (2, 3), (2, 4), (3, 4)]],
        ),
    ],
)
def test_blocks_are_what_no_single_variable_separates(edges, blocks):
    assert sorted(sorted(block) for block in blocks_of(edges)) == blocks


GRAPHS = {
    "a path": [(0, 1), (1, 2), (2, 3), (3, 4)],
    "a star and one apart": [(0, 1), (0, 2), (0, 3)],
    "two triangles that share a variable": [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)],
    "a cycle and a branch": [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)],
}


@pytest.mark.parametrize("edges", GRAPHS.values(), ids=list(GRAPHS))
def test_blocks_against_fits_of_the_whole_grid(edges):
    """Iterative proportional fitting of all cells; without the variables shared it is seen."""
    random = np.random.default_rng(3)
    sizes = (3, 2, 4, 3, 2)
    codes = np.unique(grid_of(sizes)[random.integers(144, size=300)], axis=0)
    weight = random.dirichlet(np.ones(len(codes)))
    grid = list_cells(codes, edges, 10**6)
    alone = [[(j, j)] for j in range(5) if all(j not in edge for edge in edges)]
    expected, _, discrepancy = fit_margins(
        grid, codes, weight, [*edges, *itertools.chain(*alone)], Bounds()
    )
    assert discrepancy < 1e-6
    by_cell = {tuple(cell): p for cell, p in zip(grid, expected, strict=True)}
    fitted = Fitter(codes, weight, Bounds()).fit(edges)
    right = [by_cell[tuple(cell)] for cell in codes]
    np.testing.assert_allclose(fitted.share, right, rtol=1e-4)
    planted = np.prod([block.share[block.where] for block, _ in fitted.parts], axis=0)
    assert np.abs(planted / right - 1).max() > 0.1
    # What is drawn has the probabilities said, and these add up.
    drawn, share = fitted.simulate(spread_evenly(20_000, 5))
    np.testing.assert_allclose(share, [by_cell[tuple(cell)] for cell in drawn], rtol=1e-4)
    for j in range(5):
        observed = np.bincount(drawn[:, j], minlength=sizes[j]) / len(drawn)
        np.testing.assert_allclose(observed, np.bincount(codes[:, j], weight), atol=0.01)


def test_on_a_forest_the_forest_is_the_two_way_fit():
    """Counts n(a, b) n(b, c) n(b, d) / n(b)^2, whole numbers: both fits have them.

    A variable less in the middle, and the fits differ.
    """
    a, c = np.array([[8, 2], [2, 8]]), np.array([[5, 5], [1, 9]])
    d = np.array([[7, 3], [4, 6]])
    grid = grid_of((2, 2, 2, 2))
    counts = a[grid[:, 0], grid[:, 1]] * c[grid[:, 1], grid[:, 2]] * d[grid[:, 1], grid[:, 3]]
    cells = cells_of(np.repeat(grid, counts, axis=0), 20_000, (2, 2, 2, 2))
    fits = {name: bnp.loglinear_risk(cells, structure=name) for name in ("forest", "two-way")}
    edges = {("v0", "v1"), ("v1", "v2"), ("v1", "v3")}
    assert set(fits["forest"].interactions) == edges
    for fitted in fits.values():
        np.testing.assert_allclose(fitted.population_mean, cells.f * 10, rtol=1e-3)
    marginal = cells_of(np.repeat(grid, counts, axis=0)[:, [0, 2, 3]], 20_000, (2, 2, 2))
    forest, two_way = (
        bnp.loglinear_risk(marginal, structure=name).population_mean
        for name in ("forest", "two-way")
    )
    assert np.abs(forest / two_way - 1).max() > 0.01


def test_edges_that_do_not_pay_are_left_out():
    """Independent variables of many levels look dependent: without the penalty all are joined."""
    codes = np.random.default_rng(0).integers(30, size=(500, 4)).astype(np.int32)
    cells = cells_of(codes, 5000, (30,) * 4)
    of_pairs = gains(cells.codes, cells.weight / 5000, 500)
    assert forest(of_pairs, 4) == []
    penalty = 2 * 29 * 29
    assert len(forest({pair: gain + penalty for pair, gain in of_pairs.items()}, 4)) == 3


@pytest.fixture(scope="module")
def misfits():
    """B_1 over its standard error, of samples of a population of independent variables."""
    random = np.random.default_rng(1)
    sizes = (20, 15, 10)
    grid = grid_of(sizes)
    p = np.prod([random.dirichlet(np.ones(k))[grid[:, j]] for j, k in enumerate(sizes)], axis=0)
    total = 9000.0
    fitted = Fitter(grid, p, Bounds()).fit(())
    uniforms = spread_evenly(4096, 3)

    def misfit(spread):
        factor = random.gamma(1 / spread, spread, len(p)) if spread else 1.0
        f = random.poisson(0.1 * total * p * factor).astype(float)
        return misfit_of_uniques(fitted, f, np.full(len(p), f.sum() / total), total, uniforms)

    return misfit


def test_the_criterion_is_standard_normal_where_the_model_holds(misfits):
    z = np.array([misfits(0.0) for _ in range(300)])
    assert abs(z.mean()) * np.sqrt(len(z)) < Z_LIMIT
    assert abs(z.var() - 1) * np.sqrt(len(z) / 2) < Z_LIMIT


def test_the_criterion_is_above_zero_where_interactions_are_missing(misfits):
    """Cells that are fuller and emptier than their margins say, by a factor of sd 0.7."""
    z = np.array([misfits(0.5) for _ in range(30)])
    assert z.mean() * np.sqrt(len(z)) / z.std() > Z_LIMIT


def test_a_search_finds_the_interaction():
    """One strong interaction among five variables of which the others are independent."""
    random = np.random.default_rng(2)
    codes = random.integers(12, size=(1500, 5)).astype(np.int32)
    codes[:, 3] = (codes[:, 1] + random.integers(3, size=1500)) % 12
    cells = cells_of(codes, 30_000, (12,) * 5)
    fitted = bnp.loglinear_risk(cells, structure="search")
    assert fitted.interactions[0] == ("v1", "v3")
    again = bnp.loglinear_risk(cells, structure="search")
    np.testing.assert_array_equal(fitted.risk, again.risk)


def test_a_search_passes_over_what_is_too_large():
    random = np.random.default_rng(4)
    base = random.integers(9, size=(600, 1))
    codes = ((base + random.integers(3, size=(600, 4))) % 9).astype(np.int32)
    cells = cells_of(codes, 9000, (9,) * 4)
    fitted = bnp.loglinear_risk(cells, structure="search", max_support=1)
    assert fitted.support == 0 and 1 <= len(fitted.interactions) <= 3
