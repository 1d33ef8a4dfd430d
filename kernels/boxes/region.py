"""Regions of cells as unions of disjoint boxes, and their masses under product distributions.

A box is a set of levels for every variable. Groups of variables that no structural zero ties
together are kept apart: the mass of the region is the product of the masses of its groups.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from bnp_models.kernels.numerics.counting import first_rows, variables_by_size
from bnp_models.kernels.numerics.platforms import by_platform, map_draws

# On accelerators the default precision would round to bfloat16.
_matmul = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


class Region(eqx.Module):
    """A region of cells as disjoint boxes, those of each group of variables apart.

    Variables of two groups share no structural zero, so that the feasible region is the product of
    the groups' regions, and its mass in a class the product of theirs: boxes would multiply.
    """

    sets: Float[Array, "V B L"]
    """1 where a box of the variable's group admits the level; 0 beyond its levels or boxes."""
    rows: Int[Array, "V L"]
    """Row of each level in an array of all levels; their number R beyond the variable's levels."""
    num_levels: Float[Array, " V"]
    """Levels of each constrained variable."""
    free: Float[Array, " R"]
    """1 for the levels of variables that no box constrains."""
    group: tuple[int, ...] = eqx.field(static=True)
    """Group of each constrained variable, 0 0 .. 1 1 .. in order."""

    @classmethod
    def of_boxes(cls, groups: Sequence[np.ndarray], num_levels: tuple[int, ...]) -> "Region":
        """Arrays of boxes given as sets of levels.

        Parameters
        ----------
        groups
            (B, R) booleans for each group: the levels that each box admits, variable after
            variable. A variable that no box of any group constrains is free.
        num_levels
            Number of levels of each variable.
        """
        num_rows = sum(num_levels)
        first = first_rows(num_levels)
        rows_of = [np.arange(a, a + size) for a, size in zip(first, num_levels, strict=True)]
        variables = [
            (g, j)
            for g, sets in enumerate(groups)
            for j, levels in enumerate(rows_of)
            if not sets[:, levels].all()
        ]
        widest = max((num_levels[j] for _, j in variables), default=1)
        most = max((len(sets) for sets in groups), default=1)
        rows = np.full((len(variables), widest), num_rows)
        padded = np.zeros((len(variables), most, widest))
        free = np.ones(num_rows)
        for v, (g, j) in enumerate(variables):
            rows[v, : num_levels[j]] = rows_of[j]
            padded[v, : len(groups[g]), : num_levels[j]] = groups[g][:, rows_of[j]]
            free[rows_of[j]] = 0
        dtype = jnp.result_type(float)
        return cls(
            sets=jnp.asarray(padded, dtype),
            rows=jnp.asarray(rows, jnp.int32),
            num_levels=jnp.asarray([num_levels[j] for _, j in variables], dtype),
            free=jnp.asarray(free, dtype),
            group=tuple(g for g, _ in variables),
        )

    def take(self, levels: Float[Array, "R K"], fill: float) -> Float[Array, "V L K"]:
        """Take the rows of the constrained variables, with `fill` beyond their levels."""
        return levels.at[self.rows].get(mode="fill", fill_value=fill)

    def put(
        self, levels: Float[Array, "R K"], blocks: Float[Array, "V L K"]
    ) -> Float[Array, "R K"]:
        """Replace the rows of the constrained variables."""
        return levels.at[self.rows].set(blocks, mode="drop")


@jax.named_scope("box_masses")
def box_masses(log_lambda: Float[Array, "R K"], region: Region) -> Float[Array, "V B K"]:
    """Probability of each box's set of levels, by constrained variable and class."""
    return _matmul(region.sets, jnp.exp(region.take(log_lambda, -jnp.inf)))


@jax.named_scope("group_masses")
def group_masses(log_lambda: Float[Array, "R K"], region: Region) -> list[Float[Array, " K"]]:
    """Mass of each class in the region of each group, without cancellation."""
    masses = box_masses(log_lambda, region)
    of_groups = []
    for g in dict.fromkeys(region.group):
        product = jnp.ones(masses.shape[1:], masses.dtype)
        for v in (v for v, group in enumerate(region.group) if group == g):
            product = product * masses[v]
        of_groups.append(jnp.sum(product, axis=0))
    return of_groups


@jax.named_scope("region_mass")
def region_mass(log_lambda: Float[Array, "R K"], region: Region) -> Float[Array, " K"]:
    """Mass of each class in the region, without cancellation; 1 where nothing is constrained."""
    total = jnp.ones(log_lambda.shape[1], log_lambda.dtype)
    for mass in group_masses(log_lambda, region):
        total = total * mass
    return total


@jax.named_scope("outside_mass")
def outside_mass(
    log_lambda: Float[Array, "R K"], feasible: Region, impossible: Region
) -> Float[Array, " K"]:
    """Mass of each class in the impossible region, by the first group that is impossible.

    Parameters
    ----------
    log_lambda
        Log level probabilities by row and class.
    feasible, impossible
        Boxes of the same groups, which complement each other.
    """
    inside = jnp.ones(log_lambda.shape[1], log_lambda.dtype)
    total = jnp.zeros_like(inside)
    pairs = zip(
        group_masses(log_lambda, feasible), group_masses(log_lambda, impossible), strict=True
    )
    for mass, outside in pairs:
        total = total + inside * outside
        inside = inside * mass
    return total


@jax.named_scope("masses_of_sets")
def masses_of_sets(
    log_lambda: Float[Array, "R K"], sets: Bool[Array, "B R"], num_levels: tuple[int, ...]
) -> Float[Array, "J B K"]:
    """Probability of each set of levels, by variable and class, of boxes known only when it runs.

    Parameters
    ----------
    log_lambda
        Log level probabilities by row and class.
    sets
        Levels that each box admits.
    num_levels
        Number of levels of each variable.
    """
    level = jnp.exp(log_lambda)
    masses = jnp.zeros((len(num_levels), len(sets), level.shape[1]), level.dtype)

    def of_variable(rows):
        return _matmul(sets[:, rows].astype(level.dtype), level[rows])

    for variables, rows in variables_by_size(num_levels):
        masses = masses.at[variables].set(map_draws(of_variable, jnp.asarray(rows)))
    return masses


@jax.named_scope("through_variables")
def through_variables(
    log_lambda: Float[Array, "R K"],
    region: Region,
    update: Callable[[Any, Array, Array], tuple[Array, Any]],
    inputs: Any,
) -> tuple[Float[Array, "R K"], Float[Array, " K"], Any]:
    """Update the constrained variables in turn, given the feasible mass that each level leaves.

    Parameters
    ----------
    log_lambda
        Log level probabilities by row and class.
    region
        The feasible boxes.
    update
        (inputs of the variable, its log levels (L, K), mass of each level (L, K)) -> (new log
        levels, anything to collect). The mass of a level is the feasible mass of the class given
        that level, under the new levels of earlier variables and the old ones of later variables.
    inputs
        Arrays with a leading axis over constrained variables.

    Returns
    -------
    log_lambda, mass, collected
        The new levels; feasible masses F_k under them; what `update` collected, by variable.
    """
    blocks = region.take(log_lambda, -jnp.inf)
    masses = _matmul(region.sets, jnp.exp(blocks))
    group = np.array(region.group, int)
    is_first = jnp.asarray(np.append(True, group[1:] != group[:-1])[: group.size])
    is_last = jnp.asarray(np.append(group[1:] != group[:-1], True)[: group.size])
    nothing = jnp.ones(masses.shape[1:], masses.dtype)
    one = jnp.ones(masses.shape[2], masses.dtype)

    # behind: the masses of later variables of the group; later: those of later groups.
    def backward(carry, x):
        behind, later = carry
        mass, last = x
        later = jnp.where(last, later * jnp.sum(behind, axis=0), later)
        behind = jnp.where(last, nothing, behind)
        return (behind * mass, later), (behind, later)

    unroll = by_platform(1, max(len(group), 1))
    # The boxes behind the last group: one, of mass one.
    start = jnp.zeros_like(nothing).at[:1].set(1)
    _, (behind, later) = lax.scan(
        backward, (start, one), (masses, is_last), reverse=True, unroll=unroll
    )

    def forward(carry, x):
        before, earlier = carry
        block, sets, behind, later, first, of_variable = x
        earlier = jnp.where(first, earlier * jnp.sum(before, axis=0), earlier)
        before = jnp.where(first, nothing, before)
        mass_of_level = _matmul(sets.T, before * behind) * (earlier * later)
        new, collected = update(of_variable, block, mass_of_level)
        return (before * _matmul(sets, jnp.exp(new)), earlier), (new, collected)

    (before, earlier), (blocks, collected) = lax.scan(
        forward, (start, one), (blocks, region.sets, behind, later, is_first, inputs), unroll=unroll
    )
    return region.put(log_lambda, blocks), earlier * jnp.sum(before, axis=0), collected
