"""Whole records seated anew, against sums over their seatings; the shared alpha without them."""

from functools import partial
from itertools import chain, combinations, product
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value, compiles_once, density_cdf, ks_p_value
from harness import Z_LIMIT, set_partitions

from bnp_models.kernels.mixed_membership import concentration, seating

NUM_LEVELS = (3, 2, 2, 3)
FIRST = np.cumsum((0, *NUM_LEVELS[:-1]))
# Not a multiple of what the partition sums take at once.
N = 20_005


def make_state(seed, num_items=4, num_slots=3, dtype=np.float32):
    rng = np.random.default_rng(seed)
    levels = [rng.dirichlet(np.ones(size), num_slots).T for size in NUM_LEVELS[:num_items]]
    g0 = rng.dirichlet(np.full(num_slots, 2.0))
    return jnp.asarray(np.concatenate(levels), dtype), jnp.asarray(g0, dtype)


def label_probabilities(rows, alpha, g0, theta, slots=(0, 1, 2), fewest=1):
    """Probabilities of all label vectors of a record at one or two tables, ordered by `product`."""
    g0, theta = np.asarray(g0, np.float64), np.asarray(theta, np.float64)[rows]
    p = np.zeros((g0.size,) * len(rows))
    for partition in set_partitions(list(range(len(rows)))):
        if not fewest <= len(partition) <= seating.MAX_TABLES:
            continue
        for labels in product(slots, repeat=len(partition)):
            z, weight = np.zeros(len(rows), int), 1.0
            for block, k in zip(partition, labels, strict=True):
                z[block] = k
                weight *= alpha * np.prod(np.arange(1, len(block))) * g0[k] * theta[block, k].prod()
            p[tuple(z)] += weight
    return p.ravel() / p.sum()


def some_rows(num_items=4):
    """Three records, over and over."""
    levels = np.array([[0, 1, 1, 2], [2, 0, 1, 1], [1, 1, 0, 0]])[:, :num_items]
    return (FIRST[:num_items] + levels).T[:, np.arange(N) % 3]


@pytest.fixture
def few_at_once(monkeypatch):
    """More chunks than one, none of them full."""
    monkeypatch.setattr(seating, "_RECORDS_AT_ONCE", 100)
    monkeypatch.setattr(seating, "_SUMS_AT_ONCE", 1)


def seats_of(g0, theta, num_items, slots=(0, 1, 2)):
    return seating.take_seats(jnp.array(slots), g0, theta, num_items)


def cells_of(rows, number=None):
    """Every record's cell is its own."""
    own, size = jnp.arange(rows.shape[1]), jnp.int32(number or rows.shape[1])
    return seating.Cells(own, jnp.asarray(rows), size)


@jax.jit
def seat_all(key, rows, alpha, seats, may_be_alone=True):
    cells = cells_of(rows)
    totals = seating.log_totals_by_tables(cells, seats)
    totals = totals.at[0].set(jnp.where(may_be_alone, totals[0], -jnp.inf))
    moving = jnp.ones(rows.shape[1], bool)
    return seating.draw_seating(key, rows, alpha, seats, moving, cells, totals)


def draw_labels(key, rows, alpha, g0, theta, slots=(0, 1, 2)):
    seats = seats_of(g0, theta, len(rows), slots)
    z = seat_all(key, jnp.asarray(rows), jnp.float32(alpha), seats)
    assert z.shape == rows.shape
    return np.asarray(z)


def vectors(z, num_slots=3):
    """Label vectors of records as numbers, in the order of `product`."""
    return np.ravel_multi_index(np.asarray(z), (num_slots,) * len(z))


def p_values(z, rows, alpha, g0, theta):
    found = []
    for first in range(3):
        probability = label_probabilities(rows[:, first], alpha, g0, theta)
        hits = np.bincount(vectors(z[:, first::3]), minlength=probability.size)
        found.append(chi_square_p_value(hits, probability))
    return found


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("alpha", [0.02, 0.8, 8.0])
def test_labels_are_those_of_the_conditional(key, seed, few_at_once, alpha):
    theta, g0 = make_state(seed)
    rows = some_rows()
    z = draw_labels(key, rows, alpha, g0, theta)
    found = p_values(z, rows, alpha, g0, theta)
    assert min(found) > P_LIMIT, found
    # Shown to fail: another concentration.
    found = p_values(z, rows, alpha / 5, g0, theta)
    assert min(found) < P_LIMIT, found


@pytest.mark.parametrize("num_items", [1, 2])
def test_records_of_few_items(key, seed, few_at_once, num_items):
    theta, g0 = make_state(seed, num_items)
    rows = some_rows(num_items)
    z = draw_labels(key, rows, 0.8, g0, theta)
    assert min(p_values(z, rows, 0.8, g0, theta)) > P_LIMIT
    # Shown to fail: level probabilities that are not the record's.
    assert min(p_values(z, rows[:, ::-1], 0.8, g0, theta)) < P_LIMIT


def test_the_labels_of_records_are_independent(key, seed, few_at_once, monkeypatch):
    """In one chunk, and at one place of two chunks, which all records at two tables fill."""
    theta, g0 = make_state(seed)
    rows = np.repeat(some_rows()[:, :1], N, axis=1)
    exact = label_probabilities(rows[:, 0], 0.8, g0, theta, fewest=2)
    seats = seats_of(g0, theta, len(rows))
    size = seating._chunks(jnp.asarray(rows)).shape[2]

    def p_of_pairs(z, apart):
        number = vectors(z)[: N // (2 * size) * 2 * size].reshape(-1, apart)
        pairs = number[0::2] * exact.size + number[1::2]
        return chi_square_p_value(
            np.bincount(pairs.ravel(), minlength=exact.size**2), np.outer(exact, exact)
        )

    z = seat_all(key, rows, jnp.float32(0.8), seats, False)
    assert p_of_pairs(z, 1) > P_LIMIT
    assert p_of_pairs(z, size) > P_LIMIT
    # Shown to fail: one key for all chunks.
    monkeypatch.setattr(
        seating.jax.random, "fold_in", lambda key, i, right=jax.random.fold_in: right(key, i * 0)
    )
    again = jax.jit(lambda *args: seat_all.__wrapped__(*args))
    z = again(key, rows, jnp.float32(0.8), seats, False)
    assert p_of_pairs(z, size) < P_LIMIT


def test_what_is_impossible_is_not_drawn(key, few_at_once):
    """A component without weight, and one that never has a record's level."""
    theta, g0 = (np.array(x) for x in make_state(3, num_slots=4))
    g0[1] = 0
    rows = some_rows()
    theta[rows[0, 0], 2] = theta[rows[3, 1], 0] = 0
    z = draw_labels(key, rows, 0.5, jnp.asarray(g0), jnp.asarray(theta), range(4))
    assert not (z == 1).any()
    found = []
    for first in range(3):
        exact = label_probabilities(rows[:, first], 0.5, g0, theta, range(4))
        found.append(
            chi_square_p_value(np.bincount(vectors(z[:, first::3], 4), minlength=256), exact)
        )
    assert min(found) > P_LIMIT, found


def test_only_the_slots_are_drawn(key, seed):
    """Any of them, in any order."""
    theta, g0 = make_state(seed, num_slots=4)
    rows, slots = some_rows(), (3, 0)
    z = draw_labels(key, rows, 0.8, g0, theta, slots)
    assert set(z.ravel()) == set(slots)

    def lowest_p(slots):
        found = []
        for first in range(3):
            exact = label_probabilities(rows[:, first], 0.8, g0, theta, slots)
            hits = np.bincount(vectors(z[:, first::3], 4), minlength=256)
            found.append(chi_square_p_value(hits, exact))
        return min(found)

    assert lowest_p(slots) > P_LIMIT
    # Shown to fail: what is drawn where there are other components.
    assert lowest_p((3, 0, 1)) < P_LIMIT


def test_who_can_be_seated():
    """One table, two, three; and labels outside of the slots."""
    z = jnp.array([[2, 2, 2, 0, 0], [2, 2, 0, 1, 2], [2, 2, 2, 0, 2]])
    opens = jnp.array([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 0, 0]], bool)
    found = seating.can_be_seated(z, opens, jnp.array([2, 0]), 4)
    np.testing.assert_array_equal(found, [True, True, False, False, True])


def log_totals(rows, num_cells, g0, theta):
    """For one block and for two, the sum over partitions of prod (|b| - 1)! S_b of every cell."""
    items = set(range(len(rows)))
    companions = chain.from_iterable(combinations(items, size) for size in range(1, len(rows)))
    deals = [(items,), *((set(b), items - set(b)) for b in companions if 0 in b)]
    found = np.zeros((seating.MAX_TABLES, num_cells))
    for c in range(num_cells):
        columns = np.asarray(theta, np.float64)[rows[:, c]]
        for deal in deals:
            term = 1.0
            for block in map(list, deal):
                together = np.sum(np.asarray(g0) * columns[block].prod(axis=0))
                term *= factorial(len(block) - 1) * together
            found[len(deal) - 1, c] += term
    with np.errstate(divide="ignore"):
        return np.log(found)


def test_totals_of_many_items_in_single_precision():
    """Records that hardly any component explains, by all ways of dealing twelve items."""
    rng = np.random.default_rng(0)
    num_items, num_slots = 12, 32
    theta = np.concatenate([rng.dirichlet(np.full(9, 0.05), num_slots).T] * num_items)
    theta, g0 = np.maximum(theta, 1e-6), rng.dirichlet(np.full(num_slots, 0.1)) + 1e-12
    rows = 9 * np.arange(num_items)[:, None] + rng.integers(0, 9, (num_items, 16))
    seats = seats_of(jnp.float32(g0), jnp.float32(theta), num_items, range(num_slots))
    got = seating.log_totals_by_tables(cells_of(rows), seats)
    exact = log_totals(rows, 16, g0, theta)
    np.testing.assert_allclose(got[1] - got[0], exact[1] - exact[0], atol=1e-3)


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("num_items", [1, 4])
def test_totals_by_tables(seed, monkeypatch, num_items):
    """Some cells of a padded table, in several chunks, up to a factor of each cell."""
    monkeypatch.setattr(seating, "_RECORDS_AT_ONCE", 16)
    monkeypatch.setattr(seating, "_SUMS_AT_ONCE", 1)
    theta, g0 = make_state(seed, num_items, num_slots=5)
    rng = np.random.default_rng(seed)
    num_cells = 37
    rows = FIRST[:num_items, None] + rng.integers(0, 2, (num_items, 53))
    seats = seats_of(g0, theta, num_items, range(5))
    got = jax.jit(seating.log_totals_by_tables)(cells_of(rows, num_cells), seats)
    assert got.shape == (seating.MAX_TABLES, 53)
    exact = log_totals(rows, num_cells, g0, theta)
    got = np.asarray(got, np.float64)[:, :num_cells]
    np.testing.assert_allclose(got[1] - got[0], exact[1] - exact[0], atol=2e-5)
    if num_items > 1:
        # Shown to fail: the totals of other cells.
        wrong = np.roll(exact, 1, axis=1)
        assert np.abs((got[1] - got[0]) - (wrong[1] - wrong[0])).max() > 0.1
    else:
        assert (got[1] == -np.inf).all()


# The shared alpha, labels summed out.
SHAPE, RATE = 1.5, 0.7
CHAINS, STEPS, MANY = 10_000, 8, 100
RECORDS = np.array([7.0, 2.0, 0.0, 5.0])
OTHERS, THEIR_EXTRA_TABLES = 3, 4


def feasible(alpha, xp=jnp):
    return (0.1 + 0.6 * alpha) / (1 + alpha)


def density_mean(log_density):
    """By the trapezoid rule over the logarithm."""
    x = np.exp(np.linspace(-30, 5, 20_001))
    log_p = log_density(x) + np.log(x)
    p = np.exp(log_p - log_p.max())
    return np.sum(p * x) / np.sum(p)


@partial(jax.jit, static_argnames=("num_items", "truncated"))
def alpha_steps(keys, start, totals, num_steps, num_items, truncated):
    """Chains after some steps."""
    more = THEIR_EXTRA_TABLES * (num_items > 1)
    growth = (lambda old, new: jnp.log(feasible(new) / feasible(old))) if truncated else None
    summed_out = concentration.SummedOut(totals, jnp.asarray(RECORDS, jnp.float32))

    def chain(key, alpha):
        def step(t, alpha):
            return concentration.seatless_shared_concentration(
                jax.random.fold_in(key, t), alpha, summed_out, jnp.int32(OTHERS + more),
                jnp.int32(OTHERS), num_items, concentration.GammaPrior(SHAPE, RATE), growth,
            )  # fmt: skip

        return jax.lax.fori_loop(0, num_steps, step, alpha)

    return jax.vmap(chain)(keys, start)


@pytest.mark.parametrize("truncated", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("num_items", [pytest.param(1, marks=pytest.mark.long), 4])
def test_alpha_without_labels(key, seed, num_items, truncated):
    """Its density by the urn's sum over seatings of every cell, on a grid; some records' given."""
    theta, g0 = make_state(seed, num_items)
    levels = np.array([[0, 1, 1, 2], [2, 0, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]])[:, :num_items]
    rows = (FIRST[:num_items] + levels).T
    totals = jax.jit(seating.log_totals_by_tables)(cells_of(rows), seats_of(g0, theta, num_items))
    # A cell without records has any totals.
    totals = totals.at[:, 2].set(jnp.nan)
    exact = log_totals(rows, 4, g0, theta)

    def log_density(alpha, truncated=truncated, records=RECORDS, others=OTHERS):
        blocks = np.arange(1, seating.MAX_TABLES + 1)[:, None]
        rising = np.sum(np.log(alpha + np.arange(num_items)[:, None]), axis=0)
        value = (SHAPE - 1) * np.log(alpha) - RATE * alpha
        tables = others + THEIR_EXTRA_TABLES * (num_items > 1 and others > 0)
        value += tables * np.log(alpha) - others * rising
        for cell, times in zip(exact.T, records, strict=True):
            p = np.sum(np.exp(cell[:, None] + blocks * np.log(alpha)), axis=0)
            value += times * (np.log(p) - rising)
        return value - truncated * (records.sum() + others) * np.log(feasible(alpha, np))

    cdf, ppf = density_cdf(log_density)
    start = jnp.asarray(ppf((np.arange(CHAINS) + 0.5) / CHAINS), jnp.float32)
    keys = jax.random.split(key, CHAINS)
    end = alpha_steps(keys, start, totals, STEPS, num_items, truncated)
    assert ks_p_value(end, cdf) > P_LIMIT
    # Shown to fail: the other truncation.
    assert ks_p_value(end, density_cdf(lambda x: log_density(x, not truncated))[0]) < P_LIMIT
    # The mean, from afar.
    afar = np.asarray(
        alpha_steps(keys, jnp.full(CHAINS, 3.0), totals, MANY, num_items, truncated), float
    )
    mean = density_mean(log_density)
    assert abs(afar.mean() - mean) < Z_LIMIT * afar.std() / np.sqrt(CHAINS)
    if num_items > 1:
        # Nor is every cell one record.
        once = density_cdf(lambda x: log_density(x, records=np.minimum(RECORDS, 1)))[0]
        assert ks_p_value(end, once) < P_LIMIT
        alone = density_cdf(lambda x: log_density(x, others=0))[0]
        assert ks_p_value(end, alone) < P_LIMIT
        # Shown to fail: two tables in every seating.
        more = jnp.roll(totals, 1, axis=0).at[0].set(-jnp.inf)
        wrong = np.asarray(alpha_steps(keys, start, more, MANY, num_items, truncated), float)
        assert ks_p_value(wrong, cdf) < P_LIMIT
        assert abs(wrong.mean() - mean) > Z_LIMIT * wrong.std() / np.sqrt(CHAINS)


def test_new_parameters_compile_nothing(key):
    one, two = jax.random.split(key)
    rows = jnp.asarray(some_rows()[:, :50])
    seats = [seats_of(*make_state(seed)[::-1], 4) for seed in (0, 1)]
    assert compiles_once(
        seat_all.__wrapped__, (one, rows, jnp.float32(1), seats[0]),
        (two, rows[:, ::-1], jnp.float32(2), seats[1]),
    )  # fmt: skip


def test_records_of_one_cell_are_drawn_apart(key, seed):
    """Many records of a few distinct cells, with padding."""
    theta, g0 = make_state(seed)
    rows = jnp.asarray(some_rows())
    cells = seating.Cells(jnp.arange(N) % 3, jnp.pad(rows[:, :3], ((0, 0), (0, 7))), jnp.int32(3))
    seats, alpha = seats_of(g0, theta, len(rows)), jnp.float32(0.8)
    totals = seating.log_totals_by_tables(cells, seats)
    draw = jax.jit(seating.draw_seating)
    z = np.asarray(draw(key, rows, alpha, seats, jnp.ones(N, bool), cells, totals))
    assert min(p_values(z, np.asarray(rows), 0.8, g0, theta)) > P_LIMIT
    # Shown to fail: the cells of other records, and records left out that should have moved.
    others = cells._replace(of_record=(jnp.arange(N) + 1) % 3)
    for moving, of in ((jnp.ones(N, bool), others), (jnp.arange(N) % 2 == 0, cells)):
        z = np.asarray(draw(key, rows, alpha, seats, moving, of, totals))
        assert min(p_values(z, np.asarray(rows), 0.8, g0, theta)) < P_LIMIT
