"""The correction for overdispersion: its likelihood, risks, and samples with and without it."""

import dataclasses

import jax
import numpy as np
import pytest
from goodness import P_LIMIT
from harness import Z_LIMIT
from scipy import stats

import bnp_models as bnp
from bnp_models.inference.trace import Settings
from bnp_models.risk import overdispersion
from bnp_models.risk.evaluator import record_risks
from bnp_models.risk.overdispersion import GRID, Overdispersion, OverdispersionPosterior

NUM_LEVELS, POPULATION = (6, 5, 5, 4), 4000
SCHEMA = bnp.Schema(tuple("abcd"), tuple(tuple(range(size)) for size in NUM_LEVELS))


def parameters(rng):
    levels = [rng.dirichlet(np.full(size, 2.0), 2).T for size in NUM_LEVELS]
    return np.array([0.4, 0.6]), levels


def draw_records(rng, pi, levels, number):
    z = rng.choice(2, number, p=pi)
    columns = [(rng.random((number, 1)) > p.T[z].cumsum(axis=1)).sum(axis=1) for p in levels]
    return np.stack(columns, axis=1)


def population_of_the_urn(rng, pi, levels, concentration):
    """Records of the urn: with probability i / (c_0 + i) one that was there."""
    records = draw_records(rng, pi, levels, POPULATION)
    for i in range(1, POPULATION):
        if rng.random() < i / (concentration + i):
            records[i] = records[rng.integers(i)]
    return records


def run_on(latent, codes, pi, levels):
    draw = {"log_pi": np.log(pi), "log_lambda": np.log(np.concatenate(levels)), "alpha": 1.0,
            "log_feasible": 0.0}  # fmt: skip
    draws = {name: np.broadcast_to(np.float32(x), (2, 100, *np.shape(x)))
             for name, x in draw.items()}  # fmt: skip
    return dataclasses.replace(
        latent.run, model=bnp.NPLCM(components=2), table=bnp.Microdata(SCHEMA, codes), draws=draws,
        conditions=None, settings=Settings(2, 0, 100, 1, (), (2,)), key=jax.random.key(1),
    )  # fmt: skip


def test_the_likelihood_is_that_of_counts_whose_sum_is_known():
    """Two cells seen and forty alike that are not, against negative binomials of all of them."""
    b, counts = np.array([0.4, 0.2]), np.array([2, 1])
    unseen = np.full(40, 0.4 / 40)
    layer = OverdispersionPosterior(counts, unseen[:1])
    everywhere = np.append(b, unseen)
    of_cells = Overdispersion(*GRID, 3).shape_of(np.tile(everywhere, (len(GRID[0]), 1)))
    size, success = of_cells, of_cells / (of_cells + 3 * everywhere)
    log_p = stats.nbinom.logpmf(np.append(counts, np.zeros(40)), size, success).sum(axis=1)
    variance = stats.nbinom.var(size, success).sum(axis=1)
    expected = log_p + 0.5 * np.log(variance)
    found = layer.log_likelihood(b[None])[0]
    np.testing.assert_allclose(found - found[-1], expected - expected[-1], atol=1e-5)


@pytest.mark.parametrize("largest", [overdispersion.LARGEST_TABULATED, 3, 0])
def test_cells_that_are_summed_by_splines_have_their_own_likelihoods(largest, monkeypatch):
    """Of two draws, counts from one to more than are tabulated, and cells that are very rare."""
    monkeypatch.setattr(overdispersion, "LARGEST_TABULATED", largest)
    rng = np.random.default_rng(3)
    b = rng.dirichlet(np.full(400, 0.3), 2) * 0.8
    b[:, 0] = 0.08
    counts = 1 + rng.poisson(600 * b[0])
    b[:, counts == 1] = np.maximum(b[:, counts == 1], 1e-9)
    b = np.maximum(b, 1e-7 * (counts > 1))
    assert counts.max() > overdispersion.LARGEST_TABULATED and (b < 1e-8).any()
    layer = OverdispersionPosterior(counts, np.array([1e-5]))
    shape, exponent = GRID
    for row, found in zip(b, layer.log_likelihood(b), strict=True):
        expected = counts.sum() * row
        size = shape[:, None] * expected ** exponent[:, None]
        log_p = stats.nbinom.logpmf(counts, size, size / (size + expected)).sum(axis=1)
        # There size / (size + expected) is one in double precision.
        log_p[-1] = stats.poisson.logpmf(counts, expected).sum()
        variance = 1 + (expected**2 / size).sum(axis=1) / counts.sum()
        unseen = 1 - row.sum()
        of_unseen = counts.sum() * 1e-5
        ratio = of_unseen / (shape * of_unseen**exponent)
        log_p -= unseen * counts.sum() * np.log1p(ratio) / ratio
        log_p += 0.5 * np.log(variance + unseen * ratio)
        np.testing.assert_allclose(found - found[-1], log_p - log_p[-1], atol=1e-3)


@pytest.mark.parametrize("count", [1, overdispersion.LARGEST_TABULATED + 1])
def test_a_cell_that_the_model_excludes_is_taken_for_a_very_rare_one(count):
    """In single precision the model may have no probability at all for a cell of the sample."""
    layer = OverdispersionPosterior(np.array([3, count]), np.array([0.01]))
    excluded, rare, rarer = (
        layer.log_likelihood(np.array([[0.4, expected / (3 + count)]]))
        for expected in (0.0, overdispersion.LEAST_EXPECTED, overdispersion.LEAST_EXPECTED / 10)
    )
    assert np.isfinite(rare).all()
    np.testing.assert_allclose(excluded, rare, rtol=1e-6)
    np.testing.assert_allclose(rarer, rare, rtol=1e-6)


@pytest.mark.parametrize(
    "prior",
    [overdispersion.OF_RECORDS, overdispersion.OF_COMPOSITIONS, overdispersion.OF_FORESTS],
)
def test_the_prior_is_a_t_law_on_the_grid(prior):
    layer = OverdispersionPosterior(np.array([1]), np.array([1.0]), prior=prior)
    shape, exponent = GRID
    (at_shape, of_shape), (at_exponent, of_exponent) = prior
    law = stats.multivariate_t(
        [at_shape, at_exponent],
        np.diag([of_shape**2, of_exponent**2]),
        overdispersion.DEGREES_OF_FREEDOM,
    )
    density = law.pdf(np.stack([np.log10(shape[:-1]), exponent[:-1]], axis=1))
    found = np.exp(layer.log_prior)
    np.testing.assert_allclose(found[:-1], 0.95 * density / density.sum(), rtol=1e-9)
    assert found[-1] == pytest.approx(0.05)


def test_several_draws_of_one_kept_draw_are_spread_over_the_posterior():
    b, counts = np.array([0.4, 0.2]), np.array([2, 1])
    layer, generator = OverdispersionPosterior(counts, np.array([0.01])), np.random.default_rng(0)
    several = layer.draw(generator, np.tile(b, (500, 1)), 4)
    cumulative = np.append(0, np.cumsum(layer.probabilities(b[None])[0]))
    pairs = list(zip(*GRID, strict=True))
    place = [[pairs.index(pair) for pair in zip(x.shape, x.exponent, strict=True)] for x in several]
    low, high = cumulative[np.array(place)], cumulative[np.array(place) + 1]
    # Each stratum, a quarter of the probability, is met by one of four draws.
    met = [(low < (k + 1) / 4) & (high > k / 4) for k in range(4)]
    assert np.all(np.any(met, axis=1))
    # Each of the four by itself is a draw of the posterior.
    share = np.mean((low + high) / 2, axis=1)
    assert np.all(np.abs(share - 0.5) < 5 / np.sqrt(12 * 500))


def test_with_the_exponent_one_it_is_the_urn():
    """Records of two cells, in turn, by the Dirichlet process of concentration shape n."""
    b, counts = np.array([0.02, 0.05]), np.array([200, 100])
    layer = OverdispersionPosterior(counts, np.array([1e-6, 1e-3]))
    shape, exponent = GRID
    c = shape[exponent == 1] * 300
    log_urn = sum(
        np.log(np.multiply.outer(c, [x] * f) + np.arange(f)).sum(axis=1)
        for x, f in zip(b, counts, strict=True)
    )
    log_urn -= np.log(c[:, None] + np.arange(300)).sum(axis=1)
    found = layer.log_likelihood(b[None])[0, exponent == 1]
    np.testing.assert_allclose(found - found[-1], log_urn - log_urn[-1], atol=0.02)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_risks_are_those_of_the_negative_binomial(exponent):
    b, num_records, num_new = np.array([1e-9, 1e-5, 1e-4, 1e-3, 0.01]), 500, 20_000
    tied = Overdispersion(np.array([0.3, 40.0]), np.full(2, exponent), num_records)
    r1, r2 = tied.record_risks(np.log(np.tile(b, (2, 1))), num_new)
    shape = tied.shape_of(np.tile(b, (2, 1)))
    joined = np.arange(100_000)[:, None, None]
    success = (shape + num_records * b) / (shape + (num_records + num_new) * b)
    p = stats.nbinom.pmf(joined, shape + 1, success)
    np.testing.assert_allclose(r1, p[0], rtol=1e-9)
    np.testing.assert_allclose(r2, (p / (1 + joined)).sum(axis=0), rtol=1e-4)
    np.testing.assert_allclose(tied.record_risks(np.log(np.tile(b, (2, 1))), 0), 1)


def test_probabilities_of_cells_have_the_law_whose_risks_are_told():
    """E (1 - p)^M of the draws is r_1 as it is evaluated, which counts the cell's own record."""
    b, num_records, num_new = np.array([1e-5, 1e-3]), 500, 2000
    tied = Overdispersion(np.full(20_000, 0.8), np.full(20_000, 0.5), num_records)
    log_b = np.log(np.tile(b, (20_000, 1)))
    p = tied.draw_probabilities(np.random.default_rng(0), np.exp(log_b))
    difference = np.exp(-num_new * p) - tied.record_risks(log_b, num_new)[0]
    z = difference.mean(axis=0) / difference.std(axis=0) * np.sqrt(len(p))
    assert np.abs(z).max() < Z_LIMIT, z


def test_a_large_shape_leaves_the_risks_of_the_model():
    log_b = np.log([[1e-9, 1e-6, 1e-4]])
    found = Overdispersion(np.array([1e12]), np.array([0.5]), 500).record_risks(log_b, 20_000)
    np.testing.assert_allclose(found, record_risks(log_b, 20_000), rtol=1e-3)


def ranks_of_truths(rng, number, size_of_uniques=1, prior_of_truths=None):
    """Ranks of the true tau_1 and shape among 99 draws, of populations with overdispersion.

    `size_of_uniques` 0 is an error: the unique's own record does not count. `prior_of_truths` is
    the prior of pairs of a shape and an exponent, if it differs from the prior of the correction.
    """
    num_cells, num_records, population_size = 4000, 400, 12_000
    shapes, exponents = GRID
    ranks = []
    for _ in range(number):
        b = rng.standard_gamma(0.3, num_cells)
        b /= b.sum()
        prior = np.exp(OverdispersionPosterior(np.array([1]), b).log_prior)
        g = rng.choice(len(shapes), p=prior if prior_of_truths is None else prior_of_truths)
        one = Overdispersion(shapes[[g]], exponents[[g]], num_records)
        shape = one.shape_of(b[None])[0]
        p = b / shape * rng.standard_gamma(shape)
        counts = rng.multinomial(num_records, p / p.sum())
        new = rng.multinomial(population_size - num_records, p / p.sum())
        seen, unique = counts > 0, counts == 1
        simulated = rng.choice(num_cells, 4000, p=b)
        layer = OverdispersionPosterior(counts[seen], b[simulated[~seen[simulated]]])
        chosen = rng.choice(len(shapes), 99, p=layer.probabilities(b[None, seen])[0])
        draws = Overdispersion(shapes[chosen], exponents[chosen], num_records)
        b_unique = np.tile(b[unique], (99, 1))
        of_unique = draws.shape_of(b_unique)
        q = draws.draw_probabilities(rng, b_unique)
        if not size_of_uniques:
            q = b_unique * rng.standard_gamma(of_unique) / (of_unique + num_records * b_unique)
        tau1 = (rng.poisson((population_size - num_records) * q) == 0).sum(axis=1)
        ranks.append([
            np.sum(x < y) + rng.integers(np.sum(x == y) + 1)
            for x, y in ((tau1, np.sum(new[unique] == 0)), (draws.shape, shapes[g]))
        ])  # fmt: skip
    return np.array(ranks)


def p_values(ranks):
    return [stats.chisquare(np.bincount(x // 10, minlength=10)).pvalue for x in ranks.T]


@pytest.mark.long
def test_the_layer_is_calibrated(monkeypatch):
    """With its whole likelihood: of a power of it, intervals are wider than they need be here."""
    monkeypatch.setattr(overdispersion, "LIKELIHOOD_POWER", 1.0)
    assert min(p_values(ranks_of_truths(np.random.default_rng(0), 300))) > P_LIMIT


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "error", "seen_in"),
    [
        (600, {"size_of_uniques": 0}, 0),
        (300, {"prior_of_truths": np.full(244, 1 / 244)}, 1),
    ],
)
def test_errors_of_the_layer_are_seen(monkeypatch, number, error, seen_in):
    monkeypatch.setattr(overdispersion, "LIKELIHOOD_POWER", 1.0)
    ranks = ranks_of_truths(np.random.default_rng(0), number, **error)
    assert p_values(ranks)[seen_in] < P_LIMIT


def test_with_ties_the_truth_is_held(latent):
    """Of three populations of the urn, whose cells the model alone expects to fill up."""
    truth, with_ties, without = 0, 0, 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        pi, levels = parameters(rng)
        people = population_of_the_urn(rng, pi, levels, 100.0)
        sample = rng.choice(POPULATION, 800, replace=False)
        run = run_on(latent, people[sample], pi, levels)
        found = bnp.population_risk(run, POPULATION)
        assert (
            30 < 800 * np.median(found.overdispersion.shape) < 300
            and found.overdispersion.exponent.mean() > 0.7
        )
        with_ties = with_ties + found.tau1.ravel()
        without = without + bnp.population_risk(run, POPULATION, ties="off").tau1.ravel()
        _, cell, counts = np.unique(people, axis=0, return_inverse=True, return_counts=True)
        truth += int((counts[cell.ravel()[sample]] == 1).sum())
    low, high = np.quantile(with_ties, [0.005, 0.995])
    assert low <= truth <= high
    assert truth > np.quantile(without, 0.995)


def test_where_the_model_is_right_little_changes(latent):
    rng = np.random.default_rng(6)
    pi, levels = parameters(rng)
    run = run_on(latent, draw_records(rng, pi, levels, 400), pi, levels)
    with_ties = bnp.population_risk(run, POPULATION)
    without = bnp.population_risk(run, POPULATION, ties="off")
    assert np.median(with_ties.overdispersion.shape) > 10 and without.overdispersion is None
    assert abs(np.median(with_ties.tau1) - np.median(without.tau1)) <= 2
    assert abs(np.median(with_ties.tau2) / np.median(without.tau2) - 1) < 0.05
