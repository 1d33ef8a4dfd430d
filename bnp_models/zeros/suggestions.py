"""Candidates for structural zeros: combinations that a sample lacks but would be expected to
have."""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

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

LARGEST_CHANCE = 0.05
"""Combinations that chance alone would make candidates in a file, up to which one is suggested."""

# Expected records from which on an empty combination is no chance in any file.
_NEVER = 60.0

# Cells of a table of three variables, and rounds of fitting its two-way margins.
_MOST_CELLS, _ROUNDS = 20_000, 20

# Seconds before a bar is shown.
_DELAY = 1

# Cells, about, by which a pair of variables is refuted first.
_SOME = 4096


class _Row(NamedTuple):
    """A candidate."""

    expected: float
    """Records that it is expected to have."""
    fixed: dict[int, list[int]]
    """Codes by variable."""
    parts: Sequence[float] = ()
    """Expected records of the combinations of which it is made, if these are several."""
    log_number: float = 0.0
    """Logarithm of the number of such sets of combinations in all tables, if it is made of any."""
    chance: float | None = None
    """Candidates by chance, where it is known already."""


class _ByChance:
    """Number of combinations that are empty by chance, among all that are looked at."""

    def __init__(self) -> None:
        self._expected: list[np.ndarray] = []

    def add(self, expected: np.ndarray, least: float) -> None:
        """Note the expected records of combinations, empty or not."""
        self._expected.append(expected[(expected >= least) & (expected < _NEVER)].ravel())

    def number(self, expected: np.ndarray) -> np.ndarray:
        """Count those that would be empty, of combinations with so many expected records or more.

        If nothing is impossible, a combination is empty with probability exp(-expected).
        """
        every = np.sort(np.concatenate([*self._expected, [_NEVER]]))
        above = np.append(np.cumsum(np.exp(-every)[::-1])[::-1], 0)
        return above[np.searchsorted(every, np.asarray(expected) * (1 - 1e-9))]


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
        ``#confirm`` is removed; ``#expected`` records, and ``#chance``, the number of candidates
        with at least as many expected records that chance alone would make in a file without
        structural zeros. Rows with more than `LARGEST_CHANCE` are left out.

    Notes
    -----
    A combination that can occur is not in the sample with probability exp(-expected). Candidates
    are the empty ones among very many, and levels are taken together because they are empty, so
    ``#chance`` is the sum of this probability over all combinations of all tables that have at
    least as many expected records. Where levels of both variables are taken together, it is the sum
    over these, or, if that is less, the probability times the number of sets of this form.

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
    pairs, chances = list(itertools.combinations(columns, 2)), _ByChance()
    for pair in pairs:
        counts, n = counts_of(pair)
        if found := _settling(counts, least, len(pairs)):
            way, chance = found
            settled += _of_settled(pair[::way], counts if way > 0 else counts.T, chance)
        else:
            ways = [in_order[j] for j in pair]
            rows += _of_two(pair, ways, counts, n, least, chances, len(pairs))
    triples = itertools.combinations(columns, 3)
    number = math.comb(len(columns), 3)
    for triple in tqdm(triples, "tables", number, delay=_DELAY, disable=not progress):
        if np.prod([table.schema.num_levels[j] for j in triple]) <= _MOST_CELLS:
            rows += _of_three(triple, *counts_of(triple), least, chances)
    rows = [_with_chance(row, chances, least) for row in rows if row.expected >= least]
    rows = [row for row in rows if (row.chance or 0) <= LARGEST_CHANCE]
    rows = sorted(rows, key=lambda row: -row.expected)[:most]
    return _as_frame(table.schema, sorted(settled + rows, key=lambda row: -row.expected))


def _with_chance(row: _Row, chances: _ByChance, least: float) -> _Row:
    """A candidate with the number of such candidates by chance."""
    if not row.parts:
        return row._replace(chance=float(chances.number(np.array([row.expected]))[0]))
    of_parts = math.inf
    if min(row.parts) >= least:
        of_parts = float(chances.number(np.array(row.parts)).sum())
    return row._replace(chance=min(of_parts, math.exp(min(0, row.log_number - row.expected))))


def settling_variables(table: Records, least: float = LEAST_EXPECTED) -> list[tuple[str, str]]:
    """Find pairs of variables of which the first determines the second in all records.

    Parameters
    ----------
    table
        Records; those with a missing value count in the tables of the variables they have.
    least
        Least expected number of records, if the two variables were independent, that would have
        another value of the second variable than the first record with their value of the first.
        There must also be so many that chance would make fewer than `LARGEST_CHANCE` such pairs in
        a file.

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
    some = codes[:, :: max(1, codes.shape[1] // _SOME)]
    pairs = list(itertools.combinations(columns, 2))
    for pair in pairs:
        # Most pairs are refuted by a few records.
        if _refuted(*some[list(pair)]):
            continue
        counts, _ = _counts(table.schema, codes, missing, cells.counts, pair)
        if settled := _settling(counts, least, len(pairs)):
            first, second = pair[:: settled[0]]
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


def _settling(counts: np.ndarray, least: float, num_pairs: int) -> tuple[int, float] | None:
    """1 where the first variable of a table settles the second, -1 the other way; None if none.

    And how many of the pairs, in either direction, would do so by chance.
    """
    for way, table in ((1, counts), (-1, counts.T)):
        seen = table[table.any(axis=1)]
        if (np.count_nonzero(seen, axis=1) == 1).all() and len(seen) >= seen.any(axis=0).sum() > 1:
            share = table.sum(axis=0) / table.sum()
            others = 1 - share[seen.argmax(axis=1)]
            expected = float(((seen.sum(axis=1) - 1) * others).sum())
            chance = 2 * num_pairs * math.exp(-expected)
            if expected >= least and chance <= LARGEST_CHANCE:
                return way, chance
    return None


def _refuted(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether codes (C,) of two variables in some cells say that neither settles the other."""
    known = (first >= 0) & (second >= 0)
    first, second = first[known], second[known]
    pairs = len(np.unique(first.astype(np.int64) * (second.max(initial=0) + 1) + second))
    return len(np.unique(first)) < pairs and len(np.unique(second)) < pairs


def _of_settled(pair: Sequence[int], counts: np.ndarray, chance: float) -> list[_Row]:
    """For each level of a variable that another one settles, what does not go with the others."""
    first, second = pair
    n, rows, columns = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
    found = []
    for b in np.flatnonzero(columns):
        levels, others = np.flatnonzero(counts[:, b]), np.delete(np.arange(len(columns)), b)
        expected = float(rows[levels].sum() * columns[others].sum() / n)
        fixed = {first: levels.tolist(), second: others.tolist()}
        found.append(_Row(expected, fixed, chance=chance))
    return found


def _of_two(pair, in_order, counts, n, least, chances, num_pairs) -> list[_Row]:
    """Empty parts of the table of two variables, with the records expected of independent ones."""
    if not n:
        return []
    first, second = pair
    if in_order[1] and (not in_order[0] or counts.shape[1] > counts.shape[0]):
        first, second, counts, in_order = second, first, counts.T, in_order[::-1]
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / n
    seen = counts.any(axis=1)
    below = np.cumsum(np.concatenate([np.zeros((1, counts.shape[1])), expected[seen]]), axis=0)
    for length in range(1, len(below) if in_order[0] else 2):
        of_runs = below[length:] - below[:-length]
        if of_runs.min() >= _NEVER:
            break
        chances.add(of_runs, least)
    # Levels of the second variable, by the levels of the first that do not go with them.
    together: dict[tuple[int, ...], list[int]] = {}
    for b in range(counts.shape[1]):
        empty = np.flatnonzero((counts[:, b] == 0) & seen)
        parts = _runs(empty, counts.sum(axis=1)) if in_order[0] else [(int(a),) for a in empty]
        for part in parts:
            if counts[:, b].any():
                together.setdefault(tuple(part), []).append(b)
    # Forms that a set of combinations may have: so many levels of the one, and of the other.
    num_second = int(counts.any(axis=0).sum())
    forms = num_second * (int(seen.sum()) if in_order[0] else 1)
    found = []
    for own, others in together.items():
        sums = expected[np.ix_(own, others)].sum(axis=0)
        runs = int(seen.sum()) - len(own) + 1
        sets = num_pairs * forms * runs * math.comb(num_second, len(others))
        row = _Row(float(sums.sum()), {first: list(own), second: others})
        if len(others) > 1:
            row = row._replace(parts=sums.tolist(), log_number=math.log(sets))
        found.append(row)
    return found


def _of_three(triple, counts, n, least, chances) -> list[_Row]:
    """Empty cells of the table of three variables, with the records that its margins expect."""
    goals = [counts.sum(axis=k, keepdims=True) for k in range(3)]
    possible = np.ones(counts.shape, bool)
    for goal in goals:
        possible &= goal > 0
    empty = possible & (counts == 0)
    if not empty.any() or n < least:
        # That of a cell which is not empty is about its count.
        chances.add(counts.astype(float), least)
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
    chances.add(fitted[possible], least)
    return [
        _Row(
            float(fitted[tuple(cell)]),
            {j: [int(code)] for j, code in zip(triple, cell, strict=True)},
        )
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


def _as_frame(schema: Schema, rows: Sequence[_Row]) -> pd.DataFrame:
    """Rows of conditions with their expected counts."""
    used = sorted({j for row in rows for j in row.fixed})
    columns: dict[str, list] = {schema.variables[j]: [] for j in used}
    for row in rows:
        for j in used:
            text = levels_said(row.fixed[j], schema.levels[j]) if j in row.fixed else ""
            columns[schema.variables[j]].append(text)
    columns[CONFIRM] = ["?"] * len(rows)
    columns[EXPECTED] = [f"{row.expected:.1f}" for row in rows]
    columns[CHANCE] = [f"{row.chance:.1g}" for row in rows]
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
