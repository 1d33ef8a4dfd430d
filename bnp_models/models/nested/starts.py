"""Feasible values for what is missing in households: where a sampler of missing values starts."""

import numpy as np

from bnp_models.data.households import Households
from bnp_models.data.messages import quoted
from bnp_models.data.schema import MicrodataError, plain_label
from bnp_models.rules.completions import completions
from bnp_models.rules.rules import CompiledRules, Rules

# Rounds of draws for all households at once, then completions tried for one that is left.
_ROUNDS, _ALONE = 100, 2**18


def complete_households(
    households: Households, rules: Rules | None = None, *, seed: int
) -> Households:
    """Fill in missing values at random, so that every household is possible.

    Values are drawn independently from those observed of the same variable, and again until the
    household keeps the rules. It is a place to start from, not an imputation: the values ignore
    everything else that is known of the household.

    Parameters
    ----------
    households : Households
    rules : Rules, optional
        None: any values.
    seed : int
        Seed of the PCG64 generator.

    Returns
    -------
    Households
        The same households, complete; what was observed is unchanged.

    Raises
    ------
    MicrodataError
        If a complete household breaks a rule, or no possible completion of another was found in
        2^18 tries, or there is none; it names the household.
    """
    rules = Rules() if rules is None else rules
    rules.require_feasible(households)
    compiled = rules.compile(households)
    generator = np.random.Generator(np.random.PCG64(seed))
    schema = households.schema
    margins = (
        _margins(households.household_codes, schema.num_household_levels),
        _margins(households.member_codes, schema.num_member_levels),
    )
    household_codes = np.array(households.household_codes)
    member_codes = np.array(households.member_codes)
    incomplete = households.incomplete
    for block in households.size_blocks:
        here = np.flatnonzero(incomplete[block.households])
        observed = (block.household_codes[here], block.member_codes[here])
        filled = [codes.copy() for codes in observed]
        left = np.arange(len(here))
        for _ in range(_ROUNDS):
            if left.size == 0:
                break
            for codes, given, of_variable in zip(filled, observed, margins, strict=True):
                codes[left] = _draw(generator, given[left], of_variable)
            left = left[~compiled.on_numpy(filled[0][left], filled[1][left])]
        for i in left:
            found = _search(compiled, observed[0][i], observed[1][i], margins, generator)
            if found is None:
                k = block.households[here[i]]
                raise MicrodataError(
                    f"no values were found for those missing in household "
                    f"{quoted(plain_label(households.ids[k]))} that keep the rules; fill some in, "
                    "or drop the household",
                    row=households.first_row(int(k)),
                )
            filled[0][i], filled[1][i] = found
        household_codes[block.households[here]] = filled[0]
        member_codes[block.members[here]] = filled[1]
    return Households(
        schema, household_codes, households.sizes, member_codes, households.ids, households.rows
    )


def _margins(codes: np.ndarray, num_levels) -> list[np.ndarray]:
    """Return the cumulative probabilities of each variable's levels: those observed, and a little
    for each, so that any value may be drawn."""
    margins = []
    for column, levels in zip(codes.T, num_levels, strict=True):
        counts = np.bincount(column[column >= 0], minlength=levels) + 0.5
        margins.append(np.cumsum(counts / counts.sum()))
    return margins


def _draw(generator, codes: np.ndarray, margins) -> np.ndarray:
    """Return codes with the missing ones drawn."""
    codes = codes.copy()
    for j, margin in enumerate(margins):
        missing = codes[..., j] < 0
        drawn = np.searchsorted(margin, generator.random(int(missing.sum())), side="right")
        codes[missing, j] = np.minimum(drawn, len(margin) - 1)
    return codes


def _search(
    compiled: CompiledRules, household: np.ndarray, members: np.ndarray, margins, generator
):
    """Return possible completions of one household's (q,) and (m, p) codes, or None."""
    columns = Rules(compiled.rules).columns(compiled.schema)
    for filled in completions(compiled.schema, columns, household, members, _ALONE):
        possible = np.flatnonzero(compiled.on_numpy(*filled))
        if possible.size:
            one = generator.choice(possible)
            # What no rule reads is still missing.
            return tuple(
                _draw(generator, codes[one], of_variable)
                for codes, of_variable in zip(filled, margins, strict=True)
            )
    return None
