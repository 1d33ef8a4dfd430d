"""Level parts: which levels they tell apart, counts shared out among them, levels given counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, chi_square_p_value, compiles_once, ks_p_value
from latent import structural_zeros
from scipy import stats

from bnp_models.kernels.boxes import level_parts
from bnp_models.kernels.boxes.level_parts import LevelParts

NUM_LEVELS = (4, 2, 3)
FIRST = (0, 4, 6)
# Levels 0 and 3 of the first variable are alike, and so are 1 and 2 of the last.
CONDITIONS = [[1, 1, -1], [2, -1, 0], [1, -1, 0]]
N = 20_000
split_over_parts = jax.jit(jax.vmap(level_parts.split_over_parts, (0, None, None, None)))
draw_levels_by_part = jax.jit(jax.vmap(level_parts.draw_levels_by_part, (0, None, None, None)))


def make():
    sets = structural_zeros(CONDITIONS, NUM_LEVELS).impossible.sets
    return sets, LevelParts.of_boxes(sets, NUM_LEVELS)


def test_level_parts_are_the_levels_that_no_box_tells_apart():
    sets, parts = make()
    part_of_row, variable = np.asarray(parts.part_of_row), np.asarray(parts.variable)
    of_level = np.repeat(np.arange(3), NUM_LEVELS)
    np.testing.assert_array_equal(variable[part_of_row], of_level)
    np.testing.assert_array_equal(np.unique(part_of_row), np.arange(len(variable)))
    for a in range(9):
        for b in range(9):
            alike = of_level[a] == of_level[b] and (sets[:, a] == sets[:, b]).all()
            assert alike == (part_of_row[a] == part_of_row[b])
    assert part_of_row[0] == part_of_row[3] and part_of_row[7] == part_of_row[8]


def test_sets_rebuild_the_boxes():
    """Each box from the sets that it has; a variable without one is free."""
    sets, parts = make()
    part_of_row = np.asarray(parts.part_of_row)
    rebuilt = np.ones_like(sets)
    for has_set, line in zip(np.asarray(parts.box_has_set), np.asarray(parts.sets), strict=True):
        line = line[line < parts.variable.size]
        j = int(parts.variable[line[0]])
        assert (np.asarray(parts.variable)[line] == j).all()
        rows = slice(FIRST[j], FIRST[j] + NUM_LEVELS[j])
        rebuilt[has_set > 0, rows] = np.isin(part_of_row[rows], line)
    np.testing.assert_array_equal(rebuilt, sets)


def test_without_boxes_every_level_is_a_part():
    parts = LevelParts.of_boxes(None, NUM_LEVELS)
    np.testing.assert_array_equal(parts.part_of_row, np.arange(9))
    np.testing.assert_array_equal(parts.variable, np.repeat(np.arange(3), NUM_LEVELS))
    assert parts.sets.size == parts.box_has_set.size == 0


def level_probabilities(seed):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.dirichlet(np.ones(size), 2).T for size in NUM_LEVELS])


def test_counts_are_shared_out_by_probability(key, seed):
    _, parts = make()
    level = level_probabilities(seed)
    num_sets, num_parts = len(parts.sets), parts.variable.size
    share = np.zeros((num_parts, 2))
    np.add.at(share, np.asarray(parts.part_of_row), level)
    every = np.random.default_rng(seed).integers(1, 30, (num_sets, 2))
    drawn = np.asarray(
        split_over_parts(jax.random.split(key, 500), jnp.asarray(every), jnp.log(level), parts)
    )
    # Per variable nothing is lost.
    for j in range(3):
        is_part = np.asarray(parts.variable) == j
        is_set = is_part[np.asarray(parts.sets)[:, 0]]
        expected = np.broadcast_to(every[is_set].sum(axis=0), (500, 2))
        np.testing.assert_array_equal(drawn[:, is_part].sum(axis=1), expected)
    # One set at a time: a multinomial among its parts.
    wider = 0
    for s, line in enumerate(np.asarray(parts.sets)):
        line = line[line < num_parts]
        counts = jnp.zeros((num_sets, 2), jnp.int32).at[s].set(40)
        drawn = split_over_parts(
            jax.random.split(jax.random.fold_in(key, s), 500), counts, jnp.log(level), parts
        )
        total = np.asarray(drawn).sum(axis=0)
        for k in range(2):
            probability = np.zeros(num_parts)
            probability[line] = share[line, k]
            assert chi_square_p_value(total[:, k], probability) > P_LIMIT
            if len(line) > 1:
                wider += 1
                probability[line] = share[line, 1 - k]
                assert chi_square_p_value(total[:, k], probability) < P_LIMIT
    assert wider


@pytest.mark.parametrize("added", [[0, 0, 0, 0, 0, 0, 0], [5, 0, 40, 1, 2, 3, 0]])
def test_levels_given_counts_of_parts(key, added):
    """Parts are Dirichlet given all counts, the levels within one given their own only."""
    _, parts = make()
    added = np.array(added)
    assert added.size == parts.variable.size
    part_of_row, variable = np.asarray(parts.part_of_row), np.asarray(parts.variable)
    shape = np.array([0.4, 3.0, 1.0, 2.5, 0.3, 6.0, 2.0, 0.7, 4.0])
    log_level = draw_levels_by_part(
        jax.random.split(key, N), jnp.asarray(shape[:, None], jnp.float32),
        jnp.asarray(added[:, None]), parts,
    )  # fmt: skip
    level = np.exp(np.asarray(log_level, np.float64))[:, :, 0]
    share = np.zeros((N, variable.size))
    np.add.at(share.T, part_of_row, level.T)
    of_part = np.bincount(part_of_row, shape) + added
    for a in range(variable.size):
        others = of_part[variable == variable[a]].sum() - of_part[a]
        assert ks_p_value(share[:, a], stats.beta(of_part[a], others).cdf) > P_LIMIT
        assert ks_p_value(share[:, a], stats.beta(1.2 * of_part[a], others).cdf) < P_LIMIT
    for first, second in ((0, 3), (7, 8)):
        within = level[:, first] / share[:, part_of_row[first]]
        law = stats.beta(shape[first], shape[second])
        assert ks_p_value(within, law.cdf) > P_LIMIT
        # Independent of the part's share.
        assert stats.spearmanr(within, share[:, part_of_row[first]]).pvalue > P_LIMIT


def test_new_counts_compile_nothing(key):
    _, parts = make()
    shape = jnp.ones((9, 2))
    counts = jnp.ones((parts.variable.size, 2), jnp.int32)
    one, two = jax.random.split(key)
    assert compiles_once(
        lambda key, shape, added: level_parts.draw_levels_by_part(key, shape, added, parts),
        (one, shape, counts), (two, 3 * shape, 7 * counts),
    )  # fmt: skip
