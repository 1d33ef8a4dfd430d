"""The prior of level probabilities, as models have it for an option: learned, or uniform."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.numerics.counting import variable_of_rows
from bnp_models.kernels.variates.level_prior import draw_level_prior, update_level_prior

LEVEL_PRIORS = ("learned", "uniform")
"""Dir(c_j beta_j) with c_j and beta_j drawn, or Dir(1)."""


def uniform_shape(variable: Int[Array, " R"]) -> Float[Array, " R"]:
    """Dirichlet shapes of the uniform prior, with which chains of either prior begin."""
    return jnp.ones(variable.size, jnp.result_type(float))


def draw_shape(level_prior: str, key: Key[Array, ""], variable: Int[Array, " R"]):
    """Dirichlet shapes (R,) from their prior, one of `LEVEL_PRIORS`."""
    if level_prior == "uniform":
        return uniform_shape(variable)
    return draw_level_prior(key, variable)


def update_shape(
    level_prior: str,
    key: Key[Array, ""],
    shape: Float[Array, " R"],
    counts: Int[Array, "R K"],
    variable: Int[Array, " R"],
    number: int,
) -> Float[Array, " R"]:
    """Draw Dirichlet shapes given counts of levels, the level probabilities integrated out.

    These must be redrawn before anything uses them. `number` is that of the variables.
    """
    if level_prior == "uniform":
        return shape
    return update_level_prior(key, shape, counts, variable, number)


def merge_rows(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Level probabilities (chains, draws, R, ...) of merged levels, in the place of each of them.

    `groups` is a row of each row's group; rows with -1 are of a variable that is left out.
    """
    merged = np.ones_like(values)
    for group in np.unique(groups[groups >= 0]):
        members = np.flatnonzero(groups == group)
        merged[:, :, members] = values[:, :, members].sum(axis=2, keepdims=True)
    return merged


def mean_concentrations(
    shape: np.ndarray, variable: np.ndarray | Array, names: Sequence[str]
) -> dict[str, float]:
    """Posterior means of c_j by variable, of kept shapes (chains, draws, R).

    `variable` is that of each row; rows of variables beyond those with names are left out.
    """
    means = np.bincount(np.asarray(variable), shape.astype(float).mean(axis=(0, 1)))
    return {name: float(mean) for name, mean in zip(names, means, strict=False)}


def record_concentrations(level_prior: str, run: Any) -> dict[str, float] | None:
    """`Model.level_concentrations` of a model of records, whose runs keep "level_shape"."""
    if level_prior == "uniform" or "level_shape" not in run.draws:
        return None
    schema = run.table.schema if run.coding is None else run.coding.schema
    shape = run.draws["level_shape"][..., : sum(schema.num_levels)]
    return mean_concentrations(shape, variable_of_rows(schema.num_levels), schema.variables)
