"""Propensity scores by trees: files that are alike, and one that only interactions tell apart."""

import numpy as np
import pytest

import bnp_models as bnp


def parity(rng, n, kept):
    """Records of four binary variables of which three have an even sum, or not."""
    schema = bnp.Schema(tuple("wxyz"), (("0", "1"),) * 4)
    codes = rng.integers(2, size=(n, 4))
    if kept:
        codes[:, 2] = (codes[:, 0] + codes[:, 1]) % 2
    return bnp.Microdata(schema, codes)


def test_fresh_records_are_not_told_apart_and_copies_not_at_all():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    original = parity(rng, 2000, kept=True)
    made = parity(rng, 2000, kept=True)
    fresh = bnp.evaluation.tree_propensity(original, made)
    assert fresh == bnp.evaluation.tree_propensity(original, made)
    assert 0.3 < fresh.ratio < 3
    assert fresh.ratio == fresh.pmse / fresh.expected
    assert bnp.evaluation.tree_propensity(original, original).pmse < 1e-12


def test_three_variables_that_pairs_do_not_tell_apart():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(1)
    original, made = parity(rng, 2000, kept=True), parity(rng, 2000, kept=False)
    assert bnp.evaluation.propensity_score(original, made, interactions=True).ratio < 4
    assert bnp.evaluation.tree_propensity(original, made).ratio > 50
