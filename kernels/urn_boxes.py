"""Boxes under the urn of an HDP mixed membership model: their probability, and records in them.

A record's constrained items are seated at tables, whose dishes come from g_0. A box r admits a set
A_rj of levels of each of its d constrained variables, and the free ones integrate out:

    P(r) = sum over partitions of its variables of w(d, B) prod over blocks b of (|b| - 1)! S_b,
    S_b = sum_k g_0k prod_{j in b} theta_kj(A_rj),     w(d, B) = E[alpha^B / (alpha)_d].

The partitions are listed, those of all boxes in one table, and blocks with the same sets in several
boxes are one *type*. Given the parameters, the records of the impossible region before the n-th
feasible one are independent Poisson counts of the partitions (negative multinomial, gamma-mixed);
only the types of their blocks matter from there on, then the labels of the blocks, then levels.
Blocks are tables: no seating is drawn. Probabilities are linear, not logarithms: what underflows
here is a box that never receives a record.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bnp_models.kernels.assignment import cumulative_sum, search_cumulative
from bnp_models.kernels.atoms import Atoms
from bnp_models.kernels.discrete import MAX_COUNT, poisson
from bnp_models.kernels.logspace import gamma_variate
from bnp_models.kernels.rng import uniform, words

MAX_PARTITIONS = 200_000
"""Partitions of all boxes together beyond which they are not listed."""

# Blocks that receive labels at once.
_BLOCKS_AT_ONCE = 4096

# Partitions in a row of the table in which augmented records are drawn one by one.
_ROW = 128


class TooManyPartitions(ValueError):
    """The boxes constrain so many variables that their partitions cannot be listed."""


class UrnBoxes(eqx.Module):
    """Disjoint boxes, the types of block that their records can have, and their partitions.

    Partitions are sorted by (d, B), d the variables of the box and B the number of blocks.
    """

    atoms: Atoms
    """Levels that no box tells apart, and the distinct sets of them."""
    sets: Float[Array, "S R"]
    """The distinct sets of levels of a variable: 1 where the set has the level."""
    halves: tuple[Int[Array, "H1 h"], Int[Array, "H2 h"]]
    """Sets whose probabilities make up half a block; S where there are fewer."""
    half_of_type: Int[Array, "2 T"]
    """The two halves of each type of block."""
    set_of_type: Int[Array, "2 I"]
    """Pairs of a type and one of its sets, all of them."""
    whole: Int[Array, " D"]
    """The type of each box whose block has all of its variables."""
    blocks: tuple[Int[Array, "P_B B"], ...]
    """Types of the blocks of the partitions, one array for each pair (d, B)."""
    orders: tuple[Float[Array, " P_B"], ...]
    """prod (|b| - 1)! of the partitions."""
    shape: tuple[tuple[int, int], ...] = eqx.field(static=True)
    """The pairs (d, B)."""

    @property
    def num_types(self) -> int:
        """Types of block T."""
        return self.half_of_type.shape[1]

    @property
    def most_variables(self) -> int:
        """The most variables that a box constrains."""
        return max((d for d, _ in self.shape), default=1)

    @classmethod
    def of_boxes(cls, boxes: np.ndarray, num_levels: tuple[int, ...]) -> "UrnBoxes":
        """List types and partitions of boxes given as (D, R) sets of levels.

        Raises
        ------
        TooManyPartitions
            Beyond `MAX_PARTITIONS`.
        """
        atoms = Atoms.of_boxes(boxes, num_levels)
        # Without padding: an atom beyond the last stands for none.
        members = [[a for a in line if a < atoms.variable.size] for line in np.asarray(atoms.sets)]
        of_row, variable = np.asarray(atoms.of_row), np.asarray(atoms.variable)
        rows = [np.isin(of_row, atoms_of_set) for atoms_of_set in members]
        of_box = [
            [(int(variable[members[s][0]]), int(s)) for s in np.flatnonzero(has)]
            for has in np.asarray(atoms.set_of_box).T
        ]
        sizes = [len(own) for own in of_box]
        listed = {}
        if sum(map(_bell, sizes)) > MAX_PARTITIONS:
            raise TooManyPartitions(
                f"boxes of up to {max(sizes)} variables have too many partitions to list"
            )
        types: dict[tuple[int, ...], int] = {}
        found: dict[tuple[int, int], list] = {}
        whole = []
        for own in of_box:
            d = len(own)
            of_mask = np.zeros(2**d, int)
            for mask in range(1, 2**d):
                block = tuple(own[v] for v in range(d) if mask >> v & 1)
                of_mask[mask] = types.setdefault(block, len(types))
            whole.append(of_mask[-1])
            if d not in listed:
                listed[d] = _partitions(d)
            for num_blocks, (masks, orders) in listed[d].items():
                found.setdefault((d, num_blocks), []).append((of_mask[masks], orders))
        shape = tuple(sorted(found))
        # Two halves of the variables, so that a block's product has two factors.
        variables = sorted({j for own in of_box for j, _ in own})
        low = set(variables[: len(variables) // 2])
        halves: tuple[dict, dict] = ({}, {})
        half_of_type = []
        for block in types:
            split = [tuple(s for j, s in block if (j in low) == side) for side in (True, False)]
            half_of_type.append(
                [halves[i].setdefault(part, len(halves[i])) for i, part in enumerate(split)]
            )

        def padded(parts):
            width = max(map(len, parts), default=1)
            table = np.full((len(parts), max(width, 1)), len(rows))
            for line, part in zip(table, parts, strict=True):
                line[: len(part)] = part
            return jnp.asarray(table, jnp.int32)

        pairs = [(t, s) for block, t in types.items() for _, s in block]
        dtype = jnp.result_type(float)
        return cls(
            atoms=atoms,
            sets=jnp.asarray(np.array(rows).reshape(len(rows), sum(num_levels)), dtype),
            halves=(padded(list(halves[0])), padded(list(halves[1]))),
            half_of_type=jnp.asarray(np.array(half_of_type).reshape(-1, 2).T, jnp.int32),
            set_of_type=jnp.asarray(np.array(pairs).reshape(-1, 2).T, jnp.int32),
            whole=jnp.asarray(whole, jnp.int32),
            blocks=tuple(
                jnp.asarray(np.concatenate([masks for masks, _ in found[key]]), jnp.int32)
                for key in shape
            ),
            orders=tuple(
                jnp.asarray(np.concatenate([orders for _, orders in found[key]]), dtype)
                for key in shape
            ),
            shape=shape,
        )


def _bell(d):
    row = [1]
    for _ in range(d):
        row = [row[-1], *row]
        for i in range(1, len(row)):
            row[i] += row[i - 1]
    return row[0]


def _partitions(d):
    """Partitions of d variables by number of blocks: masks (P, B) and prod (size - 1)! (P,)."""
    by_blocks = {0: np.zeros((1, 0), np.int64)}
    for v in range(d):
        grown: dict[int, list] = {}
        for num_blocks, masks in by_blocks.items():
            for b in range(num_blocks):
                joined = masks.copy()
                joined[:, b] |= 1 << v
                grown.setdefault(num_blocks, []).append(joined)
            alone = np.full((len(masks), 1), 1 << v)
            grown.setdefault(num_blocks + 1, []).append(np.concatenate([masks, alone], axis=1))
        by_blocks = {b: np.concatenate(parts) for b, parts in grown.items()}
    size = np.array([bin(mask).count("1") for mask in range(2**d)])
    factorial = np.cumprod(np.maximum(np.arange(d + 1), 1)).astype(float)
    return {
        b: (masks, np.prod(factorial[size[masks] - 1], axis=1)) for b, masks in by_blocks.items()
    }


def block_products(
    theta: Float[Array, "R K"], g0: Float[Array, " K"], boxes: UrnBoxes
) -> Float[Array, "T K"]:
    """g_0k prod_{j in b} theta_kj(A_j) of every type b of block; summed over k it is S_b."""
    of_set = jnp.matmul(boxes.sets, theta, precision=lax.Precision.HIGHEST)
    low, high = (
        jnp.prod(of_set.at[half].get(mode="fill", fill_value=1), axis=1) for half in boxes.halves
    )
    return low[boxes.half_of_type[0]] * (high * g0)[boxes.half_of_type[1]]


def partition_totals(sums: Float[Array, " T"], boxes: UrnBoxes) -> Float[Array, " Q"]:
    """For each pair (d, B) of `boxes.shape`, the sum over partitions of prod (|b| - 1)! S_b."""
    return jnp.stack([jnp.sum(values) for values in _partition_values(sums, boxes)])


def _partition_values(sums, boxes):
    """prod (|b| - 1)! S_b of every partition, a list as `boxes.blocks`."""
    return [
        jnp.prod(sums[types], axis=1) * orders
        for types, orders in zip(boxes.blocks, boxes.orders, strict=True)
    ]


def weights_by_size(log_weights: Float[Array, " D"], boxes: UrnBoxes) -> Float[Array, " Q"]:
    """w(d, B) for the pairs (d, B) of `boxes.shape`, from log w(D, B), B = 1..D, of the largest d.

    The urn of d - 1 items is that of d with the last one left out: w(d - 1, B) = w(d, B + 1) +
    (d - 1) w(d, B).
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


def count_blocks(of_partition, boxes: UrnBoxes) -> Int[Array, " T"] | Float[Array, " T"]:
    """Blocks of each type, given the records of each partition (a list as `boxes.blocks`)."""
    total = jnp.zeros(boxes.num_types, of_partition[0].dtype)
    for types, count in zip(boxes.blocks, of_partition, strict=True):
        total = total.at[types].add(count[:, None], mode="promise_in_bounds")
    return total


def count_sets(
    of_type: Int[Array, "T K"] | Float[Array, "T K"], boxes: UrnBoxes
) -> Int[Array, "S K"] | Float[Array, "S K"]:
    """Items by set and component, given the blocks by type and component."""
    types, sets = boxes.set_of_type
    empty = jnp.zeros((boxes.sets.shape[0], of_type.shape[1]), of_type.dtype)
    return empty.at[sets].add(of_type[types], mode="promise_in_bounds")


def draw_blocks(
    key: Key[Array, ""],
    sums: Float[Array, " T"],
    weights: Float[Array, " Q"],
    feasible: Float[Array, ""],
    num_records: Float[Array, ""],
    boxes: UrnBoxes,
    one_by_one: bool,
) -> tuple[Int[Array, " T"], Int[Array, ""]]:
    """Blocks by type of the records of the boxes that come before the n-th feasible one.

    Parameters
    ----------
    key
        Used once.
    sums
        S_b of every type of block.
    weights
        From `weights_by_size`.
    feasible
        P(F), the probability of no box.
    num_records
        n.
    one_by_one
        Draw the partitions of the records one by one, which is faster below about 10,000 of them,
        or Poisson counts of all partitions.

    Returns
    -------
    blocks, records
        Blocks by type, and records n_0; n_0 is -1, and there are no blocks, where they could be
        beyond `kernels.discrete.MAX_COUNT`.

    Notes
    -----
    Gamma-mixed Poissons: g ~ Ga(n, P(F)), then Poisson(g p) for every partition of probability p.
    """
    key_gamma, key_count, key_row = jax.random.split(key, 3)
    g = gamma_variate(key_gamma, num_records, feasible)
    values = _partition_values(sums, boxes)
    rates = jnp.concatenate([v * w for v, w in zip(values, weights, strict=True)]) * g
    by_row = jnp.pad(rates, (0, -rates.size % _ROW)).reshape(-1, _ROW)
    count = poisson(key_count, jnp.sum(by_row, axis=1) if one_by_one else rates)
    most = boxes.most_variables
    too_many = jnp.any(count < 0) | (jnp.sum(count.astype(sums.dtype)) > MAX_COUNT // most)
    count = jnp.where(too_many, 0, count)
    if one_by_one:
        count = draw_block_labels(key_row, count, by_row).reshape(-1)[: rates.size]
    bounds = np.cumsum([0, *(len(types) for types in boxes.blocks)])
    of_partition = [count[a:b] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    return count_blocks(of_partition, boxes), jnp.where(too_many, -1, jnp.sum(count))


def expected_blocks(
    sums: Float[Array, " T"], weights: Float[Array, " Q"], boxes: UrnBoxes
) -> tuple[Float[Array, " T"], Float[Array, ""]]:
    """Expected blocks by type and records, `weights` from `weights_by_size` times n / P(F)."""
    values = _partition_values(sums, boxes)
    rates = [v * w for v, w in zip(values, weights, strict=True)]
    return count_blocks(rates, boxes), sum(jnp.sum(rate) for rate in rates)


def draw_block_labels(
    key: Key[Array, ""], blocks: Int[Array, " T"], products: Float[Array, "T K"]
) -> Int[Array, "T K"]:
    """Components of blocks: those of a type are multinomial given `block_products`.

    Every block is drawn by inverse CDF, a fixed number at a time: most types have few blocks, and
    a block costs less than the binomial variates of a split among the components would.
    """
    num_types, num_slots = products.shape
    cumulative = cumulative_sum(products)
    ends = jnp.cumsum(blocks)
    total = ends[-1]

    def draw(carry):
        step, counts = carry
        index = step * _BLOCKS_AT_ONCE + jnp.arange(_BLOCKS_AT_ONCE)
        starts = jnp.zeros(_BLOCKS_AT_ONCE + 1, jnp.int32)
        # Types by counting those that have ended: a histogram, summed up.
        place = jnp.clip(ends - step * _BLOCKS_AT_ONCE, 0, _BLOCKS_AT_ONCE)
        kind = jnp.cumsum(starts.at[place].add(1, mode="promise_in_bounds"))[:-1]
        kind = jnp.minimum(kind, num_types - 1)
        u = uniform(words(jax.random.fold_in(key, step), index.shape), products.dtype.type)
        label, _ = search_cumulative(cumulative, kind, u)
        counts = counts.at[kind * num_slots + label].add(
            (index < total).astype(jnp.int32), mode="promise_in_bounds"
        )
        return step + 1, counts

    empty = jnp.zeros(num_types * num_slots, jnp.int32)
    carry = (jnp.int32(0), empty)
    counts = lax.while_loop(lambda carry: carry[0] * _BLOCKS_AT_ONCE < total, draw, carry)[1]
    return counts.reshape(num_types, num_slots)
