"""Convergence figures against their definition, and what is said of good and bad chains."""

import dataclasses
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import signal, stats

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.inference.modes import Modes
from bnp_models.inference.run import Until
from bnp_models.kernels.mixed_membership import urn_partitions


def rank_normalised_split_rhat(values):
    """Vehtari et al. (2021), section 4: the larger of the bulk's and the folded draws' R-hat."""

    def rhat(draws):
        ranks = stats.rankdata(draws, method="average").reshape(draws.shape)
        z = stats.norm.ppf((ranks - 0.375) / (draws.size + 0.25))
        n = z.shape[1]
        within = z.var(axis=1, ddof=1).mean()
        between = n * z.mean(axis=1).var(ddof=1)
        return np.sqrt(((n - 1) / n * within + between / n) / within)

    half = values.shape[1] // 2
    split = np.concatenate([values[:, :half], values[:, -half:]])
    return max(rhat(split), rhat(np.abs(split - np.median(split))))


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.fixture
def chains(with_draws, rng):
    """Make chains of independent draws; `shift` is added to the first chain's tau_1 and fit."""

    def make(num_chains=4, num_draws=500, shift=0.0, **fields):
        shape = (num_chains, num_draws)
        shifts = np.zeros((num_chains, 1))
        shifts[0] = shift
        draws = {
            "components": rng.poisson(20, shape),
            "alpha": rng.gamma(5, 1, shape),
            "left_over": np.full(shape, 1e-9),
        }
        of_risk = {
            "tau1": rng.poisson(12 + shifts, shape).astype(float),
            "tau1_conditional": rng.normal(12, 2, shape) + shifts,
            "tau2": rng.normal(30, 2, shape),
            "log_likelihood": rng.normal(-500, 3, shape) + 3 * shifts,
        }
        return with_draws(draws, of_risk, **fields)

    return make


def test_rhat_is_its_definition(rng):
    values = rng.normal(size=(4, 200)) + 0.3 * np.arange(4)[:, None]
    assert figures_of(values)["rhat"] == pytest.approx(rank_normalised_split_rhat(values), abs=1e-6)


def test_effective_sample_size_of_an_autoregression(rng):
    rho, shape = 0.8, (4, 4000)
    noise = rng.normal(size=shape)
    values = np.zeros(shape)
    for t in range(1, shape[1]):
        values[:, t] = rho * values[:, t - 1] + noise[:, t]
    expected = values.size * (1 - rho) / (1 + rho)
    assert 0.75 * expected < figures_of(values)["ess_bulk"] < 1.3 * expected


@pytest.mark.parametrize(
    "values",
    [np.full((4, 100), 7.0), np.arange(12.0).reshape(4, 3), np.full((2, 9), np.nan)],
    ids=["constant", "three draws", "not finite"],
)
def test_undefined_figures_are_none(values):
    assert figures_of(values) == {"rhat": None, "ess_bulk": None, "ess_tail": None}


def test_nested_rhat_compares_superchains(rng):
    """Of many chains of few draws, which agree, or of which groups of four lie apart."""
    values = rng.normal(size=(32, 20))
    shift = np.repeat(rng.normal(size=8), 4)[:, None]
    assert figures_of(values, 4)["rhat"] < 1.02
    assert figures_of(values + shift, 4)["rhat"] > 1.2
    assert figures_of(values + shift, 4)["ess_bulk"] == figures_of(values + shift)["ess_bulk"]


def test_chains_of_a_run_are_judged_by_their_superchains(chains, rng):
    """Each chain stays where it is, and groups of four lie about the same places."""
    run, risk = chains(16, 60)
    assert run.settings.superchain == 4
    values = rng.normal(size=(16, 60)) + np.tile([-3, -1, 1, 3], 4)[:, None]
    risk = dataclasses.replace(risk, tau1=values)
    of_tau1 = bnp.diagnose(run, risk).figures["tau1"]
    assert of_tau1 == figures_of(values, 4) and of_tau1["rhat"] < 1.05
    assert figures_of(values)["rhat"] > 1.5
    target = bnp.Converged(1.05, min_ess=1)
    assert target.missed_by(run, {"tau1": values}) == []
    (missed,) = target.missed_by(run, {"tau1": np.sort(values, axis=0)})
    assert missed.startswith("R-hat of tau1 is ")
    fewer = dataclasses.replace(run.settings, num_chains=12)
    (missed,) = target.missed_by(dataclasses.replace(run, settings=fewer), {"tau1": values[:12]})
    assert missed.startswith("R-hat of tau1 is ")
    # The target itself asks so, of the draws and of the quantities.
    draws = run.draws | {"log_likelihood": values}
    stuck = dataclasses.replace(run, draws=draws)
    assert dataclasses.replace(target, quantities=lambda run: {"tau1": values})(stuck)


def test_one_chain_has_no_rhat(rng):
    figures = figures_of(rng.normal(size=(1, 200)))
    assert figures["rhat"] is None
    assert figures["ess_bulk"] > 100


def test_chains_that_are_constant_apart_from_each_other_give_json():
    values = np.repeat([[1.0], [2.0]], 50, axis=1)
    figures = figures_of(values)
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures


def test_good_chains_get_no_warning(chains):
    assert bnp.diagnose(*chains()).warnings == []


def test_convergence_covers_the_monitored_quantities(chains):
    figures = bnp.diagnose(*chains()).figures
    assert list(figures) == ["tau1", "tau1_conditional", "components", "alpha", "log_likelihood"]
    for figure in figures.values():
        assert figure["rhat"] < 1.02
        assert 1000 < figure["ess_bulk"] < 4000


def test_the_rate_of_alphas_prior_is_judged_where_it_is_drawn(chains, rng):
    run, risk = chains()
    rate = rng.gamma(5, 1, (4, 500))
    drawn = dataclasses.replace(run, draws=run.draws | {"alpha_rate": rate})
    assert "alpha_rate" in bnp.diagnose(drawn, risk).figures
    assert "alpha_rate" in bnp.diagnose(drawn).figures
    given = dataclasses.replace(run, draws=run.draws | {"alpha_rate": np.ones((4, 500))})
    assert "alpha_rate" not in bnp.diagnose(given, risk).figures


def test_a_chain_in_another_mode(chains):
    sentences = bnp.diagnose(*chains(shift=8.0)).warnings
    assert [sentence.split(":")[0] for sentence in sentences] == [
        "not converged", "multimodal", "too few effective draws",
    ]  # fmt: skip
    for name in ("tau1", "tau1_conditional", "log_likelihood"):
        assert f"{name} 1." in sentences[0]
    assert "components" not in sentences[0]
    assert "chain 1 (log-likelihood -476, 20 components, tau_1 20 [" in sentences[1]


def test_the_log_likelihood_has_words_of_its_own(chains, rng):
    """R-hat of what is not reported frightens nobody away from a tau_1 that is fine."""
    run, risk = chains()
    walks = np.cumsum(rng.choice([-1.0, 1.0], (4, 500)), axis=1)

    def with_draws(risk, **draws):
        replaced = dataclasses.replace(run, draws=run.draws | draws)
        return replaced, dataclasses.replace(risk, run=replaced)

    # Components and alpha are shown, and not judged.
    assert bnp.diagnose(*with_draws(risk, components=20 + walks)).warnings == []
    further = dataclasses.replace(risk, log_likelihood=risk.log_likelihood + walks)
    (sentence,) = bnp.diagnose(*with_draws(further)).warnings
    assert sentence.startswith("chains agree on what is reported") and "log_likelihood" in sentence
    # So has the mean of tau_1 given the parameters: tau_1 varies by much more.
    further = dataclasses.replace(risk, tau1_conditional=12 + 0.05 * walks)
    (sentence,) = bnp.diagnose(*with_draws(further)).warnings
    assert sentence.startswith("chains agree on what is reported") and "conditional" in sentence
    draws = {"tau1_conditional": further.tau1_conditional}
    (missed,) = bnp.Converged(1.02, others_rhat=1.1).missed(draws)
    assert missed.startswith("R-hat of tau1_conditional is 1.")
    # A little apart, it is passed over where tau_1 is very close, and named where it is not.
    apart = np.arange(4)[:, None] * np.ones(500)
    slightly = -500 + 0.33 * apart + rng.normal(size=(4, 500))
    risk = dataclasses.replace(risk, log_likelihood=slightly)
    assert 1.05 < figures_of(slightly)["rhat"] < 1.1
    run, risk = with_draws(risk)
    assert bnp.diagnose(run, risk).warnings == []
    further = dataclasses.replace(risk, tau1=risk.tau1 + 0.5 * apart)
    assert 1.01 < figures_of(further.tau1)["rhat"] < 1.05
    (sentence,) = bnp.diagnose(run, further).warnings
    assert "should be below 1.05, but its values are: log_likelihood 1.0" in sentence
    run, _ = with_draws(risk, components=20 + walks)
    # Without a risk or margins all that there is is judged.
    words = [sentence.split(":")[0] for sentence in bnp.diagnose(run).warnings]
    assert words == ["not converged", "too few effective draws"]


def test_the_verdict_on_a_quantity(chains):
    def verdict(*misfits, num_chains=4, num_draws=500, tau1=None, **fields):
        run, risk = chains(num_chains, num_draws)
        if tau1 is not None:
            risk = dataclasses.replace(risk, tau1=tau1, **fields)
        return bnp.results.Diagnosis.of(run, risk).verdict("tau1", misfits)

    good, why = verdict()
    assert good and why.startswith("tau1 can be used: the chains agree on it (R-hat 1.00")
    assert verdict("the model does not fit") == (
        False, "tau1 should not be used: the model does not fit"
    )  # fmt: skip
    assert verdict(num_draws=40)[1].startswith("tau1 should not be used: the bulk ESS of tau1 is ")
    assert "R-hat of tau1 is undefined" in verdict(num_chains=1)[1]
    constant = np.full((4, 500), 3.0)
    assert verdict(tau1=constant) == (True, "tau1 can be used: it is 3 in every draw")
    # Few draws, or one chain, could all be the same by chance.
    few = "it is 3 in all 40 draws of 2 chains, which are too few to tell whether it varies"
    few = f"tau1 should not be used: {few}"
    assert verdict(num_chains=2, num_draws=20, tau1=constant[:2, :20]) == (False, few)
    assert not verdict(num_chains=1, tau1=constant[:1])[0]
    # Of no sample unique, or in a census, nothing is left to chance.
    for known in ({"rows": np.empty(0, int)}, {"population_size": chains()[0].table.n}):
        assert verdict(num_chains=2, num_draws=20, tau1=constant[:2, :20], **known)[0]
    assert not verdict(tau1=constant + np.random.default_rng(0).random((4, 1)))[0]


def test_a_small_difference_is_no_mode(chains):
    sentences = bnp.diagnose(*chains(shift=0.5)).warnings
    assert not any(sentence.startswith("multimodal") for sentence in sentences)


@pytest.mark.parametrize(
    ("arguments", "fields", "start"),
    [
        ({"num_chains": 1}, {}, "one chain only"),
        ({}, {"growth": ((12, 256),)}, "capacity grown (for information): room for components was "
         "enlarged to 256 at sweep 12"),
        ({"num_draws": 3}, {}, "too few draws to judge convergence: there are 3 in each chain"),
        ({"num_draws": 60}, {}, "too few effective draws"),
    ],
)  # fmt: skip
def test_each_warning(chains, arguments, fields, start):
    sentences = bnp.diagnose(*chains(**arguments, **fields)).warnings
    assert any(sentence.startswith(start) for sentence in sentences), sentences


def test_warnings_of_settings_and_evaluation(chains):
    run, risk = chains()
    cold = dataclasses.replace(run, settings=dataclasses.replace(run.settings, num_warmup=0))
    assert bnp.diagnose(cold, risk).warnings[0].startswith("no warm-up")
    leaky = dataclasses.replace(run, draws=run.draws | {"left_over": np.full((4, 500), 2e-4)})
    assert bnp.diagnose(leaky, risk).warnings[0].startswith("truncated: up to 2.0e-04")
    noisy = dataclasses.replace(risk, relative_error=0.25)
    assert "Monte Carlo error is 25%" in bnp.diagnose(run, noisy).warnings[0]


def margins_of(values, thin=1):
    names = tuple(f"margin x={level}" for level in range(values.shape[2]))
    return bnp.results.Margins(names, values, thin)


def test_a_run_without_a_risk_is_judged_by_its_margins(chains, rng):
    run, _ = chains(shift=8.0)
    draws = run.draws | {
        "log_likelihood": rng.normal(-500, 3, (4, 500)), "log_feasible": np.zeros((4, 500)),
        "augmented": np.arange(2000).reshape(4, 500),
    }  # fmt: skip
    run = dataclasses.replace(run, draws=draws)
    values = rng.normal(0.2, 0.01, (4, 100, 6))
    values[0, :, 4] += 0.05
    values[:, :, 1] = 0
    names = ["log_likelihood", "components", "alpha"]
    assert list(bnp.diagnose(run).figures) == names
    figures = bnp.diagnose(run, margins_of(values, thin=5)).figures
    assert list(figures)[:4] == [*names, "margin x=4"]
    assert len(figures) == 6 and "margin x=1" not in figures
    sentences = bnp.diagnose(run, margins_of(values, thin=5)).warnings
    assert sentences[0].startswith("not converged") and "margin x=4 1." in sentences[0]
    assert not any(word in " ".join(sentences) for word in ("augmented", "p_zero", "tau1"))
    assert list(bnp.diagnose(run, margins_of(values[:, :3], thin=200)).figures) == names


def test_an_estimated_probability_of_the_feasible_is_told_of(chains, monkeypatch):
    run, risk = chains()
    codes = np.full((1, len(run.table.schema.variables)), -1)
    codes[0, :2] = 0
    run = dataclasses.replace(
        run, conditions=bnp.StructuralZeros.from_codes(codes, run.table.schema)
    )
    assert not any("estimated" in s for s in bnp.diagnose(run, risk).warnings)
    monkeypatch.setattr(urn_partitions, "MAX_PARTITIONS", 1)
    sentences = bnp.diagnose(run, risk).warnings
    assert any(s.startswith("P(feasible), the probability") for s in sentences)


def test_modes_of_a_run_without_a_risk(chains, rng):
    run, _ = chains()
    shifted = rng.normal(-500, 3, (4, 500)) + np.array([[40], [0], [0], [0]])
    run = dataclasses.replace(run, draws=run.draws | {"log_likelihood": shifted})
    sentence = next(s for s in bnp.diagnose(run).warnings if s.startswith("multimodal"))
    assert "chain 1 (log-likelihood -460, 20 components) and chains 2, 3, 4 (-500, " in sentence
    assert "tau" not in sentence


def autoregression(rng, num_chains, num_draws, rho, sd=5.0):
    """Stationary chains of one mode."""
    noise = rng.normal(size=(num_chains, num_draws)) * np.sqrt(1 - rho**2)
    start = rng.normal(size=(num_chains, 1))
    return sd * signal.lfilter([1], [1, -rho], noise, zi=rho * start)[0]


def modes_of(values, **others):
    return bnp.diagnose({"log_likelihood": values} | others).modes


@pytest.mark.parametrize("num_chains", [1, 2, 4, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("num_draws", "rho"),
    [
        pytest.param(1000, 0.9, marks=pytest.mark.long),
        pytest.param(1000, 0.98, marks=pytest.mark.long), (400, 0.0), (64, 0.7),
    ],
)  # fmt: skip
def test_chains_of_one_mode_are_seldom_told_apart(rng, num_chains, num_draws, rho):
    """At 10 effective draws a chain and more: in less than 1% of the runs."""
    runs = [modes_of(autoregression(rng, num_chains, num_draws, rho)) for _ in range(200)]
    assert sum(run.number > 1 for run in runs) <= 5
    agreed = next(run for run in runs if run.number == 1)
    assert agreed.crossings == 0 and agreed.crossing_chains == []
    assert agreed.verdict.startswith("the chain stays" if num_chains == 1 else ("the c", "no sep"))


def test_chains_of_one_mode_agree_only_where_every_figure_does(rng):
    values = rng.normal(size=(4, 1000))
    assert modes_of(values, tau1=rng.poisson(10, (4, 1000))).verdict == "the chains agree: one mode"
    apart = modes_of(values, tau1=rng.poisson(10, (4, 1000)) + np.array([[0], [0], [50], [50]]))
    assert apart.number == 1 and apart.verdict.startswith(
        "no separate modes were found, but the chains do not agree yet: R-hat should be at most "
        "1.05, but its values are: tau1 1.7"
    )


@pytest.mark.parametrize("pattern", [(0, 1, 0, 1), (0, 0, 0, 1), (0, 1, 1, 1), (0, 1, 2, 3)])
@pytest.mark.parametrize(("sd", "rho"), [(3, 0.9), (5, 0.9), (8, 0.5)])
def test_chains_that_stay_in_modes_10_apart(rng, pattern, sd, rho):
    for _ in range(20):
        values = autoregression(rng, 4, 1000, rho, sd) - 10 * np.array(pattern)[:, None]
        modes = modes_of(values)
        found = modes.labels[:, 0].tolist() == list(pattern) and modes.crossings == 0
        if not found:
            # Four modes make three gaps, and each of them may be missed.
            assert max(pattern) == 3 and sd == 5
    assert modes.number >= 2 and "no chain moves from one mode to another" in modes.verdict


def test_a_chain_that_crosses(rng):
    """A change within a segment is no mode of its own; shares count the draws."""
    for change in (250, 330, 400, 610, 750):
        values = autoregression(rng, 4, 1000, 0.5, 3)
        lower = np.zeros(values.shape, bool)
        lower[1] = lower[2, change:] = True
        values -= 10 * lower
        tau1 = rng.poisson(np.where(lower, 60, 40))
        modes = modes_of(values, tau1=tau1, alpha=values, components=np.full(values.shape, 9))
        assert modes.number == 2 and modes.crossings == 1 and modes.crossing_chains == [3]
        assert [mode["chains"] for mode in modes.each] == [[1, 3, 4], [2, 3]]
        assert sum(mode["share"] for mode in modes.each) == pytest.approx(1)
        assert modes.each[0]["share"] == pytest.approx((2 + change / 1000) / 4, abs=0.04)
        assert modes.each[0]["tau1"]["mean"] == pytest.approx(40, abs=3)
        assert modes.each[1]["tau1"]["mean"] == pytest.approx(60, abs=3)
        assert "chain 3 moves between modes, once, which is too few" in modes.verdict
        document = modes.document()
        assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_crossings_are_counted_one_by_one():
    labels = np.array([[0, 1, 1, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]])
    found = Modes(labels, ({}, {}), "")
    assert found.crossings == 4 and found.crossing_chains == [1, 3]


def test_chains_that_change_modes_all_the_time_agree(rng):
    visits = np.repeat(rng.random((4, 250)) < 0.4, 4, axis=1)
    assert modes_of(rng.normal(size=(4, 1000)) - 10 * visits).number == 1


def test_modes_that_only_components_show(rng):
    components = rng.poisson(14, (4, 1000)) + np.array([[0], [9], [9], [0]])
    modes = modes_of(autoregression(rng, 4, 1000, 0.8), components=components)
    assert modes.labels[:, 0].tolist() in ([0, 1, 1, 0], [1, 0, 0, 1])
    assert sorted(round(mode["components"]) for mode in modes.each) == [14, 23]


def test_the_verdict_on_two_modes(rng):
    values = rng.normal(0, 2, (4, 400)) - np.array([[7213], [7268], [7213], [7268]])
    components = np.repeat([[23], [14], [23], [14]], 400, axis=1)
    tau1 = np.tile([33, 41, 41, 49], (4, 100)) + np.array([[0], [14], [0], [14]])
    assert modes_of(values, components=components, tau1=tau1).verdict == (
        "the chains sit in 2 modes: chains 1, 3 (log-likelihood -7213, 23 components, tau_1 41 "
        "[33, 49]) and chains 2, 4 (-7268, 14 components, tau_1 55 [47, 63]); no chain moves "
        "from one mode to another, so that the probabilities of the modes are unknown; pooled "
        "figures weight each mode by its number of chains"
    )


@pytest.mark.parametrize("values", [np.zeros((4, 11)), np.full((4, 100), np.nan)])
def test_modes_cannot_always_be_told_apart(values):
    modes = modes_of(values)
    assert modes.number is None and modes.each == () and "too few" in modes.verdict
    assert modes_of(np.zeros((4, 100))).number == 1


def until(run, target, minutes=5):
    first = dataclasses.replace(run.settings, num_samples=100)
    return dataclasses.replace(run, until=Until(target, minutes, first))


def test_a_target_is_reached_where_every_figure_is_good(chains, rng):
    run, risk = chains()
    asked = []

    def quantities(run):
        asked.append(run)
        return {"tau1": risk.tau1, "never": np.zeros((4, 500))}

    target = bnp.Converged(1.02, quantities=quantities)
    assert target(run) and asked == [run]
    assert target.missed(bnp.diagnose(run, risk).draws) == []
    assert not dataclasses.replace(target, min_ess=2500)(run)
    assert not dataclasses.replace(target, max_rhat=1.0000001)(run)
    assert len(asked) == 1
    slow = bnp.Converged(1.02, quantities=lambda run: {"tau1": risk.tau1[:, :250]})
    assert slow(run) and not dataclasses.replace(slow, min_ess=1300)(run)
    assert dataclasses.replace(slow, quantities=None, min_ess=1300)(run)
    far = rng.normal(size=(4, 500)) + np.arange(4)[:, None]
    assert not bnp.Converged(1.02, quantities=lambda run: {"tau1": far})(run)
    assert bnp.Converged(1.02).missed({"x": np.repeat([[0.0], [1.0]], 50, axis=1)})
    assert bnp.Converged(1.02).missed({"x": np.full((2, 50), np.nan)})
    for bad in ({"max_rhat": 1.0}, {"max_rhat": float("nan")}, {"min_ess": 0}):
        with pytest.raises(ValueError, match="must be"):
            bnp.Converged(**bad)


def test_tails_that_mix_slowly_have_few_effective_draws(rng):
    """Draws whose sign is new each time, and whose size hardly changes."""
    noise, log_size = rng.normal(size=(4, 1000)), np.zeros((4, 1000))
    for t in range(1, 1000):
        log_size[:, t] = 0.98 * log_size[:, t - 1] + 0.2 * noise[:, t]
    figures = figures_of(rng.normal(size=(4, 1000)) * np.exp(log_size))
    assert figures["ess_tail"] < 1000 < 2000 < figures["ess_bulk"]


@pytest.mark.parametrize("num_chains", [2, 6])
def test_effective_draws_are_asked_of_each_chain(rng, num_chains):
    """A hundred, in bulk and tails: of independent draws, 75 are too few and 200 enough."""
    few, many = (rng.normal(size=(num_chains, number)) for number in (75, 200))
    missed = bnp.Converged(1.2).missed({"tau1": few})
    assert [sentence.partition(" of ")[0] for sentence in missed] == [
        "the bulk ESS",
        "the tail ESS",
    ]
    assert bnp.Converged(1.2).missed({"tau1": many}) == []
    least = f"should be at least {100 * num_chains} (100 a chain)"
    assert any(least in sentence for sentence in Diagnosis({"tau1": few}).warnings)
    assert not any("effective" in sentence for sentence in Diagnosis({"tau1": many}).warnings)


def test_what_is_not_reported_is_judged_by_its_own_limit(chains, rng):
    """Chains a little apart in their log-likelihood, which has few effective draws."""
    run, risk = chains()
    apart = rng.normal(size=(4, 500)) + 0.35 * np.arange(4)[:, None]
    draws = bnp.diagnose(run, risk).draws | {"log_likelihood": apart}
    rhat = figures_of(apart)["rhat"]
    assert 1.02 < rhat < 1.2
    assert len(bnp.Converged(1.02).missed(draws)) == 2
    assert bnp.Converged(1.02, others_rhat=1.2).missed(draws) == []
    assert bnp.Converged(1.02, others_rhat=1.2).draws_needed(draws) == 1
    # Components and alpha are judged only where all is.
    worse = draws | {"components": apart, "alpha": np.exp(5 * apart)}
    assert bnp.Converged(1.02, others_rhat=1.2).missed(worse) == []
    assert len(bnp.Converged(1.02).missed(worse)) == 6
    (missed,) = bnp.Converged(1.02, others_rhat=1.02).missed(draws)
    assert missed.startswith("R-hat of log_likelihood")
    needed = bnp.Converged(1.02, others_rhat=1.02).draws_needed(draws)
    assert needed == pytest.approx((rhat**2 - 1) / (1.02**2 - 1))
    ess = min(figures_of(risk.tau1)[f"ess_{kind}"] for kind in ("bulk", "tail"))
    assert bnp.Converged(1.5, 10 * ess).draws_needed({"tau1": risk.tau1}) == pytest.approx(10)
    assert bnp.Converged().draws_needed({"tau1": risk.tau1[:, :2]}) is None


def test_a_run_that_used_up_its_minutes_says_so(chains):
    run, risk = chains(shift=2.0)
    run = until(run, bnp.Converged())
    assert not bnp.diagnose(run, risk).reached
    sentence = bnp.diagnose(run, risk).warnings[0]
    assert sentence.startswith("stopped after 5 minutes: R-hat of tau1 is 1.")
    assert (
        "but the target is R-hat of at most 1.01 and effective sample sizes of at least 400"
        in sentence
    )
    good, good_risk = chains()
    good = until(good, bnp.Converged(1.05))
    assert bnp.diagnose(good, good_risk).reached and bnp.diagnose(good, good_risk).warnings == []
    own = until(good, lambda run: False, minutes=1)
    first = bnp.diagnose(own, good_risk).warnings[0]
    assert first.startswith("stopped after 1 minute, before the tar")
    assert bnp.diagnose(until(good, lambda run: True), good_risk).warnings == []


@pytest.mark.parametrize(("extra", "warned"), [(-1, False), (1, True)])
def test_records_in_the_last_class(chains, extra, warned):
    """Single records say nothing; more of them than sqrt(n) / 2, on average, may change results."""
    run, risk = chains()
    last = np.zeros((4, 500), int)
    last[2, 7] = 3
    full = dataclasses.replace(run, model=bnp.TNPLCM(), draws=run.draws | {"last_class": last})
    assert bnp.diagnose(full, risk).warnings == []
    n = run.table.n
    mean = math.sqrt(n) / 2 + extra
    last[:] = np.random.default_rng(1).poisson(mean - 0.02, last.shape)
    sentences = bnp.diagnose(full, risk).warnings
    assert len(sentences) == warned
    if warned:
        said = f"on average, {last.mean():,.0f} of {n:,} records are in the last class"
        assert said in sentences[0] and "--components" in sentences[0]


def test_a_thinned_risk_is_judged_by_the_draws_it_used(chains):
    run, risk = chains()
    draws = {name: np.repeat(values, 5, axis=1) for name, values in run.draws.items()}
    thinned = dataclasses.replace(run, draws=draws)
    again = dataclasses.replace(risk, thin=5)
    assert bnp.diagnose(thinned, again).figures == bnp.diagnose(run, risk).figures


@pytest.mark.long
def test_arviz_is_imported_where_there_is_no_cache_folder(tmp_path):
    (tmp_path / "file").touch()
    code = "from bnp_models.inference.arviz import load_arviz; print(load_arviz().__name__)"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "file")}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True,
                            text=True, check=True)  # fmt: skip
    assert result.stdout.strip() == "arviz"
