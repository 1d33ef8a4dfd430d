"""Warnings about labels: codes for missing values, and one label in two spellings."""

import re
from collections.abc import Collection, Mapping, Sequence

from bnp_models.data.bins import level_counts
from bnp_models.data.display import counted, first_parts
from bnp_models.data.label_numbers import OwnLevel
from bnp_models.data.messages import as_option, listed, quoted
from bnp_models.data.microdata import Records
from bnp_models.data.schema import Label, text_of
from bnp_models.data.sentinels import codes_among
from bnp_models.data.spelling import ranges_of_dates, several_spellings, shown

# Words and signs of statistical programs, and codes such as -9 and -99.
_MISSING = re.compile(
    r"\s*(n/?a|#n/a|nan|null|missing|\.[a-z]?|\.\.|\?|-|-[89]|-[89]{2,4})\s*", re.I
)

# Labels of columns that a message writes out.
_PAIRS = 6


def missing_codes(
    table: Records, said: Mapping[str, Collection[str]] | None = None
) -> dict[str, list[str]]:
    """Return texts of the labels that look like codes of missing values, by variable.

    Parameters
    ----------
    table
        Records.
    said
        By variable, texts of labels whose meaning the user has declared.

    Notes
    -----
    Codes among numbers are those of `codes_among`.
    """
    found, said = {}, said or {}
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        among = codes_among(labels, level_counts(table, name))
        codes = [
            text_of(label)
            for label in labels
            if (label in among or _looks_missing(label))
            and text_of(label) not in said.get(name, ())
        ]
        if codes:
            found[name] = codes
    return found


_ADVICE = (
    "where a value is not known, say so by column (--missing {option}); where there is none, the "
    "label is a level as it is, and --level in the place of --missing says so"
)


def _of_columns(pairs: Sequence[tuple[str, str]]) -> str:
    """Labels of columns as --missing takes them, of a few columns."""
    more = ",.." if len(pairs) > _PAIRS else ""
    return as_option(f"{name}={text}" for name, text in pairs[:_PAIRS]) + more


def label_warnings(
    table: Records,
    said: Mapping[str, Collection[str]] | None = None,
    settled: Mapping[tuple[str, str], str] | None = None,
) -> list[str]:
    """Return sentences on labels that look like missing values or dates, or are one value spelt
    twice: one of each kind, of all variables.

    Parameters
    ----------
    table, said
        As of `missing_codes`.
    settled
        By variable and text of a label that looks like a missing value and that another variable
        settles, the words that say where.
    """
    codes_of, settled = missing_codes(table, said), settled or {}
    missing, spelt, were = [], [], []
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        numbers = level_counts(table, name)
        counts = {text_of(label): int(n) for label, n in zip(labels, numbers, strict=True)}
        if name in codes_of:
            missing.append(f"{quoted(name)} has {with_counts(codes_of[name], counts)}")
        spelt += [f"{with_counts(same, counts)} of {quoted(name)}"
                  for same in several_spellings(labels)]  # fmt: skip
        if dates := ranges_of_dates(labels):
            made = listed(f"{shown(label)} was {to}" for label, to in dates.items())
            were.append(f"{quoted(name)} has dates among ranges: {made}")
    sentences = []
    if missing:
        their = "its levels" if len(missing) == 1 else "their levels"
        pairs = [(name, text) for name, texts in codes_of.items() for text in texts]
        unclear = [pair for pair in pairs if pair not in settled]
        advice = [_ADVICE.format(option=_of_columns(unclear))] if unclear else []
        if settled:
            level = "=".join(next(iter(settled)))
            advice.append(
                f"{first_parts(list(settled.values()), 'variable')}, which says that there is no "
                f"value: a level of its own, as it is (--level {level}), or, tied to the other "
                f"column, --missing {_of_columns(list(settled))} --empty-as-level"
            )
        sentences.append(
            f"missing values? {first_parts(missing, 'variable')} among {their}; {'; '.join(advice)}"
        )
    if spelt:
        sentences.append(
            "one label or two? these levels may be one value in several spellings: "
            f"{first_parts(spelt, 'value')}; --normalise merges them"
        )
    if were:
        sentences.append(
            f"ranges or dates? {first_parts(were, 'variable')}; spreadsheets turn such ranges into "
            "dates: rename these levels"
        )
    return sentences


def with_counts(labels: Sequence[Label], counts: Mapping[str, int]) -> str:
    """Return labels for a message, with their numbers of records, given these by text."""
    return listed(
        f"{shown(label)} ({counted(counts[text_of(label)], 'record')})" for label in labels
    )


def _looks_missing(label: Label) -> bool:
    """Whether a label alone looks like the code of a missing value."""
    return not isinstance(label, OwnLevel) and _MISSING.fullmatch(text_of(label)) is not None
