"""Proposals for grouped levels of variables with structural zeros: scaled Dirichlets on a tree.

Normalised gamma variates with a rate r for each level are a proposal for the level probabilities of
a truncated variable; their density is prod lambda^(b + n - 1) (sum r lambda)^-A. If the levels are
in groups, the target is prod phi^(b + n - 1) prod rho^(c + N - 1) (sum r lambda)^-A, where rho are
the shares of the groups and phi the shares within each group; b, n and c, N are shapes and counts
of levels and of groups. Integrated over rho, the target for phi in a group is prod phi^(b + n - 1)
M_g^-(c_g + N_g), with M_g = sum r phi. Let B_g be the sum of b within a group. The proposal for phi
has rates

    s = 1 - w + w r / m,    w = (c_g + N_g) / (B_g + N_g),    or (r / m)^w if w is above one,

where m is close to M_g, so that the log densities have the same slope there. The weight of the
proposal is S_g^(B_g + N_g) M_g^-(c_g + N_g), with S_g = sum s phi. Then rho is drawn exactly, with
rates M_g. If the groups are in larger groups, rho is proposed in the same way as phi, with rates t
that are computed from M_g as s is from r; t_g then replaces M_g in the weight. This is repeated for
each layer.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bnp_models.kernels.boxes.region import Region
from bnp_models.kernels.variates.levels import LOG_LEAST_LEVEL, Levels, log_least_share

# Largest slope w, and number of rounds to find m.
_MOST_SLOPE = 8.0
_ROUNDS = 3
_LARGEST_LOG = 30.0


def concentrations(region: Region, levels: Levels) -> Float[Array, "V 1"]:
    """Concentration of each constrained variable; with groups, that of the highest layer."""
    if not levels.layers:
        return jnp.sum(region.take(levels.shape[:, None], 0), axis=1)
    # The distribution of a variable's levels, or of its highest groups, has the variable's number.
    of_group = levels.by_group(levels.shape)
    return of_group[levels.variable[region.rows[:, 0]], None]


def draw_scaled(
    grouped: "GroupedBlock | None",
    log_g: Float[Array, "L K"],
    shape: Float[Array, "L K"],
    rate: Float[Array, "L K"],
) -> tuple[Float[Array, "L K"], Float[Array, "L K"]]:
    """Log level probabilities from gamma variates with rates, and the rates of the levels.

    Parameters
    ----------
    grouped
        Groups of the variable; None if no variable has any.
    log_g, shape
        Log gamma variates of unit rate, and their shapes b + n.
    rate
        Rates r.
    """
    if grouped is None:
        log_w = log_g - jnp.log(rate)
        return jnp.maximum(log_w - jax.nn.logsumexp(log_w, axis=0), LOG_LEAST_LEVEL), rate
    return grouped.draw(log_g, shape, rate)


class GroupedLayer(NamedTuple):
    """One layer of groups of a constrained variable; or of all of them, with a leading axis.

    After the G groups there is one more for all members without a group in this layer.
    """

    of: Int[Array, "*V N"]
    """Group of each member; G + 1 for members of other variables."""
    log_g: Float[Array, "*V G+1 K"]
    """Log gamma variates, of the shapes of groups and their counts."""
    within: Float[Array, "*V G+1 K"]
    """B_g + N_g; zero for the last group."""
    own: Float[Array, "*V G+1 K"]
    """c_g + N_g; zero for the last group."""
    prior: Float[Array, "*V G+1 1"]
    """c_g; zero for the last group."""

    def totals(self, x: Float[Array, "N K"]) -> Float[Array, "G+1 K"]:
        """Sums over the members of each group; 0 for a group without members."""
        return jax.ops.segment_sum(x, self.of, num_segments=self.log_g.shape[0])

    def at_members(self, of_group: Float[Array, "G+1 K"], fill: float) -> Float[Array, "N K"]:
        """Value of the group of each member."""
        return of_group.at[self.of].get(mode="fill", fill_value=fill)

    def scales(self, shape: Float[Array, "N K"], rate: Float[Array, "N K"]) -> Float[Array, "N K"]:
        """Rates s of the proposal, given shapes b + n, zero beyond the levels, and rates r."""
        total = self.totals(shape)
        total = jnp.where(total > 0, total, 1)
        w = jnp.where(self.within > 0, self.own / jnp.where(self.within > 0, self.within, 1), 1)
        w = self.at_members(jnp.minimum(w, _MOST_SLOPE), 1)

        def scale(share):
            # Members of no group keep their rates.
            mean = self.totals(rate * share).at[-1].set(1)
            x = rate / self.at_members(jnp.where(mean > 0, mean, 1), 1)
            power = jnp.exp(jnp.clip(w * jnp.log(x), -_LARGEST_LOG, _LARGEST_LOG))
            return jnp.where(w > 1, power, 1 - w + w * x)

        # A few rounds bring m close to the mean of the proposal.
        share = shape / self.at_members(total, 1)
        for _ in range(_ROUNDS):
            weight = shape / scale(share)
            sums = self.totals(weight)
            share = weight / self.at_members(jnp.where(sums > 0, sums, 1), 1)
        return scale(share)

    def log_mean(self, x: Float[Array, "N K"], share: Float[Array, "N K"]) -> Float[Array, "G+1 K"]:
        """Log of the weighted mean of x in each group; 0 for a group without members."""
        total = self.totals(share)
        present = total > 0
        log_sum = jnp.log(jnp.where(present, self.totals(x * share), 1))
        return log_sum - jnp.log(jnp.where(present, total, 1))

    def normalise(
        self, log_w: Float[Array, "N K"], rate: Float[Array, "N K"], least: tuple[float, float]
    ) -> tuple[Float[Array, "N K"], Float[Array, "G+1 K"], Float[Array, "G+1 1"]]:
        """Log shares within the groups, and for each group its mean rate M and if it has members.

        `least` is the log of the least share: within a group, and of a member without a group.
        """
        groups = jnp.arange(self.log_g.shape[0])
        member = (groups[:, None] == self.of)[:, :, None]
        sums = jax.nn.logsumexp(jnp.where(member, log_w, -jnp.inf), axis=1)
        floor = jnp.where(self.of == groups[-1], least[1], least[0])[:, None]
        log_phi = jnp.maximum(log_w - self.at_members(sums, 0), floor)
        mass = self.totals(rate * jnp.where(self.of[:, None] > groups[-1], 0, jnp.exp(log_phi)))
        present = jnp.any(member, axis=1)
        return log_phi, jnp.where(present, mass, 1), present


class GroupedBlock(NamedTuple):
    """Groups of a constrained variable; or of all of them, with a leading axis."""

    layers: tuple[GroupedLayer, ...]
    """The layers, from the lowest up."""

    @classmethod
    def of_region(
        cls,
        region: Region,
        levels: Levels,
        log_g: Float[Array, "R+G K"],
        nodes: Float[Array, "R+G K"],
    ) -> "GroupedBlock | None":
        """Groups of the constrained variables; None if no variable has any.

        Parameters
        ----------
        log_g, nodes
            Log gamma variates of all nodes, and their counts.
        """
        if not levels.layers:
            return None
        num_variables = len(region.rows)
        shape = levels.shape[:, None] + nodes
        start = levels.variable.size
        layers: list[GroupedLayer] = []
        below = shape[:start]
        for layer in levels.layers:
            own = slice(start, start + layer.number)

            def of_each(x):
                """Values of groups, with zero for the last one, for every variable."""
                values = jnp.pad(x, ((0, 1), (0, 0)))
                return jnp.broadcast_to(values, (num_variables, *values.shape))

            none = layer.number + 1
            if layers:
                # Groups without members here are those of other variables.
                lower = layers[-1]
                groups = jnp.arange(lower.log_g.shape[1])[:, None]
                present = jnp.any(lower.of[:, None] == groups, axis=2)
                of = jnp.where(present, jnp.append(layer.of, layer.number), none)
            else:
                of = layer.of.at[region.rows].get(mode="fill", fill_value=none)
            layers.append(
                GroupedLayer(
                    of=of, log_g=of_each(log_g[own]), within=of_each(layer.totals(below)),
                    own=of_each(shape[own]), prior=of_each(levels.shape[own, None]),
                )
            )  # fmt: skip
            below, start = shape[own], start + layer.number
        return cls(tuple(layers))

    def draw(
        self, log_g: Float[Array, "L K"], shape: Float[Array, "L K"], rate: Float[Array, "L K"]
    ) -> tuple[Float[Array, "L K"], Float[Array, "L K"]]:
        """Log level probabilities from gamma variates of the levels, and the levels' rates s."""
        least = log_least_share(len(self.layers))
        scales: list[Array] = []
        shares: list[Array] = []
        for layer in self.layers:
            scales.append(layer.scales(shape, rate))
            without = least if shares else LOG_LEAST_LEVEL
            log_w = log_g - jnp.log(scales[-1])
            log_phi, rate, present = layer.normalise(log_w, rate, (least, without))
            shares.append(log_phi)
            log_g, shape = layer.log_g, layer.own
        log_rho = jnp.where(present, log_g - jnp.log(rate), -jnp.inf)
        log_level = jnp.maximum(jax.nn.log_softmax(log_rho, axis=0), least)
        for layer, log_phi in zip(reversed(self.layers), reversed(shares), strict=True):
            log_level = log_phi + layer.at_members(log_level, 0)
        return log_level, scales[0]

    def log_weight(
        self,
        log_level: Float[Array, "L K"],
        shape: Float[Array, "L K"],
        rate: Float[Array, "L K"],
    ) -> Float[Array, " K"]:
        """Log of prod_g S_g^(B_g + N_g) M_g^-(c_g + N_g): the target divided by the proposal.

        Factors that contain only the rates s of the levels are left out.
        """
        level, scale = jnp.exp(log_level), self.layers[0].scales(shape, rate)
        terms = []
        for layer, above in zip(self.layers, [*self.layers[1:], None], strict=True):
            log_s, log_m = layer.log_mean(scale, level), layer.log_mean(rate, level)
            if above is not None:
                level, rate = layer.totals(level), jnp.exp(log_m)
                scale = above.scales(layer.own, rate)
                log_m = jnp.log(scale)
            terms.append(jnp.sum(layer.within * log_s - layer.own * log_m, axis=0))
        return sum(terms[1:], terms[0])
