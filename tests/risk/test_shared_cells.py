"""Risk of records that are not alone in the sample: against sums, and by simulation."""

import dataclasses

import numpy as np
import pytest
from harness import Z_LIMIT
from populations import shared_z
from scipy import stats

import bnp_models as bnp
from bnp_models.risk.evaluator import record_risks
from bnp_models.risk.overdispersion import Overdispersion
from bnp_models.risk.reciprocals import expected_reciprocal
from bnp_models.risk.taus import shared_risks


@pytest.mark.parametrize("f", [1, 2, 5, 60, 3000])
def test_the_model_alone_is_a_sum_of_binomials(f):
    for num_new in (0, 1, 30, 2000):
        for q in (1e-12, 1e-6, 1e-3, 0.05, 0.7):
            joined = np.arange(num_new + 1)
            p = stats.binom.pmf(joined, num_new, q)
            found = expected_reciprocal(np.array(f), -num_new, -q)
            np.testing.assert_allclose(found, np.sum(p / (f + joined)), rtol=1e-8)
            if f == 1:
                np.testing.assert_allclose(found, record_risks(np.log(q), num_new)[1], rtol=1e-8)


def test_large_populations_are_sums_of_the_probable_terms():
    f, num_new, q = 7, 10**8, np.array([1e-9, 1e-7, 1e-5])
    joined = np.arange(20_000)[:, None]
    p = stats.binom.pmf(joined, num_new, q)
    found = expected_reciprocal(np.full(3, f), -num_new, -q)
    np.testing.assert_allclose(found, (p / (f + joined)).sum(axis=0), rtol=1e-7)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_with_the_layer_it_is_a_sum_of_negative_binomials(exponent):
    b, num_records, num_new = np.array([1e-9, 1e-5, 1e-4, 1e-3, 0.01]), 500, 20_000
    counts = np.array([2, 3, 2, 9, 40])
    tied = Overdispersion(np.array([0.3, 40.0, 1e8]), np.full(3, exponent), num_records)
    log_b = np.log(np.tile(b, (3, 1)))
    r1, r2 = shared_risks(tied, counts, log_b, num_new, log_b)
    shape = tied.shape_of(np.exp(log_b))
    joined = np.arange(100_000)[:, None, None]
    success = (shape + num_records * b) / (shape + (num_records + num_new) * b)
    p = stats.nbinom.pmf(joined, shape + counts, success)
    np.testing.assert_allclose(r2, (p / (counts + joined)).sum(axis=0), rtol=1e-4)
    assert (r1 == 0).all()
    # Errors that it tells: the prior's size, as if the sample's records were not known; f for 1.
    for size, least in ((shape, counts), (shape + counts, 1)):
        wrong = stats.nbinom.pmf(joined, size, success)
        assert np.abs((wrong / (least + joined)).sum(axis=0) / r2 - 1).max() > 0.1
    np.testing.assert_allclose(shared_risks(tied, counts, log_b, 0, log_b)[1], 1 / np.tile(
        counts, (3, 1)))  # fmt: skip


@pytest.mark.parametrize("shape", [0.05, 2.0, 1e6])
def test_with_one_record_it_is_what_uniques_have(shape):
    log_b = np.log([[1e-8, 1e-5, 1e-3]])
    log_q = log_b + 0.3
    tied = Overdispersion(np.array([shape]), np.array([0.4]), 500)
    one = shared_risks(tied, np.ones(3), log_b, 20_000, log_q)[1]
    np.testing.assert_allclose(one, tied.record_risks(log_b, 20_000, log_q)[1], rtol=1e-7)


def test_the_layer_against_simulated_populations():
    """Cells' probabilities are drawn, then samples and populations: those with f of the sample."""
    rng = np.random.default_rng(0)
    num_records, num_new, number = 300, 6000, 2_000_000
    b, one = np.full(3, 2e-3), Overdispersion(np.array([0.8]), np.array([0.3]), 300)
    shape = one.shape_of(b[:1, None])[0, 0]
    p = rng.gamma(shape, b[0] / shape, number)
    # Persons who are not sampled have another law, as with design weights.
    f, new = rng.poisson(num_records * p), rng.poisson(num_new * p * 1.4)
    log_b = np.log(b)[None]
    log_q = log_b + np.log(1.4)
    found = shared_risks(one, np.array([2, 3, 4]), log_b, num_new, log_q)[1][0]
    without = shared_risks(None, np.array([2, 3, 4]), log_b, num_new, log_q)[1][0]
    for k, value, alone in zip((2, 3, 4), found, without, strict=True):
        seen = 1 / (k + new[f == k])
        error = seen.std() / np.sqrt(len(seen))
        assert abs(seen.mean() - value) < Z_LIMIT * error
        # The planted error: the model alone.
        assert abs(seen.mean() - alone) > Z_LIMIT * error


@pytest.fixture(scope="module")
def dense(small):
    """The run's draws, and records drawn from its own with replacement: many share their cell."""
    rows = np.random.default_rng(5).choice(small.table.n, 300)
    table = bnp.Microdata(small.table.schema, small.table.codes[rows])
    return dataclasses.replace(small.run, table=table)


@pytest.mark.parametrize("ties", ["on", "sensitivity", "off"])
def test_uniques_have_what_they_had_and_all_records_are_there(dense, ties):
    size = 600
    before = bnp.population_risk(dense, size, ties=ties)
    risk = bnp.population_risk(dense, size, ties=ties, all_records=True)
    for name in ("tau1", "tau2", "tau1_conditional", "tau2_conditional", "rows", "r1", "r2"):
        np.testing.assert_array_equal(vars(before)[name], vars(risk)[name])
    records, uniques = risk.records(), before.records()
    assert list(records) == ["row", *dense.table.schema.variables, "f", "r1", "r2"]
    assert sorted(records["row"]) == list(range(dense.table.n))
    alone = records[records["f"] == 1].reset_index(drop=True)
    for name in uniques:
        np.testing.assert_array_equal(
            alone.sort_values("row")[name], uniques.sort_values("row")[name]
        )
    assert records["r1"].is_monotonic_decreasing
    shared = records[records["f"] > 1]
    assert len(shared) > 100 and (shared["r1"] == 0).all()
    assert ((shared["r2"] > 0) & (shared["r2"] <= 1 / shared["f"])).all()
    names = list(dense.table.schema.variables)
    assert (records.groupby(names, observed=True)["f"].transform("size") == records["f"]).all()
    for row in risk.by_level().itertuples():
        of_level = records[records[row.variable] == row.level]
        assert row.r2 == pytest.approx(of_level["r2"].sum())
        assert row.tau2 == pytest.approx(of_level["r2"][of_level["f"] == 1].sum())
    assert "r2" not in before.by_level()


def test_the_mean_over_draws_is_of_persons_drawn_for_each(dense):
    """Persons join every cell by every draw's probabilities; one person too few, and it is seen."""
    risk = bnp.population_risk(dense, 600, ties="off", all_records=True)
    assert abs(shared_z(dense, risk)) < Z_LIMIT < abs(shared_z(dense, risk, missing=1))


@pytest.mark.long
def test_probabilities_with_monte_carlo_error_give_nearly_the_same(dense):
    """By shared draws of record weights, whose halves take the bias off."""
    exact, drawn = (
        bnp.population_risk(dense, 600, method=method, all_records=True, thin=10).r2_of_cells
        for method in ("exact", "draws")
    )
    np.testing.assert_allclose(drawn, exact, rtol=0.1)
    assert abs(drawn.sum() / exact.sum() - 1) < 0.01


def test_what_is_refused(small):
    run = dataclasses.replace(small.run, table=small.table.tabulated)
    with pytest.raises(bnp.MicrodataError, match="needs single records"):
        bnp.population_risk(run, 20_000, all_records=True)
    frame = small.table.to_frame().rename(columns={"age": "f"})
    named = dataclasses.replace(small.run, table=bnp.Microdata.from_frame(frame))
    with pytest.raises(bnp.MicrodataError, match="rename the variable"):
        bnp.population_risk(named, 20_000, all_records=True)
