"""Arrays of a coded sample and of its structural zeros for latent class models."""

import jax.numpy as jnp
import numpy as np

from bnp_models.kernels.boxes.level_parts import LevelParts
from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.models.latent_classes.options import LatentClassOptions
from bnp_models.models.latent_classes.state import LatentClassData, one_hot_levels
from bnp_models.zeros.structural_zeros import StructuralZeros


def prepare_records(
    model: LatentClassOptions,
    codes: np.ndarray,
    num_levels: tuple[int, ...],
    conditions: StructuralZeros | None = None,
) -> LatentClassData:
    """Arrays of a coded sample.

    Parameters
    ----------
    model
        Its augmentation says whether the impossible boxes are listed.
    codes
        (n, J) 0-based level codes, -1 where missing.
    num_levels
        Levels of each variable.
    conditions
        Structural zeros, if there are any.
    """
    if conditions is None:
        feasible, impossible = np.ones((1, sum(num_levels)), bool), None
        groups = ()
    else:
        feasible = conditions.feasible.sets
        # These boxes may be many: they are made only for the sampler that needs them.
        by_box = model.augmentation == "boxes"
        impossible = conditions.impossible.sets if by_box else None
        groups = conditions.groups
    variable = np.repeat(np.arange(len(num_levels)), num_levels)
    first_row = first_rows(num_levels)
    free = np.all([g.feasible.sets.all(axis=0) for g in groups], axis=0)
    constrained = tuple(int(j) for j in np.unique(variable[~np.broadcast_to(free, variable.shape)]))
    missing = codes < 0
    incomplete = np.flatnonzero(missing.any(axis=1))
    present = np.maximum(codes, 0) + first_row
    admitted = np.all(feasible[:, present[incomplete]] | missing[incomplete], axis=2)
    return LatentClassData(
        rows=jnp.asarray(present.T, jnp.int32),
        one_hot=one_hot_levels(jnp.asarray(codes.T, jnp.int32), num_levels),
        incomplete=jnp.asarray(incomplete, jnp.int32),
        missing=jnp.asarray(missing[incomplete]),
        admitted=jnp.asarray(admitted, jnp.result_type(float)),
        variable=jnp.asarray(variable, jnp.int32),
        feasible=Region.of_boxes([g.feasible.sets for g in groups], num_levels),
        impossible=Region.of_boxes([g.impossible.sets for g in groups], num_levels),
        everything_impossible=Region.of_boxes(
            [] if impossible is None else [impossible], num_levels
        ),
        parts=LevelParts.of_boxes(impossible, num_levels),
        boxes=jnp.asarray(feasible),
        num_levels=tuple(num_levels),
        constrained=constrained,
    )
