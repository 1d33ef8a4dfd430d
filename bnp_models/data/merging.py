"""Levels merged before a model sees them: top coding, and levels that few records have."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bnp_models.data.bins import in_bins, level_counts
from bnp_models.data.hierarchies import Hierarchies, Hierarchy, as_hierarchies
from bnp_models.data.label_numbers import OwnLevel, are_ordered, read_numbers, written
from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Records
from bnp_models.data.recoding import Merged, digits, level_names
from bnp_models.data.respelling import require_readable
from bnp_models.data.schema import Label, MicrodataError, text_of, unknown_variable

OTHER = "other"
"""Label of the rare levels of a variable whose levels have no order, merged."""


def merge_levels(
    table: Records,
    top: Mapping[str, float] | None = None,
    rare: int = 0,
    *,
    ordered: Collection[str] = (),
    groups: Mapping[str, Any] | Hierarchies = (),
    but: Collection[str] = (),
) -> tuple[Records, dict[str, Merged]]:
    """Top-code variables, and merge levels that fewer records than `rare` have.

    Parameters
    ----------
    table
        Records.
    top
        By variable, the number X such that all numbers from X on become one level, such as "85+".
    rare
        Levels that occur in fewer records than this are merged. 0: no levels are merged for this
        reason.
    ordered
        Variables whose levels are in an order. Rare levels are merged with the smaller of their
        neighbours, as "17 to 19"; so are those of variables whose labels are numbers in order. For
        other variables, all rare levels are merged into "other", together with the next rarest ones
        until "other" has enough records.
    groups
        Groups of the levels of variables, as of a model. Rare levels are merged with the rarest
        others of their group first, and then of the larger group.
    but
        Variables whose rare levels are not merged, such as variables with bins.

    Returns
    -------
    table, merged
        The recoded records, and the new levels of the variables that changed, by name.

    Raises
    ------
    MicrodataError
        If a variable to be top-coded is unknown, has no number from the given one on, or has a
        value with digits that cannot be read as a number; if a level has groups but is in none.

    Examples
    --------
    >>> ages = bnp.Microdata.from_frame(pd.DataFrame({"age": [17, 17, 60, 84, 90]}))
    >>> changed, _ = bnp.merge_levels(ages, {"age": 80}, rare=2)
    >>> changed.schema.levels
    (('17 to 60', '80+'),)
    """
    top = dict(top or {})
    for name in top:
        if name not in table.schema.variables:
            raise unknown_variable(name, table.schema.variables, "variable")
    hierarchies = dict(as_hierarchies(groups))
    merged = {}
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        of, left = np.arange(len(labels)), list(labels)
        at_top = None
        if name in top:
            require_readable(labels, level_counts(table, name), name, "top-coding")
            of, left, at_top = _top_coded(name, labels, top[name])
        if rare > 1 and name not in but:
            counts = np.bincount(of, level_counts(table, name), len(left))
            if name in hierarchies and name not in top:
                again, left = _join_in_groups(name, left, counts, rare, hierarchies[name])
            else:
                again, left = _join_but_own(left, counts, rare, name in ordered)
            of = again[of]
            at_top = None if at_top is None else int(again[at_top])
        if len(left) < len(labels) or name in top:
            ranges = {} if at_top is None else {f">={digits(top[name])}": at_top}
            merged[name] = Merged.of(name, labels, of, left, ranges)
    return in_bins(table, merged), merged


def merge_in_steps(
    table: Records, steps: Iterable[tuple[str, Sequence[str], str]]
) -> tuple[Records, dict[str, Merged]]:
    """Merge the levels that are named, step by step.

    Parameters
    ----------
    table
        Records.
    steps
        Of each step the variable, texts of at least two of its levels, which may come from steps
        before, and the label that they become.

    Returns
    -------
    table, merged
        As `merge_levels` returns them.

    Raises
    ------
    MicrodataError
        If a variable or level is unknown.
    """
    labels = dict(zip(table.schema.variables, table.schema.levels, strict=True))
    now: dict[str, list[str]] = {}
    for name, levels, to in steps:
        if name not in labels:
            raise unknown_variable(name, table.schema.variables, "variable")
        texts = now.setdefault(name, list(map(text_of, labels[name])))
        for level in levels:
            if level not in texts:
                raise unknown_variable(level, sorted(set(texts)), "level")
        now[name] = [to if text in levels else text for text in texts]
    merged = {}
    for name, texts in now.items():
        left = {text: code for code, text in enumerate(dict.fromkeys(texts))}
        merged[name] = Merged.of(name, labels[name], [left[text] for text in texts], list(left))
    return in_bins(table, merged), merged


def _top_coded(
    name: str, labels: Sequence[Label], limit: float
) -> tuple[np.ndarray, list[Label], int]:
    """New code of each level, the levels that are left, and the code of the top one."""
    above = np.zeros(len(labels), bool)
    for code, (label, interval) in enumerate(zip(labels, read_numbers(labels), strict=True)):
        if interval is None:
            continue
        if interval.low < limit <= interval.high:
            raise MicrodataError(
                f"level {quoted(label)} has numbers below {written(limit)} and numbers of "
                f"{written(limit)} or more; choose a top-code that is the smallest number of a "
                "level",
                column=name,
            )
        above[code] = interval.low >= limit
    if not above.any():
        raise MicrodataError(
            f"has no number of {written(limit)} or more to be top-coded; give a smaller top-code",
            column=name,
        )
    below = [label for label, is_above in zip(labels, above, strict=True) if not is_above]
    # Where the first of the numbers above was, labels that are no numbers beside it.
    place = int(np.count_nonzero(~above[: int(np.argmax(above))]))
    left = [*map(text_of, below[:place]), f"{written(limit)}+", *map(text_of, below[place:])]
    position = np.cumsum(~above) - 1
    of = np.where(above, place, position + (position >= place))
    return of, list(left), place


def _join_but_own(
    labels: Sequence[Label], counts: np.ndarray, least: int, ordered: bool
) -> tuple[np.ndarray, list[Label]]:
    """Merge rare levels but those that are to be levels of their own, which come last."""
    own = np.array([isinstance(label, OwnLevel) for label in labels], bool)
    others = [label for label, is_own in zip(labels, own, strict=True) if not is_own]
    if not others:
        return np.arange(len(labels)), list(labels)
    join = _join_neighbours if ordered or are_ordered(others) else _join_rare
    again, left = join(others, counts[~own], least)
    of = np.empty(len(labels), int)
    of[~own], of[own] = again, len(left) + np.arange(own.sum())
    return of, [*left, *(label for label, is_own in zip(labels, own, strict=True) if is_own)]


def own_levels(table: Records, levels: Mapping[str, Collection[str]]) -> dict[str, Merged]:
    """Make values of variables levels of their own, which are not numbers and come last.

    Parameters
    ----------
    table
        Records.
    levels
        By variable, texts of such values.

    Returns
    -------
    merged
        The levels of these variables, as texts, by name.

    Raises
    ------
    MicrodataError
        If a variable or a value is unknown.
    """
    merged = {}
    for name, texts in levels.items():
        if name not in table.schema.variables:
            raise unknown_variable(name, table.schema.variables, "variable")
        labels = table.schema.levels[table.schema.variables.index(name)]
        known = list(map(text_of, labels))
        for text in texts:
            if text not in known:
                raise MicrodataError(
                    f"has no value {quoted(text)} that could be a level of its own", column=name
                )
        left: list[Label] = [text for text in known if text not in texts]
        left += [OwnLevel(text) for text in known if text in texts]
        position = {text_of(label): code for code, label in enumerate(left)}
        merged[name] = Merged.of(name, labels, [position[text] for text in known], left)
    return merged


def _join_neighbours(
    labels: Sequence[Label], counts: np.ndarray, least: int
) -> tuple[np.ndarray, list[Label]]:
    """Merge rare levels with a neighbour until none is left; new codes, and the levels."""
    runs = [[k] for k in range(len(labels))]
    held = [int(count) for count in counts]
    while len(runs) > 1:
        short = [i for i, count in enumerate(held) if 0 < count < least]
        if not short:
            break
        i = min(short, key=lambda i: held[i])
        beside = [k for k in (i - 1, i + 1) if 0 <= k < len(runs)]
        k = min(beside, key=lambda k: held[k])
        first = min(i, k)
        runs[first : first + 2] = [runs[first] + runs[first + 1]]
        held[first : first + 2] = [held[first] + held[first + 1]]
    return np.repeat(np.arange(len(runs)), list(map(len, runs))), level_names(labels, runs)


def _join_in_groups(
    name: str, labels: Sequence[Label], counts: np.ndarray, least: int, hierarchy: Hierarchy
) -> tuple[np.ndarray, list[Label]]:
    """Merge rare levels along a hierarchy, the rest of them as other; new codes, and the levels."""
    try:
        layers = [hierarchy.groups_of(labels, k) for k in range(1, hierarchy.num_layers + 1)]
    except MicrodataError as error:
        raise MicrodataError(error.problem, column=name) from None
    sets = [[k] for k in range(len(labels))]
    names = list(map(text_of, labels))
    for group in layers:
        for one in dict.fromkeys(group):
            own = [i for i, codes in enumerate(sets) if group[codes[0]] == one]
            held = {i: int(counts[sets[i]].sum()) for i in own}
            seen = sorted((i for i in own if held[i]), key=held.__getitem__)
            rare = [i for i in seen if held[i] < least]
            for i in seen[len(rare) :] if rare else ():
                if len(rare) > 1 and sum(held[k] for k in rare) >= least:
                    break
                rare.append(i)
            if len(rare) < 2:
                continue
            # Levels without a record go with a group that is one level.
            together = own if len(rare) == len(seen) else rare
            new = one if together is own else f"{one}, {OTHER}"
            kept = [i for i in range(len(sets)) if i not in together]
            codes = sorted(code for i in together for code in sets[i])
            sets, names = [*(sets[i] for i in kept), codes], [*(names[i] for i in kept), new]
    order = sorted(range(len(sets)), key=lambda i: sets[i][0])
    of = np.zeros(len(labels), int)
    for code, i in enumerate(order):
        of[sets[i]] = code
    left: list[Label] = [labels[sets[i][0]] if len(sets[i]) == 1 else names[i] for i in order]
    again, left = _join_rare(left, np.bincount(of, counts, len(left)), least)
    return again[of], left


def _join_rare(
    labels: Sequence[Label], counts: np.ndarray, least: int
) -> tuple[np.ndarray, list[Label]]:
    """Merge all rare levels, and the next rarest until they suffice; new codes, and the levels."""
    order = [k for k in np.argsort(counts, kind="stable") if counts[k] > 0]
    rare = [k for k in order if counts[k] < least]
    if not rare or len(order) < 2:
        return np.arange(len(labels)), list(labels)
    for k in order[len(rare) :]:
        if counts[rare].sum() >= least and len(rare) > 1:
            break
        rare.append(k)
    known = {text_of(label).casefold(): k for k, label in enumerate(labels)}
    if (other := known.get(OTHER)) is not None and other not in rare:
        rare.append(other)
    is_rare = np.isin(np.arange(len(labels)), rare)
    name = OTHER if other is None else labels[other]
    left = [label for label, gone in zip(labels, is_rare, strict=True) if not gone]
    return np.where(is_rare, len(left), np.cumsum(~is_rare) - 1), [*left, name]
