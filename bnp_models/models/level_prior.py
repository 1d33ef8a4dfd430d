"""The prior of level probabilities, as models have it for an option: learned, or uniform."""

import re
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.schema import Label, MicrodataError, Schema
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

_NUMBER = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]+)?")

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
    """Distribution of each node, and how many there are at most, given those of levels."""
    return groups_of_nodes(variable, bands), number + (0 if bands is None else 1 + bands.number)


def columns_of(ordered: Sequence[str], schema: Schema) -> tuple[int, ...]:
    """Columns of ordered variables.

    Raises
    ------
    MicrodataError
        If there is no such variable, or its levels begin with numbers that are not in order.
    """
    require_known(ordered, schema.variables)
    return ordered_among(ordered, schema.variables, schema.levels)


def require_known(ordered: Sequence[str], known: Sequence[str]) -> None:
    """Raise `MicrodataError` if an ordered variable is none of those that can be."""
    for name in ordered:
        if name not in known:
            raise MicrodataError(f"ordered can be {', '.join(known)}; leave it out", column=name)


def ordered_among(
    ordered: Sequence[str], variables: Sequence[str], levels: Sequence[Sequence[Label]]
) -> tuple[int, ...]:
    """Columns of those of the variables that are ordered, whose levels must be in order."""
    columns = tuple(j for j, name in enumerate(variables) if name in ordered)
    for j in columns:
        require_ordered(variables[j], levels[j])
    return columns


def require_ordered(name: str, labels: Sequence[Label]) -> None:
    """Raise `MicrodataError` if labels of numbers are not in order, as 10-14 before 5-9."""
    found = [_NUMBER.match(str(label)) for label in labels]
    numbers = [float(number.group()) for number in found if number is not None]
    if numbers != sorted(numbers):
        raise MicrodataError(
            "the levels of an ordered variable are not in the order of their numbers "
            f"({', '.join(map(str, labels[:4]))}, ..); declare them in order (--levels)",
            column=name,
        )


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
    shape: np.ndarray, group: np.ndarray | Array, names: Sequence[str]
) -> dict[str, float]:
    """Posterior means of c_j by variable, of kept shapes (chains, draws, nodes).

    `group` is the distribution of each node; those beyond the variables with names are left out.
    Of an ordered variable it is the concentration of its bands.
    """
    means = np.bincount(np.asarray(group), shape.astype(float).mean(axis=(0, 1)))
    return {name: float(mean) for name, mean in zip(names, means, strict=False)}


def record_concentrations(
    level_prior: str, ordered: Sequence[str], run: Any
) -> dict[str, float] | None:
    """`Model.level_concentrations` of a model of records, whose runs keep "level_shape"."""
    if level_prior == "uniform" or "level_shape" not in run.draws:
        return None
    schema = run.table.schema if run.coding is None else run.coding.schema
    shape, columns = run.draws["level_shape"], columns_of(ordered, schema)
    bands = Bands.of_variables(schema.num_levels, columns)
    # There may be a level of absent items besides.
    absent = shape.shape[-1] - sum(schema.num_levels) - (0 if bands is None else bands.number)
    num_levels = (*schema.num_levels, *[1] * absent)
    variable = jnp.asarray(variable_of_rows(num_levels))
    group = groups_of_nodes(variable, Bands.of_variables(num_levels, columns))
    return mean_concentrations(shape, group, schema.variables)
