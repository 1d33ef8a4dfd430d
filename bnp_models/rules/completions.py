"""Completions of one household with missing values, tried until one keeps the rules."""

import math
from collections.abc import Iterator

import numpy as np

from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.schema import MicrodataError
from bnp_models.rules.statements import Rule, columns_of
from bnp_models.rules.views import Columns, HouseholdView

# Completions of an incomplete household that are tried: at most, at first and at once.
_COMPLETIONS, _COMPLETIONS_AT_FIRST, _COMPLETIONS_AT_ONCE = 2**20, 2**8, 2**14


def try_rule(rule: Rule, schema: HouseholdSchema) -> None:
    """Judge one made-up household of two, to find what the schema lacks."""
    try:
        columns = columns_of(schema, rule.variables)
        view = HouseholdView(
            schema,
            np,
            np.zeros((1, len(columns.household)), dtype=np.int32),
            np.zeros((1, 2 - schema.num_heads, len(columns.member)), dtype=np.int32),
            columns,
        )
        judged = rule._holds(view)
    except MicrodataError as error:
        raise MicrodataError(
            f"{error.problem} (read by the rule: {rule.name})", column=error.column
        ) from None
    if np.shape(judged) != (1,) or np.asarray(judged).dtype != bool:
        raise MicrodataError(
            f"the rule {rule.name!r} gave shape {np.shape(judged)} and dtype "
            f"{np.asarray(judged).dtype} for 1 household; it must give one bool for each"
        )


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
    columns
        Where missing values are filled in.
    household_codes, member_codes
        (q,) and (m, p) level codes, -1 where missing.
    limit
        At most so many completions.

    Yields
    ------
    household_codes, member_codes
        (k, q) and (k, m, p) arrays: few at first, then more at once.
    """
    holes = [(0, (j,), schema.num_household_levels[j]) for j in columns.household
             if household_codes[j] < 0]  # fmt: skip
    holes += [(1, (i, j), schema.num_member_levels[j]) for i in range(len(member_codes))
              for j in columns.member if member_codes[i, j] < 0]  # fmt: skip
    num_levels = [levels for _, _, levels in holes]
    total = math.prod(num_levels)
    # Steps of a number coprime to the total visit each completion once, far from the last.
    step = int(total * 0.618) + 1
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
            filled[which][:, *place] = [k % levels for k in index]
            index = [k // levels for k in index]
        yield filled
        start, size = start + size, min(4 * size, _COMPLETIONS_AT_ONCE)


def completable(compiled, columns: Columns, household: np.ndarray, members: np.ndarray) -> bool:
    """Whether some completion of one household's (q,) and (m, p) codes is possible."""
    tried = 0
    for filled in completions(compiled.schema, columns, household, members):
        if compiled.on_numpy(*filled).any():
            return True
        tried += len(filled[0])
    return tried == _COMPLETIONS
