"""Verdicts: on which side of a limit the figures lie, and where they say nothing."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy import signal

import bnp_models as bnp
from bnp_models.inference.convergence import (
    ENDS,
    batches_of,
    errors_of_mean_draws,
    errors_of_means,
    figures_of,
    monte_carlo_errors,
)
from bnp_models.risk.verdict import Limits, figures_of_draws, judge

R1 = np.array([0.3, 0.1, 0.02])


def tau1(mean, low, high, of_mean=0.0, of_high=0.0):
    return {
        "mean": mean, "q025": low, "q975": high, "error_mean": of_mean, "error_q975": of_high,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("figures", "release", "words"),
    [
        (tau1(20, 12, 29), False, "20.0 expected population uniques against your limit of 5"),
        (tau1(5.1, 0, 9), False, "5.1 expected population uniques against your limit of 5"),
        (tau1(4.9, 0, 9), None, "interval 0 to 9); the limit is between the mean and the upper"),
        (tau1(2, 0, 5), True, "the whole interval is within the limit"),
        # Twice the Monte Carlo error of the figure that decides, and not of the other.
        (tau1(20, 12, 29, 7.4, 90), False, "Monte Carlo errors of 7.4 for the mean and 90 for"),
        (tau1(20, 12, 29, 7.6, 0), None, "mean is above the limit, but 2 Monte Carlo errors reach"),
        (tau1(2, 0, 4, 9, 0.5), True, "the whole interval is within the limit"),
        (tau1(2, 0, 4, 0, 0.6), None, "within the limit, but 2 Monte Carlo errors reach across"),
        (tau1(20, 12, 29, np.nan, np.nan), None, "Monte Carlo errors of nan"),
    ],
)
def test_the_mean_and_the_upper_end_decide(figures, release, words):
    found = judge(figures, R1, Limits(max_tau1=5))
    assert found.release is release and words in found.why
    assert found.document()["release"] == ("unknown" if release is None else release)
    # What cannot be used says nothing, on either side of the limit.
    unusable = judge(figures, R1, Limits(max_tau1=5), False, "tau1 should not be used: R-hat")
    assert unusable.release is None and unusable.why.startswith("tau1 should not be used: R-hat; ")


def test_figures_without_errors_are_exact():
    """Those of a model of cells, or that a person types."""
    found = judge({"mean": 20, "q025": 12, "q975": 29}, R1, Limits(max_tau1=5))
    assert found.release is False and "Monte Carlo" not in found.why


@pytest.mark.parametrize(
    ("errors", "release"),
    [((0, 0, 0), False), ((0.04, 0, 0), False), ((0.06, 0, 0), None), ((0, 0.06, 0), False)],
)
def test_records_near_their_limit(errors, release):
    found = judge(tau1(1, 0, 3), R1, Limits(max_risk=0.2), r1_error=np.array(errors))
    assert found.release is release and found.records_above == 1
    below = judge(tau1(1, 0, 3), R1, Limits(max_risk=0.4), r1_error=np.array(errors))
    assert below.release is (True if errors[0] < 0.05 else None)


@pytest.mark.parametrize(("share", "length"), [(0.02, 50), (0.02, 400), (0.5, 50), (0.5, 400)])
def test_errors_are_those_of_repeated_chains(share, length):
    """Figures of many sets of chains vary as much as each set says, or less if R-hat is large."""
    rng = np.random.default_rng(5)
    rho = 1 - share
    ends, errors = [], []
    for _ in range(60):
        noise = rng.normal(size=(4, length + 300)) * np.sqrt(1 - rho**2)
        chains = signal.lfilter([1], [1, -rho], noise, axis=1)[:, 300:]
        ends.append([chains.mean(), *np.quantile(chains, ENDS)])
        errors.append(monte_carlo_errors(chains))
    ratio = np.std(ends, axis=0) / np.sqrt(np.mean(np.square(errors), axis=0))
    assert (ratio < 1.35).all() and (ratio > (0.4 if share * length < 10 else 0.6)).all()


def test_chains_that_disagree_have_larger_errors():
    rng = np.random.default_rng(2)
    chains = rng.normal(size=(4, 200))
    apart = chains + np.array([[0], [0], [0], [2]])
    assert np.min(np.divide(monte_carlo_errors(apart), monte_carlo_errors(chains))) > 2
    assert np.isnan(monte_carlo_errors(chains[:, :3])).all()
    assert monte_carlo_errors(np.full((2, 50), 3)) == (0, 0, 0)
    assert np.isfinite(monte_carlo_errors(chains[:1])).all()


def test_errors_are_multiplied_by_the_rhat_of_superchains():
    """Chains that differ within each group of four, while the groups agree."""
    rng = np.random.default_rng(4)
    chains = rng.normal(size=(16, 60)) + np.tile([-3, -1, 1, 3], 4)[:, None]
    alone, nested = (figures_of(chains, size)["rhat"] for size in (1, 4))
    assert alone > 1.4 * max(nested, 1)
    within = array_stats.mcse(chains, chain_axis=0, draw_axis=1, method="mean")
    assert monte_carlo_errors(chains, 4).mean == pytest.approx(max(nested, 1) * within)
    figures = figures_of_draws(np.exp(chains), 4)
    errors = monte_carlo_errors(np.exp(chains), 4)
    assert (figures["error_mean"], figures["error_q975"]) == (errors.mean, errors.high)
    assert errors.high > 3 * errors.low


def test_errors_of_chains_that_stay_are_those_of_their_figures():
    """The standard error of the mean of the chains' means, times R-hat, of two chains apart."""
    chains = np.random.default_rng(6).normal(size=(2, 400)) + np.array([[0], [9]])
    between = np.std(chains.mean(axis=1), ddof=1) / np.sqrt(2)
    expected = figures_of(chains)["rhat"] * between
    assert monte_carlo_errors(chains).mean == pytest.approx(expected)


def test_errors_of_means_are_those_of_repeated_chains():
    """Of halves of chains that are apart, and in the order of the draws."""
    rng = np.random.default_rng(3)
    means, errors = [], []
    for _ in range(300):
        chains = rng.normal(size=(4, 1)) + rng.normal(size=(4, 25))
        batches = batches_of(4, 25)
        sums = np.bincount(batches, chains.ravel())[:, None]
        means.append(chains.mean())
        errors.append(errors_of_means(sums, np.bincount(batches))[0])
    # Two halves of a chain are alike, so that the error is too small by up to a factor of sqrt(2).
    assert 1 < np.std(means) / np.sqrt(np.mean(np.square(errors))) < 1.5
    assert batches_of(2, 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert np.isnan(errors_of_means(np.ones((4, 2)), np.array([1, 0, 1, 0]))).all()


def test_chains_of_one_start_count_as_one():
    """Of sixteen chains, four stay near each of four starts."""
    rng = np.random.default_rng(4)
    figures, errors, of_batches = [], [], []
    for _ in range(200):
        starts = np.repeat(rng.normal(0, 0.3, 4), 4)[:, None]
        chains = starts + rng.normal(size=(16, 50))
        figures.append([chains.mean(), *np.quantile(chains, ENDS)])
        errors.append(monte_carlo_errors(chains, 4))
        of_batches.append(errors_of_mean_draws(chains.reshape(-1, 1), 16, 4)[0])
    wanted = np.std(figures, axis=0)
    ratio = wanted / np.sqrt(np.mean(np.square(errors), axis=0))
    assert (ratio > 0.75).all() and (ratio < 1.25).all()
    assert 1 < wanted[0] / np.sqrt(np.mean(np.square(of_batches))) < 1.6
    assert batches_of(4, 2, 2).tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    one = np.isfinite(monte_carlo_errors(rng.normal(size=(4, 50)), 4))
    assert one.all()


@pytest.mark.parametrize(
    ("limit", "release", "words"),
    [
        (0.3, True, "none is unique"),
        (0.2, False, "one record is unique"),
        (0.05, False, "2 records are unique"),
    ],
)
def test_records_above_a_limit_are_counted(limit, release, words):
    found = judge(tau1(1, 0, 3), R1, Limits(max_risk=limit))
    assert found.release is release and words in found.why and "largest is 0.3" in found.why
    assert found.records_above == (limit < R1).sum()
    assert judge(tau1(1, 0, 3), np.zeros(0), Limits(max_risk=0)).release


@pytest.mark.parametrize(
    ("figures", "limit", "release"),
    [(tau1(2, 0, 4), 0.5, True), (tau1(2, 0, 6), 0.5, None), (tau1(2, 0, 6), 0.1, False),
     (tau1(9, 6, 12), 0.5, False)],
)  # fmt: skip
def test_both_limits_are_to_be_met(figures, limit, release):
    assert judge(figures, R1, Limits(5, limit)).release is release


def test_a_summary_has_a_verdict_where_there_are_limits(small):
    assert "verdict" not in bnp.report.risk_summary(small.risk, limits=Limits())
    summary = bnp.report.risk_summary(small.risk, limits=Limits(max_tau1=1e6))
    # 30 draws of two chains are too few to quote figures, but not for a limit that is far away.
    assert not summary["usable"]["tau1"] and summary["verdict"]["release"] is True
    assert "Monte Carlo errors of" in summary["verdict"]["why"]
    misfit = SimpleNamespace(warnings=lambda: ["the model does not fit: .."], document=dict)
    summary = bnp.report.risk_summary(small.risk, limits=Limits(max_tau1=1e6), checks=misfit)
    assert summary["verdict"]["release"] == "unknown"
    assert summary["verdict"]["why"].startswith(summary["usable"]["why"])
    alone = dataclasses.replace(small.risk, tau1=small.risk.tau1[:1])
    summary = bnp.report.risk_summary(alone, limits=Limits(max_tau1=1e6))
    assert summary["verdict"]["release"] == "unknown"


def test_the_error_of_each_record_is_that_of_its_mean(small):
    """Computed while blocks of draws are added; by hand from the risks at each draw."""
    risk = small.risk
    assert risk.r1_error.shape == risk.r1.shape and (risk.r1_error >= 0).all()
    halves = [
        bnp.population_risk(part, risk.population_size, ties="off", thin=1).r1
        for part in halves_of_chains(small.run)
    ]
    whole = bnp.population_risk(small.run, risk.population_size, ties="off", thin=1)
    np.testing.assert_allclose(np.mean(halves, axis=0), whole.r1, rtol=1e-4)
    expected = np.std(halves, axis=0, ddof=1) / np.sqrt(len(halves))
    np.testing.assert_allclose(whole.r1_error, expected, rtol=1e-3, atol=1e-7)


def halves_of_chains(run):
    """Runs of one half of one chain each."""
    number = run.settings.num_samples // 2
    settings = dataclasses.replace(run.settings, num_chains=1, num_samples=number)
    for chain in range(run.settings.num_chains):
        for half in (slice(None, number), slice(number, None)):
            draws = {name: value[chain : chain + 1, half] for name, value in run.draws.items()}
            yield dataclasses.replace(run, settings=settings, draws=draws)
