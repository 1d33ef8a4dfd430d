"""Candidates for structural zeros: combinations that a sample lacks and should have by chance."""

import itertools
import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from tqdm import tqdm

from bnp_models.data.label_numbers import are_ordered, numbers_among, written
from bnp_models.data.margins import joint_codes, rake_once
from bnp_models.data.microdata import Records
from bnp_models.data.schema import Label, MicrodataError, Schema, text_of
from bnp_models.zeros.statements import codes_meant

CONFIRM, EXPECTED, CHANCE = "#confirm", "#expected", "#chance"
"""Columns beside the variables; the first has "?" until a person removes it."""

LEAST_EXPECTED = 5.0
"""Records that a combination has to be expected to have, of which there are none."""

# Cells of a table of three variables, and rounds of fitting its two-way margins.
_MOST_CELLS, _ROUNDS = 20_000, 20

# Seconds before a bar is shown.
_DELAY = 1


def suggest_conditions(
    table: Records, least: float = LEAST_EXPECTED, most: int = 200, progress: bool = False
) -> pd.DataFrame:
    """Suggest structural zeros, for a person to confirm or to strike out.

    Parameters
    ----------
    table
        Records; those with a missing value count in the tables of the variables they have.
    least
        Expected records from which on an empty combination is suggested.
    most
        Rows at the most, those with the largest expected counts.
    progress
        Show a bar on stderr where it takes longer than a second: there are as many tables as
        triples of variables.

    Returns
    -------
    DataFrame
        Conditions as `StructuralZeros.from_frame` reads them, which refuses a row until the "?" in
        ``#confirm`` is removed; ``#expected`` records, and ``#chance``, the Poisson probability
        exp(-expected) that a combination which can occur is not in the sample.

    Notes
    -----
    Of two variables, the expected count is that of independent ones; runs of adjacent levels of
    numbers in order are taken together. Of three, it is that of the log-linear model with all
    two-way interactions, of cells whose two-way counts are all positive. A zero in a sample is no
    proof: what cannot occur is known from the questionnaire, not from the data.

    Examples
    --------
    >>> found = bnp.suggest_conditions(table)
    >>> found.loc[0, ["age", "education"]].tolist()
    ['>=15', 'Under 15 years old']
    """
    cells = table.tabulated
    rows: list[tuple[float, dict[int, list[int]]]] = []
    # Variable by variable in memory: thousands of tables are made of a few columns each.
    codes = np.ascontiguousarray(cells.codes.T)
    missing = (codes < 0).any(axis=1)
    counts_of = partial(_counts, table.schema, codes, missing, cells.counts)
    columns = [j for j, size in enumerate(table.schema.num_levels) if size > 1]
    in_order = [are_ordered(labels) for labels in table.schema.levels]
    for pair in itertools.combinations(columns, 2):
        rows += _of_two(pair, [in_order[j] for j in pair], *counts_of(pair))
    triples = itertools.combinations(columns, 3)
    number = math.comb(len(columns), 3)
    for triple in tqdm(triples, "tables", number, delay=_DELAY, disable=not progress):
        if np.prod([table.schema.num_levels[j] for j in triple]) <= _MOST_CELLS:
            rows += _of_three(triple, *counts_of(triple), least)
    rows = sorted((row for row in rows if row[0] >= least), key=lambda row: -row[0])[:most]
    return _as_frame(table.schema, rows)


def _counts(schema, codes, missing, counts, columns) -> tuple[np.ndarray, float]:
    """Table of some variables, of the records that have all of them, and how many these are."""
    num_levels = [schema.num_levels[j] for j in columns]
    some, weight = [codes[j] for j in columns], counts
    if any(missing[j] for j in columns):
        known = np.all([of_one >= 0 for of_one in some], axis=0)
        some, weight = [of_one[known] for of_one in some], counts[known]
    joint = joint_codes(some, num_levels)
    table = np.bincount(joint, weight, int(np.prod(num_levels)))
    return table.reshape(num_levels), float(table.sum())


def _of_two(pair, in_order, counts, n) -> list[tuple[float, dict[int, list[int]]]]:
    """Empty parts of the table of two variables, with the records expected of independent ones."""
    if not n:
        return []
    first, second = pair
    if in_order[1] and (not in_order[0] or counts.shape[1] > counts.shape[0]):
        first, second, counts, in_order = second, first, counts.T, in_order[::-1]
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / n
    # Levels of the second variable, by the levels of the first that do not go with them.
    together: dict[tuple[int, ...], list[int]] = {}
    for b in range(counts.shape[1]):
        empty = np.flatnonzero((counts[:, b] == 0) & (counts.sum(axis=1) > 0))
        parts = _runs(empty, counts.sum(axis=1)) if in_order[0] else [(int(a),) for a in empty]
        for part in parts:
            if counts[:, b].any():
                together.setdefault(tuple(part), []).append(b)
    return [
        (float(expected[np.ix_(a, b)].sum()), {first: list(a), second: b})
        for a, b in together.items()
    ]


def _of_three(triple, counts, n, least) -> list[tuple[float, dict[int, list[int]]]]:
    """Empty cells of the table of three variables, with the records that its margins expect."""
    goals = [counts.sum(axis=k, keepdims=True) for k in range(3)]
    possible = np.ones(counts.shape, bool)
    for goal in goals:
        possible &= goal > 0
    empty = possible & (counts == 0)
    if not empty.any() or n < least:
        return []
    fitted = possible.astype(float).reshape(-1)
    index = np.indices(counts.shape)
    margins = []
    for k, goal in enumerate(goals):
        kept = [i for i in range(3) if i != k]
        where = joint_codes([index[i].reshape(-1) for i in kept], [counts.shape[i] for i in kept])
        margins.append((where, goal.reshape(-1).astype(float)))
    for _ in range(_ROUNDS):
        fitted, _away = rake_once(fitted, margins)
    fitted = fitted.reshape(counts.shape)
    return [
        (float(fitted[tuple(cell)]), {j: [int(code)] for j, code in zip(triple, cell, strict=True)})
        for cell in np.argwhere(empty & (fitted >= least))
    ]


def _runs(empty: np.ndarray, counts: np.ndarray) -> list[list[int]]:
    """Runs of adjacent levels, those that no record has left out."""
    position = np.cumsum(counts > 0)[empty]
    return [
        part.tolist()
        for part in np.split(empty, np.flatnonzero(np.diff(position) > 1) + 1)
        if part.size
    ]


def _as_frame(schema: Schema, rows) -> pd.DataFrame:
    """Rows of conditions with their expected counts."""
    used = sorted({j for _, fixed in rows for j in fixed})
    columns: dict[str, list] = {schema.variables[j]: [] for j in used}
    for _, fixed in rows:
        for j in used:
            text = levels_said(fixed[j], schema.levels[j]) if j in fixed else ""
            columns[schema.variables[j]].append(text)
    expected = np.array([count for count, _ in rows], float)
    columns[CONFIRM] = ["?"] * len(rows)
    columns[EXPECTED] = [f"{count:.1f}" for count in expected]
    columns[CHANCE] = [f"{chance:.1g}" for chance in np.exp(-expected)]
    return pd.DataFrame(columns)


def levels_said(codes: Sequence[int], labels: Sequence[Label]) -> str:
    """The levels in the words of a condition: a range where they are one."""
    texts = [text_of(labels[code]) for code in codes]
    if len(codes) > 2 and are_ordered(labels):
        intervals = numbers_among(labels)
        low, high = intervals[codes[0]].low, intervals[codes[-1]].high
        if codes[-1] == len(labels) - 1:
            way = f">={written(low)}"
        elif codes[0] == 0:
            way = f"<{written(intervals[codes[-1] + 1].low)}"
        else:
            way = f"{written(low)}-{written(high)}"
        try:
            if codes_meant(way, labels).tolist() == list(codes):
                return way
        except MicrodataError:
            pass
    return "|".join(texts)
