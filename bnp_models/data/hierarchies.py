"""Hierarchies of the levels of a variable: tables of levels, their groups, and larger groups."""

import hashlib
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TypeAlias

import pandas as pd

from bnp_models.data.messages import quoted
from bnp_models.data.schema import Label, MicrodataError, errors_in, plain_label, text_of
from bnp_models.data.source import opened
from bnp_models.data.text_files import AS_FOUND, layout_of, text_rows

Partition: TypeAlias = tuple[int, ...]
"""Group of each item, numbered from 0."""


@dataclass(frozen=True, repr=False)
class Hierarchy:
    """Groups of the levels of a variable, larger groups of these groups, and so on; hashable.

    Examples
    --------
    >>> codes = pd.DataFrame({"level": ["111", "112", "120"], "group": ["11", "11", "12"]})
    >>> Hierarchy.of(codes).groups_of(["112", "120"], 1)
    ['11', '12']
    """

    rows: tuple[tuple[str, ...], ...]
    """For each level, its text, its group, the larger group of this group, and so on."""

    def __post_init__(self) -> None:
        levels: set[str] = set()
        above: list[dict[str, str]] = [{} for _ in range(self.num_layers)]
        for index, row in enumerate(self.rows):
            if row[0] in levels:
                raise MicrodataError(f"level {quoted(row[0])} has two rows; keep one", row=index)
            levels.add(row[0])
            for inner, outer, larger in zip(row[1:], row[2:], above, strict=False):
                if larger.setdefault(inner, outer) != outer:
                    raise MicrodataError(
                        f"group {quoted(inner)} lies in {quoted(larger[inner])} and in "
                        f"{quoted(outer)}; put it into one",
                        row=index,
                    )

    @classmethod
    def of(cls, given: "HierarchyLike") -> "Hierarchy":
        """Hierarchy of a table: the first column has the levels, the next their groups, and so on.

        Parameters
        ----------
        given
            A frame, or a CSV file whose header begins with "level".

        Raises
        ------
        MicrodataError
            If it cannot be read, has one column only, an empty cell, a level twice, or a group that
            lies in two larger ones.
        """
        if isinstance(given, Hierarchy):
            return given
        if isinstance(given, pd.DataFrame):
            return cls(_texts(list(map(str, given.columns)), given.to_numpy(dtype=object).tolist()))
        lines, rows = [], []
        with opened(given) as source:
            layout = layout_of(source, AS_FOUND)
            header = layout.names
            for line, cells in itertools.islice(text_rows(source, AS_FOUND), 1, None):
                if cells:
                    lines.append(line)
                    known = len(cells) in layout.widths
                    rows.append([cells[j] for j in layout.positions] if known else cells)
        with errors_in(source, lines):
            if header[0] != "level":
                raise MicrodataError(
                    f"the header begins with {quoted(header[0])} and not with level; write "
                    "level,group[,group..]"
                )
            return cls(_texts(header, rows))

    def __repr__(self) -> str:
        """Return the size of the hierarchy, and a digest that distinguishes it from others."""
        digest = hashlib.sha256(repr(self.rows).encode()).hexdigest()[:16]
        return f"Hierarchy({len(self.rows)} levels, {self.num_layers} layers, {digest})"

    @property
    def num_layers(self) -> int:
        """Number of layers of groups above the levels."""
        return len(self.rows[0]) - 1

    def groups_of(self, labels: Sequence[Label], layer: int) -> list[str]:
        """Name of the group of each level, in the layer of this number, from 1 on.

        Raises
        ------
        MicrodataError
            If a level is not in the table.
        """
        known, texts = {row[0]: row for row in self.rows}, [text_of(plain_label(x)) for x in labels]
        for text in texts:
            if text not in known:
                raise MicrodataError(
                    f"level {quoted(text)} has no row in the table of its groups; add one"
                )
        return [known[text][layer] for text in texts]

    def partitions(self, labels: Sequence[Label]) -> list[Partition]:
        """The group of each level in every layer, from the lowest up; all groups have a level.

        Raises
        ------
        MicrodataError
            If a level is not in the table.
        """
        layers = range(1, self.num_layers + 1)
        return [numbered(self.groups_of(labels, layer)) for layer in layers]

    def names(self, labels: Sequence[Label]) -> dict[tuple[int, ...], str]:
        """Names of the groups of levels by their codes, where no two have the same.

        Of names for the same levels, it is that of the smaller group.

        Raises
        ------
        MicrodataError
            If a level is not in the table.
        """
        members: dict[str, set[tuple[int, ...]]] = {
            text_of(label): {(code,)} for code, label in enumerate(labels)
        }
        for layer in range(1, self.num_layers + 1):
            groups = self.groups_of(labels, layer)
            own = members_of(numbered(groups))
            for name, codes in zip(dict.fromkeys(groups), own, strict=True):
                members.setdefault(name, set()).add(codes)
        alone = [(codes.pop(), name) for name, codes in members.items() if len(codes) == 1]
        return dict(reversed(alone))

    def tree(self, labels: Sequence[Label]) -> tuple[Partition, ...]:
        """Groups layer after layer: those of the levels, then those of the groups below.

        Layers that say nothing more are left out: of groups of one level each, or of one group.

        Raises
        ------
        MicrodataError
            If a level is not in the table.
        """
        layers, below = [], numbered(range(len(labels)))
        for groups in self.partitions(labels):
            number = max(groups) + 1
            if number == max(below) + 1 or number == 1:
                continue
            of_below = dict(zip(below, groups, strict=True))
            layers.append(tuple(of_below[k] for k in range(len(of_below))))
            below = groups
        return tuple(layers)

    def merged(self, labels: Sequence[Label], members: Sequence[Sequence[Label]]) -> "Hierarchy":
        """The hierarchy of levels each of which is one level, or several merged.

        Levels merged across groups are a group of their own, up to the layer that has them all.

        Parameters
        ----------
        labels, members
            Labels of the new levels, and the levels that each has become one of.
        """
        rows = []
        for label, own in zip(labels, members, strict=True):
            row = [text_of(plain_label(label))]
            for layer in range(1, self.num_layers + 1):
                groups = set(self.groups_of(own, layer))
                row.append(groups.pop() if len(groups) == 1 else f"{row[0]} (merged)")
            rows.append(tuple(row))
        return Hierarchy(tuple(rows))


HierarchyLike: TypeAlias = Hierarchy | pd.DataFrame | str | PathLike
"""A hierarchy, or a table of it."""

Hierarchies: TypeAlias = tuple[tuple[str, Hierarchy], ...]
"""Hierarchies of some variables, by name."""


def as_hierarchies(
    given: Mapping[str, HierarchyLike] | Iterable[tuple[str, HierarchyLike]],
) -> Hierarchies:
    """Hierarchies of variables by name: frames, or files, or what they have become.

    Raises
    ------
    MicrodataError
        As `Hierarchy.of`; if a variable has two.
    """
    pairs = given.items() if isinstance(given, Mapping) else given
    found: dict[str, Hierarchy] = {}
    for name, table in pairs:
        if name in found:
            raise MicrodataError("has two tables of groups; give one", column=name)
        found[name] = Hierarchy.of(table)
    return tuple(found.items())


def numbered(groups: Iterable[Hashable]) -> Partition:
    """Numbers of groups, in the order in which they come."""
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(group, len(numbers)) for group in groups)


def members_of(partition: Partition) -> list[tuple[int, ...]]:
    """Codes of each group, in the order of the groups."""
    groups = range(max(partition) + 1)
    return [tuple(c for c, group in enumerate(partition) if group == g) for g in groups]


def _texts(header: list[str], rows: Sequence[Sequence[object]]) -> tuple[tuple[str, ...], ...]:
    """Rows of texts."""
    if len(header) < 2:
        raise MicrodataError("has no column of groups; write level,group[,group..]")
    if not rows:
        raise MicrodataError("has no level; write one level in each row")
    for index, row in enumerate(rows):
        if len(row) != len(header):
            raise MicrodataError(f"{len(row)} cells but the header has {len(header)}", row=index)
        for name, cell in zip(header, row, strict=True):
            if pd.isna(cell) or cell == "":
                what = "level" if name == header[0] else "group"
                raise MicrodataError(f"the cell is empty; name a {what}", row=index, column=name)
    return tuple(tuple(text_of(plain_label(cell)) for cell in row) for row in rows)
