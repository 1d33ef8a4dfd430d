"""Laws of runs with design weights, against sums over the classes of weights, one by one.

Parameters are made up: the law's cells, records and margins are those of sum_s w_s p(x, s).
"""

import dataclasses
from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value
from harness import Z_LIMIT

import bnp_models as bnp
from bnp_models.data.weight_classes import VARIABLE
from bnp_models.inference.trace import Settings
from bnp_models.risk.evaluator import cell_probabilities
from bnp_models.synthesis.synthesize import _simulate_records

WEIGHTS = np.array([1.2, 2.0, 5.0])
NUM_LEVELS = (2, 3, 2)
NUM_DRAWS, NUM_COMPONENTS = 3, 4
SCHEMA = bnp.Schema(("a", "b", "c"), tuple(tuple(range(size)) for size in NUM_LEVELS))
CELLS = np.array(list(product(*map(range, NUM_LEVELS))), np.int32)

# b is 2 where a is 1 and nowhere else, so that it can be left out there; and c is not 1 with b = 0.
ZEROS = np.array([[1, 0, -1], [1, 1, -1], [0, 2, -1], [-1, 0, 1]])

MODELS = {
    "nplcm": bnp.NPLCM(components=NUM_COMPONENTS),
    "tnplcm": bnp.TNPLCM(components=NUM_COMPONENTS),
    "hdp": bnp.HDPMixedMembership(),
    "hierarchical": bnp.HDPMixedMembership(concentration="hierarchical"),
    "zeros": bnp.HDPMixedMembership(),
    "not-applicable": bnp.HDPMixedMembership(not_applicable=True),
    "profiles": bnp.MixedMembership(components=NUM_COMPONENTS),
}
VARIANTS = ("hierarchical", "not-applicable", "profiles")
CASES = [pytest.param(x, marks=[pytest.mark.long] * (x in VARIANTS)) for x in MODELS]
CONSTRAINED = ("tnplcm", "zeros", "not-applicable")
LAWS = {
    bnp.inference.sample_law: np.ones(3),
    bnp.inference.population_law: WEIGHTS,
    bnp.inference.unsampled_law: WEIGHTS - 1,
}  # fmt: skip


def weighted_table(weights=WEIGHTS):
    """Records of feasible cells, each with a weight of a class."""
    codes = CELLS[[0, 2, 3, 10, 11, 10]]
    return bnp.weighted_microdata(bnp.Microdata(SCHEMA, codes), weights[[0, 1, 2, 2, 1, 0]])


@cache
def run_of(name, equal=False):
    """A run whose kept draws are made up, and whose P(feasible) is right."""
    model, table = MODELS[name], weighted_table(np.full(3, 7.0) if equal else WEIGHTS)
    rng = np.random.default_rng(3)
    conditions = None
    if name in CONSTRAINED:
        codes = np.pad(ZEROS, ((0, 0), (0, 1)), constant_values=-1)
        conditions = bnp.StructuralZeros.from_codes(codes, table.schema)
    settings = Settings(1, 0, NUM_DRAWS, 1, ("alpha",), (1,))
    run = bnp.Run(model, table, settings, {}, jax.random.key(9), None, NUM_COMPONENTS, (),
                  conditions)  # fmt: skip
    levels = np.concatenate(
        [rng.dirichlet(np.full(size, 0.4), (NUM_DRAWS, NUM_COMPONENTS)).swapaxes(1, 2)
         for size in run.num_levels], axis=1,
    )  # fmt: skip
    weights = rng.dirichlet(np.full(NUM_COMPONENTS, 3.0), NUM_DRAWS)
    draws = {"alpha": np.full(NUM_DRAWS, 0.4), "log_feasible": np.zeros(NUM_DRAWS)}
    if isinstance(model, bnp.NPLCM | bnp.TNPLCM):
        draws |= {"log_pi": np.log(weights), "log_lambda": np.log(levels)}
    else:
        if name == "not-applicable":
            levels = np.append(levels, np.ones_like(levels[:, :1]), axis=1)
        draws |= {"g0": weights, "theta": levels, "alpha_rate": np.full(NUM_DRAWS, 1.4)}
    draws = {key: np.asarray(x, np.float32)[None] for key, x in draws.items()}
    run = dataclasses.replace(run, draws=draws)
    everywhere = np.log(np.sum(np.exp(joint(run)), axis=(1, 2)))
    return dataclasses.replace(
        run, draws=draws | {"log_feasible": everywhere.astype(np.float32)[None]}
    )


def feasible_cells(run):
    """Cells of the records without the class that structural zeros leave."""
    if run.conditions is None:
        return CELLS
    of_class = np.zeros((len(CELLS), 1), np.int32)
    return CELLS[~run.conditions.contains(np.append(CELLS, of_class, axis=1))]


def log_probabilities(run, codes):
    """log p (draws, cells) by the package, whose joint law of all variables is tested elsewhere."""
    blocks = cell_probabilities(run, run.parameters(), codes, "exact", jax.random.key(0))
    return np.concatenate([log_p for log_p, _, _ in blocks])


def joint(run):
    """log p(x, s) (draws, cells, classes) of feasible cells."""
    cells, classes = feasible_cells(run), range(len(run.table.class_weights))
    codes = [np.append(cells, np.full((len(cells), 1), s, np.int32), axis=1) for s in classes]
    return np.stack([log_probabilities(run, of_class) for of_class in codes], axis=2)


def exact(run, weights):
    """Probabilities (draws, cells) of the law, class by class."""
    p = np.exp(joint(run)) @ weights
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", CASES)
def test_cells_of_a_law_are_the_sums_over_the_classes(name):
    run = run_of(name)
    for law_of, weights in LAWS.items():
        law = law_of(run)
        assert VARIABLE not in law.table.schema.variables
        found = np.exp(log_probabilities(law, feasible_cells(run)))
        np.testing.assert_allclose(found, exact(run, weights), rtol=2e-4)
        # Errors that would pass for a law: w for w - 1, and no weights at all.
        for other in LAWS.values():
            if other is not weights:
                assert np.abs(found / exact(run, other) - 1).max() > 0.01


@pytest.mark.parametrize("name", CASES)
def test_records_of_a_law_are_as_its_cells(name):
    run, number = run_of(name), 60_000
    law = bnp.inference.population_law(run)
    cells = [tuple(cell) for cell in feasible_cells(run)]
    right, wrong = exact(run, WEIGHTS), exact(run, WEIGHTS - 1)
    of_sample = exact(run, np.ones(3))
    simulated = _simulate_records(law, NUM_DRAWS, number, jax.random.key(4), law.feasible_sets)
    p_values = []
    for d, batches in enumerate(simulated):
        codes, counts = np.unique(np.concatenate(list(batches)), axis=0, return_counts=True)
        hits = np.zeros(len(cells))
        hits[[cells.index(tuple(code)) for code in codes]] = counts
        p_values.append([chi_square_p_value(hits, p[d]) for p in (right, wrong, of_sample)])
    p_values = np.array(p_values)
    assert p_values[:, 0].min() > P_LIMIT
    assert p_values[:, 1:].min(axis=0).max() < P_LIMIT


@pytest.mark.parametrize("name", ["nplcm", "tnplcm", "hdp", "zeros"])
def test_margins_of_a_law_are_those_of_its_cells(name):
    run = run_of(name)
    p = exact(run, WEIGHTS)
    cells = feasible_cells(run)
    expected = [p @ (cells[:, j] == level) for j, n in enumerate(NUM_LEVELS) for level in range(n)]
    found = bnp.level_margins(run).draws[0]
    np.testing.assert_allclose(found, np.stack(expected, axis=1), rtol=1e-3, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("name", ["hdp", "zeros"])
def test_shared_draws_estimate_the_same_law(name):
    """The estimator for many variables takes the item of the weight class as the exact one does."""
    run = run_of(name)
    law, cells = bnp.inference.unsampled_law(run), feasible_cells(run)
    blocks = cell_probabilities(law, law.parameters(), cells, "draws", jax.random.key(1))
    (log_p, error, _), *_ = blocks
    z = (np.exp(log_p) / exact(run, WEIGHTS - 1) - 1) / error
    assert np.abs(z).max() < Z_LIMIT


@pytest.mark.parametrize("name", ["nplcm", "hdp"])
def test_merged_levels_of_a_law_have_the_sums_of_its_cells(name):
    run = run_of(name)
    law = bnp.inference.unsampled_law(run)
    draws = law.parameters()
    # b is left out, and the levels of a are one.
    merged = run.model.merge_levels(draws, np.array([0, 0, -1, -1, -1, 5, 6]))
    coarser = dataclasses.replace(law, draws=law.draws | merged)
    found = np.exp(log_probabilities(coarser, np.array([[0, 0, 0], [0, 0, 1]], np.int32)))
    p = exact(run, WEIGHTS - 1)
    np.testing.assert_allclose(found[:, 0], p @ (CELLS[:, 2] == 0), rtol=2e-4)
    np.testing.assert_allclose(found[:, 1], p @ (CELLS[:, 2] == 1), rtol=2e-4)


def test_a_run_without_weights_is_its_own_law():
    run = dataclasses.replace(run_of("nplcm"), table=weighted_table().records)
    assert all(law_of(run) is run for law_of in LAWS)


def test_equal_weights_give_the_laws_of_the_sample():
    run = run_of("nplcm", equal=True)
    for law_of in LAWS:
        found = np.exp(log_probabilities(law_of(run), CELLS))
        np.testing.assert_allclose(found, exact(run, np.ones(1)), rtol=1e-5)
    assert "all design weights are equal, so that they change nothing" in run.table.warnings(42)


def test_conditions_that_leave_no_exact_law_are_refused():
    """Ten variables that a condition ties together, one more with the class."""
    names = tuple("abcdefghij")
    schema = bnp.Schema(names, ((0, 1),) * 10)
    rng = np.random.default_rng(0)
    records = bnp.Microdata(schema, rng.integers(0, 2, (20, 10)))
    records = bnp.Microdata(schema, np.where(np.arange(10) == 0, 0, records.codes))
    table = bnp.weighted_microdata(records, 1.0 + np.arange(20) % 3)
    zeros = bnp.StructuralZeros.from_codes(np.array([[1] * 10 + [-1]]), table.schema)
    with pytest.raises(bnp.MicrodataError, match="design weights.*use tnplcm"):
        bnp.HDPMixedMembership().prepare(table, zeros)
    bnp.TNPLCM().prepare(table, zeros)


def test_scalars_of_all_draws_and_arrays_of_some_stay_together():
    run = run_of("tnplcm")
    settings = dataclasses.replace(run.settings, num_samples=2 * NUM_DRAWS, parameters_every=2)
    draws = {name: np.repeat(x, 2, axis=1) if x.ndim == 2 else x for name, x in run.draws.items()}
    sparse = dataclasses.replace(run, settings=settings, draws=draws)
    found = bnp.inference.population_law(sparse).parameters()
    for name, value in bnp.inference.population_law(run).parameters().items():
        np.testing.assert_array_equal(found[name], value)
    assert jnp.ndim(found["log_feasible"]) == 2
