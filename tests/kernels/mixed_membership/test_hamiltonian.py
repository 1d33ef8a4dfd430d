"""Hamiltonian moves: the distributions that they keep, their precision, and what diverges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, ks_p_value
from harness import ACCELERATOR_IS_LONG, Z_LIMIT, levels_of
from latent import structural_zeros
from scipy import stats

from bnp_models.kernels.mixed_membership import hamiltonian, urn_boxes
from bnp_models.kernels.mixed_membership.hamiltonian import (
    Concentration,
    Parameters,
    move_parameters,
)
from bnp_models.kernels.mixed_membership.tilts import DirichletDensity, Truncation
from bnp_models.kernels.mixed_membership.urn_boxes import UrnBoxes
from bnp_models.kernels.numerics.set_partitions import log_block_weights

# A small density ----------------------------------------------------------------------------------

N = 20_000
SHAPE = 2.5


def log_density(x, shape=SHAPE):
    """Two dependent normals, and the logarithm of a gamma variate over a function of the first."""
    first, second = x["normal"]
    log_gamma = x["scale"] + 0.4 * first
    square = first**2 + (second - 0.8 * first) ** 2 / 0.3
    return shape * log_gamma - jnp.exp(log_gamma) - 0.5 * square


def exact_positions(seed):
    rng = np.random.default_rng(seed)
    first = rng.standard_normal(N)
    second = 0.8 * first + np.sqrt(0.3) * rng.standard_normal(N)
    scale = np.log(rng.gamma(SHAPE, 1, N)) - 0.4 * first
    return {
        "normal": jnp.asarray(np.stack([first, second], axis=1), jnp.float32),
        "scale": jnp.asarray(scale, jnp.float32),
    }


def after_steps(key, start, shape, steps=(0.3, 0.8)):
    """All positions a few steps on, and how often a step was accepted."""

    def chain(key, x):
        precision = {"normal": jnp.array([1.0, 3.0]), "scale": jnp.asarray(2.0)}

        def step(t, carry):
            x, accepted = carry
            x, accept = hamiltonian.hamiltonian_step(
                jax.random.fold_in(key, t), lambda x: log_density(x, shape), x, precision, 5, steps
            )
            return x, accepted + accept

        return jax.lax.fori_loop(0, 6, step, (x, jnp.int32(0)))

    x, accepted = jax.jit(jax.vmap(chain))(jax.random.split(key, N), start)
    return x, np.mean(accepted) / 6


def p_values(x):
    """P-values of functions of a position that are independent, and of sums of two of them."""
    first, second = np.asarray(x["normal"], np.float64).T
    log_gamma = np.asarray(x["scale"], np.float64) + 0.4 * first
    rest = (second - 0.8 * first) / np.sqrt(0.3)
    normal = [first, rest, (first + rest) / np.sqrt(2)]
    return [ks_p_value(z, stats.norm.cdf) for z in normal] + [
        ks_p_value(np.exp(log_gamma), stats.gamma(SHAPE).cdf),
        ks_p_value(stats.norm.ppf(stats.gamma(SHAPE).cdf(np.exp(log_gamma))) - first,
                   stats.norm(scale=np.sqrt(2)).cdf),
    ]  # fmt: skip


def test_a_step_keeps_the_density(key, seed):
    start = exact_positions(seed)
    x, rate = after_steps(key, start, SHAPE)
    assert 0.6 < rate < 0.99
    moved = np.abs(np.asarray(x["normal"]) - np.asarray(start["normal"])).max(axis=1)
    assert np.mean(moved > 0.1) > 0.9
    assert min(p_values(x)) > P_LIMIT, p_values(x)


def test_a_step_by_another_density_is_seen(key, seed):
    x, _ = after_steps(key, exact_positions(seed), 1.1 * SHAPE)
    assert min(p_values(x)) < P_LIMIT, p_values(x)


def test_steps_that_are_never_refused_are_seen(key, seed, monkeypatch):
    """The first uniform of a step is its length, the second decides."""
    right, calls = hamiltonian.uniform, []

    def uniform(words, dtype):
        calls.append(None)
        return right(words, dtype) if len(calls) % 2 else jnp.full(words.shape, 1e-30, dtype)

    monkeypatch.setattr(hamiltonian, "uniform", uniform)
    x, rate = after_steps(key, exact_positions(seed), SHAPE)
    assert rate > 0.999
    assert min(p_values(x)) < P_LIMIT, p_values(x)


@pytest.mark.parametrize("value", [jnp.nan, -jnp.inf])
def test_what_diverges_stays(key, seed, value):
    """Where the density is no number beyond a point."""
    start = exact_positions(seed)

    def bounded(x):
        return jnp.where(x["scale"] > 1.5, value, log_density(x))

    def step(key, x):
        precision = jax.tree.map(jnp.ones_like, x)
        return hamiltonian.hamiltonian_step(key, bounded, x, precision, 5, (0.3, 0.8))

    x, accepted = jax.jit(jax.vmap(step))(jax.random.split(key, N), start)
    accepted = np.asarray(accepted)
    assert (np.asarray(x["scale"])[accepted] <= 1.5).all()
    for old, new in zip(jax.tree.leaves(start), jax.tree.leaves(x), strict=True):
        np.testing.assert_array_equal(np.asarray(old)[~accepted], np.asarray(new)[~accepted])
    inside = np.asarray(start["scale"]) <= 1.5
    assert 0.2 < accepted[inside].mean() < 0.9


# Parameters of a truncated sample -----------------------------------------------------------------

# The first level of the first variable goes with the first of the second, and one more condition.
NUM_LEVELS = (2, 3, 2)
VARIABLE = np.repeat(np.arange(3), NUM_LEVELS)
CONDITIONS = [[0, 1, -1], [0, 2, -1], [1, 0, -1], [1, 1, 0]]

# Two slots with tables, and two that share what is left in given proportions.
COUNTS = np.array([[2, 1], [1, 0], [2, 1], [0, 0], [1, 0], [1, 2], [2, 0]])
COUNTS = np.column_stack([COUNTS, np.zeros((7, 2), int)])
TABLES, OTHERS, FREE = np.array([6.0, 2.0, 0.0, 0.0]), 1.4, np.array([0.7, 0.3])
LEVEL_SHAPE = np.array([0.4, 1.0, 2.0, 0.2, 0.7, 1.3, 0.5])
# Of alpha's gamma prior.
ALPHA = (3.0, 2.0)


def make_boxes():
    return UrnBoxes.of_boxes(structural_zeros(CONDITIONS, NUM_LEVELS).feasible.sets, NUM_LEVELS)


def weights_at(alpha, boxes):
    return urn_boxes.weights_by_size(log_block_weights(alpha, boxes.most_variables), boxes)


def probability(theta, g0, alpha, boxes):
    totals = urn_boxes.partition_totals(urn_boxes.block_sums(theta, g0, boxes), boxes)
    return urn_boxes.probability(totals, weights_at(alpha, boxes))


def move(key, parameters, given, boxes, moves_alpha=True):
    """One move of four leapfrog steps; `given` says which distribution it keeps."""
    concentration = None
    if moves_alpha:
        shape, rate = given["alpha"]
        concentration = Concentration(lambda alpha: shape * jnp.log(alpha) - rate * alpha, shape)
    density = DirichletDensity(
        given["counts"], levels_of(NUM_LEVELS, given["level_shape"]), given["tables"],
        given["others"],
    )  # fmt: skip
    return move_parameters(
        key, parameters, density, concentration,
        lambda alpha: Truncation(given["records"], weights_at(alpha, boxes), boxes), 4,
    )  # fmt: skip


RIGHT = {
    "counts": COUNTS, "level_shape": LEVEL_SHAPE, "tables": TABLES, "others": OTHERS,
    "records": 3.0, "alpha": ALPHA,
}  # fmt: skip
FIXED = RIGHT | {"tables": TABLES + 1, "others": 0.0}


def draw_parameters(seed, given, size):
    """theta ~ Dir(shape + counts), weights ~ Dir(tables, others), alpha from its prior."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_gamma(given["level_shape"][:, None] + given["counts"], (size, 7, 4))
    for j in range(3):
        theta[:, VARIABLE == j] /= theta[:, VARIABLE == j].sum(axis=1, keepdims=True)
    if given["others"]:
        g0 = rng.dirichlet([*given["tables"][:2], given["others"]], size)
        g0 = np.column_stack([g0[:, :2], g0[:, 2:] * FREE])
    else:
        g0 = rng.dirichlet(given["tables"], size)
    alpha = rng.gamma(ALPHA[0], 1 / ALPHA[1], size)
    return Parameters(*(jnp.asarray(x, jnp.float32) for x in (theta, g0, alpha)))


@jax.jit
def summaries(parameters, boxes):
    theta, g0, alpha = parameters
    mass = jax.vmap(probability, (0, 0, 0, None))(theta, g0, alpha, boxes)
    levels = theta[:, 0, 0], theta[:, 3, 1], theta[:, 2, 2]
    kept = [*levels, g0[:, 0], g0[:, 2], g0[:, 3], alpha, jnp.log(alpha), mass, jnp.log(mass)]
    return jnp.stack(kept, axis=1)


class Moves:
    """Draws with weights 1 / P(F)^n, moved a few times: their weighted means stay.

    Compiled once, whatever is wrong.
    """

    def __init__(self, given, moves_alpha):
        self.given, self.boxes = given, make_boxes()
        self.start = draw_parameters(1, given, N)
        self.before = np.asarray(summaries(self.start, self.boxes), np.float64)
        self.weight = np.exp(-given["records"] * self.before[:, -1:])

        @jax.jit
        def run(keys, start, given, boxes):
            def chain(key, parameters):
                def step(t, carry):
                    now, accepted = carry
                    now, accept = move(jax.random.fold_in(key, t), now, given, boxes, moves_alpha)
                    return now, accepted + accept

                return jax.lax.fori_loop(0, 4, step, (parameters, jnp.int32(0)))

            return jax.vmap(chain)(keys, start)

        self._run = run

    def scores(self, key, **wrong):
        """Standardised changes of the summaries' means."""
        given = jax.tree.map(jnp.asarray, self.given | wrong)
        moved, accepted = self._run(jax.random.split(key, N), self.start, given, self.boxes)
        assert np.mean(accepted) > 2
        assert self._run._cache_size() == 1
        after = np.asarray(summaries(moved, self.boxes), np.float64)
        change = self.weight * (after - self.before)
        z = change.sum(axis=0) / np.sqrt(np.square(change).sum(axis=0) + 1e-20)
        return np.abs(z)


@pytest.fixture(scope="module")
def moves():
    return Moves(RIGHT, moves_alpha=True)


@pytest.fixture(scope="module")
def fixed_moves():
    """The prior of a fixed number of components, with nothing left over; alpha stays."""
    return Moves(FIXED, moves_alpha=False)


def test_moves_keep_the_posterior(key, moves):
    z = moves.scores(key)
    assert z.max() < Z_LIMIT, z


@pytest.mark.long
def test_moves_keep_the_posterior_of_a_fixed_number_of_components(key, fixed_moves):
    z = fixed_moves.scores(key)
    assert z.max() < Z_LIMIT, z


@pytest.mark.parametrize(
    "wrong",
    [
        {"counts": COUNTS + 1}, {"level_shape": np.ones(7)}, {"records": 2.0},
        {"others": OTHERS + 1}, {"tables": TABLES + [1, 0, 0, 0]}, {"alpha": (3.3, 2.0)},
    ],
    ids=["an item more", "levels' prior of ones", "a record fewer", "a table of no one",
         "one table more", "alpha"],
)  # fmt: skip
def test_a_wrong_density_is_seen(key, moves, wrong):
    z = moves.scores(key, **wrong)
    assert z.max() > Z_LIMIT, z


def test_diverged_trajectories_keep_every_bit(key, monkeypatch):
    boxes, start = make_boxes(), draw_parameters(3, RIGHT, 200)
    given = jax.tree.map(jnp.asarray, RIGHT)
    right = hamiltonian.hamiltonian_step
    monkeypatch.setattr(hamiltonian, "STEPS", (5.0, 1e6))

    @jax.jit
    def run(keys, start, back):
        def step(key, log_density, x, *args):
            moved, accepted = right(key, log_density, x, *args)
            return jax.tree.map(lambda x, new: jnp.where(back, x, new), x, moved), accepted | back

        monkeypatch.setattr(hamiltonian, "hamiltonian_step", step)
        return jax.vmap(lambda key, now: move(key, now, given, boxes))(keys, start)

    keys = jax.random.split(key, 200)
    moved, accepted = run(keys, start, jnp.asarray(False))
    assert not np.any(accepted)
    for old, new in zip(start, moved, strict=True):
        same = np.asarray(old).view(np.int32) == np.asarray(new).view(np.int32)
        assert same.all()
    # Shown to fail: an accepted move that goes nowhere, there and back through the coordinates.
    moved, _ = run(keys, start, jnp.asarray(True))
    for old, new in zip(start, moved, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-7)
        assert (np.asarray(old) != np.asarray(new)).any()


# Single precision ---------------------------------------------------------------------------------

WIDE = (3, 4, 2, 5, 3, 6)
WIDE_CONDITIONS = [
    [0, 1, -1, -1, -1, -1], [0, 2, -1, -1, -1, -1], [1, 0, -1, -1, -1, -1],
    [-1, -1, 1, 4, -1, -1], [-1, 3, -1, -1, 2, -1], [2, -1, -1, 0, -1, 5],
]  # fmt: skip
SLOTS, ACTIVE, RECORDS = 24, 15, 20_000


def large_sample(seed):
    """Counts of a large sample and parameters near it, as doubles."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(ACTIVE, 0.5))
    counts = np.zeros((sum(WIDE), SLOTS))
    first = 0
    for size in WIDE:
        of_component = rng.multinomial(RECORDS, share)
        for k in range(ACTIVE):
            levels = rng.dirichlet(np.full(size, 0.5))
            counts[first : first + size, k] = rng.multinomial(of_component[k], levels)
        first += size
    tables = np.where(counts.sum(axis=0) > 0, np.ceil(counts.sum(axis=0) / 4), 0)
    theta = rng.standard_gamma(1 + counts)
    variable = np.repeat(np.arange(len(WIDE)), WIDE)
    for j in range(len(WIDE)):
        theta[variable == j] /= theta[variable == j].sum(axis=0)
    g0 = rng.standard_gamma(np.where(tables > 0, tables, 0.2))
    return counts.astype(int), tables, Parameters(theta, g0 / g0.sum(), 0.3)


def mover(dtype, seed):
    """A move of that sample's parameters, in this precision."""
    counts, tables, _ = large_sample(seed)
    boxes = UrnBoxes.of_boxes(structural_zeros(WIDE_CONDITIONS, WIDE).feasible.sets, WIDE)
    t = jnp.arange(1, len(WIDE), dtype=dtype)
    concentration = Concentration(
        lambda alpha: (2 + 0.3 * RECORDS) * jnp.log(alpha) - alpha
        - RECORDS * jnp.sum(jnp.log1p(alpha / t)),
        jnp.asarray(2 + 0.3 * RECORDS, dtype),
    )  # fmt: skip

    def move(key, parameters):
        density = DirichletDensity(
            jnp.asarray(counts), levels_of(WIDE, np.ones(sum(WIDE), dtype)),
            jnp.asarray(tables, dtype), jnp.asarray(1.3, dtype),
        )  # fmt: skip
        return move_parameters(
            key, parameters, density, concentration,
            lambda alpha: Truncation(jnp.asarray(RECORDS), weights_at(alpha, boxes), boxes), 8,
        )  # fmt: skip

    return move


def double_chain(keys, seed):
    """Where a chain is before each move, and what the move decides and finds."""
    move = mover(np.float64, seed)

    def step(parameters, key):
        moved, accepted = move(key, parameters)
        return moved, (parameters, moved, accepted)

    start = jax.tree.map(jnp.asarray, large_sample(seed)[2])
    return jax.jit(lambda keys: jax.lax.scan(step, start, keys)[1])(keys)


def single_moves(keys, starts, seed, units, monkeypatch):
    """The same moves in single precision, the density rounded to multiples of each unit."""
    right = hamiltonian.hamiltonian_step

    @jax.jit
    def run(keys, starts, unit):
        def rounded_step(key, log_density, *args):
            def rounded(x):
                value = log_density(x)
                error = unit * jnp.round(value / jnp.maximum(unit, 1)) - value
                return value + jax.lax.stop_gradient(jnp.where(unit > 0, error, 0))

            return right(key, rounded, *args)

        with monkeypatch.context() as patch:
            patch.setattr(hamiltonian, "hamiltonian_step", rounded_step)
            return jax.lax.map(lambda one: move(*one), (keys, starts))

    with jax.enable_x64(False):
        move = mover(np.float32, seed)
        starts = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float32), starts)
        return [run(keys, starts, jnp.float32(unit)) for unit in units]


@pytest.mark.long
def test_single_precision_decides_as_double_does(key, seed, x64, monkeypatch):
    # Longer steps than the samplers', of which more are refused.
    monkeypatch.setattr(hamiltonian, "STEPS", (0.3, 0.6))
    keys = jax.random.split(key, 350)
    found = double_chain(keys, seed)
    keys, (starts, moved, double) = jax.tree.map(lambda x: x[150:], (keys, found))
    assert 0.3 < np.mean(double) < 0.9
    single, rounded = single_moves(keys, starts, seed, (0.0, 4.0), monkeypatch)
    assert single[0].theta.dtype == np.float32
    agree = np.asarray(single[1] == double)
    assert np.mean(agree) > 0.95, np.mean(agree)
    for one, two in zip(single[0], moved, strict=True):
        np.testing.assert_allclose(np.asarray(one)[agree], np.asarray(two)[agree], atol=1e-4)
    # Shown to fail: a density of five digits or so.
    assert np.mean(np.asarray(rounded[1] == double)) < 0.85


def test_many_records_are_decided_in_double_precision(key, x64):
    """Levels of ten million items: their log density is rounded to half a nat and more."""
    counts = np.random.default_rng(0).multinomial(
        10**7, np.random.default_rng(1).dirichlet([1] * 40)
    )

    def moves(dtype, double):
        """Which of many proposals from the mode are taken."""

        def log_density(x):
            return (
                jnp.sum(counts * (x["x"] - jax.nn.logsumexp(x["x"]))) - 0.5 * jnp.mean(x["x"]) ** 2
            )

        def step(key):
            start = {"x": jnp.asarray(np.log(counts / 10**7 + 1e-9), dtype)}
            precision = {"x": jnp.asarray(1 + counts, dtype)}
            return hamiltonian.hamiltonian_step(
                key, log_density, start, precision, 4, (0.3, 0.6), double
            )[1]

        return np.asarray(jax.jit(jax.vmap(step))(jax.random.split(key, 2000)))

    right = moves(np.float64, False)
    assert 0.3 < right.mean() < 0.95
    with jax.enable_x64(False):
        double, single = moves(np.float32, True), moves(np.float32, False)
    # Shown to fail: single precision.
    assert np.mean(double != right) < 0.01 and np.mean(single != right) > 0.05, (
        np.mean(double != right), np.mean(single != right))  # fmt: skip


# The probability and its gradient -----------------------------------------------------------------


def gradients(function, theta, g0, weights, boxes):
    """By theta, g_0 and the weights of the numbers of blocks."""

    def value(theta, g0, weights):
        return jnp.log(function(urn_boxes.block_sums(theta, g0, boxes), weights, boxes))

    return jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2)))(theta, g0, weights)


def by_totals(sums, weights, boxes):
    return urn_boxes.probability(urn_boxes.partition_totals(sums, boxes), weights)


@ACCELERATOR_IS_LONG
@pytest.mark.usefixtures("either_form")
def test_gradient_of_the_probability(seed, x64, monkeypatch):
    boxes = UrnBoxes.of_boxes(structural_zeros(WIDE_CONDITIONS, WIDE).feasible.sets, WIDE)
    rng = np.random.default_rng(seed)
    theta = np.concatenate([rng.dirichlet(np.ones(size), 5).T for size in WIDE])
    g0, weights = rng.dirichlet(np.ones(5)), weights_at(0.7, boxes)
    given = jnp.asarray(theta), jnp.asarray(g0), weights, boxes
    exact, right = gradients(by_totals, *given)
    value, found = gradients(urn_boxes.differentiable_probability, *given)
    np.testing.assert_allclose(value, exact, rtol=1e-12)
    for got, want in zip(found, right, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10)
    # Shown to fail: a partition left out of a type of block.
    count_blocks = urn_boxes.count_blocks
    monkeypatch.setattr(
        urn_boxes, "count_blocks", lambda of, boxes: count_blocks(of.at[0].set(0), boxes)
    )
    _, wrong = gradients(lambda *args: urn_boxes.differentiable_probability(*args), *given)
    assert np.abs(wrong[0] - right[0]).max() > 1e-3 * np.abs(right[0]).max()


@ACCELERATOR_IS_LONG
@pytest.mark.usefixtures("either_form")
def test_gradient_where_levels_have_no_probability(seed, x64):
    """Finite, and by the logarithms of the levels what it is without division."""
    boxes = make_boxes()
    rng = np.random.default_rng(seed)
    theta = np.concatenate([rng.dirichlet(np.ones(size), 4).T for size in NUM_LEVELS])
    # A level of no component, and one of a component; a component without weight.
    theta[3], theta[0, 2] = 0, 0
    g0 = np.array([0.5, 0.3, 0.2, 0.0])
    given = jnp.asarray(theta), jnp.asarray(g0), weights_at(0.7, boxes), boxes
    value, found = gradients(urn_boxes.differentiable_probability, *given)
    exact, right = gradients(by_totals, *given)
    np.testing.assert_allclose(value, exact, rtol=1e-12)
    for got, want, at in zip(found, right, given[:3], strict=True):
        assert np.isfinite(got).all()
        np.testing.assert_allclose(got * at, want * at, rtol=1e-10, atol=1e-14)
    with jax.enable_x64(False):
        boxes = make_boxes()
        single = [jnp.asarray(np.asarray(x), jnp.float32) for x in given[:3]]
        _, found = gradients(urn_boxes.differentiable_probability, *single, boxes)
        assert all(np.isfinite(x).all() for x in found)
