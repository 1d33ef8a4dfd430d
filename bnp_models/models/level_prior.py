"""The prior of level probabilities, as models have it for an option: learned, or uniform."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.data.schema import Label, MicrodataError, Schema
from bnp_models.kernels.variates.level_prior import draw_level_prior, update_level_prior
from bnp_models.kernels.variates.levels import Levels, Tree, bands_of_levels

_NUMBER = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]+)?")

LEVEL_PRIORS = ("learned", "uniform")
"""Dir(c_j beta_j) with c_j and beta_j drawn, or Dir(1)."""


def draw_shape(level_prior: str, key: Key[Array, ""], levels: Levels) -> Float[Array, " R+G"]:
    """Dirichlet shapes from their prior, one of `LEVEL_PRIORS`."""
    return levels.shape if level_prior == "uniform" else draw_level_prior(key, levels)


def update_shape(
    level_prior: str, key: Key[Array, ""], counts: Int[Array, "R K"], levels: Levels
) -> Float[Array, " R+G"]:
    """Draw Dirichlet shapes given counts of levels, the level probabilities integrated out.

    These must be redrawn before anything uses them. Of `levels` the shapes are those as they are.
    """
    return levels.shape if level_prior == "uniform" else update_level_prior(key, counts, levels)


def trees_of(ordered: Sequence[str], schema: Schema) -> dict[int, Tree]:
    """Groups of the levels of ordered variables, by column.

    Raises
    ------
    MicrodataError
        If there is no such variable, or its levels begin with numbers that are not in order.
    """
    require_known(ordered, schema.variables)
    return trees_among(ordered, schema.variables, schema.levels)


def require_known(ordered: Sequence[str], known: Sequence[str]) -> None:
    """Raise `MicrodataError` if an ordered variable is none of those that can be."""
    for name in ordered:
        if name not in known:
            raise MicrodataError(f"ordered can be {', '.join(known)}; leave it out", column=name)


def trees_among(
    ordered: Sequence[str], variables: Sequence[str], levels: Sequence[Sequence[Label]]
) -> dict[int, Tree]:
    """Groups of those of the variables that are ordered, whose levels must be in order."""
    columns = tuple(j for j, name in enumerate(variables) if name in ordered)
    for j in columns:
        require_ordered(variables[j], levels[j])
    return {j: bands_of_levels(len(levels[j])) for j in columns}


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
    shape: np.ndarray, levels: Levels, names: Sequence[str]
) -> dict[str, float]:
    """Posterior means of c_j by variable, of kept shapes (chains, draws, nodes).

    Distributions beyond those of the variables with names are left out. Of a variable with groups
    it is the concentration of the highest ones.
    """
    means = np.bincount(np.asarray(levels.group), shape.astype(float).mean(axis=(0, 1)))
    return {name: float(mean) for name, mean in zip(names, means, strict=False)}


def record_concentrations(
    level_prior: str, ordered: Sequence[str], run: Any
) -> dict[str, float] | None:
    """`Model.level_concentrations` of a model of records, whose runs keep "level_shape"."""
    if level_prior == "uniform" or "level_shape" not in run.draws:
        return None
    schema = run.table.schema if run.coding is None else run.coding.schema
    shape, trees = run.draws["level_shape"], trees_of(ordered, schema)
    levels = Levels.of_variables(schema.num_levels, trees)
    if levels.shape.size < shape.shape[-1]:
        # The level of absent items.
        levels = Levels.of_variables((*schema.num_levels, 1), trees)
    return mean_concentrations(shape, levels, schema.variables)
