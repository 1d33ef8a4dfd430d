"""A small simulation-based calibration, and the same with a wrong prior, which it must see."""

import importlib.util
from pathlib import Path

import jax
import pytest

from bnp_models import NPLCM, TNPLCM, HDPMixedMembership

PATH = Path(__file__).parents[1] / "experiments" / "accuracy" / "calibration" / "sbc.py"
pytestmark = pytest.mark.long

MOVES = {"dish_stride": 4, "cell_stride": 0, "split_merge_every": 0, "level_prior": "uniform"}
# Under the learned prior next to nothing may be feasible, and populations are drawn by rejection.
FEW = {"components": 8, "split_merge_every": 0, "level_prior": "uniform"}


@pytest.fixture(scope="module")
def sbc():
    spec = importlib.util.spec_from_file_location("sbc", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def p_values(sbc, model, truth, **run):
    found = sbc.ranks(
        model, jax.random.key(1), 96, truth=truth, run=sbc.Run(**run), batch=96
    )  # fmt: skip
    return {name: sbc.uniformity(rank, num_bins=6) for name, rank in found.items()}


def mixed_membership(sbc, **wrong):
    return p_values(
        sbc, HDPMixedMembership(**MOVES, **wrong), HDPMixedMembership(**MOVES), burn=100, thin=4
    )


def test_ranks_of_alpha0_and_tau1_are_uniform(sbc):
    assert min(mixed_membership(sbc).values()) > 1e-4


def test_a_wrong_prior_is_seen(sbc):
    assert mixed_membership(sbc, b0=6.0)["alpha0"] < 1e-4


def latent_classes(sbc, **wrong):
    return p_values(sbc, TNPLCM(**FEW, **wrong), TNPLCM(**FEW), burn=100, thin=8)


def test_ranks_under_structural_zeros_are_uniform(sbc):
    """alpha, a margin and tau_1."""
    assert min(latent_classes(sbc).values()) > 1e-4


def test_ranks_with_an_ordered_variable_are_uniform(sbc):
    """c and beta are of its bands."""
    model = NPLCM(components=8, ordered="v2")
    assert min(p_values(sbc, model, model, burn=100, thin=8).values()) > 1e-4


def test_a_wrong_prior_is_seen_under_structural_zeros(sbc):
    assert latent_classes(sbc, a=2.0, b=1.0)["alpha"] < 1e-4
