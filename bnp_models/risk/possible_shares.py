"""Shares of possible households among those of a coarser composition, by simulation.

Households are drawn from the nested model at one draw, given their coarser compositions: the head's
values that are summed over, the arrangement and the class of the household together; then the
classes of its members; then the levels that rules read, within their coarser levels. Where all
households of a coarser composition can be listed and are possible, nothing has to be drawn.
"""

from collections.abc import Sequence

import numpy as np

from bnp_models.data.coarser_households import Labels, is_coarser, ranges
from bnp_models.risk.arrangements import (
    Arrangements,
    Arranger,
    Choice,
    Evaluated,
    merged,
)
from bnp_models.risk.evaluator import Draws
from bnp_models.rules.rules import CompiledRules

SIMULATED = 128
"""Number of households that are drawn for each coarser composition at each draw."""

MAX_LISTED = 2**10
"""Largest number of households of a coarser composition that are listed."""


def possible_shares(
    arranger: Arranger,
    rules: CompiledRules,
    draws: Sequence[Draws],
    labels: Labels,
    arranged: Arrangements,
    choices: Sequence[Choice],
    evaluated: Sequence[Sequence[Evaluated]],
    generator: np.random.Generator,
) -> np.ndarray:
    """Estimate the probability (D, m) that a household of each coarser composition is possible.

    Parameters
    ----------
    arranger, arranged, choices
        The arrangements of m households.
    rules
        Predicate of level codes.
    draws, evaluated
        D draws, and the probabilities of the arrangements of each choice at each of them.
    labels
        The coarser levels.
    generator
        Generator of the simulated households.
    """
    num_rows, made = int(arranged.row.max()) + 1, []
    for d, (draw, of_choices) in enumerate(zip(draws, evaluated, strict=True)):
        of_choice, arrangement, g = _draw_classes(arranged, choices, of_choices, generator)
        for c, (choice, one) in enumerate(zip(choices, of_choices, strict=True)):
            drawn = np.flatnonzero(of_choice == c)
            if len(drawn):
                e, of_class = arrangement[drawn], g[drawn]
                levels = _draw_levels(
                    arranger, draw, labels, arranged, choice, one, e, of_class, generator
                )
                made.append((d * num_rows + arranged.row[e], *levels))
    # All are judged together, because a rule takes as long for a few households as for many.
    place, *of_all = (np.concatenate(part) for part in zip(*made, strict=True))
    good = np.bincount(place, _are_possible(rules, *of_all), len(draws) * num_rows)
    return good.reshape(len(draws), num_rows) / SIMULATED


def all_possible(
    arranger: Arranger, rules: CompiledRules, labels: Labels, arranged: Arrangements
) -> np.ndarray:
    """Say of which coarser compositions (m,) all households are possible, by listing them.

    Each household has one arrangement (the head is known, or there is none). If more than
    `MAX_LISTED` would have to be listed, the answer is no.

    Parameters
    ----------
    arranger, labels, arranged
        As for `possible_shares`.
    rules
        Predicate of level codes.
    """
    found, number = np.zeros(len(arranged.row), bool), arranged.num_members
    data, of_variables = arranger.data, arranger.levels(labels)
    within = [
        [of if k in read else np.arange(len(of)) for k, of in enumerate(variables)]
        for variables, read in zip(
            of_variables, (data.household.read, data.member.read), strict=True
        )
    ]
    for size in np.unique(number):
        rows = np.flatnonzero(number == size)
        _, index = arranged.members_of(rows)
        members = arranged.level_codes[index].reshape(len(rows), -1)
        codes = np.concatenate([arranged.household_codes[rows], members], axis=1)
        few, row, listed = _finer(codes, [*within[0], *(within[1] * size)])
        households, persons = np.split(listed, [len(within[0])], axis=1)
        shape = (len(listed), size, len(within[1]))
        broken = ~rules.on_numpy(households, persons.reshape(shape))
        found[rows] = few & (np.bincount(row, broken, len(rows)) == 0)
    return found


def _finer(
    codes: np.ndarray, labels: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All codes with the same labels as those of some rows (m, J), if they are few.

    The results are whether those of a row are at most `MAX_LISTED`, (m,); the rows (T,) of those
    that are listed; and the codes (T, J).
    """
    orders = [np.argsort(of, kind="stable") for of in labels]
    bounds = [
        [np.searchsorted(of[order], of[column], side) for side in ("left", "right")]
        for of, order, column in zip(labels, orders, codes.T, strict=True)
    ]
    number = np.stack([high - low for low, high in bounds], axis=1)
    few = np.prod(number, axis=1, dtype=float) <= MAX_LISTED
    total = np.where(few, np.prod(np.where(few[:, None], number, 1), axis=1), 0)
    row, rest = ranges(np.zeros_like(total), total)
    listed = np.empty((len(row), len(labels)), np.int32)
    for j, (order, (low, _)) in enumerate(zip(orders, bounds, strict=True)):
        rest, digit = np.divmod(rest, number[row, j])
        listed[:, j] = order[low[row] + digit]
    return few, row, listed


def _draw_classes(
    arranged: Arrangements,
    choices: Sequence[Choice],
    evaluated: Sequence[Evaluated],
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw the head's values, the arrangement and the class of `SIMULATED` households of each row.

    The results are (m * SIMULATED,) choices, arrangements and classes.
    """
    choice = np.concatenate([np.full(len(one.arrangement), c) for c, one in enumerate(choices)])
    arrangement = np.concatenate([one.arrangement for one in choices])
    order = np.argsort(arranged.row[arrangement], kind="stable")
    choice, arrangement = choice[order], arrangement[order]
    log_p = np.concatenate([one.log_p for one in evaluated])[order]
    first = np.flatnonzero(np.diff(arranged.row[arrangement], prepend=-1))
    after = np.append(first[1:], len(order))
    top = np.repeat(np.maximum.reduceat(log_p.max(axis=1), first), after - first)
    total = np.append(0.0, np.cumsum(np.exp(log_p - top[:, None]).reshape(-1)))
    begin, end = (x[:, None] * log_p.shape[1] for x in (first, after))
    u = generator.random((len(first), SIMULATED))
    wanted = total[begin] + u * (total[end] - total[begin])
    index = np.searchsorted(total, wanted, side="right") - 1
    place, g = np.divmod(np.minimum(index, end - 1).reshape(-1), log_p.shape[1])
    return choice[place], arrangement[place], g


def _draw_levels(
    arranger: Arranger,
    draw: Draws,
    labels: Labels,
    arranged: Arrangements,
    choice: Choice,
    one: Evaluated,
    e: np.ndarray,
    g: np.ndarray,
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw levels that rules read for arrangements e (T,) of households of classes g (T,).

    The results are codes (T, q) of the households, their numbers (T,) of members, and codes (M, p)
    of these.
    """
    data, (of_household, of_member) = arranger.data, arranger.levels(labels)
    households = arranged.household_codes[e]
    for k, of in enumerate(of_household):
        if k in choice.levels:
            households[:, k] = choice.levels[k]
        elif k in data.household.read and is_coarser(of):
            table = draw["log_lambda"][arranger.household_rows[k]].astype(float)
            households[:, k] = draw_within(table, of, households[:, k], g, generator)
    lane, index = arranged.members_of(e)
    codes, levels = arranged.member_codes[index], arranged.level_codes[index]
    _, num_nested_of, num_member_classes = one.levels[0].shape
    nested_of = g[lane] if num_nested_of > 1 else np.zeros(len(lane), int)
    log_p = draw["log_omega"][g[lane]]
    for v, (table, of) in enumerate(zip(one.levels, of_member, strict=True)):
        log_p = log_p + coarser_levels(table, of)[codes[:, v], nested_of]
    column = nested_of * num_member_classes + _draw_columns(log_p, generator)
    for v, of in enumerate(of_member):
        if v in data.member.read and is_coarser(of):
            table = one.levels[v].reshape(len(of), -1)
            levels[:, v] = draw_within(table, of, levels[:, v], column, generator)
    return households, arranged.num_members[e], levels


def _are_possible(
    rules: CompiledRules, households: np.ndarray, number: np.ndarray, members: np.ndarray
) -> np.ndarray:
    """Whether households (T, q) with these numbers (T,) of members (M, p) keep the rules."""
    possible, start = np.zeros(len(households), bool), np.cumsum(number) - number
    for size in np.unique(number):
        which = np.flatnonzero(number == size)
        places = start[which, None] + np.arange(size)
        possible[which] = rules.on_numpy(households[which], members[places])
    return possible


def _draw_columns(log_p: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw a column (T,) for each row of log weights (T, S)."""
    weight = np.cumsum(np.exp(log_p - log_p.max(axis=1, keepdims=True)), axis=1)
    u = generator.random(len(log_p)) * weight[:, -1]
    return np.minimum(np.sum(weight <= u[:, None], axis=1), log_p.shape[1] - 1)


def coarser_levels(log_p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Log probabilities (L, ...) of the coarser level of each level, of which (L,) are labels."""
    return merged(log_p[None], labels, np.arange(len(labels)))[0]


def draw_within(
    log_p: np.ndarray,
    labels: np.ndarray,
    level: np.ndarray,
    column: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """Draw a level (T,) among those with the same label as the given one.

    Parameters
    ----------
    log_p
        (L, C) log probabilities of the levels.
    labels
        (L,) labels of the levels.
    level, column
        (T,) a level, and the column of `log_p` whose probabilities are used.
    generator
        Generator of the uniforms.
    """
    order = np.argsort(labels, kind="stable")
    within = np.exp(log_p - coarser_levels(log_p, labels))[order]
    total = np.concatenate([np.zeros((1, within.shape[1])), np.cumsum(within, axis=0)])
    low, high = (np.searchsorted(labels[order], labels[level], side) for side in ("left", "right"))
    u = generator.random(len(level))
    wanted = total[low, column] + u * (total[high, column] - total[low, column])
    # The last place whose cumulative sum is at most the wanted one, by bisection in all lanes.
    high = high - 1
    while (low < high).any():
        middle = (low + high + 1) // 2
        below = total[middle, column] <= wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle - 1)
    return order[low]
