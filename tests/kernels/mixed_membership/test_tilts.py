"""Tilts along an equivalence: what they leave alone, and the distribution that they keep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, compiles_once
from harness import levels_of
from latent import feasible_cells, structural_zeros
from scipy import stats

from bnp_models.kernels.mixed_membership.tilts import (
    Atoms,
    DirichletDensity,
    Truncation,
    tilt_component,
)
from bnp_models.kernels.mixed_membership.urn_boxes import (
    UrnBoxes,
    block_products,
    partition_totals,
    probability,
    weights_by_size,
)
from bnp_models.kernels.numerics.set_partitions import log_block_weights

# The first level of the first variable goes with the first of the second, and one more condition.
NUM_LEVELS = (2, 3, 2)
FIRST = np.array([0, 2, 5])
VARIABLE = np.repeat(np.arange(3), NUM_LEVELS)
CONDITIONS = [[0, 1, -1], [0, 2, -1], [1, 0, -1], [1, 1, 0]]
N = 20_000


ZEROS = structural_zeros(CONDITIONS, NUM_LEVELS)
FEASIBLE = UrnBoxes.of_boxes(ZEROS.feasible.sets, NUM_LEVELS)


@jax.jit
def totals_of(theta, g0):
    return partition_totals(jnp.sum(block_products(theta, g0, FEASIBLE), axis=1), FEASIBLE)


def weights_of(alpha):
    return weights_by_size(log_block_weights(alpha, FEASIBLE.most_variables), FEASIBLE)


def make_state(seed, num_slots=4, dtype=np.float32):
    rng = np.random.default_rng(seed)
    theta = np.concatenate([rng.dirichlet(np.ones(size), num_slots).T for size in NUM_LEVELS])
    return jnp.asarray(theta, dtype), jnp.asarray(rng.dirichlet(np.ones(num_slots)), dtype)


LEVEL_SHAPE = np.array([0.4, 1.0, 2.0, 0.2, 0.7, 1.3, 0.5])


def tilt(
    key, theta, g0, counts, tables, others=0.7, num_records=6, alpha=0.9, shape=LEVEL_SHAPE,
    double=False,
):  # fmt: skip
    (direction,) = ZEROS.tilts
    density = DirichletDensity(
        counts, levels_of(NUM_LEVELS, jnp.asarray(shape, theta.dtype)), tables.astype(theta.dtype),
        jnp.asarray(others, theta.dtype),
    )  # fmt: skip
    return tilt_component(
        key, jnp.asarray(direction, theta.dtype), Atoms(theta, g0, totals_of(theta, g0)), density,
        Truncation(jnp.asarray(num_records), weights_of(alpha), FEASIBLE), double=double,
    )  # fmt: skip


TABLES = np.array([3, 0, 1, 2])


@pytest.fixture
def moved(key, seed):
    """Many tilts of one state."""
    theta, g0 = make_state(seed)
    counts = jnp.asarray(np.random.default_rng(seed).integers(0, 3, theta.shape) * (TABLES > 0))
    run = jax.jit(jax.vmap(lambda key: tilt(key, theta, g0, counts, jnp.asarray(TABLES))))
    return theta, g0, run(jax.random.split(key, 600))


def truncated(theta):
    """(..., cells, K): each component's distribution on the feasible cells, and its mass."""
    cells = feasible_cells(CONDITIONS, NUM_LEVELS)
    p = np.prod(np.asarray(theta, np.float64)[..., cells + FIRST, :], axis=-2)
    mass = p.sum(axis=-2, keepdims=True)
    return p / mass, mass[..., 0, :]


def test_a_tilt_changes_nothing_on_the_feasible_cells(moved):
    theta, g0, found = moved
    accepted = np.asarray(found.accepted)
    assert 60 < accepted.sum() < 540
    share, mass = truncated(theta)
    new_share, new_mass = truncated(found.theta)
    np.testing.assert_allclose(new_share, np.broadcast_to(share, new_share.shape), atol=1e-4)
    changed = np.abs(np.asarray(found.theta) - np.asarray(theta)).max(axis=1) > 1e-6
    # One component among those with a table, and each of these now and then.
    assert (changed.sum(axis=1) == accepted).all()
    np.testing.assert_array_equal(changed.any(axis=0), TABLES > 0)
    # The weight makes up for the mass.
    weight = np.asarray(g0) * mass
    new_weight = np.asarray(found.g0) * new_mass
    for line, moved_one in zip(new_weight[accepted], changed[accepted], strict=True):
        ratio = line / weight
        np.testing.assert_allclose(ratio[moved_one][0], ratio[~moved_one], rtol=3e-4)


def test_a_tilt_keeps_probabilities_and_totals(moved):
    _, g0, found = moved
    np.testing.assert_allclose(np.sum(found.g0, axis=1), 1, rtol=2e-5)
    sums = np.asarray(found.theta)
    for j in range(3):
        np.testing.assert_allclose(sums[:, VARIABLE == j].sum(axis=1), 1, rtol=2e-5)
    recomputed = jax.vmap(totals_of)(found.theta, found.g0)
    np.testing.assert_allclose(found.totals, recomputed, rtol=5e-5)
    # The others keep their proportions.
    others = np.asarray(found.g0)[:, [0, 1]]
    changed = (np.abs(np.asarray(found.g0) / np.asarray(g0) - 1) > 1e-5).any(axis=1)
    assert changed.sum() > 0.9 * np.sum(found.accepted)
    untouched = ~np.isclose(others[:, 0] / others[:, 1], g0[0] / g0[1], rtol=1e-4)
    assert untouched.sum() < np.sum(found.accepted)


# The distribution that tilts keep: levels ~ Dir(shape + counts), (g_1, g_2, the rest) ~ Dir(tables,
# alpha_0), over P(F)^n. The rest's own levels are from the prior and count in P(F).
COUNTS = np.array([[2, 1], [1, 0], [2, 1], [0, 0], [1, 0], [1, 2], [2, 0]])
TWO_TABLES, ALPHA0 = np.array([6, 2]), 1.4


def exact_draws(rng, num_records, size):
    """Draws with weights 1 / P(F)^n by resampling: for small n, few of them are repeated."""
    shape = LEVEL_SHAPE[:, None] + np.column_stack([COUNTS, np.zeros(7)])
    theta = rng.standard_gamma(shape, (20 * size, 7, 3))
    for j in range(3):
        own = VARIABLE == j
        theta[:, own] /= theta[:, own].sum(axis=1, keepdims=True)
    g0 = rng.dirichlet([*TWO_TABLES, ALPHA0], 20 * size)
    theta, g0 = jnp.asarray(theta, jnp.float32), jnp.asarray(g0, jnp.float32)
    weights = weights_of(jnp.float32(0.9))
    totals = jax.jit(jax.vmap(totals_of))(theta, g0)
    p = np.asarray(totals, np.float64) @ np.asarray(weights, np.float64)
    weight = p**-num_records
    which = rng.choice(20 * size, size, p=weight / weight.sum())
    return theta[which], g0[which]


def summaries(theta, g0):
    """Parameters that a tilt moves."""
    totals = jax.jit(jax.vmap(totals_of))(theta, g0)
    weights = weights_of(jnp.float32(0.9))
    mass = jax.vmap(probability, (0, None))(totals, weights)
    return [np.asarray(x) for x in (theta[:, 0, 0], theta[:, 2, 1], g0[:, 0], g0[:, 1], mass)]


def p_values(seed, key, num_records, wrong=None):
    """Exact draws tilted a few times, against other exact draws."""
    rng = np.random.default_rng(seed)
    theta, g0 = exact_draws(rng, num_records, N)
    given = {"counts": COUNTS, "tables": TWO_TABLES, "num_records": num_records}
    given |= wrong or {}
    # The rest has no table and is never tilted.
    counts = jnp.asarray(np.column_stack([given["counts"], np.zeros(7, int)]))
    tables = jnp.append(jnp.asarray(given["tables"]), 0)

    @jax.jit
    @jax.vmap
    def steps(key, theta, g0):
        def step(t, now):
            found = tilt(
                jax.random.fold_in(key, t), *now, counts, tables, given.get("others", ALPHA0),
                given["num_records"], shape=given.get("shape", LEVEL_SHAPE),
                double=given.get("double", False),
            )  # fmt: skip
            return found.theta, found.g0

        return jax.lax.fori_loop(0, 5, step, (theta, g0))

    after = steps(jax.random.split(key, N), theta, g0)
    fresh = exact_draws(rng, num_records, N)
    return [
        stats.ks_2samp(a, b).pvalue
        for a, b in zip(summaries(*after), summaries(*fresh), strict=True)
    ]


@pytest.mark.parametrize(
    ("num_records", "double"),
    [
        pytest.param(0, False, marks=pytest.mark.long),
        pytest.param(2, False, marks=pytest.mark.long),
        (2, True),
    ],
)
def test_tilts_keep_the_posterior(key, seed, num_records, double):
    assert min(p_values(seed, key, num_records, {"double": double})) > P_LIMIT


@pytest.mark.long
@pytest.mark.parametrize(
    "wrong",
    [
        {"counts": COUNTS + 1},
        {"shape": np.ones(7)},
        {"num_records": 0},
        {"others": 0.0},
        {"tables": np.array([1, 1])},
    ],
    ids=["an item more", "levels' prior of ones", "not truncated", "no alpha_0", "one table each"],
)
def test_a_wrong_ratio_is_seen(key, seed, wrong):
    assert min(p_values(seed, key, 2, wrong)) < P_LIMIT


def test_new_parameters_compile_nothing(key):
    one, two = jax.random.split(key)
    counts, tables = jnp.ones((7, 4), jnp.int32), jnp.asarray(TABLES)
    assert compiles_once(
        tilt, (one, *make_state(0), counts, tables), (two, *make_state(1), 2 * counts, tables)
    )
