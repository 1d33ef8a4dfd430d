"""Candidates for structural zeros: combinations that a sample lacks but would be expected to
have."""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import pandas as pd
from tqdm import tqdm

from bnp_models.data.cells import joint_codes, rake_once
from bnp_models.data.label_numbers import are_ordered, numbers_among, written
from bnp_models.data.messages import listing, quoted
from bnp_models.data.microdata import Records
from bnp_models.data.schema import Label, MicrodataError, Schema, text_of, unknown_variable
from bnp_models.zeros.statements import codes_meant
from bnp_models.zeros.structural_zeros import StructuralZeros

CONFIRM, EXPECTED, CHANCE = "#confirm", "#expected", "#chance"
"""Columns beside the variables; the first has "?" until a person removes it."""

LEAST_EXPECTED = 5.0
"""Expected number of records from which a combination without records is suggested."""

# Cells of a table of three variables, and rounds of fitting its two-way margins.
_MOST_CELLS, _ROUNDS = 20_000, 20

# Seconds before a bar is shown.
_DELAY = 1

# Expected records, and codes by variable.
_Row: TypeAlias = tuple[float, dict[int, list[int]]]


def suggest_conditions(
    table: Records, least: float = LEAST_EXPECTED, most: int = 200, progress: bool = False
) -> pd.DataFrame:
    """Suggest structural zeros, each of which a person has to confirm or remove.

    Parameters
    ----------
    table
        Records; those with a missing value count in the tables of the variables they have.
    least
        Expected number of records from which an empty combination is suggested.
    most
        Largest number of rows; those with the largest expected counts are returned.
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
    For two variables, the expected count is that under independence; runs of adjacent levels of
    numbers in order are taken together. If one variable determines the other, as a municipality
    determines its region, there is one row for each level of the other, which names all levels with
    which it cannot occur (`settled_conditions`). For three variables, it is that of the log-linear
    model with all two-way interactions, for cells whose two-way counts are all positive. A zero in
    a sample is no proof: what cannot occur is known from the questionnaire, not from the data.

    Examples
    --------
    >>> found = bnp.suggest_conditions(table)
    >>> found.loc[0, ["age", "education"]].tolist()
    ['>=15', 'Under 15 years old']
    """
    cells = table.tabulated
    rows: list[_Row] = []
    settled: list[_Row] = []
    # Variable by variable in memory: thousands of tables are made of a few columns each.
    codes = np.ascontiguousarray(cells.codes.T)
    missing = (codes < 0).any(axis=1)
    counts_of = partial(_counts, table.schema, codes, missing, cells.counts)
    columns = [j for j, size in enumerate(table.schema.num_levels) if size > 1]
    in_order = [are_ordered(labels) for labels in table.schema.levels]
    for pair in itertools.combinations(columns, 2):
        counts, n = counts_of(pair)
        if (way := _settling(counts, least)) is None:
            rows += _of_two(pair, [in_order[j] for j in pair], counts, n)
        else:
            settled += _of_settled(pair[::way], counts if way > 0 else counts.T)
    triples = itertools.combinations(columns, 3)
    number = math.comb(len(columns), 3)
    for triple in tqdm(triples, "tables", number, delay=_DELAY, disable=not progress):
        if np.prod([table.schema.num_levels[j] for j in triple]) <= _MOST_CELLS:
            rows += _of_three(triple, *counts_of(triple), least)
    rows = sorted((row for row in rows if row[0] >= least), key=lambda row: -row[0])[:most]
    return _as_frame(table.schema, sorted(settled + rows, key=lambda row: -row[0]))


def settling_variables(table: Records, least: float = LEAST_EXPECTED) -> list[tuple[str, str]]:
    """Find pairs of variables of which the first determines the second in all records.

    Parameters
    ----------
    table
        Records; those with a missing value count in the tables of the variables they have.
    least
        Least expected number of records, if the two variables were independent, that would have
        another value of the second variable than the first record with their value of the first.
        With fewer, the relation may be due to chance.

    Returns
    -------
    pairs
        Names, such as ("municipality", "region"). If two variables determine each other, the one
        that comes first in the table is first.

    Examples
    --------
    >>> bnp.zeros.settling_variables(table)
    []
    """
    cells, names = table.tabulated, table.schema.variables
    codes = np.ascontiguousarray(cells.codes.T)
    missing = (codes < 0).any(axis=1)
    found = []
    columns = [j for j, size in enumerate(table.schema.num_levels) if size > 1]
    for pair in itertools.combinations(columns, 2):
        counts, _ = _counts(table.schema, codes, missing, cells.counts, pair)
        if way := _settling(counts, least):
            first, second = pair[::way]
            found.append((names[first], names[second]))
    return found


def settled_conditions(table: Records, by: str, of: str) -> StructuralZeros:
    """Return the structural zeros by which one variable determines another, as in a sample.

    Parameters
    ----------
    table
        Records. A level of `by` determines the level of `of` if some record has both values.
    by, of
        Variables, as municipality and region.

    Raises
    ------
    MicrodataError
        If a variable is unknown, or records with one level of `by` have several of `of`.

    Examples
    --------
    >>> towns = pd.DataFrame({"town": ["a", "b", "c"], "region": ["N", "N", "S"]})
    >>> towns = bnp.Microdata.from_frame(towns)
    >>> bnp.zeros.settled_conditions(towns, "town", "region").num_feasible_cells
    3
    """
    schema, cells = table.schema, table.tabulated
    for name in (by, of):
        if name not in schema.variables:
            raise unknown_variable(name, schema.variables, "variable")
    if by == of:
        raise MicrodataError("a variable always determines itself; name another", column=by)
    first, second = schema.variables.index(by), schema.variables.index(of)
    codes = cells.codes.T
    counts, _ = _counts(schema, codes, (codes < 0).any(axis=1), cells.counts, (first, second))
    several = np.flatnonzero((counts > 0).sum(axis=1) > 1)
    if several.size:
        label = schema.levels[first][several[0]]
        others = [schema.levels[second][b] for b in np.flatnonzero(counts[several[0]])]
        raise MicrodataError(
            f"does not determine {quoted(of)}: records with {quoted(label)} have {listing(others)} "
            f"({several.size} of its levels have several); correct these records, or leave this "
            "option out",
            column=by,
        )
    impossible = np.argwhere((counts == 0) & counts.any(axis=1, keepdims=True))
    conditions = np.full((len(impossible), len(schema.variables)), -1)
    conditions[:, [first, second]] = impossible
    return StructuralZeros(schema, conditions, impossible[:, 0])


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


def _settling(counts: np.ndarray, least: float) -> int | None:
    """1 where the first variable of a table settles the second, -1 the other way, None if none."""
    for way, table in ((1, counts), (-1, counts.T)):
        seen = table[table.any(axis=1)]
        if (np.count_nonzero(seen, axis=1) == 1).all() and len(seen) >= seen.any(axis=0).sum() > 1:
            share = table.sum(axis=0) / table.sum()
            others = 1 - share[seen.argmax(axis=1)]
            if float(((seen.sum(axis=1) - 1) * others).sum()) >= least:
                return way
    return None


def _of_settled(pair: Sequence[int], counts: np.ndarray) -> list[_Row]:
    """For each level of a variable that another one settles, what does not go with the others."""
    first, second = pair
    n, rows, columns = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
    found = []
    for b in np.flatnonzero(columns):
        levels, others = np.flatnonzero(counts[:, b]), np.delete(np.arange(len(columns)), b)
        expected = float(rows[levels].sum() * columns[others].sum() / n)
        found.append((expected, {first: levels.tolist(), second: others.tolist()}))
    return found


def _of_two(pair, in_order, counts, n) -> list[_Row]:
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


def _of_three(triple, counts, n, least) -> list[_Row]:
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
    if 2 < len(codes) == len(labels) - 1:
        (other,) = set(range(len(labels))) - set(codes)
        return f"!{text_of(labels[other])}"
    return "|".join(texts)
