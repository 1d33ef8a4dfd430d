"""Strata found from weights, and sampling fractions of empty cells, against a list of all cells."""

import itertools

import numpy as np
import pytest

import bnp_models as bnp

LEVELS = (4, 3, 5)
WEIGHTS = {
    (): lambda codes: np.full(len(codes), 20.0),
    (0,): lambda codes: np.array([10.0, 80.0, 10.0, 30.0])[codes[:, 0]],
    (0, 2): lambda codes: (
        np.array([5.0, 40.0, 9.0, 20.0])[codes[:, 0]]
        * np.array([1.0, 4.0, 1.0, 2.0, 9.0])[codes[:, 2]]
    ),
}


@pytest.fixture(scope="module")
def codes():
    """Records in about half of the 60 cells; none has the last level of the last variable."""
    random = np.random.default_rng(0)
    return np.minimum(random.geometric(0.5, (120, 3)) - 1, (3, 2, 3)).astype(np.int32)


def weighted(codes, weights, **options):
    schema = bnp.Schema(("a", "b", "c"), tuple(tuple(range(size)) for size in LEVELS))
    return bnp.weighted_cells(
        bnp.Microdata(schema, codes), round(weights.sum()), weights, **options
    )  # fmt: skip


def by_listing(codes, weights, columns):
    """Number of empty cells with each sampling fraction, from a list of all cells."""
    filled = set(map(tuple, codes.tolist()))
    number = {}
    for cell in itertools.product(*map(range, LEVELS)):
        if cell not in filled:
            same = np.all([codes[:, j] == cell[j] for j in columns], axis=0) if columns else True
            same = np.broadcast_to(same, len(codes))
            chosen = same if same.any() else np.ones(len(codes), bool)
            phat = round(chosen.sum() / weights[chosen].sum(), 12)
            number[phat] = number.get(phat, 0) + 1
    return number


@pytest.mark.parametrize("columns", WEIGHTS)
def test_strata_are_found(columns, codes):
    weights = WEIGHTS[columns](codes)
    cells = weighted(codes, weights)
    assert cells.strata == tuple("abc"[j] for j in columns)
    found = {}
    for phat, number in zip(*cells.empty, strict=True):
        found[round(phat, 12)] = found.get(round(phat, 12), 0) + number
    assert found == pytest.approx(by_listing(codes, weights, columns))
    assert sum(found.values()) == cells.num_cells - len(cells.f) == 60 - len(cells.f)


def test_a_smaller_number_of_cells_keeps_the_shares(codes):
    weights = WEIGHTS[0,](codes)
    every, fewer = (weighted(codes, weights, num_cells=number).empty for number in (None, 45))
    np.testing.assert_array_equal(every[0], fewer[0])
    np.testing.assert_allclose(fewer[1] / fewer[1].sum(), every[1] / every[1].sum())
    assert fewer[1].sum() == pytest.approx(45 - len(np.unique(codes, axis=0)))


def test_weights_that_no_variables_explain(codes):
    """Of strata that are not among the variables, and calibrated freely; all cells are pooled."""
    random = np.random.default_rng(1)
    for weights in (random.choice([5.0, 50.0], 120), random.lognormal(3, 0.5, 120)):
        cells = weighted(codes, weights)
        assert cells.strata is None
        phat, number = cells.empty
        np.testing.assert_allclose(phat, 120 / weights.sum())
        assert number == 60 - len(cells.f)


def test_weights_within_strata_may_differ_a_little(codes):
    random = np.random.default_rng(2)
    weights = WEIGHTS[0,](codes)
    assert weighted(codes, weights * random.lognormal(0, 0.15, 120)).strata == ("a",)
    # Weights that differ by a few percent are those of one stratum.
    assert weighted(codes, 20 * random.lognormal(0, 0.03, 120)).strata == ()


def test_as_many_levels_as_cells_explain_nothing():
    """Each cell has a combination of levels of its own: these are not taken for strata."""
    random = np.random.default_rng(3)
    codes = random.permutation(60)[:30]
    codes = np.stack(np.unravel_index(codes, LEVELS), axis=1).astype(np.int32)
    assert weighted(codes, random.choice([5.0, 50.0], 30)).strata is None
    # Levels of a have one or two cells each, whose fractions are alike by chance.
    few = np.array([(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 1, 3), (2, 1, 1), (3, 2, 2)], np.int32)
    assert weighted(few, np.array([5.0, 5.0, 50.0, 60.0, 10.0, 20.0])).strata is None


def test_no_empty_cells():
    codes = np.array(list(itertools.product(*map(range, LEVELS))), np.int32)
    cells = weighted(codes, WEIGHTS[0,](codes))
    assert cells.strata == ("a",) and cells.empty[1].sum() == 0
