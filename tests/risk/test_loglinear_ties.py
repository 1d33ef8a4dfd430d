"""A log-linear forest with the correction for overdispersion: by enumeration, and by simulation."""

import itertools
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from populations import weighted
from scipy import stats

import bnp_models as bnp
from bnp_models.risk.loglinear import NUM_DRAWS
from bnp_models.risk.overdispersion import GRID, Prior

SIZES = (6, 5, 4)


def dependent_records():
    """Sixty records of three variables, of which the first two depend on each other."""
    random = np.random.default_rng(4)
    first = random.choice(6, 60, p=[0.4, 0.2, 0.15, 0.1, 0.1, 0.05])
    second = np.where(random.random(60) < 0.75, first % 5, random.integers(5, size=60))
    third = random.choice(4, 60, p=[0.6, 0.2, 0.15, 0.05])
    return np.stack([first, second, third], axis=1).astype(np.int32)


def enumerated(codes, weights):
    """Posterior of the pairs of the grid that matter, and the risk of each cell given the pair.

    Every cell of the table is listed, and every sum over counts is made term by term.
    """
    n, total = len(codes), weights.sum()
    grid = np.array(list(itertools.product(*map(range, SIZES))))

    def forest(mass):
        joint, last = np.zeros(SIZES[:2]), np.zeros(SIZES[2])
        np.add.at(joint, (codes[:, 0], codes[:, 1]), mass)
        np.add.at(last, codes[:, 2], mass)
        return joint[grid[:, 0], grid[:, 1]] * last[grid[:, 2]] / mass.sum() ** 2

    where = np.ravel_multi_index(codes.T, SIZES)
    f, weight = (np.bincount(where, x, len(grid)) for x in (np.ones(n), weights))
    b, share = forest(np.ones(n)), forest(weights)
    f, weight, b, share = (x[b > 0] for x in (f, weight, b, share))
    shape, exponent = (x[:, None] for x in GRID)
    size = shape * (n * b) ** exponent
    log_p = stats.nbinom.logpmf(f, size, size / (size + n * b)).sum(axis=1)
    log_p[-1] = stats.poisson.logpmf(f, n * b).sum()
    log_p += 0.5 * np.log(np.sum(n * b + (n * b) ** 2 / size, axis=1))
    law = stats.multivariate_t([1.04, 0.5], np.diag([1.02**2, 0.17**2]), 4)
    prior = law.pdf(np.stack([np.log10(GRID[0]), GRID[1]], axis=1))
    prior[-1] = 0.05 / 0.95 * prior[:-1].sum()
    posterior = prior * np.exp(0.5 * (log_p - log_p.max()))
    matter = posterior > 1e-5 * posterior.sum()
    posterior, size = posterior[matter] / posterior[matter].sum(), size[matter]
    seen = f > 0
    f, b, size = f[seen], b[seen], size[:, seen]
    unseen = total * share[seen] * (1 - f / weight[seen])
    success = (size + n * b) / (size + n * b + unseen)
    joined = np.arange(1000)[:, None]
    p_unique, risk = np.zeros((2, *size.shape))
    for g in range(len(size)):
        p = stats.nbinom.pmf(joined, size[g] + f, success[g])
        p_unique[g] = p[0] * (f == 1)
        risk[g] = np.sum(p / (f + joined), axis=0)
    return SimpleNamespace(
        posterior=posterior, p_unique=p_unique, risk=risk, f=f, size=size,
        success=success,
    )  # fmt: skip


@pytest.fixture(scope="module", params=["alike", "design"])
def both(request):
    """What the function finds, and the enumeration; with weights that are alike, and that are not.

    The population is 300, or the sum of the design weights.
    """
    codes = dependent_records()
    weights = np.full(len(codes), 5.0)
    if request.param == "design":
        weights = np.where(codes[:, 0] > 1, 2.0, 7.0) + codes[:, 2]
    cells = weighted(codes, round(weights.sum()), weights)
    found = bnp.loglinear_risk(cells, structure="forest", ties="on", key=jax.random.key(1))
    assert found.interactions == (("v0", "v1"),) and (cells.f == 1).sum() > 5
    return found, enumerated(codes, weights)


def test_risks_are_those_of_an_enumeration(both):
    """Its only approximation is the sum over cells without records, which are simulated."""
    found, expected = both
    unique = expected.f == 1
    p_unique, risk = (expected.posterior @ x for x in (expected.p_unique, expected.risk))
    np.testing.assert_allclose(found.p_unique, p_unique, rtol=2e-3)
    np.testing.assert_allclose(found.risk, risk, rtol=2e-3)
    np.testing.assert_allclose(found.tau1, p_unique.sum(), rtol=2e-3)
    np.testing.assert_allclose(found.tau2, risk[unique].sum(), rtol=2e-3)
    assert found.ties == "on"


def test_intervals_are_those_of_an_enumeration(both):
    """Probabilities of the ends, of populations that are drawn pair by pair."""
    found, expected = both
    random, number = np.random.default_rng(0), 40_000
    pairs = random.choice(len(expected.posterior), number, p=expected.posterior)
    unique = expected.f == 1
    size, success = (x[pairs][:, unique] for x in (expected.size, expected.success))
    joined = random.negative_binomial(size + 1, success)
    tau1, tau2 = np.sum(joined == 0, axis=1), np.sum(1 / (1 + joined), axis=1)
    # Standard error of a share of the draws of which the ends are quantiles.
    allowed = 4 * np.sqrt(0.025 * 0.975 / NUM_DRAWS)
    for tau, (low, high) in ((tau1, found.tau1_interval), (tau2, found.tau2_interval)):
        # An end that is a whole number has a probability of its own.
        assert np.mean(tau < low) - allowed < 0.025 < np.mean(tau <= low) + allowed
        assert np.mean(tau > high) - allowed < 0.025 < np.mean(tau >= high) + allowed


def only(monkeypatch, pair):
    """Give all prior probability to one pair of the grid."""
    certain = np.where(np.arange(len(GRID[0])) == pair, 0.0, -np.inf)
    monkeypatch.setattr(Prior, "log_probabilities", lambda _: certain)


def test_a_forest_that_holds_is_what_it_is_without_the_correction(monkeypatch):
    """The last pair of the grid has all probability: the risks and tau_1 of the forest alone."""
    only(monkeypatch, len(GRID[0]) - 1)
    cells = weighted(dependent_records(), 300)
    alone = bnp.loglinear_risk(cells, structure="forest")
    assert (alone.ties, alone.tau1_interval, alone.tau2_interval) == ("off", None, None)
    found = bnp.loglinear_risk(cells, structure="forest", ties="on")
    for name in ("population_mean", "risk", "p_unique", "tau1", "tau2"):
        np.testing.assert_allclose(getattr(found, name), getattr(alone, name), rtol=1e-6)
    for name in ("structure", "interactions", "support", "sweeps", "discrepancy"):
        assert getattr(found, name) == getattr(alone, name)


def test_rare_cells_that_vary_more_have_more_persons(monkeypatch):
    """Of a record in a cell that the forest expects to be rare: the smaller the shape, the less
    likely it is to be unique in the population."""
    cells = weighted(dependent_records(), 120)
    alone = bnp.loglinear_risk(cells, structure="forest")
    rare = (cells.f == 1) & (alone.population_mean < 1)
    assert rare.sum() > 5
    found = []
    for shape in (0.1, 1, 10, 1e4):
        only(monkeypatch, np.argmin(abs(np.log(GRID[0] / shape)) + abs(GRID[1] - 0.5)))
        found.append(bnp.loglinear_risk(cells, structure="forest", ties="on"))
    for name in ("p_unique", "risk"):
        values = np.array([getattr(one, name)[rare] for one in found])
        assert (np.diff(values, axis=0) > 0).all()
        np.testing.assert_allclose(values[-1], getattr(alone, name)[rare], rtol=1e-3)


def test_larger_populations_have_fewer_uniques():
    """A sample that is the population has no risk that is not known."""
    codes = dependent_records()
    found = [
        bnp.loglinear_risk(weighted(codes, size), structure="forest", ties="on")
        for size in (60, 61, 120, 300, 30_000)
    ]
    uniques = float((weighted(codes, 60).f == 1).sum())
    known = found[0]
    assert known.tau1 == pytest.approx(uniques) and known.tau2 == pytest.approx(uniques)
    assert known.tau1_interval == known.tau2_interval == (uniques, uniques)
    for before, after in itertools.pairwise(found):
        assert after.tau1 < before.tau1 and after.tau2 < before.tau2
        assert after.tau1 < after.tau2 and (after.risk <= before.risk + 1e-12).all()
        assert after.tau1_interval <= before.tau1_interval


def population_of_the_layer(random, shape, exponent, n, size):
    """Sample of a population whose cells are gamma variables about a forest, and F of its cells."""
    sizes = (18, 14, 10)
    b = np.einsum("i,j,k->ijk", *(random.dirichlet(np.full(x, 1.0)) for x in sizes)).ravel()
    of_cell = shape * (n * b) ** exponent
    p = b / of_cell * random.standard_gamma(of_cell)
    F = random.multinomial(size, p / p.sum())
    f = random.multivariate_hypergeometric(F, n)
    codes = np.stack(np.unravel_index(np.repeat(np.arange(len(b)), f), sizes), axis=1)
    return codes.astype(np.int32), F[f == 1]


def test_intervals_contain_the_truth_if_cells_vary():
    """Of ten populations of known shape; without the correction, tau_1 is too high."""
    held, errors = np.zeros(2), np.zeros(2)
    for seed in range(10):
        random = np.random.default_rng(seed)
        codes, F = population_of_the_layer(random, 1.5, 0.4, 200, 4000)
        cells = weighted(codes, 4000)
        alone = bnp.loglinear_risk(cells, structure="forest")
        found = bnp.loglinear_risk(cells, structure="forest", ties="on")
        tau1, tau2 = (F == 1).sum(), np.sum(1 / F)
        (low1, high1), (low2, high2) = found.tau1_interval, found.tau2_interval
        held += [low1 <= tau1 <= high1, low2 <= tau2 <= high2]
        errors += [(x.tau1 - tau1) / 10 for x in (found, alone)]
    assert held.min() >= 8
    assert abs(errors[0]) < errors[1] / 2


def test_the_key_draws_only_the_intervals():
    cells = weighted(dependent_records(), 300)
    first, again, other = (
        bnp.loglinear_risk(cells, structure="forest", ties="on", key=key)
        for key in (None, jax.random.key(0), jax.random.key(1))
    )
    assert first.tau2_interval == again.tau2_interval != other.tau2_interval
    assert first.tau1 == other.tau1 and first.tau2 == other.tau2
    np.testing.assert_array_equal(first.risk, other.risk)
    title, *lines = repr(first).splitlines()
    low, high = first.tau1_interval
    assert f"{first.tau1:.4g} (95% interval {low:.4g} to {high:.4g})" in lines[0]
    assert lines[2].split() == ["ties", "on"]


def test_what_is_refused():
    codes = dependent_records()
    cells = weighted(codes, 300)
    for structure in ("independence", "two-way", "search"):
        with pytest.raises(ValueError, match='choose structure="forest"'):
            bnp.loglinear_risk(cells, structure=structure, ties="on")
    with pytest.raises(ValueError, match="ties is one of on, off, not 'sensitivity'"):
        bnp.loglinear_risk(cells, structure="forest", ties="sensitivity")
    with pytest.raises(TypeError, match="key must be a random key"):
        bnp.loglinear_risk(cells, structure="forest", ties="on", key=3)
    with pytest.raises(bnp.MicrodataError, match="smaller than the sample's 60"):
        weighted(codes, 59)


def test_one_variable_and_no_uniques():
    codes = np.repeat(np.arange(3), (5, 3, 2)).astype(np.int32)[:, None]
    found = bnp.loglinear_risk(weighted(codes, 100), structure="forest", ties="on")
    assert found.tau1 == found.tau2 == 0
    assert found.tau1_interval == found.tau2_interval == (0, 0)
    assert ((found.risk > 0) & (found.risk < [1 / 5, 1 / 3, 1 / 2])).all()
