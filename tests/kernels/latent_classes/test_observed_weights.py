"""Weights of classes among the feasible records: conditional on a grid, density of the sticks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from goodness import compiles_once
from harness import Z_LIMIT
from latent import two_sample_z
from truncated_classes import from_grid, log_density_of_sticks

from bnp_models.kernels.latent_classes import truncation
from bnp_models.kernels.variates import sticks

N = 20_000
MASS = np.array([0.9, 0.05, 0.4])


@jax.jit
@jax.vmap
def update_weights(key, log_pi, class_counts, alpha):
    key_tilt, key_weights = jax.random.split(key)
    log_mass = jnp.log(jnp.asarray(MASS[: log_pi.size], log_pi.dtype))
    _, log_s = truncation.stick_tilt(key_tilt, log_pi, log_mass, alpha, jnp.sum(class_counts))
    return truncation.draw_observed_weights(key_weights, class_counts, log_mass, log_s, alpha)


def weights_z(seed, key, counts, alpha, exact_alpha):
    """Sticks on a scale on which a grid holds them: s_k = (1 - V_k)^(alpha / power)."""
    rng = np.random.default_rng(seed)
    num_sticks = len(counts) - 1
    power = 2 * max(exact_alpha, 1)
    axis = (np.arange(600) + 0.5) / 600
    s = np.stack(np.meshgrid(*[axis] * num_sticks, indexing="ij"))

    def log_weights(s):
        left = power * np.log(s) / exact_alpha
        before = np.concatenate([np.zeros_like(left[:1]), np.cumsum(left, axis=0)])
        return before + np.concatenate([np.log(-np.expm1(left)), np.zeros_like(left[:1])])

    log_pi = log_weights(s)
    mass = MASS[: len(counts)].reshape(-1, *[1] * num_sticks)
    counts = np.array(counts)
    log_density = np.tensordot(counts, log_pi, 1) + (power - 1) * np.log(s).sum(axis=0)
    log_density = log_density - counts.sum() * np.log((mass * np.exp(log_pi)).sum(axis=0))
    start, other = (
        log_weights(from_grid(rng, log_density, [axis] * num_sticks, N)) for _ in range(2)
    )
    moved = update_weights(
        jax.random.split(key, N), jnp.asarray(start.T, jnp.float32),
        jnp.broadcast_to(counts, (N, len(counts))), jnp.full(N, alpha, jnp.float32),
    )  # fmt: skip
    weights = np.exp(np.asarray(moved, float)), np.exp(other.T)
    return two_sample_z(*(np.concatenate([w, w**2], axis=1)[:, :-1] for w in weights))


@pytest.mark.parametrize("counts", [(2, 5), (0, 1), (2, 0, 1), (20, 3, 0)], ids=str)
@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_weights_leave_their_target_invariant(key, seed, counts, alpha):
    z = weights_z(seed, key, counts, alpha, alpha)
    assert np.abs(z).max() < Z_LIMIT, z


def test_weights_with_another_concentration_are_seen(key, seed):
    z = weights_z(seed, key, (2, 0, 1), 0.5, 0.7)
    assert np.abs(z).max() > Z_LIMIT, z


@pytest.mark.parametrize("alpha", [0.25, 2.0])
def test_log_stick_prior(seed, alpha):
    rng = np.random.default_rng(seed)
    result, exact = [], []
    for x in rng.gamma(0.7, size=(20, 5)):
        result.append(float(sticks.log_stick_prior(jnp.log(x), jnp.float32(alpha))))
        total = x.sum()
        exact.append(
            log_density_of_sticks(x / total, alpha) - 4 * np.log(alpha) - 5 * np.log(total)
        )
    np.testing.assert_allclose(result, exact, rtol=2e-5, atol=2e-5)


def test_second_calls_compile_nothing(key):
    one, two = jax.random.split(key)
    log_pi, log_mass = jnp.log(jnp.array([0.5, 0.3, 0.2])), jnp.log(jnp.asarray(MASS))

    def update(key, log_pi, log_mass, counts, alpha):
        tilt, log_s = truncation.stick_tilt(key, log_pi, log_mass, alpha, jnp.sum(counts))
        return tilt, truncation.draw_observed_weights(key, counts, log_mass, log_s, alpha)

    assert compiles_once(
        update, (one, log_pi, log_mass, jnp.arange(3), jnp.float32(1)),
        (two, log_mass, log_pi, 3 - jnp.arange(3), jnp.float32(2)),
    )  # fmt: skip
