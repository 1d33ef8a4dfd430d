"""Expectation-maximisation of the classes of households, for initial states."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nested import tiny_households

import bnp_models as bnp
from bnp_models.models.nested import prepare
from bnp_models.models.nested.expectation_maximisation import maximise
from bnp_models.models.nested.sweep import draw_prior, update_classes

MODEL = bnp.NDPMPM(components=3, member_components=2, ordered="none")
MEMBER_LEVELS = (2, 3)


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(2)

    def member():
        return generator.choice(["head", "other"]), generator.choice(list("012"))

    households = [
        (generator.choice(["own", "rent"]), [member() for _ in range(size)])
        for size in np.repeat([1, 2, 3], [4, 6, 5])
    ]
    return tiny_households(households, ages=3)


def one_round(arrays, table):
    """One round in loops over households, members and classes, in double precision."""
    pi, omega, household_p, size_p, member_p = arrays
    first = np.cumsum(table.sizes) - table.sizes
    joint = np.zeros((table.n, len(pi)))
    of_members = np.zeros((len(table.member_codes), *omega.shape))
    for i in range(table.n):
        for g, weight in enumerate(pi):
            joint[i, g] = weight * size_p[table.sizes[i] - 1, g]
            joint[i, g] *= household_p[table.household_codes[i, 0], g]
            for j in range(first[i], first[i] + table.sizes[i]):
                a, b = table.member_codes[j]
                of_members[j, g] = omega[g] * member_p[0][a] * member_p[1][b]
                joint[i, g] *= of_members[j, g].sum()
    share = joint / joint.sum(axis=1, keepdims=True)
    nested = of_members / of_members.sum(axis=2, keepdims=True)
    nested *= np.repeat(share, table.sizes, axis=0)[:, :, None]

    def smoothed(counts):
        counts = counts + counts.sum(axis=1, keepdims=True) / counts.sum()
        return counts / counts.sum(axis=0)

    def by_level(codes, shares, number):
        return smoothed(np.stack([shares[codes == level].sum(axis=0) for level in range(number)]))

    return (
        share.mean(axis=0),
        smoothed(nested.sum(axis=0).T).T,
        by_level(table.household_codes[:, 0], share, 2),
        by_level(table.sizes - 1, share, 3),
        [
            by_level(codes, nested.sum(axis=1), number)
            for codes, number in zip(table.member_codes.T, MEMBER_LEVELS, strict=True)
        ],
    )


@pytest.mark.parametrize("parts", [1, 4])
def test_rounds_are_those_in_loops(table, parts, monkeypatch):
    """Three rounds, also of households in four padded parts."""
    monkeypatch.setattr(prepare, "by_platform", lambda *_: parts)
    data = MODEL.prepare(table)
    generator = np.random.default_rng(4)
    drawn = {
        "log_pi": generator.dirichlet([2, 2, 2]),
        "log_omega": generator.dirichlet([2, 2], 3),
        "log_lambda": np.hstack([generator.dirichlet([2] * n, 3) for n in (2, 3)]).T,
        "log_phi": np.hstack([generator.dirichlet([2] * n, 2) for n in MEMBER_LEVELS]).T[:, None],
    }
    logs = {name: jnp.log(jnp.asarray(x)) for name, x in drawn.items()}
    state = dataclasses.replace(draw_prior(MODEL, jax.random.key(1), data), **logs)
    pi, omega, level, member = (
        np.exp(np.asarray(x, float))
        for x in (state.log_pi, state.log_omega, state.log_lambda, state.log_phi[:, 0])
    )
    expected = pi, omega, level[:2], level[2:], (member[:2], member[2:])
    for _ in range(3):
        expected = one_round(expected, table)
    found = jax.jit(lambda state, data: maximise(state, data, 3))(state, data)
    pi, omega, household, sizes, member = expected
    np.testing.assert_allclose(np.exp(found.log_pi), pi, rtol=1e-4)
    np.testing.assert_allclose(np.exp(found.log_omega), omega, rtol=1e-4)
    np.testing.assert_allclose(np.exp(found.log_lambda), np.vstack([household, sizes]), rtol=1e-4)
    np.testing.assert_allclose(np.exp(found.log_phi[:, 0]), np.vstack(member), rtol=1e-4)


def test_initial_state_is_more_likely_than_random_classes(table):
    """And household classes without households at the start stay empty."""
    data = MODEL.prepare(table)
    start = MODEL.init(jax.random.key(3), data, 0, jnp.int32(2))
    assert np.exp(start.log_pi[2]) < 1e-6
    np.testing.assert_allclose(np.exp(start.log_pi).sum(), 1, rtol=1e-5)
    other = draw_prior(MODEL, jax.random.key(4), data)
    likelihood = [float(update_classes(jax.random.key(5), s, data)[2]) for s in (start, other)]
    again = maximise(start, data)
    likelihood.append(float(update_classes(jax.random.key(5), again, data)[2]))
    assert likelihood[0] > likelihood[1] + 1 and abs(likelihood[2] - likelihood[0]) < 0.5


def test_nested_member_classes_start_at_random(table):
    model = dataclasses.replace(MODEL, member_classes="nested", member_components=2)
    data = model.prepare(table)
    start = model.init(jax.random.key(3), data, 0, jnp.int32(3))
    assert start.log_phi.shape[1] == 3 and np.isfinite(np.asarray(start.log_phi)).all()
