"""The split-merge move against the enumerated posterior of a tiny partition of tables."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import ACCELERATOR_IS_LONG, Z_LIMIT, levels_of, set_partitions, z_scores
from scipy.special import gammaln

from bnp_models.kernels.mixed_membership import split_merge
from bnp_models.kernels.splits import anchors as split_anchors
from bnp_models.kernels.splits import dealing
from bnp_models.kernels.splits import proposal as split_proposal
from bnp_models.kernels.splits.anchors import Counts
from bnp_models.kernels.splits.seated_items import SeatedItems
from bnp_models.kernels.variates.levels import Levels

NUM_LEVELS = (2, 3)
CODES = np.array([[0, 0], [0, 0], [1, 2], [0, 2]])
ALPHA0 = 1.3
LEVEL_SHAPE = (np.array([0.3, 1.2]), np.array([0.1, 2.0, 0.6]))

# The item that opened each item's table: every record at one table, or some at two.
ONE_TABLE = np.zeros((4, 2), int)
SOME_AT_TWO = np.array([[0, 0], [0, 1], [0, 1], [0, 0]])


def tables_of(opened_by):
    """The items (record, variable) of each table."""
    tables = {}
    for (i, j), opener in np.ndenumerate(opened_by):
        tables.setdefault((i, opener), []).append((i, j))
    return list(tables.values())


def exact_pairs(opened_by):
    """E K, and P(tables a and b share a component) for all pairs."""
    weights, figures = [], []
    tables = tables_of(opened_by)
    for blocks in set_partitions(list(range(len(tables)))):
        log_w = len(blocks) * np.log(ALPHA0)
        for block in blocks:
            log_w += gammaln(len(block))
            for j, num_levels in enumerate(NUM_LEVELS):
                seen = [CODES[i, j] for t in block for i, jj in tables[t] if jj == j]
                counts = np.bincount(np.array(seen, int), minlength=num_levels)
                shape = LEVEL_SHAPE[j]
                log_w += gammaln(shape.sum()) - gammaln(shape.sum() + counts.sum())
                log_w += (gammaln(shape + counts) - gammaln(shape)).sum()
        label = {t: b for b, block in enumerate(blocks) for t in block}
        pairs = itertools.combinations(range(len(tables)), 2)
        weights.append(np.exp(log_w))
        figures.append([len(blocks), *(label[a] == label[b] for a, b in pairs)])
    return np.average(np.array(figures, float), axis=0, weights=weights)


def chains(opened_by, num_chains=512, num_moves=300, double=False):
    """A function of a factor of the acceptance ratio and a power of the levels' prior.

    It returns chains' means of `exact_pairs`.
    """
    first_row = np.array([0, 2])
    rows = jnp.asarray(CODES.T + first_row[:, None])
    num_records = len(CODES)
    table = jnp.asarray(opened_by.T, jnp.int32)
    record, item = np.array([items[0] for items in tables_of(opened_by)]).T
    pairs = np.array(list(itertools.combinations(range(len(record)), 2)))
    num_slots = len(record) + 2
    shape = jnp.asarray(np.concatenate(LEVEL_SHAPE), jnp.float32)
    # Padding, which must not count.
    padding = ((0, 0), (0, 3))
    table, rows = (jnp.pad(x, padding, constant_values=1) for x in (table, rows))

    right_ratio = split_merge._log_split_ratio

    def one(key, factor, power):
        def move(t, carry):
            z, counts, tables, sums = carry
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    split_merge, "_log_split_ratio",
                    lambda *args: right_ratio(*args) + jnp.log(factor),
                )  # fmt: skip
                z, counts, tables, _ = split_merge.split_or_merge(
                    jax.random.fold_in(key, t),
                    SeatedItems(z, table, rows, jnp.int32(num_records)), Counts(counts, tables),
                    levels_of(NUM_LEVELS, shape**power), jnp.float32(ALPHA0), double=double,
                )  # fmt: skip
            label = z[item, record]
            k = jnp.sum(jnp.zeros(num_slots).at[label].set(1))
            same = (label[pairs[:, 0]] == label[pairs[:, 1]]).astype(float)
            sums = sums + jnp.concatenate([k[None], same]) * (t >= 20)
            return z, counts, tables, sums

        z = jnp.zeros(table.shape, jnp.int32)
        sums = jnp.zeros(1 + len(pairs))
        tables = jnp.zeros(num_slots, jnp.int32).at[0].set(len(record))
        own = rows[:, :num_records].reshape(-1)
        counts = jnp.zeros((sum(NUM_LEVELS), num_slots), jnp.int32).at[own, 0].add(1)
        z, counts, tables, sums = jax.lax.fori_loop(0, num_moves, move, (z, counts, tables, sums))
        labels = z[:, :num_records].reshape(-1)
        counted = jnp.zeros_like(counts).at[own, labels].add(1)
        seated = jnp.zeros_like(tables).at[z[item, record]].add(1)
        right = jnp.all(counted == counts) & jnp.all(seated == tables)
        return jnp.where(right, sums / (num_moves - 20), jnp.nan)

    run = jax.jit(jax.vmap(one, (0, None, None)))
    keys = jax.random.split(jax.random.key(5), num_chains)
    return lambda factor=1.0, power=1.0: np.asarray(run(keys, factor, power))


@pytest.fixture(scope="module")
def whole():
    return chains(ONE_TABLE)


@ACCELERATOR_IS_LONG
@pytest.mark.usefixtures("either_form")
def test_leaves_the_posterior_invariant(whole):
    z = z_scores(whole(), exact_pairs(ONE_TABLE))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize(
    "wrong", [{"factor": 0.9}, {"factor": 1.1}, {"power": 0.0}], ids=["less", "more", "ones"]
)
def test_rejects_a_wrong_ratio(whole, wrong):
    """A factor, or ones for the shapes of the levels' prior."""
    z = z_scores(whole(**wrong), exact_pairs(ONE_TABLE))
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.mark.long
def test_rejects_anchors_that_are_not_uniform(monkeypatch):
    """The first items of a component are chosen more often."""
    right = split_anchors.uniform_index
    monkeypatch.setattr(split_anchors, "uniform_index", lambda u, n: right(u * u, n))
    z = z_scores(chains(ONE_TABLE)(), exact_pairs(ONE_TABLE))
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.mark.long
def test_rejects_a_ratio_that_takes_all_components_for_as_likely(monkeypatch):
    def even(present):
        return (present.tables > 0) / jnp.sum(present.tables > 0)

    monkeypatch.setattr(split_proposal, "first_probability", even)
    z = z_scores(chains(ONE_TABLE)(), exact_pairs(ONE_TABLE))
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.mark.parametrize(
    ("opened_by", "in_chunks"),
    [
        pytest.param(SOME_AT_TWO, False, marks=pytest.mark.long),
        pytest.param(SOME_AT_TWO, True, marks=pytest.mark.long),
        pytest.param(ONE_TABLE, True, marks=pytest.mark.long),
    ],
    ids=["some at two", "some at two, in chunks", "one table, in chunks"],
)
def test_leaves_the_posterior_of_the_partition_invariant(monkeypatch, opened_by, in_chunks):
    if in_chunks:
        # Chunks of two records, of which one shapes the proposal.
        monkeypatch.setattr(dealing, "MIN_CHUNK", 2)
        monkeypatch.setattr(dealing, "SHAPING_RECORDS", 2)
    means = chains(opened_by)()
    # Chains move.
    assert (np.ptp(means, axis=0) > 0).all()
    z = z_scores(means, exact_pairs(opened_by))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.fixture(scope="module")
def in_double():
    return chains(ONE_TABLE, double=True)


@pytest.mark.long
@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_decides_in_double_precision_as_in_single(in_double, factor):
    """Leaves the posterior invariant; a wrong ratio does not."""
    z = z_scores(in_double(factor), exact_pairs(ONE_TABLE))
    assert (np.abs(z).max() < Z_LIMIT) == (factor == 1), z


def test_large_sides_are_decided_in_double_precision(x64, monkeypatch):
    """Two sides of ten million items, alike: evidence and proposal of a million nats cancel."""
    rng = np.random.default_rng(0)
    share = np.concatenate([[0.3, 0.7], [0.2, 0.5, 0.3]])
    items = np.stack([np.round(size * share).astype(np.int32) for size in (6e6, 4e6)], axis=1)
    tables, alpha0 = np.array([6_000_000, 4_000_000]), 1.3
    levels = Levels.of_variables((2, 3))
    target = split_merge._log_split_ratio(
        *map(jnp.asarray, items.T), levels, *map(jnp.asarray, tables), jnp.asarray(alpha0)
    )
    cost = rng.random((4, 1000))
    cost = (cost * (-1 - float(target)) / cost.sum()).astype(np.float32)
    ratio = float(target) + cost.sum(dtype=float)
    off = np.array([-0.1, -0.03, -0.01, 0.01, 0.03, 0.1])

    def decisions(double):
        @jax.jit
        def one(log_u):
            proposal = split_proposal.Proposal(
                is_split=jnp.ones((), bool), possible=jnp.ones((), bool), log_u=log_u,
                stays=jnp.int32(0), other=jnp.int32(1), items=jnp.asarray(items),
                tables=jnp.asarray(tables, jnp.int32), labels=jnp.zeros((1, 1), jnp.int32),
                log_choice=jnp.zeros(()), cost=jnp.asarray(cost),
            )  # fmt: skip
            monkeypatch.setattr(split_merge, "propose_sides", lambda *_: proposal)
            whole = jnp.asarray(np.pad(items.sum(axis=1)[:, None], ((0, 0), (0, 1))))
            seated = SeatedItems(*[proposal.labels] * 3, jnp.int32(1))
            present = Counts(whole, jnp.asarray([tables.sum(), 0], jnp.int32))
            return split_merge.split_or_merge(
                jax.random.key(0), seated, present, Levels.of_variables((2, 3)),
                jnp.float32(alpha0), double=double,
            ).accepted  # fmt: skip

        with jax.enable_x64(False):
            return np.array([one(jnp.float32(x)) for x in ratio + off])

    assert -2 < ratio < 0
    np.testing.assert_array_equal(decisions(True), off < 0)
    # Shown to fail: single precision.
    assert (decisions(False) != (off < 0)).any()
