"""The Dirichlet-multinomial model that Polettini & Stander suggest as an extension.

    pi ~ Dirichlet(alpha, .., alpha),   F | pi ~ Multinomial(N, pi)
    p_k ~ Beta(a phat_k, a (1 - phat_k)),   f_k | F_k, p_k ~ Binomial(F_k, p_k)
    log alpha ~ N(log 0.3, 1.5),   log a ~ N(log 80, 1.5)

Unlike in Models I and II, the population counts F add up to N, so that cells are not independent.
Given this total, the counts are distributed as those of independent cells of Model II with gamma =
1 and any N / lambda = x, since the factor x^F is the same for all F of this total. With x such that
the expected total is N, the probability of the total follows from a saddlepoint approximation. The
posterior of alpha and a, with F summed out, is evaluated on a grid, from which draws are
independent. Given these, cells are drawn as if they were independent of the total. The errors of
their risks are of the order of a cell's share of the variance of the total; intervals of tau_1 and
tau_2 are too wide, by the share of that variance that sample uniques explain. phat of an empty cell
is that of its stratum.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, counted, displayed, spread
from bnp_models.data.weights import WeightedCells
from bnp_models.kernels.cells.thinning import draw_counts, tabulate
from bnp_models.kernels.numerics.gamma_ratios import log_gamma_ratio
from bnp_models.kernels.numerics.platforms import double_precision
from bnp_models.kernels.variates.rng import Keys, key_array
from bnp_models.models.cells.full_bayes import PRIORS
from bnp_models.models.cells.polettini_stander import (
    LikelihoodData,
    PolettiniStander,
    beta_parameters,
    likelihood_data,
    log_likelihood_given,
)
from bnp_models.models.options import check_integer, typed_key

# Most steps of Newton's method; where it stops; and how far log x may be from its first guess,
# because derivatives at a larger x consist of rounding errors.
_NEWTON_STEPS, _TOLERANCE, _FARTHEST_LOG_X = 16, 1e-9, 8.0

# Reach and step of a grid in units of its axes; largest share of the mass at its border; largest
# ratio of its variance to that of the density; most grids; points that are evaluated together.
_REACH, _STEP, _BORDER, _SIMILAR, _MOST_GRIDS, _BATCH = 5.0, 0.5, 1e-4, 2.5, 80, 64


@dataclass(frozen=True, eq=False)
@displayed
class CountsRun:
    """Draws of the hyperparameters, and the risks of the cells.

    Examples
    --------
    >>> run = bnp.models.sample_population_counts(
    ...     cells, key=jax.random.key(0), num_chains=2, num_samples=10
    ... )
    >>> run.draws["tau1"].shape
    (2, 10)
    """

    risk: np.ndarray
    """E(1 / F | f) of the D non-empty cells."""
    p_unique: np.ndarray
    """P(F = 1 | f) of the D non-empty cells."""
    draws: dict[str, np.ndarray]
    """Draws (chains, draws) of alpha, a, tau1 (the number of sample uniques that are unique in the
    population) and tau2 (the sum of 1 / F over sample uniques)."""

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {name: spread(values) for name, values in self.draws.items()}
        return Shown(f"CountsRun: {counted(len(self.risk), 'cell')}", lines)


def sample_population_counts(
    cells: WeightedCells, *, key: jax.Array, num_chains: int = 4, num_samples: int = 250
) -> CountsRun:
    """Draw alpha and a from their posterior, and the population counts F given these.

    Parameters
    ----------
    cells
        Cells with weights, from `weighted_cells`.
    key
        Used once.
    num_chains, num_samples
        Draws have the shape (num_chains, num_samples). All are independent.

    Raises
    ------
    ValueError
        If the weights do not add up to about the population size, or to no more than the records;
        or if a number is not positive.

    Examples
    --------
    >>> run = bnp.models.sample_population_counts(
    ...     cells, key=jax.random.key(0), num_chains=2, num_samples=10
    ... )
    >>> run.risk.shape == cells.f.shape
    True
    """
    call = "sample_population_counts(cells, key=...)"
    check_kind(WeightedCells, call, cells=cells)
    key = typed_key(key)
    check_integer(1, num_chains=num_chains, num_samples=num_samples)
    if wrong := cells.warnings():
        raise ValueError(wrong[0])
    if min(cells.weight.sum(), cells.population_size) <= cells.f.sum() * (1 + 1e-9):
        raise ValueError(
            "by its weights the sample is the whole population, so that F is f; nothing is to be "
            "estimated"
        )
    shape, (f, phat, _, pair) = (num_chains, num_samples), cells.distinct
    with double_precision():
        key_grid, key_counts = Keys(jax.random.wrap_key_data(jax.random.key_data(key)), 2)
        data = likelihood_data(PolettiniStander(variant=2), cells)
        draws = _draw_parameters(key_grid, data, cells.population_size, num_chains * num_samples)
        risk, p_unique, tau1, tau2 = _draw_taus(
            key_array(key_counts, num_chains * num_samples), draws, jnp.asarray(f),
            jnp.asarray(phat), jnp.asarray(pair[cells.f == 1]),
        )  # fmt: skip
    flat = {"alpha": draws["alpha"], "a": draws["a"], "tau1": tau1, "tau2": tau2}
    by_chain = {name: np.asarray(values).reshape(shape) for name, values in flat.items()}
    return CountsRun(np.asarray(risk)[pair], np.asarray(p_unique)[pair], by_chain)


def _draw_parameters(
    key: Key[Array, ""], data: LikelihoodData, population_size: int, number: int
) -> dict[str, Float[Array, " draws"]]:
    """Draw alpha and a, and log x at them."""
    key_cell, key_within = Keys(key, 2)
    total = jnp.asarray(population_size, float)
    z, log_p, axes = fine_grid(lambda z: np.asarray(_log_posteriors(z, data, total)))
    cell = jax.random.categorical(key_cell, jnp.asarray(log_p), shape=(number,))
    within = jax.random.uniform(key_within, (number, 2), minval=-0.5, maxval=0.5)
    values = jax.vmap(_parameters)(jnp.asarray(z)[cell] + within @ (_STEP * axes.T))
    return values | {"log_x": _solve_totals(values, data, total)}


def fine_grid(
    evaluate: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grid on which nearly all mass of a density in two dimensions lies, with steps of half an sd.

    Each grid has its centre and its axes from the moments of the one before. It becomes at most
    four times as fine, or twice as fine if much of the mass is at its border, so that it can follow
    a narrow ridge.

    Parameters
    ----------
    evaluate
        Log density at points (n, 2); about zero at a distance of some units from the origin.

    Returns
    -------
    z, log_p, axes
        Points (n, 2); log density (n,), -inf where it was nan; and the axes of the grid: columns,
        with the covariance axes axes^T.

    Raises
    ------
    ValueError
        If no grid of this kind is found.
    """
    size = 2 * round(_REACH / _STEP) + 1
    u = _STEP * np.indices((size, size)).reshape(2, -1).T - _REACH
    border = (np.abs(u) > _REACH - _STEP / 2).any(axis=1)
    centre, axes = np.zeros(2), np.eye(2)
    for _ in range(_MOST_GRIDS):
        z = centre + u @ axes.T
        log_p = np.nan_to_num(evaluate(z), nan=-np.inf, neginf=-np.inf)
        if not np.isfinite(log_p).any():
            break
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        centre = p @ z
        covariance = (p * (z - centre).T) @ (z - centre)
        outside = p[border].sum() > _BORDER
        if not outside:
            inner = np.linalg.solve(axes, np.linalg.solve(axes, covariance).T)
            ratio = np.linalg.eigvalsh(inner)
            if ratio[0] > 1 / _SIMILAR and ratio[1] < _SIMILAR:
                return z, log_p, axes
        widen, floor = (2.0, 1.0) if outside else (1.0, 0.25)
        axes = np.linalg.cholesky(widen * covariance + floor * _STEP**2 * axes @ axes.T)
    raise ValueError(
        "the posterior of alpha and a could not be found; check the weights and the population size"
    )


@jax.jit
def _log_posteriors(
    z: Float[Array, "n 2"], data: LikelihoodData, total: Float[Array, ""]
) -> Float[Array, " n"]:
    """Log density of the standardised logarithms of alpha and a, up to a constant."""

    def one(z):
        values = _parameters(z)
        log_x = solve_total(values, data, total)
        return log_likelihood_given_total(values, data, total, log_x) - jnp.sum(z**2) / 2

    return lax.map(one, z, batch_size=_BATCH)


@jax.jit
def _solve_totals(
    values: dict[str, Float[Array, " n"]], data: LikelihoodData, total: Float[Array, ""]
) -> Float[Array, " n"]:
    """log x at several values of alpha and a."""
    return lax.map(lambda one: solve_total(one, data, total), values, batch_size=_BATCH)


def _parameters(z: Float[Array, " 2"]) -> dict[str, Float[Array, ""]]:
    """alpha and a of their logarithms, standardised by the prior."""
    logs = (centre + sd * z[i] for i, (centre, sd) in enumerate(PRIORS.values()))
    return dict(zip(("alpha", "a"), map(jnp.exp, logs), strict=True))


@jax.named_scope("solve_total")
def solve_total(
    values: dict[str, Float[Array, ""]], data: LikelihoodData, total: Float[Array, ""]
) -> Float[Array, ""]:
    """log x at which the expectation of the sum of F given the sample is the total.

    If no x has this expectation, it is a large value, at which the expectation is nearest to it.
    """
    log_unseen = jnp.log(total - jnp.sum(data.number * data.f))

    def step(carry):
        t, log_x, _ = carry
        mean, variance = _unseen(log_x, values, data)
        slope = variance / (1 + jnp.exp(log_x)) / mean
        by = jnp.clip((jnp.log(mean) - log_unseen) / slope, -2, 2)
        following = jnp.minimum(log_x - by, start + _FARTHEST_LOG_X)
        return t + 1, following, jnp.abs(following - log_x)

    start = jnp.log(data.size) - jnp.log(values["alpha"])
    return lax.while_loop(
        lambda carry: (carry[0] < _NEWTON_STEPS) & (carry[2] > _TOLERANCE),
        step,
        (0, start, jnp.full_like(start, jnp.inf)),
    )[1]


@jax.named_scope("log_likelihood_given_total")
def log_likelihood_given_total(
    values: dict[str, Float[Array, ""]],
    data: LikelihoodData,
    total: Float[Array, ""],
    log_x: Float[Array, ""],
) -> Float[Array, ""]:
    """log P(f | N, alpha, a), with F summed out.

    Parameters
    ----------
    values
        alpha and a.
    data
        Distinct cells, from `likelihood_data`.
    total
        N.
    log_x
        Result of `solve_total`.

    Notes
    -----
    P(f | N) = P(f | x) P(sum F = N | f, x) / P(sum F = N | x). The last probability is that of a
    negative binomial. The one before it is approximated by the saddlepoint method with the Poisson
    distribution as its base (Daniels 1954, doi:10.1214/aoms/1177728652; Wood, Booth & Butler 1993,
    doi:10.1080/01621459.1993.10476322). With this base the ratio of the two standard deviations
    tends to 1 if only few persons are not in the sample. If the expectation stays below N for all
    x, as it may if the weights add up to less than N, the distance counts as in a normal
    distribution.
    """
    unseen = total - jnp.sum(data.number * data.f)
    mean, variance = _unseen(log_x, values, data)
    log_of_total = (
        unseen * jnp.log(unseen) - unseen - gammaln(unseen + 1)
        + (jnp.log(unseen) - jnp.log(variance) - (unseen - mean) ** 2 / variance) / 2
    )  # fmt: skip
    shape = values["alpha"] * _num_cells(data)
    log_before = (
        log_gamma_ratio(total + 1, shape - 1) - gammaln(shape)
        - shape * jax.nn.softplus(log_x) - total * jax.nn.softplus(-log_x)
    )  # fmt: skip
    return _log_sample(log_x, values, data) + log_of_total - log_before


def _num_cells(data: LikelihoodData) -> Float[Array, ""]:
    """K."""
    return jnp.sum(data.number) + jnp.sum(data.empty_number)


def _log_sample(
    log_x: Float[Array, ""], values: dict[str, Float[Array, ""]], data: LikelihoodData
) -> Float[Array, ""]:
    """log P(f | x), with independent cells: the likelihood of Model II with gamma = 1."""
    data = data._replace(size=values["alpha"] * jnp.exp(log_x))
    return log_likelihood_given(2, values | {"gamma": jnp.ones_like(log_x)}, data)


def _unseen(
    log_x: Float[Array, ""], values: dict[str, Float[Array, ""]], data: LikelihoodData
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean and variance, given the sample and x, of the number of persons not in the sample.

    They are the first two derivatives, by log r = log x - log(1 + x), of the logarithm of sum_F
    P(f, F | x) (1 + x)^alpha, in which r has the power F.
    """
    seen = jnp.sum(data.number * data.f)
    shape = values["alpha"] * _num_cells(data)

    def mean(log_x):
        slope = jax.grad(_log_sample)(log_x, values, data) + shape * jax.nn.sigmoid(log_x)
        return slope * (1 + jnp.exp(log_x)) - seen

    value, slope = jax.jvp(mean, (log_x,), (jnp.ones_like(log_x),))
    return value, slope * (1 + jnp.exp(log_x))


@jax.jit
def _draw_taus(
    keys: Key[Array, " draws"],
    values: dict[str, Float[Array, " draws"]],
    f: Float[Array, " pairs"],
    phat: Float[Array, " pairs"],
    uniques: Int[Array, " uniques"],
) -> tuple[Array, Array, Array, Array]:
    """Means over draws of E(1 / F | f) and P(F = 1 | f) by pair; tau_1 and tau_2 of each draw."""

    def one(sums, of_draw):
        key, values = of_draw
        alpha, log_x = (jnp.full_like(f, values[name]) for name in ("alpha", "log_x"))
        table = tabulate(f, alpha, *beta_parameters(2, values, phat), log_x)
        F = draw_counts(key, table, uniques)
        sums = sums[0] + table.risk / keys.size, sums[1] + table.p_unique / keys.size
        return sums, (jnp.sum(F == 1, dtype=F.dtype), jnp.sum(1 / F))

    zero = jnp.zeros_like(f)
    (risk, p_unique), (tau1, tau2) = lax.scan(one, (zero, zero), (keys, values))
    return risk, p_unique, tau1, tau2
