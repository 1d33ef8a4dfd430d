"""Union of conditions as bit masks, simplified as conditions are added."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from bnp_models.zeros.boxes import level_offsets


class Union:
    """The union of conditions, with the operations that the searches share.

    Levels of a variable that no condition tells apart form a level part, a bit of a Python
    integer. A box is such an integer (a *mask*; a free variable has all its bits, its *field*) and
    a union of boxes, here a *family*, a frozenset of masks; the empty family is nowhere impossible.

    Parameters
    ----------
    conditions : (M, J) integer array
        The level that each condition fixes, -1 where it fixes none.
    num_levels : sequence of int, length J
        Number of levels of each variable.

    Attributes
    ----------
    variables : list of int, length V
        The variables that some condition fixes; v counts them.
    fields : list of int, length V
        All bits of each of these variables.
    level_parts : list of lists of int, length V
        The bits of each of these variables.
    levels : dict of int to list of int
        The levels of its variable that a bit stands for.
    full : int
        The mask of all cells.
    root : frozenset of int
        The family of the impossible cells.
    effort : float
        Work done so far. It is counted, not timed, so that the same conditions always compile to
        the same form; a unit takes about ten microseconds.
    """

    def __init__(self, conditions: np.ndarray, num_levels: Sequence[int]):
        self.num_levels = tuple(num_levels)
        self.variables = np.flatnonzero((conditions >= 0).any(axis=0)).tolist()
        self.fields: list[int] = []
        self.level_parts: list[list[int]] = []
        self.levels: dict[int, list[int]] = {}
        rows = [tuple(row) for row in np.unique(conditions, axis=0).tolist()]
        bit_of: dict[tuple[int, int], int] = {}
        for j in self.variables:
            rests: list[set[tuple]] = [set() for _ in range(num_levels[j])]
            for row in rows:
                if row[j] >= 0:
                    rests[row[j]].add(row[:j] + row[j + 1 :])
            groups: dict[frozenset, list[int]] = {}
            for level, rest in enumerate(rests):
                groups.setdefault(frozenset(rest), []).append(level)
            bits = []
            for levels in groups.values():
                bit = 1 << len(self.levels)
                self.levels[bit] = levels
                bits.append(bit)
                bit_of |= {(j, level): bit for level in levels}
            self.level_parts.append(bits)
            self.fields.append(sum(bits))
        self.full = sum(self.fields)
        self.everywhere = frozenset([self.full])
        self.effort = 0.0
        self._support: dict[int | frozenset, int] = {}
        self._splits: dict[tuple[frozenset, int], tuple] = {}
        masks = []
        for row in rows:
            mask = self.full
            for field, j in zip(self.fields, self.variables, strict=True):
                if row[j] >= 0:
                    mask = mask & ~field | bit_of[j, row[j]]
            masks.append(mask)
        self.root = self.simplified(masks)

    def simplified(self, masks: Iterable[int]) -> frozenset:
        """Return masks as a family: merged by `merge_masks`, without those inside another."""
        masks = merge_masks(masks, self.fields)
        if self.full in masks:
            return self.everywhere
        return frozenset(
            mask for mask in masks if not any(mask != m and not mask & ~m for m in masks)
        )

    def support(self, family: frozenset) -> int:
        """Return the variables v that some mask of a family constrains, as bits 1 << v."""
        bits = self._support.get(family)
        if bits is None:
            bits = 0
            for mask in family:
                bits |= self.support_of_mask(mask)
            self._support[family] = bits
        return bits

    def support_of_mask(self, mask: int) -> int:
        """Return the variables v that a mask constrains, as bits 1 << v."""
        bits = self._support.get(mask)
        if bits is None:
            bits = sum(1 << v for v, field in enumerate(self.fields) if mask & field != field)
            self._support[mask] = bits
        return bits

    def split(self, family: frozenset, v: int) -> tuple[tuple[int, frozenset], ...]:
        """Return pairs (level parts of variable v, the family that is left given one of them)."""
        key = (family, v)
        pairs = self._splits.get(key)
        if pairs is None:
            self.effort += 5 + len(family)
            field = self.fields[v]
            alive: dict[tuple, int] = {}
            for bit in self.level_parts[v]:
                rest = tuple(mask | field for mask in family if mask & bit)
                alive[rest] = alive.get(rest, 0) | bit
            children: dict[frozenset, int] = {}
            for rest, bits in alive.items():
                child = self.simplified(rest)
                children[child] = children.get(child, 0) | bits
            pairs = self._splits[key] = tuple((bits, child) for child, bits in children.items())
        return pairs

    def components(self, family: frozenset) -> list[frozenset]:
        """Split a family into smaller ones that share no variable."""
        components: list[tuple[int, list[int]]] = []
        for mask in family:
            support, members = self.support_of_mask(mask), [mask]
            apart = []
            for component in components:
                if component[0] & support:
                    support, members = component[0] | support, component[1] + members
                else:
                    apart.append(component)
            components = [*apart, (support, members)]
        return [frozenset(members) for _, members in sorted(components)]

    def num_levels_of(self, bits: int) -> int:
        """Return how many levels some level parts hold."""
        return sum(len(self.levels[bit]) for bit in single_bits(bits))

    def sets(self, masks: Sequence[int]) -> np.ndarray:
        """Return masks as (B, R) sets of levels, laid out as in `Boxes`."""
        offsets = level_offsets(self.num_levels)
        sets = np.ones((len(masks), offsets[-1]), dtype=bool)
        for row, mask in enumerate(masks):
            for j, bits in zip(self.variables, self.level_parts, strict=True):
                for bit in bits:
                    if not mask & bit:
                        sets[row, [offsets[j] + level for level in self.levels[bit]]] = False
        return sets

    def slices(self, masks: Sequence[int]) -> np.ndarray:
        """Return masks as (C, J) level codes, sets of several levels as several slices."""
        rows: list[tuple[int, ...]] = []
        for mask in masks:
            choices = [[-1]] * len(self.num_levels)
            for field, j in zip(self.fields, self.variables, strict=True):
                if mask & field != field:
                    choices[j] = [x for bit in single_bits(mask & field) for x in self.levels[bit]]
            rows += product(*choices)
        return np.array(sorted(rows), dtype=np.int32).reshape(len(rows), len(self.num_levels))


def single_bits(mask: int) -> Iterator[int]:
    """Yield the bits of a mask, the lowest first."""
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit


def merge_masks(masks: Iterable[int], fields: Sequence[int]) -> set[int]:
    """Merge masks that differ in one field only, field by field, as long as there are any."""
    masks = set(masks)
    before = len(masks) + 1
    while 1 < len(masks) < before:
        before = len(masks)
        for field in fields:
            merged: dict[int, int] = {}
            for mask in masks:
                rest = mask | field
                merged[rest] = merged.get(rest, 0) | mask & field
            if len(merged) < len(masks):
                masks = {rest & ~field | bits for rest, bits in merged.items()}
    return masks


def merge_in_best_order(union: Union, masks: Sequence[int]) -> list[int]:
    """Merge disjoint masks, in that of a few orders of the variables which leaves the fewest."""
    rng = np.random.default_rng(0)
    orders = [union.fields]
    for _ in range(min(16, 20_000 // (1 + len(masks)))):
        orders.append([union.fields[v] for v in rng.permutation(len(union.fields))])
    best = min((merge_masks(masks, order) for order in orders), key=len)
    return sorted(best, reverse=True)
