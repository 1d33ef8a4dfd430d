"""The prior of level probabilities, as models have it for an option: learned, or uniform."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.schema import MicrodataError
from bnp_models.kernels.numerics.counting import variable_of_rows
from bnp_models.kernels.variates.level_prior import (
    draw_level_prior,
    update_level_prior,
    update_level_prior_given_levels,
)
from bnp_models.kernels.variates.levels import (
    Bands,
    count_nodes,
    groups_of_nodes,
    log_node_shares,
)

LEVEL_PRIORS = ("learned", "uniform")
"""Dir(c_j beta_j) with c_j and beta_j drawn, or Dir(1)."""


def uniform_shape(variable: Int[Array, " R"], bands: Bands | None = None) -> Float[Array, " R+G"]:
    """Dirichlet shapes of the uniform prior, with which chains of either prior begin."""
    return jnp.ones(groups_of_nodes(variable, bands).size, jnp.result_type(float))


def draw_shape(
    level_prior: str, key: Key[Array, ""], variable: Int[Array, " R"], bands: Bands | None = None
) -> Float[Array, " R+G"]:
    """Dirichlet shapes from their prior, one of `LEVEL_PRIORS`."""
    if level_prior == "uniform":
        return uniform_shape(variable, bands)
    return draw_level_prior(key, groups_of_nodes(variable, bands))


def update_shape(
    level_prior: str,
    key: Key[Array, ""],
    shape: Float[Array, " R+G"],
    counts: Int[Array, "R K"],
    variable: Int[Array, " R"],
    number: int,
    bands: Bands | None = None,
) -> Float[Array, " R+G"]:
    """Draw Dirichlet shapes given counts of levels, the level probabilities integrated out.

    These must be redrawn before anything uses them. `number` is that of the variables.
    """
    if level_prior == "uniform":
        return shape
    return update_level_prior(
        key, shape, count_nodes(counts, bands), *node_groups(variable, number, bands)
    )


def update_shape_given_levels(
    key: Key[Array, ""],
    shape: Float[Array, " R+G"],
    log_level: Float[Array, "R K"],
    variable: Int[Array, " R"],
    number: int,
    bands: Bands | None = None,
) -> Float[Array, " R+G"]:
    """Draw Dirichlet shapes of the learned prior given level probabilities."""
    return update_level_prior_given_levels(
        key, shape, log_node_shares(log_level, bands), *node_groups(variable, number, bands), bands
    )


def node_groups(
    variable: Int[Array, " R"], number: int, bands: Bands | None
) -> tuple[Int[Array, " R+G"], int]:
    """Distribution of each node, and how many there are, given those of levels."""
    return groups_of_nodes(variable, bands), number + (0 if bands is None else bands.number)


def columns_of(names: Sequence[str], variables: Sequence[str]) -> tuple[int, ...]:
    """Columns of ordered variables.

    Raises
    ------
    MicrodataError
        If there is no such variable.
    """
    for name in names:
        if name not in variables:
            raise MicrodataError(
                f"ordered can be {', '.join(variables)}; leave it out", column=name
            )
    return tuple(variables.index(name) for name in names)


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
    """Posterior means of c_j by variable, of kept shapes (chains, draws, nodes).

    `variable` is that of each node; nodes of variables beyond those with names are left out.
    """
    means = np.bincount(np.asarray(variable), shape.astype(float).mean(axis=(0, 1)))
    return {name: float(mean) for name, mean in zip(names, means, strict=False)}


def record_concentrations(
    level_prior: str, ordered: Sequence[str], run: Any
) -> dict[str, float] | None:
    """`Model.level_concentrations` of a model of records, whose runs keep "level_shape"."""
    if level_prior == "uniform" or "level_shape" not in run.draws:
        return None
    schema = run.table.schema if run.coding is None else run.coding.schema
    columns, shape = columns_of(ordered, schema.variables), run.draws["level_shape"]
    return mean_concentrations(
        shape, _variables_of_nodes(schema.num_levels, columns, shape.shape[-1]), schema.variables
    )


def _variables_of_nodes(
    num_levels: tuple[int, ...], ordered: tuple[int, ...], num_nodes: int
) -> np.ndarray:
    """Variable whose own distribution each node is of; J where it is of a band's, or of none.

    Between the levels and the bands there may be a level of absent items.
    """
    none, variable = len(num_levels), variable_of_rows(num_levels)
    bands = Bands.of_variables(num_levels, ordered)
    of_band = np.zeros(0, int)
    if bands is not None:
        variable = np.where(np.asarray(bands.of_row) < bands.number, none, variable)
        of_band = np.asarray(bands.group[len(variable) :])
    absent = np.full(num_nodes - len(variable) - len(of_band), none)
    return np.concatenate([variable, absent, of_band])
