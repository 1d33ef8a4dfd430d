"""Possible initial values for the missing values of households."""

from collections.abc import Sequence

import jax
import numpy as np

from bnp_models.data.households import Households
from bnp_models.data.messages import quoted
from bnp_models.data.schema import MicrodataError, plain_label
from bnp_models.kernels.variates.rng import numpy_generator
from bnp_models.models.options import typed_key
from bnp_models.rules.completions import completions
from bnp_models.rules.rules import CompiledRules, Rules

# Rounds of draws for all households at once; then number of completions tried for each remaining
# household.
_ROUNDS, _ALONE = 100, 2**18


def complete_households(
    households: Households, rules: Rules | None = None, *, key: jax.Array
) -> Households:
    """Fill in missing values at random, so that every household is possible.

    Values are drawn independently from the observed values of the same variable, until the
    household keeps the rules. The result is an initial state and not an imputation, because the
    draws ignore all other values of the household.

    Parameters
    ----------
    households
        Coded households; values may be missing.
    rules
        Rules that every completed household keeps. Default: none.
    key
        Random key.

    Returns
    -------
    Households
        The same households, complete; observed values are unchanged.

    Raises
    ------
    MicrodataError
        If a complete household breaks a rule, or if an incomplete one has no possible completion or
        none was found in 2^18 tries. The message names the household.

    Examples
    --------
    >>> complete = bnp.models.complete_households(households, key=jax.random.key(0))
    >>> complete.has_missing
    False
    """
    rules = Rules() if rules is None else rules
    rules.require_feasible(households)
    compiled = rules.compile(households)
    generator = numpy_generator(typed_key(key))
    schema, ids = households.schema, households.ids
    margins = (
        _margins(households.household_codes, schema.num_household_levels),
        _margins(households.member_codes, schema.num_member_levels),
    )
    household_codes = np.array(households.household_codes)
    member_codes = np.array(households.member_codes)
    incomplete = households.incomplete
    for block in households.size_blocks:
        which = np.flatnonzero(incomplete[block.households])
        observed = (block.household_codes[which], block.member_codes[which])
        filled = [codes.copy() for codes in observed]
        left = np.arange(len(which))
        for _ in range(_ROUNDS):
            if left.size == 0:
                break
            for codes, given, cumulative in zip(filled, observed, margins, strict=True):
                codes[left] = _draw(generator, given[left], cumulative)
            left = left[~compiled.on_numpy(filled[0][left], filled[1][left])]
        for i in left:
            completion = _search(compiled, observed[0][i], observed[1][i], margins, generator)
            if completion is None:
                k = block.households[which[i]]
                raise MicrodataError(
                    f"household {quoted(plain_label(ids[k]))} has missing values, and none were "
                    "found with which it obeys the rules; fill some in, or drop the household",
                    row=households.first_row(int(k)),
                )
            filled[0][i], filled[1][i] = completion
        household_codes[block.households[which]] = filled[0]
        member_codes[block.members[which]] = filled[1]
    return Households(
        schema, household_codes, households.sizes, member_codes, households.ids, households.rows
    )


def _margins(codes: np.ndarray, num_levels: Sequence[int]) -> list[np.ndarray]:
    """Cumulative frequencies of each variable's levels, plus half a record for each level.

    Therefore any value may be drawn.
    """
    margins = []
    for column, levels in zip(codes.T, num_levels, strict=True):
        counts = np.bincount(column[column >= 0], minlength=levels) + 0.5
        margins.append(np.cumsum(counts / counts.sum()))
    return margins


def _draw(
    generator: np.random.Generator, codes: np.ndarray, margins: list[np.ndarray]
) -> np.ndarray:
    """Draw the missing codes of some units, (units, .., variables), from cumulative margins."""
    codes = codes.copy()
    for j, cumulative in enumerate(margins):
        missing = codes[..., j] < 0
        drawn = np.searchsorted(cumulative, generator.random(int(missing.sum())), side="right")
        codes[missing, j] = np.minimum(drawn, len(cumulative) - 1)
    return codes


def _search(
    compiled: CompiledRules,
    household: np.ndarray,
    members: np.ndarray,
    margins: tuple[list[np.ndarray], list[np.ndarray]],
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Complete one household's (q,) and (m, p) codes by a possible completion; None: not found."""
    columns = Rules(compiled.rules).columns(compiled.schema)
    for filled in completions(compiled.schema, columns, household, members, _ALONE):
        possible = np.flatnonzero(compiled.on_numpy(*filled))
        if possible.size:
            one = generator.choice(possible)
            # Values that no rule uses are still missing.
            completed = _draw(generator, filled[0][one], margins[0])
            return completed, _draw(generator, filled[1][one], margins[1])
    return None
