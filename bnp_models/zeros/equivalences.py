"""Equivalences that structural zeros imply between variables.

By structural zeros, one item often determines a part of another: there is a mortgage question to
answer if and only if the home is owned. On the feasible cells such an equivalence is an identity
between indicators, 1[x_1 in A] = 1[x_2 in B], so that multiplying the probabilities of the levels A
by e^t and those of B by e^-t leaves the truncated product distribution as it was: the likelihood
says nothing about t. All directions of that kind are the sums of main effects that are constant on
the feasible cells, a linear space which follows exactly from a few disjoint boxes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice
from typing import NamedTuple

import numpy as np

from bnp_models.data.display import Shown, displayed
from bnp_models.data.messages import listing, quoted
from bnp_models.data.schema import Label, Schema
from bnp_models.zeros.boxes import Boxes, level_offsets

# Sets of three or more variables that are searched for relations that involve no others.
_MAX_SUBSETS = 1000

# Integers below are multiplied in 64 bits without overflow.
_SAFE = 1 << 20


@dataclass(frozen=True)
@displayed
class Equivalence:
    """A sum of weights of levels that is the same in every feasible cell; ``str`` says it in words.

    Attributes
    ----------
    variables : tuple of str
        Two variables in an equivalence proper; more if the identity involves more than two
        variables.
    levels : tuple of tuples of labels
        The levels of each variable that have a weight.
    weights : tuple of tuples of int
        The weights of these levels, none of them 0. In an equivalence proper 1 for the levels of
        the first variable and -1 for the levels of the second; else positive.
    total : int
        Sum of the weights of a feasible cell's levels.

    Examples
    --------
    >>> answers = pd.DataFrame({"works": ["yes", "no"] * 4, "job": ["a", "none", "b", "none"] * 2})
    >>> impossible = pd.DataFrame(
    ...     [("no", "a"), ("no", "b"), ("yes", "none")], columns=["works", "job"]
    ... )
    >>> schema = bnp.Microdata.from_frame(answers).schema
    >>> for equivalence in bnp.StructuralZeros.from_frame(impossible, schema).equivalences:
    ...     print(equivalence)
    works is 'no' if and only if job is 'none'
    """

    variables: tuple[str, ...]
    levels: tuple[tuple[Label, ...], ...]
    weights: tuple[tuple[int, ...], ...]
    total: int

    def __str__(self) -> str:
        """Return the equivalence in words."""
        members = list(map(levels_in_words, self.variables, self.levels))
        kinds = [set(weights) for weights in self.weights]
        if kinds == [{1}, {-1}] and self.total == 0:
            return " if and only if ".join(members)
        if all(kind == {1} for kind in kinds):
            return f"always exactly {self.total} of these {len(members)} hold: {'; '.join(members)}"
        parts = [
            f"{weight} where {levels_in_words(variable, (label,))}"
            for variable, labels, weights in zip(
                self.variables, self.levels, self.weights, strict=True
            )
            for label, weight in zip(labels, weights, strict=True)
        ]
        return f"these numbers always add up to {self.total}: {'; '.join(parts)}"

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        return Shown(f"Equivalence: {self}")


class Absence(NamedTuple):
    """An item that another variable makes absent.

    Attributes
    ----------
    variable : int
        Index of the item.
    level : int
        The code of the item that stands for its absence.
    parent : int
        Index of the variable that decides.
    where : (L_parent,) bool array
        The parent's levels with which the item is absent, and has that level; with all others it
        has one of its other levels.
    """

    variable: int
    level: int
    parent: int
    where: np.ndarray


class Relations(NamedTuple):
    """Relations between levels that hold in all feasible cells.

    Attributes
    ----------
    equivalences : tuple of Equivalence, length E
        They are independent, and all others follow from them.
    tilts : (E, R) float array
        The weights of each, R the sum of the numbers of levels, laid out as in
        :class:`~bnp_models.zeros.boxes.Boxes`.
    occurs : (R,) bool array
        The levels that some feasible cell has.
    absences : tuple of tuples of Absence
        For each region, the items that could be made absent.
    """

    equivalences: tuple[Equivalence, ...]
    tilts: np.ndarray
    occurs: np.ndarray
    absences: tuple[tuple[Absence, ...], ...]


def find_relations(schema: Schema, regions: Sequence[Boxes]) -> Relations:
    """Find the equivalences of a feasible region, exactly and without enumerating its cells.

    Parameters
    ----------
    schema : Schema
        The variables and their levels.
    regions : sequence of Boxes
        Boxes, which need not be disjoint; no two regions constrain the same variable. A cell is
        feasible if it is in all regions.
    """
    offsets = level_offsets(schema.num_levels)
    occurs = np.ones(offsets[-1], dtype=bool)
    equivalences, tilts, absences = [], [], []
    for region in regions:
        occurs &= region.sets.any(axis=0)
        classes = _Classes(region)
        for tilt in classes.tilts():
            tilts.append(tilt)
            equivalences.append(_equivalence_of(schema, tilt, region))
        absences.append(tuple(classes.absences()))
    directions = np.array(tilts, dtype=float).reshape(len(tilts), offsets[-1])
    return Relations(tuple(equivalences), directions, occurs, tuple(absences))


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


class _Classes:
    """The levels of one region in classes that its boxes do not tell apart.

    A sum of main effects that is constant on every box gives all levels of a class the same; a box
    then is no more than the class that it has of each variable.

    Attributes
    ----------
    variables : list of int, length V
        The variables that some box constrains; v counts them.
    of_level : list of (L_j,) int arrays, length V
        The class of each level among the classes of all variables, -1 if it never occurs.
    num : int
        Number of classes of all variables.
    boxes : (B, V) int array
        The distinct boxes, as the class that each has of each variable.
    owner : (num,) int array
        The variable v of each class.
    """

    def __init__(self, region: Boxes):
        self.num_levels = region.num_levels
        self.offsets = level_offsets(region.num_levels)
        self.variables = [j for j, sets in enumerate(region.by_variable) if not sets.all()]
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
            columns = np.flatnonzero(kept & np.isin(self.owner, np.asarray(subset)))
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
        """Whether the vectors span the space."""
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


def _equivalence_of(schema: Schema, tilt: np.ndarray, region: Boxes) -> Equivalence:
    """Return the equivalence of a feasible region whose weights of levels are a (R,) tilt."""
    offsets = level_offsets(schema.num_levels)
    variables, levels, weights, total = [], [], [], 0
    for j, sets in enumerate(region.by_variable):
        part = tilt[offsets[j] : offsets[j + 1]]
        if part.any():
            variables.append(schema.variables[j])
            levels.append(selected_labels(schema.levels[j], part != 0))
            weights.append(tuple(int(weight) for weight in part[part != 0]))
            total += int(part[np.argmax(sets[0])])
    return Equivalence(tuple(variables), tuple(levels), tuple(weights), total)


def selected_labels(labels: Sequence[Label], chosen: np.ndarray) -> tuple[Label, ...]:
    """Return the labels that a bool array of the same length marks."""
    return tuple(label for label, is_chosen in zip(labels, chosen, strict=True) if is_chosen)


def levels_in_words(variable: str, labels: Sequence[Label]) -> str:
    """Say that a variable has one of some labels."""
    if len(labels) == 1:
        return f"{variable} is {quoted(labels[0])}"
    return f"{variable} is one of {listing(labels)}"
