"""Boxes under the urn, against sums over labels, and their records against exact probabilities."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value, compiles_once
from harness import Z_LIMIT
from latent import structural_zeros
from scipy import stats

from bnp_models.kernels.mixed_membership import urn_boxes, urn_partitions
from bnp_models.kernels.mixed_membership.cell_probability import log_cell_probability_exact
from bnp_models.kernels.mixed_membership.urn_boxes import UrnBoxes
from bnp_models.kernels.mixed_membership.urn_partitions import TooManyPartitions
from bnp_models.kernels.numerics.set_partitions import log_block_weights, log_block_weights_gamma

NUM_LEVELS = (3, 2, 4, 2, 3)
FIRST = np.cumsum((0, *NUM_LEVELS[:-1]))
CONDITIONS = [
    [0, -1, 3, -1, -1], [1, 1, -1, -1, -1], [-1, 1, 2, -1, 0], [-1, -1, 1, -1, 1],
    [2, 0, 0, -1, 2],
]  # fmt: skip
REGIONS = ("feasible", "impossible")


def make_sets():
    zeros = structural_zeros(CONDITIONS, NUM_LEVELS)
    return {name: getattr(zeros, name).sets for name in REGIONS}


def make_boxes():
    return {name: UrnBoxes.of_boxes(sets, NUM_LEVELS) for name, sets in make_sets().items()}


def make_state(seed, num_slots=3, dtype=np.float64, spread=0.6):
    rng = np.random.default_rng(seed)
    levels = [rng.dirichlet(np.full(size, spread), num_slots).T for size in NUM_LEVELS]
    g0 = rng.dirichlet(np.full(num_slots, 0.8))
    return jnp.asarray(np.concatenate(levels), dtype), jnp.asarray(g0, dtype)


def box_columns(theta, sets):
    """(boxes, J, K): the probability of each variable's set in each component."""
    return np.stack([
        [theta[s : s + size][box[s : s + size]].sum(axis=0)
         for s, size in zip(FIRST, NUM_LEVELS, strict=True)]
        for box in sets
    ])  # fmt: skip


def urn_probability(alpha, g0, columns):
    """Probability of one box by the sum over all label vectors."""
    total = 0.0
    for z in product(range(g0.size), repeat=len(columns)):
        p = 1.0
        for j, k in enumerate(z):
            p *= (alpha * g0[k] + z[:j].count(k)) / (alpha + j) * columns[j, k]
        total += p
    return total


block_products = jax.jit(urn_boxes.block_products)
log_weights = jax.jit(log_block_weights, static_argnums=1)
log_weights_gamma = jax.jit(log_block_weights_gamma, static_argnums=2)
weights_by_size = jax.jit(urn_boxes.weights_by_size)


@jax.jit
def log_column_probability(columns, g0, **urn):
    """Log P(box) by subsets of variables: each box a level, its columns (boxes, J, K) theta."""
    num_boxes, num_variables, _ = columns.shape
    boxes = jnp.broadcast_to(jnp.arange(num_boxes)[:, None], (num_boxes, num_variables))
    return log_cell_probability_exact(columns.swapaxes(0, 1), g0, boxes, **urn)


@jax.jit
def totals_of(theta, g0, boxes):
    return urn_boxes.partition_totals(jnp.sum(block_products(theta, g0, boxes), axis=1), boxes)


def weights_of(alpha, boxes):
    return weights_by_size(log_weights(alpha, boxes.most_variables), boxes)


def region_probability(theta, g0, alpha, boxes):
    return urn_boxes.probability(totals_of(theta, g0, boxes), weights_of(alpha, boxes))


@pytest.mark.parametrize("alpha", [1e-3, 0.7, 30.0])
def test_probability_is_the_sum_over_labels(x64, seed, alpha):
    theta, g0 = make_state(seed)
    found = []
    for name, boxes in make_boxes().items():
        columns = box_columns(np.asarray(theta), make_sets()[name])
        exact = sum(urn_probability(alpha, np.asarray(g0), box) for box in columns)
        found.append(region_probability(theta, g0, alpha, boxes))
        np.testing.assert_allclose(found[-1], exact, rtol=1e-11)
        by_subsets = log_column_probability(jnp.asarray(columns), g0, alpha=alpha)
        np.testing.assert_allclose(found[-1], jnp.sum(jnp.exp(by_subsets)), rtol=1e-11)
    np.testing.assert_allclose(sum(found), 1, rtol=1e-12)


def test_probability_with_an_alpha_of_each_record(x64, seed):
    theta, g0 = make_state(seed, num_slots=20)
    found = 0.0
    for name, boxes in make_boxes().items():
        weights = weights_by_size(log_weights_gamma(2.0, 0.6, boxes.most_variables), boxes)
        p = urn_boxes.probability(totals_of(theta, g0, boxes), weights)
        exact = log_column_probability(
            jnp.asarray(box_columns(np.asarray(theta), make_sets()[name])), g0,
            log_weights=log_weights_gamma(2.0, 0.6, len(NUM_LEVELS)),
        )  # fmt: skip
        np.testing.assert_allclose(p, jnp.sum(jnp.exp(exact)), rtol=1e-8)
        found += p
    np.testing.assert_allclose(found, 1, rtol=1e-8)


@pytest.mark.parametrize("alpha", [1e-6, 0.3, 1e4])
def test_single_precision_follows_double(x64, seed, alpha):
    theta, g0 = make_state(seed, num_slots=40, spread=0.1)
    double_boxes = make_boxes()
    exact = {
        name: region_probability(theta, g0, alpha, boxes) for name, boxes in double_boxes.items()
    }
    with jax.enable_x64(False):
        state = [jnp.asarray(np.asarray(x), jnp.float32) for x in (theta, g0)]
        for name, boxes in make_boxes().items():
            single = region_probability(*state, jnp.float32(alpha), boxes)
            assert single.dtype == np.float32
            np.testing.assert_allclose(single, exact[name], rtol=2e-5)


def test_growth_of_the_probability_is_in_double_precision(x64, seed):
    """Of parameters in single precision, to a hundredth of what a million records let matter."""
    rng = np.random.default_rng(seed)
    old = [np.asarray(x, np.float32) for x in make_state(seed, num_slots=40)]
    new = [x * np.float32(1 + 1e-4 * rng.standard_normal(x.shape)) for x in old]
    p_old, p_new = (
        float(region_probability(*map(jnp.float64, x), 0.3, make_boxes()["feasible"]))
        for x in (old, new)
    )
    with jax.enable_x64(False):
        boxes = make_boxes()["feasible"]
        weights = weights_of(jnp.float32(0.3), boxes)
        growth = jax.jit(urn_boxes.log_growth)(old, new, weights, boxes)
        single = [region_probability(*x, jnp.float32(0.3), boxes) for x in (old, new)]
    assert growth.dtype == np.float32
    error = 1e6 * abs(float(growth) - np.log(p_new / p_old))
    # Shown to fail: single precision.
    assert error < 1e-3 < 1e6 * abs(float(np.log(single[1] / single[0])) - np.log(p_new / p_old))


@pytest.mark.parametrize("name", REGIONS)
def test_weights_by_size(x64, name):
    """Weights of a smaller urn are those of the largest, its last items left out."""
    boxes = make_boxes()[name]
    assert boxes.most_variables == max(d for d, _ in boxes.shape) == 4
    assert len({d for d, _ in boxes.shape}) > 1
    for law in (
        lambda d: log_weights(0.4, d), lambda d: log_weights_gamma(2.0, 0.3, d)
    ):  # fmt: skip
        got = weights_by_size(law(boxes.most_variables), boxes)
        exact = [np.exp(law(d)[b - 1]) for d, b in boxes.shape]
        np.testing.assert_allclose(got, exact, rtol=1e-8)


@pytest.mark.parametrize("name", REGIONS)
def test_blocks_are_what_their_sets_say(seed, name, x64):
    """Products over a type's sets; whole boxes; a component by itself; sums over partitions."""
    boxes, sets = make_boxes()[name], make_sets()[name]
    theta, g0 = make_state(seed)
    products = np.asarray(block_products(theta, g0, boxes))
    of_set = np.asarray(boxes.sets @ theta)
    exact = np.ones_like(products) * np.asarray(g0)
    for kind, own in np.asarray(boxes.set_of_type).T:
        exact[kind] *= of_set[own]
    np.testing.assert_allclose(products, exact, rtol=1e-12)
    whole = box_columns(np.asarray(theta), sets).prod(axis=1) * np.asarray(g0)
    np.testing.assert_allclose(products[np.asarray(boxes.whole)], whole, rtol=1e-12)
    alone = urn_boxes.block_products(theta[:, 1:2], jnp.ones(1), boxes)[:, 0] * g0[1]
    np.testing.assert_allclose(alone, products[:, 1], rtol=1e-12)
    # As many partitions of d variables into B blocks as there are (Stirling), for each box.
    constrained = [
        sum(not box[s : s + size].all() for s, size in zip(FIRST, NUM_LEVELS, strict=True))
        for box in sets
    ]
    stirling = {1: (1,), 2: (1, 1), 3: (1, 3, 1), 4: (1, 7, 6, 1)}
    for (d, b), number in zip(boxes.shape, boxes.partitions, strict=True):
        assert number == constrained.count(d) * stirling[d][b - 1]
    sizes = np.concatenate([np.sum(np.asarray(t) < boxes.num_types, 0) for t in boxes.blocks])
    np.testing.assert_array_equal(sizes, np.repeat([b for _, b in boxes.shape], boxes.partitions))


@pytest.mark.parametrize("name", REGIONS)
def test_sets_are_in_the_order_of_the_level_parts(name):
    """Counts of sets go to `split_over_parts`, which has sets of its own."""
    boxes = make_boxes()[name]
    rows_of_set = np.asarray(boxes.sets, bool)
    by_parts = np.array([
        np.isin(np.asarray(boxes.parts.part_of_row), line[line < boxes.parts.variable.size])
        for line in np.asarray(boxes.parts.sets)
    ])  # fmt: skip
    np.testing.assert_array_equal(rows_of_set, by_parts)
    assert len(np.unique(rows_of_set, axis=0)) == len(rows_of_set) > 4


@pytest.mark.usefixtures("either_form")
def test_count_sets_and_blocks(seed):
    boxes = make_boxes()["impossible"]
    rng = np.random.default_rng(seed)
    of_type = rng.integers(0, 5, (boxes.num_types, 3))
    exact = np.zeros((len(boxes.sets), 3), int)
    for kind, own in np.asarray(boxes.set_of_type).T:
        exact[own] += of_type[kind]
    np.testing.assert_array_equal(urn_boxes.count_sets(jnp.asarray(of_type), boxes), exact)
    records = rng.integers(0, 4, sum(boxes.partitions))
    blocks = np.zeros(boxes.num_types, int)
    lines = [line[line < boxes.num_types] for types in boxes.blocks for line in np.asarray(types).T]
    for line, times in zip(lines, records, strict=True):
        blocks[line] += times
    found = urn_boxes.count_blocks(jnp.asarray(records), boxes)
    np.testing.assert_array_equal(found, blocks)


N_RECORDS, N_DRAWS = 12, 10_000


def negative_binomial_p_value(draws, share, feasible):
    """P-value of counts of an event of probability `share` before the n-th feasible record."""
    law = stats.nbinom(N_RECORDS, feasible / (feasible + share))
    # Counts in the tail are one cell, of five expected draws or more.
    top = int(np.flatnonzero(law.sf(np.arange(200)) * len(draws) >= 5)[-1])
    hits = np.bincount(np.minimum(draws, top + 1), minlength=top + 2)
    return chi_square_p_value(hits, np.append(law.pmf(np.arange(top + 1)), law.sf(top)))


@pytest.mark.long
def test_records_and_blocks_are_negative_binomial(key, seed):
    """Their number, and the blocks of every type and component, which no record has twice."""
    boxes = make_boxes()["impossible"]
    theta, g0 = make_state(seed, dtype=np.float32, spread=2.0)
    products = block_products(theta, g0, boxes)
    sums = jnp.sum(products, axis=1)
    weights = weights_of(0.8, boxes)
    outside = float(urn_boxes.probability(urn_boxes.partition_totals(sums, boxes), weights))
    feasible = 1 - outside

    @jax.jit
    @jax.vmap
    def draw(key):
        return urn_boxes.draw_blocks(
            key, products, weights, jnp.float32(feasible), jnp.float32(N_RECORDS), boxes
        )

    labelled, records = (np.asarray(x) for x in draw(jax.random.split(key, N_DRAWS)))
    blocks = labelled.sum(axis=2)
    assert negative_binomial_p_value(records, outside, feasible) > P_LIMIT
    # Shown to fail: records before the next but one.
    assert negative_binomial_p_value(records, 1.1 * outside, feasible) < P_LIMIT
    rates = urn_boxes.partition_values(sums, boxes) * urn_boxes.of_partitions(weights, boxes)
    share = urn_boxes.count_blocks(rates, boxes)
    np.testing.assert_allclose(jnp.sum(rates), outside, rtol=1e-5)
    for kind in range(boxes.num_types):
        p = negative_binomial_p_value(blocks[:, kind], float(share[kind]), feasible)
        assert p > P_LIMIT, kind
    of_label = np.asarray(share[:, None] * products / sums[:, None])
    for kind, label in zip(*np.nonzero(of_label > 1e-3), strict=True):
        p = negative_binomial_p_value(labelled[:, kind, label], of_label[kind, label], feasible)
        assert p > P_LIMIT, (kind, label)
    # Shown to fail: the share of another component.
    kind = boxes.whole[0]
    most, least = np.argmax(of_label[kind]), np.argmin(of_label[kind])
    assert negative_binomial_p_value(labelled[:, kind, most], of_label[kind, least], feasible) < (
        P_LIMIT
    )
    # Blocks of two types vary together as their records do: Cov(N_s + N_t) from the pair's own law.
    pair = jnp.zeros(boxes.num_types).at[jnp.array([0, 1])].set(1)
    pair = jnp.append(pair, 0)
    both = np.concatenate([np.sum(np.asarray(pair[types]), axis=0) for types in boxes.blocks])
    first = np.sum(rates * both) / feasible
    second = np.sum(rates * both**2) / feasible
    variance = N_RECORDS * (second + first**2)
    total = blocks[:, :2].sum(axis=1)
    error = np.std((total - total.mean()) ** 2) / np.sqrt(N_DRAWS)
    assert abs(total.var() - variance) < Z_LIMIT * error


def test_more_records_than_can_be_counted(key):
    boxes = make_boxes()["impossible"]
    theta, g0 = make_state(0, dtype=np.float32)
    products = block_products(theta, g0, boxes)
    draw = jax.jit(urn_boxes.draw_blocks)
    for feasible in (1e-8, 1e-30):
        blocks, records = draw(
            key, products, weights_of(1.0, boxes), jnp.float32(feasible), jnp.float32(1000), boxes
        )
        assert records == -1 and not np.any(blocks)


@pytest.mark.parametrize("at_once, counted", [(4096, 2**16), (50, 2**16), (50, 0)])
def test_labels_of_blocks(key, seed, monkeypatch, at_once, counted):
    """Multinomial for each type, in one round or in many, or counted where a type has many."""
    monkeypatch.setattr(urn_boxes, "_BLOCKS_AT_ONCE", at_once)
    monkeypatch.setattr(urn_boxes, "_COUNTED_TYPES", 2)
    monkeypatch.setattr(urn_boxes, "_COUNTED_BLOCKS", 100)
    monkeypatch.setattr(urn_boxes, "_COUNTED_TOGETHER", counted)
    rng = np.random.default_rng(seed)
    products = rng.dirichlet(np.full(5, 0.7), 6) * rng.uniform(0, 1e-3, (6, 1))
    products[:, 3] = 0
    blocks = np.array([0, 7, 300, 0, 1, 92])
    draw = jax.jit(jax.vmap(urn_boxes._draw_labels, (0, None, None)))
    labelled = np.asarray(
        draw(jax.random.split(key, 200), jnp.asarray(blocks), jnp.asarray(products, jnp.float32))
    )
    np.testing.assert_array_equal(labelled.sum(axis=2), np.broadcast_to(blocks, (200, 6)))
    for kind in np.flatnonzero(blocks):
        counts = labelled[:, kind].sum(axis=0)
        assert chi_square_p_value(counts, products[kind]) > P_LIMIT
    assert chi_square_p_value(labelled[:, 2].sum(axis=0), products[5]) < P_LIMIT
    # Independent of each other: the variance of a label's count is binomial.
    p = products[2] / products[2].sum()
    spread = labelled[:, 2].var(axis=0, ddof=1)[p > 0] / (300 * p * (1 - p))[p > 0]
    assert (abs(spread - 1) < Z_LIMIT * np.sqrt(2 / 199)).all()


def test_a_box_of_every_variable_and_none_at_all(x64):
    """A single box, and a region that leaves everything free."""
    theta, g0 = make_state(3)
    box = np.zeros((1, sum(NUM_LEVELS)), bool)
    box[0, FIRST] = True
    boxes = UrnBoxes.of_boxes(box, NUM_LEVELS)
    exact = urn_probability(0.5, np.asarray(g0), np.asarray(theta)[FIRST])
    np.testing.assert_allclose(region_probability(theta, g0, 0.5, boxes), exact, rtol=1e-12)


def test_too_many_partitions_are_refused():
    num_levels = (2,) * 12
    box = np.zeros((1, 24), bool)
    box[0, ::2] = True
    with pytest.raises(TooManyPartitions, match="up to 12 variables"):
        UrnBoxes.of_boxes(box, num_levels)
    assert issubclass(TooManyPartitions, ValueError)
    # Ten variables, 115,975 partitions, are listed.
    box[0, :4] = True
    boxes = UrnBoxes.of_boxes(box, num_levels)
    assert sum(boxes.partitions) == 115_975


def test_new_parameters_compile_nothing(key):
    boxes = make_boxes()["impossible"]

    def run(key, theta, g0, alpha):
        products = block_products(theta, g0, boxes)
        return urn_boxes.draw_blocks(
            key, products, weights_of(alpha, boxes), jnp.float32(0.5), jnp.float32(9), boxes
        )

    first, second = (make_state(s, dtype=np.float32) for s in (0, 1))
    one, two = jax.random.split(key)
    assert compiles_once(run, (one, *first, jnp.float32(1)), (two, *second, jnp.float32(9)))


def test_partitions_of_all_boxes_are_counted(monkeypatch):
    """Three boxes of three variables, with 5 partitions each, and two of two, with 2 each."""
    three, two = [0, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 0]
    for boxes, number in (([three] * 3 + [two] * 2, 19), ([three] * 3, 15)):
        monkeypatch.setattr(urn_partitions, "MAX_PARTITIONS", number)
        urn_partitions.require_listable(np.array(boxes, bool), (2, 2, 2))
        monkeypatch.setattr(urn_partitions, "MAX_PARTITIONS", number - 1)
        with pytest.raises(TooManyPartitions, match="boxes of up to 3 variables"):
            urn_partitions.require_listable(np.array(boxes, bool), (2, 2, 2))
