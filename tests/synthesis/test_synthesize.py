"""Synthetic and completed records: feasible, and of the model's distribution."""

import dataclasses
import itertools

import jax
import numpy as np
import pandas as pd
import pytest
from harness import Z_LIMIT

import bnp_models as bnp
from bnp_models.synthesis import partial, synthesize


def breaks_a_condition(frame, conditions_frame):
    """By comparing labels, without the compiled conditions."""
    broken = np.zeros(len(frame), bool)
    for _, condition in conditions_frame.iterrows():
        fixed = condition.dropna()
        broken |= (frame[list(fixed.index)] == fixed).all(axis=1).to_numpy()
    return broken


def relabelled(run, levels_of):
    """The same run of a sample with other labels."""
    schema = run.table.schema
    schema = bnp.Schema(schema.variables, tuple(levels_of(n) for n in schema.num_levels))
    return dataclasses.replace(
        run,
        table=bnp.Microdata(schema, run.table.codes),
        conditions=bnp.StructuralZeros(schema, run.conditions.conditions),
    )


def test_records_are_feasible_and_follow_their_draw(latent, conditions_frame):
    num_rows = 60_000
    frames = bnp.synthesize(latent.run, 2, num_rows)
    schema = latent.table.schema
    # 60 draws in all: the 16th of the first chain and of the second.
    for chain, frame in enumerate(frames):
        assert list(frame) == list(schema.variables)
        assert len(frame) == num_rows and not frame.isna().any(axis=None)
        assert not breaks_a_condition(frame, conditions_frame).any()
        codes = bnp.Microdata.from_frame(frame, levels=schema).codes
        shares = np.concatenate([
            np.bincount(codes[:, j], minlength=size) / num_rows
            for j, size in enumerate(schema.num_levels)
        ])  # fmt: skip
        p = latent.margins.draws[chain, 15]
        z = (shares - p) / np.sqrt(p * (1 - p) / num_rows)
        assert np.abs(z).max() < Z_LIMIT


def test_by_default_as_many_rows_as_the_sample_and_the_same_again(latent):
    first, again = bnp.synthesize(latent.run), bnp.synthesize(latent.run)
    assert [len(frame) for frame in first] == [150] * 5
    for one, other in zip(first, again, strict=True):
        pd.testing.assert_frame_equal(one, other)
    assert not first[0].equals(first[1])
    other = bnp.synthesize(latent.run, 1, key=jax.random.key(7))[0]
    assert not other.equals(bnp.synthesize(latent.run, 1)[0])


def one_draw(run):
    """The run with the first draw in place of all others."""
    draws = {name: np.broadcast_to(x[:1, :1], x.shape) for name, x in run.draws.items()}
    return dataclasses.replace(run, draws=draws)


@pytest.mark.parametrize("keep", [(), ("age",)])
def test_files_of_one_draw_differ(latent, keep):
    """Each file, and each part of one, has a key of its own."""
    files = bnp.synthesize(one_draw(latent.run), 3, keep=keep)
    assert not any(a.equals(b) for a, b in itertools.combinations(files, 2))


def test_many_boxes_mean_small_batches(latent, monkeypatch):
    monkeypatch.setattr(synthesize, "_ENTRIES_AT_ONCE", 1)
    frame = bnp.synthesize(latent.run, 1, 600)[0]
    assert len(frame) == 600
    assert not frame[:256].reset_index(drop=True).equals(frame[256:512].reset_index(drop=True))


@pytest.mark.parametrize(
    ("levels_of", "dtype"),
    [
        (lambda n: tuple(f"0{level}" for level in range(n)), object),
        (lambda n: tuple(range(10, 10 + n)), np.int64),
        (lambda n: (*range(n - 1), "other"), object),
    ],
    ids=["text", "integers", "mixed"],
)
def test_labels_keep_their_text_and_type(latent, levels_of, dtype):
    run = relabelled(latent.run, levels_of)
    for frame in (*bnp.synthesize(run, 2), *bnp.impute(run, 2)):
        for name, levels in zip(run.table.schema.variables, run.table.schema.levels, strict=True):
            labels = set(frame[name])
            assert labels <= set(levels)
            assert {type(label) for label in labels} <= {type(level) for level in levels}
            if dtype is np.int64:
                assert frame[name].dtype == dtype


def test_an_impossible_record_is_never_let_out(latent, monkeypatch):
    schema = latent.table.schema
    widowed_child = [schema.encode(name, label) for name, label in zip(
        schema.variables, ("0-14", "Male", "Widowed", "Under 15 years old", "Not working"),
        strict=True)]  # fmt: skip
    codes = np.tile(np.array(widowed_child)[:, None], 150)
    monkeypatch.setattr(synthesize, "_simulate", lambda *_, **__: codes)
    with pytest.raises(RuntimeError, match="150 of the 150 new records are impossible"):
        bnp.synthesize(latent.run)
    monkeypatch.setattr(partial, "_complete", lambda *_: codes)
    with pytest.raises(RuntimeError, match="an observed value was changed"):
        bnp.impute(latent.run)


def test_imputation_fills_in_what_is_missing_and_nothing_else(
    latent, incomplete_frame, conditions_frame
):
    frames = bnp.impute(latent.run, 3)
    sample = incomplete_frame.to_numpy(object)
    observed = incomplete_frame.notna().to_numpy()
    for frame in frames:
        assert not frame.isna().any(axis=None)
        np.testing.assert_array_equal(frame.to_numpy()[observed], sample[observed])
        assert not breaks_a_condition(frame, conditions_frame).any()
    assert not frames[0].equals(frames[1])
    pd.testing.assert_frame_equal(frames[2], bnp.impute(latent.run, 3)[2])


def test_missing_values_that_only_move_together(latent):
    """x1 = x2 is impossible: from (0, 1) one value at a time leads nowhere."""
    num_records, num_datasets = 40, 300
    schema = bnp.Schema(("x1", "x2", "x3"), ((0, 1), (0, 1), (0, 1)))
    codes = np.full((num_records, 3), -1)
    codes[:, 2] = np.arange(num_records) % 2
    conditions = bnp.StructuralZeros(schema, np.array([[0, 0, -1], [1, 1, -1]]))
    pi = np.array([0.3, 0.7])
    one = np.array([[0.2, 0.6], [0.5, 0.1], [0.9, 0.4]])  # P(x_j = 1) by class
    log_lambda = np.log(np.stack([1 - one, one], axis=1).reshape(6, 2))
    draw = {"log_pi": np.log(pi), "log_lambda": log_lambda, "alpha": 1.0, "log_feasible": 0.0}
    draws = {
        name: np.broadcast_to(np.float32(value), (1, num_datasets, *np.shape(value)))
        for name, value in draw.items()
    }
    run = dataclasses.replace(
        latent.run, model=bnp.TNPLCM(components=2), table=bnp.Microdata(schema, codes), draws=draws,
        conditions=conditions,
    )  # fmt: skip
    frames = pd.concat(bnp.impute(run, num_datasets))
    assert (frames["x1"] != frames["x2"]).all()
    for x3 in (0, 1):
        weight = pi * (one[2] if x3 else 1 - one[2])
        ahead, behind = weight @ ((1 - one[0]) * one[1]), weight @ (one[0] * (1 - one[1]))
        p, n = ahead / (ahead + behind), num_datasets * num_records / 2
        share = frames.loc[frames["x3"] == x3, "x2"].mean()
        assert abs(share - p) < Z_LIMIT * np.sqrt(p * (1 - p) / n)


def test_what_is_refused(latent):
    with pytest.raises(ValueError, match="from 1 to the number of draws kept, 60, not 61"):
        bnp.synthesize(latent.run, 61)
    with pytest.raises(ValueError, match="num_rows must be at least 1"):
        bnp.synthesize(latent.run, 1, 0)
    table = latent.table
    complete = bnp.Microdata(table.schema, np.maximum(table.codes, 0))
    with pytest.raises(ValueError, match="nothing to impute"):
        bnp.impute(dataclasses.replace(latent.run, table=complete))
    with pytest.raises(ValueError, match="the hdp model does not draw missing values"):
        bnp.impute(dataclasses.replace(latent.run, model=bnp.HDPMixedMembership()))
    bare = dataclasses.replace(latent.run, draws={"alpha": latent.run.draws["alpha"]})
    for function in (bnp.synthesize, bnp.impute, bnp.level_margins):
        with pytest.raises(ValueError, match="did not keep 'log_pi'"):
            function(bare)


@pytest.fixture(scope="module")
def complete_run(latent):
    """Chains on the complete records of the sample, under its structural zeros."""
    codes = np.tile(latent.table.codes[(latent.table.codes >= 0).all(axis=1)], (4, 1))
    table = bnp.Microdata(latent.table.schema, codes)
    return bnp.sample(
        latent.run.model, table, key=jax.random.key(3), conditions=latent.run.conditions,
        num_chains=2, num_warmup=30, num_samples=20,
    )  # fmt: skip


def two_way(table):
    """Shares of all cells of two-way tables."""
    sizes, counts = table.schema.num_levels, []
    for j in range(len(sizes)):
        for k in range(j):
            cells = table.codes[:, j] * sizes[k] + table.codes[:, k]
            counts.append(np.bincount(cells, minlength=sizes[j] * sizes[k]))
    return np.concatenate(counts) / table.n


def test_balanced_and_calibrated_files_are_feasible_and_nearer(complete_run, conditions_frame):
    """To the sample, in this order; each file differs from the next, and a key tells them apart."""
    table, distances = complete_run.table, {}
    for method in synthesize.METHODS:
        files = bnp.synthesize(complete_run, 3, method=method)
        assert not any(breaks_a_condition(frame, conditions_frame).any() for frame in files)
        assert not files[0].equals(files[1])
        again = bnp.synthesize(complete_run, 3, method=method)
        pd.testing.assert_frame_equal(files[2], again[2])
        other = bnp.synthesize(complete_run, 1, key=jax.random.key(8), method=method)[0]
        assert not other.equals(files[0])
        coded = [bnp.Microdata.from_frame(frame, levels=table.schema) for frame in files]
        assert all(file.n == table.n for file in coded)
        distances[method] = np.mean([np.abs(two_way(f) - two_way(table)).sum() for f in coded])
    assert distances["calibrated"] < 0.8 * distances["balanced"]
    assert distances["balanced"] < 0.9 * distances["predictive"]


def test_balanced_files_follow_the_mean_of_the_draws(complete_run):
    margins = bnp.level_margins(complete_run).draws.mean(axis=(0, 1))
    frame = bnp.synthesize(complete_run, 1, 40_000, method="balanced")[0]
    schema = complete_run.table.schema
    codes = bnp.Microdata.from_frame(frame, levels=schema).codes
    shares = np.concatenate(
        [
            np.bincount(codes[:, j], minlength=k) / len(codes)
            for j, k in enumerate(schema.num_levels)
        ]
    )
    # The pool has 800,000 records of 40 draws.
    assert np.abs(shares - margins).max() < 0.005


def test_short_files_are_of_a_large_pool(complete_run):
    """Many files of ten records together have the margins of all draws."""
    margins = bnp.level_margins(complete_run).draws.mean(axis=(0, 1))
    files = bnp.synthesize(complete_run, 800, 10, method="balanced")
    schema = complete_run.table.schema
    codes = bnp.Microdata.from_frame(pd.concat(files), levels=schema).codes
    shares = [np.bincount(x, minlength=k) for x, k in zip(codes.T, schema.num_levels, strict=True)]
    assert np.abs(np.concatenate(shares) / len(codes) - margins).max() < 0.02


def test_cells_with_counts_are_balanced_too(complete_run):
    run = dataclasses.replace(complete_run, table=complete_run.table.tabulated)
    for method in ("balanced", "calibrated"):
        (made,) = bnp.synthesize(run, 1, 500, method=method)
        assert made.n == 500 and (made.counts > 0).all()
        assert not run.conditions.contains(made.codes).any()
        np.testing.assert_array_equal(made.first_rows, np.cumsum(made.counts) - made.counts)


def test_methods_that_cannot_be(latent, complete_run):
    with pytest.raises(ValueError, match="method"):
        bnp.synthesize(complete_run, 1, method="best")
    with pytest.raises(ValueError, match="missing values"):
        bnp.synthesize(latent.run, 1, method="calibrated")
    assert len(bnp.synthesize(latent.run, 1, method="balanced")[0]) == latent.table.n


@pytest.mark.long
def test_mixed_membership_makes_records_and_knows_its_margins(complete_run, conditions_frame):
    run = bnp.sample(
        bnp.HDPMixedMembership(), complete_run.table, key=jax.random.key(4),
        conditions=complete_run.conditions, num_chains=2, num_warmup=20, num_samples=20,
    )  # fmt: skip
    for method in synthesize.METHODS:
        frame = bnp.synthesize(run, 1, method=method)[0]
        assert len(frame) == run.table.n and not breaks_a_condition(frame, conditions_frame).any()
    margins = bnp.level_margins(run)
    assert margins.draws.shape[:2] == (2, 20 // run.settings.parameters_every)
    assert margins.draws[:, :, :8].sum(axis=2) == pytest.approx(1, rel=1e-4)
