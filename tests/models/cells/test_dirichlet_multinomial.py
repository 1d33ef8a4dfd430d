"""Population counts with a known total: against enumeration, and in joint-distribution chains."""

import itertools
import zlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from goodness import P_LIMIT, chi_square_p_value
from harness import Z_LIMIT, z_scores
from scipy.special import betaln, gammaln

import bnp_models as bnp
from bnp_models.kernels.numerics.platforms import double_precision
from bnp_models.models.cells import dirichlet_multinomial
from bnp_models.models.cells.full_bayes import PRIORS


@pytest.fixture
def key(request):
    return jax.random.key(zlib.crc32(request.node.name.encode()))


SEEN = np.array([1, 0, 2])
PHAT = np.array([0.3, 0.2, 0.5])
TOTAL, ALPHA, A = 8, 0.4, 3.0


def enumerated():
    """P(F | f, alpha, a) of every F, from the model's own lines: pi and p integrated one by one."""
    found = {}
    for F in itertools.product(range(TOTAL + 1), repeat=3):
        F = np.array(F)
        if F.sum() != TOTAL or (F < SEEN).any():
            continue
        log_p = -gammaln(F + 1).sum() + gammaln(ALPHA + F).sum()
        log_p += (gammaln(F + 1) - gammaln(F - SEEN + 1)).sum()
        log_p += betaln(A * PHAT + SEEN, A * (1 - PHAT) + F - SEEN).sum()
        found[tuple(F)] = np.exp(log_p)
    total = sum(found.values())
    return {F: p / total for F, p in found.items()}


def counts_of_states(key, update, num_chains=5_000, num_sweeps=700):
    """How often each F is the last state of independent chains."""
    data = dirichlet_multinomial.CountsData(jnp.asarray(SEEN), jnp.asarray(PHAT))
    start = jnp.asarray([1, TOTAL - 3, 2])

    def one(key):
        def body(t, F):
            state = dirichlet_multinomial.CountsState(F, jnp.asarray(ALPHA), jnp.asarray(A))
            return update(jax.random.fold_in(key, t), state, data)[0]

        return jax.lax.fori_loop(0, num_sweeps, body, start)

    states = jax.jit(jax.vmap(one))(jax.random.split(key, num_chains))
    states, number = np.unique(np.asarray(states), axis=0, return_counts=True)
    return dict(zip(map(tuple, states.tolist()), number, strict=True))


def fit(found):
    exact = enumerated()
    assert set(found) <= set(exact)
    return chi_square_p_value([found.get(F, 0) for F in exact], list(exact.values()))


def test_counts_against_enumeration(key):
    with double_precision():
        assert fit(counts_of_states(key, dirichlet_multinomial.update_counts)) > P_LIMIT


@pytest.mark.long
def test_a_wrong_beta_is_seen(key):
    """A concentration three times as large."""

    def planted(key, state, data):
        return dirichlet_multinomial.update_counts(key, state._replace(a=state.a * 3), data)

    with double_precision():
        assert fit(counts_of_states(key, planted)) < P_LIMIT


# Ten times the same cells, so that the parameters are not those of the prior.
COUNTS = np.tile([3, 1, 4], 10)
MANY = dirichlet_multinomial.CountsData(*(jnp.asarray(np.tile(x, 10)) for x in (SEEN, PHAT)))


def log_counts(alpha):
    """log P(F | alpha), up to a constant, for a column of values."""
    size = alpha * COUNTS.size
    each = gammaln(alpha + COUNTS) - gammaln(alpha)
    return gammaln(size) - gammaln(size + COUNTS.sum()) + each.sum(axis=1, keepdims=True)


def log_sample(a):
    """log P(f | F, a), up to a constant, for a column of values."""
    f, phat = np.asarray(MANY.f), np.asarray(MANY.phat)
    first, second = a * phat, a * (1 - phat)
    each = betaln(first + f, second + COUNTS - f) - betaln(first, second)
    return each.sum(axis=1, keepdims=True)


CONDITIONALS = {
    "alpha": (log_counts, lambda key, x: dirichlet_multinomial.update_alpha(key, x, COUNTS)),
    "concentration": (
        log_sample,
        lambda key, x: dirichlet_multinomial.update_concentration(key, x, COUNTS, MANY),
    ),
}


@pytest.mark.parametrize("name", CONDITIONALS)
def test_parameters_given_counts_against_quadrature(name, key):
    """Means of the logarithm and of its square, over independent chains of one conditional."""
    (log_likelihood, update), (centre, sd) = CONDITIONALS[name], PRIORS[name]
    z = np.linspace(-6, 6, 4001)[:, None]
    x = centre + sd * z
    log_p = log_likelihood(np.exp(x)) - z**2 / 2
    p = np.exp(log_p - log_p.max())
    exact = (p * np.hstack([x, x**2])).sum(axis=0) / p.sum()

    def one(key):
        start = jnp.exp(jnp.asarray(centre, float))
        return jax.lax.fori_loop(0, 100, lambda t, x: update(jax.random.fold_in(key, t), x), start)

    with double_precision():
        ends = np.log(jax.jit(jax.vmap(one))(jax.random.split(key, 2_000)))
    z = z_scores(np.column_stack([ends, ends**2]), exact)
    assert np.abs(z).max() < Z_LIMIT, z


@partial(jax.jit, static_argnames=("num_chains", "num_sweeps", "cells", "total"))
def joint_chains(key, wrong, num_chains=200, num_sweeps=250, cells=4, total=12):
    """Means over chains that alternate sampling of f given F with a sweep (Geweke 2004).

    A `wrong` sweep updates alpha as if the counts were negative binomial, without their total.
    """
    phat = jnp.asarray([0.1, 0.3, 0.5, 0.2])

    def observe(key, F, a):
        key_p, key_f = jax.random.split(key)
        p = jax.random.beta(key_p, a * phat, a * (1 - phat))
        return jax.random.binomial(key_f, F, p).astype(F.dtype)

    def one(key):
        key_prior, key_pi, key_f, key_steps = jax.random.split(key, 4)
        z = jax.random.normal(key_prior, (2,))
        alpha, a = (
            jnp.exp(centre + sd * z[i]) for i, (centre, sd) in enumerate(PRIORS.values())
        )  # fmt: skip
        pi = jax.random.dirichlet(key_pi, jnp.full(cells, alpha))
        chosen = jax.random.choice(key_f, cells, (total,), p=pi)
        F = jnp.zeros(cells, int).at[chosen].add(1)

        def body(t, carry):
            state, sums = carry
            key_data, key_sweep = jax.random.split(jax.random.fold_in(key_steps, t))
            data = dirichlet_multinomial.CountsData(observe(key_data, state.F, state.a), phat)
            state, _ = dirichlet_multinomial.sweep_counts(key_sweep, state, data)
            other = dirichlet_multinomial.update_alpha(
                jax.random.fold_in(key_sweep, 7), state.alpha, state.F.at[0].add(1)
            )
            state = state._replace(alpha=jnp.where(wrong, other, state.alpha))
            now = jnp.stack([
                jnp.log(state.alpha), jnp.log(state.alpha) ** 2, jnp.log(state.a), state.F[0] * 1.0
            ])  # fmt: skip
            return state, sums + now

        start = dirichlet_multinomial.CountsState(F, alpha, a), jnp.zeros(4)
        return jax.lax.fori_loop(0, num_sweeps, body, start)[1] / num_sweeps

    return jax.vmap(one)(jax.random.split(key, num_chains))


def joint_z_scores(key, wrong):
    with double_precision():
        means = np.asarray(joint_chains(key, wrong))
    (centre, sd), (other, _) = PRIORS.values()
    return z_scores(means, np.array([centre, centre**2 + sd**2, other, 3.0]))


@pytest.mark.long
def test_joint_distribution(key):
    assert np.abs(joint_z_scores(key, False)).max() < Z_LIMIT


@pytest.mark.long
def test_joint_distribution_sees_a_wrong_total(key):
    assert np.abs(joint_z_scores(key, True)).max() > Z_LIMIT


def test_a_run(key):
    """The total is kept, the risk is that of the draws, and few persons make it large."""
    frame = pd.DataFrame({"x": list("aabbbc" * 5), "y": list("uvuvvu" * 5)})
    table = bnp.Microdata.from_frame(frame.iloc[[0, 1, 2, 3, 4, 5, 6, 12, 24]])
    cells = bnp.weighted_cells(table, 60, num_cells=9)
    run = dirichlet_multinomial.sample_population_counts(
        cells, key=key, num_chains=2, num_warmup=200, thin=2, num_samples=100
    )
    unique = cells.f == 1
    assert run.draws["tau1"].shape == (2, 100)
    np.testing.assert_allclose(run.risk[unique].sum(), run.draws["tau2"].mean(), rtol=1e-9)
    np.testing.assert_allclose(run.p_unique[unique].sum(), run.draws["tau1"].mean(), rtol=1e-9)
    assert np.all(run.risk * cells.f <= 1) and 0.02 < run.accepted < 0.9
    census = bnp.weighted_cells(table, table.n, num_cells=9)
    everyone = dirichlet_multinomial.sample_population_counts(
        census, key=key, num_chains=1, num_warmup=200, thin=2, num_samples=100
    )
    np.testing.assert_allclose(everyone.risk, 1 / census.f)
