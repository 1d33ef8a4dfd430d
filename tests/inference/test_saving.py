"""Runs that are saved and read again, and read from netCDF files: all that a run can do."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.inference.checkpoint import Checkpoint

SHORT = {"num_chains": 2, "num_warmup": 20, "num_samples": 12}


def assert_same(draws, others):
    assert set(draws) == set(others)
    for name, values in draws.items():
        np.testing.assert_array_equal(values, others[name])


@pytest.fixture(scope="module")
def run(sample_frame):
    """Chains that keep the warm-up, and arrays of every second draw."""
    return bnp.sample(
        bnp.NPLCM(components=4), bnp.Microdata.from_frame(sample_frame), key=jax.random.key(4),
        parameters_every=2, keep_warmup=True, **SHORT,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "chains"
    run.save(path)
    return path


def test_a_saved_run_goes_on_as_the_run_does(run, folder):
    again = bnp.load_run(folder, run.model, run.table)
    assert_same(again.draws, run.draws)
    assert_same(again.warmup_draws, run.warmup_draws)
    for name in ("settings", "capacity", "growth", "seconds", "device"):
        assert getattr(again, name) == getattr(run, name)
    longer, expected = bnp.extend(again, 6), bnp.extend(run, 6)
    assert_same(longer.draws, expected.draws)
    assert not np.array_equal(longer.draws["alpha"][:, 12:], run.draws["alpha"][:, :6])


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_run_is_kept_until_its_successor_is_complete(run, tmp_path, monkeypatch, fails_at):
    """Of three files that are written, the draws, the state or the manifest fails."""
    path = tmp_path / "chains"
    run.save(path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    write, calls = Checkpoint._write, []

    def failing(store, name, content):
        calls.append(name)
        if len(calls) == fails_at:
            raise OSError("no space left on device")
        return write(store, name, content)

    longer = bnp.extend(run, 6)
    monkeypatch.setattr(Checkpoint, "_write", failing)
    with pytest.raises(OSError, match="no space left"):
        longer.save(path)
    assert {name: (path / name).read_bytes() for name in before} == before
    assert_same(bnp.load_run(path).draws, run.draws)
    monkeypatch.setattr(Checkpoint, "_write", write)
    longer.save(path)
    assert_same(bnp.load_run(path).draws, longer.draws)
    assert len(list(path.iterdir())) == 3


def assert_evaluated_as(run, again):
    """Synthetic data, diagnosis and InferenceData are those of the run."""
    for file, other in zip(bnp.synthesize(run, 2), bnp.synthesize(again, 2), strict=True):
        assert file.equals(other)
    assert bnp.diagnose(again).figures == bnp.diagnose(run).figures
    assert bnp.diagnose(again).warnings == bnp.diagnose(run).warnings
    data = again.to_inference_data(parameters=True)
    assert set(data["posterior"]) == set(run.to_inference_data(parameters=True)["posterior"])


def test_a_saved_run_is_evaluated_as_the_run_is(run, folder):
    again = bnp.load_run(folder, run.model, run.table)
    assert_evaluated_as(run, again)
    risks = [bnp.population_risk(one, 20_000, ties="off") for one in (run, again)]
    np.testing.assert_array_equal(risks[0].tau1, risks[1].tau1)


def test_a_run_whose_arrays_grow_goes_on(small, tmp_path):
    small.run.save(tmp_path / "chains")
    again = bnp.load_run(tmp_path / "chains", small.run.model, small.table)
    for leaf, other in zip(*map(jax.tree.leaves, (small.run.state, again.state)), strict=True):
        np.testing.assert_array_equal(leaf, other)
    assert jax.tree.structure(small.run.state) == jax.tree.structure(again.state)


def test_a_netcdf_file_does_all_that_needs_no_state(run, tmp_path):
    path = tmp_path / "posterior.nc"
    bnp.io.write_netcdf(run.to_inference_data(parameters=True), path)
    again = bnp.load_run(path, run.model, run.table, key=run.key)
    assert_same(again.draws, run.draws)
    assert_evaluated_as(run, again)
    with pytest.raises(ValueError, match="it cannot be extended"):
        bnp.extend(again, 2)
    # It can be saved in its turn.
    again.save(tmp_path / "chains")
    assert_same(bnp.load_run(tmp_path / "chains", run.model, run.table).draws, run.draws)
    with pytest.raises(ValueError, match="posterior.nc: the draws of a netCDF file need a key"):
        bnp.load_run(path, run.model, run.table)
    with pytest.raises(bnp.CheckpointError, match="the options of the run are others"):
        bnp.load_run(path, bnp.NPLCM(components=4, a=2.0), run.table, key=run.key)
    bnp.io.write_netcdf(run.to_inference_data(), path)
    with pytest.raises(ValueError, match="it has no 'log_pi', which only .*parameters=True"):
        bnp.load_run(path, run.model, run.table, key=run.key)


def test_draws_of_a_risk_have_their_arrays(run, tmp_path):
    """Every third one of the arrays, which every second draw has: draws two and eight."""
    risk = bnp.population_risk(run, 20_000, ties="off", thin=3)
    data = bnp.to_inference_data(run, risk, parameters=True)
    np.testing.assert_array_equal(data["posterior"]["alpha"], run.draws["alpha"][:, [1, 7]])
    np.testing.assert_array_equal(data["posterior"]["log_pi"], run.draws["log_pi"][:, ::3])
    assert data["posterior"].attrs["thin"] == 6
    bnp.io.write_netcdf(data, tmp_path / "posterior.nc")
    again = bnp.load_run(tmp_path / "posterior.nc", run.model, run.table, key=run.key)
    assert again.settings.num_arrays == 2
    same = bnp.population_risk(again, 20_000, ties="off", thin=1)
    np.testing.assert_allclose(same.tau1_conditional, risk.tau1_conditional, rtol=1e-5)


def test_a_run_of_something_else_is_refused(run, folder, sample_frame, tmp_path):
    other = bnp.Microdata.from_frame(sample_frame.iloc[1:])
    for model, table, name in (
        (bnp.NPLCM(components=4, a=2.0), run.table, "model"), (run.model, other, "sample"),
    ):  # fmt: skip
        with pytest.raises(bnp.CheckpointError, match=f"the {name} of the saved run is another"):
            bnp.load_run(folder, model, table)
    with pytest.raises(bnp.CheckpointError, match="has no saved run; write one with run.save"):
        bnp.load_run(tmp_path / "none", run.model, run.table)
    with pytest.raises(ValueError, match="a saved run has its own key"):
        bnp.load_run(folder, run.model, run.table, key=run.key)


def test_other_versions_and_damage_are_told(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "bnp_models.inference.saving.versions", lambda: {"jax": "0.1", "numpy": "1"}
    )
    run.save(tmp_path)
    with pytest.warns(UserWarning, match="saved with .*jax 0.1.*may be rounded differently"):
        bnp.load_run(tmp_path, run.model, run.table)
    (draws,) = tmp_path.glob("draws-*.npz")
    draws.write_bytes(draws.read_bytes()[:-1])
    with pytest.raises(bnp.CheckpointError, match="damaged or missing"):
        bnp.load_run(tmp_path, run.model, run.table)
    # A checkpoint of `sample` is no saved run.
    bnp.sample(run.model, run.table, key=jax.random.key(1), checkpoint=tmp_path, **SHORT)
    assert "saved run" not in json.loads((tmp_path / "manifest.json").read_bytes())["body"]
    with pytest.raises(bnp.CheckpointError):
        bnp.load_run(tmp_path, run.model, run.table)


def test_what_has_no_state_is_saved_without(run, tmp_path):
    dataclasses.replace(run, state=None, origin=None).save(tmp_path)
    again = bnp.load_run(tmp_path, run.model, run.table)
    assert again.state is None and again.origin is None


def test_keys_of_another_kind_and_arrays_that_grew_are_kept(run, tmp_path):
    key, growth = jax.random.key(5, impl="rbg"), ((3, 8), (9, 16))
    dataclasses.replace(run, key=key, growth=growth).save(tmp_path)
    again = bnp.load_run(tmp_path)
    assert again.key == key and jax.random.key_impl(again.key) == jax.random.key_impl(key)
    assert again.growth == growth and again.origin == run.origin
