"""Cell probabilities of a new record of an HDP mixed membership model, by three methods.

The record has weights g ~ Dir(alpha g_0) over K slots and values x_j ~ theta_j^{(z_j)}, z_j ~ g, so

    P(c) = E_g prod_j sum_k g_k theta_kj(c_j).

`log_cell_probability_exact` sums over set partitions and has no Monte Carlo error: the default for
up to about 12 variables. `log_cell_probability_draws` (draws shared by all cells) and
`log_cell_probability_sequential` (draws that are independent across cells; each has a smaller
variance and costs more) are unbiased for any number of variables; experiments/cell_probability
compares them.

Arrays: theta (J, L, K), rows beyond a variable's levels zero; g0 (K,), sums to one, entries may be
tiny or zero; cells (C, J), codes. Everything returns logarithms in theta's dtype, and works under
`jit`, under `vmap` over draws of (theta, g0, alpha) and inside `lax.map`, the faster of the two on
the CPU.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.numerics.platforms import by_platform
from bnp_models.kernels.numerics.set_partitions import (
    equal_chunks,
    log_partition_sums,
    log_partition_sums_by_blocks,
    scale_columns,
)
from bnp_models.kernels.variates.categorical import search_cumulative
from bnp_models.kernels.variates.gamma import log_dirichlet
from bnp_models.kernels.variates.rng import uniform_pair

MAX_VARIABLES = 14
"""Variables up to which the sum is taken: it costs 3^(J-1) / 2 multiply-adds a cell."""

_HIGHEST = lax.Precision.HIGHEST
_CELLS_AT_ONCE, _SUMS_AT_ONCE = 1024, 2**20
_DRAW_LANES = 2**18
_PARTICLE_LANES = 2**14


class CellEstimate(NamedTuple):
    """Monte Carlo estimate of cell probabilities."""

    log_p: Float[Array, " C"]
    """Logarithm of the unbiased estimate."""
    relative_se: Float[Array, " C"]
    """Standard error of the estimate over the estimate; inf where the estimate is zero."""
    log_p_halves: Float[Array, "2 C"]
    """Logarithms of the means of the first and second half of the draws."""


@jax.named_scope("log_cell_probability_exact")
def log_cell_probability_exact(
    theta: Float[Array, "J L K"],
    g0: Float[Array, " K"],
    cells: Int[Array, "C J"],
    *,
    alpha: Float[Array, ""] | float | None = None,
    log_weights: Float[Array, " J"] | None = None,
    chunk_size: int | None = None,
) -> Float[Array, " C"]:
    """Log probabilities of cells by the sum over set partitions of the variables.

    Parameters
    ----------
    theta
        Level probabilities.
    g0
        Component weights, sum one.
    cells
        Codes.
    alpha
        Concentration shared by all records. Give this or `log_weights`.
    log_weights
        log E[alpha^B / (alpha)_J] for B = 1..J blocks, from `log_block_weights_gamma` for
        alpha ~ Ga(a, b): partitions are then summed for each number of blocks apart, at about
        one and a half times the cost.
    chunk_size
        Cells that are worked on together; the working set is about 1.5 * 2^J numbers a cell. None:
        1,024, and on accelerators as many as have 2^20 numbers.

    Returns
    -------
    log_p
        -inf for cells of probability zero.

    Raises
    ------
    ValueError
        If J exceeds `MAX_VARIABLES`, not exactly one of `alpha` and `log_weights` is given, or
        `log_weights` has another shape.

    Notes
    -----
    P(c) = 1/(alpha)_J sum over partitions prod over blocks b of alpha (|b| - 1)! S_b(c),
    S_b(c) = sum_k g0_k prod_{j in b} theta_kj(c_j): the urn's partition probability (Antoniak 1974,
    doi:10.1214/aos/1176342871) with each block's label summed out, for the expectation of
    Battiston & Rimella (2024), appendix B, eq. (10). The sum is built up by subsets of variables.
    """
    alpha, log_weights = _check_exact(theta.shape[0], alpha, log_weights, theta.dtype)
    variables = np.arange(theta.shape[0])
    scaled, log_scale = scale_columns(theta, g0, theta.shape[0])

    def chunk(part):
        columns = scaled[variables, part]
        if log_weights is None:
            log_p = log_partition_sums(columns, g0, alpha)
        else:
            log_totals = log_partition_sums_by_blocks(columns, g0)
            log_p = jax.nn.logsumexp(log_totals + log_weights[:, None], axis=0)
        return log_p + jnp.sum(log_scale[variables, part], axis=1)

    if chunk_size is None:
        chunk_size = by_platform(_CELLS_AT_ONCE, max(64, _SUMS_AT_ONCE >> len(theta)))
    return _map_chunks(chunk, cells, equal_chunks(len(cells), chunk_size)[1])


def _check_exact(num_variables, alpha, log_weights, dtype):
    """Arrays of whichever of alpha and log_weights is given, once checked."""
    if num_variables > MAX_VARIABLES:
        raise ValueError(
            f"exact cell probabilities take at most {MAX_VARIABLES} variables, not "
            f"{num_variables}; use log_cell_probability_sequential"
        )
    if (alpha is None) == (log_weights is None):
        raise ValueError("give exactly one of alpha and log_weights")
    if log_weights is None:
        return jnp.asarray(alpha, dtype), None
    if log_weights.shape != (num_variables,):
        raise ValueError(
            f"log_weights has shape {log_weights.shape}, not ({num_variables},): one for each "
            "number of blocks"
        )
    return None, jnp.asarray(log_weights, dtype)


def _map_chunks(function, rows, size):
    """Join what `function` returns for chunks of `size` rows, padded with zeros."""
    num_rows, width = rows.shape
    num_chunks = -(-num_rows // size)
    padded = jnp.pad(rows, ((0, num_chunks * size - num_rows), (0, 0)))
    result = lax.map(function, padded.reshape(num_chunks, size, width))
    return jax.tree.map(
        lambda x: jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)[..., :num_rows], result
    )


def _summarise(log_values):
    """Estimate from log values (C, draws)."""
    num_cells, num_draws = log_values.shape
    top = jnp.max(log_values, axis=1)
    top = jnp.where(top > -jnp.inf, top, 0)
    value = jnp.exp(log_values - top[:, None])
    halves = jnp.mean(value.reshape(num_cells, 2, num_draws // 2), axis=2).T
    mean = jnp.mean(halves, axis=0)
    ratio = jnp.mean(value * value, axis=1) / jnp.where(mean > 0, mean * mean, 1)
    error = jnp.sqrt(jnp.maximum(ratio - 1, 0) / (num_draws - 1))
    return CellEstimate(
        jnp.log(mean) + top, jnp.where(mean > 0, error, jnp.inf), jnp.log(halves) + top
    )


def _check_draws(num_draws):
    """Raise `ValueError` unless draws come in two halves."""
    if num_draws < 2 or num_draws % 2:
        raise ValueError(
            f"the number of draws or particles must be even and positive, not {num_draws}"
        )


@jax.named_scope("log_cell_probability_draws")
def log_cell_probability_draws(
    key: Key[Array, ""],
    theta: Float[Array, "J L K"],
    g0: Float[Array, " K"],
    alpha: Float[Array, "*T"] | float,
    cells: Int[Array, "C J"],
    num_draws: int,
) -> CellEstimate:
    """Cell probabilities as means over draws of g that all cells share: unbiased.

    Parameters
    ----------
    key
        Used once.
    theta, g0, cells
        As in `log_cell_probability_exact`.
    alpha
        Concentration, one for all draws or one for each (drawn by the caller from its prior).
    num_draws
        T, even.

    Raises
    ------
    ValueError
        If `num_draws` is not even.

    Notes
    -----
    p_t = prod_j (g_t . theta_j)[c_j], g_t ~ Dir(alpha_t g0) (Battiston & Rimella 2024, appendix B).
    Errors of different cells are correlated. `relative_se` misses what no draw has met: it is at
    most one, and near one the estimate rests on a single draw and is too low more often than not.
    """
    _check_draws(num_draws)
    dtype = theta.dtype
    concentration = jnp.broadcast_to(jnp.asarray(alpha, dtype), (num_draws,))[:, None] * g0
    g = jnp.exp(log_dirichlet(key, concentration))
    log_level = jnp.log(jnp.einsum("jlk,tk->jlt", theta, g, precision=_HIGHEST))

    def chunk(part):
        # Rows of T contiguous numbers: three quarters of the time of a one-hot contraction.
        log_value = sum(log_level[j, part[:, j]] for j in range(theta.shape[0]))
        return _summarise(log_value)

    return _map_chunks(chunk, cells, max(1, min(_DRAW_LANES // num_draws, len(cells))))


@jax.named_scope("log_cell_probability_sequential")
def log_cell_probability_sequential(
    key: Key[Array, ""],
    theta: Float[Array, "J L K"],
    g0: Float[Array, " K"],
    alpha: Float[Array, "*P"] | float,
    cells: Int[Array, "C J"],
    num_particles: int,
) -> CellEstimate:
    """Cell probabilities by sequential imputation of the labels, cell by cell: unbiased.

    Parameters
    ----------
    key
        Used once; the draws of a cell depend on the key and its position, not on other cells.
    theta, g0, cells
        As in `log_cell_probability_exact`.
    alpha
        Concentration, one for all particles or one for each (drawn by the caller from its prior).
    num_particles
        P, even.

    Raises
    ------
    ValueError
        If `num_particles` is not even.

    Notes
    -----
    For j in turn, a particle's weight is multiplied by the urn's predictive probability of c_j
    given its earlier labels, and z_j drawn given c_j (Kong, Liu & Wong 1994,
    doi:10.1080/01621459.1994.10476469; MacEachern, Clyde & Liu 1999, doi:10.2307/3315637).
    Cost O(C P J (J + log K)).
    """
    _check_draws(num_particles)
    dtype = theta.dtype
    num_variables, num_levels, num_slots = theta.shape
    alpha = jnp.broadcast_to(jnp.asarray(alpha, dtype), (num_particles,))
    flat = theta.reshape(-1)
    cumulative = jnp.cumsum(theta * g0, axis=2).reshape(-1, num_slots)
    first_row = jnp.arange(num_variables, dtype=jnp.int32) * num_levels
    shape = (num_variables, num_particles)

    def chunk(part):
        index, codes = part[:, 0], part[:, 1:]
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(index)
        u, u_base = jax.vmap(lambda k: uniform_pair(k, shape, dtype.type), out_axes=1)(keys)
        rows = (codes + first_row).T[:, :, None]
        fresh, total = search_cumulative(cumulative, jnp.broadcast_to(rows, u.shape), u_base)
        base = alpha * total

        def impute(j, carry):
            z, reach, log_weight = carry

            def gather(i, reach_sum):
                reach, so_far = reach_sum
                copy = flat.at[rows[j] * num_slots + z[i]].get(mode="promise_in_bounds")
                return reach.at[i].set(so_far + copy), so_far + copy

            reach, mass = lax.fori_loop(0, j, gather, (reach, base[j]))
            log_weight += jnp.log(mass / (alpha + j))
            # The base part, usually the rarer one, lies next to zero, where u is finest.
            target = u[j] * mass

            def count(i, source):
                return source + (reach[i] <= target).astype(jnp.int32)

            source = lax.fori_loop(0, j, count, jnp.zeros(target.shape, jnp.int32))
            source = jnp.minimum(source, jnp.maximum(j - 1, 0))
            copied = jnp.take_along_axis(z, source[None], axis=0, mode="promise_in_bounds")[0]
            label = jnp.where(target < base[j], fresh[j], copied)
            return z.at[j].set(label), reach, log_weight

        start = (jnp.zeros_like(fresh), jnp.zeros_like(u), jnp.zeros_like(u[0]))
        log_weight = lax.fori_loop(0, num_variables, impute, start)[2]
        return _summarise(log_weight)

    index = jnp.arange(cells.shape[0], dtype=jnp.int32)
    numbered = jnp.concatenate([index[:, None], cells.astype(jnp.int32)], axis=1)
    return _map_chunks(chunk, numbered, max(1, min(_PARTICLE_LANES // num_particles, len(cells))))


def jackknife_two_half(function, estimate: CellEstimate):
    """Evaluate a function of log probabilities, the bias of its curvature removed to first order.

    2 f(p) - (f(p_1) + f(p_2)) / 2, with p_1, p_2 the means of the halves of the draws: a bias
    inversely proportional to their number cancels (Quenouille 1956, doi:10.1093/biomet/43.3-4.353).

    Parameters
    ----------
    function
        Maps log probabilities (C,) to any array, e.g. sum((1 - p)^(N - n)).
    estimate
        From `log_cell_probability_draws` or `log_cell_probability_sequential`.
    """
    first, second = estimate.log_p_halves
    return 2 * function(estimate.log_p) - (function(first) + function(second)) / 2
