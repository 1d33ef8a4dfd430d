"""Data-dependent proposals to split a component into two, or to merge two components.

`propose_sides` makes a proposal, in parallel over records. The move that asks for it computes the
target ratio T, and `Proposal.accepted` accepts or rejects. A split is accepted with probability
min(1, A), and the merge that would undo it with probability min(1, 1 / A):

    A = T c / q
    T = p(split) / p(merged)
    c = [f_s(a) / n_0] [r(b) / n_1] / ([f_m(a) / n] [1 / n])

p is the posterior density of the state with the component split or merged; if a move proposes
parameters too, each p is divided by the density with which these are proposed. q is the probability
of this allocation of the tables to the sides, given the anchors (`Proposal.cost` is its parts). c
is the probability of choosing the anchors of the merge divided by that of choosing the anchors of
the split (`Proposal.log_choice`). f_s(a) and f_m(a) are the probabilities that the component of the
first anchor is chosen, in the split and in the merged state (`anchors.first_probability`), and r(b)
is the probability that the component of the second anchor is then chosen as its partner
(`anchors.partner_probability`). The anchors are drawn uniformly among the n_0 and n_1 items of the
sides in a merge, and both among all n = n_0 + n_1 items in a split. Two factors cancel: the number
of items at an anchor's table, and one half, with which a split or a merge is tried.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from bnp_models.kernels.numerics.counting import group_totals, order_free_sum
from bnp_models.kernels.numerics.platforms import by_platform, map_in_use, on_accelerator, put
from bnp_models.kernels.splits.anchors import (
    Anchors,
    Counts,
    choose_anchors,
    first_probability,
    partner_probability,
)
from bnp_models.kernels.splits.dealing import Dealt, deal_records, in_order
from bnp_models.kernels.splits.members import LabelledRecords, Records, Unit
from bnp_models.kernels.splits.seated_items import Items, SeatedItems
from bnp_models.kernels.variates.levels import Levels
from bnp_models.kernels.variates.rng import Keys, uniform, words

# Rounds that shape a proposal among some of the records: numbers of rounds of two-means and of
# expectation-maximisation, and momentum (share of each step's change that is added to the next).
HARD_ROUNDS = 3
SOFT_ROUNDS = 30
MOMENTUM = 0.9

# If no more than this many records are affected, a CPU uses only these in the rounds.
FEW_RECORDS = 256

# Shares of these records and log odds are multiples of the inverse of this power of two, so that
# float32 adds them up without rounding, in any order.
SHAPING_UNIT = 2**10


class Proposal(NamedTuple):
    """Proposed split or merge: its two sides, and the labels after it."""

    is_split: Bool[Array, ""]
    """Whether a component is split; otherwise two are merged."""
    possible: Bool[Array, ""]
    """Whether such a move exists."""
    log_u: Float[Array, ""]
    """Log of the uniform number that decides about acceptance."""
    stays: Int[Array, ""]
    """Component of side 0, and of both sides if they are merged."""
    other: Int[Array, ""]
    """Component of side 1."""
    items: Int[Array, "R 2"]
    """Items of the sides by row of theta."""
    tables: Int[Array, " 2"]
    """Tables of the sides."""
    labels: Any
    """Labels after the move, in the form that `after` of the members returns."""
    log_choice: Float[Array, ""]
    """log c: see the formula of the module."""
    cost: Float[Array, "chunks size"]
    """Parts of -log q, to be added up: minus the log probability of the sides given the anchors."""

    def accepted(self, log_target: Float[Array, ""]) -> Bool[Array, ""]:
        """Whether the move is accepted, given `log_target` = log T, in the precision of log T."""
        minus_log_q = order_free_sum(self.cost, dtype=log_target.dtype)
        log_split = log_target + (minus_log_q + self.log_choice)
        return self.possible & (self.log_u < jnp.where(self.is_split, log_split, -log_split))


@jax.named_scope("propose_sides")
def propose_sides(
    key: Key[Array, ""],
    members: SeatedItems | LabelledRecords,
    counts: Int[Array, "R K"],
    tables: Int[Array, " K"],
    levels: Levels,
    slot: Int[Array, ""],
) -> Proposal:
    """Propose to split a component into two sides, or to merge two components.

    Parameters
    ----------
    key
        Used once.
    members
        Items at tables, or whole records; for records, read "records" for "tables" below.
    counts, tables
        Items by row of theta and component, and tables of each component.
    levels
        The levels under their prior.
    slot
        Slot without tables, which the second side of a split takes; no split is possible if it has
        tables.

    Notes
    -----
    The proposal follows Jain & Neal (2004), doi:10.1198/1061860043001. The anchors are an item a of
    a component that is chosen uniformly or by size, and then, with probability one half each, an
    item b of the same component (split) or of another component, chosen by how well the two would
    merge (merge). From the anchors, a launch state is computed by rounds of two-means and then of
    expectation-maximisation with momentum among some of the records of the component or pair, and
    one round among all of them. It depends only on their tables and the anchors, so that it is the
    same for the reverse move. A last round makes the final allocation of the tables, chunk after
    chunk: independently within a chunk, given the allocations of earlier chunks and the launch
    state of later ones. The probability of the proposal is the product over tables.
    """
    dtype = levels.shape.dtype
    key_scalars, key_anchors, key_sides = Keys(key, 3)
    u = uniform(words(key_scalars, (4,)), dtype.type)
    present = Counts(counts, tables)

    anchors = choose_anchors(key_anchors, u, members, present, levels, slot)
    dealt = deal_records(anchors, members)
    chunks = _Chunks(dealt, levels, members.unit)
    both = _counts_of_both(anchors, present)

    contrast = _contrast(anchors, chunks, both.items, members)
    whole = jax.tree.map(lambda x: chunks.unit * x, both)
    shaped = _shape(chunks, _launch(chunks, contrast), whole)
    side_1, on_side_1, cost = _allocate(key_sides, anchors, chunks, shaped, whole)

    of_sides = jax.tree.map(lambda x, y: jnp.stack([x - y, y], axis=-1), both, side_1)
    places = jnp.stack([anchors.k_a, anchors.k_new])
    apart = with_sides(present, places, of_sides)
    partner = partner_probability(anchors.k_a, *apart, levels)[anchors.k_new]
    in_0, in_1 = (jnp.sum(side).astype(dtype) for side in of_sides.items.T)
    together = with_sides(present, places, jax.tree.map(put_together, of_sides))
    of_first = [jnp.log(first_probability(x)[anchors.k_a]) for x in (apart, together)]
    # log n^2 / (n_0 n_1). Several items of each record multiply all three numbers alike.
    of_items = 2 * jnp.log(in_0 + in_1) - jnp.log(in_0) - jnp.log(in_1)
    num_records = members.rows.shape[-1]
    return Proposal(
        is_split=anchors.is_split, possible=anchors.possible, log_u=jnp.log(u[3]),
        stays=anchors.k_a, other=anchors.k_new, items=of_sides.items, tables=of_sides.tables,
        labels=members.after(anchors, in_order(dealt, on_side_1, num_records)),
        log_choice=of_items + jnp.log(partner) + of_first[0] - of_first[1], cost=cost,
    )  # fmt: skip


class _Chunks(NamedTuple):
    """Records in chunks, and the levels of the rows of their items."""

    dealt: Dealt
    """The records."""
    levels: Levels
    """The rows, and the prior of the level probabilities."""
    unit: Unit
    """Weight of a whole item or table in integer counts."""

    @property
    def number(self) -> int:
        """Number of chunks, in use or not."""
        return len(self.dealt.entries.rows)

    def of(self, c) -> Items | Records:
        """Members of a chunk."""
        return jax.tree.map(lambda x: x[c], self.dealt.entries)


def _counts_of_both(anchors: Anchors, present: Counts) -> Counts:
    """Items and tables of the component or pair."""
    counts, tables = present
    k_a, k_b, is_split = anchors.k_a, anchors.k_b, anchors.is_split
    items = counts[:, k_a] + jnp.where(is_split, 0, counts[:, k_b])
    items = jnp.where(tables[k_b] > 0, items, 0)
    return Counts(items, tables[k_a] + jnp.where(is_split, 0, tables[k_b]))


def _contrast(anchors: Anchors, chunks: _Chunks, items, members):
    """Log ratio of level probabilities near the second anchor to those near the first."""
    variable, dtype = chunks.levels.variable, chunks.levels.shape.dtype
    share = items.astype(dtype) / jnp.maximum(group_totals(items, variable), 1)

    def anchored(record, table_of_anchor):
        """Log level probabilities halfway between those of an anchor and those of all members."""
        seen = members.at_table(record, table_of_anchor, items.size).astype(dtype)
        mixed = jnp.where(group_totals(seen, variable) > 0, (share + seen) / 2, share)
        return jnp.log(mixed + 1e-3)

    first, second = zip(anchors.records, anchors.tables, strict=True)
    return anchored(*second) - anchored(*first)


def _log_odds(chunks: _Chunks, c, side_1: Counts, whole: Counts):
    """Log odds of side 1 of each item's table of a chunk, given the other tables.

    `side_1` and `whole` have the weighted items of each row and the weighted tables of side 1 and
    of both sides, in units of 1 / unit.
    """
    dtype = chunks.levels.shape.dtype
    sides = jax.tree.map(
        lambda one, both: jnp.stack([one, both - one], axis=-1).astype(dtype) / chunks.unit,
        side_1, whole,
    )  # fmt: skip
    odds = _odds_given(sides, chunks.levels)
    return chunks.of(c).scores(odds.item) + odds.table


def _count(chunks: _Chunks, c, share) -> Counts:
    """Weighted items of each row and weighted tables of a chunk, with those of the anchors.

    `share` is the share on side 1 of the tables to be allocated, in units of 1 / unit.
    """
    members = chunks.of(c)
    return members.add_up(members.settled(share, chunks.unit), chunks.levels.variable)


class _Sides(NamedTuple):
    """Weighted counts of side 1, in units of 1 / unit."""

    of_chunk: Counts
    """Counts of each chunk."""
    total: Counts
    """Sums over the chunks."""


def _place(chunks: _Chunks, c, sides: _Sides, share) -> _Sides:
    """Sides with the shares of one chunk replaced."""
    new = _count(chunks, c, share)
    total = jax.tree.map(lambda x, new, old: x + new - old[c], sides.total, new, sides.of_chunk)
    return _Sides(jax.tree.map(lambda x, new: put(x, c, new), sides.of_chunk, new), total)


class _Odds(NamedTuple):
    """Log odds of side 1: the sum over the items of a table, plus a term for the table."""

    item: Float[Array, " R"]
    """Term of an item of each row."""
    table: Float[Array, ""]
    """Term of a table."""


def _odds_given(sides: Counts, levels: Levels, totals: Float[Array, "R 2"] | None = None) -> _Odds:
    """Log odds given counts of sides 1 and 0, and totals of each row's variable if known."""
    items = levels.count(sides.items)
    if totals is None or levels.layers:
        totals = levels.totals(items)
    log_share = jnp.log((levels.shape[:, None] + items) / (levels.total[:, None] + totals))
    log_theta = levels.log_levels(log_share)
    log_tables = jnp.log(sides.tables)
    return _Odds(log_theta[:, 0] - log_theta[:, 1], log_tables[0] - log_tables[1])


@jax.named_scope("launch")
def _launch(chunks: _Chunks, contrast) -> _Odds:
    """Compute a launch state from some records: two-means, then expectation-maximisation.

    The choice of records depends only on the component or pair. Records are used as a whole,
    independently of their tables.
    """
    shaping, size = chunks.dealt.shaping, chunks.dealt.entries.rows.shape[-1]
    if on_accelerator() or shaping.rows.shape[-1] <= FEW_RECORDS:
        return _launch_from(shaping, chunks.levels, contrast)
    few = jax.tree.map(lambda x: x[..., :FEW_RECORDS], shaping)
    return lax.cond(
        chunks.dealt.in_use * size <= FEW_RECORDS,
        lambda: _launch_from(few, chunks.levels, contrast),
        lambda: _launch_from(shaping, chunks.levels, contrast),
    )


def _launch_from(shaping: Items | Records, levels: Levels, contrast) -> _Odds:
    """Compute a launch state from the records of `shaping`; padding has no effect."""
    dtype = contrast.dtype
    first, second = shaping.anchored
    inside, number, has_tables = shaping.weights
    num_rows = contrast.size
    # Vectors of counts by row, so that counting is a matrix product.
    has_row = jnp.zeros((num_rows, inside.shape[1]), dtype)
    has_row = has_row.at[shaping.rows, jnp.arange(inside.shape[1])].add(inside.astype(dtype))
    parts = [has_row if number is None else has_row * number, has_tables.astype(dtype)[None]]
    if on_accelerator():
        # One more product, but no sums by group in a round.
        parts.append(group_totals(parts[0], levels.variable))
    counted = jnp.concatenate(parts)
    everyone = jnp.sum(counted, axis=1)
    rows = jnp.where(inside, shaping.rows, num_rows)

    def rounded(x):
        return jnp.round(SHAPING_UNIT * x) / SHAPING_UNIT

    def odds_given(share):
        """Log odds, given the shares of side 1 of all records."""
        share = rounded(jnp.where(first, 0, jnp.where(second, 1, share)))
        side_1 = by_platform(_product, _added_up)(counted, share)
        sides = jnp.stack([side_1, everyone - side_1], axis=-1)
        totals = sides[num_rows + 1 :] if on_accelerator() else None
        return _odds_given(Counts(sides[:num_rows], sides[num_rows]), levels, totals)

    def gathered(of_row):
        """Sums over the items of each record: gathers of one item of all records at a time."""
        padded, total = jnp.append(of_row, 0), jnp.zeros((), dtype)
        for row in rows:
            total = total + padded.at[row].get(mode="promise_in_bounds")
        return total

    def of_records(odds):
        scores = by_platform(gathered, partial(_added_up, has_row.T))
        return scores(rounded(odds.item)) + odds.table

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


def _product(x, y):
    """Matrix product with a vector, in full precision."""
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)


def _added_up(x, y):
    """Result of `_product`, by multiplication and summation; a round then needs two launches."""
    return jnp.sum(x * y, axis=-1)


@jax.named_scope("shape")
def _shape(chunks: _Chunks, launched: _Odds, whole: Counts) -> _Sides:
    """Shape the sides of all affected records from the launch state of some of them."""

    def spread(c):
        members = chunks.of(c)
        odds = members.scores(launched.item) + launched.table
        return _count(chunks, c, members.expected(odds, chunks.unit))

    def again(c, sides):
        odds = _log_odds(chunks, c, sides.total, whole)
        return _place(chunks, c, sides, chunks.of(c).expected(odds, chunks.unit))

    if on_accelerator():
        of_chunk = jax.vmap(spread)(jnp.arange(chunks.number))
    else:
        of_chunk = map_in_use(spread, chunks.number, chunks.dealt.in_use)
    sides = _Sides(of_chunk, jax.tree.map(lambda x: jnp.sum(x, axis=0), of_chunk))
    return lax.fori_loop(0, chunks.dealt.in_use, again, sides)


@jax.named_scope("allocate")
def _allocate(key, anchors: Anchors, chunks: _Chunks, shaped: _Sides, whole: Counts):
    """Make the final allocation of every table: drawn in a split, the current one in a merge.

    Returns the counts of side 1, the items on it, and minus the log probability of this allocation
    in terms to be added up.
    """
    rows, variable = chunks.dealt.entries.rows, chunks.levels.variable
    dtype = chunks.levels.shape.dtype

    def final(c, carry):
        sides, side_of, cost = carry
        odds, members = _log_odds(chunks, c, sides.total, whole), chunks.of(c)
        side = members.draw(jax.random.fold_in(key, c), odds, anchors.is_split)
        side_of = put(side_of, c, members.settled(side, 1))
        cost = put(cost, c, members.cost(side, odds))
        return _place(chunks, c, sides, chunks.unit * side), side_of, cost

    shape = jax.eval_shape(lambda: chunks.of(0).scores(jnp.zeros(variable.size, dtype))).shape
    nothing = (
        jnp.zeros((len(rows), *shape), jnp.int32), jnp.zeros((len(rows), rows.shape[-1]), dtype),
    )  # fmt: skip
    sides, on_side_1, cost = lax.fori_loop(0, chunks.dealt.in_use, final, (shaped, *nothing))
    side_1 = jax.tree.map(lambda x: lax.div(x, jnp.full_like(x, chunks.unit)), sides.total)
    return side_1, on_side_1, cost


def with_sides(present: Counts, places, of_sides: Counts) -> Counts:
    """Counts of all components, with two of them replaced."""
    return jax.tree.map(lambda x, new: x.at[..., places].set(new), present, of_sides)


def put_together(of_sides):
    """Counts of the sides with all members in the first one."""
    both = jnp.sum(of_sides, axis=-1)
    return jnp.stack([both, jnp.zeros_like(both)], axis=-1)
