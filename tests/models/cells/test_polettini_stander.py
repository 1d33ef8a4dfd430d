"""Models I and II: printed likelihoods, estimates, chains, and risks in simulated populations."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from goodness import P_LIMIT
from harness import Z_LIMIT
from hierarchy import simulate_cells
from scipy.special import betaln, expit, gammaln, logit
from scipy.stats import beta, chi2, chisquare, nbinom

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of
from bnp_models.kernels.numerics.hypergeometric import log_hyp2f1
from bnp_models.kernels.numerics.platforms import double_precision
from bnp_models.models.cells import empirical_bayes, full_bayes
from bnp_models.models.cells.full_bayes import PRIORS

NUM_CELLS, POPULATION = 3000, 60_000
ONE = {"alpha": 0.4, "a": 2.0, "b": 30.0}
TWO = {"alpha": 0.3, "a": 12.0, "gamma": 0.8}
PHATS = ((0.03, 0.7), (0.2, 0.3))

hypergeometric = jax.jit(log_hyp2f1)


@pytest.fixture(scope="module")
def one():
    return simulate_cells(np.random.default_rng(1), NUM_CELLS, POPULATION, **ONE)


@pytest.fixture(scope="module")
def two():
    return simulate_cells(np.random.default_rng(3), NUM_CELLS, POPULATION, **TWO, phats=PHATS)


def model_two(drawn=None, **values):
    """With what is known of the empty cells of a simulated population."""
    empty = PHATS if drawn is None else drawn.empty_phat
    return bnp.PolettiniStander(2, **TWO | values, empty_phat=empty)


def printed_marginal(f, alpha, a, b, x):
    """log of distribution 2 as printed, its last "a" being a_k."""
    with double_precision():
        arguments = np.broadcast_arrays(alpha + f, a + f, a + b + f, -x)
        log_h = np.asarray(hypergeometric(*map(jnp.asarray, arguments)))
    return (
        gammaln(b) - gammaln(alpha) - betaln(a, b) + f * np.log(x) + gammaln(alpha + f)
        + gammaln(a + f) - gammaln(f + 1) - gammaln(a + b + f) + log_h
    )  # fmt: skip


def test_log_likelihood_of_model_one_is_that_printed(one):
    """(13), whose constants are those of f alone; so differences between parameters are exact."""

    def equation_13(alpha, a, b):
        cells = one.cells
        f = np.concatenate([cells.f, np.zeros(NUM_CELLS - len(cells.f))])
        with double_precision():
            arguments = np.broadcast_arrays(
                alpha + f, a + f, a + b + f, -POPULATION / (NUM_CELLS * alpha)
            )
            log_h = np.asarray(hypergeometric(*map(jnp.asarray, arguments)))
        fixed = NUM_CELLS * (gammaln(alpha) - gammaln(a + b) + gammaln(a))
        return -fixed + np.sum(
            gammaln(alpha + f) + gammaln(a + f) - gammaln(a + b + f) - f * np.log(alpha) + log_h
        )

    others = ONE, {"alpha": 1.1, "a": 0.5, "b": 9.0}
    ours = [bnp.PolettiniStander(1, **p).log_likelihood(one.cells) for p in others]
    np.testing.assert_allclose(
        ours[0] - ours[1], equation_13(**others[0]) - equation_13(**others[1]), rtol=1e-8
    )
    f = np.array([0.0, 1.0, 7.0])
    np.testing.assert_allclose(
        bnp.PolettiniStander(1, **ONE).log_marginal(f, 0.1, one.cells),
        printed_marginal(f, *ONE.values(), POPULATION / (NUM_CELLS * ONE["alpha"])), atol=1e-8,
    )  # fmt: skip


def test_log_likelihood_of_model_two_is_that_printed(two):
    """Section 7.1, empty cells by the mixture of two values of phat."""
    cells, (alpha, a, gamma) = two.cells, TWO.values()
    x = POPULATION / (NUM_CELLS * alpha)
    seen = np.log(gamma) + printed_marginal(cells.f, alpha, a * cells.phat, a * (1 - cells.phat), x)
    empty = sum(
        share * np.log(gamma * np.exp(printed_marginal(0.0, alpha, a * p, a * (1 - p), x))
                       + 1 - gamma)
        for p, share in PHATS
    )  # fmt: skip
    expected = seen.sum() + (NUM_CELLS - len(cells.f)) * empty
    np.testing.assert_allclose(model_two().log_likelihood(cells), expected, rtol=1e-8)
    # With the whole sample's phat for the empty cells it is another figure.
    pooled = ((cells.pooled_phat, 1.0),)
    other = bnp.PolettiniStander(2, **TWO, empty_phat=pooled).log_likelihood(cells)
    assert abs(other - expected) > 1
    # There is one key variable, with one cell for each level, so that no strata can be found.
    default = bnp.PolettiniStander(2, **TWO).log_likelihood(cells)
    np.testing.assert_allclose(default, other, rtol=1e-12)


def test_empty_cells_have_the_sampling_fraction_of_their_stratum():
    """Ten cells in two strata of five: two and four are empty."""
    frame = pd.DataFrame({"x": ["a"] * 3 + ["b"], "y": [0, 1, 2, 0]})
    table = bnp.Microdata.from_frame(frame, levels={"x": ["a", "b"], "y": range(5)})
    cells = bnp.weighted_cells(table, 100, np.array([10.0, 10.0, 10.0, 50.0]))
    given = bnp.PolettiniStander(2, **TWO, empty_phat=((0.1, 1 / 3), (0.02, 2 / 3)))
    default = bnp.PolettiniStander(2, **TWO)
    assert cells.strata == ("x",)
    np.testing.assert_allclose(default.log_likelihood(cells), given.log_likelihood(cells))
    fits = [bnp.risk.counts_of_counts(model, cells)["expected"] for model in (default, given)]
    np.testing.assert_allclose(*fits)
    phat, number = cells.empty
    assert dict(zip(phat.round(9).tolist(), number.tolist(), strict=True)) == {0.02: 4, 0.1: 2}


def test_model_two_at_gamma_one_is_model_one(two):
    f = np.array([0.0, 1.0, 4.0])
    first = bnp.PolettiniStander(1, alpha=0.3, a=12 * 0.2, b=12 * 0.8)
    np.testing.assert_allclose(
        model_two(gamma=1.0).log_marginal(f, 0.2, two.cells), first.log_marginal(f, 0.2, two.cells)
    )


def test_summaries_agree_with_the_distribution(two):
    """Risk, probability and quantiles from cell_risk against the sum over log_posterior."""
    model, cells = model_two(), two.cells
    result = bnp.cell_risk(model, cells, key=jax.random.key(0), num_samples=5)
    for k in (0, int(np.argmax(cells.f)), int(np.argmin(cells.phat))):
        F = cells.f[k] + np.arange(30_000)
        pmf = np.exp(model.log_posterior(F, cells.f[k], cells.phat[k], cells))
        np.testing.assert_allclose(pmf.sum(), 1, rtol=1e-9)
        np.testing.assert_allclose(result.risk[k], (pmf / F).sum(), rtol=1e-9)
        quantiles = F[np.searchsorted(pmf.cumsum(), (0.025, 0.5, 0.975))]
        assert [result.q025[k], result.median[k], result.q975[k]] == quantiles.tolist()
        assert result.mode[k] == F[pmf.argmax()]
    unique = cells.f == 1
    np.testing.assert_allclose(result.tau1_conditional, result.p_unique[unique].sum())
    np.testing.assert_allclose(result.tau2_conditional, result.risk[unique].sum())
    assert (result.risk * cells.f <= 1 + 1e-12).all() and (result.p_unique[~unique] == 0).all()


def test_averages_over_draws_are_of_the_mixture(two):
    """Two draws of the hyperparameters: means of both, and quantiles of their mixture."""
    pairs = {"alpha": (0.25, 0.6), "a": (12.0, 5.0), "gamma": (0.95, 0.6)}
    models = [
        model_two(**dict(zip(pairs, v, strict=True))) for v in zip(*pairs.values(), strict=True)
    ]
    alone = [bnp.cell_risk(m, two.cells, key=jax.random.key(0), num_samples=5) for m in models]
    log_likelihood = np.array([[m.log_likelihood(two.cells) for m in models]])
    draws = bnp.results.HyperparameterDraws(
        {name: np.array([values]) for name, values in pairs.items()}, log_likelihood, {}, {}
    )
    result = bnp.cell_risk(model_two(), two.cells, key=jax.random.key(0), draws=draws)
    assert result.model.alpha == np.median(pairs["alpha"])
    for name in ("risk", "p_unique"):
        expected = np.mean([getattr(one, name) for one in alone], axis=0)
        np.testing.assert_allclose(getattr(result, name), expected, rtol=1e-9)
    # Of every draw, in its order.
    for name in ("tau2_conditional", "tau1_conditional", "tau1_variance"):
        expected = [getattr(one, name)[0, 0] for one in alone]
        assert expected[0] != expected[1]
        np.testing.assert_allclose(getattr(result, name), [expected], rtol=1e-9)
    np.testing.assert_array_equal(result.log_likelihood, log_likelihood)
    spread = np.sqrt(result.tau1_variance[0])
    assert (np.abs(result.tau1 - result.tau1_conditional)[0] < 5 * spread).all()
    for k in (0, int(np.argmax(two.cells.f)), int(np.argmin(two.cells.phat))):
        f, phat = two.cells.f[k], two.cells.phat[k]
        F = f + np.arange(30_000)
        pmf = np.mean([np.exp(m.log_posterior(F, f, phat, two.cells)) for m in models], axis=0)
        below, up_to = pmf.cumsum() - pmf, pmf.cumsum()
        for level, name in ((0.025, "q025"), (0.5, "median"), (0.975, "q975")):
            # Quantiles of each draw stand for it: the level is met to one part in fifty.
            place = int(getattr(result, name)[k] - f)
            assert below[place] - 0.01 <= level <= up_to[place] + 0.01
        assert pmf[int(result.mode[k] - f)] > 0.9 * pmf.max()
    likelier = set()
    for k in np.flatnonzero(alone[0].mode != alone[1].mode)[:200]:
        modes = np.sort([one.mode[k] for one in alone])
        cell = two.cells.f[k], two.cells.phat[k], two.cells
        each = [m.log_posterior(modes, *cell) for m in models]
        best = int(np.exp(each).mean(axis=0).argmax())
        assert result.mode[k] == modes[best]
        likelier.add(best)
    assert likelier == {0, 1}


@pytest.mark.parametrize("variant", [1, 2])
def test_simulated_populations(variant, one, two):
    """Sums over cells of 1 / F and of [F = 1] are what the risks and probabilities say."""
    drawn = one if variant == 1 else two
    model = bnp.PolettiniStander(1, **ONE) if variant == 1 else model_two()
    wrong = bnp.PolettiniStander(1, **ONE | {"b": 5.0}) if variant == 1 else model_two(alpha=3.0)

    def z_scores(model):
        result = bnp.cell_risk(model, drawn.cells, key=jax.random.key(0), num_samples=5)
        unique = drawn.cells.f == 1
        risk, p = result.risk, result.p_unique
        # The variance of 1 / F is at most r (1 - r).
        return [
            (np.sum(1 / drawn.truth) - risk.sum()) / np.sqrt(np.sum(risk * (1 - risk))),
            (np.sum(unique & (drawn.truth == 1)) - p.sum()) / np.sqrt(np.sum(p * (1 - p))),
        ]

    assert np.abs(z_scores(model)).max() < Z_LIMIT
    assert np.abs(z_scores(wrong)).max() > Z_LIMIT
    covered = bnp.cell_risk(model, drawn.cells, key=jax.random.key(0), num_samples=5)
    inside = (covered.q025 <= drawn.truth) & (drawn.truth <= covered.q975)
    assert 0.93 < inside.mean() < 0.995


def test_empirical_bayes_finds_the_parameters(two):
    start = model_two(two, alpha=1.0, a=40.0, gamma=0.5)
    fitted = bnp.fit_empirical_bayes(start, two.cells)
    gain = 2 * (fitted.log_likelihood - model_two(two).log_likelihood(two.cells))
    assert chi2.sf(gain, 3) > P_LIMIT
    gain = 2 * (fitted.log_likelihood - model_two(two, gamma=0.4).log_likelihood(two.cells))
    assert chi2.sf(gain, 3) < P_LIMIT
    assert np.all(np.array(list(fitted.log_sd.values())) < 1)
    for name in ("alpha", "a", "gamma"):
        value = getattr(fitted.model, name)
        for factor in (0.99, 1.01):
            changed = fitted.model.hyperparameters | {name: min(value * factor, 1)}
            other = model_two(two, **changed)
            assert other.log_likelihood(two.cells) < fitted.log_likelihood
    np.testing.assert_allclose(
        list(fitted.log_sd.values()), standard_errors(fitted, two), rtol=0.02
    )


# Log-likelihood and hyperparameters at the maxima, as another search found them: directions of
# L-BFGS, steps halved until the likelihood increases.
MAXIMA = {
    1: (-4261.22513747, {"alpha": 0.422505, "a": 1.357483, "b": 20.06144}),
    2: (-3151.90518172, {"alpha": 0.275700, "a": 14.54874, "gamma": 0.805229}),
}


@pytest.mark.parametrize("start", [{}, {"alpha": 5.0, "a": 300.0}])
@pytest.mark.parametrize("variant", [1, 2])
def test_empirical_bayes_finds_the_maximum_of_another_search(variant, start, one, two):
    drawn, empty = (one, {}) if variant == 1 else (two, {"empty_phat": two.empty_phat})
    model = bnp.PolettiniStander(variant, **start, **empty)
    fitted = bnp.fit_empirical_bayes(model, drawn.cells)
    log_likelihood, values = MAXIMA[variant]
    np.testing.assert_allclose(fitted.log_likelihood, log_likelihood, atol=1e-6, rtol=0)
    assert fitted.model.hyperparameters == pytest.approx(values, rel=1e-4)


def standard_errors(fitted, two):
    """Of the logarithms, and of the logit of gamma, by second differences of the likelihood."""

    def log_likelihood(position):
        alpha, a = np.exp(position[:2])
        return model_two(two, alpha=alpha, a=a, gamma=expit(position[2])).log_likelihood(two.cells)

    model, steps = fitted.model, 0.01 * np.eye(3)
    at = np.array([np.log(model.alpha), np.log(model.a), logit(model.gamma)])
    hessian = [
        [sum(s * t * log_likelihood(at + s * x + t * y) for s in (-1, 1) for t in (-1, 1)) / 4e-4
         for x in steps]
        for y in steps
    ]  # fmt: skip
    return np.sqrt(np.diag(np.linalg.inv(-np.array(hessian))))


def test_a_likelihood_without_a_maximum_is_said_to_be_so():
    """Every sampling fraction 0.1: the larger a + b, the better, without end."""
    random = np.random.default_rng(3)
    drawn = simulate_cells(random, 2000, 40_000, 0.4, 1e7, b=9e7)
    with pytest.raises(bnp.NoMaximumError, match="no estimate, (because )?the likelihood"):
        bnp.fit_empirical_bayes(bnp.PolettiniStander(1), drawn.cells)


def test_what_is_no_maximum_is_said_and_the_hyperparameter_named():
    """A limit, a direction along which nothing changes, a slope, and a search that failed."""

    def said(position=(0.0, 0.0), slope=(0.0, 0.0), curvature=(4.0, 9.0)):
        limit = np.full(2, 5.0)
        with pytest.raises(bnp.NoMaximumError) as found:
            empirical_bayes._require_inside(
                ("alpha", "a"), {"alpha": 0.25, "a": 3.0}, np.array(position), -limit, limit,
                slope, np.diag(curvature),
            )  # fmt: skip
        return str(found.value)

    assert "where alpha goes to its upper limit (stopped at alpha 0.25, a 3)" in said((5.0, 0.0))
    assert "where a goes to its lower limit (" in said((0.0, -5.0))
    assert "the likelihood hardly changes with a (" in said(curvature=(4.0, 1e-9))
    assert "the likelihood hardly changes with alpha (" in said(curvature=(1e-9, 4.0))
    assert "ended before a maximum (at alpha 0.25, a 3)" in said(slope=(0.0, 1.0))
    assert "the search failed" in said((np.nan, 0.0))


def test_counts_of_counts(one):
    fit = bnp.risk.counts_of_counts(bnp.PolettiniStander(1, **ONE), one.cells)
    assert fit["observed"].sum() == NUM_CELLS
    np.testing.assert_allclose(fit["expected"].sum(), NUM_CELLS)
    assert fit["observed"][0] == NUM_CELLS - len(one.cells.f)
    usual = fit[fit["expected"] > 5]
    expected = usual["expected"] * usual["observed"].sum() / usual["expected"].sum()
    assert chisquare(usual["observed"], expected).pvalue > P_LIMIT
    wrong = bnp.risk.counts_of_counts(bnp.PolettiniStander(1, **ONE | {"alpha": 1.0}), one.cells)
    expected = wrong["expected"][usual.index]
    expected *= usual["observed"].sum() / expected.sum()
    assert chisquare(usual["observed"], expected).pvalue < P_LIMIT


def test_counts_of_counts_of_model_two_by_hand():
    """Two of five cells have records; the sampling fractions of the others are of two kinds."""
    table = bnp.Microdata.from_frame(pd.DataFrame({"x": [0, 1, 1, 1]}), levels={"x": range(5)})
    cells = bnp.weighted_cells(table, 60, np.array([10.0, 5.0, 5.0, 5.0]))
    fit = bnp.risk.counts_of_counts(model_two(), cells).set_index("records")
    records, expected = np.arange(4), np.zeros(4)
    assert fit["observed"].iloc[records].tolist() == [3, 1, 0, 1]
    alpha, a, gamma = TWO.values()
    for phat, number in ((1 / 10, 1), (3 / 15, 1), *((phat, 3 * share) for phat, share in PHATS)):
        # Negative binomial about 12 persons a cell, over quantiles of the sampling fraction.
        p = beta.ppf((np.arange(4000) + 0.5) / 4000, a * phat, a * (1 - phat))[:, None]
        of_cell = nbinom.pmf(records, alpha, alpha / (alpha + 12 * p)).mean(axis=0)
        expected += number * (gamma * of_cell + (1 - gamma) * (records == 0))
    np.testing.assert_allclose(fit["expected"].iloc[records], expected, rtol=2e-3)


def test_hyperparameters_have_their_priors(monkeypatch):
    """With a likelihood that is normal in log alpha and logit a / (a + b), all is normal."""

    def log_likelihood(variant, values, data):
        logit_share = jnp.log(values["a"]) - jnp.log(values["b"])
        return -((jnp.log(values["alpha"]) + 2) ** 2 + (logit_share + 3) ** 2) / 2

    monkeypatch.setattr(full_bayes, "log_likelihood_given", log_likelihood)
    table = bnp.Microdata.from_frame(pd.DataFrame({"x": [0, 0, 0]}), levels={"x": [0, 1]})
    draws = bnp.sample_hyperparameters(
        bnp.PolettiniStander(1), bnp.weighted_cells(table, 4), key=jax.random.key(6),
        num_chains=2, num_warmup=150, num_samples=400,
    )  # fmt: skip
    a, b = draws.values["a"], draws.values["b"]
    found = np.log(draws.values["alpha"]), np.log(a + b), np.log(a) - np.log(b)
    # Means and standard deviations of the priors, and what is seen of each with one of 1.
    known = (*PRIORS["alpha"], [-2]), (*PRIORS["concentration"], []), (logit(3 / 4), 0.5, [-3])
    for value, (centre, sd, seen) in zip(found, known, strict=True):
        precision = 1 / sd**2 + len(seen)
        mean, sd = (centre / sd**2 + sum(seen)) / precision, precision**-0.5
        assert abs(value.mean() - mean) < Z_LIMIT * sd / np.sqrt(figures_of(value)["ess_bulk"])
        assert 0.8 < value.std() / sd < 1.25
    expected = -((found[0] + 2) ** 2 + (found[2] + 3) ** 2) / 2
    np.testing.assert_allclose(draws.log_likelihood, expected)


@pytest.mark.long
def test_nuts_agrees_with_a_grid(two):
    """Posterior means of log alpha and gamma, the third parameter integrated out on a grid."""
    model = model_two(two)
    draws = bnp.sample_hyperparameters(
        model, two.cells, key=jax.random.key(4), num_chains=2, num_warmup=150, num_samples=200
    )
    axes = [
        np.linspace(np.log(0.15), np.log(0.5), 12), np.linspace(np.log(5), np.log(40), 10),
        np.linspace(0.5, 0.999, 12),
    ]  # fmt: skip
    log_p = np.zeros((12, 10, 12))
    for i, log_alpha in enumerate(axes[0]):
        for j, log_a in enumerate(axes[1]):
            for k, gamma in enumerate(axes[2]):
                other = model_two(two, alpha=np.exp(log_alpha), a=np.exp(log_a), gamma=gamma)
                log_p[i, j, k] = other.log_likelihood(two.cells)
    for axis, name in ((0, "alpha"), (1, "concentration")):
        centre, sd = PRIORS[name]
        shape = [-1 if d == axis else 1 for d in range(3)]
        log_p -= ((axes[axis] - centre) ** 2 / (2 * sd**2)).reshape(shape)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    values = np.log(draws.values["alpha"]), np.log(draws.values["a"]), draws.values["gamma"]
    for axis, value in enumerate(values):
        margin = p.sum(axis=tuple(d for d in range(3) if d != axis))
        assert margin[[0, -1]].max() < (0.02 if axis < 2 else 0.2)
        mean = (margin * axes[axis]).sum()
        sd = np.sqrt((margin * (axes[axis] - mean) ** 2).sum())
        # 400 draws, of which some 100 are worth an independent one.
        assert abs(value.mean() - mean) < Z_LIMIT * sd / 10
        assert abs(value.mean() - (mean + sd)) > Z_LIMIT * sd / 10
        assert 0.7 < value.std() / sd < 1.4
    assert draws.statistics["diverging"].shape == (2, 200)
    result = bnp.cell_risk(model, two.cells, key=jax.random.key(5), draws=draws)
    unique = two.cells.f == 1
    np.testing.assert_allclose(result.tau1_conditional.mean(), result.p_unique[unique].sum())
    np.testing.assert_allclose(result.tau2_conditional.mean(), result.risk[unique].sum())
    assert np.all(result.q025 <= result.median) and np.all(result.median <= result.q975)
    assert np.all((result.mode >= two.cells.f) & (result.mode <= result.q975))


@pytest.mark.parametrize(
    ("variant", "values", "match"),
    [
        (3, {}, "variant is 1 or 2"),
        (1, {"gamma": 0.5}, "gamma is not a parameter of Model I"),
        (2, {"b": 5.0}, "b is not a parameter of Model II"),
        (1, {"alpha": 0.0}, "alpha must be a positive number"),
        (2, {"gamma": 1.5}, "gamma must be above 0 and at most 1"),
        (1, {"empty_phat": ((0.1, 1.0),)}, "not a parameter of Model I"),
        (2, {"empty_phat": ((0.1, 0.5),)}, "add up to 1"),
        (2, {"empty_phat": ((1.5, 1.0),)}, "every phat is above 0 and at most 1"),
    ],
)
def test_bad_hyperparameters_are_refused(variant, values, match):
    with pytest.raises(ValueError, match=match):
        bnp.PolettiniStander(variant, **values)
