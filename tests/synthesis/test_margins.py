"""Margins of a latent class model: their names, and every how many draws."""

import numpy as np
import pytest

import bnp_models as bnp


def test_margins_are_named_and_thinned(latent):
    margins = latent.margins
    assert margins.names[0] == "margin age=0-14"
    assert margins.draws.shape == (2, 30, len(margins.names))
    assert margins.draws[:, :, :8].sum(axis=2) == pytest.approx(np.ones((2, 30)), rel=1e-5)
    few = bnp.level_margins(latent.run, max_draws=10)
    assert few.thin == 3
    np.testing.assert_array_equal(few.draws, margins.draws[:, ::3])
