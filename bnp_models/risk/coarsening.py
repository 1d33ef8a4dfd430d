"""Coarser keys: variables dropped, levels merged, groups in the place of levels."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bnp_models.data.hierarchies import Hierarchies, Hierarchy, numbered
from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Records
from bnp_models.data.schema import Label, MicrodataError, Schema, text_of, unknown_variable
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.zeros.structural_zeros import StructuralZeros

MAX_CELLS = 2**16
"""Feasible cells that are listed for one coarsening, at the most."""


class Coarsening(NamedTuple):
    """Coarser form of the records of a schema."""

    schema: Schema
    """Variables and levels that are left."""
    variables: tuple[int, ...]
    """Column of each of these variables among those of the finer schema."""
    codes: tuple[np.ndarray, ...]
    """For each of them, the new code of every old one."""

    def coarser(self, table: Records) -> Records:
        """The coarser form of complete records."""
        return table.recoded(self.schema, self.coarser_codes(table.codes))

    def coarser_codes(self, codes: np.ndarray) -> np.ndarray:
        """The coarser codes (m, J') of finer ones (m, J)."""
        columns = [of[codes[:, j]] for j, of in zip(self.variables, self.codes, strict=True)]
        return np.stack(columns, axis=1)

    def without(self, dropped: np.ndarray) -> "Coarsening":
        """The same without some of its variables, dropped where this (J',) is true; not all."""
        kept = np.flatnonzero(~dropped)
        schema = Schema(
            tuple(self.schema.variables[j] for j in kept),
            tuple(self.schema.levels[j] for j in kept),
        )
        variables = tuple(self.variables[j] for j in kept)
        return Coarsening(schema, variables, tuple(self.codes[j] for j in kept))

    def finer(self, cell: np.ndarray, num_levels: tuple[int, ...]) -> np.ndarray:
        """All finer cells (m, J) of a coarser one (J',)."""
        choices = self._choices(cell, num_levels)
        return np.stack(np.meshgrid(*choices, indexing="ij"), axis=-1).reshape(-1, len(choices))

    def num_finer(self, cell: np.ndarray, num_levels: tuple[int, ...]) -> int:
        """How many these are."""
        return math.prod(map(len, self._choices(cell, num_levels)))

    def _choices(self, cell, num_levels) -> list[np.ndarray]:
        """For each finer variable, its codes in a coarser cell."""
        choices = [np.arange(size) for size in num_levels]
        for code, j, of in zip(cell, self.variables, self.codes, strict=True):
            choices[j] = np.flatnonzero(of == code)
        return choices

    def groups(self, num_levels: tuple[int, ...]) -> np.ndarray:
        """For each row of level probabilities, one of those merged with it; -1: it is dropped."""
        groups = np.full(sum(num_levels), -1)
        first = first_rows(num_levels)
        for j, of in zip(self.variables, self.codes, strict=True):
            _, leader = np.unique(of, return_index=True)
            groups[first[j] : first[j] + num_levels[j]] = first[j] + leader[of]
        return groups


def parse_coarsening(text: str, schema: Schema, hierarchies: Hierarchies = ()) -> Coarsening:
    """Read a coarsening such as "drop:race" or "merge:age=0-14+15-24;group:occupation".

    Parameters
    ----------
    text
        Statements separated by semicolons, which are all applied: "drop:A,B" leaves these variables
        out, "keep:A,B" leaves all others out, "merge:A=X+Y" makes one level of several, "group:A"
        replaces the levels of a variable by their groups, and "group:A=2" by the groups of these
        groups.
    schema
        Of the records.
    hierarchies
        Groups of the levels of variables.

    Raises
    ------
    MicrodataError
        If a statement is of another form, names an unknown variable or level, drops a variable that
        is gone or all of them, merges fewer than two levels, or asks for groups of a variable that
        has none, or not so many layers of them.
    """
    dropped: set[str] = set()
    merged: dict[str, list[list[int]]] = {}
    grouped: dict[str, list[str]] = {}
    for statement in map(str.strip, text.split(";")):
        kind, _, what = statement.partition(":")
        if kind in ("drop", "keep") and what:
            names = {_known(name.strip(), schema) for name in what.split(",")}
            dropped |= names if kind == "drop" else set(schema.variables) - names
        elif kind == "merge" and "=" in what:
            name, _, given = what.partition("=")
            name = _known(name.strip(), schema)
            merged.setdefault(name, []).append(_codes_of(name, given, schema))
        elif kind == "group" and what:
            name, _, layer = what.partition("=")
            name = _known(name.strip(), schema)
            grouped[name] = _groups_of(name, layer.strip() or "1", schema, dict(hierarchies))
        else:
            raise MicrodataError(
                f"{quoted(statement)} is no coarsening; write drop:VARIABLE, keep:VARIABLES, "
                "merge:VARIABLE=A+B or group:VARIABLE"
            )
    return coarsening_of(dropped, merged, schema, grouped)


def keep_variables(names: Sequence[str], schema: Schema) -> Coarsening:
    """Coarsening to some of the variables.

    Raises
    ------
    MicrodataError
        If one is unknown, or there is none.
    """
    kept = {_known(name, schema) for name in names}
    return coarsening_of(set(schema.variables) - kept, {}, schema)


def single_drops(table: Records, conditions: StructuralZeros | None) -> dict[str, Coarsening]:
    """Coarsenings that drop one variable each, as far as their cells can be listed."""
    schema = table.schema
    found = {
        f"drop:{name}": coarsening_of({name}, {}, schema)
        for name in schema.variables
        if len(schema.variables) > 1
    }
    return {
        text: coarsening
        for text, coarsening in found.items()
        if conditions is None or _num_listed(coarsening, table) <= MAX_CELLS
    }


def require_listable(
    coarsenings: Mapping[str, Coarsening], table: Records, conditions: StructuralZeros | None
) -> None:
    """Refuse a coarsening that has more than `MAX_CELLS` cells to list, under structural zeros.

    Raises
    ------
    MicrodataError
        If there is one.
    """
    for text, coarsening in coarsenings.items():
        if conditions is not None and (size := _num_listed(coarsening, table)) > MAX_CELLS:
            raise MicrodataError(
                f"{quoted(text)} makes cells of {size:,} finer ones, more than {MAX_CELLS:,}, "
                "which are listed under structural zeros; drop fewer variables, or fit the "
                "coarser file by itself"
            )


def _num_listed(coarsening: Coarsening, table: Records) -> int:
    """Finer cells of the coarser cells with one record."""
    cells = coarsening.coarser(table).tabulated
    uniques = cells.codes[cells.unique_cells]
    return sum(coarsening.num_finer(cell, table.schema.num_levels) for cell in uniques)


def hierarchies_of(model: Any) -> Hierarchies:
    """Groups of the levels of a model's variables, if it has any."""
    return vars(model).get("groups", ())


def coarsening_of(
    dropped: set[str],
    merged: Mapping[str, Sequence[Sequence[int]]],
    schema: Schema,
    grouped: Mapping[str, Sequence[str]] | None = None,
) -> Coarsening:
    """Coarsening that drops variables, merges groups of codes of others, or names all groups.

    `grouped` has, by variable, the name of the group of each level.

    Raises
    ------
    MicrodataError
        If a variable is dropped that has levels merged, or all are dropped.
    """
    grouped = grouped or {}
    if twice := sorted((dropped | merged.keys()) & grouped.keys()):
        raise MicrodataError(
            "the variable is dropped or has levels merged, and is in groups", column=twice[0]
        )
    if both := sorted(dropped & merged.keys()):
        raise MicrodataError("the variable is dropped and has levels merged", column=both[0])
    variables = tuple(j for j, name in enumerate(schema.variables) if name not in dropped)
    if not variables:
        raise MicrodataError("every variable is dropped; leave one at least")
    levels: list[tuple[Label, ...]] = []
    codes: list[np.ndarray] = []
    for j in variables:
        name = schema.variables[j]
        labels, of = _merge(schema.levels[j], merged.get(name, []))
        if name in grouped:
            labels, of = tuple(dict.fromkeys(grouped[name])), np.array(numbered(grouped[name]))
        levels.append(labels)
        codes.append(of)
    left = tuple(schema.variables[j] for j in variables)
    return Coarsening(Schema(left, tuple(levels)), variables, tuple(codes))


def _known(name: str, schema: Schema) -> str:
    """The name, if it is a variable's."""
    if name not in schema.variables:
        raise unknown_variable(name, list(schema.variables))
    return name


def _groups_of(
    name: str, layer: str, schema: Schema, hierarchies: Mapping[str, Hierarchy]
) -> list[str]:
    """Name of the group of each level of a variable, in the layer of this number."""
    if name not in hierarchies:
        raise MicrodataError("has no groups; give them (--groups)", column=name)
    most = hierarchies[name].num_layers
    if not layer.isdecimal() or not 1 <= int(layer) <= most:
        raise MicrodataError(
            f"{quoted(layer)} is no layer of its groups; they are numbered from 1 to {most}",
            column=name,
        )
    try:
        return hierarchies[name].groups_of(schema.levels[schema.variables.index(name)], int(layer))
    except MicrodataError as error:
        raise MicrodataError(error.problem, column=name) from None


def _codes_of(name: str, given: str, schema: Schema) -> list[int]:
    """Codes of the levels that are merged, their labels apart by "+"."""
    labels = [text_of(label) for label in schema.levels[schema.variables.index(name)]]
    codes = _split_labels(given.strip(), labels)
    if codes is None:
        raise MicrodataError(
            f"{quoted(given)} are not some of its levels apart by +; its levels are "
            f"{', '.join(labels)}", column=name,
        )  # fmt: skip
    if len(set(codes)) < 2:
        raise MicrodataError("two different levels or more are merged", column=name)
    return codes


def _split_labels(text: str, labels: Sequence[str]) -> list[int] | None:
    """Codes of labels apart by "+", which a label may have too (75+); None: it cannot be read."""
    for code, label in enumerate(labels):
        if text == label:
            return [code]
        if text.startswith(label + "+"):
            rest = _split_labels(text[len(label) + 1 :].strip(), labels)
            if rest is not None:
                return [code, *rest]
    return None


def _merge(
    labels: Sequence[Label], groups: Sequence[Sequence[int]]
) -> tuple[tuple[Label, ...], np.ndarray]:
    """Labels that are left, and the new code of each old one; a merged level comes first of its."""
    leader = np.arange(len(labels))
    for group in groups:
        together = np.isin(leader, leader[list(group)])
        leader[together] = leader[together].min()
    kept = np.unique(leader)
    names: list[Label] = [
        labels[k] if (leader == k).sum() == 1
        else "+".join(text_of(labels[i]) for i in np.flatnonzero(leader == k).tolist())
        for k in kept.tolist()
    ]  # fmt: skip
    if any(isinstance(name, str) for name in names):
        names = [text_of(name) for name in names]
    return tuple(names), np.searchsorted(kept, leader)
