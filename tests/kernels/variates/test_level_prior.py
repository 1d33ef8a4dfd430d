"""The learned prior of levels against quadrature, and planted errors seen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, compiles_once, ks_p_value
from harness import Z_LIMIT, draw_levels, level_shapes, quasi_random_shapes, z_scores
from scipy import stats
from scipy.special import digamma, gammaln

from bnp_models.kernels.variates import level_prior
from bnp_models.kernels.variates.levels import LOG_LEAST_LEVEL, Levels

NUM_LEVELS = (2, 3)
LEVELS = Levels.of_variables(NUM_LEVELS, spare=1)
# The last component has no item; one level is nobody's.
COUNTS = np.array([[30, 0, 5, 0], [2, 17, 5, 0], [40, 0, 0, 0], [0, 9, 3, 0], [0, 0, 0, 0]])
NUM_CHAINS = 256


def figures(xp, shape):
    """log c, c, and the means of the first and the last level, of each variable."""
    found = []
    for rows in (slice(0, 2), slice(2, 5)):
        c = xp.sum(shape[..., rows], axis=-1)
        found += [xp.log(c), c, shape[..., rows][..., 0] / c, shape[..., rows][..., -1] / c]
    return xp.stack(found, axis=-1)


def exact(log_likelihood):
    """Posterior means of `figures`: each variable's prior summed over quasi-random points."""
    means = []
    for v, size in enumerate(NUM_LEVELS):
        shapes = quasi_random_shapes("learned", size, 2**18)
        log_w = log_likelihood(v, shapes)
        weight = np.exp(log_w - log_w.max())
        padded = np.zeros((len(shapes), 5))
        padded[:, :2] = padded[:, 2:] = 1
        padded[:, slice(0, 2) if v == 0 else slice(2, 5)] = shapes
        means.append(np.average(figures(np, padded)[:, 4 * v : 4 * v + 4], axis=0, weights=weight))
    return np.concatenate(means)


def of_counts(v, shapes):
    """Dirichlet-multinomial log likelihood of one variable's counts."""
    rows = slice(0, 2) if v == 0 else slice(2, 5)
    c, value = shapes.sum(axis=1), 0.0
    for counts in COUNTS[rows].T:
        value = value + gammaln(c) - gammaln(c + counts.sum())
        value = value + (gammaln(shapes + counts) - gammaln(shapes)).sum(axis=1)
    return value


def chain_means(update, num_moves=300):
    """A function of what the update is given: chains' means of `figures`."""

    def one(key, *given):
        key_start, key_moves = jax.random.split(key)

        def body(t, carry):
            shape, sums = carry
            shape = update(jax.random.fold_in(key_moves, t), shape, *given)
            return shape, sums + figures(jnp, shape) * (t >= 100)

        start = level_prior.draw_level_prior(key_start, LEVELS)
        sums = jax.lax.fori_loop(0, num_moves, body, (start, jnp.zeros(8)))[1]
        return sums / (num_moves - 100)

    run = jax.jit(lambda *given: jax.vmap(lambda key: one(key, *given))(keys))
    keys = jax.random.split(jax.random.key(4), NUM_CHAINS)
    return lambda *given: np.asarray(run(*given), np.float64)


@pytest.fixture(scope="module")
def given_counts():
    def update(key, shape, counts, without):
        # The fault: c's auxiliary variables off by one component.
        with pytest.MonkeyPatch.context() as patch:
            right = level_prior.logbeta

            def logbeta(key, a, b):
                log_q, log_1mq = right(key, a, b)
                return log_q.at[:, 0].multiply(1 - without), log_1mq

            patch.setattr(level_prior, "logbeta", logbeta)
            return level_prior.update_level_prior(key, counts, LEVELS.with_shape(shape))

    return chain_means(update)


@pytest.mark.long
def test_shapes_given_counts(given_counts):
    z = z_scores(given_counts(jnp.asarray(COUNTS), 0.0), exact(of_counts))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
@pytest.mark.parametrize(
    ("counts", "without"),
    [(COUNTS, 1.0), (np.minimum(COUNTS, 1), 0.0), (np.maximum(COUNTS - 1, 0), 0.0)],
    ids=["c off by a component", "an item for each table", "an item fewer"],
)
def test_wrong_counts_are_seen(given_counts, counts, without):
    z = z_scores(given_counts(jnp.asarray(counts), without), exact(of_counts))
    assert np.abs(z).max() > Z_LIMIT, z


def some_levels():
    """Log levels of 20 classes; those of one level of each variable are mostly too small to see."""
    rng = np.random.default_rng(0)
    shapes = np.array([[3.0, 0.01]]), np.array([[0.6, 0.3, 0.1]])
    levels = [draw_levels(rng, shape, (20,))[0] for shape in shapes]
    return np.maximum(np.log(np.concatenate(levels)), LOG_LEAST_LEVEL)


def of_levels(v, shapes):
    """Log density of one variable's levels; of those that are too small, the probability."""
    log_level = some_levels()[slice(0, 2) if v == 0 else slice(2, 5)]
    least = (log_level <= LOG_LEAST_LEVEL + 1e-4).sum(axis=1)
    number = log_level.shape[1]
    return (
        number * gammaln(shapes.sum(axis=1)) + shapes @ log_level.sum(axis=1)
        - gammaln(shapes) @ (number - least) - gammaln(1 + shapes) @ least
    )  # fmt: skip


@pytest.fixture(scope="module")
def given_levels():
    def update(key, shape, log_level):
        return level_prior.update_level_prior_given_levels(key, log_level, LEVELS.with_shape(shape))

    return chain_means(update)


@pytest.mark.long
def test_shapes_given_levels(given_levels):
    assert (some_levels() == LOG_LEAST_LEVEL).sum() > 5
    z = z_scores(given_levels(jnp.asarray(some_levels(), jnp.float32)), exact(of_levels))
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
def test_levels_too_small_to_see_taken_for_what_they_are_rejected(given_levels):
    """As if a level at the least had that probability and no less."""
    wrong = np.maximum(some_levels(), LOG_LEAST_LEVEL + 1e-3)
    z = z_scores(given_levels(jnp.asarray(wrong, jnp.float32)), exact(of_levels))
    assert np.abs(z).max() > Z_LIMIT, z


def test_draws_of_the_prior(key):
    shape = jax.jit(jax.vmap(lambda key: level_prior.draw_level_prior(key, LEVELS)))(
        jax.random.split(key, 20_000)
    )
    shape = np.asarray(shape, np.float64)
    for rows, size in ((slice(0, 2), 2), (slice(2, 5), 3)):
        c = shape[:, rows].sum(axis=1)
        assert ks_p_value(c, stats.expon(scale=size).cdf) > P_LIMIT
        assert ks_p_value(c, stats.expon(scale=1.05 * size).cdf) < P_LIMIT
        mean = shape[:, rows][:, 0] / c
        assert ks_p_value(mean, stats.beta(1, size - 1).cdf) > P_LIMIT
        assert stats.spearmanr(c, mean).pvalue > P_LIMIT


def test_single_precision_agrees_with_double():
    """Of half a million items: the density of the shapes, up to a constant."""
    rng = np.random.default_rng(1)
    counts = rng.multinomial(500_000, rng.dirichlet(np.full(20, 0.3))).reshape(5, 4)
    shapes = np.exp(rng.normal(0, 2, (50, 5)))
    evidence = jax.jit(level_prior._evidence_of_counts(jnp.asarray(counts), np.float32))
    found = np.stack([np.asarray(evidence(jnp.asarray(x, np.float32)), float) for x in shapes])
    exact = np.stack([
        np.where(counts > 0, gammaln(x[:, None] + counts) - gammaln(x)[:, None], 0).sum(axis=1)
        for x in shapes
    ])  # fmt: skip
    np.testing.assert_allclose(np.diff(found, axis=0), np.diff(exact, axis=0), atol=3e-3)


def test_new_counts_compile_nothing(key):
    one, two = jax.random.split(key)
    counts = jnp.asarray(COUNTS)
    assert compiles_once(
        lambda key, shape, counts: level_prior.update_level_prior(
            key, counts, LEVELS.with_shape(shape)
        ),
        (one, jnp.ones(5), counts), (two, 2 * jnp.ones(5), 3 * counts),
    )  # fmt: skip


def test_the_tests_draw_from_the_same_prior():
    """Draws by NumPy and quasi-random points have the means of the kernel's."""
    rng = np.random.default_rng(2)
    drawn = level_shapes(rng, "learned", 100_000, 3)
    points = quasi_random_shapes("learned", 3)
    np.testing.assert_allclose(drawn.mean(axis=0), 1, atol=0.02)
    np.testing.assert_allclose(points.mean(axis=0), 1, atol=0.02)


# Joint distributions of a tree of three layers: six levels in four groups in two larger ones.
DEEP = Levels.of_variables((6, 3), {0: ((0, 1, 0, 2, 3, 2), (0, 0, 1, 1))})
# Two nodes or more of some distributions: levels of a group and of a variable, groups, the largest.
NODES = ([0, 2], [6, 7, 8], [9, 10], [11, 12], [13, 14])
ITEMS, COMPONENTS = 8, 5
# Share of the items that is expected in the distribution of each node.
REACHED = np.array([1 / 4] * 6 + [1] * 3 + [1 / 2] * 4 + [1] * 2)


def deep_figures(shape, share):
    """Of each distribution: log c, the mean of its first node, and products.

    The last is with the share (15,) of this node in the data, over what is expected of the groups
    that it lies in.
    """
    found = []
    for nodes in NODES:
        own = shape[jnp.array(nodes)]
        c = jnp.sum(own)
        log_c, mean = jnp.log(c), own[0] / c
        found += [log_c, mean, mean**2, log_c * mean, mean * share[nodes[0]]]
    return jnp.stack(found)


def deep_prior():
    """Their prior means."""
    found = []
    for nodes in NODES:
        size = len(nodes)
        log_c = np.log(size) + digamma(1)
        square = 2 / (size * (size + 1))
        found += [log_c, 1 / size, square, log_c / size, square]
    return np.array(found)


def numbers_of_members(right):
    """As if a group's count were the number of its levels that have any."""

    def count(self, of_level):
        nodes = right(self, of_level)
        return nodes.at[len(of_level) :].set(right(self, jnp.minimum(of_level, 1))[len(of_level) :])

    return count


def without_a_layer(right):
    """As if the largest groups had no counts."""

    def count(self, of_level):
        return right(self, of_level).at[-self.layers[-1].number :].set(0)

    return count


def half_a_layer(right):
    """As if the shares of the largest groups were the square roots of what they are."""

    def log_shares(self, log_level):
        nodes, last = right(self, log_level), self.layers[-1].number
        return nodes.at[-last:].multiply(0.5)

    return log_shares


DEEP_FAULTS = {
    "count": {"numbers of members": numbers_of_members, "a layer forgotten": without_a_layer},
    "log_shares": {"half a layer": half_a_layer},
}


def deep_scores(step, fault=None):
    """Chains that alternate levels, or items of these, with moves of the shapes."""
    method = "count" if step == "counts" else "log_shares"
    right = getattr(Levels, method)
    wrong = right if fault is None else DEEP_FAULTS[method][fault](right)

    def body(t, carry):
        key, shape, sums = carry
        key, key_levels, key_items, key_shape = jax.random.split(key, 4)
        log_level = DEEP.with_shape(shape).draw(key_levels, jnp.zeros((9, COMPONENTS), jnp.int32))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Levels, method, wrong)
            if step == "counts":
                drawn = [
                    jax.random.categorical(key, own, axis=0, shape=(ITEMS, COMPONENTS)) + first
                    for key, own, first in zip(
                        jax.random.split(key_items), (log_level[:6], log_level[6:]), (0, 6),
                        strict=True,
                    )
                ]  # fmt: skip
                counts = sum(jnp.sum(jax.nn.one_hot(x, 9, axis=0), axis=1) for x in drawn)
                share = jnp.sum(right(DEEP, counts), axis=1) / (ITEMS * COMPONENTS * REACHED)
                shape = level_prior.update_level_prior(
                    key_shape, counts.astype(jnp.int32), DEEP.with_shape(shape)
                )
            else:
                share = jnp.mean(jnp.exp(right(DEEP, log_level)), axis=1)
                shape = level_prior.update_level_prior_given_levels(
                    key_shape, log_level, DEEP.with_shape(shape)
                )
        return key, shape, sums + deep_figures(shape, share)

    def one(key):
        key_start, key_moves = jax.random.split(key)
        start = level_prior.draw_level_prior(key_start, DEEP)
        return jax.lax.fori_loop(0, 60, body, (key_moves, start, jnp.zeros(25)))[2] / 60

    means = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(6), NUM_CHAINS))
    return z_scores(np.asarray(means, np.float64), deep_prior())


@pytest.mark.parametrize("step", ["counts", pytest.param("levels", marks=pytest.mark.long)])
def test_shapes_of_a_tree_keep_their_prior(step):
    """Joint distribution test (Geweke 2004, doi:10.1198/016214504000001132)."""
    z = deep_scores(step)
    assert np.abs(z).max() < Z_LIMIT, z


@pytest.mark.long
@pytest.mark.parametrize(
    ("step", "fault"),
    [("counts", "numbers of members"), ("counts", "a layer forgotten"), ("levels", "half a layer")],
)
def test_wrong_trees_are_seen(step, fault):
    z = deep_scores(step, fault)
    assert np.abs(z).max() > Z_LIMIT, z
