"""Regions of a contingency table as disjoint boxes and as decision diagrams.

A union of slices that may overlap is compiled into few disjoint products of sets of levels
(:class:`Boxes`) and into a reduced ordered decision diagram (:class:`Diagram`), which lookup tables
walk (:class:`Walk`). The full table is never enumerated, so its number of cells may be of any size.

References
----------
D. Manrique-Vallier, J. P. Reiter (2014), Bayesian estimation of discrete multivariate latent
structure models with structural zeros, doi:10.1080/10618600.2013.844700: disjoint slices.
R. E. Bryant (1986), Graph-based algorithms for Boolean function manipulation,
doi:10.1109/TC.1986.1676819: reduced ordered decision diagrams.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from bnp_models.microdata import MicrodataError

FEASIBLE, IMPOSSIBLE = 0, 1  # the terminals of a diagram

# Effort is counted, not timed, so that the same conditions always compile to the same form. A unit
# takes about ten microseconds.
_FIRST_EFFORT = 1_000_000
_ORDER_EFFORT = 50_000
_BOX_EFFORT = 50_000
_REGROUP_EFFORT = 100_000
_REGROUP_TRIALS = 300
_REGROUP_MAX = 1000
_MAX_BOXES = 200_000
_WALK_ENTRIES = 1 << 18


@dataclass(frozen=True, eq=False)
class Boxes:
    """Disjoint boxes of a contingency table, each a product of sets of levels.

    Parameters
    ----------
    sets : (B, R) bool array
        Which levels each box admits, R the sum of the numbers of levels; those of variable j
        start at the sum of the numbers of levels before it.
    num_levels : tuple of int, length J
    """

    sets: np.ndarray
    num_levels: tuple[int, ...]

    def __len__(self):
        return len(self.sets)

    @classmethod
    def from_codes(cls, codes: np.ndarray, num_levels: Sequence[int]) -> "Boxes":
        """Return slices as boxes.

        Parameters
        ----------
        codes : (C, J) integer array
            The fixed level of each coordinate, -1 where it is free.
        num_levels : sequence of int, length J
        """
        codes = np.asarray(codes)
        columns = [
            (codes[:, j, None] < 0) | (codes[:, j, None] == np.arange(levels))
            for j, levels in enumerate(num_levels)
        ]
        return cls(np.concatenate(columns, axis=1), tuple(num_levels))

    @property
    def by_variable(self) -> tuple[np.ndarray, ...]:
        """The (B, L_j) sets of each variable."""
        return tuple(np.split(self.sets, np.cumsum(self.num_levels)[:-1], axis=1))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of cells of each box, exact."""
        counts = np.stack([sets.sum(axis=1) for sets in self.by_variable], axis=1)
        return tuple(math.prod(row) for row in counts.tolist())

    @property
    def num_cells(self) -> int:
        """Number of cells of all boxes together, exact; cells in two boxes count twice."""
        return sum(self.sizes)

    def first_meeting(self, other: "Boxes | None" = None) -> tuple[int, int] | None:
        """Return the first pair of boxes that share a cell, or None.

        Parameters
        ----------
        other : Boxes, optional
            Compare with these; by default, the boxes with one another.
        """
        others = self if other is None else other
        for start in range(0, len(self), 256):
            meet = np.ones((len(self.sets[start : start + 256]), len(others)), dtype=bool)
            for mine, theirs in zip(self.by_variable, others.by_variable, strict=True):
                # Products of 0 and 1 in float32 are BLAS; a positive sum cannot round to zero.
                block = mine[start : start + 256].astype(np.float32)
                meet &= block @ theirs.T.astype(np.float32) > 0
            if other is None:
                meet &= np.arange(len(self)) > start + np.arange(len(meet))[:, None]
            if meet.any():
                first, second = np.argwhere(meet)[0]
                return start + int(first), int(second)
        return None


class Diagram(NamedTuple):
    """A reduced ordered decision diagram of the impossible cells.

    A record walks from the root: at a node it takes the edge whose set holds its level of the
    node's variable, down to a terminal: node 0 (feasible) or node 1 (impossible). A path skips
    the variables that no longer matter.

    Attributes
    ----------
    order : (V,) int array
        The variables that occur in conditions, as walked; no path meets one twice.
    variable : (D,) int array
        Variable of each node, -1 for the terminals. Children have smaller numbers than parents.
    root : int
    parent, child : (E,) int arrays
        The edges, those of one node together and nodes ascending.
    sets : (E, R) bool array
        Levels of the parent's variable that take the edge, laid out as in :class:`Boxes`; the
        other variables' columns are false, so ``sets @ probabilities`` weighs the edges.
    """

    order: np.ndarray
    variable: np.ndarray
    root: int
    parent: np.ndarray
    child: np.ndarray
    sets: np.ndarray


class Walk(NamedTuple):
    """The diagram as tables of next positions, a few variables to a lookup.

    The same loop serves NumPy and, inside ``jit``, JAX::

        index = codes @ strides              # (n, G)
        position = start
        for g in range(strides.shape[1]):
            position = table[position + index[:, g]]
        impossible = position == IMPOSSIBLE  # 1

    Attributes
    ----------
    strides : (J, G) int32 array
        Weight of each variable in the index of each of G lookups; zero where it has no part.
    table : (T,) int32 array
        Where the next lookup starts; for the last lookup, the terminal.
    start : int
    """

    strides: np.ndarray
    table: np.ndarray
    start: int


def level_offsets(num_levels: Sequence[int]) -> list[int]:
    """Where each variable's levels start among the levels of all, and their number at the end."""
    return [0, *np.cumsum(num_levels).tolist()]


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
        masks = _joined(masks, self.fields)
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
        return sum(len(self.levels[bit]) for bit in _bits(atoms))

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
                    levels = [x for bit in _bits(mask & field) for x in self.levels[bit]]
                    choices.append([(j, level) for level in sorted(levels)])
            for choice in product(*choices):
                row = free.copy()
                for j, level in choice:
                    row[j] = level
                rows.append(row)
        return np.array(sorted(rows), dtype=np.int32).reshape(len(rows), len(free))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit


def _joined(masks: Iterable[int], fields: Sequence[int]) -> set[int]:
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


def _merge(union: Union, masks: Sequence[int]) -> list[int]:
    """Merge disjoint boxes, trying a few orders of the variables."""
    rng = np.random.default_rng(0)
    orders = [union.fields]
    for _ in range(min(16, 20_000 // (1 + len(masks)))):
        orders.append([union.fields[v] for v in rng.permutation(len(union.fields))])
    best = min((_joined(masks, order) for order in orders), key=len)
    return sorted(best, reverse=True)


def _regrouped(union: Union, masks: Sequence[int]) -> list[int]:
    """Cut a few neighbouring boxes up anew, again and again; keep what is not more boxes.

    This finds partitions that no tree has. Cuts that leave the number as it was are kept too:
    they lead on to better ones.
    """
    rng = np.random.default_rng(0)
    masks, num = list(masks), len(union.fields)
    stop = union.effort + _REGROUP_EFFORT
    for _ in range(_REGROUP_TRIALS if 2 < len(masks) <= _REGROUP_MAX else 0):
        if union.effort >= stop:
            break
        centre = masks[rng.integers(len(masks))]
        distance = [(centre ^ mask).bit_count() for mask in masks] + 4 * rng.random(len(masks))
        near = set(np.argsort(distance)[: rng.integers(2, 8)].tolist())
        family = union.simplified(masks[i] for i in near)
        tree = _Tree(union, 1, False, order=rng.permutation(num).tolist())
        order = [union.fields[v] for v in rng.permutation(num)]
        anew = _joined(tree.masks(family, IMPOSSIBLE), order)
        if len(anew) <= len(near):
            masks = [mask for i, mask in enumerate(masks) if i not in near] + sorted(anew)
    return sorted(masks, reverse=True)


def _partition(union: Union, order: Sequence[int], region: int, single_levels: bool) -> list[int]:
    """Return disjoint masks that make up a region, as few boxes (or slices) as were found.

    The boxes are the leaves of a decision tree that may ask about the variables in another order
    on each branch. The first tree asks in the diagram's order, so it is about as quick to find as
    the diagram was; then come those that ask about the most frequent variable, and those that
    choose among the 2, 3, ... most frequent: with enough effort, all trees.
    """
    best = _Tree(union, 1, single_levels, order=order)
    least = best.cost(union.root, region)
    stop = union.effort + _BOX_EFFORT
    for width in (1, 2, 3, 4, 6, 10, 20):
        tree = _Tree(union, width, single_levels, stop=stop)
        try:
            cost = tree.cost(union.root, region)
        except _OutOfEffort:
            break
        if cost < least:
            best, least = tree, cost
        if width >= len(union.fields):
            break
    if least > _MAX_BOXES:
        raise MicrodataError(
            f"the conditions make {least} disjoint {'slices' if single_levels else 'boxes'}, too "
            "many to list; give fewer or simpler conditions"
        )
    return best.masks(union.root, region)


class _OutOfEffort(Exception):
    pass


class _Tree:
    """Decision trees over families, chosen to have few leaves in a region.

    A family whose masks fall into components A, B, ... that share no variable needs no common
    tree: its feasible boxes are products of theirs, and its impossible ones are those of A, then
    the feasible boxes of A times the impossible ones of B, and so on.
    """

    def __init__(
        self,
        union: Union,
        width: int,
        single_levels: bool,
        order: Sequence[int] | None = None,
        stop: float = math.inf,
    ):
        self.union, self.width, self.single_levels = union, width, single_levels
        self.order, self.stop = order, stop
        self.found: dict[tuple[frozenset, int], tuple[int, list[frozenset] | int]] = {}

    def cost(self, family: frozenset, region: int) -> int:
        """Number of boxes, or of slices."""
        if not family or family == self.union.everywhere:
            return int(region == (IMPOSSIBLE if family else FEASIBLE))
        key = (family, region)
        if key not in self.found:
            parts = self.union.components(family)
            if len(parts) == 1:
                self.found[key] = self._best_split(family, region)
            elif region == FEASIBLE:
                self.found[key] = math.prod(self.cost(part, FEASIBLE) for part in parts), parts
            else:
                self.found[key] = self._chain(parts)
        return self.found[key][0]

    def masks(self, family: frozenset, region: int) -> list[int]:
        """The boxes that were counted."""
        union = self.union
        if not family or family == union.everywhere:
            return [union.full] * self.cost(family, region)
        self.cost(family, region)
        how = self.found[family, region][1]
        if isinstance(how, int):
            field = union.fields[how]
            return [
                mask & ~field | atoms
                for atoms, child in union.split(family, how)
                for mask in self.masks(child, region)
            ]
        done, before = [], [union.full]
        for part in how:
            if region == IMPOSSIBLE:
                done += [a & b for a in before for b in self.masks(part, IMPOSSIBLE)]
            if region == FEASIBLE or part is not how[-1]:
                before = [a & b for a in before for b in self.masks(part, FEASIBLE)]
        return done if region == IMPOSSIBLE else before

    def _chain(self, parts: list[frozenset]) -> tuple[int, list[frozenset]]:
        """Order components so that their impossible boxes are fewest."""
        costs = [(self.cost(p, FEASIBLE), self.cost(p, IMPOSSIBLE), p) for p in parts]
        # Exchanging two neighbours shows that this ratio must not increase.
        costs.sort(key=lambda c: -c[1] / (c[0] - 1) if c[0] > 1 else -math.inf)
        total, before = 0, 1
        for feasible, impossible, _ in costs:
            total += before * impossible
            before *= feasible
        return total, [part for _, _, part in costs]

    def _best_split(self, family: frozenset, region: int) -> tuple[int, int]:
        best = None
        for v in self._candidates(family):
            self.union.effort += 0.5
            if self.union.effort >= self.stop:
                raise _OutOfEffort
            field, total = self.union.fields[v], 0
            for atoms, child in self.union.split(family, v):
                weight = 1
                if self.single_levels and atoms != field:
                    weight = self.union.num_levels_of(atoms)
                total += weight * self.cost(child, region)
                if best is not None and total >= best[0]:
                    break
            else:
                best = total, v
        return best

    def _candidates(self, family: frozenset) -> list[int]:
        if self.order is not None:
            support = self.union.support(family)
            return [next(v for v in self.order if support >> v & 1)]
        uses = [0] * len(self.union.fields)
        for mask in family:
            for v, field in enumerate(self.union.fields):
                uses[v] += mask & field != field
        ranked = sorted(range(len(uses)), key=lambda v: (-uses[v], v))
        return [v for v in ranked[: self.width] if uses[v]]


def make_boxes(union: Union, order: Sequence[int], region: int) -> Boxes:
    """Few disjoint boxes that make up a region, FEASIBLE or IMPOSSIBLE."""
    masks = _partition(union, order, region, single_levels=False)
    masks = _regrouped(union, _merge(union, masks))
    sets = union.sets(masks)
    sets.flags.writeable = False
    return Boxes(sets, union.num_levels)


def make_slices(union: Union, order: Sequence[int]) -> np.ndarray:
    """Disjoint slices of the union, (C, J) level codes, -1 where free."""
    codes = union.slices(_partition(union, order, IMPOSSIBLE, single_levels=True))
    codes.flags.writeable = False
    return codes


def search_order(union: Union) -> list[int]:
    """Return the order of the union's variables with the smallest diagram that was found."""
    num = len(union.fields)
    rng = np.random.default_rng(0)
    starts = [_greedy_order(union), list(range(num))]
    starts += [rng.permutation(num).tolist() for _ in range(4)]
    sized, stop = [], _FIRST_EFFORT / len(starts)
    for start in starts:
        # A start is worth improving only if it is not hopeless.
        limit = 8 * sized[0][0] + 1 if sized else math.inf
        size = _size(union, start, limit, union.effort + stop)
        if size is not None:
            sized = sorted([*sized, (size, start)])
            stop = _ORDER_EFFORT / len(starts)
    if not sized:
        raise MicrodataError(
            "the conditions are too intertwined for a compact form; give fewer or simpler ones"
        )
    stop = union.effort + _ORDER_EFFORT
    return min(_improved(union, start, size, stop) for size, start in sized)[1]


def _improved(union: Union, order: list[int], size: int, stop: float) -> tuple[int, list[int]]:
    """Move one variable at a time to where the diagram is smaller, until none can be."""
    moves = [(v, place) for v in range(len(order)) for place in range(len(order))]
    since = 0
    while since < len(moves) and union.effort < stop:
        for moved, place in moves:
            since += 1
            if order[place] == moved:
                continue
            candidate = [v for v in order if v != moved]
            candidate.insert(place, moved)
            smaller = _size(union, candidate, size, stop)
            if smaller is not None:
                order, size, since = candidate, smaller, 0
            if union.effort >= stop or since >= len(moves):
                break
    return size, order


def _greedy_order(union: Union) -> list[int]:
    """Place next the variable whose conditions are closest to being all placed."""
    supports = [union.support_of_mask(mask) for mask in union.root]
    order, left = [], set(range(len(union.fields)))
    while left:
        remaining = sum(1 << v for v in left)

        def score(v, remaining=remaining):
            open_variables = ((s & remaining).bit_count() for s in supports if s >> v & 1)
            return sum(4.0**-count for count in open_variables), -v

        order.append(max(left, key=score))
        left.remove(order[-1])
    return order


def _size(union: Union, order: Sequence[int], limit: float, stop: float) -> int | None:
    """Return the number of nodes of the diagram before reduction.

    None if it is not below the limit, or the effort reaches ``stop`` before it is known.
    """
    size, layer = 0, {union.root}
    for v in order:
        below = set()
        for family in layer:
            if not union.support(family) >> v & 1:
                below.add(family)
                continue
            size += 1
            union.effort += 0.2
            if size >= limit or union.effort >= stop:
                return None
            below.update(child for _, child in union.split(family, v))
        layer = below
    return size if size < limit else None


def make_diagram(union: Union, order: Sequence[int]) -> Diagram:
    """The diagram of a union, its variables in a given order."""
    layers, layer = [], {union.root: None}
    for v in order:
        layers.append(layer)
        below: dict[frozenset, None] = {}
        for family in layer:
            if union.support(family) >> v & 1:
                below |= dict.fromkeys(child for _, child in union.split(family, v))
            else:
                below[family] = None
        layer = below
    node_of = {frozenset(): FEASIBLE, union.everywhere: IMPOSSIBLE}
    variable, edges, known = [-1, -1], [], {}
    for v, layer in zip(reversed(order), reversed(layers), strict=True):
        for family in layer:
            if family in node_of:
                continue
            taken: dict[int, int] = {}
            for atoms, child in union.split(family, v):
                taken[node_of[child]] = taken.get(node_of[child], 0) | atoms
            key = (v, frozenset(taken.items()))
            if len(taken) == 1:
                node_of[family] = next(iter(taken))
            elif key in known:
                node_of[family] = known[key]
            else:
                node = node_of[family] = known[key] = len(variable)
                variable.append(union.variables[v])
                edges += [(node, child, v, atoms) for child, atoms in taken.items()]
    offsets = level_offsets(union.num_levels)
    sets = np.zeros((len(edges), offsets[-1]), dtype=bool)
    for e, (_, _, v, atoms) in enumerate(edges):
        for bit in _bits(atoms):
            sets[e, [offsets[union.variables[v]] + level for level in union.levels[bit]]] = True
    return Diagram(
        order=np.array([union.variables[v] for v in order], dtype=np.int32),
        variable=np.array(variable, dtype=np.int32),
        root=node_of[union.root],
        parent=np.array([edge[0] for edge in edges], dtype=np.int32),
        child=np.array([edge[1] for edge in edges], dtype=np.int32),
        sets=sets,
    )


def make_walk(diagram: Diagram, num_levels: Sequence[int]) -> Walk:
    """A diagram as lookup tables of moderate size."""
    offsets = level_offsets(num_levels)
    order = [j for j in diagram.order.tolist() if j in diagram.variable]
    strides = np.zeros((len(num_levels), len(order)), dtype=np.int32)
    entering, ranks, widths = np.array([diagram.root]), [], []
    while order:
        # Fuse variables into one lookup as long as its table stays in the cache.
        fused, width = [], 1
        while order and (
            not fused or len(entering) * width * num_levels[order[0]] <= _WALK_ENTRIES
        ):
            fused.append(order.pop(0))
            width *= num_levels[fused[-1]]
        reached, stride = entering[:, None], width
        for j in fused:
            stride //= num_levels[j]
            strides[j, len(widths)] = stride
            step = np.tile(np.arange(len(diagram.variable))[:, None], num_levels[j])
            for e in np.flatnonzero(diagram.variable[diagram.parent] == j):
                taken = diagram.sets[e, offsets[j] : offsets[j + 1]]
                step[diagram.parent[e], taken] = diagram.child[e]
            reached = step[reached].reshape(len(entering), -1)
        entering, rank = np.unique(reached, return_inverse=True)
        ranks.append(rank.ravel())
        widths.append(width)
    table, end = [np.zeros(0, dtype=np.int32)], 0
    for rank, width in zip(ranks, [*widths, None][1:], strict=True):
        end += len(rank)
        table.append(entering[rank] if width is None else end + rank * width)
    return Walk(strides[:, : len(widths)], np.concatenate(table).astype(np.int32), 0)
