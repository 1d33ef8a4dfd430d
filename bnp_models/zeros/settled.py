"""Values that are missing because of another variable, such as the occupation of children.

They are missing by design: if the questionnaire does not ask a question, there is no value that
could be drawn. The other variable is said to settle the empty values: it determines where they are.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.data.display import first_parts
from bnp_models.data.label_numbers import are_ordered
from bnp_models.data.messages import listed, quoted
from bnp_models.data.microdata import Records
from bnp_models.data.schema import Label, MicrodataError, Schema, text_of, unknown_variable
from bnp_models.zeros.structural_zeros import StructuralZeros
from bnp_models.zeros.suggestions import levels_said

NOT_APPLICABLE = "not applicable"
"""Label of the level that empty values become where another variable settles them."""

EMPTY = "(empty)"
"""Label of the level that other empty values become, where they are kept."""

CHANCE = 1e-6
"""Largest probability, for values taken as settled by another variable, that values which are empty
at random would look the same."""


class Settled(NamedTuple):
    """Values of a variable that are empty in all records with some levels of another one.

    Examples
    --------
    >>> asked = pd.DataFrame({"age": ["child", "adult"] * 40, "job": [None, "clerk"] * 40})
    >>> answers = bnp.Microdata.from_frame(asked)
    >>> bnp.zeros.find_settled(answers)[0].records
    40
    """

    variable: int
    """Column of the variable."""
    parent: int
    """Column of the other one, which settles where the variable is empty."""
    where: np.ndarray
    """(L,) bool: levels of the other variable with which it is empty."""
    records: int
    """Number of records with these levels that nothing before in the list has settled."""


def find_settled(
    table: Records,
    label: str | None = None,
    named: Sequence[tuple[str, str]] = (),
) -> list[Settled]:
    """Find the variables whose empty values other variables settle.

    Parameters
    ----------
    table
        Records.
    label
        The level that stands for an empty value. Default: none does, they are missing.
    named
        Pairs, in either order, of a variable and another one whose empty values it is known to
        settle. Each of its levels for which all records are empty then settles the other variable,
        however few these records are.

    Raises
    ------
    MicrodataError
        If a name is unknown, or a pair has no such level.

    Returns
    -------
    settled
        The entries are in the order of the variables. If a variable has several entries, it is
        empty if at least one of them makes it empty. The first one settles most records, and each
        of the next ones settles records that are left.

    Notes
    -----
    A variable is settled by another one in two cases: the other one determines for every record
    whether the variable is empty; or the variable is empty in all records of some levels of the
    other one, and they are so many that, given its share of empty values, this has a probability
    below `CHANCE` if values are empty at random (levels that are numbers in order are taken in runs
    of adjacent ones).

    Examples
    --------
    >>> asked = pd.DataFrame({"age": ["child", "adult"] * 40, "job": [None, "clerk"] * 40})
    >>> answers = bnp.Microdata.from_frame(asked)
    >>> [settled] = bnp.zeros.find_settled(answers)
    >>> settled.variable, settled.parent, settled.where.tolist(), settled.records
    (1, 0, [False, True], 40)
    """
    cells, schema = table.tabulated, table.schema
    in_order = [are_ordered(labels) for labels in schema.levels]
    codes = np.ascontiguousarray(cells.codes.T)
    is_empty = [
        _is_empty(of, labels, label) for of, labels in zip(codes, schema.levels, strict=True)
    ]
    known = _known(schema, codes, is_empty, cells.counts, named)
    found: list[Settled] = []
    for j, empty in enumerate(is_empty):
        parents = [parent for parent, variable in known if variable == j]
        left = np.ones(len(empty), bool)
        while (empty & left).any() and not empty.all():
            counts = cells.counts * left
            one = None
            if parents:
                full, records = _full(parents[0], codes, empty, counts, schema)
                one = Settled(j, parents.pop(0), full, records)
            else:
                one = _most_settled(j, codes, empty, counts, schema, in_order)
            if one is None:
                break
            found.append(one)
            left &= ~np.append(one.where, False)[codes[one.parent]]
    return found


def _is_empty(codes: np.ndarray, labels: Sequence[Label], label: str | None) -> np.ndarray:
    """Whether codes of a variable are missing, or the level that stands for that."""
    if label is None:
        return codes < 0
    texts = [text_of(one) for one in labels]
    return codes == (texts.index(label) if label in texts else len(texts))


def _known(schema, codes, is_empty, counts, named) -> list[tuple[int, int]]:
    """Columns of pairs, the one that settles first: whichever of a pair it is."""
    found = []
    for pair in named:
        for name in pair:
            if name not in schema.variables:
                raise unknown_variable(name, schema.variables, "variable")
        k, j = (schema.variables.index(name) for name in pair)
        ways = [
            way for way in ((k, j), (j, k))
            if k != j and _full(way[0], codes, is_empty[way[1]], counts, schema)[1]
        ]  # fmt: skip
        if not ways:
            raise MicrodataError(
                f"has values in some records of every level of {quoted(pair[0])}, so that "
                f"{quoted(pair[0])} does not determine where values are missing", column=pair[1],
            )  # fmt: skip
        found.append(ways[0])
    return found


def _full(k, codes, empty, counts, schema) -> tuple[np.ndarray, int]:
    """Levels (L,) of a variable with which all records are empty, and how many these are."""
    total, number = _totals(k, codes, empty, counts, schema)
    full = (total > 0) & (number == total)
    return full, int(total[full].sum())


def _totals(k, codes, empty, counts, schema) -> tuple[np.ndarray, np.ndarray]:
    """Records (L,) with each level of a variable, and those of them that are empty."""
    known, size = codes[k] >= 0, schema.num_levels[k]
    of, weight = codes[k][known], counts[known]
    total = np.bincount(of, weight, size).astype(int)
    return total, np.bincount(of, weight * empty[known], size).astype(int)


def _most_settled(j, codes, empty, counts, schema, in_order) -> Settled | None:
    """The variable that settles most of the empty values of one; None where none does."""
    best: Settled | None = None
    least = np.inf
    for k in range(len(schema.num_levels)):
        total, number = _totals(k, codes, empty, counts, schema)
        if k == j or not number.any() or (number == total).all():
            continue
        where = _levels_settled(total, number, in_order[k])
        settled = int(total[where].sum())
        others = float((counts @ empty) - settled)
        if settled and (best is None or (settled, -others) > (best.records, -least)):
            best, least = Settled(j, k, where, settled), others
    return best


def _levels_settled(total: np.ndarray, number: np.ndarray, in_order: bool) -> np.ndarray:
    """Levels (L,) with which all of the records are empty, and not by chance."""
    full = (total > 0) & (number == total)
    share = number.sum() / total.sum()
    pure = full | (number == 0)
    if pure.all():
        # Whether records of one level are all empty, or none of them, by chance.
        by_chance = np.logaddexp(total * np.log(share), total * np.log1p(-share))
        if by_chance[total > 0].sum() < np.log(CHANCE):
            return full
    where = np.zeros(len(total), bool)
    for run in _parts(full, total, in_order):
        if total[run].sum() * np.log(share) < np.log(CHANCE):
            where[run] = True
    return where


def _parts(full: np.ndarray, total: np.ndarray, in_order: bool) -> Iterator[np.ndarray]:
    """Levels one by one, or runs of adjacent ones, those without a record left out."""
    levels = np.flatnonzero(full)
    if not in_order:
        yield from levels[:, None]
        return
    position = np.cumsum(total > 0)[levels]
    yield from np.split(levels, np.flatnonzero(np.diff(position) > 1) + 1)


def in_words(table: Records, settled: Sequence[Settled], label: str | None = None) -> list[str]:
    """Say of each variable where its empty values are settled, and how many others it has.

    A label that stands for an empty value is that of `find_settled`.
    """
    schema, cells = table.schema, table.tabulated
    what = "empty" if label is None else quoted(label)
    sentences = []
    for j in dict.fromkeys(one.variable for one in settled):
        of = [one for one in settled if one.variable == j]
        empty = _is_empty(cells.codes[:, j], schema.levels[j], label)
        others = int(cells.counts @ empty) - sum(one.records for one in of)
        places = [
            f"in all {one.records:,}{' other' * (i > 0)} records with "
            f"{quoted(schema.variables[one.parent])} {_levels(schema, one)}"
            for i, one in enumerate(of)
        ]
        rest = f"in {others:,} others" if others else "in no others"
        sentences.append(
            f"{quoted(schema.variables[j])} is {what} {listed([*places, rest], 'and')}"
        )
    return sentences


def missing_by_design(table: Records, settled: Sequence[Settled] | None = None) -> list[str]:
    """Sentence on empty values that other variables settle and that are taken as missing.

    Parameters
    ----------
    table
        Records.
    settled
        What `find_settled` finds in them, if that is known.
    """
    sentences = in_words(table, find_settled(table) if settled is None else settled)
    if not sentences:
        return []
    return [
        f"missing by design? {first_parts(sentences, 'variable')}; these values are taken as "
        "missing at random, which means that every record has a value; if these have none, say "
        f"--empty-as-level, which makes them the level {NOT_APPLICABLE!r}"
    ]


def with_values(table: Records, one: Settled) -> tuple[int, int]:
    """Return the number of records with the levels that settle that a value is empty, in another
    table of the same schema, and how many of these have a value."""
    cells = table.tabulated
    there = np.append(one.where, False)[cells.codes[:, one.parent]]
    filled = there & (cells.codes[:, one.variable] >= 0)
    return int(cells.counts[there].sum()), int(cells.counts[filled].sum())


def _levels(schema: Schema, one: Settled) -> str:
    """The levels of the variable that settles another."""
    labels = schema.levels[one.parent]
    codes = np.flatnonzero(one.where).tolist()
    if len(codes) > 8 and not are_ordered(labels):
        return f"{text_of(labels[codes[0]])} and {len(codes) - 1} more levels"
    return levels_said(codes, labels).replace("|", ", ")


def with_level(table: Records, where: np.ndarray, j: int, label: str) -> Records:
    """Records in which empty values of variable j are a level, the last one unless it is there.

    Parameters
    ----------
    table
        Records, or cells of records.
    where
        (n,) bool, of its codes' rows: those whose value becomes the level.
    j, label
        Column of the variable, and the level's label.
    """
    schema, codes = table.schema, table.codes.copy()
    labels: tuple[Label, ...] = schema.levels[j]
    texts = [text_of(one) for one in labels]
    if label not in texts:
        # Labels of one type, as everywhere where a text comes to numbers.
        labels = (*texts, label)
    codes[where, j] = [*texts, label].index(label)
    levels = [labels if k == j else of for k, of in enumerate(schema.levels)]
    return table.recoded(Schema(schema.variables, tuple(levels)), codes)


def empty_as_level(table: Records, settled: Sequence[Settled]) -> Records:
    """Records in which the empty values that others settle are the level "not applicable".

    Parameters
    ----------
    table
        Coded records, or a table of their counts.
    settled
        Result of `find_settled`: which values of other variables settle that one is empty.

    Examples
    --------
    >>> asked = pd.DataFrame({"age": ["child", "adult"] * 40, "job": [None, "clerk"] * 40})
    >>> answers = bnp.Microdata.from_frame(asked)
    >>> made = bnp.zeros.empty_as_level(answers, bnp.zeros.find_settled(answers))
    >>> made.schema.levels[1]
    ('clerk', 'not applicable')
    """
    for one in settled:
        # Regrouped where a level was added, if they are cells with counts.
        codes = table.codes
        there = np.append(one.where, False)[codes[:, one.parent]]
        where = there & (codes[:, one.variable] < 0)
        table = with_level(table, where, one.variable, NOT_APPLICABLE)
    return table


def keep_empty(table: Records) -> Records:
    """Records in which all empty values are the level "(empty)" of their variables.

    Parameters
    ----------
    table
        Coded records, or a table of their counts.

    Examples
    --------
    >>> asked = pd.DataFrame({"age": ["child", "adult"] * 40, "job": [None, "clerk"] * 40})
    >>> answers = bnp.Microdata.from_frame(asked)
    >>> bnp.zeros.keep_empty(answers).schema.levels[1]
    ('clerk', '(empty)')
    """
    for j in np.flatnonzero((table.codes < 0).any(axis=0)).tolist():
        table = with_level(table, table.codes[:, j] < 0, j, EMPTY)
    return table


def not_applicable_zeros(
    table: Records, named: Sequence[tuple[str, str]] = ()
) -> StructuralZeros | None:
    """Structural zeros by which other variables determine the level "not applicable".

    The level is the only possible one where another variable settles it. If no other records of the
    sample have the level, it is impossible for all others. None if nothing settles the level.

    Parameters
    ----------
    table
        Result of `empty_as_level`.
    named
        Pairs of variables, as in `find_settled`.

    Examples
    --------
    >>> asked = pd.DataFrame({"age": ["child", "adult"] * 40, "job": [None, "clerk"] * 40})
    >>> answers = bnp.Microdata.from_frame(asked)
    >>> made = bnp.zeros.empty_as_level(answers, bnp.zeros.find_settled(answers))
    >>> bnp.zeros.not_applicable_zeros(made).num_feasible_cells
    2
    """
    schema = table.schema
    rows: list[np.ndarray] = []
    settled = find_settled(table, NOT_APPLICABLE, named)
    for j in dict.fromkeys(one.variable for one in settled):
        of = [one for one in settled if one.variable == j]
        level = [text_of(label) for label in schema.levels[j]].index(NOT_APPLICABLE)
        others = np.flatnonzero(np.arange(schema.num_levels[j]) != level)
        for one in of:
            rows += _products(schema, {one.parent: np.flatnonzero(one.where), j: others})
        codes = table.codes
        inside = np.any([np.append(x.where, False)[codes[:, x.parent]] for x in of], axis=0)
        parents = {one.parent for one in of}
        known = (codes[:, sorted(parents)] >= 0).all(axis=1)
        if not (known & ~inside & (codes[:, j] == level)).any():
            outside = {
                k: np.flatnonzero(~np.any([x.where for x in of if x.parent == k], axis=0))
                for k in parents
            }
            rows += _products(schema, {**outside, j: np.array([level])})
    if not rows:
        return None
    return StructuralZeros(schema, np.concatenate(rows))


def _products(schema: Schema, levels: dict[int, np.ndarray]) -> list[np.ndarray]:
    """Conditions (m, J), every combination of levels of some variables, in a list."""
    grid = np.stack(np.meshgrid(*levels.values(), indexing="ij"), axis=-1)
    found = np.full((grid[..., 0].size, len(schema.variables)), -1, np.int32)
    found[:, list(levels)] = grid.reshape(-1, len(levels))
    return [found]
