"""Level probabilities proposed from others, for components whose distributions are truncated.

Under truncation level probabilities have directions that the data say nothing about. A proposal
that splits or merges components takes these from the levels that there are, and the others from
the counts.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.boxes.banded_blocks import BandedBlock, concentrations, draw_scaled
from bnp_models.kernels.boxes.region import Region, through_variables
from bnp_models.kernels.numerics.counting import sum_by_group
from bnp_models.kernels.numerics.gamma_ratios import log_gamma_ratio
from bnp_models.kernels.variates.discrete import stirling_error
from bnp_models.kernels.variates.gamma import loggamma
from bnp_models.kernels.variates.level_prior import concentration_of_rows, levels_of_rows
from bnp_models.kernels.variates.levels import (
    Bands,
    at_nodes,
    count_nodes,
    groups_of_nodes,
    log_levels_of_nodes,
    normalise_levels,
)


@jax.named_scope("propose_levels")
def propose_levels(
    key: Key[Array, ""] | None,
    counts: Float[Array, "R K"],
    launch: Float[Array, "R K"],
    point: Float[Array, "R K"],
    given: Bool[Array, ""] | bool,
    variable: Int[Array, " R"],
    region: Region,
    level_shape: Float[Array, " R+G"],
    bands: Bands | None = None,
) -> tuple[Float[Array, "R K"], Float[Array, " K"], Float[Array, " K"]]:
    """Draw log levels from a launch, variable by variable, or take those given, with their weight.

    Parameters
    ----------
    key
        Used once; None where the levels are given.
    counts
        Items by row and component.
    launch
        Log levels from which the masses of the region are taken.
    point, given
        Log levels whose weight is asked for, and whether they are, rather than drawn ones.
    variable
        Variable of each row.
    region
        The feasible boxes.
    level_shape
        Dirichlet shapes b of the level probabilities' prior, by node.
    bands
        Bands of ordered variables.

    Returns
    -------
    levels, mass, log_weight
        Log levels, their feasible masses, and the log likelihood of the counts, without the masses,
        and prior, less the log density of the proposal.

    Notes
    -----
    The scaled Dirichlet of variable j has shapes b_l + n_l and rates m_l + y / A, as in
    `kernels.latent_classes.truncated_levels.update_levels_truncated`, with y at its expectation.
    """
    num_levels = variable.size
    shape, nodes = level_shape[:, None], count_nodes(counts, bands)
    group = groups_of_nodes(variable, bands)
    prior_total = concentration_of_rows(level_shape, group)[:, None]
    per_row = levels_of_rows(group, level_shape.dtype)[:, None]
    in_group = sum_by_group(nodes, group, group.size)[group]
    members = at_nodes(sum_by_group(counts, variable, variable.size)[variable], bands)
    log_g = jnp.zeros_like(nodes) if key is None else loggamma(key, shape + nodes)
    drawn = log_levels_of_nodes(normalise_levels(log_g, variable, bands), bands)
    free = region.free[:, None]
    levels = jnp.where(free > 0, jnp.where(given, point, drawn), launch)
    of_total = _log_rising(prior_total, in_group, members) / per_row
    of_node = _log_rising(shape, nodes, members) - of_total
    log_weight = jnp.sum(at_nodes(free, bands) * of_node, axis=0)

    def update(inputs, old, mass_of_level):
        log_g, counts, point, exists, shape, prior_total, banded = inputs
        members = jnp.sum(counts, axis=0)
        total = members + prior_total
        present = jnp.sum(jnp.exp(old) * mass_of_level, axis=0)
        more = prior_total - jnp.minimum(1, prior_total / 2)
        rate = mass_of_level / present + more / total
        drawn, scale = draw_scaled(banded, log_g, shape + counts, rate)
        new = jnp.where(given, point, jnp.where(exists, drawn, -jnp.inf))
        log_scale = total * jnp.log(jnp.sum(rate * jnp.exp(new), axis=0))
        log_scale = log_scale - _log_rising(prior_total, members, members)
        if banded is not None:
            log_scale = log_scale + banded.log_weight(new, rate, scale)
            log_scale = log_scale - _log_rising_of_bands(banded, shape, counts, members)
        safe = jnp.where(exists, shape, 1)
        of_level = _log_rising(safe, counts, members) - (shape + counts) * jnp.log(scale)
        return new, log_scale + jnp.sum(jnp.where(exists, of_level, 0), axis=0)

    inputs = (
        region.take(log_g[:num_levels], -jnp.inf), region.take(counts, 0),
        region.take(point, -jnp.inf), (region.rows < num_levels)[:, :, None],
        region.take(shape[:num_levels], 0),
        concentrations(region, bands, level_shape, variable),
        BandedBlock.of_region(region, bands, log_g, level_shape, nodes),
    )  # fmt: skip
    levels, mass, collected = through_variables(levels, region, update, inputs)
    return levels, mass, log_weight + jnp.sum(collected, axis=0)


def _log_rising_of_bands(banded, shape, counts, members):
    """Terms of the bands' levels in all, less those of the bands, which the prior has."""
    within, number = banded.totals(shape), banded.totals(counts)
    within = jnp.where(within > 0, within, 1)
    own = jnp.where(banded.prior > 0, banded.prior, within)
    terms = _log_rising(within, number, members) - _log_rising(own, number, members)
    return jnp.sum(terms, axis=0)


def _log_rising(shape, counts, members):
    """Terms log Gamma(b + n) / Gamma(b) - n log N + n, the large ones of Stirling's formula apart.

    With n = N it is that of a total, from which the terms of the levels take as much apart.
    """
    n, total = jnp.maximum(counts, 1), jnp.maximum(members, 1)
    log_gamma_n = n * jnp.log(n / total) - jnp.log(n / (2 * jnp.pi)) / 2 + stirling_error(n)
    value = log_gamma_n + log_gamma_ratio(n, shape) - gammaln(shape)
    return jnp.where(counts > 0, value, 0)
