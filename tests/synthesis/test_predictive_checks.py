"""Predictive checks: figures by hand, samples of the model that pass, and others that do not."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from harness import Z_LIMIT

import bnp_models as bnp
from bnp_models.inference.trace import Settings
from bnp_models.synthesis import predictive_checks

NUM_LEVELS, NUM_RECORDS, NUM_DRAWS = (4, 5, 4, 3), 300, 100
SCHEMA = bnp.Schema(tuple("abcd"), tuple(tuple(range(size)) for size in NUM_LEVELS))


def run_on(latent, codes, seed=0, conditions=None):
    """A run on these records whose draws are all the same parameters of two classes."""
    rng = np.random.default_rng(1)
    levels = [rng.dirichlet(np.full(size, 2.0), 2).T for size in NUM_LEVELS]
    draw = {
        "log_pi": np.log([0.4, 0.6]), "log_lambda": np.log(np.concatenate(levels)), "alpha": 1.0,
        "log_feasible": 0.0,
    }  # fmt: skip
    draws = {
        name: np.broadcast_to(np.float32(x), (2, NUM_DRAWS // 2, *np.shape(x)))
        for name, x in draw.items()
    }
    settings = Settings(2, 0, NUM_DRAWS // 2, 1, (), (2,))
    return dataclasses.replace(
        latent.run, model=bnp.NPLCM(components=2), table=bnp.Microdata(SCHEMA, codes), draws=draws,
        conditions=conditions, settings=settings, key=jax.random.key(seed),
    )  # fmt: skip


@pytest.fixture(scope="module")
def simulated(latent):
    """Records of the model itself."""
    some = run_on(latent, np.zeros((NUM_RECORDS, 4), int))
    frame = bnp.synthesize(some, 1)[0]
    return bnp.Microdata.from_frame(frame, levels=SCHEMA).codes


def test_a_sample_of_the_model_fits(latent, simulated):
    checks = bnp.predictive_checks(run_on(latent, simulated, seed=3))
    assert checks.num_replicates == NUM_DRAWS and checks.warnings() == []
    assert max(abs(check.z) for check in checks.cells.values()) < Z_LIMIT
    assert len(checks.pairs) == 6
    _, counts = np.unique(simulated, axis=0, return_counts=True)
    for size, check in checks.cells.items():
        assert check.observed == (counts == size).sum()
        assert check.replicated.shape == (2, NUM_DRAWS // 2)
        z = (check.observed - check.replicated.mean()) / check.replicated.std(ddof=1)
        assert check.document()["z"] == pytest.approx(z)


def test_records_in_clumps_and_records_spread_out_are_seen(latent, simulated):
    """With the direction in which tau_1 is wrong, or in which synthetic files differ."""
    clumps = np.repeat(simulated[: NUM_RECORDS // 2], 2, axis=0)
    checks = bnp.predictive_checks(run_on(latent, clumps))
    (sentence,) = checks.warnings()
    assert (
        "expects more sample uniques" in sentence and "tau_1, tau_2 and records' risks" in sentence
    )
    (of_files,) = checks.warnings(of_files=True)
    assert "the files have more unique records than" in of_files and "tau" not in of_files
    every_cell = np.array(list(itertools.product(*map(range, NUM_LEVELS))))
    (sentence,) = bnp.predictive_checks(run_on(latent, every_cell)).warnings()
    assert "expects fewer sample uniques" in sentence and "probably too low" in sentence


def test_the_pair_that_is_not_independent_is_the_worst(latent, simulated):
    tied = simulated.copy()
    tied[:, 2] = tied[:, 0]
    checks = bnp.predictive_checks(run_on(latent, tied))
    pair, check = next(iter(checks.pairs.items()))
    assert pair == ("a", "c") and check.z > 10
    assert checks.document()["worst_pairs"][0] == {"variables": ["a", "c"], "z": check.z}


def test_distances_of_two_way_tables_by_hand(latent, simulated, monkeypatch):
    """Of counted records, from the mean table of the replicates."""
    tables = [bnp.Microdata(SCHEMA, simulated[own]) for own in (slice(150), slice(50, 200))]
    tabulated = [table.tabulated for table in tables]
    monkeypatch.setattr(predictive_checks, "simulate_samples", lambda *_: tabulated)
    checks = bnp.predictive_checks(run_on(latent, simulated), 2)

    def two_way(codes):
        table = np.zeros((NUM_LEVELS[0], NUM_LEVELS[2]))
        np.add.at(table, (codes[:, 0], codes[:, 2]), 1)
        return table

    expected = np.mean([two_way(table.codes) for table in tables], axis=0)

    def distance(codes):
        return np.sum((two_way(codes) - expected) ** 2 / np.maximum(expected, 0.5))

    check = checks.pairs["a", "c"]
    assert check.observed == pytest.approx(distance(simulated))
    assert check.replicated.ravel() == pytest.approx([distance(table.codes) for table in tables])


def test_completed_samples_and_boxes(latent):
    """Under structural zeros the boxes share the records out; missing values are filled in."""
    checks = bnp.predictive_checks(latent.run, 10)
    assert latent.table.has_missing and checks.num_replicates == 10
    assert sum(check.observed for check in checks.boxes.values()) == pytest.approx(latent.table.n)
    for check in checks.boxes.values():
        assert check.replicated.sum() >= 0
    worst = checks.document()["worst_boxes"]
    assert [abs(box["z"]) for box in worst] == sorted((abs(x["z"]) for x in worst), reverse=True)


def test_boxes_are_described_by_the_levels_that_they_admit(latent, simulated):
    conditions = bnp.StructuralZeros.from_codes(np.array([[0, 1, -1, -1], [2, -1, -1, 0]]), SCHEMA)
    possible = simulated[~conditions.contains(simulated)]
    checks = bnp.predictive_checks(run_on(latent, possible, conditions=conditions), 10)
    assert len(checks.boxes) > 1
    for box, check in checks.boxes.items():
        inside = np.ones(len(possible), bool)
        for name, levels in checks.levels_of_boxes[box].items():
            j = SCHEMA.variables.index(name)
            assert 0 < len(levels) < NUM_LEVELS[j]
            inside &= np.isin(possible[:, j].astype(str), levels)
        assert inside.sum() == check.observed


def test_the_same_run_gives_the_same_checks(small):
    one, two = (bnp.predictive_checks(small.run, 6).document() for _ in range(2))
    assert one == two
    with pytest.raises(ValueError, match="at least two draws"):
        bnp.predictive_checks(
            dataclasses.replace(small.run, settings=Settings(1, 0, 1, 1, (), (1,)))
        )
    draws = {name: x[:, :1] for name, x in small.run.draws.items()}
    two = dataclasses.replace(small.run, settings=Settings(2, 0, 1, 1, (), (1,)), draws=draws)
    assert bnp.predictive_checks(two, 6).cells[1].replicated.size == 2


def test_groups_for_arviz(small):
    checks = bnp.predictive_checks(small.run, 10)
    data = bnp.to_inference_data(small.run, small.risk, checks=checks)
    for size, check in checks.cells.items():
        assert data["posterior_predictive"][f"cells_with_{size}"].shape == (2, 5)
        assert data["observed_data"][f"cells_with_{size}"] == check.observed
