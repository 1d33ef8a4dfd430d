"""Synthetic and completed records: feasible, of the model's distribution, and combined rightly."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest
from harness import Z_LIMIT

import bnp_models as bnp
from bnp_models.synthesis.synthesize import synthesize


def breaks_a_condition(frame, conditions_frame):
    """By comparing labels, without the compiled conditions."""
    broken = np.zeros(len(frame), bool)
    for _, condition in conditions_frame.iterrows():
        fixed = condition.dropna()
        broken |= (frame[list(fixed.index)] == fixed).all(axis=1).to_numpy()
    return broken


def relabelled(run, levels_of):
    """The same run of a sample with other labels."""
    schema = run.table.schema
    schema = bnp.Schema(schema.variables, tuple(levels_of(n) for n in schema.num_levels))
    return dataclasses.replace(
        run,
        table=bnp.Microdata(schema, run.table.codes),
        conditions=bnp.StructuralZeros(schema, run.conditions.conditions),
    )


def test_records_are_feasible_and_follow_their_draw(latent, conditions_frame):
    num_rows = 60_000
    frames = bnp.synthesize(latent.run, 2, num_rows)
    schema = latent.table.schema
    # 60 draws in all: the 16th of the first chain and of the second.
    for chain, frame in enumerate(frames):
        assert list(frame) == list(schema.variables)
        assert len(frame) == num_rows and not frame.isna().any(axis=None)
        assert not breaks_a_condition(frame, conditions_frame).any()
        codes = bnp.Microdata.from_frame(frame, levels=schema).codes
        shares = np.concatenate([
            np.bincount(codes[:, j], minlength=size) / num_rows
            for j, size in enumerate(schema.num_levels)
        ])  # fmt: skip
        p = latent.margins.draws[chain, 15]
        z = (shares - p) / np.sqrt(p * (1 - p) / num_rows)
        assert np.abs(z).max() < Z_LIMIT


def test_by_default_as_many_rows_as_the_sample_and_the_same_again(latent):
    first, again = bnp.synthesize(latent.run), bnp.synthesize(latent.run)
    assert [len(frame) for frame in first] == [150] * 5
    for one, other in zip(first, again, strict=True):
        pd.testing.assert_frame_equal(one, other)
    assert not first[0].equals(first[1])
    other = bnp.synthesize(latent.run, 1, key=jax.random.key(7))[0]
    assert not other.equals(bnp.synthesize(latent.run, 1)[0])


def test_many_boxes_mean_small_batches(latent, monkeypatch):
    monkeypatch.setattr(synthesize, "_ENTRIES_AT_ONCE", 1)
    frame = bnp.synthesize(latent.run, 1, 600)[0]
    assert len(frame) == 600
    assert not frame[:256].reset_index(drop=True).equals(frame[256:512].reset_index(drop=True))


@pytest.mark.parametrize(
    ("levels_of", "dtype"),
    [
        (lambda n: tuple(f"0{level}" for level in range(n)), object),
        (lambda n: tuple(range(10, 10 + n)), np.int64),
        (lambda n: (*range(n - 1), "other"), object),
    ],
    ids=["text", "integers", "mixed"],
)
def test_labels_keep_their_text_and_type(latent, levels_of, dtype):
    run = relabelled(latent.run, levels_of)
    for frame in (*bnp.synthesize(run, 2), *bnp.impute(run, 2)):
        for name, levels in zip(run.table.schema.variables, run.table.schema.levels, strict=True):
            found = set(frame[name])
            assert found <= set(levels)
            assert {type(label) for label in found} <= {type(level) for level in levels}
            if dtype is np.int64:
                assert frame[name].dtype == dtype


def test_an_impossible_record_is_never_let_out(latent, monkeypatch):
    schema = latent.table.schema
    widowed_child = [schema.encode(name, label) for name, label in zip(
        schema.variables, ("0-14", "Male", "Widowed", "Under 15 years old", "Not working"),
        strict=True)]  # fmt: skip
    codes = np.tile(np.array(widowed_child)[:, None], 150)
    monkeypatch.setattr(synthesize, "_simulate", lambda *_, **__: codes)
    with pytest.raises(RuntimeError, match="150 of 150 records made are impossible"):
        bnp.synthesize(latent.run)
    monkeypatch.setattr(synthesize, "_complete", lambda *_: codes)
    with pytest.raises(RuntimeError, match="an observed value was changed"):
        bnp.impute(latent.run)


def test_imputation_fills_in_what_is_missing_and_nothing_else(
    latent, incomplete_frame, conditions_frame
):
    frames = bnp.impute(latent.run, 3)
    sample = incomplete_frame.to_numpy(object)
    observed = incomplete_frame.notna().to_numpy()
    for frame in frames:
        assert not frame.isna().any(axis=None)
        np.testing.assert_array_equal(frame.to_numpy()[observed], sample[observed])
        assert not breaks_a_condition(frame, conditions_frame).any()
    assert not frames[0].equals(frames[1])
    pd.testing.assert_frame_equal(frames[2], bnp.impute(latent.run, 3)[2])


def test_missing_values_that_only_move_together(latent):
    """x1 = x2 is impossible: from (0, 1) one value at a time leads nowhere."""
    num_records, num_datasets = 40, 300
    schema = bnp.Schema(("x1", "x2", "x3"), ((0, 1), (0, 1), (0, 1)))
    codes = np.full((num_records, 3), -1)
    codes[:, 2] = np.arange(num_records) % 2
    conditions = bnp.StructuralZeros(schema, np.array([[0, 0, -1], [1, 1, -1]]))
    pi = np.array([0.3, 0.7])
    one = np.array([[0.2, 0.6], [0.5, 0.1], [0.9, 0.4]])  # P(x_j = 1) by class
    log_lambda = np.log(np.stack([1 - one, one], axis=1).reshape(6, 2))
    draw = {"log_pi": np.log(pi), "log_lambda": log_lambda, "alpha": 1.0, "log_feasible": 0.0}
    draws = {
        name: np.broadcast_to(np.float32(value), (1, num_datasets, *np.shape(value)))
        for name, value in draw.items()
    }
    run = dataclasses.replace(
        latent.run, model=bnp.TNPLCM(components=2), table=bnp.Microdata(schema, codes), draws=draws,
        conditions=conditions,
    )  # fmt: skip
    frames = pd.concat(bnp.impute(run, num_datasets))
    assert (frames["x1"] != frames["x2"]).all()
    for x3 in (0, 1):
        weight = pi * (one[2] if x3 else 1 - one[2])
        ahead, behind = weight @ ((1 - one[0]) * one[1]), weight @ (one[0] * (1 - one[1]))
        p, n = ahead / (ahead + behind), num_datasets * num_records / 2
        share = frames.loc[frames["x3"] == x3, "x2"].mean()
        assert abs(share - p) < Z_LIMIT * np.sqrt(p * (1 - p) / n)


def test_what_is_refused(latent):
    with pytest.raises(ValueError, match="from 1 to the number of draws kept, 60, not 61"):
        bnp.synthesize(latent.run, 61)
    with pytest.raises(ValueError, match="num_rows must be at least 1"):
        bnp.synthesize(latent.run, 1, 0)
    table = latent.table
    complete = bnp.Microdata(table.schema, np.maximum(table.codes, 0))
    with pytest.raises(ValueError, match="nothing to impute"):
        bnp.impute(dataclasses.replace(latent.run, table=complete))
    with pytest.raises(ValueError, match="the hdp model does not draw missing values"):
        bnp.impute(dataclasses.replace(latent.run, model=bnp.HDPMixedMembership()))
    bare = dataclasses.replace(latent.run, draws={"alpha": latent.run.draws["alpha"]})
    for function in (bnp.synthesize, bnp.impute, bnp.level_margins):
        with pytest.raises(ValueError, match="did not keep 'log_pi'"):
            function(bare)


def test_margins_are_named_and_thinned(latent):
    margins = latent.margins
    assert margins.names[0] == "margin age=0-14"
    assert margins.draws.shape == (2, 30, len(margins.names))
    assert margins.draws[:, :, :8].sum(axis=2) == pytest.approx(np.ones((2, 30)), rel=1e-5)
    few = bnp.level_margins(latent.run, max_draws=10)
    assert few.thin == 3
    np.testing.assert_array_equal(few.draws, margins.draws[:, ::3])


# Coverage of nominal 95% intervals in repeated samples: a normal mean and variance unknown, and all
# that the rules see drawn through sufficient statistics, (M, repetitions) at once.
REPETITIONS = 20_000


def draw_parameters(rng, n, num_datasets):
    """Mean and variance of a sample from N(0, 1), and posterior draws given them."""
    mean = rng.normal(size=REPETITIONS) / np.sqrt(n)
    variance = rng.chisquare(n - 1, REPETITIONS) / (n - 1)
    shape = (num_datasets, REPETITIONS)
    sigma2 = variance * (n - 1) / rng.chisquare(n - 1, shape)
    return mean, variance, mean + rng.normal(size=shape) * np.sqrt(sigma2 / n), sigma2


def synthetic_means(n, num_datasets, num_rows):
    rng = np.random.default_rng(3)
    _, _, mu, sigma2 = draw_parameters(rng, n, num_datasets)
    q = mu + rng.normal(size=mu.shape) * np.sqrt(sigma2 / num_rows)
    return q, sigma2 * rng.chisquare(num_rows - 1, mu.shape) / (num_rows - 1) / num_rows


def completed_means(n, num_observed, num_datasets):
    rng = np.random.default_rng(4)
    mean, variance, mu, sigma2 = draw_parameters(rng, num_observed, num_datasets)
    k = n - num_observed
    filled = mu + rng.normal(size=mu.shape) * np.sqrt(sigma2 / k)
    q = (num_observed * mean + k * filled) / n
    squares = (
        variance * (num_observed - 1) + sigma2 * rng.chisquare(k - 1, mu.shape)
        + num_observed * (mean - q) ** 2 + k * (filled - q) ** 2
    )  # fmt: skip
    return q, squares / (n - 1) / n


def coverage(combined):
    low, high = combined.interval(0.95)
    return np.mean((low < 0) & (0 < high))


NOMINAL = pytest.approx(0.95, abs=0.01)


def test_coverage_with_synthetic_files_of_the_samples_size():
    q, u = synthetic_means(n=100, num_datasets=5, num_rows=100)
    assert coverage(bnp.combine_partially_synthetic(q, u)) == NOMINAL
    assert coverage(bnp.combine_imputed(q, u)) > 0.98
    whole_b = bnp.Combined(q.mean(axis=0), u.mean(axis=0) + q.var(axis=0, ddof=1), np.inf)
    assert coverage(whole_b) > 0.98


def test_coverage_with_synthetic_files_of_another_size():
    q, u = synthetic_means(n=100, num_datasets=50, num_rows=300)
    assert coverage(bnp.combine_fully_synthetic(q, u)) == NOMINAL
    assert coverage(bnp.combine_partially_synthetic(q, 3 * u)) == NOMINAL
    assert coverage(bnp.combine_partially_synthetic(q, u)) < 0.8
    assert coverage(bnp.combine_imputed(q, u)) > 0.97


def test_coverage_with_few_files_errs_on_the_safe_side():
    q, u = synthetic_means(n=100, num_datasets=5, num_rows=300)
    negative = np.var(q, axis=0, ddof=1) * 1.2 < u.mean(axis=0)
    combined = bnp.combine_fully_synthetic(q, u, rows_per_record=3)
    assert negative.any() and (combined.variance > 0).all()
    np.testing.assert_allclose(combined.variance[negative], 3 * u.mean(axis=0)[negative])
    assert coverage(combined) > 0.95


def test_coverage_with_completed_files():
    q, u = completed_means(n=200, num_observed=120, num_datasets=5)
    assert coverage(bnp.combine_imputed(q, u)) == NOMINAL
    assert coverage(bnp.combine_imputed(q, u, complete_df=199)) == NOMINAL
    assert coverage(bnp.combine_partially_synthetic(q, u)) < 0.9
    q, u = completed_means(n=20, num_observed=12, num_datasets=5)
    assert coverage(bnp.combine_imputed(q, u)) < 0.94
    assert coverage(bnp.combine_imputed(q, u, complete_df=19)) == NOMINAL


def test_the_rules_by_hand():
    q, u = [1.0, 2.0, 3.0], [0.5, 0.5, 0.5]  # qbar 2, ubar 1/2, b 1
    assert bnp.combine_partially_synthetic(q, u) == pytest.approx((2, 0.5 + 1 / 3, 2 * 2.5**2))
    assert bnp.combine_fully_synthetic(q, u) == pytest.approx((2, 4 / 3 - 0.5, 2 * (5 / 8) ** 2))
    lost = (4 / 3) / (11 / 6)
    assert bnp.combine_imputed(q, u) == pytest.approx((2, 0.5 + 4 / 3, 2 / lost**2))
    observed = 10 / 12 * 9 * (1 - lost)
    assert bnp.combine_imputed(q, u, 9).df == pytest.approx(1 / (lost**2 / 2 + 1 / observed))
    low, high = bnp.Combined(np.float64(1), np.float64(4), np.float64(np.inf)).interval(0.9)
    assert (low, high) == pytest.approx((1 - 2 * 1.6448536, 1 + 2 * 1.6448536))


def test_rules_on_arrays_and_without_spread():
    q, u = np.ones((4, 2, 3)), np.full((4, 2, 3), 0.25)
    for rule in (bnp.combine_partially_synthetic, bnp.combine_imputed):
        combined = rule(q, u)
        np.testing.assert_array_equal(combined.variance, np.full((2, 3), 0.25))
        assert np.isposinf(combined.df).all()
    assert bnp.combine_imputed(q, u, 9).df == pytest.approx(10 / 12 * 9)
    # A level that occurs in no file at all.
    nothing = bnp.combine_imputed(np.zeros(3), np.zeros(3), 9)
    assert nothing.interval() == (0, 0)


@pytest.mark.parametrize(
    ("q", "u", "message"),
    [
        ([1.0], [1.0], "at least two"),
        ([1.0, 2.0], [1.0], "shapes"),
        ([1.0, 2.0], [1.0, -1.0], "negative"),
    ],
)
def test_rules_refuse(q, u, message):
    with pytest.raises(ValueError, match=message):
        bnp.combine_partially_synthetic(q, u)
    with pytest.raises(ValueError, match="level must be"):
        bnp.Combined(0, 1, 5).interval(95)
