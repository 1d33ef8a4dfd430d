"""Compiled programs of a long session."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.inference import compilation

SHORT = {"num_chains": 1, "num_warmup": 1, "num_samples": 1}


def test_programs_are_forgotten_before_the_maps_of_the_process_run_out(sample_frame, monkeypatch):
    def run():
        return bnp.sample(bnp.NPLCM(components=3), sample_frame, key=jax.random.key(0), **SHORT)

    def compiled():
        return other._cache_size()

    other = jax.jit(lambda x: x + 1)
    first = run()
    other(np.zeros(3))
    # Most of the maps are free: nothing is forgotten.
    run()
    assert compiled() == 1
    monkeypatch.setattr(compilation, "SHARE_OF_MAPS", 0.0)
    again = run()
    assert compiled() == 0
    np.testing.assert_array_equal(again.draws["alpha"], first.draws["alpha"])


@pytest.mark.parametrize(
    ("platform", "flags", "options"),
    [
        ("PJRT C API\ncuda 12080", "", ((compilation.GRAPHS, compilation.IN_GRAPHS),)),
        ("cuda 12080", f"--{compilation.GRAPHS}=", ()), ("rocm 60300", "", ()), ("cpu", "", ()),
    ],
)  # fmt: skip
def test_loops_are_graphs_on_nvidia_cards_unless_flags_say(platform, flags, options, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", flags)
    device = SimpleNamespace(client=SimpleNamespace(platform_version=platform))
    assert compilation.options_of_loops([device]) == options
