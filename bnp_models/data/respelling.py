"""Columns as they are read: all numbers in one notation, and one spelling of each value."""

import logging
import re
from collections import Counter
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
    columns, levels, trimmed = {}, dict(declared), []
    for name, column in frame.items():
        name = str(name)
        if (bare := _trimmed(column, levels.get(name, ()))) is not None:
            column = columns[name] = bare
            levels |= {name: [_bare(label) for label in levels[name]]} if name in levels else {}
            trimmed.append(name)
        if not is_respelled(name, reading):
            continue
        new, known = respelled_labels(_counts(column), name, levels.get(name), source, reading)
        if known is not None:
            levels[name] = known
        if new:
            columns[name] = _mapped(column, new)
    tell_of_trimmed(source, trimmed)
    return frame.assign(**columns) if columns else frame, levels


def tell_of_trimmed(source: Source, names: Sequence[str]) -> None:
    """Say, once for each source, of which columns blanks at the ends of values are left out."""
    if names:
        source.once(("trimmed", *names), lambda: _LOG.warning(
            "%s: values that are read without blanks at the ends: those of %s", source,
            listed(map(quoted, names), most=_NAMED),
        ))  # fmt: skip


def is_respelled(name: str, reading: Reading) -> bool:
    """Whether labels of a column may be read otherwise than they are written."""
    return reading.normalise or _takes_notation(name, reading)


def respelled_labels(
    counts: Mapping[Label, int],
    name: str,
    declared: Sequence[Label] | None,
    source: Source,
    reading: Reading,
) -> tuple[dict[Label, Label], Sequence[Label] | None]:
    """Return what becomes of labels of a column that are read otherwise, and its declared levels.

    Parameters
    ----------
    counts
        Records of each label.
    name, declared
        The column, and the levels that are declared of it, if any are.
    source, reading
        As of `respelled`, and so are the errors.
    """
    new: dict[Label, Label] = {}
    if _takes_notation(name, reading):
        new |= _plain_labels(counts, name, source, reading)
        if (notation := notation_in(source, name)) is not None and declared is not None:
            declared = [_plain_level(label, notation) for label in declared]
    if reading.normalise:
        plain: Counter[Label] = Counter()
        for label, count in counts.items():
            plain[new.get(label, label)] += count
        spelling = _one_spelling(plain, name, declared or (), source)
        new = {
            label: spelling.get(new.get(label, label), new.get(label, label))
            for label in counts
            if label in new or label in spelling
        }
    return new, declared


def plain_numbers(column: pd.Series, name: str, source: Source, reading: Reading) -> pd.Series:
    """Return a column of text with its numbers as programs read them; other arguments and errors
    are as of `respelled`."""
    changed = _plain_labels(_counts(column), name, source, reading)
    return _mapped(column, changed) if changed else column


def _plain_labels(
    counts: Mapping[Label, int], name: str, source: Source, reading: Reading
) -> dict[Label, Label]:
    """Labels of a column that are numbers in another notation, as programs read them."""
    texts = {text: n for text, n in counts.items() if isinstance(text, str)}
    needed = name in reading.numbers
    try:
        usual = reading.notations.get(name)
        notation = notation_of(texts, reading.decimal, reading.thousands, usual)
    except MicrodataError as error:
        if needed:
            raise MicrodataError(error.problem, column=name) from None
        return {}
    plain = {text: notation.plain(text) for text in texts}
    misfits = {text: texts[text] for text, new in plain.items() if new is None}
    if misfits and needed:
        raise MicrodataError(
            f"{_with_records(misfits)} cannot be read as numbers with {notation}; correct "
            f"{'it' if len(misfits) == 1 else 'them'}, or say how numbers are written (--decimal, "
            "--thousands)",
            column=name,
        )
    if not needed and (misfits or not _are_numbers([new or "" for new in plain.values()])):
        return {}
    changed: dict[Label, Label] = {
        text: new for text, new in plain.items() if new != text and new is not None
    }
    source.once(("notation", name), lambda: _told_notation(name, source, notation, texts, changed))
    return changed


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


def _trimmed(column: pd.Series, declared: Sequence[Label]) -> pd.Series | None:
    """A column of text without blanks at the ends of its values; None where these are alike, or
    would become the same."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return None
    texts = {label for label in _counts(column) if isinstance(label, str) and label.strip()}
    new: dict[Label, str] = {text: text.strip() for text in texts if text != text.strip()}
    if not new or len({text.strip() for text in texts}) < len(texts):
        return None
    known = {text_of(label) for label in declared}
    if len({text.strip() for text in known}) < len(known):
        return None
    return _mapped(column, new)


def _bare(label: Label) -> Label:
    """A label without blanks at its ends."""
    return label.strip() if isinstance(label, str) else label


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
    changed: Mapping[Label, Label],
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


def _one_spelling(
    counts: Mapping[Label, int], name: str, declared: Sequence[Label], source: Source
) -> dict[Label, Label]:
    """New labels, by old one, that give each value one spelling; a message says what changed."""
    new = one_spelling(counts, declared)
    if not new:
        return new
    source.once(("spelling", name), lambda: _LOG.warning(
        "%s: column %s: different spellings of one value were merged: %s", source, quoted(name),
        listed(
            (f"{shown(old)} is {shown(to)} ({counted(counts[old], 'record')})"
             for old, to in sorted(new.items(), key=lambda x: (-counts[x[0]], text_of(x[0])))),
            most=_NAMED,
        ),
    ))  # fmt: skip
    return new


def _with_records(counts: Mapping[str, int]) -> str:
    """Labels with their numbers of records, the most frequent first."""
    order = sorted(counts, key=lambda text: -counts[text])
    number = sum(counts.values())
    said = (f"{shown(text)} ({counted(counts[text], 'record')})" for text in order)
    some = listed(said, most=_NAMED)
    values = f"{len(counts)} values of {counted(number, 'record')}: " if len(counts) > 1 else ""
    return values + some
