"""Concentration updates: each leaves its one-dimensional conditional invariant.

Many chains start from exact draws of the conditional, on a grid, and take a few Gibbs steps: they
end in the conditional if and only if the step is right.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import P_LIMIT, compiles_once, density_cdf, ks_p_value
from scipy import stats
from scipy.special import gammaln

from bnp_models.kernels.mixed_membership import concentration
from bnp_models.kernels.variates.gamma import gamma_variate

N = 20_000
STEPS = 8
SHAPE, RATE = jnp.float32(1.5), jnp.float32(0.7)


def run(step, key, start, *args):
    """STEPS steps from each start, all chains at once."""

    def chain(key, alpha):
        return jax.lax.fori_loop(
            0, STEPS, lambda t, alpha: step(jax.random.fold_in(key, t), alpha, *args), alpha
        )

    return jax.vmap(chain)(jax.random.split(key, start.size), start)


def check(run_from, key, log_density, wrong_log_density):
    """Chains stay in the density, and cannot be taken for draws of the wrong one."""
    cdf, ppf = density_cdf(log_density)
    wrong, _ = density_cdf(wrong_log_density)
    start = jnp.asarray(ppf((np.arange(N) + 0.5) / N), jnp.float32)
    end = run_from(key, start)
    assert ks_p_value(end, cdf) > P_LIMIT
    assert ks_p_value(end, wrong) < P_LIMIT


def prior(alpha, shape=1.5, rate=0.7):
    return (shape - 1) * np.log(alpha) - rate * alpha


@pytest.fixture(scope="module")
def dp_step():
    def from_start(key, start, components, items, shape, rate):
        return run(
            concentration.dp_concentration, key, start, components, items, shape, rate
        )  # fmt: skip

    return jax.jit(from_start)


@pytest.mark.parametrize(("components", "items"), [(1, 1), (3, 4), (4, 200), (40, 5000)])
def test_dp_concentration(key, dp_step, components, items):
    def log_density(alpha, k=components):
        return prior(alpha) + k * np.log(alpha) + gammaln(alpha) - gammaln(alpha + items)

    given = jnp.int32(components), jnp.int32(items), SHAPE, RATE
    check(
        lambda key, start: dp_step(key, start, *given), key, log_density,
        # The empty slot counted as a component.
        lambda alpha: log_density(alpha, components + 1),
    )  # fmt: skip


def test_dp_concentration_with_a_small_shape(key, dp_step):
    """K + shape - 1 is then far below one at K = 1."""

    def log_density(alpha, shape=0.2):
        return prior(alpha, shape, 0.25) + np.log(alpha) + gammaln(alpha) - gammaln(alpha + 30)

    check(
        lambda key, start: dp_step(
            key, start, jnp.int32(1), jnp.int32(30), jnp.float32(0.2), jnp.float32(0.25)
        ),
        key, log_density, lambda alpha: log_density(alpha, 0.25),
    )  # fmt: skip


def test_dp_concentration_rejects_a_mutated_step(key, monkeypatch):
    """eta ~ Beta(alpha, m) instead of Beta(alpha + 1, m)."""
    right = concentration.logbeta
    monkeypatch.setattr(concentration, "logbeta", lambda key, a, b: right(key, a - 1, b))
    cdf, ppf = density_cdf(
        lambda alpha: prior(alpha) + 3 * np.log(alpha) + gammaln(alpha) - gammaln(alpha + 4)
    )
    start = jnp.asarray(ppf((np.arange(N) + 0.5) / N), jnp.float32)
    step = concentration.dp_concentration
    end = jax.jit(lambda k, a: run(step, k, a, jnp.int32(3), jnp.int32(4), SHAPE, RATE))(key, start)
    assert ks_p_value(end, cdf) < P_LIMIT


def log_record_density(alpha, num_tables, num_items, num_records=1):
    log_rising = np.log(alpha + np.arange(1, num_items)[:, None]).sum(axis=0)
    power = num_tables - num_records
    return prior(alpha) + power * np.log(alpha) - num_records * log_rising


@pytest.fixture(scope="module")
def record_step():
    """The kernel takes all records at once: every chain is a record."""

    def from_start(key, start, num_tables, num_items):
        tables = jnp.broadcast_to(num_tables, start.shape)

        def step(t, alpha):
            return concentration.record_concentrations(
                jax.random.fold_in(key, t), alpha, tables, num_items, SHAPE, RATE
            )

        return jax.lax.fori_loop(0, STEPS, step, start)

    return jax.jit(from_start, static_argnums=3)


@pytest.mark.parametrize(("num_items", "num_tables"), [(1, 1), (2, 1), (2, 2), (8, 1), (8, 5)])
def test_record_concentrations(key, record_step, num_items, num_tables):
    check(
        lambda key, start: record_step(key, start, jnp.int32(num_tables), num_items), key,
        lambda alpha: log_record_density(alpha, num_tables, num_items),
        # The first table, which every record has, counted too.
        lambda alpha: log_record_density(alpha, num_tables + 1, num_items),
    )  # fmt: skip


@pytest.fixture(scope="module")
def shared_step():
    def from_start(key, start, tables, records, num_items):
        return run(
            lambda key, alpha: concentration.shared_concentration(
                key, alpha, tables, records, num_items, SHAPE, RATE
            ),
            key, start,
        )  # fmt: skip

    return jax.jit(from_start, static_argnums=4)


@pytest.mark.parametrize(
    ("num_items", "num_records", "num_tables"), [(1, 9, 9), (5, 1, 3), (5, 20, 33), (5, 3000, 3700)]
)
def test_shared_concentration(key, shared_step, num_items, num_records, num_tables):
    tables, records = jnp.int32(num_tables), jnp.int32(num_records)
    wrong = num_tables + max(1, num_records // 100)
    check(
        lambda key, start: shared_step(key, start, tables, records, num_items), key,
        lambda alpha: log_record_density(alpha, num_tables, num_items, num_records),
        lambda alpha: log_record_density(alpha, wrong, num_items, num_records),
    )  # fmt: skip


def test_shared_concentration_of_one_record_is_that_records(key, shared_step, record_step):
    """Two augmentations of one conditional."""
    key_shared, key_own = jax.random.split(key)
    start = jnp.ones(N)
    shared = shared_step(key_shared, start, jnp.int32(3), jnp.int32(1), 5)
    own = record_step(key_own, start, jnp.int32(3), 5)
    assert stats.ks_2samp(np.asarray(shared), np.asarray(own)).pvalue > P_LIMIT


def test_gamma_rate(key):
    """Exact: Ga(shape + n a, rate + sum alpha)."""

    def draw(key, num_records):
        return concentration.gamma_rate(
            key, jnp.float32(31), num_records, jnp.float32(2), jnp.float32(1.5), jnp.float32(0.5)
        )

    draws = jax.jit(jax.vmap(draw, (0, None)))(jax.random.split(key, N), jnp.int32(14))
    assert ks_p_value(draws, stats.gamma(1.5 + 28, scale=1 / 31.5).cdf) > P_LIMIT
    assert ks_p_value(draws, stats.gamma(1.5 + 30, scale=1 / 31.5).cdf) < P_LIMIT


def feasible(alpha, xp=jnp):
    """A probability of the feasible region that depends on the concentration."""
    return (0.02 + 0.6 * alpha) / (1 + alpha) + 0.1 * xp.exp(-alpha)


def growth_of_feasible(old, new):
    return jnp.log(feasible(new) / feasible(old))


def truncated(log_density, num_records):
    return lambda x: log_density(x) - num_records * np.log(feasible(x, np))


@pytest.mark.parametrize(
    ("num_items", "num_records", "num_tables"), [(1, 9, 9), (5, 1, 3), (5, 20, 33), (5, 3000, 3700)]
)
def test_truncated_shared_concentration(key, num_items, num_records, num_tables):
    tables, records = jnp.int32(num_tables), jnp.int32(num_records)

    @jax.jit
    def from_start(key, start):
        return run(
            lambda key, alpha: concentration.truncated_shared_concentration(
                key, alpha, tables, records, num_items, SHAPE, RATE,
                growth_of_feasible,
            ),
            key, start,
        )  # fmt: skip

    def density(alpha):
        return log_record_density(alpha, num_tables, num_items, num_records)

    # Shown to fail: the truncation left out.
    check(from_start, key, truncated(density, num_records), density)


@pytest.mark.parametrize("num_records", [3, 40, 3000])
def test_truncated_gamma_rate(key, num_records):
    """The rate of the concentrations' prior; alphas that add up to 1.4 a record."""
    total = 1.4 * num_records

    @jax.jit
    def from_start(key, start):
        return run(
            lambda key, b: concentration.truncated_gamma_rate(
                key, b, jnp.float32(total), jnp.int32(num_records), jnp.float32(2), SHAPE, RATE,
                growth_of_feasible,
            ),
            key, start,
        )  # fmt: skip

    def density(b):
        return prior(b) + 2 * num_records * np.log(b) - total * b

    check(from_start, key, truncated(density, num_records), density)


@pytest.mark.parametrize("num_records", [10, 100_000])
def test_truncated_steps_move(key, num_records):
    """By half a standard deviation and more, whatever the number of records."""
    tables, records = jnp.int32(1.5 * num_records), jnp.int32(num_records)

    def step(alpha, key):
        alpha = concentration.truncated_shared_concentration(
            key, alpha, tables, records, 5, SHAPE, RATE, growth_of_feasible
        )
        return alpha, alpha

    chain = jax.jit(lambda keys: jax.lax.scan(step, jnp.float32(0.5), keys)[1])
    alpha = np.log(np.asarray(chain(jax.random.split(key, 2000)))[200:])
    assert np.std(np.diff(alpha)) > 0.5 * np.std(alpha)


def test_second_calls_compile_nothing(key):
    one, two = jax.random.split(key)
    f, i = jnp.float32, jnp.int32
    assert compiles_once(
        concentration.dp_concentration, (one, f(1), i(2), i(9), SHAPE, RATE),
        (two, f(4), i(3), i(70), SHAPE, RATE),
    )  # fmt: skip
    alpha, tables = jnp.ones(4), jnp.ones(4, jnp.int32)
    assert compiles_once(
        lambda key, alpha, tables: concentration.record_concentrations(
            key, alpha, tables, 6, SHAPE, RATE
        ),
        (one, alpha, tables), (two, 2 * alpha, 3 * tables),
    )  # fmt: skip


@pytest.mark.parametrize("fault", [False, True])
def test_rescaling_leaves_the_joint_distribution_invariant(key, fault):
    """From exact draws of b, the alphas and the tables, b and the alphas stay as they were."""
    size, num_records, num_items = 40_000, 3, 4
    keys = jax.random.split(key, 4)
    rate = gamma_variate(keys[0], jnp.full(size, 2.0), 1.0)
    alpha = gamma_variate(keys[1], jnp.full((size, num_records), 1.5), rate[:, None])
    t = jnp.arange(num_items)
    opens = jax.random.uniform(keys[2], (*alpha.shape, num_items)) < alpha[..., None] / (
        alpha[..., None] + t
    )
    tables = jnp.sum(opens, axis=-1)
    # Shown to fail: a table too many in every record.
    tables = tables + fault

    def steps(key, alpha, rate, tables):
        def step(i, carry):
            return concentration.rescale_concentrations(
                jax.random.fold_in(key, i), *carry, tables, jnp.ones(num_records, jnp.int32),
                num_items, concentration.GammaPrior(2.0, 1.0),
            )  # fmt: skip

        return jax.lax.fori_loop(0, 20, step, (alpha, rate))

    moved, new_rate = jax.jit(jax.vmap(steps))(jax.random.split(keys[3], size), alpha, rate, tables)
    assert np.mean(np.asarray(new_rate != rate)) > 0.9
    p = ks_p_value(new_rate, stats.gamma(2.0).cdf)
    p_alpha = ks_p_value(np.asarray(moved * new_rate[:, None])[:, 0], stats.gamma(1.5).cdf)
    assert (p < P_LIMIT) == fault, p
    assert p_alpha > P_LIMIT


@pytest.mark.parametrize("fault", [None, "without truncation", "padding"])
def test_rescaling_under_truncation_leaves_the_joint_distribution_invariant(key, fault):
    """The rate's density is its prior over P(feasible)^n, and one record is padding."""
    size, num_records, num_items = 40_000, 3, 4
    u, key_alpha, key_tables, key_steps = jax.random.split(key, 4)
    cdf, inverse = density_cdf(truncated(lambda b: np.log(b) - b, num_records))
    rate = jnp.asarray(inverse(np.asarray(jax.random.uniform(u, (size,)))), jnp.float32)
    alpha = gamma_variate(key_alpha, jnp.full((size, num_records + 1), 1.5), rate[:, None])
    more = alpha[..., None] / (alpha[..., None] + jnp.arange(num_items))
    tables = jnp.sum(jax.random.uniform(key_tables, more.shape) < more, axis=-1)
    weight = jnp.asarray([1, 1, 1, int(fault == "padding")])

    def log_growth(old, new):
        growth = jnp.log(feasible(new) / feasible(old))
        return 0 * growth if fault == "without truncation" else growth

    def steps(key, alpha, rate, tables):
        def step(i, carry):
            return concentration.rescale_concentrations(
                jax.random.fold_in(key, i), *carry, tables, weight, num_items,
                concentration.GammaPrior(2.0, 1.0), log_growth,
            )  # fmt: skip

        return jax.lax.fori_loop(0, 20, step, (alpha, rate))

    keys = jax.random.split(key_steps, size)
    _, moved = jax.jit(jax.vmap(steps))(keys, alpha, rate, tables)
    assert (ks_p_value(moved, cdf) < P_LIMIT) == (fault is not None)


def test_logs_of_quotients_near_one_keep_their_digits():
    """A million tables take it a million times, and a hundredth of a nat is to be seen."""
    rng = np.random.default_rng(0)
    old = rng.uniform(0.2, 2, 10_000).astype(np.float32)
    for size in (1e-3, 1.0):
        new = (old * np.exp(size * rng.normal(size=old.size))).astype(np.float32)
        exact = np.log(new.astype(float) / old)
        error = concentration.log_quotient(jnp.asarray(new), jnp.asarray(old)) - exact
        assert (np.abs(error) <= 1e-6 * np.abs(exact) + 2e-7 * (size == 1)).all()
