"""Hyperparameters of the Polettini-Stander hierarchy that maximise the marginal likelihood."""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy.special import logit

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, displayed
from bnp_models.data.weights import WeightedCells
from bnp_models.kernels.numerics.platforms import double_precision
from bnp_models.models.cells.polettini_stander import (
    NoMaximumError,
    PolettiniStander,
    likelihood_data,
    log_likelihood_given,
)

# Beyond these limits a search has reached the edge of the parameter space.
_BOUNDS = {"alpha": (1e-4, 1e4), "a": (1e-3, 1e6), "b": (1e-3, 1e9), "gamma": (1e-4, 1 - 1e-4)}

# The data do not determine a parameter whose logarithm (or logit) has a larger standard error.
_MAX_LOG_SD = 2.0

_MAX_STEPS = 200

# The search stops at this slope of the log-likelihood, averaged over non-empty cells, or where the
# average changes by a smaller part of itself than the other number.
_SLOPE, _GAIN = 1e-8, 1e-14

_MAX_DECREMENT = 1e-3

_DIFFERENCE = 1e-4


@displayed
class EmpiricalBayes(NamedTuple):
    """A maximum of the likelihood of the hyperparameters.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> in_population = rng.poisson(10_000 * rng.dirichlet(np.full(500, 0.3)))
    >>> in_sample = rng.binomial(in_population, rng.beta(2, 6, 500))
    >>> sample = pd.DataFrame({"cell": np.repeat(range(500), in_sample)})
    >>> simulated = bnp.weighted_cells(sample, population_size=10_000, num_cells=500)
    >>> fitted = bnp.fit_empirical_bayes(bnp.PolettiniStander(variant=1), simulated)
    >>> sorted(fitted.log_sd)
    ['a', 'alpha', 'b']
    """

    model: PolettiniStander
    """Model with the estimates."""
    log_likelihood: float
    """Log-likelihood at the estimates, constants included."""
    log_sd: dict[str, float]
    """Standard errors of the estimates' logarithms; of gamma, of its logit."""
    steps: int
    """Steps of L-BFGS."""
    seconds: dict[str, float]
    """Seconds of wall-clock time: "compile" and "search"."""

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {"model": repr(self.model), "log-likelihood": f"{self.log_likelihood:,.2f}"}
        errors = ", ".join(f"{name} {value:.3g}" for name, value in self.log_sd.items())
        return Shown("EmpiricalBayes", {**lines, "standard errors of logarithms": errors})


def fit_empirical_bayes(model: PolettiniStander, cells: WeightedCells) -> EmpiricalBayes:
    """Estimate the hyperparameters by maximum likelihood, by L-BFGS from those of `model`.

    Parameters
    ----------
    model
        Model that gives the variant and the starting values.
    cells
        Cells with weights, from `weighted_cells`.

    Raises
    ------
    NoMaximumError
        If the search reaches the edge of the parameter space, or ends where the likelihood is flat.
        There is no estimate then.

    Notes
    -----
    The likelihood is a probability of counts and therefore at most one. It need not have a maximum
    inside of the parameter space: alpha and a have nearly the same effect in Model I, and if one of
    them explains the counts, the likelihood keeps growing, more and more slowly, as the other goes
    to infinity.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> in_population = rng.poisson(10_000 * rng.dirichlet(np.full(500, 0.3)))
    >>> in_sample = rng.binomial(in_population, rng.beta(2, 6, 500))
    >>> sample = pd.DataFrame({"cell": np.repeat(range(500), in_sample)})
    >>> simulated = bnp.weighted_cells(sample, population_size=10_000, num_cells=500)
    >>> fitted = bnp.fit_empirical_bayes(bnp.PolettiniStander(variant=1), simulated)
    >>> fitted.model.variant
    1
    """
    call = "fit_empirical_bayes(model, cells)"
    check_kind(PolettiniStander, call, model=model)
    check_kind(WeightedCells, call, cells=cells)
    from scipy.optimize import minimize

    began = time.perf_counter()
    with double_precision():
        names = tuple(model.hyperparameters)
        data = likelihood_data(model, cells)
        total = float(np.maximum(np.sum(data.number), 1))

        def loss(position):
            values = {name: _bounded(name, x) for name, x in zip(names, position, strict=True)}
            return -log_likelihood_given(model.variant, values, data) / total

        low, high = (
            np.array([float(_unbounded(name, _BOUNDS[name][i])) for name in names]) for i in (0, 1)
        )
        given = [float(_unbounded(name, x)) for name, x in model.hyperparameters.items()]
        start = np.clip(given, low, high)
        value_and_grad = jax.jit(jax.value_and_grad(loss)).lower(start).compile()
        compiled = time.perf_counter()
        found = minimize(
            lambda position: tuple(map(np.asarray, value_and_grad(position))), start, jac=True,
            method="L-BFGS-B", bounds=np.stack([low, high], axis=1),
            options={"maxiter": _MAX_STEPS, "gtol": _SLOPE, "ftol": _GAIN},
        )  # fmt: skip
        position = found.x
        hessian = _hessian(value_and_grad, position) * total
        seconds = {"compile": compiled - began, "search": time.perf_counter() - compiled}
        estimates = {n: float(_bounded(n, x)) for n, x in zip(names, position, strict=True)}
        _require_inside(names, estimates, position, low, high, total * found.jac, hessian)
        log_sd = np.sqrt(np.diag(np.linalg.inv(hessian)))
        return EmpiricalBayes(
            model=PolettiniStander(model.variant, **estimates, empty_phat=model.empty_phat),
            log_likelihood=float(-found.fun * total),
            log_sd=dict(zip(names, map(float, log_sd), strict=True)),
            steps=int(found.nit),
            seconds=seconds,
        )


def _hessian(value_and_grad, position) -> np.ndarray:
    """Second derivatives of the loss, by central differences of its gradient."""
    rows = [
        np.asarray(value_and_grad(position + by)[1] - value_and_grad(position - by)[1])
        for by in _DIFFERENCE * np.eye(position.size)
    ]
    hessian = np.stack(rows) / (2 * _DIFFERENCE)
    return (hessian + hessian.T) / 2


def _unbounded(name: str, value: npt.ArrayLike) -> jax.Array:
    """Logarithm of a hyperparameter; the logit of gamma."""
    value = jnp.asarray(value)
    return logit(value) if name == "gamma" else jnp.log(value)


def _bounded(name: str, value: jax.Array) -> jax.Array:
    """Hyperparameter from its logarithm, or logit: the inverse of `_unbounded`."""
    return jax.nn.sigmoid(value) if name == "gamma" else jnp.exp(value)


def _require_inside(names, estimates, position, low, high, slope, hessian):
    """Raise `NoMaximumError` unless the search ended at a maximum inside the bounds.

    `slope` and `hessian` are derivatives of minus the log-likelihood with respect to the logarithms
    of the hyperparameters.
    """
    slope = np.asarray(slope)
    shown = ", ".join(f"{name} {value:.3g}" for name, value in estimates.items())
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
            f"empirical Bayes: no estimate, because the likelihood hardly changes with {flat} "
            f"(stopped at {shown}) and may have its maximum at the edge; {remedy}"
        )
    # A Newton step would still increase the log-likelihood by half of this.
    if float(slope @ np.linalg.solve(hessian, slope)) > _MAX_DECREMENT:
        raise NoMaximumError(
            f"empirical Bayes: the search ended before a maximum (at {shown}); {remedy}"
        )
