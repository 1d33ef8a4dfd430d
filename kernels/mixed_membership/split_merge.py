"""Splits and merges of components, parallel over records: the move that makes new components.

Updates of one item or one table can hardly make a new component, because the theta of a free slot
is drawn from the prior and does not fit any whole record. This move proposes to split a component
into two sides that depend on the data, or to merge two components. It is accepted or rejected with
the weights g_0 and the level probabilities integrated out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.numerics.counting import sum_by_group
from bnp_models.kernels.numerics.gamma_ratios import elementary_log_gamma, log_beta, log_gamma_ratio
from bnp_models.kernels.numerics.platforms import in_double
from bnp_models.kernels.splits.anchors import Counts
from bnp_models.kernels.splits.proposal import propose_sides, put_together, with_sides
from bnp_models.kernels.splits.seated_items import SeatedItems
from bnp_models.kernels.variates.levels import Levels


class SplitMerge(NamedTuple):
    """State after a move. Both g_0 and theta must be drawn again before they are used."""

    z: Int[Array, "J n"]
    """Component of each item."""
    counts: Int[Array, "R K"]
    """Items by row of theta and component."""
    tables: Int[Array, " K"]
    """Tables of each component."""
    accepted: Bool[Array, ""]
    """Whether the move was accepted."""


@jax.named_scope("split_or_merge")
def split_or_merge(
    key: Key[Array, ""],
    items: SeatedItems,
    present: Counts,
    levels: Levels,
    alpha0: Float[Array, ""],
    double: bool = False,
) -> SplitMerge:
    """Split or merge components by one Metropolis-Hastings step, given the seating.

    Parameters
    ----------
    key, levels
        As in `propose_sides`, whose notes have the proposal.
    items
        Items of the sample at their tables.
    present
        Items by row of theta and component, and tables of each component.
    alpha0
        Concentration of G_0.
    double
        Whether to decide in double precision. The evidence of two large sides and the probability
        of their proposal have terms as large as the number of items, which nearly cancel.
    """
    proposal = propose_sides(key, items, *present, levels, jnp.argmin(present.tables > 0))

    def decide(level_shape, alpha0):
        prior = levels.with_shape(level_shape)
        (items_0, items_1), (tables_0, tables_1) = proposal.items.T, proposal.tables
        log_target = _log_split_ratio(items_0, items_1, prior, tables_0, tables_1, alpha0)
        return proposal.accepted(log_target)

    given = levels.shape, alpha0
    accepted = in_double(decide, *given) if double else decide(*given)
    places = jnp.stack([proposal.stays, proposal.other])
    of_sides = Counts(proposal.items, proposal.tables)
    together = jax.tree.map(put_together, of_sides)
    of_sides = jax.tree.map(lambda x, y: jnp.where(proposal.is_split, x, y), of_sides, together)
    after = with_sides(present, places, of_sides)
    after = jax.tree.map(lambda x, y: jnp.where(accepted, x, y), after, present)
    z = jnp.where(accepted, proposal.labels, items.z)
    return SplitMerge(z, after.items, after.tables, accepted)


def _log_split_ratio(c_0, c_1, levels: Levels, m_0, m_1, alpha0):
    """log T of `kernels.splits.proposal`, with g_0 and theta integrated out.

    T = alpha_0 Gamma(m_0) Gamma(m_1) / Gamma(m_0 + m_1) * L(c_0) L(c_1) / L(c_0 + c_1), with m_0
    and m_1 the tables of the sides, and L the Dirichlet-multinomial likelihood of the items c of a
    side.
    """
    dtype = alpha0.dtype
    group = levels.group
    num_nodes = group.size
    first = jax.ops.segment_max(jnp.arange(num_nodes), group, num_segments=num_nodes)
    exists = first >= 0

    def of_side(items, tables):
        """Count of every node, then of every distribution over nodes, then of the tables."""
        items = levels.count(items)
        totals = sum_by_group(items, group, num_nodes)
        return jnp.concatenate([items, totals, tables[None]]).astype(dtype)

    shape = jnp.concatenate([
        levels.shape, jnp.where(exists, levels.total[first], 1), jnp.zeros(1, dtype)
    ])  # fmt: skip
    sign = jnp.concatenate([jnp.ones(num_nodes), jnp.where(exists, -1, 0), jnp.ones(1)])
    x_0, x_1 = of_side(c_0, m_0), of_side(c_1, m_1)
    # Gamma(s + x_0) Gamma(s + x_1) / Gamma(2 s + x_0 + x_1), in one call, which compiles faster.
    apart = log_beta(shape + x_0, shape + x_1)
    # .. and Gamma(2 s + x_0 + x_1) / Gamma(s + x_0 + x_1) / Gamma(s).
    some = jnp.where(shape > 0, shape, 1)
    over = log_gamma_ratio(some + x_0 + x_1, some) - elementary_log_gamma(some)
    terms = apart + jnp.where(shape > 0, over, 0)
    return jnp.log(alpha0) + jnp.sum(sign.astype(dtype) * terms)
