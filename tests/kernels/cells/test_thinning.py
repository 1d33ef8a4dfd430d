"""The posterior of F given f against sums of all its terms, an integral, and simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value
from harness import Z_LIMIT
from jax import lax
from scipy.stats import nbinom

from bnp_models.kernels.cells.thinning import (
    benedetti_franconi,
    draw_counts,
    log_marginal,
    log_posterior,
    summarise,
    tabulate,
)
from bnp_models.kernels.numerics.hypergeometric import beta_nodes, log_beta_expectation

LEVELS = (0.025, 0.5, 0.975)
# f, alpha, a, b, N / lambda: skewed, with a peak, with two, narrow, and far out.
CASES = np.array([
    (1, 0.92, 0.86, 80, 800), (1, 0.1, 0.27, 79.73, 7400), (1, 0.1, 2.2, 77.8, 7400),
    (1, 3.0, 5.0, 3.0, 3), (1, 0.5, 79.9, 0.1, 60), (2, 0.01, 0.5, 0.4, 800),
    (7, 0.92, 0.86, 80, 60), (40, 0.1, 0.27, 79.73, 800), (1, 0.1, 300, 3e4, 800),
    (500, 0.1, 0.27, 79.73, 800), (300, 0.5, 30, 300, 800),
    (3000, 2.0, 50, 50, 10), (1, 50.0, 0.3, 40, 3000),
])  # fmt: skip


probability = jax.jit(log_posterior)


def columns(cases):
    f, alpha, a, b, x = (jnp.asarray(column) for column in np.asarray(cases).T)
    return f, alpha, a, b, jnp.log(x)


def all_terms(f, alpha, a, b, x):
    """The distribution of F - f, term by term, as printed (distribution 1)."""
    size = int(2000 + 60 * x + 20 * (f + alpha * x * a / (a + b)) * (1 + b / a))
    j = np.arange(size)
    ratio = (alpha + f + j[:-1]) * (b + j[:-1]) / ((a + b + f + j[:-1]) * (1 + j[:-1]))
    log_term = np.concatenate([[0], np.cumsum(np.log(ratio) - np.log1p(1 / x))])
    term = np.exp(log_term - log_term.max())
    return j, term / term.sum()


def test_summaries_are_those_of_all_terms(x64):
    found = summarise(*columns(CASES), LEVELS)
    for i, case in enumerate(CASES):
        j, pmf = all_terms(*case)
        F, reached = case[0] + j, np.cumsum(pmf)
        assert pmf[-1] < 1e-14 * pmf.max()
        np.testing.assert_allclose(found.risk[i], np.sum(pmf / F), rtol=1e-9)
        np.testing.assert_allclose(found.p_unique[i], pmf[0] * (case[0] == 1), rtol=1e-9)
        assert found.mode[i] == F[np.argmax(pmf)]
        np.testing.assert_array_equal(found.quantiles[:, i], F[np.searchsorted(reached, LEVELS)])
        np.testing.assert_allclose(found.log_total[i], -np.log(pmf[0]), rtol=1e-9, atol=1e-10)


def test_draws_against_all_terms(x64, seed):
    """Draws of F fall between its quantiles as often as they should; of another b they do not."""
    table = tabulate(*columns(CASES))
    cell = jnp.tile(jnp.arange(len(CASES)), (20_000, 1))
    F = np.asarray(jax.jit(draw_counts)(jax.random.key(seed), table, cell))
    for i, case in enumerate(CASES):

        def fit(case, draws=F[:, i]):
            j, pmf = all_terms(*case)
            edges = np.unique(np.searchsorted(np.cumsum(pmf), np.linspace(0.05, 0.95, 19)))
            counts = np.bincount(np.searchsorted(edges, draws - case[0]), minlength=len(edges) + 1)
            cumulative = np.append(np.cumsum(pmf)[edges], 1)
            return chi_square_p_value(counts, np.diff(cumulative, prepend=0))

        # Where b is small, F is nearly always f.
        wrong = case * np.array([1, 1, 1, 1.2 if case[3] > 1 else 10, 1.3])
        assert F[:, i].min() >= case[0] and fit(case) > P_LIMIT
        assert fit(wrong) < P_LIMIT


def test_a_wrong_binomial_would_be_seen(x64):
    """b one less, as if the unseen were trials after the last success."""
    wrong = CASES - np.array([0, 0, 0, 0.05, 0])
    right, found = summarise(*columns(CASES)), summarise(*columns(wrong))
    assert np.all(np.abs(np.asarray(found.risk / right.risk) - 1) > 5e-9)


def test_probabilities_sum_to_one(x64):
    for case in CASES[[0, 3, 4, 6]]:
        j, pmf = all_terms(*case)
        every = max(1, len(j) // 5000)
        log_p = probability(jnp.asarray(case[0] + j[::every]), *columns(case[None]))
        kept = pmf[::every] > 1e-200
        np.testing.assert_allclose(
            np.asarray(log_p)[kept], np.log(pmf[::every][kept]), rtol=1e-9, atol=1e-9
        )
        if every == 1:
            np.testing.assert_allclose(np.exp(log_p).sum(), 1, rtol=1e-10)
    assert log_posterior(jnp.asarray(3.0), *(c[0] for c in columns(CASES[[7]]))) == -np.inf


def test_marginal_sums_to_one(x64):
    f = jnp.arange(4_000.0)
    _, alpha, a, b, log_x = (c[0] for c in columns(CASES[[6]]))
    total = np.exp(log_marginal(f, alpha, a, b, log_x, nodes=128)).sum()
    np.testing.assert_allclose(total, 1, rtol=1e-10)


def risk_by_integral(f, alpha, a, b, log_x, nodes):
    """E(1 / F | f) as an integral over p, slowly.

    Given p, F - f is negative binomial, of size alpha + f and success probability
    t = (1 + x p) / (1 + x), so that E(1 / F | p) = (t / f) 2F1(1 - alpha, 1; f + 1; 1 - t).
    """
    rule = beta_nodes(f, alpha, a, b, log_x, nodes=nodes)
    mass = jnp.exp(rule.log_integrand) * rule.weight
    log_t = jax.nn.softplus(log_x + rule.log_p) - jax.nn.softplus(log_x)
    # (1 - t) / t = x (1 - p) / (1 + x p).
    log_odds = log_x + rule.log_q - jax.nn.softplus(log_x + rule.log_p)

    def inner(node):
        log_t, log_odds = node
        # After Pfaff's transformation: t^(alpha - 1) 2F1(1 - alpha, f; f + 1; -(1 - t) / t).
        log_e = log_beta_expectation(0 * f, 1 - alpha, f, jnp.ones_like(f), log_odds, nodes=nodes)
        return alpha * log_t + log_e

    log_given_p = lax.map(inner, (log_t, log_odds))
    return jnp.sum(mass * jnp.exp(log_given_p), axis=0) / jnp.sum(mass, axis=0) / f


def test_two_roads_to_the_risk(x64):
    """A sum over F, and an integral over p of a 2F1, at hyperparameters all over the place."""
    random = np.random.default_rng(0)
    cases = np.stack([
        np.round(10 ** random.uniform(0, 5, 60)), 10 ** random.uniform(-2, 1, 60),
        10 ** random.uniform(-1, 2, 60), 10 ** random.uniform(-1, 3, 60),
        10 ** random.uniform(0.5, 4.5, 60),
    ], axis=1)  # fmt: skip
    cases = np.concatenate([CASES, cases])
    cases[len(CASES) : len(CASES) + 30, 0] = 1
    one = summarise(*columns(cases)).risk
    other = jax.jit(risk_by_integral, static_argnames="nodes")(*columns(cases), nodes=256)
    np.testing.assert_allclose(one, other, rtol=1e-9)
    assert np.all((one > 0) & (one * cases[:, 0] <= 1 + 1e-12))


def simulate(random, size, alpha, a, b, x):
    """F and f from the hierarchy itself; N = x lambda, so that N pi ~ Ga(alpha, 1 / x)."""
    F = random.poisson(random.gamma(alpha, x, size))
    return F, random.binomial(F, random.beta(a, b, size))


@pytest.mark.parametrize("case", [(0.5, 0.86, 8.0, 40.0), (0.1, 2.0, 78.0, 500.0)])
def test_simulation_from_the_hierarchy(case, x64, seed):
    """Marginal of f, and the mean of 1 / F, share of F = 1 and median where f is 1 and 3."""
    alpha, a, b, x = case
    random = np.random.default_rng(seed)
    F, f = simulate(random, 2_000_000, *case)
    counts = np.bincount(np.minimum(f, 12), minlength=13)
    pmf = np.exp(log_marginal(jnp.arange(12.0), *map(jnp.asarray, (alpha, a, b, np.log(x)))))
    assert chi_square_p_value(counts, np.append(pmf, 1 - pmf.sum())) > P_LIMIT
    shifted = np.exp(
        log_marginal(jnp.arange(12.0), *map(jnp.asarray, (alpha, 1.05 * a, b, np.log(x))))
    )
    assert chi_square_p_value(counts, np.append(shifted, 1 - shifted.sum())) < P_LIMIT
    for seen in (1, 3):
        found = summarise(*columns([(seen, *case)]))
        among = F[f == seen]
        assert len(among) > 2000
        error = np.std(1 / among) / np.sqrt(len(among))
        assert abs(np.mean(1 / among) - found.risk[0]) < Z_LIMIT * error
        # Of the printed "a" for a_k in distribution 2, and of F taken for F - f, it would be seen.
        assert abs(np.mean(1 / (among + 1)) - found.risk[0]) > Z_LIMIT * error
        share = np.mean(among == 1)
        error = np.sqrt(max(share, 1e-3) / len(among))
        assert abs(share - found.p_unique[0]) < Z_LIMIT * error
        below = np.mean(among <= found.quantiles[1, 0])
        assert 0.5 - 2.5 / np.sqrt(len(among)) < below
        assert np.mean(among < found.quantiles[1, 0]) < 0.5 + 2.5 / np.sqrt(len(among))


def test_benedetti_franconi(x64):
    risk = jax.jit(benedetti_franconi)
    p = jnp.asarray([1e-4, 0.0034, 0.3, 0.999])
    np.testing.assert_allclose(risk(jnp.ones(4), p), -p * np.log(p) / (1 - p), rtol=1e-10)
    for f, p in ((3.0, 0.2), (40.0, 0.7), (1.0, 1.0)):
        F = np.arange(f, 5000)
        pmf = nbinom.pmf(F - f, f, p)
        np.testing.assert_allclose(
            risk(jnp.asarray(f), jnp.asarray(p)), np.sum(pmf / F), rtol=1e-10
        )
