"""Warnings about labels: codes for missing values, and one label in two spellings."""

import re
from collections.abc import Collection, Mapping, Sequence

from bnp_models.data.bins import level_counts
from bnp_models.data.display import counted, first_parts
from bnp_models.data.label_numbers import OwnLevel
from bnp_models.data.messages import listed, quoted
from bnp_models.data.microdata import Records
from bnp_models.data.schema import Label, text_of
from bnp_models.data.sentinels import codes_among
from bnp_models.data.spelling import ranges_of_dates, several_spellings, shown

# Words and signs of statistical programs, and codes such as -9 and -99.
_MISSING = re.compile(
    r"\s*(n/?a|#n/a|nan|null|missing|\.[a-z]?|\.\.|\?|-|-[89]|-[89]{2,4})\s*", re.I
)


def label_warnings(table: Records, said: Mapping[str, Collection[str]] | None = None) -> list[str]:
    """Return sentences on labels that look like missing values or dates, or are one value spelt
    twice: one of each kind, of all variables.

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
    said = said or {}
    missing, codes_of, spelt, were = [], {}, [], []
    for name, labels in zip(table.schema.variables, table.schema.levels, strict=True):
        numbers = level_counts(table, name)
        counts = {text_of(label): int(n) for label, n in zip(labels, numbers, strict=True)}
        among = codes_among(labels, numbers)
        codes = [
            label
            for label in labels
            if (label in among or _looks_missing(label))
            and text_of(label) not in said.get(name, ())
        ]
        if codes:
            missing.append(f"{quoted(name)} has {with_counts(codes, counts)}")
            codes_of[name] = [text_of(label) for label in codes]
        spelt += [f"{with_counts(same, counts)} of {quoted(name)}"
                  for same in several_spellings(labels)]  # fmt: skip
        if dates := ranges_of_dates(labels):
            made = listed(f"{shown(label)} was {to}" for label, to in dates.items())
            were.append(f"{quoted(name)} has dates among ranges: {made}")
    sentences = []
    if missing:
        every = dict.fromkeys(text for texts in codes_of.values() for text in texts)
        name, (first, *_) = next(iter(codes_of.items()))
        their = "its levels" if len(missing) == 1 else "their levels"
        these = "is it" if sum(map(len, codes_of.values())) == 1 else "are they"
        sentences.append(
            f"missing values? {first_parts(missing, 'variable')} among {their}; {these} to be read "
            f"as missing, say --missing {','.join(every)}, else --level {name}={first} or rename "
            "the label"
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
