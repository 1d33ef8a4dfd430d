"""Anchors of a split or a merge: the affected components, and one member of each side."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.numerics.gamma_ratios import log_beta
from bnp_models.kernels.numerics.platforms import on_accelerator, record_at
from bnp_models.kernels.variates.levels import Levels
from bnp_models.kernels.variates.rng import Keys, uniform, uniform_index, words

# Share of the proposals for which a component is chosen by its number of tables; otherwise it is
# chosen uniformly. Chains may miss splits of large components for a long time.
SHARE_BY_SIZE = 0.5

# The partner of a merge is chosen with probability proportional to exp(approximate log posterior
# ratio of the merge / PARTNER_TEMPERATURE). In a share EVEN_SHARE of the proposals it is chosen
# uniformly instead, so that every merge has a fair chance to be proposed.
PARTNER_TEMPERATURE = 4.0
EVEN_SHARE = 0.1


class Counts(NamedTuple):
    """Items by row of theta, and tables, of a side, of both sides, or of each component."""

    items: Int[Array, "..."]
    tables: Int[Array, "..."]


class Anchors(NamedTuple):
    """Two members from which the two sides start, and the components of the sides.

    Members are items at tables, or records, of which one entry may stand for several; see
    `kernels.splits.members`.
    """

    is_split: Bool[Array, ""]
    """Whether a component is split; otherwise two are merged."""
    records: tuple[Int[Array, ""], Int[Array, ""]]
    """Record, or entry, of each member."""
    tables: tuple[Int[Array, ""], Int[Array, ""]]
    """Table of each item in its record, or index of the record within its entry."""
    k_a: Int[Array, ""]
    """Component of the first member."""
    k_b: Int[Array, ""]
    """Component of the second member; the same in a split."""
    k_new: Int[Array, ""]
    """Component of side 1 if the sides are separate."""
    possible: Bool[Array, ""]
    """Whether such a move exists."""

    def concern(self, z: Int[Array, "..."]) -> Bool[Array, "..."]:
        """Whether labels are those of the component to split or of the pair to merge."""
        return (z == self.k_a) | (z == self.k_b)


@jax.named_scope("choose_anchors")
def choose_anchors(
    key: Key[Array, ""],
    u: Float[Array, " 4"],
    members: Any,
    present: Counts,
    levels: Levels,
    slot: Int[Array, ""],
) -> Anchors:
    """Draw a member, and a second one from the same component (split) or another (merge).

    Parameters
    ----------
    key
        Key for the members; used once.
    u
        Uniforms for the choice of the component, of split or merge, and of the partner.
    members, slot
        As in `kernels.splits.proposal.propose_sides`.
    present, levels
        Counts of all components, and the levels under their prior.
    """
    key_a, key_b = Keys(key)
    active = present.tables > 0
    first = first_probability(present)
    k_a = jnp.argmax(jnp.cumsum(first) > u[0] * jnp.sum(first))
    is_split = u[1] < 0.5
    partner = partner_probability(k_a, *present, levels)
    k_other = jnp.argmax(jnp.cumsum(partner) > u[2] * jnp.sum(partner))
    k_b = jnp.where(is_split, k_a, k_other)
    k_new = jnp.where(is_split, slot, k_other)
    record_a, table_a = members.pick(key_a, k_a)
    record_b, table_b = members.pick(key_b, k_b)
    # Rounding may choose a component without tables, or one that is not a possible partner.
    possible = active[k_a] & jnp.where(is_split, ~active[slot], partner[k_other] > 0)
    possible &= ~is_split | (record_a != record_b) | (table_a != table_b)
    return Anchors(is_split, (record_a, record_b), (table_a, table_b), k_a, k_b, k_new, possible)


def first_probability(present: Counts) -> Float[Array, " K"]:
    """Probability of each component to be split, or to be the first one of a merge."""
    dtype = jnp.result_type(float)
    active, size = (present.tables > 0).astype(dtype), present.tables.astype(dtype)
    by_size = SHARE_BY_SIZE * size / jnp.sum(size)
    return by_size + (1 - SHARE_BY_SIZE) * active / jnp.sum(active)


def partner_probability(
    k_a: Int[Array, ""], counts: Int[Array, "R K"], tables: Int[Array, " K"], levels: Levels
) -> Float[Array, " K"]:
    """Probability of each other component as the partner of a merge, mostly by similarity.

    Similarity is the log ratio of the Dirichlet-multinomial likelihoods of the merged and of the
    separate components, by the rough formula log Gamma(x) ~ (x + 1/2) log(x + 1) - log x - x,
    without its constant.
    """
    dtype = jnp.result_type(float)
    other = (tables > 0) & (jnp.arange(tables.size) != k_a)
    counts = levels.count(counts)
    a, b = counts[:, k_a, None].astype(dtype), counts.astype(dtype)
    per_group = levels.sizes[:, None]

    def together(a, b, shape):
        """Approximate log Gamma(s) Gamma(s + a + b) / (Gamma(s + a) Gamma(s + b)); s is `shape`."""

        def rough(x):
            return (x + 0.5) * jnp.log1p(x) - jnp.log(x)

        return rough(shape) + rough(shape + a + b) - rough(shape + a) - rough(shape + b)

    total_a, total_b = levels.totals(a), levels.totals(b)
    gain = together(a, b, levels.shape[:, None])
    gain = gain - together(total_a, total_b, levels.total[:, None]) / per_group
    tables = jnp.maximum(tables, 1).astype(dtype)
    # Gamma(m_a + m_b) / (Gamma(m_a) Gamma(m_b)), up to a constant.
    of_tables = -log_beta(tables[k_a], tables)
    score = (jnp.sum(gain, axis=0) + of_tables) / PARTNER_TEMPERATURE
    alike = jax.nn.softmax(jnp.where(other, score, -jnp.inf))
    even = other / jnp.maximum(jnp.sum(other), 1)
    return jnp.where(other, (1 - EVEN_SHARE) * alike + EVEN_SHARE * even, 0)


def pick_member(
    key: Key[Array, ""], number: Int[Array, " n"]
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Draw one of the members counted by record: its record, and its index within the record.

    Parameters
    ----------
    key
        Used once.
    number
        Number of members of each record.
    """
    u = uniform(words(key, ()))
    if not on_accelerator():
        return _reached(number, u)
    # First a line of records is chosen, then a record in it; this avoids one long cumulative sum.
    lines = _in_lines(number)
    line, left = _reached(jnp.sum(lines, axis=1), u)
    place, left = passed(record_at(lines.T, line), left)
    return line * lines.shape[1] + place, left


def _in_lines(x):
    """Fold an array into a nearly square one, padded with zeros."""
    length = 2 ** ((x.size - 1).bit_length() // 2)
    return jnp.pad(x, (0, -x.size % length)).reshape(-1, length)


def _reached(number, u):
    """Draw one of the units counted by entry: its entry, and its index within the entry."""
    return passed(number, uniform_index(u, jnp.sum(number)))


def passed(
    number: Int[Array, " n"], index: Int[Array, ""]
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Entry of a unit given its overall index, and its index within the entry."""
    up_to = jnp.cumsum(number)
    entry = jnp.minimum(jnp.sum(up_to <= index), up_to.size - 1)
    return entry, index - (up_to[entry] - number[entry])
