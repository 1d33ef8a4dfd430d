"""Decision diagram of a union of conditions, with which cells are counted and records are
tested."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.data.schema import MicrodataError
from bnp_models.zeros.boxes import FEASIBLE, IMPOSSIBLE, level_offsets
from bnp_models.zeros.union import Union, single_bits

# Limits of the search of an order, in units of `Union.effort`: until a first order is known to
# have a diagram of moderate size, and after that.
_FIRST_ORDER_EFFORT, _ORDER_EFFORT = 1_000_000, 50_000

# Entries of a lookup table that stays in the cache.
_WALK_ENTRIES = 1 << 18


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
        The node where a record starts.
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
        Where the first lookup starts.
    """

    strides: np.ndarray
    table: np.ndarray
    start: int


def search_order(union: Union) -> list[int]:
    """Return the order of the union's variables with the smallest diagram that was found.

    Returns
    -------
    list of int
        Positions in ``union.variables``.

    Raises
    ------
    MicrodataError
        If no order was found with a diagram of moderate size.
    """
    num = len(union.fields)
    rng = np.random.default_rng(0)
    starts = [_greedy_order(union), list(range(num))]
    starts += [rng.permutation(num).tolist() for _ in range(4)]
    sized: list[tuple[int, list[int]]] = []
    stop = _FIRST_ORDER_EFFORT / len(starts)
    for start in starts:
        # A start is worth improving only if it is not hopeless.
        limit = 8 * sized[0][0] + 1 if sized else math.inf
        size = _size(union, start, limit, union.effort + stop)
        if size is not None:
            sized = sorted([*sized, (size, start)])
            stop = _ORDER_EFFORT / len(starts)
    if not sized:
        raise MicrodataError(
            "the structural zeros connect too many variables in too complicated a way; give fewer "
            "or simpler ones"
        )
    stop = union.effort + _ORDER_EFFORT
    return min(_improved(union, start, size, stop) for size, start in sized)[1]


def _improved(union: Union, order: list[int], size: int, stop: float) -> tuple[int, list[int]]:
    """Move one variable at a time to where the diagram is smaller, until none can be.

    Returns the size of the last diagram, and its order.
    """
    moves = [(v, place) for v in range(len(order)) for place in range(len(order))]
    since = 0  # moves tried since the last that helped
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
    """Order the variables: next comes the one whose conditions are closest to being all placed."""
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
    """Return the diagram of a union, its variables in a given order."""
    node_of: dict[frozenset, int] = {frozenset(): FEASIBLE, union.everywhere: IMPOSSIBLE}
    variable, edges = [-1, -1], []
    known: dict[tuple[int, frozenset], int] = {}
    for v, layer in zip(reversed(order), reversed(_layers(union, order)), strict=True):
        for family in layer:
            if family in node_of:
                continue
            taken: dict[int, int] = {}
            for bits, child in union.split(family, v):
                taken[node_of[child]] = taken.get(node_of[child], 0) | bits
            key = (v, frozenset(taken.items()))
            if len(taken) == 1:
                node_of[family] = next(iter(taken))
            elif key in known:
                node_of[family] = known[key]
            else:
                node = node_of[family] = known[key] = len(variable)
                variable.append(union.variables[v])
                edges += [(node, child, v, bits) for child, bits in taken.items()]
    offsets = level_offsets(union.num_levels)
    sets = np.zeros((len(edges), offsets[-1]), dtype=bool)
    for e, (_, _, v, bits) in enumerate(edges):
        for bit in single_bits(bits):
            sets[e, [offsets[union.variables[v]] + level for level in union.levels[bit]]] = True
    return Diagram(
        order=np.array([union.variables[v] for v in order], dtype=np.int32),
        variable=np.array(variable, dtype=np.int32),
        root=node_of[union.root],
        parent=np.array([edge[0] for edge in edges], dtype=np.int32),
        child=np.array([edge[1] for edge in edges], dtype=np.int32),
        sets=sets,
    )


def _layers(union: Union, order: Sequence[int]) -> list[dict[frozenset, None]]:
    """Return the families that are left before each variable is asked for, in order of finding."""
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
    return layers


def count_impossible(diagram: Diagram, num_levels: Sequence[int]) -> int:
    """Return the number of impossible cells, exact whatever its size."""
    # The cells of the whole table that would be impossible if each node were the root; as a
    # child ignores its parent's variable, the division leaves no remainder.
    cells = [0] * len(diagram.variable)
    cells[IMPOSSIBLE] = math.prod(num_levels)
    width = diagram.sets.sum(axis=1).tolist()
    for e, (node, child) in enumerate(zip(diagram.parent, diagram.child, strict=True)):
        cells[node] += width[e] * (cells[child] // num_levels[diagram.variable[node]])
    return cells[diagram.root]


def make_walk(diagram: Diagram, num_levels: Sequence[int]) -> Walk:
    """Return a diagram as lookup tables of moderate size."""
    offsets = level_offsets(num_levels)
    order = [j for j in diagram.order.tolist() if j in diagram.variable]
    strides = np.zeros((len(num_levels), len(order)), dtype=np.int32)
    entering, ranks = np.array([diagram.root]), []
    widths: list[int] = []
    while order:
        # Fuse variables into one lookup as long as its table stays in the cache.
        fused: list[int] = []
        width = 1
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
    table: list[np.ndarray] = [np.zeros(0, dtype=np.int32)]
    end = 0
    for g, rank in enumerate(ranks):
        end += len(rank)
        last = g + 1 == len(ranks)
        table.append(entering[rank] if last else end + rank * widths[g + 1])
    return Walk(strides[:, : len(widths)], np.concatenate(table).astype(np.int32), 0)
