"""Margins of latent class and household models: their names, and every how many draws."""

import dataclasses

import jax
import numpy as np
import pytest
from nested import tiny_households

import bnp_models as bnp
from bnp_models.inference.trace import Settings
from bnp_models.synthesis import posterior_margins as margins_of_levels


def test_margins_are_named_and_thinned(latent):
    margins = latent.margins
    assert margins.names[0] == "margin age=0-14"
    assert margins.draws.shape == (2, 30, len(margins.names))
    assert margins.draws[:, :, :8].sum(axis=2) == pytest.approx(np.ones((2, 30)), rel=1e-5)
    few = bnp.level_margins(latent.run, max_draws=10)
    assert few.thin == 3
    np.testing.assert_array_equal(few.draws, margins.draws[:, ::3])
    assert bnp.level_margins(latent.run, max_draws=20).draws.shape[1] == 15


def test_margins_of_files_that_are_not_computed_exactly(latent, monkeypatch):
    """They are those of simulated samples, for files that are calibrated, and nearly the exact."""
    run, exact = latent.run, latent.margins.draws
    assert margins_of_levels.margins_of_files(run).share == 1
    found = margins_of_levels.margins_of_files(run, 0.2)
    np.testing.assert_array_equal(found.draws, exact)
    assert found.share == 0.2
    monkeypatch.setattr(margins_of_levels, "level_margins", lambda run, share: None)
    assert margins_of_levels.margins_of_files(run) is None
    made = margins_of_levels.margins_of_files(run, 0.2)
    assert made.names == latent.margins.names and made.draws.shape == exact.shape
    n = run.table.n
    z = (made.draws - exact) / np.sqrt(exact * (1 - exact) / n + 1e-12)
    assert abs(z.mean()) < 0.1 and 0.8 < z.std() < 1.2
    # Each chain's are its own.
    wrong = (made.draws[::-1] - exact) / np.sqrt(exact * (1 - exact) / n + 1e-12)
    assert wrong.std() > z.std() + 0.1
    assert {name.endswith(" in the files") for name in made.monitored(run)} == {True, False}
    assert "log_likelihood" in found.monitored(run).keys() ^ latent.margins.monitored(run).keys()


HOUSEHOLDS = [
    ("own", [("head", "0"), ("other", "1")]), ("rent", [("head", "1")]),
    ("rent", [("head", "0"), ("other", "0")]), ("own", [("head", "2"), ("other", "2")]),
]  # fmt: skip


@pytest.mark.parametrize("relative", [(), ("age",)])
def test_margins_of_households_and_their_members(relative, monkeypatch):
    """Not of sizes, which are the sample's; codes relative to the head's have numbers."""
    monkeypatch.setattr(margins_of_levels, "SMALLEST_SHOWN", 0)
    table = tiny_households(HOUSEHOLDS, ("role", "head"), ages=3)
    model = bnp.NDPMPM(components=2, member_components=2, relative=relative)
    run = bnp.sample(
        model, table, key=jax.random.key(0), num_chains=2, num_warmup=2, num_samples=8,
        parameters_every=1,
    )  # fmt: skip
    margins = bnp.level_margins(run)
    names = ["margin home=own", "margin home=rent"]
    names += [f"margin head_age={age}" for age in range(3)] + ["margin role=other"]
    of_ages = "margin age, code relative to the head" if relative else "margin age="
    names += [f"{of_ages} {k}" if relative else f"{of_ages}{k}" for k in range(3)]
    assert list(margins.names) == names
    assert margins.draws.shape == (2, 8, len(names))
    np.testing.assert_allclose(margins.draws[:, :, :2].sum(axis=2), 1, rtol=1e-5)
    worst = [name for name in bnp.diagnose(run, margins).figures if name.startswith("margin ")]
    assert len(worst) == 3 and "margin role=other" not in worst
    # Levels that few persons have, of heads too, are not told.
    monkeypatch.setattr(margins_of_levels, "SMALLEST_SHOWN", 3)
    shown = bnp.level_margins(run).names
    assert shown[:5] == (
        *names[:2],
        names[2],
        "margin head_age, level 2",
        "margin head_age, level 3",
    )
    levels = ["margin age=0", "margin age, level 2", "margin age, level 3"]
    assert shown[5:] == ("margin role=other", *(names[6:] if relative else levels))


def test_as_many_draws_are_evaluated_as_arrays_were_kept():
    table = tiny_households(HOUSEHOLDS, ("role", "head"), ages=3)
    run = bnp.sample(
        bnp.NDPMPM(components=2, member_components=2), table, key=jax.random.key(0),
        num_chains=2, num_warmup=2, num_samples=40, parameters_every=5,
    )  # fmt: skip
    assert bnp.level_margins(run, max_draws=8).draws.shape[:2] == (2, 8)
    assert bnp.level_margins(run, max_draws=4).draws.shape[:2] == (2, 4)


def test_the_worst_margins_are_those_whose_halves_of_chains_are_furthest_apart():
    """In units of the spread within: neither the widest ones nor those that are constant."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4, 100, 6)) * [1, 50, 0.01, 1, 1, 0]
    draws[1, :, 0] += 1  # A chain apart,
    draws[2, 50:, 2] += 0.03  # a chain that moves,
    draws[3, :, 4] += 0.5  # and one a little apart.
    worst = margins_of_levels.worst_margins(bnp.results.Margins(tuple("abcdef"), draws, 1))
    assert list(worst) == ["c", "a", "e"]
    np.testing.assert_array_equal(worst["a"], draws[:, :, 0])


def run_of_pairs(latent, agreement, codes):
    """Two chains of one model of two binary variables, whose one-way margins are all a half.

    In each chain, the variables agree with its probability.
    """
    p = (1 + np.sqrt(2 * np.array(agreement) - 1)) / 2
    of_class = np.stack([np.stack([p, 1 - p]), np.stack([1 - p, p])], axis=-1)
    levels = np.moveaxis(np.concatenate([of_class, of_class]), 1, 0)
    shape = (2, 20)
    draws = {
        "log_lambda": np.log(np.broadcast_to(levels[:, None], (*shape, 4, 2))),
        "log_pi": np.full((*shape, 2), np.log(0.5)), "alpha": np.ones(shape),
        "log_feasible": np.zeros(shape), "level_shape": np.ones((*shape, 4)),
    }  # fmt: skip
    schema = bnp.Schema(("a", "b"), ((0, 1), (0, 1)))
    return dataclasses.replace(
        latent.run, model=bnp.NPLCM(components=2), table=bnp.Microdata(schema, codes),
        conditions=None, draws={name: np.float32(x) for name, x in draws.items()},
        settings=Settings(2, 0, 20, 1, (), (2,)),
    )  # fmt: skip


@pytest.mark.parametrize(("agreement", "converged"), [((0.6, 0.6), True), ((0.5, 0.9), False)])
def test_chains_that_differ_only_in_two_way_margins(latent, agreement, converged):
    """Calibrated files are judged by these too, and other files by one-way margins alone."""
    codes = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], [100, 100, 97, 3], axis=0)
    run = run_of_pairs(latent, agreement, codes)
    found = margins_of_levels.margins_of_files(run, 0.2)
    # Of a pair that few records have, levels are not told.
    assert found.pairs.names == (
        "margin a=0 and b=0", "margin a=0 and b=1", "margin a=1 and b=0",
        "margin a, level 2 and b, level 2",
    )  # fmt: skip
    share = found.pairs.draws[..., [0, 3]].sum(axis=-1).mean(axis=1)
    np.testing.assert_allclose(share, agreement, atol=0.02)
    target = bnp.Converged(1.01, min_ess=1, others_rhat=1.1)
    diagnosis = bnp.diagnose(run, found)
    judged = {name: x for name, x in diagnosis.draws.items() if name.startswith("margin ")}
    assert {name.endswith(" in the files") and " and " in name for name in judged} == {True}
    missed = target.missed(judged, {name: diagnosis.figures[name] for name in judged})
    assert (not missed) == converged
    assert margins_of_levels.margins_of_files(run).pairs is None
