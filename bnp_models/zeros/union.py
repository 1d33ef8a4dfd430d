"""Union of conditions as bit masks, simplified as conditions are added."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from bnp_models.zeros.boxes import level_offsets


class Union:
    """The union of conditions, with the operations that the searches share.

    Levels of a variable that no condition tells apart form an atom, a bit of a Python integer. A
    box is such an integer (a *mask*; a free variable has all its bits) and a union of boxes, here
    a *family*, a frozenset of masks; the empty family is nowhere impossible.
    """

    def __init__(self, conditions: np.ndarray, num_levels: Sequence[int]):
        self.num_levels = tuple(num_levels)
        self.variables = np.flatnonzero((conditions >= 0).any(axis=0)).tolist()
        self.fields: list[int] = []
        self.atoms: list[list[int]] = []
        self.levels: dict[int, list[int]] = {}
        rows = [tuple(row) for row in np.unique(conditions, axis=0).tolist()]
        bit_of = {}
        for j in self.variables:
            rests = [set() for _ in range(num_levels[j])]
            for row in rows:
                if row[j] >= 0:
                    rests[row[j]].add(row[:j] + row[j + 1 :])
            groups: dict[frozenset, list[int]] = {}
            for level, rest in enumerate(rests):
                groups.setdefault(frozenset(rest), []).append(level)
            atoms = []
            for levels in groups.values():
                bit = 1 << len(self.levels)
                self.levels[bit] = levels
                atoms.append(bit)
                bit_of |= {(j, level): bit for level in levels}
            self.atoms.append(atoms)
            self.fields.append(sum(atoms))
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
        """Merge masks that differ in one variable only and drop those inside another."""
        masks = join_boxes(masks, self.fields)
        if self.full in masks:
            return self.everywhere
        return frozenset(
            mask for mask in masks if not any(mask != m and not mask & ~m for m in masks)
        )

    def support(self, family: frozenset) -> int:
        """The variables that masks of a family constrain, as bits."""
        bits = self._support.get(family)
        if bits is None:
            bits = 0
            for mask in family:
                bits |= self.support_of_mask(mask)
            self._support[family] = bits
        return bits

    def support_of_mask(self, mask: int) -> int:
        bits = self._support.get(mask)
        if bits is None:
            bits = sum(1 << v for v, field in enumerate(self.fields) if mask & field != field)
            self._support[mask] = bits
        return bits

    def split(self, family: frozenset, v: int) -> tuple[tuple[int, frozenset], ...]:
        """What is left of a family given each level of variable v: pairs (atoms, family)."""
        key = (family, v)
        pairs = self._splits.get(key)
        if pairs is None:
            self.effort += 5 + len(family)
            field = self.fields[v]
            alive: dict[tuple, int] = {}
            for atom in self.atoms[v]:
                rest = tuple(mask | field for mask in family if mask & atom)
                alive[rest] = alive.get(rest, 0) | atom
            children: dict[frozenset, int] = {}
            for rest, atoms in alive.items():
                child = self.simplified(rest)
                children[child] = children.get(child, 0) | atoms
            pairs = self._splits[key] = tuple((a, child) for child, a in children.items())
        return pairs

    def components(self, family: frozenset) -> list[frozenset]:
        """Split a family into parts that share no variable."""
        parts: list[tuple[int, list[int]]] = []
        for mask in family:
            support, members = self.support_of_mask(mask), [mask]
            apart = []
            for part in parts:
                if part[0] & support:
                    support, members = part[0] | support, part[1] + members
                else:
                    apart.append(part)
            parts = [*apart, (support, members)]
        return [frozenset(members) for _, members in sorted(parts)]

    def num_levels_of(self, atoms: int) -> int:
        return sum(len(self.levels[bit]) for bit in bit_mask(atoms))

    def sets(self, masks: Sequence[int]) -> np.ndarray:
        """Return masks as (B, R) sets of levels."""
        offsets = level_offsets(self.num_levels)
        sets = np.ones((len(masks), offsets[-1]), dtype=bool)
        for row, mask in enumerate(masks):
            for j, atoms in zip(self.variables, self.atoms, strict=True):
                for atom in atoms:
                    if not mask & atom:
                        sets[row, [offsets[j] + level for level in self.levels[atom]]] = False
        return sets

    def slices(self, masks: Sequence[int]) -> np.ndarray:
        """Return masks as (C, J) level codes, sets of several levels as several slices."""
        free = [-1] * len(self.num_levels)
        rows = []
        for mask in masks:
            choices = []
            for field, j in zip(self.fields, self.variables, strict=True):
                if mask & field != field:
                    levels = [x for bit in bit_mask(mask & field) for x in self.levels[bit]]
                    choices.append([(j, level) for level in sorted(levels)])
            for choice in product(*choices):
                row = free.copy()
                for j, level in choice:
                    row[j] = level
                rows.append(row)
        return np.array(sorted(rows), dtype=np.int32).reshape(len(rows), len(free))


def bit_mask(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit


def join_boxes(masks: Iterable[int], fields: Sequence[int]) -> set[int]:
    """Merge masks that differ in one field only, as long as there are any."""
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


def merge_boxes(union: Union, masks: Sequence[int]) -> list[int]:
    """Merge disjoint boxes, trying a few orders of the variables."""
    rng = np.random.default_rng(0)
    orders = [union.fields]
    for _ in range(min(16, 20_000 // (1 + len(masks)))):
        orders.append([union.fields[v] for v in rng.permutation(len(union.fields))])
    best = min((join_boxes(masks, order) for order in orders), key=len)
    return sorted(best, reverse=True)
