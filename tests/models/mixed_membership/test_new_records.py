"""Probabilities of a new record's cell and tau_1, where every record has its own concentration.

Brute force sums over all labels and integrates over alpha ~ Ga(a, b), with b far from 1.
"""

from itertools import product

import jax
import numpy as np
import pytest
from harness import Z_LIMIT
from scipy import integrate, stats

import bnp_models as bnp
from bnp_models import HDPMixedMembership
from bnp_models.inference.trace import Settings
from bnp_models.kernels.numerics.set_partitions import log_block_weights
from bnp_models.models.mixed_membership import new_records

NUM_LEVELS = (2, 2, 2)
CELLS = np.array(list(product(*map(range, NUM_LEVELS))), np.int32)
SAMPLE = np.array([[0, 0, 0], [0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1]], np.int32)
UNIQUE = [3, 5, 6, 7]
POPULATION = 16
RATE = 8.0
# Parameters, and draws that have the same ones.
NUM_PARAMETERS, NUM_REPEATS, NUM_COMPONENTS = 3, 40, 3
NUM_DRAWS = NUM_PARAMETERS * NUM_REPEATS
MODELS = {
    "record": HDPMixedMembership(concentration="record", b=RATE),
    # The prior mean of the rate is 1: draws are what counts.
    "hierarchical": HDPMixedMembership(concentration="hierarchical"),
}


def _urn(alpha, g0, labels):
    """Probability of labels in turn, at a concentration."""
    found = 1.0
    for j, k in enumerate(labels):
        found = found * (alpha * g0[k] + labels[:j].count(k)) / (alpha + j)
    return found


def brute_force(a, rate, g0, theta):
    """Probability of every cell, summed over all labels and averaged over alpha ~ Ga(a, rate)."""
    prior = stats.gamma(a, scale=1 / rate)
    total = np.zeros(len(CELLS))
    for labels in product(range(len(g0)), repeat=len(NUM_LEVELS)):
        share = integrate.quad(
            lambda x, z=labels: _urn(x, g0, z) * prior.pdf(x), 0, 60 / rate, epsabs=1e-10
        )[0]
        rows = [2 * j + CELLS[:, j] for j in range(len(NUM_LEVELS))]
        total += share * np.prod([theta[r, k] for r, k in zip(rows, labels, strict=True)], axis=0)
    return total


def made_parameters():
    """g_0 and theta of each."""
    rng = np.random.default_rng(5)
    # Far apart, so that it matters how many items of a record share a component.
    theta = np.empty((NUM_PARAMETERS, 6, NUM_COMPONENTS))
    theta[:, ::2] = rng.beta(0.4, 0.4, (NUM_PARAMETERS, 3, NUM_COMPONENTS)).clip(0.02, 0.98)
    theta[:, 1::2] = 1 - theta[:, ::2]
    return rng.dirichlet(np.full(NUM_COMPONENTS, 3.0), NUM_PARAMETERS), theta


def made_draws():
    """Draws (1, draws, ..) of parameters, as a run keeps them."""
    g0, theta = (np.repeat(x, NUM_REPEATS, axis=0) for x in made_parameters())
    draws = {
        "alpha": np.ones(NUM_DRAWS), "alpha_rate": np.full(NUM_DRAWS, RATE), "g0": g0,
        "theta": theta, "log_feasible": np.zeros(NUM_DRAWS),
    }  # fmt: skip
    return {name: np.asarray(value, np.float32)[None] for name, value in draws.items()}


@pytest.fixture(scope="module")
def exact():
    """tau_1 of all parameters by brute force: the two concentrations differ in nothing here."""
    a = MODELS["record"].a
    assert MODELS["hierarchical"].a == a
    p = np.array([brute_force(a, RATE, *x) for x in zip(*made_parameters(), strict=True)])
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-6)
    return np.sum((1 - p[:, UNIQUE]) ** (POPULATION - len(SAMPLE)), axis=1)


def tau1(concentration, method, fault=None):
    """E tau_1 of every draw by the package, one of its steps wrong where a fault is named."""
    schema = bnp.Schema(("a", "b", "c"), ((0, 1),) * 3)
    settings = Settings(1, 0, NUM_DRAWS, 1, ("alpha",), (1,))
    run = bnp.Run(
        MODELS[concentration], bnp.Microdata(schema, SAMPLE), settings, made_draws(),
        jax.random.key(9), None, NUM_COMPONENTS, (), None,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        if fault is not None:
            for name, wrong in FAULTS[fault](MODELS[concentration]).items():
                patch.setattr(new_records, name, wrong)
        jax.clear_caches()
        found = bnp.population_risk(
            run, POPULATION, ties="off", method=method, thin=1
        ).tau1_conditional
    jax.clear_caches()
    return np.asarray(found, np.float64).ravel()


def _models_rate(model):
    """The rate of a model as it is made, which the hierarchical one has: not that of the draw."""
    gamma, weights = new_records.gamma_variate, new_records.log_block_weights_gamma
    rate = HDPMixedMembership().b
    return {
        "gamma_variate": lambda key, shape, _: gamma(key, shape, np.float32(rate)),
        "log_block_weights_gamma": lambda a, _, number: weights(a, np.float32(rate), number),
    }


def _mean(model):
    """Every alpha at the mean of its prior."""
    return {
        "gamma_variate": lambda key, shape, rate: shape / rate,
        "log_block_weights_gamma": lambda a, rate, number: log_block_weights(a / rate, number),
    }


FAULTS = {"the model's rate": _models_rate, "alpha at its mean": _mean}


def score(found, exact, method):
    """Largest standardised error; of the exact method, in units of its precision."""
    error = found.reshape(NUM_PARAMETERS, NUM_REPEATS) - exact[:, None]
    if method == "exact":
        return np.abs(error / exact[:, None]).max() / 1e-5
    return np.abs(error.mean(axis=1) / error.std(axis=1, ddof=1)).max() * np.sqrt(NUM_REPEATS)


METHODS = ("exact", "draws")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("concentration", MODELS)
def test_tau1_against_brute_force(exact, concentration, method):
    assert score(tau1(concentration, method), exact, method) < Z_LIMIT


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("concentration", MODELS)
@pytest.mark.parametrize("fault", FAULTS)
def test_tau1_rejects(exact, concentration, method, fault):
    assert score(tau1(concentration, method, fault), exact, method) > Z_LIMIT
