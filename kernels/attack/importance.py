"""Importance weights over posterior draws, for a record with one changed value.

The draws come from the posterior given all records. Weights f(x | theta) / f(x_i | theta) turn them
into draws of the posterior given the records with x in the place of x_i (Hu, Reiter & Wang 2014,
doi:10.1007/978-3-319-11257-2_15; Manrique-Vallier & Hu 2018, doi:10.1111/rssa.12352, appendix). All
quantities are logarithms. Sums over draws are computed for blocks of consecutive draws, so that a
bootstrap can draw whole blocks.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from bnp_models.kernels.numerics.counting import first_rows

# Below this value a ratio of variance to mean is expanded in a series.
_SERIES_BELOW = 0.05


@jax.named_scope("log_neighbours")
def log_neighbours(
    log_weight: Float[Array, "#B K"],
    log_levels: Float[Array, "R K"],
    rows: Int[Array, "B J"],
    num_levels: tuple[int, ...],
) -> Float[Array, "B R"]:
    """Log probability of each record with one variable at another level, classes summed out.

    Parameters
    ----------
    log_weight
        Log weights of the classes, for all records or for each.
    log_levels
        Log level probabilities, variable after variable.
    rows
        Row of each record's level of each variable.
    num_levels
        Number of levels of each variable, static.

    Returns
    -------
    log_p
        Row r is a level of variable j: log probability of the record with this level of j and its
        own levels of the other variables. The J rows of the record's own levels have the log
        probability of the record itself.
    """
    of_record = [log_levels[rows[:, j]] for j in range(len(num_levels))]
    after = [jnp.zeros((), log_weight.dtype)]
    for x in of_record[:0:-1]:
        after.append(after[-1] + x)
    log_p, before = [], log_weight
    for j, (start, size) in enumerate(zip(first_rows(num_levels), num_levels, strict=True)):
        others = before + after[len(of_record) - 1 - j]
        top = jnp.max(others, axis=1, keepdims=True)
        mass = jnp.matmul(
            jnp.exp(others - top), jnp.exp(log_levels[start : start + size]).T,
            precision=lax.Precision.HIGHEST,
        )  # fmt: skip
        mass = jnp.maximum(mass, jnp.finfo(mass.dtype).tiny)
        log_p.append(jnp.broadcast_to(jnp.log(mass) + top, (rows.shape[0], size)))
        before = before + of_record[j]
    return jnp.concatenate(log_p, axis=1)


@jax.named_scope("pareto_k")
def pareto_k(log_weight: Float[Array, "N T"], num_draws: int) -> Float[Array, " N"]:
    """Shape of the generalised Pareto distribution of the largest weights of each set.

    A weighted mean is unreliable if this is above 0.7 (with few draws: above 1 - 1 / log10(draws)).

    Parameters
    ----------
    log_weight
        Log weights up to a constant; -inf for positions without a draw.
    num_draws
        Number of draws of a set, static.

    Returns
    -------
    k
        Infinite if the tail has fewer than five weights; 0 if all weights are equal, because the
        mean is then the plain mean of all draws.

    Notes
    -----
    This is the empirical Bayes estimate of Zhang & Stephens (2009, doi:10.1198/tech.2009.08017),
    shrunk towards 0.5 with a strength of ten weights, as in Vehtari, Simpson, Gelman, Yao & Gabry
    (2024, arXiv:1507.02646) and in ArviZ.
    """
    tail = math.ceil(min(num_draws / 5, 3 * math.sqrt(num_draws)))
    if tail < 5:
        return jnp.full(log_weight.shape[:1], jnp.inf, log_weight.dtype)
    largest = lax.top_k(log_weight, tail + 1)[0]
    top = largest[:, :1]
    spread = jnp.exp(largest - top)
    # Weights of the tail in ascending order, less the largest weight below the tail.
    x = (spread[:, :-1] - spread[:, -1:])[:, ::-1]
    eps = jnp.finfo(x.dtype).eps
    number = jnp.sum(x > 0, axis=1)
    # Weights of zero, which come first, are left out.
    inside = jnp.arange(tail) >= tail - number[:, None]
    most = 30 + math.isqrt(tail)
    quarter = tail - number + jnp.maximum((number / 4 + 0.5).astype(jnp.int32), 1) - 1
    quartile = jnp.take_along_axis(x, jnp.minimum(quarter, tail - 1)[:, None], axis=1)
    grid = 1 - jnp.sqrt((30 + jnp.floor(jnp.sqrt(number)))[:, None] / (jnp.arange(most) + 0.5))
    on_grid = jnp.arange(most) < (30 + jnp.floor(jnp.sqrt(number)))[:, None]
    tiny = jnp.finfo(x.dtype).tiny
    b = grid / (3 * jnp.maximum(quartile, tiny)) + 1 / jnp.maximum(x[:, -1:], tiny)

    def mean_log(b):
        logs = jnp.where(inside[:, None], jnp.log1p(-b[:, :, None] * x[:, None]), 0)
        return jnp.sum(logs, axis=2) / jnp.maximum(number, 1)[:, None]

    k = mean_log(b)
    fit = number[:, None] * (jnp.log(-b / k) - k - 1)
    fit = jnp.where(on_grid & jnp.isfinite(fit), fit, -jnp.inf)
    weight = jax.nn.softmax(fit, axis=1)
    weight = jnp.where(weight >= 10 * eps, weight, 0)
    b_mean = jnp.sum(jnp.where(weight > 0, b * weight, 0), axis=1) / jnp.sum(weight, axis=1)
    k = mean_log(b_mean[:, None])[:, 0]
    k = (number * k + 5) / (number + 10)
    constant = largest[:, 0] == jnp.min(jnp.where(jnp.isfinite(log_weight), log_weight, jnp.inf), 1)
    return jnp.where(constant, 0, jnp.where(number > 4, k, jnp.inf))


@jax.named_scope("moment_sums")
def moment_sums(
    log_weight: Float[Array, "N blocks L"], values: Float[Array, "M blocks L"]
) -> Float[Array, "blocks N 1+2M"]:
    """Sums over the draws of each block: weights, weighted values and weighted squared values.

    Parameters
    ----------
    log_weight
        Log weights up to a constant of each set; -inf for positions without a draw.
    values
        Quantities of each draw; small numbers for positions without a draw.
    """
    return weighted_sums(log_weight, jnp.concatenate([values, values**2]))


@jax.named_scope("log_gamma_means")
def log_gamma_means(
    sums: Float[Array, "... 1+2M"], centre: Float[Array, " M"]
) -> Float[Array, "..."]:
    """Sum over files of log E(L), if -log L is gamma distributed with these weighted moments.

    Parameters
    ----------
    sums
        Sums of weights, weighted values and weighted squares, from `moment_sums`; the values are
        log L - `centre`.
    centre
        Constants that were subtracted from log L, negative.

    Returns
    -------
    log_mean
        sum_m log E(L_m) - centre_m.

    Notes
    -----
    With mean mu and variance v of -log L, shape a = mu^2 / v and rate b = mu / v give log E(L) = -a
    log(1 + 1/b) (Manrique-Vallier & Hu 2018, appendix), which is -mu + v psi(v / mu), psi(s) = (1 -
    log(1 + s) / s) / s. In this form no digits cancel, and v = 0 gives -mu.
    """
    num = centre.size
    total = jnp.maximum(sums[..., :1], jnp.finfo(sums.dtype).tiny)
    first, second = sums[..., 1 : 1 + num] / total, sums[..., 1 + num :] / total
    variance = jnp.maximum(second - first**2, 0)
    mean = jnp.maximum(-(first + centre), jnp.finfo(sums.dtype).tiny)
    return jnp.sum(first + variance * _psi(variance / mean), axis=-1)


def _psi(s):
    """Function psi of `log_gamma_means`: (1 - log(1 + s) / s) / s."""
    small = s < _SERIES_BELOW
    safe = jnp.where(small, 1, s)
    series = 0.0
    for power in range(7, 1, -1):
        series = 1 / power - s * series
    return jnp.where(small, series, (1 - jnp.log1p(safe) / safe) / safe)


@jax.named_scope("weighted_sums")
def weighted_sums(
    log_weight: Float[Array, "N blocks L"], values: Float[Array, "M blocks L"]
) -> Float[Array, "blocks N 1+M"]:
    """Sums over the draws of each block: weights and weighted values.

    The arguments are those of `moment_sums`.
    """
    top = jnp.max(log_weight, axis=(1, 2), keepdims=True)
    terms = jnp.concatenate([jnp.ones_like(values[:1]), values])
    return jnp.einsum(
        "nbl,mbl->bnm", jnp.exp(log_weight - top), terms, precision=lax.Precision.HIGHEST
    )


@jax.named_scope("ranks_of_first")
def ranks_of_first(score: Float[Array, "... N"], valid: Bool[Array, " N"]) -> Int[Array, "..."]:
    """Rank of the first entry among the valid ones (1: largest); ties favour the first entry."""
    return 1 + jnp.sum((score > score[..., :1]) & valid, axis=-1, dtype=jnp.int32)


@jax.named_scope("top_rank_p_values")
def top_rank_p_values(
    log_odds: Float[Array, "B1 N"], valid: Bool[Array, " N"], top: tuple[int, ...]
) -> tuple[Float[Array, " N"], Float[Array, " K"]]:
    """Test whether the first entry is among the k largest, given a bootstrap of all entries.

    Parameters
    ----------
    log_odds
        Differences of the entries from the first one: estimates, then each bootstrap replicate.
    valid
        Whether each entry is used.
    top
        Ranks k, static.

    Returns
    -------
    standard_error
        Standard error of each entry, from the replicates.
    p_values
        1 if there are no more than k entries.

    Notes
    -----
    Under the hypothesis at most k - 1 entries truly exceed the first. The k-th largest t = estimate
    / error is compared with the largest (replicate - estimate) / error among the entries from the
    k-th on. This is the distribution of the maximum if none of them truly exceeds the first entry
    (the least favourable case, as in White 2000, doi:10.1111/1468-0262.00152).
    """
    number = log_odds.shape[1]
    estimate, replicates = log_odds[0], log_odds[1:]
    error = jnp.std(replicates, axis=0)
    known = error > 0
    scale = jnp.where(known, error, 1)
    counts = valid.at[0].set(False)
    t = jnp.where(counts, jnp.where(known, estimate / scale, 0), -jnp.inf)
    deviation = jnp.where(counts & known, (replicates - estimate) / scale, -jnp.inf)
    order = jnp.argsort(-t)
    deviation = deviation[:, order]
    largest = lax.cummax(deviation, axis=1, reverse=True)
    p_values = []
    for k in top:
        if k > number:
            p_values.append(jnp.ones(()))
            continue
        reached = jnp.sum(largest[:, k - 1] >= t[order[k - 1]])
        p_value = (1 + reached) / log_odds.shape[0]
        p_values.append(jnp.where((t[order[k - 1]] > -jnp.inf), p_value, 1))
    return error, jnp.stack(p_values)
