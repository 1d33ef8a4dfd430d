"""Level probabilities of variables, and of ordered ones by bands of adjacent levels.

The levels of an ordered variable split twice, into bands and then within each band:

    lambda_l = rho_g phi_l for level l of band g,    rho ~ Dir over bands,    phi_g ~ Dir within g

so that adjacent levels share strength. The Dirichlet distributions of all variables are over nodes:
the rows of the levels, and behind them those of the bands. Without ordered variables, where `bands`
is None, nodes are levels.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from bnp_models.kernels.numerics.counting import sum_by_group
from bnp_models.kernels.variates.gamma import loggamma

# Smallest level probability that is drawn, on a log scale: 1e-12. A class whose levels exclude a
# region of cells to the last digit would have no feasible mass, and no way back.
LOG_LEAST_LEVEL = -27.631021

# Smallest share of a band, and of a level within its band: 1e-9. Their products tell them apart.
LOG_LEAST_SHARE = -20.723266

# Fewest levels of a variable that has bands.
_FEWEST_LEVELS = 4


class Bands(eqx.Module):
    """Bands of adjacent levels of ordered variables."""

    of_row: Int[Array, " R"]
    """Band of each level; G where its variable has none."""
    first: Int[Array, " G"]
    """Row of the first level of each band."""
    variables: int = eqx.field(static=True)
    """Number of the variables."""
    number: int = eqx.field(static=True)
    """Bands G of all variables."""

    @classmethod
    def of_variables(cls, num_levels: tuple[int, ...], ordered: tuple[int, ...]) -> "Bands | None":
        """Bands of these variables, of about as many levels each as there are bands.

        None where no variable has enough levels.
        """
        of_row: list[int] = []
        first: list[int] = []
        for j, size in enumerate(num_levels):
            if j not in ordered or size < _FEWEST_LEVELS:
                of_row += [-1] * size
                continue
            for band in np.array_split(np.arange(size), round(np.sqrt(size))):
                first.append(len(of_row))
                of_row += [len(first) - 1] * len(band)
        if not first:
            return None
        of_level, number = np.array(of_row), len(first)
        return cls(
            of_row=jnp.asarray(np.where(of_level < 0, number, of_level), jnp.int32),
            first=jnp.asarray(first, jnp.int32),
            variables=len(num_levels),
            number=number,
        )

    def at_levels(self, of_band: Shaped[Array, "G ..."], fill: float) -> Shaped[Array, "R ..."]:
        """Values of bands, at each of their levels; `fill` where there is no band."""
        return of_band.at[self.of_row].get(mode="fill", fill_value=fill)

    def totals(self, of_level: Shaped[Array, "R ..."]) -> Shaped[Array, "G ..."]:
        """Sums over the levels of each band."""
        # The levels of no band have a group of their own.
        return sum_by_group(of_level, self.of_row, self.number + 1)[: self.number]


def groups_of_nodes(variable: Int[Array, " R"], bands: Bands | None) -> Int[Array, " R+G"]:
    """Number, below R + G, of the Dirichlet distribution of each node.

    `variable` is that of each level, where a variable may be split once more and its second part
    have the number of the variables.
    """
    if bands is None:
        return variable
    within = bands.variables + 1 + bands.of_row
    of_level = jnp.where(bands.of_row < bands.number, within, variable)
    return jnp.append(of_level, variable[bands.first])


def at_nodes(of_level: Shaped[Array, "R ..."], bands: Bands | None) -> Shaped[Array, "R+G ..."]:
    """Values of nodes, given those of levels that all levels of a variable share."""
    return of_level if bands is None else jnp.concatenate([of_level, of_level[bands.first]])


def count_nodes(of_level: Shaped[Array, "R ..."], bands: Bands | None) -> Shaped[Array, "R+G ..."]:
    """Counts of nodes, given those of levels."""
    return of_level if bands is None else jnp.concatenate([of_level, bands.totals(of_level)])


def log_node_shares(log_level: Float[Array, "R K"], bands: Bands | None) -> Float[Array, "R+G K"]:
    """Log shares of nodes in their Dirichlet distributions, given log level probabilities."""
    if bands is None:
        return log_level
    largest = jax.ops.segment_max(log_level, bands.of_row, num_segments=bands.number + 1)
    largest = lax.stop_gradient(largest)
    total = bands.totals(jnp.exp(log_level - largest[bands.of_row]))
    log_band = largest[: bands.number] + jnp.log(total)
    return jnp.concatenate([log_level - bands.at_levels(log_band, 0), log_band])


def through_bands(log_share: Float[Array, "R+G K"], bands: Bands | None) -> Float[Array, "R K"]:
    """Add log shares of bands to those of their levels."""
    if bands is None:
        return log_share
    num_levels = bands.of_row.size
    return log_share[:num_levels] + bands.at_levels(log_share[num_levels:], 0)


def log_levels_of_nodes(
    log_share: Float[Array, "R+G K"], bands: Bands | None
) -> Float[Array, "R K"]:
    """Log level probabilities given log shares of nodes, which are raised to the least there is."""
    return through_bands(jnp.maximum(log_share, least_node_shares(bands)), bands)


def least_node_shares(bands: Bands | None) -> Float[Array, "R+G 1"] | float:
    """Log of the least share that each node is given."""
    if bands is None:
        return LOG_LEAST_LEVEL
    of_level = jnp.where(bands.of_row < bands.number, LOG_LEAST_SHARE, LOG_LEAST_LEVEL)
    return jnp.append(of_level, jnp.full(bands.number, LOG_LEAST_SHARE))[:, None]


def is_least(log_share: Float[Array, "R+G K"], bands: Bands | None) -> Bool[Array, "R+G K"]:
    """Whether shares of nodes are the least there is, of which all that is known is that much."""
    if bands is None:
        return log_share <= LOG_LEAST_LEVEL
    # Shares within bands are worked out from level probabilities, and rounded.
    return log_share <= least_node_shares(bands) + 1e-3


def draw_levels(
    key: Key[Array, ""],
    shape: Float[Array, "R+G K"],
    variable: Int[Array, " R"],
    bands: Bands | None = None,
) -> Float[Array, "R K"]:
    """Draw log level probabilities of every variable and class, Dirichlet.

    Parameters
    ----------
    key
        Used once.
    shape
        Shape parameters by node and class.
    variable
        Variable of each row, below R.
    bands
        Bands of ordered variables.
    """
    log_share = normalise_levels(loggamma(key, shape), variable, bands)
    return log_levels_of_nodes(log_share, bands)


def normalise_levels(
    log_weight: Float[Array, "R+G K"], variable: Int[Array, " R"], bands: Bands | None = None
) -> Float[Array, "R+G K"]:
    """Normalise log weights of nodes: the exponentials of each distribution sum to one."""
    log_weight, total = totals_by_group(log_weight, groups_of_nodes(variable, bands))
    return log_weight - jnp.log(total)


def totals_by_group(
    log_weight: Float[Array, "R K"], group: Int[Array, " R"]
) -> tuple[Float[Array, "R K"], Float[Array, "R K"]]:
    """Scale log weights by the largest of their group of rows, and add up their exponentials.

    Parameters
    ----------
    log_weight
        Log weights.
    group
        Group of each row, below R.

    Returns
    -------
    log_weight
        Log weights less the largest of their group.
    total
        Sum of their exponentials over the group, at every row of it.
    """
    largest = jax.ops.segment_max(log_weight, group, num_segments=group.size)[group]
    log_weight = log_weight - largest
    total = sum_by_group(jnp.exp(log_weight), group, group.size)[group]
    return log_weight, total
