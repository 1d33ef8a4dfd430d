"""Not-applicable form of records: items that other items determine are left out.

Where one side of an equivalence is a single level ("not applicable"), :class:`Coding` drops that
level and leaves the item out of the record instead; most structural zeros vanish with it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product

import numpy as np

from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.zeros.boxes import Boxes, level_offsets
from bnp_models.zeros.equivalences import Absence, levels_in_words, selected_labels
from bnp_models.zeros.union import Union

# Items up to which every choice of absent ones is compared.
_ALL_CHOICES = 8


@dataclass(frozen=True, eq=False)
@displayed
class Coding:
    """A coding of records in which items that another variable determines are absent.

    An absent item's level is dropped from its variable; a record has code -1 there. The cells of
    the reduced schema stand for records too, cells that differ only in absent items for the same
    one: ``expand`` ignores whatever code an absent item has. No parent is ever absent itself.

    Attributes
    ----------
    original : Schema
        The variables and levels of the records as given.
    schema : Schema
        The same variables with the levels that are left.
    absent : tuple of Absence
        In the codes of the original schema (a parent's codes are the same in both).

    Examples
    --------
    >>> answers = pd.DataFrame({"works": ["yes", "no"] * 4, "job": ["a", "none", "b", "none"] * 2})
    >>> impossible = pd.DataFrame(
    ...     [("no", "a"), ("no", "b"), ("yes", "none")], columns=["works", "job"]
    ... )
    >>> schema = bnp.Microdata.from_frame(answers).schema
    >>> form = bnp.StructuralZeros.from_frame(impossible, schema).not_applicable
    >>> form.coding.schema.num_levels
    (2, 2)
    """

    original: Schema
    schema: Schema
    absent: tuple[Absence, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """The absent items and where they are absent, in words."""
        names, labels = self.original.variables, self.original.levels
        return tuple(
            f"{names[a.variable]} is absent, in place of {quoted(labels[a.variable][a.level])}, "
            f"where {levels_in_words(names[a.parent], selected_labels(labels[a.parent], a.where))}"
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
            In the reduced schema; the code of an absent item does not matter, and -1 elsewhere is
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

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {str(i + 1): sentence for i, sentence in enumerate(self.sentences[:10])}
        return Shown(f"Coding: {counted(len(self.absent), 'item')} absent where settled", lines)


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
        The level that each condition fixes, -1 where it fixes none.
    num_levels : sequence of int, length J
        Number of levels of each variable.
    possible : sequence of Absence
        The choice.
    """
    items = sorted({absence.variable for absence in possible})
    sizes = range(1, 1 + (len(items) if len(items) <= _ALL_CHOICES else 2))

    @cache
    def score(chosen: frozenset[int]) -> tuple[float, ...]:
        absences = _with_parents(chosen, possible)
        if absences is None:
            return (math.inf,)
        left = len(_rewritten(conditions, num_levels, absences))
        late = sum(a.parent > a.variable for a in absences)
        return left, -len(chosen), late, sum(int(a.where.sum()) for a in absences)

    def improved(best: frozenset[int]) -> frozenset[int] | None:
        for size in sizes:
            better = min((best ^ set(move) for move in combinations(items, size)), key=score)
            if score(better) < score(best):
                return better
        return None

    best: frozenset[int] = frozenset()
    while (better := improved(best)) is not None:
        best = better
    # An item without a parent that is present has the worst score.
    return _with_parents(best, possible) or ()


def _rewritten(
    conditions: np.ndarray, num_levels: Sequence[int], absences: Sequence[Absence]
) -> np.ndarray:
    """Express conditions in the schema from which absent items' levels are dropped.

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
    boxes = Boxes(_rewritten(conditions, schema.num_levels, absences), reduced.num_levels)
    rows: list[tuple[int, ...]] = []
    for box in zip(*boxes.by_variable, strict=True):
        rows += product(*([-1] if s.all() else np.flatnonzero(s).tolist() for s in box))
    codes = np.array(rows, dtype=np.int32).reshape(len(rows), len(labels))
    union = Union(codes, reduced.num_levels)
    return reduced, union.slices(sorted(union.root))


def _with_parents(
    chosen: frozenset[int], possible: Sequence[Absence]
) -> tuple[Absence, ...] | None:
    """Give each absent item a parent that is present, the same for as many as can be.

    Returns None if an item has none.
    """
    open_to = [a for a in possible if a.variable in chosen and a.parent not in chosen]
    children: dict[int, set[int]] = {}
    for a in open_to:
        children.setdefault(a.parent, set()).add(a.variable)

    def rank(a):
        return -len(children[a.parent]), a.parent, int(a.where.sum()), a.level

    first: dict[int, Absence] = {}
    for a in sorted(open_to, key=rank):
        first.setdefault(a.variable, a)
    return tuple(first[j] for j in sorted(first)) if len(first) == len(chosen) else None
