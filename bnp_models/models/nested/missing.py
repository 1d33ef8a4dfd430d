"""Missing values of households and of their members."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.nested.parameters import Variables
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.variates.categorical import cumulative_sum, search_cumulative
from bnp_models.kernels.variates.rng import Keys, uniform, words
from bnp_models.models.nested.state import Missing, NestedData, NestedState

MISSING_ATTEMPTS = 4
"""Number of proposals for missing values in a sweep."""


def fill_in(state: NestedState, data: NestedData) -> NestedData:
    """Fill in the missing values of the data with those of this state."""
    if not data.missing:
        return data
    number = data.at_household.shape[1]
    first = jnp.asarray(first_rows(data.household.num_levels), jnp.int32)
    rows = first[data.at_household[0]] + state.completed[:number]
    return dataclasses.replace(
        data,
        household_rows=data.household_rows.at[tuple(data.at_household)].set(rows),
        member_codes=data.member_codes.at[tuple(data.at_member)].set(state.completed[number:]),
    )


def completed_values(data: NestedData) -> Int[Array, " C"]:
    """Codes of the missing values, taken from completed data, for `fill_in`."""
    if not data.missing:
        return jnp.zeros(1, jnp.int32)
    first = jnp.asarray(first_rows(data.household.num_levels), jnp.int32)
    household_codes = data.household_rows[tuple(data.at_household)] - first[data.at_household[0]]
    return jnp.concatenate([household_codes, data.member_codes[tuple(data.at_member)]])


@jax.named_scope("update_missing")
def update_missing(
    key: Key[Array, ""],
    state: NestedState,
    g: Int[Array, " n"],
    m: Int[Array, " N"],
    data: NestedData,
) -> NestedData:
    """Draw the missing values of the incomplete households, given their classes.

    Values that are drawn from the classes are a Metropolis-Hastings proposal, which is accepted if
    the household is possible. First all missing values of a household are proposed together, then
    random halves of them.

    Parameters
    ----------
    g, m
        Classes of the households and of the members.
    data
        The sample, completed with the missing values of this state.

    Returns
    -------
    data
        The sample, with new missing values.
    """
    if not data.missing:
        return data
    first = first_rows(data.household.num_levels)[:-1, None].astype(np.int32)
    household_codes = data.household_rows[:-1] - first
    member_codes = data.member_codes
    num_nested = state.log_omega.shape[1]
    for i, block in enumerate(data.missing):
        g_block = g[block.households]
        z_block = (g_block[:, None] * num_nested + m[block.members]).reshape(-1)
        attempt = partial(
            _attempt, jax.random.fold_in(key, i), state, data, block, g_block, z_block
        )
        codes = (
            household_codes[:, block.households].T,
            jnp.moveaxis(member_codes[:, block.members], 0, 2),
        )
        of_household, of_members = jax.lax.fori_loop(0, MISSING_ATTEMPTS, attempt, codes)
        household_codes = household_codes.at[:, block.households].set(of_household.T)
        member_codes = member_codes.at[:, block.members].set(jnp.moveaxis(of_members, 2, 0))
    return dataclasses.replace(
        data,
        household_rows=data.household_rows.at[:-1].set(household_codes + first),
        member_codes=member_codes,
    )


def _attempt(
    key: Key[Array, ""],
    state: NestedState,
    data: NestedData,
    block: Missing,
    g: Int[Array, " I"],
    z: Int[Array, " Ih"],
    t: Int[Array, ""],
    codes: tuple[Int[Array, "I q"], Int[Array, "I h p"]],
) -> tuple[Int[Array, "I q"], Int[Array, "I h p"]]:
    """Propose missing values of one block (all of a household's if t is 0); keep possible ones.

    Parameters
    ----------
    g, z
        Classes of the households, and classes of the members among all pairs of classes.
    codes
        Codes of the households and of their members.
    """
    household_codes, member_codes = codes
    key_household, key_members, key_coin = Keys(jax.random.fold_in(key, t), 3)
    log_phi = jnp.broadcast_to(state.log_phi, (len(state.log_phi), *state.log_omega.shape))
    log_phi = log_phi.reshape(len(log_phi), -1)
    new_household = _draw_codes(key_household, state.log_lambda, data.household, g)[:, :-1]
    new_members = _draw_codes(key_members, log_phi, data.member, z).reshape(member_codes.shape)
    num_own, num_households = household_codes.shape[1], household_codes.shape[0]
    coin = uniform(words(key_coin, (num_households, num_own + member_codes[0].size)))
    coin = (coin < 0.5) | (t == 0)
    change = coin[:, :num_own] & block.of_household
    new_household = jnp.where(change, new_household, household_codes)
    change = coin[:, num_own:].reshape(member_codes.shape) & block.of_members
    new_members = jnp.where(change, new_members, member_codes)
    possible = jnp.ones(num_households, bool)
    if data.possible is not None:
        possible = data.possible(new_household, new_members)
    return (
        jnp.where(possible[:, None], new_household, household_codes),
        jnp.where(possible[:, None, None], new_members, member_codes),
    )


def _draw_codes(
    key: Key[Array, ""],
    log_levels: Float[Array, "R C"],
    levels: Variables,
    classes: Int[Array, " units"],
) -> Int[Array, "units variables"]:
    """Draw codes of all variables for units in these classes."""
    num_variables = len(levels.num_levels)
    u = uniform(words(key, (num_variables, classes.size)), log_levels.dtype.type)
    tables = [cumulative_sum(jnp.exp(levels.block(log_levels, j)).T) for j in range(num_variables)]
    codes = [search_cumulative(t, classes, x)[0] for t, x in zip(tables, u, strict=True)]
    return jnp.stack(codes, axis=1)
