"""Records given some of their values: of the exact conditional distribution, zeros and all."""

import dataclasses
import itertools

import jax
import numpy as np
import pandas as pd
import pytest
from goodness import P_LIMIT, chi_square_p_value

import bnp_models as bnp
from bnp_models.inference.trace import Settings
from bnp_models.risk.evaluator import cell_probabilities
from bnp_models.synthesis.given import admitted_levels, boxes_within, check_given

SCHEMA = bnp.Schema(("age", "sex", "work"), (("0-14", "15-64", "65+"), ("f", "m"), ("no", "yes")))
CELLS = np.array(list(itertools.product(*map(range, SCHEMA.num_levels))))
ZEROS = pd.DataFrame({"age": ["0-14"], "sex": [None], "work": ["yes"]})
NUM_ROWS = 20_000


def run_of(latent, kind, with_zeros):
    """One draw given by hand, on records that are possible."""
    rng, rows = np.random.default_rng(1), sum(SCHEMA.num_levels)
    levels = np.concatenate([rng.dirichlet(np.ones(k), (1, 1, 4)).swapaxes(2, 3)
                             for k in SCHEMA.num_levels], axis=2)  # fmt: skip
    weights = rng.dirichlet(np.ones(4), (1, 1))
    zeros = bnp.StructuralZeros.from_frame(ZEROS, SCHEMA) if with_zeros else None
    possible = CELLS if zeros is None else CELLS[~zeros.contains(CELLS)]
    draws = {"alpha": np.full((1, 1), 0.7), "log_feasible": np.zeros((1, 1)),
             "level_shape": np.ones((1, 1, rows))}  # fmt: skip
    if kind == "hdp":
        model = bnp.HDPMixedMembership(capacity=4)
        draws |= {"g0": weights, "theta": levels, "alpha_rate": np.ones((1, 1))}
    else:
        model = bnp.TNPLCM(components=4)
        draws |= {"log_pi": np.log(weights), "log_lambda": np.log(levels)}
    return dataclasses.replace(
        latent.run, model=model, table=bnp.Microdata(SCHEMA, possible), conditions=zeros,
        draws={name: np.float32(x) for name, x in draws.items()}, capacity=4,
        settings=Settings(1, 0, 1, 1, (), (1,)),
    )  # fmt: skip


@pytest.mark.parametrize("given", [{"sex": "m"}, {"work": ["no"], "age": ("0-14", "65+")}])
@pytest.mark.parametrize("with_zeros", [False, True])
@pytest.mark.parametrize("kind", ["tnplcm", "hdp"])
def test_records_follow_the_conditional_distribution(latent, kind, with_zeros, given):
    run = run_of(latent, kind, with_zeros)
    blocks = cell_probabilities(run, run.parameters(), CELLS, "exact", jax.random.key(0))
    (p,) = np.exp(np.concatenate([log_p for log_p, _, _ in blocks]))
    if with_zeros:
        p = np.where(run.conditions.contains(CELLS), 0, p)
    labels = bnp.Microdata(SCHEMA, CELLS).to_frame()
    for name, values in given.items():
        p = np.where(labels[name].isin([values] if isinstance(values, str) else values), p, 0)
    (frame,) = bnp.synthesize(run, 1, NUM_ROWS, given=given, key=jax.random.key(2))
    codes = bnp.Microdata.from_frame(frame, levels=SCHEMA).codes
    cell = np.ravel_multi_index(codes.T, SCHEMA.num_levels)
    counts = np.bincount(cell, minlength=len(CELLS))
    assert counts.sum() == NUM_ROWS and chi_square_p_value(counts, p) > P_LIMIT
    # The records of the whole file are seen to be others.
    (other,) = bnp.synthesize(run, 1, NUM_ROWS, key=jax.random.key(3))
    codes = bnp.Microdata.from_frame(other, levels=SCHEMA).codes
    counts = np.bincount(np.ravel_multi_index(codes.T, SCHEMA.num_levels), minlength=len(CELLS))
    assert chi_square_p_value(counts, p) < P_LIMIT


def test_no_box_is_left_without_a_level():
    sets = np.array([[1, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 0]], bool)
    admitted = admitted_levels({"work": ["yes"], "age": ["0-14"]}, SCHEMA)
    within = boxes_within(sets, admitted, SCHEMA.num_levels)
    assert within.tolist() == [[True, False, False, True, True, False, True]]


def test_values_that_cannot_be_given(latent):
    run = run_of(latent, "tnplcm", True)
    for given, problem in (
        ({"age": "0-14", "work": "yes"}, "in a structural zero"), ({"no": "x"}, "unknown column"),
        ({"sex": "x"}, "'x' is not a declared level"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=problem):
            bnp.synthesize(run, 1, given=given)
    for more, problem in (
        ({"keep": ["sex"]}, "cannot be combined with keep"),
        ({"method": "balanced"}, "only"),
    ):
        with pytest.raises(ValueError, match=problem):
            bnp.synthesize(run, 1, given={"sex": "m"}, **more)
    model, rare = bnp.HDPMixedMembership(), {"sex": ["m"]}
    table = bnp.Microdata(SCHEMA, np.array([[1, 0, 0], [2, 0, 1]]))
    with pytest.raises(ValueError, match="0 of 2 records of the sample have these values"):
        check_given(rare, model, table, None, "predictive", 5)
    check_given({"sex": ["f"]}, model, table, None, "predictive", 5)
    check_given(rare, bnp.NPLCM(), table, None, "predictive", 5)


@pytest.mark.parametrize("kind", ["tnplcm", "hdp"])
def test_records_under_zeros_of_which_the_chains_knew_nothing(latent, kind):
    run = run_of(latent, kind, False)
    blocks = cell_probabilities(run, run.parameters(), CELLS, "exact", jax.random.key(0))
    (p,) = np.exp(np.concatenate([log_p for log_p, _, _ in blocks]))
    possible = ~bnp.StructuralZeros.from_frame(ZEROS, SCHEMA).contains(CELLS)
    for given in (None, {"sex": "m"}):
        wanted = possible & (given is None or CELLS[:, 1] == 1)
        (frame,) = bnp.synthesize(
            run, 1, NUM_ROWS, conditions=ZEROS, given=given, key=jax.random.key(2)
        )
        codes = bnp.Microdata.from_frame(frame, levels=SCHEMA).codes
        counts = np.bincount(np.ravel_multi_index(codes.T, SCHEMA.num_levels), minlength=len(CELLS))
        assert counts.sum() == NUM_ROWS
        assert chi_square_p_value(counts, np.where(wanted, p, 0)) > P_LIMIT
        assert chi_square_p_value(counts, wanted) < P_LIMIT


def test_zeros_that_cannot_be_kept(latent):
    free, ruled = run_of(latent, "tnplcm", False), run_of(latent, "tnplcm", True)
    zeros = ruled.conditions
    schema = bnp.Schema(SCHEMA.variables, (*SCHEMA.levels[:2], ("no", "yes", "ill")))
    other = bnp.StructuralZeros.from_frame(ZEROS, schema)
    hdp = run_of(latent, "hdp", False)
    recoded = dataclasses.replace(hdp, model=bnp.HDPMixedMembership(not_applicable=True))
    child = bnp.Microdata(SCHEMA, np.array([[0, 0, 1], [0, 1, 1]]))
    for run, conditions, more, problem in (
        (ruled, zeros, {}, "the chains had structural zeros"),
        (free, zeros, {"method": "calibrated"}, 'only by method "predictive"'),
        (free, zeros, {"method": "balanced"}, 'only by method "predictive"'),
        (free, zeros, {"keep": ["sex"]}, "without keep"),
        (free, bnp.Rules(), {}, "takes StructuralZeros, not Rules"),
        (free, other, {}, "another schema"),
        (recoded, zeros, {}, "which chains without conditions do not know"),
        (dataclasses.replace(hdp, table=child), zeros, {}, "0 of 2 records of the sample are"),
    ):
        with pytest.raises(ValueError, match=problem):
            bnp.synthesize(run, 1, conditions=conditions, **more)
