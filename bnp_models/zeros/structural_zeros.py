"""Structural zeros: combinations of levels that cannot occur, compiled once into disjoint forms.

Conditions as users write them may repeat and overlap. :class:`StructuralZeros` turns their union
into a reduced ordered decision diagram (:class:`Diagram`), which gives exact counts and fast
membership, and into disjoint boxes with sets of levels
(:class:`Boxes`), over which probabilities add up. The cells are never enumerated, so their number
may be of any size.
"""

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import NamedTuple, TypeVar, cast

import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.display import Shown, counted, displayed, whole
from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.reading import read_frame
from bnp_models.data.schema import Label, MicrodataError, Schema, content_digest, errors_in
from bnp_models.zeros import membership
from bnp_models.zeros.boxes import FEASIBLE, IMPOSSIBLE, Boxes
from bnp_models.zeros.coding import Coding, choose_absences, reduced_conditions
from bnp_models.zeros.diagram import (
    Diagram,
    Walk,
    count_impossible,
    make_diagram,
    make_walk,
    search_order,
)
from bnp_models.zeros.equivalences import Equivalence, Relations, find_relations
from bnp_models.zeros.partition import make_boxes, make_slices
from bnp_models.zeros.statements import read_statements
from bnp_models.zeros.union import Union

GivenT = TypeVar("GivenT")


@dataclass(frozen=True, eq=False)
@displayed
class StructuralZeros:
    """The impossible cells of records: the union of conditions that may overlap.

    Parameters
    ----------
    schema : Schema
        The J variables and their levels.
    conditions : (M, J) integer array
        One impossible combination a row: the level code of each variable it fixes, -1 elsewhere.
        M may be 0. Copied to a read-only int32 array.
    rows : (M,) integer array, optional
        The row of the file that each comes from, for messages; by default they are the rows.
    compared : tuple of str, optional
        Variables whose numbers inequalities compare: numbers that are drawn within a bin of one of
        them may break the inequality.

    Raises
    ------
    MicrodataError
        If a code is out of range, a row fixes nothing, no feasible cell is left, or the conditions
        are too complicated for a diagram of moderate size.

    Examples
    --------
    >>> children = pd.DataFrame({"age": ["0-14"], "education": ["Bachelor or higher"]})
    >>> bnp.StructuralZeros.from_frame(children, table.schema).num_feasible_cells
    78
    """

    schema: Schema
    conditions: np.ndarray
    # An array, once the default is filled in.
    rows: np.ndarray = cast(np.ndarray, None)
    compared: tuple[str, ...] = ()

    def __post_init__(self):
        conditions = Microdata(self.schema, self.conditions).codes
        rows = np.arange(len(conditions)) if self.rows is None else np.array(self.rows)
        object.__setattr__(self, "conditions", conditions)
        object.__setattr__(self, "rows", rows)
        empty = np.flatnonzero((conditions < 0).all(axis=1))
        if empty.size:
            raise MicrodataError(
                "the condition fixes no variable, which would make every combination impossible; "
                "fill in a value or remove the row",
                row=int(rows[empty[0]]),
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
            One impossible combination a row, -1 where a variable is free.
        schema : Schema
            The J variables and their levels.
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
            the variable free. Labels are compared with the schema's levels by their text. A cell
            may mean several levels: ``a|b``, ``!x``, ``<25``, ``>=65``, ``15-24``; or compare the
            numbers of two variables: ``<B`` with the name B of another one, which is impossible
            for two levels if it holds of all their numbers. A column that the schema lacks must be
            empty; one whose name begins with "#" holds remarks, and ``#confirm`` has "?" where
            nobody has confirmed a row yet.
        schema : Schema
            The schema of the data analysed. Its levels are those seen unless more are declared.

        Raises
        ------
        MicrodataError
            On an unknown or repeated column, an unknown level, a row that fixes nothing or that
            nobody has confirmed, or conditions that leave no feasible cell.
        """
        check_kind(pd.DataFrame, "StructuralZeros.from_frame(frame, table.schema)", frame=frame)
        return cls(schema, *read_statements(frame, schema))

    def to_frame(self) -> pd.DataFrame:
        """Return the conditions with their labels, None (or NaN, for text) where free."""
        return Microdata(self.schema, self.conditions).to_frame()

    @property
    def num_conditions(self) -> int:
        """Number of conditions as given: of rows, where one stands for several combinations."""
        return len(np.unique(self.rows))

    @cached_property
    def diagram(self) -> Diagram:
        """The diagram, its variables in the best order that a search found."""
        return make_diagram(self._union, self._order)

    @cached_property
    def walk(self) -> Walk:
        """The diagram as lookup tables."""
        return make_walk(self.diagram, self.schema.num_levels)

    @cached_property
    def num_impossible_cells(self) -> int:
        """Number of impossible cells, exact."""
        return count_impossible(self.diagram, self.schema.num_levels)

    @property
    def num_feasible_cells(self) -> int:
        """Number of feasible cells, exact."""
        return self.schema.num_cells - self.num_impossible_cells

    @cached_property
    def impossible(self) -> Boxes:
        """Few disjoint boxes that make up the impossible cells.

        Raises
        ------
        MicrodataError
            If there would be more than 200,000 of them.
        """
        return make_boxes(self._union, self._order, IMPOSSIBLE)

    @cached_property
    def feasible(self) -> Boxes:
        """Few disjoint boxes that make up the feasible cells; errors as for ``impossible``."""
        return make_boxes(self._union, self._order, FEASIBLE)

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
        groups = np.unique(of_condition)
        if len(groups) == 1:
            return (self,)
        return tuple(
            StructuralZeros(
                self.schema,
                self.conditions[of_condition == group],
                self.rows[of_condition == group],
            )
            for group in groups
        )

    @property
    def equivalences(self) -> tuple[Equivalence, ...]:
        """Relations between two or more variables that hold in every feasible cell.

        ``str(equivalence)`` says it in words, such as "mortgage is 'not applicable' if and only if
        ownership is 'rented'". The E equivalences are independent and imply all others. Those of
        two variables come first within each group.

        Raises
        ------
        MicrodataError
            If a group has more than 200,000 feasible boxes.
        """
        return self._relations.equivalences

    @property
    def tilts(self) -> np.ndarray:
        """The (E, R) weights h of the equivalences, laid out as in ``feasible.sets``.

        Multiplying the probability of each level r by ``exp(t * h[r])`` changes a product
        distribution, but not its restriction to the feasible cells; all directions with that
        property are sums of these, of constants of each variable and of weights of levels that
        never occur. Errors as for ``equivalences``.
        """
        return self._relations.tilts

    @property
    def impossible_levels(self) -> tuple[tuple[str, Label], ...]:
        """The variable and label of each level that no feasible cell has.

        Errors as for ``equivalences``.
        """
        named = [
            (variable, label)
            for variable, labels in zip(self.schema.variables, self.schema.levels, strict=True)
            for label in labels
        ]
        return tuple(named[r] for r in np.flatnonzero(~self._relations.occurs))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The equivalences and the levels that never occur, in words."""
        never = [
            f"level {quoted(label)} of {name} never occurs"
            for name, label in self.impossible_levels
        ]
        return (*map(str, self.equivalences), *never)

    @cached_property
    def not_applicable(self) -> "NotApplicable":
        """The form of the records without the items that another variable determines.

        If no equivalence allows this, records and conditions stay as they are. Errors as for
        ``equivalences``.
        """
        absences = [
            absence
            for group, possible in zip(self.groups, self._relations.absences, strict=True)
            for absence in choose_absences(group.conditions, self.schema.num_levels, possible)
        ]
        if not absences:
            coding = Coding(self.schema, self.schema, ())
            return NotApplicable(coding, self if self.num_conditions else None)
        absences.sort(key=lambda absence: absence.variable)
        schema, rows = reduced_conditions(self.conditions, self.schema, absences)
        coding = Coding(self.schema, schema, tuple(absences))
        return NotApplicable(coding, StructuralZeros(schema, rows) if len(rows) else None)

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
        return make_slices(self._union, self._order)

    def contains(self, codes: np.ndarray) -> np.ndarray:
        """Return whether complete records are impossible.

        Parameters
        ----------
        codes : (n, J) integer array
            Level codes.

        Returns
        -------
        (n,) bool array

        Raises
        ------
        MicrodataError
            If a code is missing (-1) or out of range.
        """
        return membership.contains(self.walk, self.schema, codes)

    def admits(self, codes: np.ndarray) -> np.ndarray:
        """Return whether records have a feasible completion; complete ones, whether feasible.

        Parameters
        ----------
        codes : (n, J) integer array
            Level codes, -1 where missing.

        Returns
        -------
        (n,) bool array

        Raises
        ------
        MicrodataError
            If a code is out of range.
        """
        return membership.admits(self.diagram, self.schema, codes)

    @property
    def digest(self) -> str:
        """SHA-256 of the schema and the conditions, in hexadecimal digits."""
        return content_digest(self.schema, self.conditions)

    def broken_by(self, record: np.ndarray) -> np.ndarray:
        """Return the rows of the conditions that a record breaks by its known values alone.

        An impossible record may break no single condition: it is then impossible because no values
        of the missing variables are possible under all conditions together.

        Parameters
        ----------
        record : (J,) integer array
            Level codes, -1 where missing.

        Returns
        -------
        (k,) int64 array
            0-based, ascending.
        """
        free = self.conditions < 0
        return np.flatnonzero((free | (self.conditions == record)).all(axis=1))

    def require_feasible(self, table: Records) -> None:
        """Check that no record is impossible and that each incomplete one can be completed.

        Parameters
        ----------
        table : Microdata or ContingencyTable
            Records of the same variables and levels.

        Raises
        ------
        MicrodataError
            It names the first such record, its values and the condition they break.
        """
        bad = self.impossible_rows(table)
        if not bad.size:
            return
        first = int(bad[0])
        number = bad.size
        if isinstance(table, ContingencyTable):
            number = int(table.counts[np.isin(table.first_rows, bad)].sum())
        rows = f" (rows {_rows_listed(bad)})" if bad.size > 1 else ""
        _, why = self._why(*table.codes_at(bad[:1]))
        raise MicrodataError(
            f"{why}; {number} of {table.n} records are "
            f"impossible{rows}; correct the records or the conditions, leave these records out "
            "(bnp-models conditions check --possible FILE writes a file without them), or have the "
            "fewest values that must change imputed (bnp-models impute --edit)",
            row=first,
        )

    def impossible_records(self, table: Records) -> pd.DataFrame:
        """List the records that are impossible, or that nothing can complete.

        Parameters
        ----------
        table : Microdata or ContingencyTable
            Records of the same variables and levels.

        Returns
        -------
        DataFrame
            One row a record (a cell, of a contingency table): `row`, 0-based; `condition`, the
            0-based row of the first condition that it breaks, -1 where only several together do;
            `why`, in words; and its values.
        """
        bad = self.impossible_rows(table)
        codes = table.codes_at(bad)
        found = pd.DataFrame(map(self._why, codes), columns=["condition", "why"])
        found.insert(0, "row", bad)
        return pd.concat([found, Microdata(self.schema, codes).to_frame()], axis=1)

    def impossible_rows(self, table: Records) -> np.ndarray:
        """Return the rows of the records that are impossible, or that nothing can complete.

        Parameters
        ----------
        table : Microdata or ContingencyTable
            Records of the same variables and levels.

        Returns
        -------
        (k,) int64 array
            0-based, ascending; of a contingency table, the first row of each impossible cell.
        """
        if table.schema != self.schema:
            raise MicrodataError(
                "the conditions were coded for other variables or levels than the records'; make "
                "them with the schema of the records"
            )
        bad = np.zeros(len(table.codes), bool)
        bad[table.complete] = self.contains(table.codes[table.complete])
        bad[~table.complete] = ~self.admits(table.codes[~table.complete])
        if isinstance(table, ContingencyTable):
            return np.sort(table.first_rows[bad])
        return np.flatnonzero(bad)

    def _why(self, record: np.ndarray) -> tuple[int, str]:
        """Why a record is impossible: the row of a condition, -1 for several, and words."""
        broken = self.broken_by(record)
        if not broken.size:
            left = "no values are possible for the missing ones, given"
            return -1, f"{left} {self._values(record)}"
        condition, row = self.conditions[broken[0]], int(self.rows[broken[0]])
        together = " together" if (condition >= 0).sum() > 1 else ""
        return (
            row,
            f"{self._values(condition)} cannot occur{together} (row {row} of the conditions)",
        )

    @cached_property
    def _union(self) -> Union:
        """The union of the conditions, as the searches have it."""
        return Union(self.conditions, self.schema.num_levels)

    @cached_property
    def _order(self) -> list[int]:
        """The order of the diagram, in positions of ``_union.variables``."""
        return search_order(self._union)

    @cached_property
    def _relations(self) -> Relations:
        """The relations between levels that hold in all feasible cells."""
        return find_relations(self.schema, [group.feasible for group in self.groups])

    def _values(self, codes: np.ndarray) -> str:
        """Return the values that codes stand for, in words; -1 is left out."""
        named = zip(self.schema.variables, self.schema.levels, codes, strict=True)
        return " and ".join(
            f"{quoted(name)} = {quoted(labels[code])}" for name, labels, code in named if code >= 0
        )

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        feasible, cells = self.num_feasible_cells, self.schema.num_cells
        lines = {
            "variables": len(self.schema.variables),
            "impossible cells": f"{whole(cells - feasible)} of {whole(cells)}",
        }
        fixed = np.flatnonzero((self.conditions >= 0).any(axis=0))
        frame = self.to_frame().iloc[:, fixed].fillna("")
        return Shown(f"StructuralZeros: {counted(len(frame), 'condition')}", lines, frame)


class NotApplicable(NamedTuple):
    """Records without the items that other items determine, and the structural zeros that remain.

    Attributes
    ----------
    coding : Coding
        The way from records as given to records in this form, and back.
    conditions : StructuralZeros or None
        The cells of ``coding.schema`` that stand for impossible records; None if there are none.
    """

    coding: Coding
    conditions: StructuralZeros | None


def as_conditions(given: GivenT, schema: object) -> GivenT | StructuralZeros:
    """Return structural zeros of records that are a data frame coded, and all else as it is."""
    if isinstance(given, pd.DataFrame) and isinstance(schema, Schema):
        return StructuralZeros.from_frame(given, schema)
    return given


def read_conditions(path: str | PathLike, schema: Schema) -> StructuralZeros:
    """Read structural zeros from a CSV file, or a Parquet file if the name ends so.

    Parameters
    ----------
    path : str or path
        As in :meth:`StructuralZeros.from_frame`: the header names variables, each row is one
        impossible combination, an empty cell leaves that variable free.
    schema : Schema
        The schema of the data analysed.

    Raises
    ------
    MicrodataError
        If the file cannot be read or used; it names the file, row, line, column and value.

    Examples
    --------
    >>> zeros.to_frame().to_csv("zeros.csv", index=False)
    >>> bnp.read_conditions("zeros.csv", table.schema).digest == zeros.digest
    True
    """
    check_kind(Schema, "read_conditions(path, table.schema)", schema=schema)
    frame, lines = read_frame(path)
    if frame.empty:
        raise MicrodataError(
            "has a header and no condition; add rows, or leave the file out", file=path
        )
    with errors_in(path, lines):
        return StructuralZeros.from_frame(frame, schema)


def _rows_listed(rows: np.ndarray) -> str:
    """Numbers of rows for a message: the first fifty."""
    shown = ", ".join(map(str, rows[:50]))
    return shown if len(rows) <= 50 else f"{shown}, ... all by bnp-models conditions check"
