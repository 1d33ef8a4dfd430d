"""The report: says what risk.json says, in one file that needs no other."""

import dataclasses
import re

import numpy as np
import pytest
from pages import Page, check_well_formed, words_of

import bnp_models as bnp
from bnp_models.inference.run import Until
from bnp_models.report import risk as of_risk
from bnp_models.report.plots import plain_tick, trace_plot
from bnp_models.report.risk import render_report
from bnp_models.report.synthesis import render_synthesis_report


@pytest.fixture(scope="module")
def text(small):
    return render_report(small.risk, command="bnp-models risk a.csv", seed=3)


def test_it_says_what_the_summary_says(small, text):
    summary = bnp.report.risk_summary(small.risk, seed=3)
    page = Page(text)
    words = " ".join(" ".join(page.words).split())
    mean, number = f"{summary['tau1']['mean']:.1f}", summary["sample_uniques"]
    assert f"Of the {number} records that are unique in the sample, about {mean} are" in words
    assert f"of a population of {summary['population_size']:,}" in words
    assert summary["warnings"]
    for sentence in summary["warnings"]:
        assert sentence[1:] in words
    assert "bnp-models risk a.csv" in words
    assert f"bnp-models {bnp.__version__}" in words
    riskiest = small.risk.records().head(20)
    shown = re.findall(r'<td data-name="r1">(0\.\d{3}|1\.000)</td>', text)
    assert shown == [f"{r1:.3f}" for r1 in riskiest["r1"]]


@pytest.mark.parametrize("ties", ["on", "sensitivity", "off"])
def test_the_layer_for_ties_is_beside_the_model_alone(small, ties):
    risk = bnp.population_risk(small.run, 600, ties=ties)
    summary, words = bnp.report.risk_summary(risk), words_of(render_report(risk))
    assert summary["ties"]["kind"] == ties
    beside = {"on": "without_ties", "sensitivity": "ties"}
    corrected = "corrected for overdispersion"
    for kind, label in (("on", "by the model alone"), ("sensitivity", corrected)):
        assert (f"τ₁, {label}" in words) == (ties == kind)
        if ties == kind:
            mean = summary[beside[kind]]["tau1"]["mean"]
            assert mean == risk.overdispersion.tau1.mean()
            assert (risk.overdispersion.tau1 != risk.tau1).any()
            assert f"τ₁, {label} {mean:.1f}" in words
    assert ("with a correction for overdispersion" in words) == (ties != "off")
    alone = bnp.population_risk(small.run, 600, ties="off")
    assert (ties == "on") == (risk.tau1_conditional != alone.tau1_conditional).all()


@pytest.fixture(scope="module")
def made(latent):
    """Frames and page of synthetic and of completed data."""
    found = {}
    for imputed, function in ((False, bnp.synthesize), (True, bnp.impute)):
        frames = function(latent.run, 3)
        found[imputed] = (
            frames,
            render_synthesis_report(
                latent.run,
                frames,
                bnp.results.Diagnosis.of(latent.run, latent.margins),
                imputed=imputed,
                command="bnp-models ...",
                seed=3,
            ),
        )
    return found


def test_it_shows_modes_and_why_the_run_stopped(small, with_draws):
    rng = np.random.default_rng(0)
    shape, lower = (2, 100), np.array([[0], [30]])
    draws = {"components": rng.poisson(9, shape), "alpha": rng.gamma(5, 1, shape)}
    of_risk = {
        name: rng.poisson(20, shape) + 0.0
        for name in ("tau1", "tau1_conditional", "tau2", "tau2_conditional")
    }
    of_risk |= {"log_likelihood": rng.normal(size=shape) - lower}
    run, risk = with_draws(draws, of_risk)
    first = dataclasses.replace(run.settings, num_samples=25)
    asked = Until(bnp.Converged(), 2.0, first)
    risk = dataclasses.replace(risk, run=dataclasses.replace(run, until=asked))
    text = render_report(risk)
    words = words_of(text)
    modes = bnp.report.risk_summary(risk)["modes"]
    assert f"The {modes['verdict'][4:]}." in words
    for chain, mode in enumerate(modes["modes"]):
        assert f">{chain + 1}</th><td>50%</td><td>{mode['log_likelihood']:.1f}</td>" in text
    assert "after the 2 minutes allowed" in words
    assert "made 100 draws and kept the last 100" in words
    check_well_formed(text, num_plots=9)
    assert "Stopped" not in words_of(render_report(small.risk))


def test_synthesis_says_what_was_made(latent, made, incomplete_frame):
    frames, text = made[False]
    words = words_of(text)
    assert "3 synthetic data sets of 150 records" in words
    assert "combine_partially_synthetic" in words and "not for release" in words
    assert "18 conditions" in words and "on the prior and not on the data" in words
    original = (incomplete_frame["sex"].dropna() == "Male").mean()
    synthetic = sum((frame["sex"] == "Male").mean() for frame in frames) / 3
    assert f'<th scope="row">Male</th><td>{original:.1%}</td><td>{synthetic:.1%}</td>' in text
    for name in bnp.diagnose(latent.run, latent.margins).figures:
        assert name in words
    shares = [
        abs((incomplete_frame[name].dropna() == level).mean()
            - np.mean([(frame[name] == level).mean() for frame in frames]))
        for name in incomplete_frame
        for level in incomplete_frame[name].dropna().unique()
    ]  # fmt: skip
    assert f"{100 * max(shares):.1f} points largest difference" in words


def test_imputation_says_what_was_filled_in(latent, made, incomplete_frame):
    frames, text = made[True]
    words = words_of(text)
    missing = incomplete_frame.isna()
    assert f"{missing.sum().sum()} missing values of {missing.any(axis=1).sum()} records" in words
    assert "combine_imputed" in words and "not for release" not in words
    gone = missing["sex"]
    imputed = sum((frame.loc[gone, "sex"] == "Male").mean() for frame in frames) / 3
    observed = (incomplete_frame.loc[~gone, "sex"] == "Male").mean()
    assert f'<th scope="row">Male</th><td>{observed:.1%}</td><td>{imputed:.1%}</td>' in text
    assert f">sex</th><td>2</td><td>{gone.mean():.1%}</td>" in text


def test_equivalences_are_told_with_what_to_do_about_them(latent, made):
    tied = "age is '0-14' if and only if education is 'Under 15 years old'"
    frames, text = made[False]
    assert f"The conditions imply: {tied}." in words_of(text)
    assert "not-applicable" not in text and "left out of the records" not in text
    for left_out, advice in ((False, "With --not-applicable, values"), (True, "were left out of")):
        model = bnp.HDPMixedMembership(not_applicable=left_out)
        run = dataclasses.replace(latent.run, model=model)
        assert advice in words_of(render_synthesis_report(run, frames))
    free = dataclasses.replace(latent.run, conditions=None)
    assert "conditions imply" not in words_of(render_synthesis_report(free, frames))


def test_complete_variables_have_no_imputed_proportions(latent, made):
    codes = latent.table.codes.copy()
    codes[:, 1] = np.maximum(codes[:, 1], 0)
    run = dataclasses.replace(latent.run, table=bnp.Microdata(latent.table.schema, codes))
    text = render_synthesis_report(run, made[True][0], imputed=True)
    assert ">sex</th><td>2</td><td>–</td>" in text
    assert "<h3>sex</h3>" not in text and "<h3>age</h3>" in text


def test_many_levels_are_cut_to_the_frequent_ones(latent):
    levels = tuple(f"level {i}" for i in range(40))
    rng = np.random.default_rng(0)
    codes = np.minimum(rng.geometric(0.1, (150, 1)), 40) - 1
    table = bnp.Microdata(bnp.Schema(("x",), (levels,)), codes)
    # Of another table: the shapes of its levels' prior are not this one's.
    draws = {name: x for name, x in latent.run.draws.items() if name != "level_shape"}
    run = dataclasses.replace(latent.run, table=table, conditions=None, draws=draws)
    text = render_synthesis_report(run, [table.to_frame()])
    assert text.count('<th scope="row">level ') == 12
    assert "28 rarer levels" in text and "structural zeros" not in text.lower()


@pytest.mark.parametrize("imputed", [False, True])
def test_synthesis_is_well_formed_self_contained_and_deterministic(latent, made, imputed):
    frames, text = made[imputed]
    check_well_formed(text, num_plots=12)
    again = render_synthesis_report(
        latent.run, frames, bnp.results.Diagnosis.of(latent.run, latent.margins), imputed=imputed,
        command="bnp-models ...", seed=3,
    )  # fmt: skip
    assert again == text


def test_it_is_well_formed_and_self_contained(text):
    check_well_formed(text, num_plots=9)


def test_it_is_deterministic(small, text):
    assert render_report(small.risk, command="bnp-models risk a.csv", seed=3) == text


def test_counts_of_records_in_small_cells(small, text):
    counts = small.table.cells()
    own = counts.counts[counts.record_cell]
    for k in (2, 3, 5):
        assert f">fewer than {k} sample records</th><td>{(own < k).sum()}</td>" in text


def test_a_page_without_records_names_none(small):
    text = render_report(small.risk, records=False)
    check_well_formed(text, num_plots=9)
    assert "The riskiest records" not in text and "left out of this page" in words_of(text)
    assert not re.search(r'<td data-name="r1">(0\.\d{3}|1\.000)</td>', text)


def test_where_the_risk_is(small, monkeypatch):
    """The levels with the largest excess, and without records none of few persons."""
    monkeypatch.setattr(of_risk, "SMALLEST_SHOWN", 12)
    levels = small.risk.by_level()
    excess = levels["tau1"] / small.risk.r1.sum() - levels["records"] / small.table.n
    levels = levels.assign(excess=excess)[excess > 0]
    assert 0 < (levels["records"] < 12).sum() < len(levels)
    for records in (True, False):
        text = render_report(small.risk, records=records)
        part = text.split("Where the risk is")[1].split("</table>")[0]
        shown = levels if records else levels[levels["records"] >= 12]
        shown = shown.sort_values("excess", ascending=False, kind="stable")
        found = re.findall(r'<th scope="row">([^<]*)</th><td class="wrap">([^<]*)</td>', part)
        expected = list(zip(shown["variable"], shown["level"].astype(str), strict=True))
        assert found == expected[: len(found)] and len(found) >= 5


def test_levels_of_few_persons_are_left_out_on_request(latent):
    codes = latent.table.codes.copy()
    codes[:, 1] = np.arange(150) >= 4
    codes[:, 0] = np.maximum(codes[:, 0], 1)
    codes[5:10, 0] = 0
    # A level that no record has tells of nobody.
    codes[codes[:, 2] == 0, 2] = 1
    table = bnp.Microdata(latent.table.schema, codes)
    run = dataclasses.replace(latent.run, table=table, conditions=None)
    made = bnp.Microdata(table.schema, np.maximum(codes, 0)).to_frame()
    pages = [render_synthesis_report(run, [made], records=records) for records in (True, False)]
    few, five = '<th scope="row">Female</th>', '<th scope="row">0-14</th>'
    assert few in pages[0] and five in pages[0]
    assert few not in pages[1] and five in pages[1]
    words = words_of(pages[1])
    assert "1 level that fewer than 5 records have" in words and "This page holds nothing" in words
    assert words.count("that fewer than 5 records have") == 1
    assert "This page, run.json" not in words and "This page, run.json" in words_of(pages[0])


def test_labels_are_escaped(small):
    schema = small.table.schema
    levels = (("<b>&", *schema.levels[0][1:]), *schema.levels[1:])
    codes = small.table.codes.copy()
    codes[small.risk.rows, 0] = 0
    table = bnp.Microdata(bnp.Schema(("<i>", *schema.variables[1:]), levels), codes)
    risk = dataclasses.replace(small.risk, run=dataclasses.replace(small.run, table=table))
    text = render_report(risk)
    assert "&lt;b&gt;&amp;" in text and "&lt;i&gt;" in text
    assert "<b>&" not in text and "<i>" not in text


def test_a_posterior_that_is_constant_is_said_to_be(small):
    risk = small.risk
    none = {name: 0.0 * vars(risk)[name] for name in ("tau1", "tau1_conditional")}
    text = render_report(dataclasses.replace(risk, **none))
    words = words_of(text)
    assert "0: the same in every draw" in words and "no draw ranks above another" in words
    assert words.count("the same in every draw") == 2
    check_well_formed(text, num_plots=9)


def test_ticks_are_plain():
    values = 1.2e6 + np.random.default_rng(0).random((2, 50))
    words = words_of(trace_plot("x", values))
    assert "1,200,000.4" in words and "+" not in words
    said = [plain_tick(x) for x in (0.1 + 0.2, -0.0, -1234.5, 2e7, 3e-7)]
    assert said == ["0.3", "0", "\N{MINUS SIGN}1,234.5", "20,000,000", "0.0000003"]


def test_it_is_written_whole(small, tmp_path):
    bnp.report.write_report(tmp_path / "report.html", small.risk)
    assert (tmp_path / "report.html").read_text().rstrip().endswith("</html>")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_risk_page_begins_with_the_answer_in_plain_words(small, latent):
    """R-hat and the figures that are not to be quoted come where the chains are judged."""
    summary = bnp.report.risk_summary(small.risk)
    words = words_of(render_report(small.risk))
    top, details = words.split("Have the chains converged?")
    mean = f"{summary['tau1']['mean']:.1f}"
    answer = (
        f"Of the {summary['sample_uniques']} records that are unique in the sample, about {mean} "
        "are expected to be unique in the population too (95% interval"
    )
    assert answer in top and top.index(answer) < top.index("The sample has")
    if not any("R-hat" in sentence for sentence in summary["warnings"]):
        assert "R-hat" not in top
    assert "conditional expectation" not in top and "τ₁, conditional expectation" in details
    assert f"τ₁{summary['usable']['why'][4:]}." in details
    assert "1.01 is the target" in details and "1.1 is the limit of" in details
    made = words_of(
        render_synthesis_report(
            latent.run, bnp.synthesize(latent.run, 2),
            bnp.results.Diagnosis.of(latent.run, latent.margins),
        )
    )  # fmt: skip
    assert "Three limits of R-hat are in use" in made


def test_a_sentence_without_diagnostics():
    from bnp_models.report.pages import environment

    plain = environment().filters["without_diagnostics"]
    said = " can be used: the chains agree on it (R-hat 1.002, 2,017 effective draws), and (so)"
    assert plain(said) == " can be used: the chains agree on it, and (so)"
    assert plain(" is known") == " is known"
