"""Combining rules: coverage of their intervals, by hand, and how intervals overlap."""

import numpy as np
import pytest

import bnp_models as bnp

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
    assert coverage(bnp.evaluation.combine_partially_synthetic(q, u)) == NOMINAL
    assert coverage(bnp.evaluation.combine_imputed(q, u)) > 0.98
    whole_b = bnp.results.Combined(q.mean(axis=0), u.mean(axis=0) + q.var(axis=0, ddof=1), np.inf)
    assert coverage(whole_b) > 0.98


def test_coverage_with_synthetic_files_of_another_size():
    q, u = synthetic_means(n=100, num_datasets=50, num_rows=300)
    assert coverage(bnp.evaluation.combine_fully_synthetic(q, u)) == NOMINAL
    assert coverage(bnp.evaluation.combine_partially_synthetic(q, 3 * u)) == NOMINAL
    assert coverage(bnp.evaluation.combine_partially_synthetic(q, u)) < 0.8
    assert coverage(bnp.evaluation.combine_imputed(q, u)) > 0.97


def test_coverage_with_few_files_errs_on_the_safe_side():
    q, u = synthetic_means(n=100, num_datasets=5, num_rows=300)
    negative = np.var(q, axis=0, ddof=1) * 1.2 < u.mean(axis=0)
    combined = bnp.evaluation.combine_fully_synthetic(q, u, rows_per_record=3)
    assert negative.any() and (combined.variance > 0).all()
    np.testing.assert_allclose(combined.variance[negative], 3 * u.mean(axis=0)[negative])
    assert coverage(combined) > 0.95


def test_coverage_with_completed_files():
    q, u = completed_means(n=200, num_observed=120, num_datasets=5)
    assert coverage(bnp.evaluation.combine_imputed(q, u)) == NOMINAL
    assert coverage(bnp.evaluation.combine_imputed(q, u, complete_df=199)) == NOMINAL
    assert coverage(bnp.evaluation.combine_partially_synthetic(q, u)) < 0.9
    q, u = completed_means(n=20, num_observed=12, num_datasets=5)
    assert coverage(bnp.evaluation.combine_imputed(q, u)) < 0.94
    assert coverage(bnp.evaluation.combine_imputed(q, u, complete_df=19)) == NOMINAL


def test_the_rules_by_hand():
    q, u = [1.0, 2.0, 3.0], [0.5, 0.5, 0.5]  # qbar 2, ubar 1/2, b 1
    assert bnp.evaluation.combine_partially_synthetic(q, u) == pytest.approx(
        (2, 0.5 + 1 / 3, 2 * 2.5**2)
    )
    assert bnp.evaluation.combine_fully_synthetic(q, u) == pytest.approx(
        (2, 4 / 3 - 0.5, 2 * (5 / 8) ** 2)
    )
    lost = (4 / 3) / (11 / 6)
    assert bnp.evaluation.combine_imputed(q, u) == pytest.approx((2, 0.5 + 4 / 3, 2 / lost**2))
    observed = 10 / 12 * 9 * (1 - lost)
    assert bnp.evaluation.combine_imputed(q, u, 9).df == pytest.approx(
        1 / (lost**2 / 2 + 1 / observed)
    )
    low, high = bnp.results.Combined(np.float64(1), np.float64(4), np.float64(np.inf)).interval(0.9)
    assert (low, high) == pytest.approx((1 - 2 * 1.6448536, 1 + 2 * 1.6448536))


def test_rules_on_arrays_and_without_spread():
    q, u = np.ones((4, 2, 3)), np.full((4, 2, 3), 0.25)
    for rule in (bnp.evaluation.combine_partially_synthetic, bnp.evaluation.combine_imputed):
        combined = rule(q, u)
        np.testing.assert_array_equal(combined.variance, np.full((2, 3), 0.25))
        assert np.isposinf(combined.df).all()
    assert bnp.evaluation.combine_imputed(q, u, 9).df == pytest.approx(10 / 12 * 9)
    # A level that occurs in no file at all.
    nothing = bnp.evaluation.combine_imputed(np.zeros(3), np.zeros(3), 9)
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
        bnp.evaluation.combine_partially_synthetic(q, u)
    with pytest.raises(ValueError, match="level must be"):
        bnp.results.Combined(0, 1, 5).interval(95)


def test_interval_overlap():
    def overlap(a, b, c, d):
        return float(bnp.evaluation.interval_overlap((a, b), (c, d)))

    assert overlap(0, 1, 0, 1) == 1
    assert overlap(0, 1, 2, 3) == overlap(0, 1, 5, 5) == 0
    assert overlap(0, 2, 1, 2) == pytest.approx(0.75)
    assert overlap(0, 2, 1, 3) == pytest.approx(0.5)
    assert overlap(1, 1, 1, 1) == 1 and overlap(0, 2, 1, 1) == 0.5
