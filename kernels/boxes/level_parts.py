"""Level parts: the coarsest partition of levels of which the sets of every box are unions.

Counts of records in boxes are shared out among the parts first, and then within each part, which
takes far fewer draws than sharing them out among all levels.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.variates.discrete import split_counts
from bnp_models.kernels.variates.gamma import draw_levels


class LevelParts(eqx.Module):
    """LevelParts, and the sets of them that boxes admit; free coordinates have none."""

    of_row: Int[Array, " R"]
    """Atom of each row of the level probabilities."""
    variable: Int[Array, " A"]
    """Variable of each atom."""
    set_of_box: Int[Array, "S B"]
    """The distinct sets of atoms: 1 where the box has the set."""
    sets: Int[Array, "S W"]
    """LevelParts of each set; their number A where it has fewer."""

    @classmethod
    def of_boxes(cls, boxes: np.ndarray | None, num_levels: tuple[int, ...]) -> "LevelParts":
        """LevelParts of boxes given as (B, R) sets of levels; every level is one without boxes."""
        if boxes is None:
            levels = jnp.arange(sum(num_levels), dtype=jnp.int32)
            variable = jnp.asarray(np.repeat(np.arange(len(num_levels)), num_levels), jnp.int32)
            none = jnp.zeros((0, 0), jnp.int32)
            return cls(of_row=levels, variable=variable, set_of_box=none, sets=none)
        of_row, variable, set_of_box, sets = [], [], [], []
        for j, (start, size) in enumerate(zip(first_rows(num_levels), num_levels, strict=True)):
            patterns, atom = np.unique(boxes[:, start : start + size], axis=1, return_inverse=True)
            own = len(variable) + np.arange(patterns.shape[1])
            of_row.extend(own[atom.reshape(-1)])
            variable.extend([j] * len(own))
            distinct, index = np.unique(patterns, axis=0, return_inverse=True)
            for i, chosen in enumerate(distinct):
                if not chosen.all():
                    set_of_box.append(index.reshape(-1) == i)
                    sets.append(own[chosen])
        padded = np.full((len(sets), max(map(len, sets), default=1)), len(variable))
        for line, own in zip(padded, sets, strict=True):
            line[: len(own)] = own
        set_of_box = np.array(set_of_box, int).reshape(len(sets), len(boxes))
        return cls(*(jnp.asarray(x, jnp.int32) for x in (of_row, variable, set_of_box, padded)))


def split_over_parts(
    key: Key[Array, ""],
    of_set: Int[Array, "S K"],
    log_level: Float[Array, "R K"],
    atoms: LevelParts,
) -> Int[Array, "A K"]:
    """Counts by set and class, shared out among the atoms of the sets, and summed by atom."""
    weight = _weights_in_sets(jnp.exp(log_level), atoms)
    of_atom = split_counts(key, of_set, jnp.swapaxes(weight, 1, 2))
    return _sum_by_part(jnp.swapaxes(of_atom, 1, 2), atoms)


def share_over_parts(
    of_set: Float[Array, "S K"], level: Float[Array, "R K"], atoms: LevelParts
) -> Float[Array, "A K"]:
    """Expectation of `split_over_parts`, given level probabilities and expected counts."""
    weight = _weights_in_sets(level, atoms)
    # All levels of a set may have underflowed: it then has no count to share out.
    total = jnp.maximum(jnp.sum(weight, axis=1, keepdims=True), jnp.finfo(level.dtype).tiny)
    return _sum_by_part(of_set[:, None] * (weight / total), atoms)


def _weights_in_sets(level, atoms):
    """Probability of each atom of each set, 0 where the set has fewer: (S, W, K)."""
    share = jax.ops.segment_sum(level, atoms.of_row, num_segments=atoms.variable.size)
    return share.at[atoms.sets].get(mode="fill", fill_value=0)


def _sum_by_part(of_atom, atoms):
    empty = jnp.zeros((atoms.variable.size, of_atom.shape[2]), of_atom.dtype)
    return empty.at[atoms.sets].add(of_atom, mode="drop")


def draw_levels_by_part(
    key: Key[Array, ""],
    shape: Float[Array, "R K"],
    added: Float[Array, "A K"] | Int[Array, "A K"],
    atoms: LevelParts,
) -> Float[Array, "R K"]:
    """Log level probabilities given Dirichlet shapes by level and counts added by atom.

    LevelParts have Dirichlet shares given all counts, the levels within one given `shape` only.
    """
    key_share, key_level = jax.random.split(key)
    of_atom = jax.ops.segment_sum(shape, atoms.of_row, num_segments=atoms.variable.size)
    log_share = draw_levels(key_share, of_atom + added.astype(shape.dtype), atoms.variable)
    return draw_levels(key_level, shape, atoms.of_row) + log_share[atoms.of_row]
