"""Risk and margins of samples with design weights, whose populations are known."""

import dataclasses

import jax
import numpy as np
import populations
import pytest
from harness import Z_LIMIT

import bnp_models as bnp
from bnp_models.risk.likelihood import log_likelihood
from bnp_models.synthesis import posterior_margins

NUM_LEVELS = (3, 4, 2, 5)
SCHEMA = bnp.Schema(tuple("abcd"), tuple(tuple(range(size)) for size in NUM_LEVELS))


def population(rng, size):
    """Persons of three kinds, whose values depend on the kind."""
    kind = rng.choice(3, size, p=[0.5, 0.3, 0.2])
    levels = [rng.dirichlet(np.full(n, 0.8), 3) for n in NUM_LEVELS]
    codes = [(rng.random((size, 1)) > of[kind].cumsum(axis=1)[:, :-1]).sum(axis=1) for of in levels]
    return np.stack(codes, axis=1).astype(np.int32)


def unequal_sample(rng, codes, expected):
    """Records and weights: persons with d = 0, and those with a = 2, are included more often."""
    rate = np.where(codes[:, 3] == 0, 5.0, 1.0) * np.where(codes[:, 0] == 2, 3.0, 1.0)
    included = expected * rate / rate.sum()
    rows = np.flatnonzero(rng.random(len(codes)) < included)
    return bnp.Microdata(SCHEMA, codes[rows]), 1 / included[rows]


@pytest.fixture(scope="module")
def fitted():
    """A population, and chains on a sample of it with its weights."""
    rng = np.random.default_rng(2)
    codes = population(rng, 8000)
    table, weights = unequal_sample(rng, codes, 700)
    return codes, bnp.sample(
        bnp.NPLCM(components=8, split_merge_every=0), bnp.weighted_microdata(table, weights),
        key=jax.random.key(1), num_chains=2, num_warmup=100, num_samples=100,
    )  # fmt: skip


def half_sampled(run):
    """The run as if the sample were more than half of its population: w is far from w - 1."""
    weights = 1 + (run.table.weights - 1) / 40
    return dataclasses.replace(run, table=bnp.weighted_microdata(run.table.records, weights))


def test_margins_are_the_populations_with_weights_and_not_without(fitted):
    codes, weighted = fitted
    truth = np.concatenate([np.bincount(x, minlength=n) for x, n in zip(codes.T, NUM_LEVELS,
                                                                       strict=True)])  # fmt: skip
    z = []
    for run in (weighted, bnp.inference.sample_law(weighted)):
        draws = bnp.level_margins(run).draws.reshape(-1, truth.size)
        z.append(np.abs(draws.mean(axis=0) - truth / len(codes)) / draws.std(axis=0))
    assert z[0].max() < Z_LIMIT
    # The planted error: the sample taken for a simple random one.
    assert z[1].max() > 2 * Z_LIMIT


def test_tau1_is_that_of_persons_simulated_from_the_law_of_the_unsampled(fitted, monkeypatch):
    run, number = half_sampled(fitted[1]), 100
    size = run.table.n + 400
    monkeypatch.setattr(populations, "_RECORDS_AT_ONCE", 400)
    expected = bnp.population_risk(run, size, ties="off").tau1_conditional.ravel()
    expected = expected[np.linspace(0, expected.size - 1, number).round().astype(int)]
    z = {}
    for law_of in (
        bnp.inference.unsampled_law,
        bnp.inference.population_law,
        bnp.inference.sample_law,
    ):
        simulated = populations.simulate_tau1(law_of(run), size, num_draws=number)
        difference = simulated - expected
        z[law_of] = abs(difference.mean()) / difference.std() * np.sqrt(number)
    assert z[bnp.inference.unsampled_law] < Z_LIMIT
    # Errors that would pass for the law of the unsampled: w for w - 1, and no weights.
    assert z[bnp.inference.population_law] > Z_LIMIT and z[bnp.inference.sample_law] > Z_LIMIT


def test_counts_agree_with_their_conditional_expectation_with_ties_and_without(fitted):
    _, run = fitted
    for ties in ("on", "off"):
        risk = bnp.population_risk(run, 3000, ties=ties)
        for difference in (risk.tau1 - risk.tau1_conditional, risk.tau2 - risk.tau2_conditional):
            error = difference.std() / np.sqrt(difference.size)
            assert abs(difference.mean()) < Z_LIMIT * error
        assert risk.law.table is run.table.records
        assert list(risk.records().columns) == ["row", *"abcd", "r1", "r2"]


def test_all_records_have_the_law_of_the_unsampled(fitted):
    """Uniques have what they had; by the sample's law of the others it is seen."""
    run = half_sampled(fitted[1])
    size = run.table.n + 400
    risk = bnp.population_risk(run, size, ties="off", all_records=True)
    assert abs(populations.shared_z(bnp.inference.unsampled_law(run), risk)) < Z_LIMIT
    assert abs(populations.shared_z(bnp.inference.sample_law(run), risk)) > Z_LIMIT
    for ties in ("on", "off"):
        before, after = (
            bnp.population_risk(run, size, ties=ties, all_records=all_records)
            for all_records in (False, True)
        )
        for name in ("tau1", "tau2", "r1", "r2"):
            np.testing.assert_allclose(vars(after)[name], vars(before)[name], rtol=1e-6)


def test_coarser_keys_have_the_law_of_the_unsampled(fitted):
    """A key of all variables is the finer one: the same tau_1, and not that without weights."""
    run = half_sampled(fitted[1])
    size, keys = run.table.n + 400, ["keep:a,b,c,d", "drop:a"]
    whole = bnp.population_risk(run, size, ties="off")
    found, without = (
        bnp.coarsen(x, size, keys, ties="off", num_samples=200)
        for x in (run, bnp.inference.sample_law(run))
    )
    error = whole.tau1.std() * np.sqrt(2 / whole.tau1.size)
    assert abs(found[keys[0]].tau1.mean() - whole.tau1.mean()) < Z_LIMIT * error
    assert abs(without[keys[0]].tau1.mean() - whole.tau1.mean()) > Z_LIMIT * error
    assert found[keys[1]].sample_uniques < len(whole.rows)


def test_simulated_margins_are_the_populations(fitted, monkeypatch):
    """Those by which calibrated files are judged where exact ones would take too long."""
    codes, run = fitted
    monkeypatch.setattr(posterior_margins, "level_margins", lambda run, share: None)
    found = posterior_margins.margins_of_files(run, 0.2).draws[..., -5:].mean(axis=(0, 1))
    truth = np.bincount(codes[:, 3], minlength=5) / len(codes)
    of_sample = np.bincount(run.table.codes[:, 3], minlength=5) / run.table.n
    assert np.abs(found - truth).sum() < 0.25 * np.abs(of_sample - truth).sum()


def test_the_log_likelihood_that_is_judged_is_of_the_sample(fitted):
    _, run = fitted
    found, every = log_likelihood(run), bnp.population_risk(run, 8000, thin=1)
    np.testing.assert_allclose(found.draws, every.log_likelihood, rtol=1e-6)


def test_checks_are_of_the_sample(fitted):
    """Replicates of the sample, by its own law: the weights change nothing."""
    _, run = fitted
    checks = bnp.predictive_checks(run)
    assert checks.cells[1].observed == np.sum(run.table.records.tabulated.counts == 1)
    assert abs(checks.cells[1].z) < Z_LIMIT and len(checks.pairs) == 6
    assert max(check.z for check in checks.pairs.values()) < Z_LIMIT
    # By the law of the population the sample would look wrong.
    of_population = bnp.predictive_checks(bnp.inference.population_law(run))
    assert max(check.z for check in of_population.pairs.values()) > 20


def test_files_are_as_the_population(fitted):
    """Records drawn, and calibrated ones, by the margin on which inclusion depends most."""
    codes, run = fitted
    truth = np.bincount(codes[:, 3], minlength=5) / len(codes)
    of_sample = np.bincount(run.table.codes[:, 3], minlength=5) / run.table.n
    for method in ("predictive", "calibrated"):
        files = bnp.synthesize(run, 4, 5000, method=method)
        assert all(list(made.columns) == list("abcd") for made in files)
        shares = np.mean([np.bincount(made["d"].astype(int), minlength=5) for made in files], 0)
        away = np.abs(shares / 5000 - truth).sum()
        assert away < 0.25 * np.abs(of_sample - truth).sum()


def test_what_takes_no_weights_says_so(fitted):
    _, run = fitted
    for call in (
        lambda: bnp.impute(run, 1),
        lambda: bnp.validate_within(run.model, run.table, key=jax.random.key(0)),
        lambda: bnp.compare({"a": run.model}, run.table, key=jax.random.key(0)),
        lambda: bnp.evaluation.refit(run.model, run.table, [], key=jax.random.key(0)),
    ):
        with pytest.raises(bnp.MicrodataError, match="takes no design weights"):
            call()
    light = dataclasses.replace(run, table=bnp.weighted_microdata(
        run.table.records, run.table.weights / 50
    ))  # fmt: skip
    with pytest.raises(bnp.MicrodataError, match="below 1"):
        bnp.population_risk(light, 8000)
    bnp.synthesize(light, 1, 10)
