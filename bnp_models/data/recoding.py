"""Recodings: new levels of variables, applied to records, and written to files."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import ClassVar

import numpy as np
import pandas as pd

from bnp_models.data.label_numbers import (
    Interval,
    are_ordered,
    name_of_run,
    plain_number,
    read_numbers,
    read_range,
)
from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Records
from bnp_models.data.reading import read_frame
from bnp_models.data.schema import (
    Label,
    MicrodataError,
    Schema,
    errors_in,
    first_repeated,
    in_type_of,
    plain_label,
    text_of,
    unknown_variable,
)
from bnp_models.data.sentinels import other_reading
from bnp_models.data.source import opened
from bnp_models.data.spelling import one_spelling
from bnp_models.data.writing import write_frame

Names = Mapping[tuple[int, ...], str]
"""Names of groups of levels, by the codes of these."""

COLUMNS = ("variable", "level", "becomes")
"""Columns of a file of a recoding."""

_RANGE = re.compile(r"<|>=|.* to <")


@dataclass(frozen=True, eq=False)
class Merged:
    """New levels of one variable, and the new level of each label.

    Examples
    --------
    >>> ages = bnp.Microdata.from_frame(pd.DataFrame({"age": [17, 84, 90]}))
    >>> _, merged = bnp.merge_levels(ages, {"age": 80})
    >>> merged["age"].groups()
    {'80+': ['84', '90']}
    """

    variable: str
    """Name of the column."""
    labels: tuple[Label, ...]
    """Levels that are left, in order."""
    codes: Mapping[str, int]
    """Code of the text of every label, merged or not."""
    ranges: Mapping[str, int]
    """Codes of ranges, "<25", "25 to <50" and ">=85", for numbers that are not such a label."""

    _REFUSED: ClassVar[str] = (
        "is not a label of the original, whose levels were merged; declare it (--levels) or "
        "correct it"
    )

    @classmethod
    def of(
        cls,
        variable: str,
        labels: Sequence[Label],
        codes: Iterable[int],
        left: Sequence[Label],
        ranges: Mapping[str, int] | None = None,
    ) -> "Merged":
        """Recoding of labels that have these new codes, with these levels left."""
        own = {text_of(label): code for code, label in enumerate(left)}
        old = {text_of(label): int(code) for label, code in zip(labels, codes, strict=True)}
        return cls(variable, tuple(left), own | old, ranges or {})

    @classmethod
    def together(
        cls,
        variable: str,
        labels: Sequence[Label],
        groups: Sequence[Sequence[int]],
        names: Names | None = None,
    ) -> "Merged":
        """Recoding that makes one level of each group of codes; arguments as of `level_names`."""
        left = level_names(labels, groups, names)
        if any(isinstance(label, str) for label in left):
            left = list(map(text_of, left))
        codes = np.zeros(len(labels), int)
        for code, group in enumerate(groups):
            codes[list(group)] = code
        return cls.of(variable, labels, codes, left)

    def code(self, values: Iterable[Label]) -> np.ndarray:
        """Code labels, merged or not.

        Parameters
        ----------
        values
            (m,) labels.

        Returns
        -------
        codes : (m,) int32 array

        Raises
        ------
        MicrodataError
            If a label is none of the sample's and is not in one of the ranges.
        """
        found = []
        for value in values:
            if (code := self.find(value)) is None:
                raise MicrodataError(
                    f"value {quoted(value)} {self._REFUSED}{other_reading(value, self.codes)}",
                    column=self.variable,
                )
            found.append(code)
        return np.array(found, np.int32)

    def in_one_spelling(self, labels: Sequence[Label]) -> "Merged":
        """Return a recoding of other labels into those of this one's that they are.

        It leaves those that have no other spelling here as they are.
        """
        new = one_spelling(dict.fromkeys(labels, 1), list(self.codes))
        spelt = [new.get(label, label) for label in labels]
        left = list(dict.fromkeys(spelt))
        return Merged.of(self.variable, labels, map(left.index, spelt), left)

    def find(self, value: Label) -> int | None:
        """Code of a label, None where it has none."""
        label = plain_label(value)
        if (code := self.codes.get(text_of(label))) is not None or not self.ranges:
            return code
        if (x := plain_number(label)) is not None:
            own: Interval | None = Interval(float(x), float(x))
        else:
            [own] = read_numbers([label])
        if own is None:
            return None
        inside = (code for (low, high), code in self._ranges if low <= own.low and own.high <= high)
        return next(inside, None)

    @cached_property
    def _ranges(self) -> list[tuple[Interval, int]]:
        """Numbers of the ranges, and their codes."""
        read = [(read_range(text), code) for text, code in self.ranges.items()]
        return [(interval, code) for interval, code in read if interval is not None]

    def groups(self) -> dict[str, list[str]]:
        """Labels that were merged, by the text of the level they became."""
        found: dict[str, list[str]] = {}
        for text, code in self.codes.items():
            if text != text_of(self.labels[code]):
                found.setdefault(text_of(self.labels[code]), []).append(text)
        return found

    def then(self, other: "Merged") -> "Merged":
        """Return the recoding that applies this one and then another one to its levels."""
        of = other.code(self.labels).tolist()
        codes = {**other.codes, **{text: of[code] for text, code in self.codes.items()}}
        ranges = {text: of[code] for text, code in self.ranges.items()}
        return Merged(self.variable, other.labels, codes, ranges or other.ranges)

    def rows(self) -> list[tuple[str, str, str]]:
        """Variable, label and what it becomes, of all labels and ranges in the order of levels."""
        every = sorted({**self.ranges, **self.codes}.items(), key=lambda item: item[1])
        return [(self.variable, text, text_of(self.labels[code])) for text, code in every]


@dataclass(frozen=True, eq=False)
class Recoding:
    """Recoding of the variables of a schema: levels are merged, or variables are dropped.

    Examples
    --------
    >>> ages = bnp.Microdata.from_frame(pd.DataFrame({"age": [17, 84, 90]}))
    >>> _, merged = bnp.merge_levels(ages, {"age": 80})
    >>> bnp.Recoding.of(ages.schema, merged).to_file("recoding.csv")
    >>> next_year = bnp.Microdata.from_frame(pd.DataFrame({"age": [84, 95, 17]}))
    >>> recoding = bnp.Recoding.from_file("recoding.csv", next_year.schema)
    >>> recoding.coarser(next_year).to_frame()["age"].tolist()
    ['80+', '80+', '17']
    """

    original: Schema
    """Variables and levels before."""
    schema: Schema
    """Variables and levels that are left."""
    variables: tuple[int, ...]
    """Column of each of these variables among those of the original."""
    codes: tuple[np.ndarray, ...]
    """For each of them, the new code of every old one."""
    changed: Mapping[str, Merged | None]
    """By variable, the new levels of its labels; None: it is dropped. Others stay as they are."""

    @classmethod
    def of(cls, original: Schema, changed: Mapping[str, Merged | None]) -> "Recoding":
        """Recoding of the variables of a schema.

        Parameters
        ----------
        original
            Variables and levels before.
        changed
            By variable, the new levels of its labels; None: the variable is dropped.

        Raises
        ------
        MicrodataError
            If a variable is unknown, all are dropped, or a level has no place.
        """
        for name in changed:
            if name not in original.variables:
                raise unknown_variable(name, original.variables, "variable")
        variables, levels, codes = [], [], []
        for j, (name, labels) in enumerate(zip(original.variables, original.levels, strict=True)):
            if name not in changed:
                codes.append(np.arange(len(labels), dtype=np.int32))
            elif (one := changed[name]) is not None:
                codes.append(one.code(labels))
                labels = one.labels
            else:
                continue
            variables.append(j)
            levels.append(labels)
        if not variables:
            raise MicrodataError("every variable is dropped; keep at least one")
        schema = Schema(tuple(original.variables[j] for j in variables), tuple(levels))
        in_order = {name: changed[name] for name in original.variables if name in changed}
        return cls(original, schema, tuple(variables), tuple(codes), in_order)

    @classmethod
    def from_file(cls, path: str | PathLike, original: Schema) -> "Recoding":
        """Read a recoding that `to_file` wrote, for records of this year or another.

        Parameters
        ----------
        path
            File with the columns variable, level and becomes: one row for each label, or for a
            range of numbers ("<25", "25 to <50", ">=85"), which applies to numbers without a row of
            their own. A row that names only a variable drops this variable. The new levels are in
            the order in which they come. Variables without a row stay as they are.
        original
            Variables and levels of the records that are to be recoded.

        Raises
        ------
        MicrodataError
            If it cannot be read, names an unknown variable, has a cell that is empty, a label
            twice, ranges that overlap, or a variable that is dropped and has levels; or if a level
            of a variable that it recodes has no row.
        """
        with opened(path) as source:
            frame, lines = read_frame(source, COLUMNS)
        with errors_in(source, lines):
            return cls.of(original, _read_rows(frame, original))

    def to_file(self, path: str | PathLike) -> None:
        """Write the recoding as a table that a person can read and edit; see `from_file`.

        Its owner alone may read the file: it has labels of the sample.
        """
        rows = [
            row for name, one in self.changed.items()
            for row in ([(name, "", "")] if one is None else one.rows())
        ]  # fmt: skip
        write_frame(pd.DataFrame(rows, columns=list(COLUMNS), dtype=object), path, private=True)

    def then(self, other: "Recoding") -> "Recoding":
        """Return the recoding that applies this one and then another one to its result."""
        changed = dict(self.changed)
        for name, one in other.changed.items():
            before = changed.get(name)
            changed[name] = before.then(one) if before is not None and one is not None else one
        return Recoding.of(self.original, changed)

    def coarser(self, table: Records) -> Records:
        """The records recoded."""
        return table.recoded(self.schema, self.coarser_codes(table.codes))

    def coarser_codes(self, codes: np.ndarray) -> np.ndarray:
        """The new codes (m, J') of old ones (m, J), -1 where missing."""
        pairs = zip(self.variables, self.codes, strict=True)
        return np.stack([np.append(of, np.int32(-1))[codes[:, j]] for j, of in pairs], axis=1)

    def without(self, dropped: np.ndarray) -> "Recoding":
        """The same without some of its variables, dropped where this (J',) is true; not all."""
        kept, names = np.flatnonzero(~dropped), self.schema.variables
        schema = Schema(tuple(names[j] for j in kept), tuple(self.schema.levels[j] for j in kept))
        return dataclasses.replace(
            self, schema=schema, variables=tuple(self.variables[j] for j in kept),
            codes=tuple(self.codes[j] for j in kept),
            changed={**self.changed, **dict.fromkeys(names[j] for j in np.flatnonzero(dropped))},
        )  # fmt: skip

    def finer(self, cell: np.ndarray) -> np.ndarray:
        """All finer cells (m, J) of a coarser one (J',)."""
        choices = self._choices(cell)
        return np.stack(np.meshgrid(*choices, indexing="ij"), axis=-1).reshape(-1, len(choices))

    def num_finer(self, cell: np.ndarray) -> int:
        """How many these are."""
        return math.prod(map(len, self._choices(cell)))

    def _choices(self, cell) -> list[np.ndarray]:
        """For each finer variable, its codes in a coarser cell; all, where a value is missing."""
        choices = [np.arange(size) for size in self.original.num_levels]
        for code, j, of in zip(cell, self.variables, self.codes, strict=True):
            if code >= 0:
                choices[j] = np.flatnonzero(of == code)
        return choices

    def groups(self) -> np.ndarray:
        """For each row of level probabilities, one of those merged with it; -1: it is dropped."""
        num_levels = self.original.num_levels
        groups, first = np.full(sum(num_levels), -1), np.cumsum([0, *num_levels])
        for j, of in zip(self.variables, self.codes, strict=True):
            new, leader = np.unique(of, return_index=True)
            groups[first[j] : first[j + 1]] = first[j] + leader[np.searchsorted(new, of)]
        return groups


def variables_with_ranges(path: str | PathLike) -> tuple[str, ...]:
    """Variables for which a file of recodings has rows with ranges of numbers.

    Raises
    ------
    MicrodataError
        If it cannot be read.
    """
    with opened(path) as source:
        frame, _ = read_frame(source, COLUMNS)
    ranged = [
        text_of(name)
        for name, level in zip(frame["variable"], frame["level"], strict=True)
        if isinstance(level, str) and _RANGE.match(level) and read_range(level) is not None
    ]
    return tuple(dict.fromkeys(ranged))


def digits(number: float) -> str:
    """A number as the text of a range has it: all its digits, without an exponent."""
    return np.format_float_positional(number, trim="-")


def level_names(
    labels: Sequence[Label], groups: Sequence[Sequence[int]], names: Names | None = None
) -> list[Label]:
    """Name the levels that are left where some were merged, whoever merged them.

    Parameters
    ----------
    labels
        Levels before.
    groups
        Codes that are one level, of each level that is left.
    names
        Names of groups that have one.

    Returns
    -------
    left
        Of a level that was not merged its label, of others the name of the group; of adjacent
        numbers or ranges one like "15 to 34" or "65+"; or else "a + b".
    """
    own, given = [tuple(sorted(group)) for group in groups], names or {}

    def plain(group):
        return " + ".join(text_of(labels[code]) for code in group)

    def name(group):
        merged = [labels[code] for code in group]
        adjacent = group[-1] - group[0] == len(group) - 1 and are_ordered(merged)
        return given.get(group) or (name_of_run(merged) if adjacent else plain(group))

    for named in (name, plain):
        left = [labels[group[0]] if len(group) == 1 else named(group) for group in own]
        # A level may have that name already.
        if first_repeated(map(text_of, left)) is None:
            break
    return left


def _read_rows(frame: pd.DataFrame, original: Schema) -> dict[str, Merged | None]:
    """Read the recoding of each variable that a file names; None: it is dropped."""
    said: dict[str, dict[str, str] | None] = {}
    ranges: dict[str, dict[str, Interval]] = {}
    for row, cells in enumerate(zip(*(frame[column] for column in COLUMNS), strict=True)):
        name, level, becomes = ("" if pd.isna(x) else text_of(plain_label(x)) for x in cells)
        drops = not level and not becomes

        def refuse(problem, column, row=row):
            raise MicrodataError(problem, row=row, column=column)

        if not name:
            refuse("the cell is empty; name a variable", "variable")
        if name not in original.variables:
            # What is not there need not be dropped.
            if drops:
                continue
            names = ", ".join(original.variables)
            refuse(f"unknown variable {quoted(name)}; the variables are {names}", "variable")
        known = said.setdefault(name, None if drops else {})
        if drops != (known is None):
            refuse(
                f"{quoted(name)} has a row that drops it, and rows for its levels; keep one or the "
                "other",
                "variable",
            )
        if known is None:
            continue
        for cell, column in ((level, "level"), (becomes, "becomes")):
            if not cell:
                refuse("the cell is empty; name a level (to drop the variable, leave both of its "
                       "levels empty)", column)  # fmt: skip
        if level in known:
            refuse(f"level {quoted(level)} of {quoted(name)} has two rows; keep one", "level")
        if _RANGE.match(level) and (new := read_range(level)) is not None:
            for other, old in ranges.setdefault(name, {}).items():
                if new.low <= old.high and old.low <= new.high:
                    refuse(
                        f"{quoted(level)} and {quoted(other)} of {quoted(name)} overlap; each "
                        "number must be in one of them only"
                    , "level")  # fmt: skip
            ranges[name][level] = new
        known[level] = becomes
    found: dict[str, Merged | None] = {}
    for name, levels in said.items():
        if levels is None:
            found[name] = None
            continue
        labels = original.levels[original.variables.index(name)]
        code = {text: k for k, text in enumerate(dict.fromkeys(levels.values()))}
        left = in_type_of(list(labels), list(code))
        of = {text: code[new] for text, new in levels.items()}
        within = {text: of[text] for text in ranges.get(name, ())}
        found[name] = one = Merged.of(name, list(of), of.values(), left, within)
        if lacking := [label for label in labels if one.find(label) is None]:
            raise MicrodataError(
                f"level {quoted(lacking[0])} of {quoted(name)} has no row; add a row that says "
                "what it becomes"
            )
    return found
