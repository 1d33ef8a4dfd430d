"""Checks of the columns of a sample: what is no key variable, or is known from another column."""

import logging
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import pandas as pd

from bnp_models.cli.folder import reading_of
from bnp_models.cli.parts import Data
from bnp_models.data.design_columns import count_variable, is_count_name, weight_variables
from bnp_models.data.display import first_parts
from bnp_models.data.household_columns import (
    households_by_size,
    households_of_column,
    is_household_name,
)
from bnp_models.data.households import Households
from bnp_models.data.identifying import Identifying, identifying_variables
from bnp_models.data.messages import as_option, listed
from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.reading import columns_of_file, read_frame, read_levels
from bnp_models.data.schema import Label, MicrodataError
from bnp_models.data.spelling import are_dates
from bnp_models.rules.roles import USUAL_NAMES, plain
from bnp_models.zeros.suggestions import settling_variables

_LOG = logging.getLogger(__name__)

# Records that would speak against it by chance, from which on a variable is said to settle another;
# and variables up to which all pairs are looked at.
NO_CHANCE, _MOST_SETTLED = 20.0, 50

# Columns without a usual name, and records, up to which columns are read to look for households.
_MOST_READ, _MANY_RECORDS = 30, 200_000


def tell_of_settled(data: Data, table: Records, takes_zeros: bool) -> None:
    """Say which variables settle others, unless structural zeros are given."""
    if data.conditions is not None or len(table.schema.variables) > _MOST_SETTLED:
        return
    pairs = [p for p in settling_variables(table, NO_CHANCE) if p not in data.settles]
    if not pairs:
        return
    said = first_parts([f"{by!r} settles {of!r}" for by, of in pairs], "pair")
    by, of = pairs[0]
    zeros = f"--settles {shlex.quote(f'{by}={of}')} says so, and " if takes_zeros else ""
    drop = "to leave it out" if data.variables else f"--drop {as_option([*data.drop, of])}"
    _LOG.warning(
        "%s: %s in all records, which the model does not know; %s%s loses nothing that the other "
        "column does not say", data.sample, said, zeros, drop,
    )  # fmt: skip


def tell_of_households(data: Data, table: Records) -> list[str]:
    """Say that the persons of a sample look like members of households, if they do.

    Looked at are columns with a usual name of identifiers of households, then the key variables,
    and then the columns that are no key variables.

    Returns
    -------
    notes
        The sentence without the command that it advises, for the results; empty if there is none.
    """
    if not isinstance(table, Microdata):
        return []
    beside = {data.id, data.weights, *table.schema.variables}
    # Only columns that can be read: with a name of their own.
    times = Counter(columns_of_file(data.sample, reading_of(data)))
    others = [n for n, number in times.items() if n and number == 1 and n not in beside]
    named = [name for name in others if is_household_name(name)]
    rest = [name for name in others if name not in named]
    if len(rest) > _MOST_READ or table.n > _MANY_RECORDS:
        rest = []
    keys = zip(table.schema.variables, table.codes.T, strict=True)
    candidates = chain(
        _columns(data, named), ((x, codes) for x, codes in keys if is_household_name(x)),
        _columns(data, rest),
    )  # fmt: skip
    groupings = ((name, households_of_column(name, x, table)) for name, x in candidates)
    found = next(((name, one) for name, one in groupings if one is not None), None)
    by_size = None if found else households_by_size(table)
    if found is not None:
        column, grouping = found
        how = f"column {column!r} groups the persons into {grouping.households:,} households"
        number = ""
    elif by_size is not None:
        (size, grouping), column = by_size, "hid"
        how = (
            f"the persons follow each other in {grouping.households:,} households of size {size!r}"
        )
        number = " number the households in a column hid, and"
    else:
        return []
    shared = [name for name in grouping.same if name != column]
    variables = f" --household-variables {as_option(shared)}" if shared else ""
    chosen = [name for name in data.variables or () if name != column]
    left_out = [name for name in (*data.drop, data.id) if name not in (None, column)]
    if chosen:
        variables += f" --variables {as_option(chosen)}"
    elif left_out:
        variables += f" --drop {as_option(left_out)}"
    if data.weights not in (None, column):
        variables += f" --weights {as_option([data.weights])}"
    said = (
        f"{how} ({grouping.size:.1f} persons each), and whoever knows all members of a household "
        f"may find it; this risk takes each person alone. For the risk of households,{number}"
    )
    asked = f"--household {as_option([column])}{variables}"
    _LOG.warning(
        "%s: %s type: bnp-models risk %s %s --population-size NUMBER_OF_HOUSEHOLDS --out DIR",
        data.sample, said, shlex.quote(str(data.sample)), asked,
    )  # fmt: skip
    return [f"{said} use bnp-models risk with {asked}"]


def tell_of_relative(data: Data, table: Households, was_sought: bool = False) -> None:
    """Say that no values are modelled relative to the head's, although the head is known.

    `was_sought` says that variables were sought for which members are like their heads.
    """
    head = table.schema.head
    if head is None or (table.sizes == 1).all():
        return
    usual = {name for of in ("sex", "age") for name in USUAL_NAMES[of]}
    names = [name for name in table.schema.head_variables if plain(name) in usual]
    if not names:
        return
    remedy = f"--relative {as_option(names)} models them relative to the head"
    if was_sought:
        remedy = (
            "none was found in which members are like their heads, or values of heads or "
            "relationships are missing"
        )
    _LOG.warning(
        "%s: column %r says who is the head, but no variable is modelled relative to the head's "
        "value, so that couples are less alike in age, and more often of one sex, than in the "
        "sample; %s",
        data.sample, head[0], remedy,
    )  # fmt: skip


def _columns(data: Data, names: Sequence[str]) -> Iterator[tuple[str, pd.Series | np.ndarray]]:
    """Names and values of columns of the file, which is read if there are any."""
    if names:
        frame, _ = read_frame(data.sample, names, reading_of(data))
        yield from ((name, frame[name]) for name in names)


def refuse_design(
    data: Data, table: Records, recoded: Collection[str], of_households: bool
) -> None:
    """Refuse weights and numbers of persons as key variables, unless they were asked for."""
    if data.allow_identifying:
        return
    asked = {*(data.variables or ()), *recoded}
    if (name := count_variable(table)) is not None and name not in asked:
        raise MicrodataError(
            "the rows look like a table of counts: no two have the same values of the other "
            "columns, and this one says how many persons have them; write each row as many times "
            "as it counts. If the column is a key variable, name it in --variables, or say "
            "--allow-identifying",
            column=name,
        )
    if found := [name for name in weight_variables(table) if name not in asked]:
        first, *others = found
        by_weights = data.takes_weights and data.weights is None and not of_households
        how = f"say --weights {shlex.quote(first)}, or " if by_weights else ""
        raise MicrodataError(
            f"has numbers and the name of design weights{_refused_too(others)}: they are no key "
            f"variable; {how}leave {'them' if others else 'it'} out (--drop "
            f"{as_option([*data.drop, *found])}). What is a key variable, name in --variables, or "
            "say --allow-identifying",
            column=first,
        )
    counts = [n for n in columns_of_file(data.sample, reading_of(data)) if is_count_name(n)]
    counts = [name for name in counts if name not in asked]
    kept = [j for j, name in enumerate(table.schema.variables) if name not in counts]
    if counts and len(np.unique(table.tabulated.codes[:, kept], axis=0)) == table.n:
        _LOG.warning(
            "%s: no two rows have the same values, and column %r is called like a number of "
            "persons; if each row stands for several, write it as many times",
            data.sample, counts[0],
        )  # fmt: skip


def refuse_identifying(
    data: Data, table: Records, bins: Collection[str], of_households: bool
) -> None:
    """Refuse a column that identifies records, unless it was asked for as it is, without bins."""
    if data.allow_identifying:
        return
    asked = set() if data.levels is None else set(read_levels(data.levels))
    asked = (asked | set(data.variables or ())) - set(bins)
    found = [
        one for one in identifying_variables(table, asked)
        # Bins of a sorted file are runs of records, as households are.
        if one.group is None or one.variable not in bins
    ]  # fmt: skip
    if not found:
        return
    first, *others = found
    levels = dict(zip(table.schema.variables, table.schema.levels, strict=True))
    # With --variables nothing more is refused: what is left out by name has to be known at once.
    also = _refused_too([one.variable for one in others])
    # It may be what records are to be told by.
    takes_id = data.takes_id and not of_households
    by_id = takes_id and data.id is None and first.alone == 1 and not first.decimals
    carried = f"; --id {shlex.quote(first.variable)} writes it with the results" if by_id else ""
    dropped = as_option([*data.drop, *(one.variable for one in found)])
    raise MicrodataError(
        f"{first.why}{also}: an identifier cannot be a key variable, and exact values reveal who a "
        f"person is. Choose --variables without {'them' if others else 'it'} (or --drop "
        f"{dropped}), {_coarser(found, levels)}or say --allow-identifying{carried}",
        column=first.variable,
    )


def _refused_too(names: Sequence[str]) -> str:
    """Continuation of a message on a column that is refused, on the others that are."""
    if not names:
        return ""
    return f"; {listed(map(repr, names))} {'is' if len(names) == 1 else 'are'} refused too"


def _coarser(found: Sequence[Identifying], levels: Mapping[str, Sequence[Label]]) -> str:
    """Advice, in words, on options that make some of these columns coarser."""
    values = [one for one in found if one.group is None]
    dates = [one for one in found if are_dates(levels[one.variable])]
    values = [one for one in values if one not in dates]
    numbers = [one for one in values if one.numbers]
    said = "put years, months or ages in the place of dates, " if dates else ""
    if numbers:
        coarsest = min(numbers, key=lambda one: one.alone)
        said += f"put numbers into bins (--bins {shlex.quote(f'{coarsest.variable}=20')}), "
    if len(values) > len(numbers):
        said += "merge rare levels (--merge-rare 10), "
    return said
