"""The Dirichlet-multinomial model that Polettini & Stander suggest as an extension, by MCMC.

    pi ~ Dirichlet(alpha, .., alpha),   F | pi ~ Multinomial(N, pi)
    p_k ~ Beta(a phat_k, a (1 - phat_k)),   f_k | F_k, p_k ~ Binomial(F_k, p_k)
    log alpha ~ N(log 0.3, 1.5),   log a ~ N(log 80, 1.5)

Given p, the counts of sampled and of unsampled persons in all cells are jointly multinomial. Unlike
in Models I and II, the counts add up to the size of the population, so that cells are not
independent; alpha and a are sampled with the counts. pi and p are integrated out, and F is updated
by transfers of persons between pairs of cells. phat of an empty cell is that of its stratum.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, gammaln
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, counted, displayed, spread
from bnp_models.data.weights import WeightedCells
from bnp_models.kernels.cells.transfers import transfer_units
from bnp_models.kernels.numerics.gamma_ratios import log_gamma_ratio
from bnp_models.kernels.numerics.platforms import double_precision
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.cells.full_bayes import PRIORS
from bnp_models.models.cells.polettini_stander import LARGEST_PHAT
from bnp_models.models.options import typed_key


class CountsState(NamedTuple):
    """State of a chain."""

    F: Int[Array, " cells"]
    """Population counts."""
    alpha: Float[Array, ""]
    """Concentration of the cell probabilities."""
    a: Float[Array, ""]
    """Concentration of the sampling fractions."""


class CountsData(NamedTuple):
    """Cells in the form that the sampler uses."""

    f: Int[Array, " cells"]
    """Sample counts, of all K cells."""
    phat: Float[Array, " cells"]
    """Estimated sampling fractions, below 1."""


@dataclass(frozen=True, eq=False)
@displayed
class CountsRun:
    """Chains of population counts.

    Examples
    --------
    >>> chains = bnp.models.sample_population_counts(
    ...     cells, key=jax.random.key(0), num_chains=2, num_warmup=10, num_samples=10
    ... )
    >>> chains.draws["tau1"].shape
    (2, 10)
    """

    risk: np.ndarray
    """E(1 / F | f) of the D non-empty cells."""
    p_unique: np.ndarray
    """P(F = 1 | f) of the D non-empty cells."""
    draws: dict[str, np.ndarray]
    """Draws (chains, draws) of alpha, a, tau1 (the number of sample uniques that are unique in the
    population) and tau2 (the sum of 1 / F over sample uniques)."""
    accepted: float
    """Share of the proposed transfers that were accepted."""

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {name: spread(values) for name, values in self.draws.items()}
        title = f"CountsRun: {counted(len(self.risk), 'cell')}"
        return Shown(title, {**lines, "accepted": f"{self.accepted:.0%} of the transfers"})


def sample_population_counts(
    cells: WeightedCells,
    *,
    key: jax.Array,
    num_chains: int = 4,
    num_warmup: int = 2000,
    num_samples: int = 500,
    thin: int = 4,
) -> CountsRun:
    """Sample the population counts F, with alpha and a.

    Parameters
    ----------
    cells
        Cells with weights, from `weighted_cells`; all K must fit in memory.
    key
        Used once.
    num_chains, num_warmup
        Number of chains; and of sweeps before the first draw.
    num_samples, thin
        Draws of each chain, one every `thin` sweeps.

    Examples
    --------
    >>> chains = bnp.models.sample_population_counts(
    ...     cells, key=jax.random.key(0), num_chains=2, num_warmup=10, num_samples=10
    ... )
    >>> chains.risk.shape == cells.f.shape
    True
    """
    call = "sample_population_counts(cells, key=...)"
    check_kind(WeightedCells, call, cells=cells)
    key = typed_key(key)
    num_empty = cells.num_cells - len(cells.f)
    with double_precision():
        f = jnp.asarray(np.concatenate([cells.f, np.zeros(num_empty)]).astype(np.int64))
        phat = np.concatenate([cells.phat, phat_of_empty(cells)])
        data = CountsData(f, jnp.asarray(np.minimum(phat, LARGEST_PHAT)))
        key_start, key_chains = Keys(jax.random.wrap_key_data(jax.random.key_data(key)), 2)
        chains = []
        for chain in range(num_chains):
            key_chain = jax.random.fold_in(key_start, chain)
            state = initial_counts(key_chain, data, cells.population_size, cells.weight)
            key_chain = jax.random.fold_in(key_chains, chain)
            sizes = len(cells.f), num_warmup, num_samples, thin
            chains.append(_run_chain(key_chain, state, data, *sizes))
        chains = jax.tree.map(lambda *parts: np.stack([np.asarray(p) for p in parts]), *chains)
    risk, p_unique, draws, accepted = chains
    return CountsRun(risk.mean(axis=0), p_unique.mean(axis=0), draws, float(accepted.mean()))


def phat_of_empty(cells: WeightedCells) -> np.ndarray:
    """Sampling fractions of the K - D empty cells, in any order: these cells have no other data."""
    phat, number = cells.empty
    return np.repeat(phat, np.diff(np.rint(np.cumsum(number)).astype(int), prepend=0))


def initial_counts(
    key: Key[Array, ""], data: CountsData, population_size: int, weight: np.ndarray
) -> CountsState:
    """Draw initial counts: part of the population by the weights of the cells, the rest evenly."""
    f = np.asarray(data.f)
    share = float(jax.random.uniform(key, minval=0.5, maxval=1.0))
    total = np.zeros(len(f))
    total[: len(weight)] = share * weight
    F = f + np.floor((population_size - f.sum()) * total / max(total.sum(), 1) * share).astype(int)
    rest = int(population_size - F.sum())
    F += rest // len(F)
    F[: rest % len(F)] += 1
    alpha, concentration = (math.exp(centre) for centre, _ in PRIORS.values())
    return CountsState(jnp.asarray(F), jnp.asarray(alpha), jnp.asarray(concentration))


@partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _run_chain(
    key: Key[Array, ""],
    state: CountsState,
    data: CountsData,
    num_seen: int,
    num_warmup: int,
    num_samples: int,
    thin: int,
) -> tuple[Float[Array, " D"], Float[Array, " D"], dict[str, Array], Float[Array, ""]]:
    """Run one chain; return fields of `CountsRun` for the first `num_seen` cells."""
    key_warmup, key_draws = Keys(key, 2)

    def sweep(t, state, key):
        return sweep_counts(jax.random.fold_in(key, t), state, data)

    state = jax.lax.fori_loop(
        0, num_warmup, lambda t, state: sweep(t, state, key_warmup)[0], state
    )  # fmt: skip
    unique = data.f[:num_seen] == 1

    def draw(carry, i):
        state, risk, p_unique, accepted = carry

        def one(t, inner):
            state, accepted = inner
            state, share = sweep(i * thin + t, state, key_draws)
            return state, accepted + share / (thin * num_samples)

        state, accepted = jax.lax.fori_loop(0, thin, one, (state, accepted))
        reciprocal = 1 / state.F[:num_seen]
        alone = (state.F[:num_seen] == 1) * 1.0
        kept = {
            "alpha": state.alpha, "a": state.a, "tau1": jnp.sum(alone * unique),
            "tau2": jnp.sum(reciprocal * unique),
        }  # fmt: skip
        risk, p_unique = risk + reciprocal / num_samples, p_unique + alone / num_samples
        return (state, risk, p_unique, accepted), kept

    zero = jnp.zeros(num_seen)
    carry = state, zero, zero, jnp.zeros(())
    (_, risk, p_unique, accepted), draws = jax.lax.scan(draw, carry, jnp.arange(num_samples))
    return risk, p_unique, draws, accepted


def sweep_counts(
    key: Key[Array, ""], state: CountsState, data: CountsData
) -> tuple[CountsState, Float[Array, ""]]:
    """Draw population counts, then alpha, then a; return also the share of accepted transfers."""
    key_counts, key_alpha, key_a = Keys(key, 3)
    F, accepted = update_counts(key_counts, state, data)
    alpha = update_alpha(key_alpha, state.alpha, F)
    a = update_concentration(key_a, state.a, F, data)
    return CountsState(F, alpha, a), accepted


@jax.named_scope("update_counts")
def update_counts(
    key: Key[Array, ""], state: CountsState, data: CountsData
) -> tuple[Int[Array, " cells"], Float[Array, ""]]:
    """Draw F given alpha and a, with pi and p integrated out.

    For each cell the target is Gamma(alpha + F) Gamma(F - f + b) / (Gamma(a_k + b_k + F) (F - f)!).
    The target of Models I and II is the same, except that their total is not fixed.
    """

    def log_ratio(cell, count, change):
        unseen, phat = count - data.f[cell], data.phat[cell]
        possible = unseen + change >= 0
        by = jnp.where(possible, change, 0).astype(phat.dtype)
        b = state.a * (1 - phat)
        value = (
            log_gamma_ratio(state.alpha + count, by) - log_gamma_ratio(state.a + count, by)
            + log_gamma_ratio(b + unseen, by) - log_gamma_ratio(1.0 + unseen, by)
        )  # fmt: skip
        return jnp.where(possible, value, -jnp.inf)

    return transfer_units(key, state.F, log_ratio)


@jax.named_scope("update_alpha")
def update_alpha(
    key: Key[Array, ""], alpha: Float[Array, ""], F: Int[Array, " cells"]
) -> Float[Array, ""]:
    """Draw alpha given F, by a random walk."""
    total = jnp.sum(F)

    def log_target(alpha):
        whole = gammaln(F.size * alpha) - gammaln(F.size * alpha + total)
        return whole + jnp.sum(log_gamma_ratio(alpha, F.astype(alpha.dtype)))

    return _walk(key, alpha, log_target, *PRIORS["alpha"])


@jax.named_scope("update_concentration")
def update_concentration(
    key: Key[Array, ""], a: Float[Array, ""], F: Int[Array, " cells"], data: CountsData
) -> Float[Array, ""]:
    """Draw a given F and f, by a random walk."""
    unseen = F - data.f

    def log_target(a):
        first, second = a * data.phat, a * (1 - data.phat)
        return jnp.sum(betaln(first + data.f, second + unseen) - betaln(first, second))

    return _walk(key, a, log_target, *PRIORS["concentration"])


def _walk(
    key: Key[Array, ""],
    value: Float[Array, ""],
    log_target: Callable[[Float[Array, ""]], Float[Array, ""]],
    centre: float,
    sd: float,
    num_scales: int = 8,
) -> Float[Array, ""]:
    """Metropolis random walk of a positive number on the log scale, with steps of random size.

    The log target density is `log_target` plus that of a log-normal prior about exp(centre).
    """
    key_scale, key_step, key_accept = Keys(key, 3)
    scale = 2.0 ** -jax.random.randint(key_scale, (), 0, num_scales).astype(value.dtype)
    now = jnp.log(value)
    then = now + scale * jax.random.normal(key_step, dtype=value.dtype)

    def log_density(position):
        return log_target(jnp.exp(position)) - ((position - centre) / sd) ** 2 / 2

    log_uniform = jnp.log(jax.random.uniform(key_accept, dtype=value.dtype, minval=1e-300))
    return jnp.exp(jnp.where(log_uniform < log_density(then) - log_density(now), then, now))
