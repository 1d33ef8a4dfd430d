"""Held-out prediction by hand, and models of which one is right."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

import bnp_models as bnp
from bnp_models.comparison.comparison import held_out_log_probability
from bnp_models.inference.run import AllDraws
from bnp_models.inference.trace import Settings

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


# Each record is in a cell of its own, whose number is codes @ WEIGHTS.
CODES, WEIGHTS = np.stack([np.arange(23) // 5, np.arange(23) % 5], axis=1), [5, 1]
MODELS = {"hdp": bnp.HDPMixedMembership(), "nplcm": bnp.NPLCM(2), "tnplcm": bnp.TNPLCM(2)}


@pytest.fixture
def compared(monkeypatch):
    """Compare models without chains: what is fitted, and what is predicted of which fit.

    The log probability of a held-out record is its number.
    """
    fitted, predicted = [], []

    def sample(model, table, *, until, **options):
        minutes = options.get("max_minutes")
        run = SimpleNamespace(
            model=model, table=table, until=None, asked=until,
            seconds={"draws": 30.0, "checks": 30.0},
        )  # fmt: skip
        vars(run).update(options, max_minutes=minutes)
        fitted.append(run)
        return run

    def held_out_log_probability(run, codes):
        predicted.append((run, codes))
        return codes @ WEIGHTS

    module = "bnp_models.comparison.comparison."
    monkeypatch.setattr(module + "sample", sample)
    monkeypatch.setattr(module + "held_out_log_probability", held_out_log_probability)
    monkeypatch.setattr(module + "predictive_checks", lambda run: run)
    monkeypatch.setattr(module + "population_risk", lambda *of: of)
    monkeypatch.setattr(module + "Diagnosis", SimpleNamespace(of=lambda *of: of))

    def compare(models, **options):
        schema = bnp.Schema(("a", "b"), (tuple(range(5)),) * 2)
        options = {"key": jax.random.key(0), "num_folds": 4, "folds": 3} | options
        found = bnp.compare(models, bnp.Microdata(schema, CODES), **options)
        return SimpleNamespace(models=found.models, fitted=fitted, predicted=predicted)

    return compare


def test_records_are_predicted_by_a_run_that_has_not_seen_them(compared):
    """Of four parts of 23 records three are held out, one at a time, and the same of all models."""
    done = compared(MODELS, population_size=500)
    parts = [codes @ WEIGHTS for _, codes in done.predicted]
    assert [len(part) for part in parts] == [6] * 9
    held_out = np.concatenate(parts[:3])
    assert len(np.unique(held_out)) == 18
    for i, (name, of_model) in enumerate(done.models.items()):
        *fits, whole = done.fitted[4 * i : 4 * i + 4]
        assert all(fit.model is MODELS[name] for fit in [*fits, whole])
        for fit, (run, _), part in zip(fits, done.predicted[3 * i :], parts, strict=False):
            assert run is fit
            together = np.concatenate([fit.table.codes @ WEIGHTS, part])
            np.testing.assert_array_equal(np.sort(together), np.arange(23))
        np.testing.assert_array_equal(of_model.log_probabilities, held_out)
        np.testing.assert_array_equal(whole.table.codes, CODES)
        assert of_model.run is of_model.checks is whole and of_model.risk == (whole, 500)
        assert of_model.diagnosis == (whole, of_model.risk)


def test_every_run_has_a_key_and_a_checkpoint_of_its_own_and_zeros_where_it_takes_them(
    compared, tmp_path
):
    zeros, options = pd.DataFrame({"a": [4], "b": [4]}), {"num_chains": 3, "num_samples": 7}
    done = compared(MODELS, conditions=zeros, checkpoint=tmp_path, **options)
    assert len({jax.random.key_data(fit.key).tobytes() for fit in done.fitted}) == 12
    parts = ("fold_1", "fold_2", "fold_3", "whole")
    folders = [tmp_path / f"model_{i}_{part}" for i in (1, 2, 3) for part in parts]
    assert [fit.checkpoint for fit in done.fitted] == folders
    for fit in done.fitted:
        assert {name: vars(fit)[name] for name in options} == options
        if fit.model is MODELS["nplcm"]:
            assert fit.conditions is None
        else:
            assert isinstance(fit.conditions, bnp.StructuralZeros)
    assert all(of_model.risk is None for of_model in done.models.values())


def test_the_key_chooses_what_is_held_out(compared):
    one = {"nplcm": MODELS["nplcm"]}
    for seed in (0, 0, 1):
        done = compared(one, key=jax.random.key(seed), folds=1)
    first, again, other = (codes.tolist() for _, codes in done.predicted)
    assert first == again != other


def test_minutes_of_one_run_that_are_too_few_are_told_as_a_share(compared, monkeypatch):
    def sample(*_, max_minutes, **options):
        raise bnp.OutOfTime(max_minutes, 0, 24)

    monkeypatch.setattr("bnp_models.comparison.comparison.sample", sample)
    said = "^one of 4 runs of chains, which share the minutes given, stopped after 1.5 minutes, at"
    with pytest.raises(bnp.OutOfTime, match=said):
        compared({"nplcm": MODELS["nplcm"]}, max_minutes=6)


def test_runs_share_the_minutes_that_are_left(compared):
    """Each of four runs takes a minute: the first may take a quarter of six, the last the rest."""
    one = {"nplcm": MODELS["nplcm"]}
    done = compared(one, max_minutes=6, num_samples=7)
    assert [run.max_minutes for run in done.fitted] == pytest.approx([6 / 4, 5 / 3, 4 / 2, 3])
    assert {run.asked for run in done.fitted} == {AllDraws(7)}
    done.fitted.clear()
    done = compared(one, max_minutes=2.5)
    assert [run.max_minutes for run in done.fitted[:3]] == pytest.approx(
        [2.5 / 4, 1.5 / 3, 0.5 / 2]
    )
    # Nothing is left, which is not the same as no limit.
    assert 0 < done.fitted[3].max_minutes < 1e-6
    done.fitted.clear()
    assert {run.max_minutes for run in compared(one).fitted} == {None}
    with pytest.raises(ValueError, match="max_minutes must be positive"):
        compared(one, max_minutes=0)
