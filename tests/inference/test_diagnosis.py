"""Diagnosis: everything said of a run's chains comes from figures that are computed once."""

import collections
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.inference import convergence
from bnp_models.inference.run import Until
from bnp_models.inference.warnings import in_minutes, run_warnings
from bnp_models.report.risk import render_report
from bnp_models.report.synthesis import render_synthesis_report


def count_figures(monkeypatch):
    """Count how often the figures of each array are computed, from now on."""
    calls, diagnose = collections.Counter(), convergence.figures_of

    def counted(values, superchain=1):
        calls[np.asarray(values).tobytes()] += 1
        return diagnose(values, superchain)

    monkeypatch.setattr(convergence, "figures_of", counted)
    return calls


def test_figures_of_a_risk_are_computed_once(small, monkeypatch):
    calls = count_figures(monkeypatch)
    diagnosis = bnp.results.Diagnosis.of(small.run, small.risk)
    assert not calls
    page = render_report(small.risk, diagnosis=diagnosis)
    summary = bnp.report.risk_summary(small.risk, diagnosis=diagnosis)
    assert set(calls.values()) == {1} and len(calls) == len(diagnosis.draws) == 5
    monkeypatch.undo()
    assert page == render_report(small.risk)
    assert summary == bnp.report.risk_summary(small.risk)
    assert summary["diagnostics"] == bnp.diagnose(small.run, small.risk).figures
    assert summary["warnings"] == bnp.diagnose(small.run, small.risk).warnings


def test_figures_of_margins_are_computed_once(latent, monkeypatch):
    calls = count_figures(monkeypatch)
    diagnosis = bnp.results.Diagnosis.of(latent.run, latent.margins)
    complete = bnp.Microdata(latent.table.schema, np.maximum(latent.table.codes, 0)).to_frame()
    render_synthesis_report(latent.run, [complete], diagnosis)
    summary = bnp.report.run_summary(latent.run, diagnosis)
    assert set(calls.values()) == {1} and len(calls) == len(diagnosis.draws) == 6
    assert list(summary["diagnostics"]) == list(diagnosis.draws)


def test_chains_of_another_sampler(monkeypatch):
    calls = count_figures(monkeypatch)
    values = np.random.default_rng(1).normal(size=(4, 100)) + np.arange(4)[:, None]
    diagnosis = bnp.results.Diagnosis({"x": values, "log_likelihood": values + 1})
    assert diagnosis.warnings[0].startswith("not converged") and diagnosis.reached is None
    assert diagnosis.modes.number == bnp.diagnose({"log_likelihood": values}).modes.number
    assert calls[(values + 1).tobytes()] == 1


def test_quantities_of_a_target_that_fall_short_are_told(small):
    """The draws pass, and what the target judges besides them does not."""
    values = np.random.default_rng(1).normal(size=(2, 100))
    apart = {"apart": values + np.arange(2)[:, None]}
    for quantities, reached in ((None, True), (lambda run: apart, False)):
        target = bnp.Converged(max_rhat=1.1, min_ess=10, quantities=quantities)
        until = Until(target, 1.0, small.run.settings)
        diagnosis = bnp.results.Diagnosis(
            {"x": values}, dataclasses.replace(small.run, until=until)
        )
        assert diagnosis.reached == reached
        assert any("R-hat of apart" in one for one in diagnosis.warnings) != reached


def test_minutes_that_are_needed(small):
    """About ten times the draws; a third more where the first quarter of them will be let go."""
    values = np.random.default_rng(1).normal(size=(2, 400))
    figures = convergence.figures_of(values)
    least = 10 * min(figures["ess_bulk"], figures["ess_tail"])
    settings = small.run.settings
    later = dataclasses.replace(settings, num_samples=2 * settings.num_samples)
    run = dataclasses.replace(small.run, seconds={"warmup": 60.0, "draws": 120.0})
    for now, minutes in ((settings, 4 / 3 * 10 * 3), (later, 10 * 3)):
        until = Until(bnp.Converged(1.5, least), 1.0, settings)
        judged = dataclasses.replace(run, until=until, settings=now)
        low, high = bnp.results.Diagnosis({"x": values}, judged).minutes_needed
        assert high == pytest.approx(4 * low) and high / 2 == pytest.approx(minutes, rel=0.1)
        # No run takes less than it has taken.
        near = dataclasses.replace(
            judged, until=Until(bnp.Converged(1.5, least / 9), 1.0, settings)
        )
        assert bnp.results.Diagnosis({"x": values}, near).minutes_needed[0] >= 3
    stuck = values + 50 * np.arange(2)[:, None]
    assert bnp.results.Diagnosis({"x": stuck}, judged).minutes_needed is None


@pytest.mark.parametrize(
    ("minutes", "words"),
    [((0.1, 0.4), "about 1"), ((4.6, 18.4), "about 5 to 18"), ((96.0, 384.0), "about 100 to 400")],
)
def test_forecasts_in_words(minutes, words):
    assert in_minutes(minutes) == words


def test_a_forecast_does_not_jump():
    """Chains that need about the same: forecasts differ less than the figures of all draws do."""
    rng = np.random.default_rng(3)
    target = bnp.Converged(1.001, 1e5)
    once, smoothed = [], []
    for _ in range(40):
        draws = {"x": rng.normal(size=(4, 400)) + 0.15 * rng.normal(size=(4, 1))}
        figures = convergence.figures_by_name(draws)
        once.append(np.log(target.draws_needed(draws, figures)))
        smoothed.append(np.log(target.forecast(draws, figures, convergence.figures_by_name)[1]))
    assert np.std(smoothed) < 0.95 * np.std(once)


def test_files_that_take_a_part_of_a_margin_from_the_chains(small):
    """By hand: a fifth of the margins, whose mean differs between chains, and no other quantity."""
    values = np.random.default_rng(1).normal(size=(4, 300))
    apart = values + 0.3 * np.arange(4)[:, None]
    whole = convergence.figures_of(apart)
    assert whole["rhat"] > 1.05
    margins = SimpleNamespace(share=0.2, warnings=lambda: [])
    names = ("margin a=1 in the files", "components", "alpha")
    diagnosis = bnp.results.Diagnosis(dict.fromkeys(names, apart), None, margins)
    found, other = diagnosis.figures[names[0]], diagnosis.figures["components"]
    assert other == whole
    assert found["rhat"] ** 2 - 1 == pytest.approx((whole["rhat"] ** 2 - 1) / 25)
    assert found["ess_bulk"] == pytest.approx(min(25 * whole["ess_bulk"], apart.size))
    assert diagnosis.warnings == []
    # Chains that differ so much that it is seen in a fifth are not passed over.
    far = dict.fromkeys(names, values + 3 * np.arange(4)[:, None])
    assert "not converged" in bnp.results.Diagnosis(far, None, margins).warnings[0]
    margins.share = 1.0
    assert "not converged" in bnp.results.Diagnosis(diagnosis.draws, None, margins).warnings[0]


def test_columns_and_labels_that_are_not_what_they_seem(small):
    assert run_warnings(small.run) == []
    frame = small.table.to_frame().assign(pid=np.arange(small.table.n))
    frame.loc[frame.index[:9], "sex"] = "NA"
    run = dataclasses.replace(small.run, table=bnp.Microdata.from_frame(frame))
    identifying, missing = run_warnings(run)
    assert identifying.startswith("column 'pid' may identify: it has 150 values, and 100%")
    assert missing.startswith("missing values? 'sex' has 'NA' (9 records) among its levels")


def test_figures_are_shown_by_quantity(small):
    """Under a header that names them."""
    diagnosis = bnp.diagnose(small.run)
    said = repr(diagnosis).splitlines()
    header = next(i for i, line in enumerate(said) if "rhat" in line)
    assert said[header].split()[0] == "quantity"
    assert said[header + 1].split()[0] == next(iter(diagnosis.figures))
