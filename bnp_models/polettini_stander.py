"""Risk of each cell under the Bayesian hierarchy of Polettini & Stander, Models I and II.

    pi_k ~ Ga(alpha, K alpha),   F_k | pi_k ~ Poisson(N pi_k),   f_k | F_k, p_k ~ Binomial(F_k, p_k)
    I:  p_k ~ Beta(a, b)
    II: p_k ~ gamma Beta(a phat_k, a (1 - phat_k)) + (1 - gamma) delta_0

where phat_k is f_k over the sum of the cell's weights.

The risk of a cell is E(1 / F_k | f_k). Hyperparameters are fixed (the paper's values by default),
estimated (`fit_empirical_bayes`) or sampled (`sample_hyperparameters`). Everything is in float64.

Polettini & Stander, Bayesian models for risk estimation in statistical disclosure limitation. The
"a" in the last gamma function of its distribution 2 is a_k.
"""

import math
import time
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.scipy.special import logit

from bnp_models.kernels.thinning import (
    benedetti_franconi,
    log_marginal,
    log_posterior,
    summarise,
)
from bnp_models.weights import WeightedCells

# The paper's values, elicited for a sample of the Italian census of 1991.
DEFAULTS = {
    1: {"alpha": 0.92, "a": 0.86, "b": 80.0},
    2: {"alpha": 0.1, "a": 80.0, "gamma": 0.7},
}
LEVELS = (0.025, 0.5, 0.975)

# A cell whose weights add up to its records has phat = 1, at which b is 0 and F is f.
_LARGEST_PHAT = 1 - 1e-9
# Of the quadrature of a likelihood: errors of 1e-8, and 4e-6 at the worst of a wide range.
_NODES = 96
# Beyond these a search has run to the edge of the parameter space.
_BOUNDS = {"alpha": (1e-4, 1e4), "a": (1e-3, 1e6), "b": (1e-3, 1e9), "gamma": (1e-4, 1 - 1e-4)}
# A parameter whose logarithm (or logit) is less certain than this is not determined by the data.
_MAX_LOG_SD = 2.0
_MAX_STEPS = 200
# Of the mean log-likelihood of a non-empty cell: where the search stops.
_SLOPE = 1e-8
_LONGEST_STEP = 2.0
_MAX_DECREMENT = 1e-3
_DIFFERENCE = 1e-4
# Draws whose distributions of F are mixed for quantiles and modes, and levels of each.
_MIXED, _MIXED_LEVELS = 64, 60
_BATCH_OF_DRAWS = 64


class NoMaximumError(ValueError):
    """The likelihood has its maximum at the edge of the parameter space, so none is returned."""


class PolettiniStander(eqx.Module):
    """Model I or II of Polettini & Stander, with its hyperparameters.

    Parameters
    ----------
    variant
        1 or 2.
    alpha
        Shape of the cell means: small where few cells hold most of the population.
    a, b
        Model I: the sampling fractions are Beta(a, b).
    a, gamma
        Model II: those of a share gamma of the cells are Beta(a phat, a (1 - phat)), those of the
        others 0.
    empty_phat
        Model II: ((phat, share of the empty cells), ...), shares that add up to 1: the mixture over
        which the likelihood of an empty cell is averaged, on the log scale, as in section 7.1.
        Default: n over the sum of all weights.

    Raises
    ------
    ValueError
        If a hyperparameter is out of range or not the variant's.
    """

    variant: int = eqx.field(static=True)
    alpha: float
    a: float
    b: float | None
    gamma: float | None
    empty_phat: tuple[tuple[float, float], ...] | None = eqx.field(static=True)

    truncates: ClassVar[bool] = False

    def __init__(self, variant=2, *, alpha=None, a=None, b=None, gamma=None, empty_phat=None):
        if variant not in DEFAULTS:
            raise ValueError(f"variant is 1 or 2, not {variant!r}")
        given = {"alpha": alpha, "a": a, "b": b, "gamma": gamma}
        for name, value in given.items():
            if value is not None and name not in DEFAULTS[variant]:
                raise ValueError(f"{name} is not a parameter of Model {'I' * variant}")
        values = DEFAULTS[variant] | {k: v for k, v in given.items() if v is not None}
        for name, value in values.items():
            most = 1 if name == "gamma" else math.inf
            if not (0 < value <= most and math.isfinite(value)):
                limit = "from 0 to 1" if name == "gamma" else "a positive number"
                raise ValueError(f"{name} must be {limit}, not {value}")
        if empty_phat is not None:
            if variant == 1:
                raise ValueError("empty_phat is not a parameter of Model I")
            empty_phat = tuple((float(phat), float(share)) for phat, share in empty_phat)
            if not all(0 < phat <= 1 and share > 0 for phat, share in empty_phat):
                raise ValueError("empty_phat: every phat is from 0 to 1, every share positive")
            if abs(sum(share for _, share in empty_phat) - 1) > 1e-6:
                raise ValueError("empty_phat: the shares must add up to 1")
        self.variant = variant
        self.alpha, self.a = float(values["alpha"]), float(values["a"])
        self.b = None if variant == 2 else float(values["b"])
        self.gamma = None if variant == 1 else float(values["gamma"])
        self.empty_phat = empty_phat

    @property
    def name(self) -> str:
        """As the command line has it."""
        return f"polettini-stander-{self.variant}"

    @property
    def hyperparameters(self) -> dict[str, float]:
        """By name, in the paper's order."""
        return {name: getattr(self, name) for name in DEFAULTS[self.variant]}

    def log_marginal(self, f, phat, cells: WeightedCells) -> np.ndarray:
        """log P(f) of cells with f records and an estimated sampling fraction phat.

        Distribution 2 of the paper, or 3. `f` and `phat` broadcast.
        """
        with double_precision():
            f, phat = np.broadcast_arrays(np.asarray(f, float), np.asarray(phat, float))
            found = _log_marginal(
                self.variant, self._values(), jnp.asarray(f), jnp.asarray(phat), _size(cells)
            )
            return np.asarray(found)

    def log_posterior(self, F, f, phat, cells: WeightedCells) -> np.ndarray:
        """log P(F | f), distribution 1 of the paper; f at least 1."""
        with double_precision():
            arrays = np.broadcast_arrays(*(np.asarray(v, float) for v in (F, f, phat)))
            F, f, phat = map(jnp.asarray, arrays)
            a, b = _beta_parameters(self.variant, self._values(), phat)
            alpha = jnp.full_like(f, self.alpha)
            log_x = jnp.full_like(f, math.log(_size(cells) / self.alpha))
            return np.asarray(_log_posterior(F, f, alpha, a, b, log_x))

    def log_likelihood(self, cells: WeightedCells) -> float:
        """Of the hyperparameters, constants included: (11) and (13), or that of section 7.1."""
        with double_precision():
            return float(_log_likelihood(self.variant, self._values(), _data(self, cells)))

    def _values(self):
        return {name: jnp.asarray(value) for name, value in self.hyperparameters.items()}


def double_precision():
    """A context in which JAX computes in float64."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


class _Data(NamedTuple):
    """What the likelihood reads: distinct cells, and how many there are of each."""

    f: jax.Array
    phat: jax.Array
    number: jax.Array
    empty_phat: jax.Array
    empty_number: jax.Array
    size: jax.Array
    """N / K: lambda is K alpha, so that N / lambda is this over alpha."""


def _data(model, cells):
    f, phat, number, _ = cells.distinct
    if model.variant == 1:
        # phat plays no part.
        f, pair = np.unique(f, return_inverse=True)
        number, phat = np.bincount(pair, number), np.zeros(len(f))
    empty = np.array(model.empty_phat or ((cells.pooled_phat, 1.0),))
    num_empty = cells.num_cells - cells.f.size
    arrays = f, phat, number, empty[:, 0], empty[:, 1] * num_empty, _size(cells)
    return _Data(*map(jnp.asarray, arrays))


def _size(cells):
    return np.float64(cells.population_size / cells.num_cells)


def _beta_parameters(variant, values, phat):
    if variant == 1:
        return jnp.broadcast_to(values["a"], phat.shape), jnp.broadcast_to(values["b"], phat.shape)
    phat = jnp.minimum(phat, _LARGEST_PHAT)
    return values["a"] * phat, values["a"] * (1 - phat)


@partial(jax.jit, static_argnums=0)
def _log_marginal(variant, values, f, phat, size):
    a, b = _beta_parameters(variant, values, phat)
    alpha = jnp.broadcast_to(values["alpha"], f.shape)
    log_x = jnp.log(size) - jnp.log(alpha)
    log_p = log_marginal(f, alpha, a, b, log_x, nodes=_NODES)
    if variant == 1:
        return log_p
    log_p = jnp.log(values["gamma"]) + log_p
    # Kept from log 0 at gamma = 1, where it would be a minus infinity with a nan for a gradient.
    log_zero = jnp.log(jnp.maximum(1 - values["gamma"], 1e-300))
    return jnp.where(f == 0, jnp.logaddexp(log_p, log_zero), log_p)


@partial(jax.jit, static_argnums=0)
def _log_likelihood(variant, values, data):
    f = jnp.concatenate([data.f, jnp.zeros_like(data.empty_phat)])
    phat = jnp.concatenate([data.phat, data.empty_phat])
    number = jnp.concatenate([data.number, data.empty_number])
    return jnp.sum(number * _log_marginal(variant, values, f, phat, data.size))


_log_posterior = jax.jit(log_posterior)


# Empirical Bayes.


class EmpiricalBayes(NamedTuple):
    """A maximum of the likelihood of the hyperparameters."""

    model: PolettiniStander
    """With the estimates."""
    log_likelihood: float
    log_sd: dict[str, float]
    """Standard errors of the estimates' logarithms; of gamma, of its logit."""
    steps: int
    """Of L-BFGS."""
    seconds: dict[str, float]
    """"compile" and "search"."""


def fit_empirical_bayes(model: PolettiniStander, cells: WeightedCells) -> EmpiricalBayes:
    """Hyperparameters of the largest likelihood, by L-BFGS from those of `model`.

    Raises
    ------
    NoMaximumError
        If the search runs to the edge of the parameter space, or ends where the likelihood is flat:
        there is no estimate then.

    Notes
    -----
    The likelihood is that of counts, hence bounded by one. It need not have a maximum inside: alpha
    and a play nearly the same part in Model I, and where one of them explains the counts the
    likelihood grows, ever more slowly, as the other goes to infinity.
    """
    import optax

    began = time.perf_counter()
    with double_precision():
        names = tuple(model.hyperparameters)
        data = _data(model, cells)
        total = float(np.maximum(np.sum(data.number), 1))
        low, high = (
            np.array([float(_unbounded(name, _BOUNDS[name][i])) for name in names]) for i in (0, 1)
        )

        def loss(position):
            values = {name: _bounded(name, x) for name, x in zip(names, position, strict=True)}
            return -_log_likelihood(model.variant, values, data) / total

        start = jnp.stack([_unbounded(n, v) for n, v in model.hyperparameters.items()])
        value_and_grad = jax.jit(jax.value_and_grad(loss)).lower(start).compile()
        solver = optax.scale_by_lbfgs()
        state = solver.init(start)
        direct = jax.jit(solver.update).lower(start, state, start).compile()
        compiled = time.perf_counter()

        position, steps = start, 0
        value, grad = value_and_grad(position)
        while steps < _MAX_STEPS and np.abs(grad).max() > _SLOPE:
            direction, state = direct(grad, state, position)
            # Halved until the loss falls by a part of what the slope promises (Armijo's rule).
            size, promised = 1.0, float(jnp.vdot(direction, grad))
            size = min(size, _LONGEST_STEP / float(jnp.abs(direction).max()))
            while size > 1e-10:
                following = position - size * direction
                found, slope = value_and_grad(following)
                if found <= value - 1e-4 * size * promised:
                    break
                size /= 2
            else:
                break
            gained = float(value - found)
            position, value, grad, steps = following, found, slope, steps + 1
            if gained < 1e-14 * abs(float(value)) or np.any((position <= low) | (position >= high)):
                break
        hessian = np.stack([
            np.asarray(value_and_grad(position + by)[1] - value_and_grad(position - by)[1])
            for by in _DIFFERENCE * jnp.eye(len(names))
        ]) * (total / (2 * _DIFFERENCE))  # fmt: skip
        seconds = {"compile": compiled - began, "search": time.perf_counter() - compiled}
        found = {n: float(_bounded(n, x)) for n, x in zip(names, position, strict=True)}
        hessian = (hessian + hessian.T) / 2
        _require_inside(names, found, np.asarray(position), low, high, total * grad, hessian)
        log_sd = np.sqrt(np.diag(np.linalg.inv(hessian)))
        return EmpiricalBayes(
            PolettiniStander(model.variant, **found, empty_phat=model.empty_phat),
            float(-value * total), dict(zip(names, map(float, log_sd), strict=True)), steps,
            seconds,
        )  # fmt: skip


def _unbounded(name, value):
    value = jnp.asarray(value)
    return logit(value) if name == "gamma" else jnp.log(value)


def _bounded(name, value):
    return jax.nn.sigmoid(value) if name == "gamma" else jnp.exp(value)


def _require_inside(names, found, position, low, high, slope, hessian):
    slope = np.asarray(slope)
    shown = ", ".join(f"{name} {value:.3g}" for name, value in found.items())
    remedy = "give hyperparameters, or put a prior on them (full Bayes)"
    if not np.isfinite(position).all():
        raise NoMaximumError(f"empirical Bayes: the search failed; {remedy}")
    edges = [
        f"{name} goes to {'its upper' if position[i] >= high[i] else 'its lower'} limit"
        for i, name in enumerate(names)
        if not low[i] < position[i] < high[i]
    ]
    if edges:
        raise NoMaximumError(
            f"empirical Bayes: no estimate, the likelihood is largest at the edge, where "
            f"{' and '.join(edges)} (stopped at {shown}); {remedy}"
        )
    values, vectors = np.linalg.eigh(hessian)
    if values[0] < _MAX_LOG_SD**-2:
        flat = names[int(np.argmax(np.abs(vectors[:, 0])))]
        raise NoMaximumError(
            f"empirical Bayes: no estimate, the likelihood hardly changes along {flat} "
            f"(stopped at {shown}), as it does on the way to the edge; {remedy}"
        )
    # Newton's step would still raise the log-likelihood by half of this.
    if float(slope @ np.linalg.solve(hessian, slope)) > _MAX_DECREMENT:
        raise NoMaximumError(
            f"empirical Bayes: the search ended before a maximum (at {shown}); {remedy}"
        )


# Full Bayes.


@dataclass(frozen=True, eq=False)
class HyperparameterDraws:
    """Chains of the hyperparameters."""

    values: dict[str, np.ndarray]
    """Of each, (chains, draws)."""
    log_likelihood: np.ndarray
    """(chains, draws)"""
    statistics: dict[str, np.ndarray]
    """Of the sampler, (chains, draws): diverging, num_steps, acceptance_rate, energy."""
    seconds: dict[str, float]
    """"chains": compilation, warm-up and draws."""


# Centre and standard deviation, on the log scale, of the priors of `sample_hyperparameters`.
PRIORS = {"alpha": (math.log(0.3), 1.5), "concentration": (math.log(80.0), 1.5)}
FRACTION_SD = 0.5


def sample_hyperparameters(
    model: PolettiniStander,
    cells: WeightedCells,
    *,
    key: jax.Array,
    num_chains: int = 4,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    thin: int = 1,
    progress: bool = False,
) -> HyperparameterDraws:
    """Chains of the hyperparameters by NumPyro's NUTS.

    Parameters
    ----------
    model
        The variant, and `empty_phat`; its hyperparameters are not used.
    key
        Used once.
    num_samples
        Draws kept of each chain, one every `thin` steps.

    Notes
    -----
    Priors: log alpha ~ N(log 0.3, 1.5); the concentration (a + b of Model I, a of Model II) is
    log-normal about 80 with 1.5; Model I's mean sampling fraction a / (a + b) has a logit that is
    normal about that of n / N, with 0.5; gamma is uniform. 95% of alpha lies from 0.016 to 5.7, of
    the concentration from 4 to 1,500.
    """
    from numpyro.infer import MCMC, NUTS, init_to_uniform

    with double_precision():
        data = _data(model, cells)
        fraction = min(cells.f.sum() / cells.population_size, _LARGEST_PHAT)
        mcmc = MCMC(
            NUTS(partial(hierarchy, model.variant), init_strategy=init_to_uniform(radius=1.0)),
            num_warmup=num_warmup, num_samples=num_samples * thin, num_chains=num_chains,
            thinning=thin, chain_method="sequential", progress_bar=progress,
        )  # fmt: skip
        fields = ("diverging", "num_steps", "accept_prob", "energy")
        began = time.perf_counter()
        key = jax.random.wrap_key_data(jax.random.key_data(key))
        mcmc.run(key, data, fraction, extra_fields=fields)
        drawn = {k: np.asarray(v) for k, v in mcmc.get_samples(group_by_chain=True).items()}
        extra = {k: np.asarray(v) for k, v in mcmc.get_extra_fields(group_by_chain=True).items()}
    extra["acceptance_rate"] = extra.pop("accept_prob")
    return HyperparameterDraws(
        values={name: drawn[name] for name in model.hyperparameters},
        log_likelihood=drawn["log_likelihood"],
        statistics=extra,
        seconds={"chains": time.perf_counter() - began},
    )


def hierarchy(variant: int, data, fraction: float) -> None:
    """The hyperparameters and their likelihood, as a NumPyro model.

    Parameters
    ----------
    variant
        1 or 2.
    data
        Distinct cells.
    fraction
        n / N.
    """
    import numpyro
    from numpyro.distributions import Normal, Uniform

    z = {name: numpyro.sample(f"z_{name}", Normal(0.0, 1.0)) for name in PRIORS}
    alpha, concentration = (
        jnp.exp(centre + sd * z[name]) for name, (centre, sd) in PRIORS.items()
    )  # fmt: skip
    values = {"alpha": alpha, "a": concentration}
    if variant == 1:
        z_fraction = numpyro.sample("z_fraction", Normal(0.0, 1.0))
        share = jax.nn.sigmoid(logit(fraction) + FRACTION_SD * z_fraction)
        values |= {"a": concentration * share, "b": concentration * (1 - share)}
    for name, value in values.items():
        numpyro.deterministic(name, value)
    if variant == 2:
        values["gamma"] = numpyro.sample("gamma", Uniform(0.0, 1.0))
    log_likelihood = _log_likelihood(variant, values, data)
    numpyro.deterministic("log_likelihood", log_likelihood)
    numpyro.factor("likelihood", log_likelihood)


# Risk.


@dataclass(frozen=True, eq=False)
class CellRisk:
    """The disclosure risk of every non-empty cell of a sample."""

    model: PolettiniStander
    """With the hyperparameters that were used; under full Bayes, the medians of `draws`."""
    cells: WeightedCells
    draws: HyperparameterDraws | None
    """Chains of the hyperparameters, under full Bayes."""
    risk: np.ndarray
    """(D,) E(1 / F | f)."""
    p_unique: np.ndarray
    """(D,) P(F = 1 | f)."""
    median: np.ndarray
    """(D,) median of F."""
    mode: np.ndarray
    """(D,) most probable F."""
    q025: np.ndarray
    """(D,) 2.5% quantile of F."""
    q975: np.ndarray
    """(D,) 97.5% quantile of F."""
    tau1: np.ndarray
    """(chains, draws) draws of the number of sample uniques that are unique in the population."""
    tau1_conditional: np.ndarray
    """(chains, draws) expectation of that number given the hyperparameters."""
    tau1_variance: np.ndarray
    """(chains, draws) variance of that number given the hyperparameters."""
    tau2: np.ndarray
    """(chains, draws) sum over sample uniques of E(1 / F | f), given the hyperparameters."""
    log_likelihood: np.ndarray
    """(chains, draws) of the hyperparameters."""
    seconds: dict[str, float]

    def frame(self) -> pd.DataFrame:
        """One row per non-empty cell, riskiest first: key variables, f, phat, risk and so on."""
        schema = self.cells.table.schema
        columns = {}
        for j, (name, labels) in enumerate(zip(schema.variables, schema.levels, strict=True)):
            values = np.empty(len(labels), dtype=object)
            values[:] = labels
            columns[name] = pd.Series(values[self.cells.codes[:, j]]).infer_objects()
        columns |= {"f": self.cells.f.astype(np.int64), "phat": self.cells.phat}
        columns |= {"risk": self.risk, "p_unique": self.p_unique}
        for name in ("median", "mode", "q025", "q975"):
            columns[name] = getattr(self, name).astype(np.int64)
        frame = pd.DataFrame(columns)
        return frame.iloc[np.argsort(-self.risk, kind="stable")].reset_index(drop=True)


def cell_risk(
    model: PolettiniStander,
    cells: WeightedCells,
    *,
    key: jax.Array,
    draws: HyperparameterDraws | None = None,
    num_chains: int = 4,
    num_samples: int = 1000,
) -> CellRisk:
    """Risk, probability of a population unique, median, mode and interval of F, cell by cell.

    Parameters
    ----------
    model
        With the hyperparameters to use, unless there are `draws`.
    cells
        What `weighted_cells` returned.
    key
        For the draws of tau_1.
    draws
        What `sample_hyperparameters` returned: everything is then averaged over them.
    num_chains, num_samples
        Draws of tau_1 without `draws`, all independent.

    Notes
    -----
    Under `draws`, risk and probability are means over all of them, quantiles and modes those of the
    mixture over 64 of them at most.
    """
    began = time.perf_counter()
    with double_precision():
        f, phat, _, pair = cells.distinct
        unique = f == 1
        if draws is None:
            values = {name: np.full((1, 1), v) for name, v in model.hyperparameters.items()}
            log_likelihood = np.full((num_chains, num_samples), model.log_likelihood(cells))
        else:
            values, log_likelihood = draws.values, draws.log_likelihood
        flat = {name: value.reshape(-1) for name, value in values.items()}
        arguments = model.variant, flat, f, phat, _size(cells)
        if draws is None:
            risks, chances, quantiles, mode = _at_one(*arguments)
        else:
            risks, chances = _risks(*arguments)
            quantiles, mode = _places(*arguments)
    if draws is not None:
        medians = {name: float(np.median(value)) for name, value in values.items()}
        model = PolettiniStander(model.variant, **medians, empty_phat=model.empty_phat)
    number = np.bincount(pair, minlength=len(f))[unique]
    chances_unique = chances[:, unique]
    shape = log_likelihood.shape
    conditional = chances_unique @ number
    variance = (chances_unique * (1 - chances_unique)) @ number
    tau2 = risks[:, unique] @ number
    generator = np.random.Generator(np.random.Philox(key=_seed(key)))
    rows = np.broadcast_to(np.arange(len(chances)), log_likelihood.size) if draws is not None else (
        np.zeros(log_likelihood.size, int)
    )  # fmt: skip
    tau1 = _draw_counts(generator, number, np.clip(chances_unique, 0, 1), rows)
    return CellRisk(
        model=model, cells=cells, draws=draws,
        risk=risks.mean(axis=0)[pair], p_unique=chances.mean(axis=0)[pair],
        median=quantiles[1][pair], mode=mode[pair], q025=quantiles[0][pair],
        q975=quantiles[2][pair], tau1=tau1.reshape(shape),
        tau1_conditional=conditional[rows].reshape(shape),
        tau1_variance=variance[rows].reshape(shape), tau2=tau2[rows].reshape(shape),
        log_likelihood=log_likelihood,
        seconds={"risk": time.perf_counter() - began},
    )  # fmt: skip


def _seed(key):
    words = np.asarray(jax.random.bits(key, (4,), np.uint32), np.uint64)
    return words[:2] << np.uint64(32) | words[2:]


def _draw_counts(generator, number, chances, rows):
    """Of each row, the sum over groups of Binomial(number, chance)."""
    counts = np.empty(len(rows))
    block = max(1, 2**20 // max(1, len(number)))
    for start in range(0, len(rows), block):
        here = rows[start : start + block]
        drawn = generator.binomial(number.astype(np.int64), chances[here])
        counts[start : start + block] = drawn.sum(axis=1)
    return counts


def _cell_arguments(variant, values, f, phat, size):
    """Arguments of `summarise` at one draw of the hyperparameters."""
    values = {name: jnp.asarray(value) for name, value in values.items()}
    a, b = _beta_parameters(variant, values, phat)
    alpha = jnp.full_like(f, 1.0) * values["alpha"]
    return f, alpha, a, b, jnp.log(size) - jnp.log(alpha)


def _distinct_for(variant, f, phat):
    """In Model I phat plays no part: the distinct f, and which of them each pair is."""
    if variant == 1:
        f, of_pair = np.unique(f, return_inverse=True)
        return f, np.zeros(len(f)), of_pair.reshape(-1)
    return f, phat, np.arange(len(f))


def _at_one(variant, flat, f, phat, size):
    """What `_risks` and `_places` return, of one draw."""
    f, phat, of_pair = _distinct_for(variant, f, phat)
    values = {name: value[0] for name, value in flat.items()}
    arguments = _cell_arguments(variant, values, *map(jnp.asarray, (f, phat, size)))
    found = jax.tree.map(np.asarray, summarise(*arguments, LEVELS))
    return (
        found.risk[None, of_pair], found.p_unique[None, of_pair], found.quantiles[:, of_pair],
        found.mode[of_pair],
    )  # fmt: skip


def _risks(variant, flat, f, phat, size):
    """E(1 / F | f) and P(F = 1 | f), (draws, pairs)."""
    f, phat, of_pair = _distinct_for(variant, f, phat)
    f, phat, size = map(jnp.asarray, (f, phat, size))

    def one(values):
        found = summarise(*_cell_arguments(variant, values, f, phat, size), LEVELS)
        return found.risk, found.p_unique

    total = len(flat["alpha"])
    evaluate = jax.jit(lambda values: jax.lax.map(one, values))
    parts = []
    for start in range(0, total, _BATCH_OF_DRAWS):
        chosen = np.minimum(np.arange(start, start + _BATCH_OF_DRAWS), total - 1)
        found = evaluate({name: jnp.asarray(value[chosen]) for name, value in flat.items()})
        kept = min(_BATCH_OF_DRAWS, total - start)
        parts.append([np.asarray(part)[:kept] for part in found])
    return tuple(np.concatenate(part)[:, of_pair] for part in zip(*parts, strict=True))


def _places(variant, flat, f, phat, size):
    """Quantiles (levels, pairs) and mode (pairs,) of F, mixed over draws."""
    f, phat, of_pair = _distinct_for(variant, f, phat)
    arrays = tuple(map(jnp.asarray, (f, phat, size)))
    total = len(flat["alpha"])
    chosen = np.unique(np.linspace(0, total - 1, min(total, _MIXED)).round().astype(int))
    levels = tuple((np.arange(_MIXED_LEVELS) + 0.5) / _MIXED_LEVELS)
    pooled, modes = [], []
    for i in chosen:
        values = {name: value[i] for name, value in flat.items()}
        found = summarise(*_cell_arguments(variant, values, *arrays), levels)
        pooled.append(np.asarray(found.quantiles))
        modes.append(np.asarray(found.mode))
    quantiles = np.quantile(np.concatenate(pooled), LEVELS, axis=0, method="inverted_cdf")
    candidates = np.quantile(np.stack(modes), np.linspace(0, 1, 9), axis=0, method="nearest")
    density = np.zeros(candidates.shape)
    for i in chosen[:: max(1, len(chosen) // 16)]:
        values = {name: value[i] for name, value in flat.items()}
        arguments = _cell_arguments(variant, values, *arrays)
        density += np.exp(np.asarray(_log_posterior(jnp.asarray(candidates), *arguments)))
    mode = np.take_along_axis(candidates, density.argmax(axis=0)[None], axis=0)[0]
    return quantiles[:, of_pair], mode[of_pair]


def benedetti_franconi_risk(cells: WeightedCells) -> np.ndarray:
    """(D,) E(1 / F) under the negative binomial of Benedetti & Franconi (1998), exactly."""
    with double_precision():
        f, phat, _, pair = cells.distinct
        risk = jax.jit(benedetti_franconi)(jnp.asarray(f), jnp.asarray(phat))
        return np.asarray(risk)[pair]


# Goodness of fit.

_BINS = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 10), (11, 20), (21, 50), (51, 100))
_MAX_PHATS = 48


def counts_of_counts(model: PolettiniStander, cells: WeightedCells) -> pd.DataFrame:
    """How many cells have 0, 1, 2, .. records: observed, and expected under the marginal of f.

    Returns
    -------
    frame
        Columns "records" ("0", "6-10", "101+"), "observed" and "expected"; both add up to K.

    Notes
    -----
    In Model II a cell's expectation depends on its phat, and on the assumed ones where it is empty;
    more than 48 distinct values are put into as many groups.
    """
    if model.variant == 1:
        phat, number = np.zeros(1), np.array([float(cells.num_cells)])
    else:
        phat, number = _grouped(cells.phat)
        empty = np.array(model.empty_phat or ((cells.pooled_phat, 1.0),))
        phat = np.concatenate([phat, empty[:, 0]])
        number = np.concatenate([number, empty[:, 1] * (cells.num_cells - cells.f.size)])
    last = _BINS[-1][1]
    pmf = np.exp(model.log_marginal(np.arange(last + 1.0)[:, None], phat, cells))
    each = pmf @ number
    expected = [each[low : high + 1].sum() for low, high in _BINS]
    counts = np.bincount(np.minimum(cells.f, last + 1).astype(int), minlength=last + 2)
    counts[0] = cells.num_cells - cells.f.size
    observed = [counts[low : high + 1].sum() for low, high in _BINS]
    names = [f"{low}" if low == high else f"{low}-{high}" for low, high in _BINS]
    return pd.DataFrame({
        "records": [*names, f"{last + 1}+"],
        "observed": [*observed, counts[last + 1]],
        "expected": [*expected, cells.num_cells - sum(expected)],
    })  # fmt: skip


def _grouped(phat):
    found, number = np.unique(phat, return_counts=True)
    if len(found) <= _MAX_PHATS:
        return found, number.astype(float)
    groups = np.array_split(np.sort(phat), _MAX_PHATS)
    return np.array([g.mean() for g in groups]), np.array([float(len(g)) for g in groups])
