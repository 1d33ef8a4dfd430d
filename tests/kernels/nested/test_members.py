"""Kernels of nested latent classes against plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value

from bnp_models.kernels.nested.members import (
    draw_member_classes,
    in_parts,
    log_member_probability,
    merge_plan,
    merged_rows,
    merged_tables,
    repeat_by_member,
    sum_by_household,
)
from bnp_models.kernels.numerics.counting import first_rows

NUM_LEVELS = (5, 2, 3, 40, 2)
F, S, N = 4, 3, 300


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    phi = np.concatenate([rng.dirichlet(np.full(size, 0.3), (F, S)).transpose(2, 0, 1)
                          for size in NUM_LEVELS])  # fmt: skip
    phi = np.maximum(phi, 1e-12)
    omega = rng.dirichlet(np.ones(S), F)
    codes = np.stack([rng.integers(0, size, N) for size in NUM_LEVELS])
    rows = codes + first_rows(NUM_LEVELS)[:, None]
    exact = omega * np.prod(phi[rows], axis=0)
    plan = merge_plan(NUM_LEVELS)
    tables = merged_tables(jnp.asarray(phi, jnp.float32), NUM_LEVELS, plan)
    merged = merged_rows(jnp.asarray(codes, jnp.int32), NUM_LEVELS, plan)
    return exact, tables, jnp.asarray(omega, jnp.float32), merged


def test_plan_has_every_variable_once():
    plan = merge_plan(NUM_LEVELS)
    assert sorted(j for table in plan for j in table) == list(range(len(NUM_LEVELS)))


def test_member_probability(problem):
    exact, tables, omega, rows = problem
    log_p = log_member_probability(tables, omega, rows)
    np.testing.assert_allclose(log_p, np.log(exact.sum(axis=2)), atol=2e-4)


def test_member_classes(problem):
    exact, tables, omega, rows = problem
    member, g = 7, 2
    p = exact[member, g] / exact[member, g].sum()
    repeated = jnp.broadcast_to(rows[:, member : member + 1], (len(tables), 20_000))
    drawn = draw_member_classes(
        jax.random.key(1), tables, omega, repeated, jnp.full(20_000, g, jnp.int32)
    )
    assert chi_square_p_value(np.bincount(drawn, minlength=S), p) > P_LIMIT
    # Another household class is told apart.
    q = exact[member, 1] / exact[member, 1].sum()
    assert chi_square_p_value(np.bincount(drawn, minlength=S), q) < P_LIMIT


def test_sums_by_household():
    blocks = ((0, 2), (1, 3), (3, 2))
    x = jnp.arange(9.0)[:, None] * jnp.ones(2)
    np.testing.assert_array_equal(sum_by_household(x, blocks)[:, 0], [0, 0, 0, 1, 2, 12, 21])
    members = repeat_by_member(jnp.arange(7, dtype=jnp.int32), blocks)
    np.testing.assert_array_equal(members, [2, 3, 4, 5, 5, 5, 6, 6, 6])


def test_sums_by_household_in_parts():
    """Each part has its share of every block; padding stands for nobody."""
    blocks, parts = ((0, 2), (1, 5), (3, 4)), 3
    of_part, households, members = in_parts(blocks, parts)
    assert of_part == ((0, 1), (1, 2), (3, 2))
    assert (households.weight.sum(), len(households.unit)) == (11, 15)
    assert (members.weight.sum(), len(members.unit)) == (17, 24)
    np.testing.assert_array_equal(members.unit[members.place], np.arange(17))
    x = jnp.arange(17.0)[:, None] ** jnp.arange(1, 3)
    exact = sum_by_household(x, blocks)
    found = sum_by_household(x[members.unit] * members.weight[:, None], of_part, parts)
    np.testing.assert_array_equal(found[households.place], exact)
    g = jnp.arange(11, dtype=jnp.int32)
    repeated = repeat_by_member(g[households.unit], of_part, parts)
    np.testing.assert_array_equal(repeated[members.place], repeat_by_member(g, blocks))
    # Every part by itself has whole households, as a device with it has.
    for own, whole in ((found, x[members.unit]), (repeated, g[households.unit])):
        assert len(own) % parts == len(whole) % parts == 0
