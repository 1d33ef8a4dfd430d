"""Samples as the options define them: records, recodings, weights, and structural zeros or
rules."""

import logging
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from bnp_models.cli.changes import Changes
from bnp_models.cli.column_checks import (
    refuse_design,
    refuse_identifying,
    tell_of_settled,
)
from bnp_models.cli.folder import columns_with, located, reading_of, variables_of
from bnp_models.cli.label_checks import by_variable, check_labels, say_kept, say_labels
from bnp_models.cli.options import UsageError
from bnp_models.cli.parts import Data, Fit, HouseholdColumns, HouseholdFit, Names
from bnp_models.data.bins import bin_columns, in_bins
from bnp_models.data.display import counted
from bnp_models.data.folders import read_contingency_table
from bnp_models.data.hierarchies import as_hierarchies
from bnp_models.data.household_checks import NUMBERED_ANEW
from bnp_models.data.household_columns import contradicted_sizes, household_columns
from bnp_models.data.household_weights import weighted_households, weights_of_households
from bnp_models.data.households import Households, read_households
from bnp_models.data.labels import as_numbers
from bnp_models.data.merging import merge_levels, own_levels
from bnp_models.data.messages import as_option, listed
from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.reading import read_microdata
from bnp_models.data.recoding import Merged, Recoding
from bnp_models.data.respelling import has_decimal_comma
from bnp_models.data.schema import Label, MicrodataError, errors_in, text_of
from bnp_models.data.source import Source
from bnp_models.data.weight_classes import DesignWeights, records_of, weighted_microdata
from bnp_models.data.weights import read_weights
from bnp_models.rules.census import OTHER_SEX, find_head
from bnp_models.rules.reading import SHIPPED, read_rules
from bnp_models.rules.roles import Roles, read_roles
from bnp_models.rules.rules import Rules
from bnp_models.zeros.edits import fewest_edits
from bnp_models.zeros.settled import (
    NOT_APPLICABLE,
    empty_as_level,
    find_settled,
    in_words,
    keep_empty,
    missing_by_design,
    not_applicable_zeros,
)
from bnp_models.zeros.structural_zeros import StructuralZeros, read_conditions
from bnp_models.zeros.suggestions import settled_conditions

_LOG = logging.getLogger(__name__)


def read_sample(
    data: Data,
    fit: Fit,
    *,
    as_cells: bool = False,
    beside: Mapping[str, str] | None = None,
    keep_missing: bool = False,
    takes_zeros: bool = False,
    draws_in_bins: bool = False,
    edit_seed: int | None = None,
) -> tuple[Records, StructuralZeros | None, Changes]:
    """Coded sample, cells with counts or records, the conditions that it keeps, and changes.

    Parameters
    ----------
    data, fit
        What is read, and for which model.
    as_cells
        Whether cells with counts are read, of a folder.
    beside
        Columns that are not modelled, by what they have.
    keep_missing
        Whether missing values are levels.
    takes_zeros
        Whether the model takes structural zeros, by which another column determines the values that
        are missing by design.
    draws_in_bins
        Whether numbers will be drawn within the bins of --bins.
    edit_seed
        Seed with which impossible records are edited; None: they are refused.
    """
    table: Records
    reading = reading_of(data)
    if as_cells and data.weights is not None:
        raise UsageError(
            f"--weights: cannot be used if SAMPLE is a folder, because the {fit.chosen_model} "
            "model then uses only cell counts; give one file instead"
        )
    weights, variables = weights_and_variables(data, beside)
    if as_cells:
        table = read_contingency_table(data.sample, variables, data.levels, reading)
    else:
        table = read_microdata(data.sample, variables, data.levels, reading)
    table = with_empty_levels(data, table, keep_missing, takes_zeros)
    if as_cells:
        with located(data):
            table.require_complete(f"the {fit.chosen_model} model of a folder")
    table, changes = recoded(
        data, table, fit.named_ordered, fit.groups, by_order=fit.orders_numbers
    )
    tell_of_settled(data, table, takes_zeros)
    of_levels = None
    if takes_zeros and (keep_missing or data.text.empty_as_level or data.text.settles_empty):
        with located(data):
            of_levels = not_applicable_zeros(table, _settling(data, table))
    if weights is not None:
        assert isinstance(table, Microdata)
        table = weighted_microdata(table, weights)
    drawn = changes.bins if draws_in_bins else ()
    conditions = conditions_of(data, records_of(table), of_levels, drawn)
    if conditions is not None:
        with errors_in(data.conditions or data.sample):
            # Compiled now: conditions that make too many boxes are refused before anything is done.
            _ = conditions.feasible, [group.impossible for group in conditions.groups]
            _ = conditions.equivalences
    if edit_seed is not None:
        return _edited(table, conditions, changes, edit_seed)
    if conditions is not None:
        with located(data):
            conditions.require_feasible(table)
    return table, conditions, changes


def _edited(
    table: Records, conditions: StructuralZeros | None, changes: Changes, seed: int
) -> tuple[Records, StructuralZeros | None, Changes]:
    """Records without the values that make them impossible, the conditions, and changes."""
    if conditions is None:
        # They exclude nothing among the levels of the sample.
        return table, None, changes.edited(pd.DataFrame({"row": [], "variable": []}, dtype=object))
    assert isinstance(table, Microdata)
    edits = fewest_edits(table, conditions, seed=seed)
    return edits.table, conditions, changes.edited(edits.fields)


def conditions_of(
    data: Data,
    table: Records,
    of_levels: StructuralZeros | None = None,
    drawn: Collection[str] = (),
) -> StructuralZeros | None:
    """Structural zeros of a file, and those by which one variable determines another; None if none.

    Those for the levels of missing values come last. None of them restricts the class of weights.

    Raises
    ------
    UsageError
        If conditions compare a variable whose numbers are `drawn` within bins.
    """
    schema = table.schema
    given = [] if data.conditions is None else [read_conditions(data.conditions, schema)]
    for name in drawn:
        if any(name in one.compared for one in given):
            raise UsageError(
                f"--bins: the conditions compare the numbers of {name!r} with those of another "
                "variable, and a number that is drawn within a bin could break them; do not put "
                "this variable into bins (--ordered may help)"
            )
    for by, of in data.settles:
        try:
            given.append(settled_conditions(table, by, of))
        except MicrodataError as error:
            remedy = ""
            if of in schema.variables and (table.codes[:, schema.variables.index(of)] < 0).any():
                remedy = (
                    f"; if {by} determines only where values of {of} are missing, say "
                    f"--settles-empty {by}={of}"
                )
            raise UsageError(f"--settles {by}={of}: {error.in_file(data.sample)}{remedy}") from None
    if of_levels is not None:
        free = len(schema.variables) - of_levels.conditions.shape[1]
        codes = np.pad(of_levels.conditions, ((0, 0), (0, free)), constant_values=-1)
        given.append(StructuralZeros(schema, codes))
    # Inequalities may exclude nothing among the levels of this sample.
    given = [one for one in given if one.num_conditions]
    if len(given) < 2:
        return next(iter(given), None)
    # Those of the file keep their rows, which messages name.
    rows = [0, *(int(one.rows.max(initial=-1)) + 1 for one in given)]
    return StructuralZeros(
        schema,
        np.concatenate([one.conditions for one in given]),
        np.concatenate([one.rows + r for one, r in zip(given, np.cumsum(rows), strict=False)]),
    )


def with_empty_levels(
    data: Data, table: Records, keep_missing: bool = False, takes_zeros: bool = True
) -> Records:
    """Records in which missing values are levels, as far as options ask for it.

    If another column determines where values are missing, a message says so, whatever the options
    are and whether or not the model takes structural zeros.

    Raises
    ------
    UsageError
        If --empty-as-level is given, but no column determines where values are missing.
    """
    asked, named = data.text.empty_as_level or keep_missing, data.text.settles_empty
    with located(data):
        settled = find_settled(table, named=named)
    pairs, names = [set(pair) for pair in named], table.schema.variables
    made = [one for one in settled if asked or {names[one.variable], names[one.parent]} in pairs]
    if asked and not settled and not keep_missing:
        raise UsageError(
            "--empty-as-level: no column determines where values of another column are missing; "
            "leave the option out, or write a label of your own into the empty cells"
        )
    variables = {one.variable for one in made}
    others = [one for one in settled if one.variable not in variables]
    only_coded = "" if takes_zeros else (
        ", but the model takes no structural zeros, and may draw other values for these records"
    )  # fmt: skip
    for sentence in in_words(table, made):
        _LOG.warning(
            "%s: %s; these values become the level %r%s",
            data.sample, sentence, NOT_APPLICABLE, only_coded,
        )  # fmt: skip
    for sentence in missing_by_design(table, others):
        _LOG.warning("%s: %s", data.sample, sentence)
    table = empty_as_level(table, made)
    return keep_empty(table) if keep_missing else table


def _settling(data: Data, table: Records) -> list[tuple[str, str]]:
    """Pairs of --settles-empty whose variables are left, and have the level that does not apply."""
    levels = dict(zip(table.schema.variables, table.schema.levels, strict=True))
    return [
        (name, other)
        for name, other in data.text.settles_empty
        if name in levels and NOT_APPLICABLE in levels.get(other, ())
    ]


def read_household_sample(
    data: Data,
    fit: Fit,
    keep_missing: bool = False,
    beside: Mapping[str, str] | None = None,
) -> tuple[Households, Rules | None, Changes]:
    """Coded households, the rules that they obey, and changes of the levels of their persons.

    Arguments are those of `read_sample`.
    """
    given = fit.households
    assert given.household is not None
    weights, variables = weights_and_variables(data, beside)
    table = read_households(
        data.sample, given.household, given.household_variables or (), variables,
        data.levels, reading=reading_of(data),
    )  # fmt: skip
    with_levels = with_empty_levels(data, table.persons, keep_missing, takes_zeros=False)
    persons, changes = recoded(
        data, with_levels, fit.named_ordered, fit.groups, table.of_household, fit.orders_numbers
    )
    assert isinstance(persons, Microdata)
    roles = given_roles(given, persons)
    head = None if given.head == "no" else find_head(persons.schema, roles)
    if head is None and given.head == "yes":
        raise UsageError(
            "--head yes: no variable has a label such as Householder; give the label of the head "
            "in a file for --roles"
        )
    with located(data):
        try:
            table = table.with_persons(persons, head)
        except MicrodataError as error:
            table = table.with_persons(persons)
            _tell_of_no_head(data, persons, head, given, error)
    _check_household_columns(data, table, head, given)
    rules = None if given.rules is None else _kept_rules(data, given.rules, table, roles, changes)
    if weights is not None:
        with located(data):
            weights = weights_of_households(table, weights, data.weights)
            table = weighted_households(table, weights)
    return table, rules, changes


def _check_household_columns(
    data: Data, table: Households, head: tuple[str, Label] | None, given: HouseholdFit
) -> None:
    """Say, or refuse, that variables of persons are about their households.

    Raises
    ------
    MicrodataError
        If one is the number of persons, or numbers them.
    """
    found = household_columns(table)
    for name in found.sizes:
        raise MicrodataError(
            "is the number of persons of each household, and would be drawn for each person; say "
            "so with --household-variables, or leave it out (--drop "
            f"{as_option([*data.drop, name])})",
            file=data.sample, column=name,
        )  # fmt: skip
    for name in found.numbers:
        raise MicrodataError(
            "numbers the persons of each household, and would be drawn like their other values; "
            f"leave it out (--drop {as_option([*data.drop, name])})",
            file=data.sample, column=name,
        )  # fmt: skip
    if found.same:
        _LOG.warning(
            "%s: all persons of a household have the same value of %s, and those of the model "
            "may not: if it is a variable of households, name it in --household-variables",
            data.sample, listed(map(repr, found.same)),
        )  # fmt: skip
    for name, number, first in contradicted_sizes(table):
        _LOG.warning(
            "%s: column %r is the number of persons of most households, but not of %s, the first "
            "of which is %r: persons may be missing or be there twice, or identifiers in column %r "
            "may be wrong; what is computed takes households as the rows have them",
            data.sample, name, counted(number, "household"), text_of(table.ids[first]),
            given.household,
        )  # fmt: skip
    if head is not None or given.head != "auto":
        return
    if found.heads:
        name, label = found.heads[0]
        _LOG.warning(
            "%s: one person of each household has %s = %r, as its head would, but no label is "
            "known as that of a head, so that heads are modelled like other persons; if it is the "
            "head, say so by a row %s of --roles",
            data.sample, name, text_of(label), as_option(["head", text_of(label)]),
        )  # fmt: skip
    elif given.rules is None and (table.sizes > 1).any():
        _LOG.warning(
            "%s: no column says how the persons of a household are related to its head (head, "
            "spouse, child, ..), so that couples are not modelled: in the model, couples are about "
            "as often of one sex as of two, and their ages differ more; add such a column (--roles "
            "FILE says what labels of your own mean), or release no synthetic figures on couples",
            data.sample,
        )  # fmt: skip


def _kept_rules(
    data: Data, named: str, table: Households, roles: Roles | None, changes: Changes
) -> Rules:
    """Rules that the households obey, none of which uses values in bins."""
    rules = read_rules(named, table, roles)
    read = {name.removeprefix("head_") for names in rules.variables for name in names}
    if both := sorted(read & changes.bins.keys()):
        raise UsageError(
            f"--bins: the rules use {both[0]!r}, and a value drawn within a bin could break a "
            "rule; do not put this variable into bins (--ordered may help)"
        )
    with located(data):
        try:
            rules.require_feasible(table)
        except MicrodataError as error:
            if named not in SHIPPED or OTHER_SEX not in error.problem:
                raise
            label = next(
                label for labels in table.schema.table.levels for label in labels
                if (roles or Roles()).role(label) == "spouse"
            )  # fmt: skip
            raise MicrodataError(
                f"{error.problem}; if spouses may be of the same sex, add a row "
                f"{as_option(['same-sex spouse', text_of(label)])} to the file of --roles",
                row=error.row,
            ) from None
    return rules


def _tell_of_no_head(
    data: Data,
    persons: Microdata,
    head: tuple[str, Label] | None,
    given: HouseholdFit,
    error: MicrodataError,
) -> None:
    """Say why heads are no variables of households, or refuse it where they should be.

    Raises
    ------
    MicrodataError
        If --head asks for them, or households have no head, or several, and everybody's
        relationship is known.
    """
    if given.head == "yes" or head is None:
        raise error
    relationship = persons.codes[:, persons.schema.variables.index(head[0])]
    if error.row is not None and (relationship >= 0).all():
        problem = error.problem.removesuffix(", or leave out the head")
        # Households that are several are right with no model of heads, and the shipped rules want
        # one head of each.
        if NUMBERED_ANEW not in problem and given.rules not in SHIPPED:
            problem += ", or say --head no, which models heads like other persons"
        raise MicrodataError(problem, row=error.row, column=error.column)
    _LOG.warning("%s: heads are modelled like other persons, because %s", data.sample, error)


def given_roles(given: HouseholdColumns, persons: Records) -> Roles | None:
    """Roles of labels that a table gives, None if none is given."""
    return None if given.roles is None else read_roles(given.roles, persons.schema)


def weights_and_variables(
    data: Data, others: Mapping[str, str] | None = None
) -> tuple[np.ndarray | None, Sequence[str] | None]:
    """Design weights (n,) of the sample, if any are asked for, and the variables that are read."""
    variables = variables_of(data)
    given = {"weights": data.weights, "identifiers": data.id}
    beside = {what: name for what, name in given.items() if name is not None}
    beside |= others or {}
    for what, name in beside.items():
        if data.variables is not None and name in data.variables:
            raise MicrodataError(
                f"the column of the {what} cannot be a key variable; leave it out of --variables",
                file=data.sample,
                column=name,
            )
    if data.variables is None and beside:
        names = columns_with(data, tuple(map(str, beside.values())))
        variables = [name for name in variables or names if name not in beside.values()]
    weights = (
        None if data.weights is None else read_weights(data.sample, data.weights, reading_of(data))
    )
    return weights, variables


def check_weights_for(data: Data, table: Records | Households, population_size: int) -> None:
    """Check that weights, if there are any, count persons, and say where they do not fit.

    Raises
    ------
    MicrodataError
        If a weight is below one.
    """
    if isinstance(table, DesignWeights):
        table.require_counts()
        for sentence in table.warnings(population_size):
            _LOG.warning("%s: %s", data.sample, sentence)


def recoded(
    data: Data,
    table: Records,
    ordered: Names = (),
    groups: Sequence[tuple[str, Source]] | None = None,
    of_household: np.ndarray | None = None,
    by_order: bool = False,
) -> tuple[Records, Changes]:
    """Records of the sample, levels merged and in bins as was asked for, and what was changed.

    Parameters
    ----------
    data, table
        What was asked for, and the records as they were read.
    ordered, groups
        Variables that are named as ordered, and files of groups of levels.
    of_household
        (n,) household of each record, if the records are persons of households.
    by_order
        Whether other variables of many numbers are ordered too.

    Raises
    ------
    MicrodataError
        If that cannot be done, a column identifies records and was not asked for, or labels are not
        what they are needed for: dates among ranges, or codes among numbers.
    """
    bins, top = dict(data.recoding.bins), dict(data.recoding.top_code)
    of_households = of_household is not None
    by, named = _asked_recodings(data, table, of_households)
    given = {name: of for name, of in by.items() if of is not None}
    with located(data):
        refuse_design(data, table, {*bins, *top, *by}, of_households)
        labelled, own = _with_own_levels(data, table, named, by, {*ordered} - by.keys(), by_order)
        say_labels(data, labelled)
        by_file = Recoding.of(labelled.schema, by).coarser(labelled) if by else labelled
        merged, joined = merge_levels(
            by_file, top, data.recoding.merge_rare or 0, ordered=ordered,
            groups=as_hierarchies(groups or ()), but={*bins, *given},
        )  # fmt: skip
        levels = own | given | joined
        if only := [repr(name) for name, of in levels.items() if len(of.labels) == 1]:
            _LOG.warning(
                "%s: only one level is left of %s, so that it carries no information; merge fewer "
                "levels (--merge-rare, --top-code)", data.sample, listed(only),
            )  # fmt: skip
        binned, made = bin_columns(merged, bins, of_household)
        for name in bins:
            say_kept(data, "--bins", name, table, made[name].labels)
        for name, number in top.items():
            say_kept(data, "--top-code", name, table, levels[name].labels, number)
        refuse_identifying(data, binned, bins, of_households)
    dropped = dict.fromkeys(by.keys() - given.keys())
    commas = [name for name in table.schema.variables if has_decimal_comma(data.sample, name)]
    recoding = Recoding.of(table.schema, {**dropped, **levels, **made})
    return binned, Changes(table, recoding, tuple(commas))


def _asked_recodings(
    data: Data, table: Records, of_households: bool
) -> tuple[dict[str, Merged | None], dict[str, Merged]]:
    """Recodings of --recode-by and of --level by variable; options may not recode one twice."""
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
            raise UsageError(
                f"{name}: {both[0]!r} is also recoded by {path}; leave it out of {name} or of this "
                "file"
            )
    if of_households and None in by.values():
        raise UsageError(
            f"--recode-by: {path} drops a variable, which is not possible for persons within "
            "households; remove this row, and leave the variable out of --variables"
        )
    with located(data):
        own = own_levels(table, by_variable(data.recoding.level))
    if both := sorted(by.keys() & own.keys()):
        raise UsageError(
            f"--level: {both[0]!r} is also recoded by {path}; give the value a row in this "
            "file instead"
        )
    return by, own


def _with_own_levels(
    data: Data,
    table: Records,
    named: dict[str, Merged],
    by: Mapping[str, Merged | None],
    ordered: Collection[str],
    by_order: bool,
) -> tuple[Records, dict[str, Merged]]:
    """Records with values of --level, and codes like 9999, as levels of their own; these levels."""
    as_named = _as_said(data, in_bins(table, named))
    apart = check_labels(data, as_named, ordered, by_order, by)
    if not apart:
        return as_named, named
    said = by_variable(data.recoding.level)
    found = {name: codes | said.get(name, set()) for name, codes in apart.items()}
    own = named | own_levels(table, found)
    return _as_said(data, in_bins(table, own)), own


def _as_said(data: Data, table: Records) -> Records:
    """Records whose labels that --number explains are numbers."""
    if not data.recoding.number:
        return table
    schema = as_numbers(table.schema, by_variable(data.recoding.number))
    return table.recoded(schema, table.codes)
