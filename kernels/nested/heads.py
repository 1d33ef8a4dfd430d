"""Households with another number of heads than one, and the probability of a possible household."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.nested.judges import HeadTables
from bnp_models.kernels.nested.parameters import (
    Augmented,
    Levels,
    Tables,
    log_class_weight,
    log_class_weights,
)
from bnp_models.kernels.nested.simulation import MAX_COUNTED
from bnp_models.kernels.variates.discrete import poisson, split_counts
from bnp_models.kernels.variates.gamma import loggamma_from_one


def add_other_heads(
    key: Key[Array, ""],
    augmented: Augmented,
    tables: Tables,
    log_size: Float[Array, "H F"],
    sizes: tuple[int, ...],
    with_one: Int[Array, ""],
    household: Levels,
) -> tuple[Augmented, Int[Array, ""]]:
    """Add households without a head, or with several, given how many there are with one.

    Parameters
    ----------
    key
        Used once.
    augmented, tables, log_size, sizes
        As for `add_simulated`.
    with_one
        Households with exactly one head up to the last possible one, T.

    Returns
    -------
    augmented
        Counts, these households added.
    number
        How many; -1 where there are too many to be counted, and none is added.
    """
    key_g, key_count, key_nested = jax.random.split(key, 3)
    slices = [(i, t) for i, size in enumerate(sizes) for t in range(size + 1) if t != 1]
    of_size, heads = np.array(slices, int).reshape(-1, 2).T
    log_slice = jnp.stack([
        log_class_weight(tables, log_size[i], sizes[i], t) for i, t in slices
    ])  # fmt: skip
    log_one = jax.nn.logsumexp(log_class_weights(tables, log_size, sizes, True))
    log_g = loggamma_from_one(key_g, with_one.astype(log_one.dtype)) - log_one
    counts = poisson(key_count, jnp.exp(log_g + log_slice))
    # All or nothing: counts that int32 cannot hold are left out, and said to be.
    members = np.array(sizes)[of_size]
    total = jnp.sum(counts.astype(log_one.dtype) * members[:, None])
    failed = jnp.any(counts < 0) | (total > MAX_COUNTED)
    counts = jnp.where(failed, 0, counts)
    by_kind = np.stack([members - heads, heads])
    of_kind = jnp.sum(counts * jnp.asarray(by_kind, jnp.int32)[:, :, None], axis=1)
    nested = split_counts(key_nested, of_kind, tables.nested_weight)
    number = jnp.zeros((len(sizes), counts.shape[1]), jnp.int32).at[of_size].add(counts)
    levels = augmented.household_levels.at[household.size_rows].add(number)
    augmented = augmented._replace(
        households=augmented.households + jnp.sum(counts, axis=0),
        household_levels=levels,
        members=augmented.members + jnp.sum(nested, axis=0),
        unread=augmented.unread + nested,
    )
    return augmented, jnp.where(failed, -1, jnp.sum(number))


def log_possible(
    log_pi: Float[Array, " F"],
    log_omega: Float[Array, "F S"],
    log_lambda: Float[Array, "Q F"],
    log_phi: Float[Array, "R F S"],
    rules: HeadTables,
    household: Levels,
    member: Levels,
    head_apart: Bool[Array, " J"] | None,
) -> Float[Array, ""]:
    """Exact log P(possible) of a household, sizes and classes summed out.

    Parameters
    ----------
    log_pi, log_omega, log_lambda, log_phi
        Log weights of the classes, and level probabilities.
    rules
        Tables with compositions.
    head_apart
        Which joint levels of a member are a head's; None where no member is the head.

    Notes
    -----
    Given the class, the household's level b and the head a, other members are independent: with
    w_k their probability of being of kind k and fitting the head, m of them are allowed with
    probability sum m! prod w_k^{n_k} / n_k! over the allowed compositions.
    """
    num_classes = log_pi.size
    allowed = rules.compositions
    joint = _joint_probability(log_omega, log_phi, member)
    of_household = jnp.ones((1, num_classes), joint.dtype)
    for k in household.read:
        own = jnp.exp(household.block(log_lambda, k))
        of_household = (of_household[:, None] * own).reshape(-1, num_classes)
    fits = jnp.stack([
        jnp.matmul(matrix, joint[levels], precision=lax.Precision.HIGHEST)[row]
        for levels, matrix, row in zip(allowed.levels, allowed.fits, allowed.row, strict=True)
    ])  # fmt: skip
    if head_apart is None:
        of_head = jnp.ones((1, num_classes), joint.dtype)
    else:
        heads = rules.head_ok.shape[1]
        of_head = (
            jnp.zeros((heads, num_classes), joint.dtype)
            .at[rules.head_index]
            .add(jnp.where(head_apart[:, None], joint, 0))
        )
    good = rules.head_ok[:, :, None] * of_head * of_household[:, None]
    of_size = jnp.exp(log_pi + log_lambda[household.size_rows])
    if head_apart is not None:
        of_size = of_size * allowed.places[:, None]
    powers = [jnp.ones_like(fits)]
    for _ in range(allowed.most):
        powers.append(powers[-1] * fits)
    powers = jnp.stack(powers)

    def add(c, total):
        product = jnp.broadcast_to(allowed.ways[c] * of_size[allowed.size[c]], total.shape)
        for k in range(len(fits)):
            product = product * powers[allowed.counts[c, k], k]
        return total + product

    total = lax.fori_loop(0, allowed.size.size, add, jnp.zeros_like(good))
    return jnp.log(jnp.sum(good * total))


def _joint_probability(log_omega, log_phi, member):
    """Probability of each joint level of the variables that are read, by household class: (R, F).

    The sum over member classes is of products of two tables, as even as the order allows.
    """
    sizes = [member.num_levels[j] for j in member.read]
    cut = min(range(len(sizes) + 1), key=lambda i: math.prod(sizes[:i]) + math.prod(sizes[i:]))
    parts = []
    for read, start in ((member.read[:cut], log_omega), (member.read[cut:], None)):
        part = jnp.exp(start)[None] if start is not None else jnp.ones((1, *log_omega.shape))
        part = part.astype(log_omega.dtype)
        for j in read:
            own = jnp.exp(member.block(log_phi, j))
            part = (part[:, None] * own).reshape(-1, *part.shape[1:])
        parts.append(part)
    joint = jnp.einsum("afs,bfs->fab", *parts, precision=lax.Precision.HIGHEST)
    return joint.reshape(log_omega.shape[0], -1).T
