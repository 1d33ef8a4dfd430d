"""Checks of the columns and codes of households, with the messages about them."""

import logging
from collections.abc import Sequence
from os import PathLike

import numpy as np
import pandas as pd

from bnp_models.data.coding import not_plain
from bnp_models.data.display import counted
from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import (
    Label,
    MicrodataError,
    choose_variables,
    first_repeated,
    plain_label,
    unknown_variable,
)

_LOG = logging.getLogger(__name__)

# Persons in a row of one household, on average, from which on a file is not shuffled.
_TOGETHER = 1.5

NUMBERED_ANEW = (
    "numbered anew in each region or cluster, make one column of its name and the number"
)
"""End of the sentence on households whose numbers stand for several."""


def tell_of_numbers(path: str | PathLike, of_household: np.ndarray) -> None:
    """Say that the rows of households are in several places, of a file that is not shuffled.

    Parameters
    ----------
    path
        The file.
    of_household
        (N,) household of each person, in the order of the file.
    """
    places, sizes = _places(of_household), np.bincount(of_household)
    several = int((places > 1).sum())
    if 2 * several > len(sizes) and _lie_together(places, of_household.size):
        _LOG.warning(
            "%s: the rows of %d of %d households (%d to %d persons) are in several places of the "
            "file; if households are %s",
            path, several, len(sizes), sizes.min(), sizes.max(), NUMBERED_ANEW,
        )  # fmt: skip


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a read-only int32 copy."""
    array = np.array(array, dtype=np.int32, order="C")
    array.flags.writeable = False
    return array


def checked_codes(
    given: np.ndarray, n: int, variables: Sequence[str], num_levels: Sequence[int]
) -> np.ndarray:
    """Return (n, variables) codes, read-only; refuse other shapes and codes out of range."""
    given = np.asarray(given)
    if given.shape != (n, len(variables)):
        raise MicrodataError(f"codes have shape {given.shape}; expected ({n}, {len(variables)})")
    if not np.issubdtype(given.dtype, np.integer):
        raise MicrodataError(f"codes have dtype {given.dtype}; expected integers")
    outside = (given < -1) | (given >= np.array(num_levels, dtype=np.int64))
    if outside.any():
        i, j = np.argwhere(outside)[0]
        raise MicrodataError(
            f"code {given[i, j]} (index {i}) is not between -1 and {num_levels[j] - 1}",
            column=variables[j],
        )
    return read_only(given)


def chosen_columns(
    variables: Sequence[str] | None,
    household: str,
    household_variables: Sequence[str],
    names: Sequence[str],
) -> tuple[str, ...]:
    """Return the columns to keep, in order, the identifier among them."""
    if isinstance(household_variables, str):
        raise MicrodataError(
            f"household_variables is the text {quoted(household_variables)}; give a list of names"
        )
    if household not in names:
        raise unknown_variable(household, names)
    columns = choose_variables(variables, names)
    if household not in columns:
        columns = (household, *columns)
    for name in household_variables:
        if name == household:
            raise MicrodataError(
                "the household identifier cannot be a household variable; leave it out", column=name
            )
        if name not in names:
            raise unknown_variable(name, names)
        if name not in columns:
            raise MicrodataError(
                "a household variable is not among the variables chosen; add it there, or leave "
                "it out",
                column=name,
            )
    if (repeated := first_repeated(household_variables)) is not None:
        raise MicrodataError("the variable is listed twice; list it once", column=repeated)
    return columns


def identify(column: pd.Series, household: str) -> tuple[np.ndarray, np.ndarray]:
    """Return each person's household, numbered as they first occur, and the n labels."""
    missing = (column.isna() | (column == "")).to_numpy(dtype=bool)
    if missing.any():
        raise MicrodataError(
            "the household identifier is missing; fill it in or drop the row",
            row=int(np.argmax(missing)),
            column=household,
        )
    try:
        of_household, ids = pd.factorize(column)
    except TypeError:
        raise not_plain(household) from None
    return of_household, np.asarray(ids)


def require_constant(
    persons: Microdata, variable: str, of_household: np.ndarray, ids: np.ndarray
) -> None:
    """Refuse a household variable that differs within a household."""
    j = persons.schema.variables.index(variable)
    column = persons.codes[:, j]
    first = np.unique(of_household, return_index=True)[1]
    differs = column != column[first][of_household]
    if not differs.any():
        return
    row = int(np.argmax(differs))
    before = int(first[of_household[row]])
    labels = persons.schema.levels[j]

    def shown(code):
        return "missing" if code < 0 else quoted(labels[code])

    raise MicrodataError(
        f"value {shown(column[row])} but {shown(column[before])} in row {before} of the same "
        f"household, {quoted(plain_label(ids[of_household[row]]))}"
        f"{_in_places(of_household, of_household[row])}; make them the same, or leave it out of "
        "the household variables",
        row=row,
        column=variable,
    )


def require_one_head(
    is_head: np.ndarray, of_household: np.ndarray, ids: np.ndarray, head: tuple[str, Label]
) -> None:
    """Refuse households without a head, or with several."""
    heads = np.bincount(of_household, weights=is_head, minlength=len(ids)).astype(int)
    wrong = np.flatnonzero(heads != 1)
    if wrong.size == 0:
        return
    i = int(wrong[0])
    count = "no person" if heads[i] == 0 else f"{heads[i]} persons"
    raise MicrodataError(
        f"household {quoted(plain_label(ids[i]))} has {count} with the value {quoted(head[1])} "
        f"({wrong.size} of {counted(len(ids), 'household')} {'is' if wrong.size == 1 else 'are'} "
        f"without exactly one{_in_places(of_household, i)}); correct or drop such households, or "
        "leave out the head",
        row=int(np.argmax(of_household == i)),
        column=head[0],
    )


def _places(of_household: np.ndarray) -> np.ndarray:
    """Return in how many places of the file each household's rows are: (n,)."""
    begins = np.append(True, np.diff(of_household) != 0)
    return np.bincount(of_household[begins])


def _lie_together(places: np.ndarray, num_persons: int) -> bool:
    """Whether persons of a household follow each other, in these places, as in no shuffled file."""
    return bool(num_persons >= _TOGETHER * places.sum())


def _in_places(of_household: np.ndarray, household: int) -> str:
    """Return words on a household whose rows are in several places, "" of another."""
    places = _places(of_household)
    if places[household] == 1 or not _lie_together(places, of_household.size):
        return ""
    return (
        f"; the rows of this one are in {places[household]} places of the file: if households are "
        + NUMBERED_ANEW
    )
