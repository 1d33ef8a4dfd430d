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


def test_atoms_are_the_levels_that_no_box_tells_apart():
    sets, found = make()
    of_row, variable = np.asarray(found.of_row), np.asarray(found.variable)
    of_level = np.repeat(np.arange(3), NUM_LEVELS)
    np.testing.assert_array_equal(variable[of_row], of_level)
    np.testing.assert_array_equal(np.unique(of_row), np.arange(len(variable)))
    for a in range(9):
        for b in range(9):
            alike = of_level[a] == of_level[b] and (sets[:, a] == sets[:, b]).all()
            assert alike == (of_row[a] == of_row[b])
    assert of_row[0] == of_row[3] and of_row[7] == of_row[8]


def test_sets_rebuild_the_boxes():
    """Each box from the sets that it has; a variable without one is free."""
    sets, found = make()
    of_row = np.asarray(found.of_row)
    rebuilt = np.ones_like(sets)
    for own, line in zip(np.asarray(found.set_of_box), np.asarray(found.sets), strict=True):
        line = line[line < found.variable.size]
        j = int(found.variable[line[0]])
        assert (np.asarray(found.variable)[line] == j).all()
        rows = slice(FIRST[j], FIRST[j] + NUM_LEVELS[j])
        rebuilt[own > 0, rows] = np.isin(of_row[rows], line)
    np.testing.assert_array_equal(rebuilt, sets)


def test_without_boxes_every_level_is_an_atom():
    found = LevelParts.of_boxes(None, NUM_LEVELS)
    np.testing.assert_array_equal(found.of_row, np.arange(9))
    np.testing.assert_array_equal(found.variable, np.repeat(np.arange(3), NUM_LEVELS))
    assert found.sets.size == found.set_of_box.size == 0


def level_probabilities(seed):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.dirichlet(np.ones(size), 2).T for size in NUM_LEVELS])


def test_counts_are_shared_out_by_probability(key, seed):
    _, found = make()
    level = level_probabilities(seed)
    num_sets, num_atoms = len(found.sets), found.variable.size
    share = np.zeros((num_atoms, 2))
    np.add.at(share, np.asarray(found.of_row), level)
    every = np.random.default_rng(seed).integers(1, 30, (num_sets, 2))
    drawn = np.asarray(
        split_over_parts(jax.random.split(key, 500), jnp.asarray(every), jnp.log(level), found)
    )
    # Per variable nothing is lost.
    for j in range(3):
        own = np.asarray(found.variable) == j
        of_variable = np.asarray(found.variable)[np.asarray(found.sets)[:, 0]] == j
        expected = np.broadcast_to(every[of_variable].sum(axis=0), (500, 2))
        np.testing.assert_array_equal(drawn[:, own].sum(axis=1), expected)
    # One set at a time: a multinomial among its atoms.
    wider = 0
    for s, line in enumerate(np.asarray(found.sets)):
        line = line[line < num_atoms]
        counts = jnp.zeros((num_sets, 2), jnp.int32).at[s].set(40)
        drawn = split_over_parts(
            jax.random.split(jax.random.fold_in(key, s), 500), counts, jnp.log(level), found
        )
        total = np.asarray(drawn).sum(axis=0)
        for k in range(2):
            probability = np.zeros(num_atoms)
            probability[line] = share[line, k]
            assert chi_square_p_value(total[:, k], probability) > P_LIMIT
            if len(line) > 1:
                wider += 1
                probability[line] = share[line, 1 - k]
                assert chi_square_p_value(total[:, k], probability) < P_LIMIT
    assert wider


@pytest.mark.parametrize("added", [[0, 0, 0, 0, 0, 0, 0], [5, 0, 40, 1, 2, 3, 0]])
def test_levels_given_counts_of_atoms(key, added):
    """LevelParts are Dirichlet given all counts, the levels within one given their own only."""
    _, found = make()
    added = np.array(added)
    assert added.size == found.variable.size
    of_row, variable = np.asarray(found.of_row), np.asarray(found.variable)
    shape = np.array([1.0, 3.0, 1.0, 2.5, 1.0, 6.0, 2.0, 1.0, 4.0])
    log_level = draw_levels_by_part(
        jax.random.split(key, N), jnp.asarray(shape[:, None], jnp.float32),
        jnp.asarray(added[:, None]), found,
    )  # fmt: skip
    level = np.exp(np.asarray(log_level, np.float64))[:, :, 0]
    share = np.zeros((N, variable.size))
    np.add.at(share.T, of_row, level.T)
    own = np.bincount(of_row, shape) + added
    for a in range(variable.size):
        others = own[variable == variable[a]].sum() - own[a]
        assert ks_p_value(share[:, a], stats.beta(own[a], others).cdf) > P_LIMIT
        assert ks_p_value(share[:, a], stats.beta(1.2 * own[a], others).cdf) < P_LIMIT
    for first, second in ((0, 3), (7, 8)):
        within = level[:, first] / share[:, of_row[first]]
        law = stats.beta(shape[first], shape[second])
        assert ks_p_value(within, law.cdf) > P_LIMIT
        # Independent of the atom's share.
        assert stats.spearmanr(within, share[:, of_row[first]]).pvalue > P_LIMIT


def test_new_counts_compile_nothing(key):
    _, found = make()
    shape = jnp.ones((9, 2))
    counts = jnp.ones((found.variable.size, 2), jnp.int32)
    one, two = jax.random.split(key)
    assert compiles_once(
        lambda key, shape, added: level_parts.draw_levels_by_part(key, shape, added, found),
        (one, shape, counts), (two, 3 * shape, 7 * counts),
    )  # fmt: skip
