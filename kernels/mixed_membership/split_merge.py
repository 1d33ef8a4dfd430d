"""Split and merge of components, parallel over records: the move that opens components.

One-item and one-table updates can hardly open a component: a free slot's theta comes from the
prior, and fits no whole record. This move proposes the split of a component in two that data have
shaped, or the merge of two, with the weights g_0 and the level probabilities integrated out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.mixed_membership.tables import opens_table
from bnp_models.kernels.numerics.counting import order_free_sum
from bnp_models.kernels.numerics.gamma_ratios import log_binomial, log_gamma_ratio
from bnp_models.kernels.numerics.lanes import most_of_lanes
from bnp_models.kernels.variates.rng import uniform, words

# Rounds that shape a proposal: two-means, then expectation-maximisation, both among so many records
# or not many more; and then rounds of expectation-maximisation among all.
HARD_ROUNDS = 3
SOFT_ROUNDS = 6
SHAPING_RECORDS = 4096
LAST_ROUNDS = 2

# Records are taken in this many chunks at the most, their tables allocated in turn; never in chunks
# of fewer than the second, of which two hold the anchors.
MAX_CHUNKS = 32
MIN_CHUNK = 32

# Partners of a merge are proposed by its approximate log posterior ratio over this.
PARTNER_TEMPERATURE = 10.0

# Weights of tables between two sides are counted in units of its inverse, or of more where the
# counts would overflow.
MAX_UNIT = 256


class SplitMerge(NamedTuple):
    """The state after a move. Both g_0 and theta must be redrawn before anything uses them."""

    z: Int[Array, "J n"]
    """Component of each item."""
    counts: Int[Array, "R K"]
    """Items by row of theta and component."""
    tables: Int[Array, " K"]
    """Tables of each component."""
    accepted: Bool[Array, ""]
    """Whether anything moved."""


def split_or_merge(
    key: Key[Array, ""],
    z: Int[Array, "J n"],
    table: Int[Array, "J n"],
    rows: Int[Array, "J n"],
    counts: Int[Array, "R K"],
    tables: Int[Array, " K"],
    variable: Int[Array, " R"],
    num_records: Int[Array, ""],
    alpha0: Float[Array, ""],
    num_labelled: int | None = None,
) -> SplitMerge:
    """One Metropolis-Hastings split or merge of components, given the seating.

    Parameters
    ----------
    key
        Used once.
    z, table
        Component of each item, and the item that opened its table (`seat_items`).
    rows
        Row of theta of each item.
    counts, tables
        Items by row of theta and component, and tables of each component.
    variable
        The variable of each row of theta.
    num_records
        Records, which come before the padding; what the move costs depends on them most.
    alpha0
        Concentration of G_0.
    num_labelled
        Records, from the first, whose labels are returned; None: all.

    Notes
    -----
    After Jain & Neal (2004), doi:10.1198/1061860043001. Anchors: an item a, uniform; then, with
    probability one half each, an item b of its component (split) or of another one, chosen by how
    well the two would merge (merge). From the anchors, rounds of two-means and then of
    expectation-maximisation over the tables of the component or pair, at first of some of its
    records and then of all, shape a launch state: a function of those tables and the anchors alone,
    so that it is the same for the reverse move. A
    last round allocates the tables for good, chunk after chunk: independently within a chunk, given
    the allocations before it and the launch state after it. The proposal's probability is the
    product over tables.
    """
    dtype = alpha0.dtype
    num_items, num_padded = z.shape
    num_rows = variable.size
    unit = max(1, min(MAX_UNIT, 2**30 // z.size))
    key_scalars, key_b, key_sides = jax.random.split(key, 3)
    u = uniform(words(key_scalars, (5,)), dtype.type)
    everyone = jnp.arange(num_padded)
    real = everyone < num_records
    active = tables > 0

    # Anchors.
    record = jnp.minimum((u[0] * num_records).astype(jnp.int32), num_records - 1)
    item = jnp.minimum((u[1] * num_items).astype(jnp.int32), num_items - 1)
    k_a = z[item, record]
    is_split = u[2] < 0.5
    partner = _partner_probability(k_a, counts, tables, variable)
    k_other = jnp.argmax(jnp.cumsum(partner) > u[3] * jnp.sum(partner))
    k_b = jnp.where(is_split, k_a, k_other)
    k_new = jnp.where(is_split, jnp.argmin(active), k_other)
    record_b, item_b = _uniform_item(key_b, real & (z == k_b))
    table_a, table_b = table[item, record], table[item_b, record_b]
    possible = jnp.where(is_split, ~jnp.all(active), jnp.sum(active) > 1)
    possible &= (record != record_b) | (table_a != table_b)

    # The records concerned, at the front, in chunks.
    size = max(-(-num_padded // MAX_CHUNKS), min(MIN_CHUNK, num_padded))
    num_chunks = -(-num_padded // size)
    shape = (num_chunks, num_items, size)
    concerned = real & jnp.any((z == k_a) | (z == k_b), axis=0)
    in_use = -(-jnp.sum(concerned) // size)
    rank = jnp.cumsum(concerned) - 1
    # Dealt out, so that every chunk is like the whole even where records are sorted.
    place = (rank % jnp.maximum(in_use, 1)) * size + rank // jnp.maximum(in_use, 1)
    place = jnp.where(concerned, place, num_chunks * size)
    order = jnp.full(num_chunks * size, num_padded).at[place].set(everyone, mode="drop")
    # Either anchor is among the first, which shape the proposal.
    for front, anchor in enumerate((record, record_b)):
        back, other = place[anchor], order[front]
        order = order.at[jnp.stack([front, back])].set(jnp.stack([anchor, other]))
        place = place.at[jnp.stack([anchor, other])].set(jnp.stack([front, back]), mode="drop")
    order = order.reshape(num_chunks, size)
    # A chunk beyond those in use holds no one, and changes nothing.
    in_use = most_of_lanes(in_use)

    def gather(c, carry):
        """Of each item: its row, its table, and bits.

        The bits: whether it is inside, and if so opens its table, sits with either anchor, is in
        the second component of a merge.
        """
        rows_of, table_of, packed = carry
        who = jnp.minimum(order[c], num_padded - 1)
        label, seat = z[:, who], table[:, who]
        inside = (label == k_a) | (label == k_b)
        bits = (
            inside + 2 * (inside & opens_table(seat)) + 16 * (label == k_b)
            + 4 * ((who == record) & (seat == table_a))
            + 8 * ((who == record_b) & (seat == table_b))
        )  # fmt: skip
        bits = jnp.where(order[c] < num_padded, bits, 0)
        return (
            rows_of.at[c].set(rows[:, who]), table_of.at[c].set(seat), packed.at[c].set(bits),
        )  # fmt: skip

    nothing = jnp.zeros(shape, jnp.int32)
    rows_of, table_of, packed = lax.fori_loop(0, in_use, gather, (nothing, nothing, nothing))

    total = jnp.where(active[k_b], counts[:, k_a] + jnp.where(is_split, 0, counts[:, k_b]), 0)
    num_tables = tables[k_a] + jnp.where(is_split, 0, tables[k_b])
    same_variable = (variable[:, None] == variable).astype(dtype)
    per_variable = jnp.sum(same_variable, axis=1)

    def by_variable(x):
        return jnp.matmul(same_variable, x, precision=lax.Precision.HIGHEST)

    def log_theta(counts):
        return jnp.log((1 + counts) / (per_variable + by_variable(counts)))

    def table_sums(c, score):
        """Score of each item's table: the sum over its items of the scores of their rows."""
        of_item = jnp.where(packed[c] & 1, score[rows_of[c]], 0)
        return sum(
            jnp.where(table_of[c] == table_of[c, j], of_item[j], 0) for j in range(num_items)
        )

    def log_odds(c, side_1, whole):
        """Log odds of side 1 of each item's table, given the other tables.

        Both arguments are weighted items of each row and weighted tables, in units of 1 / unit.
        """
        (counts_1, tables_1), (counts_0, tables_0) = (
            jax.tree.map(lambda x: x.astype(dtype) / unit, x)
            for x in (side_1, jax.tree.map(jnp.subtract, whole, side_1))
        )
        score = log_theta(counts_1) - log_theta(counts_0)
        return table_sums(c, score) + jnp.log(tables_1) - jnp.log(tables_0)

    def count(c, share):
        """Weighted items of each row, and weighted tables, of one chunk."""
        flat = jnp.zeros(num_rows, jnp.int32)
        return (
            flat.at[rows_of[c].reshape(-1)].add(share.reshape(-1)),
            jnp.sum(jnp.where(packed[c] & 2, share, 0)),
        )

    def settled(c, share):
        """In units of 1 / unit, the anchors' tables on their own sides."""
        share = jnp.where(packed[c] & 4, 0, jnp.where(packed[c] & 8, unit, share))
        return jnp.where(packed[c] & 1, share, 0)

    def placed(c, carry, share):
        of_chunk, side_1 = carry
        new = count(c, settled(c, share))
        side_1 = jax.tree.map(lambda x, new, old: x + new - old[c], side_1, new, of_chunk)
        return jax.tree.map(lambda x, new: x.at[c].set(new), of_chunk, new), side_1

    def reallocate(share_given_odds, whole):
        """A round over the chunks; each takes its share anew, given those of all the others."""

        def one(c, carry):
            odds = log_odds(c, carry[1], whole)
            share, *rest = share_given_odds(c, odds, *carry[2:])
            return *placed(c, carry[:2], share), *rest

        return one

    share = total.astype(dtype) / jnp.maximum(by_variable(total.astype(dtype)), 1)

    def anchored(record, table_of_anchor):
        """Log level probabilities half way between an anchor and the whole."""
        with_anchor = table[:, record] == table_of_anchor
        seen = jnp.zeros(num_rows, dtype).at[rows[:, record]].add(with_anchor)
        return jnp.log(jnp.where(by_variable(seen) > 0, (share + seen) / 2, share) + 1e-3)

    contrast = anchored(record_b, table_b) - anchored(record, table_a)

    def first(c, carry):
        return placed(c, carry, jnp.where(table_sums(c, contrast) > 0, unit, 0))

    def hard(_, odds):
        return (jnp.where(odds > 0, unit, 0),)

    def soft(_, odds):
        return (jnp.round(unit * jax.nn.sigmoid(odds)).astype(jnp.int32),)

    def final(c, odds, side_of, cost):
        v = uniform(words(jax.random.fold_in(key_sides, c), shape[1:]), dtype.type)
        logit = jnp.log(v) - jnp.log1p(-v)
        drawn = jnp.take_along_axis(logit, table_of[c], axis=0) < odds
        side = jnp.where(is_split, drawn, (packed[c] & 16) > 0)
        chosen = (packed[c] & 14) == 2
        spent = jnp.where(chosen, jax.nn.softplus(jnp.where(side, -odds, odds)), 0)
        share = jnp.where(side, unit, 0)
        side_of = side_of.at[c].set(settled(c, share) > 0)
        return share, side_of, cost.at[c].set(jnp.sum(spent, axis=0))

    def rounds(times, number, share_given_odds, whole, carry):
        again = reallocate(share_given_odds, whole)
        return lax.fori_loop(
            0, times, lambda _, carry: lax.fori_loop(0, number, again, carry), carry
        )

    # A launch state from some of the records, which are chosen by the component or pair alone ..
    no_one = jnp.zeros(num_rows, jnp.int32), jnp.zeros((), jnp.int32)
    no_chunk = jax.tree.map(lambda x: jnp.zeros((num_chunks, *x.shape), jnp.int32), no_one)
    some = jnp.minimum(in_use, -(-SHAPING_RECORDS // size))
    everything = lax.fori_loop(
        0, some, lambda c, carry: jax.tree.map(jnp.add, carry, count(c, packed[c] & 1)), no_one
    )
    everything = jax.tree.map(lambda x: unit * x, everything)
    shaped = lax.fori_loop(0, some, first, (no_chunk, no_one))
    shaped = rounds(HARD_ROUNDS, some, hard, everything, shaped)
    _, shaped = rounds(SOFT_ROUNDS, some, soft, everything, shaped)

    # .. then from all of them, and the proposal.
    def spread(c, carry):
        return placed(c, carry, soft(c, log_odds(c, shaped, everything))[0])

    whole = unit * total, unit * num_tables
    carry = lax.fori_loop(0, in_use, spread, (no_chunk, no_one))
    carry = rounds(LAST_ROUNDS - 1, in_use, soft, whole, carry)
    sides = jnp.zeros(shape, bool), jnp.zeros((num_chunks, size), dtype)
    _, (c_1, m_1), side_of, cost = lax.fori_loop(
        0, in_use, reallocate(final, whole), (*carry, *sides)
    )
    minus_log_q = order_free_sum(cost.reshape(-1))
    c_1, m_1 = c_1 // unit, m_1 // unit

    # Acceptance: split against merged.
    log_target = _log_split_ratio(total - c_1, c_1, variable, num_tables - m_1, m_1, alpha0)
    in_1, in_both = jnp.sum(c_1).astype(dtype), jnp.sum(total).astype(dtype)
    split_counts = counts.at[:, k_a].set(total - c_1).at[:, k_new].set(c_1)
    split_tables = tables.at[k_a].set(num_tables - m_1).at[k_new].set(m_1)
    reverse = _partner_probability(k_a, split_counts, split_tables, variable)[k_new]
    log_ratio = log_target + minus_log_q + jnp.log(in_both) + jnp.log(reverse / in_1)
    log_accept = jnp.where(is_split, log_ratio, -log_ratio)
    accepted = possible & (jnp.log(u[4]) < log_accept)
    label = z[:, :num_labelled]
    place = jnp.minimum(place[:num_labelled], num_chunks * size - 1)
    on_side_1 = side_of[place // size, :, place % size].T
    inside = real[:num_labelled] & ((label == k_a) | (label == k_b))
    proposal = jnp.where(inside, jnp.where(is_split & on_side_1, k_new, k_a), label)
    merged_counts = counts.at[:, k_b].set(0).at[:, k_a].set(total)
    merged_tables = tables.at[k_b].set(0).at[k_a].set(num_tables)
    moved = (
        proposal.astype(z.dtype), jnp.where(is_split, split_counts, merged_counts),
        jnp.where(is_split, split_tables, merged_tables),
    )  # fmt: skip
    before = label, counts, tables
    return SplitMerge(
        *(jnp.where(accepted, x, y) for x, y in zip(moved, before, strict=True)), accepted
    )


def _uniform_item(key, mask):
    """The record and the position of one of the items of `mask`, uniformly."""
    up_to = jnp.cumsum(jnp.sum(mask, axis=0))
    index = jax.random.randint(key, (), 0, jnp.maximum(up_to[-1], 1))
    record = jnp.minimum(jnp.sum(up_to <= index), up_to.size - 1)
    left = index - (up_to[record] - jnp.sum(mask[:, record]))
    return record, jnp.argmax(jnp.cumsum(mask[:, record]) > left)


def _partner_probability(k_a, counts, tables, variable):
    """Probability of each other component as the partner of a merge: half of it by resemblance.

    The other half is uniform, so that no merge is ever nearly impossible to propose. Resemblance is
    the log ratio of the Dirichlet-multinomial likelihoods, merged against apart, by Stirling's
    formula log x! ~ (x + 1/2) log(x + 1/2), its other terms left out.
    """
    dtype = jnp.result_type(float)
    other = (tables > 0) & (jnp.arange(tables.size) != k_a)
    a, b = counts[:, k_a, None].astype(dtype), counts.astype(dtype)
    same_variable = (variable[:, None] == variable).astype(dtype)
    per_variable = jnp.sum(same_variable, axis=1, keepdims=True)

    def together(a, b, half):
        """(a + b + h) log(a + b + h) - (a + h) log(a + h) - (b + h) log(b + h), nearly."""
        merged = a + b + half
        return (
            -(a + half) * jnp.log((a + half) / merged)
            - (b + half) * jnp.log((b + half) / merged)
            - half * jnp.log(merged)
        )

    total_a, total_b = (
        jnp.matmul(same_variable, x, precision=lax.Precision.HIGHEST) for x in (a, b)
    )
    gain = together(a, b, 0.5) - together(total_a, total_b, per_variable - 0.5) / per_variable
    tables = tables.astype(dtype)
    gain = jnp.sum(gain, axis=0) + together(tables[k_a], jnp.maximum(tables, 1), -0.5)
    score = gain / PARTNER_TEMPERATURE
    alike = jax.nn.softmax(jnp.where(other, score, -jnp.inf))
    even = other / jnp.maximum(jnp.sum(other), 1)
    return jnp.where(other, (alike + even) / 2, 0)


def _log_split_ratio(c_0, c_1, variable, m_0, m_1, alpha0):
    """log p(split) - log p(merged): tables' partition and Dirichlet-multinomial likelihoods."""
    dtype = alpha0.dtype
    num_rows = variable.size
    levels = jnp.zeros(num_rows, dtype).at[variable].add(1)
    c_0, c_1, m_0, m_1 = (x.astype(dtype) for x in (c_0, c_1, m_0, m_1))
    t_0 = jnp.zeros(num_rows, dtype).at[variable].add(c_0)
    t_1 = jnp.zeros(num_rows, dtype).at[variable].add(c_1)
    exists = levels > 0
    extra = jnp.where(exists, levels - 1, 0)
    # Gamma(L + t_0) Gamma(L + t_1) / Gamma(L + t_0 + t_1), through a binomial coefficient.
    norms = (
        log_binomial(extra + t_0, extra + t_1)
        - log_gamma_ratio(levels + t_0 + t_1 + (levels == 0), extra)
        + lax.lgamma(jnp.maximum(levels, 1))
    )
    likelihood = jnp.sum(jnp.where(exists, norms, 0)) - jnp.sum(log_binomial(c_0, c_1))
    # Gamma(m_0) Gamma(m_1) / Gamma(m_0 + m_1)
    partition = jnp.log(m_0 + m_1) - jnp.log(m_0) - jnp.log(m_1) - log_binomial(m_0, m_1)
    return jnp.log(alpha0) + partition + likelihood
