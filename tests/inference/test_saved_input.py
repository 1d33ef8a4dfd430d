"""Runs of every model are read from their folders alone, and go on, are evaluated and released."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.inference.saved_input import as_json, from_json
from bnp_models.risk.households import household_risk
from bnp_models.rules import at_most, person, predicate

SHORT = {"num_chains": 2, "num_warmup": 4, "num_samples": 4}
RUNS = "hdp", "hdp-zeros", "mixed-membership", "nplcm", "nplcm-cells", "nplcm-weights", "tnplcm"


@pytest.fixture(scope="module")
def samples(sample_frame, incomplete_frame, conditions_frame):
    """Model, sample and conditions of each run."""
    table, some = bnp.Microdata.from_frame(sample_frame), bnp.Microdata.from_frame(incomplete_frame)
    whole = bnp.Microdata.from_frame(incomplete_frame.dropna())
    homes = bnp.datasets.bay_area_households().sample(20, seed=0).households()
    levels = table.schema.levels[-1]
    groups = pd.DataFrame({"level": levels, "group": [str(label)[:1] for label in levels]})

    # One row stands for several combinations, so that conditions and rows differ.
    old = pd.DataFrame({"age": ["0-14|15-24"], "marital_status": ["Widowed"]})
    rows = pd.concat([old, conditions_frame], ignore_index=True)

    def zeros(of):
        return bnp.StructuralZeros.from_frame(rows, of.schema)

    return {
        "hdp": (bnp.HDPMixedMembership(a0=3.0, ordered=["age"]), table, None),
        "hdp-zeros": (bnp.HDPMixedMembership(not_applicable=True), whole, zeros(whole)),
        "mixed-membership": (bnp.MixedMembership(4, groups={"education": groups}), table, None),
        "nplcm": (bnp.NPLCM(4, a=jnp.float32(0.5), level_shape=0.75), table, None),
        "nplcm-cells": (bnp.NPLCM(4), table.tabulated, None),
        "nplcm-weights": (
            bnp.NPLCM(4), bnp.weighted_microdata(table, np.linspace(2.0, 90.0, table.n)), None,
        ),
        "tnplcm": (bnp.TNPLCM(4), some, zeros(some)),
        "ndpmpm": (bnp.NDPMPM(3, 2, beta=2.0), homes, bnp.census_relationships(homes)),
        "ndpmpm-weights": (
            bnp.NDPMPM(3, 2), bnp.data.weighted_households(homes, 2.0 + np.arange(homes.n) % 3),
            None,
        ),
    }  # fmt: skip


@pytest.fixture(scope="module")
def run_of(samples):
    """Make the run of a name, once."""
    made = {}

    def run(name):
        if name not in made:
            model, table, conditions = samples[name]
            made[name] = bnp.sample(
                model, table, key=jax.random.key(3), conditions=conditions, **SHORT
            )
        return made[name]

    return run


def assert_same(draws, others):
    assert set(draws) == set(others)
    for name, values in draws.items():
        np.testing.assert_array_equal(values, others[name])


def assert_same_fields(made, other):
    assert type(made) is type(other)
    for name, value in vars(made).items():
        if name in {field.name for field in dataclasses.fields(made)}:
            np.testing.assert_array_equal(value, getattr(other, name))


@pytest.mark.parametrize("name", [*RUNS, "ndpmpm"])
def test_a_run_is_read_from_its_folder_alone(name, run_of, tmp_path):
    run = run_of(name)
    run.save(tmp_path / "run")
    again = bnp.load_run(tmp_path / "run")
    assert type(again.model) is type(run.model) and repr(again.model) == repr(run.model)
    assert jax.tree.structure(again.model) == jax.tree.structure(run.model)
    assert_same_fields(again.table, run.table)
    assert again.table.digest == run.table.digest
    if isinstance(run.conditions, bnp.StructuralZeros):
        assert_same_fields(again.conditions, run.conditions)
    else:
        assert again.conditions == run.conditions
    assert_same(again.draws, run.draws)
    assert_same(bnp.extend(again, 3).draws, bnp.extend(run, 3).draws)
    for file, other in zip(bnp.synthesize(run, 2), bnp.synthesize(again, 2), strict=True):
        assert file.to_csv() == other.to_csv() if hasattr(file, "to_csv") else (
            file.digest == other.digest
        )  # fmt: skip
    evaluate = household_risk if name == "ndpmpm" else bnp.population_risk
    risks = [evaluate(one, 20_000, ties="off") for one in (run, again)]
    assert repr(risks[0]) == repr(risks[1])
    assert risks[0].records().equals(risks[1].records())


IN_A_NEW_PROCESS = """
import sys
import jax, numpy as np
import bnp_models as bnp
jax.config.update("jax_disable_most_optimizations", True)
run = bnp.extend(bnp.load_run(sys.argv[1]), 3)
risk = bnp.population_risk(run, 20_000, ties="off")
np.savez(sys.argv[2], tau1=risk.tau1, **run.draws)
"""


def test_a_new_process_goes_on_with_the_same_draws(run_of, tmp_path):
    run = run_of("hdp-zeros")
    run.save(tmp_path / "run")
    command = [sys.executable, "-c", IN_A_NEW_PROCESS, tmp_path / "run", tmp_path / "draws.npz"]
    subprocess.run(command, check=True, env=dict(os.environ))
    longer = bnp.extend(run, 3)
    risk = bnp.population_risk(longer, 20_000, ties="off")
    with np.load(tmp_path / "draws.npz") as found:
        assert_same(longer.draws | {"tau1": risk.tau1}, dict(found))


def test_folders_hold_no_pickles_and_are_private(run_of, tmp_path):
    run_of("tnplcm").save(tmp_path / "run")
    for path in (tmp_path / "run").iterdir():
        assert path.stat().st_mode & 0o077 == 0
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                assert all(arrays[name].dtype != object for name in arrays.files)


def test_every_damaged_byte_is_seen(run_of, tmp_path):
    run_of("nplcm").save(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for place in np.linspace(0, len(whole) - 1, 7).astype(int):
            damaged = bytearray(whole)
            damaged[place] ^= 1
            path.write_bytes(damaged)
            with pytest.raises(bnp.CheckpointError, match="damaged"):
                bnp.load_run(tmp_path)
        path.write_bytes(whole)
    assert_same(bnp.load_run(tmp_path).draws, run_of("nplcm").draws)


def altered(folder, change):
    """Change the manifest's progress as somebody would who also knows its digest."""
    path = folder / "manifest.json"
    body = json.loads(json.loads(path.read_bytes())["body"])
    change(body["progress"])
    text = json.dumps(body, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps({"sha256": digest, "body": text}))


def test_input_of_another_run_or_version_is_refused(run_of, tmp_path):
    run = run_of("hdp-zeros")
    run.save(tmp_path)

    def another_prior(progress):
        progress["input"]["model"]["value"]["fields"]["a0"] = 9.0

    altered(tmp_path, another_prior)
    with pytest.raises(bnp.CheckpointError, match="the model of the saved run is another"):
        bnp.load_run(tmp_path)

    run.save(tmp_path)
    fewer = pd.DataFrame({"age": ["0-14"], "marital_status": ["Widowed"]})
    with pytest.raises(bnp.CheckpointError, match="the conditions of the saved run is another"):
        bnp.load_run(tmp_path, conditions=fewer)

    def another_level(progress):
        progress["input"]["sample"]["value"]["fields"]["schema"]["fields"]["levels"][0][0] = "none"

    run.save(tmp_path)
    altered(tmp_path, another_level)
    with pytest.raises(ValueError, match="the conditions were made for another schema"):
        bnp.load_run(tmp_path)

    for option, name in (("of_later_versions", "HDPMixedMembership"), (None, "os.system")):

        def unknown(progress, option=option, name=name):
            value = progress["input"]["model"]["value"]
            value["class"] = name
            if option:
                value["fields"][option] = 1

        run.save(tmp_path)
        altered(tmp_path, unknown)
        with pytest.raises(bnp.CheckpointError, match="model cannot be read .* give load_run"):
            bnp.load_run(tmp_path)
        assert_same(bnp.load_run(tmp_path, run.model).draws, run.draws)


class OwnModel(bnp.NPLCM):
    """A user's own model."""


class NPLCM(bnp.NPLCM):
    """A user's own model, under a name of the package."""


@pytest.mark.parametrize("kind", [OwnModel, NPLCM])
def test_a_model_of_a_users_own_is_asked_for(kind, run_of, tmp_path):
    run = dataclasses.replace(run_of("nplcm"), model=kind(4, a=jnp.float32(0.5), level_shape=0.75))
    run.save(tmp_path)
    asked = rf"no model \(objects of the class {kind.__name__} cannot .*load_run\(path, model="
    with pytest.raises(ValueError, match=asked):
        bnp.load_run(tmp_path)
    again = bnp.load_run(tmp_path, model=run.model)
    assert again.model is run.model and again.table.digest == run.table.digest
    assert_same(again.draws, run.draws)


def test_rules_of_python_functions_are_asked_for(run_of, tmp_path):
    any_household = predicate(lambda view: view.everyone().any(-1), "anyone")
    run = run_of("ndpmpm")
    for more in (at_most(9, person(relate="Stepchild")), any_household):
        told = dataclasses.replace(run, conditions=run.conditions + more)
        told.save(tmp_path)
        if more is any_household:
            with pytest.raises(ValueError, match=r"no conditions .*load_run\(path, conditions="):
                bnp.load_run(tmp_path)
            again = bnp.load_run(tmp_path, conditions=told.conditions)
        else:
            again = bnp.load_run(tmp_path)
        assert again.conditions == told.conditions


def test_a_sample_with_unusual_labels_is_asked_for(tmp_path):
    frame = pd.DataFrame({"age": pd.cut(np.arange(60) % 50, 5), "sex": ["f", "m", None] * 20})
    table = bnp.Microdata.from_frame(frame)
    run = bnp.sample(bnp.NPLCM(3), table, key=jax.random.key(0), **SHORT)
    run.save(tmp_path)
    with pytest.raises(ValueError, match=r"no sample \(.* Interval .*load_run\(path, table="):
        bnp.load_run(tmp_path)
    assert_same(bnp.load_run(tmp_path, table=frame).draws, run.draws)


def test_a_netcdf_file_asks_for_model_and_sample(run_of, tmp_path):
    run, path = run_of("nplcm"), tmp_path / "posterior.nc"
    bnp.io.write_netcdf(run.to_inference_data(parameters=True), path)
    with pytest.raises(ValueError, match="neither the model nor the sample; give load_run"):
        bnp.load_run(path, key=run.key)


def test_values_are_read_as_they_were_written():
    values = (
        None, True, 7, 2**70, 0.1, -0.0, float("inf"), "é\udcff", ("a", ("b",), ()),
        np.float64(0.1), np.array([[1, -1]], np.int32), np.array(["x", None, 3], object),
        np.array([], object), np.array(["x", "yz"]), np.array(["2020-01-01"], "datetime64[D]"),
        jnp.float32(0.3), bnp.Schema(("a",), (("x", 1, 2.5, True, None),)),
    )  # fmt: skip
    arrays = {}
    again = from_json(json.loads(json.dumps(as_json(values, arrays, "sample "))), arrays)
    for value, other in zip(values, again, strict=True):
        assert type(value) is type(other) and repr(value) == repr(other)
