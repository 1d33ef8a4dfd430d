"""Updates of Dirichlet-process concentrations, and of the rate of their prior.

Given the tables, they are Gibbs updates, by data augmentation where a conditional is not a gamma
distribution. If the sample is truncated, or the labels of some records are summed out, they are
Metropolis steps: random walks on the logarithm.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.numerics.counting import order_free_sum
from bnp_models.kernels.variates.gamma import gamma_variate, logbeta
from bnp_models.kernels.variates.rng import Keys, normal, uniform, uniform_index, word_pair, words

# Standard deviations of the steps of a random walk on a logarithm, which are tried in this order.
_SCALES = (1.0, 0.3, 0.1, 0.03)


class GammaPrior(NamedTuple):
    """A gamma prior."""

    shape: Float[Array, ""] | float
    """Shape."""
    rate: Float[Array, ""] | float
    """Rate."""


class SummedOut(NamedTuple):
    """Records whose labels are summed out, grouped by distinct cell."""

    log_totals: Float[Array, "B C"]
    """Log of the sum over seatings of each cell at 1..B tables (`seating.log_totals_by_tables`)."""
    records: Float[Array, " C"]
    """Number of these records of each cell."""


@jax.named_scope("dp_concentration")
def dp_concentration(
    key: Key[Array, ""],
    alpha0: Float[Array, ""],
    num_components: Int[Array, ""],
    num_items: Int[Array, ""],
    shape: Float[Array, ""] | float,
    rate: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Draw alpha_0 given K components among m items, with the weights integrated out.

    Parameters
    ----------
    key
        Used once.
    alpha0
        Current value, of prior Ga(shape, rate).
    num_components, num_items
        K, the components that have an item, and m >= 1; for an HDP the items are the tables.

    Notes
    -----
    Escobar & West (1995), doi:10.1080/01621459.1995.10476550: eta ~ Beta(alpha_0 + 1, m), s ~
    Bernoulli(m r / (K + shape - 1 + m r)) with r = rate - log eta, alpha_0 ~ Ga(shape + K - s, r).
    The weights must be drawn again before they are used.
    """
    dtype = alpha0.dtype
    key_eta, key_s, key_alpha = Keys(key, 3)
    m, k = num_items.astype(dtype), num_components.astype(dtype)
    r = rate - logbeta(key_eta, alpha0 + 1, m)[0]
    u = uniform(words(key_s, ()), dtype.type)
    s = u * (k + shape - 1 + m * r) < m * r
    return gamma_variate(key_alpha, shape + k - s, r)


@jax.named_scope("record_concentrations")
def record_concentrations(
    key: Key[Array, ""],
    alpha: Float[Array, " n"],
    num_tables: Int[Array, " n"],
    num_items: int,
    shape: Float[Array, ""] | float,
    rate: Float[Array, ""] | float,
) -> Float[Array, " n"]:
    """Draw alpha_i of every record given its number of tables m_i among its J items.

    Parameters
    ----------
    key
        Used once.
    alpha
        Current values, of prior Ga(shape, rate).
    num_tables, num_items
        m_i and J.

    Notes
    -----
    The conditional is alpha^(shape + m - 2) e^(-rate alpha) / prod_{t=1}^{J-1} (alpha + t). With
    -log eta = sum of J - 1 exponentials of rates alpha + t, that is eta ~ Beta(alpha + 1, J - 1),
    alpha ~ Ga(shape + m - 1, rate - log eta): this is the augmentation of Teh et al. without the
    Bernoulli variable.
    """
    if num_items == 1:
        return gamma_variate(key, jnp.broadcast_to(shape, alpha.shape), rate)
    dtype = alpha.dtype
    key_eta, key_alpha = Keys(key)
    log_eta, _ = logbeta(key_eta, alpha + 1, jnp.asarray(num_items - 1, dtype))
    return gamma_variate(key_alpha, shape + (num_tables - 1).astype(dtype), rate - log_eta)


@jax.named_scope("shared_concentration")
def shared_concentration(
    key: Key[Array, ""],
    alpha: Float[Array, ""],
    num_tables: Int[Array, ""],
    num_records: Int[Array, ""],
    num_items: int,
    shape: Float[Array, ""] | float,
    rate: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Draw the shared alpha of all records, given their total number of tables.

    Parameters
    ----------
    key
        Used once.
    alpha
        Current value, of prior Ga(shape, rate).
    num_tables, num_records, num_items
        m, n and J.

    Notes
    -----
    The conditional is alpha^(shape + m - n - 1) e^(-rate alpha) prod_{t=1}^{J-1} (alpha + t)^(-n)
    for n records of J items and m tables: y_t ~ Ga(n, alpha + t) augments each factor, and
    alpha ~ Ga(shape + m - n, rate + sum_t y_t). The cost does not depend on n.
    """
    dtype = alpha.dtype
    key_y, key_alpha = Keys(key)
    extra_tables = (num_tables - num_records).astype(dtype)
    if num_items == 1:
        return gamma_variate(key_alpha, shape + extra_tables, rate)
    t = jnp.arange(1, num_items, dtype=dtype)
    y = gamma_variate(key_y, jnp.broadcast_to(num_records.astype(dtype), t.shape), alpha + t)
    return gamma_variate(key_alpha, shape + extra_tables, rate + jnp.sum(y))


@jax.named_scope("gamma_rate")
def gamma_rate(
    key: Key[Array, ""],
    sum_alpha: Float[Array, ""],
    num_records: Int[Array, ""],
    alpha_shape: Float[Array, ""] | float,
    shape: Float[Array, ""] | float,
    rate: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Draw b | alpha_1..alpha_n ~ Ga(shape + n a, rate + sum alpha_i) for alpha_i ~ Ga(a, b)."""
    return gamma_variate(
        key, shape + num_records.astype(sum_alpha.dtype) * alpha_shape, rate + sum_alpha
    )


@jax.named_scope("truncated_shared_concentration")
def truncated_shared_concentration(
    key: Key[Array, ""],
    alpha: Float[Array, ""],
    num_tables: Int[Array, ""],
    num_records: Int[Array, ""],
    num_items: int,
    shape: Float[Array, ""] | float,
    rate: Float[Array, ""] | float,
    log_growth: Callable[[Float[Array, ""], Float[Array, ""]], Float[Array, ""]],
) -> Float[Array, ""]:
    """Draw the shared alpha of all records of a truncated sample, without augmented records.

    Parameters
    ----------
    key, alpha, num_tables, num_records, num_items, shape, rate
        As for `shared_concentration`.
    log_growth
        Function of an old and a new alpha: log ratio of P(F) under the new one to P(F) under the
        old one, at the current weights and level probabilities.

    Notes
    -----
    The conditional is that of `shared_concentration` divided by P_alpha(F)^n. It is sampled by
    Metropolis steps on log alpha; the ratio is computed from differences, so that no large terms
    cancel in float32.
    """
    dtype = alpha.dtype
    n = num_records.astype(dtype)
    extra_tables = (num_tables - num_records).astype(dtype)
    t = jnp.arange(1, num_items, dtype=dtype)

    def log_ratio(old, new):
        rising = jnp.sum(jnp.log1p((new - old) / (old + t)))
        return (shape + extra_tables) * log_quotient(new, old) - rate * (new - old) - n * rising

    return _truncated_walk(key, alpha, n, log_ratio, log_growth)


@jax.named_scope("seatless_shared_concentration")
def seatless_shared_concentration(
    key: Key[Array, ""],
    alpha: Float[Array, ""],
    summed_out: SummedOut,
    num_tables: Int[Array, ""],
    num_records: Int[Array, ""],
    num_items: int,
    prior: GammaPrior,
    log_growth: Callable[[Float[Array, ""], Float[Array, ""]], Float[Array, ""]] | None = None,
) -> Float[Array, ""]:
    """Draw the shared alpha of all records, with the labels of some records summed out.

    Parameters
    ----------
    key
        Used once.
    alpha
        Current value.
    summed_out
        Records whose labels are summed out.
    num_tables, num_records
        Number of tables and of records of the other records.
    num_items
        Number J of items of a record.
    prior
        Prior of alpha.
    log_growth
        As for `truncated_shared_concentration`; None: the sample is not truncated.

    Notes
    -----
    The conditional is that of `shared_concentration` for the other records, multiplied, for each
    record that is summed out, by the sum over B of alpha^B / (alpha)_J exp(log_totals_B), and
    divided by P_alpha(F)^n with n all records. It is sampled by Metropolis steps on log alpha. All
    labels that are summed out must be drawn again given alpha before they are used.
    """
    dtype = alpha.dtype
    log_totals, records_of_cell = summed_out
    n = jnp.sum(records_of_cell) + num_records.astype(dtype)
    extra_tables = (num_tables - num_records).astype(dtype)
    t = jnp.arange(1, num_items, dtype=dtype)
    more_tables = jnp.arange(len(log_totals), dtype=dtype)[:, None]

    def log_ratio(old, new):
        step = log_quotient(new, old)
        rising = jnp.sum(jnp.log1p((new - old) / (old + t)))
        share = jax.nn.softmax(log_totals + more_tables * jnp.log(old), axis=0)
        gain = jnp.log1p(jnp.sum(share * jnp.expm1(more_tables * step), axis=0))
        # The gains of all cells have the sign of the step, so that their sum does not cancel.
        sign = jnp.sign(step)
        gains = sign * order_free_sum(
            jnp.where(records_of_cell > 0, sign * gain, 0) * records_of_cell
        )
        own = (prior.shape + extra_tables) * step - prior.rate * (new - old)
        return own + gains - n * rising

    return _truncated_walk(key, alpha, n, log_ratio, log_growth)


@jax.named_scope("truncated_gamma_rate")
def truncated_gamma_rate(
    key: Key[Array, ""],
    b: Float[Array, ""],
    sum_alpha: Float[Array, ""],
    num_records: Int[Array, ""],
    alpha_shape: Float[Array, ""] | float,
    shape: Float[Array, ""] | float,
    rate: Float[Array, ""] | float,
    log_growth: Callable[[Float[Array, ""], Float[Array, ""]], Float[Array, ""]],
) -> Float[Array, ""]:
    """Draw b for a truncated sample, from the conditional of `gamma_rate` divided by P_b(F)^n.

    It uses Metropolis steps; `log_growth` is as for `truncated_shared_concentration`, for b.
    """
    n = num_records.astype(sum_alpha.dtype)
    total = shape + n * alpha_shape

    def log_ratio(old, new):
        return total * log_quotient(new, old) - (rate + sum_alpha) * (new - old)

    return _truncated_walk(key, b, n, log_ratio, log_growth, unit=10 * lax.rsqrt(total))


@jax.named_scope("rescale_concentrations")
def rescale_concentrations(
    key: Key[Array, ""],
    alpha: Float[Array, " n"],
    rate: Float[Array, ""],
    num_tables: Int[Array, " n"],
    weight: Int[Array, " n"],
    num_items: int,
    prior: GammaPrior,
    log_growth: Callable[[Float[Array, ""], Float[Array, ""]], Float[Array, ""]] | None = None,
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """Multiply all alpha_i by c and divide their prior's rate by c, in a Metropolis-Hastings step.

    Given b, the updates of the alpha_i hardly change their common size, and neither does the update
    of b given them. This step changes both together.

    Parameters
    ----------
    key
        Used once.
    alpha, rate
        Concentrations, and b of their prior Ga(a, b).
    num_tables, weight
        Number of tables of each record; 1 for a record, 0 for padding.
    num_items
        Number J of items of a record.
    prior
        b's prior Ga(a1, b1).
    log_growth
        As for `truncated_shared_concentration`, for b, if the sample is truncated.

    Notes
    -----
    alpha_i b does not change, and therefore the prior of the alpha_i changes only by the Jacobian.
    """
    dtype = alpha.dtype
    first, second = word_pair(key, (2,))
    u = uniform(first, dtype.type)
    n = jnp.sum(weight).astype(dtype)
    scale = jnp.asarray(_SCALES, dtype)[uniform_index(u[0], len(_SCALES))]
    s = scale * normal(second, dtype.type)[0]
    new_rate = rate * jnp.exp(-s)
    t = jnp.arange(1, num_items, dtype=dtype)[:, None]
    rising = jnp.sum(jnp.log1p(jnp.expm1(s) * alpha / (alpha + t)), axis=0) * weight
    extra_tables = jnp.sum((num_tables - 1) * weight).astype(dtype)
    # The terms of `rising` all have the sign of s, so that their sum does not cancel.
    log_accept = (
        (extra_tables - prior.shape) * s
        - prior.rate * (new_rate - rate)
        - jnp.sign(s) * order_free_sum(jnp.abs(rising))
    )
    if log_growth is not None:
        log_accept -= n * log_growth(rate, new_rate)
    accept = jnp.log(u[1]) < log_accept
    return jnp.where(accept, alpha * jnp.exp(s), alpha), jnp.where(accept, new_rate, rate)


def _truncated_walk(key, x, num_records, log_ratio, log_growth, unit=1.0):
    """Make random-walk steps on log x; `log_ratio` is the log density ratio without P(F)."""
    dtype = x.dtype
    first, second = word_pair(key, (len(_SCALES),))
    step = unit * jnp.asarray(_SCALES, dtype) * normal(first, dtype.type)
    log_u = jnp.log(uniform(second, dtype.type))

    def attempt(i, x):
        proposal = x * jnp.exp(step[i])
        log_accept = log_ratio(x, proposal)
        if log_growth is not None:
            log_accept -= num_records * log_growth(x, proposal)
        return jnp.where(log_u[i] < log_accept, proposal, x)

    return lax.fori_loop(0, len(_SCALES), attempt, x)


def log_quotient(new: Float[Array, ""], old: Float[Array, ""]) -> Float[Array, ""]:
    """log(new / old), precise if both are close, when a quotient would be rounded to 6e-8.

    With a million tables this error would be multiplied by a million.
    """
    change = (new - old) / old
    return jnp.where(jnp.abs(change) < 0.5, jnp.log1p(change), jnp.log(new / old))
