"""How well a run predicts records that it has not seen."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

DRAWS_PER_CHAIN = 25


@partial(jax.jit, static_argnames="num_levels")
def log_p_of_draws(model, draws, cells, num_levels):
    """(draws, cells) log probabilities of cells; over P(feasible) under structural zeros."""

    def one(draw):
        return model.log_cell_probability(jax.random.key(0), draw, cells, num_levels)

    return jax.lax.map(one, draws)


def held_out_log_likelihood(run, codes: np.ndarray) -> float:
    """Mean log posterior predictive probability of complete records, given by their codes."""
    thin = max(1, run.settings.num_samples // DRAWS_PER_CHAIN)
    kept = run.parameters(thin)
    draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in kept.items()}
    codes = codes if run.coding is None else run.coding.reduce(codes)
    log_p = log_p_of_draws(run.model, draws, jnp.asarray(codes, jnp.int32), run.num_levels)
    log_p = np.asarray(log_p, np.float64)
    return float(np.mean(np.logaddexp.reduce(log_p, axis=0) - np.log(len(log_p))))
