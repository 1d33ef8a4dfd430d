"""The layer for ties: its likelihood by the urn, and records with and without ties."""

import dataclasses

import jax
import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.inference.settings import Settings
from bnp_models.risk import ties

NUM_LEVELS, POPULATION = (6, 5, 5, 4), 4000
SCHEMA = bnp.Schema(tuple("abcd"), tuple(tuple(range(size)) for size in NUM_LEVELS))


def parameters(rng):
    levels = [rng.dirichlet(np.full(size, 2.0), 2).T for size in NUM_LEVELS]
    return np.array([0.4, 0.6]), levels


def draw_records(rng, pi, levels, number):
    z = rng.choice(2, number, p=pi)
    columns = [(rng.random((number, 1)) > p.T[z].cumsum(axis=1)).sum(axis=1) for p in levels]
    return np.stack(columns, axis=1)


def population_with_ties(rng, pi, levels, concentration):
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


def test_the_likelihood_is_that_of_the_urn():
    """Three records of two cells, in turn."""
    base, counts, c = np.array([0.2, 0.05]), np.array([2, 1]), 3.0
    urn = base[0] * (c * base[0] + 1) / (c + 1) * c * base[1] / (c + 2)
    assert ties.log_likelihood(np.array(c), base, counts) == pytest.approx(np.log(urn))


def test_with_ties_the_truth_is_held(latent):
    """Of three populations of the urn, whose cells the model alone expects to fill up."""
    truth, with_ties, without = 0, 0, 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        pi, levels = parameters(rng)
        people = population_with_ties(rng, pi, levels, 100.0)
        sample = rng.choice(POPULATION, 800, replace=False)
        run = run_on(latent, people[sample], pi, levels)
        found = bnp.ties_risk(run, POPULATION)
        assert 30 < np.median(found.concentration) < 300
        with_ties = with_ties + found.tau1
        without = without + bnp.population_risk(run, POPULATION).tau1.ravel()
        _, cell, counts = np.unique(people, axis=0, return_inverse=True, return_counts=True)
        truth += int((counts[cell.ravel()[sample]] == 1).sum())
    low, high = np.quantile(with_ties, [0.005, 0.995])
    assert low <= truth <= high
    assert truth > np.quantile(without, 0.995)


def test_where_the_model_is_right_nothing_changes(latent):
    rng = np.random.default_rng(6)
    pi, levels = parameters(rng)
    run = run_on(latent, draw_records(rng, pi, levels, 400), pi, levels)
    with_ties = bnp.ties_risk(run, POPULATION)
    without = bnp.population_risk(run, POPULATION)
    assert np.median(with_ties.concentration) > 1e5
    assert abs(np.median(with_ties.tau1) - np.median(without.tau1)) <= 2
    assert abs(np.median(with_ties.tau2) / np.median(without.tau2) - 1) < 0.05
