"""Columns of a protected file that are no key variables, and what can be read back from the file.

A protected file is of use to an intruder who finds out what was changed. A column that says the
same as a key variable (the exact age beside groups of ages) tells it; so does one that says it in
some records only. What a column tells is measured on the records of the sample: an intruder who
knows which level of the variable goes with which value of the column is the strongest there is.

The share of wrong guesses that a column saves is lambda of Goodman & Kruskal 1954
(doi:10.1080/01621459.1954.10501231), of guesses for each record by all others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from bnp_models.data.documents import Share
from bnp_models.data.label_numbers import are_ordered, sorted_labels
from bnp_models.data.messages import listed, quoted
from bnp_models.data.microdata import Microdata
from bnp_models.data.recoding import level_names
from bnp_models.data.schema import Label, MicrodataError, plain_label, text_of, unknown_variable
from bnp_models.risk.protected_risks import patterns
from bnp_models.risk.rare_combinations import Rows
from bnp_models.risk.recoding import Recoded
from bnp_models.risk.verdict import Verdict

NEARLY = 0.9
"""Share of wrong guesses that a column saves, from which on it nearly determines a variable."""

# Records that all have one value and one level tell the level if chance would make them agree with
# at most the first probability. The share of saved wrong guesses is measured only if at least the
# second number of wrong guesses is expected without the column; the probability that chance makes
# none of them is then exp(-7), about the first probability.
_CHANCE, _LEAST_WRONG = 1e-3, 7


class Column(NamedTuple):
    """Values of a column as codes."""

    labels: Sequence[Label]
    """Texts of the distinct values; numbers ascend."""
    codes: np.ndarray
    """(n,) code of each record, -1 where nothing is known."""
    in_order: bool
    """Whether the values are numbers, so that a value is like the values next to it."""

    @classmethod
    def of(cls, values: pd.Series, gaps_tell: bool = False) -> "Column":
        """Code values; None, NaN and the empty text are missing, or a value of their own.

        They are a value if `gaps_tell`.
        """
        raw, found = pd.factorize(values.astype(object))
        texts = ["" if pd.isna(one) else text_of(plain_label(one)) for one in found]
        labels = sorted_labels([text for text in dict.fromkeys(texts) if text])
        in_order = are_ordered(labels)
        gap = len(labels) if gaps_tell else -1
        place = {"": gap} | {label: code for code, label in enumerate(labels)}
        codes = np.array([*(place[text] for text in texts), gap])[raw]
        return cls([*labels, ""] if (codes == len(labels)).any() else labels, codes, in_order)


Role: TypeAlias = Literal["key", "linked", "carried"]


class ReleasedColumn(NamedTuple):
    """A column of the protected file."""

    column: str
    role: Role
    """Whether the column is a key variable, is changed as one is (linked), or is as it was
    in the sample."""
    sample_uniques: int
    """Number of records, or of households, whose values of the key variables and this column no
    other has."""


class ReadBack(NamedTuple):
    """What a column of the protected file tells of a key variable that was changed."""

    column: str
    variable: str
    """Key variable."""
    saved: Share
    """Share of wrong guesses at the variable that the column saves; above 0.9 it nearly determines
    it."""
    suppressed: int
    """Suppressed values of the variable that the column tells."""
    merged: int
    """Records whose level before it was merged, or the variable dropped, the column tells."""


@dataclass(frozen=True, eq=False)
class Released:
    """The file that is released, and what can be read back from it.

    Examples
    --------
    >>> found = bnp.protect(run, 5_000, max_tau1=2, max_suppressed=0.2)
    >>> released = found.released(frame.assign(years=frame["age"]), carry=["years"])
    >>> [column.column for column in released.columns if column.role == "carried"]
    ['years']
    """

    frame: pd.DataFrame
    """The protected file."""
    columns: tuple[ReleasedColumn, ...]
    sample_uniques: int
    """Number of records, or of households, whose values of all columns no other has."""
    uniques_of_keys: int
    """Number of records, or of households, whose values of the key variables no other has."""
    read_back: tuple[ReadBack, ...]
    """Columns that tell of changes, or nearly determine a variable that was changed."""
    related: tuple[str, ...]
    """Columns that are no keys, and nearly determine one, or are nearly determined by one."""
    suppressed: int
    """Suppressed values of key variables."""
    suppressed_told: int
    """Suppressed values that another column tells, and no other key variable."""
    suppressed_told_by_keys: int
    """Suppressed values that another key variable tells."""
    merged_told: int
    """Merged or dropped values of records that other key variables do not tell, and another column
    does."""
    unit: str = "record"
    """What is unique or not: "record" or "household"."""

    def judge(self, verdict: Verdict) -> Verdict:
        """Return the verdict on the file as it is released, given that on its key variables."""
        roles = {one.column: one for one in self.columns}
        release, reasons = verdict.release, []
        if self.suppressed_told or self.merged_told:
            release = False
            telling = dict.fromkeys(
                quoted(one.column) for one in self.read_back
                if roles[one.column].role != "key" and (one.suppressed or one.merged)
            )  # fmt: skip
            reasons.append(
                f"{listed(telling)}, released beside the key variables, "
                f"{'tells' if len(telling) == 1 else 'tell'} {self.suppressed_told:,} of "
                f"{self.suppressed:,} suppressed values, and {self.merged_told:,} that were merged "
                "or dropped"
            )
        for name in self.related:
            if (number := roles[name].sample_uniques) > self.uniques_of_keys:
                release = None if release else release
                reasons.append(
                    f"{number:,} {self.unit}s are unique in the sample by the key variables and "
                    f"{quoted(name)}, which tells more than a key variable does; by the key "
                    f"variables alone, for which the risk is estimated, {self.uniques_of_keys:,} "
                    f"are; make {quoted(name)} the key variable, or leave it out"
                )
        return verdict._replace(
            release=release, why="; ".join([*filter(None, [verdict.why]), *reasons])
        )


def check_columns(
    names: Iterable[str], carry: Sequence[str], link: Mapping[str, str], keys: Sequence[str]
) -> None:
    """Raise MicrodataError unless columns can be carried, and linked to key variables."""
    names = list(names)
    for name in (*carry, *link):
        if name not in names:
            raise unknown_variable(name, names)
        if name in keys:
            raise MicrodataError("is a key variable, and is protected as such", column=name)
    for name, key in link.items():
        if key not in keys:
            raise unknown_variable(key, keys, "key variable")
        if name in carry:
            raise MicrodataError("is carried as it is and linked; leave out one", column=name)


def told(
    by: np.ndarray, of: np.ndarray, within: np.ndarray | None = None, in_order: bool = False
) -> tuple[float, np.ndarray]:
    """Say which levels of a variable a column tells.

    Parameters
    ----------
    by
        (n,) codes of the column, -1 where missing.
    of
        (n,) codes of the variable, -1 where they are not asked for.
    within
        (n,) groups that an intruder knows, within which levels are guessed; one by default.
    in_order
        Whether the column has numbers: a value that one record has is like the values next to it.

    Returns
    -------
    saved
        Share of wrong guesses that the column saves, if the level of each record is guessed from
        all others; records without a guess, whose value no other has, are left out. 0 if there are
        too few guesses to tell.
    told
        (n,) bool: where the column saves `NEARLY` all wrong guesses, all records but those whose
        guess is wrong; elsewhere those of which so many others have the value and the level, and
        none another level, that chance would make it with a probability below 0.001.

    Notes
    -----
    An example: `by` is 0 0 0 0 1 2 2, and `of` is 3 3 3 5 3 5 3. The first three records are
    guessed rightly, since two of the three others with value 0 have level 3; the fourth is guessed
    wrongly; the fifth has no guess; the last two are guessed wrongly, each by the other. Without
    the column, level 3 would be guessed for these six, and two guesses would be wrong.
    """
    result = np.zeros(len(by), bool)
    rows = np.flatnonzero((by >= 0) & (of >= 0))
    if not rows.size:
        return 0.0, result
    group = np.zeros(len(rows), np.int64) if within is None else within[rows].astype(np.int64)
    level, size = of[rows].astype(np.int64), int(by.max()) + 1
    values, value = np.unique(group * size + by[rows], return_inverse=True)
    total, (top, most, second) = np.bincount(value), _most_frequent(value, level)
    # The record itself does not count among the others.
    others, mine = most[value] - 1, level == top[value]
    right = mine & (others > second[value])
    made = (total[value] > 1) & ~(mine & (others == second[value]))
    if in_order:
        beside = _levels_beside(top, values // size)[value]
        alone = (total[value] == 1) & (beside >= 0)
        right, made = right | (alone & (level == beside)), made | alone
    without, share = _guessed_by_group(group, level, made)
    saved = max(0.0, 1 - float((made & ~right).sum()) / without) if without >= _LEAST_WRONG else 0.0
    alike = right & (total[value] == most[value]) & (share ** (total[value] - 1) <= _CHANCE)
    result[rows] = ~(made & ~right) if saved >= NEARLY else alike
    return saved, result


def _most_frequent(value: np.ndarray, level: np.ndarray) -> tuple[np.ndarray, ...]:
    """Most frequent level of each value, its records, and those of the next most frequent level.

    Of values 0 0 0 1 with levels 2 2 5 4: levels (2, 4), records (2, 1) and (1, 0).
    """
    size = int(level.max()) + 1
    pairs, number = np.unique(value * size + level, return_counts=True)
    of_pair = pairs // size
    order = np.lexsort([-number, of_pair])
    first = np.searchsorted(of_pair[order], np.arange(value.max() + 1))
    second = np.append(number[order], 0)[first + 1] * (np.bincount(of_pair) > 1)
    return (pairs % size)[order][first], number[order][first], second


def _levels_beside(top: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Level on which the values next to each one in its group agree, -1 if they do not.

    Of values in order with levels 3 3 5 of one group: 3, -1 (3 below and 5 above), 3.
    """
    edge = np.diff(group) != 0
    below = np.append(-1, np.where(edge, -1, top[:-1]))
    above = np.append(np.where(edge, -1, top[1:]), -1)
    return np.where((below == above) | (above < 0), below, np.where(below < 0, above, -1))


def _guessed_by_group(
    group: np.ndarray, level: np.ndarray, made: np.ndarray
) -> tuple[float, np.ndarray]:
    """Wrong guesses of those made, by the level most frequent in a group; share (n,) of the level.

    Of one group with levels 2 2 2 5, all guessed: 1 wrong guess, and shares 3/4 3/4 3/4 1/4.
    """
    size = int(level.max()) + 1
    cells, cell, count = np.unique(group * size + level, return_inverse=True, return_counts=True)
    known = pd.DataFrame({"group": cells // size, "count": np.bincount(cell, made)})
    wrong = float(made.sum() - known.groupby("group")["count"].max().sum())
    return wrong, count[cell] / np.bincount(group)[group]


def release(
    table: Microdata,
    recoded: Recoded,
    suppressed: np.ndarray,
    protected: pd.DataFrame,
    frame: pd.DataFrame,
    carry: Sequence[str],
    link: Mapping[str, str],
    of_household: np.ndarray | None = None,
) -> Released:
    """Make the file that is released, and measure what it tells.

    Parameters
    ----------
    table, recoded, suppressed
        The original sample; what became of its levels; the (n, J') values that are suppressed.
    protected
        The key variables of the protected file, as labels.
    frame
        (n, any) the original file.
    carry
        Columns that are released as they are.
    link
        By column that is changed as a key variable is, the key variable: it is suppressed where
        this is, its values of merged levels become one, and it is dropped with it.
    of_household
        (n,) household of each record, if they are persons whose households are protected: unique or
        not are then the households, by the values of all their persons.
    """
    keys = table.schema.variables
    check_columns(frame, carry, link, keys)
    kept = {keys[j]: place for place, j in enumerate(recoded.kept)}
    columns: dict[str, Column] = {}
    values: dict[str, pd.Series] = {}
    masks: dict[str, np.ndarray] = {}
    of_uniques: dict[str, Column] = {}
    for name in carry:
        columns[name], values[name] = Column.of(frame[name], gaps_tell=True), frame[name]
        masks[name] = np.zeros(table.n, bool)
    for name, key in link.items():
        if key in kept:
            masks[name] = suppressed[:, kept[key]]
            linked = _linked(frame[name], table, recoded, keys.index(key))
            # Whether a value would be unique is asked of the file before values were suppressed.
            of_uniques[name] = Column.of(linked, gaps_tell=True)
            values[name] = linked.mask(masks[name], None)
            columns[name] = Column.of(values[name])
    order = [name for name in frame if name in kept or name in values]
    order += [name for name in kept if name not in order]
    made = {x: protected[x].astype(object) if x in kept else values[x] for x in order}
    released = pd.DataFrame({x: of.to_numpy() for x, of in made.items()})
    uniques = _Uniques(recoded.records, suppressed, columns | of_uniques, masks, of_household)
    roles: dict[str, Role] = dict.fromkeys(carry, "carried")
    roles |= dict.fromkeys(link, "linked")
    read_back, told_of, merged_of = _read_back(table, recoded, suppressed, columns)
    return Released(
        frame=released,
        columns=tuple(
            ReleasedColumn(name, roles.get(name, "key"), uniques([name] if name in columns else []))
            for name in order
        ),
        sample_uniques=uniques(columns),
        uniques_of_keys=uniques([]),
        read_back=tuple(read_back),
        related=tuple(
            dict.fromkeys(
                [
                    *(name for name in link if name in columns),
                    *related_columns(table, {name: columns[name] for name in carry}),
                ]
            )
        ),
        suppressed=int(suppressed.sum()),
        suppressed_told=int((told_of[False] & ~told_of[True]).sum()),
        suppressed_told_by_keys=int(told_of[True].sum()),
        merged_told=int((merged_of[False] & ~merged_of[True]).sum()),
        unit="record" if of_household is None else "household",
    )


def related_columns(table: Microdata, columns: Mapping[str, Column]) -> dict[str, list[str]]:
    """Return, by column that says nearly the same as key variables, these variables."""
    found: dict[str, list[str]] = {}
    in_order = [are_ordered(labels) for labels in table.schema.levels]
    for name, column in columns.items():
        for j, key in enumerate(table.schema.variables):
            codes = table.codes[:, j]
            tells, _ = told(column.codes, codes, in_order=column.in_order)
            back, _ = told(codes, column.codes, in_order=in_order[j])
            if max(tells, back) >= NEARLY:
                found.setdefault(name, []).append(key)
    return found


def _linked(values: pd.Series, table: Microdata, recoded: Recoded, j: int) -> pd.Series:
    """Values of a column, of which those of merged levels of variable j became one."""
    column, values = Column.of(values), values.astype(object).copy()
    codes = column.codes
    for group in recoded.groups[j] or ():
        inside = np.isin(table.codes[:, j], group) & (codes >= 0)
        if len(np.unique(table.codes[inside, j])) > 1:
            labels = [column.labels[code] for code in np.unique(codes[inside])]
            (name,) = level_names(labels, [tuple(range(len(labels)))])
            values[inside] = name
    return values


class _Uniques:
    """Number of records, or households, that are unique by the key variables and more columns."""

    def __init__(
        self,
        records: Microdata,
        suppressed: np.ndarray,
        columns: Mapping[str, Column],
        masks: Mapping[str, np.ndarray],
        of_household: np.ndarray | None,
    ):
        self.records, self.suppressed = records, suppressed
        self.columns, self.masks, self.of_household = columns, masks, of_household

    def __call__(self, names: Iterable[str]) -> int:
        """Number of units whose values of the key variables and these columns no other has."""
        names = list(names)
        codes = [self.records.codes, *(self.columns[name].codes[:, None] for name in names)]
        sizes = [*self.records.schema.num_levels, *(len(self.columns[x].labels) for x in names)]
        mask = np.column_stack([self.suppressed, *(self.masks[name] for name in names)])
        of_household = self.of_household
        rows = Rows(
            np.column_stack(codes), np.ones(len(mask), int), sizes, of_household=of_household
        )
        if of_household is not None:
            # All persons of a household lose a value together.
            mask = mask[np.unique(of_household, return_index=True)[1]]
        number = 0
        for pattern, where in patterns(mask):
            number += int((rows.alike(np.flatnonzero(~pattern).tolist())[where] == 1).sum())
        return number


def _read_back(
    table: Microdata, recoded: Recoded, suppressed: np.ndarray, columns: Mapping[str, Column]
) -> tuple[list[ReadBack], dict[bool, np.ndarray], dict[bool, np.ndarray]]:
    """What each column tells; suppressed values that keys (True) and others tell; merged ones."""
    names, n, kept = table.schema.variables, table.n, recoded.kept
    codes = recoded.records.codes
    keys = {
        names[j]: Column(
            list(recoded.records.schema.levels[place]),
            np.where(suppressed[:, place], -1, codes[:, place]),
            are_ordered(recoded.records.schema.levels[place]),
        )
        for place, j in enumerate(kept)
    }
    found = []
    of_values = {by_key: np.zeros((n, len(names)), bool) for by_key in (False, True)}
    of_merged = {by_key: np.zeros((n, len(names)), bool) for by_key in (False, True)}
    nothing = np.zeros(n, bool)
    for j, name in enumerate(names):
        place = kept.index(j) if j in kept else None
        gone = nothing if place is None else suppressed[:, place]
        within = np.zeros(n, int) if place is None else codes[:, place]
        coarser = place is None or len(recoded.groups[j] or ()) < table.schema.num_levels[j]
        if not (gone.any() or coarser):
            continue
        for other, column in {**columns, **keys}.items():
            if other == name:
                continue
            saved, values, merged = 0.0, nothing, nothing
            if gone.any():
                saved, known = told(column.codes, within, in_order=column.in_order)
                values = known & gone
            if coarser:
                lost = _lost(table.codes[:, j], within)
                of = np.where(lost, table.codes[:, j], -1)
                share, known = told(column.codes, of, within, column.in_order)
                saved, merged = max(saved, share), known & ~gone
            of_values[other in keys][:, j] |= values
            of_merged[other in keys][:, j] |= merged
            if values.any() or merged.any() or saved >= NEARLY:
                found.append(ReadBack(other, name, saved, int(values.sum()), int(merged.sum())))
    return found, of_values, of_merged


def _lost(codes: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Records (n,) whose code is one of several that became their level."""
    pairs = np.unique(np.stack([level, codes], axis=1), axis=0)
    several = np.bincount(pairs[:, 0], minlength=level.max() + 1) > 1
    return several[level]
