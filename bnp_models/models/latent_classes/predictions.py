"""Predictions of latent class models given one kept draw: cells, records, completions, margins."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.boxes.region import masses_of_sets
from bnp_models.kernels.numerics.counting import first_rows, variables_by_size
from bnp_models.kernels.numerics.platforms import map_draws
from bnp_models.kernels.variates.categorical import draw_rows
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.latent_classes.conditionals import draw_levels_in_box, update_classes
from bnp_models.models.latent_classes.state import LatentClassData, LatentClassState
from bnp_models.models.model import reweighted


def log_cell_probability(
    draw: dict[str, Array], cells: Int[Array, "C J"], num_levels: tuple[int, ...]
) -> Float[Array, " C"]:
    """log p_c of feasible cells for a new record, given one kept draw, in closed form.

    A code of -1 stands for any value, and is allowed only without structural zeros.

    Parameters
    ----------
    draw
        "log_pi" (K,), "log_lambda" (R, K) and "log_feasible" of one sweep.
    cells
        0-based level codes.
    num_levels
        Levels of each variable, static.
    """
    rows = jnp.where(cells < 0, len(draw["log_lambda"]), cells + first_rows(num_levels))
    # The last row, of probability one, stands for any value.
    log_lambda = jnp.pad(draw["log_lambda"], ((0, 1), (0, 0)))
    log_weight = draw["log_pi"] + sum(log_lambda[row] for row in rows.T)
    return jax.nn.logsumexp(log_weight, axis=1) - draw["log_feasible"]


def simulate_records(
    key: Key[Array, ""],
    draw: dict[str, Array],
    num_records: int,
    num_levels: tuple[int, ...],
    feasible: Bool[Array, "B R"] | None = None,
) -> Int[Array, "J n"]:
    """Level codes of new feasible records given one kept draw, without rejection.

    Parameters
    ----------
    feasible
        Disjoint boxes of the feasible cells; None if every cell is feasible.

        Notes
    -----
    The class is drawn by its feasible mass, then the box, then levels within the box.
    """
    key_z, key_box, key_levels = Keys(key, 3)
    log_pi, log_lambda = draw["log_pi"], draw["log_lambda"]
    if feasible is None:
        feasible = jnp.ones((1, log_lambda.shape[0]), bool)
    log_box = jnp.sum(jnp.log(masses_of_sets(log_lambda, feasible, num_levels)), axis=0)
    log_class = log_pi + jax.nn.logsumexp(log_box, axis=0)
    z, _ = draw_rows(key_z, jnp.broadcast_to(log_class[:, None], (log_pi.size, num_records)))
    box, _ = draw_rows(key_box, log_box[:, z])
    rows = draw_levels_in_box(key_levels, log_lambda, feasible, z, box, num_levels)
    return rows - first_rows(num_levels)[:, None]


def complete_records(
    key: Key[Array, ""], draw: dict[str, Array], data: LatentClassData
) -> Int[Array, "J n"]:
    """Level codes of the padded sample, with missing values drawn given one kept draw."""
    # The prior of the levels is not used here.
    prior = data.levels.shape
    state = LatentClassState(draw["log_pi"], draw["log_lambda"], prior, draw["alpha"])
    records, _ = update_classes(key, state, data)
    return records.rows - first_rows(data.num_levels)[:, None]


def level_probabilities(
    draw: dict[str, Array],
    num_levels: tuple[int, ...],
    feasible: Bool[Array, "B R"] | None = None,
) -> Float[Array, " R"]:
    """P(x_j = l) of a feasible record, for every level of every variable, given one kept draw.

    Parameters
    ----------
    feasible
        Disjoint boxes of the feasible cells; None if every cell is feasible.
    """
    weight, level = jnp.exp(draw["log_pi"]), jnp.exp(draw["log_lambda"])
    if feasible is None:
        return jnp.matmul(level, weight, precision=lax.Precision.HIGHEST)
    masses = masses_of_sets(draw["log_lambda"], feasible, num_levels)
    one = jnp.ones_like(masses[:1])
    before = jnp.cumprod(jnp.concatenate([one, masses[:-1]]), axis=0)
    after = jnp.cumprod(jnp.concatenate([one, masses[:0:-1]]), axis=0)[::-1]
    others = before * after
    probability = jnp.zeros(level.shape[0], level.dtype)

    def of_variable(arguments):
        rows, others = arguments
        of_level = jnp.matmul(
            feasible[:, rows].T.astype(others.dtype), others, precision=lax.Precision.HIGHEST
        )
        mass = jnp.sum(weight * level[rows] * of_level, axis=1)
        return mass / jnp.sum(mass)

    for variables, rows in variables_by_size(num_levels):
        probability = probability.at[rows].set(
            map_draws(of_variable, (jnp.asarray(rows), others[variables]))
        )
    return probability


def weight_draws(
    draws: dict[str, np.ndarray],
    weights: np.ndarray,
    num_levels: tuple[int, ...],
    feasible: np.ndarray | None,
) -> dict[str, np.ndarray]:
    """Draws of sum_s weights[s] p(x, s) / Z, a latent class model with other class weights.

    Parameters and result are those of `PredictsCells.weight_draws`.

    Notes
    -----
    The class of weights s is independent of x within a latent class k, so that pi_k is multiplied
    by sum_s weights[s] lambda_k(s), and the feasible mass of each k does not change.
    """
    log_lambda, rest = np.split(draws["log_lambda"], [sum(num_levels)], axis=2)
    if np.ptp(weights) == 0:
        return {"log_lambda": log_lambda}
    changed = {"log_lambda": log_lambda, "log_pi": reweighted(draws["log_pi"], rest, weights)}
    if feasible is None:
        return changed
    arrays = changed["log_pi"], log_lambda
    flat = [x.reshape(-1, *x.shape[2:]) for x in arrays]
    log_mass = np.asarray(_log_feasible(*flat, feasible, num_levels))
    return changed | {"log_feasible": log_mass.reshape(draws["log_feasible"].shape)}


@partial(jax.jit, static_argnames="num_levels")
def _log_feasible(log_pi, log_lambda, feasible, num_levels):
    """log P(feasible) before truncation, (D,), given each draw."""

    def one(draw):
        log_pi, log_lambda = draw
        log_box = jnp.sum(jnp.log(masses_of_sets(log_lambda, feasible, num_levels)), axis=0)
        return jax.nn.logsumexp(log_pi + log_box)

    return map_draws(one, (log_pi, log_lambda))
