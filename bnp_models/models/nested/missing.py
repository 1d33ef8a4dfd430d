"""Missing values of households and of their members."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.variates.categorical import cumulative_sum, search_cumulative
from bnp_models.kernels.variates.rng import uniform, words
from bnp_models.models.nested.state import Missing, NestedData, NestedState

MISSING_ATTEMPTS = 4
"""Proposals of missing values in a sweep."""


def fill_in(state: NestedState, data: NestedData) -> NestedData:
    """The data with the missing values as they are in this state."""
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


def completed_values(data):
    """The missing values, of data in which they are filled in."""
    if not data.missing:
        return jnp.zeros(1, jnp.int32)
    first = jnp.asarray(first_rows(data.household.num_levels), jnp.int32)
    of_households = data.household_rows[tuple(data.at_household)] - first[data.at_household[0]]
    return jnp.concatenate([of_households, data.member_codes[tuple(data.at_member)]])


def update_missing(
    key: Key[Array, ""],
    state: NestedState,
    g: Int[Array, " n"],
    m: Int[Array, " N"],
    data: NestedData,
) -> NestedData:
    """The missing values of the incomplete households, given their classes.

    Values drawn from the classes are a Metropolis-Hastings proposal that is accepted where the
    household is possible: all missing values of a household at once, then random halves of them.
    """
    first = first_rows(data.household.num_levels)
    household_codes = data.household_rows[:-1] - first[:-1, None].astype(np.int32)
    member_codes = data.member_codes

    def draw(key, log_levels, levels, of_class):
        """Codes of all variables, of units in these classes: (units, variables)."""
        u = uniform(words(key, (len(levels.num_levels), of_class.size)), log_levels.dtype.type)
        tables = [
            cumulative_sum(jnp.exp(levels.block(log_levels, j)).T)
            for j in range(len(levels.num_levels))
        ]
        codes = [search_cumulative(t, of_class, x)[0] for t, x in zip(tables, u, strict=True)]
        return jnp.stack(codes, axis=1)

    log_phi = state.log_phi.reshape(state.log_phi.shape[0], -1)
    num_nested = state.log_omega.shape[1]
    for i, block in enumerate(data.missing):
        here = household_codes[:, block.households].T
        there = jnp.moveaxis(member_codes[:, block.members], 0, 2)
        g_block = g[block.households]
        z_block = (g_block[:, None] * num_nested + m[block.members]).reshape(-1)

        def attempt(t, codes, i=i, block=block, g_block=g_block, z_block=z_block):
            here, there = codes
            keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, i), t), 3)
            new_here = draw(keys[0], state.log_lambda, data.household, g_block)[:, :-1]
            new_there = draw(keys[1], log_phi, data.member, z_block).reshape(there.shape)
            number = here.shape[1] + there[0].size
            coin = uniform(words(keys[2], (here.shape[0], number)))
            coin = (coin < 0.5) | (t == 0)
            change = coin[:, : here.shape[1]] & block.of_household
            new_here = jnp.where(change, new_here, here)
            change = coin[:, here.shape[1] :].reshape(there.shape) & block.of_members
            new_there = jnp.where(change, new_there, there)
            possible = jnp.ones(here.shape[0], bool)
            if data.possible is not None:
                possible = data.possible(new_here, new_there)
            return (
                jnp.where(possible[:, None], new_here, here),
                jnp.where(possible[:, None, None], new_there, there),
            )

        here, there = jax.lax.fori_loop(0, MISSING_ATTEMPTS, attempt, (here, there))
        household_codes = household_codes.at[:, block.households].set(here.T)
        member_codes = member_codes.at[:, block.members].set(jnp.moveaxis(there, 2, 0))
    rows = household_codes + first[:-1, None].astype(np.int32)
    return dataclasses.replace(
        data,
        household_rows=data.household_rows.at[:-1].set(rows),
        member_codes=member_codes,
    )


def missing_by_block(blocks):
    """The incomplete households of each block that has any."""
    found, household, member = [], 0, 0
    for block in blocks:
        number, members = block.member_codes.shape[:2]
        of_household, of_members = block.household_codes < 0, block.member_codes < 0
        own = np.flatnonzero(of_household.any(axis=1) | of_members.any(axis=(1, 2)))
        if own.size:
            of_own = member + own[:, None] * members + np.arange(members)
            found.append(Missing(
                households=jnp.asarray(household + own, jnp.int32),
                members=jnp.asarray(of_own, jnp.int32),
                of_household=jnp.asarray(of_household[own]),
                of_members=jnp.asarray(of_members[own]),
            ))  # fmt: skip
        household, member = household + number, member + number * members
    return tuple(found)
