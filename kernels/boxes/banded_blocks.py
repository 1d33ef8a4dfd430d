"""Ordered variables among those that structural zeros constrain: scaled Dirichlets of two levels.

Gamma variates with a rate for each level, normalised, are a proposal for the level probabilities of
a truncated variable. Where the variable has bands, the shares phi of the levels within each band
come first, with the levels' rates r; and then the shares of the bands, with rates M_g = sum r phi.
Its density is prod phi^(b + n - 1) prod rho^(c + N - 1) prod_g M_g^(c_g - B_g) / (sum r lambda)^A,
with b, n and c, N shapes and counts of levels and of bands, B_g the sum of b within a band and A
the sum of c + N.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.numerics.counting import sum_by_group
from bnp_models.kernels.variates.levels import (
    LOG_LEAST_LEVEL,
    LOG_LEAST_SHARE,
    Bands,
    count_nodes,
    groups_of_nodes,
)


def concentrations(
    region: Region,
    bands: Bands | None,
    level_shape: Float[Array, " R+G"],
    variable: Int[Array, " R"],
) -> Float[Array, "V 1"]:
    """Concentration of each constrained variable: of an ordered one, that of its bands."""
    if bands is None:
        return jnp.sum(region.take(level_shape[:, None], 0), axis=1)
    # Distributions over the levels or bands of a variable have the variable's number.
    group = groups_of_nodes(variable, bands)
    of_group = sum_by_group(level_shape, group, group.size)
    return of_group[variable[region.rows[:, 0]], None]


class BandedBlock(NamedTuple):
    """Bands of a constrained variable, or of all of them with an axis in front.

    Behind the G bands is one for all levels of a variable that has none.
    """

    band: Int[Array, "*V L"]
    """Band of each level; G + 1 beyond the levels."""
    log_g: Float[Array, "*V G+1 K"]
    """Log gamma variates, of the shapes of bands and their counts."""
    surplus: Float[Array, "*V G+1"]
    """B_g - c_g, zero for the last band."""

    @classmethod
    def of_region(
        cls,
        region: Region,
        bands: Bands | None,
        log_g: Float[Array, "R+G K"],
        level_shape: Float[Array, " R+G"],
    ) -> "BandedBlock | None":
        """Bands of the constrained variables, given values of all nodes; None without bands."""
        if bands is None:
            return None
        num_levels, num_variables = bands.of_row.size, len(region.rows)

        def of_each(x, last):
            """Values of bands, and of the last one, for every variable."""
            values = jnp.concatenate([x[num_levels:], jnp.full((1, *x.shape[1:]), last, x.dtype)])
            return jnp.broadcast_to(values, (num_variables, *values.shape))

        surplus = count_nodes(level_shape[:num_levels], bands) - level_shape
        return cls(
            band=bands.of_row.at[region.rows].get(mode="fill", fill_value=bands.number + 1),
            log_g=of_each(log_g, 0),
            surplus=of_each(surplus, 0),
        )

    def members(self) -> Bool[Array, "G+1 L"]:
        """Which levels each band of one variable has."""
        return jnp.arange(self.log_g.shape[0])[:, None] == self.band

    def totals(self, x: Float[Array, "L K"]) -> Float[Array, "G+1 K"]:
        """Sums over the levels of each band; 0 where it has none."""
        return jax.ops.segment_sum(x, self.band, num_segments=self.log_g.shape[0])

    def normalise(
        self, log_w: Float[Array, "L K"], rate: Float[Array, "L K"]
    ) -> Float[Array, "L K"]:
        """Log level probabilities from gamma variates of the levels at their rates."""
        member = self.members()[:, :, None]
        present = jnp.any(member, axis=1)
        within = jax.nn.logsumexp(jnp.where(member, log_w, -jnp.inf), axis=1)
        last = self.log_g.shape[0] - 1
        least = jnp.where(self.band == last, LOG_LEAST_LEVEL, LOG_LEAST_SHARE)[:, None]
        log_phi = jnp.maximum(log_w - within.at[self.band].get(mode="fill", fill_value=0), least)
        mass = self.totals(rate * jnp.where(self.band[:, None] > last, 0, jnp.exp(log_phi)))
        log_rho = jnp.where(present, self.log_g - jnp.log(jnp.where(present, mass, 1)), -jnp.inf)
        log_rho = jnp.maximum(jax.nn.log_softmax(log_rho, axis=0), LOG_LEAST_SHARE)
        return log_phi + log_rho.at[self.band].get(mode="fill", fill_value=0)

    def log_weight(
        self, log_level: Float[Array, "L K"], rate: Float[Array, "L K"]
    ) -> Float[Array, " K"]:
        """Log of the factor prod_g M_g^(B_g - c_g): the prior over the proposal of `normalise`."""
        level = jnp.exp(log_level)
        share = self.totals(level)
        present = share > 0
        mean = self.totals(rate * level) / jnp.where(present, share, 1)
        log_mass = jnp.log(jnp.where(present, mean, 1))
        return jnp.sum(self.surplus[:, None] * log_mass, axis=0)
