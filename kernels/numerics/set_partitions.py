"""Sums over set partitions of a few variables, and weights of the urn for a number of blocks.

The probability that an urn with concentration alpha seats J items in B given blocks is alpha^B prod
(size - 1)! / (alpha)_J (Antoniak 1974, doi:10.1214/aos/1176342871), (alpha)_J the rising factorial.
With the labels of blocks summed out, the term of a partition is a product over its blocks. The sum
over partitions is computed recursively over subsets of variables, with about 3^(J-1) / 2
multiply-adds.
"""

from functools import lru_cache
from math import factorial, gcd

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from bnp_models.kernels.numerics.bisection import bisect
from bnp_models.kernels.numerics.platforms import on_accelerator

MATMUL_CELLS = 8
"""The number of cells passed to the partition sums must be a multiple of this."""

BLOCKS = 64
"""Number of blocks of cells on accelerators; each block is on one of several devices."""

# Cells whose products are in memory at once on an accelerator.
_PRODUCTS_AT_ONCE = 2048


def scale_columns(
    columns: Float[Array, "... K"], g0: Float[Array, " K"], num_variables: int
) -> tuple[Float[Array, "... K"], Float[Array, "..."]]:
    """Divide each column of level probabilities by a scale; return the logs of the scales too.

    After scaling, g_0k^(1/J) theta_kj is at most one, so that no block sum overflows. A maximum
    over theta alone may be that of an empty slot, compared with which all others would underflow.
    """
    # The scales cancel, so that their gradient is none; that of a root is infinite at zero.
    scale = lax.stop_gradient(jnp.max(columns * jnp.exp(jnp.log(g0) / num_variables), axis=-1))
    return columns / jnp.where(scale > 0, scale, 1)[..., None], jnp.log(scale)


def equal_chunks(num_rows: int, at_most: int) -> tuple[int, int]:
    """Number and size of equal chunks for these rows; the size is a multiple of `MATMUL_CELLS`."""
    num_chunks = max(1, -(-num_rows // at_most))
    return num_chunks, max(1, -(-num_rows // (num_chunks * MATMUL_CELLS))) * MATMUL_CELLS


@jax.named_scope("log_block_weights")
def log_block_weights(alpha: Float[Array, ""] | float, num_variables: int) -> Float[Array, " J"]:
    """Log weights alpha^B / (alpha)_J of B = 1..J blocks; (alpha)_J is the rising factorial."""
    log_alpha = jnp.log(jnp.asarray(alpha, dtype=jnp.result_type(float, alpha)))
    return _log_weight(jnp.arange(1, num_variables + 1), log_alpha, num_variables)


def _log_weight(blocks, log_alpha, num_variables):
    """Log of alpha^B / (alpha)_J, `blocks` and `log_alpha` broadcast against each other."""
    j = np.arange(1, num_variables)
    log_j = jnp.log(jnp.asarray(j, log_alpha.dtype))
    new_block = -jnp.logaddexp(0, log_j - log_alpha[..., None])
    old_block = -jnp.logaddexp(log_alpha[..., None], log_j)
    return jnp.sum(jnp.where(j < blocks[..., None], new_block, old_block), axis=-1)


@jax.named_scope("log_block_weights_gamma")
def log_block_weights_gamma(
    a: Float[Array, ""] | float, b: Float[Array, ""], num_variables: int, num_nodes: int = 128
) -> Float[Array, " J"]:
    """Log of E[alpha^B / (alpha)_J] for B = 1..J blocks, alpha ~ Ga(a, b).

    Parameters
    ----------
    a, b
        Shape and rate; traced or not. Their dtype is the result's.
    num_variables
        J.
    num_nodes
        Nodes of the quadrature; 128 give 1e-10 (float64) for a in 0.05..100, b in 1e-3..1e3.

    Notes
    -----
    As a function of x = log(alpha b / a) every integrand is log-concave. Bisection finds its mode
    and the two points where it has fallen by a factor beyond the dtype's precision. Between these,
    the trapezoidal rule in t, x = mode + scale sinh(t), converges exponentially. The constant of
    the gamma density is computed by the same quadrature with the integrand one, so that no large
    terms cancel in float32.
    """
    dtype = jnp.result_type(float, a, b)
    a, b = jnp.asarray(a, dtype), jnp.asarray(b, dtype)
    log_mean = jnp.log(a) - jnp.log(b)
    # Row 0 is the constant, with no block weight.
    row = jnp.arange(num_variables + 1)
    weighted = row > 0
    earlier = jnp.maximum(row - 1, 0).astype(dtype)
    j = jnp.arange(1, num_variables, dtype=dtype)
    drop = 8 - jnp.log(jnp.finfo(dtype).eps)

    def log_integrand(x):
        blocks = row.reshape(-1, *[1] * (x.ndim - 1))
        log_weight = _log_weight(blocks, x + log_mean, num_variables)
        return a * (x - jnp.expm1(x)) + jnp.where(blocks > 0, log_weight, 0)

    def share(x):
        """alpha / (alpha + j), the derivative of log(alpha + j)."""
        return jax.nn.sigmoid((x + log_mean)[:, None] - jnp.log(j))

    def slope(x):
        return jnp.where(weighted, earlier - jnp.sum(share(x), 1), 0) - a * jnp.expm1(x)

    top = jnp.log(a + earlier) - jnp.log(a)
    bottom = top - jnp.where(weighted, jnp.log1p(jnp.sum(1 / j) / b), 0)
    mode = bisect(lambda x: slope(x) > 0, bottom, top, 40)[0]
    curvature = jnp.where(weighted, jnp.sum(share(mode) * (1 - share(mode)), 1), 0)
    scale = lax.rsqrt(curvature + a * jnp.exp(mode))
    peak = log_integrand(mode)

    def edge(sign):
        def inside(t):
            return log_integrand(mode + sign * scale * jnp.sinh(t)) > peak - drop

        return sign * bisect(inside, jnp.zeros_like(mode), jnp.full_like(mode, 20), 40)[1]

    left, right = edge(-1), edge(1)
    t = left[:, None] + (right - left)[:, None] * jnp.linspace(0, 1, num_nodes, dtype=dtype)
    value = log_integrand(mode[:, None] + scale[:, None] * jnp.sinh(t)) + jnp.log(jnp.cosh(t))
    log_integral = jax.nn.logsumexp(value, axis=1) + jnp.log((right - left) * scale)
    return log_integral[1:] - log_integral[0]


@lru_cache
def _recursion(num_variables):
    """List the partition sum's multiply-adds f[out] += G[block] f[rest], in a valid order.

    Subsets are bit masks. The block contains the top variable of out, so that each partition occurs
    once. Of the masks with the last variable only the full set is needed; it is stored at 2^(J-1).
    Returns (steps (n, 3) int32, variables in rest (n,)).
    """
    steps = []
    for top in range(num_variables):
        block, rest = np.zeros(1, np.int32), np.zeros(1, np.int32)
        last = top == num_variables - 1
        for bit in 1 << np.arange(top, dtype=np.int32):
            neither = [] if last else [(block, rest)]
            halves = [*neither, (block | bit, rest), (block, rest | bit)]
            block, rest = (np.concatenate(part) for part in zip(*halves, strict=True))
        out = np.full_like(block, 1 << top) if last else block | rest | 1 << top
        steps.append(np.stack([out, block | 1 << top, rest], axis=1))
    steps = np.concatenate(steps).astype(np.int32)
    return steps, _popcount(steps[:, 2])


def _layers(steps):
    """Steps in layers with equally many steps for each row; each layer needs only earlier ones.

    Yields rows (n,), and the blocks and the rests of their terms, (n, terms) each.
    """
    steps = steps[np.argsort(steps[:, 0], kind="stable")]
    rows, first, number = np.unique(steps[:, 0], return_index=True, return_counts=True)
    # The last row is that of all variables.
    size = np.where(rows == rows[-1], 32, _popcount(rows))
    for layer in sorted(set(zip(size.tolist(), number.tolist(), strict=True))):
        chosen = (size == layer[0]) & (number == layer[1])
        terms = steps[first[chosen][:, None] + np.arange(layer[1])]
        yield rows[chosen], terms[..., 1], terms[..., 2]


def _popcount(masks):
    """Number of bits that are one."""
    return np.sum(masks[:, None] >> np.arange(31) & 1, axis=1)


@jax.named_scope("subset_sums")
def subset_sums(columns: Float[Array, "C J K"], g0: Float[Array, " K"]) -> Float[Array, "A C"]:
    """Sums S_b = sum_k g_k prod_{j in b} columns_jk for all subsets b of variables, by bit mask.

    C is a multiple of `MATMUL_CELLS`, and A = 2^J. The products of both halves of the variables are
    followed by one small matrix product for each cell. A CPU does this for a few cells at a time,
    because the transposition is fast only if its source is in the first-level cache.
    """
    num_cells, num_variables, _ = columns.shape
    half = num_variables // 2

    def products(part, start):
        if on_accelerator():
            # All products are computed at once, so that intermediate products are not stored.
            masks = np.arange(2 ** part.shape[1])[:, None]
            for j in range(part.shape[1]):
                start = start * jnp.where(masks >> j & 1, part[:, j : j + 1], 1)
            return start
        for j in range(part.shape[1]):
            start = jnp.concatenate([start, start * part[:, j : j + 1]], axis=1)
        return start

    def of_cells(x):
        low = products(x[:, :half], jnp.ones_like(x[:, :1]))
        high = products(x[:, half:], jnp.broadcast_to(g0, x[:, :1].shape))
        table = jnp.einsum("chk,clk->chl", high, low, precision=lax.Precision.HIGHEST)
        return table.reshape(len(x), -1).T

    if on_accelerator():
        # A part has cells of each block, so that each of several devices uses its own cells.
        num_blocks = gcd(num_cells, BLOCKS)
        blocks = columns.reshape(num_blocks, -1, *columns.shape[1:])
        step = _PRODUCTS_AT_ONCE // num_blocks
        parts = [blocks[:, i : i + step] for i in range(0, blocks.shape[1], step)]
        parts = [of_cells(x.reshape(-1, *x.shape[2:])).reshape(-1, *x.shape[:2]) for x in parts]
        return jnp.concatenate(parts, axis=2).reshape(-1, num_cells)

    def some_cells(step, sums):
        # A gather is used: a slice would be fused into the products and repeated there on a CPU.
        x = columns[step * MATMUL_CELLS + jnp.arange(MATMUL_CELLS)]
        return lax.dynamic_update_slice_in_dim(sums, of_cells(x), step * MATMUL_CELLS, axis=1)

    empty = jnp.zeros((2**num_variables, num_cells), columns.dtype)
    return lax.fori_loop(0, num_cells // MATMUL_CELLS, some_cells, empty)


def _partition_pass(blocks, steps, f, source=None):
    """Run the steps f[out] += blocks[block] source[rest] on rows of cells; source is f by default.

    On a CPU one row is computed at a time, in a loop whose body is a single in-place update. Of all
    forms that were tried (tables of gathers, ternary digits, several rows unrolled), XLA makes only
    this one fast there. On an accelerator all rows with equally many steps are computed at once:
    the rows of subsets of one size, which need only the rows of smaller subsets.
    """
    if on_accelerator():
        for out, block, rest in _layers(steps):
            terms = blocks[block] * (f if source is None else source)[rest]
            f = f.at[out].add(jnp.sum(terms, axis=1), unique_indices=True)
        return f
    steps = jnp.asarray(steps)

    def row(array, index):
        return lax.dynamic_index_in_dim(array, index, 0, keepdims=False)

    def add(i, f):
        out, block, rest = steps[i, 0], steps[i, 1], steps[i, 2]
        term = row(blocks, block) * row(f if source is None else source, rest)
        return lax.dynamic_update_index_in_dim(f, row(f, out) + term, out, 0)

    return lax.fori_loop(0, steps.shape[0], add, f)


@jax.named_scope("log_partition_sums")
def log_partition_sums(
    columns: Float[Array, "C J K"], g0: Float[Array, " K"], alpha: Float[Array, ""]
) -> Float[Array, " C"]:
    """Log of the sum over partitions of prod over blocks b of alpha (|b| - 1)! S_b, over (alpha)_J.

    S_b = sum_k g0_k prod_{j in b} columns_jk. C is a multiple of `MATMUL_CELLS`, and columns are
    scaled so that no S_b overflows.
    """
    num_cells, num_variables, _ = columns.shape
    # One power of this unit a variable keeps alpha^B in range for large alpha.
    unit = jnp.maximum(alpha, 1)
    size, orders = sizes_and_orders(num_variables)
    log_factor = jnp.log(alpha) - jnp.asarray(size, columns.dtype) * jnp.log(unit)
    factor = jnp.asarray(orders, columns.dtype) * jnp.exp(log_factor)
    blocks = subset_sums(columns, g0) * factor[:, None]
    steps, _ = _recursion(num_variables)
    f = jnp.zeros((2 ** (num_variables - 1) + 1, num_cells), columns.dtype).at[0].set(1)
    f = _partition_pass(blocks, steps, f)
    j = jnp.arange(num_variables, dtype=alpha.dtype)
    return jnp.log(f[-1]) - jnp.sum(jnp.log((alpha + j) / unit))


@jax.named_scope("log_partition_sums_by_blocks")
def log_partition_sums_by_blocks(
    columns: Float[Array, "C J K"], g0: Float[Array, " K"]
) -> Float[Array, "J C"]:
    """Log of T_B for B = 1..J, the sum over partitions into B blocks of prod (|b| - 1)! S_b.

    The arguments are those of `log_partition_sums`, whose result is the sum of T_B weighted by
    `log_block_weights`.
    """
    num_cells, num_variables, _ = columns.shape
    _, orders = sizes_and_orders(num_variables)
    sums = subset_sums(columns, g0) * orders.astype(columns.dtype)[:, None]
    steps, rest_size = _recursion(num_variables)
    zeros = jnp.zeros((2 ** (num_variables - 1) + 1, num_cells), columns.dtype)
    f, totals = zeros.at[0].set(1), []
    for blocks in range(1, num_variables + 1):
        # The rest of B - 1 blocks has at least B - 1 variables, and none if there are no blocks.
        usable = rest_size >= blocks - 1 if blocks > 1 else rest_size == 0
        f = _partition_pass(sums, steps[usable], zeros, f)
        totals.append(f[-1])
    return jnp.log(jnp.stack(totals))


def sizes_and_orders(num_variables: int) -> tuple[np.ndarray, np.ndarray]:
    """Size of every subset, and (size - 1)!, by bit mask."""
    size = _popcount(np.arange(2**num_variables))
    return size, np.array([float(factorial(max(s - 1, 0))) for s in size.tolist()])
