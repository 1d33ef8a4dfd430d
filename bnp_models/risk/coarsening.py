"""Coarser keys: variables dropped, levels merged, levels replaced by their groups."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from bnp_models.data.hierarchies import Hierarchies, Hierarchy, numbered
from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.messages import in_quotes, quoted
from bnp_models.data.microdata import Records
from bnp_models.data.recoding import Merged, Recoding
from bnp_models.data.schema import MicrodataError, Schema, text_of, unknown_variable
from bnp_models.zeros.structural_zeros import StructuralZeros

MAX_CELLS = 2**16
"""Largest number of feasible cells that are listed for one coarsening."""


def parse_coarsening(text: str, schema: Schema, hierarchies: Hierarchies = ()) -> Recoding:
    """Read a coarsening such as "drop:race" or "merge:age=0-14+15-24;group:occupation".

    Parameters
    ----------
    text
        Statements separated by semicolons, which are all applied: "drop:A,B" leaves these variables
        out, "keep:A,B" leaves all others out, "merge:A=X+Y" makes one level of several, "group:A"
        replaces the levels of a variable by their groups, and "group:A=2" by the groups of these
        groups. Names and labels with a comma, semicolon or plus sign may be in double quotes:
        'drop:"level, highest"'.
    schema
        Of the records.
    hierarchies
        Groups of the levels of variables.

    Raises
    ------
    MicrodataError
        If a statement has another form, names an unknown variable or level, drops a variable that
        is dropped already, drops all variables, merges fewer than two levels, or names groups of a
        variable that has no groups or fewer layers of groups.
    """
    dropped: set[str] = set()
    merged: dict[str, list[list[int]]] = {}
    grouped: dict[str, list[str]] = {}
    for statement in map(str.strip, _parts(text, ";", schema)):
        kind, _, what = statement.partition(":")
        if kind in ("drop", "keep") and what:
            names = {_known(name.strip(), schema) for name in _parts(what, ",", schema)}
            dropped |= names if kind == "drop" else set(schema.variables) - names
        elif kind == "merge" and "=" in what:
            name, given = _name_and_levels(what.strip(), schema)
            merged.setdefault(name, []).append(_codes_of(name, given, schema))
        elif kind == "group" and what:
            name, _, layer = what.partition("=")
            name = _known(name.strip(), schema)
            grouped[name] = _groups_of(name, layer.strip() or "1", schema, dict(hierarchies))
        else:
            raise MicrodataError(
                f"{quoted(statement)} is not a coarsening; write drop:VARIABLE, keep:VARIABLES, "
                "merge:VARIABLE=A+B or group:VARIABLE, with names and labels that hold ; or , in "
                "double quotes"
            )
    return coarsening_of(dropped, merged, schema, grouped, hierarchies)


def keep_variables(names: Sequence[str], schema: Schema) -> Recoding:
    """Recoding that keeps these variables and drops all others.

    Raises
    ------
    MicrodataError
        If a variable is unknown, or no variable is named.
    """
    kept = {_known(name, schema) for name in names}
    return coarsening_of(set(schema.variables) - kept, {}, schema)


def single_drops(table: Records, conditions: StructuralZeros | None) -> dict[str, Recoding]:
    """Coarsenings that each drop one variable; those with too many cells to list are left out."""
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


def household_drops(schema: HouseholdSchema) -> dict[str, Recoding]:
    """Coarsenings of households that each drop one variable.

    The variable that is the number of persons is left out, because their rows tell it, and so is
    the only variable of persons.
    """
    own = schema.personal
    names = [name for name in schema.table.variables if name != schema.size_variable]
    return {
        f"drop:{name}": coarsening_of({name}, {}, schema.table)
        for name in names if own != (name,)
    }  # fmt: skip


def require_listable(
    coarsenings: Mapping[str, Recoding], table: Records, conditions: StructuralZeros | None
) -> None:
    """Refuse coarsenings for which more than `MAX_CELLS` cells would be listed (structural zeros).

    Raises
    ------
    MicrodataError
        If there is one.
    """
    for text, coarsening in coarsenings.items():
        if conditions is not None and (size := _num_listed(coarsening, table)) > MAX_CELLS:
            raise MicrodataError(
                f"for {quoted(text)}, under structural zeros, {size:,} cells of the finer table "
                f"would have to be listed, which is more than {MAX_CELLS:,}; drop fewer variables, "
                "or fit a model to the coarser file itself"
            )


def _num_listed(coarsening: Recoding, table: Records) -> int:
    """Number of finer cells in the coarser cells that have one record."""
    cells = coarsening.coarser(table).tabulated
    uniques = cells.codes[cells.unique_cells]
    return sum(coarsening.num_finer(cell) for cell in uniques)


def hierarchies_of(model: object) -> Hierarchies:
    """Groups of the levels of a model's variables, if it has any."""
    return vars(model).get("groups", ())


def coarsening_of(
    dropped: set[str],
    merged: Mapping[str, Sequence[Sequence[int]]],
    schema: Schema,
    grouped: Mapping[str, Sequence[str]] | None = None,
    hierarchies: Hierarchies = (),
) -> Recoding:
    """Recoding that drops variables, merges groups of codes, or replaces levels by named groups.

    `grouped` gives, for each variable, the name of the group of each level.

    Raises
    ------
    MicrodataError
        If a variable is both dropped and recoded, or all variables are dropped.
    """
    grouped = grouped or {}
    if twice := sorted((dropped | merged.keys()) & grouped.keys()):
        raise MicrodataError(
            "the variable is dropped or has levels merged, and is also replaced by its groups; do "
            "only one of these",
            column=twice[0],
        )
    if both := sorted(dropped & merged.keys()):
        raise MicrodataError(
            "the variable is dropped and has levels merged; do only one of these", column=both[0]
        )
    changed: dict[str, Merged | None] = dict.fromkeys(dropped)
    for name, labels in zip(schema.variables, schema.levels, strict=True):
        if name in grouped:
            left = tuple(dict.fromkeys(grouped[name]))
            changed[name] = Merged.of(name, labels, numbered(grouped[name]), left)
        elif name in merged:
            names = dict(hierarchies)[name].names(labels) if name in dict(hierarchies) else {}
            groups = _joined(len(labels), merged[name])
            changed[name] = Merged.together(name, labels, groups, names)
    return Recoding.of(schema, changed)


def _parts(text: str, sign: str, schema: Schema) -> list[str]:
    """Parts of a text apart by a sign, which parts in double quotes, and whole names, may hold."""
    if text.partition(":")[2].strip() in schema.variables or text.strip() in schema.variables:
        return [text]
    if text.count('"') % 2:
        return text.split(sign)
    return re.split(rf'{sign}(?=(?:[^"]*"[^"]*")*[^"]*$)', text)


def _name_and_levels(text: str, schema: Schema) -> tuple[str, str]:
    """The variable before the "=" of a merge, and what is after it."""
    for name in sorted(schema.variables, key=len, reverse=True):
        for spelled in (name, in_quotes(name)):
            rest = text.removeprefix(spelled).lstrip()
            if text.startswith(spelled) and rest.startswith("="):
                return name, rest[1:]
    name, _, given = text.partition("=")
    return _known(name.strip(), schema), given


def _known(name: str, schema: Schema) -> str:
    """The name, if it is a variable's."""
    name = next((known for known in schema.variables if name == in_quotes(known)), name)
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
            f"it has no groups of number {quoted(layer)}; the smallest groups have number 1, and "
            f"the largest {most}",
            column=name,
        )
    try:
        return hierarchies[name].groups_of(schema.levels[schema.variables.index(name)], int(layer))
    except MicrodataError as error:
        raise MicrodataError(error.problem, column=name) from None


def _codes_of(name: str, given: str, schema: Schema) -> list[int]:
    """Codes of the levels that are merged; "+" separates their labels."""
    labels = [text_of(label) for label in schema.levels[schema.variables.index(name)]]
    codes = _split_labels(given.strip(), labels)
    if codes is None:
        raise MicrodataError(
            f"{quoted(given)} is not a list of its levels with + between them; its levels are "
            f"{', '.join(labels)} (one that holds ; is written in double quotes)", column=name,
        )  # fmt: skip
    if len(set(codes)) < 2:
        raise MicrodataError("only one level is named; name two or more to merge", column=name)
    return codes


def _split_labels(text: str, labels: Sequence[str]) -> list[int] | None:
    """Codes of labels separated by "+", which labels may contain (75+); None: cannot be read."""
    for code, label in enumerate(labels):
        for spelled in (label, in_quotes(label)):
            if text == spelled:
                return [code]
            if text.startswith(spelled + "+"):
                rest = _split_labels(text[len(spelled) + 1 :].strip(), labels)
                if rest is not None:
                    return [code, *rest]
    return None


def _joined(number: int, groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Join groups that share a code; the order is that of the first code of each group."""
    leader = np.arange(number)
    for group in groups:
        together = np.isin(leader, leader[list(group)])
        leader[together] = leader[together].min()
    return [np.flatnonzero(leader == k).tolist() for k in np.unique(leader)]
