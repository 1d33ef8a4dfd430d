"""Cell probabilities of a new record of an HDP mixed membership model, by two methods.

The record has weights g ~ Dir(alpha g_0) over K slots and values x_j ~ theta_j^{(z_j)}, z_j ~ g, so

    P(c) = E_g prod_j sum_k g_k theta_kj(c_j).

`log_cell_probability_exact` sums over set partitions and has no Monte Carlo error; it is the
default for up to about 12 variables. `log_cell_probability_draws` uses draws that all cells share
and is unbiased for any number of variables. experiments/speed/cell_probability compares the two
methods, and sequential imputation.

Arrays: theta (J, L, K), with zeros in rows beyond a variable's levels; g0 (K,), which sums to one
and may have tiny or zero entries; cells (C, J), codes. All functions return logarithms in the dtype
of theta. They work under `jax.jit`, under `jax.vmap` over draws of (theta, g0, alpha), and inside
`jax.lax.map`, which is faster than `jax.vmap` on a CPU.
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
from bnp_models.kernels.variates.gamma import log_dirichlet

MAX_VARIABLES = 14
"""Largest number J of variables for the exact sum: 3^(J-1) / 2 multiply-adds for each cell."""

_HIGHEST = lax.Precision.HIGHEST
_CELLS_AT_ONCE, _SUMS_AT_ONCE = 1024, 2**20
_DRAW_LANES = 2**18


class CellEstimate(NamedTuple):
    """Monte Carlo estimate of cell probabilities."""

    log_p: Float[Array, " C"]
    """Logarithm of the unbiased estimate."""
    relative_se: Float[Array, " C"]
    """Standard error of the estimate divided by the estimate; inf if the estimate is zero."""
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
        alpha ~ Ga(a, b). Partitions are then summed separately for each number of blocks, which
        takes about one and a half times as long.
    chunk_size
        Number of cells that are computed together; each needs memory for about 1.5 * 2^J numbers.
        None: 1,024 cells, and on accelerators as many as need 2^20 numbers.

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
    P(c) = 1/(alpha)_J sum over partitions prod over blocks b of alpha (|b| - 1)! S_b(c), S_b(c) =
    sum_k g0_k prod_{j in b} theta_kj(c_j). This is the partition probability of the urn (Antoniak
    1974, doi:10.1214/aos/1176342871) with each block's label summed out; it gives the expectation
    in eq. (10) of Battiston & Rimella (2024), appendix B. The sum is computed recursively over
    subsets of variables.
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
    """Check alpha and log_weights, and return the given one as an array."""
    if num_variables > MAX_VARIABLES:
        raise ValueError(
            f"exact cell probabilities take at most {MAX_VARIABLES} variables, not "
            f"{num_variables}; use log_cell_probability_draws"
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
    """Raise `ValueError` unless the number of draws is even."""
    if num_draws < 2 or num_draws % 2:
        raise ValueError(f"the number of draws must be even and positive, not {num_draws}")


@jax.named_scope("log_cell_probability_draws")
def log_cell_probability_draws(
    key: Key[Array, ""],
    theta: Float[Array, "J L K"],
    g0: Float[Array, " K"],
    alpha: Float[Array, "*T"] | float,
    cells: Int[Array, "C J"],
    num_draws: int,
) -> CellEstimate:
    """Unbiased estimates of cell probabilities: means over draws of g that all cells share.

    Parameters
    ----------
    key
        Used once.
    theta, g0, cells
        As in `log_cell_probability_exact`.
    alpha
        Concentration, one for all draws or one for each (drawn by the caller from its prior).
    num_draws
        Number T of draws, even.

    Raises
    ------
    ValueError
        If `num_draws` is not even.

    Notes
    -----
    p_t = prod_j (g_t . theta_j)[c_j], g_t ~ Dir(alpha_t g0) (Battiston & Rimella 2024, appendix B).
    Errors of different cells are correlated. `relative_se` is at most one and cannot include events
    that no draw has reached. If it is near one, the estimate depends on a single draw, and is
    usually too low.
    """
    _check_draws(num_draws)
    dtype = theta.dtype
    concentration = jnp.broadcast_to(jnp.asarray(alpha, dtype), (num_draws,))[:, None] * g0
    g = jnp.exp(log_dirichlet(key, concentration))
    log_level = jnp.log(jnp.einsum("jlk,tk->jlt", theta, g, precision=_HIGHEST))

    def chunk(part):
        # Gathers of T contiguous numbers take three quarters of the time of a one-hot contraction.
        log_value = sum(log_level[j, part[:, j]] for j in range(theta.shape[0]))
        return _summarise(log_value)

    return _map_chunks(chunk, cells, max(1, min(_DRAW_LANES // num_draws, len(cells))))
