"""Proposals to split a component in two that data have shaped, or to merge two.

Parallel over records; whether they are accepted is for the moves that use them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.numerics.counting import order_free_sum
from bnp_models.kernels.numerics.platforms import (
    by_platform,
    map_in_use,
    on_accelerator,
    put,
    record_at,
)
from bnp_models.kernels.splits.anchors import (
    Anchors,
    Counts,
    Levels,
    choose_anchors,
    first_probability,
    partner_probability,
    times,
)
from bnp_models.kernels.splits.dealing import (
    ANCHOR_0,
    ANCHOR_1,
    INSIDE,
    OPENS,
    SECOND,
    Dealt,
    Items,
    deal_records,
    in_order,
    is_inside,
)
from bnp_models.kernels.variates.rng import Keys, uniform, words

# Rounds that shape a proposal among some of the records: two-means, and then expectation-
# maximisation, with so much of each step's change added to the next.
HARD_ROUNDS = 3
SOFT_ROUNDS = 30
MOMENTUM = 0.9

# Shares of these records and log odds are multiples of its inverse, a power of two: float32 then
# adds them up without rounding, in any order.
SHAPING_UNIT = 2**10

# Weights of tables between two sides are counted in units of its inverse, or of more where the
# counts would overflow.
MAX_UNIT = 256


class Proposal(NamedTuple):
    """A split or a merge that is proposed: its two sides, and the labels after it."""

    is_split: Bool[Array, ""]
    """Whether a component is split; else two are merged."""
    possible: Bool[Array, ""]
    """Whether there is such a move."""
    log_u: Float[Array, ""]
    """Log of the uniform that decides."""
    stays: Int[Array, ""]
    """Component of side 0, and of both where they are merged."""
    other: Int[Array, ""]
    """Component of side 1."""
    items: Int[Array, "R 2"]
    """Items of the sides by row of theta."""
    tables: Int[Array, " 2"]
    """Tables of the sides."""
    z: Int[Array, "J n"]
    """Component of each item after the move."""
    log_choice: Float[Array, ""]
    """Log probability of proposing the merge of the sides over that of proposing the split."""

    def accepted(self, log_target: Float[Array, ""]) -> Bool[Array, ""]:
        """Whether the move is accepted, given log p(split) less log p(merged)."""
        log_split = log_target + self.log_choice
        return self.possible & (self.log_u < jnp.where(self.is_split, log_split, -log_split))


@jax.named_scope("propose_sides")
def propose_sides(
    key: Key[Array, ""],
    z: Int[Array, "J n"],
    table: Int[Array, "J n"],
    rows: Int[Array, "J n"],
    counts: Int[Array, "R K"],
    tables: Int[Array, " K"],
    variable: Int[Array, " R"],
    num_records: Int[Array, ""],
    level_shape: Float[Array, " R"],
    slot: Int[Array, ""],
) -> Proposal:
    """Propose to split a component in two sides, or to merge two.

    Parameters
    ----------
    key
        Used once.
    z, table
        Component of each item, and the item of its record that opened its table.
    rows
        Row of theta of each item.
    counts, tables
        Items by row of theta and component, and tables of each component.
    variable
        The variable of each row of theta.
    num_records
        Number of records; padding comes after them.
    level_shape
        Dirichlet shapes of the level probabilities' prior, by row.
    slot
        Slot without tables, which the second side of a split takes; no split is possible where it
        has tables.

    Notes
    -----
    After Jain & Neal (2004), doi:10.1198/1061860043001. Anchors: an item a of a component, chosen
    uniformly or by size; then, with probability one half each, an item b of its component (split)
    or of another one, chosen by how well the two would merge (merge). From the anchors, rounds of
    two-means and then of expectation-maximisation with momentum among some of the records of the
    component or pair, and a round among all, shape a launch state: a function of their tables and
    the anchors alone, so that it is the same for the reverse move. A last round allocates the
    tables for good, chunk after chunk: independently within a chunk, given the allocations before
    it and the launch state after it. The proposal's probability is the product over tables.
    """
    dtype = level_shape.dtype
    key_scalars, key_anchors, key_sides = Keys(key, 3)
    u = uniform(words(key_scalars, (4,)), dtype.type)
    real = jnp.arange(z.shape[1]) < num_records
    present = Counts(counts, tables)

    levels = Levels.of_prior(level_shape, variable)
    anchors = choose_anchors(key_anchors, u, z, table, present, levels, num_records, slot)
    dealt = deal_records(anchors, z, table, rows, real)
    unit = max(1, min(MAX_UNIT, 2**30 // z.size))
    chunks = _Chunks(dealt, levels.same_variable, levels, unit)
    both = _counts_of_both(anchors, present)

    contrast = _contrast(anchors, chunks, both.items, table, rows)
    whole = jax.tree.map(lambda x: chunks.unit * x, both)
    shaped = _shape(chunks, _launch(chunks, contrast), whole)
    side_1, on_side_1, minus_log_q = _allocate(key_sides, anchors, chunks, shaped, whole)

    of_sides = jax.tree.map(lambda x, y: jnp.stack([x - y, y], axis=-1), both, side_1)
    places = jnp.stack([anchors.k_a, anchors.k_new])
    apart = with_sides(present, places, of_sides)
    partner = partner_probability(anchors.k_a, *apart, levels)[anchors.k_new]
    in_0, in_1 = (jnp.sum(side).astype(dtype) for side in of_sides.items.T)
    together = with_sides(present, places, jax.tree.map(put_together, of_sides))
    of_first = [jnp.log(first_probability(x)[anchors.k_a]) for x in (apart, together)]
    of_items = 2 * jnp.log(in_0 + in_1) - jnp.log(in_0) - jnp.log(in_1)
    return Proposal(
        is_split=anchors.is_split, possible=anchors.possible, log_u=jnp.log(u[3]),
        stays=anchors.k_a, other=anchors.k_new, items=of_sides.items, tables=of_sides.tables,
        z=_relabel(anchors, z, real, in_order(dealt, on_side_1, z.shape[1])),
        log_choice=minus_log_q + of_items + jnp.log(partner) + of_first[0] - of_first[1],
    )  # fmt: skip


class _Chunks(NamedTuple):
    """Records in chunks, and what the rows of their items stand for."""

    dealt: Dealt
    """The records."""
    same_variable: Float[Array, "R R"]
    """1 where two rows are levels of one variable."""
    levels: Levels
    """The rows, and the prior of the level probabilities."""
    unit: int
    """Weight of a whole item or table in integer counts."""

    @property
    def number(self) -> int:
        """Chunks, in use or not."""
        return len(self.dealt.items.rows)

    def of(self, c) -> Items:
        """Items of a chunk."""
        return jax.tree.map(lambda x: x[c], self.dealt.items)


def _counts_of_both(anchors: Anchors, present: Counts) -> Counts:
    """Items and tables of the component or pair."""
    counts, tables = present
    k_a, k_b, is_split = anchors.k_a, anchors.k_b, anchors.is_split
    items = counts[:, k_a] + jnp.where(is_split, 0, counts[:, k_b])
    items = jnp.where(tables[k_b] > 0, items, 0)
    return Counts(items, tables[k_a] + jnp.where(is_split, 0, tables[k_b]))


def _contrast(anchors: Anchors, chunks: _Chunks, items, table, rows):
    """Log ratio of level probabilities near the second anchor and near the first."""
    dtype = chunks.same_variable.dtype
    share = items.astype(dtype) / jnp.maximum(times(chunks.same_variable, items.astype(dtype)), 1)

    def anchored(record, table_of_anchor):
        """Log level probabilities half way between an anchor and the whole."""
        with_anchor = record_at(table, record) == table_of_anchor
        seen = jnp.zeros(items.size, dtype).at[record_at(rows, record)].add(with_anchor)
        mixed = jnp.where(times(chunks.same_variable, seen) > 0, (share + seen) / 2, share)
        return jnp.log(mixed + 1e-3)

    first, second = zip(anchors.records, anchors.tables, strict=True)
    return anchored(*second) - anchored(*first)


def _table_sums(chunks: _Chunks, c, score):
    """Score of each item's table: the sum over its items of the scores of their rows."""
    rows, table, bits = chunks.of(c)
    of_item = jnp.where(bits & INSIDE, score[rows], 0)
    return sum(jnp.where(table == table[j], of_item[j], 0) for j in range(len(table)))


def _log_odds(chunks: _Chunks, c, side_1: Counts, whole: Counts):
    """Log odds of side 1 of each item's table of a chunk, given the other tables.

    Both arguments are weighted items of each row and weighted tables, in units of 1 / unit.
    """
    dtype = chunks.same_variable.dtype
    sides = jax.tree.map(
        lambda one, both: jnp.stack([one, both - one], axis=-1).astype(dtype) / chunks.unit,
        side_1, whole,
    )  # fmt: skip
    odds = _odds_given(sides, times(chunks.same_variable, sides.items), chunks.levels)
    return _table_sums(chunks, c, odds.item) + odds.table


def _count(chunks: _Chunks, c, share) -> Counts:
    """Weighted items of each row, and weighted tables, of a chunk."""
    (rows, _, bits), variable = chunks.of(c), chunks.levels.variable
    if on_accelerator():
        # Many items of few rows, added one by one, would wait for each other.
        has_row = rows[variable] == jnp.arange(variable.size)[:, None]
        items = jnp.sum(jnp.where(has_row, share[variable], 0), axis=1)
    else:
        items = jnp.zeros(variable.size, jnp.int32).at[rows.reshape(-1)].add(share.reshape(-1))
    return Counts(items, jnp.sum(jnp.where(bits & OPENS, share, 0)))


def _settled(chunks: _Chunks, c, share):
    """Shares of side 1 in units of 1 / unit, the anchors' tables on their own sides."""
    bits = chunks.of(c).bits
    share = jnp.where(bits & ANCHOR_0, 0, jnp.where(bits & ANCHOR_1, chunks.unit, share))
    return jnp.where(bits & INSIDE, share, 0)


class _Sides(NamedTuple):
    """Weighted counts of side 1, in units of 1 / unit."""

    of_chunk: Counts
    """Chunk after chunk."""
    total: Counts
    """Sums over the chunks."""


def _place(chunks: _Chunks, c, sides: _Sides, share) -> _Sides:
    """Sides with the shares of one chunk replaced."""
    new = _count(chunks, c, _settled(chunks, c, share))
    total = jax.tree.map(lambda x, new, old: x + new - old[c], sides.total, new, sides.of_chunk)
    return _Sides(jax.tree.map(lambda x, new: put(x, c, new), sides.of_chunk, new), total)


def _soft(chunks: _Chunks, odds):
    """Shares of side 1 by expectation."""
    return jnp.round(chunks.unit * jax.nn.sigmoid(odds)).astype(jnp.int32)


class _Odds(NamedTuple):
    """Log odds of side 1: those of a table are the sum of its items' and its own."""

    item: Float[Array, " R"]
    """Of an item of each row."""
    table: Float[Array, ""]
    """Of a table."""


def _odds_given(sides: Counts, totals: Float[Array, "R 2"], levels: Levels) -> _Odds:
    """Log odds given counts of sides 1 and 0, and those of all levels of each row's variable."""
    log_theta = jnp.log((levels.shape[:, None] + sides.items) / (levels.total[:, None] + totals))
    log_tables = jnp.log(sides.tables)
    return _Odds(log_theta[:, 0] - log_theta[:, 1], log_tables[0] - log_tables[1])


@jax.named_scope("launch")
def _launch(chunks: _Chunks, contrast) -> _Odds:
    """Launch the sides from some of the records: two-means, then expectation-maximisation.

    The records are chosen by the component or pair alone, and taken whole, whatever their tables:
    as vectors of counts by row, so that a round is a product with them.
    """
    rows, _, bits = chunks.dealt.shaping
    first, second = (jnp.any((bits & anchor) > 0, axis=0) for anchor in (ANCHOR_0, ANCHOR_1))
    dtype = contrast.dtype
    inside, opens = ((bits & bit > 0).astype(dtype) for bit in (INSIDE, OPENS))
    has_row = jnp.zeros((contrast.size, rows.shape[1]), dtype)
    has_row = has_row.at[rows, jnp.arange(rows.shape[1])].add(inside)
    has_tables = jnp.sum(opens, axis=0)
    has_totals = times(chunks.same_variable, has_row)
    # Multiplied and added up: on accelerators a round is two launches then.
    product = by_platform(times, lambda x, y: jnp.sum(x * y, axis=-1))
    counted = jnp.concatenate(by_platform(
        [has_row, has_tables[None]], [has_row, has_tables[None], has_totals]
    ))  # fmt: skip
    everyone, num_rows = jnp.sum(counted, axis=1), contrast.size

    def rounded(x):
        return jnp.round(SHAPING_UNIT * x) / SHAPING_UNIT

    def odds_given(share):
        """Log odds, given the shares of side 1 of all records."""
        share = rounded(jnp.where(first, 0, jnp.where(second, 1, share)))
        side_1 = product(counted, share)
        sides = jnp.stack([side_1, everyone - side_1], axis=-1)
        sides, totals = Counts(sides[:num_rows], sides[num_rows]), sides[num_rows + 1 :]
        if not on_accelerator():
            totals = times(chunks.same_variable, sides.items)
        return _odds_given(sides, totals, chunks.levels)

    def of_records(odds):
        return product(has_row.T, rounded(odds.item)) + odds.table

    def hard(_, now):
        return of_records(odds_given((now > 0).astype(dtype)))

    def soft(_, carry):
        before, now = carry
        return now, of_records(odds_given(jax.nn.sigmoid(now + MOMENTUM * (now - before))))

    start = of_records(_Odds(contrast, jnp.zeros((), dtype)))
    unroll = by_platform(1, 5)
    now = lax.fori_loop(0, HARD_ROUNDS + 1, hard, start, unroll=unroll)
    _, now = lax.fori_loop(0, SOFT_ROUNDS, soft, (now, now), unroll=unroll)
    return odds_given(jax.nn.sigmoid(now))


@jax.named_scope("shape")
def _shape(chunks: _Chunks, launched: _Odds, whole: Counts) -> _Sides:
    """Shape the sides of all records concerned, from what some of them launched."""

    def spread(c):
        odds = _table_sums(chunks, c, launched.item) + launched.table
        return _count(chunks, c, _settled(chunks, c, _soft(chunks, odds)))

    def again(c, sides):
        return _place(chunks, c, sides, _soft(chunks, _log_odds(chunks, c, sides.total, whole)))

    if on_accelerator():
        of_chunk = jax.vmap(spread)(jnp.arange(chunks.number))
    else:
        of_chunk = map_in_use(spread, chunks.number, chunks.dealt.in_use)
    sides = _Sides(of_chunk, jax.tree.map(lambda x: jnp.sum(x, axis=0), of_chunk))
    return lax.fori_loop(0, chunks.dealt.in_use, again, sides)


@jax.named_scope("allocate")
def _allocate(key, anchors: Anchors, chunks: _Chunks, shaped: _Sides, whole: Counts):
    """Allocate every table for good: as drawn in a split, as it is in a merge.

    Returns the counts of side 1, which items are on it, and minus the log probability of that.
    """
    num_chunks, num_items, size = chunks.dealt.items.rows.shape
    dtype = chunks.same_variable.dtype

    def final(c, carry):
        sides, side_of, cost = carry
        odds = _log_odds(chunks, c, sides.total, whole)
        v = uniform(words(jax.random.fold_in(key, c), (num_items, size)), dtype.type)
        logit = jnp.log(v) - jnp.log1p(-v)
        _, table, bits = chunks.of(c)
        drawn = jnp.take_along_axis(logit, table, axis=0) < odds
        side = jnp.where(anchors.is_split, drawn, (bits & SECOND) > 0)
        chosen = (bits & (OPENS | ANCHOR_0 | ANCHOR_1)) == OPENS
        spent = jnp.where(chosen, jax.nn.softplus(jnp.where(side, -odds, odds)), 0)
        share = jnp.where(side, chunks.unit, 0)
        side_of = put(side_of, c, _settled(chunks, c, share) > 0)
        cost = put(cost, c, jnp.sum(spent, axis=0))
        return _place(chunks, c, sides, share), side_of, cost

    nothing = jnp.zeros((num_chunks, num_items, size), bool), jnp.zeros((num_chunks, size), dtype)
    sides, on_side_1, cost = lax.fori_loop(0, chunks.dealt.in_use, final, (shaped, *nothing))
    side_1 = jax.tree.map(lambda x: lax.div(x, chunks.unit), sides.total)
    return side_1, on_side_1, order_free_sum(cost)


def with_sides(present: Counts, places, of_sides: Counts) -> Counts:
    """Counts of all components, two of them replaced."""
    return jax.tree.map(lambda x, new: x.at[..., places].set(new), present, of_sides)


def put_together(of_sides):
    """Counts of the sides with all of them in the first."""
    both = jnp.sum(of_sides, axis=-1)
    return jnp.stack([both, jnp.zeros_like(both)], axis=-1)


def _relabel(anchors: Anchors, z, real, on_side_1):
    """Labels after the move."""
    proposal = jnp.where(anchors.is_split & on_side_1, anchors.k_new, anchors.k_a)
    return jnp.where(real & is_inside(anchors, z), proposal, z).astype(z.dtype)
