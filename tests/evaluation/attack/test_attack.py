"""Attack risks as users get them: from a run, a file, with outliers, errors, warnings."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp
from bnp_models.evaluation.attack.posterior import choose_draws
from bnp_models.inference import compilation
from bnp_models.inference.run import spaced_positions

SMALL = {"num_bootstrap": 200, "max_draws": 2000}


@pytest.fixture(scope="module")
def planted():
    """Sixty ordinary records, one unlike all others, and files that repeat it."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 60)
    frame = pd.DataFrame({
        "age": np.where(kind, "old", "young"),
        "work": np.where(rng.random(60) < 0.9, np.where(kind, "no", "yes"), "yes"),
        "region": rng.choice(["north", "south"], 60),
    })  # fmt: skip
    outlier = pd.DataFrame({"age": ["young"], "work": ["abroad"], "region": ["island"]})
    frame = pd.concat([frame, outlier], ignore_index=True)
    table = bnp.Microdata.from_frame(frame)
    model = bnp.NPLCM(components=5, split_merge_every=0, swap=False, reorder=False)
    # With two of eight other keys the rough estimator ("gamma") gives the outlier less than 0.6.
    run = bnp.sample(
        model, table, key=jax.random.key(6), num_chains=2, num_warmup=200, num_samples=1000
    )
    files = [
        pd.concat([frame[:60].sample(60, replace=True, random_state=m), outlier, outlier])
        for m in range(2)
    ]
    return table, run, files


@pytest.fixture(scope="module")
def refits(planted):
    table, run, files = planted
    return bnp.evaluation.refit(
        run.model, table, files, key=jax.random.key(1), num_chains=2, num_warmup=200,
        num_samples=1000,
    )  # fmt: skip


@pytest.mark.parametrize("estimator", ["gamma", "refit"])
def test_an_outlier_ranks_first_and_common_records_do_not(planted, refits, estimator):
    table, run, files = planted
    cells = table.cells()
    common = np.flatnonzero(cells.counts[cells.record_cell] >= 5)
    risk = bnp.attack_risk(
        run, table, files, key=jax.random.key(2), rows=[60, *common],
        refits=refits if estimator == "refit" else None, **SMALL,
    )  # fmt: skip
    # One of six candidates, and the only one with two values that the others lack.
    assert risk.rank[0] == 1 and risk.rho[0, 0] > 0.6 and risk.at_risk[0, 0]
    assert (risk.rank[1:] > 1).any() and risk.rho[1:, 0].max() < 0.4
    assert risk.records()["row"][0] == 60
    guesses = risk.candidates(60)
    assert pd.isna(guesses["variable"][0]) and guesses["rho"].sum() == pytest.approx(1)
    assert len(guesses) == risk.num_candidates[0] == 1 + 1 + 2 + 2


def test_a_refit_is_far_more_precise(planted, refits):
    table, run, files = planted
    errors = [
        np.median(
            bnp.attack_risk(
                run, table, files, key=jax.random.key(2), refits=chains, rows=range(10), **SMALL
            ).typical_error
        )
        for chains in (None, refits)
    ]
    assert errors[1] < errors[0] / 3


def test_sample_uniques_are_attacked(planted):
    table, run, files = planted
    risk = bnp.attack_risk(run, table, files, key=jax.random.key(2), **SMALL)
    assert risk.rows.tolist() == table.cells().sample_uniques.tolist()
    assert 60 in risk.rows
    summary = risk.summary()
    assert summary["attacked"] == len(risk.rows)
    assert summary["at_risk"]["1"] == risk.at_risk[:, 0].sum()
    assert summary["tau"]["1"] == pytest.approx(risk.at_risk[:, 0].mean())
    assert list(summary["tau"].values()) == sorted(summary["tau"].values())
    assert summary["draws"] == 1998 and summary["files"] == 2
    np.testing.assert_allclose(np.nansum(risk.rho, axis=1), 1, rtol=1e-5)
    assert list(risk.records().columns) == [
        "row", "age", "work", "region", "rho", "candidates", "rank", "p_value", "adjusted_p",
        "standard_error", "pareto_k", "at_risk",
    ]  # fmt: skip


def test_figures_that_do_not_fit_are_refused_before_the_attack(planted, monkeypatch):
    table, run, files = planted
    monkeypatch.setattr(compilation, "host_bytes", lambda: 100)
    with pytest.raises(
        bnp.inference.NotEnoughMemory, match="the figures of the attack need about 0 GiB"
    ):
        bnp.attack_risk(run, table, files, key=jax.random.key(2), **SMALL)


def test_p_values_are_adjusted_for_the_number_of_records(planted):
    """Benjamini and Hochberg by hand, each k by itself."""
    table, run, files = planted
    how = SMALL | {"rows": range(4), "top": (1, 2)}
    risk = bnp.attack_risk(run, table, files, key=jax.random.key(2), **how)
    p_values = np.array([[0.002, 0.01], [0.5, 0.03], [0.02, 0.02], [0.9, 0.001]])
    risk = dataclasses.replace(risk, p_values=p_values, fdr=0.005)
    adjusted = [[0.008, 0.02], [2 / 3, 0.03], [0.04, 0.08 / 3], [0.9, 0.004]]
    np.testing.assert_allclose(risk.adjusted, adjusted)
    # The first record's p-value alone would declare it safe.
    assert risk.at_risk.tolist() == [[True, True], [True, True], [True, True], [True, False]]


def test_a_file_gives_what_the_run_gives(planted, tmp_path):
    table, run, files = planted
    path = tmp_path / "posterior.nc"
    bnp.io.write_netcdf(bnp.to_inference_data(run, parameters=True, num_datasets=2), path)
    one, other = (
        bnp.attack_risk(source, table, files, key=jax.random.key(2), **SMALL)
        for source in (run, path)
    )
    np.testing.assert_array_equal(one.rho, other.rho)
    np.testing.assert_array_equal(one.p_values, other.p_values)


def test_the_draws_that_made_the_files_are_left_out():
    parameters = {"log_pi": np.arange(2 * 200).reshape(2, 200)}
    posterior = bnp.results.Posterior("nplcm", parameters, {})
    (draws,) = choose_draws([posterior], [5], 1000)
    made = {chain * 200 + d for chain, d in spaced_positions(2, 200, 5)}
    assert not made & set(draws["log_pi"].tolist())
    # As many of each chain, though one of them made three files and the other two.
    assert len(draws["log_pi"]) == 2 * 197
    with pytest.raises(ValueError, match="too few"):
        choose_draws([posterior], [400], 1000)


def refused(planted, match, source=None, table=None, files=None, error=bnp.MicrodataError, **how):
    given = planted
    with pytest.raises(error, match=match):
        bnp.attack_risk(
            given[1] if source is None else source, given[0] if table is None else table,
            given[2] if files is None else files, key=jax.random.key(0), **how,
        )  # fmt: skip


def test_another_sample_or_other_conditions_are_refused(planted):
    table, _, files = planted
    other = bnp.Microdata(table.schema, table.codes[::-1])
    refused(planted, "not of this sample", table=other)
    levels = tuple(tuple(reversed(labels)) for labels in table.schema.levels)
    refused(planted, "not of this sample", table=bnp.Microdata(
        bnp.Schema(table.schema.variables, levels), table.codes
    ))  # fmt: skip
    zeros = bnp.StructuralZeros.from_codes(np.array([[0, 0, 0]]), table.schema)
    refused(planted, "other conditions", conditions=zeros)
    refused(planted, "synthetic file 1, row 0, column 'age': value 'ancient' is not a", files=[
        files[0].assign(age="ancient")
    ])  # fmt: skip
    refused(planted, "no synthetic file", files=[], error=ValueError)
    refused(planted, "record 61 is not between 0 and 60", rows=[61], error=ValueError)
    refused(planted, "listed twice", rows=[1, 1], error=ValueError)
    refused(planted, "estimator", estimator="best", error=ValueError)
    refused(planted, "needs refits", estimator="refit", error=ValueError)
    refused(planted, "target", target="person", error=ValueError)
    refused(planted, "fdr", fdr=0.0, error=ValueError)
    renamed = bnp.Microdata(bnp.Schema(("rho", "b", "c"), table.schema.levels), table.codes)
    refused(planted, "rename", table=renamed, error=ValueError)
    # Cells with counts, each of which would count as a record.
    kinds = "must be of type Microdata, Households or DataFrame"
    refused(planted, f"table {kinds}", table=table.tabulated, error=TypeError)
    tabulated = [bnp.Microdata.from_frame(file).tabulated for file in files]
    refused(planted, f"synthetic file 1 {kinds}", files=tabulated, error=TypeError)


def test_files_that_are_no_posterior_are_refused(planted, tmp_path):
    table, run, files = planted
    text = tmp_path / "text.nc"
    text.write_text("no")
    refused(planted, "text.nc", source=text)
    with pytest.raises(bnp.MicrodataError, match=r"none.nc: cannot be read \(there is no"):
        bnp.io.read_posterior(tmp_path / "none.nc")
    scalars = tmp_path / "scalars.nc"
    bnp.io.write_netcdf(bnp.to_inference_data(run), scalars)
    refused(planted, "has no 'log_pi'", source=scalars)
    data = bnp.to_inference_data(run, parameters=True)
    for name, value, match in (
        ("model", "hdp", "'hdp'"), ("relative", "age", "lacks options of the model"),
        ("sample_sha256", "0", "not of this sample"),
    ):  # fmt: skip
        attributes = dict(data["posterior"].attrs)
        data["posterior"].attrs[name] = value
        bnp.io.write_netcdf(data, scalars)
        refused(planted, match, source=scalars)
        data["posterior"].attrs.clear()
        data["posterior"].attrs.update(attributes)
    del data["posterior"].attrs["sample_sha256"]
    bnp.io.write_netcdf(data, scalars)
    refused(planted, "older version", source=scalars)


def test_incomplete_records_are_not_attacked(planted):
    """Their fellows are; and no candidate breaks a condition."""
    table, run, files = planted
    codes = table.codes.copy()
    codes[:20, 0] = -1
    incomplete = bnp.Microdata(table.schema, codes)
    young_abroad = [[1, 0, 1], [1, 0, 2]]
    zeros = bnp.StructuralZeros.from_codes(np.array(young_abroad), table.schema)
    attributes = {"sample_sha256": incomplete.digest, "conditions_sha256": zeros.digest}
    kept = run.parameters()
    parameters = {name: kept[name] for name in ("log_pi", "log_lambda", "log_feasible")}
    source = bnp.results.Posterior("tnplcm", parameters, attributes)
    files = [file[file["work"] != "abroad"] for file in files]
    risk = bnp.attack_risk(
        source, incomplete, files, key=jax.random.key(0), conditions=zeros, rows=range(20, 61),
        **SMALL,
    )  # fmt: skip
    codes = codes[20:]
    for column, (variable, label) in enumerate(risk.columns):
        changed = codes.copy()
        changed[:, table.schema.variables.index(variable)] = table.schema.encode(variable, label)
        possible = ~zeros.contains(changed) & (changed != codes).any(axis=1)
        np.testing.assert_array_equal(np.isfinite(risk.rho[:, 1 + column]), possible)
    with pytest.raises(ValueError, match="missing values"):
        bnp.attack_risk(
            source, incomplete, files, key=jax.random.key(0), conditions=zeros, rows=[3]
        )
    alone = bnp.attack_risk(
        source, incomplete, files, key=jax.random.key(0), conditions=zeros, **SMALL
    )
    assert alone.rows.min() >= 20


def test_warnings_say_what_is_wrong(planted):
    table, run, files = planted
    risk = bnp.attack_risk(
        run, table, files, key=jax.random.key(2), num_bootstrap=20, max_draws=10, top=(1,)
    )
    text = "\n".join(risk.warnings())
    assert "too few" in text and "20 bootstrap replicates" in text
    assert risk.at_risk.all()
    first = int((risk.rank == 1).sum())
    rest = len(risk.rows) - first
    said = f"at the first try for {first} of the {len(risk.rows)} records attacked; for "
    assert risk.in_words().endswith(f"{said}{rest} more the draws are too few to rule this out")
    sure = dataclasses.replace(risk, p_values=(risk.rank == 1)[:, None] + 0.0)
    assert rest and sure.in_words().endswith(f"{said}the other {rest} this is ruled out")
    errors = np.full_like(risk.standard_error, 2000)
    hopeless = dataclasses.replace(risk, standard_error=errors)
    assert "by a factor of over a million (" in "\n".join(hopeless.warnings())
    for estimator, more in (("gamma", ", or refit with each file"), ("refit", "")):
        said = dataclasses.replace(hopeless, estimator=estimator).warnings()
        assert any(x.endswith(f"declared safe; sample more draws{more}") for x in said)
    # Where rules leave no candidate but the truth.
    rho = np.where(np.arange(risk.rho.shape[1]), np.nan, np.ones_like(risk.rho))
    alone = dataclasses.replace(risk, rho=rho)
    assert alone.summary()["pareto_k"] == {"max": None, "weight_sets": 0, "above_0.7": 0}
    none = bnp.attack_risk(run, table, files, key=jax.random.key(2), rows=[], **SMALL)
    assert none.summary()["attacked"] == 0 and none.records().empty
    assert "none has a unique combination" in none.warnings()[0]
