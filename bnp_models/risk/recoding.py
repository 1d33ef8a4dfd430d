"""Global recodings of a sample: levels merged, variables dropped, and what information that costs.

The loss is in bits a record: the entropy of a variable's distribution in the sample before, less
that after, summed over the variables with their importance. It is the mean over the records of
log2 of the share of the records that have the new level over that of the old one, so that the loss
of a suppressed value, log2 of one over its share, adds up with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from bnp_models.data.hierarchies import Hierarchies, Partition, members_of
from bnp_models.data.label_numbers import are_ordered
from bnp_models.data.microdata import Microdata
from bnp_models.data.recoding import Merged, Names, Recoding, level_names
from bnp_models.data.schema import Schema, text_of

Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""Codes of a variable that are one level, in the order of the first of each."""


@dataclass(frozen=True, eq=False)
class Recoded:
    """Recoded form of a sample."""

    table: Microdata
    """The sample as it was."""
    groups: tuple[Groups | None, ...]
    """Of each variable, codes that are one level; None: it is dropped."""
    hierarchies: Hierarchies = ()
    """Groups with names, of some variables."""

    @classmethod
    def unchanged(cls, table: Microdata, hierarchies: Hierarchies = ()) -> "Recoded":
        """The sample itself."""
        groups = tuple(tuple((c,) for c in range(k)) for k in table.schema.num_levels)
        return cls(table, groups, hierarchies)

    @classmethod
    def by(cls, coarsening: Recoding, table: Microdata) -> "Recoded":
        """The sample after a coarsening."""
        groups: list[Groups | None] = [None] * table.num_variables
        for j, of in zip(coarsening.variables, coarsening.codes, strict=True):
            groups[j] = tuple(members_of(of.tolist()))
        return cls(table, tuple(groups))

    @property
    def kept(self) -> list[int]:
        """Variables that are not dropped."""
        return [j for j, groups in enumerate(self.groups) if groups is not None]

    @cached_property
    def coarsening(self) -> Recoding:
        """The same as a `Recoding`."""
        schema = self.table.schema
        changed: dict[str, Merged | None] = {}
        for j, (name, labels) in enumerate(zip(schema.variables, schema.levels, strict=True)):
            groups = self.groups[j]
            if groups is None:
                changed[name] = None
            elif len(groups) < len(labels):
                changed[name] = Merged.together(name, labels, groups, self._names.get(j))
        return Recoding.of(schema, changed)

    @cached_property
    def records(self) -> Microdata:
        """The recoded records."""
        table = self.coarsening.coarser(self.table)
        assert isinstance(table, Microdata)
        return table

    def label(self, j: int, group: Sequence[int]) -> str:
        """Label of one of the groups of a variable."""
        groups = self.groups[j] or ()
        names = level_names(self.table.schema.levels[j], groups, self._names.get(j))
        return text_of(names[groups.index(tuple(group))])

    @cached_property
    def _names(self) -> dict[int, Names]:
        """Names of the groups of the variables that have any."""
        schema = self.table.schema
        columns = [(schema.variables.index(name), of) for name, of in self.hierarchies]
        return {j: hierarchy.names(schema.levels[j]) for j, hierarchy in columns}

    @cached_property
    def _layers(self) -> dict[int, list[Partition]]:
        """By variable, the group of each level in every layer of its hierarchy."""
        schema = self.table.schema
        return {
            schema.variables.index(name): hierarchy.partitions(
                schema.levels[schema.variables.index(name)]
            )
            for name, hierarchy in self.hierarchies
        }

    @property
    def hierarchies_left(self) -> Hierarchies:
        """Hierarchies of the levels that are left."""
        schema, left = self.table.schema, []
        for name, hierarchy in self.hierarchies:
            j = schema.variables.index(name)
            if self.groups[j] is not None:
                members = [[schema.levels[j][code] for code in g] for g in self.groups[j] or ()]
                labels = self.coarsening.schema.levels[self.kept.index(j)]
                left.append((name, hierarchy.merged(labels, members)))
        return tuple(left)

    @cached_property
    def _counts(self) -> list[np.ndarray]:
        """Of each variable, records with each of its levels."""
        sizes = self.table.schema.num_levels
        return [np.bincount(self.table.codes[:, j], minlength=k) for j, k in enumerate(sizes)]

    def number(self, j: int, group: Sequence[int]) -> int:
        """Records with one of these codes of a variable."""
        return int(self._counts[j][list(group)].sum())

    def loss(self, importance: np.ndarray) -> float:
        """Bits a record that were lost, given the importance of each variable (J,)."""
        total = 0.0
        for j, groups in enumerate(self.groups):
            every = (tuple(range(self.table.schema.num_levels[j])),)
            for group in groups or every:
                counts = self._counts[j][list(group)]
                counts = counts[counts > 0]
                total += importance[j] * float(counts @ np.log2(counts.sum() / counts))
        return total / self.table.n

    def costs(self, importance: np.ndarray) -> np.ndarray:
        """Bits (n, J') that suppression of each value of the variables kept loses."""
        columns = []
        for j in self.kept:
            bits = np.zeros(self.table.schema.num_levels[j])
            for group in self.groups[j] or ():
                number = self.number(j, group)
                bits[list(group)] = np.log2(self.table.n / number) if number else 0
            columns.append(importance[j] * bits[self.table.codes[:, j]])
        return np.stack(columns, axis=1)

    def dropping(self, j: int) -> "Recoded":
        """The same without a variable."""
        return replace(self, groups=(*self.groups[:j], None, *self.groups[j + 1 :]))

    def merging(self, j: int, codes: Sequence[int]) -> "Recoded":
        """The same with the levels of a variable that have these codes as one."""
        groups = self.groups[j] or ()
        rest = [group for group in groups if not set(group) & set(codes)]
        new = tuple(sorted([*rest, tuple(sorted(codes))]))
        return replace(self, groups=(*self.groups[:j], new, *self.groups[j + 1 :]))

    def steps(self, ordered: np.ndarray) -> Iterator[tuple[int, list[Groups] | None, "Recoded"]]:
        """Yield each next step: the variable, the levels merged (None: it is dropped), the result.

        The levels of a variable with a hierarchy are merged to the next larger groups, all at once.
        Of others adjacent levels are merged where they are `ordered` (J,), else the rarest with
        each; levels that no record has go with a neighbour, or are left.
        """
        for j in self.kept:
            if len(self.kept) > 1:
                yield j, None, self.dropping(j)
            groups = self.groups[j] or ()
            seen = [group for group in groups if self.number(j, group)]
            if len(seen) < 3:
                continue
            if j in self._layers:
                if found := self._next_layer(j):
                    yield j, *found
            elif ordered[j]:
                for low, high in zip(seen[:-1], seen[1:], strict=True):
                    between = tuple(g for g in groups if low <= g <= high)
                    yield j, [between], self.merging(j, [c for g in between for c in g])
            else:
                rarest = min(seen, key=lambda group: self.number(j, group))
                for group in seen:
                    if group != rarest:
                        yield j, [(rarest, group)], self.merging(j, [*rarest, *group])

    def _next_layer(self, j: int) -> tuple[list[Groups], "Recoded"] | None:
        """The groups that levels are merged to next, and the result; None: it would be one."""
        for partition in self._layers[j]:
            merges: list[Groups] = []
            merged = self
            for codes in members_of(partition):
                parts = tuple(g for g in merged.groups[j] or () if set(g) & set(codes))
                if len(parts) > 1:
                    merges.append(parts)
                    merged = merged.merging(j, [code for part in parts for code in part])
            if merges:
                left = [g for g in merged.groups[j] or () if self.number(j, g)]
                return (merges, merged) if len(left) > 1 else None
        return None


def ordered_variables(schema: Schema, named: Sequence[str] = ()) -> np.ndarray:
    """Which variables (J,) have levels in order: those named, and those of numbers."""
    return np.array(
        [
            name in named or are_ordered(labels)
            for name, labels in zip(schema.variables, schema.levels, strict=True)
        ]
    )


def importance_of(schema: Schema, given: Mapping[str, float]) -> np.ndarray:
    """Importance (J,) of each variable, 1 where none is given."""
    return np.array([float(given.get(name, 1)) for name in schema.variables])
