"""Hyperparameters of the Polettini-Stander hierarchy that maximise the marginal likelihood."""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logit

from bnp_models.data.weights import WeightedCells
from bnp_models.models.cells.polettini_stander import (
    NoMaximumError,
    PolettiniStander,
    data_of_cells,
    double_precision,
    log_likelihood_of,
)

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
        data = data_of_cells(model, cells)
        total = float(np.maximum(np.sum(data.number), 1))
        low, high = (
            np.array([float(_unbounded(name, _BOUNDS[name][i])) for name in names]) for i in (0, 1)
        )

        def loss(position):
            values = {name: _bounded(name, x) for name, x in zip(names, position, strict=True)}
            return -log_likelihood_of(model.variant, values, data) / total

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
