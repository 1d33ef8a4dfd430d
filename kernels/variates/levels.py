"""Level probabilities of variables, by Dirichlet distributions along a tree.

The levels of a variable may be in groups, and these in larger groups. Examples are bands of
adjacent levels of an ordered variable, and codes that share all digits except the last. A level's
probability is then the product of shares along the path to it,

    lambda_l = rho_g phi_l for level l of group g,    rho ~ Dir over groups,    phi_g ~ Dir within g

and so on through any number of layers, so that the estimate for a level uses the other levels of
its group. The Dirichlet distributions of all variables are over nodes: the rows of the levels,
followed by the groups, layer after layer. If no variable has groups, nodes are levels.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from bnp_models.kernels.numerics.counting import (
    first_rows,
    group_totals,
    sum_by_group,
    variable_of_rows,
)
from bnp_models.kernels.variates.gamma import loggamma

# Smallest level probability that is drawn, on a log scale: 1e-12. A class with probabilities of
# exactly zero might have no feasible mass, and could not leave this state.
LOG_LEAST_LEVEL = -27.631021

# Smallest share of a group, and of a level within its group: 1e-9.
LOG_LEAST_SHARE = -20.723266

# Smallest product of shares along a path, close to the smallest number of float32.
_LOG_LEAST_PRODUCT = -83.0

# Fewest levels of an ordered variable that has bands.
_FEWEST_LEVELS = 4

Tree: TypeAlias = Sequence[Sequence[int]]
"""Groups of a variable, from the lowest layer up: the group of each level, then the larger group of
each group, numbered from 0."""


def bands_of_levels(num_levels: int) -> Tree:
    """Bands of adjacent levels; about sqrt(L) bands for L levels, and none if there are few."""
    if num_levels < _FEWEST_LEVELS:
        return ()
    bands = np.array_split(np.arange(num_levels), round(np.sqrt(num_levels)))
    return (np.repeat(np.arange(len(bands)), [len(band) for band in bands]).tolist(),)


class Layer(eqx.Module):
    """Groups of one layer, of all variables."""

    of: Int[Array, " N"]
    """Group of each node of the layer below; G if its variable has no group in this layer."""
    first: Int[Array, " G"]
    """Row of the first level of each group."""

    @property
    def number(self) -> int:
        """Groups G of the layer."""
        return self.first.size

    def at_members(self, of_group: Shaped[Array, "G ..."], fill: float) -> Shaped[Array, "N ..."]:
        """Value of the group of each member; `fill` for members without a group."""
        return of_group.at[self.of].get(mode="fill", fill_value=fill)

    def totals(self, of_member: Shaped[Array, "N ..."]) -> Shaped[Array, "G ..."]:
        """Sums over the members of each group."""
        # Members without a group are put into one additional group.
        return sum_by_group(of_member, self.of, self.number + 1)[: self.number]

    def log_totals(self, log_weight: Float[Array, "N K"]) -> Float[Array, "G K"]:
        """Logarithms of sums of exponentials over the members of each group."""
        largest = jax.ops.segment_max(log_weight, self.of, num_segments=self.number + 1)
        largest = lax.stop_gradient(largest)
        total = self.totals(jnp.exp(log_weight - largest[self.of]))
        return largest[: self.number] + jnp.log(total)


class Levels(eqx.Module):
    """Levels of all variables, the trees of their groups, and the shapes of the Dirichlet prior."""

    variable: Int[Array, " R"]
    """Variable of each level; the levels are sorted by variable."""
    shape: Float[Array, " R+G"]
    """Dirichlet shape of each node; initially ones, which is the uniform prior."""
    total: Float[Array, " R+G"]
    """Sum of the shapes of each node's distribution: its concentration."""
    layers: tuple[Layer, ...]
    """Layers of groups, from the lowest up; empty if no variable has groups."""
    variables: int = eqx.field(static=True)
    """Number of the variables."""
    spare: int = eqx.field(static=True)
    """Largest number of distributions of levels in addition to those of the variables."""

    @classmethod
    def of_variables(
        cls,
        num_levels: tuple[int, ...],
        trees: Mapping[int, Tree] | None = None,
        spare: int = 0,
        variable: np.ndarray | None = None,
    ) -> "Levels":
        """Make the levels of these variables, with the uniform prior.

        Parameters
        ----------
        num_levels
            Levels of each variable.
        trees
            Groups of some of the variables, by column.
        spare
            Largest number of distributions of levels in addition to those of the variables.
        variable
            Variable of each level, if one variable is divided into two parts; the second part has
            the number of variables as its index.
        """
        layers = _layers_of_trees(num_levels, {} if trees is None else trees)
        of_level = variable_of_rows(num_levels) if variable is None else variable
        num_nodes = len(of_level) + sum(layer.number for layer in layers)
        shape = jnp.ones(num_nodes, jnp.result_type(float))
        levels = cls(
            variable=jnp.asarray(of_level, jnp.int32), shape=shape, total=shape, layers=layers,
            variables=len(num_levels), spare=spare,
        )  # fmt: skip
        return levels.with_shape(shape)

    def with_shape(self, shape: Float[Array, " R+G"]) -> "Levels":
        """The same levels with these Dirichlet shapes of the prior."""
        return dataclasses.replace(self, shape=shape, total=self.totals(shape))

    @property
    def group(self) -> Int[Array, " R+G"]:
        """Number, below R + G, of the Dirichlet distribution of each node.

        The distribution of a variable's levels, or of its highest groups, has the variable's
        number.
        """
        numbers, start, of_node = [], self.variables + 1, self.variable
        for layer in self.layers:
            numbers.append(jnp.where(layer.of < layer.number, start + layer.of, of_node))
            start, of_node = start + layer.number, self.variable[layer.first]
        return jnp.concatenate([*numbers, of_node]) if numbers else of_node

    @property
    def num_groups(self) -> int:
        """Largest number of Dirichlet distributions."""
        groups = sum(layer.number for layer in self.layers)
        return self.variables + self.spare + (1 + groups if groups else 0)

    def by_group(self, of_node: Shaped[Array, "R+G ..."]) -> Shaped[Array, "D ..."]:
        """Sums over the nodes of each distribution, by its number."""
        return sum_by_group(of_node, self.group, self.num_groups)

    def totals(self, of_node: Shaped[Array, "R+G ..."]) -> Shaped[Array, "R+G ..."]:
        """Sums over the nodes of each distribution, returned for every node."""
        return group_totals(of_node, self.group)

    @property
    def sizes(self) -> Float[Array, " R+G"]:
        """Number of nodes of each node's distribution."""
        return self.totals(jnp.ones_like(self.shape))

    def at_nodes(self, of_level: Shaped[Array, "R ..."]) -> Shaped[Array, "R+G ..."]:
        """Values of nodes, given values of levels that are equal for all levels of a variable."""
        above = [of_level[layer.first] for layer in self.layers]
        return jnp.concatenate([of_level, *above]) if above else of_level

    def count(self, of_level: Shaped[Array, "R ..."]) -> Shaped[Array, "R+G ..."]:
        """Counts of nodes, given counts of levels."""
        counts = [of_level]
        for layer in self.layers:
            counts.append(layer.totals(counts[-1]))
        return jnp.concatenate(counts) if self.layers else of_level

    def given(self, counts: Shaped[Array, "R K"]) -> Float[Array, "R+G K"]:
        """Dirichlet shapes of the nodes given counts of levels."""
        return self.shape[:, None] + self.count(counts)

    def log_shares(self, log_level: Float[Array, "R K"]) -> Float[Array, "R+G K"]:
        """Log shares of nodes in their distributions, given log level probabilities."""
        shares = []
        for layer in self.layers:
            log_group = layer.log_totals(log_level)
            shares.append(log_level - layer.at_members(log_group, 0))
            log_level = log_group
        return jnp.concatenate([*shares, log_level]) if shares else log_level

    def log_levels(self, log_share: Float[Array, "R+G K"]) -> Float[Array, "R K"]:
        """Log level probabilities given log shares of nodes: sums along the paths."""
        if not self.layers:
            return log_share
        ends = np.cumsum([layer.of.size for layer in self.layers]).tolist()
        *below, log_level = jnp.split(log_share, ends)
        for layer, log_member in zip(reversed(self.layers), reversed(below), strict=True):
            log_level = log_member + layer.at_members(log_level, 0)
        return log_level

    @property
    def log_least(self) -> Float[Array, "R+G 1"] | float:
        """Log of the smallest share that each node may have."""
        if not self.layers:
            return LOG_LEAST_LEVEL
        lowest, share = self.layers[0], log_least_share(len(self.layers))
        of_level = jnp.where(lowest.of < lowest.number, share, LOG_LEAST_LEVEL)
        return jnp.append(of_level, jnp.full(self.shape.size - of_level.size, share))[:, None]

    def is_least(self, log_share: Float[Array, "R+G K"]) -> Bool[Array, "R+G K"]:
        """Whether shares are at the minimum, so that only an upper bound of them is known."""
        if not self.layers:
            return log_share <= LOG_LEAST_LEVEL
        # Shares within groups are computed from level probabilities, with rounding.
        return log_share <= self.log_least + 1e-3

    def normalise(self, log_weight: Float[Array, "R+G K"]) -> Float[Array, "R+G K"]:
        """Normalise log weights of nodes: the exponentials of each distribution sum to one."""
        return normalise_groups(log_weight, self.group)

    def of_weights(self, log_weight: Float[Array, "R+G K"]) -> Float[Array, "R K"]:
        """Log level probabilities given log weights of nodes, with none below the minimum."""
        return self.log_levels(jnp.maximum(self.normalise(log_weight), self.log_least))

    @jax.named_scope("draw_levels")
    def draw(self, key: Key[Array, ""], counts: Shaped[Array, "R K"]) -> Float[Array, "R K"]:
        """Draw log level probabilities of every variable and class, given counts of levels.

        Parameters
        ----------
        key
            Used once.
        counts
            Counts by level and class; zeros for a draw from the prior.
        """
        return self.of_weights(loggamma(key, self.given(counts)))


def log_least_share(num_layers: int) -> float:
    """Log of the smallest share of a group, and within a group, for this number of layers."""
    return max(LOG_LEAST_SHARE, _LOG_LEAST_PRODUCT / (num_layers + 1))


def _layers_of_trees(num_levels: tuple[int, ...], trees: Mapping[int, Tree]) -> tuple[Layer, ...]:
    """Layers of the groups of all variables."""
    layers = []
    first = first_rows(num_levels)
    # For each column: the number of nodes so far, and the row of the first level of each node.
    below = {j: first[j] + np.arange(size) for j, size in enumerate(num_levels)}
    for height in range(max((len(tree) for tree in trees.values()), default=0)):
        of, above = [], {}
        start = 0
        for j, rows in below.items():
            if len(trees.get(j, ())) <= height:
                of += [-1] * len(rows)
                continue
            groups = np.asarray(trees[j][height])
            of += (start + groups).tolist()
            above[j] = rows[[np.flatnonzero(groups == g)[0] for g in range(groups.max() + 1)]]
            start += len(above[j])
        of_node = np.array(of)
        rows = np.concatenate(list(above.values()))
        layers.append(
            Layer(
                of=jnp.asarray(np.where(of_node < 0, start, of_node), jnp.int32),
                first=jnp.asarray(rows, jnp.int32),
            )
        )
        below = above
    return tuple(layers)


def draw_levels(
    key: Key[Array, ""], shape: Float[Array, "R K"], group: Int[Array, " R"]
) -> Float[Array, "R K"]:
    """Draw logarithms of Dirichlet shares, for every group of rows and every class.

    Parameters
    ----------
    key
        Used once.
    shape
        Shape parameters by row and class.
    group
        Group of each row, such as the variable of a level, below R.
    """
    return jnp.maximum(normalise_groups(loggamma(key, shape), group), LOG_LEAST_LEVEL)


def normalise_groups(
    log_weight: Float[Array, "R K"], group: Int[Array, " R"]
) -> Float[Array, "R K"]:
    """Normalise log weights: the exponentials of each group of rows sum to one."""
    largest = jax.ops.segment_max(log_weight, group, num_segments=group.size)[group]
    log_weight = log_weight - largest
    return log_weight - jnp.log(group_totals(jnp.exp(log_weight), group))
