"""Columns as they are read: all numbers in one notation, and one spelling of each value."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from bnp_models.data.display import counted
from bnp_models.data.label_numbers import is_no_answer, read_numbers
from bnp_models.data.messages import listed, quoted
from bnp_models.data.notation import Notation, notation_of
from bnp_models.data.schema import Label, MicrodataError, text_of
from bnp_models.data.source import Source
from bnp_models.data.spelling import one_spelling, shown
from bnp_models.data.text_files import Reading

_LOG = logging.getLogger(__name__)

# Labels that are named in a message on a column.
_NAMED = 5


def respelled(
    frame: pd.DataFrame,
    declared: Mapping[str, Sequence[Label]],
    source: Source,
    reading: Reading,
) -> tuple[pd.DataFrame, dict[str, Sequence[Label]]]:
    """Return columns of a file as labels are to be read, and the levels declared of them.

    Parameters
    ----------
    frame
        Columns as they are in the file.
    declared
        Levels that are declared, by column.
    source
        The file. What is changed is logged, once for each source.
    reading
        How numbers are written, which columns are needed as numbers, and whether each value gets
        one spelling.

    Raises
    ------
    MicrodataError
        If the notation of a column that is needed as numbers cannot be told, or values have
        another one; it has their numbers.
    """
    columns, levels = {}, dict(declared)
    for name, column in frame.items():
        name = str(name)
        if _takes_notation(name, reading):
            new = plain_numbers(column, name, source, reading)
            if (notation := notation_in(source, name)) is not None and name in levels:
                levels[name] = [_plain_level(label, notation) for label in levels[name]]
        else:
            new = column
        if reading.normalise:
            new = _in_one_spelling(new, name, levels.get(name, ()), source)
        if new is not column:
            columns[name] = new
    return frame.assign(**columns) if columns else frame, levels


def plain_numbers(column: pd.Series, name: str, source: Source, reading: Reading) -> pd.Series:
    """Return a column of text with its numbers as programs read them; other arguments and errors
    are as of `respelled`."""
    counts = {text: n for text, n in _counts(column).items() if isinstance(text, str)}
    needed = name in reading.numbers
    try:
        usual = reading.notations.get(name)
        notation = notation_of(counts, reading.decimal, reading.thousands, usual)
    except MicrodataError as error:
        if needed:
            raise MicrodataError(error.problem, column=name) from None
        return column
    plain = {text: notation.plain(text) for text in counts}
    misfits = {text: counts[text] for text, new in plain.items() if new is None}
    if misfits and needed:
        raise MicrodataError(
            f"{_with_records(misfits)} cannot be read as numbers with {notation}; correct "
            f"{'it' if len(misfits) == 1 else 'them'}, or say how numbers are written (--decimal, "
            "--thousands)",
            column=name,
        )
    if not needed and (misfits or not _are_numbers([new or "" for new in plain.values()])):
        return column
    changed: dict[Label, str] = {
        text: new for text, new in plain.items() if new != text and new is not None
    }
    source.once(("notation", name), lambda: _told_notation(name, source, notation, counts, changed))
    return _mapped(column, changed) if changed else column


def notation_in(source: Source, name: str) -> Notation | None:
    """Notation of a column that was read by `plain_numbers`; None where none was."""
    found: Notation | None = source.once(("notation", name), lambda: None)
    return found


def has_decimal_comma(source: Source, name: str) -> bool:
    """Whether the numbers of a column that was read have a decimal comma in the file."""
    notation = notation_in(source, name)
    return notation is not None and notation.decimal == ","


def with_decimal_commas(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return records whose numbers in these columns of text have a decimal comma again."""
    columns = {
        name: frame[name].map(
            lambda label: re.sub(r"(?<=[0-9])\.(?=[0-9])", ",", label)
            if isinstance(label, str) else label
        )
        for name in names
    }  # fmt: skip
    return frame.assign(**columns) if columns else frame


def require_readable(labels: Sequence[Label], counts: Iterable[int], name: str, need: str) -> None:
    """Refuse labels with digits that cannot be read as numbers.

    Parameters
    ----------
    labels, counts
        Levels of the variable, and records of each.
    name
        The variable.
    need
        What the numbers are for.

    Raises
    ------
    MicrodataError
        It names some, with their numbers.
    """
    unread = {
        text_of(label): int(count)
        for label, interval, count in zip(labels, read_numbers(labels), counts, strict=True)
        if interval is None and not is_no_answer(label) and re.search(r"\d", text_of(label))
    }
    if unread:
        raise MicrodataError(
            f"{_with_records(unread)} cannot be read as numbers, which {need} needs; correct the "
            "values, or say what they are: missing (--missing) or a level of its own (--level "
            f"{name}=VALUE)",
            column=name,
        )


def _takes_notation(name: str, reading: Reading) -> bool:
    """Whether numbers of a column are looked for."""
    return name in reading.numbers or bool(reading.decimal or reading.thousands)


def _plain_level(label: Label, notation: Notation) -> Label:
    """A declared level with its numbers as programs read them."""
    return (notation.plain(label) or label) if isinstance(label, str) else label


def _are_numbers(labels: Sequence[str]) -> bool:
    """Whether all labels with a digit are numbers or ranges."""
    with_digits = [label for label in labels if re.search(r"\d", label)]
    return all(interval is not None for interval in read_numbers(with_digits))


def _counts(column: pd.Series) -> dict[Label, int]:
    """Records of each label of a column, empty cells left out."""
    try:
        counts = column.value_counts(sort=False)
        return {label: int(n) for label, n in counts.items() if n and label != ""}
    except (TypeError, ValueError):
        # Lists and the like, which are refused as no labels.
        return {}


def _mapped(column: pd.Series, new: Mapping[Label, Label]) -> pd.Series:
    """A column with new labels in the place of some."""
    return column.astype(object).map(lambda label: new.get(label, label))


def _told_notation(
    name: str,
    source: Source,
    notation: Notation,
    counts: Mapping[Any, int],
    changed: Mapping[Label, str],
) -> Notation:
    """The notation of a column, once it was said what was read by it."""
    if not changed:
        return notation
    number = sum(counts[text] for text in changed)
    text, new = next(iter(changed.items()))
    _LOG.warning(
        "%s: the numbers of column %s were read with %s: %s is %s (%s)", source, quoted(name),
        notation, quoted(text), new, counted(number, "record"),
    )  # fmt: skip
    return notation


def _in_one_spelling(
    column: pd.Series, name: str, declared: Sequence[Label], source: Source
) -> pd.Series:
    """A column with one spelling of each value; what is changed is said."""
    counts = _counts(column)
    new = one_spelling(counts, declared)
    if not new:
        return column
    source.once(("spelling", name), lambda: _LOG.warning(
        "%s: column %s: different spellings of one value were merged: %s", source, quoted(name),
        listed((f"{shown(old)} is {shown(to)} ({counted(counts[old], 'record')})"
                for old, to in new.items()), most=_NAMED),
    ))  # fmt: skip
    return _mapped(column, new)


def _with_records(counts: Mapping[str, int]) -> str:
    """Labels with their numbers of records, the most frequent first."""
    order = sorted(counts, key=lambda text: -counts[text])
    number = sum(counts.values())
    said = (f"{shown(text)} ({counted(counts[text], 'record')})" for text in order)
    some = listed(said, most=_NAMED)
    values = f"{len(counts)} values of {counted(number, 'record')}: " if len(counts) > 1 else ""
    return values + some
