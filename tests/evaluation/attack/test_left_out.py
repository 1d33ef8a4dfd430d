"""Gains of persons in the sample: known answers, their intervals, and what is refused."""

import jax
import numpy as np
import pandas as pd
import pytest
from goodness import P_LIMIT
from harness import Z_LIMIT, z_scores
from scipy.stats import kstest, t

import bnp_models as bnp
from bnp_models.evaluation.attack import left_out as attack
from bnp_models.evaluation.attack.gains import gain_table
from bnp_models.evaluation.attack.guesses import Guesses

SCHEMA = bnp.Schema(tuple("abcd"), (tuple(range(3)), tuple(range(4)), tuple(range(3)), ("x", "y")))


def population(rng, number):
    """Records of two classes: dependent variables, with rare levels."""
    z = rng.integers(2, size=(number, 1))
    u = rng.random((number, 4))
    codes = [np.floor(size * u[:, [j]] ** (1 + 2 * z)) for j, size in enumerate(SCHEMA.num_levels)]
    return bnp.Microdata(SCHEMA, np.concatenate(codes, axis=1).astype(int))


def halves(rng, number):
    left_out = np.zeros(number, bool)
    left_out[rng.permutation(number)[: number // 3]] = True
    return left_out


def gain_of(risk, intruder, measure="right_gain"):
    (entry,) = [
        one for one in risk.entries if (one["intruder"], one["records"]) == (intruder, "all")
    ]
    return entry[measure]


def some_of(table, rows):
    return bnp.Microdata(SCHEMA, table.codes[rows])


def test_files_of_the_population_tell_nothing_and_the_interval_is_right():
    """Files drawn from the population, whatever the sample: z-scores are Student's."""
    rng, scores, number = np.random.default_rng(0), [], 24
    for replicate in range(number):
        table, left_out = population(rng, 120), halves(rng, 120)
        made, released = ([population(rng, number) for _ in range(2)] for number in (80, 120))
        released = released if replicate % 2 else None
        risk = bnp.evaluation.left_out_risk(
            table, left_out, made, released=released, num_chance=12, key=jax.random.key(replicate)
        )
        for intruder in ("files", "all_others"):
            for measure in ("right_gain", "probability_gain"):
                gain = gain_of(risk, intruder, measure)
                scores.append(gain["estimate"] / gain["standard_error"])
    scores = np.reshape(scores, (number, 4))
    assert np.abs(z_scores(scores, np.zeros(4))).max() < Z_LIMIT
    # The p-values of Student's t are uniform.
    found = kstest(t.cdf(scores, 12), "uniform", axis=0).pvalue
    assert found.min() > P_LIMIT


@pytest.mark.parametrize("holdout", [False, True])
def test_a_copy_gives_everybody_away(holdout):
    """The intruder who knows all other records subtracts them from a copy: one value is left."""
    rng = np.random.default_rng(1)
    table, left_out = population(rng, 300), halves(rng, 300)
    risk = bnp.evaluation.left_out_risk(
        table, left_out, some_of(table, ~left_out), released=None if holdout else table
    )
    for one in risk.entries:
        assert one["right_gain"]["interval"][0] > 0, one
        if one["intruder"] == "all_others":
            assert one["right"] > 0.99
    # Whom a copy lacks is guessed no better than from the records that are known anyway.
    others = risk.guesses["all_others"].right.mean(axis=1)
    gain = gain_of(risk, "all_others")["estimate"]
    assert gain == pytest.approx(1 - others[risk.left_out].mean(), abs=0.02)
    assert "the files tell" in risk.conclusion() and "standard error of" in risk.warnings()[0]
    assert risk.summary()["design"] == ("holdout" if holdout else "made_again")
    assert {one["variable"] for one in risk.by_variable()} == set("abcd")


def test_gain_is_the_difference_of_two_groups_by_hand():
    rng = np.random.default_rng(2)
    number, left_out = 60, np.arange(60) < 25
    table = population(rng, number)
    made, released = (Guesses(*rng.random((2, number, 4))) for _ in range(2))
    chance = rng.normal(size=(7, 2, 2, 6))
    risk = bnp.results.LeftOutRisk(
        table, np.arange(number), left_out, np.zeros(number, bool),
        {"files": made, "all_others": released}, {"files": released, "all_others": made}, chance,
        3,
    )  # fmt: skip
    difference = (made.right - released.right).mean(axis=1)
    gain = gain_of(risk, "files")
    assert gain["estimate"] == pytest.approx(difference[25:].mean() - difference[:25].mean())
    error = np.sqrt((chance[:, 0, 0, 0] ** 2).mean())
    assert gain["standard_error"] == pytest.approx(error)
    width = t.ppf(0.975, 7) * error
    assert gain["interval"] == pytest.approx((gain["estimate"] - width, gain["estimate"] + width))
    assert gain_of(risk, "files", "right") == pytest.approx(released.right.mean())
    assert gain_of(risk, "all_others", "right_gain")["estimate"] == -gain["estimate"]
    by_variable = risk.by_variable()[1]
    of_second = (released.right - made.right)[:, 1]
    expected = of_second[25:].mean() - of_second[:25].mean()
    assert by_variable["right_gain"]["estimate"] == pytest.approx(expected)
    error = np.sqrt((chance[:, 1, 0, 3] ** 2).mean())
    assert by_variable["right_gain"]["standard_error"] == pytest.approx(error)
    assert by_variable["right"] == pytest.approx(made.right[:, 1].mean())
    # Nobody is unique, so that there is no row of them.
    assert set(risk.gains()["records"]) == {"all"}
    assert list(risk.gains()["kept"]) == [35, 35]


def test_chance_gains_are_those_of_an_attack_on_other_persons(monkeypatch):
    rng, key, seen = np.random.default_rng(7), jax.random.key(3), []
    table, left_out = population(rng, 150), halves(rng, 150)
    files = [some_of(table, ~left_out), population(rng, 100)]

    def spied(guesses, released, left_out, unique):
        seen.append(left_out)
        return gain_table(guesses, released, left_out, unique)

    monkeypatch.setattr(attack, "gain_table", spied)
    risk = bnp.evaluation.left_out_risk(table, left_out, files, num_chance=3, key=key)
    masks = list(seen)
    for gains, mask in zip(risk.chance, masks, strict=True):
        assert mask.sum() == left_out.sum() and (mask != left_out).any()
        other = bnp.evaluation.left_out_risk(table, mask, files, num_chance=2, key=key)
        expected = gain_table(other.guesses, None, mask, other.unique)
        np.testing.assert_allclose(gains, expected, atol=0.01)


def test_a_weighted_record_counts_as_often_as_its_weight():
    """The files have each record as often as its weight: known weights give everybody away."""
    rng = np.random.default_rng(3)
    records, left_out = population(rng, 240), halves(rng, 240)
    weights = rng.choice([1.0, 3.0], 240)
    table = bnp.weighted_microdata(records, weights)

    def made(rows):
        rows = np.flatnonzero(rows)
        return some_of(records, np.repeat(rows, weights[rows].astype(int)))

    files = made(~left_out), made(np.ones(240, bool))
    found = [
        bnp.evaluation.left_out_risk(sample, left_out, files[0], released=files[1])
        for sample in (table, records)
    ]
    right = [gain_of(risk, "all_others", "right") for risk in found]
    assert right[0] > 0.99 > right[1]


def test_zeros_and_persons():
    """The intruder guesses no impossible value, and only the chosen persons are attacked."""
    rng = np.random.default_rng(4)
    table, left_out = population(rng, 200), halves(rng, 200)
    table = some_of(table, ~((table.codes[:, 0] == 0) & (table.codes[:, 3] == 1)))
    left_out = left_out[: table.n]
    zeros = pd.DataFrame({"a": [0], "d": ["y"]})
    chosen = table.codes[:, 0] == 0
    risk = bnp.evaluation.left_out_risk(
        table, left_out, population(rng, 200), conditions=zeros, persons=chosen
    )
    assert set(risk.rows) == set(np.flatnonzero(chosen))
    # The last variable of these persons has one possible value.
    assert (risk.guesses["files"].right[:, 3] == 1).all()
    assert len(bnp.evaluation.left_out_risk(table, left_out, table, most=20).rows) == 20


def test_records_that_are_left_out():
    rng = np.random.default_rng(5)
    table, key = population(rng, 50), jax.random.key(0)
    chosen = bnp.evaluation.choose_left_out(table, key)
    assert chosen.sum() == 10 and (chosen == bnp.evaluation.choose_left_out(table, key)).all()
    # Of ten classes of weights, each keeps a record.
    weighted = bnp.weighted_microdata(table, np.minimum(np.arange(50.0) + 1, 10))
    for seed in range(10):
        left_out = bnp.evaluation.choose_left_out(weighted, jax.random.key(seed), 0.6)
        assert set(weighted.class_codes[~left_out]) == set(range(10)) and left_out.sum() == 30
    with pytest.raises(ValueError, match="0 of 50 records cannot be left out"):
        bnp.evaluation.choose_left_out(table, key, 0.001)


def test_refused():
    rng = np.random.default_rng(6)
    table = population(rng, 50)
    risk_of = bnp.evaluation.left_out_risk
    with pytest.raises(ValueError, match="left_out must say True or False of each of the 50"):
        risk_of(table, np.zeros(50), table)
    with pytest.raises(ValueError, match="some records must be left out"):
        risk_of(table, np.zeros(50, bool), table)
    with pytest.raises(ValueError, match="num_chance must be at least 2, not 1"):
        risk_of(table, np.arange(50) < 20, table, num_chance=1)
    few = risk_of(table, np.arange(50) < 5, table)
    assert few.warnings() == ["fewer than 20 persons could be attacked in one of the two groups"]
    assert few.entries == [] and len(few.summary()["gains"]) == 0 and len(few.gains()) == 0
    assert "too few" in few.in_words() and "nothing can be concluded" in few.conclusion()
