"""Population counts with a known total: against exact sums over all counts, and calibration."""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from goodness import P_LIMIT, chi_square_p_value
from harness import Z_LIMIT, z_scores
from jax.scipy.special import gammaln as gammaln_
from scipy.special import betaln, gammaln, logsumexp

import bnp_models as bnp
from bnp_models.kernels.numerics.platforms import double_precision
from bnp_models.models.cells.dirichlet_multinomial import (
    fine_grid,
    log_likelihood_given_total,
    solve_total,
)
from bnp_models.models.cells.full_bayes import PRIORS
from bnp_models.models.cells.polettini_stander import LikelihoodData


@pytest.fixture
def key(request):
    return jax.random.key(zlib.crc32(request.node.name.encode()))


SEEN, PHAT = np.array([1, 0, 2]), np.array([0.5, 0.3, 0.25])
# alpha and a.
VALUES = [(0.4, 3.0), (3.0, 0.5), (1.0, 1000.0), (0.1, 20.0)]


def log_terms(f, phat, alpha, a, total):
    """log of the term of each F = 0, .., N of a cell, pi and p integrated out."""
    F = np.arange(f, total + 1)
    log_p = gammaln(alpha + F) - gammaln(alpha) - gammaln(f + 1) - gammaln(F - f + 1)
    log_p += betaln(a * phat + f, a * (1 - phat) + F - f) - betaln(a * phat, a * (1 - phat))
    return np.append(np.full(f, -np.inf), log_p)


def log_of_sums(parts, total):
    """log of the sum of products over all terms whose indices add up to 0, .., N."""
    product, scale = np.eye(1, total + 1)[0], 0.0
    for part in parts:
        product = np.convolve(product, np.exp(part - part.max()))[: total + 1]
        scale += part.max() + np.log(product.max())
        product /= product.max()
    with np.errstate(divide="ignore"):
        return np.log(product) + scale


def exact_log_likelihood(cells, total, alpha, a):
    """log P(f | N, alpha, a) by a sum over all F."""
    parts = [log_terms(f, phat, alpha, a, total) for f, phat in cells]
    shape = len(cells) * alpha
    rest = gammaln(total + 1) + gammaln(shape) - gammaln(shape + total)
    return log_of_sums(parts, total)[total] + rest


def grouped(times, total):
    """The cells as the likelihood has them: each of three kinds so many times."""
    number = np.full(1, float(times))
    arrays = SEEN[[0, 2]] * 1.0, PHAT[[0, 2]], np.repeat(number, 2), PHAT[[1]], number
    return LikelihoodData(*map(jnp.asarray, (*arrays, total / (3 * times))))


@pytest.mark.parametrize(("times", "total"), [(10, 100), (10, 31), (40, 400)])
def test_likelihood_is_the_sum_over_all_counts(times, total):
    """The approximation is off by less than 0.02 nats."""
    cells = list(zip(SEEN, PHAT, strict=True)) * times
    with double_precision():
        data = grouped(times, total)
        for alpha, a in VALUES:
            values = {"alpha": jnp.asarray(alpha), "a": jnp.asarray(a)}
            log_x = solve_total(values, data, jnp.asarray(float(total)))
            found = log_likelihood_given_total(values, data, jnp.asarray(float(total)), log_x)
            exact = exact_log_likelihood(cells, total, alpha, a)
            assert abs(found - exact) < 0.02, (alpha, a, float(found), exact)


@pytest.mark.parametrize("total", [70, 90])
def test_likelihood_of_a_total_out_of_reach(total):
    """Weights add up to 60, so that with a large a no x has the expectation N."""
    cells = list(zip(SEEN, PHAT, strict=True)) * 6
    with double_precision():
        data = grouped(6, total)
        found, exact = [], []
        for alpha, a in [(0.05, 40.0), (0.05, 80.0), (0.1, 40.0)]:
            values = {"alpha": jnp.asarray(alpha), "a": jnp.asarray(a)}
            log_x = solve_total(values, data, jnp.asarray(float(total)))
            found.append(log_likelihood_given_total(values, data, jnp.asarray(float(total)), log_x))
            exact.append(exact_log_likelihood(cells, total, alpha, a))
    np.testing.assert_allclose(found, exact, atol=0.3)


RIDGES = [((0.01, 0.18), -0.5), ((0.006, 0.1), -0.5), ((0.01, 0.5), 0.97), ((1, 1), 0)]


@pytest.mark.parametrize(("sd", "correlation"), RIDGES)
def test_grid_finds_a_narrow_ridge_anywhere(sd, correlation):
    covariance = np.outer(sd, sd) * [[1, correlation], [correlation, 1]]
    precision = np.linalg.inv(covariance)
    generator = np.random.default_rng(1)
    for mode in [np.array([-7.0, 0.0]), *generator.normal(scale=1.5, size=(20, 2))]:
        z, log_p, axes = fine_grid(
            lambda z, mode=mode: -((z - mode) @ precision * (z - mode)).sum(axis=1) / 2
        )
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        np.testing.assert_allclose((p @ z - mode) / sd, 0, atol=0.05)
        np.testing.assert_allclose((p * (z - mode).T) @ (z - mode), covariance, rtol=0.05,
                                   atol=0.01 * min(sd) ** 2)  # fmt: skip
        ratio = np.diag(axes @ axes.T) / np.square(sd)
        assert ((ratio > 0.3) & (ratio < 3)).all(), ratio


def test_grid_says_where_there_is_no_density():
    with pytest.raises(ValueError, match="could not be found; check the weights"):
        fine_grid(lambda z: np.full(len(z), -np.inf))


def weighted(times):
    """A sample with 2 `times` non-empty cells of 3 `times`, whose weights add up to N."""
    of_cell = np.concatenate([np.arange(times), np.repeat(np.arange(times, 2 * times), 2)])
    frame = pd.DataFrame({"cell": of_cell.astype(str)})
    f = np.where(of_cell < times, SEEN[0], SEEN[2])
    weights = 1 / np.where(f == SEEN[0], PHAT[0], PHAT[2])
    total = round(weights.sum())
    table = bnp.Microdata.from_frame(frame)
    return bnp.weighted_cells(table, total, weights, num_cells=3 * times)


def exact_posterior(cells, num=41):
    """Grid of log alpha and log a, their posterior, and P(F = 1) and E(1 / F) of a sample unique.

    Everything by sums over all F.
    """
    total = cells.population_size
    phat, _ = cells.empty
    each = [*zip(cells.f.astype(int), cells.phat, strict=True)]
    each += [(0, phat[0])] * (cells.num_cells - len(each))
    one = next(i for i, (f, _) in enumerate(each) if f == 1)
    z = np.linspace(-4, 4, num)
    grid, log_p, risks = [], [], []
    for z_alpha in z:
        for z_a in z:
            logs = np.array([c + sd * x for (c, sd), x in zip(PRIORS.values(), (z_alpha, z_a),
                                                             strict=True)])  # fmt: skip
            alpha, a = np.exp(logs)
            # Cells of a kind have the same term.
            kinds = {cell: log_terms(*cell, alpha, a, total) for cell in set(each)}
            others = [kinds[cell] for i, cell in enumerate(each) if i != one]
            joint = kinds[each[one]] + log_of_sums(others, total)[::-1]
            log_all = logsumexp(joint)
            F = np.arange(1, total + 1)
            p = np.exp(joint[1:] - log_all)
            shape = len(each) * alpha
            grid.append(logs)
            log_p.append(log_all + gammaln(shape) - gammaln(shape + total)
                         - (z_alpha**2 + z_a**2) / 2)  # fmt: skip
            risks.append([p[0], (p / F).sum()])
    p = np.exp(np.array(log_p) - logsumexp(log_p))
    return np.array(grid), p, p @ np.array(risks)


@pytest.fixture(scope="module")
def small():
    cells = weighted(12)
    return cells, exact_posterior(cells)


def test_posterior_against_exact_sums(small, key):
    """Means of log alpha, log a and their squares, and the risk of a sample unique."""
    cells, (grid, p, exact_risks) = small
    run = bnp.models.sample_population_counts(cells, key=key, num_chains=4, num_samples=500)
    drawn = np.stack([np.log(run.draws[name]) for name in ("alpha", "a")], axis=-1)
    exact = p @ np.hstack([grid, grid**2])
    z = z_scores(np.concatenate([drawn, drawn**2], axis=-1).reshape(-1, 4), exact)
    assert np.abs(z).max() < Z_LIMIT, z
    unique = np.flatnonzero(cells.f == 1)[0]
    found = run.p_unique[unique], run.risk[unique]
    np.testing.assert_allclose(found, exact_risks, rtol=0.03)
    number = (cells.f == 1).sum()
    np.testing.assert_allclose(run.draws["tau1"].mean(), number * found[0], rtol=0.05)
    np.testing.assert_allclose(run.draws["tau2"].mean(), number * found[1], rtol=0.03)


NUM_CELLS, TOTAL, FRACTION, NUM_SAMPLES, POINTS = 60, 240, 0.3, 200, 11
# Standardised log alpha and log a of the calibration. At smaller alpha, N is often out of reach.
LIMITS = np.array([[0.4, 2.0], [-2.0, 2.0]])


def log_of_total(values, log_x):
    """log P(sum F = N | x), without N!."""
    shape = values["alpha"] * NUM_CELLS
    return (
        gammaln_(shape + TOTAL) - gammaln_(shape)
        - shape * jax.nn.softplus(log_x) - TOTAL * jax.nn.softplus(-log_x)
    )  # fmt: skip


@jax.jit
def posterior_of_alpha(number, planted):
    """Posterior of alpha on a grid, given the number of cells with 0, 1, .. records."""
    most = len(number) - 1
    data = LikelihoodData(
        jnp.arange(1.0, most + 1), jnp.full(most, FRACTION), number[1:],
        jnp.full(1, FRACTION), number[:1], jnp.asarray(TOTAL / NUM_CELLS),
    )  # fmt: skip
    axes = [jnp.linspace(*limits, POINTS) for limits in LIMITS]
    z = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    (centre, sd), (centre_a, sd_a) = PRIORS.values()

    def one(z):
        values = {"alpha": jnp.exp(centre + sd * z[0]), "a": jnp.exp(centre_a + sd_a * z[1])}
        log_x = solve_total(values, data, jnp.asarray(TOTAL * 1.0))
        log_p = log_likelihood_given_total(values, data, jnp.asarray(TOTAL * 1.0), log_x)
        return log_p + jnp.where(planted, log_of_total(values, log_x), 0)

    log_p = jax.vmap(one)(z) - jnp.sum(z**2, axis=1) / 2
    return jax.nn.softmax(log_p).reshape(POINTS, POINTS).sum(axis=1)


@pytest.mark.long
@pytest.mark.parametrize("planted", [False, True], ids=["right", "total not divided out"])
def test_calibration(key, planted):
    """Of samples drawn from the prior: quantiles of alpha in its posterior are uniform."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    axes = [np.linspace(*limits, POINTS) for limits in LIMITS]
    prior = [np.exp(-(axis**2) / 2) for axis in axes]
    (centre, sd), (centre_a, sd_a) = PRIORS.values()
    quantiles = []
    for _ in range(NUM_SAMPLES):
        i, j = (generator.choice(POINTS, p=p / p.sum()) for p in prior)
        alpha, a = np.exp(centre + sd * axes[0][i]), np.exp(centre_a + sd_a * axes[1][j])
        F = generator.multinomial(TOTAL, generator.dirichlet(np.full(NUM_CELLS, alpha)))
        p = generator.beta(a * FRACTION, a * (1 - FRACTION), NUM_CELLS)
        number = np.bincount(generator.binomial(F, p), minlength=TOTAL // 3)
        assert len(number) == TOTAL // 3
        with double_precision():
            found = np.asarray(posterior_of_alpha(jnp.asarray(number * 1.0), planted))
        quantiles.append(found[:i].sum() + generator.random() * found[i])
    counts = np.histogram(quantiles, bins=10, range=(0, 1))[0]
    p_value = chi_square_p_value(counts, np.full(10, 0.1))
    assert (p_value < P_LIMIT) == planted, p_value


def test_wrong_totals_are_refused(key):
    table = bnp.Microdata.from_frame(pd.DataFrame({"x": list("aabbbc")}))
    everyone = bnp.weighted_cells(table, 6, num_cells=4)
    with pytest.raises(ValueError, match="by its weights the sample is the whole population"):
        bnp.models.sample_population_counts(everyone, key=key)
    with pytest.raises(ValueError, match="num_samples"):
        bnp.models.sample_population_counts(everyone, key=key, num_samples=0)
    short = bnp.weighted_cells(table, 60, np.full(6, 5.0), num_cells=4)
    with pytest.raises(ValueError, match="the weights add up to 30, and the population size is 60"):
        bnp.models.sample_population_counts(short, key=key)
