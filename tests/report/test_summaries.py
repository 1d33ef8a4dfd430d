"""Draws for ArviZ of both generations, and files that no crash can halve."""

import dataclasses
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bnp_models as bnp
from bnp_models.inference import arviz as inference_arviz
from bnp_models.inference.arviz import load_arviz
from bnp_models.inference.run import Until
from bnp_models.report import summaries


def fake_arviz_1():
    """What of ArviZ 1.x the adapter asks for: its version; the draws are then a DataTree."""
    return SimpleNamespace(__version__="1.2.0")


@pytest.fixture(params=["installed", "1.x"])
def arviz(request, monkeypatch):
    if request.param == "1.x":
        monkeypatch.setattr(inference_arviz, "load_arviz", fake_arviz_1)
    return request.param


def test_groups_and_dimensions(small, arviz):
    data = bnp.to_inference_data(small.run, small.risk, seed=5)
    posterior, stats = data["posterior"], data["sample_stats"]
    assert set(posterior.data_vars) == {
        "components", "alpha", "alpha0", "alpha_rate", "log_feasible", "tau1", "tau1_conditional",
        "tau2", "tau2_conditional", "total_log_likelihood", "tie_shape", "tie_exponent",
    }  # fmt: skip
    assert set(stats.data_vars) == {
        "tables", "log_likelihood_items", "left_over", "augmented", "accepted_tilts",
        "accepted_trajectories",
    }  # fmt: skip
    for group in (posterior, stats):
        assert all(values.dims == ("chain", "draw") for values in group.data_vars.values())
        assert (
            abs(datetime.now(UTC) - datetime.fromisoformat(group.attrs["created_at"])).seconds < 60
        )
        assert group.attrs["inference_library"] == "bnp-models"
        assert group.attrs["inference_library_version"] == bnp.__version__
        assert group.attrs["model"] == "hdp"
        assert group.attrs["seed"] == 5
        assert group.attrs["bnp_models_version"] == bnp.__version__
    np.testing.assert_array_equal(posterior["alpha"], small.run.draws["alpha"])
    np.testing.assert_array_equal(posterior["tau1"], small.risk.tau1)


def test_netcdf_opens_in_both_readers_and_is_deterministic(small, arviz, tmp_path):
    for name in ("a.nc", "b.nc"):
        time.sleep(1.1)  # HDF5 can keep times, in whole seconds
        data = bnp.to_inference_data(small.run, small.risk, parameters=True)
        bnp.io.write_netcdf(data, tmp_path / name)
        assert "created_at" in data["posterior"].attrs
    assert (tmp_path / "a.nc").read_bytes() == (tmp_path / "b.nc").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.nc", "b.nc"]
    old = load_arviz().from_netcdf(str(tmp_path / "a.nc"))
    np.testing.assert_array_equal(old["posterior"]["tau2"], small.risk.tau2)
    with xr.open_datatree(tmp_path / "a.nc", engine="h5netcdf") as tree:
        np.testing.assert_array_equal(tree["posterior"]["tau2"], small.risk.tau2)
        assert tree["sample_stats"]["tables"].dims == ("chain", "draw")
        assert "created_at" not in tree["posterior"].attrs
        label = small.table.schema.levels[1][0]
        np.testing.assert_array_equal(
            tree["posterior"]["theta"].sel(variable_level=f"sex={label}"),
            small.run.draws["theta"][:, :, small.table.schema.num_levels[0]],
        )


def test_parameters_only_when_asked(small):
    data = bnp.to_inference_data(small.run, parameters=True)
    assert data["posterior"]["theta"].shape == small.run.draws["theta"].shape
    assert "tau1" not in data["posterior"]
    assert "theta" not in small.run.to_inference_data()["posterior"]
    assert "theta" in small.run.to_inference_data(parameters=True)["posterior"]


def test_a_thinned_risk_thins_everything(small):
    half = {name: getattr(small.risk, name)[:, ::2]
            for name in ("tau1", "tau1_conditional", "tau2", "tau2_conditional",
                         "log_likelihood")}  # fmt: skip
    risk = dataclasses.replace(small.risk, thin=2, overdispersion=None, **half)
    data = bnp.to_inference_data(small.run, risk)
    assert data["posterior"].sizes["draw"] == 15
    np.testing.assert_array_equal(data["posterior"]["alpha"], small.run.draws["alpha"][:, ::2])
    np.testing.assert_array_equal(data["sample_stats"]["tables"],
                                  small.run.draws["tables"][:, ::2])  # fmt: skip
    assert data["posterior"].attrs["thin"] == 2


def test_latent_class_runs(latent):
    data = bnp.to_inference_data(latent.run, parameters=True)
    assert set(data["posterior"].data_vars) == {
        "alpha", "components", "total_log_likelihood", "log_feasible", "log_pi", "log_lambda",
        "level_shape",
    }  # fmt: skip
    stats = set(data["sample_stats"].data_vars)
    assert {"last_class", "augmented", "accepted_levels"} <= stats
    assert stats <= set(inference_arviz.SAMPLE_STATS)


def test_summary_of_a_run_that_makes_data(latent):
    diagnosis = bnp.results.Diagnosis.of(latent.run, latent.margins)
    summary = bnp.report.run_summary(latent.run, diagnosis, seed=3)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert list(summary)[-2:] == ["seconds", "sweeps_per_second"]
    assert summary["missing"] == (latent.table.codes < 0).sum()
    assert summary["augmented"] == latent.run.draws["augmented"].mean()
    assert summary["impossible_cells"] == latent.conditions.num_impossible_cells
    p_zero = 1 - np.exp(latent.run.draws["log_feasible"].astype(float))
    assert summary["p_zero"]["mean"] == pytest.approx(p_zero.mean())
    assert list(summary["diagnostics"])[:3] == ["log_likelihood", "components", "alpha"]
    assert len(summary["diagnostics"]) == 6
    assert summary["modes"] == bnp.diagnose(diagnosis.draws).modes.document()
    assert summary["equivalences"] == [str(e) for e in latent.conditions.equivalences]
    assert any("if and only if" in sentence for sentence in summary["equivalences"])
    free = dataclasses.replace(latent.run, conditions=None)
    assert not {"p_zero", "equivalences", "stopping"} & set(bnp.report.run_summary(free))


def test_a_risk_under_structural_zeros_says_their_mass(small):
    impossible = pd.DataFrame({"age": ["0-14"], "education": ["Bachelor or higher"]})
    zeros = bnp.StructuralZeros.from_frame(impossible, small.table.schema)
    log_feasible = np.full_like(small.run.draws["alpha"], np.log(0.75))
    draws = small.run.draws | {"log_feasible": log_feasible}
    run = dataclasses.replace(small.run, conditions=zeros, draws=draws)
    summary = bnp.report.risk_summary(dataclasses.replace(small.risk, run=run))
    assert summary["p_zero"]["mean"] == pytest.approx(0.25) and summary["equivalences"] == []
    assert not {"p_zero", "equivalences"} & set(bnp.report.risk_summary(small.risk))


def test_summary_of_a_run_with_a_target(small, latent):
    first = dataclasses.replace(small.run.settings, num_samples=10, thin=1)
    settings = dataclasses.replace(small.run.settings, thin=2)
    run = dataclasses.replace(small.run, settings=settings,
                              until=Until(bnp.Converged(1.02, 50), 7, first))  # fmt: skip
    summary = bnp.report.risk_summary(dataclasses.replace(small.risk, run=run))
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["stopping"] == {
        "reached": False, "max_rhat": 1.02, "min_ess": 50.0, "max_minutes": 7, "draws": 60,
        "kept": 30, "thin": 2,
    }  # fmt: skip
    own = Until(lambda run: True, 7, first)
    summary = bnp.report.run_summary(dataclasses.replace(latent.run, until=own))
    assert summary["stopping"]["reached"] and "max_rhat" not in summary["stopping"]


def test_figures():
    figures = summaries.figures_of(np.arange(101.0).reshape(1, 101))
    assert figures == {
        "mean": 50.0, "sd": pytest.approx(np.sqrt(858.5)), "q025": 2.5, "q05": 5.0, "q50": 50.0,
        "q95": 95.0, "q975": 97.5,
    }  # fmt: skip
    assert summaries.figures_of(np.ones((1, 1)))["sd"] == 0


def test_the_share_of_a_variable_is_what_dropping_it_takes_away(small):
    """Of 8 sample uniques that are unique in the population, 2 are left without sex."""
    eight, two = np.tile([4.0, 12.0], (2, 15)), SimpleNamespace(tau1=np.array([1.0, 3.0]))
    risk = dataclasses.replace(small.risk, tau1=eight)
    coarser = {"drop:sex": two, "drop:race": SimpleNamespace(tau1=np.full(3, 8.0))}
    found = summaries.contributions(risk, coarser)
    assert {name: of["share"] for name, of in found.items()} == {
        "age": None, "sex": 0.75, "race": 0.0, "education": None,
    }  # fmt: skip
    nothing = dataclasses.replace(small.risk, tau1=np.zeros((2, 30)))
    assert summaries.contributions(nothing, coarser)["sex"]["share"] is None


def test_records_read_back_to_eight_digits(small, tmp_path):
    bnp.io.write_records(small.risk, tmp_path / "records.csv")
    read = pd.read_csv(tmp_path / "records.csv", dtype=str).astype({"r1": float, "r2": float})
    records = small.risk.records()
    np.testing.assert_allclose(read["r1"], records["r1"], rtol=1e-7)
    np.testing.assert_allclose(read["r2"], records["r2"], rtol=1e-7)
    assert read["r1"].sum() == pytest.approx(small.risk.tau1_conditional.mean(), rel=1e-7)


FULL = """
import resource, signal, sys
import numpy as np
import bnp_models as bnp
from bnp_models.inference.arviz import draws_dataset, groups_for_arviz

data = groups_for_arviz({"posterior": draws_dataset({"tau1": np.random.random((2, 5000))})}, {})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    bnp.io.write_netcdf(data, sys.argv[1])
except OSError as error:
    print(error)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process")
def test_a_disk_that_is_full_does_not_end_the_process(tmp_path):
    words = [sys.executable, "-c", FULL, str(tmp_path / "posterior.nc")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stdout and "posterior.nc" in done.stdout
    assert not list(tmp_path.iterdir())
