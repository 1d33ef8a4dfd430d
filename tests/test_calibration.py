"""A small simulation-based calibration, and the same with a wrong prior, which it must see."""

import importlib.util
from pathlib import Path

import jax
import pytest

from bnp_models.hdp import HDPMixedMembership

PATH = Path(__file__).parents[1] / "experiments" / "calibration" / "sbc.py"
MOVES = {"dish_stride": 4, "cell_stride": 1, "split_merge_every": 4}


@pytest.fixture(scope="module")
def sbc():
    spec = importlib.util.spec_from_file_location("sbc", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def p_values(sbc, **wrong):
    model = HDPMixedMembership(**MOVES, **wrong)
    truth = HDPMixedMembership(**MOVES)
    found = sbc.ranks(
        model, jax.random.key(1), 96, truth=truth, burn=100, thin=4, batch=96
    )  # fmt: skip
    return {name: sbc.uniformity(rank, num_bins=6) for name, rank in found.items()}


def test_ranks_of_alpha0_and_tau1_are_uniform(sbc):
    assert min(p_values(sbc).values()) > 1e-4


def test_a_wrong_prior_is_seen(sbc):
    assert p_values(sbc, b0=6.0)["alpha0"] < 1e-4
