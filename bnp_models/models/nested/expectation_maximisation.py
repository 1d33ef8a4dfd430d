"""Expectation-maximisation of the classes of households, for initial states.

From random classes, a Gibbs sampler takes many thousands of sweeps to fill the household classes
that the sample supports, because a class grows by one household at a time. Maximisation gives every
class its share of each household at once.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from bnp_models.kernels.nested.members import (
    member_class_weights,
    merged_rows,
    merged_tables,
    repeat_by_member,
    sum_by_household,
)
from bnp_models.kernels.numerics.counting import (
    first_rows,
    group_totals,
    sum_by_group,
    variable_of_rows,
)
from bnp_models.kernels.variates.levels import LOG_LEAST_LEVEL
from bnp_models.models.nested.state import NestedData, NestedState

ROUNDS = 200
"""Rounds of an initial state. A round takes about as long as a sweep."""


@jax.named_scope("maximise")
def maximise(state: NestedState, data: NestedData, rounds: int = ROUNDS) -> NestedState:
    """Weights and level probabilities near a maximum of the likelihood, from those of a state.

    The likelihood is that before truncation, and missing values keep those of `data`. Each class
    has one more household and one more member, which are spread as all of the sample, so that no
    probability becomes zero. Household classes of weight zero keep it.

    Parameters
    ----------
    state
        A state whose household classes share the member classes.
    data
        The sample, completed.
    rounds
        Rounds of expectation-maximisation (Dempster, Laird & Rubin 1977,
        doi:10.1111/j.2517-6161.1977.tb01600.x), the classes of households and members summed out.
    """
    rows = merged_rows(data.member_codes, data.member.num_levels, data.plan)
    of_level = data.member_codes + first_rows(data.member.num_levels)[:, None].astype(np.int32)

    def one_round(_, logs):
        log_pi, log_omega, log_lambda, log_phi = logs
        omega = jnp.exp(log_omega)
        tables = merged_tables(jnp.exp(log_phi)[:, None], data.member.num_levels, data.plan)
        of_member_class, _ = member_class_weights(tables, rows)
        # Quotients of the scaled weights would be too small for single precision.
        tiny = jnp.finfo(omega.dtype).tiny
        of_member_class /= jnp.maximum(jnp.max(of_member_class, axis=1, keepdims=True), tiny)
        of_class = jnp.maximum(of_member_class @ omega.T, tiny)
        log_weight = log_pi + sum_by_household(jnp.log(of_class), data.blocks_of_part, data.parts)
        log_weight += jnp.sum(log_lambda[data.household_rows], axis=0)
        households = jax.nn.softmax(log_weight, axis=1) * data.household_weight[:, None]
        repeat = jax.vmap(repeat_by_member, (1, None, None), 1)
        # P(household class | household) / P(member | household class)
        ratio = repeat(households, data.blocks_of_part, data.parts) / of_class
        members = of_member_class * (ratio @ omega)
        nested = omega * (ratio.T @ of_member_class)
        return (
            jnp.log(jnp.sum(households, axis=0) / jnp.sum(households)),
            _log_shares(nested.T, jnp.zeros(nested.shape[1], jnp.int32)).T,
            _log_levels(data.household_rows, households, data.household.num_levels),
            _log_levels(of_level, members, data.member.num_levels),
        )

    logs = state.log_pi, state.log_omega, state.log_lambda, state.log_phi[:, 0]
    log_pi, log_omega, log_lambda, log_phi = lax.fori_loop(0, rounds, one_round, logs)
    return dataclasses.replace(
        state, log_pi=log_pi, log_omega=log_omega, log_lambda=log_lambda, log_phi=log_phi[:, None]
    )


def _log_levels(
    rows: Int[Array, "J n"], share: Float[Array, "n K"], num_levels: tuple[int, ...]
) -> Float[Array, "R K"]:
    """Log level probabilities of classes, given the share of each class in each unit."""
    number = sum(num_levels)
    counts = jnp.sum(jnp.stack([sum_by_group(share, row, number) for row in rows]), axis=0)
    return _log_shares(counts, jnp.asarray(variable_of_rows(num_levels)))


def _log_shares(counts: Float[Array, "R K"], group: Int[Array, " R"]) -> Float[Array, "R K"]:
    """Log shares of rows in their groups by class, each class with one unit more like all units."""
    of_all = jnp.sum(counts, axis=1, keepdims=True)
    counts = counts + of_all / group_totals(of_all, group)
    return jnp.maximum(jnp.log(counts / group_totals(counts, group)), LOG_LEAST_LEVEL)
