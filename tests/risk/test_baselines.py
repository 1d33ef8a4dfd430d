"""Classical estimates beside a model's: which, of which cells, and what is left out."""

import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.risk.baselines import NAMES, baseline_cells, baselines


def test_they_are_those_of_the_functions(small):
    cells = baseline_cells(small.table, 20_000)
    found = baselines(cells).found
    assert tuple(x.name for x in found) == NAMES
    alone = cells.f == 1
    risk = bnp.risk.benedetti_franconi_risk(cells)
    # A sample unique has one person with probability phat.
    assert found[0].tau1 == pytest.approx(alone.sum() * small.table.n / 20_000)
    assert found[0].tau2 == pytest.approx(risk[alone].sum())
    for one, structure in zip(
        found[1:], ("independence", "two-way", "forest", "search"), strict=True
    ):
        fitted = bnp.loglinear_risk(cells, structure=structure)
        assert one.tau1 == pytest.approx(fitted.p_unique.sum())
        assert one.tau2 == pytest.approx(fitted.risk[alone].sum())
        assert (fitted.tau1, fitted.tau2) == (one.tau1, one.tau2)


def test_design_weights_and_counted_cells(small):
    """A contingency table has its records' cells; weights that differ have cells of their own."""
    plain = baseline_cells(small.table, 20_000)
    counted = baseline_cells(small.table.tabulated, 20_000)
    for name in ("codes", "f", "weight"):
        np.testing.assert_array_equal(vars(plain)[name], vars(counted)[name])
    weights = np.random.default_rng(0).choice([40.0, 200.0], small.table.n)
    weighted = baseline_cells(bnp.weighted_microdata(small.table, weights), 20_000)
    expected = bnp.weighted_cells(small.table, 20_000, weights)
    np.testing.assert_array_equal(weighted.weight, expected.weight)
    assert baselines(weighted).found[2].tau1 != baselines(plain).found[2].tau1
    with pytest.raises(bnp.MicrodataError, match="a contingency table has only cell counts"):
        bnp.weighted_cells(small.table.tabulated, 20_000, weights)


def test_what_cannot_be_fitted_is_left_out_with_a_reason():
    """Nine variables of thirty levels each: too many cells; 40,000 records: no search."""
    codes = np.random.default_rng(1).integers(30, size=(40_000, 9)).astype(np.int32)
    names, levels = tuple(f"v{j}" for j in range(9)), (tuple(range(30)),) * 9
    cells = bnp.weighted_cells(bnp.Microdata(bnp.Schema(names, levels), codes), 90_000)
    document = baselines(cells).document()
    assert [row["name"] for row in document["baselines"]] == [
        "benedetti_franconi", "loglinear_main", "loglinear_forest",
    ]  # fmt: skip
    reasons = {row["name"]: row["why"] for row in document["baselines_left_out"]}
    assert list(reasons) == ["loglinear_two_way", "loglinear_search"]
    assert "more than 131072 cells" in reasons["loglinear_two_way"]
    assert "would take long" in reasons["loglinear_search"]
