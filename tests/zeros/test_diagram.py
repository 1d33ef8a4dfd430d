"""Diagrams: probabilities along their edges, lookups under jit, counts of any size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from regions import by_definition, enumerated, numbered_schema

from bnp_models.data.schema import MicrodataError
from bnp_models.zeros.boxes import IMPOSSIBLE, Boxes
from bnp_models.zeros.structural_zeros import StructuralZeros

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("fixture", ["sixty", "pairwise"])
def test_the_walk_runs_under_jit(fixture, request):
    zeros = request.getfixturevalue(fixture)
    strides, table, start = zeros.walk

    @jax.jit
    def impossible(codes):
        index = codes @ strides
        position = jnp.full(len(codes), start, dtype=jnp.int32)
        for g in range(strides.shape[1]):
            position = jnp.asarray(table)[position + index[:, g]]
        return position == IMPOSSIBLE

    num_levels = zeros.schema.num_levels
    rng = np.random.default_rng(6)
    codes = rng.integers(0, num_levels, (5_000, len(num_levels)), dtype=np.int32)
    np.testing.assert_array_equal(impossible(codes), by_definition(zeros.conditions, codes))


def test_edges_carry_probabilities(sixty):
    """Mass flows along the edges to the sum over the impossible cells."""
    rng = np.random.default_rng(7)
    levels = [rng.dirichlet(np.ones(k)) for k in sixty.schema.num_levels]
    table = levels[0]
    for column in levels[1:]:
        table = np.multiply.outer(table, column)
    truth = table[enumerated(sixty.conditions, sixty.schema.num_levels)].sum()
    diagram = sixty.diagram
    weights = diagram.sets @ np.concatenate(levels)
    mass = np.zeros(len(diagram.variable))
    mass[IMPOSSIBLE] = 1
    for parent, child, weight in zip(diagram.parent, diagram.child, weights, strict=True):
        mass[parent] += weight * mass[child]
    assert mass[diagram.root] == pytest.approx(truth, rel=1e-10)
    by_box = np.prod(
        [sets @ p for sets, p in zip(sixty.impossible.by_variable, levels, strict=True)], axis=0
    )
    assert by_box.sum() == pytest.approx(truth, rel=1e-10)


def test_counts_are_exact_beyond_64_bits():
    levels = 11
    schema = numbered_schema((levels,) * 60)
    conditions = np.full((30, 60), -1)
    for row in range(30):
        conditions[row, [2 * row, 2 * row + 1]] = 3, 4
    zeros = StructuralZeros.from_codes(conditions, schema)
    assert zeros.num_feasible_cells == (levels**2 - 1) ** 30
    assert zeros.num_impossible_cells == levels**60 - (levels**2 - 1) ** 30
    assert Boxes.from_codes(conditions, schema.num_levels).sizes == (levels**58,) * 30
    # 2^30 feasible boxes are counted but not listed; 30 nodes walk the same region.
    assert len(zeros.diagram.variable) == 2 + 60
    with pytest.raises(MicrodataError, match=f"{2**30} disjoint boxes, too many to list"):
        zeros.feasible  # noqa: B018
    np.testing.assert_array_equal(zeros.contains(np.full((2, 60), [[3], [4]])), [False, False])
    np.testing.assert_array_equal(zeros.contains(np.array([[0] * 58 + [3, 4]])), [True])
