"""Propensity scores against a general optimiser, at the extremes, under the null."""

import itertools

import numpy as np
import pandas as pd
import pytest
from dependent import NAMES, SCHEMA, draw
from scipy import optimize

import bnp_models as bnp
from bnp_models.evaluation import propensity


def slow_pmse(original, synthetic, interactions):
    """By records, dummies and a general optimiser."""
    frame = pd.concat([original.to_frame(), synthetic.to_frame()])
    made = np.repeat([0.0, 1.0], [original.n, synthetic.n])
    columns = [pd.get_dummies(frame[name], drop_first=True, dtype=float).to_numpy()
               for name in NAMES]  # fmt: skip
    if interactions:
        columns += [(a[:, :, None] * b[:, None]).reshape(len(frame), -1)
                    for a, b in itertools.combinations(columns, 2)]  # fmt: skip
    x = np.concatenate([np.ones((len(frame), 1)), *columns], axis=1)

    def loss(beta):
        eta = x @ beta
        fitted = 1 / (1 + np.exp(-eta))
        return np.logaddexp(0, eta).sum() - made @ eta, x.T @ (fitted - made)

    beta = optimize.minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B",
                             options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-8}).x  # fmt: skip
    share = made.mean()
    pmse = ((1 / (1 + np.exp(-x @ beta)) - share) ** 2).mean()
    columns = np.linalg.matrix_rank(x) - 1
    return pmse, columns, pmse / (columns * (1 - share) ** 2 * share / len(frame))


@pytest.mark.parametrize("interactions", [False, True])
def test_propensity_score_against_a_general_optimiser(files, interactions):
    original, synthetic, _ = files
    score = bnp.evaluation.propensity_score(original, synthetic[0], interactions=interactions)
    pmse, parameters, ratio = slow_pmse(original, synthetic[0], interactions)
    assert score.parameters == parameters == (31 if interactions else 8)
    assert score.pmse == pytest.approx(pmse, rel=1e-4)
    assert score.ratio == pytest.approx(ratio, rel=1e-4)
    deviation = np.sqrt(2 / parameters)
    assert score.z == pytest.approx((ratio - 1) / deviation, rel=1e-3)
    assert score.ratio_predictive == pytest.approx(score.ratio * 400 / 700)
    assert score.z_predictive == pytest.approx((score.ratio_predictive - 1) / deviation)


def test_the_original_itself_scores_nothing(files):
    original, _, _ = files
    shuffled = bnp.Microdata(SCHEMA, original.codes[::-1])
    for interactions in (False, True):
        score = bnp.evaluation.propensity_score(original, shuffled, interactions=interactions)
        assert score.pmse == score.ratio == 0
        assert score.z == pytest.approx(-np.sqrt(score.parameters / 2))


def test_a_bad_file_scores_badly(files):
    original, _, _ = files
    rng = np.random.default_rng(1)
    independent = bnp.Microdata(SCHEMA, rng.permuted(original.codes, axis=0))
    # Each variable is right, so that main effects do not tell, and interactions do.
    main = bnp.evaluation.propensity_score(original, independent)
    pairs = bnp.evaluation.propensity_score(original, independent, interactions=True)
    assert main.pmse < 1e-12 and pairs.ratio > 5 and pairs.z > 10


REPETITIONS = 200


@pytest.mark.parametrize("fault", [None, "unused level", "wrong share", "other null"])
@pytest.mark.parametrize("null", ["ratio", "ratio_predictive"])
def test_the_ratio_is_one_on_average_under_the_null(null, fault):
    """And is seen not to be where the standardisation has a fault."""
    rng = np.random.default_rng(2)
    ratios = []
    for _ in range(REPETITIONS):
        original = draw(rng, 600)
        if null == "ratio":
            synthetic = bnp.Microdata(SCHEMA, original.codes[rng.integers(600, size=300)])
        else:
            synthetic = draw(rng, 300)
        score = bnp.evaluation.propensity_score(original, synthetic)
        ratio = getattr(score, null)
        if fault == "unused level":
            ratio *= score.parameters / (score.parameters + 2)
        elif fault == "wrong share":
            ratio *= (2 / 3) / (1 / 3)
        elif fault == "other null":
            ratio = getattr(score, {"ratio": "ratio_predictive"}.get(null, "ratio"))
        ratios.append(ratio)
    # A chi-square variable with k - 1 = 8 degrees of freedom, over that number.
    away = (np.mean(ratios) - 1) / np.sqrt(2 / 8 / REPETITIONS)
    assert (abs(away) < 4) == (fault is None)


def test_aliases_and_levels_of_one_file_do_no_harm(files):
    original, synthetic, _ = files
    twice = bnp.Schema((*NAMES, "again"), (*SCHEMA.levels, SCHEMA.levels[0]))
    a, b = (bnp.Microdata(twice, table.codes[:, [0, 1, 2, 3, 0]])
            for table in (original, synthetic[0]))  # fmt: skip
    for interactions in (False, True):
        one = bnp.evaluation.propensity_score(original, synthetic[0], interactions=interactions)
        two = bnp.evaluation.propensity_score(a, b, interactions=interactions)
        assert two.pmse == pytest.approx(one.pmse, rel=1e-6)
        # Its product with itself is a main effect, and with others an interaction that is there.
        assert two.parameters == one.parameters
    # One variable: the fitted values are the shares in its cells, 1 where all are synthetic.
    schema = bnp.Schema(("x",), (tuple("abcd"),))
    counts = np.array([[30, 50, 20, 0], [10, 40, 0, 25]])
    a, b = (bnp.Microdata(schema, np.repeat(np.arange(4), count)[:, None]) for count in counts)
    away = counts[1] / counts.sum(axis=0) - 75 / 175
    score = bnp.evaluation.propensity_score(a, b)
    assert score.pmse == pytest.approx(counts.sum(axis=0) @ away**2 / 175, rel=1e-5)
    assert score.parameters == 3
    assert bnp.evaluation.proportions(a, [b], 1).fit["pmse_ratio"][0] == pytest.approx(
        score.ratio, rel=1e-5
    )


def test_one_cell_tells_nothing():
    schema = bnp.Schema(("x", "y"), (tuple("ab"), ("c",)))
    a, b = (bnp.Microdata(schema, np.zeros((n, 2), int)) for n in (7, 12))
    for interactions in (False, True):
        assert bnp.evaluation.propensity_score(a, b, interactions=interactions) == (
            0,
            0,
            0,
            0,
            0,
            0,
        )
    assert propensity.standardised(0.25, 0, 0.5, 4) == (0.25, 0, 0, 0, 0, 0)
    assert bnp.evaluation.proportions(a, b, 2).fit["pmse_ratio"].tolist() == [0]


def test_steps_that_go_too_far_are_halved():
    """Half of the records of one cell of a thousandth: Newton's first step is 500 in the logit."""
    schema = bnp.Schema(("x",), (tuple("ab"),))
    counts = np.array([[10_000, 5], [5, 5]])
    a, b = (bnp.Microdata(schema, np.repeat([0, 1], count)[:, None]) for count in counts)
    total, share = counts.sum(axis=0), 10 / 10_015
    exact = total @ (counts[1] / total - share) ** 2 / 10_015
    score = bnp.evaluation.propensity_score(a, b)
    assert score.pmse == pytest.approx(exact, rel=1e-5) and score.parameters == 1


def test_a_file_without_complete_records_is_refused(files):
    original, synthetic, _ = files
    empty = bnp.Microdata(SCHEMA, np.full_like(original.codes, -1))
    with pytest.raises(ValueError, match="no complete record"):
        bnp.evaluation.propensity_score(empty, synthetic[0])


def test_too_many_columns_are_refused():
    levels = tuple(map(str, range(5)))
    schema = bnp.Schema(tuple(f"v{j}" for j in range(12)), (levels,) * 12)
    rng = np.random.default_rng(3)
    a, b = (bnp.Microdata(schema, rng.integers(5, size=(500, 12))) for _ in range(2))
    with pytest.raises(ValueError, match="more than the 50 allowed"):
        bnp.evaluation.propensity_score(a, b, interactions=True, max_parameters=50)
    assert propensity.num_columns([a, b], True) == 12 * 4 + 66 * 16
