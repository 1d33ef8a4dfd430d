"""Moves that exchange latent classes between the positions of a stick-breaking prior."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.numerics.platforms import in_double
from bnp_models.kernels.variates.rng import Keys, uniform, uniform_index, words
from bnp_models.kernels.variates.sticks import log_tail_sums


@jax.named_scope("reorder_classes")
def reorder_classes(
    key: Key[Array, ""], log_pi: Float[Array, " K"], alpha: Float[Array, ""], num_passes: int = 2
) -> Int[Array, " K"]:
    """Draw a permutation of classes with their weights, which leaves the posterior invariant.

    Parameters
    ----------
    key
        Used once.
    log_pi
        Log weights in the present order.
    alpha
        Concentration of the sticks.
    num_passes
        Number of passes. Each tries every adjacent pair once: first all even pairs, then all odd
        pairs.

    Returns
    -------
    order
        Class that comes to each position.

    Notes
    -----
    Only the prior of the sticks depends on the order. The density of the weights is proportional to
    pi_K^(alpha - 1) / prod_{k<K} X_k, with X_k the sum of the weights from position k on.
    Exchanging positions k and k + 1 < K changes only X_{k+1}: the ratio is (pi_{k+1} + T) / (pi_k +
    T), where T is the sum of the weights after position k + 1. For the last pair it is (pi_{K-1} /
    pi_K)^(alpha - 1). Papaspiliopoulos & Roberts (2008), doi:10.1093/biomet/asm086.
    """
    num_classes = log_pi.size
    log_u = jnp.log(uniform(words(key, (2 * num_passes, num_classes)), log_pi.dtype.type))
    position = jnp.arange(num_classes)

    def half(step, carry):
        order, log_pi = carry
        first = step % 2
        log_tail = log_tail_sums(log_pi)
        behind = jnp.append(log_tail[2:], jnp.full(2, -jnp.inf, log_pi.dtype))
        following = jnp.append(log_pi[1:], -jnp.inf)
        log_ratio = jnp.logaddexp(following, behind) - jnp.logaddexp(log_pi, behind)
        last = (alpha - 1) * (log_pi - following)
        log_ratio = jnp.where(position == num_classes - 2, last, log_ratio)
        leads = (position % 2 == first) & (position < num_classes - 1)
        swap = leads & (log_u[step] < log_ratio)
        source = jnp.where(swap, position + 1, position)
        source = jnp.where(jnp.roll(swap, 1), position - 1, source)
        return order[source], log_pi[source]

    return lax.fori_loop(0, 2 * num_passes, half, (position, log_pi))[0]


@jax.named_scope("swap_classes")
def swap_classes(
    key: Key[Array, ""],
    log_pi: Float[Array, " K"],
    log_mass: Float[Array, " K"],
    class_counts: Int[Array, " K"],
    num_pairs: int = 8,
) -> Int[Array, " K"]:
    """Exchange the levels and members of random pairs of classes; the weights do not move.

    Parameters
    ----------
    key
        Used once.
    log_pi, log_mass, class_counts
        Log weights, log feasible masses, observed members.
    num_pairs
        Number of pairs, which are tried one after the other.

    Returns
    -------
    order
        Class whose levels and members come to each position.

    Notes
    -----
    The target ratio of exchanging the classes at positions a and b, which have n_a and n_b of the n
    records, is (pi_b / pi_a)^(n_a - n_b) (P / P')^n. P = sum_k pi_k F_k is the feasible probability
    before the exchange, with F_k the feasible mass of class k, and P' that after it.
    """
    dtype = log_pi.dtype
    key_pair, key_accept = Keys(key)
    num_classes = log_pi.size
    pair = uniform(words(key_pair, (2, num_pairs)), dtype.type)
    first = uniform_index(pair[0], num_classes)
    offset = uniform_index(pair[1], num_classes - 1)
    second = (first + 1 + offset) % num_classes
    log_u = jnp.log(uniform(words(key_accept, (num_pairs,)), dtype.type))

    def attempt(i, order):
        a, b = first[i], second[i]
        swapped = order.at[a].set(order[b]).at[b].set(order[a])

        def ratio(log_pi, log_mass):
            return log_swap_ratio(log_pi, log_mass, class_counts, order, swapped, a, b)

        # log P is multiplied by n: in single precision, with a million records, the error would be
        # a quarter of a nat.
        log_ratio = in_double(ratio, log_pi, log_mass)
        return jnp.where(log_u[i] < log_ratio, swapped, order)

    return lax.fori_loop(0, num_pairs, attempt, jnp.arange(num_classes))


def log_swap_ratio(
    log_pi: Float[Array, " K"],
    log_mass: Float[Array, " K"],
    class_counts: Int[Array, " K"],
    order: Int[Array, " K"],
    swapped: Int[Array, " K"],
    a: Int[Array, ""],
    b: Int[Array, ""],
) -> Float[Array, ""]:
    """Log target after minus before exchanging the classes at a and b."""
    members = class_counts.astype(log_pi.dtype)
    growth = jax.nn.logsumexp(log_pi + log_mass[swapped])
    growth -= jax.nn.logsumexp(log_pi + log_mass[order])
    difference = members[order[a]] - members[order[b]]
    return difference * (log_pi[b] - log_pi[a]) - jnp.sum(members) * growth
