"""The log-likelihood by which chains are judged before their risk is evaluated."""

import dataclasses

import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.inference.run import Until
from bnp_models.risk import likelihood, population
from bnp_models.risk.likelihood import early_diagnosis, log_likelihood


def test_it_is_that_of_the_risk_at_these_draws(small):
    every = bnp.population_risk(small.run, 20_000, thin=1)
    found = log_likelihood(small.run)
    assert found.draws.shape == every.log_likelihood.shape
    np.testing.assert_allclose(found.draws, every.log_likelihood, rtol=1e-6)


def test_few_draws_of_each_chain_are_evaluated(small, monkeypatch):
    monkeypatch.setattr(population, "LEAST_DRAWS", 3)
    monkeypatch.setattr(likelihood, "NUM_DRAWS", 12)
    every = bnp.population_risk(small.run, 20_000, thin=5)
    found = log_likelihood(small.run)
    assert found.draws.shape == (2, 6)
    np.testing.assert_allclose(found.draws, every.log_likelihood, rtol=1e-6)


@pytest.mark.parametrize("apart", [0.0, 50.0])
def test_chains_whose_likelihoods_differ_miss_the_target(small, monkeypatch, apart):
    """The target is met by draws that agree, and missed by those that do not."""
    target = bnp.Converged(1.01, min_ess=1, others_rhat=1.1)
    run = dataclasses.replace(small.run, until=Until(target, 1.0, small.run.settings))
    draws = np.random.default_rng(0).normal(size=(2, 200)) + apart * np.arange(2)[:, None]
    monkeypatch.setattr(likelihood, "log_likelihood", lambda run: likelihood.LogLikelihood(draws))
    diagnosis = early_diagnosis(run)
    assert diagnosis.reached is (apart == 0)
    assert [text.split(" is ")[0] for text in diagnosis.missed] == (
        [] if apart == 0 else ["R-hat of log_likelihood"]
    )
