"""Level parts: the coarsest partition of levels of which the sets of all boxes are unions.

Counts of records in boxes are divided first among the parts and then within each part. This needs
far fewer draws than dividing them directly among all levels.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.numerics.counting import first_rows, sum_by_group, variable_of_rows
from bnp_models.kernels.variates.discrete import split_counts
from bnp_models.kernels.variates.levels import LOG_LEAST_LEVEL, draw_levels
from bnp_models.kernels.variates.rng import Keys


class LevelParts(eqx.Module):
    """Level parts of all variables, and the sets of them that constrain boxes.

    A box has one set for each variable that it constrains: the parts whose levels it admits.
    """

    part_of_row: Int[Array, " R"]
    """Level part of each row of the level probabilities."""
    rows: Int[Array, "A V"]
    """Rows of each level part, padded with R."""
    variable: Int[Array, " A"]
    """Variable of each level part."""
    box_has_set: Int[Array, "S B"]
    """1 if the box has the set; the sets are distinct."""
    sets: Int[Array, "S W"]
    """Level parts of each set, padded with A."""

    @classmethod
    def of_boxes(cls, boxes: np.ndarray | None, num_levels: tuple[int, ...]) -> "LevelParts":
        """Level parts of boxes.

        Parameters
        ----------
        boxes
            (B, R) booleans: the levels that each box admits, variable after variable. None: no box,
            so that every level is a part.
        num_levels
            Number of levels of each variable.
        """
        if boxes is None:
            levels = jnp.arange(sum(num_levels), dtype=jnp.int32)
            of_level = jnp.asarray(variable_of_rows(num_levels), jnp.int32)
            none = jnp.zeros((0, 0), jnp.int32)
            return cls(levels, levels[:, None], of_level, box_has_set=none, sets=none)
        part_of_row: list[int] = []
        variable: list[int] = []
        sets, has_set = [], []
        for j, (start, size) in enumerate(zip(first_rows(num_levels), num_levels, strict=True)):
            of_boxes = boxes[:, start : start + size]
            patterns, pattern = np.unique(of_boxes, axis=1, return_inverse=True)
            parts = len(variable) + np.arange(patterns.shape[1])
            part_of_row.extend(parts[pattern.reshape(-1)])
            variable.extend([j] * len(parts))
            distinct, index = np.unique(patterns, axis=0, return_inverse=True)
            for i, admitted in enumerate(distinct):
                if not admitted.all():
                    has_set.append(index.reshape(-1) == i)
                    sets.append(parts[admitted])
        of_part = [np.flatnonzero(np.array(part_of_row) == a) for a in range(len(variable))]
        rows = np.full((len(of_part), max(map(len, of_part))), sum(num_levels))
        for line, levels_of_part in zip(rows, of_part, strict=True):
            line[: len(levels_of_part)] = levels_of_part
        padded = np.full((len(sets), max(map(len, sets), default=1)), len(variable))
        for line, parts in zip(padded, sets, strict=True):
            line[: len(parts)] = parts
        return cls(
            part_of_row=jnp.asarray(part_of_row, jnp.int32),
            rows=jnp.asarray(rows, jnp.int32),
            variable=jnp.asarray(variable, jnp.int32),
            box_has_set=jnp.asarray(
                np.array(has_set, int).reshape(len(sets), len(boxes)), jnp.int32
            ),
            sets=jnp.asarray(padded, jnp.int32),
        )


@jax.named_scope("split_over_parts")
def split_over_parts(
    key: Key[Array, ""],
    of_set: Int[Array, "S K"],
    log_level: Float[Array, "R K"],
    parts: LevelParts,
) -> Int[Array, "A K"]:
    """Divide the counts of each set at random among its level parts.

    Parameters
    ----------
    key
        Used once.
    of_set
        Counts by set and class.
    log_level
        Log level probabilities by row and class.
    parts
        The level parts, and the sets.

    Returns
    -------
    of_part
        Counts by level part and class, summed over the sets.
    """
    num_parts = parts.variable.size
    share = sum_by_group(jnp.exp(log_level), parts.part_of_row, num_parts)
    return _share_out(key, of_set, share, parts.sets)


@jax.named_scope("split_over_levels")
def split_over_levels(
    key: Key[Array, ""],
    of_part: Int[Array, "A K"],
    log_level: Float[Array, "R K"],
    parts: LevelParts,
) -> Int[Array, "R K"]:
    """Divide the counts of each level part at random among its levels.

    Parameters
    ----------
    key
        Used once.
    of_part
        Counts by level part and class.
    log_level
        Log level probabilities by row and class.
    parts
        The level parts.
    """
    if parts.rows.shape[1] == 1:
        return jnp.zeros(log_level.shape, of_part.dtype).at[parts.rows[:, 0]].set(of_part)
    return _share_out(key, of_part, jnp.exp(log_level), parts.rows)


def _share_out(key, counts, weight, members):
    """Divide counts (S, K) among members (S, W) with weights (A, K); members are padded with A."""
    own_weight = weight.at[members].get(mode="fill", fill_value=0)
    shared = split_counts(key, counts, own_weight, axis=1)
    return jnp.zeros(weight.shape, counts.dtype).at[members].add(shared, mode="drop")


@jax.named_scope("draw_levels_by_part")
def draw_levels_by_part(
    key: Key[Array, ""],
    shape: Float[Array, "R K"],
    added: Float[Array, "A K"] | Int[Array, "A K"],
    parts: LevelParts,
) -> Float[Array, "R K"]:
    """Draw log level probabilities given counts by level, and further counts by level part.

    The shares of level parts are Dirichlet given all counts. The shares of levels within a part are
    Dirichlet with the parameters `shape`.

    Parameters
    ----------
    key
        Used once.
    shape
        Dirichlet shapes by level and class.
    added
        Counts added by level part and class.
    parts
        The level parts.
    """
    key_share, key_level = Keys(key)
    of_part = sum_by_group(shape, parts.part_of_row, parts.variable.size)
    log_share = draw_levels(key_share, of_part + added.astype(shape.dtype), parts.variable)
    log_level = draw_levels(key_level, shape, parts.part_of_row) + log_share[parts.part_of_row]
    return jnp.maximum(log_level, LOG_LEAST_LEVEL)
