"""Posterior of a count F given f sampled units, each sampled with an unknown probability.

    pi ~ Ga(alpha, lambda),  F | pi ~ Poisson(N pi),  p ~ Beta(a, b),  f | F, p ~ Binomial(F, p)

All results depend on N and lambda only through x = N / lambda. Given f, the number j = F - f of
unsampled units has

    P(j) proportional to (alpha + f)_j (b)_j / ((a + b + f)_j j!) r^j,   r = x / (1 + x),

which is distribution 1 of Polettini & Stander. It is a 2F1 series that extends to F of 40 x and
more. Its first terms are summed one by one. The others are summed by a quadrature over log j, with
end corrections that turn an integral into a sum.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.numerics.bisection import bisect
from bnp_models.kernels.numerics.gamma_ratios import (
    large_log_gamma_ratio,
    log_beta,
    log_gamma_ratio,
)
from bnp_models.kernels.numerics.hypergeometric import log_beta_expectation, log_hyp2f1

# Terms for up to this many unsampled units are summed one by one.
_FIRST = 128
# Nodes for the other terms, at evenly spaced log j; the spacing is at most 0.11.
_NODES = 160
# Terms are negligible if their logarithm is this much below that of the largest.
_DROP = 38.0
# Largest log j of the quadrature.
_LAST_LOG = 100.0
# Weights of a quintic polynomial's integral between the middle two of six evenly spaced nodes.
_QUINTIC = (11 / 1440, -93 / 1440, 802 / 1440, 802 / 1440, -93 / 1440, 11 / 1440)


class CountSummary(NamedTuple):
    """Summary of the posterior of F, cell by cell."""

    risk: Float[Array, "..."]
    """E(1 / F | f)."""
    p_unique: Float[Array, "..."]
    """P(F = 1 | f)."""
    mode: Float[Array, "..."]
    """The most probable F."""
    quantiles: Float[Array, "levels ..."]
    """For each level, the least F whose distribution function reaches it."""
    log_total: Float[Array, "..."]
    """Logarithm of 1 / P(F = f | f)."""


@jax.named_scope("log_marginal")
def log_marginal(
    f: Float[Array, "*#shape"],
    alpha: Float[Array, "*#shape"],
    a: Float[Array, "*#shape"],
    b: Float[Array, "*#shape"],
    log_x: Float[Array, "*#shape"],
    *,
    nodes: int | None = None,
) -> Float[Array, "*#shape"]:
    """Log probability of f, with F summed out: distribution 2 of Polettini & Stander.

    Parameters
    ----------
    f
        Number of sampled units.
    alpha, a, b
        Positive parameters; see the module's docstring.
    log_x
        log N / lambda.
    nodes
        Nodes of the quadrature, as in `hypergeometric.log_hyp2f1`.
    """
    log_e = log_beta_expectation(f, alpha, a, b, log_x, nodes=nodes)
    return log_gamma_ratio(f + 1, alpha - 1) - gammaln(alpha) + log_e


@jax.named_scope("log_posterior")
def log_posterior(
    F: Float[Array, "*#shape"],
    f: Float[Array, "*#shape"],
    alpha: Float[Array, "*#shape"],
    a: Float[Array, "*#shape"],
    b: Float[Array, "*#shape"],
    log_x: Float[Array, "*#shape"],
) -> Float[Array, "*#shape"]:
    """Log probability of F given f: distribution 1 of Polettini & Stander; -inf if F < f.

    Parameters
    ----------
    F
        Population count.
    f, alpha, a, b, log_x
        As in `log_marginal`.
    """
    j = jnp.maximum(F - f, 0)
    # log 2F1(alpha + f, b; a + b + f; r), after Pfaff's transformation.
    log_total = (
        alpha * jax.nn.softplus(log_x) + f * jax.nn.softplus(-log_x)
        + log_beta(a, b) - log_beta(a + f, b)
        + log_beta_expectation(f, alpha, a, b, log_x)
    )  # fmt: skip
    last, by = a + b + f, alpha - a - b
    log_term = (
        log_gamma_ratio(last + j, by) - log_gamma_ratio(last, by)
        + log_gamma_ratio(1 + j, b - 1) - gammaln(b) - j * jax.nn.softplus(-log_x)
    )  # fmt: skip
    return jnp.where(F >= f, log_term - log_total, -jnp.inf)


@jax.named_scope("summarise")
def summarise(
    f: Float[Array, " cells"],
    alpha: Float[Array, " cells"],
    a: Float[Array, " cells"],
    b: Float[Array, " cells"],
    log_x: Float[Array, " cells"],
    levels: tuple[float, ...] = (0.025, 0.5, 0.975),
) -> CountSummary:
    """Risk, mode and quantiles of the posterior of F, cell by cell, in float64.

    Parameters
    ----------
    f
        Number of sampled units, at least 1.
    alpha, a, b, log_x
        As in `log_marginal`.
    levels
        Levels of the quantiles.

    Notes
    -----
    The relative error of expectations is 1e-9. A quantile is exact unless the distribution function
    is within 1e-7 of its level.
    """
    return summary_of(tabulate(f, alpha, a, b, log_x), levels)


@jax.named_scope("summary_of")
def summary_of(table: "CountTable", levels: tuple[float, ...]) -> CountSummary:
    """Summary of F as `summarise` gives it, from its distribution function."""
    quantiles = _quantiles(table, levels)
    return CountSummary(table.risk, table.p_unique, table.mode, quantiles, table.log_total)


@jax.named_scope("tabulate")
def tabulate(
    f: Float[Array, " cells"],
    alpha: Float[Array, " cells"],
    a: Float[Array, " cells"],
    b: Float[Array, " cells"],
    log_x: Float[Array, " cells"],
) -> "CountTable":
    """Distribution function of F given f, cell by cell, in float64.

    Parameters
    ----------
    f, alpha, a, b, log_x
        As in `summarise`.
    """
    law = _Law(alpha + f, b, a + b + f, a, alpha, log_x)
    # Without these stages, the compiler would compute all terms again for each sum that uses them.
    first, tail, mode, scale = _terms(law)
    risk, total, cumulative, beyond = _sums(f, first, tail)
    p_unique = jnp.where(f == 1, first[0] / total, 0)
    log_total = jnp.log(total) + scale
    return CountTable(f, risk, p_unique, f + mode, log_total, total, cumulative, beyond, tail)


@jax.named_scope("draw_counts")
def draw_counts(
    key: Key[Array, ""], table: "CountTable", cell: Int[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Draw F from its posterior, independently for each entry of `cell`.

    Parameters
    ----------
    key
        Used once.
    table
        Result of `tabulate`.
    cell
        Column of the table for each draw.

    Notes
    -----
    A draw is the quantile at a level that is uniform on (0, 1).
    """
    return table.quantile(jax.random.uniform(key, cell.shape, table.total.dtype), cell)


@jax.jit
def _terms(law):
    """Terms of the first j, the tail of the others, the mode of j, and the logarithm of a scale."""
    log_first = _first_terms(law)
    peak, mode, scale = _peak(law, log_first)
    return jnp.exp(log_first - scale), _tail(law, log_first[_FIRST], peak, scale), mode, scale


@jax.jit
def _sums(f, first, tail):
    """E(1 / F), the sum of all terms, and cumulative sums: of the first terms, and at the nodes."""
    correction = _end_correction(first)
    total = jnp.sum(first[:_FIRST], axis=0) + correction + tail.integral(tail.rate)
    reciprocal = first / (f + jnp.arange(_FIRST + 3, dtype=f.dtype)[:, None])
    risk = (
        jnp.sum(reciprocal[:_FIRST], axis=0) + _end_correction(reciprocal)
        + tail.integral(tail.rate / (f + tail.j))
    ) / total  # fmt: skip
    cumulative = jnp.cumsum(first[:_FIRST], axis=0)
    return risk, total, cumulative, tail.cumulative(cumulative[-1] + correction)


@partial(jax.jit, static_argnames="levels")
def _quantiles(table, levels):
    """Quantiles of F in all cells, (levels, cells)."""
    levels = jnp.asarray(levels, table.total.dtype)[:, None]
    return table.quantile(levels, jnp.arange(table.total.size))


@jax.named_scope("benedetti_franconi")
def benedetti_franconi(
    f: Float[Array, "*#shape"], p: Float[Array, "*#shape"]
) -> Float[Array, "*#shape"]:
    """Expectation E(1 / F) for the number F of trials until the f-th success of probability p.

    Parameters
    ----------
    f
        Number of successes, at least 1.
    p
        Probability in (0, 1].

    Notes
    -----
    Benedetti & Franconi (1998); Polettini (2003): p^f / f 2F1(f, f; f + 1; 1 - p), which is
    2F1(1, f; f + 1; -(1 - p) / p) / f. At f = 1 it is -p log(p) / (1 - p), and p is P(F = 1).
    """
    return jnp.exp(log_hyp2f1(jnp.ones_like(f), f, f + 1, -(1 - p) / p)) / f


class _Law(NamedTuple):
    """Parameters of the distribution of j, proportional to (A)_j (b)_j / ((C)_j j!) r^j."""

    A: Float[Array, " cells"]
    b: Float[Array, " cells"]
    C: Float[Array, " cells"]
    a: Float[Array, " cells"]
    alpha: Float[Array, " cells"]
    log_x: Float[Array, " cells"]

    def log_r(self):
        """Log of the ratio r."""
        return -jax.nn.softplus(-self.log_x)

    def log_large(self, j):
        """Log term of j up to a constant, for j of at least 16, not necessarily an integer."""
        return (
            j * self.log_r()
            + large_log_gamma_ratio(self.C + j, self.A - self.C)
            + large_log_gamma_ratio(1 + j, self.b - 1)
        )


def _first_terms(law):
    """Logarithms of the terms of j = 0, .., relative to that of 0."""
    log_r = law.log_r()

    def following(log_term, j):
        ratio = (law.A + j) * (law.b + j) / ((law.C + j) * (1 + j))
        return log_term + jnp.log(ratio) + log_r, log_term

    j = jnp.arange(_FIRST + 3, dtype=log_r.dtype)
    return lax.scan(following, jnp.zeros_like(log_r), j, unroll=4)[1]


def _peak(law, log_first):
    """Position of the peak of the terms beyond 0, of the largest term, and the latter's logarithm.

    The ratio of consecutive terms is one at the roots of a quadratic. Therefore there is at most
    one peak beyond 0, at the larger root.
    """
    rest = jax.nn.sigmoid(-law.log_x)  # 1 - r
    linear = law.a + 1 - law.alpha + (law.A + law.b) * rest
    constant = law.C - law.A * law.b + law.A * law.b * rest
    square = linear * linear - 4 * rest * constant
    root = jnp.sqrt(jnp.maximum(square, 0))
    smooth = jnp.where(linear > 0, linear + root, 1)
    larger = jnp.where(linear > 0, -2 * constant / smooth, (root - linear) / (2 * rest))
    peak = jnp.where(square >= 0, jnp.ceil(jnp.maximum(larger, 0)), 0)
    among_first = jnp.minimum(peak, _FIRST).astype(int)
    near = jnp.take_along_axis(log_first, among_first[None], axis=0)[0]
    start = jnp.full_like(peak, _FIRST)
    far = log_first[_FIRST] + law.log_large(jnp.maximum(peak, start)) - law.log_large(start)
    log_peak = jnp.where(peak < _FIRST, near, far)
    return peak, jnp.where(log_peak > 0, peak, 0), jnp.maximum(log_peak, 0)


def _end_correction(first):
    """Excess of the sum from `_FIRST` on over the integral from half a unit before it."""
    g = first[_FIRST - 3 : _FIRST + 3]
    d1 = g[3] - g[2]
    d3 = g[4] - 3 * g[3] + 3 * g[2] - g[1]
    d5 = g[5] - 5 * g[4] + 10 * g[3] - 10 * g[2] + 5 * g[1] - g[0]
    return d1 / 24 - 17 / 5760 * d3 + 367 / 967680 * d5


class _Tail(NamedTuple):
    """Terms beyond the first, at evenly spaced log j, with two nodes more at either end."""

    j: Float[Array, "nodes cells"]
    rate: Float[Array, "nodes cells"]
    """j times the terms as a function of real j."""
    slope: Float[Array, "inner cells"]
    """Derivative of that function, without the additional nodes."""
    spacing: Float[Array, " cells"]
    """Spacing of log j."""

    def integral(self, rate):
        """Integral over all nodes except the additional ones; `rate` is the density times j."""
        weight = np.convolve(np.ones(rate.shape[0] - 5), _QUINTIC)
        return self.spacing * jnp.sum(rate * weight.astype(rate.dtype)[:, None], axis=0)

    def cumulative(self, before):
        """Cumulative sums up to half a unit before each node; `before` is that of the first."""
        sums = jnp.cumsum(self.rate, axis=0)
        sums = jnp.concatenate([jnp.zeros_like(sums[:1]), sums])
        number = self.rate.shape[0] - 4
        so_far = sum(w * sums[i : i + number] for i, w in enumerate(_QUINTIC))
        # The midpoint rule's first correction turns the integral into the sum.
        return before + self.spacing * (so_far - so_far[0]) - self.slope / 24

    def invert(self, cumulative, target, cell):
        """Least integer j up to which the sum is at least `target`, by cubic interpolation.

        `cell` has the column of each target.
        """
        k = jnp.clip(_number_below(cumulative, target, cell) - 1, 0, cumulative.shape[0] - 2)
        low, high = cumulative[k, cell], cumulative[k + 1, cell]
        spacing = self.spacing[cell]
        out, into = self.rate[k + 2, cell] * spacing, self.rate[k + 3, cell] * spacing

        def falls_short(s):
            t = 1 - s
            value = low * t * t * (1 + 2 * s) + high * s * s * (1 + 2 * t)
            return value + out * s * t * t - into * s * s * t < target

        left, right = bisect(falls_short, jnp.zeros_like(low), jnp.ones_like(low), 40)
        s = (left + right) / 2
        return jnp.ceil(self.j[k + 2, cell] * jnp.exp(s * spacing) - 0.5)


class CountTable(NamedTuple):
    """Posterior of F, cell by cell: summary figures, and the sums that quantiles are found from."""

    f: Float[Array, " cells"]
    """Number of sampled units."""
    risk: Float[Array, " cells"]
    """E(1 / F | f)."""
    p_unique: Float[Array, " cells"]
    """P(F = 1 | f)."""
    mode: Float[Array, " cells"]
    """The most probable F."""
    log_total: Float[Array, " cells"]
    """Logarithm of 1 / P(F = f | f)."""
    total: Float[Array, " cells"]
    """Sum of all terms."""
    cumulative: Float[Array, "first cells"]
    """Cumulative sums of the first terms."""
    beyond: Float[Array, "inner cells"]
    """Cumulative sums at the nodes of the tail."""
    tail: _Tail
    """Terms beyond the first."""

    def quantile(self, level: Float[Array, "..."], cell: Int[Array, "..."]) -> Float[Array, "..."]:
        """Least F whose distribution function reaches a level.

        `cell` has the columns of the table; it broadcasts with `level`.
        """
        level, cell = jnp.broadcast_arrays(level, cell)
        target = level * self.total[cell]
        among_first = _number_below(self.cumulative, target, cell).astype(target.dtype)
        beyond_first = self.tail.invert(self.beyond, target, cell)
        in_first = self.cumulative[-1, cell] >= target
        return self.f[cell] + jnp.where(in_first, among_first, beyond_first)


def _number_below(
    increasing: Float[Array, "rows cells"], target: Float[Array, "..."], cell: Int[Array, "..."]
) -> Int[Array, "..."]:
    """Number of values below the target in the column of each cell, by bisection."""
    rows = increasing.shape[0]
    number = jnp.zeros(target.shape, int)
    for power in reversed(range(rows.bit_length())):
        probe = number + 2**power
        below = increasing[jnp.minimum(probe, rows) - 1, cell] < target
        number = jnp.where((probe <= rows) & below, probe, number)
    return number


def _tail(law, log_start, peak, scale):
    """Place nodes from half a unit before `_FIRST` to where the terms are negligible."""
    shift = log_start - law.log_large(jnp.full_like(peak, _FIRST)) - scale
    lowest = jnp.full_like(peak, math.log(_FIRST - 0.5))
    top = jnp.maximum(jnp.log(jnp.maximum(peak, 1)), lowest)

    def matters(log_j):
        return shift + law.log_large(jnp.exp(log_j)) > -_DROP

    end = bisect(matters, top, jnp.full_like(peak, _LAST_LOG), 22)[1]
    start = -bisect(lambda x: matters(-x), -top, -lowest, 22)[1]
    spacing = (end - start) / (_NODES - 1)
    j = jnp.exp(start + spacing * jnp.arange(-2, _NODES + 2, dtype=peak.dtype)[:, None])
    density = jnp.exp(shift + law.log_large(j))
    # Only leading terms of digamma functions are used: the slope is part of a small correction.
    logs = jnp.log1p((law.A - law.C) / (law.C + j)) + jnp.log1p((law.b - 1) / (1 + j))
    return _Tail(j, density * j, (density * (law.log_r() + logs))[2:-2], spacing)
