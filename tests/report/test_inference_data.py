"""InferenceData as ArviZ's functions read it, of the generation that is installed."""

import dataclasses
from types import SimpleNamespace

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.inference.arviz import draws_dataset, has_data_trees, load_arviz

matplotlib.use("agg")

# ArviZ warns of so few draws, and of its own next version.
of_few_draws = pytest.mark.filterwarnings("ignore")


def groups(data):
    """Names of the groups."""
    return set(data.children if has_data_trees() else data.groups())


def plot_checks(az, data, names):
    """Draw the replicates beside the sample, by the name that this ArviZ has for it."""
    if has_data_trees():
        return az.plot_ppc_dist(data, var_names=names, backend="matplotlib")
    return az.plot_ppc(data, var_names=names, kind="cumulative", num_pp_samples=5)


def plot_traces(az, data, names):
    """Draw traces with matplotlib."""
    how = {"backend": "matplotlib"} if has_data_trees() else {}
    return az.plot_trace(data, var_names=names, **how)


@pytest.fixture
def of_arviz():
    """ArviZ; its plots are closed."""
    yield load_arviz()
    plt.close("all")


@pytest.fixture(scope="module")
def whole(small):
    """All groups of the small run."""
    checks = bnp.predictive_checks(small.run, 10)
    return SimpleNamespace(checks=checks, data=bnp.to_inference_data(
        small.run, small.risk, parameters=True, checks=checks, pointwise=True
    ))  # fmt: skip


def test_groups(small, whole):
    assert groups(whole.data) == {
        "posterior", "sample_stats", "log_likelihood", "posterior_predictive", "observed_data",
        "constant_data",
    }  # fmt: skip
    constant = whole.data["constant_data"]
    assert int(constant["num_records"]) == small.table.n
    assert int(constant["population_size"]) == 20_000
    of_sex = constant["variable_level"][constant["variable"] == "sex"]
    labels = small.table.schema.levels[1]
    assert list(of_sex.values) == [f"sex={label}" for label in labels]
    assert list(constant["level"].sel(variable_level=of_sex).values) == list(labels)


@of_few_draws
def test_summary_and_traces(small, whole, of_arviz):
    names = ["tau1", "tau2", "alpha", "components"]
    table = of_arviz.summary(whole.data, var_names=names, round_to="none")
    assert list(table.index) == names
    np.testing.assert_allclose(table["mean"].astype(float)["tau1"], small.risk.tau1.mean())
    label = f"sex={small.table.schema.levels[1][0]}"
    levels = of_arviz.summary(
        whole.data, var_names=["theta"], coords={"component": [0], "variable_level": [label]}
    )
    assert list(levels.index) == [f"theta[{label}, 0]"]
    plot_traces(of_arviz, whole.data, names)


@of_few_draws
def test_judgement_by_the_records(small, whole, of_arviz):
    log_p = whole.data["log_likelihood"]["record"]
    assert log_p.dims == ("chain", "draw", "row")
    assert log_p.shape == (*small.risk.tau1.shape, small.table.n)
    np.testing.assert_allclose(log_p.sum("row"), small.risk.log_likelihood, rtol=1e-5)
    found = of_arviz.loo(whole.data)
    elpd = found.elpd if has_data_trees() else found.elpd_loo
    assert log_p.mean(("chain", "draw")).sum() > elpd > -np.inf
    # A model whose records all are a nat less likely is the worse one by n nats.
    other = bnp.to_inference_data(small.run, small.risk, pointwise=True)
    other["log_likelihood"]["record"] = log_p - 1
    compared = of_arviz.compare({"other": other, "one": whole.data})
    assert list(compared.index) == ["one", "other"]
    difference = compared["elpd_diff"].astype(float).abs().max()
    assert difference == pytest.approx(small.table.n, rel=0.1)


@of_few_draws
def test_checks(whole, of_arviz):
    replicated, observed = whole.data["posterior_predictive"], whole.data["observed_data"]
    cells = whole.checks.cells
    names = [f"cells_with_{size}" for size in (1, 2, 3)]
    for name, check in zip(names, cells.values(), strict=True):
        assert observed[name].shape == () and observed[name] == check.observed
        np.testing.assert_array_equal(replicated[name], check.replicated)
    distance = whole.checks.pairs["age", "sex"].observed
    assert observed["table_distance"].sel(pair="age, sex") == distance
    # A plot for each number of records, and not one of all three numbers together.
    drawn = plot_checks(of_arviz, whole.data, names)
    assert has_data_trees() or np.size(drawn) == 3


@of_few_draws
def test_axes_of_latent_classes(latent, of_arviz):
    checks = bnp.predictive_checks(latent.run, 10)
    data = bnp.to_inference_data(latent.run, parameters=True, checks=checks)
    levels = data["posterior"]["log_lambda"]
    assert levels.dims == ("chain", "draw", "variable_level", "latent_class")
    schema, start = latent.table.schema, 0
    for variable, of in zip(schema.variables, schema.levels, strict=True):
        part = levels.sel(variable_level=[f"{variable}={level}" for level in of])
        expected = latent.run.draws["log_lambda"][:, :, start : start + len(of)]
        np.testing.assert_array_equal(part, expected)
        start += len(of)
    assert list(data["constant_data"]["variable"].values[-len(of) :]) == [variable] * len(of)
    boxes = data["observed_data"]["records_in_box"]
    assert len(boxes) == len(latent.conditions.feasible) and boxes.sum() == latent.table.n
    # Everything at once, of three classes.
    draws = {name: values[..., :3] if name in ("log_pi", "log_lambda") else values
             for name, values in latent.run.draws.items()}  # fmt: skip
    few = dataclasses.replace(latent.run, draws=draws).to_inference_data(parameters=True)
    num_levels = sum(schema.num_levels)
    scalars = sum(values.ndim == 2 for values in few["posterior"].data_vars.values())
    assert len(of_arviz.summary(few)) == scalars + 3 + 3 * num_levels + num_levels
    plot_traces(of_arviz, data, ["total_log_likelihood", "alpha"])


def test_shapes_of_bands_have_an_axis_of_their_own():
    """An ordered variable has shapes of its bands behind those of its levels."""
    labels = {"variable_level": {"a": tuple(range(9)), "b": (0, 1)}}
    arrays = {"level_shape": np.zeros((2, 3, 14)), "theta": np.zeros((2, 3, 11, 4))}
    data = draws_dataset(arrays, bnp.HDPMixedMembership(ordered=["a"]), labels)
    assert data["level_shape"].dims[2] == "variable_level_or_band"
    assert list(data["variable_level"].values[-3:]) == ["a=8", "b=0", "b=1"]
