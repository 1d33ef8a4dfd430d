"""Probabilities of changed households under each draw of NDPMPM."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.kernels.attack.importance import log_neighbours
from bnp_models.kernels.numerics.counting import first_rows


class CodedHouseholds(NamedTuple):
    """A households of one size that are attacked, or whose members are, in the model's codes."""

    household_rows: jax.Array
    """(A, q) row of lambda of each household's level of each variable, without the size."""
    member_rows: jax.Array
    """(A, h, p) row of phi of each member's level of each variable."""
    place: jax.Array
    """(A,) the member that changes, if only one does."""
    by_pattern: tuple[tuple[jax.Array, jax.Array], ...]
    """For each set of variables that may be relative to the head's: (A, h, p) row of phi of each
    member's levels, and (A, R) row of phi of each level of a member; empty if codes are levels."""
    pattern: jax.Array | None
    """(A, h, R) set of variables that are relative for each member with each level changed."""
    by_head: tuple[jax.Array, ...]
    """(A, h, L) code of each member's level for each level of the head, by relative variable."""


def _log_member_sums(log_omega, log_phi, member_rows):
    """(A, h, F) log probability of every member given the household's class."""
    inner = log_omega
    for v in range(member_rows.shape[2]):
        inner = inner + log_phi[member_rows[:, :, v]]
    return jax.nn.logsumexp(inner, axis=-1)


def _log_by_head(draw, log_weight, household_rows, member_rows, pair, codes, num_levels):
    """(A, L) log probability of each household with another level of its head.

    Parameters
    ----------
    log_weight
        (A, F) log weights of the classes, without household variables and members.
    pair
        The variable, which is coded relative to the head.
    codes
        (A, h, L) codes of the members' levels, for each level of the head.
    """
    log_lambda, log_phi = draw["log_lambda"], draw["log_phi"]
    for k in range(household_rows.shape[1]):
        if k != pair.household:
            log_weight = log_weight + log_lambda[household_rows[:, k]]
    start = first_rows(num_levels[0])[pair.household]
    log_head = log_lambda[start : start + pair.num_levels]
    others = draw["log_omega"]
    for v in range(member_rows.shape[2]):
        if v != pair.member:
            others = others + log_phi[member_rows[:, :, v]]
    others = jnp.broadcast_to(others, (*member_rows.shape[:2], *others.shape[-2:]))
    log_phi = jnp.broadcast_to(log_phi, (len(log_phi), *others.shape[-2:]))
    start = first_rows(num_levels[1])[pair.member]
    top = jnp.max(others, axis=3, keepdims=True)
    mass = jnp.einsum(
        "ahfs,lfs->ahfl",
        jnp.exp(others - top),
        jnp.exp(log_phi[start : start + pair.num_levels]),
        precision=jax.lax.Precision.HIGHEST,
    )
    by_code = jnp.log(jnp.maximum(mass, jnp.finfo(mass.dtype).tiny)) + top
    of_members = jnp.take_along_axis(by_code, codes[:, :, None], axis=3)
    log_p = log_weight[:, :, None] + log_head.T + jnp.sum(of_members, axis=1)
    return jax.nn.logsumexp(log_p, axis=1)


@partial(jax.jit, static_argnames=("size", "num_levels", "part", "columns", "pairs"))
def log_household_ratios(
    draws,
    households: CodedHouseholds,
    *,
    size,
    num_levels,
    part,
    columns,
    pairs,
):
    """Log ratio of the probability of each changed household to that of the unchanged household.

    Parameters
    ----------
    draws
        Parameters of the draws.
    households
        The households.
    size
        Position of the households' size among all sizes; static.
    num_levels
        Levels of the household's and of the members' variables; static.
    part
        Part of the household that changes: "all", a "member" or the "head"; static.
    columns
        Changes of the household's variables that are evaluated; None: all; static.
    pairs
        Variables that are coded relative to the head; static.

    Returns
    -------
    log_ratio
        (A, W, draws).
    """
    household_rows, member_rows, place, by_pattern, pattern, by_head = households
    last = sum(num_levels[0])

    def one(draw):
        log_lambda = draw["log_lambda"]
        of_members = _log_member_sums(draw["log_omega"], draw["log_phi"], member_rows)
        log_weight = draw["log_pi"] + log_lambda[last + size]
        without_household = log_weight + jnp.sum(of_members, axis=1)
        total = without_household
        for k in range(household_rows.shape[1]):
            total = total + log_lambda[household_rows[:, k]]
        log_p = []
        if part != "member" and num_levels[0]:
            by_household = log_neighbours(
                without_household, log_lambda[:last], household_rows, num_levels[0]
            )
            for pair, codes in zip(pairs, by_head, strict=True):
                start = first_rows(num_levels[0])[pair.household]
                by_household = by_household.at[:, start : start + pair.num_levels].set(
                    _log_by_head(
                        draw, log_weight, household_rows, member_rows, pair, codes, num_levels
                    )
                )
            log_p.append(by_household if columns is None else by_household[:, np.array(columns)])
        if part != "head" and member_rows.shape[1]:
            at = None if part == "all" else place[:, None, None]
            coded = by_pattern or ((member_rows, None),)
            by_member = [
                _log_by_member(draw, total, of_members, *one, at, num_levels[1]) for one in coded
            ]
            if len(by_member) > 1:
                chosen = pattern if at is None else jnp.take_along_axis(pattern, at, axis=1)
                by_member = [jnp.take_along_axis(jnp.stack(by_member), chosen[None], axis=0)[0]]
            log_p.append(by_member[0].reshape(len(member_rows), -1))
        log_truth = jax.nn.logsumexp(total, axis=1)
        return jnp.concatenate(log_p, axis=1) - log_truth[:, None]

    with jax.named_scope("weights_of_candidates"):
        return jnp.moveaxis(jax.lax.map(one, draws), 0, -1)


def _log_by_member(draw, total, of_members, member_rows, level_rows, place, num_levels):
    """(A, members, R) log probability of each household with another level of one member.

    Parameters
    ----------
    total
        (A, F) log weights of the classes, given the household's variables and all members.
    of_members
        (A, h, F) factor of each member in these, as a logarithm.
    member_rows, level_rows
        Rows of phi of the members' levels and of all levels, as in `CodedHouseholds.by_pattern`.
    place
        (A, 1, 1) the member that changes; None: each member in turn.
    """
    log_omega, log_phi = draw["log_omega"], draw["log_phi"]
    if place is not None:
        member_rows = jnp.take_along_axis(member_rows, place, axis=1)
        of_members = jnp.take_along_axis(of_members, place, axis=1)
    num_records, _, num_variables = member_rows.shape
    weight = (total[:, None] - of_members)[..., None] + log_omega
    log_p = log_neighbours(
        weight.reshape(-1, log_omega.size),
        jnp.broadcast_to(log_phi, (len(log_phi), *log_omega.shape)).reshape(-1, log_omega.size),
        member_rows.reshape(-1, num_variables),
        num_levels,
    ).reshape(num_records, -1, sum(num_levels))
    if level_rows is not None:
        log_p = jnp.take_along_axis(log_p, level_rows[:, None], axis=2)
    return log_p
