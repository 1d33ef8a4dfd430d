"""Verdicts: on which side of a limit the figures lie, and where they say nothing."""

import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.risk.verdict import Limits, judge

R1 = np.array([0.3, 0.1, 0.02])


def tau1(mean, low, high):
    return {"mean": mean, "q025": low, "q975": high}


@pytest.mark.parametrize(
    ("figures", "release", "words"),
    [
        (tau1(20, 12, 29), False, "20.0 expected population uniques against your limit of 5"),
        (tau1(5.1, 0, 9), False, "95% interval 0 to 9"),
        (tau1(4.9, 0, 9), None, "and the interval extends above the limit"),
        (tau1(2, 0, 5), True, "the whole interval is within the limit"),
    ],
)
def test_the_mean_and_the_upper_end_decide(figures, release, words):
    found = judge(figures, R1, Limits(max_tau1=5))
    assert found.release is release and words in found.why
    assert found.document()["release"] == ("unknown" if release is None else release)
    # What cannot be used says nothing, on either side of the limit.
    unusable = judge(figures, R1, Limits(max_tau1=5), False, "tau1 should not be used: R-hat")
    assert unusable.release is None and unusable.why.startswith("tau1 should not be used: R-hat; ")


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
     (tau1(9, 4, 12), 0.5, False)],
)  # fmt: skip
def test_both_limits_are_to_be_met(figures, limit, release):
    assert judge(figures, R1, Limits(5, limit)).release is release


def test_a_summary_has_a_verdict_where_there_are_limits(small):
    assert "verdict" not in bnp.report.risk_summary(small.risk, limits=Limits())
    summary = bnp.report.risk_summary(small.risk, limits=Limits(max_tau1=1e6))
    # 30 draws of two chains are too few to say anything.
    assert not summary["usable"]["tau1"] and summary["verdict"]["release"] == "unknown"
    assert summary["verdict"]["why"].startswith(summary["usable"]["why"])
