"""What the guide uses of blackjax, for machines without it: one sampler, and a loop."""

import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bnp_models.kernels.variates.rng import Keys, key_array

util = sys.modules[__name__]


class SamplingAlgorithm(NamedTuple):
    init: object
    step: object


class HMCState(NamedTuple):
    position: jax.Array
    logdensity: jax.Array
    logdensity_grad: jax.Array


class HMCInfo(NamedTuple):
    acceptance_rate: jax.Array


def hmc(logdensity_fn, step_size, inverse_mass_matrix, num_integration_steps):
    """Hamiltonian Monte Carlo with a diagonal mass matrix."""

    def init(position):
        return HMCState(position, *jax.value_and_grad(logdensity_fn)(position))

    def energy(state, momentum):
        return -state.logdensity + jnp.sum(inverse_mass_matrix * momentum**2) / 2

    def leapfrog(state, momentum):
        momentum = momentum + step_size / 2 * state.logdensity_grad
        state = init(state.position + step_size * inverse_mass_matrix * momentum)
        return state, momentum + step_size / 2 * state.logdensity_grad

    def step(key, state):
        key_momentum, key_accept = Keys(key)
        momentum = jax.random.normal(key_momentum, state.position.shape)
        momentum = momentum / jnp.sqrt(inverse_mass_matrix)
        before, moved = energy(state, momentum), state
        for _ in range(num_integration_steps):
            moved, momentum = leapfrog(moved, momentum)
        rate = jnp.minimum(1.0, jnp.exp(before - energy(moved, momentum)))
        accept = jax.random.uniform(key_accept) < rate
        kept = jax.tree.map(lambda new, old: jnp.where(accept, new, old), moved, state)
        return kept, HMCInfo(rate)

    return SamplingAlgorithm(init, step)


def run_inference_algorithm(rng_key, inference_algorithm, num_steps, initial_state, transform):
    """Run the steps in a scan; return the last state, and what `transform` gives of each."""

    def one(state, key):
        state, info = inference_algorithm.step(key, state)
        return state, transform(state, info)

    scan = jax.jit(lambda state: jax.lax.scan(one, state, key_array(rng_key, num_steps)))
    return scan(initial_state)
