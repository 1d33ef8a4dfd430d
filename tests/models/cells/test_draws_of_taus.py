"""Draws of tau_1 and tau_2 of cells: means, variances and covariance in closed form."""

import jax
import numpy as np
import pandas as pd
import pytest
from harness import Z_LIMIT

import bnp_models as bnp

DRAWS = 20_000
VALUES = {
    1: [{"alpha": 0.4, "a": 2.0, "b": 9.0}, {"alpha": 1.5, "a": 1.0, "b": 12.0}],
    2: [
        {"alpha": 0.3, "a": 12.0, "gamma": 0.8},
        {"alpha": 1.2, "a": 5.0, "gamma": 0.8},
    ],
}


@pytest.fixture(scope="module")
def cells():
    """Nine sample uniques, of two sampling fractions, and three cells with several records."""
    frame = pd.DataFrame({
        "x": ["a"] * 6 + ["b"] * 3 + ["a", "a", "b", "b", "b", "b", "b"],
        "y": [*range(6), *range(3), 6, 6, 3, 3, 3, 4, 4],
    })  # fmt: skip
    table = bnp.Microdata.from_frame(frame, levels={"x": ["a", "b"], "y": range(10)})
    return bnp.weighted_cells(table, 120, np.where(frame["x"] == "a", 4.0, 12.0))


def exact_moments(model, cells):
    """Means of tau_1 and tau_2, and their covariance matrix, by summing over F of each unique."""
    F = np.arange(1, 3000)
    mean, covariance = np.zeros(2), np.zeros((2, 2))
    for phat, number in zip(*np.unique(cells.phat[cells.f == 1], return_counts=True), strict=True):
        pmf = np.exp(model.log_posterior(F, 1.0, phat, cells))
        assert abs(pmf.sum() - 1) < 1e-9
        both = np.stack([F == 1, 1 / F])
        mean += number * both @ pmf
        covariance += number * ((both * pmf) @ both.T - np.outer(both @ pmf, both @ pmf))
    return mean, covariance


def largest_z_score(tau1, tau2, mean, covariance):
    """Of the means, the variances and the covariance of draws."""
    error = np.stack([tau1, tau2]) - mean[:, None]
    products = error[[0, 1, 0]] * error[[0, 1, 1]]
    scores = [
        *np.sqrt(len(tau1)) * error.mean(axis=1) / np.sqrt(np.diag(covariance)),
        *np.sqrt(len(tau1)) * (products.mean(axis=1) - covariance[[0, 1, 0], [0, 1, 1]])
        / products.std(axis=1),
    ]  # fmt: skip
    return np.abs(scores).max()


@pytest.mark.parametrize("variant", [1, 2])
def test_draws_at_given_hyperparameters(variant, cells):
    models = [bnp.PolettiniStander(variant, **values) for values in VALUES[variant]]
    result = bnp.cell_risk(
        models[0], cells, key=jax.random.key(variant), num_chains=2, num_samples=DRAWS // 2
    )
    assert result.tau1.shape == result.tau2.shape == (2, DRAWS // 2)
    taus = result.tau1.ravel(), result.tau2.ravel()
    (mean, covariance), others = (exact_moments(model, cells) for model in models)
    np.testing.assert_allclose(result.tau1_conditional, mean[0], rtol=1e-9)
    np.testing.assert_allclose(result.tau2_conditional, mean[1], rtol=1e-9)
    np.testing.assert_allclose(result.tau1_variance, covariance[0, 0], rtol=1e-9)
    assert largest_z_score(*taus, mean, covariance) < Z_LIMIT
    assert largest_z_score(*taus, *others) > Z_LIMIT
    # tau_2 drawn apart from tau_1 has the right margins only.
    assert largest_z_score(taus[0], np.roll(taus[1], 1), mean, covariance) > Z_LIMIT
    assert len(np.unique(taus[1])) > DRAWS / 4


@pytest.mark.parametrize("variant", [1, 2])
def test_draws_at_sampled_hyperparameters(variant, cells):
    """Two values of the hyperparameters in turn: each draw is at its own."""
    number = 1500
    models = [bnp.PolettiniStander(variant, **values) for values in VALUES[variant]]
    draws = bnp.results.HyperparameterDraws(
        {name: np.tile([values[name] for values in VALUES[variant]], (2, number // 2))
         for name in models[0].hyperparameters},
        np.zeros((2, number)), {}, {},
    )  # fmt: skip
    result = bnp.cell_risk(models[0], cells, key=jax.random.key(3 + variant), draws=draws)
    moments = [exact_moments(model, cells) for model in models]
    for i in (0, 1):
        taus = result.tau1[:, i::2].ravel(), result.tau2[:, i::2].ravel()
        assert largest_z_score(*taus, *moments[i]) < Z_LIMIT
        assert largest_z_score(*taus, *moments[1 - i]) > Z_LIMIT
