"""Chains of several processes: the draws of one, and what is left where all are killed."""

import json
import socket
import subprocess
import sys
import time

import pytest

from bnp_models.inference import processes

NUM_SAMPLES = 300

WORKER = """
import hashlib, json, sys
import jax, numpy as np
import bnp_models as bnp
from bnp_models.inference import processes

port, number, index, model, num_samples, folder = sys.argv[1:]
if number != "1":
    processes.connect(f"localhost:{port}", int(number), int(index))
frame = bnp.datasets.census_income().sample(150, seed=1)[["age", "sex", "race"]]
plain = {"dish_stride": 0, "cell_stride": 0, "seating_every": 0, "split_merge_every": 0}
models = {
    "hdp": (bnp.HDPMixedMembership(capacity=8, **plain), {"start_components": (2, 6, 3, 4)}),
    "nplcm": (bnp.NPLCM(components=4, split_merge_every=0), {}),
}
model, options = models[model]
run = bnp.sample(
    model, bnp.Microdata.from_frame(frame), key=jax.random.key(0), num_chains=4, num_warmup=20,
    num_samples=int(num_samples), checkpoint=folder, resume=True, checkpoint_seconds=0.0,
    chunk_sweeps=5, **options,
)
leaves = [*run.draws.values(), *jax.tree.leaves(run.state)]
digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()
print(json.dumps({
    "digest": digest, "growth": run.growth, "seconds": run.seconds, "device": run.device,
    "first": processes.is_first(),
}))
"""


def start(number, folder, model="nplcm"):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    said = [[port, number, i, model, NUM_SAMPLES, folder] for i in range(number)]
    return [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, *map(str, one)], stdout=subprocess.PIPE, text=True
        )
        for one in said
    ]


def results(workers):
    said = [worker.communicate(timeout=300)[0] for worker in workers]
    return [json.loads(lines.splitlines()[-1]) for lines in said]


@pytest.mark.long
def test_two_processes_draw_what_one_draws(tmp_path):
    """The same bits, though only some chains outgrew their slots."""
    (alone,) = results(start(1, tmp_path / "1", "hdp"))
    both = results(start(2, tmp_path / "2", "hdp"))
    assert [one["first"] for one in both] == [True, False]
    assert [one["digest"] for one in both] == [alone["digest"]] * 2
    assert both[0]["growth"] == both[1]["growth"] == alone["growth"] != []
    assert both[0]["seconds"] == both[1]["seconds"]
    assert both[0]["device"] == "2 x cpu"


@pytest.mark.long
def test_killed_processes_go_on(tmp_path):
    (alone,) = results(start(1, tmp_path / "alone"))
    folder, manifest = tmp_path / "killed", tmp_path / "killed" / "manifest.json"
    workers = start(2, folder)
    while not manifest.exists():
        assert all(worker.poll() is None for worker in workers)
        time.sleep(0.01)
    for worker in workers:
        worker.kill()
        worker.communicate()
    reached = json.loads(json.loads(manifest.read_text())["body"])["progress"]["iteration"]
    assert reached < NUM_SAMPLES
    assert [one["digest"] for one in results(start(2, folder))] == [alone["digest"]] * 2


def test_processes_have_as_many_chains_each(monkeypatch):
    monkeypatch.setattr(processes.jax, "process_count", lambda: 3)
    monkeypatch.setattr(processes.jax, "process_index", lambda: 1)
    assert processes.share(6) == slice(2, 4)
    with pytest.raises(ValueError, match="4 chains cannot be divided equally among 3 processes"):
        processes.share(4)
