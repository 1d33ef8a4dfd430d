"""The split-merge move of latent classes by itself, under the joint distribution with data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import Z_LIMIT, levels_of
from latent import feasible_cells, structural_zeros, two_sample_z

from bnp_models.kernels.boxes.region import Region, region_mass
from bnp_models.kernels.latent_classes import split_merge
from bnp_models.kernels.numerics.platforms import forms_of
from bnp_models.kernels.splits import members
from bnp_models.kernels.splits.anchors import Counts
from bnp_models.kernels.splits.members import LabelledRecords
from bnp_models.kernels.variates.gamma import loggamma
from bnp_models.kernels.variates.levels import draw_levels
from bnp_models.kernels.variates.rng import uniform, words
from bnp_models.kernels.variates.sticks import truncated_sticks
from bnp_models.models.latent_classes.state import count_levels

LONG = pytest.mark.long

NUM_LEVELS = (2, 3, 2)
CONDITIONS = [[1, 2, -1], [0, 0, -1]]
FIRST = np.cumsum((0, *NUM_LEVELS[:-1]))
VARIABLE = jnp.asarray(np.repeat(np.arange(3), NUM_LEVELS), jnp.int32)
CELLS = feasible_cells(CONDITIONS, NUM_LEVELS)
NUM_RECORDS, NUM_CLASSES = 8, 4
ALPHA = 1.0
LEVEL_SHAPE = jnp.array([0.4, 1.3, 0.2, 1.5, 0.8, 2.0, 0.6])


def make_region():
    groups = structural_zeros(CONDITIONS, NUM_LEVELS).groups
    return Region.of_boxes([group.feasible.sets for group in groups], NUM_LEVELS)


def draw_records(key, z, log_lambda):
    """Rows of feasible records of given classes, by going through all cells."""
    log_p = jnp.sum(log_lambda[CELLS + FIRST], axis=1)[:, z]
    return jnp.asarray(CELLS + FIRST, jnp.int32)[jax.random.categorical(key, log_p, axis=0)].T


def draw_state(key, region, by_class):
    """Log weights that the sticks break, levels and classes from the prior."""
    key_pi, key_lambda, key_z = jax.random.split(key, 3)
    counts = jnp.zeros(NUM_CLASSES, jnp.int32)
    log_w = truncated_sticks(key_pi, counts, jnp.asarray(ALPHA, jnp.float32))[0]
    log_lambda = draw_levels(
        key_lambda, jnp.broadcast_to(LEVEL_SHAPE[:, None], (VARIABLE.size, NUM_CLASSES)), VARIABLE
    )
    log_mass = 0 if by_class else jnp.log(region_mass(log_lambda, region))
    z = jax.random.categorical(key_z, log_w + log_mass, shape=(NUM_RECORDS,))
    return z.astype(jnp.int32), log_w, log_lambda


def statistics(z, log_w, log_lambda):
    sizes = jnp.zeros(NUM_CLASSES).at[z].add(1)
    weight, level = jnp.exp(log_w), jnp.exp(log_lambda[1])
    return jnp.stack([
        jnp.sum(sizes > 0), jnp.max(sizes), sizes[0], sizes[-1], weight[0], jnp.sum(weight**2),
        level[0], level[1] ** 2, jnp.sum(weight * level),
    ])  # fmt: skip


def labelled(z, rows, num_counted):
    """Records with their classes, the last ones counted by cell and class."""
    size = NUM_RECORDS - num_counted
    real = jnp.ones(size, bool)
    if not num_counted:
        return LabelledRecords(z, None, rows, real, jnp.int32(NUM_RECORDS))
    cells = jnp.asarray((CELLS + FIRST).T, jnp.int32)
    cell = jnp.argmax(jnp.all(rows[:, size:, None] == cells[:, None], axis=0), axis=1)
    split = jnp.zeros((NUM_CLASSES, len(CELLS)), jnp.int32).at[z[size:], cell].add(1)
    rows = jnp.concatenate([rows[:, :size], cells], axis=1)
    return LabelledRecords(z[:size], split, rows, real, jnp.int32(NUM_RECORDS))


def classes_of(records):
    """Class of each record, those counted by cell in any order."""
    if records.split is None:
        return records.z
    ends = jnp.cumsum(jnp.sum(records.split, axis=1))
    counted = jnp.arange(NUM_RECORDS - records.z.size)
    return jnp.append(records.z, jnp.sum(ends[:, None] <= counted, axis=0, dtype=jnp.int32))


def move(key, state, region, by_class, num_counted, half, power):
    """Records given classes, then one move on the scale that it is documented for."""
    key_x, key_scale, key_move, key_coin = jax.random.split(key, 4)
    z, log_w, log_lambda = state
    rows = draw_records(key_x, z, log_lambda)
    log_mass = jnp.zeros_like(log_w) if by_class else jnp.log(region_mass(log_lambda, region))
    log_scale = loggamma(key_scale, jnp.asarray(NUM_RECORDS, log_w.dtype))
    log_x = log_w + log_scale - jax.nn.logsumexp(log_w + log_mass)
    records = labelled(z, rows, num_counted)
    records, (log_x, log_lambda), _ = split_merge.split_or_merge_classes(
        key_move, records, Counts(*count_levels(records, NUM_LEVELS, NUM_CLASSES)),
        split_merge.ClassParameters(log_x, log_lambda),
        levels_of(NUM_LEVELS, LEVEL_SHAPE**power), region, jnp.asarray(ALPHA), by_class,
    )  # fmt: skip
    new = classes_of(records), log_x - jax.nn.logsumexp(log_x), log_lambda
    # The fault: splits accepted half as often as they should be.
    more = statistics(*new)[0] > statistics(*state)[0]
    refuse = half & more & (uniform(words(key_coin, ()), jnp.float32) < 0.5)
    return jax.tree.map(lambda a, b: jnp.where(refuse, a, b), state, new)


class Alone:
    """The move under its joint distribution, compiled once with and without the fault."""

    def __init__(self, by_class, num_counted=0):
        region = make_region()

        def one(key, half, power, num_moves):
            key_prior, key_moves = jax.random.split(key)
            start = draw_state(key_prior, region, by_class)

            def body(t, carry):
                state, sums = carry
                state = move(
                    jax.random.fold_in(key_moves, t), state, region, by_class, num_counted, half,
                    power,
                )  # fmt: skip
                return state, sums + statistics(*state)

            end, sums = jax.lax.fori_loop(0, num_moves, body, (start, jnp.zeros(9)))
            return start, end, sums / num_moves

        self.chains = jax.jit(jax.vmap(one, (0, None, None, None)))
        self.prior = jax.jit(jax.vmap(lambda key: statistics(*draw_state(key, region, by_class))))

    def run(self, key, num_moves, half=False, power=1.0):
        keys = jax.random.split(key, 512)
        return jax.tree.map(np.asarray, self.chains(keys, jnp.asarray(half), power, num_moves))

    def scores(self, key, **wrong):
        key_prior, key_chains = jax.random.split(key)
        truth = self.prior(jax.random.split(key_prior, 20_000))
        return two_sample_z(self.run(key_chains, 150, **wrong)[2], truth)


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=LONG)], ids=["mixture", "by class"]
)
def alone(request):
    return Alone(request.param)


@LONG
@pytest.mark.parametrize("accelerator", [False, True])
def test_joint_distribution_of_cells_with_counts(key, accelerator):
    """Five of eight records are counted by cell: a cell's are divided by one binomial variate."""
    with forms_of(accelerator):
        z = Alone(False, num_counted=5).scores(key)
    assert np.abs(z).max() < Z_LIMIT, z


@LONG
def test_joint_distribution_of_cells_rejects(key, monkeypatch):
    """Drawn with other probabilities than those that the acceptance counts with."""
    right = members.binomial
    monkeypatch.setattr(
        members, "binomial", lambda key, n, p, complement: right(key, n, (p + 0.5) / 2)
    )
    z = Alone(False, num_counted=5).scores(key)
    assert np.abs(z).max() > Z_LIMIT, z


def test_joint_distribution(alone, key):
    z = alone.scores(key)
    assert np.abs(z).max() < Z_LIMIT, z


@LONG
@pytest.mark.parametrize("wrong", [{"half": True}, {"power": 0.0}], ids=["a factor", "ones"])
def test_joint_distribution_rejects(alone, key, wrong):
    """A factor missing from the ratio, or ones for the shapes of the levels' prior."""
    z = alone.scores(key, **wrong)
    assert np.abs(z).max() > Z_LIMIT, z


@LONG
def test_a_move_touches_two_classes(alone, key):
    old, new, _ = alone.run(key, 1)
    one, two = ((z[:, :, None] == np.arange(NUM_CLASSES)).sum(axis=1) for z, _, _ in (old, new))
    change = (two > 0).sum(axis=1) - (one > 0).sum(axis=1)
    moved = change != 0
    assert 0.02 < moved.mean() < 0.98
    assert set(change) == {-1, 0, 1}
    np.testing.assert_array_equal(old[0][~moved], new[0][~moved])
    np.testing.assert_array_equal(old[2][~moved], new[2][~moved])
    np.testing.assert_allclose(np.add.reduceat(np.exp(new[2]), FIRST, axis=1), 1, rtol=1e-5)
    # A class that is neither split nor merged keeps its members and levels, wherever it goes.
    same = (old[2][:, :, :, None] == new[2][:, :, None]).all(axis=1)
    np.testing.assert_array_equal(same.sum(axis=(1, 2))[moved], NUM_CLASSES - 2)
    chain, before, after = np.nonzero(same)
    np.testing.assert_array_equal(one[chain, before], two[chain, after])
    # The last class takes what the sticks leave: it is never filled nor emptied.
    np.testing.assert_array_equal(one[:, -1] > 0, two[:, -1] > 0)


@LONG
def test_second_calls_compile_nothing(alone, key):
    alone.run(key, 1)
    alone.run(key, 2)
    assert alone.chains._cache_size() == 1
