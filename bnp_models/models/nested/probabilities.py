"""Probabilities of households and of their persons under a nested model, draw by draw."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.data.household_schema import codes_of_sizes
from bnp_models.data.households import Households
from bnp_models.kernels.nested.judges import (
    household_probability,
    joint_probability,
    log_possible_of,
)
from bnp_models.kernels.nested.members import (
    log_member_probability,
    merge_plan,
    merged_rows,
    merged_tables,
    sum_by_household,
)
from bnp_models.kernels.nested.parameters import joint_codes, log_class_weights, tables_of
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.models.nested.predictions import simulate_possible
from bnp_models.models.nested.relative import RelativeCoding
from bnp_models.models.nested.state import NESTED, NestedData
from bnp_models.models.nested.sweep import log_feasible_of

# Households simulated for each draw and size to estimate P(possible), if it has no closed form.
SIMULATED = 2**13


def household_arrays(
    table: Households, sizes: np.ndarray, relative: RelativeCoding | None, distinct: bool = True
) -> dict[str, Any]:
    """Arguments of `log_households`; households of one size are together.

    Parameters
    ----------
    table
        The households; their order in the arrays is that of `Households.order_by_size`.
    sizes
        Numbers of persons of the sizes that the model knows, in ascending order.
    relative
        Coding of the members, if they are coded relative to a head.
    distinct
        Whether equal members are evaluated once. If not, tables with equal numbers of households
        of each size use one compiled program.
    """
    order, of_member = table.order_by_size
    codes = np.column_stack(
        [table.household_codes[order], np.searchsorted(sizes, table.sizes[order])]
    )
    members = table.member_codes
    if relative is not None:
        heads = table.household_codes[table.member_household]
        members = relative.encode(heads, members[:, None])[:, 0]
    members, index = members[of_member], np.arange(len(of_member))
    if distinct:
        members, index = np.unique(members, axis=0, return_inverse=True)
    num_levels = (*table.schema.num_household_levels, len(sizes))
    return {
        "household_rows": jnp.asarray(codes + first_rows(num_levels), jnp.int32),
        "members": jnp.asarray(members.T, jnp.int32),
        "index": jnp.asarray(index.reshape(-1), jnp.int32),
        "blocks": tuple(block.member_codes.shape[1::-1] for block in table.size_blocks),
        "num_levels": table.schema.num_member_levels,
    }


@partial(jax.jit, static_argnames=("blocks", "num_levels"))
def log_households(draws, household_rows, members, index, blocks, num_levels):
    """Evaluate the probability of every household, size included, before truncation.

    Parameters
    ----------
    draws
        Parameters of the draws.
    household_rows
        (n, q + 1) row of lambda of each household's level of each variable; the size is the last.
    members, index
        (p, U) codes of the distinct members, and (N,) index of each member among them.
    blocks
        (members, households) of each size; static.
    num_levels
        Levels of the members' variables; static.

    Returns
    -------
    log_p
        (draws, n).
    """
    plan = merge_plan(num_levels)
    rows = merged_rows(members, num_levels, plan)

    def one(draw):
        tables = merged_tables(jnp.exp(draw["log_phi"]), num_levels, plan)
        log_member = log_member_probability(tables, jnp.exp(draw["log_omega"]), rows)
        total = draw["log_pi"] + sum_by_household(log_member[index], blocks)
        for k in range(household_rows.shape[1]):
            total = total + draw["log_lambda"][household_rows[:, k]]
        return jax.nn.logsumexp(total, axis=1)

    with jax.named_scope("likelihood_of_files"):
        return jax.lax.map(one, draws)


@jax.jit
def log_possible_by_size(draws, data, key):
    """Evaluate the probability that a household has each size and is possible.

    Parameters
    ----------
    draws
        Parameters of the draws, and "number" of each.
    data
        The sample, of which rules and sizes are used.
    key
        Key of the simulation, if there is no closed form under the rules.

    Returns
    -------
    log_p
        (draws, H), in closed form or estimated.
    """
    each = jnp.eye(len(data.blocks), dtype=bool)
    size_rows = data.household.size_rows

    def one(draw):
        log_size = draw["log_lambda"][size_rows]
        if data.closed_form:
            of_size = partial(_log_possible_of_size, draw, data, log_size)
            return jax.vmap(of_size)(each)
        return _log_possible_by_simulation(draw, data, log_size, key)

    with jax.named_scope("log_possible"):
        return jax.lax.map(one, draws)


def _log_possible_of_size(draw, data, log_size, of_size):
    """Log probability that a household has one size and is possible, in closed form."""
    log_pi, log_omega, log_lambda, log_phi = (draw[name] for name in NESTED)
    alone = jnp.where(of_size[:, None], log_size, -jnp.inf)
    log_lambda = log_lambda.at[data.household.size_rows].set(alone)
    return log_feasible_of(log_pi, log_omega, log_lambda, log_phi, data)


def _log_possible_by_simulation(draw, data, log_size, key):
    """(H,) log probability that a household has each size and is possible, estimated."""
    sizes = tuple(members for members, _ in data.blocks)
    parameters = [draw[name] for name in NESTED]
    tables = tables_of(*parameters, data.household, data.member, data.head)
    log_weight = log_class_weights(tables, log_size, sizes, data.head is not None)
    new, possible = simulate_possible(
        jax.random.fold_in(key, draw["number"]),
        draw,
        data,
        jnp.full(len(sizes), 1 / len(sizes)),
        SIMULATED * len(sizes),
    )
    tried = jax.ops.segment_sum(new.used.astype(float), new.size, num_segments=len(sizes))
    good = jax.ops.segment_sum(possible.astype(float), new.size, num_segments=len(sizes))
    # If no household was possible, half a household is counted, so that the logarithm is finite.
    share = jnp.maximum(good, 0.5) / jnp.maximum(tried, 1)
    return jax.nn.logsumexp(log_weight, axis=1) + jnp.log(share)


class CodedPersons(NamedTuple):
    """C kinds of persons, by all their variables, in the codes of a nested model.

    They are all heads that are described by variables of their household, or all members.
    """

    place: np.ndarray
    """(C,) their places among all kinds."""
    household_rows: jax.Array
    """(C, k) rows of lambda of their values that no mask selects."""
    members: jax.Array
    """(p, C) codes of their own values; for heads, of which they are none, zeros."""
    level: jax.Array
    """(C,) joint level of the variables that rules read: of members, or of households for heads."""
    mask: jax.Array
    """(C,) index into `masks`."""
    masks: jax.Array
    """(M, Q) 0 for the rows of lambda of households that may have such a person; else -inf."""


def coded_persons(
    codes: np.ndarray, table: Households, data: NestedData
) -> list[tuple[bool, CodedPersons]]:
    """Code kinds of persons; heads at household level are apart from members.

    Parameters
    ----------
    codes
        (C, J) level codes, in the order of the variables of `table.persons`.
    table, data
        The sample, and its arrays.

    Returns
    -------
    groups
        Whether the kinds of a group are heads, and the kinds; a group without kinds is left out.
    """
    schema, names = table.schema, list(table.schema.table.variables)
    columns = {name: codes[:, j] for j, name in enumerate(names)}
    sizes = np.unique(table.sizes)
    fits = np.ones((len(codes), len(sizes)), bool)
    if schema.size_variable is not None:
        of_size = codes_of_sizes(schema.labels(schema.size_variable), sizes)
        fits = of_size == columns[schema.size_variable][:, None]
    is_head = np.zeros(len(codes), bool)
    if schema.head is not None:
        relationship = columns[schema.head[0]]
        is_head = relationship == schema.head_code
        columns[schema.head[0]] = relationship - (relationship > schema.head_code)
    shared = [columns[name] for name in schema.modelled_household_level]
    of_head = [columns[name] for name in schema.head_variables]
    household = np.stack([*shared, *of_head, np.zeros(len(codes), int)], axis=1)
    own = np.stack([columns[name] for name in schema.member_variables], axis=1)
    groups = []
    for heads in (True, False):
        place = np.flatnonzero(is_head == heads)
        if len(place):
            coded = _coded_group(
                place, household[place], own[place], fits[place], data, heads, len(shared)
            )
            groups.append((heads, coded))
    return groups


def _coded_group(place, household, own, fits, data, heads, num_shared) -> CodedPersons:
    """Kinds of persons of one group, with the numbers of levels of the model."""
    num_levels = data.household.num_levels
    first, last = first_rows(num_levels), len(num_levels) - 1
    # Of members, rules may read a value of the household, which a mask then selects.
    masked = [] if heads else [k for k in data.household.read if k < num_shared]
    described = [k for k in range(last if heads else num_shared) if k not in masked]
    kinds, first_of_kind, mask = np.unique(
        np.column_stack([fits, household[:, masked]]),
        axis=0,
        return_index=True,
        return_inverse=True,
    )
    masks = np.zeros((len(kinds), sum(num_levels)))
    masks[:, data.household.size_rows] = np.where(fits[first_of_kind], 0, -np.inf)
    for k in masked:
        rows = first[k] + np.arange(num_levels[k])
        chosen = first[k] + household[first_of_kind, k]
        masks[:, rows] = np.where(rows == chosen[:, None], 0, -np.inf)
    if heads:
        level = joint_codes(household.T, num_levels, data.household.read)
    else:
        level = joint_codes(own.T, data.member.num_levels, data.member.read)
    if data.tables is None:
        level = jnp.zeros(len(place), jnp.int32)
    return CodedPersons(
        place=place,
        household_rows=jnp.asarray(household[:, described] + first[described], jnp.int32),
        members=jnp.asarray(own.T * (not heads), jnp.int32),
        level=jnp.asarray(level, jnp.int32),
        mask=jnp.asarray(mask.reshape(-1), jnp.int32),
        masks=jnp.asarray(masks, jnp.result_type(float)),
    )


def knows_persons(data: NestedData) -> bool:
    """Whether `log_persons` has a closed form under the rules of the data."""
    return data.possible is None or (data.closed_form and data.relative is None)


@partial(jax.jit, static_argnames="heads")
def log_persons(draws, data, persons, heads):
    """Evaluate the expected number of persons of each kind in a household.

    Parameters
    ----------
    draws
        Parameters of the draws.
    data
        The sample, of which rules and sizes are used; `knows_persons` must be true.
    persons
        The kinds.
    heads
        Whether they are heads at household level; static.

    Returns
    -------
    log_number
        (draws, C) log of the expected number of such persons in a household before truncation,
        where those in impossible households do not count.
    """

    def one(draw):
        log_p = jnp.sum(draw["log_lambda"][persons.household_rows], axis=1)
        if not heads:
            log_p = log_p + _log_member_values(draw, data, persons.members)
        weights = _log_person_weights if data.tables is None else _log_ruled_weights
        log_weight = jax.lax.map(partial(weights, draw, data, heads), persons.masks)
        return jax.nn.logsumexp(log_p + log_weight[persons.mask, persons.level], axis=1)

    with jax.named_scope("log_persons"):
        return jax.lax.map(one, draws)


def _log_member_values(draw, data, members):
    """(C, F) log probability of the values of a member, by class, the head's values summed out."""
    log_phi, omega = draw["log_phi"], jnp.exp(draw["log_omega"])
    if data.relative is not None:
        log_phi = jnp.broadcast_to(log_phi, (len(log_phi), *omega.shape))
        for pair in data.relative.pairs:
            of_head = data.household.block(draw["log_lambda"], pair.household)
            of_codes = data.member.block(log_phi, pair.member)[pair.coded]
            levels = jax.nn.logsumexp(of_head[:, None, :, None] + of_codes, axis=0)
            log_phi = log_phi.at[data.member.rows(pair.member)].set(levels)
    tables = merged_tables(jnp.exp(log_phi), data.member.num_levels, data.plan)
    rows = merged_rows(members, data.member.num_levels, data.plan)
    return log_member_probability(tables, omega, rows)


def _log_person_weights(draw, data, heads, mask):
    """(1, F) log number of heads, or of members, by class, in households that a mask selects."""
    log_size = (draw["log_lambda"] + mask[:, None])[data.household.size_rows]
    members = np.array([size for size, _ in data.blocks], float)
    log_number = jnp.log(jnp.asarray(np.ones_like(members) if heads else members))
    return (draw["log_pi"] + jax.nn.logsumexp(log_size + log_number[:, None], axis=0))[None]


def _log_ruled_weights(draw, data, heads, mask):
    """(L, F) the same by joint level of the variables that rules read, in possible households.

    P(possible) is a sum of products of level probabilities: its derivative by one of them, times
    the probability, is an expected number of persons.
    """
    log_lambda = draw["log_lambda"] + mask[:, None]
    joint = joint_probability(draw["log_omega"], draw["log_phi"], data.member)
    of_household = household_probability(log_lambda, data.household)
    log_size = draw["log_pi"] + log_lambda[data.household.size_rows]
    log_p, (by_joint, by_household) = jax.value_and_grad(log_possible_of, argnums=(1, 2))(
        log_size, joint, of_household, data.tables, data.is_head
    )
    return log_p + jnp.log(jnp.maximum(by_household if heads else by_joint, 0))
