"""Exact probability that a household is possible, for rules that are tables."""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from bnp_models.kernels.nested.judges import Compositions, HeadTables
from bnp_models.kernels.nested.parameters import Variables, times_levels


@jax.named_scope("log_possible")
def log_possible(
    log_pi: Float[Array, " F"],
    log_omega: Float[Array, "F S"],
    log_lambda: Float[Array, "Q F"],
    log_phi: Float[Array, "R G S"],
    rules: HeadTables,
    household: Variables,
    member: Variables,
    is_head: Bool[Array, " levels"] | None,
) -> Float[Array, ""]:
    """Exact log P(possible) of a household, summed over sizes and classes.

    Parameters
    ----------
    log_pi, log_omega, log_lambda, log_phi
        Log weights of the classes, and level probabilities.
    rules
        Rules as tables, with their compositions.
    household, member
        Numbers of levels of household and member variables, and which of them rules read.
    is_head
        Whether each joint level of a member means head; None if no member is the head.

    Raises
    ------
    ValueError
        If the tables have no compositions.

    Notes
    -----
    Given the class, the household's level b and the head a, other members are independent. With w_k
    the probability that a member has kind k and fits the head, m members are allowed with
    probability sum m! prod w_k^{n_k} / n_k!, where the sum is over the allowed compositions.
    """
    allowed = rules.compositions
    if allowed is None:
        raise ValueError("log_possible: these rules have too many compositions to go through")
    joint = _joint_probability(log_omega, log_phi, member)
    of_household = _household_probability(log_lambda, household)
    of_head = _head_probability(joint, rules, is_head)
    good = rules.head_ok[:, :, None] * of_head * of_household[:, None]
    of_size = jnp.exp(log_pi + log_lambda[household.size_rows])
    if is_head is not None:
        of_size = of_size * allowed.places[:, None]
    total = _sum_of_compositions(allowed, joint, of_size, good.shape)
    return jnp.log(jnp.sum(good * total))


def _household_probability(log_lambda, household):
    """(B, F) probability of each joint level of the variables that rules use, by class."""
    one = jnp.ones_like(log_lambda[:1])
    return times_levels(one, jnp.exp(log_lambda), household.num_levels, household.read)


def _head_probability(joint, rules, is_head):
    """(A, F) probability of each head, by class; 1 if no member is the head."""
    if is_head is None:
        return jnp.ones((1, joint.shape[1]), joint.dtype)
    empty = jnp.zeros((rules.head_ok.shape[1], joint.shape[1]), joint.dtype)
    return empty.at[rules.head_index].add(jnp.where(is_head[:, None], joint, 0))


def _sum_of_compositions(allowed: Compositions, joint, of_size, shape):
    """Probability of a size and of allowed other members, given household, head and class."""
    fits = jnp.stack([
        jnp.matmul(matrix, joint[levels], precision=lax.Precision.HIGHEST)[row]
        for levels, matrix, row in zip(allowed.levels, allowed.fits, allowed.row, strict=True)
    ])  # fmt: skip
    powers = [jnp.ones_like(fits)]
    for _ in range(allowed.most):
        powers.append(powers[-1] * fits)
    power = jnp.stack(powers)

    def add(c, total):
        product = jnp.broadcast_to(allowed.ways[c] * of_size[allowed.size[c]], total.shape)
        for k in range(len(fits)):
            product = product * power[allowed.counts[c, k], k]
        return total + product

    return lax.fori_loop(0, allowed.size.size, add, jnp.zeros(shape, joint.dtype))


def _joint_probability(log_omega, log_phi, member):
    """(R, F) probability of each joint level of the variables that rules use, by household class.

    The sum over member classes is a product of two tables, of sizes that are as equal as the order
    of variables allows.
    """
    sizes = [member.num_levels[j] for j in member.read]
    cut = min(range(len(sizes) + 1), key=lambda i: math.prod(sizes[:i]) + math.prod(sizes[i:]))
    omega, phi = jnp.exp(log_omega)[None], jnp.exp(log_phi)
    first = times_levels(omega, phi, member.num_levels, member.read[:cut])
    second = times_levels(jnp.ones_like(omega), phi, member.num_levels, member.read[cut:])
    joint = jnp.einsum("afs,bfs->fab", first, second, precision=lax.Precision.HIGHEST)
    return joint.reshape(log_omega.shape[0], -1).T
