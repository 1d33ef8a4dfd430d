"""Held-out prediction by hand, and models of which one is right."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.special import logsumexp

import bnp_models as bnp
from bnp_models.comparison.held_out import held_out_log_probability
from bnp_models.inference.settings import Settings

NUM_LEVELS = (2, 3)
SCHEMA = bnp.Schema(("a", "b"), tuple(tuple(range(size)) for size in NUM_LEVELS))


def test_held_out_probabilities_are_means_over_the_draws(latent):
    rng = np.random.default_rng(0)
    log_pi = np.log(rng.dirichlet(np.ones(2), (2, 10)))
    levels = [np.log(np.moveaxis(rng.dirichlet(np.ones(s), (2, 10, 2)), 3, 2)) for s in NUM_LEVELS]
    draws = {"log_pi": log_pi, "log_lambda": np.concatenate(levels, axis=2),
             "alpha": np.ones((2, 10)), "log_feasible": np.zeros((2, 10))}  # fmt: skip
    codes = np.array([[0, 2], [1, 0], [0, 2]])
    run = dataclasses.replace(
        latent.run, model=bnp.NPLCM(components=2), table=bnp.Microdata(SCHEMA, codes),
        draws={name: np.float32(x) for name, x in draws.items()}, conditions=None,
        settings=Settings(2, 0, 10, 1, (), (2,)),
    )  # fmt: skip
    of_cell = log_pi + draws["log_lambda"][:, :, 0] + draws["log_lambda"][:, :, 4]
    exact = logsumexp(of_cell) - np.log(20)
    found = held_out_log_probability(run, codes)
    np.testing.assert_allclose(found[[0, 2]], exact, rtol=1e-5)
    assert found[1] != found[0]


@pytest.fixture(scope="module")
def comparison():
    """Two variables that agree: one class cannot say so, several can."""
    rng = np.random.default_rng(1)
    a = rng.integers(0, 4, 200)
    codes = np.stack([a, np.where(rng.random(200) < 0.9, a, rng.integers(0, 4, 200))], axis=1)
    schema = bnp.Schema(("a", "b"), ((0, 1, 2, 3),) * 2)
    few = {"split_merge_every": 0}
    return bnp.compare(
        {"many": bnp.NPLCM(10, **few), "few": bnp.NPLCM(2, **few)}, bnp.Microdata(schema, codes),
        key=jax.random.key(0), population_size=1000, folds=2, num_chains=2, num_warmup=60,
        num_samples=40,
    )  # fmt: skip


@pytest.mark.long
def test_the_model_that_can_say_what_is_there_wins(comparison):
    assert comparison.best == "many"
    table = comparison.table()
    assert list(table["model"]) == ["many", "few"] and table["behind"][0] == 0
    assert table["behind"][1] > 3 * table["behind_se"][1] > 0
    many = comparison.models["many"]
    assert many.log_probabilities.shape == (80,)
    assert table["tau1"][0] == many.risk.tau1.mean()
    assert table["z_uniques"][0] == many.checks.cells[1].z
    assert any("draws" in sentence for sentence in many.warnings())


def test_impossible_folds_are_refused(small):
    with pytest.raises(ValueError, match="folds must be from 1"):
        bnp.compare({}, small.table, key=jax.random.key(0), folds=6)
