"""Risk of each cell under the Bayesian hierarchy of Polettini & Stander, Models I and II.

    pi_k ~ Ga(alpha, K alpha),   F_k | pi_k ~ Poisson(N pi_k),   f_k | F_k, p_k ~ Binomial(F_k, p_k)
    I:  p_k ~ Beta(a, b)
    II: p_k ~ gamma Beta(a phat_k, a (1 - phat_k)) + (1 - gamma) delta_0

where phat_k is f_k divided by the sum of the cell's weights.

The risk of a cell is E(1 / F_k | f_k). Hyperparameters are fixed (the paper's values by default),
estimated (`fit_empirical_bayes`) or sampled (`sample_hyperparameters`). All computations are in
float64.

Polettini & Stander, Bayesian models for risk estimation in statistical disclosure limitation. The
"a" in the last gamma function of its distribution 2 is a_k.
"""

import math
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from bnp_models.data.display import options_as_html
from bnp_models.data.microdata import Microdata
from bnp_models.data.weights import WeightedCells
from bnp_models.kernels.cells.thinning import log_marginal, log_posterior
from bnp_models.kernels.numerics.platforms import double_precision

# The paper's values, elicited for a sample of the Italian census of 1991.
DEFAULTS = {
    1: {"alpha": 0.92, "a": 0.86, "b": 80.0},
    2: {"alpha": 0.1, "a": 80.0, "gamma": 0.7},
}

LEVELS = (0.025, 0.5, 0.975)

# A cell whose weights add up to its number of records has phat = 1; then b is 0 and F is f.
LARGEST_PHAT = 1 - 1e-9

# Nodes of the quadrature of a likelihood. Its error is usually 1e-8; the largest in a wide range of
# hyperparameters was 4e-6.
NODES = 96


class NoMaximumError(ValueError):
    """The likelihood has its maximum at the edge of the parameter space, so there is no estimate.

    Examples
    --------
    >>> issubclass(bnp.NoMaximumError, ValueError)
    True
    """


class PolettiniStander(eqx.Module):
    """Model I or II of Polettini & Stander, with its hyperparameters.

    Parameters
    ----------
    variant
        1 or 2.
    alpha
        Shape of the distribution of the cell means: small if few cells hold most of the population.
    a, b
        Model I: the sampling fractions are Beta(a, b).
    a, gamma
        Model II: a share gamma of the cells has sampling fractions Beta(a phat, a (1 - phat)), and
        the other cells have sampling fractions of 0.
    empty_phat
        Model II: ((phat, share of the empty cells), ...), with shares that add up to 1. The log
        likelihood of an empty cell is averaged over this mixture, as in section 7.1. Default: each
        empty cell has the phat of its stratum, `WeightedCells.empty`.

    Raises
    ------
    ValueError
        If a hyperparameter is out of range, or the variant does not have it.

    Examples
    --------
    >>> bnp.PolettiniStander(variant=1, alpha=0.5).hyperparameters
    {'alpha': 0.5, 'a': 0.86, 'b': 80.0}
    """

    variant: int = eqx.field(static=True)
    alpha: float
    a: float
    b: float | None
    gamma: float | None
    empty_phat: tuple[tuple[float, float], ...] | None = eqx.field(static=True)

    table_type: ClassVar[type] = Microdata
    """Type of the data whose cells it models."""
    conditions_type: ClassVar[type | None] = None
    """Type of the structural zeros that it accepts: none."""

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
                limit = "above 0 and at most 1" if name == "gamma" else "a positive number"
                raise ValueError(f"{name} must be {limit}, not {value}")
        if empty_phat is not None:
            if variant == 1:
                raise ValueError("empty_phat is not a parameter of Model I")
            empty_phat = tuple((float(phat), float(share)) for phat, share in empty_phat)
            if not all(0 < phat <= 1 and share > 0 for phat, share in empty_phat):
                raise ValueError(
                    "empty_phat: every phat is above 0 and at most 1, every share positive"
                )
            if abs(sum(share for _, share in empty_phat) - 1) > 1e-6:
                raise ValueError("empty_phat: the shares must add up to 1")
        self.variant = variant
        self.alpha, self.a = float(values["alpha"]), float(values["a"])
        self.b = None if variant == 2 else float(values["b"])
        self.gamma = None if variant == 1 else float(values["gamma"])
        self.empty_phat = empty_phat

    def _repr_html_(self) -> str:
        return options_as_html(self)

    @property
    def name(self) -> str:
        """Name of the variant on the command line."""
        return f"polettini-stander-{self.variant}"

    @property
    def hyperparameters(self) -> dict[str, float]:
        """Hyperparameters of the variant by name, in the paper's order."""
        return {name: vars(self)[name] for name in DEFAULTS[self.variant]}

    def empty_cells(self, cells: WeightedCells) -> tuple[np.ndarray, np.ndarray]:
        """Sampling fractions of the empty cells, and the number of empty cells with each."""
        if self.empty_phat is None:
            return cells.empty
        phat, share = np.array(self.empty_phat).T
        return phat, share * (cells.num_cells - cells.f.size)

    def log_marginal(
        self, f: npt.ArrayLike, phat: npt.ArrayLike, cells: WeightedCells
    ) -> np.ndarray:
        """log P(f) of cells with f records and an estimated sampling fraction phat.

        Distribution 2 of the paper, or 3. `f` and `phat` broadcast.
        """
        with double_precision():
            f, phat = np.broadcast_arrays(np.asarray(f, float), np.asarray(phat, float))
            values, size = self._values(), mean_cell_size(cells)
            log_p = _log_marginal(self.variant, values, jnp.asarray(f), jnp.asarray(phat), size)
            return np.asarray(log_p)

    def log_posterior(
        self, F: npt.ArrayLike, f: npt.ArrayLike, phat: npt.ArrayLike, cells: WeightedCells
    ) -> np.ndarray:
        """log P(F | f), distribution 1 of the paper; f at least 1."""
        with double_precision():
            arrays = np.broadcast_arrays(*(np.asarray(v, float) for v in (F, f, phat)))
            F, f, phat = map(jnp.asarray, arrays)
            a, b = beta_parameters(self.variant, self._values(), phat)
            alpha = jnp.full_like(f, self.alpha)
            log_x = jnp.full_like(f, math.log(mean_cell_size(cells) / self.alpha))
            return np.asarray(log_posterior_of_counts(F, f, alpha, a, b, log_x))

    def log_likelihood(self, cells: WeightedCells) -> float:
        """Log-likelihood of the hyperparameters, constants included.

        Equations (11) and (13) of the paper, or the likelihood of its section 7.1.
        """
        with double_precision():
            data = likelihood_data(self, cells)
            return float(log_likelihood_given(self.variant, self._values(), data))

    def _values(self) -> dict[str, jax.Array]:
        """Hyperparameters by name, as arrays of the current precision."""
        return {name: jnp.asarray(value) for name, value in self.hyperparameters.items()}


class LikelihoodData(NamedTuple):
    """Distinct cells and their numbers, on which alone the likelihood depends."""

    f: jax.Array
    """Sample counts of the non-empty cells."""
    phat: jax.Array
    """Estimated sampling fractions of these; 0 in Model I, which does not use them."""
    number: jax.Array
    """Number of cells with this f and phat."""
    empty_phat: jax.Array
    """Sampling fractions over which the likelihood of an empty cell is averaged."""
    empty_number: jax.Array
    """Number of empty cells for each of these fractions; shares make it a fraction of a cell."""
    size: jax.Array
    """N / K. Since lambda is K alpha, N / lambda is this value divided by alpha."""


def likelihood_data(model: PolettiniStander, cells: WeightedCells) -> LikelihoodData:
    """Group the cells that have the same likelihood."""
    f, phat, number, _ = cells.distinct
    empty = model.empty_cells(cells)
    if model.variant == 1:
        # phat is not used.
        f, pair = np.unique(f, return_inverse=True)
        number, phat = np.bincount(pair, number), np.zeros(len(f))
        empty = np.zeros(1), np.array([float(cells.num_cells - cells.f.size)])
    arrays = f, phat, number, *empty, mean_cell_size(cells)
    return LikelihoodData(*map(jnp.asarray, arrays))


def mean_cell_size(cells: WeightedCells) -> np.float64:
    """Mean number of persons of the population in a cell, N / K."""
    return np.float64(cells.population_size / cells.num_cells)


def beta_parameters(
    variant: int, values: dict[str, jax.Array], phat: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Parameters of the beta distribution of each cell's sampling fraction.

    Parameters
    ----------
    variant
        1 or 2.
    values
        Hyperparameters by name.
    phat
        Estimated sampling fractions. Model I uses only the shape of this array.
    """
    if variant == 1:
        return jnp.broadcast_to(values["a"], phat.shape), jnp.broadcast_to(values["b"], phat.shape)
    phat = jnp.minimum(phat, LARGEST_PHAT)
    return values["a"] * phat, values["a"] * (1 - phat)


@partial(jax.jit, static_argnums=0)
def _log_marginal(
    variant: int,
    values: dict[str, jax.Array],
    f: jax.Array,
    phat: jax.Array,
    size: jax.Array | np.float64,
) -> jax.Array:
    """log P(f) of cells with a mean of `size` persons: distribution 2 or 3 of the paper."""
    a, b = beta_parameters(variant, values, phat)
    alpha = jnp.broadcast_to(values["alpha"], f.shape)
    log_x = jnp.log(size) - jnp.log(alpha)
    log_p = log_marginal(f, alpha, a, b, log_x, nodes=NODES)
    if variant == 1:
        return log_p
    log_p = jnp.log(values["gamma"]) + log_p
    # Avoids log 0 at gamma = 1, which would be minus infinity with a nan as its gradient.
    log_zero = jnp.log(jnp.maximum(1 - values["gamma"], 1e-300))
    return jnp.where(f == 0, jnp.logaddexp(log_p, log_zero), log_p)


@partial(jax.jit, static_argnums=0)
def log_likelihood_given(
    variant: int, values: dict[str, jax.Array], data: LikelihoodData
) -> jax.Array:
    """Log-likelihood of hyperparameters by name, which are differentiable."""
    f = jnp.concatenate([data.f, jnp.zeros_like(data.empty_phat)])
    phat = jnp.concatenate([data.phat, data.empty_phat])
    number = jnp.concatenate([data.number, data.empty_number])
    return jnp.sum(number * _log_marginal(variant, values, f, phat, data.size))


log_posterior_of_counts = jax.jit(log_posterior)
"""log P(F | f), compiled; see `bnp_models.kernels.cells.thinning.log_posterior`."""
