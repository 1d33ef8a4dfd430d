"""The driver: chunks, resuming, devices, capacity, compilation, input."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import bnp_models as bnp
from bnp_models import sampling
from bnp_models.checkpoint import Checkpoint, CheckpointError

SETTINGS = {"num_chains": 2, "num_warmup": 15, "num_samples": 10, "thin": 2}


def equal(a, b):
    return all(np.array_equal(a.draws[name], b.draws[name]) for name in a.draws)


def run(table, seed=0, **options):
    return bnp.sample(
        bnp.HDPMixedMembership(), table, key=jax.random.key(seed), **(SETTINGS | options)
    )


@pytest.fixture(scope="module")
def reference(small):
    return run(small.table)


@pytest.mark.parametrize("chunk_sweeps", [1, 7, 1000])
def test_chunk_size_has_no_effect(small, reference, chunk_sweeps):
    assert equal(run(small.table, chunk_sweeps=chunk_sweeps), reference)


def test_draws_depend_on_the_key_and_on_nothing_else(small, reference):
    assert equal(run(small.table), reference)
    assert not equal(run(small.table, seed=1), reference)


def test_kept_draws_are_those_after_each_thinning(small, reference):
    every = run(small.table, thin=1, num_samples=20)
    for name, value in reference.draws.items():
        np.testing.assert_array_equal(value, every.draws[name][:, 1::2])


def test_a_resumed_run_ends_as_one_that_was_not(small, reference, tmp_path, monkeypatch):
    """Stopped at every checkpoint in turn, and continued."""

    class Stopped(Exception):
        pass

    save = Checkpoint.save

    def save_and_stop(self, *args):
        save(self, *args)
        raise Stopped

    options = {"checkpoint": tmp_path / "c", "chunk_sweeps": 6, "checkpoint_seconds": 0}
    monkeypatch.setattr(Checkpoint, "save", save_and_stop)
    for stops in range(20):
        try:
            resumed = run(small.table, resume=stops > 0, **options)
            break
        except Stopped:
            continue
    assert stops > 4
    assert equal(resumed, reference)


def test_a_checkpoint_of_another_run_is_refused(small, tmp_path):
    options = {"checkpoint": tmp_path / "c", "checkpoint_seconds": 0}
    run(small.table, **options)
    with pytest.raises(CheckpointError, match="other data, settings"):
        run(small.table, seed=1, resume=True, **options)
    run(small.table, seed=1, **options)


@pytest.mark.parametrize("victim", ["manifest.json", "state-*.npz", "draws-*.npz"])
def test_a_flipped_bit_is_noticed(small, tmp_path, victim):
    options = {"checkpoint": tmp_path / "c", "checkpoint_seconds": 0, "chunk_sweeps": 9}
    run(small.table, **options)
    path = next((tmp_path / "c").glob(victim))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        run(small.table, resume=True, **options)


def test_capacity_grows_by_itself(small):
    few = bnp.HDPMixedMembership(capacity=4)
    options = SETTINGS | {"num_warmup": 60}
    grown = bnp.sample(few, small.table, key=jax.random.key(0), **options)
    assert grown.capacity > 4
    assert [capacity for _, capacity in grown.growth] == [
        8 * 2**i for i in range(len(grown.growth))
    ]
    late = grown.draws["left_over"][:, -5:]
    assert late.max() <= sampling.LEFT_OVER_TOLERANCE
    np.testing.assert_allclose(grown.draws["g0"].sum(axis=-1), 1, atol=1e-5)
    again = bnp.sample(few, small.table, key=jax.random.key(0), chunk_sweeps=3, **options)
    assert equal(grown, again) and grown.growth == again.growth


def test_a_second_run_on_data_of_the_same_shape_compiles_nothing(small):
    run(small.table)
    shuffled = bnp.Microdata(small.table.schema, small.table.codes[::-1])
    before = [f._cache_size() for f in (sampling._advance, sampling._init_chains)]
    run(shuffled, seed=5, num_warmup=9, num_samples=13, thin=1)
    assert [f._cache_size() for f in (sampling._advance, sampling._init_chains)] == before


def test_kept_names_are_chosen_and_checked(small):
    kept = run(small.table, keep=("components", "z"))
    assert set(kept.draws) == {"components", "z"}
    with pytest.raises(ValueError, match="no 'nothing'"):
        run(small.table, keep=("nothing",))


@pytest.mark.parametrize(
    "options",
    [{"num_chains": 0}, {"num_samples": 0}, {"thin": 0}, {"num_warmup": -1}, {"num_samples": 2**31},
     {"start_components": ()}, {"chunk_sweeps": 0}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(small, options):
    with pytest.raises(ValueError):
        run(small.table, **options)


DEVICES = """
import json
import jax, numpy as np
import bnp_models as bnp
frame = bnp.datasets.census_income().sample(150, seed=1)[["age", "sex", "race", "education"]]
run = bnp.sample(
    bnp.HDPMixedMembership(concentration="hierarchical"), bnp.Microdata.from_frame(frame),
    key=jax.random.key(0), num_chains=2, num_warmup=15, num_samples=20,
)
draws = run.draws | {"z": np.asarray(run.state.z), "alphas": np.asarray(run.state.alpha)}
shards = len(run.state.z.sharding.device_set)
print(json.dumps({"shards": shards, "draws": {k: v.tobytes().hex() for k, v in draws.items()}}))
"""


def test_one_device_and_eight_give_the_same_draws():
    """Two chains by four parts of the records; the model whose records meet in a float sum."""
    results = []
    for devices in (1, 8):
        environment = os.environ | {
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            "JAX_PLATFORMS": "cpu",
        }
        command = [sys.executable, "-c", DEVICES]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        results.append(json.loads(done.stdout))
    assert [r["shards"] for r in results] == [1, 8]
    assert results[0]["draws"] == results[1]["draws"]
