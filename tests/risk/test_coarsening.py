"""Coarser keys: probabilities summed by hand, statements read, and what is refused."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.inference.settings import Settings
from bnp_models.risk.coarsening import parse_coarsening
from bnp_models.risk.population import cell_probabilities

SCHEMA = bnp.Schema(("age", "sex", "town"), (("young", "middle", "old"), (0, 1), tuple("abcd")))
NUM_LEVELS = SCHEMA.num_levels
CELLS = np.array(list(itertools.product(*map(range, NUM_LEVELS))))
SPECS = ("drop:sex", "merge:age=young+middle", "merge:town=b+d")


@pytest.fixture(scope="module", params=["hdp", "nplcm"])
def run(request, small, latent):
    """Runs of either family with draws by hand."""
    rng = np.random.default_rng(0)
    levels = [np.moveaxis(rng.dirichlet(np.ones(s), (2, 3, 4)), 3, 2) for s in NUM_LEVELS]
    theta, pi = np.concatenate(levels, axis=2), rng.dirichlet(np.ones(4), (2, 3))
    draws = {"alpha": rng.gamma(2, 1, (2, 3)), "log_feasible": np.zeros((2, 3)),
             "level_shape": np.ones((2, 3, sum(NUM_LEVELS)))}  # fmt: skip
    if request.param == "hdp":
        model, base = bnp.HDPMixedMembership(), small.run
        draws |= {"theta": theta, "g0": pi, "alpha_rate": np.ones((2, 3))}
    else:
        model, base = bnp.NPLCM(components=4), latent.run
        draws |= {"log_lambda": np.log(theta), "log_pi": np.log(pi)}
    return dataclasses.replace(
        base, model=model, table=bnp.Microdata(SCHEMA, CELLS[::2]), conditions=None,
        draws={name: np.float32(x) for name, x in draws.items()},
        settings=Settings(2, 0, 3, 1, (), (2,)),
    )  # fmt: skip


def probabilities(run, cells):
    blocks = cell_probabilities(run, run.parameters(), cells, "exact", jax.random.key(0))
    return np.exp(np.concatenate([log_p for log_p, _, _ in blocks]))


def test_probabilities_of_coarser_cells_are_sums_of_finer_ones(run):
    coarse = bnp.coarsen(run, *SPECS)
    assert coarse.table.schema.variables == ("age", "town")
    assert coarse.table.schema.levels == (("young+middle", "old"), ("a", "b+d", "c"))
    fine = probabilities(run, CELLS)
    np.testing.assert_allclose(fine.sum(axis=1), 1, rtol=1e-4)
    age, town = np.array([0, 0, 1]), np.array([0, 1, 2, 1])
    cells = np.array(list(itertools.product(range(2), range(3))))
    exact = np.stack(
        [fine[:, (age[CELLS[:, 0]] == a) & (town[CELLS[:, 2]] == t)].sum(axis=1) for a, t in cells],
        axis=1,
    )
    np.testing.assert_allclose(probabilities(coarse, cells), exact, rtol=1e-4)
    np.testing.assert_array_equal(
        coarse.table.codes, np.stack([age[CELLS[::2, 0]], town[CELLS[::2, 2]]], axis=1)
    )
    np.testing.assert_allclose(coarse.draws["level_shape"][0, 0], [2, 1, 1, 2, 1])


def test_the_risk_of_coarser_keys_follows(run):
    """Fewer uniques, and those of a variable that has one level are as before."""
    fine = bnp.population_risk(run, 500)
    coarse = bnp.population_risk(bnp.coarsen(run, "drop:town"), 500)
    assert len(coarse.rows) <= len(fine.rows)
    assert coarse.tau1.mean() < fine.tau1.mean()


def test_a_group_of_groups_is_one_level():
    found = parse_coarsening(["merge:town=a+b", "merge:town=b+c"], SCHEMA)
    assert found.schema.levels[2] == ("a+b+c", "d")
    numbers = parse_coarsening(["drop:age,town"], SCHEMA)
    assert numbers.schema.levels == ((0, 1),)


@pytest.mark.parametrize(
    ("specs", "match"),
    [
        (["age"], "is no coarsening"),
        (["drop:"], "is no coarsening"),
        (["merge:age"], "is no coarsening"),
        (["drop:income"], "income"),
        (["merge:age=young+ancient"], "has no level 'ancient'"),
        (["merge:age=young+young"], "two different levels"),
        (["drop:age,sex,town"], "every variable is dropped"),
        (["drop:age", "merge:age=young+old"], "dropped and has levels merged"),
    ],
)
def test_statements_that_are_refused(specs, match):
    with pytest.raises(bnp.MicrodataError, match=match):
        parse_coarsening(specs, SCHEMA)


def test_structural_zeros_are_refused(latent):
    with pytest.raises(ValueError, match="without structural zeros only"):
        bnp.coarsen(latent.run, "drop:age")
