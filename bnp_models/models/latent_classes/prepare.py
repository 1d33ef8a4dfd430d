"""Arrays of a coded sample and of its structural zeros for latent class models."""

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from bnp_models.kernels.boxes.level_parts import LevelParts
from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.numerics.counting import first_rows, variable_of_rows
from bnp_models.kernels.numerics.platforms import coarse_size
from bnp_models.kernels.variates.discrete import MAX_COUNT
from bnp_models.kernels.variates.levels import Levels, Tree
from bnp_models.models.latent_classes.options import LatentClassOptions
from bnp_models.models.latent_classes.state import LatentClassData, one_hot_levels
from bnp_models.models.level_prior import under_prior
from bnp_models.zeros.structural_zeros import StructuralZeros

# Incomplete records are padded at least to a multiple of this.
INCOMPLETE_MULTIPLE = 8

# Cells with more records than this have counts; the records of other cells are stored singly. To
# draw the class counts of a cell costs as much as to draw the classes of about this many records.
LISTED_RECORDS = 4


def prepare_records(
    model: LatentClassOptions,
    codes: np.ndarray,
    num_levels: tuple[int, ...],
    conditions: StructuralZeros | None = None,
    multiple: int = 1,
    trees: Mapping[int, Tree] | None = None,
) -> LatentClassData:
    """Arrays of a coded sample.

    Parameters
    ----------
    model
        The model; its `by_box` says whether the impossible boxes are listed.
    codes
        (n, J) 0-based level codes, -1 where missing.
    num_levels
        Levels of each variable.
    conditions
        Structural zeros, if there are any.
    multiple
        Records are padded to a multiple of this. If it is not 1, incomplete records are padded to
        one of a few sizes.
    trees
        Groups of the levels of some variables, by column.
    """
    num_records = len(codes)
    codes = np.pad(codes, ((0, -num_records % multiple), (0, 0)))
    groups = () if conditions is None else conditions.groups
    feasible = np.ones((1, sum(num_levels)), bool)
    impossible = None
    if conditions is not None:
        feasible = conditions.feasible.sets
        # There may be many of these boxes, so that only the sampler that needs them makes them.
        impossible = conditions.impossible.sets if model.by_box else None
    first_row = first_rows(num_levels)
    incomplete = np.flatnonzero((codes < 0).any(axis=1))
    if multiple > 1 and incomplete.size:
        padding = coarse_size(incomplete.size, INCOMPLETE_MULTIPLE) - incomplete.size
        incomplete = np.pad(incomplete, (0, padding), constant_values=len(codes))
    missing = np.take(codes, incomplete, axis=0, mode="clip") < 0
    present = np.maximum(codes, 0) + first_row
    of_incomplete = np.take(present, incomplete, axis=0, mode="clip")
    admitted = np.all(feasible[:, of_incomplete] | missing, axis=2)
    return LatentClassData(
        rows=jnp.asarray(present.T, jnp.int32),
        one_hot=one_hot_levels(jnp.asarray(codes.T, jnp.int32), num_levels),
        weight=jnp.asarray(np.arange(len(codes)) < num_records, jnp.int32),
        cell_rows=jnp.zeros((len(num_levels), 0), jnp.int32),
        cell_one_hot=jnp.zeros((sum(num_levels), 0)),
        cell_counts=jnp.zeros(0, jnp.int32),
        num_records=jnp.asarray(num_records, jnp.int32),
        incomplete=jnp.asarray(incomplete, jnp.int32),
        missing=jnp.asarray(missing),
        admitted=jnp.asarray(admitted, jnp.result_type(float)),
        levels=under_prior(model, Levels.of_variables(tuple(num_levels), trees)),
        feasible=Region.of_boxes([g.feasible.sets for g in groups], num_levels),
        impossible=Region.of_boxes([g.impossible.sets for g in groups], num_levels),
        everything_impossible=Region.of_boxes(
            [] if impossible is None else [impossible], num_levels
        ),
        parts=LevelParts.of_boxes(impossible, num_levels),
        boxes=jnp.asarray(feasible),
        num_levels=tuple(num_levels),
        constrained=_constrained_variables(groups, variable_of_rows(num_levels)),
    )


def prepare_cells(
    model: LatentClassOptions,
    codes: np.ndarray,
    counts: np.ndarray,
    num_levels: tuple[int, ...],
    conditions: StructuralZeros | None = None,
    trees: Mapping[int, Tree] | None = None,
) -> LatentClassData:
    """Arrays of cells with counts.

    Parameters
    ----------
    model, num_levels, conditions, trees
        As for `prepare_records`.
    codes
        (D, J) 0-based level codes of the cells, complete.
    counts
        (D,) number of records of each cell.

    Raises
    ------
    ValueError
        If there are 2**30 records or more. Larger cells could not be divided among classes, and
        with equally many impossible records the counts would overflow int32.
    """
    total = int(counts.sum())
    if total >= MAX_COUNT:
        raise ValueError(
            f"{total:,} records: latent class models count fewer than 2^30; take a sample of them"
        )
    many = counts > LISTED_RECORDS
    listed = np.repeat(codes[~many], counts[~many], axis=0)
    # If no record is stored singly, one row of padding is.
    rows = listed if len(listed) else codes[:1]
    data = prepare_records(model, rows, num_levels, conditions, coarse_size(len(rows)), trees)
    cells, number = codes[many], counts[many]
    if len(cells):
        padding = coarse_size(len(cells)) - len(cells)
        cells, number = np.pad(cells, ((0, padding), (0, 0))), np.pad(number, (0, padding))
    return dataclasses.replace(
        data,
        weight=data.weight if len(listed) else jnp.zeros_like(data.weight),
        cell_rows=jnp.asarray((cells + first_rows(num_levels)).T, jnp.int32),
        cell_one_hot=one_hot_levels(jnp.asarray(cells.T, jnp.int32), num_levels),
        cell_counts=jnp.asarray(number, jnp.int32),
        num_records=jnp.asarray(total, jnp.int32),
    )


def _constrained_variables(
    groups: tuple[StructuralZeros, ...], variable: np.ndarray
) -> tuple[int, ...]:
    """Variables for which some feasible box of a group does not admit every level."""
    unconstrained = np.ones(variable.shape, bool)
    for group in groups:
        unconstrained &= group.feasible.sets.all(axis=0)
    return tuple(int(j) for j in np.unique(variable[~unconstrained]))
