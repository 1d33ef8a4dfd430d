"""What tables, runs and results say of themselves; and digests, which do not depend on it."""

import jax
import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.models.cells.empirical_bayes import EmpiricalBayes
from bnp_models.risk.validation import Split, Validation

DIGESTS = {
    "records": "c462c810a85f6bf8b54247cf2a9d721f3f999ba196289146469df3ccfd36cc45",
    "cells": "6dd5381212307b9a1a4152aad8238d83df925e7e8ba4ff1dd3f2edcd875963b7",
    "households": "a68cd1d04cb0acae1468289310bd475f4cd3284ac0540a20711d4bd61fd7a239",
    "zeros": "3a1da56bcb367265734db260ba5078476653d2fca085f2bc53ae15e8ee97fa6f",
    "weighted": "8044844695040aebfdda5da69497e31f21d2e7a5371ffa15281719ce2492af5d",
}
"""Of `tables`, when `repr` of a schema was that of a dataclass: checkpoints hold them."""


@pytest.fixture(scope="module")
def tables():
    frame = pd.DataFrame({"a": [1, 2, 2, 1], "b": ["x", "y", "x", None]})
    persons = pd.DataFrame({
        "hid": np.repeat(np.arange(6), 2), "role": ["head", "other"] * 6,
        "sex": [*"fmmffm"] * 2, "size": "2",
    })  # fmt: skip
    records = bnp.Microdata.from_frame(frame)
    zero = pd.DataFrame({"a": [1], "b": ["y"]})
    return {
        "records": records,
        "cells": records.tabulated,
        "households": bnp.Households.from_frame(persons, "hid", ["size"], head=("role", "head")),
        "zeros": bnp.StructuralZeros.from_frame(zero, records.schema),
        "weighted": bnp.weighted_microdata(records, np.array([1.0, 1, 2, 2])),
    }


def test_digests_are_those_of_old_checkpoints(tables):
    assert {name: table.digest for name, table in tables.items()} == DIGESTS


def test_tables_have_a_length(tables):
    lengths = {name: len(tables[name]) for name in ("records", "cells", "households", "weighted")}
    assert lengths == {"records": 4, "cells": 4, "households": 6, "weighted": 4}


def test_what_tables_say(tables):
    assert repr(tables["records"]).splitlines() == [
        "Microdata: 4 records of 2 variables",
        "  a        2 levels: 1, 2",
        "  b        2 levels: x, y",
        "  missing  values in 1 record",
    ]
    assert repr(tables["zeros"]).splitlines() == [
        "StructuralZeros: 1 condition",
        "  variables         2",
        "  impossible cells  1 of 4",
        "   a b",
        "   1 y",
    ]
    assert "head                 role = head" in repr(tables["households"])
    assert "design weights  1 to 2, their sum 6" in repr(tables["weighted"])
    assert "4 records in 4 cells" in repr(tables["cells"])


def test_a_wide_table_is_cut_short_and_labels_are_escaped():
    frame = pd.DataFrame({f"v{j}": [f"<b>{i}" for i in range(300)] for j in range(200)})
    table = bnp.Microdata.from_frame(frame)
    for shown in (table, table.schema, table.tabulated):
        assert len(repr(shown)) < 1500 and "190 more variables" in repr(shown)
        html = shown._repr_html_()
        assert "&lt;b&gt;0" in html and "<b>" not in html and len(html) < 4000


def test_results_say_what_they_hold_in_a_few_lines(small):
    """Numbers are those of the result; none is longer than a screen."""
    run, risk = small.run, small.risk
    files = bnp.synthesize(run, 2)
    evaluation = bnp.evaluate(small.table, files)
    ratio = np.mean([score.ratio for score in next(iter(evaluation.scores.values()))])
    said = {
        run: ["Run: 2 chains of 30 draws of hdp", "150 records of 4 variables", "100 sweeps"],
        risk: [f"{len(risk.rows)}\n", f"{risk.tau1.mean():,.4g} (95% interval", "20,000"],
        evaluation: [
            "2 synthetic files",
            f"{evaluation.proportions[2].k_marginal.mean():.6f}",
            f" {ratio:.2f} by main effects",
        ],
        evaluation.proportions[1]: ["4 1-way tables"],
        bnp.results.Diagnosis.of(run, risk): ["tau1_conditional", "ess_bulk"],
        bnp.predictive_checks(run): ["cells of 1"],
        bnp.weighted_cells(small.table, 1000): ["population             1,000"],
        bnp.datasets.census_income(): ["Population: 299,285 persons"],
    }
    for result, parts in said.items():
        text, html = repr(result), result._repr_html_()
        assert len(text) < 1600 and len(text.splitlines()) < 20 and len(html) < 6000
        for part in parts:
            assert part in text, text
        assert "<table" in html


def test_risks_and_margins_say_their_figures(small):
    """Of every class of results that the run above has: the figures that it is read for."""
    run, table = small.run, small.table
    cells = bnp.weighted_cells(table, 1000)
    loglinear = bnp.loglinear_risk(cells, structure="forest")
    of_cells = bnp.cell_risk(bnp.PolettiniStander(1), cells, key=jax.random.key(0), num_samples=9)
    coarser = bnp.coarsen(run, 20_000, ["drop:age"])["drop:age"]
    protection = bnp.protect(run, 20_000, max_tau1=5, max_suppressed=3)
    margins = bnp.level_margins(run)
    split = Split(12, 4, np.array([[3.0, 5.0, 7.0]]))
    draws = bnp.results.HyperparameterDraws(
        {"alpha": np.array([[1.0, 2.0, 6.0]])}, np.zeros((1, 3)),
        {"diverging": np.array([[True, False, True]])}, {},
    )  # fmt: skip
    model = bnp.PolettiniStander(1, alpha=0.25)
    estimate = EmpiricalBayes(model, -1234.5, {"alpha": 0.125}, 3, {})
    said = [
        (loglinear, [f"tau_1 {loglinear.tau1:.4g}", f"tau_2 {loglinear.tau2:.4g}", "forest"]),
        (of_cells, [f"tau_2 {of_cells.tau2.mean():,.4g}", f"{of_cells.risk.max():.6f}"]),
        (coarser, [f"uniques {coarser.sample_uniques}", f"tau_1 {coarser.tau1.mean():,.4g}"]),
        (protection.after, [f"bits lost {protection.after.loss:.3g} a record"]),
        (protection, [
            "limits max_tau1 5", f"recodings {len(protection.recodings)}",
            f"values suppressed {protection.suppressed.sum()}",
            f"tau_1 after {protection.after.tau1.mean():,.4g}",
            "met yes" if protection.met else "met no",
        ]),
        (margins, ["2 chains of 30 draws", f"{margins.draws[..., 0].mean():.6f}"]),
        (Validation((split, split), 0.5), [
            "2 splits, 50% of the sample fitted", "estimates over truths 1.25", "3.1 6.9"
        ]),
        (draws, ["1 chain of 3 draws", "divergences 2", "alpha 3 "]),
        (estimate, ["log-likelihood -1,234.50", "alpha 0.125", "0.25"]),
    ]  # fmt: skip
    for result, parts in said:
        text = " ".join(repr(result).split())
        for part in parts:
            assert part in text, (part, text)
        assert "<table" in result._repr_html_()


def test_models_show_their_options():
    html = bnp.NPLCM(components=7, ordered="a<b")._repr_html_()
    assert "<td>7</td>" in html and "a&lt;b" in html
    assert "variant" in bnp.PolettiniStander(variant=1)._repr_html_()
    assert len(repr(bnp.HDPMixedMembership())) < 600
