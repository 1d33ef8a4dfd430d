"""Structural zeros: combinations of levels that cannot occur, compiled once into disjoint forms.

Conditions as users write them may repeat and overlap. :class:`StructuralZeros` turns their union
into a reduced ordered decision diagram (:class:`Diagram`), which gives exact counts and fast
membership, and into disjoint boxes with sets of levels (:class:`Boxes`), over which probabilities
add up. The full table is never enumerated, so its number of cells may be of any size.

References
----------
D. Manrique-Vallier, J. P. Reiter (2014), Bayesian estimation of discrete multivariate latent
structure models with structural zeros, doi:10.1080/10618600.2013.844700: disjoint slices.
R. E. Bryant (1986), Graph-based algorithms for Boolean function manipulation,
doi:10.1109/TC.1986.1676819: reduced ordered decision diagrams.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from os import PathLike
from typing import NamedTuple

import numpy as np
import pandas as pd

from bnp_models.microdata import (
    Microdata,
    MicrodataError,
    Schema,
    _label,
    _listed,
    _quote,
    _repeated,
    read_frame,
)

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
_WALK_CHUNK = 8192


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


@dataclass(frozen=True, eq=False)
class StructuralZeros:
    """The impossible cells of a table: the union of conditions that may overlap.

    Parameters
    ----------
    schema : Schema
        The J variables and their levels.
    conditions : (M, J) integer array
        One impossible combination a row: the level code of each variable it fixes, -1 elsewhere.
        M may be 0. Copied to a read-only int32 array.

    Raises
    ------
    MicrodataError
        If a code is out of range, a row fixes nothing, no feasible cell is left, or the
        conditions are too intertwined for a diagram of moderate size.
    """

    schema: Schema
    conditions: np.ndarray

    def __post_init__(self):
        conditions = Microdata(self.schema, self.conditions).codes
        object.__setattr__(self, "conditions", conditions)
        empty = np.flatnonzero((conditions < 0).all(axis=1))
        if empty.size:
            raise MicrodataError(
                "the condition fixes no variable, which would make every combination impossible; "
                "fill in a value or remove the row",
                row=int(empty[0]),
            )
        if self.num_feasible_cells == 0:
            raise MicrodataError(
                "the conditions together make every combination impossible; remove those that do "
                "not hold"
            )

    @classmethod
    def from_codes(cls, codes: np.ndarray, schema: Schema) -> "StructuralZeros":
        """Make structural zeros from level codes.

        Parameters
        ----------
        codes : (M, J) integer array
            -1 where a variable is free.
        schema : Schema
        """
        return cls(schema, codes)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, schema: Schema) -> "StructuralZeros":
        """Code a frame of conditions.

        Parameters
        ----------
        frame : DataFrame, (M, any)
            Columns name variables of the schema, in any order; a variable without a column is
            free. Each row is one impossible combination; NaN, None, NA and the empty string leave
            the variable free. Labels are compared with the schema's levels by their text. A
            column that the schema lacks must be empty.
        schema : Schema
            That of the table analysed. Its levels are those seen unless more are declared.

        Raises
        ------
        MicrodataError
            On an unknown or repeated column, an unknown level, a row that fixes nothing, or
            conditions that leave no feasible cell.
        """
        names = [str(name) for name in frame.columns]
        if (repeated := _repeated(names)) is not None:
            raise MicrodataError("the column name occurs twice; rename one", column=repeated)
        codes = np.full((len(frame), len(schema.variables)), -1, dtype=np.int32)
        for position, name in enumerate(names):
            column = _encode_conditions(frame.iloc[:, position], name, schema)
            if name in schema.variables:
                codes[:, schema.variables.index(name)] = column
        return cls(schema, codes)

    def to_frame(self) -> pd.DataFrame:
        """Return the conditions with their labels, None (or NaN, for text) where free."""
        return Microdata(self.schema, self.conditions).to_frame()

    @property
    def num_conditions(self) -> int:
        """Number of conditions as given, M."""
        return self.conditions.shape[0]

    @cached_property
    def diagram(self) -> Diagram:
        """The diagram, its variables in the best order that a search found."""
        return _diagram(self._union, self._order)

    @cached_property
    def walk(self) -> Walk:
        """The diagram as lookup tables."""
        return _walk(self.diagram, self.schema.num_levels)

    @property
    def num_impossible_cells(self) -> int:
        """Number of impossible cells, exact."""
        return self._num_impossible

    @property
    def num_feasible_cells(self) -> int:
        """Number of feasible cells, exact."""
        return self.schema.num_cells - self._num_impossible

    @cached_property
    def impossible(self) -> Boxes:
        """Few disjoint boxes that make up the impossible cells.

        Raises
        ------
        MicrodataError
            If there would be more than 200,000 of them.
        """
        return self._boxes(IMPOSSIBLE)

    @cached_property
    def feasible(self) -> Boxes:
        """Few disjoint boxes that make up the feasible cells; errors as for ``impossible``."""
        return self._boxes(FEASIBLE)

    @cached_property
    def groups(self) -> tuple["StructuralZeros", ...]:
        """The conditions by group of variables that share none with the variables of another.

        A cell is feasible if every group says so: the feasible region is a product, and its boxes
        are as many as the product of the groups' boxes.
        """
        label = np.arange(self.conditions.shape[1])
        for condition in self.conditions:
            fixed = np.flatnonzero(condition >= 0)
            label[np.isin(label, label[fixed])] = label[fixed].min()
        of_condition = label[np.argmax(self.conditions >= 0, axis=1)]
        return tuple(
            StructuralZeros(self.schema, self.conditions[of_condition == group])
            for group in np.unique(of_condition)
        )

    def slices(self) -> np.ndarray:
        """Return disjoint slices that make up the impossible cells.

        A slice is the literature's form: each coordinate has one level or is free. Boxes
        (:attr:`impossible`) are the same with sets of levels, and far fewer.

        Returns
        -------
        (C, J) int32 array
            Level codes, -1 where free.

        Raises
        ------
        MicrodataError
            If there would be more than 200,000 of them.
        """
        return self._slices

    def contains(self, codes: np.ndarray) -> np.ndarray:
        """Whether complete records are impossible.

        Parameters
        ----------
        codes : (n, J) integer array

        Returns
        -------
        (n,) bool array

        Raises
        ------
        MicrodataError
            If a code is missing (-1) or out of range.
        """
        codes = self._checked_shape(codes)
        strides = self.walk.strides.astype(np.float32)
        limits = np.tile(np.array(self.schema.num_levels, dtype=np.uint32), _WALK_CHUNK)
        result = np.empty(len(codes), dtype=bool)
        for start in range(0, len(codes), _WALK_CHUNK):
            chunk = np.ascontiguousarray(codes[start : start + _WALK_CHUNK])
            # As unsigned numbers, negative codes are too large: one comparison checks both ends.
            if (chunk.view(np.uint32).reshape(-1) >= limits[: chunk.size]).any():
                self._refuse(chunk, start, missing_allowed=False)
            # A float32 product is exact here (indices are below 2^24) and, unlike an integer one,
            # runs on BLAS.
            index = (chunk.astype(np.float32) @ strides).astype(np.intp)
            position = np.full(len(chunk), self.walk.start, dtype=np.int32)
            for g in range(index.shape[1]):
                position = self.walk.table.take(index[:, g] + position)
            np.equal(position, IMPOSSIBLE, out=result[start : start + len(chunk)])
        return result

    def admits(self, codes: np.ndarray) -> np.ndarray:
        """Whether records have a feasible completion; complete ones, whether they are feasible.

        Parameters
        ----------
        codes : (n, J) integer array
            -1 where missing.

        Returns
        -------
        (n,) bool array

        Raises
        ------
        MicrodataError
            If a code is out of range.
        """
        codes = self._checked_shape(codes)
        offsets = _offsets(self.schema.num_levels)
        edge_sets = [
            np.append(self.diagram.sets[e, offsets[j] : offsets[j + 1]], True)
            for e, j in enumerate(self.diagram.variable[self.diagram.parent])
        ]
        result = np.empty(len(codes), dtype=bool)
        for start in range(0, len(codes), self._reach_chunk):
            chunk = np.ascontiguousarray(codes[start : start + self._reach_chunk].T)
            if (chunk < -1).any() or (chunk.T >= self.schema.num_levels).any():
                self._refuse(chunk.T, start, missing_allowed=True)

            def takes(e, j, chunk=chunk):
                # The code -1 picks an edge's last entry: a missing value takes every edge.
                return edge_sets[e][chunk[j]]

            reached = self._reach(chunk.shape[1], takes)
            result[start : start + chunk.shape[1]] = reached[FEASIBLE]
        return result

    def require_feasible(self, table: Microdata) -> None:
        """Check that no record is impossible and that each incomplete one can be completed.

        Parameters
        ----------
        table : Microdata
            Of the same variables and levels.

        Raises
        ------
        MicrodataError
            It names the first such record, its values and the condition they break.
        """
        if table.schema != self.schema:
            raise MicrodataError(
                "the conditions were coded for other variables or levels than the table's; make "
                "them with the table's schema"
            )
        incomplete = np.flatnonzero((table.codes < 0).any(axis=1))
        complete = np.flatnonzero((table.codes >= 0).all(axis=1))
        bad = np.concatenate(
            [
                complete[self.contains(table.codes[complete])],
                incomplete[~self.admits(table.codes[incomplete])],
            ]
        )
        if bad.size == 0:
            return
        row = int(bad.min())
        record = table.codes[row]
        fixed = self.conditions >= 0
        broken = np.flatnonzero((~fixed | (self.conditions == record)).all(axis=1))
        if broken.size:
            what = (
                f"{self._values(self.conditions[broken[0]])} cannot occur together (row "
                f"{broken[0]} of the conditions)"
                if fixed[broken[0]].sum() > 1
                else f"{self._values(self.conditions[broken[0]])} cannot occur (row {broken[0]} "
                "of the conditions)"
            )
        else:
            what = (
                f"the conditions leave no value for the missing ones, given {self._values(record)}"
            )
        raise MicrodataError(
            f"{what}; {bad.size} of {table.n} records are impossible; correct or drop them, or "
            "correct the conditions",
            row=row,
        )

    def check(self, boxes: Boxes, *, feasible: bool = False) -> None:
        """Check that boxes make up the impossible cells exactly, each cell once.

        The table is not enumerated: boxes that are disjoint, lie in the region and have as many
        cells as it are the region.

        Parameters
        ----------
        boxes : Boxes
        feasible : bool
            Check against the feasible cells instead.

        Raises
        ------
        ValueError
            It says what is wrong.
        """
        if boxes.num_levels != self.schema.num_levels:
            raise ValueError("the boxes have other numbers of levels than the schema")
        if (pair := boxes.first_meeting()) is not None:
            raise ValueError(f"boxes {pair[0]} and {pair[1]} overlap")
        region, other = ("feasible", IMPOSSIBLE) if feasible else ("impossible", FEASIBLE)
        offsets = _offsets(self.schema.num_levels)
        for start in range(0, len(boxes), self._reach_chunk):
            some = Boxes(boxes.sets[start : start + self._reach_chunk], boxes.num_levels)
            by_variable = [sets.astype(np.float32) for sets in some.by_variable]

            def meets(e, j, by_variable=by_variable):
                return by_variable[j] @ self.diagram.sets[e, offsets[j] : offsets[j + 1]] > 0

            outside = np.flatnonzero(self._reach(len(some), meets)[other])
            if outside.size:
                raise ValueError(f"box {start + outside[0]} has cells that are not {region}")
        if feasible and self.num_conditions:
            # The same from the conditions themselves, in case the diagram is wrong.
            conditions = Boxes.from_codes(self.conditions, self.schema.num_levels)
            if (pair := boxes.first_meeting(conditions)) is not None:
                raise ValueError(f"box {pair[0]} meets condition {pair[1]}")
        expected = self.num_feasible_cells if feasible else self.num_impossible_cells
        if boxes.num_cells != expected:
            raise ValueError(f"the boxes have {boxes.num_cells} {region} cells of {expected}")

    @cached_property
    def _union(self) -> "_Union":
        return _Union(self.conditions, self.schema.num_levels)

    @cached_property
    def _order(self) -> list[int]:
        return _search_order(self._union)

    @cached_property
    def _num_impossible(self) -> int:
        diagram = self.diagram
        num_levels = self.schema.num_levels
        # The cells of the whole table that would be impossible if each node were the root; as a
        # child ignores its parent's variable, the division leaves no remainder.
        cells = [0] * len(diagram.variable)
        cells[IMPOSSIBLE] = self.schema.num_cells
        width = diagram.sets.sum(axis=1).tolist()
        for e, (node, child) in enumerate(zip(diagram.parent, diagram.child, strict=True)):
            cells[node] += width[e] * (cells[child] // num_levels[diagram.variable[node]])
        return cells[diagram.root]

    @cached_property
    def _slices(self) -> np.ndarray:
        masks = _partition(self._union, self._order, IMPOSSIBLE, single_levels=True)
        codes = self._union.slices(masks)
        codes.flags.writeable = False
        return codes

    def _boxes(self, region: int) -> Boxes:
        masks = _partition(self._union, self._order, region, single_levels=False)
        masks = _regrouped(self._union, _merge(self._union, masks))
        sets = self._union.sets(masks)
        sets.flags.writeable = False
        return Boxes(sets, self.schema.num_levels)

    @property
    def _reach_chunk(self) -> int:
        return max(1, min(_WALK_CHUNK, (1 << 27) // len(self.diagram.variable)))

    def _reach(self, n: int, takes: Callable[[int, int], np.ndarray]) -> np.ndarray:
        """Return the (2, n) terminals that n walkers reach; edge e, of variable j, is open to
        walker i where ``takes(e, j)[i]``."""
        diagram = self.diagram
        reached = np.zeros((len(diagram.variable), n), dtype=bool)
        reached[diagram.root] = True
        for e in range(len(diagram.parent) - 1, -1, -1):
            node = diagram.parent[e]
            reached[diagram.child[e]] |= reached[node] & takes(e, diagram.variable[node])
        return reached[:2]

    def _checked_shape(self, codes: np.ndarray) -> np.ndarray:
        codes = np.asarray(codes)
        if codes.ndim != 2 or codes.shape[1] != len(self.schema.variables):
            raise MicrodataError(
                f"codes have shape {codes.shape}; expected (n, {len(self.schema.variables)})"
            )
        if not np.issubdtype(codes.dtype, np.integer):
            raise MicrodataError(f"codes have dtype {codes.dtype}; expected integers")
        if codes.dtype != np.int32:
            # Codes that do not fit are out of range in any case, and stay so when clipped.
            codes = np.clip(codes, -2, 2**31 - 1).astype(np.int32)
        return codes

    def _refuse(self, chunk: np.ndarray, start: int, missing_allowed: bool):
        least = -1 if missing_allowed else 0
        row, j = np.argwhere((chunk < least) | (chunk >= self.schema.num_levels))[0]
        problem = f"code {chunk[row, j]} is not between {least} and {self.schema.num_levels[j] - 1}"
        if chunk[row, j] == -1:
            problem = "the value is missing; complete the record, or use admits"
        raise MicrodataError(problem, row=start + int(row), column=self.schema.variables[j])

    def _values(self, codes: np.ndarray) -> str:
        named = zip(self.schema.variables, self.schema.levels, codes, strict=True)
        return " and ".join(
            f"{_quote(name)} = {_quote(labels[code])}" for name, labels, code in named if code >= 0
        )


def read_conditions(path: str | PathLike, schema: Schema) -> StructuralZeros:
    """Read structural zeros from a CSV file, or a Parquet file if the name ends so.

    Parameters
    ----------
    path : str or path
        As in :meth:`StructuralZeros.from_frame`: the header names variables, each row is one
        impossible combination, an empty cell leaves that variable free.
    schema : Schema

    Raises
    ------
    MicrodataError
        If the file cannot be read or used; it names the file, row, line, column and value.
    """
    frame, lines = read_frame(path)
    try:
        return StructuralZeros.from_frame(frame, schema)
    except MicrodataError as error:
        raise error.in_file(path, lines) from None


def _encode_conditions(column: pd.Series, name: str, schema: Schema) -> np.ndarray:
    """Code one column of M labels; return (M,) int32 codes, -1 where free."""
    try:
        raw, values = pd.factorize(column)
    except TypeError:
        raise MicrodataError(
            "values that are not plain labels (lists or the like); use text or numbers",
            column=name,
        ) from None
    codes = []
    for k, value in enumerate(map(_label, values)):
        if value == "":
            codes.append(-1)
            continue
        row = int(np.argmax(raw == k))
        if name not in schema.variables:
            raise MicrodataError(
                f"value {_quote(value)} of a column that is not among the variables "
                f"({_listed(schema.variables)}); add it (--variables), correct its name or "
                "remove the conditions that fix it",
                row=row,
                column=name,
            )
        try:
            codes.append(schema.encode(name, value))
        except MicrodataError as error:
            raise MicrodataError(
                f"{error.problem} (levels that no record has are declared with levels, or "
                "--levels)",
                row=row,
                column=name,
            ) from None
    return np.array([*codes, -1], dtype=np.int32)[raw]


def _offsets(num_levels: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(num_levels).tolist()]


class _Union:
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
        offsets = _offsets(self.num_levels)
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


def _merge(union: _Union, masks: Sequence[int]) -> list[int]:
    """Merge disjoint boxes, trying a few orders of the variables."""
    rng = np.random.default_rng(0)
    orders = [union.fields]
    for _ in range(min(16, 20_000 // (1 + len(masks)))):
        orders.append([union.fields[v] for v in rng.permutation(len(union.fields))])
    best = min((_joined(masks, order) for order in orders), key=len)
    return sorted(best, reverse=True)


def _regrouped(union: _Union, masks: Sequence[int]) -> list[int]:
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


def _partition(union: _Union, order: Sequence[int], region: int, single_levels: bool) -> list[int]:
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
        union: _Union,
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


def _search_order(union: _Union) -> list[int]:
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


def _improved(union: _Union, order: list[int], size: int, stop: float) -> tuple[int, list[int]]:
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


def _greedy_order(union: _Union) -> list[int]:
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


def _size(union: _Union, order: Sequence[int], limit: float, stop: float) -> int | None:
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


def _diagram(union: _Union, order: Sequence[int]) -> Diagram:
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
    offsets = _offsets(union.num_levels)
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


def _walk(diagram: Diagram, num_levels: Sequence[int]) -> Walk:
    offsets = _offsets(num_levels)
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
