"""Samples as the options say: read, recoded, with weights, and with what they keep."""

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bnp_models.cli.folder import located, reading_of
from bnp_models.cli.options import UsageError
from bnp_models.cli.parts import Data, Fit, HouseholdColumns, Names
from bnp_models.data.bins import Bins, bin_columns
from bnp_models.data.folders import read_contingency_table
from bnp_models.data.hierarchies import as_hierarchies
from bnp_models.data.households import Households, read_households
from bnp_models.data.identifying import identifying_variables, values_of_one
from bnp_models.data.merging import merge_levels
from bnp_models.data.messages import listed
from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.reading import columns_of_file, read_levels, read_microdata
from bnp_models.data.recoding import Merged, Recoding
from bnp_models.data.schema import Label, MicrodataError, unknown_variable
from bnp_models.data.source import Source
from bnp_models.data.weight_classes import weighted_microdata
from bnp_models.data.weights import read_weights
from bnp_models.models.model import Model
from bnp_models.rules.census import find_head
from bnp_models.rules.reading import read_rules
from bnp_models.rules.roles import Roles, read_roles
from bnp_models.rules.rules import Rules
from bnp_models.zeros.settled import (
    NOT_APPLICABLE,
    empty_as_level,
    find_settled,
    in_words,
    keep_empty,
    ties,
)
from bnp_models.zeros.structural_zeros import StructuralZeros, read_conditions

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Changes:
    """What became of the levels of a sample before a model saw them."""

    original: Records
    """Records, or persons, as they were read."""
    recoding: Recoding
    """What became of their variables."""

    @property
    def all(self) -> dict[str, Merged]:
        """Bins and merged levels by variable."""
        return {name: of for name, of in self.recoding.changed.items() if of is not None}

    @property
    def bins(self) -> dict[str, Bins]:
        """Bins of the variables that have any."""
        return {name: of for name, of in self.all.items() if isinstance(of, Bins)}

    @property
    def merged(self) -> dict[str, Merged]:
        """Levels of the variables of which some were merged."""
        return {name: of for name, of in self.all.items() if name not in self.bins}

    @property
    def dropped(self) -> list[str]:
        """Variables that were dropped."""
        return [name for name, of in self.recoding.changed.items() if of is None]

    def grouped(self, model: Model) -> Model:
        """A model whose groups are those of the levels that are left."""
        groups, levels = [], dict(zip(*self._levels, strict=True))
        for name, hierarchy in vars(model).get("groups", ()):
            if name in self.dropped:
                continue
            if name in self.merged:
                of = self.merged[name]
                members: list[list[Label]] = [[] for _ in of.labels]
                for label, code in zip(levels[name], of.code(levels[name]), strict=True):
                    members[code].append(label)
                hierarchy = hierarchy.merged(of.labels, members)
            groups.append((name, hierarchy))
        changed: dict[str, Any] = {"groups": tuple(groups)} if "groups" in vars(model) else {}
        return dataclasses.replace(model, **changed)

    @property
    def _levels(self) -> tuple[tuple[str, ...], tuple[tuple[Label, ...], ...]]:
        """Variables and levels as they were read."""
        return self.original.schema.variables, self.original.schema.levels

    def settings(self) -> dict[str, dict]:
        """What was changed, for run.json."""
        bins = {name: list(of.labels) for name, of in self.bins.items()}
        merged = {name: of.groups() for name, of in self.merged.items()}
        return {k: v for k, v in (("bins", bins), ("merged", merged)) if v}

    def as_released(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Columns of the sample's records with the values that were read where they have bins."""
        raw = self._read[[name for name in frame if name in self.bins]]
        return frame.assign(
            **{name: raw[name].where(raw[name].notna(), frame[name]) for name in raw}
        )

    @cached_property
    def _read(self) -> pd.DataFrame:
        """The records as they were read."""
        return self.original.to_frame()

    def values_of_one(self) -> dict[str, frozenset[str]]:
        """Texts of the labels that one record has, by variable."""
        found = values_of_one(self.original)
        return {name: texts for name, texts in found.items() if name not in self.dropped}


def read_sample(
    data: Data,
    fit: Fit,
    *,
    as_cells: bool = False,
    carry: Names = (),
    keep_missing: bool = False,
    tied: bool = False,
) -> tuple[Records, StructuralZeros | None, Changes]:
    """Coded sample, cells with counts or records, the conditions that it keeps, and changes.

    Parameters
    ----------
    data, fit
        What is read, and for which model.
    as_cells
        Whether cells with counts are read, of a folder.
    carry
        Columns that are copied and not modelled.
    keep_missing
        Whether missing values are levels.
    tied
        Whether the model takes structural zeros, which tie values that are missing by design.
    """
    table: Records
    reading = reading_of(data.text)
    if as_cells and data.weights is not None:
        raise UsageError(
            f"--weights: the {fit.model} model counts the cells of a folder; give one file, "
            "which can hold design weights"
        )
    weights, variables = weights_and_variables(data, carry)
    if as_cells:
        table = read_contingency_table(data.sample, variables, data.levels, reading)
    else:
        table = read_microdata(data.sample, variables, data.levels, reading)
    table = with_empty_levels(data, table, keep_missing, tied)
    if as_cells:
        with located(data):
            table.require_complete(f"the {fit.model} model of a folder")
    table, changes = recoded(data, table, fit.named_ordered, fit.groups)
    of_levels = None
    if tied and (keep_missing or data.text.empty_as_level or data.text.settles):
        with located(data):
            of_levels = ties(table, _settling(data, table))
    if weights is not None:
        assert isinstance(table, Microdata)
        table = weighted_microdata(table, weights)
    conditions = None
    if data.conditions is not None:
        conditions = read_conditions(data.conditions, table.schema)
    if of_levels is not None:
        conditions = _both(conditions, of_levels, table)
    if conditions is None:
        return table, None, changes
    try:
        # Compiled now: conditions that make too many boxes are refused before anything is done.
        _ = conditions.feasible, [group.impossible for group in conditions.groups]
        _ = conditions.equivalences
    except MicrodataError as error:
        raise error.in_file(data.conditions or data.sample) from None
    with located(data):
        conditions.require_feasible(table)
    return table, conditions, changes


def _both(given: StructuralZeros | None, more: StructuralZeros, table: Records) -> StructuralZeros:
    """Structural zeros that are given, and others, which leave a weight class free."""
    free = len(table.schema.variables) - more.conditions.shape[1]
    codes = np.pad(more.conditions, ((0, 0), (0, free)), constant_values=-1)
    if given is None:
        return StructuralZeros(table.schema, codes)
    rows = np.concatenate([given.rows, given.rows.max(initial=-1) + 1 + np.arange(len(codes))])
    return StructuralZeros(table.schema, np.concatenate([given.conditions, codes]), rows)


def with_empty_levels(
    data: Data, table: Records, keep_missing: bool = False, tied: bool = True
) -> Records:
    """Records in which missing values are levels, as far as was asked for.

    Where another column settles that values are missing, it is said, whatever is done with them,
    and also if they are not tied to it.

    Raises
    ------
    UsageError
        If --empty-as-level is given, and no column settles any missing value.
    """
    asked, named = data.text.empty_as_level or keep_missing, data.text.settles
    with located(data):
        settled = find_settled(table, named=named)
        made = settled if asked else find_settled(table, named=named, automatic=False)
    if asked and not settled and not keep_missing:
        raise UsageError(
            "--empty-as-level: no column settles where the values of another one are missing; "
            "leave it out, or write a label of your own into these cells"
        )
    variables = {one.variable for one in made}
    others = [one for one in settled if one.variable not in variables]
    for some, then in (
        (made, f"these values are the level {NOT_APPLICABLE!r}" + ("" if tied else
         ", but the model takes no structural zeros and may draw others there")),
        (others, "these values are taken as missing at random, which means that every record has a "
         "value; if these have none, say --empty-as-level, which makes them the level "
         f"{NOT_APPLICABLE!r}"),
    ):  # fmt: skip
        for sentence in in_words(table, some):
            _LOG.warning("%s: %s; %s", data.sample, sentence, then)
    table = empty_as_level(table, made)
    return keep_empty(table) if keep_missing else table


def _settling(data: Data, table: Records) -> list[tuple[str, str]]:
    """Pairs of --settles whose variables are left, and have the level that does not apply."""
    levels = dict(zip(table.schema.variables, table.schema.levels, strict=True))
    return [
        (name, other)
        for name, other in data.text.settles
        if name in levels and NOT_APPLICABLE in levels.get(other, ())
    ]


def read_household_sample(
    data: Data, fit: Fit, keep_missing: bool = False
) -> tuple[Households, Rules | None, Changes]:
    """Coded households, the rules that they keep, and changes of their persons' levels."""
    given = fit.households
    assert given.household is not None
    table = read_households(
        data.sample, given.household, given.household_variables or (), data.variables,
        data.levels, reading=reading_of(data.text),
    )  # fmt: skip
    with_levels = with_empty_levels(data, table.persons, keep_missing, tied=False)
    persons, changes = recoded(data, with_levels, fit.named_ordered, fit.groups, True)
    assert isinstance(persons, Microdata)
    roles = given_roles(given, persons)
    head = None if given.head == "no" else find_head(persons.schema, roles)
    if head is None and given.head == "yes":
        raise UsageError(
            "--head yes: no variable has a label such as Householder; name the variable and the "
            "label of the head with --roles"
        )
    with located(data):
        try:
            table = table.with_persons(persons, head)
        except MicrodataError:
            # Not exactly one in each household; rules that want it say so of which.
            if given.head == "yes":
                raise
            table = table.with_persons(persons)
    if given.rules is None:
        return table, None, changes
    rules = read_rules(given.rules, table, roles)
    read = {name.removeprefix("head_") for names in rules.variables for name in names}
    if both := sorted(read & changes.bins.keys()):
        raise UsageError(
            f"--bins: the rules use {both[0]!r}, and a value drawn within a bin could break a "
            "rule; do not put this variable into bins (--ordered may help)"
        )
    with located(data):
        rules.require_feasible(table)
    return table, rules, changes


def given_roles(given: HouseholdColumns, persons: Records) -> Roles | None:
    """Roles of labels that a table gives, None if none is given."""
    return None if given.roles is None else read_roles(given.roles, persons.schema)


def weights_and_variables(
    data: Data, carry: Names = ()
) -> tuple[np.ndarray | None, Sequence[str] | None]:
    """Design weights (n,) of the sample, if any are asked for, and the variables that are read."""
    variables: Sequence[str] | None = data.variables
    given = {"weights": data.weights, "identifiers": data.id}
    beside = {what: name for what, name in given.items() if name is not None}
    beside |= {f"carried {name}": name for name in carry}
    for what, name in beside.items():
        if variables is not None and name in variables:
            raise MicrodataError(
                f"the column of the {what} is no key variable; leave it out of --variables",
                file=data.sample,
                column=name,
            )
    reading = reading_of(data.text)
    if variables is None and beside:
        names = columns_of_file(data.sample, reading, tuple(map(str, beside.values())))
        for name in map(str, beside.values()):
            if name not in names:
                raise unknown_variable(name, names).in_file(data.sample)
        variables = [name for name in names if name not in beside.values()]
    weights = None if data.weights is None else read_weights(data.sample, data.weights, reading)
    return weights, variables


def recoded(
    data: Data,
    table: Records,
    ordered: Names = (),
    groups: Sequence[tuple[str, Source]] | None = None,
    of_households: bool = False,
) -> tuple[Records, Changes]:
    """Records of the sample, levels merged and in bins as was asked for, and what was changed.

    Raises
    ------
    MicrodataError
        If that cannot be done, or a column identifies records and was not asked for.
    """
    bins, top = dict(data.recoding.bins), dict(data.recoding.top_code)
    if both := sorted(bins.keys() & top.keys()):
        raise UsageError(
            f"--top-code: {both[0]!r} is also put into bins; leave it out of "
            "--top-code or of --bins"
        )
    path = data.recoding.recode_by
    by = {} if path is None else dict(Recoding.from_file(path, table.schema).changed)
    for name, asked in (("--bins", bins), ("--top-code", top)):
        if both := sorted(by.keys() & asked.keys()):
            raise UsageError(f"{name}: {both[0]!r} is recoded by {path}; leave it out of one")
    if of_households and None in by.values():
        raise UsageError(
            f"--recode-by: {path} drops a variable, and persons of households keep all; choose "
            "--variables"
        )
    with located(data):
        changed = Recoding.of(table.schema, by).coarser(table) if by else table
        given = {name: of for name, of in by.items() if of is not None}
        changed, merged = merge_levels(
            changed, top, data.recoding.merge_rare or 0, ordered=ordered,
            groups=as_hierarchies(groups or ()), but={*bins, *given},
        )  # fmt: skip
        merged = given | merged
        if only := [repr(name) for name, of in merged.items() if len(of.labels) == 1]:
            _LOG.warning(
                "%s: only one level is left of %s, so that it carries no information; merge fewer "
                "levels (--merge-rare, --top-code)", data.sample, listed(only),
            )  # fmt: skip
        changed, made = bin_columns(changed, bins)
        _refuse_identifying(data, changed, bins)
    dropped = dict.fromkeys(by.keys() - given.keys())
    return changed, Changes(table, Recoding.of(table.schema, {**dropped, **merged, **made}))


def _refuse_identifying(data: Data, table: Records, but: Iterable[str]) -> None:
    """Refuse a column that identifies records, unless it was asked for."""
    if data.allow_identifying or data.variables is not None:
        return
    declared = set() if data.levels is None else set(read_levels(data.levels))
    if not (found := identifying_variables(table, {*but, *declared})):
        return
    first, *others = found
    # With --variables nothing more is refused: what is left out by name has to be known at once.
    also = ""
    if others:
        names = listed(repr(one.variable) for one in others)
        also = f"; {names} {'is' if len(others) == 1 else 'are'} refused too"
    # It may be what records are to be told by.
    by_id = data.takes_id and data.id is None and first.alone == 1
    carried = f"; --id {first.variable} writes it with the results" if by_id else ""
    coarsest = min(found, key=lambda one: one.alone).variable
    raise MicrodataError(
        f"{first.why}{also}: an identifier is no key variable, and exact values tell who somebody "
        f"is. Choose --variables without {'them' if others else 'it'}, put numbers into bins "
        f"(--bins {coarsest}=20), merge rare levels (--merge-rare 10), or say --allow-identifying"
        f"{carried}",
        column=first.variable,
    )
