"""Possible households given one kept draw: simulation, and margins of their variables."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from bnp_models.kernels.nested.parameters import Variables, log_class_weights, tables_of
from bnp_models.kernels.nested.simulation import DrawnVariables, Simulated, simulate_households
from bnp_models.kernels.numerics.counting import variable_of_rows
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.model import reweighted
from bnp_models.models.nested.state import NESTED, NestedData
from bnp_models.models.nested.sweep import judge_of, log_feasible_of

MEMBERS_AT_ONCE = 4
"""Number of places for members, for each of the households that are simulated at once."""


def simulate_possible(
    key: Key[Array, ""],
    draw: dict[str, Array],
    data: NestedData,
    left: Float[Array, " H"],
    lanes: int,
) -> tuple[Simulated, Bool[Array, " B"]]:
    """Simulate a batch of households given one kept draw, and judge which of them are possible.

    Parameters
    ----------
    draw
        Arrays named in `NESTED`.
    data
        The sample, of which only sizes and rules are used.
    left
        Relative frequency with which each size is simulated. The distribution of households of one
        size does not depend on it.
    lanes
        Number of households that are simulated at once.
    """
    key_draw, key_judge = Keys(key, 2)
    household = Variables(
        data.household.num_levels, tuple(range(len(data.household.num_levels) - 1))
    )
    member = Variables(data.member.num_levels, tuple(range(len(data.member.num_levels))))
    log_pi, log_omega, log_lambda, log_phi = (draw[name] for name in NESTED)
    tables = tables_of(log_pi, log_omega, log_lambda, log_phi, household, member, data.head)
    sizes, _ = zip(*data.blocks, strict=True)
    log_size = log_lambda[data.household.size_rows]
    has_head = data.head is not None
    log_weight = log_class_weights(tables, log_size, sizes, has_head)
    log_weight = jax.nn.log_softmax(log_weight, axis=1) + jnp.log(left)[:, None]
    others = tuple(size - has_head for size in sizes)
    slots = lanes * MEMBERS_AT_ONCE + max(others)
    drawn = DrawnVariables(household, member, has_head)
    new = simulate_households(key_draw, tables, log_weight, others, lanes, slots, drawn)
    possible = new.used
    if data.possible is not None:
        possible = possible & judge_of(data)(new, key_judge)
    return new, possible


@jax.named_scope("level_probabilities")
def level_probabilities(draw: dict[str, Array], data: NestedData) -> Float[Array, " Q+R"] | None:
    """Probability of every level of a household's variables and of its members', given one draw.

    The probabilities are those of possible households with the sizes of the sample, and of a random
    member of these. If members are coded relative to the head, the levels are those of the coding.

    Parameters
    ----------
    draw
        Arrays named in `NESTED`.
    data
        The sample, of which only sizes and rules are used.

    Returns
    -------
    probability
        Rows of household levels, with the sizes last, and then of member levels. None if
        P(possible) has no closed form under these rules.

    Notes
    -----
    P(possible) is a sum of products of weights and level probabilities, one for each value of a
    household and of its members. The derivative of its logarithm with respect to the logarithm of a
    probability is therefore the expected number of times that the level occurs in a possible
    household.
    """
    if not data.closed_form:
        return None
    _, households = zip(*data.blocks, strict=True)
    share = jnp.asarray(households) / data.num_households
    size_rows = data.household.size_rows
    log_pi, log_omega, log_lambda, log_phi = (draw[name] for name in NESTED)
    occurring = jax.grad(log_feasible_of, argnums=(0, 1, 2, 3))
    of_size = jnp.sum(occurring(log_pi, log_omega, log_lambda, log_phi, data)[2][size_rows], axis=1)
    log_tilt = jnp.log(share / of_size)[:, None]
    tilted = log_lambda.at[size_rows].add(log_tilt)
    of_class, of_nested, of_household, of_member = occurring(
        log_pi, log_omega, tilted, log_phi, data
    )
    # Variables that no rule uses have the probabilities of their class.
    household = jnp.where(
        _is_read(data.household, size=True)[:, None], of_household, of_class * jnp.exp(log_lambda)
    )
    member = jnp.where(
        _is_read(data.member),
        jnp.sum(of_member, axis=(1, 2)),
        jnp.sum(of_nested * jnp.exp(log_phi), axis=(1, 2)),
    )
    of_members = member / jnp.maximum(jnp.sum(of_nested), 1e-30)
    return jnp.concatenate([jnp.sum(household, axis=1), of_members])


def weight_households(
    draws: dict[str, np.ndarray], weights: np.ndarray, rows: np.ndarray
) -> dict[str, np.ndarray]:
    """Draws of sum_s weights[s] p(household, s) / Z, a nested model with other class weights.

    Parameters and result are those of `MakesHouseholds.weight_households`.

    Notes
    -----
    The class of weights s is independent of all else within a class g of households, so that pi_g
    is multiplied by sum_s weights[s] lambda_g(s). No rule reads s. The probability of the possible
    households before truncation changes with pi; "log_feasible" stays that of the chains.
    """
    of_class, log_lambda = draws["log_lambda"][:, :, rows], draws["log_lambda"]
    changed = {"log_lambda": np.delete(log_lambda, rows, axis=2)}
    if np.ptp(weights) == 0:
        return changed
    return changed | {"log_pi": reweighted(draws["log_pi"], of_class, weights)}


def _is_read(levels: Variables, size: bool = False) -> np.ndarray:
    """Whether rules use the variable of each row; the last variable counts if it is the size."""
    last = (len(levels.num_levels) - 1,) if size else ()
    return np.isin(variable_of_rows(levels.num_levels), (*levels.read, *last))
