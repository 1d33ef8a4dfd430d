"""Equivalences that structural zeros imply between variables, and the form of a table without them.

Real conditions often say that one item settles part of another: there is a mortgage to speak of if
and only if the home is owned. On the feasible cells such an equivalence is an identity between
indicators, 1[x_1 in A] = 1[x_2 in B], so that multiplying the probabilities of the levels A by e^t
and those of B by e^-t leaves the truncated product distribution as it was: the likelihood says
nothing about t. All directions of that kind are the sums of main effects that are constant on the
feasible cells, a linear space which follows exactly from a few disjoint boxes.

Where one of the two sides is a single level ("not applicable"), :class:`Coding` drops that level
and leaves the item out of the record instead.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bnp_models.microdata import Label, Microdata, MicrodataError, Schema
from bnp_models.regions import Boxes, Union, level_offsets
from bnp_models.wording import listing, quoted

if TYPE_CHECKING:
    from bnp_models.zeros import StructuralZeros

_MAX_SUBSETS = 1000  # of three or more variables, searched for relations that involve no others
_ALL_CHOICES = 8  # so many items or fewer: every choice of absent ones is compared
_SAFE = 1 << 20  # integers below are multiplied in 64 bits without overflow


@dataclass(frozen=True)
class Equivalence:
    """A sum of weights of levels that is the same in every feasible cell; ``str`` says it in words.

    Attributes
    ----------
    variables : tuple of str
        Two for an equivalence proper; more where no two variables alone are tied.
    levels : tuple of tuples of labels
        The levels of each variable that have a weight.
    weights : tuple of tuples of int
        Their weights, none of them 0. In an equivalence proper 1 for the levels of the first
        variable and -1 for those of the second; else positive.
    total : int
        What the weights of a feasible cell's levels add up to.
    """

    variables: tuple[str, ...]
    levels: tuple[tuple[Label, ...], ...]
    weights: tuple[tuple[int, ...], ...]
    total: int

    @property
    def sentence(self) -> str:
        """The equivalence in words."""
        members = list(map(_membership, self.variables, self.levels))
        kinds = [set(weights) for weights in self.weights]
        if kinds == [{1}, {-1}] and self.total == 0:
            return " if and only if ".join(members)
        if all(kind == {1} for kind in kinds):
            listed = "; ".join(members)
            return f"always exactly {self.total} of these {len(members)} hold: {listed}"
        parts = [
            f"{weight} where {_membership(variable, (label,))}"
            for variable, labels, weights in zip(
                self.variables, self.levels, self.weights, strict=True
            )
            for label, weight in zip(labels, weights, strict=True)
        ]
        return f"these numbers always add up to {self.total}: {'; '.join(parts)}"

    def __str__(self):
        return self.sentence


class Absence(NamedTuple):
    """An item that another variable makes absent.

    Attributes
    ----------
    variable : int
    level : int
        The level that stands for its absence.
    parent : int
        The variable that decides.
    where : (L_parent,) bool array
        The parent's levels with which the item is absent, and has that level; with all others it
        has one of its other levels.
    """

    variable: int
    level: int
    parent: int
    where: np.ndarray


class Relations(NamedTuple):
    """What the feasible cells say about levels.

    Attributes
    ----------
    equivalences : tuple of Equivalence, length E
        They are independent, and all others follow from them.
    tilts : (E, R) float array
        The weights of each, R the sum of the numbers of levels, laid out as in
        :class:`~bnp_models.regions.Boxes`.
    occurs : (R,) bool array
        The levels that some feasible cell has.
    absences : tuple of tuples of Absence
        For each region, the items that could be made absent.
    """

    equivalences: tuple[Equivalence, ...]
    tilts: np.ndarray
    occurs: np.ndarray
    absences: tuple[tuple[Absence, ...], ...]


@dataclass(frozen=True, eq=False)
class Coding:
    """A coding of records in which items that another variable settles are absent.

    An absent item's level is dropped from its variable; a record has code -1 there. The cells of
    the reduced table stand for records too, those that differ only in absent items for the same
    one: ``expand`` ignores whatever code an absent item has, and so do the conditions. No parent
    is ever absent itself.

    Attributes
    ----------
    original : Schema
        The variables and levels of the records as given.
    schema : Schema
        The same variables with the levels that are left.
    conditions : StructuralZeros or None
        The cells of the reduced table that stand for impossible records; None if there are none.
    absent : tuple of Absence
        In the codes of the original schema (a parent's codes are the same in both).
    """

    original: Schema
    schema: Schema
    conditions: "StructuralZeros | None"
    absent: tuple[Absence, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is absent where, in words."""
        names, labels = self.original.variables, self.original.levels
        return tuple(
            f"{names[a.variable]} is absent, in place of {quoted(labels[a.variable][a.level])}, "
            f"where {_membership(names[a.parent], _chosen(labels[a.parent], a.where))}"
            for a in self.absent
        )

    def reduce(self, codes: np.ndarray) -> np.ndarray:
        """Recode records.

        Parameters
        ----------
        codes : (n, J) integer array
            In the original schema, -1 where missing.

        Returns
        -------
        (n, J) int32 array
            In the reduced schema, -1 where absent or missing.

        Raises
        ------
        MicrodataError
            If a code is out of range, an item contradicts its parent's value, or an item is known
            and its parent's value is missing.
        """
        codes = Microdata(self.original, codes).codes
        reduced = codes.copy()
        for variable, level, parent, where in self.absent:
            item, decides = codes[:, variable], codes[:, parent]
            absent = np.append(where, False)[decides]
            wrong = (item >= 0) & ((decides < 0) | ((item == level) != absent))
            if wrong.any():
                row, name = int(np.argmax(wrong)), self.original.variables[parent]
                raise MicrodataError(
                    f"the value is known but {quoted(name)}, which says whether it is applicable, "
                    "is missing; complete it"
                    if decides[row] < 0
                    else "the value cannot occur together with "
                    f"{quoted(name)} = {quoted(self.original.levels[parent][decides[row]])}; "
                    "correct or drop the record",
                    row=row,
                    column=self.original.variables[variable],
                )
            reduced[:, variable] = np.where(absent, -1, item - (item > level))
        return reduced

    def expand(self, codes):
        """Undo :meth:`reduce`; array operations only, so that it may be traced by JAX.

        Parameters
        ----------
        codes : (..., J) NumPy or JAX integer array
            In the reduced schema; what an absent item has does not matter, and -1 elsewhere is
            missing and stays so.

        Returns
        -------
        (..., J) array of the same kind and dtype
            In the original schema.
        """
        num_variables = len(self.original.variables)
        lead = (None,) * (codes.ndim - 1)
        dropped = np.array(self.original.num_levels)
        level = np.zeros(num_variables, dtype=int)
        parent = np.zeros(num_variables, dtype=int)
        # The parent's levels that make each item absent; -2 equals no code.
        width = max((int(a.where.sum()) for a in self.absent), default=1)
        where = np.full((num_variables, width), -2)
        for a in self.absent:
            dropped[a.variable] = level[a.variable] = a.level
            parent[a.variable] = a.parent
            where[a.variable, : a.where.sum()] = np.flatnonzero(a.where)
        dropped, level, where = (x.astype(codes.dtype)[lead] for x in (dropped, level, where))
        absent = (codes[..., parent, None] == where).any(-1)
        present = codes + (codes >= dropped).astype(codes.dtype)
        absent = absent.astype(codes.dtype)
        return present * (1 - absent) + level * absent


def find_relations(schema: Schema, regions: Sequence[Boxes]) -> Relations:
    """Find the equivalences of a feasible region, exactly and without enumerating its cells.

    Parameters
    ----------
    schema : Schema
    regions : sequence of Boxes
        Each a set of boxes, which need not be disjoint; no two sets constrain the same variable.
        The feasible cells are those in all sets.
    """
    offsets = level_offsets(schema.num_levels)
    occurs = np.ones(offsets[-1], dtype=bool)
    equivalences, tilts, absences = [], [], []
    for region in regions:
        occurs &= region.sets.any(axis=0)
        classes = _Classes(region)
        for tilt in classes.tilts():
            tilts.append(tilt)
            equivalences.append(_in_words(schema, tilt, region))
        absences.append(tuple(classes.absences()))
    tilts = np.array(tilts, dtype=float).reshape(len(tilts), offsets[-1])
    return Relations(tuple(equivalences), tilts, occurs, tuple(absences))


def null_space(rows: np.ndarray) -> np.ndarray:
    """Return a basis of the vectors that a matrix maps to 0, in exact integers.

    Parameters
    ----------
    rows : (U, C) integer array
        Small integers.

    Returns
    -------
    (E, C) integer array
        Rows whose greatest common divisor is 1; of dtype object if they are large.
    """
    basis = np.eye(rows.shape[1], dtype=np.int64)
    while True:
        images = rows @ basis.T
        broken = images.any(axis=1)
        if not broken.any():
            return basis
        # Make the basis satisfy one more row: one vector is spent to correct the others.
        image = images[np.argmax(broken)]
        spent = min(
            np.flatnonzero(image), key=lambda i: (abs(image[i]), np.count_nonzero(basis[i]))
        )
        basis = basis * image[spent] - image[:, None] * basis[spent]
        basis = np.delete(basis, spent, axis=0)
        basis = basis // np.gcd.reduce(basis, axis=1, keepdims=True)
        if basis.size and np.abs(basis).max() >= _SAFE:
            basis, rows = basis.astype(object), rows.astype(object)


def choose_absences(
    conditions: np.ndarray, num_levels: Sequence[int], possible: Sequence[Absence]
) -> tuple[Absence, ...]:
    """Choose which items to make absent.

    No chosen one is the parent of another. A search adds, drops and exchanges items as long as
    that leaves fewer conditions; among equals, more items are absent, then more of them come after
    their parent (a question is asked after the one that filters it), then fewer levels of the
    parents make them so.

    Parameters
    ----------
    conditions : (M, J) integer array
    num_levels : sequence of int, length J
    possible : sequence of Absence
    """
    items = sorted({absence.variable for absence in possible})
    sizes = range(1, 1 + (len(items) if len(items) <= _ALL_CHOICES else 2))
    scores = {}

    def score(chosen):
        if chosen not in scores:
            absences = _with_parents(chosen, possible)
            if absences is None:
                scores[chosen] = (math.inf,)
            else:
                left = len(rewritten(conditions, num_levels, absences))
                late = sum(a.parent > a.variable for a in absences)
                scores[chosen] = left, -len(chosen), late, sum(a.where.sum() for a in absences)
        return scores[chosen]

    def improved(best):
        for size in sizes:
            better = min((best ^ set(move) for move in combinations(items, size)), key=score)
            if score(better) < score(best):
                return better
        return None

    best = frozenset()
    while (better := improved(best)) is not None:
        best = better
    return _with_parents(best, possible)


def rewritten(
    conditions: np.ndarray, num_levels: Sequence[int], absences: Sequence[Absence]
) -> np.ndarray:
    """Express conditions in the table from which absent items' levels are dropped.

    Returns
    -------
    (S, R') bool array
        Boxes of impossible cells, which may overlap, one for each condition that does not vanish.
        They constrain an item only with levels of its parent that make it present.
    """
    offsets = level_offsets(num_levels)
    sets = Boxes.from_codes(conditions, num_levels).sets
    for variable, level, parent, where in absences:
        code = conditions[:, variable]
        levels = slice(offsets[parent], offsets[parent + 1])
        sets[code == level, levels] &= where
        sets[(code >= 0) & (code != level), levels] &= ~where
        sets[code == level, offsets[variable] : offsets[variable + 1]] = True
    alive = np.logical_or.reduceat(sets, offsets[:-1], axis=1).all(axis=1)
    return np.delete(sets[alive], [offsets[a.variable] + a.level for a in absences], axis=1)


def reduced_conditions(
    conditions: np.ndarray, schema: Schema, absences: Sequence[Absence]
) -> tuple[Schema, np.ndarray]:
    """Return the schema without absent items' levels, and the conditions in it as level codes."""
    dropped = {a.variable: a.level for a in absences}
    labels = tuple(
        tuple(label for code, label in enumerate(known) if code != dropped.get(j))
        for j, known in enumerate(schema.levels)
    )
    reduced = Schema(schema.variables, labels)
    boxes = Boxes(rewritten(conditions, schema.num_levels, absences), reduced.num_levels)
    rows = []
    for box in zip(*boxes.by_variable, strict=True):
        rows += product(*([-1] if s.all() else np.flatnonzero(s).tolist() for s in box))
    rows = np.array(rows, dtype=np.int32).reshape(len(rows), len(labels))
    union = Union(rows, reduced.num_levels)
    return reduced, union.slices(sorted(union.root))


class _Classes:
    """The levels of one region in classes that its boxes do not tell apart.

    A sum of main effects that is constant on every box gives all levels of a class the same; what
    is left to know of a box is the class that it has of each variable.
    """

    def __init__(self, region: Boxes):
        self.num_levels = region.num_levels
        self.offsets = level_offsets(region.num_levels)
        self.variables = [j for j, sets in enumerate(region.by_variable) if not sets.all()]
        # (L_j,) class of each level among the classes of all variables, -1 if it never occurs.
        self.of_level: list[np.ndarray] = []
        boxes, num = [], 0
        for j in self.variables:
            sets = region.by_variable[j]
            kinds, kind = np.unique(sets, axis=1, return_inverse=True)
            classes, count = _components(kinds.T.astype(np.float32) @ kinds > 0)
            classes = classes[kind.reshape(-1)]
            self.of_level.append(np.where(classes < 0, -1, classes + num))
            boxes.append(self.of_level[-1][np.argmax(sets, axis=1)])
            num += count
        self.boxes = np.unique(np.array(boxes).T.reshape(len(region), -1), axis=0)
        self.num = num
        self.owner = np.zeros(num, dtype=int)
        for v, classes in enumerate(self.of_level):
            self.owner[classes[classes >= 0]] = v

    def tilts(self) -> Iterator[np.ndarray]:
        """Yield independent (R,) directions that span all, those of two variables first."""
        if not self.variables:
            return
        member = self.boxes[:, :, None] == np.arange(self.num)
        member = member.any(axis=1).astype(np.int64)
        differences = member[1:] - member[0]
        # A constant of each variable is no direction: its first class is held at 0.
        kept = np.ones(self.num, dtype=bool)
        kept[np.unique(self.owner, return_index=True)[1]] = False
        basis = null_space(differences[:, kept])
        independent = _Independent(len(basis))

        def is_new(vector):
            first = np.flatnonzero(~kept)[self.owner]
            return independent.add((vector - vector[first])[kept].tolist())

        sizes = np.bincount(np.concatenate([c[c >= 0] for c in self.of_level]))
        for a, b in sorted(self._pairs(), key=lambda pair: sizes[pair[0] | pair[1]].sum()):
            if independent.complete:
                return
            if is_new(a.astype(int) - b):
                yield self._by_level(a.astype(int) - b)
        tied = np.unique(self.owner[kept][(basis != 0).any(axis=0)])
        subsets = chain.from_iterable(combinations(tied, k) for k in range(3, len(tied)))
        for subset in chain(islice(subsets, _MAX_SUBSETS), [tied]):
            if independent.complete:
                return
            columns = np.flatnonzero(kept & np.isin(self.owner, subset))
            for part in sorted(null_space(differences[:, columns]), key=lambda h: abs(h).sum()):
                vector = np.zeros(self.num, dtype=part.dtype)
                vector[columns] = part
                if is_new(vector):
                    signed = self._positive(vector), self._positive(-vector)
                    yield self._by_level(min(signed, key=lambda h: h[self.boxes[0]].sum()))

    def absences(self) -> Iterator[Absence]:
        """Yield the items that could be absent: one level that stands for levels of another."""
        for pair in self._pairs():
            for item, parent in (pair, pair[::-1]):
                levels = self._levels(item)
                if len(levels[1]) == 1:
                    j, chosen = self._levels(parent)
                    where = np.zeros(self.num_levels[j], dtype=bool)
                    where[chosen] = True
                    where.flags.writeable = False
                    yield Absence(levels[0], int(levels[1][0]), j, where)

    def _pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the (num,) classes of two variables that occur only with one another."""
        for v, w in combinations(range(len(self.variables)), 2):
            linked = np.zeros((self.num, self.num), dtype=bool)
            linked[self.boxes[:, v], self.boxes[:, w]] = True
            linked |= linked.T
            components, count = _components(linked | np.diag(linked.any(axis=0)))
            for component in range(count if count > 1 else 0):
                inside = components == component
                yield inside & (self.owner == v), inside & (self.owner == w)

    def _positive(self, vector: np.ndarray) -> np.ndarray:
        """Shift the weights of each variable's classes so that the least is 0."""
        vector = vector.copy()
        for v in range(len(self.variables)):
            vector[self.owner == v] -= vector[self.owner == v].min()
        return vector

    def _levels(self, classes: np.ndarray) -> tuple[int, np.ndarray]:
        """Return the variable and the levels of some classes of one variable."""
        v = self.owner[np.argmax(classes)]
        return self.variables[v], np.flatnonzero(np.append(classes, False)[self.of_level[v]])

    def _by_level(self, vector: np.ndarray) -> np.ndarray:
        """Return weights of classes as (R,) weights of levels, 0 for those that never occur."""
        tilt = np.zeros(self.offsets[-1], dtype=vector.dtype)
        for j, classes in zip(self.variables, self.of_level, strict=True):
            tilt[self.offsets[j] : self.offsets[j + 1]] = np.append(vector, 0)[classes]
        return tilt


class _Independent:
    """Integer vectors in echelon form, up to as many as a space has dimensions."""

    def __init__(self, dimension: int):
        self.dimension = dimension
        self.rows: dict[int, list[int]] = {}

    @property
    def complete(self) -> bool:
        return len(self.rows) == self.dimension

    def add(self, vector: list[int]) -> bool:
        """Add a vector if it is independent of those before it; return whether it was."""
        for pivot, row in self.rows.items():
            if vector[pivot]:
                scale, factor = row[pivot], vector[pivot]
                vector = [scale * x - factor * y for x, y in zip(vector, row, strict=True)]
        divisor = math.gcd(*vector)
        if divisor == 0:
            return False
        vector = [x // divisor for x in vector]
        self.rows[next(i for i, x in enumerate(vector) if x)] = vector
        return True


def _components(linked: np.ndarray) -> tuple[np.ndarray, int]:
    """Number the connected components of a graph, by their first vertex.

    Parameters
    ----------
    linked : (N, N) symmetric bool array
        Its diagonal says which vertices there are.

    Returns
    -------
    component : (N,) int array
        -1 where there is no vertex.
    count : int
    """
    num = len(linked)
    label = np.arange(num)
    while True:
        least = np.where(linked, label, num).min(axis=1, initial=num)
        if (least == label).all():
            break
        label = least
    firsts = np.unique(label[label < num])
    return np.where(label < num, np.searchsorted(firsts, label), -1), len(firsts)


def _in_words(schema: Schema, tilt: np.ndarray, region: Boxes) -> Equivalence:
    offsets = level_offsets(schema.num_levels)
    variables, levels, weights, total = [], [], [], 0
    for j, sets in enumerate(region.by_variable):
        own = tilt[offsets[j] : offsets[j + 1]]
        if own.any():
            variables.append(schema.variables[j])
            levels.append(_chosen(schema.levels[j], own != 0))
            weights.append(tuple(int(weight) for weight in own[own != 0]))
            total += int(own[np.argmax(sets[0])])
    return Equivalence(tuple(variables), tuple(levels), tuple(weights), total)


def _with_parents(
    chosen: frozenset[int], possible: Sequence[Absence]
) -> tuple[Absence, ...] | None:
    """Give each absent item a parent that is present, the same for as many as can be."""
    open_to = [a for a in possible if a.variable in chosen and a.parent not in chosen]
    children: dict[int, set[int]] = {}
    for a in open_to:
        children.setdefault(a.parent, set()).add(a.variable)

    def rank(a):
        return -len(children[a.parent]), a.parent, int(a.where.sum()), a.level

    found = {}
    for a in sorted(open_to, key=rank):
        found.setdefault(a.variable, a)
    return tuple(found[j] for j in sorted(found)) if len(found) == len(chosen) else None


def _chosen(labels: Sequence[Label], chosen: np.ndarray) -> tuple[Label, ...]:
    return tuple(label for label, is_chosen in zip(labels, chosen, strict=True) if is_chosen)


def _membership(variable: str, labels: Sequence[Label]) -> str:
    if len(labels) == 1:
        return f"{variable} is {quoted(labels[0])}"
    return f"{variable} is one of {listing(labels)}"
