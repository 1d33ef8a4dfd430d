"""Completions of one household with missing values, tried until one keeps the rules."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.rules.views import Columns

# Completions of an incomplete household that are tried: at most, at first and at once.
_COMPLETIONS, _COMPLETIONS_AT_FIRST, _COMPLETIONS_AT_ONCE = 2**20, 2**8, 2**14


def completions(
    schema: HouseholdSchema,
    columns: Columns,
    household_codes: np.ndarray,
    member_codes: np.ndarray,
    limit: int = _COMPLETIONS,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the completions of one household in some columns, in a scattered order.

    Parameters
    ----------
    schema
        The variables and their levels.
    columns
        Columns of which missing values are filled in.
    household_codes, member_codes
        (q,) and (m, p) level codes, -1 where missing.
    limit
        At most so many completions.

    Yields
    ------
    household_codes, member_codes
        (k, q) and (k, m, p) arrays: few at first, then more at once.
    """
    # One entry for each missing value: the array of codes, its place there, its number of levels.
    holes: list[tuple[int, tuple[int, ...], int]] = [
        (0, (j,), schema.num_household_levels[j])
        for j in columns.household
        if household_codes[j] < 0
    ]
    holes += [
        (1, (i, j), schema.num_member_levels[j])
        for i in range(len(member_codes))
        for j in columns.member
        if member_codes[i, j] < 0
    ]
    num_levels = [levels for _, _, levels in holes]
    total = math.prod(num_levels)
    # Steps of a number coprime to the total visit each completion once, far from the last.
    step = total * 618 // 1000 + 1
    while math.gcd(step, total) != 1:
        step += 1
    start, size, stop = 0, _COMPLETIONS_AT_FIRST, min(total, limit)
    while start < stop:
        # Python integers: the products may exceed 64 bits.
        index = [k * step % total for k in range(start, min(start + size, stop))]
        filled = (
            np.repeat(household_codes[None], len(index), axis=0),
            np.repeat(member_codes[None], len(index), axis=0),
        )
        for which, place, levels in reversed(holes):
            filled[which][:, *place] = [k % levels for k in index]  # type: ignore[index]
            index = [k // levels for k in index]
        yield filled
        start, size = start + size, min(4 * size, _COMPLETIONS_AT_ONCE)


def completable(
    possible: Callable[[np.ndarray, np.ndarray], np.ndarray],
    schema: HouseholdSchema,
    columns: Columns,
    household_codes: np.ndarray,
    member_codes: np.ndarray,
) -> bool:
    """Return whether some completion is possible; True where none of 2^20 is but there are more.

    Parameters
    ----------
    possible
        Takes the codes of several households, returns which of them are possible.
    schema, columns, household_codes, member_codes
        As for `completions`.
    """
    tried = 0
    tries = completions(schema, columns, household_codes, member_codes, _COMPLETIONS + 1)
    for households, members in tries:
        if possible(households, members).any():
            return True
        tried += len(households)
    return tried > _COMPLETIONS
