"""Ordered variables among those that structural zeros constrain: scaled Dirichlets of two levels.

Gamma variates with a rate for each level, normalised, are a proposal for the level probabilities of
a truncated variable, of density prod lambda^(b + n - 1) (sum r lambda)^-A, with rates r. Where the
variable has bands, the target prod phi^(b + n - 1) prod rho^(c + N - 1) (sum r lambda)^-A,
integrated over the shares rho of the bands, leaves of the shares phi within each band
prod phi^(b + n - 1) M_g^-(c_g + N_g), with M_g = sum r phi; b, n and c, N are shapes and counts of
levels and of bands, and B_g is the sum of b within a band. So phi is proposed with rates

    s = 1 - w + w r / m,    w = (c_g + N_g) / (B_g + N_g),    or (r / m)^w where w is above one,

m near M_g, which have that slope, and weight S_g^(B_g + N_g) M_g^-(c_g + N_g) with S_g = sum s phi;
and then rho with rates M_g, exactly.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.numerics.counting import sum_by_group
from bnp_models.kernels.variates.levels import (
    LOG_LEAST_LEVEL,
    LOG_LEAST_SHARE,
    Bands,
    groups_of_nodes,
)

# Largest slope w, and rounds that find m.
_MOST_SLOPE = 8.0
_ROUNDS = 3
_LARGEST_LOG = 30.0


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


def draw_scaled(
    banded: "BandedBlock | None",
    log_g: Float[Array, "L K"],
    shape: Float[Array, "L K"],
    rate: Float[Array, "L K"],
) -> tuple[Float[Array, "L K"], Float[Array, "L K"]]:
    """Log level probabilities from gamma variates at rates, and the rates that the levels had.

    Parameters
    ----------
    banded
        Bands of the variable; None where no variable has any.
    log_g, shape
        Log gamma variates of unit rate, and their shapes b + n.
    rate
        Rates r.
    """
    if banded is None:
        log_w = log_g - jnp.log(rate)
        return jnp.maximum(log_w - jax.nn.logsumexp(log_w, axis=0), LOG_LEAST_LEVEL), rate
    scale = banded.scales(shape, rate)
    return banded.normalise(log_g, rate, scale), scale


class BandedBlock(NamedTuple):
    """Bands of a constrained variable, or of all of them with an axis in front.

    Behind the G bands is one for all levels of a variable that has none.
    """

    band: Int[Array, "*V L"]
    """Band of each level; G + 1 beyond the levels."""
    log_g: Float[Array, "*V G+1 K"]
    """Log gamma variates, of the shapes of bands and their counts."""
    within: Float[Array, "*V G+1 K"]
    """B_g + N_g; zero for the last band."""
    own: Float[Array, "*V G+1 K"]
    """c_g + N_g; zero for the last band."""
    prior: Float[Array, "*V G+1 1"]
    """c_g; zero for the last band."""

    @classmethod
    def of_region(
        cls,
        region: Region,
        bands: Bands | None,
        log_g: Float[Array, "R+G K"],
        level_shape: Float[Array, " R+G"],
        nodes: Float[Array, "R+G K"],
    ) -> "BandedBlock | None":
        """Bands of the constrained variables; None without bands.

        Parameters
        ----------
        log_g, level_shape, nodes
            Log gamma variates of all nodes, the shapes of their prior, and their counts.
        """
        if bands is None:
            return None
        num_levels, num_variables = bands.of_row.size, len(region.rows)
        shape = level_shape[:, None] + nodes

        def of_each(x):
            """Values of bands, and zero for the last one, for every variable."""
            values = jnp.pad(x, ((0, 1), (0, 0)))
            return jnp.broadcast_to(values, (num_variables, *values.shape))

        return cls(
            band=bands.of_row.at[region.rows].get(mode="fill", fill_value=bands.number + 1),
            log_g=of_each(log_g[num_levels:]),
            within=of_each(bands.totals(shape[:num_levels])),
            own=of_each(shape[num_levels:]),
            prior=of_each(level_shape[num_levels:, None]),
        )

    def totals(self, x: Float[Array, "L K"]) -> Float[Array, "G+1 K"]:
        """Sums over the levels of each band; 0 where it has none."""
        return jax.ops.segment_sum(x, self.band, num_segments=self.log_g.shape[0])

    def at_levels(self, of_band: Float[Array, "G+1 K"], fill: float) -> Float[Array, "L K"]:
        """Values of bands, at each of their levels."""
        return of_band.at[self.band].get(mode="fill", fill_value=fill)

    def scales(self, shape: Float[Array, "L K"], rate: Float[Array, "L K"]) -> Float[Array, "L K"]:
        """Rates s of the proposal, given shapes b + n, zero beyond the levels, and rates r."""
        total = self.totals(shape)
        total = jnp.where(total > 0, total, 1)
        w = jnp.where(self.within > 0, self.own / jnp.where(self.within > 0, self.within, 1), 1)
        w = self.at_levels(jnp.minimum(w, _MOST_SLOPE), 1)

        def scale(share):
            # Levels of no band keep their rates.
            mean = self.totals(rate * share).at[-1].set(1)
            x = rate / self.at_levels(jnp.where(mean > 0, mean, 1), 1)
            power = jnp.exp(jnp.clip(w * jnp.log(x), -_LARGEST_LOG, _LARGEST_LOG))
            return jnp.where(w > 1, power, 1 - w + w * x)

        # Towards the mean of the proposal, by a few rounds.
        share = shape / self.at_levels(total, 1)
        for _ in range(_ROUNDS):
            weight = shape / scale(share)
            sums = self.totals(weight)
            share = weight / self.at_levels(jnp.where(sums > 0, sums, 1), 1)
        return scale(share)

    def normalise(
        self,
        log_g: Float[Array, "L K"],
        rate: Float[Array, "L K"],
        scale: Float[Array, "L K"],
    ) -> Float[Array, "L K"]:
        """Log level probabilities from gamma variates of the levels."""
        bands = jnp.arange(self.log_g.shape[0])
        member = (bands[:, None] == self.band)[:, :, None]
        present = jnp.any(member, axis=1)
        log_w = log_g - jnp.log(scale)
        sums = jax.nn.logsumexp(jnp.where(member, log_w, -jnp.inf), axis=1)
        least = jnp.where(self.band == bands[-1], LOG_LEAST_LEVEL, LOG_LEAST_SHARE)[:, None]
        log_phi = jnp.maximum(log_w - self.at_levels(sums, 0), least)
        mass = self.totals(rate * jnp.where(self.band[:, None] > bands[-1], 0, jnp.exp(log_phi)))
        log_rho = jnp.where(present, self.log_g - jnp.log(jnp.where(present, mass, 1)), -jnp.inf)
        log_rho = jnp.maximum(jax.nn.log_softmax(log_rho, axis=0), LOG_LEAST_SHARE)
        return log_phi + self.at_levels(log_rho, 0)

    def log_weight(
        self,
        log_level: Float[Array, "L K"],
        rate: Float[Array, "L K"],
        scale: Float[Array, "L K"],
    ) -> Float[Array, " K"]:
        """Log of prod_g S_g^(B_g + N_g) M_g^-(c_g + N_g): the target over the proposal."""
        level = jnp.exp(log_level)
        share = self.totals(level)
        present = share > 0

        def log_mean(x):
            return jnp.log(jnp.where(present, self.totals(x * level), 1)) - jnp.log(
                jnp.where(present, share, 1)
            )

        return jnp.sum(self.within * log_mean(scale) - self.own * log_mean(rate), axis=0)
