"""Boxes under the urn of an HDP mixed membership model: their probability, and records in them.

The items of a record are seated at tables, whose dishes come from g_0. A box r admits a set A_rj of
levels of each of its d constrained variables; the other variables are integrated out:

    P(r) = sum over partitions of its variables of w(d, B) prod over blocks b of (|b| - 1)! S_b,
    S_b = sum_k g_0k prod_{j in b} theta_kj(A_rj),     w(d, B) = E[alpha^B / (alpha)_d].

The partitions of all boxes are listed together. Blocks with the same sets in several boxes are one
*type*. Given the parameters, the numbers of records of the impossible region before the n-th
feasible record are independent Poisson counts of the partitions, given a gamma variate (together
they are negative multinomial); counts of partitions with one block are drawn by component. The
partitions are then counted as blocks by type. Next the labels of the blocks are drawn, and last the
levels.

Blocks are tables, so that no seating is drawn. Probabilities are not stored as logarithms: if the
probability of a box underflows, the box would never get a record.
"""

import operator
from functools import reduce
from itertools import accumulate

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.boxes.level_parts import LevelParts
from bnp_models.kernels.mixed_membership.urn_partitions import (
    halve_types,
    invert,
    list_partitions,
    padded,
    require_listable,
    sets_of_boxes,
    side_by_side,
)
from bnp_models.kernels.numerics.counting import sum_by_group
from bnp_models.kernels.numerics.platforms import in_double, on_accelerator
from bnp_models.kernels.variates.categorical import cumulative_sum, search_cumulative
from bnp_models.kernels.variates.discrete import MAX_COUNT, poisson, split_counts
from bnp_models.kernels.variates.gamma import gamma_variate
from bnp_models.kernels.variates.rng import Keys, uniform, words

# Number of blocks whose labels are drawn at once.
_BLOCKS_AT_ONCE = 4096

# Blocks of some types are drawn as counts by component instead: at most this number of types, each
# with more blocks than the second number, and only if these types together have more blocks than
# the third number.
_COUNTED_TYPES = 256
_COUNTED_BLOCKS = 256
_COUNTED_TOGETHER = 2**16


class UrnBoxes(eqx.Module):
    """Disjoint boxes, the types of blocks that their records can have, and their partitions.

    Partitions are sorted by (d, B), with d the number of variables of the box and B the number of
    blocks; those with few blocks come first. They are stored in two arrays, each only as wide as
    its partitions need.
    """

    parts: LevelParts
    """Groups of levels that no box distinguishes, and the distinct sets of them."""
    sets: Float[Array, "S R"]
    """Distinct sets of levels of a variable: 1 if the set has the level."""
    halves: tuple[Int[Array, "H1 h"], Int[Array, "H2 h"]]
    """Sets whose probabilities are multiplied for half a block, padded with S."""
    half_of_type: Int[Array, "2 T"]
    """Halves of each type of block."""
    set_of_type: Int[Array, "2 I"]
    """All pairs of a type and one of its sets."""
    whole: Int[Array, " D"]
    """Type of the block that has all variables of a box, for each box."""
    blocks: tuple[Int[Array, "W P1"], Int[Array, "V P2"]]
    """Types of the blocks of partitions with few and with many blocks, padded with T."""
    orders: Float[Array, " P"]
    """prod (|b| - 1)! of the partitions."""
    having: Int[Array, "m M"]
    """Partitions that have a block of a type, in several columns, padded with P."""
    type_of_column: Int[Array, " M"]
    """Type of each column of `having`."""
    shape: tuple[tuple[int, int], ...] = eqx.field(static=True)
    """Pairs (d, B)."""
    partitions: tuple[int, ...] = eqx.field(static=True)
    """Number of partitions of each pair."""

    @property
    def num_types(self) -> int:
        """Number T of types of blocks."""
        return self.half_of_type.shape[1]

    @property
    def alone(self) -> np.ndarray:
        """Partitions of one block."""
        num_blocks = np.repeat([blocks for _, blocks in self.shape], self.partitions)
        return np.flatnonzero(num_blocks == 1)

    @property
    def most_variables(self) -> int:
        """Largest number of variables that a box constrains."""
        return max((d for d, _ in self.shape), default=1)

    @classmethod
    def of_boxes(cls, boxes: np.ndarray, num_levels: tuple[int, ...]) -> "UrnBoxes":
        """List types and partitions of boxes given as (D, R) sets of levels.

        Raises
        ------
        TooManyPartitions
            If there are more than `MAX_PARTITIONS`.
        """
        require_listable(boxes, num_levels)
        parts = LevelParts.of_boxes(boxes, num_levels)
        set_has_row, sets_of_box = sets_of_boxes(parts)
        types, whole, listed, number_few = list_partitions(sets_of_box)
        halves, half_of_type = halve_types(types)
        of_pairs = [of_pair for of_pair, _ in listed.values()]
        by_number = [
            side_by_side(some, len(types))
            for some in (of_pairs[:number_few], of_pairs[number_few:])
        ]
        type_of_column, having = invert(by_number, len(types))
        set_of_type = [(t, s) for block, t in types.items() for _, s in block]
        dtype = jnp.result_type(float)
        low, high = (padded(list(half), len(set_has_row)) for half in halves)
        few_blocks, many_blocks = (jnp.asarray(types_of, jnp.int32) for types_of in by_number)
        orders = [order for _, order in listed.values()]
        return cls(
            parts=parts,
            sets=jnp.asarray(set_has_row, dtype),
            halves=(jnp.asarray(low, jnp.int32), jnp.asarray(high, jnp.int32)),
            half_of_type=jnp.asarray(np.array(half_of_type).reshape(-1, 2).T, jnp.int32),
            set_of_type=jnp.asarray(np.array(set_of_type).reshape(-1, 2).T, jnp.int32),
            whole=jnp.asarray(whole, jnp.int32),
            blocks=(few_blocks, many_blocks),
            having=jnp.asarray(having.T, jnp.int32),
            type_of_column=jnp.asarray(type_of_column, jnp.int32),
            orders=jnp.asarray(np.concatenate([np.zeros(0), *orders]), dtype),
            partitions=tuple(map(len, orders)),
            shape=tuple(listed),
        )


@jax.named_scope("block_products")
def block_products(
    theta: Float[Array, "R K"], g0: Float[Array, " K"], boxes: UrnBoxes
) -> Float[Array, "T K"]:
    """Terms g_0k prod_{j in b} theta_kj(A_j) of S_b, for every type b of block."""
    low, high = _half_products(theta, boxes)
    return low[boxes.half_of_type[0]] * (high * g0)[boxes.half_of_type[1]]


@jax.named_scope("block_sums")
def block_sums(
    theta: Float[Array, "R K"], g0: Float[Array, " K"], boxes: UrnBoxes
) -> Float[Array, " T"]:
    """S_b of every type b of block: `block_products` summed over the components."""
    low, high = _half_products(theta, boxes)
    # All pairs of halves: a matrix product costs less than gathers for the pairs that are needed.
    pairs = _matmul(low, (high * g0).T)
    return pairs[boxes.half_of_type[0], boxes.half_of_type[1]]


def _matmul(a, b):
    """Matrix product; for doubles a sum, which programs in single precision can batch too."""
    if b.dtype == jnp.float64:
        return jnp.sum(a[:, :, None] * b, axis=1)
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _half_products(theta, boxes):
    """Products over the sets of each half of a block, by component."""
    of_set = _matmul(boxes.sets, theta)
    of_set = jnp.concatenate([of_set, jnp.ones_like(of_set[:1])])
    return [_product(of_set, half.T) for half in boxes.halves]


@jax.named_scope("partition_totals")
def partition_totals(sums: Float[Array, " T"], boxes: UrnBoxes) -> Float[Array, " Q"]:
    """Sum over partitions of prod (|b| - 1)! S_b, for each pair (d, B) of `boxes.shape`."""
    return _totals(partition_values(sums, boxes), boxes)


def _totals(values, boxes):
    """Sums of the values of partitions by pair (d, B)."""
    if on_accelerator():
        number = len(boxes.partitions)
        return sum_by_group(values, np.repeat(np.arange(number), boxes.partitions), number)
    ends = np.cumsum(boxes.partitions)
    return jnp.stack(
        [jnp.sum(values[b - n : b]) for b, n in zip(ends, boxes.partitions, strict=True)]
    )


@jax.named_scope("partition_values")
def partition_values(sums: Float[Array, " T"], boxes: UrnBoxes) -> Float[Array, " P"]:
    """Product over the blocks of (|b| - 1)! S_b, for every partition."""
    padded = jnp.append(sums, 1)
    return jnp.concatenate([_product(padded, types) for types in boxes.blocks]) * boxes.orders


def _product(rows, indices):
    """Products of the rows at indices, along the first axis of these."""

    def product(rows):
        # `prod` is not used, because its gradient takes long to compile.
        return reduce(operator.mul, (rows[index] for index in indices))

    def backward(rows, cotangent):
        """Products of all rows but one, added up in one launch."""
        factors = list(rows[indices])
        left = accumulate(factors[:-1], operator.mul, initial=cotangent)
        right = reversed([*accumulate(factors[:0:-1], operator.mul, initial=1.0)])
        terms = jnp.concatenate([x * y for x, y in zip(left, right, strict=True)])
        return (sum_by_group(terms, indices.reshape(-1), len(rows)),)

    if not on_accelerator():
        return product(rows)
    in_one = jax.custom_vjp(product)
    in_one.defvjp(lambda rows: (product(rows), rows), backward)
    return in_one(rows)


@jax.named_scope("differentiable_probability")
def differentiable_probability(
    sums: Float[Array, " T"], weights: Float[Array, " Q"], boxes: UrnBoxes
) -> Float[Array, ""]:
    """Probability of the region, with a gradient that takes only a few times as long.

    The derivative with respect to S_b is the sum over the partitions with b, divided by S_b; it is
    zero if S_b underflows.
    """

    @jax.custom_vjp
    def total(sums, weights):
        return forward(sums, weights)[0]

    def forward(sums, weights):
        values = partition_values(sums, boxes)
        rates = values * of_partitions(weights, boxes)
        return jnp.sum(rates), (sums, values, rates)

    def backward(residuals, cotangent):
        sums, values, rates = residuals
        of_type = jnp.where(sums > 0, count_blocks(rates, boxes) / jnp.where(sums > 0, sums, 1), 0)
        return cotangent * of_type, cotangent * _totals(values, boxes)

    total.defvjp(forward, backward)
    return total(sums, weights)


def of_partitions(weights: Float[Array, " Q"], boxes: UrnBoxes) -> Float[Array, " P"]:
    """Weight of each partition, from `weights_by_size`."""
    parts = [jnp.broadcast_to(w, n) for w, n in zip(weights, boxes.partitions, strict=True)]
    return jnp.concatenate(parts)


@jax.named_scope("weights_by_size")
def weights_by_size(log_weights: Float[Array, " D"], boxes: UrnBoxes) -> Float[Array, " Q"]:
    """Weights w(d, B) for the pairs of `boxes.shape`, from log w(D, B), B = 1..D, of the largest d.

    The urn of d - 1 items is that of d items without the last one: w(d - 1, B) = w(d, B + 1) + (d -
    1) w(d, B).
    """
    by_size = {}
    for d in range(boxes.most_variables, 0, -1):
        by_size[d] = log_weights
        opened = log_weights[1:]
        joined = jnp.log(jnp.asarray(max(d - 1, 1), log_weights.dtype)) + log_weights[:-1]
        log_weights = jnp.logaddexp(opened, joined)
    return jnp.stack([jnp.exp(by_size[d][b - 1]) for d, b in boxes.shape])


def probability(totals: Float[Array, " Q"], weights: Float[Array, " Q"]) -> Float[Array, ""]:
    """Probability of the region, from `partition_totals` and `weights_by_size`."""
    return jnp.sum(totals * weights)


@jax.named_scope("log_growth")
def log_growth(
    old: tuple[Float[Array, "R K"], Float[Array, " K"]],
    new: tuple[Float[Array, "R K"], Float[Array, " K"]],
    weights: Float[Array, " Q"],
    boxes: UrnBoxes,
) -> Float[Array, ""]:
    """Log ratio of the region's probability under new theta and g_0 to that under old ones.

    It is computed in double precision, because it is multiplied by the number n of records.
    """

    def ratio(*both):
        p_old, p_new = (
            probability(partition_totals(block_sums(*x, boxes), boxes), weights) for x in both
        )
        return jnp.log(p_new / p_old)

    return in_double(ratio, old, new)


@jax.named_scope("count_blocks")
def count_blocks(
    of_partition: Int[Array, " P"] | Float[Array, " P"], boxes: UrnBoxes
) -> Int[Array, " T"] | Float[Array, " T"]:
    """Blocks of each type, given the records of each partition."""
    # Gathers are used, because scattering from partitions to blocks is far slower on a CPU.
    padded = jnp.append(of_partition, 0)
    first, *others = (padded.at[index].get(mode="promise_in_bounds") for index in boxes.having)
    by_row = sum(others, start=first)
    return sum_by_group(by_row, boxes.type_of_column, boxes.num_types)


@jax.named_scope("count_sets")
def count_sets(
    of_type: Int[Array, "T K"] | Float[Array, "T K"], boxes: UrnBoxes
) -> Int[Array, "S K"] | Float[Array, "S K"]:
    """Items by set and component, given the blocks by type and component."""
    types, sets = boxes.set_of_type
    return sum_by_group(of_type[types], sets, len(boxes.sets))


@jax.named_scope("draw_blocks")
def draw_blocks(
    key: Key[Array, ""],
    products: Float[Array, "T K"],
    weights: Float[Array, " Q"],
    feasible: Float[Array, ""],
    num_records: Float[Array, ""],
    boxes: UrnBoxes,
) -> tuple[Int[Array, "T K"], Int[Array, ""]]:
    """Draw the blocks of the boxes' records that come before the n-th feasible one.

    Parameters
    ----------
    key
        Used once.
    products
        Result of `block_products`.
    weights
        Result of `weights_by_size`.
    feasible
        P(F), the probability that a record is in no box.
    num_records
        Number n of records.

    Returns
    -------
    blocks, records
        Blocks by type and component, and number n_0 of records. n_0 is -1, and there are no blocks,
        if counts could exceed `kernels.variates.discrete.MAX_COUNT`.

    Notes
    -----
    The counts are gamma mixtures of Poisson variates: g ~ Ga(n, P(F)), then Poisson(g p) for every
    partition of probability p. For partitions with one block, which nearly all records have if
    concentrations are small, there is a Poisson variate for every component.
    """
    key_gamma, key_count, key_label = Keys(key, 3)
    g = gamma_variate(key_gamma, num_records, feasible)
    rate = of_partitions(weights, boxes) * g
    kinds = boxes.blocks[0][0, boxes.alone]
    of_one_block = products[kinds] * (boxes.orders * rate)[boxes.alone][:, None]
    rates = partition_values(jnp.sum(products, axis=1), boxes) * rate
    rates = jnp.append(rates.at[boxes.alone].set(0), of_one_block)
    count = poisson(key_count, rates)
    most = boxes.most_variables
    too_many = jnp.any(count < 0) | (jnp.sum(count.astype(rates.dtype)) > MAX_COUNT // most)
    count = jnp.where(too_many, 0, count)
    of_several, of_one = jnp.split(count, [boxes.orders.size])
    labelled = _draw_labels(key_label, count_blocks(of_several, boxes), products)
    labelled = labelled.at[kinds].add(of_one.reshape(of_one_block.shape))
    return labelled, jnp.where(too_many, -1, jnp.sum(count))


@jax.named_scope("draw_labels")
def _draw_labels(
    key: Key[Array, ""], blocks: Int[Array, " T"], products: Float[Array, "T K"]
) -> Int[Array, "T K"]:
    """Draw the components of blocks: those of a type are multinomial given `block_products`.

    Most types have few blocks. Each of these is drawn by inverse CDF, a fixed number at a time. If
    a few types have very many blocks, their counts by component are drawn as binomial variates.
    """
    num_types, num_slots = products.shape
    key_counted, key = Keys(key)
    many, kinds = lax.top_k(blocks, min(_COUNTED_TYPES, num_types))
    many = jnp.where(many > _COUNTED_BLOCKS, many, 0)
    many = jnp.where(jnp.sum(many) > _COUNTED_TOGETHER, many, 0)
    blocks = blocks.at[kinds].add(-many)
    # The most probable components come first, so that soon no block is left.
    places = kinds[:, None], jnp.argsort(-jnp.sum(products, axis=0))
    counted = jnp.zeros((num_types, num_slots), jnp.int32)
    counted = counted.at[places].set(split_counts(key_counted, many, products[places]))

    cumulative = cumulative_sum(products)
    ends = jnp.cumsum(blocks)
    total = ends[-1]

    def draw(carry):
        step, counts = carry
        index = step * _BLOCKS_AT_ONCE + jnp.arange(_BLOCKS_AT_ONCE)
        starts = jnp.zeros(_BLOCKS_AT_ONCE + 1, jnp.int32)
        # The type of each block is the number of types that ended before it: a cumulative
        # histogram.
        place = jnp.clip(ends - step * _BLOCKS_AT_ONCE, 0, _BLOCKS_AT_ONCE)
        kind = jnp.cumsum(starts.at[place].add(1, mode="promise_in_bounds"))[:-1]
        kind = jnp.minimum(kind, num_types - 1)
        u = uniform(words(jax.random.fold_in(key, step), index.shape), products.dtype.type)
        label, _ = search_cumulative(cumulative, kind, u)
        counts = counts.at[kind * num_slots + label].add(
            (index < total).astype(jnp.int32), mode="promise_in_bounds"
        )
        return step + 1, counts

    carry = (jnp.int32(0), counted.reshape(-1))
    counts = lax.while_loop(lambda carry: carry[0] * _BLOCKS_AT_ONCE < total, draw, carry)[1]
    return counts.reshape(num_types, num_slots)
