"""Risks against exact binomial and multinomial answers, and two roads to tau_1."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest
from harness import Z_LIMIT
from populations import simulate_tau1
from scipy.stats import binom

import bnp_models as bnp
from bnp_models.inference import run
from bnp_models.risk.evaluator import (
    LogProbabilities,
    cell_probabilities,
    draw_joining,
    record_risks,
)
from bnp_models.risk.taus import _unbiased_risks


@pytest.mark.parametrize("num_new", [0, 1, 37, 2000])
def test_record_risks_are_the_binomial_expectations(num_new):
    q = np.array([1e-14, 1e-9, 1e-4, 0.03, 0.4])
    r1, r2 = record_risks(np.log(q), num_new)
    others = np.arange(num_new + 1)
    pmf = binom.pmf(others[:, None], num_new, q)
    np.testing.assert_allclose(r1, pmf[0], rtol=1e-10)
    np.testing.assert_allclose(r2, np.sum(pmf / (1 + others[:, None]), axis=0), rtol=1e-9)


def test_tiny_probabilities_keep_their_digits():
    """At q = 1e-12 and 3e5 records, 1 - r1 is 3e-7: lost by (1 - q) ** M."""
    r1, r2 = record_risks(np.log(np.array([1e-12])), 300_000)
    np.testing.assert_allclose(1 - r1, 3e-7, rtol=1e-6)
    np.testing.assert_allclose(1 - r2, 1.5e-7, rtol=1e-6)


def draw_tau1(rng, q, num_new):
    return np.sum(draw_joining(rng, q, num_new) == 0, axis=1)


def test_tau1_has_the_distribution_of_untouched_cells():
    """Two cells and three records: all outcomes enumerated."""
    q, num_new = np.array([0.2, 0.35]), 3
    both = (1 - q.sum()) ** num_new
    exact = np.array([0, (1 - q[0]) ** num_new + (1 - q[1]) ** num_new - 2 * both, both])
    exact[0] = 1 - exact.sum()
    draws = draw_tau1(np.random.default_rng(0), np.tile(q, (200_000, 1)), num_new)
    seen = np.bincount(draws, minlength=3) / draws.size
    z = (seen - exact) / np.sqrt(exact * (1 - exact) / draws.size)
    assert np.abs(z).max() < Z_LIMIT
    wrong = draw_tau1(np.random.default_rng(0), np.tile(q, (200_000, 1)), num_new + 1)
    seen = np.bincount(wrong, minlength=3) / wrong.size
    assert np.abs((seen - exact) / np.sqrt(exact * (1 - exact) / wrong.size)).max() > Z_LIMIT


def test_records_sum_to_the_conditional_expectation(small):
    records = small.risk.records()
    np.testing.assert_allclose(records["r1"].sum(), small.risk.tau1_conditional.mean(), rtol=1e-12)
    np.testing.assert_allclose(records["r2"].sum(), small.risk.tau2_conditional.mean(), rtol=1e-12)
    assert records["r1"].is_monotonic_decreasing
    assert ((records["r1"] >= 0) & (records["r1"] <= records["r2"]) & (records["r2"] <= 1)).all()
    uniques = small.table.cells().sample_uniques
    assert sorted(records["row"]) == sorted(uniques)
    frame = small.table.to_frame()
    first = records.iloc[0]
    assert all(first[name] == frame.loc[first["row"], name] for name in frame)


def test_one_draw_of_each_chain_gives_a_risk_without_errors(small):
    risk = bnp.population_risk(small.run, 20_000, thin=30)
    assert risk.tau1.shape == (2, 1)
    assert np.isnan(risk.r1_error).all() and np.isfinite(risk.r1).all()


def test_counts_agree_with_their_conditional_expectation(small):
    """The count's spread is wider, its mean the same, in a population that leaves some uniques."""
    risk = bnp.population_risk(small.run, 600, ties="off")
    for count, expected in (
        (risk.tau1, risk.tau1_conditional), (risk.tau2, risk.tau2_conditional)
    ):  # fmt: skip
        difference = (count - expected).ravel()
        assert abs(difference.mean()) < Z_LIMIT * difference.std() / np.sqrt(difference.size)
        assert count.std() > expected.std()


def log_probabilities(run, codes):
    """Of records, draw by draw."""
    key, parts = jax.random.key(0), []
    for log_p, _, _ in cell_probabilities(run, run.parameters(), codes, "exact", key):
        parts.append(log_p)
    return np.concatenate(parts)


def test_the_log_likelihood_is_that_of_every_record(small):
    log_p = log_probabilities(small.run, small.table.codes)
    np.testing.assert_allclose(small.risk.log_likelihood.ravel(), log_p.sum(axis=1), rtol=1e-5)


def test_records_and_risks_by_level(small):
    """Against pandas: all records of a level, and the risks of its uniques."""
    frame, records = small.table.to_frame(), small.risk.records()
    for row in small.risk.by_level().itertuples():
        unique = records[records[row.variable] == row.level]
        assert row.records == (frame[row.variable] == row.level).sum()
        assert row.sample_uniques == len(unique)
        assert (row.tau1, row.tau2) == pytest.approx((unique["r1"].sum(), unique["r2"].sum()))


@pytest.mark.parametrize("max_cells", [256, 20])
def test_the_monitor_estimates_tau1_of_the_latest_draw(small, max_cells):
    """From some of the uniques, in proportion."""
    monitor = bnp.risk.tau1_monitor(small.run.model, small.table, 2000, max_cells)
    latest = {name: x[:, -1] for name, x in small.run.parameters().items()}
    cells = small.table.tabulated
    uniques = cells.codes[cells.unique_cells]
    every = -(-len(uniques) // max_cells)
    assert (every > 1) == (max_cells == 20)
    some = np.exp(
        log_probabilities(small.run, uniques[::every])[small.run.settings.num_samples - 1]
    )
    expected = ((1 - some) ** (2000 - small.table.n)).mean() * len(uniques)
    assert monitor(latest) == {"tau_1": pytest.approx(expected, rel=1e-4)}


def counted_and_simulated(run, size):
    """tau_1 by the two roads, which agree, and the error of their difference."""
    counted = bnp.population_risk(run, size, ties="off").tau1.ravel()
    num_draws = counted.size
    simulated = simulate_tau1(run, size, num_draws=num_draws)
    error = np.hypot(simulated.std(), counted.std()) / np.sqrt(num_draws)
    assert abs(simulated.mean() - counted.mean()) < Z_LIMIT * error
    return counted, simulated, error


def assert_truncation_is_seen(run, size):
    """Simulated feasible records against p_c / P(feasible); without the latter, it is seen."""
    _, simulated, error = counted_and_simulated(run, size)
    unnormalised = run.draws | {"log_feasible": np.zeros_like(run.draws["log_feasible"])}
    wrong = bnp.population_risk(dataclasses.replace(run, draws=unnormalised), size, ties="off").tau1
    assert wrong.mean() - simulated.mean() > Z_LIMIT * error


def completed_table(latent):
    return bnp.Microdata.from_frame(bnp.impute(latent.run, 1)[0], levels=latent.table.schema)


def test_population_simulation_agrees_with_the_multinomial_draw(small):
    """In a population small enough that some uniques remain."""
    size = 600
    counted, simulated, error = counted_and_simulated(small.run, size)
    num_draws = counted.size
    assert abs(np.log(simulated.std() / counted.std())) < 0.5
    fewer = simulate_tau1(small.run, size // 2, num_draws=num_draws)
    assert fewer.mean() - counted.mean() > Z_LIMIT * error


def test_truncated_classes_population_simulation_agrees_with_the_closed_form(latent):
    run = dataclasses.replace(latent.run, table=completed_table(latent))
    assert_truncation_is_seen(run, 600)
    with pytest.raises(ValueError, match='method is "exact"'):
        bnp.population_risk(run, 600, method="draws")


@pytest.mark.long
def test_truncated_mixed_membership_population_simulation_agrees_with_the_closed_form(latent):
    model = bnp.HDPMixedMembership(
        dish_stride=0, cell_stride=0, split_merge_every=0, seating_every=0, trajectory_steps=0,
        tilt=False,
    )  # fmt: skip
    run = bnp.sample(
        model, completed_table(latent), key=jax.random.key(0), conditions=latent.conditions,
        num_chains=2, num_warmup=100, num_samples=30,
    )  # fmt: skip
    assert_truncation_is_seen(run, 600)


def test_shared_draws_agree_with_the_exact_method(small):
    other = bnp.population_risk(small.run, 600, ties="off", method="draws", thin=10)
    exact = bnp.population_risk(small.run, 600, ties="off", method="exact", thin=10)
    assert other.thin == 10 and other.tau1.shape == exact.tau1.shape == (2, 3)
    np.testing.assert_allclose(other.tau1_conditional, exact.tau1_conditional, rtol=0.05)
    np.testing.assert_allclose(other.tau2_conditional, exact.tau2_conditional, rtol=0.05)
    np.testing.assert_allclose(other.log_likelihood, exact.log_likelihood, rtol=0.01)
    assert 0 < other.relative_error < 0.2 and exact.relative_error == 0


def test_noise_of_probabilities_leaves_no_bias():
    """Unbiased estimates by two halves: of their risks the curvature's share is taken away."""
    rng = np.random.default_rng(0)
    q, num_new = np.array([3e-4, 1e-3]), 1000
    halves = q * rng.gamma(20, 1 / 20, (200_000, 2, 2))
    estimate = LogProbabilities(np.log(halves.mean(axis=1)), np.log(halves))

    def evaluate(log_b, num_new, log_q):
        return record_risks(log_q, num_new)

    found = _unbiased_risks(evaluate, estimate, estimate, num_new)
    plain = record_risks(estimate.log_p, num_new)
    for unbiased, plug_in, exact in zip(
        found, plain, record_risks(np.log(q), num_new), strict=True
    ):
        z = [
            (x.mean(axis=0) - exact) / x.std(axis=0) * np.sqrt(len(x)) for x in (unbiased, plug_in)
        ]
        assert np.abs(z[0]).max() < Z_LIMIT < np.abs(z[1]).min()


def test_record_weights_of_each_draw_are_its_own(small):
    """Errors that all draws share would not go away in their mean."""
    draws = {name: x[:, :1].repeat(4, axis=1) for name, x in small.run.parameters().items()}
    codes, key = small.table.tabulated.codes[:20], jax.random.key(0)
    found = cell_probabilities(small.run, draws, codes, "draws", key)
    log_p = np.concatenate([block for block, _, _ in found])
    assert len(np.unique(log_p[:4, 0])) == len(np.unique(log_p[4:, 0])) == 4


def test_a_census_of_everyone_leaves_every_unique_unique(small):
    risk = bnp.population_risk(small.run, small.table.n)
    assert (risk.tau1 == len(risk.rows)).all()
    np.testing.assert_allclose(risk.tau2, len(risk.rows))


def test_cells_that_are_many_are_evaluated_for_fewer_draws_at_once(small, monkeypatch):
    blocks = run.blocks_of_draws(60, figures=run._FIGURES_AT_ONCE // 4)
    assert [len(padded) for _, padded in blocks] == [4] * 15
    monkeypatch.setattr(run, "_FIGURES_AT_ONCE", 300)
    again = bnp.population_risk(small.run, 20_000)
    np.testing.assert_allclose(again.log_likelihood, small.risk.log_likelihood, rtol=1e-6)
    np.testing.assert_allclose(again.r1.sum(), small.risk.r1.sum(), rtol=0.05)


def test_the_same_run_gives_the_same_risk(small):
    again = bnp.population_risk(small.run, small.risk.population_size)
    np.testing.assert_array_equal(again.tau1, small.risk.tau1)
    np.testing.assert_array_equal(again.r1, small.risk.r1)


def test_bad_arguments_are_refused(small):
    with pytest.raises(ValueError, match="smaller than the sample"):
        bnp.population_risk(small.run, 10)
    with pytest.raises(ValueError, match="method is one of"):
        bnp.population_risk(small.run, 20_000, method="guess")
    with pytest.raises(ValueError, match="thin"):
        bnp.population_risk(small.run, 20_000, thin=0)
    with pytest.raises(ValueError, match="ndpmpm model gives no probabilities of cells"):
        bnp.population_risk(dataclasses.replace(small.run, model=bnp.NDPMPM()), 20_000)
    kept = {name: small.run.draws[name] for name in ("alpha", "components")}
    with pytest.raises(ValueError, match="did not keep 'g0'"):
        bnp.population_risk(dataclasses.replace(small.run, draws=kept), 20_000)
    schema = bnp.Schema(("row", *small.table.schema.variables[1:]), small.table.schema.levels)
    renamed = dataclasses.replace(small.run, table=bnp.Microdata(schema, small.table.codes))
    with pytest.raises(bnp.MicrodataError, match="column 'row': the table of records"):
        bnp.population_risk(renamed, 20_000)


def test_a_run_that_kept_arrays_of_some_draws(small):
    """Every third draw has parameters: all else is judged and written at these draws."""
    draws = {name: x if x.ndim == 2 else x[:, 2::3] for name, x in small.run.draws.items()}
    settings = dataclasses.replace(small.run.settings, parameters_every=3)
    run = dataclasses.replace(small.run, settings=settings, draws=draws)
    risk = bnp.population_risk(run, 20_000)
    alpha = small.run.draws["alpha"][:, 2::3]
    np.testing.assert_array_equal(risk.monitored(run)["alpha"], alpha)
    assert bnp.report.risk_summary(risk)["tau1"]["mean"] == risk.tau1.mean()
    data = bnp.to_inference_data(run, risk)["posterior"]
    np.testing.assert_array_equal(data["alpha"], alpha)
    assert data["tau1"].shape == (2, 10)


def test_cells_with_items_that_do_not_apply_have_a_total_of_one():
    """In the model's coding such items are absent; all cells that can occur are evaluated."""
    jobs = {"works": ["yes", "no", "yes"], "job": ["own", "none", "paid"]}
    answers = pd.DataFrame(
        {name: 6 * labels for name, labels in jobs.items()} | {"home": 9 * ["x", "y"]}
    )
    pairs = [("no", "own"), ("no", "paid"), ("yes", "none")]
    impossible = pd.DataFrame(pairs, columns=["works", "job"])
    run = bnp.sample(
        bnp.HDPMixedMembership(not_applicable=True), answers, conditions=impossible,
        key=jax.random.key(0), num_chains=1, num_warmup=4, num_samples=3,
    )  # fmt: skip
    cells = np.array(list(np.ndindex(*run.table.schema.num_levels)))
    zeros = bnp.StructuralZeros.from_frame(impossible, run.table.schema)
    cells = cells[~zeros.contains(cells)]
    assert run.coding is not None and len(cells) == 6
    blocks = cell_probabilities(run, run.parameters(), cells, "exact", jax.random.key(1))
    log_p = np.concatenate([log_p for log_p, _, _ in blocks])
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1, rtol=1e-5)
