"""Global recodings of a sample (merged levels, dropped variables), and their information loss.

The loss is in bits a record. It is the entropy of a variable's distribution in the sample before
the recoding minus the entropy after it, summed over the variables with their importance as weights.
This equals the mean over the records of log2(share of the new level / share of the old level). The
loss of a suppressed value, log2(1 / its share), is on the same scale and can be added.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from bnp_models.data.hierarchies import Hierarchies, Partition, members_of
from bnp_models.data.label_numbers import are_ordered
from bnp_models.data.microdata import Microdata
from bnp_models.data.recoding import Merged, Names, Recoding, level_names
from bnp_models.data.schema import Schema, text_of
from bnp_models.risk.coarsening import parse_coarsening

Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""Groups of codes of a variable; each group is one level. The first codes give the order."""


class Step(NamedTuple):
    """One recoding of a variable."""

    variable: str
    levels: tuple[str, ...]
    """Labels of the merged levels; empty if the variable was dropped."""
    label: str | None
    """Label of the merged level; None if the variable was dropped."""
    loss: float
    """Information that was lost, in bits a record."""


@dataclass(frozen=True, eq=False)
class Recoded:
    """Recoded form of a sample."""

    table: Microdata
    """The original sample."""
    groups: tuple[Groups | None, ...]
    """For each variable, its groups of codes; None: it is dropped."""
    hierarchies: Hierarchies = ()
    """Groups with names, of some variables."""
    unmerged: Collection[str] = ()
    """Variables whose levels are never merged in the search."""
    needed: Collection[str] = ()
    """Variables of which the search keeps at least one, in addition to one of all."""

    @classmethod
    def unchanged(
        cls,
        table: Microdata,
        hierarchies: Hierarchies = (),
        unmerged: Collection[str] = (),
        needed: Collection[str] = (),
    ) -> "Recoded":
        """The sample itself."""
        groups = tuple(tuple((c,) for c in range(k)) for k in table.schema.num_levels)
        return cls(table, groups, hierarchies, unmerged, needed)

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
        """The recoding as a `Recoding`."""
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
    def numbered(self) -> Recoding:
        """The recoding with numbers for labels, which is made sooner."""
        schema, kept = self.table.schema, self.kept
        codes = tuple(self._levels[j] for j in kept)
        levels = tuple(tuple(range(int(of.max()) + 1)) for of in codes)
        left = Schema(tuple(schema.variables[j] for j in kept), levels)
        return Recoding(schema, left, tuple(kept), codes, {})

    @cached_property
    def _levels(self) -> list[np.ndarray]:
        """For each variable, the number of each code's group; 0 for all codes if it is dropped."""
        found = [np.zeros(size, np.int32) for size in self.table.schema.num_levels]
        for of, groups in zip(found, self.groups, strict=True):
            if groups is not None:
                codes = np.fromiter(itertools.chain.from_iterable(groups), int, len(of))
                of[codes] = np.repeat(np.arange(len(groups)), list(map(len, groups)))
        return found

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
        """For each variable, the group of each level in every layer of its hierarchy."""
        schema = self.table.schema
        return {
            schema.variables.index(name): hierarchy.partitions(
                schema.levels[schema.variables.index(name)]
            )
            for name, hierarchy in self.hierarchies
        }

    @property
    def hierarchies_left(self) -> Hierarchies:
        """Hierarchies of the levels of the recoded sample."""
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
        """For each variable, the number of records with each of its levels."""
        sizes = self.table.schema.num_levels
        return [np.bincount(self.table.codes[:, j], minlength=k) for j, k in enumerate(sizes)]

    def number(self, j: int, group: Sequence[int]) -> int:
        """Number of records that have one of these codes of a variable."""
        return int(self._counts[j][list(group)].sum())

    def loss(self, importance: np.ndarray) -> float:
        """Lost information in bits a record, given the importance of each variable (J,)."""
        total = 0.0
        for weight, counts, of in zip(importance, self._counts, self._levels, strict=True):
            together = np.bincount(of, counts)[of]
            seen = counts > 0
            total += weight * float(counts[seen] @ np.log2(together[seen] / counts[seen]))
        return total / self.table.n

    def costs(self, importance: np.ndarray) -> np.ndarray:
        """(n, J') bits that are lost if each value of the kept variables is suppressed."""
        columns = []
        for j in self.kept:
            bits = np.zeros(self.table.schema.num_levels[j])
            for group in self.groups[j] or ():
                number = self.number(j, group)
                bits[list(group)] = np.log2(self.table.n / number) if number else 0
            columns.append(importance[j] * bits[self.table.codes[:, j]])
        return np.stack(columns, axis=1)

    def dropping(self, j: int) -> "Recoded":
        """Return the recoding that also drops a variable."""
        return replace(self, groups=(*self.groups[:j], None, *self.groups[j + 1 :]))

    def merging(self, j: int, codes: Sequence[int]) -> "Recoded":
        """Return the recoding that also merges the levels of a variable with these codes."""
        groups = self.groups[j] or ()
        rest = [group for group in groups if not set(group) & set(codes)]
        new = tuple(sorted([*rest, tuple(sorted(codes))]))
        return replace(self, groups=(*self.groups[:j], new, *self.groups[j + 1 :]))

    def steps(self, ordered: np.ndarray) -> Iterator[tuple[int, list[Groups] | None, "Recoded"]]:
        """Yield each possible step: variable, merged levels (None: it is dropped), and the result.

        All levels of a variable with a hierarchy are merged to the next larger groups. For other
        variables, adjacent levels are merged if the variable is `ordered` (J,); otherwise the
        rarest level is merged with each other level. A level that no record has is merged together
        with a neighbour, or stays. Levels of `unmerged` variables are not merged.
        """
        names = self.table.schema.variables
        needed = [j for j in self.kept if names[j] in self.needed]
        for j in self.kept:
            if len(self.kept) > 1 and needed != [j]:
                yield j, None, self.dropping(j)
            groups = self.groups[j] or ()
            seen = [group for group in groups if self.number(j, group)]
            if len(seen) < 3 or names[j] in self.unmerged:
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
        """Next larger groups of the levels, and the result; None if one group would be left."""
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
    """(J,) bool: variables with ordered levels, which are named or have numbers as labels."""
    return np.array(
        [
            name in named or are_ordered(labels)
            for name, labels in zip(schema.variables, schema.levels, strict=True)
        ]
    )


def importance_of(schema: Schema, given: Mapping[str, float]) -> np.ndarray:
    """(J,) importance of each variable, 1 by default."""
    return np.array([float(given.get(name, 1)) for name in schema.variables])


def asked_steps(
    statements: Sequence[str], recoded: Recoded, weight: np.ndarray
) -> tuple[Recoded, list[Step]]:
    """The sample after the requested recodings, and the list of these."""
    if not statements:
        return recoded, []
    table = recoded.table
    coarsening = parse_coarsening(";".join(statements), table.schema, recoded.hierarchies)
    asked, made = Recoded.by(coarsening, table), []
    for j, groups in enumerate(asked.groups):
        for group in [None] if groups is None else [g for g in groups if len(g) > 1]:
            new = recoded.dropping(j) if group is None else recoded.merging(j, group)
            levels = None if group is None else tuple((code,) for code in group)
            made.append(_step(recoded, new, j, levels, weight))
            recoded = new
    return recoded, made


def cheapest(
    recoded: Recoded,
    weight: np.ndarray,
    found: Iterable[tuple[float, int, list[Groups] | None, Recoded]],
) -> tuple[Recoded, list[Step]] | None:
    """Choose the step with the smallest loss of information divided by its gain.

    The result is the recoding after the step, and what the step merged or dropped; None if there is
    no step.
    """
    loss = recoded.loss(weight)

    def price(one):
        return (one[-1].loss(weight) - loss) / max(one[0], 1e-300)

    best = min(found, key=price, default=None)
    if best is None:
        return None
    _, j, merges, candidate = best
    if merges is None:
        return candidate, [_step(recoded, candidate, j, None, weight)]
    made = []
    for levels in merges:
        merged = recoded.merging(j, [code for group in levels for code in group])
        made.append(_step(recoded, merged, j, levels, weight))
        recoded = merged
    return candidate, made


def _step(before: Recoded, after: Recoded, j: int, levels, weight: np.ndarray) -> Step:
    """Description of a step for variable j: merged groups of codes, or that it was dropped."""
    name, loss = before.table.schema.variables[j], after.loss(weight) - before.loss(weight)
    if levels is None:
        return Step(name, (), None, loss)
    names = tuple(before.label(j, group) for group in levels)
    together = sorted(code for group in levels for code in group)
    return Step(name, names, after.label(j, together), loss)
